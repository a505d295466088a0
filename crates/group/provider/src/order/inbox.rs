//! What comes in for the member, and whoever takes it in.
//!
//! Whoever has something for the member puts it here, and if nobody is at it, takes it in itself: the thread of a
//! client has its commit sent, a reader has its message answered, without waking another thread. Nobody waits for the
//! one that is at it: what it finds when it looks again is its own to do. A thread that has done enough for others
//! leaves the rest to the member's own thread, which also comes by every few milliseconds.
//!
//! Invariants: inputs are taken in in the order in which they were put here. Whoever puts something here holds no lock
//! that delivering a transaction, or saying something, would need. Nobody continues with a member that a thread has left
//! in the middle of something.
//!
//! Lock order: `seat`, `queue`.

use super::{Input, Order};
use redoubt_locks::IgnorePoison;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Inputs that are taken in before the member is asked what to do.
const MAX_INPUTS: usize = 1024;
/// How often a thread looks again whether there is more.
const MAX_ROUNDS: usize = 16;

#[derive(Default)]
struct Queue {
    inputs: VecDeque<Input>,
    /// The member's thread is to continue.
    is_left: bool,
    is_closed: bool,
}

/// See the module.
#[derive(Default)]
pub struct Inbox {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Nobody before the member has begun.
    seat: Mutex<Option<Order>>,
}

impl Inbox {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().ignore_poison()
    }

    /// One more, which somebody takes in before long: with the next one that is posted.
    pub fn put(&self, input: Input) {
        let mut queue = self.queue();
        if queue.is_closed {
            drop(queue);
            return input.lost();
        }
        queue.inputs.push_back(input);
    }

    /// What was put here, instead of a member.
    #[cfg(test)]
    pub fn take_all(&self) -> Vec<Input> {
        self.queue().inputs.drain(..).collect()
    }

    /// One more.
    pub fn post(&self, input: Input) {
        self.put(input);
        self.take_in();
    }

    /// Takes in what is there, unless somebody else does.
    pub fn take_in(&self) {
        for _ in 0..MAX_ROUNDS {
            let mut seat = match self.seat.try_lock() {
                Ok(seat) => seat,
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(poisoned)) => return self.give_up(poisoned),
            };
            let Some(order) = seat.as_mut() else {
                // Its thread waits for what it begins with.
                self.changed.notify_one();
                return;
            };
            let inputs = self.taken();
            if !inputs.is_empty() && !order.take_all_in(inputs) {
                self.end(&mut seat);
            }
            drop(seat);
            if self.queue().inputs.is_empty() {
                return;
            }
        }
        self.queue().is_left = true;
        self.changed.notify_one();
    }

    fn taken(&self) -> Vec<Input> {
        let mut queue = self.queue();
        let count = queue.inputs.len().min(MAX_INPUTS);
        queue.inputs.drain(..count).collect()
    }

    /// For the member's thread before it begins: the next one. `None`: it is over.
    pub fn next(&self) -> Option<Input> {
        let mut queue = self.queue();
        loop {
            if let Some(input) = queue.inputs.pop_front() {
                return Some(input);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.changed.wait(queue).ignore_poison();
        }
    }

    /// The member begins. This is its thread, which ends with it.
    pub(super) fn run(&self, order: Order, tick: Duration) {
        match self.seat.lock() {
            Ok(mut seat) => *seat = Some(order),
            Err(poisoned) => return self.give_up(poisoned),
        }
        loop {
            let mut seat = match self.seat.lock() {
                Ok(seat) => seat,
                Err(poisoned) => return self.give_up(poisoned),
            };
            let Some(order) = seat.as_mut() else { return };
            let inputs = self.taken();
            let goes_on = order.take_all_in(inputs) && order.look_around();
            if !goes_on {
                self.end(&mut seat);
            }
            drop(seat);
            let queue = self.queue();
            let is_idle = |queue: &mut Queue| !std::mem::take(&mut queue.is_left) && !queue.is_closed;
            drop(self.changed.wait_timeout_while(queue, tick, is_idle));
        }
    }

    /// A thread has ended in the middle of something.
    fn give_up(&self, poisoned: PoisonError<MutexGuard<'_, Option<Order>>>) {
        let mut seat = poisoned.into_inner();
        if let Some(order) = seat.as_ref() {
            order.say_broken();
        }
        self.end(&mut seat);
    }

    /// Nothing that waits will come any more.
    fn end(&self, seat: &mut Option<Order>) {
        if let Some(order) = seat.take() {
            order.end();
        }
        self.close();
    }

    /// Nothing is taken in any more.
    pub fn close(&self) {
        let mut queue = self.queue();
        queue.is_closed = true;
        let left = std::mem::take(&mut queue.inputs);
        drop(queue);
        self.changed.notify_all();
        left.into_iter().for_each(Input::lost);
    }
}

/// Where a part of the library puts what it has for the member.
pub type Inlet = Arc<Inbox>;
