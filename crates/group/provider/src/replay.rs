//! Recovers a member from its store, whose records are read one by one. Delivered proposals are passed on at once, and
//! retained ones have a memory limit.

use crate::store::{Records, Store, StoreError};
use redoubt_consensus::types::{Proposal, Slot, Time};
use redoubt_consensus::{Effect, Member, RecoverError, Recovery, Replayed, Settings};
use std::collections::VecDeque;

/// Approximate memory of an entry in addition to its body, in bytes.
const ENTRY_LEN_BYTES: usize = 128;

/// Reason why recovery fails.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The store is not readable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The records are not those of a member.
    #[error("the group's log: {0}")]
    Recover(#[from] RecoverError),
    /// A snapshot, for which the state is missing.
    #[error("the group's log has a gap")]
    Gap,
}

/// Delivered entries that a member retains in memory for others.
pub struct Kept {
    entries: VecDeque<(Slot, usize)>,
    len_bytes: usize,
    limit_bytes: usize,
}

impl Kept {
    /// Retains at most this many bytes.
    pub const fn new(limit_bytes: usize) -> Self {
        Self { entries: VecDeque::new(), len_bytes: 0, limit_bytes }
    }

    /// Adds a delivered entry.
    pub fn push(&mut self, slot: Slot, body_len_bytes: usize) {
        let len_bytes = body_len_bytes + ENTRY_LEN_BYTES;
        self.entries.push_back((slot, len_bytes));
        self.len_bytes += len_bytes;
    }

    /// Drops entries over the limit. Returns the slot before which all were dropped.
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

/// Recovers a member from its store. `deliver` receives the proposals that earlier incarnations delivered after the
/// checkpoint.
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
