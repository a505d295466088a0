//! Decision about packing, from measurements. Pure.
//!
//! Clients that wait for their answers lose throughput during these waits. A shorter message saves a part of its time
//! in the network's queue, and of that of the messages behind it. Packing costs CPU time, and the wait for a
//! processor. Both are times, so they can be compared, and the rate of the link need not be known. Packing decreases
//! the first and increases the second. So a share that follows the comparison finds the point where both are equal,
//! between none and all. A test compares it with the better of none and all, in closed systems with a computable
//! throughput.

use std::time::Duration;

/// Share at which all messages are packed.
pub const SHARE_MAX: u32 = 16;
/// Step by which the share changes.
const SHARE_STEP: u32 = 2;
/// Factor by which one time has to exceed the other for a change.
const CLEARLY: f64 = 1.25;

/// Initial cost of packing: pages and redo both take 60 to 80 µs for 16 KiB (lab/2026-11-24-log.md).
pub const COST_NS_PER_BYTE: f64 = 4.3;
/// Initial ratio of the length after packing to that before.
pub const RATIO: f64 = 0.5;
/// Factor for unmeasured costs of packing: the work at the other end, memory, and evicted cache lines.
const COST_UNSEEN: f64 = 2.0;
/// Part of their time that processors have for packing, even if they are never idle.
const IDLE_MIN: f64 = 0.02;

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Time that a message waits for the network, compared with an empty one.
    pub queued: Duration,
    /// Messages per second.
    pub rate: f64,
    /// Length of a message before packing.
    pub len_bytes: f64,
    /// CPU time of packing.
    pub cost_ns_per_byte: f64,
    /// Length after packing by length before.
    pub ratio: f64,
    /// Number of processors.
    pub cores: f64,
    /// Number of idle processors.
    pub idle_cores: f64,
    /// Number of runnable threads.
    pub runnable: f64,
}

impl Figures {
    /// Time in nanoseconds that packing a message would save, for itself and for the others in its queue.
    fn saved_ns(&self) -> f64 {
        // Little's law.
        let in_queue = 1.0 + self.rate * self.queued.as_secs_f64();
        self.queued.as_nanos() as f64 * (1.0 - self.ratio).max(0.0) * in_queue
    }

    /// Time in nanoseconds of packing a message, including the wait for a processor.
    fn cost_ns(&self) -> f64 {
        let cores = self.cores.max(1.0);
        let idle = self.idle_cores.clamp(IDLE_MIN * cores, cores);
        // With one processor, the time in the system is work / idle. With several, the wait is shorter by their
        // number. It is bounded by the work of all current threads; otherwise, processors that are never idle would
        // have infinite cost.
        let stretch = 1.0 + ((1.0 - idle / cores) / idle).min(self.runnable.max(0.0) / cores);
        self.len_bytes * self.cost_ns_per_byte * COST_UNSEEN * stretch
    }
}

/// The share that follows from these figures, which were measured under `share`.
pub fn share_after(share: u32, figures: &Figures) -> u32 {
    let (saved, cost) = (figures.saved_ns(), figures.cost_ns());
    if saved > cost * CLEARLY {
        (share + SHARE_STEP).min(SHARE_MAX)
    } else if saved * CLEARLY < cost {
        share.saturating_sub(SHARE_STEP)
    } else {
        share
    }
}

/// Whether packing could be beneficial with its usual results: the data may have changed.
pub fn may_be_worth(figures: &Figures) -> bool {
    let usual = Figures {
        ratio: figures.ratio.min(RATIO),
        cost_ns_per_byte: figures.cost_ns_per_byte.min(COST_NS_PER_BYTE),
        ..*figures
    };
    usual.saved_ns() > usual.cost_ns()
}

/// Whether messages count as packed for people. `said` is the last report.
pub const fn is_mostly_packed(share: u32, said: bool) -> bool {
    if said { share > SHARE_MAX / 4 } else { share >= SHARE_MAX * 3 / 4 }
}

#[cfg(test)]
mod tests;
