//! Ten thousand connections and hostile traffic: memory is bounded, and work does not grow.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

mod support;

use redoubt_tcp::segment::Flags;
use redoubt_tcp::{Checksum, Config, Engine, Micros, Verdict};
use std::time::Instant;
use support::peers::{Peer, server};

const NOW: Micros = Micros(1_000_000_000);
const MANY: u32 = 10_000;

#[test]
fn an_idle_connection_takes_less_than_a_kilobyte() {
    let mut engine = Engine::new(Config::new([1; 16])).unwrap();
    let listener = engine.listen(server(), 100).unwrap();
    let mut peers: Vec<_> = (0..MANY).map(|number| Peer::open(number, &mut engine, listener, NOW)).collect();
    // All have been used, and have nothing to do now.
    for peer in &mut peers {
        peer.statement(&mut engine, NOW);
    }
    engine.advance(NOW.after(10_000_000));
    let memory = engine.memory();
    println!("{memory:?}: {} bytes a connection", memory.connections_len_bytes / MANY as usize);
    assert_eq!((memory.connections, memory.data_len_bytes), (MANY as usize, 0));
    assert!(memory.connections_len_bytes / (MANY as usize) < 1024);
    // One more has no place, and is not answered.
    let mut one_more = Peer::new(MANY);
    one_more.say(&mut engine, NOW, Flags::SYN, b"");
    assert_eq!(engine.transmit(NOW, &mut [0; 1500]), None);
    assert_eq!(engine.counters().dropped.full, 1);
    engine.require_sound();
}

/// Not a benchmark (`benches/segment.rs` is one): ten thousand may cost more than ten by what caches cost, and not by
/// anything that goes through all of them, which would be a thousand times as much.
#[test]
fn a_statement_costs_the_same_among_many() {
    let mut costs = [10, MANY].map(|count| {
        let mut engine = Engine::new(Config::new([1; 16])).unwrap();
        let listener = engine.listen(server(), 100).unwrap();
        let mut peers: Vec<_> =
            (0..count).map(|number| Peer::open(number, &mut engine, listener, NOW)).collect();
        let mut best = f64::MAX;
        for round in 0..20 {
            let begin = Instant::now();
            for step in 0..1000u32 {
                let which = (step.wrapping_mul(7919) % count) as usize;
                let now = NOW.after(u64::from(round * 1000 + step) * 100);
                engine.advance(now);
                peers[which].statement(&mut engine, now);
            }
            best = best.min(begin.elapsed().as_nanos() as f64 / 1000.0);
        }
        best
    });
    println!("{:.0} ns a statement among 10, {:.0} among {MANY}", costs[0], costs[1]);
    costs[0] = costs[0].max(100.0);
    assert!(costs[1] < costs[0] * 50.0, "{costs:?}");
}

#[test]
fn a_flood_of_syns_takes_no_memory_and_does_not_keep_others_out() {
    let mut engine = Engine::new(Config::new([1; 16])).unwrap();
    let listener = engine.listen(server(), 100).unwrap();
    let mut packet = [0; 1500];
    for number in 100..200_000 {
        Peer::new(number).say(&mut engine, NOW, Flags::SYN, b"");
        while engine.transmit(NOW, &mut packet).is_some() {}
    }
    let memory = engine.memory();
    assert_eq!((memory.connections, memory.half_open), (0, 1024));
    let counters = engine.counters();
    assert_eq!(counters.cookies_out, 199_900 - 1024);
    // A peer that answers gets a connection, with all options.
    let mut peer = Peer::open(1, &mut engine, listener, NOW);
    peer.statement(&mut engine, NOW);
    assert_eq!(engine.counters().cookies_accepted, 1);
    // A peer that guesses gets none: no cookie, no connection.
    for number in 300_000..400_000u32 {
        let mut peer = Peer::new(number);
        peer.told = redoubt_tcp::Seq(number.wrapping_mul(2_654_435_761));
        peer.say(&mut engine, NOW, Flags::ACK, b"");
        while engine.transmit(NOW, &mut packet).is_some() {}
    }
    assert_eq!(engine.memory().connections, 1);
    assert_eq!(engine.counters().cookies_refused, 100_000);
    // And the half-open ones go in their time.
    for second in 0..200 {
        engine.advance(NOW.after(second * 1_000_000));
        while engine.transmit(NOW, &mut packet).is_some() {}
    }
    assert_eq!(engine.memory().half_open, 0);
    engine.require_sound();
}

#[test]
fn what_lies_outside_the_window_changes_nothing() {
    let mut engine = Engine::new(Config::new([1; 16])).unwrap();
    let listener = engine.listen(server(), 100).unwrap();
    let mut peer = Peer::open(1, &mut engine, listener, NOW);
    let id = peer.id.unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut packet, mut answers) = ([0; 1600], 0);
    for _ in 0..100_000 {
        let mut other = peer;
        // Not within the window, and no acknowledgement of what was not sent.
        other.next = peer.next.plus(rng.u32(70_000..u32::MAX - 70_000));
        let flags = [Flags::ACK, Flags::RST, Flags::SYN, Flags::ACK.with(Flags::FIN)][rng.usize(..4)];
        let len = other.packet(flags, &[1; 1400][..rng.usize(..1400)], &mut packet);
        assert_eq!(engine.receive(NOW, &packet[..len], Checksum::Verify), Verdict::Taken);
        while engine.transmit(NOW, &mut packet).is_some() {
            answers += 1;
        }
    }
    let state = engine.state(id).unwrap();
    assert_eq!((state.readable_bytes, state.error, engine.memory().data_len_bytes), (0, None, 0));
    println!("{answers} answers");
    peer.statement(&mut engine, NOW);
    // A reset within the window is asked about; only the very next number resets (RFC 5961).
    let mut blind = peer;
    blind.next = peer.next.plus(100);
    blind.say(&mut engine, NOW, Flags::RST, b"");
    assert_eq!(engine.state(id).unwrap().error, None);
    assert_eq!(peer.hear(&mut engine, NOW).0.flags, Flags::ACK);
    peer.say(&mut engine, NOW, Flags::RST, b"");
    assert!(engine.state(id).unwrap().error.is_some());
}
