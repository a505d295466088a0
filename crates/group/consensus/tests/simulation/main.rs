//! Members in a world of one thread, where messages are lost, doubled, delayed and overtaken, members are stopped,
//! killed, cut off and lose their disks, and clocks run at different speeds, all by one seed.
//!
//! After each step: whoever delivers a slot delivers what everybody else did, with no gap, each proposal once and in
//! its member's order; and a barrier is not reached before what was chosen when it was asked for is delivered. When all
//! trouble is over, a majority goes on without the others, and then everybody delivers everything. A member that is
//! started again gives out what it had delivered. What a member does not keep in memory it reads from its log, late.
//! All messages and records are what their bytes say.
//!
//! Much of that trouble comes at any time; some of it comes as an epoch begins ([`BEGINNINGS`]), which it would seldom
//! meet, and without which some planted bugs are not found.
//!
//! `REDOUBT_CONSENSUS_SEEDS=FROM..TO` runs other seeds, and `REDOUBT_CONSENSUS_NOTES=1` says all that happens.
//!
//! With the feature `planted-bugs` every planted bug must be found (scripts/planted); `REDOUBT_CONSENSUS_BUG=NAME` turns
//! on only one.

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
/// And when epochs begin.
const BEGINNINGS: Trouble = Trouble { epochs: 15, ..EVERYTHING };
