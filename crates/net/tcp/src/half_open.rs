//! Incomplete handshakes: SYN-RECEIVED, in a table with a limit. Beyond the limit, a SYN gets a cookie instead
//! ([`crate::cookies`]) and takes no memory.

use crate::connection::Agreed;
use crate::slots::Slots;
use crate::time::Micros;
use crate::timers::Timers;

/// A SYN that was answered, and its answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HalfOpen {
    pub(crate) agreed: Agreed,
    pub(crate) listener: u32,
    /// Answers that were repeated.
    pub(crate) retransmissions: u8,
    pub(crate) answered_at: Micros,
    pub(crate) due: Micros,
}

/// Incomplete handshakes: SYN-RECEIVED, in a table with a limit.
#[derive(Debug)]
pub(crate) struct HalfOpens {
    pub(crate) slots: Slots<HalfOpen>,
    pub(crate) timers: Timers,
}

impl HalfOpens {
    pub(crate) fn new(max: u32) -> Self {
        Self { slots: Slots::new(max), timers: Timers::new() }
    }

    pub(crate) fn insert(&mut self, half_open: HalfOpen) -> Option<u32> {
        let due = half_open.due;
        let (index, _) = self.slots.insert(half_open)?;
        self.timers.set_by(index, due);
        Some(index)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<HalfOpen> {
        self.timers.clear(index);
        self.slots.remove(index)
    }
}
