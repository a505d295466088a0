//! Peers that do not read, and connections whose data is not read, leave others the memory for statements and answers.

use crate::support::peers::{Peer, server};
use redoubt_tcp::segment::Flags;
use redoubt_tcp::{CallError, Config, Engine, ListenerId, Micros};

const NOW: Micros = Micros(1_000_000_000);
const MEMORY_LEN_BYTES: usize = 4 << 20;

fn engine() -> (Engine, ListenerId) {
    let mut config = Config::new([3; 16]);
    config.memory_len_bytes = MEMORY_LEN_BYTES;
    let mut engine = Engine::new(config).unwrap();
    let listener = engine.listen(server(), 100).unwrap();
    (engine, listener)
}

fn forget_what_is_sent(engine: &mut Engine) {
    let mut packet = [0; 1500];
    while engine.transmit(NOW, &mut packet).is_some() {}
    engine.require_sound();
}

/// Peers that do not read the data sent to them, until a send would block.
fn fill(engine: &mut Engine, listener: ListenerId, first: u32) -> Vec<Peer> {
    let mut peers = Vec::new();
    loop {
        let peer = Peer::open(first + peers.len() as u32, engine, listener, NOW);
        peers.push(peer);
        let sent = engine.send(NOW, peer.id.unwrap(), &[6; 1 << 20]);
        forget_what_is_sent(engine);
        if sent.unwrap() < 1 << 20 {
            assert_eq!(engine.send(NOW, peer.id.unwrap(), &[6]), Err(CallError::WouldBlock));
            return peers;
        }
    }
}

/// A statement that is longer than some chunks of memory, and its answer.
fn long_statement(peer: &mut Peer, engine: &mut Engine) {
    let id = peer.id.unwrap();
    for _ in 0..20 {
        peer.say(engine, NOW, Flags::ACK, &[5; 1000]);
    }
    forget_what_is_sent(engine);
    let mut read = [0; 30_000];
    assert_eq!(engine.read(NOW, id, &mut read), Ok(20_000));
    assert_eq!(engine.send(NOW, id, &[6; 20_000]), Ok(20_000));
    forget_what_is_sent(engine);
    engine.reset(NOW, id).unwrap();
    forget_what_is_sent(engine);
}

#[test]
fn who_does_not_read_leaves_room_for_the_answers_of_others() {
    let (mut engine, listener) = engine();
    fill(&mut engine, listener, 0);
    for number in 100..200 {
        let mut peer = Peer::open(number, &mut engine, listener, NOW);
        peer.statement(&mut engine, NOW);
        long_statement(&mut peer, &mut engine);
    }
}

#[test]
fn who_is_not_read_from_leaves_room_for_the_statements_of_others() {
    let (mut engine, listener) = engine();
    for number in 0..60 {
        let mut peer = Peer::open(number, &mut engine, listener, NOW);
        for _ in 0..40 {
            peer.say(&mut engine, NOW, Flags::ACK, &[5; 1400]);
        }
        forget_what_is_sent(&mut engine);
    }
    assert!(engine.counters().dropped.memory > 0);
    for number in 100..200 {
        let mut peer = Peer::open(number, &mut engine, listener, NOW);
        peer.statement(&mut engine, NOW);
        long_statement(&mut peer, &mut engine);
    }
}

/// A caller that waited is notified when enough is free to make a socket writable, not earlier.
#[test]
fn who_waits_for_memory_is_told_when_there_is_some() {
    let (mut engine, listener) = engine();
    let peers = fill(&mut engine, listener, 0);
    let (last, first) = (peers.last().unwrap().id.unwrap(), peers.first().unwrap().id.unwrap());
    while engine.changed().is_some() {}
    assert!(engine.state(last).unwrap().writable_bytes < redoubt_tcp::LOW_WATER_LEN_BYTES);
    // Many who wait and may not continue yet.
    let mut crowd = fill(&mut engine, listener, 100);
    for number in 200..220 {
        let peer = Peer::open(number, &mut engine, listener, NOW);
        while engine.send(NOW, peer.id.unwrap(), &[6; 1 << 20]).is_ok() {}
        forget_what_is_sent(&mut engine);
        crowd.push(peer);
    }
    while engine.changed().is_some() {}
    engine.reset(NOW, first).unwrap();
    forget_what_is_sent(&mut engine);
    let told: Vec<_> = std::iter::from_fn(|| engine.changed()).collect();
    assert!(told.contains(&last), "{told:?}");
    for peer in crowd {
        assert!(told.contains(&peer.id.unwrap()), "{peer:?}");
    }
    assert!(engine.state(last).unwrap().writable_bytes >= redoubt_tcp::LOW_WATER_LEN_BYTES);
}
