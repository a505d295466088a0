//! A simulation of members in one thread. Messages are lost, duplicated, delayed and reordered. Members are stopped,
//! killed, partitioned and lose records that are not durable, and their clocks run at different speeds. One seed
//! determines everything.
//!
//! Checks after each step: all members deliver the same content of a slot, without gaps, each proposal once and in its
//! member's order. A barrier is not reached before all entries that were chosen at its request are delivered. When the
//! faults end, a majority continues without the other members, and then all members deliver everything. A restarted
//! member repeats its deliveries. A member reads entries that are no longer in memory from its log, with a delay. All
//! messages and records survive encoding and decoding.
//!
//! Many faults come at any time; some come while an epoch begins ([`BEGINNINGS`]). Random times seldom hit that
//! period, and some planted bugs are only found there.
//!
//! `REDOUBT_CONSENSUS_SEEDS=FROM..TO` runs other seeds, and `REDOUBT_CONSENSUS_NOTES=1` prints all events.
//!
//! With the feature `planted-bugs` every planted bug must be found (scripts/planted); `REDOUBT_CONSENSUS_BUG=NAME`
//! turns on only one.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

#[cfg(feature = "planted-bugs")]
mod planted;
mod world;

use redoubt_consensus::Settings;
use redoubt_test_support::setting_range;
use world::{Trouble, World};

fn seeds(from: u64, count: u64) -> std::ops::Range<u64> {
    setting_range("REDOUBT_CONSENSUS_SEEDS", from..from + count)
}

fn run(name: &str, trouble: Trouble, members: std::ops::RangeInclusive<u64>, count: u64) {
    let mut delivered = 0;
    let (mut epochs, mut reads) = (0, 0);
    let seeds = seeds(1, count);
    let runs = seeds.end - seeds.start;
    for seed in seeds {
        let mut world = World::new(seed, members.clone(), trouble, Settings::default());
        trouble_and_heal(&mut world);
        delivered += world.delivered();
        epochs += world.epochs();
        reads += world.reads();
    }
    println!("{name}: {runs} worlds, {delivered} proposals, {epochs} epochs, {reads} reads of logs");
    assert!(delivered > 0);
}

fn trouble_and_heal(world: &mut World) {
    world.run(3_000_000);
    world.heal_most();
    world.heal();
    world.settle();
}

#[test]
fn without_trouble() {
    run("without trouble", Trouble::default(), 1..=5, 5);
}

#[test]
fn messages_are_lost_doubled_and_overtaken() {
    run("messages", Trouble { loss: 10, doubled: 10, ..Trouble::default() }, 1..=5, 15);
}

#[test]
fn members_are_killed_and_come_back() {
    run("kills", Trouble { loss: 2, doubled: 2, kills: 6, ..Trouble::default() }, 1..=5, 25);
}

#[test]
fn members_are_stopped_and_go_on() {
    run("pauses", Trouble { loss: 2, pauses: 8, ..Trouble::default() }, 3..=5, 15);
}

#[test]
fn members_are_cut_off() {
    run("partitions", Trouble { loss: 2, partitions: 8, ..Trouble::default() }, 3..=5, 15);
}

#[test]
fn everything_at_once() {
    run("everything", EVERYTHING, 3..=5, 40);
}

#[test]
fn epochs_are_troubled_as_they_begin() {
    run("beginnings", BEGINNINGS, 3..=5, 40);
}

const EVERYTHING: Trouble =
    Trouble { loss: 5, doubled: 5, kills: 4, pauses: 4, partitions: 4, changes: 4, all_killed: 1, epochs: 0 };
/// All faults of [`EVERYTHING`], and faults while epochs begin.
const BEGINNINGS: Trouble = Trouble { epochs: 15, ..EVERYTHING };
