//! Ends of the batches that a pipelined log device is writing: between the thread that gives frames to the device and
//! the thread that waits for them to become durable.
//!
//! Invariant: ends are added and removed in the order of positions. The lock is a leaf.

use crate::mark::Point;
use redoubt_sync::{Condvar, Mutex};
use redoubt_wire::Seq;
use std::collections::VecDeque;
use std::time::Instant;

#[derive(Default)]
struct EndQueue {
    ends: VecDeque<(Point, Instant)>,
    closed: bool,
}

/// Ends of the batches that a pipelined device is writing.
#[derive(Default)]
pub struct WrittenEnds {
    state: Mutex<EndQueue>,
    added: Condvar,
}

impl WrittenEnds {
    /// Something up to `end` is being written since `since`.
    pub fn push(&self, end: Point, since: Instant) {
        self.state.lock().ends.push_back((end, since));
        self.added.notify_one();
    }

    /// Waits for something that is being written and returns the first end. `None`: closed.
    pub fn first(&self) -> Option<Point> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some((end, _)) = state.ends.front() {
                return Some(*end);
            }
            self.added.wait(&mut state);
        }
    }

    /// Since when the first is being written.
    pub fn oldest(&self) -> Option<Instant> {
        self.state.lock().ends.front().map(|(_, since)| *since)
    }

    /// Takes out the ends that are durable; returns the last of them, and since when the first was being written.
    pub fn take_durable(&self, durable: Seq) -> Option<(Point, Instant)> {
        let mut state = self.state.lock();
        let mut last: Option<(Point, Instant)> = None;
        while let Some((end, since)) = state.ends.front().copied().filter(|(end, _)| end.seq <= durable) {
            state.ends.pop_front();
            last = Some((end, last.map_or(since, |(_, first)| first)));
        }
        last
    }

    /// Ends all waits.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.added.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redoubt_redo::Lsn;
    use std::time::Duration;

    #[test]
    fn ends_leave_in_order_and_only_when_durable() {
        let ends = WrittenEnds::default();
        let point = |seq: u64| Point { seq: Seq(seq), lsn: Lsn(seq * 2) };
        let start = redoubt_sync::time::now();
        for seq in [10, 20, 30] {
            ends.push(point(seq), start + Duration::from_secs(seq));
        }
        assert_eq!(ends.first(), Some(point(10)));
        assert_eq!(ends.take_durable(Seq(9)), None);
        assert_eq!(ends.take_durable(Seq(29)), Some((point(20), start + Duration::from_secs(10))));
        assert_eq!(ends.first(), Some(point(30)));
        ends.close();
        assert_eq!(ends.first(), None);
    }
}
