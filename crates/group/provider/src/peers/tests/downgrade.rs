//! Connections that end at the greeting: they must not turn a negotiating member into a legacy one unnoticed.

use super::versions::{LEGACY_HELLO, Server, legacy_welcome, read_as_legacy};
use super::*;
use crate::peers::negotiated::Negotiated;
use std::io::Write;

const OTHER: MemberId = MemberId(2);

/// Kind of the next hello, and its connection.
fn next_hello(listener: &TcpListener) -> (u8, TcpStream) {
    let (mut stream, _) = listener.accept().unwrap();
    (read_as_legacy(&mut stream).unwrap()[0], stream)
}

fn negotiated_welcome() -> Vec<u8> {
    let welcome = Answer::Welcome {
        announced: Some(ANNOUNCED),
        member: OTHER,
        group: GroupId([3; 16]),
        addresses: Vec::new(),
        history: History::default(),
    };
    Frame::Answer(welcome).encode()
}

/// A server that has negotiated with a member at this address.
fn negotiated_once() -> (TcpListener, Server) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = Server::start(1, ANNOUNCED);
    ours.peers.dial(&listener.local_addr().unwrap().to_string());
    let (kind, mut stream) = next_hello(&listener);
    assert_ne!(kind, LEGACY_HELLO);
    stream.write_all(&negotiated_welcome()).unwrap();
    drop(stream);
    while !matches!(ours.events.recv_timeout(GUARD).unwrap(), Event::Lost(OTHER)) {}
    (listener, ours)
}

fn legacy_hello(incarnation: u64, listen_address: &str) -> Hello {
    Hello {
        announced: Announcement::of_legacy_peer(crate::frame::LEGACY_VERSION),
        is_legacy: true,
        cluster_name: "shop".into(),
        group: GroupId([3; 16]),
        member: OTHER,
        incarnation: Incarnation(incarnation),
        listen_address: listen_address.to_owned(),
        history: History::default(),
    }
}

/// Connects as a legacy member, and waits for the answer.
fn connect_as_legacy(to: &Server, incarnation: u64, listener: &TcpListener) {
    let hello = legacy_hello(incarnation, &listener.local_addr().unwrap().to_string());
    let mut stream = TcpStream::connect(&to.address).unwrap();
    stream.write_all(&Frame::Hello(hello).encode()).unwrap();
    read_as_legacy(&mut stream).unwrap();
    // The hello is noted before that.
    while !matches!(to.events.recv_timeout(GUARD).unwrap(), Event::Greeted(_)) {}
}

#[test]
fn closed_greetings_do_not_downgrade_a_negotiated_member() {
    let (listener, ours) = negotiated_once();
    for attempt in 0..5 {
        let (kind, stream) = next_hello(&listener);
        assert_ne!(kind, LEGACY_HELLO, "attempt {attempt}");
        drop(stream);
    }
    assert!(ours.said().ends_with("ended the connection without an answer"));
    let (kind, mut stream) = next_hello(&listener);
    assert_ne!(kind, LEGACY_HELLO);
    stream.write_all(&negotiated_welcome()).unwrap();
}

#[test]
fn legacy_answer_of_a_negotiated_member_is_refused() {
    let (_listener, ours) = negotiated_once();
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    ours.peers.dial(&elsewhere.local_addr().unwrap().to_string());
    drop(next_hello(&elsewhere));
    let (kind, mut stream) = next_hello(&elsewhere);
    assert_eq!(kind, LEGACY_HELLO, "nothing is known of this address");
    stream.write_all(&legacy_welcome(OTHER)).unwrap();
    while !ours.said().contains("has negotiated versions with this server before") {}
}

/// Its first hello has incarnation 0, which it learns from its log only afterwards.
#[test]
fn member_restarted_with_an_earlier_build_gets_a_legacy_hello() {
    let (listener, ours) = negotiated_once();
    connect_as_legacy(&ours, 0, &listener);
    let (kind, stream) = next_hello(&listener);
    assert_ne!(kind, LEGACY_HELLO, "it may have been upgraded again");
    drop(stream);
    let (kind, mut stream) = next_hello(&listener);
    assert_eq!(kind, LEGACY_HELLO);
    stream.write_all(&legacy_welcome(OTHER)).unwrap();
    let said = ours.said();
    assert!(said.starts_with("member_does_not_negotiate: "), "{said}");
}

#[test]
fn legacy_hello_releases_a_restarted_member_only() {
    const ADDRESS: &str = "127.0.0.1:4567";
    for (incarnation, is_released) in [(0, true), (1, false), (2, false), (3, true)] {
        let mut negotiated = Negotiated::default();
        negotiated.note(OTHER, Incarnation(2), ADDRESS);
        negotiated.note_legacy_hello(&legacy_hello(incarnation, ADDRESS));
        assert_eq!(!negotiated.has_address(ADDRESS), is_released, "incarnation {incarnation}");
    }
}
