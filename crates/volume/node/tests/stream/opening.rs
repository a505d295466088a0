//! A node that has just started serves while its volumes are still being opened.
//!
//! Opening waits for a lock on a file that it reads, as it does for pending writes of a process that is gone. So a test
//! can control when it continues.

use super::client::{ControlClient, connect, hello};
use super::protocol::{Fixture, Stream, changed};
use super::running::{LocalNode, SMALL, options};
use redoubt_wire::control::{Reply, Request, VolumeStatus};
use redoubt_wire::hello::{Role, Status};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;

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
fn hold(fixture: &Fixture) -> File {
    let file = File::open(fixture.directory.path().join("volumes/v/checkpoint")).unwrap();
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
    let held = hold(&fixture);
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
    let held = hold(&fixture);
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
