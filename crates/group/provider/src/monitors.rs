//! Two positions that threads wait for.
//!
//! [`CommitOrder`]: transactions commit in the order of their sequence numbers. One enters when all before it have left.
//! A ring of places, one for each number that may be waited for, so that who leaves wakes the next one and nobody else.
//!
//! [`Finished`]: everything up to here is done and durable in the server, whatever its order was. Appliers wait for what
//! their write set depends on, readers for what they must see. Who need not wait any more is woken, and nobody else.
//!
//! Lock order: the lock of one place of the ring, nothing else with it. A number is waited for by at most one thread.

use crate::write_set::Seqno;
use redoubt_locks::IgnorePoison;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::{self, Thread};
use std::time::Instant;

/// Places of the ring. More transactions than that are never between certification and commit at once: each takes a
/// thread of the server, or waits in the queue of the appliers without being in the ring.
const PLACES: usize = 1 << 14;

#[derive(Default)]
struct Place {
    here: Mutex<Here>,
    changed: Condvar,
}

#[derive(Default)]
struct Here {
    /// Have left without ever entering: they are passed over.
    cancelled: BTreeSet<i64>,
    /// How many threads wait. A condition variable asks the system even if nobody does.
    waiting: usize,
}

impl Place {
    fn here(&self) -> MutexGuard<'_, Here> {
        lock(&self.here)
    }

    /// Who waits looks again. Its lock is free by then, so that it need not wait for that.
    fn notify(&self, here: MutexGuard<'_, Here>) {
        let is_waited_for = here.waiting > 0;
        drop(here);
        if is_waited_for {
            self.changed.notify_all();
        }
    }
}

/// What somebody who waits to enter wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entering {
    /// To wait on.
    Wait,
    /// To enter: all before have left.
    Enter,
    /// To go away.
    GiveUp,
}

impl Entering {
    /// Enters as soon as it may.
    pub const fn when(may_enter: bool) -> Self {
        if may_enter { Self::Enter } else { Self::Wait }
    }
}

/// See the module.
pub struct CommitOrder {
    last_left: AtomicI64,
    /// Nobody will leave from here on.
    closed_from: AtomicI64,
    places: Vec<Place>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is changed in single steps.
    mutex.lock().ignore_poison()
}

impl CommitOrder {
    /// Nothing was ordered.
    pub fn new() -> Self {
        Self {
            last_left: AtomicI64::new(0),
            closed_from: AtomicI64::new(i64::MAX),
            places: (0..PLACES).map(|_| Place::default()).collect(),
        }
    }

    /// Everything up to here has left.
    pub fn start_after(&self, seqno: Seqno) {
        self.leave(seqno);
    }

    /// The last one that has left.
    pub fn last_left(&self) -> Seqno {
        Seqno(self.last_left.load(Ordering::SeqCst))
    }

    fn place(&self, seqno: i64) -> &Place {
        &self.places[seqno.unsigned_abs() as usize % PLACES]
    }

    /// Waits until `ask` says so, which is told whether all before `seqno` have left. It is asked with the place locked;
    /// whoever changes what it answers otherwise has to call [`CommitOrder::wake`]. Whether it has entered.
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

    /// It has left; the next one may enter.
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

    /// It will not enter: those after it need not wait for it once those before it have left.
    pub fn cancel(&self, seqno: Seqno) {
        {
            let mut here = self.place(seqno.0).here();
            let last_left = self.last_left.load(Ordering::SeqCst);
            if last_left < seqno.0 - 1 {
                here.cancelled.insert(seqno.0);
            }
            // Before the start, or in the turn of another one.
            if last_left != seqno.0 - 1 {
                return;
            }
        }
        self.leave(seqno);
    }

    /// Nothing will leave from `seqno` on: whoever waits for it to leave goes away. Those before it go on.
    pub fn close_from(&self, seqno: Seqno) {
        self.closed_from.fetch_min(seqno.0, Ordering::SeqCst);
        for place in &self.places {
            place.notify(place.here());
        }
    }

    /// Whether this one will never have its turn.
    pub fn is_closed_to(&self, seqno: Seqno) -> bool {
        seqno.0 > self.closed_from.load(Ordering::SeqCst)
    }

    /// Whoever waits to enter as `seqno` looks again whether it is interrupted.
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
    /// Above `to`.
    later: BTreeSet<i64>,
    /// Nothing will be finished from here on.
    closed_from: i64,
    /// Who waits for what; the second number tells those apart that wait for the same.
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
    /// Those that need not wait any more.
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

/// See the module.
#[derive(Default)]
pub struct Finished(Mutex<Done>);

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// It is reached.
    Reached,
    /// It took too long.
    TimedOut,
    /// Nothing is waited for any more.
    Closed,
}

impl Finished {
    /// Everything up to here is finished.
    pub fn start_after(&self, seqno: Seqno) {
        let mut done = lock(&self.0);
        done.to = done.to.max(seqno.0);
        let next = done.to + 1;
        done.later = done.later.split_off(&next);
        let waited = done.advance();
        drop(done);
        wake(waited);
    }

    /// Everything up to here is.
    pub fn to(&self) -> Seqno {
        Seqno(lock(&self.0).to)
    }

    /// This one is. Saying it twice changes nothing.
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
            // It may be woken by something else, or too late: what counts is what it finds.
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

    /// Nothing will be finished from `seqno` on: whoever waits for it goes away. Those before it go on.
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
