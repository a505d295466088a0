//! Time in which the server runs. While the whole server is stopped (SIGSTOP), no client leaves a transaction idle and
//! no connection waits for others. So that time does not count for leases and for the timeout of waits. Otherwise all
//! waiters would be admitted at once when the server continues.
//!
//! While there is a limit, the keeper's thread advances the clock ten times a second, which is its resolution. A tick
//! that comes much later than it should counts for [`LONGEST_GAP`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest sleep of the keeper.
const LONGEST_GAP: Duration = Duration::from_secs(1);

/// Time in which the server runs.
#[derive(Default)]
pub struct Clock {
    /// 0: the clock is not advanced by any thread.
    now_us: AtomicU64,
}

impl Clock {
    /// A clock that stands still.
    pub const fn new() -> Self {
        Self { now_us: AtomicU64::new(0) }
    }

    /// Starts the clock: a thread will advance it.
    pub fn start(&self) {
        self.now_us.store(1, Ordering::Relaxed);
    }

    /// Advances the clock by the time since the last tick.
    pub fn advance(&self, elapsed: Duration) {
        let more_us = elapsed.min(LONGEST_GAP).as_micros();
        self.now_us.fetch_add(u64::try_from(more_us).unwrap_or(0), Ordering::Relaxed);
    }

    /// Milliseconds; never 0. The system's clock where no thread advances this one (the keeper could not be started).
    pub fn now_ms(&self) -> u64 {
        match self.now_us.load(Ordering::Relaxed) {
            0 => system_ms(),
            now_us => now_us / 1000 + 1,
        }
    }
}

/// Milliseconds of the monotonic clock.
fn system_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000 + 1
}

/// Remaining time of a wait: the minimum of the server's own wait, measured in the system's time, and the timeout of
/// the wait for others.
pub struct Patience<'a> {
    clock: &'a Clock,
    start: Instant,
    since_ms: u64,
    server: Option<Duration>,
    longest: Duration,
}

impl<'a> Patience<'a> {
    /// Starts now. `server`: the rest of the server's own wait; `None`: it has no end.
    pub fn new(clock: &'a Clock, server: Option<Duration>, longest: Duration) -> Self {
        Self { clock, start: Instant::now(), since_ms: clock.now_ms(), server, longest }
    }

    /// Start of the wait, in milliseconds.
    pub fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// Time since the start, in the system's time.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The timeout of the wait for others has passed.
    pub fn is_exhausted(&self) -> bool {
        self.for_others().is_zero()
    }

    fn for_others(&self) -> Duration {
        let waited_ms = self.clock.now_ms().saturating_sub(self.since_ms);
        self.longest.saturating_sub(Duration::from_millis(waited_ms))
    }

    /// Remaining time. Zero: the wait is over. After a non-zero time there may be more, if the clock stood still.
    pub fn left(&self) -> Duration {
        let server = self.server.map(|server| server.saturating_sub(self.elapsed()));
        let for_others = match self.for_others() {
            Duration::ZERO => Duration::ZERO,
            // Shorter sleeps than the clock's tick are useless.
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
