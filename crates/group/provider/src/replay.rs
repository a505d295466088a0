//! A member from the records of its store, which are read one after the other: what is delivered goes to its user as it
//! comes, and what is kept in memory has a limit.

use crate::store::{Records, Store, StoreError};
use redoubt_consensus::types::{Proposal, Slot, Time};
use redoubt_consensus::{Effect, Member, RecoverError, Recovery, Replayed, Settings};
use std::collections::VecDeque;

/// What an entry takes beside its body, about.
const ENTRY_LEN_BYTES: usize = 128;

/// Why it cannot be.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The records are none of a member.
    #[error("the group's log: {0}")]
    Recover(#[from] RecoverError),
    /// A snapshot, which needs a state of the user that nobody has.
    #[error("the group's log has a gap")]
    Gap,
}

/// What of the delivered a member keeps in memory for others.
pub struct Kept {
    entries: VecDeque<(Slot, usize)>,
    len_bytes: usize,
    limit_bytes: usize,
}

impl Kept {
    /// At most so many bytes.
    pub const fn new(limit_bytes: usize) -> Self {
        Self { entries: VecDeque::new(), len_bytes: 0, limit_bytes }
    }

    /// One more was delivered.
    pub fn push(&mut self, slot: Slot, body_len_bytes: usize) {
        let len_bytes = body_len_bytes + ENTRY_LEN_BYTES;
        self.entries.push_back((slot, len_bytes));
        self.len_bytes += len_bytes;
    }

    /// All before this is to be given up.
    pub fn give_up(&mut self) -> Option<Slot> {
        let mut before = None;
        while self.len_bytes > self.limit_bytes
            && let Some((slot, len_bytes)) = self.entries.pop_front()
        {
            self.len_bytes -= len_bytes;
            before = Some(slot.next());
        }
        before
    }
}

/// Takes in what is in the store. `deliver` is given what earlier lives had delivered since its checkpoint.
///
/// # Errors
/// [`ReplayError`].
pub fn replay<E: From<ReplayError>>(
    store: &Store,
    kept: &mut Kept,
    mut deliver: impl FnMut(Slot, Proposal) -> Result<(), E>,
) -> Result<Member, E> {
    let mut records: Records = store.records();
    let first = records.next().transpose().map_err(ReplayError::Store)?;
    let recovery = Recovery::new(store.identity().member, first, Settings::default(), Time(0));
    let mut recovery = recovery.map_err(ReplayError::Recover)?;
    for record in records {
        let record = record.map_err(ReplayError::Store)?;
        let Replayed { is_anew, effects } = recovery.take(record).map_err(ReplayError::Recover)?;
        if is_anew {
            return Err(ReplayError::Gap.into());
        }
        for effect in effects {
            match effect {
                Effect::Chosen(slots) => store.chosen_before(&slots).map_err(ReplayError::Store)?,
                Effect::Deliver { slot, proposal } => {
                    kept.push(slot, proposal.body.len());
                    deliver(slot, proposal)?;
                }
                _ => {}
            }
        }
        if let Some(before) = kept.give_up() {
            recovery.give_up(before);
        }
    }
    Ok(recovery.finish())
}
