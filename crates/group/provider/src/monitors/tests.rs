//! Threads enter in order, whatever their order of arrival.

use super::*;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn all_enter_in_order_and_cancelled_ones_are_passed_over() {
    let order = Arc::new(CommitOrder::new());
    order.start_after(Seqno(100));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut numbers: Vec<i64> = (101..=600).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut numbers);
    let cancelled = |number: i64| number % 7 == 3;
    let threads: Vec<_> = numbers
        .into_iter()
        .map(|number| {
            let (order, seen) = (Arc::clone(&order), Arc::clone(&seen));
            std::thread::spawn(move || {
                if cancelled(number) {
                    return order.cancel(Seqno(number));
                }
                assert!(order.enter(Seqno(number), Entering::when));
                lock(&seen).push(number);
                order.leave(Seqno(number));
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(order.last_left(), Seqno(600));
    let wanted: Vec<i64> = (101..=600).filter(|number| !cancelled(*number)).collect();
    assert_eq!(*lock(&seen), wanted);
}

#[test]
fn what_is_cancelled_before_the_start_does_not_go_back() {
    let order = CommitOrder::new();
    order.cancel(Seqno(5));
    order.cancel(Seqno(102));
    order.start_after(Seqno(100));
    order.cancel(Seqno(60));
    assert_eq!(order.last_left(), Seqno(100));
    assert!(order.enter(Seqno(101), Entering::when));
    order.leave(Seqno(101));
    assert_eq!(order.last_left(), Seqno(102));
}

#[test]
fn who_waits_to_enter_can_be_interrupted() {
    let order = Arc::new(CommitOrder::new());
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let waiting = {
        let (order, stop) = (Arc::clone(&order), Arc::clone(&stop));
        std::thread::spawn(move || {
            order.enter(Seqno(2), |_| match stop.load(Ordering::SeqCst) {
                true => Entering::GiveUp,
                false => Entering::Wait,
            })
        })
    };
    stop.store(true, Ordering::SeqCst);
    order.wake(Seqno(2));
    assert!(!waiting.join().unwrap());
    assert!(order.enter(Seqno(1), Entering::when));
}

#[test]
fn nobody_waits_for_one_that_will_never_leave() {
    let order = Arc::new(CommitOrder::new());
    let waiting = {
        let order = Arc::clone(&order);
        std::thread::spawn(move || order.enter(Seqno(2), Entering::when))
    };
    order.close_from(Seqno(1));
    assert!(!waiting.join().unwrap());
    assert!(order.enter(Seqno(1), Entering::when), "whose turn it is may enter still");
}

#[test]
fn finished_is_a_prefix() {
    let finished = Arc::new(Finished::default());
    finished.start_after(Seqno(10));
    finished.finish(Seqno(12));
    assert_eq!(finished.to(), Seqno(10));
    assert_eq!(finished.wait(Seqno(11), Some(Instant::now())), Wait::TimedOut);
    let waiting = {
        let finished = Arc::clone(&finished);
        std::thread::spawn(move || finished.wait(Seqno(12), Some(Instant::now() + PATIENCE)))
    };
    finished.finish(Seqno(11));
    assert_eq!(waiting.join().unwrap(), Wait::Reached);
    finished.finish(Seqno(11));
    assert_eq!(finished.to(), Seqno(12));
    finished.close_from(Seqno(0));
    assert_eq!(finished.wait(Seqno(13), None), Wait::Closed);
}

#[test]
fn what_has_begun_before_the_end_goes_on() {
    let (order, finished) = (Arc::new(CommitOrder::new()), Arc::new(Finished::default()));
    let (order, finished) = (&order, &finished);
    std::thread::scope(|scope| {
        let before = scope.spawn(|| order.enter(Seqno(2), Entering::when));
        let waits_before = scope.spawn(|| finished.wait(Seqno(2), None));
        let waits_after = scope.spawn(|| finished.wait(Seqno(4), None));
        order.close_from(Seqno(3));
        finished.close_from(Seqno(3));
        assert!(!order.enter(Seqno(4), Entering::when));
        assert_eq!(waits_after.join().unwrap(), Wait::Closed);
        order.leave(Seqno(1));
        assert!(before.join().unwrap());
        finished.finish(Seqno(1));
        finished.finish(Seqno(2));
        assert_eq!(waits_before.join().unwrap(), Wait::Reached);
    });
}
