//! The clock.

use crate::simulation;
use std::time::{Duration, Instant};

/// Current time; virtual in a simulation.
#[inline]
pub fn now() -> Instant {
    if simulation::may_be_simulated()
        && let Some(task) = simulation::current()
    {
        return task.now_instant();
    }
    Instant::now()
}

/// Time since `earlier`, or zero if `earlier` is in the future.
#[inline]
pub fn elapsed(earlier: Instant) -> Duration {
    now().saturating_duration_since(earlier)
}
