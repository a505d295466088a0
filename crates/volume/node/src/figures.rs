//! Figures that are recorded while the node works, beyond plain counters ([`crate::counters`]): distributions of times,
//! and the work of each apply worker.
//!
//! Invariant: recording takes no lock and no memory; each number is a relaxed atomic, right by itself and not
//! together with others.

use redoubt_sync::time;
use redoubt_wire::figures::{ApplyWorker, BUCKETS, Times, bucket_of};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A distribution of times with the buckets of [`redoubt_wire::figures`].
pub struct Histogram {
    sum_micros: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { sum_micros: AtomicU64::new(0), buckets: [const { AtomicU64::new(0) }; BUCKETS] }
    }
}

impl Histogram {
    /// Something took this long.
    pub fn record(&self, took: Duration) {
        let micros = took.as_micros() as u64;
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
        if let Some(bucket) = self.buckets.get(bucket_of(micros)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Something began at `since` and ended now.
    pub fn record_since(&self, since: Instant) {
        self.record(time::elapsed(since));
    }

    /// Times recorded so far.
    pub fn snapshot(&self) -> Times {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let buckets: Vec<_> = counts.enumerate().filter(|(_, count)| *count > 0).collect();
        Times {
            count: buckets.iter().map(|(_, count)| count).sum(),
            sum_micros: self.sum_micros.load(Ordering::Relaxed),
            buckets,
        }
    }
}

/// Work of one apply worker. Only its own thread adds to it, and each has cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub struct Worker {
    pages: AtomicU64,
    runs: AtomicU64,
    redo_bytes: AtomicU64,
    busy_micros: AtomicU64,
}

impl Worker {
    /// So many of them.
    pub fn several(count: usize) -> Vec<Self> {
        (0..count.max(1)).map(|_| Self::default()).collect()
    }

    /// Counts one page, built from `runs` and `redo_bytes` of redo.
    pub fn built(&self, runs: u64, redo_bytes: u64) {
        self.pages.fetch_add(1, Ordering::Relaxed);
        self.runs.fetch_add(runs, Ordering::Relaxed);
        self.redo_bytes.fetch_add(redo_bytes, Ordering::Relaxed);
    }

    /// It was at work since `since`.
    pub fn was_busy(&self, since: Instant) {
        self.busy_micros.fetch_add(time::elapsed(since).as_micros() as u64, Ordering::Relaxed);
    }

    /// Work done so far.
    pub fn snapshot(&self) -> ApplyWorker {
        ApplyWorker {
            pages: self.pages.load(Ordering::Relaxed),
            runs: self.runs.load(Ordering::Relaxed),
            redo_bytes: self.redo_bytes.load(Ordering::Relaxed),
            busy_micros: self.busy_micros.load(Ordering::Relaxed),
        }
    }
}

/// The distributions of a volume.
#[derive(Default)]
pub struct Figures {
    /// From a page request's arrival to its answer, before it is sent.
    pub page_read: Histogram,
    /// From handing a batch of the log to the device to its being durable.
    pub log_write: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_is_in_the_snapshot() {
        let histogram = Histogram::default();
        for micros in [3, 3, 900, 5_000_000, u64::from(u32::MAX) * 1000] {
            histogram.record(Duration::from_micros(micros));
        }
        let times = histogram.snapshot();
        assert_eq!(times.count, 5);
        assert_eq!(times.sum_micros, 5_000_906 + u64::from(u32::MAX) * 1000);
        assert_eq!(times.buckets.first(), Some(&(bucket_of(3), 2)));
        assert_eq!(times.buckets.last(), Some(&(BUCKETS - 1, 1)));
    }
}
