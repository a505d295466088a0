//! The interleavings of a few threads on the code of `src/waiters.rs`, with the model checker loom.
//!
//! The module is compiled once more here, above loom's primitives instead of those of `src/slot.rs`. A thread that is
//! never woken is a deadlock, which loom reports.

/// `src/slot.rs` with loom's primitives. A sleep with a deadline that nobody has signalled yet times out at
/// once: that is the race worth looking at.
mod slot {
    pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
    pub use loom::sync::{Arc, Mutex, MutexGuard};
    use std::sync::PoisonError;
    use std::time::Instant;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Signal {
        Reached,
        Closed,
    }

    pub enum Sleep {
        Signalled(Signal),
        #[allow(dead_code, reason = "only a kernel wakes without a signal")]
        Stray,
        TimedOut,
    }

    #[derive(Debug)]
    pub struct Slot {
        state: Mutex<Option<Signal>>,
        wake: loom::sync::Condvar,
    }

    impl Slot {
        pub fn new() -> Self {
            Self { state: Mutex::new(None), wake: loom::sync::Condvar::new() }
        }

        pub fn sleep(&self, deadline: Option<Instant>) -> Sleep {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                match *state {
                    Some(signal) => return Sleep::Signalled(signal),
                    None if deadline.is_some() => return Sleep::TimedOut,
                    None => state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            }
        }

        pub fn signal(&self, signal: Signal) {
            let before = self.state.lock().unwrap_or_else(PoisonError::into_inner).replace(signal);
            assert_eq!(before, None, "a slot is signalled once");
            self.wake.notify_one();
        }
    }
}

#[allow(dead_code, unreachable_pub, reason = "the model uses a part of it")]
#[path = "../src/waiters.rs"]
mod waiters;

use loom::sync::Arc;
use loom::thread;
use waiters::{CommitWaiters, WaitEnd};

/// All interleavings with at most this many places where a thread that could run on is interrupted. Without a bound
/// three threads take minutes.
const PREEMPTION_BOUND: usize = 3;

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTION_BOUND);
    builder.check(body);
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
