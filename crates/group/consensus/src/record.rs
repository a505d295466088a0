//! What a member has to find again after it was stopped, in the order in which it happened.

use crate::message::{Entries, Turns};
use crate::origins::Origins;
use crate::types::{Ballot, Entry, EpochStart, Incarnation, Slot};
use std::sync::Arc;

/// How many records were written: names the state that was durable when so many were.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct RecordCount(pub u64);

/// Everything before a slot, except for what the entries there mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// All before this slot is in it.
    pub next: Slot,
    /// The epoch at that slot.
    pub epoch: Arc<EpochStart>,
    /// Which proposals were delivered.
    pub origins: Origins,
    /// No later epoch has had a say in what is before the slot.
    pub as_of: Ballot,
}

/// A record of a member's store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// The member was started.
    Started(Incarnation),
    /// Nothing of an epoch before this one is accepted any more.
    Promised(Ballot),
    /// All before a slot is known, and its entries are not kept.
    Snapshot(Snapshot),
    /// An epoch began.
    Adopted {
        /// The epoch.
        start: Arc<EpochStart>,
        /// All before was delivered.
        from: Slot,
        /// What lies between `from` and the start.
        entries: Entries,
    },
    /// An owner's part of the epoch, new from `turns.from` on.
    Accepted {
        /// The epoch.
        epoch: Ballot,
        /// Place of the owner.
        owner: usize,
        /// Its part.
        turns: Turns,
    },
    /// What others had delivered from `from` to before `to`.
    Chosen {
        /// From here on.
        from: Slot,
        /// To before this.
        to: Slot,
        /// All that is in these slots.
        entries: Entries,
    },
    /// All before this slot is chosen. Saves work at the next start; nothing depends on it.
    Delivered(Slot),
}

impl Record {
    /// Slots of which it has an entry.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        let start = match self {
            Self::Adopted { start, .. } => Some(start.slot),
            _ => None,
        };
        self.entries().iter().map(|(slot, _)| *slot).chain(start)
    }

    /// The entry that it has of a slot.
    pub fn entry_at(&self, slot: Slot) -> Option<Entry> {
        if let Self::Adopted { start, .. } = self
            && start.slot == slot
        {
            return Some(Entry::EpochStart(Arc::clone(start)));
        }
        let entries = self.entries();
        // In order of their slots, whoever wrote it.
        let at = entries.binary_search_by_key(&slot, |(slot, _)| *slot);
        let entry = match at {
            Ok(at) => entries.get(at),
            Err(_) => entries.iter().find(|(of, _)| *of == slot),
        };
        entry.map(|(_, entry)| entry.clone())
    }

    /// Entries that it has, but for the start of an epoch.
    pub fn entries(&self) -> &[(Slot, Entry)] {
        match self {
            Self::Adopted { entries, .. } | Self::Chosen { entries, .. } => entries,
            Self::Accepted { turns, .. } => &turns.entries,
            Self::Started(_) | Self::Promised(_) | Self::Snapshot(_) | Self::Delivered(_) => &[],
        }
    }
}
