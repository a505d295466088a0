//! Members of different versions in one group: some announce other versions or features than this one, and the tests
//! play legacy members as their code behaved.

use super::*;
use crate::frame::{INDIRECT_HEARING, OUT_OF_STEP};
use crate::write_set::Seqno;
use redoubt_consensus::message::Message;
use redoubt_consensus::types::Slot;
use redoubt_negotiation::Versions;
use std::io::{Read, Write};
use std::sync::mpsc::RecvTimeoutError;

/// Interval between two attempts to send. A frame is lost while there is no connection.
const RETRY: Duration = Duration::from_millis(20);
/// A build with the version range of this one, from before any feature.
const OLDER: Announcement = Announcement::new(Versions::only(5), Features::NONE, Features::NONE);
/// A build of a later version that still supports this one, with features that are unknown here.
const NEWER: Announcement = Announcement::new(Versions::new(5, 7), Features::NONE, Features(u64::MAX));
/// A build that does not support this version any more.
const FAR: Announcement = Announcement::new(Versions::new(7, 9), Features::NONE, Features::NONE);

pub(super) struct Server {
    id: MemberId,
    pub(super) address: String,
    pub(super) peers: Peers,
    pub(super) events: Receiver<Event>,
}

impl Server {
    pub(super) fn start(id: u64, announced: Announcement) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, events) = mpsc::channel();
        let local =
            Local { cluster_name: "shop".into(), member: MemberId(id), listen_address: address.clone() };
        let place =
            Place { group: GroupId([3; 16]), incarnation: Incarnation(0), history: History::default() };
        let trust = Trust::new(None, BTreeSet::new(), Box::new(Nobody));
        let peers = Peers::on(listener, announced, local, place, trust, move |event, _| {
            let _ = sender.send(event);
        });
        Self { id: MemberId(id), address, peers: peers.unwrap(), events }
    }

    /// The next logged line.
    pub(super) fn said(&self) -> String {
        loop {
            if let Event::Said(line) = self.events.recv_timeout(GUARD).unwrap() {
                return line;
            }
        }
    }
}

/// Sends frames of all features, and some without one. Returns those that arrive before the last frame.
fn exchange(from: &Server, to: &Server) -> Vec<Frame> {
    let last = Frame::StateRequest { seqno: 1, request: Vec::new() };
    loop {
        for frame in [
            Frame::WhoHears(MemberId(9)),
            Frame::Hears(MemberId(9)),
            Frame::Applied { seqno: Seqno(4), is_in_step: false },
            Frame::Message(Message::Fetch { from: Slot(3) }),
            last.clone(),
        ] {
            from.peers.send(to.id, &frame);
        }
        from.peers.flush();
        let mut got = Vec::new();
        loop {
            match to.events.recv_timeout(RETRY) {
                Ok(Event::Frame { from: sender, frame }) if sender == from.id && frame == last => return got,
                Ok(Event::Frame { from: sender, frame }) if sender == from.id => got.push(frame),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => panic!("it has ended"),
            }
        }
    }
}

fn everything() -> Vec<Frame> {
    vec![
        Frame::WhoHears(MemberId(9)),
        Frame::Hears(MemberId(9)),
        Frame::Applied { seqno: Seqno(4), is_in_step: false },
        Frame::Message(Message::Fetch { from: Slot(3) }),
    ]
}

fn without_features() -> Vec<Frame> {
    vec![
        Frame::Applied { seqno: Seqno(4), is_in_step: true },
        Frame::Message(Message::Fetch { from: Slot(3) }),
    ]
}

fn connect_all(servers: &[&Server]) {
    for from in servers {
        servers.iter().for_each(|to| from.peers.dial(&to.address));
    }
}

#[test]
fn older_member_is_sent_only_frames_it_knows() {
    let (older, ours, newer) =
        (Server::start(1, OLDER), Server::start(2, ANNOUNCED), Server::start(3, NEWER));
    connect_all(&[&older, &ours, &newer]);
    for other in [&ours, &newer] {
        assert_eq!(exchange(other, &older), without_features());
        assert_eq!(exchange(&older, other), without_features());
    }
    assert_eq!(exchange(&ours, &newer), everything());
    assert_eq!(exchange(&newer, &ours), everything());
}

#[test]
fn member_with_one_of_two_features_gets_the_frames_of_that() {
    let one = Announcement::new(Versions::only(5), Features::NONE, OUT_OF_STEP);
    let (one, ours) = (Server::start(1, one), Server::start(2, ANNOUNCED));
    connect_all(&[&one, &ours]);
    assert_eq!(exchange(&ours, &one), everything().split_off(2));
}

/// Member by member: the group keeps working, and uses a feature as soon as both sides have it.
#[test]
fn rolling_upgrade_ends_with_all_features() {
    let mut servers = [1, 2, 3].map(|id| Server::start(id, OLDER));
    connect_all(&servers.each_ref());
    for upgraded in 0..servers.len() {
        servers[upgraded].peers.close();
        servers[upgraded] = Server::start(servers[upgraded].id.0, ANNOUNCED);
        connect_all(&servers.each_ref());
        for from in 0..servers.len() {
            for to in (0..servers.len()).filter(|to| *to != from) {
                let is_new = from <= upgraded && to <= upgraded;
                let expected = if is_new { everything() } else { without_features() };
                assert_eq!(exchange(&servers[from], &servers[to]), expected, "{upgraded}: {from} to {to}");
            }
        }
    }
}

#[test]
fn member_outside_the_range_is_refused_on_both_sides() {
    let (ours, far) = (Server::start(1, ANNOUNCED), Server::start(2, FAR));
    ours.peers.dial(&far.address);
    let (here, there) = (ours.said(), far.said());
    let (ours, theirs) = ("version 5", "versions 7 to 9");
    let way_out = "install the same version of Redoubt on all servers of the group, one after the other";
    assert!(
        here.contains(&format!("refused: the peer has protocol {theirs}, this side {ours}; {way_out}")),
        "{here}"
    );
    assert!(
        there.contains(&format!("the peer has protocol {ours}, this side {theirs}; {way_out}")),
        "{there}"
    );
}

#[test]
fn member_that_requires_an_unknown_feature_is_refused() {
    let demanding = Announcement::new(Versions::only(5), Features(1 << 40), Features::NONE);
    let (ours, demanding) = (Server::start(1, ANNOUNCED), Server::start(2, demanding));
    demanding.peers.dial(&ours.address);
    let (here, there) = (ours.said(), demanding.said());
    assert!(here.contains("the peer (protocol version 5) requires feature 40"), "{here}");
    assert!(there.contains("this side (protocol version 5) requires feature 40"), "{there}");
}

/// The next frame for a legacy member, without the length.
pub(super) fn read_as_legacy(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).ok()?;
    let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
    stream.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

pub(super) const LEGACY_HELLO: u8 = 1;
const LEGACY_WELCOME: u8 = 2;
/// Kinds that legacy members do not support, or not in all builds.
const LATER_KINDS: std::ops::RangeInclusive<u8> = 11..=u8::MAX;

pub(super) fn legacy_welcome(member: MemberId) -> Vec<u8> {
    let mut content = vec![LEGACY_WELCOME];
    content.extend_from_slice(&member.0.to_le_bytes());
    content.extend_from_slice(&[3; 16]);
    content.extend_from_slice(&0u32.to_le_bytes());
    [&(content.len() as u32).to_le_bytes()[..], &content].concat()
}

#[test]
fn legacy_member_gets_a_legacy_hello_and_no_later_frame() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = Server::start(1, ANNOUNCED);
    ours.peers.dial(&listener.local_addr().unwrap().to_string());
    // The connection ends without an answer, like after an unknown hello.
    let (mut first, _) = listener.accept().unwrap();
    let hello = read_as_legacy(&mut first).unwrap();
    assert!(LATER_KINDS.contains(&hello[0]));
    drop(first);
    let (mut stream, _) = listener.accept().unwrap();
    assert_eq!(read_as_legacy(&mut stream).unwrap()[0], LEGACY_HELLO);
    let member = MemberId(2);
    stream.write_all(&legacy_welcome(member)).unwrap();
    stream.set_read_timeout(Some(RETRY)).unwrap();
    let bytes = loop {
        everything().iter().for_each(|frame| ours.peers.send(member, frame));
        ours.peers.flush();
        if let Some(bytes) = read_as_legacy(&mut stream) {
            break bytes;
        }
    };
    assert_eq!(Frame::decode(&bytes).unwrap(), without_features()[0]);
    stream.set_read_timeout(Some(GUARD)).unwrap();
    assert_eq!(Frame::decode(&read_as_legacy(&mut stream).unwrap()).unwrap(), without_features()[1]);
}

#[test]
fn legacy_member_that_connects_is_welcomed_as_before() {
    let ours = Server::start(1, ANNOUNCED);
    for (version, expected) in [(5u32, Ok(())), (4, Err("version 4")), (6, Err("version 6"))] {
        let mut content = vec![LEGACY_HELLO];
        content.extend_from_slice(b"RDTGROUP");
        content.extend_from_slice(&version.to_le_bytes());
        content.extend_from_slice(&[&4u32.to_le_bytes()[..], b"shop"].concat());
        content.extend_from_slice(&[3; 16]);
        content.extend_from_slice(&2u64.to_le_bytes());
        content.extend_from_slice(&0u64.to_le_bytes());
        content.extend_from_slice(&0u32.to_le_bytes());
        let mut stream = TcpStream::connect(&ours.address).unwrap();
        stream.write_all(&[&(content.len() as u32).to_le_bytes()[..], &content].concat()).unwrap();
        let answer = read_as_legacy(&mut stream).unwrap();
        match expected {
            Ok(()) => assert_eq!(answer[0], LEGACY_WELCOME),
            Err(theirs) => {
                let Frame::Answer(Answer::Refused { reason }) = Frame::decode(&answer).unwrap() else {
                    panic!("{answer:?}")
                };
                assert!(reason.contains("has protocol version 5") && reason.contains(theirs), "{reason}");
            }
        }
    }
}

#[test]
fn announced_features_are_those_of_the_frames() {
    assert_eq!(ANNOUNCED.known(), INDIRECT_HEARING.with(OUT_OF_STEP));
}
