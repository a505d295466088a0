//! From where on a volume's log is kept, and where in it the redo of an LSN is.
//!
//! Invariant: the log is kept from the oldest of what the node's checkpoint and its pins need; for every LSN from there
//! on a position at or before it is remembered.
//!
//! Lock: a leaf.

use crate::mark::Point;
use redoubt_redo::Lsn;
use redoubt_sync::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Redo positions are kept this far apart at least.
const POSITION_GAP_BYTES: u64 = 64 << 10;

#[derive(Default)]
struct State {
    /// LSN and Seq of frames with redo, thinned out, oldest first.
    positions: VecDeque<Point>,
    /// Number and first needed point of each pin.
    pins: Vec<(u64, Point)>,
    next_pin: u64,
}

/// See the module.
#[derive(Default)]
pub struct Retention(Mutex<State>);

/// Keeps the log from a point on, until it is dropped.
pub struct Pin {
    retention: Arc<Retention>,
    number: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.retention.0.lock().pins.retain(|(number, _)| *number != self.number);
    }
}

impl Retention {
    /// The log begins at `log_start`. What comes until the next remembered position has its position there: that is
    /// at or before each LSN of it, if perhaps far before.
    pub fn begin(&self, log_start: Point) {
        self.0.lock().positions.push_back(log_start);
    }

    /// Remembers where a frame starts, if it carries redo.
    pub fn note(&self, start: Point, end: Point) {
        if end.lsn == start.lsn {
            return;
        }
        let positions = &mut self.0.lock().positions;
        if positions.back().is_none_or(|last| start.lsn.0 >= last.lsn.0 + POSITION_GAP_BYTES) {
            positions.push_back(start);
        }
    }

    /// The newest remembered position at or before `lsn`.
    pub fn position(&self, lsn: Lsn) -> Option<Point> {
        let positions = &self.0.lock().positions;
        let after = positions.partition_point(|point| point.lsn <= lsn);
        positions.get(after.checked_sub(1)?).copied()
    }

    /// Keeps the log from where `first` finds that it is needed, until the pin is dropped. `first` runs while nothing
    /// of the log can be given up.
    pub fn pin(self: &Arc<Self>, first: impl FnOnce() -> Point) -> Pin {
        let mut state = self.0.lock();
        let number = state.next_pin;
        state.next_pin += 1;
        let point = first();
        state.pins.push((number, point));
        Pin { retention: Arc::clone(self), number }
    }

    /// The checkpoint needs the log from `needed` on. Returns from where on it must be kept, with the pins.
    pub fn give_up_before(&self, needed: Point) -> Point {
        let mut state = self.0.lock();
        let from = state
            .pins
            .iter()
            .map(|(_, point)| *point)
            .fold(needed, |from, pin| if pin.seq < from.seq { pin } else { from });
        while state.positions.get(1).is_some_and(|second| second.seq <= from.seq) {
            state.positions.pop_front();
        }
        from
    }
}

#[cfg(test)]
#[path = "retention_tests.rs"]
mod tests;
