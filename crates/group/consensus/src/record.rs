//! Records that a member reads again after a restart, in the order in which they were written.

use crate::message::{Entries, Turns};
use crate::origins::Origins;
use crate::types::{Ballot, Entry, EpochStart, Incarnation, Slot};
use std::sync::Arc;

/// Number of written records. It identifies the durable state at that number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct RecordCount(pub u64);

/// State before a slot, except for the meaning of the entries there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The snapshot covers all slots before this one.
    pub next: Slot,
    /// The epoch at that slot.
    pub epoch: Arc<EpochStart>,
    /// Number of the last delivered proposal of each member.
    pub origins: Origins,
    /// Ballot bound: no later epoch influenced the slots before `next`.
    pub as_of: Ballot,
}

/// A record of a member's store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// The member was started.
    Started(Incarnation),
    /// The member no longer accepts anything of an epoch before this ballot.
    Promised(Ballot),
    /// All slots before a slot are known, and their entries are not retained.
    Snapshot(Snapshot),
    /// An epoch began.
    Adopted {
        /// The epoch.
        start: Arc<EpochStart>,
        /// All slots before this one were delivered.
        from: Slot,
        /// Entries between `from` and the start.
        entries: Entries,
    },
    /// An owner's part of the epoch, new from `turns.from` on.
    Accepted {
        /// The epoch.
        epoch: Ballot,
        /// Index of the owner.
        owner: usize,
        /// Its part.
        turns: Turns,
    },
    /// Entries that other members had delivered, from `from` to before `to`.
    Chosen {
        /// First slot that this covers.
        from: Slot,
        /// First slot after those that this covers.
        to: Slot,
        /// All entries of these slots.
        entries: Entries,
    },
    /// All slots before this one are chosen. The record saves work at the next start; nothing depends on it.
    Delivered(Slot),
}

impl Record {
    /// Slots whose entries are in this record.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        let start = match self {
            Self::Adopted { start, .. } => Some(start.slot),
            _ => None,
        };
        self.entries().iter().map(|(slot, _)| *slot).chain(start)
    }

    /// The entry of a slot in this record.
    pub fn entry_at(&self, slot: Slot) -> Option<Entry> {
        if let Self::Adopted { start, .. } = self
            && start.slot == slot
        {
            return Some(Entry::EpochStart(Arc::clone(start)));
        }
        let entries = self.entries();
        // Every writer puts entries in slot order.
        let at = entries.binary_search_by_key(&slot, |(slot, _)| *slot);
        let entry = match at {
            Ok(at) => entries.get(at),
            Err(_) => entries.iter().find(|(of, _)| *of == slot),
        };
        entry.map(|(_, entry)| entry.clone())
    }

    /// Entries of this record, without the start of an epoch.
    pub fn entries(&self) -> &[(Slot, Entry)] {
        match self {
            Self::Adopted { entries, .. } | Self::Chosen { entries, .. } => entries,
            Self::Accepted { turns, .. } => &turns.entries,
            Self::Started(_) | Self::Promised(_) | Self::Snapshot(_) | Self::Delivered(_) => &[],
        }
    }
}
