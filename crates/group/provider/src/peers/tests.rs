//! Connections whose other side is a test.

use super::*;
use redoubt_test_support::wait::{GUARD, until};
use trust::Members;

mod downgrade;
mod versions;

struct Nobody;

impl Members for Nobody {
    fn name_of(&self, _: MemberId) -> Option<String> {
        None
    }

    fn is_member(&self, _: MemberId) -> bool {
        true
    }
}

fn peers(events: impl Fn(Event, bool) + Send + Sync + 'static) -> Peers {
    let local =
        Local { cluster_name: "shop".into(), member: MemberId(1), listen_address: "127.0.0.1:0".into() };
    let trust = Trust::new(None, BTreeSet::new(), Box::new(Nobody));
    let place = Place { group: GroupId([3; 16]), incarnation: Incarnation(0), history: History::default() };
    Peers::listen(local, place, "127.0.0.1:0", trust, events).unwrap()
}

/// Accepts a connection, and welcomes the peer as a member.
fn welcome(listener: &TcpListener, member: MemberId) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    let hello = Frame::read(&mut stream, MAX_HELLO_LEN_BYTES).unwrap();
    assert!(matches!(hello, Some(Frame::Hello(hello)) if hello.member == MemberId(1)));
    let answer = Answer::Welcome {
        announced: Some(ANNOUNCED),
        member,
        group: GroupId([3; 16]),
        addresses: Vec::new(),
        history: History::default(),
    };
    std::io::Write::write_all(&mut stream, &Frame::Answer(answer).encode()).unwrap();
    stream
}

/// No frames are sent, as to a stranger. The peer ends, and another one takes over its address.
#[test]
fn a_connection_that_the_other_side_ends_is_made_anew_although_nothing_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (lost, losses) = mpsc::channel();
    let peers = peers(move |event, _| {
        if let Event::Lost(member) = event {
            let _ = lost.send(member);
        }
    });
    peers.dial(&listener.local_addr().unwrap().to_string());
    drop(welcome(&listener, MemberId(2)));
    let mut other = welcome(&listener, MemberId(7));
    assert_eq!(losses.recv_timeout(GUARD).unwrap(), MemberId(2));
    // Later frames go to the new peer.
    let frame = Frame::Applied { seqno: crate::write_set::Seqno(9), is_in_step: true };
    until("a link to the new peer", || lock(&peers.0.links).contains_key(&MemberId(7)));
    peers.send(MemberId(7), &frame);
    peers.flush();
    let got = Frame::read(&mut other, MAX_FRAME_LEN_BYTES).unwrap();
    assert!(matches!(got, Some(Frame::Applied { seqno, .. }) if seqno.0 == 9));
}
