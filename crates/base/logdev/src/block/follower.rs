//! A thread that sleeps until its position is durable, or until it is offered a write to await.
//!
//! The offer is stored before the thread is woken, both by whoever holds the pipeline's lock. A thread that finds
//! itself woken sees the offer made before.

use crate::primitives::{AtomicBool, AtomicU64, Ordering, Thread, current, park};

const NO_OFFER: u64 = u64::MAX;

/// A thread that sleeps until its position is durable, or until it is offered a write to await.
pub(crate) struct Follower {
    thread: Thread,
    is_woken: AtomicBool,
    /// Number of the write offered to it.
    offer: AtomicU64,
}

impl Follower {
    /// For the calling thread.
    pub fn of_this_thread() -> Self {
        Self { thread: current(), is_woken: AtomicBool::new(false), offer: AtomicU64::new(NO_OFFER) }
    }

    /// For its own thread: sleeps until woken; returns the number of the write offered.
    pub fn sleep(&self) -> Option<u64> {
        while !self.is_woken.load(Ordering::Acquire) {
            park();
        }
        Some(self.offer.load(Ordering::Acquire)).filter(|&id| id != NO_OFFER)
    }

    /// Offers it a write, before it is woken.
    pub fn offer(&self, write: u64) {
        self.offer.store(write, Ordering::Release);
    }

    /// Wakes it, now or when it comes to sleep.
    pub fn wake(&self) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
