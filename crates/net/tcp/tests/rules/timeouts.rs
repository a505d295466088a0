//! Effects of time alone: keepalive (RFC 9293, 3.8.4), user timeout (RFC 5482), retransmissions (RFC 6298), delayed
//! acknowledgements (RFC 9293, 3.8.6.3).

use crate::support::exact::{ACK, Exact, SECOND, require_about};
use redoubt_tcp::segment::Flags;
use redoubt_tcp::{ConnectionError, Keepalive, Micros};

const KEEPALIVE: Keepalive =
    Keepalive { idle: Micros::from_secs(10), interval: Micros::from_secs(2), probes: 3 };

#[test]
fn an_idle_peer_is_asked_and_given_up_if_it_says_nothing() {
    let mut peer = Exact::open(|_| {});
    peer.engine.set_keepalive(peer.now, peer.id(), Some(KEEPALIVE)).unwrap();
    for _ in 0..3 {
        // A peer that answers is probed again after the same time.
        let (probe, waited) = peer.pass_until_heard(60 * SECOND).unwrap();
        assert_eq!((probe.seq, probe.ack, probe.flags), (peer.told.minus(1), peer.next, ACK));
        require_about(waited, 10 * SECOND);
        peer.hear_nothing();
        peer.say(ACK, b"");
    }
    peer.pass(9 * SECOND);
    peer.say(ACK, b"x");
    assert_eq!(peer.read(), Ok(b"x".to_vec()));
    let (acknowledgement, _) = peer.pass_until_heard(SECOND).unwrap();
    assert_eq!(acknowledgement.seq, peer.told);
    for expected in [10 * SECOND - 42_000, 2 * SECOND - 2000, 2 * SECOND - 2000] {
        let (probe, waited) = peer.pass_until_heard(60 * SECOND).unwrap();
        assert_eq!((probe.seq, probe.flags), (peer.told.minus(1), ACK));
        require_about(waited, expected);
        assert_eq!(peer.error(), None);
    }
    let (last, waited) = peer.pass_until_heard(60 * SECOND).unwrap();
    assert!(last.flags.has(Flags::RST), "{last:?}");
    require_about(waited, 2 * SECOND - 2000);
    assert_eq!(peer.error(), Some(ConnectionError::TimedOut));
    assert_eq!((peer.engine.changed(), peer.engine.counters().timed_out), (Some(peer.id()), 1));
}

/// RFC 9293, MUST-26: only when nothing is under way, which asks by itself.
#[test]
fn nobody_is_asked_while_something_is_under_way() {
    let mut peer = Exact::open(|_| {});
    peer.engine.set_keepalive(peer.now, peer.id(), Some(KEEPALIVE)).unwrap();
    peer.write(b"answer");
    let first = peer.told;
    assert_eq!(peer.hear().unwrap().0.seq, first);
    while let Some((header, _)) = peer.pass_until_heard(60 * SECOND)
        && !header.flags.has(Flags::RST)
    {
        assert_eq!(header.seq, first);
    }
    assert_eq!(peer.engine.counters().keepalive_probes, 0);
    assert!(peer.engine.counters().retransmission_timeouts >= 5);
}

#[test]
fn without_an_acknowledgement_the_user_timeout_ends_it() {
    for is_answered in [false, true] {
        let mut peer = Exact::open(|_| {});
        peer.engine.set_user_timeout(peer.now, peer.id(), Some(Micros::from_secs(5))).unwrap();
        // While nothing waits it does not count.
        peer.pass(100 * SECOND);
        peer.write(b"answer");
        let begin = peer.now;
        peer.hear().unwrap();
        if is_answered {
            // A part of it is something new.
            peer.pass(4 * SECOND);
            while peer.hear().is_some() {}
            let mut part = peer.header(ACK);
            part.ack = peer.told.minus(3);
            peer.send(&part, b"");
        }
        let due = if is_answered { 9 * SECOND } else { 5 * SECOND };
        while let Some((header, _)) = peer.pass_until_heard(60 * SECOND)
            && !header.flags.has(Flags::RST)
        {
            assert_eq!(peer.error(), None);
        }
        require_about(peer.now.since(begin), due);
        assert_eq!(peer.error(), Some(ConnectionError::TimedOut));
    }
}

/// RFC 6298, 5.5: each time twice as long; then the peer is given up.
#[test]
pub fn a_peer_that_says_nothing_is_asked_ever_more_seldom() {
    let mut peer = Exact::open(|_| {});
    peer.write(b"answer");
    let first = peer.hear().unwrap().0.seq;
    let mut waits = Vec::new();
    while let Some((header, waited)) = peer.pass_until_heard(200 * SECOND) {
        if header.flags.has(Flags::RST) {
            break;
        }
        assert_eq!(header.seq, first);
        waits.push(waited);
    }
    assert_eq!(waits.len(), 15);
    let doubled = (0..15).map(|times| (200_000 << times).min(60 * SECOND));
    waits.iter().zip(doubled).for_each(|(waited, expected)| require_about(*waited, expected));
    assert_eq!(peer.error(), Some(ConnectionError::TimedOut));
    peer.hear_nothing();
    assert_eq!(peer.engine.next_timer(), None);
}

#[test]
fn an_acknowledgement_waits_a_little_and_not_for_long() {
    let mut peer = Exact::open(|_| {});
    peer.say(ACK, b"statement");
    peer.hear_nothing();
    let (header, waited) = peer.pass_until_heard(SECOND).unwrap();
    assert_eq!(header.ack, peer.next);
    require_about(waited, 40_000);
    // The second of two large segments is acknowledged at once. So are a segment that leaves a gap and one that fills
    // it.
    peer.say(ACK, &[1; 1460]);
    peer.hear_nothing();
    peer.say(ACK, &[1; 1460]);
    peer.hear_acknowledgement();
    let mut early = peer.header(ACK);
    early.seq = peer.next.plus(5);
    peer.send(&early, b"67");
    peer.hear_acknowledgement();
    peer.say(ACK, b"12345");
    peer.next = peer.next.plus(2);
    peer.hear_acknowledgement();
    assert_eq!(peer.read().unwrap()[2929..], b"1234567"[..]);
}
