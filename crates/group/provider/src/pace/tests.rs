//! Which members are waited for, and for how long in total.

use super::*;

const SLOW: MemberId = MemberId(1);
/// Write sets that are ordered between two checks: 10,000 per second.
const EACH: i64 = 50;

/// Simulates `seconds` in steps of one check. `behind` returns the member's lag at each step. Returns the total wait
/// for the member.
fn waited(seconds: u64, late: Duration, mut behind: impl FnMut(Duration) -> Duration) -> Duration {
    let mut others = Others::default();
    let begin = Instant::now();
    let (mut waited, mut passed, mut ordered) = (Duration::ZERO, Duration::ZERO, 0);
    while passed < Duration::from_secs(seconds) {
        let now = begin + passed;
        let lacks = ((behind(passed) + late).as_micros() as i64) * EACH / LOOK.as_micros() as i64;
        others.told(SLOW, Seqno((ordered - lacks).max(0)), true, now);
        if others.hold(Seqno(ordered), Seqno(ordered), now) {
            waited += LOOK;
        }
        passed += LOOK;
        ordered += EACH;
    }
    waited
}

const NOTHING: Duration = Duration::ZERO;

#[test]
fn nobody_waits_for_one_that_keeps_up() {
    assert_eq!(waited(10, NOTHING, |_| GO), NOTHING);
}

#[test]
fn nobody_waits_for_one_that_is_only_far_away() {
    let far = Duration::from_millis(50);
    let all = waited(100, far, |_| Duration::ZERO);
    // Until its delay is known.
    assert!(all <= 2 * SHORTEST_OF + far, "{all:?}");
}

#[test]
fn nobody_waits_for_one_that_is_hopelessly_behind() {
    let all = waited(100, NOTHING, |_| HOPELESS + Duration::from_millis(20));
    assert!(all <= BURST, "{all:?}");
}

#[test]
fn one_that_is_behind_now_and_then_is_waited_for_until_it_has_caught_up() {
    // It falls behind, and recovers from there.
    let behind = |passed: Duration| match passed.as_millis() % 1000 {
        at @ 0..50 => Duration::from_millis(50 - at as u64),
        _ => Duration::ZERO,
    };
    let all = waited(100, NOTHING, behind);
    assert!(all >= Duration::from_secs(4), "{all:?}");
}

#[test]
fn one_that_is_always_behind_takes_a_share_of_the_time_and_no_more() {
    // The lag grows, so that it is not treated as network delay.
    let all = waited(90, NOTHING, |passed| Duration::from_millis(20) + passed.mul_f64(0.03));
    assert!(all >= Duration::from_secs(5), "{all:?}");
    assert!(all <= Duration::from_secs_f64(90.0 * SHARE) + BURST, "{all:?}");
}

#[test]
fn among_few_nobody_waits_for_one_that_takes_its_time() {
    let mut others = Others::default();
    let begin = Instant::now();
    for look in 0..100 {
        let now = begin + LOOK * look;
        others.told(SLOW, Seqno(1), true, now);
        assert!(!others.hold(Seqno(1 + i64::from(look / 2)), Seqno(1), now), "look {look}");
    }
}

/// Everything up to a second ago is applied here, and nothing since by the other member.
fn behind(others: &mut Others, begin: Instant) -> Instant {
    let mut now = begin;
    others.told(SLOW, Seqno(0), true, now);
    for ordered in 0..100 {
        others.hold(Seqno(ordered), Seqno(ordered), now);
        now += LOOK;
    }
    others.told(SLOW, Seqno(1), true, now);
    now
}

#[test]
fn one_that_says_nothing_is_not_waited_for() {
    let mut others = Others::default();
    let now = behind(&mut others, Instant::now());
    assert!(others.hold(Seqno(100), Seqno(100), now));
    assert!(!others.hold(Seqno(100), Seqno(100), now + FRESH));
}

#[test]
fn one_that_is_not_to_keep_up_is_not_waited_for() {
    let mut others = Others::default();
    let now = behind(&mut others, Instant::now());
    others.told(SLOW, Seqno(1), false, now);
    assert!(!others.hold(Seqno(100), Seqno(100), now));
    others.told(SLOW, Seqno(1), true, now);
    assert!(others.hold(Seqno(100), Seqno(100), now));
}

#[test]
fn a_member_that_is_behind_itself_waits_as_well() {
    let mut others = Others::default();
    let begin = Instant::now();
    let mut held = 0;
    for look in 0..100_u32 {
        held += i32::from(others.hold(Seqno(EACH * i64::from(look)), Seqno(0), begin + LOOK * look));
    }
    assert!(held >= 95, "{held}");
    let now = begin + LOOK * 100;
    assert!(!others.hold(Seqno(5000), Seqno(4999), now));
}

#[test]
fn one_that_is_held_goes_on_when_the_other_has_caught_up_or_it_is_wanted_back() {
    let pace = Pace::default();
    let now = Instant::now();
    let begin = now.checked_sub(LOOK * 100).unwrap();
    behind(&mut pace.others(), begin);
    let ordered = || Seqno(100);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| pace.hold(ordered, ordered, || false));
        pace.told(SLOW, Seqno(100), true);
        held.join().unwrap();
    });
    pace.hold(ordered, ordered, || true);
}

#[test]
fn nobody_waits_for_one_that_lacks_what_was_ordered_long_ago_even_if_little_was_ordered_since() {
    let mut others = Others::default();
    let begin = Instant::now();
    let look = |others: &mut Others, ordered: i64, at: Duration| {
        others.hold(Seqno(ordered), Seqno(ordered), begin + at)
    };
    for step in 1..=100 {
        assert!(!look(&mut others, 50 * step, LOOK * step as u32));
    }
    // Then a long pause, and new write sets just now.
    let later = Duration::from_secs(20);
    look(&mut others, 5001, later);
    others.told(SLOW, Seqno(10), true, begin + later);
    assert!(!look(&mut others, 5100, later + GO * 2));
    // It has almost caught up.
    others.told(SLOW, Seqno(5001), true, begin + later + GO * 2);
    assert!(look(&mut others, 5100, later + GO * 4));
}
