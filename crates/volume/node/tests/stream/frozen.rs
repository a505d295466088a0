//! Frozen volumes: what is exact and what is missing is reported, and the ways out work.

use super::client::{ControlClient, PATIENCE};
use super::encoder::MtrWriter;
use super::export::wait_until;
use super::protocol::changed;
use super::quarantine::{OTHER_PAGE, Running, own_file, start};
use super::rescue::{PAGE_LEN, Prepared, prepare};
use super::running::{LocalNode, SMALL, options};
use redoubt_pagestore::PageProtection;
use redoubt_test_support::log_segment::{FRAME_HEADER_LEN, KIND_REDO, change_last_frame};
use redoubt_wire::control::{FrozenEnd, Reply, Request};
use redoubt_wire::notice::Notice;
use redoubt_wire::stream::{FileKind, StreamFrame};
use redoubt_wire::view::ViewRequest;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const PLAIN: &str = "a.frm";
/// In the last change of a prepared log.
const MARK: &[u8] = b"evil";

pub fn log_of(prepared: &Prepared) -> PathBuf {
    prepared.directory.path().join("volumes/v/log")
}

fn begin_export(control: &mut ControlClient) -> FrozenEnd {
    match control.ask(&Request::ExportBegin { volume: "v".to_owned() }).unwrap() {
        Reply::Attached(held) => held.frozen.expect("the volume is frozen"),
        other => panic!("{other:?}"),
    }
}

pub fn export_file(path: &str, with_damaged: bool) -> Request {
    Request::ExportFile { volume: "v".to_owned(), path: path.to_owned(), with_damaged }
}

pub fn require_refused(reply: &Reply, parts: &[&str]) {
    let has_parts = |message: &str| parts.iter().all(|part| message.contains(part));
    assert!(matches!(reply, Reply::Failed { message, .. } if has_parts(message)), "{parts:?}: {reply:?}");
}

/// Applies nothing until the node stops.
fn hold(prepared: &mut Prepared) {
    prepared.options.apply_interval = PATIENCE;
    prepared.options.batch_len_bytes = 1 << 30;
    prepared.options.ring_len_bytes = 16 << 20;
}

fn let_go(prepared: &mut Prepared) {
    let usual = options(prepared.directory.path(), SMALL);
    prepared.options.apply_interval = usual.apply_interval;
    prepared.options.batch_len_bytes = usual.batch_len_bytes;
}

/// A stopped node. A plain file is written after a change with the mark; both are not applied.
fn prepare_executed() -> Prepared {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let mut running = start(&mut prepared, 11);
    let path = PLAIN.as_bytes();
    let stream = &mut prepared.stream;
    let mut wire = stream.frame(&StreamFrame::Create { path, kind: FileKind::Plain, mode: 0o660 });
    wire.extend(stream.frame(&StreamFrame::Write { path, offset_bytes: 0, data: b"one" }));
    wire.extend(stream.change(OTHER_PAGE, b"good"));
    running.send(&prepared.stream, &wire);
    running.control.wait_applied(prepared.stream.lsn.0);
    running.stop();
    hold(&mut prepared);
    let mut running = start(&mut prepared, 12);
    let mut wire = prepared.stream.change(OTHER_PAGE, MARK);
    wire.extend(prepared.stream.frame(&StreamFrame::Write { path, offset_bytes: 0, data: b"two" }));
    running.send(&prepared.stream, &wire);
    wait_until("the plain file is written", || {
        let fetch = Request::Fetch { volume: "v".to_owned(), path: PLAIN.to_owned() };
        running.control.file(&fetch).unwrap() == b"two"
    });
    running.stop();
    let_go(&mut prepared);
    prepared
}

fn damage_mark(prepared: &Prepared, is_unknown_kind: bool) {
    let has_mark = |payload: &[u8]| payload.windows(MARK.len()).any(|window| window == MARK);
    let change = |frame: &mut [u8]| {
        if is_unknown_kind { frame[0] = 0x3d } else { frame[FRAME_HEADER_LEN] ^= 0x41 }
    };
    change_last_frame(&log_of(prepared), KIND_REDO, has_mark, change).unwrap().expect("the frame");
}

#[test]
fn volume_frozen_below_executed_changes_is_not_exact() {
    for is_unknown_kind in [true, false] {
        let prepared = prepare_executed();
        damage_mark(&prepared, is_unknown_kind);
        for _ in 0..2 {
            let node = LocalNode::open(&prepared.options);
            let mut control = ControlClient::connect(node.address).unwrap();
            let end = begin_export(&mut control);
            assert!(end.changes_end.is_some() && end.bytes_after > 0, "{end:?}");
            // A command that cannot report it gets nothing.
            let refused = control.ask(&export_file(PLAIN, false)).unwrap();
            require_refused(&refused, &["frozen", "commits after that point are missing"]);
            let (file, reply) = control.file_and_reply(&export_file(PLAIN, true)).unwrap();
            // It is newer than the end of the volume.
            assert_eq!((&file[..], format!("{reply:?}").as_str()), (&b"two"[..], "Done"));
            let (file, _) = control.file_and_reply(&export_file("d/t.ibd", true)).unwrap();
            assert_eq!(file[OTHER_PAGE as usize * PAGE_LEN..][200..204], *b"good");
            control.ask(&Request::ExportEnd { volume: "v".to_owned() }).unwrap();
            let about = ViewRequest::Begin { moment: true };
            let refused = control.ask(&Request::View { volume: "v".to_owned(), about }).unwrap();
            require_refused(&refused, &["not exact", "--with-damaged"]);
            let status = control.wait_state("frozen");
            let is_told = status.reason.contains("not exact") && status.reason.contains("missing");
            assert!(is_told, "{}", status.reason);
            drop(control);
            node.stop();
        }
    }
}

#[test]
fn page_after_the_end_of_a_frozen_volume_is_reported() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let mut running = start(&mut prepared, 11);
    let wire = prepared.stream.change(OTHER_PAGE, b"good");
    running.send(&prepared.stream, &wire);
    running.control.wait_applied(prepared.stream.lsn.0);
    let checkpoint = own_file(&prepared, "checkpoint").unwrap();
    let wire = prepared.stream.change(OTHER_PAGE, MARK);
    running.send(&prepared.stream, &wire);
    running.control.wait_applied(prepared.stream.lsn.0);
    running.stop();
    // As after a kill between the page write and the checkpoint.
    std::fs::write(prepared.directory.path().join("volumes/v/checkpoint"), checkpoint).unwrap();
    damage_mark(&prepared, true);
    let node = LocalNode::open(&prepared.options);
    let mut control = ControlClient::connect(node.address).unwrap();
    assert!(begin_export(&mut control).changes_end.is_some());
    let (_, reply) = control.file_and_reply(&export_file("d/t.ibd", true)).unwrap();
    let is_named = |first: &[String]| first.iter().any(|page| page.contains("after the end of the volume"));
    assert!(matches!(&reply, Reply::Damaged { pages: 1, first } if is_named(first)), "{reply:?}");
    drop(control);
    node.stop();
}

#[test]
fn volume_frozen_while_it_ran_is_exact() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let mut running = start(&mut prepared, 11);
    let wire = prepared.stream.change(OTHER_PAGE, b"good");
    running.send(&prepared.stream, &wire);
    let end_lsn = prepared.stream.lsn.0;
    let mut mtr = MtrWriter::new();
    mtr.init((6, 0)).write_absolute((6, 0), 54, &[0xff; 4]);
    running.log.send(&prepared.stream.redo(&mtr)).unwrap();
    running.log.wait(|notice, _| matches!(notice, Notice::Stopped { .. })).unwrap();
    let mut control = ControlClient::connect(running.node.address).unwrap();
    // Before the first request opens it again.
    assert_eq!(control.status().state, "frozen");
    drop(control);
    running.stop();
    let delete = |force| Request::VolumeDelete { volume: "v".to_owned(), force };
    for round in 0..3 {
        let node = LocalNode::open(&prepared.options);
        let mut control = ControlClient::connect(node.address).unwrap();
        // Without the file it is frozen only when the frame is met again.
        control.wait_state("frozen");
        let end = begin_export(&mut control);
        assert_eq!((end.lsn, end.changes_end), (end_lsn, None), "round {round}");
        control.ask(&Request::ExportEnd { volume: "v".to_owned() }).unwrap();
        // An older build would apply what it understands.
        assert!(own_file(&prepared, "volume").unwrap().contains("\"format\":3"));
        let status = control.wait_state("frozen");
        assert!(!status.reason.contains("not exact"), "{}", status.reason);
        require_refused(&control.ask(&delete(false)).unwrap(), &["frozen", "--force"]);
        if round == 2 {
            assert!(matches!(control.ask(&delete(true)).unwrap(), Reply::Done));
        }
        drop(control);
        node.stop();
        if round == 0 {
            // The way out of the message. This build refuses the frame again.
            std::fs::remove_file(prepared.directory.path().join("volumes/v/frozen")).unwrap();
        }
    }
}

fn files_of(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn frozen_volume_continues_with_a_copy_of_its_log() {
    let mut prepared = prepare_executed();
    let copy = files_of(&log_of(&prepared));
    damage_mark(&prepared, true);
    let node = LocalNode::open(&prepared.options);
    let mut control = ControlClient::connect(node.address).unwrap();
    let reason = control.wait_state("frozen").reason;
    assert!(reason.contains("put back a copy") && reason.contains("v/frozen"), "{reason}");
    drop(control);
    node.stop();
    copy.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    std::fs::remove_file(prepared.directory.path().join("volumes/v/frozen")).unwrap();
    let running = start(&mut prepared, 13);
    let need = prepared.stream.seq;
    assert_eq!(changed(&mut running.pages(), need, OTHER_PAGE, MARK.len()), MARK);
    assert!(own_file(&prepared, "volume").unwrap().contains("\"format\":1"));
    running.stop();
}

/// Changes a page until its redo fills several segments of the log, and all of it is applied. Returns the segments.
pub fn fill_segments(prepared: &mut Prepared, running: &mut Running) -> Vec<(PathBuf, u64)> {
    for n in 0..80_u8 {
        let wire = prepared.stream.change(OTHER_PAGE, &[n; 12_000]);
        running.send(&prepared.stream, &wire);
    }
    running.control.wait_applied(prepared.stream.lsn.0);
    let segments = segments(prepared);
    assert!(segments.len() >= 4, "{segments:?}");
    segments
}

/// Segments of the log in order, with the positions at which they begin.
pub fn segments(prepared: &Prepared) -> Vec<(PathBuf, u64)> {
    let mut segments = Vec::new();
    for (path, _) in files_of(&log_of(prepared)) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if let Some(first_seq) = name.strip_prefix("log-").and_then(|name| name.strip_suffix(".seg")) {
            segments.push((path, first_seq.parse().unwrap()));
        }
    }
    segments.sort_by_key(|(_, first_seq)| *first_seq);
    segments
}

pub fn flip(path: &Path, at: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

/// Several segments of redo that is not applied.
pub fn prepare_long_log() -> Prepared {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    hold(&mut prepared);
    let mut running = start(&mut prepared, 11);
    for n in 0..80_u8 {
        let wire = prepared.stream.change(OTHER_PAGE, &[n; 12_000]);
        running.send(&prepared.stream, &wire);
    }
    let wire = prepared.stream.change(OTHER_PAGE, b"the last change");
    running.send(&prepared.stream, &wire);
    running.stop();
    let_go(&mut prepared);
    prepared
}

#[test]
fn damaged_record_of_the_log_costs_only_what_follows() {
    let prepared = prepare_long_log();
    let segments = segments(&prepared);
    assert!(segments.len() >= 4, "{segments:?}");
    let (path, first_seq) = &segments[segments.len() - 3];
    flip(path, 200_000);
    let node = LocalNode::open(&prepared.options);
    let mut control = ControlClient::connect(node.address).unwrap();
    let status = control.wait_state("frozen");
    let end = status.d_seq.unwrap();
    let expected = first_seq + 150_000..first_seq + 200_000;
    assert!(expected.contains(&end), "{end} of {first_seq}: {}", status.reason);
    let frozen = begin_export(&mut control);
    assert!(frozen.bytes_after > 256 << 10, "{frozen:?}");
    let (_, reply) = control.file_and_reply(&export_file("d/t.ibd", true)).unwrap();
    assert!(matches!(reply, Reply::Done), "{reply:?}");
    drop(control);
    node.stop();
}

#[test]
fn damaged_end_of_the_log_freezes_the_volume_before_it() {
    let prepared = prepare_long_log();
    let (path, first_seq) = segments(&prepared).pop().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let mark = b"the last change";
    let at = bytes.windows(mark.len()).rposition(|window| window == mark).unwrap();
    flip(&path, at as u64);
    for _ in 0..2 {
        let node = LocalNode::open(&prepared.options);
        let mut control = ControlClient::connect(node.address).unwrap();
        let status = control.wait_state("frozen");
        assert!(status.d_seq.unwrap() >= first_seq, "{:?} of {first_seq}", status.d_seq);
        assert!(status.reason.contains("log damaged"), "{}", status.reason);
        let end = begin_export(&mut control);
        assert!(end.bytes_after > 0 && end.changes_end.is_some(), "{end:?}");
        let (file, reply) = control.file_and_reply(&export_file("d/t.ibd", true)).unwrap();
        assert!(matches!(reply, Reply::Done), "{reply:?}");
        assert_eq!(file[OTHER_PAGE as usize * PAGE_LEN..][200..203], [79; 3]);
        drop(control);
        node.stop();
    }
}

#[test]
fn export_has_a_page_that_was_set_aside_after_it_began() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let mut running = start(&mut prepared, 11);
    let wire = prepared.stream.change(OTHER_PAGE, b"good");
    running.send(&prepared.stream, &wire);
    let mut export = ControlClient::connect(running.node.address).unwrap();
    let held = export.ask(&Request::ExportBegin { volume: "v".to_owned() }).unwrap();
    assert!(matches!(held, Reply::Attached(_)), "{held:?}");
    let mut mtr = MtrWriter::new();
    // Past the end of the page.
    mtr.write((5, OTHER_PAGE), PAGE_LEN as u32 - 20, &[0x77; 100]);
    let wire = prepared.stream.redo(&mtr);
    running.send(&prepared.stream, &wire);
    running.wait_quarantined(1);
    let (file, reply) = export.file_and_reply(&export_file("d/t.ibd", true)).unwrap();
    assert!(matches!(reply, Reply::Done), "{reply:?}");
    assert_eq!(file[OTHER_PAGE as usize * PAGE_LEN..][200..204], *b"good");
    drop(export);
    running.stop();
}
