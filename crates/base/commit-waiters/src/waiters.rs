//! Threads that wait for a position to become durable, each in a slot of its own.
//!
//! A position only moves forward. A thread that waits for one sleeps until exactly that position is reached and is
//! woken once; threads that wait for later positions sleep on. There is no broadcast, so with many waiting
//! commits a group commit wakes the commits that are in it and nobody else.
//!
//! Invariants:
//! * [`CommitWaiters::durable`] never goes back.
//! * A waiter is in the queue exactly while nobody has signalled it. Whoever takes it out, by position or by
//!   closing, signals it; the waiter itself takes itself out only when its deadline has passed.
//! * `first` is the lowest position in the queue, `NONE` for an empty one. It is written under the lock.
//!
//! No wake-up is lost: a waiter writes `first` and then reads `durable`; whoever advances writes `durable` and
//! then reads `first`, each with a full fence between. One of the two sees the other.
//!
//! Locks: `queue` alone, a leaf. It is held to put a waiter in or take waiters out, never while sleeping and never
//! while signalling.
//!
//! Cost: a wait for what is already durable is one load. An advance that reaches nobody takes no lock. One that
//! reaches `n` waiters makes at most `n` system calls.

use crate::primitives::{Arc, AtomicU64, Mutex, MutexGuard, Ordering, fence};
use crate::slot::{Signal, Sleep, Slot};
use redoubt_locks::IgnorePoison;
use std::collections::BTreeMap;
use std::time::Instant;

/// No waiter: above every position.
const NONE: u64 = u64::MAX;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// Position reached.
    Reached,
    /// Closed first.
    Closed,
    /// The deadline passed first.
    TimedOut,
}

/// What the waiters of one [`CommitWaiters`] did. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaiterStats {
    /// Waits that found their position not reached and went to sleep.
    pub waits: u64,
    /// Times a sleeping thread was woken: by its position, by closing, or by nobody.
    pub wakeups: u64,
    /// Wake-ups that found the position not reached, other than by closing. 0 unless the kernel wakes a thread
    /// that nobody woke.
    pub wakeups_not_reached: u64,
}

/// Waiters by position; among equal positions the one that came first is first.
#[derive(Debug)]
struct Queue<T> {
    sleepers: BTreeMap<(u64, u64), T>,
    next_ticket: u64,
    is_closed: bool,
}

/// A waiter's place in the queue: its position, and a ticket that tells it from others of that position.
type QueueKey = (u64, u64);

impl<T> Queue<T> {
    fn new() -> Self {
        Self { sleepers: BTreeMap::new(), next_ticket: 0, is_closed: false }
    }

    fn insert(&mut self, position: u64, sleeper: T) -> QueueKey {
        let key = (position, self.next_ticket);
        self.next_ticket += 1;
        self.sleepers.insert(key, sleeper);
        key
    }

    /// Whether it was still there.
    fn remove(&mut self, key: QueueKey) -> bool {
        self.sleepers.remove(&key).is_some()
    }

    /// Takes out those whose position is at most `durable`, lowest first.
    fn take_reached(&mut self, durable: u64) -> Vec<T> {
        let mut taken = Vec::new();
        while let Some(entry) = self.sleepers.first_entry() {
            if entry.key().0 > durable {
                break;
            }
            taken.push(entry.remove());
        }
        taken
    }

    fn take_all(&mut self) -> Vec<T> {
        std::mem::take(&mut self.sleepers).into_values().collect()
    }

    fn first(&self) -> u64 {
        self.sleepers.first_key_value().map_or(NONE, |(key, _)| key.0)
    }
}

/// Threads that wait for a position to become durable, each in a slot of its own.
#[derive(Debug)]
pub struct CommitWaiters {
    durable: AtomicU64,
    first: AtomicU64,
    queue: Mutex<Queue<Arc<Slot>>>,
    waits: AtomicU64,
    wakeups: AtomicU64,
    wakeups_not_reached: AtomicU64,
}

impl Default for CommitWaiters {
    fn default() -> Self {
        Self::new(0)
    }
}

impl CommitWaiters {
    /// Nobody waits; everything before `durable` is durable.
    pub fn new(durable: u64) -> Self {
        Self {
            durable: AtomicU64::new(durable),
            first: AtomicU64::new(NONE),
            queue: Mutex::new(Queue::new()),
            waits: AtomicU64::new(0),
            wakeups: AtomicU64::new(0),
            wakeups_not_reached: AtomicU64::new(0),
        }
    }

    /// The position before which everything is durable.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// What the waiters did.
    pub fn stats(&self) -> WaiterStats {
        WaiterStats {
            waits: self.waits.load(Ordering::Relaxed),
            wakeups: self.wakeups.load(Ordering::Relaxed),
            wakeups_not_reached: self.wakeups_not_reached.load(Ordering::Relaxed),
        }
    }

    /// Waits until everything before `position` is durable. A position already reached is `Reached` even after
    /// closing or past the deadline.
    pub fn wait(&self, position: u64, deadline: Option<Instant>) -> WaitEnd {
        if self.durable() >= position {
            return WaitEnd::Reached;
        }
        let slot = Arc::new(Slot::new());
        let key = match self.enter(position, &slot) {
            Ok(key) => key,
            Err(end) => return end,
        };
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.sleep(key, &slot, deadline)
    }

    /// Puts a waiter into the queue, unless there is nothing to wait for.
    fn enter(&self, position: u64, slot: &Arc<Slot>) -> Result<QueueKey, WaitEnd> {
        let mut queue = self.lock();
        let key = queue.insert(position, Arc::clone(slot));
        self.first.store(queue.first(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let end = if self.durable.load(Ordering::Acquire) >= position {
            WaitEnd::Reached
        } else if queue.is_closed {
            WaitEnd::Closed
        } else {
            return Ok(key);
        };
        queue.remove(key);
        self.first.store(queue.first(), Ordering::Relaxed);
        Err(end)
    }

    fn sleep(&self, key: QueueKey, slot: &Slot, deadline: Option<Instant>) -> WaitEnd {
        let mut deadline = deadline;
        loop {
            match slot.sleep(deadline) {
                Sleep::Signalled(signal) => {
                    self.wakeups.fetch_add(1, Ordering::Relaxed);
                    if self.durable() >= key.0 {
                        return WaitEnd::Reached;
                    }
                    if signal == Signal::Closed {
                        return WaitEnd::Closed;
                    }
                    // Not possible: who signals has seen the position reached. Counted rather than believed.
                    self.wakeups_not_reached.fetch_add(1, Ordering::Relaxed);
                    return self.wait(key.0, deadline);
                }
                Sleep::Stray => {
                    self.wakeups.fetch_add(1, Ordering::Relaxed);
                    self.wakeups_not_reached.fetch_add(1, Ordering::Relaxed);
                }
                Sleep::TimedOut => {
                    let mut queue = self.lock();
                    if queue.remove(key) {
                        self.first.store(queue.first(), Ordering::Relaxed);
                        return WaitEnd::TimedOut;
                    }
                    // Somebody took it out and is about to signal.
                    deadline = None;
                }
            }
        }
    }

    /// Says that everything before `position` is durable, and wakes those who wait for no more than that.
    /// A position below the present one changes nothing.
    pub fn advance(&self, position: u64) {
        let durable = self.durable.fetch_max(position, Ordering::AcqRel).max(position);
        fence(Ordering::SeqCst);
        if self.first.load(Ordering::Relaxed) > durable {
            return;
        }
        let reached = {
            let mut queue = self.lock();
            let reached = queue.take_reached(durable);
            self.first.store(queue.first(), Ordering::Relaxed);
            reached
        };
        for slot in reached {
            slot.signal(Signal::Reached);
        }
    }

    /// Ends all waits, now and later, for positions that are not reached.
    pub fn close(&self) {
        let all = {
            let mut queue = self.lock();
            queue.is_closed = true;
            self.first.store(NONE, Ordering::Relaxed);
            queue.take_all()
        };
        for slot in all {
            slot.signal(Signal::Closed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue<Arc<Slot>>> {
        self.queue.lock().ignore_poison()
    }
}

#[cfg(test)]
#[path = "waiters/tests.rs"]
mod tests;
