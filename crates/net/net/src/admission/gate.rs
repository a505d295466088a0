//! The limit on connections inside at once, and the queue of waiters.
//!
//! Below the limit, entering and leaving are operations on one number. The queue's lock is taken only where the limit
//! is reached or others wait. A leaving connection lets the first waiter in; the queue is never overtaken.
//!
//! Invariants:
//! * A [`Place`] is inside only while it is counted: entering raises the count before it sets the state, and leaving is
//!   one compare-and-exchange of the state, whose winner lowers the count. So the keeper may take a place off (an
//!   expired lease) while its owner leaves.
//! * A place's state becomes and ceases to be waiting under the queue's lock only, together with its entry.
//! * A leaving thread looks for waiters after it has left, and a thread that begins to wait looks for room after it is
//!   counted as waiting, all in one order (SeqCst). So one of both sees the other.
//!
//! Lock order: the queue's, then the place's own, on which its waiter sleeps.

use redoubt_locks::IgnorePoison;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

const OUTSIDE: u32 = 0;
const WAITING: u32 = 1;
const INSIDE: u32 = 2;

/// Result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is inside.
    Entered,
    /// It is outside; the timeout has passed.
    TimedOut,
    /// It is outside; another thread has called the wait off.
    CalledOff,
}

/// State of one connection at the gate.
#[derive(Debug, Default)]
pub struct Place {
    state: AtomicU32,
    /// Start of the server's wait for its client, with a transaction open or in the middle of a command or a result, in
    /// milliseconds; 0: the server does not wait for its client.
    idle_since_ms: AtomicU64,
    /// Start of the wait for admission, in milliseconds.
    waiting_since_ms: AtomicU64,
    /// Its connection ends.
    has_ended: AtomicBool,
    /// Descriptor and thread id of the waiter, for display.
    label: AtomicU64,
    sleep: Mutex<()>,
    turn: Condvar,
}

impl Place {
    /// It is counted as inside.
    pub fn is_inside(&self) -> bool {
        self.state.load(SeqCst) == INSIDE
    }

    /// It waits.
    pub fn is_waiting(&self) -> bool {
        self.state.load(SeqCst) == WAITING
    }

    /// The client's idle time has begun, or with 0 it has ended.
    pub fn set_idle_since(&self, now_ms: u64) {
        self.idle_since_ms.store(now_ms, SeqCst);
    }

    /// Start of the client's idle time, as of [`Place::set_idle_since`].
    pub fn idle_since_ms(&self) -> u64 {
        self.idle_since_ms.load(SeqCst)
    }

    /// Sets the label of a waiter.
    pub fn set_label(&self, label: u64) {
        self.label.store(label, SeqCst);
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
    }

    fn wake(&self) {
        drop(self.sleep.lock().ignore_poison());
        self.turn.notify_one();
    }

    /// Sleeps until the place waits no longer, or no time is left.
    fn sleep(&self, left: impl Fn() -> Duration) {
        let mut guard = self.sleep.lock().ignore_poison();
        while self.is_waiting() {
            let left = left();
            if left.is_zero() {
                return;
            }
            guard = self.turn.wait_timeout(guard, left).ignore_poison().0;
        }
    }
}

/// A waiter, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Label of its place.
    pub label: u64,
    /// Start of the wait, in milliseconds.
    pub since_ms: u64,
}

/// Counter of the connections inside, and queue of the waiters.
#[derive(Debug, Default)]
pub struct Gate {
    inside: AtomicUsize,
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<&'static Place>>,
}

impl Gate {
    /// An empty gate.
    pub const fn new() -> Self {
        Self { inside: AtomicUsize::new(0), waiting: AtomicUsize::new(0), queue: Mutex::new(VecDeque::new()) }
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<&'static Place>> {
        self.queue.lock().ignore_poison()
    }

    /// Places that are inside.
    pub fn inside(&self) -> usize {
        self.inside.load(SeqCst)
    }

    /// Places that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    fn take(&self, limit: usize) -> bool {
        let one_more = |inside: usize| (inside < limit).then(|| inside + 1);
        self.inside.fetch_update(SeqCst, SeqCst, one_more).is_ok()
    }

    /// Enters if there is room and no connection waits. The place is outside.
    pub fn enter(&self, place: &Place, limit: usize) -> bool {
        if self.waiting() != 0 || !self.take(limit) {
            return false;
        }
        place.set_idle_since(0);
        place.state.store(INSIDE, SeqCst);
        true
    }

    /// Enters regardless of the limit. The place is outside.
    pub fn force(&self, place: &Place) {
        self.inside.fetch_add(1, SeqCst);
        place.set_idle_since(0);
        place.state.store(INSIDE, SeqCst);
    }

    /// Waits in the queue. The place is outside. `left` returns the remaining time, and is called again when that is
    /// over.
    pub fn wait(
        &self,
        place: &'static Place,
        limit: usize,
        now_ms: u64,
        left: impl Fn() -> Duration,
    ) -> Outcome {
        place.waiting_since_ms.store(now_ms, SeqCst);
        place.set_idle_since(0);
        {
            let mut queue = self.queue();
            self.waiting.fetch_add(1, SeqCst);
            place.state.store(WAITING, SeqCst);
            queue.push_back(place);
        }
        self.admit(limit);
        // [`Gate::end`] sets this flag before it looks for a waiting place.
        if place.has_ended.load(SeqCst) {
            self.call_off(place);
        }
        place.sleep(left);
        if place.is_waiting() && self.take_out(place) {
            return Outcome::TimedOut;
        }
        if place.is_inside() { Outcome::Entered } else { Outcome::CalledOff }
    }

    /// Admits waiters while there is room.
    pub fn admit(&self, limit: usize) {
        while self.waiting() != 0 {
            let first = {
                let mut queue = self.queue();
                if queue.is_empty() || !self.take(limit) {
                    return;
                }
                let first = queue.pop_front();
                if let Some(place) = first {
                    place.state.store(INSIDE, SeqCst);
                    self.waiting.fetch_sub(1, SeqCst);
                }
                first
            };
            if let Some(place) = first {
                place.wake();
            }
        }
    }

    fn take_out(&self, place: &Place) -> bool {
        let mut queue = self.queue();
        let Some(at) = queue.iter().position(|other| std::ptr::eq(*other, place)) else { return false };
        queue.remove(at);
        place.state.store(OUTSIDE, SeqCst);
        self.waiting.fetch_sub(1, SeqCst);
        true
    }

    /// Calls a wait off. `false`: the place does not wait.
    pub fn call_off(&self, place: &Place) -> bool {
        let was_waiting = place.is_waiting() && self.take_out(place);
        if was_waiting {
            place.wake();
        }
        was_waiting
    }

    /// Its connection ends: the place waits no longer, and not again before [`Gate::renew`].
    pub fn end(&self, place: &Place) {
        place.has_ended.store(true, SeqCst);
        self.call_off(place);
    }

    /// Another connection uses the place.
    pub fn renew(&self, place: &Place) {
        place.has_ended.store(false, SeqCst);
    }

    /// Ends all waits.
    pub fn call_off_all(&self) {
        loop {
            let Some(place) = self.queue().front().copied() else { return };
            self.call_off(place);
        }
    }

    /// Moves a place from inside to outside. `false`: it was outside.
    pub fn leave(&self, place: &Place, limit: usize) -> bool {
        if !place.change(INSIDE, OUTSIDE) {
            return false;
        }
        self.inside.fetch_sub(1, SeqCst);
        self.admit(limit);
        true
    }

    /// The first `count` waiters of the queue, with the start of their waits.
    pub fn waiters(&self, count: usize) -> Vec<Waiter> {
        let waiter = |place: &&Place| Waiter {
            label: place.label.load(SeqCst),
            since_ms: place.waiting_since_ms.load(SeqCst),
        };
        self.queue().iter().take(count).map(waiter).collect()
    }
}

#[cfg(test)]
mod tests;
