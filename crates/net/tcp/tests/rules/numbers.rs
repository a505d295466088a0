//! Numbers that go around: of bytes (RFC 9293, 3.4) and of timestamps (RFC 7323, 5).

use crate::support::exact::{ACK, Exact, FIN, SECOND};
use redoubt_tcp::{Micros, Seq};

/// A connection whose numbers go around in so many bytes, both sides'.
fn shortly_before(bytes: u32) -> Exact {
    // The engine's number grows by one in four microseconds.
    let begin = Exact::new(|_| {}).now;
    let mut peer = Exact::open(|_| {});
    let number = peer.told;
    let missing = Seq(0).minus(bytes).since(number);
    peer = Exact::new(|_| {});
    peer.now = Micros(begin.0 + u64::from(missing) * 4);
    peer.next = Seq(0).minus(bytes + 1);
    peer.connect();
    assert_eq!((peer.told, peer.next), (Seq(0).minus(bytes), Seq(0).minus(bytes)));
    peer
}

fn content(at: usize, len: usize) -> Vec<u8> {
    (at..at + len).map(|at| (at % 251) as u8).collect()
}

#[test]
fn bytes_go_around_in_both_directions() {
    for before in [1, 2, 700, 1459, 1460, 1461, 5000, 9000] {
        let mut peer = shortly_before(before);
        let mut heard = Vec::new();
        for round in 0..8 {
            peer.write(&content(round * 1500, 1500));
            // The second of each round comes first, and once more.
            let mut early = peer.header(ACK);
            early.seq = peer.next.plus(600);
            for _ in 0..2 {
                peer.send(&early, &content(round * 1000 + 600, 400));
            }
            peer.say(ACK, &content(round * 1000, 600));
            peer.next = peer.next.plus(400);
            while let Some((header, payload)) = peer.hear() {
                assert!(!peer.next.is_before(header.ack));
                heard.extend_from_slice(&payload);
            }
            peer.say(ACK, b"");
            assert_eq!(peer.read(), Ok(content(round * 1000, 1000)));
            while peer.hear().is_some() {}
        }
        assert_eq!(heard, content(0, 12_000), "{before}");
        assert_eq!(peer.engine.counters().retransmitted, 0);
        peer.engine.close(peer.now, peer.id()).unwrap();
        while peer.hear().is_some() {}
        peer.say(FIN, b"");
        peer.hear_acknowledgement();
        assert_eq!((peer.engine.memory().connections, peer.engine.memory().time_wait), (0, 1));
    }
}

/// Data lost where the numbers wrap is sent again, and no other data.
#[test]
fn a_loss_where_numbers_go_around_is_repaired() {
    for before in [1, 1460, 2000, 2920] {
        let mut peer = shortly_before(before);
        peer.write(&content(0, 14_600));
        let first = peer.told;
        let (lost, _) = peer.hear().unwrap();
        while peer.hear().is_some() {}
        peer.told = first;
        for _ in 0..4 {
            peer.say(ACK, b"");
        }
        let (again, payload) = peer.hear().expect("the lost one");
        assert_eq!((again.seq, payload), (lost.seq, content(0, 1460)), "{before}");
        peer.told = first.plus(14_600);
        peer.say(ACK, b"");
        assert_eq!(peer.engine.counters().retransmitted, 1);
        assert!(peer.pass_until_heard(100 * SECOND).is_none());
    }
}

/// PAWS (RFC 7323, 5.3): what is older than what has come is not taken, though its numbers fit.
#[test]
pub fn old_timestamps_are_refused_and_may_go_around() {
    for begin in [100, 0u32.wrapping_sub(3)] {
        let mut peer = Exact::open_with_timestamps(begin);
        for step in 1..8u32 {
            peer.stamp = Some(begin.wrapping_add(step));
            peer.say(ACK, b"new");
            assert_eq!(peer.read(), Ok(b"new".to_vec()), "{begin} {step}");
            peer.now = peer.now.after(150_000);
            peer.engine.advance(peer.now);
            let (answer, _) = peer.hear().unwrap();
            assert_eq!(answer.options.timestamps.unwrap().echo, begin.wrapping_add(step));
            let mut old = peer.header(ACK);
            for age in [1, 1000, 1 << 30] {
                old.options.timestamps.as_mut().unwrap().value = begin.wrapping_add(step).wrapping_sub(age);
                peer.now = peer.now.after(150_000);
                peer.send(&old, b"old");
                peer.hear_acknowledgement();
            }
        }
        assert_eq!(peer.engine.counters().dropped.old_timestamp, 21);
        // A segment without a timestamp is dropped (RFC 7323, 3.2).
        let mut bare = peer.header(ACK);
        bare.options.timestamps = None;
        peer.send(&bare, b"bare");
        peer.hear_nothing();
        assert!(peer.read().is_err());
        // After 24 idle days an older timestamp is as good as any (RFC 7323, 5.5).
        peer.pass(25 * 86_400 * SECOND);
        peer.stamp = Some(begin.wrapping_sub(5));
        peer.say(ACK, b"late");
        assert_eq!(peer.read(), Ok(b"late".to_vec()));
    }
}

/// RFC 7323, 4.3: the echoed timestamp is that of the acknowledged segment, not of one behind a gap.
#[test]
fn the_timestamp_that_is_told_back_is_of_what_was_missing() {
    let mut peer = Exact::open_with_timestamps(100);
    peer.stamp = Some(110);
    peer.say(ACK, &[1; 10]);
    let (answer, _) = peer.pass_until_heard(SECOND).unwrap();
    assert_eq!(answer.options.timestamps.unwrap().echo, 110);
    peer.stamp = Some(120);
    let mut early = peer.header(ACK);
    early.seq = peer.next.plus(10);
    peer.send(&early, &[3; 10]);
    let (answer, _) = peer.hear().unwrap();
    assert_eq!(answer.options.timestamps.unwrap().echo, 110);
    peer.stamp = Some(130);
    peer.say(ACK, &[2; 10]);
    let (answer, _) = peer.hear().unwrap();
    assert_eq!((answer.ack, answer.options.timestamps.unwrap().echo), (peer.next.plus(10), 130));
}
