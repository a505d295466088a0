//! What the order has for the thread that says what it means ([`crate::delivery`]), in its order.
//!
//! That thread waits while the server is paused. So entries are in memory up to a limit; those that are more are read
//! from the log again when their turn comes ([`crate::backlog`]). What a client of this server waits for stays: there are
//! no more of it than clients.

use crate::backlog::{Named, Run, Source};
use crate::delivery::Delivery;
use crate::store::StoreError;
use crate::write_set::Seqno;
use redoubt_consensus::types::{Proposal, Slot};
use redoubt_locks::IgnorePoison;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// What an entry takes beside its body.
const ENTRY_LEN_BYTES: usize = 128;

enum Queued {
    Here(Delivery),
    InLog(Run),
}

#[derive(Default)]
struct State {
    queue: VecDeque<Queued>,
    /// Of what is in memory.
    len_bytes: usize,
    /// How many are in the log alone.
    in_log: usize,
    is_closed: bool,
}

impl State {
    /// Takes the first one out if it is in memory.
    fn pop(&mut self) -> Option<Delivery> {
        self.queue.front().filter(|queued| matches!(queued, Queued::Here(_)))?;
        let Some(Queued::Here(delivery)) = self.queue.pop_front() else { return None };
        self.len_bytes -= len_bytes(&delivery);
        Some(delivery)
    }

    /// The first one, which is in the log, is taken out.
    fn pop_named(&mut self) {
        let Some(Queued::InLog(run)) = self.queue.front_mut() else { return };
        run.pop();
        self.in_log -= 1;
        if run.is_empty() {
            self.queue.pop_front();
        }
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    source: Source,
    limit_bytes: usize,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }
}

/// The order's side. Without it there is no more.
pub struct Deliveries(Arc<Shared>);

/// The other side.
pub struct Delivered {
    shared: Arc<Shared>,
    /// What was read and comes next.
    read: VecDeque<(Slot, Proposal)>,
}

/// Both sides; at most so many bytes of entries between them.
pub fn channel(limit_bytes: usize) -> (Deliveries, Delivered) {
    let shared = Arc::new(Shared { limit_bytes, ..Shared::default() });
    (Deliveries(Arc::clone(&shared)), Delivered { shared, read: VecDeque::new() })
}

fn len_bytes(delivery: &Delivery) -> usize {
    match delivery {
        Delivery::Entry { proposal, .. } => ENTRY_LEN_BYTES + proposal.body.len(),
        _ => 0,
    }
}

impl Deliveries {
    /// The log is there.
    pub fn set_source(&self, archive: Arc<crate::store::Archive>) {
        self.0.source.set(archive);
    }

    /// What waits in memory, in bytes, and how many wait in the log alone.
    pub fn waiting(&self) -> (usize, usize) {
        let state = self.0.state();
        (state.len_bytes, state.in_log)
    }

    /// One more.
    pub fn send(&self, delivery: Delivery) {
        let len_bytes = len_bytes(&delivery);
        let mut state = self.0.state();
        let is_too_much = state.len_bytes > 0 && state.len_bytes + len_bytes > self.0.limit_bytes;
        match delivery {
            Delivery::Entry { slot, transaction: None, .. } if is_too_much && self.0.source.is_set() => {
                let named = Named { slot, seqno: Seqno(0), depends_on: Seqno(0) };
                state.in_log += 1;
                match state.queue.back_mut() {
                    Some(Queued::InLog(run)) => run.push(named),
                    _ => {
                        let mut run = Run::default();
                        run.push(named);
                        state.queue.push_back(Queued::InLog(run));
                    }
                }
            }
            delivery => {
                state.len_bytes += len_bytes;
                state.queue.push_back(Queued::Here(delivery));
            }
        }
        drop(state);
        self.0.changed.notify_one();
    }
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        self.0.state().is_closed = true;
        self.0.changed.notify_one();
    }
}

impl Delivered {
    /// The next one; waits for it. `None`: there is no more.
    ///
    /// # Errors
    /// It is in the log, and cannot be read.
    pub fn take(&mut self) -> Result<Option<Delivery>, StoreError> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        loop {
            if let Some(delivery) = state.pop() {
                return Ok(Some(delivery));
            }
            let wanted = match state.queue.front() {
                Some(Queued::InLog(run)) => run.first().map(|first| (first.slot, run.len())),
                _ => None,
            };
            if let Some((slot, count)) = wanted {
                if let Some(proposal) = self.read_at(slot)? {
                    state.pop_named();
                    return Ok(Some(Delivery::Entry { slot, proposal, transaction: None }));
                }
                // Nobody else takes anything out.
                drop(state);
                self.read = shared.source.read(slot, count)?;
                state = shared.state();
            } else if state.is_closed {
                return Ok(None);
            } else {
                state = shared.changed.wait(state).ignore_poison();
            }
        }
    }

    /// What is in a slot, if it was read. What comes before it is of this server's own clients, or counts as nothing.
    fn read_at(&mut self, slot: Slot) -> Result<Option<Proposal>, StoreError> {
        while self.read.front().is_some_and(|(of, _)| *of < slot) {
            self.read.pop_front();
        }
        if self.read.front().is_some_and(|(of, _)| *of == slot) {
            return Ok(self.read.pop_front().map(|(_, proposal)| proposal));
        }
        if self.read.is_empty() { Ok(None) } else { Err(StoreError::Gone(slot)) }
    }
}

#[cfg(test)]
mod tests;
