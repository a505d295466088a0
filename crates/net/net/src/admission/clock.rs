//! Time in which the server runs. Where it was stopped as a whole (SIGSTOP), no client has left anything alone and
//! nobody has waited for others, so that time does not count for leases and for the longest wait: else all who wait
//! would be let in at once when it goes on.
//!
//! The keeper's thread has it go on with each of its looks, ten times a second, which is how exact it is. A look that
//! comes much later than it should counts for [`LONGEST_GAP`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Above what the keeper sleeps.
const LONGEST_GAP: Duration = Duration::from_secs(1);

/// Time in which the server runs.
#[derive(Default)]
pub struct Clock {
    /// 0: nobody has it go on.
    now_us: AtomicU64,
}

impl Clock {
    /// One that stands still.
    pub const fn new() -> Self {
        Self { now_us: AtomicU64::new(0) }
    }

    /// Somebody will have it go on.
    pub fn start(&self) {
        self.now_us.store(1, Ordering::Relaxed);
    }

    /// After this time since the last look.
    pub fn advance(&self, elapsed: Duration) {
        let more_us = elapsed.min(LONGEST_GAP).as_micros();
        self.now_us.fetch_add(u64::try_from(more_us).unwrap_or(0), Ordering::Relaxed);
    }

    /// Milliseconds; never 0. The system's where nobody has this one go on (there was no thread to be had).
    pub fn now_ms(&self) -> u64 {
        match self.now_us.load(Ordering::Relaxed) {
            0 => system_ms(),
            now_us => now_us / 1000 + 1,
        }
    }
}

/// Milliseconds of a clock that only goes on.
fn system_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000 + 1
}

/// How long somebody may still wait: as long as the server's own wait lasts, which ends as the system's time has it,
/// and the longest time that is waited for others.
pub struct Patience<'a> {
    clock: &'a Clock,
    start: Instant,
    since_ms: u64,
    server: Option<Duration>,
    longest: Duration,
}

impl<'a> Patience<'a> {
    /// From now on. `server`: what is left of the server's own wait, `None`: it has no end.
    pub fn new(clock: &'a Clock, server: Option<Duration>, longest: Duration) -> Self {
        Self { clock, start: Instant::now(), since_ms: clock.now_ms(), server, longest }
    }

    /// When it began.
    pub fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// Since it began, as the system's time has it.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The longest time for others is over.
    pub fn is_exhausted(&self) -> bool {
        self.for_others().is_zero()
    }

    fn for_others(&self) -> Duration {
        let waited_ms = self.clock.now_ms().saturating_sub(self.since_ms);
        self.longest.saturating_sub(Duration::from_millis(waited_ms))
    }

    /// What is left. Zero: it is over. When that much has passed, it may be that there is more.
    pub fn left(&self) -> Duration {
        let server = self.server.map(|server| server.saturating_sub(self.elapsed()));
        let for_others = match self.for_others() {
            Duration::ZERO => Duration::ZERO,
            // No sense in looking more often than the clock goes on.
            left => left.max(super::keeper::TICK),
        };
        server.map_or(for_others, |server| server.min(for_others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_does_not_count() {
        let clock = Clock::new();
        assert!(clock.now_ms() > 0);
        clock.start();
        let patience = Patience::new(&clock, None, Duration::from_millis(2500));
        assert_eq!((patience.since_ms(), patience.left()), (1, Duration::from_millis(2500)));
        clock.advance(Duration::from_millis(100));
        assert_eq!(patience.left(), Duration::from_millis(2400));
        clock.advance(Duration::from_secs(3600));
        assert_eq!(patience.left(), Duration::from_millis(1400));
        clock.advance(Duration::from_secs(3600));
        clock.advance(Duration::from_millis(399));
        assert_eq!((patience.left(), patience.is_exhausted()), (super::super::keeper::TICK, false));
        clock.advance(Duration::from_millis(1));
        assert_eq!((patience.left(), patience.is_exhausted()), (Duration::ZERO, true));
    }

    #[test]
    fn the_servers_wait_ends_by_itself() {
        let clock = Clock::new();
        clock.start();
        let patience = Patience::new(&clock, Some(Duration::ZERO), Duration::from_secs(9));
        assert_eq!((patience.left(), patience.is_exhausted()), (Duration::ZERO, false));
        let patience = Patience::new(&clock, Some(Duration::from_secs(5)), Duration::from_secs(9));
        let left = patience.left();
        assert!(left <= Duration::from_secs(5) && left > Duration::from_secs(1), "{left:?}");
    }
}
