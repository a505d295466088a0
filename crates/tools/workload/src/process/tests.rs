//! Tests of the module above.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

use super::*;

#[test]
fn processor_time_is_found_after_any_name() {
    let stat = "123 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 13 14";
    assert_eq!(parse_ticks(stat), Some(300));
    assert_eq!(parse_ticks("123 (x) S 1 2"), None);
}

#[test]
fn own_processor_time_grows() {
    let before = processor_ms("self").unwrap();
    redoubt_test_support::wait::until("20 ms of CPU time", || {
        (0..100_000u64).for_each(|number| {
            std::hint::black_box(number);
        });
        processor_ms("self").unwrap() >= before + 20
    });
}
