//! What the server's receiver threads have to do, in the order in which it came.
//!
//! Write sets are in memory up to a limit. Those that are more are read from the log again when their turn comes, a part
//! at a time, by one of the threads while the others wait ([`crate::backlog`]).
//!
//! Invariants: the first thing is the beginning, by one thread alone, and nothing else is given out before it is done.
//! The last thing is the end, given to one thread after all that was given out is done; all others are told that there
//! is nothing more. (With the end the server drops what it has of unfinished transactions: what is applied then would
//! lack it.)

use crate::backlog::{DEFAULT_LEN_BYTES, Named, Run, Source};
use crate::replica::{Known, View};
use crate::store::StoreError;
use crate::write_set::{Action, Seqno, WriteSet};
use redoubt_consensus::types::{MemberId, Proposal, ProposalId, Slot};
use redoubt_locks::IgnorePoison;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

/// A thing to do.
#[derive(Debug)]
pub enum Item {
    /// Connect, and get the server's state if it has none.
    Begin,
    /// Apply it.
    WriteSet {
        /// Its place in the order.
        slot: Slot,
        /// Where it comes from.
        id: ProposalId,
        /// Its position.
        seqno: Seqno,
        /// What has to be finished before it.
        depends_on: Seqno,
        /// It.
        write_set: WriteSet,
    },
    /// Tell the server.
    View(View),
    /// Tell the server that most of the members are not here.
    Alone {
        /// After all that was ordered.
        ordered: Seqno,
        /// Those that are.
        here: Vec<Known>,
    },
    /// Tell the server that it has all up to here.
    Synced {
        /// Up to here.
        seqno: Seqno,
    },
    /// Send the server's state to a member.
    Donate {
        /// Who wants it.
        to: MemberId,
        /// What the server made of it there.
        request: Vec<u8>,
    },
    /// Leave.
    End,
}

impl Item {
    /// Its place, if it has one.
    const fn seqno(&self) -> Option<Seqno> {
        match self {
            Self::WriteSet { seqno, .. } => Some(*seqno),
            Self::View(view) => Some(view.seqno),
            Self::Begin | Self::Alone { .. } | Self::Synced { .. } | Self::Donate { .. } | Self::End => None,
        }
    }

    /// What it takes of memory, about.
    const fn len_bytes(&self) -> usize {
        match self {
            Self::WriteSet { write_set, .. } => ITEM_LEN_BYTES + write_set.data.len(),
            _ => ITEM_LEN_BYTES,
        }
    }
}

/// What an item takes beside the data.
const ITEM_LEN_BYTES: usize = 192;

/// One thing, or several that are in the log.
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
    /// Things that were given out and are not done.
    in_progress: usize,
    queue: VecDeque<Queued>,
    /// Of what is in memory.
    len_bytes: usize,
    /// How many are in the log alone.
    in_log: usize,
    /// The server has all up to here: it is not read again.
    start: Seqno,
    /// One of the threads reads.
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

    /// What is to be read before anything else can be done: from where on, and how many.
    fn wanted(&mut self) -> Option<(Slot, usize)> {
        let Some(Queued::InLog(run)) = self.queue.front_mut() else { return None };
        while run.len() > 1 && run.first().is_some_and(|first| first.seqno <= self.start) {
            run.pop();
            self.in_log -= 1;
        }
        run.first().map(|first| (first.slot, run.len()))
    }

    /// What was read takes the place of its names.
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
        // It was one when it was ordered.
        _ => Err(StoreError::Gone(slot)),
    }
}

/// See the module.
pub struct Appliers {
    state: Mutex<State>,
    changed: Condvar,
    limit_bytes: AtomicUsize,
    /// Where the rest is.
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

/// What waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// How many.
    pub count: usize,
    /// Of those, how many are in the log alone.
    pub in_log: usize,
    /// What the others take of memory.
    pub len_bytes: usize,
}

impl Appliers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// At most so many bytes wait in memory.
    pub fn limit(&self, len_bytes: u64) {
        self.limit_bytes.store(usize::try_from(len_bytes).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// One more.
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

    /// What waits.
    pub fn waiting(&self) -> Waiting {
        let state = self.state();
        let runs = state.queue.iter().filter(|queued| matches!(queued, Queued::InLog(_))).count();
        let count = state.queue.len() - runs + state.in_log;
        Waiting { count, in_log: state.in_log, len_bytes: state.len_bytes }
    }

    /// What was given out is done.
    pub fn done(&self) {
        let mut state = self.state();
        state.in_progress = state.in_progress.saturating_sub(1);
        let is_waited_for = state.in_progress == 0 && state.phase == Phase::Ending;
        drop(state);
        if is_waited_for {
            self.changed.notify_all();
        }
    }

    /// The next one; waits for it, and [`Appliers::done`] is to be called after it. `None`: there is nothing more.
    ///
    /// # Errors
    /// It is in the log, and cannot be read.
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

    /// Reads some of what comes next.
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
        // Unless it has ended meanwhile.
        let done = match read {
            Ok(read) if state.phase == Phase::Begun => state.put_back(read),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        self.changed.notify_all();
        done.map(|()| state)
    }

    /// The beginning is done: the server has all up to `start`.
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

    /// Whether it is: what is pushed is done as soon as a thread has time.
    pub fn has_begun(&self) -> bool {
        self.state().phase == Phase::Begun
    }

    /// Whether it ever was.
    pub fn was_begun(&self) -> bool {
        self.state().was_begun
    }

    /// No more: what waits is dropped. The first place of what is.
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
