//! A position that only moves forward and that threads can wait for.
//!
//! W, D, P, A and X of a volume are marks. Invariant: [`Mark::get`] never goes back. Closing a mark wakes
//! everyone; that is how a stopped volume lets its waiters go.

use parking_lot::{Condvar, Mutex};
use redoubt_redo::Lsn;
use redoubt_wire::Seq;
use std::time::Instant;

/// A point of the stream: bytes of the stream and LSN of the redo before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Stream position.
    pub seq: Seq,
    /// LSN of the next redo byte at that position.
    pub lsn: Lsn,
}

#[derive(Default)]
struct State {
    point: Point,
    closed: bool,
}

/// See the module.
#[derive(Default)]
pub struct Mark {
    state: Mutex<State>,
    moved: Condvar,
}

/// Why a wait ended without reaching its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// Position reached.
    Reached,
    /// The mark was closed first.
    Closed,
    /// The deadline passed first.
    TimedOut,
}

impl Mark {
    /// A mark that stands at `point`.
    pub fn at(point: Point) -> Self {
        Self { state: Mutex::new(State { point, closed: false }), moved: Condvar::new() }
    }

    /// Where it stands.
    pub fn get(&self) -> Point {
        self.state.lock().point
    }

    /// Moves it forward; a smaller or equal position changes nothing.
    pub fn advance(&self, point: Point) {
        let mut state = self.state.lock();
        if point > state.point {
            state.point = point;
            self.moved.notify_all();
        }
    }

    /// Ends all waits, now and later.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.moved.notify_all();
    }

    /// Waits until it has reached `seq`.
    pub fn wait_for(&self, seq: Seq, deadline: Option<Instant>) -> WaitEnd {
        let mut state = self.state.lock();
        loop {
            if state.point.seq >= seq {
                return WaitEnd::Reached;
            }
            if state.closed {
                return WaitEnd::Closed;
            }
            match deadline {
                None => self.moved.wait(&mut state),
                Some(deadline) => {
                    if self.moved.wait_until(&mut state, deadline).timed_out() && state.point.seq < seq {
                        return WaitEnd::TimedOut;
                    }
                }
            }
        }
    }
}
