//! What to make of the figures. Pure.
//!
//! In a system whose clients wait for their answers, throughput is lost where they wait: a shorter message saves its
//! part of the time that messages are queued for the network, and of the time of those that stand in the same queue;
//! the work of packing costs its own time, longer by what it has to wait for a processor. Both are times, so they can
//! be compared: no rate of the link has to be known. Packing takes away from the first and adds to the second, so a
//! share that follows the comparison finds the point where both are equal, between all and nothing. How far that is
//! from the better of all and nothing is tested with closed systems whose throughput can be computed.

use std::time::Duration;

/// All messages are packed.
pub const SHARE_MAX: u32 = 16;
/// By how much the share changes at a time.
const SHARE_STEP: u32 = 2;
/// One time must be longer than the other by this factor to change anything.
const CLEARLY: f64 = 1.25;

/// Of packing, as long as nothing was packed: pages and redo both take 60 to 80 µs for 16 KiB (lab/2026-11-24-log.md).
pub const COST_NS_PER_BYTE: f64 = 4.3;
/// Length after packing, as long as nothing was packed.
pub const RATIO: f64 = 0.5;
/// What packing takes where it is not seen: undoing it at the other end, memory, what leaves the processor's cache.
const COST_UNSEEN: f64 = 2.0;
/// Processors that are never quite without work still have this part of their time for it.
const IDLE_MIN: f64 = 0.02;

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// How long a message waits for the network, compared with an empty one.
    pub queued: Duration,
    /// Messages per second.
    pub rate: f64,
    /// Of a message, not packed.
    pub len_bytes: f64,
    /// Of packing.
    pub cost_ns_per_byte: f64,
    /// Length after packing by length before.
    pub ratio: f64,
    /// Processors.
    pub cores: f64,
    /// Idle CPUs.
    pub idle_cores: f64,
    /// Threads that run or could.
    pub runnable: f64,
}

impl Figures {
    /// Nanoseconds that packing a message would save, for itself and for those in the queue with it.
    fn saved_ns(&self) -> f64 {
        // Little's law.
        let in_queue = 1.0 + self.rate * self.queued.as_secs_f64();
        self.queued.as_nanos() as f64 * (1.0 - self.ratio).max(0.0) * in_queue
    }

    /// Nanoseconds that packing a message takes, waiting for a processor included.
    fn cost_ns(&self) -> f64 {
        let cores = self.cores.max(1.0);
        let idle = self.idle_cores.clamp(IDLE_MIN * cores, cores);
        // One processor: time in the system is work / idle. With several the wait is shorter by their number. And it
        // is no longer than with all that is there now in front of it: without that, processors that are never idle
        // would cost without bound.
        let stretch = 1.0 + ((1.0 - idle / cores) / idle).min(self.runnable.max(0.0) / cores);
        self.len_bytes * self.cost_ns_per_byte * COST_UNSEEN * stretch
    }
}

/// The share after these figures were measured under `share`.
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

/// Packing could be worth its while if it did what it usually does: what is sent may have changed.
pub fn may_be_worth(figures: &Figures) -> bool {
    let usual = Figures {
        ratio: figures.ratio.min(RATIO),
        cost_ns_per_byte: figures.cost_ns_per_byte.min(COST_NS_PER_BYTE),
        ..*figures
    };
    usual.saved_ns() > usual.cost_ns()
}

/// Whether people would say that messages are packed, who were told `said` last.
pub const fn is_mostly_packed(share: u32, said: bool) -> bool {
    if said { share > SHARE_MAX / 4 } else { share >= SHARE_MAX * 3 / 4 }
}

#[cfg(test)]
mod tests;
