//! What a member has to find again after it was stopped, in the order in which it happened.

use crate::message::{Entries, Turns};
use crate::origins::Origins;
use crate::types::{Ballot, EpochStart, Incarnation, Slot};
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
