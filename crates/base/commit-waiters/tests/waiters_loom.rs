//! All interleavings of a few threads in the code of `src/waiters.rs` and `src/slot.rs`, with the model checker loom.
//!
//! The modules are compiled once more here, above loom's primitives instead of those of `redoubt_sync::primitives`. A thread
//! that is never woken is a deadlock, which loom reports.

#[allow(dead_code, unreachable_pub, reason = "the model uses a part of it")]
#[path = "../src/slot.rs"]
mod slot;
#[allow(dead_code, unreachable_pub, reason = "the model uses a part of it")]
#[path = "../src/waiters.rs"]
mod waiters;

use loom::sync::Arc;
use loom::thread;
use redoubt_test_support::model_checker as primitives;
use waiters::{CommitWaiters, WaitEnd};

/// See [`primitives::model`].
const PREEMPTION_BOUND: usize = 2;

fn model(body: impl Fn() + Sync + Send + 'static) {
    primitives::model(PREEMPTION_BOUND, body);
}

fn wait_in_thread(waiters: &Arc<CommitWaiters>, position: u64) -> thread::JoinHandle<WaitEnd> {
    let waiters = Arc::clone(waiters);
    thread::spawn(move || waiters.wait(position, None))
}

#[test]
fn no_wakeup_is_lost() {
    model(|| {
        let waiters = Arc::new(CommitWaiters::new(0));
        let (one, two) = (wait_in_thread(&waiters, 1), wait_in_thread(&waiters, 2));
        waiters.advance(1);
        waiters.advance(2);
        assert_eq!((one.join().unwrap(), two.join().unwrap()), (WaitEnd::Reached, WaitEnd::Reached));
        let stats = waiters.stats();
        assert_eq!((stats.wakeups, stats.wakeups_not_reached), (stats.waits, 0));
    });
}

#[test]
fn two_that_advance_wake_a_waiter_once() {
    model(|| {
        let waiters = Arc::new(CommitWaiters::new(0));
        let waiter = wait_in_thread(&waiters, 1);
        let other = {
            let waiters = Arc::clone(&waiters);
            thread::spawn(move || waiters.advance(2))
        };
        waiters.advance(1);
        assert_eq!(waiter.join().unwrap(), WaitEnd::Reached);
        other.join().unwrap();
        assert_eq!(waiters.durable(), 2);
        assert_eq!(waiters.stats().wakeups_not_reached, 0);
    });
}

#[test]
fn closing_races_with_advancing() {
    model(|| {
        let waiters = Arc::new(CommitWaiters::new(0));
        let (near, far) = (wait_in_thread(&waiters, 1), wait_in_thread(&waiters, 9));
        waiters.advance(1);
        waiters.close();
        assert_eq!((near.join().unwrap(), far.join().unwrap()), (WaitEnd::Reached, WaitEnd::Closed));
        assert_eq!(waiters.stats().wakeups_not_reached, 0);
    });
}

#[test]
fn a_deadline_races_with_advancing() {
    model(|| {
        let waiters = Arc::new(CommitWaiters::new(0));
        let waiter = {
            let waiters = Arc::clone(&waiters);
            thread::spawn(move || waiters.wait(1, Some(std::time::Instant::now())))
        };
        waiters.advance(1);
        let end = waiter.join().unwrap();
        let stats = waiters.stats();
        assert_eq!(stats.wakeups_not_reached, 0);
        match end {
            WaitEnd::Reached => assert_eq!(stats.wakeups, stats.waits),
            end => assert_eq!((end, stats.wakeups), (WaitEnd::TimedOut, 0)),
        }
    });
}
