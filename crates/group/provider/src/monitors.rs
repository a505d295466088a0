//! Two monitors for positions in the order.
//!
//! [`CommitOrder`]: transactions commit in the order of their sequence numbers. A transaction enters when all previous
//! ones have left. A ring has a place for each number, so that a leaving transaction wakes only the next one.
//!
//! [`Finished`]: everything up to its position is done and durable in the server, in whatever order. Appliers wait for
//! the dependencies of their write sets, readers for the position that they must see. Only threads whose wait is over
//! are woken.
//!
//! Lock order: the lock of one place of the ring, no other lock with it. At most one thread waits for a number.

use crate::write_set::Seqno;
use redoubt_locks::IgnorePoison;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::{self, Thread};
use std::time::Instant;

/// Places of the ring. There are never more transactions between certification and commit: each takes a thread of the
/// server, or waits in the queue of the appliers without being in the ring.
const PLACES: usize = 1 << 14;

#[derive(Default)]
struct Place {
    here: Mutex<Here>,
    changed: Condvar,
}

#[derive(Default)]
struct Here {
    /// Numbers that were cancelled before their turn. They are skipped.
    cancelled: BTreeSet<i64>,
    /// Number of waiting threads. Notifying a condition variable is a system call even without waiters.
    waiting: usize,
}

impl Place {
    fn here(&self) -> MutexGuard<'_, Here> {
        lock(&self.here)
    }

    /// Wakes the waiting thread. The lock is released first, so that the thread need not wait for it.
    fn notify(&self, here: MutexGuard<'_, Here>) {
        let is_waited_for = here.waiting > 0;
        drop(here);
        if is_waited_for {
            self.changed.notify_all();
        }
    }
}

/// Decision of a transaction that waits to enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entering {
    /// Continue to wait.
    Wait,
    /// Enter: all previous ones have left.
    Enter,
    /// Stop waiting.
    GiveUp,
}

impl Entering {
    /// Enters as soon as possible.
    pub const fn when(may_enter: bool) -> Self {
        if may_enter { Self::Enter } else { Self::Wait }
    }
}

/// Monitor in which transactions commit in order.
pub struct CommitOrder {
    last_left: AtomicI64,
    /// No transaction leaves from here on.
    closed_from: AtomicI64,
    places: Vec<Place>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Guarded data are changed in single steps.
    mutex.lock().ignore_poison()
}

impl CommitOrder {
    /// A monitor of an empty order.
    pub fn new() -> Self {
        Self {
            last_left: AtomicI64::new(0),
            closed_from: AtomicI64::new(i64::MAX),
            places: (0..PLACES).map(|_| Place::default()).collect(),
        }
    }

    /// Marks everything up to here as left.
    pub fn start_after(&self, seqno: Seqno) {
        self.leave(seqno);
    }

    /// The last position that has left.
    pub fn last_left(&self) -> Seqno {
        Seqno(self.last_left.load(Ordering::SeqCst))
    }

    fn place(&self, seqno: i64) -> &Place {
        &self.places[seqno.unsigned_abs() as usize % PLACES]
    }

    /// Waits until `ask` decides; its argument is whether all positions before `seqno` have left. It is called with the
    /// place locked. After a change of its decision, [`CommitOrder::wake`] must be called. Returns whether `seqno` has
    /// entered.
    pub fn enter(&self, seqno: Seqno, mut ask: impl FnMut(bool) -> Entering) -> bool {
        let place = self.place(seqno.0);
        let mut here = place.here();
        loop {
            match ask(self.last_left.load(Ordering::SeqCst) >= seqno.0 - 1) {
                Entering::Enter => return true,
                Entering::GiveUp => return false,
                Entering::Wait if seqno.0 > self.closed_from.load(Ordering::SeqCst) => return false,
                Entering::Wait => {
                    here.waiting += 1;
                    here = place.changed.wait(here).ignore_poison();
                    here.waiting -= 1;
                }
            }
        }
    }

    /// Leaves; the next position may enter.
    pub fn leave(&self, seqno: Seqno) {
        let mut last = seqno.0;
        loop {
            self.last_left.fetch_max(last, Ordering::SeqCst);
            let place = self.place(last + 1);
            let mut here = place.here();
            if !here.cancelled.remove(&(last + 1)) {
                return place.notify(here);
            }
            last += 1;
        }
    }

    /// Cancels a position: later ones do not wait for it once all previous ones have left.
    pub fn cancel(&self, seqno: Seqno) {
        {
            let mut here = self.place(seqno.0).here();
            let last_left = self.last_left.load(Ordering::SeqCst);
            if last_left < seqno.0 - 1 {
                here.cancelled.insert(seqno.0);
            }
            // The position is before the start, or it is not next.
            if last_left != seqno.0 - 1 {
                return;
            }
        }
        self.leave(seqno);
    }

    /// Closes the monitor: nothing leaves from `seqno` on, and waits for that end. Earlier positions continue.
    pub fn close_from(&self, seqno: Seqno) {
        self.closed_from.fetch_min(seqno.0, Ordering::SeqCst);
        for place in &self.places {
            place.notify(place.here());
        }
    }

    /// Whether this position will never enter.
    pub fn is_closed_to(&self, seqno: Seqno) -> bool {
        seqno.0 > self.closed_from.load(Ordering::SeqCst)
    }

    /// Lets the thread that waits to enter as `seqno` decide again.
    pub fn wake(&self, seqno: Seqno) {
        let place = self.place(seqno.0);
        place.notify(place.here());
    }
}

impl Default for CommitOrder {
    fn default() -> Self {
        Self::new()
    }
}

struct Done {
    to: i64,
    /// Finished positions above `to`.
    later: BTreeSet<i64>,
    /// Nothing is finished from here on.
    closed_from: i64,
    /// Waiting threads by position. The second number distinguishes threads with the same position.
    waiting: BTreeMap<(i64, u64), Thread>,
    next_waiter: u64,
}

impl Default for Done {
    fn default() -> Self {
        Self {
            to: 0,
            later: BTreeSet::new(),
            closed_from: i64::MAX,
            waiting: BTreeMap::new(),
            next_waiter: 0,
        }
    }
}

impl Done {
    /// Advances `to`. Returns the threads whose wait is over.
    fn advance(&mut self) -> BTreeMap<(i64, u64), Thread> {
        while self.later.first() == Some(&(self.to + 1)) {
            self.later.pop_first();
            self.to += 1;
        }
        if self.waiting.first_key_value().is_none_or(|((wanted, _), _)| *wanted > self.to) {
            return BTreeMap::new();
        }
        let waiting = self.waiting.split_off(&(self.to + 1, 0));
        std::mem::replace(&mut self.waiting, waiting)
    }
}

/// Monitor of finished positions.
#[derive(Default)]
pub struct Finished(Mutex<Done>);

/// Result of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// The position is finished.
    Reached,
    /// The deadline has passed.
    TimedOut,
    /// The monitor is closed for this position.
    Closed,
}

impl Finished {
    /// Marks everything up to here as finished.
    pub fn start_after(&self, seqno: Seqno) {
        let mut done = lock(&self.0);
        done.to = done.to.max(seqno.0);
        let next = done.to + 1;
        done.later = done.later.split_off(&next);
        let waited = done.advance();
        drop(done);
        wake(waited);
    }

    /// Position up to which everything is finished.
    pub fn to(&self) -> Seqno {
        Seqno(lock(&self.0).to)
    }

    /// Marks a position as finished. Repeating it has no effect.
    pub fn finish(&self, seqno: Seqno) {
        let mut done = lock(&self.0);
        if seqno.0 <= done.to {
            return;
        }
        done.later.insert(seqno.0);
        let waited = done.advance();
        drop(done);
        wake(waited);
    }

    /// Waits until everything up to `seqno` is finished.
    pub fn wait(&self, seqno: Seqno, deadline: Option<Instant>) -> Wait {
        let mut done = lock(&self.0);
        if done.to >= seqno.0 {
            return Wait::Reached;
        }
        let place = (seqno.0, done.next_waiter);
        done.next_waiter += 1;
        done.waiting.insert(place, thread::current());
        loop {
            // Spurious and late wake-ups are possible, so the state decides.
            let end = match (done.to >= seqno.0, seqno.0 >= done.closed_from) {
                (true, _) => Some(Wait::Reached),
                (false, true) => Some(Wait::Closed),
                (false, false) => None,
            };
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let end = end.or_else(|| left.is_some_and(|left| left.is_zero()).then_some(Wait::TimedOut));
            if let Some(end) = end {
                done.waiting.remove(&place);
                return end;
            }
            drop(done);
            match left {
                None => thread::park(),
                Some(left) => thread::park_timeout(left),
            }
            done = lock(&self.0);
        }
    }

    /// Closes the monitor: nothing is finished from `seqno` on, and waits for that end. Earlier positions continue.
    pub fn close_from(&self, seqno: Seqno) {
        let mut done = lock(&self.0);
        let closed_from = done.closed_from.min(seqno.0);
        done.closed_from = closed_from;
        let waited = done.waiting.split_off(&(closed_from, 0));
        drop(done);
        wake(waited);
    }
}

fn wake(waited: BTreeMap<(i64, u64), Thread>) {
    waited.into_values().for_each(|thread| thread.unpark());
}

#[cfg(test)]
mod tests;
