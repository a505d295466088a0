//! The numbers and names of the protocol, a type for each.

use std::fmt;
use std::sync::Arc;

/// A place in the total order. Every slot holds one entry or nothing (it was skipped).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Slot(pub u64);

/// A member for as long as its store lives: one that has lost its store comes back with another id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct MemberId(pub u64);

impl MemberId {
    /// No member: whose proposal the mark is of one that goes on alone.
    pub const NOBODY: Self = Self(0);
}

/// How often a member was started, counted in its store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Incarnation(pub u64);

/// Microseconds of a clock of the member's own that never goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time(pub u64);

/// Names an epoch, and orders epochs. No two candidates have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Ballot {
    /// Counts up.
    pub round: u64,
    /// Who asked for the epoch.
    pub candidate: MemberId,
}

/// Names a proposal. Those of one incarnation are numbered from 1 and delivered in this order, each once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProposalId {
    /// Who made it.
    pub member: MemberId,
    /// In which of its lives.
    pub incarnation: Incarnation,
    /// Its number.
    pub number: u64,
}

/// What a member wants to have ordered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// Its name.
    pub id: ProposalId,
    /// Opaque.
    pub body: Arc<[u8]>,
}

/// A life of a member that owns slots.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner {
    /// The member.
    pub member: MemberId,
    /// Its life. A member that was restarted owns nothing: it does not know what it had sent.
    pub incarnation: Incarnation,
}

/// Who accepts, sorted.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Membership(Vec<MemberId>);

/// The first entry of an epoch: who accepts, and whose turn each later slot is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EpochStart {
    /// The epoch.
    pub ballot: Ballot,
    /// The slot that this entry is in.
    pub slot: Slot,
    /// Of the epoch before that was chosen last. This entry is chosen when a majority of both have it.
    pub previous: Membership,
    /// Who accepts from here on.
    pub membership: Membership,
    /// Owners of the later slots, in turn.
    pub owners: Vec<Owner>,
}

/// Content of a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Of a member.
    Proposal(Proposal),
    /// A new epoch.
    EpochStart(Arc<EpochStart>),
}

impl Slot {
    /// The slot after it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Entry {
    /// What it takes of a message, about.
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Proposal(proposal) => 32 + proposal.body.len(),
            Self::EpochStart(start) => 64 + 16 * (start.owners.len() + start.voters().iter().count()),
        }
    }
}

impl Time {
    /// Microseconds since `earlier`, 0 if that is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.round, self.candidate)
    }
}

impl Membership {
    /// These members, each once.
    pub fn new(members: impl IntoIterator<Item = MemberId>) -> Self {
        let mut members: Vec<_> = members.into_iter().collect();
        members.sort_unstable();
        members.dedup();
        Self(members)
    }

    /// These members, if they ascend and none comes twice.
    pub(crate) fn from_ascending(members: Vec<MemberId>) -> Option<Self> {
        members.is_sorted_by(|member, next| member < next).then_some(Self(members))
    }

    /// In order.
    pub(crate) fn as_slice(&self) -> &[MemberId] {
        &self.0
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.0.iter().copied()
    }

    /// Whether it is one of them.
    pub fn contains(&self, member: MemberId) -> bool {
        self.0.binary_search(&member).is_ok()
    }

    /// Whether those that `has` says are more than half.
    pub fn is_majority(&self, has: impl Fn(MemberId) -> bool) -> bool {
        2 * self.iter().filter(|member| has(*member)).count() > self.0.len()
    }

    /// These and those.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::new(self.iter().chain(other.iter()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl EpochStart {
    /// Before anything was proposed: nobody owns a slot, so that the first thing to happen is an epoch.
    pub fn founding(founders: Membership) -> Self {
        Self {
            ballot: Ballot::default(),
            slot: Slot(0),
            previous: founders.clone(),
            membership: founders,
            owners: Vec::new(),
        }
    }

    /// Whose turn a later slot is: place in `owners`.
    pub fn owner_of(&self, slot: Slot) -> Option<usize> {
        let after = slot.0.checked_sub(self.slot.0 + 1)?;
        after.checked_rem(self.owners.len() as u64).map(|owner| owner as usize)
    }

    /// The first slot of an owner that is not before `slot`.
    pub fn turn(&self, owner: usize, slot: Slot) -> Slot {
        let count = self.owners.len() as u64;
        let first = self.slot.0 + 1 + owner as u64;
        let rounds = slot.0.saturating_sub(first).div_ceil(count);
        Slot(first + rounds * count)
    }

    /// Place of a life of a member in `owners`.
    pub fn place(&self, owner: Owner) -> Option<usize> {
        self.owners.iter().position(|other| *other == owner)
    }

    /// All whose agreement the epoch needs to begin.
    pub fn voters(&self) -> Membership {
        self.previous.union(&self.membership)
    }
}
