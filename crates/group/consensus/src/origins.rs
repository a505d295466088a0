//! Which proposals of each member were delivered, so that each is once, and in order.
//!
//! A proposal may be in the order several times: its member proposes it again when an epoch ends before it was chosen,
//! and it may have been both handed on and found again. What counts is the first that comes in turn: the one with the
//! number after the last. All others count as nothing, for every member alike, because this depends on the order alone.
//!
//! The mark of a member that went on alone is in no member's turn: its life is the round of the epoch, which only grows.

use crate::types::{EpochStart, Incarnation, MemberId, Membership, ProposalId};
use std::collections::BTreeMap;

/// Which proposals of each member were delivered, so that each is once, and in order.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Origins {
    /// Of all that ever were members: one may come back.
    last: BTreeMap<MemberId, (Incarnation, u64)>,
    members: Membership,
}

impl Origins {
    /// From what [`Origins::iter`] and [`Origins::members`] gave.
    pub(crate) fn from_parts(
        last: impl IntoIterator<Item = (MemberId, Incarnation, u64)>,
        members: Membership,
    ) -> Self {
        let last = last.into_iter().map(|(member, incarnation, number)| (member, (incarnation, number)));
        Self { last: last.collect(), members }
    }

    /// Of each member that ever had a proposal its last life that did, and the number of the last one of that life, by
    /// member.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (MemberId, Incarnation, u64)> + '_ {
        self.last.iter().map(|(member, (incarnation, number))| (*member, *incarnation, *number))
    }

    /// Whose proposals count.
    pub(crate) const fn members(&self) -> &Membership {
        &self.members
    }

    /// Takes the next entry of the order. Whether it counts.
    pub fn take(&mut self, id: ProposalId) -> bool {
        if id.member != MemberId::NOBODY && !self.members.contains(id.member) {
            return false;
        }
        let (incarnation, last) = self.last.entry(id.member).or_default();
        if id.incarnation > *incarnation && id.number == 1 {
            (*incarnation, *last) = (id.incarnation, 1);
            return true;
        }
        let is_next = id.incarnation == *incarnation && id.number == *last + 1;
        if is_next {
            *last = id.number;
        }
        is_next
    }

    /// Only members have proposals that count.
    pub fn begin(&mut self, start: &EpochStart) {
        self.members.clone_from(&start.membership);
    }

    /// Number of the last proposal of a life of a member that counted.
    pub fn last(&self, member: MemberId, incarnation: Incarnation) -> u64 {
        let last = self.last.get(&member).filter(|(found, _)| *found == incarnation);
        last.map_or(0, |(_, number)| *number)
    }
}
