//! Queues with a memory limit. Beyond the limit an item is only in the log, where it is anyway.
//!
//! Items of such a queue are in memory, or are represented by their slots ([`Run`]). The consumer reads them from the
//! log a part at a time. A slot takes a few bytes, however long its item is.
//!
//! The log still has these items: a checkpoint replaces the log before it only after the server has applied that.

use crate::store::{Archive, StoreError};
use crate::write_set::Seqno;
use redoubt_codec::leb128;
use redoubt_consensus::message::Entries;
use redoubt_consensus::types::{Entry, Proposal, Slot};
use redoubt_locks::IgnorePoison;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// Default memory limit of the appliers' queue, in bytes.
pub const DEFAULT_LEN_BYTES: u64 = 64 << 20;
/// Length of one read in bytes.
const PART_LEN_BYTES: usize = 1 << 20;
const PART_COUNT: usize = 1024;

/// Reference to an item in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// Its slot.
    pub slot: Slot,
    /// Its position, if it has one by now.
    pub seqno: Seqno,
    /// Position up to which everything must be finished first.
    pub depends_on: Seqno,
}

/// A sequence of references.
#[derive(Debug, Default)]
pub struct Run {
    /// LEB128 numbers: distances of slot and position from those of the previous item, and of `depends_on` from the
    /// item's position.
    bytes: VecDeque<u8>,
    count: usize,
    first: Option<Named>,
    last: Option<Named>,
}

impl Run {
    /// Number of references.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first reference.
    pub const fn first(&self) -> Option<Named> {
        self.first
    }

    /// Appends a reference. Slots and positions ascend.
    pub fn push(&mut self, named: Named) {
        match self.last {
            None => self.first = Some(named),
            Some(last) => {
                self.put(named.slot.0 - last.slot.0);
                self.put((named.seqno.0 - last.seqno.0).unsigned_abs());
                self.put((named.seqno.0 - named.depends_on.0).unsigned_abs());
            }
        }
        self.last = Some(named);
        self.count += 1;
    }

    /// Removes the first reference.
    pub fn pop(&mut self) -> Option<Named> {
        let first = self.first.take()?;
        self.count -= 1;
        if self.count == 0 {
            *self = Self::default();
        } else {
            let slot = Slot(first.slot.0 + self.number());
            let seqno = Seqno(first.seqno.0 + self.number() as i64);
            let depends_on = Seqno(seqno.0 - self.number() as i64);
            self.first = Some(Named { slot, seqno, depends_on });
        }
        Some(first)
    }

    fn put(&mut self, number: u64) {
        leb128::put(number, |byte| self.bytes.push_back(byte));
    }

    fn number(&mut self) -> u64 {
        // Cannot fail: these are the bytes of `put`.
        leb128::take(|| self.bytes.pop_front()).unwrap_or_default()
    }
}

/// The log of the items, from its creation until the end of all reads: it is not closed before.
#[derive(Default)]
pub struct Source(Mutex<Option<Arc<Archive>>>);

impl Source {
    /// Sets the log.
    pub fn set(&self, archive: Arc<Archive>) {
        *self.archive() = Some(archive);
    }

    /// Releases the log.
    pub fn clear(&self) {
        *self.archive() = None;
    }

    /// Whether there is a log.
    pub fn is_set(&self) -> bool {
        self.archive().is_some()
    }

    fn archive(&self) -> MutexGuard<'_, Option<Arc<Archive>>> {
        self.0.lock().ignore_poison()
    }

    /// Chosen proposals from a slot on, in order: a part of the `count` wanted ones.
    ///
    /// # Errors
    /// The log is damaged. If it does not have the slot any more, that is a defect.
    pub fn read(&self, from: Slot, count: usize) -> Result<VecDeque<(Slot, Proposal)>, StoreError> {
        let archive = self.archive().clone().ok_or(StoreError::Gone(from))?;
        let entries = archive.read(from, count.min(PART_COUNT), PART_LEN_BYTES)?;
        let is_it = |entries: &Entries| entries.first().is_some_and(|(slot, _)| *slot == from);
        let entries = entries.filter(is_it).ok_or(StoreError::Gone(from))?;
        let proposals = entries.into_iter().filter_map(|(slot, entry)| match entry {
            Entry::Proposal(proposal) => Some((slot, proposal)),
            Entry::EpochStart(_) => None,
        });
        Ok(proposals.collect())
    }
}

#[cfg(test)]
mod tests;
