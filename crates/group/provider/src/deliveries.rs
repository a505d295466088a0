//! Queue from the order to the thread that interprets its entries ([`crate::delivery`]).
//!
//! That thread waits while the server is paused. So entries are in memory up to a limit; the others are read from the
//! log again when they are due ([`crate::backlog`]). Entries with a waiting client stay in memory: there are no more of
//! them than clients.

use crate::backlog::{Named, Run, Source};
use crate::delivery::Delivery;
use crate::store::StoreError;
use crate::write_set::Seqno;
use redoubt_consensus::types::{Proposal, Slot};
use redoubt_locks::IgnorePoison;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Memory of an entry in addition to its body, in bytes.
const ENTRY_LEN_BYTES: usize = 128;

enum Queued {
    Here(Delivery),
    InLog(Run),
}

#[derive(Default)]
struct State {
    queue: VecDeque<Queued>,
    /// Memory of the queued entries, in bytes.
    len_bytes: usize,
    /// Number of entries that are only in the log.
    in_log: usize,
    is_closed: bool,
}

impl State {
    /// Removes the first item if it is in memory.
    fn pop(&mut self) -> Option<Delivery> {
        self.queue.front().filter(|queued| matches!(queued, Queued::Here(_)))?;
        let Some(Queued::Here(delivery)) = self.queue.pop_front() else { return None };
        self.len_bytes -= len_bytes(&delivery);
        Some(delivery)
    }

    /// Removes the first item, which is in the log.
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

/// Sending side. The queue ends when it is dropped.
pub struct Deliveries(Arc<Shared>);

/// Receiving side.
pub struct Delivered {
    shared: Arc<Shared>,
    /// Entries that were read from the log, for the front of the queue.
    read: VecDeque<(Slot, Proposal)>,
}

/// Both sides of a queue with this memory limit.
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
    /// Sets the log.
    pub fn set_source(&self, archive: Arc<crate::store::Archive>) {
        self.0.source.set(archive);
    }

    /// Bytes of entries in memory, and number of entries that are only in the log.
    pub fn waiting(&self) -> (usize, usize) {
        let state = self.0.state();
        (state.len_bytes, state.in_log)
    }

    /// Queues an item.
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
    /// Waits for the next item. `None`: the queue has ended.
    ///
    /// # Errors
    /// The item is in the log, and reading it failed.
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
                // Only this thread removes items.
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

    /// The proposal in a slot, if it was read. Earlier ones are skipped: this server's own clients wait for them, or
    /// they have no effect.
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
