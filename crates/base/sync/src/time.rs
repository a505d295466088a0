//! The clock.

use crate::simulation;
use std::time::{Duration, Instant};

/// The present time; virtual in a simulation.
#[inline]
pub fn now() -> Instant {
    if simulation::may_be_simulated()
        && let Some(task) = simulation::current()
    {
        return task.now_instant();
    }
    Instant::now()
}

/// The time passed since `earlier`; zero if that is still to come.
#[inline]
pub fn elapsed(earlier: Instant) -> Duration {
    now().saturating_duration_since(earlier)
}
