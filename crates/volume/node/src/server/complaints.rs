//! Limits how often failed connections are logged.

use redoubt_sync::time;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(10);
const PER_INTERVAL: u64 = 20;

/// Passes a limited number in each interval, and counts the rest.
pub struct Complaints {
    since: Instant,
    said: u64,
    unsaid: u64,
}

impl Complaints {
    /// None so far.
    pub fn new() -> Self {
        Self { since: time::now(), said: 0, unsaid: 0 }
    }

    /// Counts another one. `None`: it must not be logged; else the number of suppressed ones since the last logged one.
    pub fn next(&mut self) -> Option<u64> {
        if time::elapsed(self.since) >= INTERVAL {
            self.since = time::now();
            self.said = 0;
        }
        if self.said >= PER_INTERVAL {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}
