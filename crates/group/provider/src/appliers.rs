//! Work queue of the server's receiver threads, in order.
//!
//! Write sets are in memory up to a limit. The others are read from the log again when they are due, a part at a time,
//! by one of the threads while the others wait ([`crate::backlog`]).
//!
//! Invariants: the first item is [`Item::Begin`]; one thread processes it, and no other item is handed out before it is
//! done. The last item is [`Item::End`], which one thread receives after all other items are done; the other threads
//! receive `None`. (At the end the server drops its unfinished transactions: an item applied during that would lack
//! them.)

use crate::backlog::{DEFAULT_LEN_BYTES, Named, Run, Source};
use crate::replica::{Known, View};
use crate::store::StoreError;
use crate::write_set::{Action, Seqno, WriteSet};
use redoubt_consensus::types::{MemberId, Proposal, ProposalId, Slot};
use redoubt_locks::IgnorePoison;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

/// Work for a receiver thread.
#[derive(Debug)]
pub enum Item {
    /// Connects, and requests a state transfer if the server has no state.
    Begin,
    /// Applies a write set.
    WriteSet {
        /// Its slot.
        slot: Slot,
        /// Its proposal.
        id: ProposalId,
        /// Its position.
        seqno: Seqno,
        /// Position up to which everything must be finished first.
        depends_on: Seqno,
        /// The write set.
        write_set: WriteSet,
    },
    /// Reports a view to the server.
    View(View),
    /// Reports to the server that most of the members are unreachable.
    Alone {
        /// Position up to which everything must be finished first.
        ordered: Seqno,
        /// The reachable members.
        here: Vec<Known>,
    },
    /// Reports the server as synced.
    Synced {
        /// Position up to which everything must be finished first.
        seqno: Seqno,
    },
    /// Sends the server's state to a member.
    Donate {
        /// The requesting member.
        to: MemberId,
        /// The request of its server.
        request: Vec<u8>,
    },
    /// Leaves the group.
    End,
}

impl Item {
    /// Its position, if it has one.
    const fn seqno(&self) -> Option<Seqno> {
        match self {
            Self::WriteSet { seqno, .. } => Some(*seqno),
            Self::View(view) => Some(view.seqno),
            Self::Begin | Self::Alone { .. } | Self::Synced { .. } | Self::Donate { .. } | Self::End => None,
        }
    }

    /// Its approximate memory in bytes.
    const fn len_bytes(&self) -> usize {
        match self {
            Self::WriteSet { write_set, .. } => ITEM_LEN_BYTES + write_set.data.len(),
            _ => ITEM_LEN_BYTES,
        }
    }
}

/// Memory of an item in addition to its data, in bytes.
const ITEM_LEN_BYTES: usize = 192;

/// An item in memory, or a run of items in the log.
enum Queued {
    Here(Item),
    InLog(Run),
}

#[derive(Default, PartialEq, Eq)]
enum Phase {
    #[default]
    New,
    Beginning,
    Begun,
    Ending,
    Ended,
}

#[derive(Default)]
struct State {
    phase: Phase,
    was_begun: bool,
    /// Number of items that were handed out and are not done.
    in_progress: usize,
    queue: VecDeque<Queued>,
    /// Memory of the queued items, in bytes.
    len_bytes: usize,
    /// Number of items that are only in the log.
    in_log: usize,
    /// The server has everything up to here, so these items are not read again.
    start: Seqno,
    /// One of the threads reads the log.
    is_reading: bool,
}

impl State {
    fn push_named(&mut self, named: Named) {
        self.in_log += 1;
        if let Some(Queued::InLog(run)) = self.queue.back_mut() {
            return run.push(named);
        }
        let mut run = Run::default();
        run.push(named);
        self.queue.push_back(Queued::InLog(run));
    }

    fn pop(&mut self) -> Option<Item> {
        self.queue.front().filter(|queued| matches!(queued, Queued::Here(_)))?;
        let Some(Queued::Here(item)) = self.queue.pop_front() else { return None };
        self.len_bytes -= item.len_bytes();
        Some(item)
    }

    /// The part of the log that is needed next: its first slot, and the number of items.
    fn wanted(&mut self) -> Option<(Slot, usize)> {
        let Some(Queued::InLog(run)) = self.queue.front_mut() else { return None };
        while run.len() > 1 && run.first().is_some_and(|first| first.seqno <= self.start) {
            run.pop();
            self.in_log -= 1;
        }
        run.first().map(|first| (first.slot, run.len()))
    }

    /// Replaces names at the front of the queue by the items that were read.
    fn put_back(&mut self, mut read: VecDeque<(Slot, Proposal)>) -> Result<(), StoreError> {
        let Some(Queued::InLog(mut run)) = self.queue.pop_front() else { return Ok(()) };
        let mut items = Vec::new();
        while let Some(first) = run.first()
            && let Some((slot, proposal)) = read.pop_front()
        {
            if slot == first.slot {
                items.push(item(first, &proposal)?);
                run.pop();
                self.in_log -= 1;
            } else if slot > first.slot {
                return Err(StoreError::Gone(first.slot));
            }
        }
        if !run.is_empty() {
            self.queue.push_front(Queued::InLog(run));
        }
        self.len_bytes += items.iter().map(Item::len_bytes).sum::<usize>();
        items.into_iter().rev().for_each(|item| self.queue.push_front(Queued::Here(item)));
        Ok(())
    }
}

fn item(named: Named, proposal: &Proposal) -> Result<Item, StoreError> {
    let Named { slot, seqno, depends_on } = named;
    match Action::decode(&proposal.body) {
        Ok(Action::WriteSet(write_set)) => {
            Ok(Item::WriteSet { slot, id: proposal.id, seqno, depends_on, write_set })
        }
        // It was a write set when it was ordered.
        _ => Err(StoreError::Gone(slot)),
    }
}

/// Work queue of the server's receiver threads.
pub struct Appliers {
    state: Mutex<State>,
    changed: Condvar,
    limit_bytes: AtomicUsize,
    /// The log, with the items that are not in memory.
    pub source: Source,
}

impl Default for Appliers {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            limit_bytes: AtomicUsize::new(DEFAULT_LEN_BYTES as usize),
            source: Source::default(),
        }
    }
}

/// Size of the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Number of items.
    pub count: usize,
    /// Number of items that are only in the log.
    pub in_log: usize,
    /// Memory of the other items, in bytes.
    pub len_bytes: usize,
}

impl Appliers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// Limits the memory of the queue.
    pub fn limit(&self, len_bytes: u64) {
        self.limit_bytes.store(usize::try_from(len_bytes).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// Queues an item.
    pub fn push(&self, item: Item) {
        let len_bytes = item.len_bytes();
        let mut state = self.state();
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let is_too_much = state.len_bytes + len_bytes > limit_bytes && state.len_bytes > 0;
        match item {
            Item::WriteSet { slot, seqno, depends_on, .. } if is_too_much && self.source.is_set() => {
                state.push_named(Named { slot, seqno, depends_on });
            }
            item => {
                state.len_bytes += len_bytes;
                state.queue.push_back(Queued::Here(item));
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Size of the queue.
    pub fn waiting(&self) -> Waiting {
        let state = self.state();
        let runs = state.queue.iter().filter(|queued| matches!(queued, Queued::InLog(_))).count();
        let count = state.queue.len() - runs + state.in_log;
        Waiting { count, in_log: state.in_log, len_bytes: state.len_bytes }
    }

    /// Marks an item as done.
    pub fn done(&self) {
        let mut state = self.state();
        state.in_progress = state.in_progress.saturating_sub(1);
        let is_waited_for = state.in_progress == 0 && state.phase == Phase::Ending;
        drop(state);
        if is_waited_for {
            self.changed.notify_all();
        }
    }

    /// Waits for the next item, after which [`Appliers::done`] has to be called. `None`: the queue has ended.
    ///
    /// # Errors
    /// The item is in the log, and reading it failed.
    pub fn next(&self) -> Result<Option<Item>, StoreError> {
        let mut state = self.state();
        loop {
            match state.phase {
                Phase::New => {
                    state.phase = Phase::Beginning;
                    state.in_progress += 1;
                    return Ok(Some(Item::Begin));
                }
                Phase::Begun => {
                    if let Some(item) = state.pop() {
                        state.in_progress += 1;
                        return Ok(Some(item));
                    }
                    if let Some((from, count)) = state.wanted().filter(|_| !state.is_reading) {
                        state = self.read(state, from, count)?;
                        continue;
                    }
                }
                Phase::Ending if state.in_progress == 0 => {
                    state.phase = Phase::Ended;
                    state.in_progress += 1;
                    self.changed.notify_all();
                    return Ok(Some(Item::End));
                }
                Phase::Ended => return Ok(None),
                Phase::Beginning | Phase::Ending => {}
            }
            state = self.changed.wait(state).ignore_poison();
        }
    }

    /// Reads a part of the log for the front of the queue.
    fn read<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        from: Slot,
        count: usize,
    ) -> Result<MutexGuard<'a, State>, StoreError> {
        state.is_reading = true;
        drop(state);
        let read = self.source.read(from, count);
        state = self.state();
        state.is_reading = false;
        // Unless the queue has ended meanwhile.
        let done = match read {
            Ok(read) if state.phase == Phase::Begun => state.put_back(read),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        self.changed.notify_all();
        done.map(|()| state)
    }

    /// Begins normal work: the server has everything up to `start`.
    pub fn begun(&self, start: Seqno) {
        let mut state = self.state();
        state.start = start;
        if state.phase == Phase::Beginning {
            state.phase = Phase::Begun;
            state.was_begun = true;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Whether items are processed as soon as a thread is free.
    pub fn has_begun(&self) -> bool {
        self.state().phase == Phase::Begun
    }

    /// Whether the work ever began.
    pub fn was_begun(&self) -> bool {
        self.state().was_begun
    }

    /// Ends the queue: queued items are dropped. Returns the first dropped position.
    pub fn end(&self) -> Option<Seqno> {
        let mut state = self.state();
        let first = |queued: &Queued| match queued {
            Queued::Here(item) => item.seqno(),
            Queued::InLog(run) => run.first().map(|first| first.seqno),
        };
        let dropped = state.queue.iter().filter_map(first).min();
        if state.phase != Phase::Ended {
            state.phase = Phase::Ending;
        }
        state.queue.clear();
        (state.len_bytes, state.in_log) = (0, 0);
        drop(state);
        self.source.clear();
        self.changed.notify_all();
        dropped
    }
}

#[cfg(test)]
mod tests;
