//! Every planted bug is found: the simulation can fail.
//!
//! Two bugs are missing here because they cost time only. [`Bug::BlockOneSegmentTooLong`] costs a timeout, as the engine
//! then believes no block any more (RFC 2018, 8). [`Bug::ComparedWithoutWrapping`] costs an acknowledgement, and the next
//! one replaces it. `tests/rules/planted.rs` has the bugs that no world here meets.

use crate::world::Trouble;
use crate::{DAMAGED, GOOD, LOSSY, OVERTAKEN, STRANGE, one_within};
use redoubt_tcp::{Bug, Micros};

/// Each bug, and the trouble in which it is to be found.
///
/// | bug | first found in world |
/// |---|--:|
/// | `FinCountedTwice`, `WindowShrunk`, `ResetAnywhereInWindow` | 1 |
/// | `ChecksumNotVerified`, `WindowUpdateLost`, `BlockReportedEarly` | 2 |
/// | `ClosedWindowNotProbed` | 3 |
/// | `DelayedAckNeverSent` | 29 |
/// | `SynNotChallenged` | 35 |
/// | `MemoryLeaked` | 37 |
/// | `FinAcknowledgedEarly` | 88 |
/// | `WrongBytesRetransmitted` | 94 |
/// | `OverlapCopiedFromStart` | 156 |
const PLANTED: [(Bug, Trouble); 13] = [
    (Bug::ChecksumNotVerified, DAMAGED),
    (Bug::DelayedAckNeverSent, GOOD),
    (Bug::FinCountedTwice, GOOD),
    (Bug::MemoryLeaked, GOOD),
    (Bug::WindowShrunk, GOOD),
    (Bug::FinAcknowledgedEarly, LOSSY),
    (Bug::WrongBytesRetransmitted, LOSSY),
    (Bug::WindowUpdateLost, LOSSY),
    (Bug::ClosedWindowNotProbed, LOSSY),
    (Bug::BlockReportedEarly, LOSSY),
    (Bug::OverlapCopiedFromStart, OVERTAKEN),
    (Bug::ResetAnywhereInWindow, STRANGE),
    (Bug::SynNotChallenged, STRANGE),
];
/// Worlds in which each is to be found.
const WORLDS: u64 = 500;

#[test]
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    for (bug, trouble) in PLANTED {
        let plant = |config: &mut redoubt_tcp::Config| config.planted = Some(bug);
        let run = |seed| one_within(Micros::from_secs(3600), seed, trouble, plant);
        let first = (1..=WORLDS).find(|seed| std::panic::catch_unwind(|| run(*seed)).is_err());
        println!("{bug:?}: {first:?}");
        if first.is_none() {
            missed.push(bug);
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn planted_bugs_leave_their_marker() {
    redoubt_test_support::planted::require_compiled_in();
}
