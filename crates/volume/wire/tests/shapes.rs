//! Every field and kind of requests, replies and frames, with the feature that it belongs to.
//!
//! `fixtures/shapes.tsv` has a line for each: its name, and one of
//!
//! * `0.1.0`: that version has it;
//! * the name of a feature ([`redoubt_wire::greeting::ALL`]): it is sent only to a peer with that feature;
//! * `optional`: a field of a reply that other versions ignore, and that may be missing.
//!
//! This test fails when a field or kind is added, removed or renamed without a change of the file. A line is never removed
//! or changed: peers in the field have it.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_wire::control::{
    Attachment, CheckProgress, EntryKind, FrozenEnd, ImportedLogFile, LogDeviceStatus, NodeStatus,
    PageStoreStatus, QuarantinedPage, Reply, Request, Room, ScrubStatus, VolumeEntry, VolumeStatus,
    encode_json,
};
use redoubt_wire::figures::{ApplyWorker, ChainClass, Times};
use redoubt_wire::greeting;
use redoubt_wire::notice::Notice;
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::trace::{Sample, Traced};
use redoubt_wire::view::{ViewFile, ViewLog, ViewReply, ViewRequest};
use redoubt_wire::{ServerVersion, WireError, stream};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;

const SHAPES: &str = include_str!("fixtures/shapes.tsv");

/// One of each kind, with all that may be left out. A variant that is missing here fails [`request_name`] or
/// [`reply_name`], which have to list it, and a field that is missing does not compile.
fn requests() -> Vec<Request> {
    let name = || "n".to_owned();
    let view = |about| Request::View { volume: name(), about };
    vec![
        Request::VolumeCreate { volume: name(), encrypted: true },
        Request::VolumeDelete { volume: name(), force: true },
        Request::Status,
        Request::Attach { volume: name(), who: name(), server: Some(version()), seen_generation: Some(1) },
        Request::List { volume: name() },
        Request::Fetch { volume: name(), path: name() },
        Request::FetchTail { volume: name(), path: name(), from_bytes: 1 },
        Request::ExportBegin { volume: name() },
        Request::ExportFile { volume: name(), path: name(), with_damaged: true },
        Request::ExportEnd { volume: name() },
        Request::ImportBegin {
            volume: name(),
            family: "MySQL".to_owned(),
            system_files: Vec::new(),
            encrypted: true,
        },
        Request::ImportDirectory { path: name(), mode: 1 },
        Request::ImportFile { path: name(), mode: 1, len_bytes: 1, tablespace: true },
        Request::ImportLog {
            file_size_bytes: 1,
            header: Vec::new(),
            checkpoints: [Vec::new(), Vec::new()],
            start_lsn: 1,
        },
        Request::ImportLogSet {
            files: vec![ImportedLogFile { path: name(), mode: 1, len_bytes: 1, blocks: Vec::new() }],
            start_lsn: 1,
        },
        Request::ImportEnd,
        Request::TraceBegin { volume: name(), one_in: 1 },
        Request::TraceTake { volume: name() },
        Request::VolumeCheck { volume: name() },
        view(ViewRequest::Begin { moment: true }),
        view(ViewRequest::Names { view: 1 }),
        view(ViewRequest::Stat { view: 1, path: name() }),
        view(ViewRequest::Read { view: 1, file: 1, offset_bytes: 1, len_bytes: 1 }),
        view(ViewRequest::Log { from_lsn: Some(1) }),
    ]
}

fn request_name(request: &Request) -> &'static str {
    match request {
        Request::VolumeCreate { .. } => "volume_create",
        Request::VolumeDelete { .. } => "volume_delete",
        Request::Status => "status",
        Request::Attach { .. } => "attach",
        Request::List { .. } => "list",
        Request::Fetch { .. } => "fetch",
        Request::FetchTail { .. } => "fetch_tail",
        Request::ExportBegin { .. } => "export_begin",
        Request::ExportFile { .. } => "export_file",
        Request::ExportEnd { .. } => "export_end",
        Request::ImportBegin { .. } => "import_begin",
        Request::ImportDirectory { .. } => "import_directory",
        Request::ImportFile { .. } => "import_file",
        Request::ImportLog { .. } => "import_log",
        Request::ImportLogSet { .. } => "import_log_set",
        Request::ImportEnd => "import_end",
        Request::TraceBegin { .. } => "trace_begin",
        Request::TraceTake { .. } => "trace_take",
        Request::VolumeCheck { .. } => "volume_check",
        Request::View { about, .. } => match about {
            ViewRequest::Begin { .. } => "view/begin",
            ViewRequest::Names { .. } => "view/names",
            ViewRequest::Stat { .. } => "view/stat",
            ViewRequest::Read { .. } => "view/read",
            ViewRequest::Log { .. } => "view/log",
        },
    }
}

fn version() -> ServerVersion {
    "MariaDB 11.8.9".parse().unwrap()
}

fn entry() -> VolumeEntry {
    VolumeEntry { path: "p".to_owned(), kind: EntryKind::Plain, mode: 1, len_bytes: 1, checksum: Some(1) }
}

fn times() -> Times {
    Times { count: 1, sum_micros: 1, buckets: Vec::new() }
}

fn log_device() -> LogDeviceStatus {
    LogDeviceStatus {
        kind: String::new(),
        detail: String::new(),
        directory: String::new(),
        write_unit_bytes: 1,
        max_in_flight: 1,
        written_per_appended_byte: 1.0,
        warnings: Vec::new(),
    }
}

fn page_store() -> PageStoreStatus {
    PageStoreStatus {
        protection: String::new(),
        reason: String::new(),
        pages: String::new(),
        journal: String::new(),
        journal_len_bytes: 1,
        journal_live_bytes: 1,
        pending_pages: 1,
        untorn_len_bytes: Some([1, 2]),
        home_bytes_per_redo_byte: 1.0,
        journal_bytes_per_redo_byte: 1.0,
        warnings: Vec::new(),
    }
}

fn quarantined_page() -> QuarantinedPage {
    QuarantinedPage { page_no: Some(1), restore_from: Some(String::new()), ..QuarantinedPage::default() }
}

fn check_progress() -> CheckProgress {
    CheckProgress {
        is_complete: true,
        stage: String::new(),
        checked_bytes: 1,
        total_bytes: 1,
        pages: 1,
        files: 1,
        new_files: 1,
        log_bytes: 1,
        repaired: 1,
        damaged: 1,
        damage: vec![quarantined_page()],
        log_damage: Some(String::new()),
        unchecked: 1,
        first_unchecked: "n".to_owned(),
    }
}

fn volume_status() -> VolumeStatus {
    VolumeStatus {
        name: String::new(),
        volume_id: String::new(),
        encrypted_with: Some(String::new()),
        state: String::new(),
        reason: String::new(),
        generation: 1,
        attached_by: String::new(),
        newest_server: Some(version()),
        server_certificate_expires_s: Some(1),
        connections: 1,
        local_connections: 1,
        w_lsn: 1,
        d_lsn: 1,
        d_seq: Some(1),
        p_lsn: 1,
        a_lsn: 1,
        server_checkpoint_lsn: 1,
        ring_used_bytes: 1,
        ring_len_bytes: 1,
        ring_waits_for: String::new(),
        ring_wait_micros: Default::default(),
        index_pages: 1,
        index_runs: 1,
        index_tables: 1,
        chain_lengths: vec![ChainClass { longest: Some(1), pages: 1 }],
        page_read_times: times(),
        log_write_times: times(),
        apply_workers: vec![ApplyWorker { pages: 1, runs: 1, redo_bytes: 1, busy_micros: 1 }],
        files: 1,
        quarantine: vec![quarantined_page()],
        quarantined: 1,
        unknown_files: vec![String::new()],
        scrub: Some(ScrubStatus {
            period_s: Some(1),
            age_s: 1,
            has_completed: true,
            stage: String::new(),
            checked_bytes: 1,
            total_bytes: 1,
            log_damage: Some(String::new()),
            unchecked: 1,
            first_unchecked: "n".to_owned(),
        }),
        log_device: log_device(),
        page_store: page_store(),
        counters: Default::default(),
        server_counters: Default::default(),
    }
}

fn node_status() -> NodeStatus {
    NodeStatus {
        version: String::new(),
        listen: String::new(),
        local_socket: Some(String::new()),
        data_directory: String::new(),
        uptime_seconds: 1,
        memory_used_bytes: 1,
        memory_limit_bytes: 1,
        room: vec![Room { directory: String::new(), total_bytes: 1, free_bytes: 1 }],
        certificate_expires_s: Some(1),
        status_page: Some(String::new()),
        volumes: vec![volume_status()],
    }
}

fn replies() -> Vec<Reply> {
    let name = || "n".to_owned();
    let sample = |what| Sample { what, total_nanos: 1, stages: Default::default() };
    vec![
        Reply::Done,
        Reply::Damaged { pages: 1, first: vec![name()] },
        Reply::Encrypted { key_file: name(), key_is_new: true },
        Reply::Failed { retry: true, message: name() },
        Reply::Status(node_status()),
        Reply::Attached(Attachment {
            volume_id: name(),
            generation: 1,
            empty: true,
            end_lsn: 1,
            entries: vec![entry()],
            frozen: Some(FrozenEnd { lsn: 1, bytes_after: 1, changes_end: Some(1) }),
        }),
        Reply::FileFollows { len_bytes: 1 },
        Reply::Trace { samples: vec![sample(Traced::Commit { position: 1 })], lost: 1 },
        Reply::Trace { samples: vec![sample(Traced::Read { path: name(), offset_bytes: 1 })], lost: 1 },
        Reply::Checked(check_progress()),
        Reply::View(ViewReply::Begun { number: 1, volume_id: name(), end_lsn: 1 }),
        Reply::View(ViewReply::Stat { found: Some(ViewFile { file: 1, entry: entry() }) }),
        Reply::View(ViewReply::Gone),
        Reply::View(ViewReply::Log(ViewLog {
            file_size_bytes: 1,
            header: Vec::new(),
            checkpoints: [Vec::new(), Vec::new()],
            start_lsn: 1,
            end_lsn: 1,
        })),
    ]
}

fn reply_name(reply: &Reply) -> &'static str {
    match reply {
        Reply::Done => "done",
        Reply::Damaged { .. } => "damaged",
        Reply::Encrypted { .. } => "encrypted",
        Reply::Failed { .. } => "failed",
        Reply::Status(_) => "status",
        Reply::Attached(_) => "attached",
        Reply::FileFollows { .. } => "file_follows",
        Reply::Trace { .. } => "trace",
        Reply::Checked(_) => "checked",
        Reply::View(ViewReply::Begun { .. }) => "view/begun",
        Reply::View(ViewReply::Stat { .. }) => "view/stat",
        Reply::View(ViewReply::Gone) => "view/gone",
        Reply::View(ViewReply::Log(_)) => "view/log",
    }
}

/// Paths to all fields of a message, as pointers into its JSON.
fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let at = format!("{at}/{name}");
                pointers(value, &at, out);
                out.push(at);
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| pointers(item, &format!("{at}/{index}"), out));
        }
        _ => {}
    }
}

/// Without numbers of items.
fn shape(kind: &str, name: &str, pointer: &str) -> String {
    let parts = pointer.split('/').filter(|part| part.parse::<usize>().is_err());
    format!("{kind} {name}{}", parts.collect::<Vec<_>>().join("/"))
}

fn json(message: &impl Serialize) -> Value {
    serde_json::from_slice(&encode_json(message).unwrap()).unwrap()
}

fn messages() -> Vec<(&'static str, &'static str, Value)> {
    let requests = requests().into_iter().map(|one| ("request", request_name(&one), json(&one)));
    let replies = replies().into_iter().map(|one| ("reply", reply_name(&one), json(&one)));
    requests.chain(replies).collect()
}

fn kinds(role: &str, decode: impl Fn(u8) -> Option<WireError>) -> Vec<String> {
    let is_known = |kind: &u8| !matches!(decode(*kind), Some(WireError::UnknownKind { .. }));
    (0..=127).filter(is_known).map(|kind| format!("frame {role}/{kind}")).collect()
}

fn file_kind_name(kind: stream::FileKind) -> &'static str {
    match kind {
        stream::FileKind::Tablespace => "file tablespace",
        stream::FileKind::Plain => "file plain",
        stream::FileKind::Redo => "file redo",
    }
}

fn shapes() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (kind, name, json) in messages() {
        let mut found = Vec::new();
        pointers(&json, "", &mut found);
        all.insert(format!("{kind} {name}"));
        all.extend(found.iter().map(|pointer| shape(kind, name, pointer)));
    }
    all.extend(kinds("log", |kind| stream::decode(kind, &[]).err()));
    all.extend(kinds("page", |kind| PageRequest::decode(kind, &[]).err()));
    all.extend(kinds("page reply", |kind| PageReply::decode(kind, &[]).err()));
    all.extend(kinds("notice", |kind| Notice::decode(kind, &[]).err()));
    let files = [stream::FileKind::Tablespace, stream::FileKind::Plain, stream::FileKind::Redo];
    all.extend(files.map(|kind| file_kind_name(kind).to_owned()));
    all
}

/// Shape and what it belongs to.
fn recorded() -> Vec<(&'static str, &'static str)> {
    SHAPES.lines().map(|line| line.split_once('\t').unwrap()).collect()
}

#[test]
fn every_field_and_kind_is_recorded_with_its_feature() {
    let recorded = recorded();
    let now = shapes();
    let known: BTreeSet<String> = recorded.iter().map(|(shape, _)| (*shape).to_owned()).collect();
    let new: Vec<_> = now.difference(&known).collect();
    assert!(
        new.is_empty(),
        "not in fixtures/shapes.tsv, give each a feature (see docs/volume/reference/protocol.md): {new:#?}"
    );
    let gone: Vec<_> = known.difference(&now).collect();
    assert!(gone.is_empty(), "peers in the field have these: {gone:#?}");
    let names: Vec<_> = greeting::ALL.iter().map(|(_, name)| *name).chain(["0.1.0", "optional"]).collect();
    for (shape, belongs_to) in recorded {
        assert!(names.contains(&belongs_to), "{shape}: {belongs_to} is no feature");
        assert!(belongs_to != "optional" || shape.starts_with("reply "), "{shape}: only replies may");
    }
}

/// So that a message of a peer without the feature is understood.
#[test]
fn message_without_later_fields_is_understood() {
    let later: Vec<_> = recorded().into_iter().filter(|(_, belongs_to)| *belongs_to != "0.1.0").collect();
    let mut removed = 0;
    for (kind, name, json) in messages() {
        if later.iter().any(|(shape, _)| *shape == format!("{kind} {name}")) {
            continue;
        }
        let mut without = json.clone();
        let mut found = Vec::new();
        pointers(&json, "", &mut found);
        for pointer in found {
            if later.iter().any(|(later, _)| *later == shape(kind, name, &pointer)) {
                let (parent, field) = pointer.rsplit_once('/').unwrap();
                without.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field).unwrap();
                removed += 1;
            }
        }
        let understood = match kind {
            "request" => serde_json::from_value::<Request>(without).err(),
            _ => serde_json::from_value::<Reply>(without).err(),
        };
        assert!(understood.is_none(), "{kind} {name}: {understood:?}");
    }
    assert!(removed >= 6, "{removed}");
}
