use super::*;
use redoubt_test_support::wait::until;
use std::thread::JoinHandle;
use std::time::Instant;

fn place() -> &'static Place {
    Box::leak(Box::default())
}

fn gate() -> &'static Gate {
    Box::leak(Box::default())
}

fn at_most(longest: Duration) -> impl Fn() -> Duration {
    let start = Instant::now();
    move || longest.saturating_sub(start.elapsed())
}

fn waiting(gate: &'static Gate, place: &'static Place, limit: usize) -> JoinHandle<Outcome> {
    let before = gate.waiting();
    let thread = std::thread::spawn(move || gate.wait(place, limit, 5, || Duration::MAX));
    until("a waiter", || gate.waiting() > before);
    thread
}

#[test]
fn the_first_who_waits_is_the_first_to_enter() {
    let (gate, places) = (gate(), [place(), place(), place(), place()]);
    assert!(gate.enter(places[0], 1));
    let threads: Vec<_> = places[1..].iter().map(|place| waiting(gate, place, 1)).collect();
    assert!(!gate.enter(place(), 1));
    let before = gate.waiters(9).len();
    assert_eq!((before, gate.waiters(2).len(), gate.waiters(2)[0].since_ms), (3, 2, 5));
    for (at, thread) in threads.into_iter().enumerate() {
        assert!(gate.leave(places[at], 1));
        assert_eq!(thread.join().unwrap(), Outcome::Entered);
        assert!(places[at + 1].is_inside() && gate.inside() == 1);
        assert_eq!(gate.waiting(), 2 - at);
    }
    assert!(gate.leave(places[3], 1) && !gate.leave(places[3], 1));
    assert_eq!((gate.inside(), gate.waiting()), (0, 0));
}

/// A connection may be ended shortly before its thread begins to wait.
#[test]
fn a_connection_that_has_ended_does_not_begin_to_wait() {
    let (gate, holder, other) = (gate(), place(), place());
    assert!(gate.enter(holder, 1));
    gate.end(other);
    assert_eq!(gate.wait(other, 1, 0, at_most(Duration::from_secs(1))), Outcome::CalledOff);
    assert_eq!(gate.waiting(), 0);
    gate.renew(other);
    let thread = waiting(gate, other, 1);
    gate.leave(holder, 1);
    assert_eq!(thread.join().unwrap(), Outcome::Entered);
}

#[test]
fn waits_end_for_other_reasons() {
    let (gate, holder, other) = (gate(), place(), place());
    assert!(gate.enter(holder, 1));
    assert_eq!(gate.wait(other, 1, 0, at_most(Duration::from_millis(20))), Outcome::TimedOut);
    let thread = waiting(gate, other, 1);
    assert!(gate.call_off(other) && !gate.call_off(other));
    assert_eq!(thread.join().unwrap(), Outcome::CalledOff);
    let threads = [waiting(gate, other, 1), waiting(gate, place(), 1)];
    gate.call_off_all();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), Outcome::CalledOff);
    }
    assert_eq!((gate.inside(), gate.waiting()), (1, 0));
    gate.force(other);
    assert_eq!(gate.inside(), 2);
    // Over the limit: the waiter enters only after both have left.
    let last = place();
    let thread = waiting(gate, last, 1);
    gate.leave(other, 1);
    assert!(last.is_waiting());
    gate.leave(holder, 1);
    assert_eq!(thread.join().unwrap(), Outcome::Entered);
}

#[test]
fn a_higher_limit_lets_more_in() {
    let (gate, holder) = (gate(), place());
    assert!(gate.enter(holder, 1));
    let threads: Vec<_> = (0..3).map(|_| waiting(gate, place(), 1)).collect();
    gate.admit(3);
    until("two that have entered", || gate.waiting() == 1);
    assert_eq!(gate.inside(), 3);
    gate.admit(4);
    for thread in threads {
        assert_eq!(thread.join().unwrap(), Outcome::Entered);
    }
}

/// Threads that enter, leave, time out and call each other off: never more inside than the limit, and no waiter
/// remains.
#[test]
fn the_limit_holds_whatever_happens() {
    const LIMIT: usize = 3;
    let gate = gate();
    let (most, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let places: Vec<&'static Place> = (0..8).map(|_| place()).collect();
    std::thread::scope(|scope| {
        for (number, mine) in places.iter().copied().enumerate() {
            let (places, most, over) = (&places, &most, &over);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(number as u64);
                for _ in 0..20_000 {
                    let entered = gate.enter(mine, LIMIT) || {
                        let longest =
                            if rng.bool() { Duration::MAX } else { Duration::from_micros(rng.u64(0..200)) };
                        gate.wait(mine, LIMIT, 0, at_most(longest)) == Outcome::Entered
                    };
                    assert_eq!(entered, mine.is_inside());
                    if entered {
                        let now = most.fetch_add(1, SeqCst) + 1;
                        over.fetch_or(now > LIMIT, SeqCst);
                        if rng.u8(..) < 20 {
                            std::thread::yield_now();
                        }
                        most.fetch_sub(1, SeqCst);
                        assert!(gate.leave(mine, LIMIT));
                    } else if rng.bool() {
                        gate.call_off(places[rng.usize(..places.len())]);
                    }
                }
            });
        }
    });
    assert!(!over.load(SeqCst));
    assert_eq!((gate.inside(), gate.waiting(), gate.waiters(1)), (0, 0, Vec::new()));
}
