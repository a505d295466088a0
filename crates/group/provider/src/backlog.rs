//! What waits for this server: in memory up to a limit, and beyond it in the log alone, where it is anyway.
//!
//! A queue in which things are in memory or only named by their slots ([`Run`]). Who takes from it reads what comes next
//! a part at a time. A name takes some bytes, however long what it names is.
//!
//! The log keeps it: a checkpoint takes the place of what was before only once the server has applied that.

use crate::store::{Archive, StoreError};
use crate::write_set::Seqno;
use redoubt_codec::leb128;
use redoubt_consensus::message::Entries;
use redoubt_consensus::types::{Entry, Proposal, Slot};
use redoubt_locks::IgnorePoison;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// What waits for the server's appliers, in bytes, if nothing else is said.
pub const DEFAULT_LEN_BYTES: u64 = 64 << 20;
/// What is read at a time.
const PART_LEN_BYTES: usize = 1 << 20;
const PART_COUNT: usize = 1024;

/// What is known of something that is in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// Where it is.
    pub slot: Slot,
    /// Its position, if it has one by now.
    pub seqno: Seqno,
    /// What has to be finished before it.
    pub depends_on: Seqno,
}

/// Named things, one after the other.
#[derive(Debug, Default)]
pub struct Run {
    /// LEB128 numbers: by how much slot and position are after those of the one before; by how much what it depends on is
    /// before its position.
    bytes: VecDeque<u8>,
    count: usize,
    first: Option<Named>,
    last: Option<Named>,
}

impl Run {
    /// How many.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first one.
    pub const fn first(&self) -> Option<Named> {
        self.first
    }

    /// One more. Slots and positions ascend.
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

    /// Takes the first one out.
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
        // Not possible to fail: these are the bytes of `put`.
        leb128::take(|| self.bytes.pop_front()).unwrap_or_default()
    }
}

/// The log that they are in, from when there is one until nothing is read any more: it is not closed before.
#[derive(Default)]
pub struct Source(Mutex<Option<Arc<Archive>>>);

impl Source {
    /// It is this one.
    pub fn set(&self, archive: Arc<Archive>) {
        *self.archive() = Some(archive);
    }

    /// Nothing is read any more.
    pub fn clear(&self) {
        *self.archive() = None;
    }

    /// Whether there is one.
    pub fn is_set(&self) -> bool {
        self.archive().is_some()
    }

    fn archive(&self) -> MutexGuard<'_, Option<Arc<Archive>>> {
        self.0.lock().ignore_poison()
    }

    /// Some of what was chosen from a slot on, in order, of `count` that are wanted.
    ///
    /// # Errors
    /// It is damaged. That it is not kept any more would be a defect.
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
