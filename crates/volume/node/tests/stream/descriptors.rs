//! Descriptors and threads of a node with many volumes.

use super::client::{ControlClient, LogClient, PATIENCE, PageClient, connect, hello};
use super::encoder::MtrWriter;
use super::protocol::{FIRST_LSN, Stream};
use super::running::{NodeProcess, SMALL, Sizes};
use redoubt_page::SpaceFlags;
use redoubt_redo::mariadb::LogHeader;
use redoubt_test_support::setting;
use redoubt_wire::control::{Reply, Request};
use redoubt_wire::hello::{Role, Status};
use redoubt_wire::stream::{FileKind, StreamFrame};
use std::path::Path;
use std::time::Instant;

const FLAGS: SpaceFlags = SpaceFlags(0x15);
const PAGE_BYTES: u64 = 16_384;
const SIZES: Sizes = Sizes { interval_ms: 100, ..SMALL };
/// Descriptors that the node's process may have, and the files of all volumes among them.
const DESCRIPTORS: u64 = 256;
const OPEN_FILES: usize = DESCRIPTORS as usize / 4;
/// Files that are open for a moment.
const MARGIN: usize = 8;
/// Volumes that stay open while they are idle, and the threads of each.
const IDLE_VOLUMES: usize = OPEN_FILES / 8;
const VOLUME_THREADS: usize = 9;

/// Descriptors and threads of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    /// Descriptors of files and directories in a directory.
    of_data: usize,
    /// All other descriptors.
    others: usize,
    threads: usize,
}

fn held(process_id: u32, data: &Path) -> Held {
    let fds = std::fs::read_dir(format!("/proc/{process_id}/fd")).unwrap();
    let targets: Vec<_> = fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()).collect();
    let of_data = targets.iter().filter(|target| target.starts_with(data)).count();
    let threads = std::fs::read_dir(format!("/proc/{process_id}/task")).unwrap().count();
    Held { of_data, others: targets.len() - of_data, threads }
}

/// Threads of connections.
fn connection_threads(process_id: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{process_id}/task")).unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "connection").count()
}

/// Reads until the result is as wanted, or does not become so.
pub fn wait_for<T>(mut read: impl FnMut() -> T, is_wanted: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = read();
        if is_wanted(&found) || Instant::now() > deadline {
            return found;
        }
        std::thread::yield_now();
    }
}

/// A volume that a test writes.
struct Written {
    name: String,
    generation: u64,
    stream: Stream,
}

fn table(number: u32) -> String {
    format!("d/t{number}")
}

fn content(volume: &str, number: u32) -> Vec<u8> {
    format!("{volume} {number:05}").into_bytes()
}

impl Written {
    /// A new volume with a redo log and nothing else.
    fn create(node: &NodeProcess, name: &str) -> Self {
        let mut control = ControlClient::connect(node.address).unwrap();
        control.create(name);
        let generation = control.attach(name).generation;
        let mut written = Self { name: name.to_owned(), generation, stream: Stream::new() };
        let mut client = written.connect(node);
        let header = LogHeader { first_lsn: FIRST_LSN, creator: b"test".to_vec() }.build();
        let frame = StreamFrame::LogFile {
            file_size_bytes: 12_288 + (1 << 20),
            header: &header,
            checkpoints: [&[0; 64], &[0; 64]],
            next_lsn: FIRST_LSN,
        };
        let wire = written.stream.frame(&frame);
        written.stream.lsn = FIRST_LSN;
        written.send(&mut client, &wire);
        written
    }

    fn connect(&self, node: &NodeProcess) -> LogClient {
        LogClient::connect(node.address, &self.name, self.generation, 1, self.stream.seq).unwrap()
    }

    fn send(&self, client: &mut LogClient, wire: &[u8]) {
        client.send(wire).unwrap();
        assert!(client.wait_durable(self.stream.seq), "{}", self.name);
    }

    /// Adds tables: each a tablespace with one changed page, and a plain file. Returns when all are durable.
    fn add(&mut self, client: &mut LogClient, tables: std::ops::Range<u32>) {
        let mut wire = Vec::new();
        for number in tables {
            let (path, space) = (table(number), 5 + number);
            let (pages, plain) = (format!("{path}.ibd"), format!("{path}.frm"));
            for (path, kind) in [(&pages, FileKind::Tablespace), (&plain, FileKind::Plain)] {
                let create = StreamFrame::Create { path: path.as_bytes(), kind, mode: 0o660 };
                wire.extend(self.stream.frame(&create));
            }
            let mut create = MtrWriter::new();
            create.file(0x80, space, format!("./{pages}").as_bytes());
            create.init((space, 0)).write_absolute((space, 0), 34, &space.to_be_bytes()).write_absolute(
                (space, 0),
                54,
                &FLAGS.0.to_be_bytes(),
            );
            wire.extend(self.stream.redo(&create));
            let bytes = content(&self.name, number);
            let mut page = MtrWriter::new();
            page.init((space, 3)).write_absolute((space, 3), 200, &bytes);
            wire.extend(self.stream.redo(&page));
            let write = StreamFrame::Write { path: plain.as_bytes(), offset_bytes: 0, data: &bytes };
            wire.extend(self.stream.frame(&write));
        }
        self.send(client, &wire);
    }

    fn wait_applied(&self, node: &NodeProcess) {
        let mut control = ControlClient::connect(node.address).unwrap();
        let mut applied = || {
            let status = control.status_of(&self.name);
            (status.a_lsn, status.state)
        };
        let found = wait_for(&mut applied, |(lsn, _)| *lsn >= self.stream.lsn.0);
        assert!(found.0 >= self.stream.lsn.0, "{}: {found:?}", self.name);
    }

    /// All tables have their contents.
    fn check(&self, node: &NodeProcess, tables: u32) {
        let mut pages = PageClient::connect(node.address, &self.name, self.generation).unwrap();
        let mut control = ControlClient::connect(node.address).unwrap();
        for number in 0..tables {
            let (need, expected) = (self.stream.seq, content(&self.name, number));
            let file = pages.open(need, &format!("{}.ibd", table(number))).unwrap().unwrap();
            let page = pages.read(need, file, 3 * PAGE_BYTES, PAGE_BYTES as u32).unwrap();
            assert_eq!(page[200..200 + expected.len()], expected, "{} {number}", self.name);
            let path = format!("{}.frm", table(number));
            let request = Request::FetchTail { volume: self.name.clone(), path, from_bytes: 0 };
            assert_eq!(control.file(&request).unwrap(), expected, "{} {number}", self.name);
        }
    }
}

fn create_until(node: &NodeProcess, volumes: &mut Vec<Written>, count: usize, tables: u32) {
    while volumes.len() < count {
        let mut written = Written::create(node, &format!("v{}", volumes.len()));
        let mut client = written.connect(node);
        written.add(&mut client, 0..tables);
        drop(client);
        volumes.push(written);
    }
    volumes.iter().for_each(|volume| volume.wait_applied(node));
    assert_eq!(wait_for(|| connection_threads(node.id()), |count| *count == 0), 0);
}

#[test]
fn descriptors_of_a_node_do_not_grow_with_volumes() {
    let directory = tempfile::tempdir().unwrap();
    let node = NodeProcess::start_with_descriptors(directory.path(), SIZES, DESCRIPTORS);
    let mut volumes = Vec::new();
    let mut others = None;
    for count in [1, 10, 50, 100] {
        create_until(&node, &mut volumes, count, 4);
        let most_threads = IDLE_VOLUMES.min(count) * VOLUME_THREADS + 32;
        let is_within = |held: &Held| {
            held.threads <= most_threads
                && held.of_data <= OPEN_FILES + MARGIN
                && others.is_none_or(|others| others == held.others)
        };
        let held = wait_for(|| held(node.id(), directory.path()), is_within);
        println!("{count} volumes: {held:?}");
        assert!(is_within(&held), "{count} volumes: {held:?}, {others:?}");
        others.get_or_insert(held.others);
    }
    // Volumes that were closed meanwhile, and others.
    volumes.iter().for_each(|volume| volume.check(&node, 4));
}

#[test]
fn volumes_with_more_tables_than_descriptors_keep_all() {
    let count = setting("REDOUBT_MANY_VOLUMES", 20) as usize;
    let tables = setting("REDOUBT_MANY_TABLES", 60) as u32;
    let descriptors = if count > 100 { 4 * DESCRIPTORS } else { DESCRIPTORS };
    let directory = tempfile::tempdir().unwrap();
    let node = NodeProcess::start_with_descriptors(directory.path(), SIZES, descriptors);
    let mut volumes: Vec<_> = (0..count).map(|n| Written::create(&node, &format!("v{n}"))).collect();
    for together in volumes.chunks_mut(20) {
        // These are written at the same time, in several steps.
        let mut clients: Vec<_> = together.iter().map(|volume| volume.connect(&node)).collect();
        for from in (0..tables).step_by(20) {
            for (volume, client) in together.iter_mut().zip(&mut clients) {
                volume.add(client, from..tables.min(from + 20));
            }
        }
        together.iter().for_each(|volume| volume.wait_applied(&node));
        let most = descriptors as usize / 4 + MARGIN;
        let open = wait_for(|| held(node.id(), directory.path()), |open| open.of_data <= most);
        assert!(open.of_data <= most, "{open:?}");
    }
    println!("{count} volumes with {tables} tables: {:?}", held(node.id(), directory.path()));
    volumes.iter().for_each(|volume| volume.check(&node, tables));
    node.kill();
    let node = NodeProcess::start_with_descriptors(directory.path(), SIZES, descriptors);
    volumes.iter().for_each(|volume| volume.check(&node, tables));
    println!("after a kill: {:?}", held(node.id(), directory.path()));
}

/// Sets how many descriptors a node may have.
fn limit(node: &NodeProcess, current: u64) {
    let process = rustix::process::Pid::from_raw(node.id() as i32).unwrap();
    let limit = rustix::process::Rlimit { current: Some(current), maximum: Some(DESCRIPTORS) };
    rustix::process::prlimit(Some(process), rustix::process::Resource::Nofile, limit).unwrap();
}

/// The log fills several segments meanwhile, older ones are given up, and tables end.
#[test]
fn busy_volume_outlasts_a_lack_of_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    let node = NodeProcess::start_with_descriptors(directory.path(), SIZES, DESCRIPTORS);
    let mut volume = Written::create(&node, "v");
    let mut client = volume.connect(&node);
    volume.add(&mut client, 0..40);
    volume.wait_applied(&node);
    let mut control = ControlClient::connect(node.address).unwrap();
    let mut wire = Vec::new();
    for number in 0..20 {
        let (path, space) = (table(number), 5 + number);
        let mut end = MtrWriter::new();
        end.file(0x90, space, format!("./{path}.ibd").as_bytes());
        wire.extend(volume.stream.redo(&end));
        for path in [format!("{path}.ibd"), format!("{path}.frm")] {
            wire.extend(volume.stream.frame(&StreamFrame::Unlink { path: path.as_bytes() }));
        }
    }
    let piece = vec![7; 16 << 10];
    let path = format!("{}.frm", table(30));
    for number in 0..64 {
        let offset_bytes = number * piece.len() as u64;
        let write = StreamFrame::Write { path: path.as_bytes(), offset_bytes, data: &piece };
        wire.extend(volume.stream.frame(&write));
    }
    limit(&node, 0);
    // The node does not take all of it before it has descriptors again.
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| client.send(&wire).unwrap());
        let waits = wait_for(|| control.status_of("v"), |status| status.state == "waiting");
        assert_eq!(waits.state, "waiting", "{}", waits.reason);
        limit(&node, DESCRIPTORS);
        sending.join().unwrap();
    });
    assert!(client.wait_durable(volume.stream.seq));
    volume.wait_applied(&node);
    let status = control.status_of("v");
    assert_eq!(status.state, "attached", "{}", status.reason);
    let request = Request::FetchTail { volume: "v".to_owned(), path, from_bytes: 0 };
    assert!(control.file(&request).unwrap() == piece.repeat(64));
    let mut pages = PageClient::connect(node.address, "v", volume.generation).unwrap();
    for number in 0..40 {
        let file = pages.open(volume.stream.seq, &format!("{}.ibd", table(number))).unwrap();
        assert_eq!(file.is_some(), number >= 20, "{number}");
    }
}

#[test]
fn volume_outlasts_a_lack_of_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    let node = NodeProcess::start_with_descriptors(directory.path(), SIZES, DESCRIPTORS);
    let mut volume = Written::create(&node, "v");
    let mut client = volume.connect(&node);
    volume.add(&mut client, 0..40);
    volume.wait_applied(&node);
    let mut control = ControlClient::connect(node.address).unwrap();
    // Not even the first number is free.
    limit(&node, 0);
    let mut wire = Vec::new();
    for number in 40..60 {
        let path = format!("{}.frm", table(number));
        let create = StreamFrame::Create { path: path.as_bytes(), kind: FileKind::Plain, mode: 0o660 };
        wire.extend(volume.stream.frame(&create));
    }
    client.send(&wire).unwrap();
    let waits = wait_for(|| control.status_of("v"), |status| status.state == "waiting");
    assert_eq!(waits.state, "waiting", "{}", waits.reason);
    assert!(waits.reason.contains("LimitNOFILE"), "{}", waits.reason);
    limit(&node, DESCRIPTORS);
    assert!(client.wait_durable(volume.stream.seq));
    let runs = wait_for(|| control.status_of("v"), |status| status.state == "attached");
    assert_eq!(runs.state, "attached", "{}", runs.reason);
    let request =
        Request::FetchTail { volume: "v".to_owned(), path: format!("{}.frm", table(59)), from_bytes: 0 };
    assert_eq!(control.file(&request).unwrap(), b"");
    drop(client);
    volume.check(&node, 40);
}

#[test]
fn parked_volume_is_listed_opened_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let node = NodeProcess::start_with_descriptors(directory.path(), SIZES, DESCRIPTORS);
    let mut volumes = Vec::new();
    create_until(&node, &mut volumes, IDLE_VOLUMES + 4, 1);
    let mut control = ControlClient::connect(node.address).unwrap();
    let mut parked = || {
        let all = control.status_of_all();
        assert_eq!(all.len(), IDLE_VOLUMES + 4, "a parked volume is missing");
        all.into_iter().filter(|of| of.reason.starts_with("parked")).map(|of| of.name).collect::<Vec<_>>()
    };
    let names = wait_for(&mut parked, |parked| parked.len() == 4);
    assert_eq!(names.len(), 4, "{names:?}");
    let delete = Request::VolumeDelete { volume: names[0].clone(), force: false };
    let reply = control.ask(&delete).unwrap();
    assert!(matches!(reply, Reply::Done), "{reply:?}");
    let again = control.ask(&Request::VolumeCreate { volume: names[1].clone(), encrypted: false }).unwrap();
    assert!(matches!(again, Reply::Failed { .. }), "{again:?}");
    // A takeover opens it, and fences the former server.
    let attached = control.attach(&names[2]);
    let before = volumes.iter().find(|volume| volume.name == names[2]).unwrap();
    assert_eq!(attached.generation, before.generation + 1);
    let former = hello(Role::Log, &names[2], before.generation, 1, before.stream.seq);
    assert_ne!(connect(node.address, &former).unwrap().1.status, Status::Accepted);
}

#[test]
fn parked_volume_that_does_not_open_once_is_not_lost() {
    let directory = tempfile::tempdir().unwrap();
    let node = NodeProcess::start_with_descriptors(directory.path(), SIZES, DESCRIPTORS);
    let mut volumes = Vec::new();
    create_until(&node, &mut volumes, IDLE_VOLUMES + 1, 1);
    let mut control = ControlClient::connect(node.address).unwrap();
    let parked = wait_for(
        || control.status_of_all().into_iter().find(|of| of.reason.starts_with("parked")),
        Option::is_some,
    );
    let name = parked.unwrap().name;
    let volume = volumes.iter().find(|volume| volume.name == name).unwrap();
    let (own, away) = (directory.path().join("volumes").join(&name), directory.path().join("away"));
    std::fs::rename(&own, &away).unwrap();
    let attach =
        Request::Attach { volume: name.clone(), who: "test".to_owned(), server: None, seen_generation: None };
    for _ in 0..2 {
        match control.ask(&attach).unwrap() {
            Reply::Failed { retry, message } => {
                assert!(retry && message.contains("cannot be opened now"), "{message}")
            }
            reply => panic!("{reply:?}"),
        }
        // The node tries again by itself.
        let status = wait_for(|| control.status_of(&name), |status| status.state != "recovering");
        assert_eq!(status.state, "unusable", "{}", status.reason);
        assert!(status.d_seq.is_some() && status.scrub.is_some(), "what was known of it is kept");
    }
    std::fs::rename(&away, &own).unwrap();
    let status = wait_for(|| control.status_of(&name), |status| status.state == "ready");
    assert_eq!(status.state, "ready", "{}", status.reason);
    volume.check(&node, 1);
    assert_eq!(control.attach(&name).generation, volume.generation + 1);
}
