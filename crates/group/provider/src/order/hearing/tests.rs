use super::*;

const OTHER: MemberId = MemberId(2);
const LOOK: Duration = Duration::from_millis(100);

/// Checks ten times per second until the member is declared gone. Returns the time until then.
fn gone_after(
    hearing: &mut Hearing,
    from: Instant,
    until: Duration,
    tell: impl Fn(Duration) -> bool,
) -> Option<Duration> {
    let mut passed = Duration::ZERO;
    while passed < until {
        let now = from + passed;
        hearing.set_in_company(true, now);
        match hearing.look_at(OTHER, now) {
            Next::Gone => return Some(passed),
            Next::Ask if tell(passed) => hearing.told(OTHER, now),
            Next::Ask | Next::Nothing => {}
        }
        passed += LOOK;
    }
    None
}

/// A detector that has had contact with the majority for long, and with this member just now.
fn hearing(now: Instant) -> Hearing {
    let mut hearing = Hearing::default();
    hearing.set_in_company(true, now - 10 * DEPARTURE);
    hearing.hear(OTHER, now);
    hearing
}

#[test]
fn one_that_nobody_hears_has_gone() {
    let now = Instant::now();
    let mut hearing = hearing(now);
    assert_eq!(gone_after(&mut hearing, now, 10 * DEPARTURE, |_| false), Some(DEPARTURE));
    let later = now + DEPARTURE + LOOK;
    let again = gone_after(&mut hearing, later, 10 * DEPARTURE, |_| false);
    assert_eq!(again, Some(DEPARTURE - LOOK), "said again, in case it was not put into the order");
}

#[test]
fn one_that_was_never_heard_has_gone() {
    let now = Instant::now();
    let mut hearing = Hearing::default();
    assert_eq!(gone_after(&mut hearing, now, 10 * DEPARTURE, |_| false), Some(DEPARTURE));
}

#[test]
fn one_that_another_one_hears_is_there_until_that_one_does_not_hear_it_any_more() {
    let now = Instant::now();
    assert_eq!(gone_after(&mut hearing(now), now, 10 * DEPARTURE, |_| true), None);
    let ends = 2 * DEPARTURE;
    let after = gone_after(&mut hearing(now), now, 10 * DEPARTURE, |passed| passed < ends).unwrap();
    assert!(after > ends && after <= ends + DEPARTURE, "{after:?}");
}

#[test]
fn one_that_was_cut_off_waits_for_the_others_when_it_is_back() {
    let now = Instant::now();
    let mut hearing = hearing(now);
    let back = now + 3 * DEPARTURE;
    hearing.set_in_company(false, now + DEPARTURE);
    hearing.set_in_company(true, back);
    assert_ne!(hearing.look_at(OTHER, back), Next::Gone);
    assert_eq!(gone_after(&mut hearing, back, 10 * DEPARTURE, |_| false), Some(DEPARTURE));
}
