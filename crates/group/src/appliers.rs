//! What the server's receiver threads have to do, in the order in which it came.
//!
//! Invariants: the first thing is the beginning, by one thread alone, and nothing else is given out before it is done.
//! The last thing is the end, given to one thread after all that was given out is done; all others are told that there
//! is nothing more. (With the end the server drops what it has of unfinished transactions: what is applied then would
//! lack it.)

use crate::replica::{Known, View};
use crate::write_set::{Seqno, WriteSet};
use redoubt_consensus::types::{MemberId, ProposalId};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A thing to do.
#[derive(Debug)]
pub enum Item {
    /// Connect, and get the server's state if it has none.
    Begin,
    /// Apply it.
    WriteSet {
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
    items: VecDeque<Item>,
    /// Things that were given out and are not done.
    in_progress: usize,
}

/// See the module.
#[derive(Default)]
pub struct Appliers {
    state: Mutex<State>,
    changed: Condvar,
}

impl Appliers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more.
    pub fn push(&self, item: Item) {
        self.state().items.push_back(item);
        self.changed.notify_one();
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.state().items.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
    pub fn next(&self) -> Option<Item> {
        let mut state = self.state();
        loop {
            match state.phase {
                Phase::New => {
                    state.phase = Phase::Beginning;
                    state.in_progress += 1;
                    return Some(Item::Begin);
                }
                Phase::Begun => {
                    if let Some(item) = state.items.pop_front() {
                        state.in_progress += 1;
                        return Some(item);
                    }
                }
                Phase::Ending if state.in_progress == 0 => {
                    state.phase = Phase::Ended;
                    state.in_progress += 1;
                    self.changed.notify_all();
                    return Some(Item::End);
                }
                Phase::Ended => return None,
                Phase::Beginning | Phase::Ending => {}
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The beginning is done.
    pub fn begun(&self) {
        let mut state = self.state();
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
        let dropped = state.items.iter().filter_map(Item::seqno).min();
        if state.phase != Phase::Ended {
            state.phase = Phase::Ending;
        }
        state.items.clear();
        drop(state);
        self.changed.notify_all();
        dropped
    }
}
