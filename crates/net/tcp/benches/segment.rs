//! Cost of a statement of 100 bytes and its answer of 1 KiB in the engine, among so many connections: two segments in,
//! one out, the calls between them, and one check of the timers.

#![allow(clippy::unwrap_used, reason = "a failed call ends the bench")]

#[path = "../tests/support/mod.rs"]
mod support;

use divan::Bencher;
use redoubt_tcp::{Config, Engine, Micros};
use support::peers::{Peer, server};

fn main() {
    divan::main();
}

#[divan::bench(args = [1, 64, 10_000])]
fn statement(bencher: Bencher<'_, '_>, count: u32) {
    let mut engine = Engine::new(Config::new([1; 16])).unwrap();
    let listener = engine.listen(server(), 100).unwrap();
    let mut now = Micros(1_000_000_000);
    let mut peers: Vec<_> = (0..count).map(|number| Peer::open(number, &mut engine, listener, now)).collect();
    let mut step = 0u32;
    bencher.bench_local(|| {
        step = step.wrapping_add(7919);
        now = now.after(20);
        engine.advance(now);
        peers[(step % count) as usize].statement(&mut engine, now);
    });
}
