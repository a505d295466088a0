//! Where one waiting thread of [`crate::waiters`] sleeps.
//!
//! A slot has one sleeper and is signalled at most once. States go `AWAKE` -> `ASLEEP` -> signalled, or straight
//! to signalled; a signal that finds nobody asleep makes no system call.

use crate::primitives::{AtomicU32, Ordering, futex, time};
use std::time::{Duration, Instant};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
/// Signals start here.
const FIRST_SIGNAL: u32 = 2;

/// What a sleeper is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Its position is reached.
    Reached,
    /// Nothing more will be reached.
    Closed,
}

/// How one sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Signalled.
    Signalled(Signal),
    /// Woken without a signal. The kernel allows it; nothing in this crate does it.
    Stray,
    /// The deadline passed.
    TimedOut,
}

/// See the module.
#[derive(Debug)]
pub struct Slot {
    state: AtomicU32,
}

impl Slot {
    /// A slot nobody sleeps in.
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

    /// Sleeps until signalled or until the deadline. For the slot's one sleeper, which may call it again.
    pub fn sleep(&self, deadline: Option<Instant>) -> Sleep {
        // Fails when it is ASLEEP from an earlier call, or signalled; the second is seen below.
        let _ = self.state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        loop {
            if let Some(sleep) = Self::signalled(self.state.load(Ordering::Acquire)) {
                return sleep;
            }
            let left = match deadline.map(|deadline| deadline.saturating_duration_since(time::now())) {
                Some(Duration::ZERO) => return Sleep::TimedOut,
                left => left,
            };
            // Not woken: a signal came before the kernel looked, a signal was handled, or the deadline passed. Look
            // again.
            if futex::wait(&self.state, ASLEEP, left) {
                return Self::signalled(self.state.load(Ordering::Acquire)).unwrap_or(Sleep::Stray);
            }
        }
    }

    /// Signals the sleeper, now or when it comes.
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
