//! A node that has just started serves while its volumes are still being opened.
//!
//! Opening waits for a lock on a file that it reads, as it does for pending writes of a process that is gone. So a test
//! can control when it continues.

use super::client::{ControlClient, PageClient, connect, hello};
use super::protocol::{Fixture, Stream, changed};
use super::running::{LocalNode, SMALL, options};
use redoubt_wire::control::{Reply, Request, VolumeStatus};
use redoubt_wire::hello::{Role, Status};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Volumes `v`, with contents, and `other`; the node is stopped.
fn two_volumes() -> (Fixture, Stream) {
    let mut fixture = Fixture::new();
    fixture.control().create("other");
    let mut stream = Stream::new();
    let mut log = fixture.log(1, 0);
    log.send(&stream.begin(3)).unwrap();
    log.send(&stream.change(3, b"kept")).unwrap();
    assert!(log.wait_durable(stream.seq));
    drop(log);
    fixture.node.take().unwrap().stop();
    (fixture, stream)
}

/// Volume `v` cannot be opened until this is dropped.
pub fn hold(directory: &Path) -> File {
    let file = File::open(directory.join("volumes/v/checkpoint")).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    file
}

fn status_of(node: &LocalNode, name: &str) -> VolumeStatus {
    let volumes = node.node.status().volumes;
    volumes.into_iter().find(|volume| volume.name == name).unwrap()
}

#[test]
fn others_are_served_and_who_asks_for_a_volume_that_is_being_opened_waits_or_is_told_to_try_later() {
    let (mut fixture, stream) = two_volumes();
    let held = hold(fixture.directory.path());
    let node = LocalNode::open_at_once(&options(fixture.directory.path(), SMALL));
    let of_v = status_of(&node, "v");
    assert_eq!((of_v.state.as_str(), of_v.generation), ("recovering", fixture.generation));
    assert_eq!(of_v.volume_id.len(), 32);
    let mut control = ControlClient::connect(node.address).unwrap();
    assert_eq!(control.attach("other").generation, 1, "waits only until that one is open");
    let delete = Request::VolumeDelete { volume: "v".to_owned(), force: true };
    match control.ask(&delete).unwrap() {
        Reply::Failed { retry: true, message } => assert!(message.contains("being opened"), "{message}"),
        other => panic!("{other:?}"),
    }
    let (_, welcome) =
        connect(node.address, &hello(Role::Log, "v", fixture.generation, 1, stream.seq)).unwrap();
    assert_eq!(welcome.status, Status::TryLater, "{}", welcome.message);
    assert!(welcome.message.contains("its log is being read"), "{}", welcome.message);

    let waiting = std::thread::spawn(move || control.attach("v"));
    let waiting_page = {
        let (address, generation) = (node.address, fixture.generation);
        std::thread::spawn(move || {
            connect(address, &hello(Role::Page, "v", generation, 1, 0)).unwrap().1.status
        })
    };
    assert_eq!(status_of(&node, "v").state, "recovering");
    drop(held);
    assert_eq!(waiting.join().unwrap().generation, fixture.generation + 1);
    // Before or after that attach; a refusal would be final for a server.
    assert!([Status::Accepted, Status::Fenced].contains(&waiting_page.join().unwrap()));
    assert_eq!(status_of(&node, "v").state, "ready");
    fixture.generation += 1;
    let mut pages = super::client::PageClient::connect(node.address, "v", fixture.generation).unwrap();
    assert_eq!(changed(&mut pages, stream.seq, 3, 4), b"kept");
}

#[test]
fn a_node_that_stops_ends_who_waits_and_closes_what_was_being_opened() {
    let (fixture, stream) = two_volumes();
    let held = hold(fixture.directory.path());
    let node = LocalNode::open_at_once(&options(fixture.directory.path(), SMALL));
    let mut control = ControlClient::connect(node.address).unwrap();
    let list = Request::List { volume: "v".to_owned() };
    let waiting = std::thread::spawn(move || control.ask(&list));
    let stopping = {
        let node = std::sync::Arc::clone(&node.node);
        std::thread::spawn(move || node.stop())
    };
    // Answered that it is not open yet, or cut off: both before the volume is open.
    if let Ok(reply) = waiting.join().unwrap() {
        assert!(matches!(reply, Reply::Failed { retry: true, .. }), "{reply:?}");
    }
    assert!(!stopping.is_finished());
    drop(held);
    stopping.join().unwrap();
    node.stop();
    let mut fixture = fixture;
    fixture.node = Some(LocalNode::open(&options(fixture.directory.path(), SMALL)));
    let again = fixture.log(1, stream.seq);
    assert_eq!(again.welcome.next_seq.0, stream.seq);
}

/// Contents of all files below a directory; `None` for a directory.
fn contents(directory: &Path, out: &mut BTreeMap<PathBuf, Option<Vec<u8>>>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            contents(&path, out);
            out.insert(path, None);
        } else {
            let bytes = std::fs::read(&path).unwrap();
            out.insert(path, Some(bytes));
        }
    }
}

/// Opening the log would write a mark to it, and remove a spare segment of another length.
#[test]
fn refused_page_journal_changes_nothing_on_disk() {
    let (fixture, _) = two_volumes();
    let volume = fixture.directory.path().join("volumes/v");
    let journal = File::options().write(true).open(volume.join("pages/pages.journal")).unwrap();
    journal.write_all_at(&[0; 8192], 0).unwrap();
    journal.write_all_at(b"RDBTPGJ1\x01\0\0\0", 0).unwrap();
    require_unchanged(&fixture, "before Redoubt 0.1.0");
}

#[test]
fn volume_without_its_page_journal_opens_when_it_is_put_back() {
    let (fixture, stream) = two_volumes();
    let journal = fixture.directory.path().join("volumes/v/pages/pages.journal");
    let away = fixture.directory.path().join("away");
    std::fs::rename(&journal, &away).unwrap();
    let node = LocalNode::open(&options(fixture.directory.path(), SMALL));
    let status = status_of(&node, "v");
    assert!(
        status.state == "unusable" && status.reason.contains("v/pages/pages.journal"),
        "{}",
        status.reason
    );
    assert!(status.reason.contains("put it back"), "{}", status.reason);
    node.stop();
    assert!(!journal.exists());
    std::fs::rename(&away, &journal).unwrap();
    let node = LocalNode::open(&options(fixture.directory.path(), SMALL));
    let generation = ControlClient::connect(node.address).unwrap().attach("v").generation;
    let mut pages = PageClient::connect(node.address, "v", generation).unwrap();
    assert_eq!(changed(&mut pages, stream.seq, 3, 4), b"kept");
    node.stop();
}

#[test]
fn refused_log_segment_changes_nothing_on_disk() {
    let (fixture, _) = two_volumes();
    let log = fixture.directory.path().join("volumes/v/log");
    let mut segments: Vec<_> = std::fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with("log-"));
    let mut bytes = std::fs::read(&segments[0]).unwrap();
    bytes[8..12].copy_from_slice(&9_u32.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..48]);
    bytes[48..52].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&segments[0], bytes).unwrap();
    require_unchanged(&fixture, "version 9");
}

fn require_unchanged(fixture: &Fixture, reason: &str) {
    let volume = fixture.directory.path().join("volumes/v");
    let mut before = BTreeMap::new();
    contents(&volume, &mut before);
    let segments = before.keys().filter(|path| path.extension().is_some_and(|name| name == "seg"));
    assert!(segments.count() > 0);
    let other_length = fixture.directory.path().join("volumes/v/log/spare-00000000000000000099.seg");
    std::fs::write(&other_length, [0; 4096]).unwrap();
    contents(&volume, &mut before);
    let node = LocalNode::open(&options(fixture.directory.path(), SMALL));
    let status = status_of(&node, "v");
    assert!(status.state == "unusable" && status.reason.contains(reason), "{}", status.reason);
    node.stop();
    let mut after = BTreeMap::new();
    contents(&volume, &mut after);
    let changed: Vec<_> =
        before.keys().chain(after.keys()).filter(|path| before.get(*path) != after.get(*path)).collect();
    assert!(changed.is_empty(), "{changed:?}");
}
