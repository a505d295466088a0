//! The end of a connection in every order (RFC 9293, 3.6), and TIME-WAIT (RFC 6191, RFC 1337).

use crate::support::exact::{ACK, Exact, FIN, RST, SECOND, SYN};
use redoubt_tcp::segment::Flags;
use redoubt_tcp::{CallError, Seq};

/// The engine's FIN, after `data`.
fn hear_end(peer: &mut Exact) -> Seq {
    let (header, payload) = peer.hear().expect("FIN");
    assert_eq!((header.flags, payload.len(), header.seq.plus(1)), (FIN, 0, peer.told));
    header.seq
}

/// Both have sent FIN before either has heard of the other's.
#[test]
fn both_may_end_at_the_same_time() {
    for is_closed in [true, false] {
        let mut peer = Exact::open(|_| {});
        if is_closed {
            peer.engine.close(peer.now, peer.id()).unwrap();
        } else {
            peer.engine.shutdown_write(peer.now, peer.id()).unwrap();
        }
        let end = hear_end(&mut peer);
        let mut crossing = peer.header(FIN);
        crossing.ack = end;
        peer.send(&crossing, b"");
        peer.next = peer.next.plus(1);
        // CLOSING: the peer's is acknowledged, ours is not sent again before its time.
        peer.hear_acknowledgement();
        assert_eq!(peer.engine.memory().time_wait, 0);
        peer.say(ACK, b"");
        let memory = peer.engine.memory();
        assert_eq!((memory.time_wait, memory.connections), (1, usize::from(!is_closed)));
        if !is_closed {
            assert_eq!(peer.read(), Ok(Vec::new()));
            assert_eq!(peer.engine.send(peer.now, peer.id(), b"x"), Err(CallError::Ended));
            peer.engine.close(peer.now, peer.id()).unwrap();
        }
        while peer.hear().is_some() {}
        peer.pass(61 * SECOND);
        peer.hear_nothing();
        let memory = peer.engine.memory();
        assert_eq!((memory.time_wait, memory.connections), (0, 0));
    }
}

/// The same when the peer's FIN acknowledges ours, and when what crosses is lost.
#[test]
fn an_end_that_is_lost_is_sent_again() {
    let mut peer = Exact::open(|_| {});
    peer.write(b"bye");
    peer.engine.close(peer.now, peer.id()).unwrap();
    let (header, payload) = peer.hear().unwrap();
    assert_eq!((header.flags.has(Flags::FIN), &payload[..]), (true, &b"bye"[..]));
    let (again, _) = peer.pass_until_heard(2 * SECOND).unwrap();
    assert_eq!((again.seq, again.flags.has(Flags::FIN)), (header.seq, true));
    peer.say(FIN, b"");
    peer.hear_acknowledgement();
    assert_eq!(peer.engine.memory().time_wait, 1);
}

fn in_time_wait(stamp: Option<u32>) -> Exact {
    let mut peer = stamp.map_or_else(|| Exact::open(|_| {}), Exact::open_with_timestamps);
    peer.engine.close(peer.now, peer.id()).unwrap();
    hear_end(&mut peer);
    peer.say(FIN, b"");
    peer.hear_acknowledgement();
    assert_eq!(peer.engine.memory().time_wait, 1);
    peer
}

#[test]
fn time_wait_answers_what_is_late() {
    let mut peer = in_time_wait(None);
    peer.pass(30 * SECOND);
    let mut again = peer.header(FIN);
    again.seq = peer.next.minus(1);
    peer.send(&again, b"");
    peer.hear_acknowledgement();
    // From there it is as long as before.
    peer.pass(59 * SECOND);
    assert_eq!(peer.engine.memory().time_wait, 1);
    // RFC 1337: no reset shortens it.
    peer.say(RST, b"");
    peer.hear_nothing();
    assert_eq!(peer.engine.memory().time_wait, 1);
    peer.pass(2 * SECOND);
    assert_eq!(peer.engine.memory().time_wait, 0);
    peer.say(ACK, b"");
    assert!(peer.hear().unwrap().0.flags.has(RST));
}

/// RFC 9293, 3.10.7.4, and RFC 6191: a SYN from after the old connection begins another one; an older one does not.
#[test]
pub fn time_wait_gives_way_to_a_new_connection() {
    // Numbers count where there are no timestamps, or the same; else timestamps do.
    let cases = [
        (None, None, 1, true),
        (None, None, -1, false),
        (Some(500), Some(501), -1000, true),
        (Some(500), Some(499), 1000, false),
        (Some(500), Some(500), 1, true),
        (Some(500), Some(500), -1, false),
        (Some(u32::MAX), Some(3), -1000, true),
    ];
    for (old, new, distance, begins) in cases {
        let mut peer = in_time_wait(old);
        peer.pass(SECOND);
        let (last, theirs) = (peer.next, peer.told);
        peer.stamp = new;
        peer.next = Seq(last.0.wrapping_add_signed(distance));
        let syn = peer.next;
        peer.say(SYN, b"");
        let (answer, _) = peer.hear().expect("an answer");
        let memory = peer.engine.memory();
        if begins {
            assert_eq!(
                (answer.flags, answer.ack),
                (SYN.with(ACK), syn.plus(1)),
                "{old:?} {new:?} {distance}"
            );
            // After all that was sent in the old one.
            assert!(answer.seq.is_after(theirs));
            assert_eq!((memory.time_wait, memory.half_open), (0, 1));
            peer.say(ACK, b"hello");
            peer.id = peer.engine.accept(peer.listener).map(|(id, _)| id);
            assert_eq!(peer.read(), Ok(b"hello".to_vec()));
        } else {
            assert_eq!(
                (answer.flags, answer.ack, answer.seq),
                (ACK, last, theirs),
                "{old:?} {new:?} {distance}"
            );
            assert_eq!((memory.time_wait, memory.half_open), (1, 0));
        }
    }
}

/// A server opens nothing itself, so no SYN of its own can cross a peer's: what looks like the other half is refused.
#[test]
fn nobody_is_connected_to() {
    let mut peer = Exact::new(|_| {});
    peer.told = Seq(77);
    peer.send(&peer.header(SYN.with(ACK)), b"");
    let (answer, _) = peer.hear().unwrap();
    assert_eq!((answer.flags, answer.seq), (RST, Seq(77)));
    assert_eq!(peer.engine.memory().half_open, 0);
    // In the middle of a handshake it is not the ACK that is missing.
    peer.next = Seq(100);
    peer.say(SYN, b"");
    peer.hear().unwrap();
    let mut crossing = peer.header(SYN.with(ACK));
    crossing.seq = Seq(100);
    peer.send(&crossing, b"");
    peer.hear_acknowledgement();
    assert_eq!((peer.engine.accept(peer.listener), peer.engine.memory().half_open), (None, 1));
    peer.say(ACK, b"");
    assert!(peer.engine.accept(peer.listener).is_some());
}
