//! What members tell each other. Any message may be lost, doubled, delayed or overtaken.

use crate::record::Snapshot;
use crate::types::{Ballot, Entry, EpochStart, Incarnation, MemberId, Proposal, Slot};
use std::sync::Arc;

/// Entries by slot.
pub type Entries = Vec<(Slot, Entry)>;

/// What one member thinks of another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// It would hold the others up if it owned slots.
    Bad,
    /// If it owns slots it may keep them.
    Keep,
    /// It may have slots.
    Good,
}

/// A vote about one life of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opinion {
    /// About whom.
    pub member: MemberId,
    /// In which of its lives.
    pub incarnation: Incarnation,
    /// The vote.
    pub verdict: Verdict,
}

/// The sender's own part of an epoch: what is in its slots from `from` to before `to`. Those without an entry are
/// skipped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turns {
    /// The first of the sender's slots that this tells of.
    pub from: Slot,
    /// The first of its slots that it does not tell of.
    pub to: Slot,
    /// What it proposes.
    pub entries: Entries,
}

/// What a member does all the time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Its life.
    pub incarnation: Incarnation,
    /// Its epoch.
    pub epoch: Ballot,
    /// Its own slots, if it owns any.
    pub turns: Option<Turns>,
    /// For each owner: up to which of its slots everything is durable here. `None` until the epoch itself is.
    pub acked: Option<Vec<Slot>>,
    /// All before this is delivered here.
    pub delivered: Slot,
    /// Whether it wants to own slots.
    pub is_willing: bool,
    /// What it thinks of the others. Empty in messages between two heartbeats.
    pub opinions: Vec<Opinion>,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// See [`Progress`].
    Progress(Progress),
    /// A candidate asks for the promise not to accept anything of earlier epochs.
    Prepare {
        /// The epoch it wants.
        ballot: Ballot,
        /// Epoch of its log.
        epoch: Ballot,
        /// What it has of each owner of that epoch.
        frontiers: Vec<Slot>,
        /// All before this is delivered there.
        delivered: Slot,
    },
    /// The promise, durable, with what the candidate does not have.
    Promise {
        /// The epoch that is promised.
        ballot: Ballot,
        /// Epoch of the log.
        epoch: Arc<EpochStart>,
        /// What it has of each owner of that epoch.
        frontiers: Vec<Slot>,
        /// All before this is delivered here.
        delivered: Slot,
        /// The epoch in which it was.
        settled: Ballot,
        /// What it has and the candidate has not: from the candidate's `delivered` on, or from its `frontiers` if the
        /// epochs are the same.
        entries: Entries,
    },
    /// Something else was promised.
    Refuse {
        /// The newest promise.
        promised: Ballot,
    },
    /// A new epoch, with everything before it from `from` on.
    Adopt {
        /// The epoch.
        start: Arc<EpochStart>,
        /// All before is delivered at the receiver.
        from: Slot,
        /// What lies between `from` and the start of the epoch.
        entries: Entries,
    },
    /// The sender would adopt this epoch, and has all before `delivered`.
    NeedPrefix {
        /// The epoch.
        ballot: Ballot,
        /// All before this is delivered there.
        delivered: Slot,
    },
    /// The sender asks for what was delivered from here on.
    Fetch {
        /// From here on.
        from: Slot,
    },
    /// What was delivered.
    Chosen {
        /// From here on.
        from: Slot,
        /// To before this slot.
        to: Slot,
        /// All that is in these slots.
        entries: Entries,
        /// No later epoch has had a say in it.
        as_of: Ballot,
    },
    /// What was asked for is not kept any more.
    GivenUp {
        /// The first slot that is.
        base: Slot,
    },
    /// Proposals of a member that owns no slots, in order.
    Forward {
        /// They.
        proposals: Vec<Proposal>,
    },
    /// How far must I have delivered to know everything that was chosen by now?
    BarrierAsk {
        /// Comes back.
        nonce: u64,
    },
    /// The answer of one acceptor.
    BarrierAnswer {
        /// That of the question.
        nonce: u64,
        /// Its epoch.
        epoch: Ballot,
        /// All entries that it has are before this slot.
        to: Slot,
    },
}

/// No slot and no round comes this far. Beyond it sums could overflow.
const LIMIT: u64 = 1 << 60;

impl Message {
    /// Whether all its numbers are such as a member uses. Any other message is to be dropped.
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
    /// Whether all its numbers are such as a member uses. Any other one, of another member, is to be dropped.
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
