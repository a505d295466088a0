//! Who is waited for, and how long altogether.

use super::*;

const SLOW: MemberId = MemberId(1);

/// Goes through `seconds` in steps of a look; `lacks` says what the member lacks in each. How long it was waited for.
fn waited(seconds: u64, mut lacks: impl FnMut(Duration) -> i64) -> Duration {
    let mut others = Others::default();
    let begin = Instant::now();
    let mut waited = Duration::ZERO;
    let mut passed = Duration::ZERO;
    while passed < Duration::from_secs(seconds) {
        let now = begin + passed;
        others.told(SLOW, Seqno(1_000_000 - lacks(passed)), now);
        if others.hold(Seqno(1_000_000), AHEAD, now) {
            waited += LOOK;
        }
        passed += LOOK;
    }
    waited
}

#[test]
fn nobody_waits_for_one_that_keeps_up() {
    assert_eq!(waited(10, |_| AHEAD), Duration::ZERO);
}

#[test]
fn nobody_waits_for_one_that_is_far_behind() {
    assert_eq!(waited(10, |_| HOPELESS * AHEAD + 1), Duration::ZERO);
}

#[test]
fn one_that_is_behind_now_and_then_is_waited_for() {
    let is_behind = |passed: Duration| passed.as_millis() % 1000 < 80;
    let all = waited(100, |passed| if is_behind(passed) { AHEAD + 1 } else { 0 });
    assert!(all >= Duration::from_secs(7), "{all:?}");
}

#[test]
fn one_that_is_always_behind_takes_a_share_of_the_time_and_no_more() {
    let all = waited(1000, |_| AHEAD + 100);
    assert!(all >= Duration::from_secs(50), "{all:?}");
    assert!(all <= Duration::from_secs_f64(1000.0 * SHARE) + BURST, "{all:?}");
}

#[test]
fn one_that_says_nothing_is_not_waited_for() {
    let mut others = Others::default();
    let begin = Instant::now();
    others.told(SLOW, Seqno(0), begin);
    assert!(others.hold(Seqno(AHEAD + 1), AHEAD, begin));
    assert!(!others.hold(Seqno(AHEAD + 1), AHEAD, begin + FRESH));
}

#[test]
fn one_that_is_held_goes_on_when_the_other_has_caught_up_or_it_is_wanted_back() {
    let pace = Pace::default();
    let ordered = || Seqno(AHEAD + 1);
    pace.told(SLOW, Seqno(0));
    std::thread::scope(|scope| {
        let held = scope.spawn(|| pace.hold(ordered, ordered, || false));
        pace.told(SLOW, Seqno(1));
        held.join().unwrap();
    });
    pace.told(SLOW, Seqno(0));
    pace.hold(ordered, ordered, || true);
}

#[test]
fn what_was_ordered_lately_may_be_lacking() {
    const EACH: i64 = 200;
    let mut others = Others::default();
    let begin = Instant::now();
    let mut allowed = Vec::new();
    for look in 0..100_u32 {
        allowed.push(others.allowed(Seqno(EACH * i64::from(look)), begin + LOOK * look));
    }
    let in_a_window = EACH * (WINDOW.as_micros() / LOOK.as_micros()) as i64;
    let later = &allowed[2 * (WINDOW.as_micros() / LOOK.as_micros()) as usize..];
    assert!(later.iter().all(|allowed| (in_a_window..=2 * in_a_window).contains(allowed)), "{allowed:?}");
    // After a rest nothing is known, and little is allowed.
    assert_eq!(others.allowed(Seqno(1_000_000), begin + LOOK * 1000), AHEAD);
}
