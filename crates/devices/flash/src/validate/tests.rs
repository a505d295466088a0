//! The model is within the tolerance; wrong ones are not.

use super::*;
use crate::closed_form::uniform_waf_random_victims;

#[test]
fn greedy_is_within_the_tolerance_and_just_below_the_closed_form() {
    for op_percent in OP_PERCENT {
        let row = uniform(op_percent, &Settings::QUICK, |_| ()).unwrap();
        assert!(row.within_tolerance(), "{row:?}");
        assert!(row.deviation_percent < 0.5, "{row:?}");
    }
}

#[test]
fn random_victims_are_outside_and_have_a_closed_form_of_their_own() {
    let settings = Settings { victims: Victims::Random { seed: 5 }, ..Settings::QUICK };
    for op_percent in OP_PERCENT {
        let row = uniform(op_percent, &settings, |_| ()).unwrap();
        assert!(!row.within_tolerance() && row.deviation_percent > 10.0, "{row:?}");
        let random = uniform_waf_random_victims(op_percent);
        assert!((row.simulated / random - 1.0).abs() < 0.05, "{row:?} against {random}");
    }
}

#[test]
fn two_percent_more_space_than_said_is_outside() {
    for op_percent in [7.0, 15.0] {
        let row = uniform(op_percent + 2.0, &Settings::QUICK, |_| ()).unwrap();
        assert!((row.simulated / uniform_waf(op_percent) - 1.0).abs() * 100.0 > TOLERANCE_PERCENT, "{row:?}");
    }
}
