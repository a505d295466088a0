//! Planted bugs that seeds seldom meet, and the test that must notice each.

use crate::{endings, numbers, resets, support, timeouts};
use redoubt_tcp::Bug;

const PLANTED: [(Bug, fn()); 5] = [
    (Bug::OldSynReopens, endings::time_wait_gives_way_to_a_new_connection),
    (Bug::OldTimestampsAccepted, numbers::old_timestamps_are_refused_and_may_go_around),
    (Bug::TimeoutNotDoubled, timeouts::a_peer_that_says_nothing_is_asked_ever_more_seldom),
    (Bug::ResetAnywhereInWindow, resets::another_number_within_the_window_is_asked_about),
    (Bug::SynNotChallenged, resets::a_syn_within_a_connection_is_asked_about),
];

#[test]
fn every_planted_bug_is_found() {
    for (bug, check) in PLANTED {
        support::exact::PLANTED.set(Some(bug));
        assert!(std::panic::catch_unwind(check).is_err(), "{bug:?}");
    }
}
