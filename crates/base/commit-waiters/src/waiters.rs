//! Threads that wait for a position to become durable, each in a slot of its own.
//!
//! A position only advances. A thread that waits for a position sleeps until exactly that position is reached, and is
//! woken once. Threads that wait for later positions stay asleep. There is no broadcast: with many waiting commits, a
//! group commit wakes only the commits that it contains.
//!
//! Invariants:
//! * [`CommitWaiters::durable`] never decreases.
//! * A waiter is in the queue exactly while it is not signalled. A thread that removes it, by position or by closing,
//!   signals it. The waiter removes itself only after its deadline has passed.
//! * `first` is the lowest position in the queue, or `NONE` if the queue is empty. It is written under the lock.
//!
//! No wake-up is lost: a waiter writes `first` and then reads `durable`; an advancing thread writes `durable` and then
//! reads `first`. Each has a full fence between. So at least one of the two sees the value of the other.
//!
//! Locks: `queue` alone, a leaf. It is held for insertions and removals, never during a sleep or a signal.
//!
//! Cost: a wait for a durable position is one load. An advance without a reached waiter takes no lock. An advance that
//! reaches `n` waiters makes at most `n` system calls.

use crate::primitives::{Arc, AtomicU64, Mutex, MutexGuard, Ordering, fence};
use crate::slot::{Signal, Sleep, Slot};
use redoubt_locks::IgnorePoison;
use std::collections::BTreeMap;
use std::time::Instant;

/// No waiter: higher than every position.
const NONE: u64 = u64::MAX;

/// Result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The position is reached.
    Reached,
    /// The waiters were closed first.
    Closed,
    /// The deadline passed first.
    TimedOut,
}

/// Statistics of the waiters of one [`CommitWaiters`]. All numbers only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaiterStats {
    /// Waits that went to sleep, because their position was not reached.
    pub waits: u64,
    /// Wake-ups of sleeping threads: by their position, by closing, or without a cause.
    pub wakeups: u64,
    /// Wake-ups before the position was reached, other than by closing. 0 unless the kernel wakes a thread without a
    /// cause.
    pub wakeups_not_reached: u64,
}

/// Waiters by position; in order of arrival for equal positions.
#[derive(Debug)]
struct Queue<T> {
    sleepers: BTreeMap<(u64, u64), T>,
    next_ticket: u64,
    is_closed: bool,
}

/// Key of a waiter in the queue: its position, and a ticket that distinguishes it from others at that position.
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

    /// Removes a waiter. Returns whether it was in the queue.
    fn remove(&mut self, key: QueueKey) -> bool {
        self.sleepers.remove(&key).is_some()
    }

    /// Removes the waiters whose position is at most `durable`, lowest first.
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
    /// Creates waiters without a waiting thread; everything before `durable` is durable.
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

    /// Statistics of the waiters.
    pub fn stats(&self) -> WaiterStats {
        WaiterStats {
            waits: self.waits.load(Ordering::Relaxed),
            wakeups: self.wakeups.load(Ordering::Relaxed),
            wakeups_not_reached: self.wakeups_not_reached.load(Ordering::Relaxed),
        }
    }

    /// Waits until everything before `position` is durable. A reached position returns `Reached`, even after closing
    /// or after the deadline.
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

    /// Inserts a waiter into the queue, unless the wait has already ended.
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
                    // Impossible, because the signalling thread has seen the position reached. Counted nevertheless.
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
                    // Another thread has removed this waiter and is about to signal it.
                    deadline = None;
                }
            }
        }
    }

    /// Sets the position before which everything is durable, and wakes the threads whose positions are reached. A
    /// position below the current one has no effect.
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

    /// Ends all current and future waits for positions that are not reached.
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
