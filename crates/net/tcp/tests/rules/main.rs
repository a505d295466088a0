//! Segment by segment what the standards ask for and seeds seldom bring about: time-outs, the end of a connection in
//! every order, resets, old segments, and numbers that go around.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

mod endings;
mod floods;
mod memory;
mod numbers;
mod resets;
#[path = "../support/mod.rs"]
mod support;
mod timeouts;
mod windows;

/// Bugs of the engine that are turned on ([`redoubt_tcp::Config::planted`]), and which test is to notice each.
const PLANTED: [(&str, fn()); 5] = [
    ("old SYN begins anew", endings::time_wait_gives_way_to_a_new_connection),
    ("old timestamps taken", numbers::old_timestamps_are_refused_and_may_go_around),
    ("timeout not doubled", timeouts::a_peer_that_says_nothing_is_asked_ever_more_seldom),
    ("reset anywhere in the window", resets::another_number_within_the_window_is_asked_about),
    ("SYN within a connection not answered", resets::a_syn_within_a_connection_is_asked_about),
];

#[test]
fn every_planted_bug_is_found() {
    for (bug, check) in PLANTED {
        support::exact::PLANTED.set(Some(bug));
        assert!(std::panic::catch_unwind(check).is_err(), "{bug}");
    }
}
