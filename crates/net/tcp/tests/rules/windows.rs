//! Windows that are closed, and peers that never open theirs (RFC 9293, 3.8.6).

use crate::support::exact::{ACK, Exact, FIN, RST, SECOND, require_about};
use redoubt_tcp::ConnectionError;
use redoubt_tcp::segment::Flags;

/// A connection to a peer whose window is full and closed.
fn closed() -> Exact {
    let mut peer = Exact::new(|_| {});
    peer.window = 1000;
    peer.connect();
    peer.write(&[7; 1000]);
    assert_eq!(peer.hear().unwrap().1.len(), 1000);
    peer.window = 0;
    peer.say(ACK, b"");
    peer
}

/// RFC 9293, 3.8.6.1: ever more seldom, and for as long as there is an answer.
#[test]
fn a_peer_that_never_opens_its_window_is_asked_for_ever() {
    let mut peer = closed();
    peer.write(b"answer");
    let mut waits = Vec::new();
    for _ in 0..100 {
        let (probe, waited) = peer.pass_until_heard(100 * SECOND).unwrap();
        assert_eq!((probe.seq, probe.flags), (peer.told.minus(1), ACK));
        waits.push(waited);
        peer.say(ACK, b"");
    }
    let doubled = (0..100).map(|times| (200_000 << times.min(20)).min(60 * SECOND));
    waits.iter().zip(doubled).for_each(|(waited, expected)| require_about(*waited, expected));
    assert_eq!((peer.error(), peer.engine.counters().retransmitted), (None, 0));
    // It is open at once when it is open.
    peer.window = 1000;
    peer.say(ACK, b"");
    assert_eq!(peer.hear().unwrap().1, b"answer");
    // Without answers it is like any other.
    peer.window = 0;
    peer.say(ACK, b"");
    peer.write(b"another");
    while let Some((header, _)) = peer.pass_until_heard(100 * SECOND)
        && !header.flags.has(RST)
    {}
    assert_eq!(peer.error(), Some(ConnectionError::TimedOut));
}

/// A connection that the server has closed does not live forever.
#[test]
fn a_closed_connection_ends_though_its_peer_never_opens_its_window() {
    let mut peer = closed();
    peer.write(b"answer");
    peer.engine.close(peer.now, peer.id()).unwrap();
    let begin = peer.now;
    while let Some((header, _)) = peer.pass_until_heard(100 * SECOND)
        && !header.flags.has(RST)
    {
        peer.say(ACK, b"");
    }
    assert!(peer.now.since(begin) < 600 * SECOND);
    let memory = peer.engine.memory();
    assert_eq!((memory.connections, memory.data_len_bytes), (0, 0));
}

/// RFC 9293, SHLD-17 and MUST-35: a window that was open is closed while data is in flight. The peer drops the data and
/// acknowledges each segment.
#[test]
fn a_window_that_is_taken_back_does_not_end_the_connection() {
    for is_closed in [false, true] {
        let mut peer = Exact::open(|_| {});
        peer.write(&[7; 1000]);
        if is_closed {
            peer.engine.close(peer.now, peer.id()).unwrap();
        }
        let first = peer.hear().unwrap().0.seq;
        peer.told = first;
        peer.window = 0;
        let begin = peer.now;
        peer.say(ACK, b"");
        let mut last = peer.now;
        while peer.now.since(begin) < 3600 * SECOND {
            let Some((header, _)) = peer.pass_until_heard(100 * SECOND) else { break };
            if header.flags.has(RST) {
                break;
            }
            peer.told = first;
            last = peer.now;
            peer.say(ACK, b"");
        }
        if is_closed {
            // The connection is closed and has to end.
            assert!(last.since(begin) < 600 * SECOND);
            assert_eq!(peer.engine.memory().connections, 0);
            continue;
        }
        assert_eq!(peer.error(), None, "after {} s", peer.now.since(begin) / SECOND);
        peer.window = 2000;
        peer.say(ACK, b"");
        peer.told = first;
        let (header, _) = peer.pass_until_heard(100 * SECOND).unwrap();
        assert_eq!(header.seq, first);
        peer.told = first.plus(1000);
        peer.say(ACK, b"");
        peer.write(b"more");
        assert_eq!(peer.hear().unwrap().1, b"more");
    }
}

/// A connection whose window is full: 4096 unread bytes.
fn full() -> Exact {
    let mut peer = Exact::open(|config| {
        (config.receive_buffer_len_bytes, config.initial_window_len_bytes) = (4096, 4096);
    });
    for part in [1400, 1400, 1296] {
        peer.say(ACK, &vec![1; part]);
    }
    while peer.hear().is_some() {}
    peer
}

/// RFC 9293, 3.10.7.4: a segment without room is not accepted, but its acknowledgement is processed.
#[test]
fn a_closed_window_lets_acknowledgements_through() {
    let mut peer = full();
    peer.write(b"answer");
    assert_eq!(peer.hear().unwrap().1, b"answer");
    // A probe with a byte, of a peer that probes so.
    let probe = peer.header(ACK);
    peer.send(&probe, b"2");
    peer.hear_acknowledgement();
    assert!(peer.pass_until_heard(100 * SECOND).is_none(), "what was acknowledged is not sent again");
    assert_eq!(peer.read().map(|read| read.len()), Ok(4096));
    let (update, _) = peer.hear().unwrap();
    assert_eq!((update.ack, update.window), (peer.next, 4096));
    peer.say(ACK, b"2");
    assert_eq!(peer.read(), Ok(b"2".to_vec()));
}

#[test]
fn a_closed_window_lets_the_end_through() {
    let mut peer = full();
    peer.say(FIN, b"");
    peer.hear_acknowledgement();
    assert_eq!(peer.read().map(|read| read.len()), Ok(4096));
    assert_eq!(peer.read(), Ok(Vec::new()));
}

/// A peer's own probes and questions (RFC 9293, 3.8.4): before the window, with a byte or without.
#[test]
fn a_peer_that_asks_is_answered() {
    let mut peer = full();
    for payload in [&b""[..], b"1"] {
        for _ in 0..5 {
            peer.pass(SECOND);
            let mut probe = peer.header(ACK);
            probe.seq = peer.next.minus(1);
            peer.send(&probe, payload);
            peer.hear_acknowledgement();
        }
    }
    assert_eq!(peer.read().map(|read| read.len()), Ok(4096));
    assert!(!peer.hear().unwrap().0.flags.has(Flags::RST));
}
