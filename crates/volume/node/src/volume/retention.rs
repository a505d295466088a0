//! The start of a volume's retained log, and the position of an LSN's redo in it.
//!
//! Invariant: the log is retained from the oldest point that the node's checkpoint or a pin needs. For every LSN from
//! there on a position at or before it is remembered.
//!
//! A pin may have an end: a reader of the log as the server's log file gets no more than that file has room for. A
//! reader that hangs would otherwise fill the node's disk.
//!
//! Lock: a leaf.

use crate::mark::Point;
use redoubt_redo::Lsn;
use redoubt_sync::Mutex;
use redoubt_wire::Seq;
use std::collections::VecDeque;
use std::sync::Arc;

/// Redo positions are kept this far apart at least.
const POSITION_GAP_BYTES: u64 = 64 << 10;

#[derive(Default)]
struct RetentionState {
    /// LSN and Seq of frames with redo, thinned out, oldest first.
    positions: VecDeque<Point>,
    pins: Vec<Pinned>,
    next_pin: u64,
}

struct Pinned {
    number: u64,
    /// The first point that is needed.
    first: Point,
    /// The pin ends when more than this much redo has arrived since.
    most_bytes: Option<u64>,
}

impl Pinned {
    fn is_over(&self, newest: Option<Lsn>) -> bool {
        let since_bytes = newest.map_or(0, |newest| newest.0.saturating_sub(self.first.lsn.0));
        self.most_bytes.is_some_and(|most_bytes| since_bytes > most_bytes)
    }
}

/// The start of a volume's retained log, and the position of an LSN's redo in it.
#[derive(Default)]
pub struct Retention(Mutex<RetentionState>);

/// Keeps the log from a point on, until it is dropped.
pub struct Pin {
    retention: Arc<Retention>,
    number: u64,
}

impl Pin {
    /// It has not ended: its redo is still in the log.
    pub fn is_kept(&self) -> bool {
        self.retention.0.lock().pins.iter().any(|pin| pin.number == self.number)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.retention.0.lock().pins.retain(|pin| pin.number != self.number);
    }
}

impl Retention {
    /// A reader keeps a part of the log.
    pub fn has_pins(&self) -> bool {
        !self.0.lock().pins.is_empty()
    }

    /// The log is needed from `log_start` on. It may be kept from a point before; then this is called for that point first. Redo before the next remembered position has its position there: at or before
    /// each of its LSNs, if perhaps far before.
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

    /// The newest remembered position at or before `seq`.
    pub fn position_before(&self, seq: Seq) -> Option<Point> {
        let positions = &self.0.lock().positions;
        let after = positions.partition_point(|point| point.seq <= seq);
        positions.get(after.checked_sub(1)?).copied()
    }

    /// Keeps the log from where `first` finds that it is needed, until the pin is dropped. `first` runs while nothing
    /// of the log can be given up.
    pub fn pin(self: &Arc<Self>, first: impl FnOnce() -> Point) -> Pin {
        self.pin_for(first, None)
    }

    /// The same, but the pin ends when more than `most_bytes` of redo have arrived since.
    pub fn pin_at_most(self: &Arc<Self>, first: Point, most_bytes: u64) -> Pin {
        self.pin_for(|| first, Some(most_bytes))
    }

    fn pin_for(self: &Arc<Self>, first: impl FnOnce() -> Point, most_bytes: Option<u64>) -> Pin {
        let mut state = self.0.lock();
        let number = state.next_pin;
        state.next_pin += 1;
        let first = first();
        state.pins.push(Pinned { number, first, most_bytes });
        Pin { retention: Arc::clone(self), number }
    }

    /// The checkpoint needs the log from `needed` on. Returns from where on it must be kept, with the pins.
    pub fn give_up_before(&self, needed: Point) -> Point {
        let mut state = self.0.lock();
        let newest = state.positions.back().map(|point| point.lsn);
        state.pins.retain(|pin| !pin.is_over(newest));
        let from = state
            .pins
            .iter()
            .map(|pin| pin.first)
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
