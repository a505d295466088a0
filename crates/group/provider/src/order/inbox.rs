//! Inputs of the member, and the threads that process them.
//!
//! A thread that has an input for the member puts it here, and processes it itself if no other thread is doing so. So a
//! client's thread sends its own commit and a reader thread has its message answered, without waking another thread. A
//! thread never waits for the processing one: that thread checks the queue again and finds the new input. After enough
//! work for others it leaves the rest to the member's own thread, which also runs every few milliseconds.
//!
//! Invariants: inputs are processed in the order in which they were put here. A thread that posts an input holds no
//! lock that delivering a transaction or writing a message would need. No thread continues with a member that another
//! one has left in the middle of an input.
//!
//! Lock order: `seat`, `queue`.

use super::{Input, Order};
use redoubt_locks::IgnorePoison;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Maximum number of inputs that are processed before the member's effects are carried out.
const MAX_INPUTS: usize = 1024;
/// How often a thread checks for further inputs.
const MAX_ROUNDS: usize = 16;

#[derive(Default)]
struct Queue {
    inputs: VecDeque<Input>,
    /// The member's thread is to process the rest.
    is_left: bool,
    is_closed: bool,
}

/// The member of a server and the queue of its inputs.
#[derive(Default)]
pub struct Inbox {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// `None` until the member has begun.
    seat: Mutex<Option<Order>>,
}

impl Inbox {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().ignore_poison()
    }

    /// Queues an input, which is processed at the latest with the next posted one.
    pub fn put(&self, input: Input) {
        let mut queue = self.queue();
        if queue.is_closed {
            drop(queue);
            return input.lost();
        }
        queue.inputs.push_back(input);
    }

    /// All queued inputs, for tests without a member.
    #[cfg(test)]
    pub fn take_all(&self) -> Vec<Input> {
        self.queue().inputs.drain(..).collect()
    }

    /// Queues an input and processes the queue.
    pub fn post(&self, input: Input) {
        self.put(input);
        self.take_in();
    }

    /// Processes the queued inputs, unless another thread is doing so.
    pub fn take_in(&self) {
        for _ in 0..MAX_ROUNDS {
            let mut seat = match self.seat.try_lock() {
                Ok(seat) => seat,
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(poisoned)) => return self.give_up(poisoned),
            };
            let Some(order) = seat.as_mut() else {
                // Its thread waits for its first input.
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

    /// Next input, for the member's thread before the member begins. `None`: the inbox is closed.
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

    /// Begins the member and runs its thread until it ends.
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

    /// Ends the member after a thread has panicked while processing an input.
    fn give_up(&self, poisoned: PoisonError<MutexGuard<'_, Option<Order>>>) {
        let mut seat = poisoned.into_inner();
        if let Some(order) = seat.as_ref() {
            order.say_broken();
        }
        self.end(&mut seat);
    }

    /// Ends the member and closes the inbox.
    fn end(&self, seat: &mut Option<Order>) {
        if let Some(order) = seat.take() {
            order.end();
        }
        self.close();
    }

    /// Rejects all further inputs and the queued ones.
    pub fn close(&self) {
        let mut queue = self.queue();
        queue.is_closed = true;
        let left = std::mem::take(&mut queue.inputs);
        drop(queue);
        self.changed.notify_all();
        left.into_iter().for_each(Input::lost);
    }
}

/// Shared handle for posting inputs to the member.
pub type Inlet = Arc<Inbox>;
