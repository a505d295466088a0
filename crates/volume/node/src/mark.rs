//! A position that only moves forward and that threads can wait for.
//!
//! W, D, P, A and X of a volume are marks. Invariant: [`Mark::get`] never goes back, and it has reached every position
//! that a waiter was woken for. Closing a mark wakes all waiters; a stopped volume releases its waiters this way.
//! Moving it wakes those that wait for no more than that, each once.
//!
//! Lock: `point`, a leaf.

use redoubt_logdev::waiters::CommitWaiters;
use redoubt_redo::Lsn;
use redoubt_sync::Mutex;
use redoubt_wire::Seq;
use std::time::Instant;

pub use redoubt_logdev::waiters::WaitEnd;

/// A point of the stream: bytes of the stream and LSN of the redo before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Stream position.
    pub seq: Seq,
    /// LSN of the next redo byte at that position.
    pub lsn: Lsn,
}

impl Point {
    /// The LSN for people who compare this point with `end`. Before a volume's first redo a point has LSN 0 (that of
    /// imported files), and redo may begin at any LSN. But the point cannot be further behind than the length of the
    /// stream between the two.
    pub fn lsn_seen_from(&self, end: Self) -> Lsn {
        let between_bytes = end.seq.0.saturating_sub(self.seq.0);
        Lsn(self.lsn.0.max(end.lsn.0.saturating_sub(between_bytes)))
    }
}

/// A position that only moves forward and that threads can wait for.
#[derive(Default)]
pub struct Mark {
    point: Mutex<Point>,
    waiters: CommitWaiters,
}

impl Mark {
    /// A mark at `point`.
    pub fn at(point: Point) -> Self {
        Self { point: Mutex::new(point), waiters: CommitWaiters::new(point.seq.0) }
    }

    /// Its current point.
    pub fn get(&self) -> Point {
        *self.point.lock()
    }

    /// Its current stream position, without waiting.
    pub fn seq(&self) -> Seq {
        Seq(self.waiters.durable())
    }

    /// Its current point, unless a thread is just moving it.
    pub fn try_get(&self) -> Option<Point> {
        self.point.try_lock().map(|point| *point)
    }

    /// Moves it forward; a smaller or equal position changes nothing.
    pub fn advance(&self, point: Point) {
        {
            let mut at = self.point.lock();
            *at = point.max(*at);
        }
        self.waiters.advance(point.seq.0);
    }

    /// Ends all waits, now and later.
    pub fn close(&self) {
        self.waiters.close();
    }

    /// Waits until it has reached `seq`.
    pub fn wait_for(&self, seq: Seq, deadline: Option<Instant>) -> WaitEnd {
        self.waiters.wait(seq.0, deadline)
    }
}

#[cfg(test)]
#[path = "mark_tests.rs"]
mod tests;
