//! Delivered proposals of each member, so that each is delivered once and in order.
//!
//! A proposal may be in the order several times: its member proposes it again when an epoch ends before it was chosen.
//! It may also have been both forwarded and read again from a store. The first one with the number after the last
//! delivered number counts. All others are ignored, by every member alike, because this depends on the order alone.
//!
//! The mark of a member that continued alone belongs to no member. Its incarnation is the round of the epoch, which
//! only grows.

use crate::types::{EpochStart, Incarnation, MemberId, Membership, ProposalId};
use std::collections::BTreeMap;

/// The last delivered proposal of each member.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Origins {
    /// The last incarnation and number of every current and former member: a former member may return.
    last: BTreeMap<MemberId, (Incarnation, u64)>,
    members: Membership,
}

impl Origins {
    /// Builds the state from the results of [`Origins::iter`] and [`Origins::members`].
    pub(crate) fn from_parts(
        last: impl IntoIterator<Item = (MemberId, Incarnation, u64)>,
        members: Membership,
    ) -> Self {
        let last = last.into_iter().map(|(member, incarnation, number)| (member, (incarnation, number)));
        Self { last: last.collect(), members }
    }

    /// The last incarnation with a counted proposal and its last number, for each member that ever had one, in member
    /// order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (MemberId, Incarnation, u64)> + '_ {
        self.last.iter().map(|(member, (incarnation, number))| (*member, *incarnation, *number))
    }

    /// Members whose proposals count.
    pub(crate) const fn members(&self) -> &Membership {
        &self.members
    }

    /// Takes the next entry of the order. Returns whether it counts.
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

    /// Restricts the counted proposals to those of the epoch's members.
    pub fn begin(&mut self, start: &EpochStart) {
        self.members.clone_from(&start.membership);
    }

    /// Number of the last counted proposal of an incarnation of a member.
    pub fn last(&self, member: MemberId, incarnation: Incarnation) -> u64 {
        let last = self.last.get(&member).filter(|(found, _)| *found == incarnation);
        last.map_or(0, |(_, number)| *number)
    }
}
