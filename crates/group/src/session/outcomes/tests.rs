//! Both orders of news, and news of one side alone.

use super::*;

#[test]
fn what_went_the_same_way_fits_and_what_did_not_does_not() {
    for first_here in [true, false] {
        for (here, at_origin) in [
            (Outcome::Done, Outcome::Done),
            (Outcome::Failed, Outcome::Failed),
            (Outcome::Done, Outcome::Failed),
            (Outcome::Failed, Outcome::Done),
        ] {
            let mut outcomes = Outcomes::default();
            let fits = if first_here {
                assert!(outcomes.here(Seqno(5), here));
                outcomes.at_origin(Seqno(5), at_origin)
            } else {
                assert!(outcomes.at_origin(Seqno(5), at_origin));
                outcomes.here(Seqno(5), here)
            };
            assert_eq!(fits, here == at_origin, "{here:?} here, {at_origin:?} there");
            assert!(outcomes.here.is_empty() && outcomes.at_origin.is_empty());
        }
    }
}

#[test]
fn what_one_side_tells_alone_does_not_grow_for_ever() {
    let mut outcomes = Outcomes::default();
    for seqno in 0..5 * MAX_KEPT as i64 {
        assert!(outcomes.here(Seqno(seqno), Outcome::Done));
    }
    assert_eq!(outcomes.here.len(), MAX_KEPT);
    assert!(!outcomes.at_origin(Seqno(5 * MAX_KEPT as i64 - 1), Outcome::Failed));
}

#[test]
fn codes_come_back() {
    for outcome in [Outcome::Done, Outcome::Failed] {
        assert_eq!(Outcome::from_code(outcome.code()), outcome);
    }
    assert_eq!(Outcome::of(true), Outcome::Failed);
}
