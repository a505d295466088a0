//! The pace of an export: it must not take processor and disk away from a server that writes.
//!
//! If the volume's log was written since the last piece, the export is limited to a rate; otherwise its speed is not
//! limited.

use redoubt_sync::{thread, time};
use std::time::{Duration, Instant};

/// The pace of an export: it must not take processor and disk away from a server that writes.
pub struct Pace {
    rate_bytes_per_second: u64,
    log_writes: u64,
    since: Instant,
}

impl Pace {
    /// Begins now. `log_writes`: writes of the volume's log so far.
    pub fn new(rate_bytes_per_second: u64, log_writes: u64) -> Self {
        Self { rate_bytes_per_second, log_writes, since: time::now() }
    }

    /// Time to wait after `bytes` were read and sent since the last call. `log_writes`: writes of the volume's log so
    /// far.
    fn due(&mut self, bytes: u64, log_writes: u64) -> Duration {
        let took = time::elapsed(self.since);
        let is_busy = std::mem::replace(&mut self.log_writes, log_writes) != log_writes;
        if !is_busy {
            return Duration::ZERO;
        }
        let wanted = Duration::from_secs_f64(bytes as f64 / self.rate_bytes_per_second.max(1) as f64);
        wanted.saturating_sub(took)
    }

    /// [`Pace::due`], and waits for it.
    pub fn keep(&mut self, bytes: u64, log_writes: u64) {
        let due = self.due(bytes, log_writes);
        if !due.is_zero() {
            thread::sleep(due);
        }
        self.since = time::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_that_writes_slows_an_export_down() {
        let mut pace = Pace::new(1 << 20, 7);
        assert_eq!(pace.due(10 << 20, 7), Duration::ZERO, "nobody writes");
        let due = pace.due(10 << 20, 8);
        assert!(due > Duration::from_secs(9) && due <= Duration::from_secs(10), "{due:?}");
        assert_eq!(pace.due(10 << 20, 8), Duration::ZERO, "nobody has written since");
    }
}
