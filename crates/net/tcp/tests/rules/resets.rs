//! RST and SYN in each state (RFC 9293, 3.10.7.4; RFC 5961, 3 and 4): exactly the next number ends it, another one
//! within the window is asked about, one outside is nothing.

use crate::support::exact::{ACK, Exact, FIN, RST, SECOND, SYN};
use redoubt_tcp::ConnectionError;
use redoubt_tcp::segment::Flags;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
}

const ALL: [Name; 7] = [
    Name::SynReceived,
    Name::Established,
    Name::FinWait1,
    Name::FinWait2,
    Name::CloseWait,
    Name::Closing,
    Name::LastAck,
];

/// A connection in a state. `stamp`: with timestamps.
fn in_state(name: Name, stamp: Option<u32>) -> Exact {
    let mut peer = Exact::new(|_| {});
    peer.stamp = stamp;
    if name == Name::SynReceived {
        peer.say(SYN, b"");
        peer.hear().unwrap();
        return peer;
    }
    peer.connect();
    if matches!(name, Name::CloseWait | Name::LastAck) {
        peer.say(FIN, b"");
        peer.hear_acknowledgement();
    }
    if matches!(name, Name::FinWait1 | Name::FinWait2 | Name::Closing | Name::LastAck) {
        peer.engine.shutdown_write(peer.now, peer.id()).unwrap();
        assert!(peer.hear().unwrap().0.flags.has(Flags::FIN));
    }
    match name {
        Name::FinWait2 => peer.say(ACK, b""),
        Name::Closing => {
            let mut crossing = peer.header(FIN);
            crossing.ack = peer.told.minus(1);
            peer.send(&crossing, b"");
            peer.next = peer.next.plus(1);
            peer.hear_acknowledgement();
        }
        _ => {}
    }
    // Answers come no closer to each other than a tenth of a second.
    peer.now = peer.now.after(150_000);
    peer
}

/// Whether the engine has ended it; a segment of it is then answered by a reset.
fn has_ended(peer: &mut Exact, name: Name) -> bool {
    let is_there = match name {
        Name::SynReceived => peer.engine.memory().half_open == 1,
        _ => peer.error().is_none(),
    };
    if !is_there {
        if name != Name::SynReceived {
            assert_eq!(peer.error(), Some(ConnectionError::Reset));
        }
        peer.send(&peer.header(ACK), b"");
        assert!(peer.hear().unwrap().0.flags.has(RST));
    }
    !is_there
}

#[test]
fn exactly_the_next_number_resets() {
    for name in ALL {
        for payload in [&b""[..], b"why"] {
            for stamp in [None, Some(5)] {
                let mut peer = in_state(name, stamp);
                // A reset needs no timestamp (RFC 7323, 3.2).
                peer.stamp = None;
                let reset = peer.header(RST);
                peer.send(&reset, payload);
                peer.hear_nothing();
                assert!(has_ended(&mut peer, name), "{name:?} {payload:?} {stamp:?}");
            }
        }
    }
}

#[test]
pub fn another_number_within_the_window_is_asked_about() {
    for name in ALL {
        let mut peer = in_state(name, None);
        for distance in [1, 1000] {
            let mut reset = peer.header(RST);
            reset.seq = peer.next.plus(distance);
            peer.send(&reset, b"");
            peer.hear_acknowledgement();
            assert!(!has_ended(&mut peer, name), "{name:?} {distance}");
            peer.now = peer.now.after(150_000);
        }
        // The challenged peer has no such connection and answers with the right number.
        let reset = peer.header(RST);
        peer.send(&reset, b"");
        assert!(has_ended(&mut peer, name), "{name:?}");
    }
}

#[test]
fn a_number_outside_of_the_window_is_nothing() {
    for name in ALL {
        let mut peer = in_state(name, None);
        for distance in [-1, -70_000, 70_000, 1 << 30, i32::MIN] {
            let mut reset = peer.header(RST);
            reset.seq = redoubt_tcp::Seq(peer.next.0.wrapping_add_signed(distance));
            peer.send(&reset, b"");
            // Nor does it get nearer by what it carries.
            peer.send(&reset, b"and");
            peer.hear_nothing();
            assert!(!has_ended(&mut peer, name), "{name:?} {distance}");
        }
    }
}

/// RFC 5961, 4.2: a SYN with any number is challenged. It is not of this connection, so it need not have this
/// connection's timestamps.
#[test]
pub fn a_syn_within_a_connection_is_asked_about() {
    for name in ALL.into_iter().filter(|name| *name != Name::SynReceived) {
        for (stamp, later) in [(None, None), (Some(5), None), (Some(5), Some(4)), (Some(5), Some(6))] {
            let mut peer = in_state(name, stamp);
            for distance in [-1000, 0, 1000, 1 << 30] {
                peer.stamp = later;
                let mut syn = peer.header(SYN);
                syn.seq = redoubt_tcp::Seq(peer.next.0.wrapping_add_signed(distance));
                peer.send(&syn, b"");
                peer.stamp = stamp;
                let (answer, _) =
                    peer.hear().unwrap_or_else(|| panic!("{name:?} {stamp:?} {later:?} {distance}"));
                assert_eq!((answer.flags, answer.ack), (ACK, peer.next));
                assert!(!has_ended(&mut peer, name));
                peer.now = peer.now.after(SECOND);
            }
        }
    }
}

/// RFC 9293, MUST-66: resets count while the window is closed, with and without text.
#[test]
fn a_closed_window_lets_a_reset_through() {
    for payload in [&b""[..], b"because"] {
        let mut peer = Exact::open(|config| {
            (config.receive_buffer_len_bytes, config.initial_window_len_bytes) = (4096, 4096);
        });
        peer.say(ACK, &[1; 1400]);
        peer.say(ACK, &[1; 1400]);
        peer.say(ACK, &[1; 1296]);
        while let Some((header, _)) = peer.hear() {
            assert_eq!(header.window, 4096 - (header.ack.since(peer.next.minus(4096))) as u16);
        }
        let reset = peer.header(RST);
        peer.send(&reset, payload);
        assert_eq!(peer.error(), Some(ConnectionError::Reset), "{payload:?}");
    }
}
