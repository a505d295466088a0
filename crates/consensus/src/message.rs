//! What members tell each other. Any message may be lost, doubled, delayed or overtaken.

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

/// The sender's own part of an epoch: what is in its slots from `from` to before `to`. Those without an entry are skipped.
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
