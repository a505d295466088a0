//! Traffic from unrelated hosts does not suppress the answers that a connection needs.

use crate::support::exact::{ACK, Exact, RST, SECOND};
use crate::support::peers::Peer;

/// Acknowledgements for connections that do not exist, from many addresses, more than the answer limit.
fn flood(peer: &mut Exact) {
    let mut packet = [0; 1500];
    for number in 0..5000 {
        let stranger = Peer::new(number);
        let mut header = peer.header(ACK);
        header.source = stranger.local;
        let len = header.write(&mut packet, 0, 0, |_| {}).unwrap();
        peer.engine.receive(peer.now, &packet[..len], redoubt_tcp::Checksum::Verify);
    }
    while peer.engine.transmit(peer.now, &mut packet).is_some() {}
    assert!(peer.engine.counters().resets_out < 5000);
}

#[test]
fn a_question_is_answered_during_a_flood() {
    let mut peer = Exact::open(|_| {});
    for _ in 0..3 {
        peer.pass(SECOND);
        flood(&mut peer);
        // A keepalive probe. Without an answer the client would end its connection.
        let mut probe = peer.header(ACK);
        probe.seq = peer.next.minus(1);
        peer.send(&probe, b"");
        peer.hear_acknowledgement();
    }
}

#[test]
fn a_reset_is_asked_about_during_a_flood() {
    let mut peer = Exact::open(|_| {});
    flood(&mut peer);
    let mut reset = peer.header(RST);
    reset.seq = peer.next.plus(1);
    peer.send(&reset, b"");
    peer.hear_acknowledgement();
}
