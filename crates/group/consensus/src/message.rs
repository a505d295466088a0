//! Messages between members. Any message may be lost, duplicated, delayed or reordered.

use crate::record::Snapshot;
use crate::types::{Ballot, Entry, EpochStart, Incarnation, MemberId, Proposal, Slot};
use std::sync::Arc;

/// Entries by slot.
pub type Entries = Vec<(Slot, Entry)>;

/// One member's judgement of another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// The member would hold the others up if it owned slots.
    Bad,
    /// The member may keep its slots if it owns any.
    Keep,
    /// The member may get slots.
    Good,
}

/// A vote about one incarnation of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opinion {
    /// Member that the vote is about.
    pub member: MemberId,
    /// Incarnation of that member.
    pub incarnation: Incarnation,
    /// The vote.
    pub verdict: Verdict,
}

/// The sender's own part of an epoch: the content of its slots from `from` to before `to`. Slots without an entry are
/// skipped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turns {
    /// First of the sender's slots that this covers.
    pub from: Slot,
    /// First of the sender's slots after those that this covers.
    pub to: Slot,
    /// Proposals of the sender.
    pub entries: Entries,
}

/// State that every member sends regularly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Incarnation of the sender.
    pub incarnation: Incarnation,
    /// Epoch of the sender.
    pub epoch: Ballot,
    /// The sender's own slots, if it owns any.
    pub turns: Option<Turns>,
    /// For each owner, the slot before which all of its slots are durable here. `None` until the epoch itself is
    /// durable.
    pub acked: Option<Vec<Slot>>,
    /// All slots before this one are delivered here.
    pub delivered: Slot,
    /// Whether the sender accepts slots.
    pub is_willing: bool,
    /// The sender's votes about the others. Empty in messages between two heartbeats.
    pub opinions: Vec<Opinion>,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Regular state of a member.
    Progress(Progress),
    /// A candidate asks for the promise not to accept anything of earlier epochs.
    Prepare {
        /// The epoch that the candidate proposes.
        ballot: Ballot,
        /// Epoch of the candidate's log.
        epoch: Ballot,
        /// For each owner of that epoch, the slot up to which the candidate has its part.
        frontiers: Vec<Slot>,
        /// All slots before this one are delivered at the candidate.
        delivered: Slot,
    },
    /// The promise, durable, with the entries that the candidate does not have.
    Promise {
        /// The promised epoch.
        ballot: Ballot,
        /// Epoch of the log of the member that promises.
        epoch: Arc<EpochStart>,
        /// For each owner of that epoch, the slot up to which this member has its part.
        frontiers: Vec<Slot>,
        /// All slots before this one are delivered here.
        delivered: Slot,
        /// The epoch in which they were chosen.
        settled: Ballot,
        /// Entries that the candidate does not have: from the candidate's `delivered` on, or from its `frontiers` if
        /// the epochs are the same.
        entries: Entries,
    },
    /// Rejects a candidate: the member has promised a later ballot.
    Refuse {
        /// The newest promise.
        promised: Ballot,
    },
    /// A new epoch, with everything before it from `from` on.
    Adopt {
        /// The epoch.
        start: Arc<EpochStart>,
        /// All slots before this one are delivered at the receiver.
        from: Slot,
        /// Entries between `from` and the start of the epoch.
        entries: Entries,
    },
    /// The sender would adopt this epoch, and has all slots before `delivered`.
    NeedPrefix {
        /// The epoch.
        ballot: Ballot,
        /// All slots before this one are delivered at the sender.
        delivered: Slot,
    },
    /// The sender asks for the delivered entries from a slot on.
    Fetch {
        /// First slot that the sender asks for.
        from: Slot,
    },
    /// Delivered entries.
    Chosen {
        /// First slot that this covers.
        from: Slot,
        /// First slot after those that this covers.
        to: Slot,
        /// All entries of these slots.
        entries: Entries,
        /// Ballot bound: no later epoch influenced these entries.
        as_of: Ballot,
    },
    /// The requested entries are no longer available.
    GivenUp {
        /// The first slot that is available.
        base: Slot,
    },
    /// Proposals of a member that owns no slots, in order.
    Forward {
        /// The proposals.
        proposals: Vec<Proposal>,
    },
    /// Question to an acceptor: how far must I have delivered to have everything that is chosen by now?
    BarrierAsk {
        /// Number that the answer repeats.
        nonce: u64,
    },
    /// The answer of one acceptor.
    BarrierAnswer {
        /// Nonce of the question.
        nonce: u64,
        /// Epoch of the acceptor.
        epoch: Ballot,
        /// All entries of the acceptor are before this slot.
        to: Slot,
    },
}

/// Limit of slots and rounds. Sums of larger numbers could overflow.
const LIMIT: u64 = 1 << 60;

impl Message {
    /// Whether all its numbers are in the range that members use. The receiver drops any other message.
    pub fn is_sane(&self) -> bool {
        match self {
            Self::Progress(progress) => {
                is_ballot(progress.epoch)
                    && is_slot(progress.delivered)
                    && progress.acked.iter().flatten().all(|slot| is_slot(*slot))
                    && progress.turns.as_ref().is_none_or(|turns| {
                        is_slot(turns.from) && is_slot(turns.to) && are_entries(&turns.entries)
                    })
            }
            Self::Prepare { ballot, epoch, frontiers, delivered } => {
                is_ballot(*ballot)
                    && is_ballot(*epoch)
                    && is_slot(*delivered)
                    && frontiers.iter().all(|slot| is_slot(*slot))
            }
            Self::Promise { ballot, epoch, frontiers, delivered, settled, entries } => {
                is_ballot(*ballot)
                    && is_epoch(epoch)
                    && is_ballot(*settled)
                    && is_slot(*delivered)
                    && frontiers.len() == epoch.owners.len()
                    && frontiers.iter().all(|slot| is_slot(*slot))
                    && are_entries(entries)
            }
            Self::Refuse { promised } => is_ballot(*promised),
            Self::Adopt { start, from, entries } => is_epoch(start) && is_slot(*from) && are_entries(entries),
            Self::NeedPrefix { ballot, delivered } => is_ballot(*ballot) && is_slot(*delivered),
            Self::Fetch { from } => is_slot(*from),
            Self::Chosen { from, to, entries, as_of } => {
                is_slot(*from) && is_slot(*to) && are_entries(entries) && is_ballot(*as_of)
            }
            Self::GivenUp { base } => is_slot(*base),
            Self::Forward { .. } | Self::BarrierAsk { .. } => true,
            Self::BarrierAnswer { epoch, to, .. } => is_ballot(*epoch) && is_slot(*to),
        }
    }
}

impl Snapshot {
    /// Whether all its numbers are in the range that members use. A snapshot of another member that fails this is
    /// dropped.
    pub fn is_sane(&self) -> bool {
        is_slot(self.next) && is_epoch(&self.epoch) && self.epoch.slot < self.next && is_ballot(self.as_of)
    }
}

const fn is_slot(slot: Slot) -> bool {
    slot.0 < LIMIT
}

const fn is_ballot(ballot: Ballot) -> bool {
    ballot.round < LIMIT
}

fn is_epoch(epoch: &EpochStart) -> bool {
    is_ballot(epoch.ballot) && is_slot(epoch.slot) && !epoch.membership.is_empty()
}

fn are_entries(entries: &[(Slot, Entry)]) -> bool {
    entries.iter().all(|(slot, entry)| {
        is_slot(*slot)
            && match entry {
                Entry::Proposal(_) => true,
                Entry::EpochStart(start) => is_epoch(start) && start.slot == *slot,
            }
    })
}
