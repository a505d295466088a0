//! Waiting until a word changes: the kernel's futex, for code that keeps its state in one atomic word.

use crate::simulation::{self, Resource};
use rustix::thread::futex;
use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Sleeps while `word` is `expected`. Returns `true` after a wake-up. Returns `false` if the word had another value,
/// the timeout passed, or a signal handler ran: the caller has to check again.
#[track_caller]
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> bool {
    if simulation::may_be_simulated()
        && let Some(task) = simulation::current()
    {
        let place = Location::caller();
        task.point();
        if word.load(Ordering::Acquire) != expected {
            return false;
        }
        let deadline = timeout.map(|timeout| task.now().saturating_add(timeout));
        return !task.block(resource(word), deadline, place).timed_out();
    }
    // A duration that is too long for the kernel means no timeout.
    let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
    futex::wait(word, futex::Flags::PRIVATE, expected, timeout.as_ref()).is_ok()
}

/// Wakes one thread that sleeps on `word`.
pub fn wake_one(word: &AtomicU32) {
    if simulation::may_be_simulated()
        && let Some(task) = simulation::current()
    {
        task.point();
        task.wake_one(resource(word));
        return;
    }
    // Fails only for an address that is not mapped.
    let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
}

fn resource(word: &AtomicU32) -> Resource {
    Resource::Futex(std::ptr::from_ref(word).addr())
}
