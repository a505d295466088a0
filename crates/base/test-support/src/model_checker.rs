//! `redoubt_sync::primitives` with the primitives of the model checker loom, and a kernel that puts threads to
//! sleep on a word.
//!
//! A sleep with a timeout ends at once if no wake-up has happened: that is the interesting race.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a failed call fails the model")]

pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
pub use loom::sync::{Arc, Mutex, MutexGuard};
pub use loom::thread::{Thread, current, park};

/// The real clock.
pub mod time {
    /// The current time.
    #[must_use]
    pub fn now() -> std::time::Instant {
        std::time::Instant::now()
    }
}

/// The kernel's futex. A thread goes to sleep only while the word has the expected value; the check and the sleep are
/// one step. Only a call wakes it.
pub mod futex {
    use super::{AtomicU32, Ordering};
    use loom::sync::{Condvar, Mutex};
    use std::time::Duration;

    loom::lazy_static! {
        static ref KERNEL: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    /// Sleeps while `word` is `expected`. Returns `false` if it did not sleep.
    pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> bool {
        let (lock, woken) = &*KERNEL;
        let mut guard = lock.lock().unwrap();
        if timeout.is_some() || word.load(Ordering::Relaxed) != expected {
            return false;
        }
        // A wake-up for another word ends the wait below, but not this sleep.
        while word.load(Ordering::Relaxed) == expected {
            guard = woken.wait(guard).unwrap();
        }
        true
    }

    /// Wakes the thread that sleeps on the word, and all others, which then go back to sleep.
    pub fn wake_one(_word: &AtomicU32) {
        let (lock, woken) = &*KERNEL;
        let _guard = lock.lock().unwrap();
        woken.notify_all();
    }
}

/// Runs all interleavings with at most this many preemptions of a thread that could continue. Without a bound, three
/// threads take minutes.
pub fn model(preemption_bound: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemption_bound);
    builder.check(body);
}
