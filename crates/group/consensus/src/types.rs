//! The numbers and names of the protocol, a type for each.

use std::fmt;
use std::sync::Arc;

/// A position in the total order. Every slot holds one entry, or none if it was skipped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Slot(pub u64);

/// A member for the lifetime of its store. A member that lost its store gets a new id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct MemberId(pub u64);

impl MemberId {
    /// No member: marks the proposal of a member that continues alone.
    pub const NOBODY: Self = Self(0);
}

/// Number of times that a member was started, counted in its store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Incarnation(pub u64);

/// Microseconds of a clock of the member's own that never goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time(pub u64);

/// Identifies an epoch, and orders epochs. No two candidates use the same ballot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Ballot {
    /// Counter that increases with each candidacy.
    pub round: u64,
    /// Member that asked for the epoch.
    pub candidate: MemberId,
}

/// Identifies a proposal. Proposals of one incarnation are numbered from 1 and delivered in this order, each once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProposalId {
    /// Member that made the proposal.
    pub member: MemberId,
    /// Incarnation of that member.
    pub incarnation: Incarnation,
    /// Number of the proposal, from 1.
    pub number: u64,
}

/// Data that a member proposes for the total order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// Identifier of the proposal.
    pub id: ProposalId,
    /// Opaque content.
    pub body: Arc<[u8]>,
}

/// An incarnation of a member that owns slots.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner {
    /// The member.
    pub member: MemberId,
    /// Its incarnation. A restarted member owns no slots, because it does not know what it had sent.
    pub incarnation: Incarnation,
}

/// Members that accept entries, sorted.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Membership(Vec<MemberId>);

/// The first entry of an epoch: its acceptors, and the owners of the later slots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EpochStart {
    /// The epoch.
    pub ballot: Ballot,
    /// The slot that this entry is in.
    pub slot: Slot,
    /// Membership of the previous chosen epoch. This entry is chosen when a majority of both memberships has it.
    pub previous: Membership,
    /// Members that accept from here on.
    pub membership: Membership,
    /// Owners of the later slots, in rotation.
    pub owners: Vec<Owner>,
}

/// Content of a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A proposal of a member.
    Proposal(Proposal),
    /// A new epoch.
    EpochStart(Arc<EpochStart>),
}

impl Slot {
    /// The following slot.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Entry {
    /// Approximate size of the entry in a message, in bytes.
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Proposal(proposal) => 32 + proposal.body.len(),
            Self::EpochStart(start) => 64 + 16 * (start.owners.len() + start.voters().iter().count()),
        }
    }
}

impl Time {
    /// Microseconds since `earlier`, or 0 if `earlier` is later.
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
    /// Builds a membership that contains each of these members once.
    pub fn new(members: impl IntoIterator<Item = MemberId>) -> Self {
        let mut members: Vec<_> = members.into_iter().collect();
        members.sort_unstable();
        members.dedup();
        Self(members)
    }

    /// Builds a membership if these members are in strictly ascending order.
    pub(crate) fn from_ascending(members: Vec<MemberId>) -> Option<Self> {
        members.is_sorted_by(|member, next| member < next).then_some(Self(members))
    }

    /// The members in ascending order.
    pub(crate) fn as_slice(&self) -> &[MemberId] {
        &self.0
    }

    /// Iterates over the members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.0.iter().copied()
    }

    /// Whether `member` belongs to the membership.
    pub fn contains(&self, member: MemberId) -> bool {
        self.0.binary_search(&member).is_ok()
    }

    /// Whether more than half of the members satisfy `has`.
    pub fn is_majority(&self, has: impl Fn(MemberId) -> bool) -> bool {
        2 * self.iter().filter(|member| has(*member)).count() > self.0.len()
    }

    /// The members of both memberships.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::new(self.iter().chain(other.iter()))
    }

    /// Whether the membership has no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl EpochStart {
    /// The epoch before the first proposal. No member owns a slot, so the members have to begin an epoch first.
    pub fn founding(founders: Membership) -> Self {
        Self {
            ballot: Ballot::default(),
            slot: Slot(0),
            previous: founders.clone(),
            membership: founders,
            owners: Vec::new(),
        }
    }

    /// Index in `owners` of the owner of a later slot.
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

    /// Index of an incarnation of a member in `owners`.
    pub fn place(&self, owner: Owner) -> Option<usize> {
        self.owners.iter().position(|other| *other == owner)
    }

    /// All members whose agreement the epoch needs to begin.
    pub fn voters(&self) -> Membership {
        self.previous.union(&self.membership)
    }
}
