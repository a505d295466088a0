//! An engine and independent clients on a link that loses, duplicates, damages, delays and reorders packets, in
//! simulated time, all by one seed. Attackers that have addresses and ports guess the rest. Clients fail and reconnect
//! from the same port; sequence numbers of both sides wrap.
//!
//! After each step:
//! * each client has the server's bytes in order and each byte once;
//! * no client receives an acknowledgement of unsent data, more data than it has room for, or a smaller window than
//!   before;
//! * the engine's tables agree with each other, and its memory is bounded.
//!
//! Within a bounded time all clients are done, and no state is left. On a link without trouble neither side sends
//! anything twice.
//!
//! `REDOUBT_TCP_SEEDS=FROM..TO` runs other seeds. With the feature `planted-bugs` every planted bug must be found
//! (scripts/planted).

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

mod peer;
#[cfg(feature = "planted-bugs")]
mod planted;
#[path = "../support/mod.rs"]
mod support;
mod world;

use peer::Habits;
use redoubt_tcp::{Config, Micros};
use support::server::SOURCE;
use world::{Trouble, World};

fn seeds(count: u64) -> std::ops::Range<u64> {
    redoubt_test_support::setting_range("REDOUBT_TCP_SEEDS", 1..1 + count)
}

/// Says which seed it was that failed.
struct Note(u64);

impl Drop for Note {
    fn drop(&mut self) {
        eprintln!("seed {}", self.0);
    }
}

fn one(seed: u64, trouble: Trouble) -> World {
    one_within(Micros::from_secs(36_000), seed, trouble, |_| {})
}

fn one_within(longest: Micros, seed: u64, trouble: Trouble, change: impl FnOnce(&mut Config)) -> World {
    let mut world = World::new(seed, trouble, |config| {
        change(config);
        // A cookie is good as long as it is young: an acknowledgement that comes again after its connection has
        // ended opens another one.
        if seed.is_multiple_of(5) && trouble.doubled + trouble.late == 0 {
            config.max_half_open = (seed % 2) as u32;
        }
        if trouble.lost > 100 {
            // No side gives up.
            (config.max_retransmissions, config.max_orphan_retransmissions) = (100, 100);
            config.max_half_open_retransmissions = 20;
            (config.orphan_timeout, config.time_wait) = (Micros::from_secs(3600), Micros::from_secs(600));
        }
        if seed.is_multiple_of(7) {
            config.memory_len_bytes = 64 << 10;
        }
    });
    world.random_peers();
    world.run(longest);
    if trouble.is_none() && !seed.is_multiple_of(7) {
        // Nothing is lost, and there is memory for all, so no timeout expires.
        assert_eq!((world.peers.iter().map(|peer| peer.timeouts).sum::<u64>(), seed), (0, seed));
        let counters = world.engine.counters();
        assert_eq!((counters.retransmitted, counters.dropped.acknowledgement, seed), (0, 0, seed));
    }
    world.settle();
    world
}

fn run(name: &str, trouble: Trouble, count: u64) {
    let (mut received, mut retransmitted, mut timeouts, mut recoveries) = (0, 0, 0, 0);
    for seed in seeds(count) {
        let note = Note(seed);
        let world = one(seed, trouble);
        std::mem::forget(note);
        received += world.peers.iter().map(|peer| peer.received).sum::<u64>();
        let counters = world.engine.counters();
        retransmitted += counters.retransmitted;
        timeouts += counters.retransmission_timeouts;
        recoveries += counters.fast_recoveries;
    }
    println!(
        "{name}: {received} bytes, {retransmitted} segments again, {recoveries} recoveries, {timeouts} timeouts"
    );
    assert!(received > 0);
}

const GOOD: Trouble = Trouble {
    lost: 0,
    doubled: 0,
    corrupted: 0,
    late: 0,
    late_us: 0,
    delay_us: 5000,
    rate: 0,
    queue_len_bytes: 0,
    server_us: 0,
    forged: 0,
    failing: 0,
};
const LOSSY: Trouble = Trouble { lost: 30, ..GOOD };
const OVERTAKEN: Trouble = Trouble { doubled: 30, late: 100, late_us: 30_000, ..GOOD };
const DAMAGED: Trouble = Trouble { corrupted: 50, ..GOOD };
const STRANGE: Trouble = Trouble { lost: 10, late: 50, late_us: 20_000, forged: 100, failing: 500, ..GOOD };
const EVERYTHING: Trouble = Trouble {
    lost: 50,
    doubled: 30,
    corrupted: 20,
    late: 50,
    late_us: 20_000,
    delay_us: 1000,
    rate: 1_000_000,
    queue_len_bytes: 30_000,
    server_us: 20_000,
    forged: 20,
    failing: 100,
};

#[test]
fn without_trouble() {
    run("without trouble", GOOD, 200);
}

#[test]
fn segments_are_lost() {
    run("lost", LOSSY, 200);
}

#[test]
fn segments_are_doubled_and_overtaken() {
    run("overtaken", OVERTAKEN, 200);
}

#[test]
fn segments_are_damaged() {
    run("damaged", DAMAGED, 200);
}

#[test]
fn the_server_is_slow() {
    run("slow", Trouble { server_us: 300_000, lost: 10, ..GOOD }, 100);
}

#[test]
fn everything_at_once() {
    run("everything", EVERYTHING, 300);
}

#[test]
fn strangers_guess_and_clients_fail() {
    run("strange", STRANGE, 200);
}

#[test]
fn a_third_of_all_is_lost() {
    run("a third", Trouble { lost: 300, ..GOOD }, 30);
}

/// A server that sends to one client: bytes a second.
fn goodput(trouble: Trouble, has_sack: bool) -> f64 {
    let habits = Habits {
        has_sack,
        has_timestamps: true,
        has_scaling: true,
        delays: true,
        window: 4 << 20,
        is_slow: false,
        in_flight: 10,
        fails_at: None,
    };
    let mut rates: Vec<f64> = (1..6)
        .map(|seed| {
            let mut world = World::new(seed, trouble, |_| {});
            let len = 5 << 20;
            world.add(0, SOURCE, len, habits);
            let elapsed = world.run(Micros::from_secs(36_000));
            len as f64 * 1e6 / elapsed as f64
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[2]
}

/// At 1 % loss the congestion window is the limit. Its size follows from RFC 5681's response function, with the
/// constants of CUBIC's Reno-friendly region, which is that of Reno: about 1.22 / sqrt(p) segments a round trip.
#[test]
fn goodput_at_one_percent_loss_is_what_the_window_allows() {
    let link = Trouble { delay_us: 10_000, rate: 12_500_000, queue_len_bytes: 500_000, ..GOOD };
    let clean = goodput(link, true);
    let mut figures = Vec::new();
    for lost in [10, 30, 50] {
        let lossy = Trouble { lost, ..link };
        let (with, without) = (goodput(lossy, true), goodput(lossy, false));
        let ideal = 1.22 / (f64::from(lost) / 1000.0).sqrt() * 1448.0 / 0.020;
        println!(
            "loss {lost}/1000: {with:.0} bytes a second with SACK, {without:.0} without, ideal {ideal:.0}"
        );
        figures.push((with, without, ideal));
    }
    println!("no loss: {clean:.0} of {}", link.rate);
    assert!(clean > 0.6 * link.rate as f64, "{clean}");
    let (with, _, ideal) = figures[0];
    assert!(with > 0.7 * ideal, "{with} of {ideal}");
    let (with, without, _) = figures[2];
    assert!(with > without, "{with}, {without} without");
}
