//! Tests of the module above.

#![allow(clippy::float_cmp, reason = "these have no rounding")]

use super::*;

#[test]
fn the_middle_and_the_quartiles_of_ratios() {
    let spread = Spread::of(vec![5.0, 1.0, 3.0, 2.0, 4.0]);
    assert_eq!(spread, Spread { median: 3.0, low: 2.0, high: 4.0 });
    assert_eq!(Spread::of(vec![1.0, 2.0]).median, 1.5);
    assert_eq!(Spread::of(vec![7.0]), Spread { median: 7.0, low: 7.0, high: 7.0 });
    assert!(Spread::of(Vec::new()).median.is_nan());
}

#[test]
fn a_way_is_compared_with_the_first_of_its_own_round() {
    let sample = |queries_per_s, processor_us| Sample { queries_per_s, processor_us };
    // The machine was three times as quick in the second round.
    let rounds =
        [vec![sample(100.0, 30.0), sample(120.0, 15.0)], vec![sample(300.0, 10.0), sample(360.0, 5.0)]];
    assert_eq!(
        line(Mix::PointSelect, 8, "another", &rounds, 1),
        "| point_select | 8 | another | 240 | 1.20 (1.20 to 1.20) | 10.0 | 0.50 (0.50 to 0.50) |\n"
    );
}
