//! Sleep state of one waiting thread of [`crate::waiters`].
//!
//! A slot has one sleeper and is signalled at most once. States change from `AWAKE` to `ASLEEP` to signalled, or
//! directly to signalled. A signal without a sleeping thread makes no system call.

use crate::primitives::{AtomicU32, Ordering, futex, time};
use std::time::{Duration, Instant};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
/// First state value of a signal.
const FIRST_SIGNAL: u32 = 2;

/// Signal to a sleeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The sleeper's position is reached.
    Reached,
    /// No further position will be reached.
    Closed,
}

/// Result of one sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Ended by a signal.
    Signalled(Signal),
    /// Ended by a wake-up without a signal. The kernel allows that; this crate never causes it.
    Stray,
    /// The deadline passed.
    TimedOut,
}

/// Sleep state of one waiting thread.
#[derive(Debug)]
pub struct Slot {
    state: AtomicU32,
}

impl Slot {
    /// Creates a slot without a sleeper.
    pub fn new() -> Self {
        Self { state: AtomicU32::new(AWAKE) }
    }

    fn signalled(state: u32) -> Option<Sleep> {
        match state {
            AWAKE | ASLEEP => None,
            FIRST_SIGNAL => Some(Sleep::Signalled(Signal::Reached)),
            _ => Some(Sleep::Signalled(Signal::Closed)),
        }
    }

    /// Sleeps until a signal or the deadline. Only the slot's one sleeper may call this, repeatedly if necessary.
    pub fn sleep(&self, deadline: Option<Instant>) -> Sleep {
        // Fails when the slot is ASLEEP from an earlier call, or signalled. The loop below detects the second case.
        let _ = self.state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        loop {
            if let Some(sleep) = Self::signalled(self.state.load(Ordering::Acquire)) {
                return sleep;
            }
            let left = match deadline.map(|deadline| deadline.saturating_duration_since(time::now())) {
                Some(Duration::ZERO) => return Sleep::TimedOut,
                left => left,
            };
            // Not woken: a signal came before the kernel's check, a signal handler ran, or the deadline passed. Check
            // again.
            if futex::wait(&self.state, ASLEEP, left) {
                return Self::signalled(self.state.load(Ordering::Acquire)).unwrap_or(Sleep::Stray);
            }
        }
    }

    /// Signals the current or future sleeper.
    pub fn signal(&self, signal: Signal) {
        let state = match signal {
            Signal::Reached => FIRST_SIGNAL,
            Signal::Closed => FIRST_SIGNAL + 1,
        };
        if self.state.swap(state, Ordering::AcqRel) == ASLEEP {
            futex::wake_one(&self.state);
        }
    }
}
