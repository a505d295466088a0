//! Every planted bug is found: the simulation can fail.

use crate::{STORM_STEPS, options, world};
use redoubt_sync::planted::Bug;

/// A planted bug must be found within this many worlds.
const SEEDS_FOR_A_BUG: u64 = 600;

/// Every planted bug, and the invariant of the design that it breaks.
const PLANTED: [(Bug, &str); 19] = [
    (Bug::AnsweredBeforeDurable, "1: durable before answered"),
    (Bug::FailedSyncIgnored, "7: after a failed sync the node stops"),
    (Bug::ReadAboveDurable, "3: never from the future"),
    (Bug::ReadTooOld, "3: never older"),
    (Bug::ReadOlderThanReleased, "3: never older"),
    (Bug::UnknownInputSkipped, "5: unknown means stop"),
    (Bug::SnapshotMoves, "6: an export is exact"),
    (Bug::LogEndedTooEarly, "a server that takes over finds what it has to recover"),
    (Bug::AppliedBeforeDurable, "nothing above D in the page store"),
    (Bug::PlainChangeBeforeDurable, "nothing above D in plain files"),
    (Bug::CheckpointBeforePlainFiles, "what is before A is durable in its place"),
    (Bug::NamesNotDurable, "the names that a checkpoint refers to are durable"),
    (Bug::NamesRemovedEarly, "the names that a checkpoint refers to are there"),
    (Bug::TablespaceEndNotedLate, "only what is dead for good is left out of the page store"),
    (Bug::AnyConnectionAppends, "4: one writer"),
    (Bug::OldGenerationAdmitted, "4: one writer"),
    (Bug::ReadsNotFenced, "4: one writer"),
    (Bug::RefusalAnswered, "no server goes on after an error that a fence caused"),
    (Bug::GenerationNotWritten, "4: one writer"),
];

#[test]
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    let only = redoubt_test_support::setting_text("REDOUBT_SIMULATION_BUG");
    let is_chosen = |bug: &Bug| only.as_ref().is_none_or(|only| *only == format!("{bug:?}"));
    let chosen: Vec<_> = PLANTED.into_iter().filter(|(bug, _)| is_chosen(bug)).collect();
    assert!(!chosen.is_empty(), "REDOUBT_SIMULATION_BUG={only:?} is none of {PLANTED:?}");
    for (bug, invariant) in chosen {
        let found = (1..=SEEDS_FOR_A_BUG).find_map(|seed| {
            let mut options = options(seed);
            options.planted = Some(bug);
            world::run(&options, STORM_STEPS).err()
        });
        match found {
            Some(failure) => println!("{bug:?} ({invariant}): {failure}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS_FOR_A_BUG} worlds: {missed:?}");
}

#[test]
fn planted_bugs_leave_their_marker() {
    redoubt_test_support::planted::require_compiled_in();
}
