//! Counters of the library, sent to the node four times per second.
//!
//! Invariant: counters only grow. They are relaxed atomics: each one is exact, but a snapshot of several is not
//! consistent.

use redoubt_wire::stream::Counter;
use std::sync::atomic::{AtomicU64, Ordering};

const IDS: [Counter; 27] = [
    Counter::RedoBytes,
    Counter::LogWrittenBytes,
    Counter::SentBytes,
    Counter::ReceivedBytes,
    Counter::PageBytesDropped,
    Counter::PagesDropped,
    Counter::DoublewriteBytesDropped,
    Counter::ImageBytes,
    Counter::PlainBytes,
    Counter::PageBytesRead,
    Counter::PageReads,
    Counter::DurabilityWaits,
    Counter::DurabilityWaitMicros,
    Counter::VerifySent,
    Counter::ScrubPagesDropped,
    Counter::Reconnects,
    Counter::DurabilityWakeups,
    Counter::DurabilityWakeupsNotReached,
    Counter::CacheHits,
    Counter::CacheMisses,
    Counter::CacheEvictions,
    Counter::CacheCapacityBytes,
    Counter::ReadAheadPages,
    Counter::ReadAheadUsed,
    Counter::PagesScrubbed,
    Counter::LogWritesCompressed,
    Counter::LogBytesSaved,
];

/// One value per [`Counter`].
#[derive(Debug, Default)]
pub struct Counters {
    values: [AtomicU64; 32],
}

impl Counters {
    /// Adds to a counter.
    pub fn add(&self, counter: Counter, amount: u64) {
        self.values[counter as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// Sets a counter that is counted elsewhere to its value there.
    pub fn raise_to(&self, counter: Counter, value: u64) {
        self.values[counter as usize].fetch_max(value, Ordering::Relaxed);
    }

    /// Current value.
    pub fn get(&self, counter: Counter) -> u64 {
        self.values[counter as usize].load(Ordering::Relaxed)
    }

    /// All counters as (id, value).
    pub fn snapshot(&self) -> Vec<(u8, u64)> {
        IDS.iter().map(|counter| (*counter as u8, self.get(*counter))).collect()
    }
}
