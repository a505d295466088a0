//! Clean shutdown of members, and their return.
//!
//! A member that has left would still count for the majority, as a crashed one does. It is removed from the membership
//! where this lets the others continue with fewer votes. So the last of several servers continues alone, as does the
//! remaining one of two whose data differed. A leaving member waits until its vote is no longer needed for that change.
//!
//! A returned member first receives the missing proposals. The others make it a voter once it has almost all of them,
//! so commits do not wait for its catch-up. A member that was removed by name is not added again.
//!
//! The present and staying member with the lowest id proposes the change.

use super::Order;
use super::hearing::DEPARTURE;
use crate::replica::{Known, Presence};
use redoubt_consensus::types::{Incarnation, MemberId, Membership};

/// The membership without members that have left, if the others then need fewer votes, and have them.
fn without_left(membership: &Membership, present: &[MemberId], left: &[MemberId]) -> Option<Membership> {
    let stay = membership.iter().count().checked_sub(left.len())?;
    // An even number of members needs as many votes as one member more.
    let kept = left.len().min(usize::from(stay.is_multiple_of(2)));
    let dropped = &left[kept..];
    let fewer = Membership::new(membership.iter().filter(|member| !dropped.contains(member)));
    (!dropped.is_empty() && fewer.is_majority(|member| present.contains(&member))).then_some(fewer)
}

impl Order {
    /// The newest known incarnation of a member.
    fn life_of(&self, member: MemberId) -> Incarnation {
        let greeted = self.greeted.get(&member).copied().unwrap_or_default();
        greeted.max(self.member.incarnation_of(member))
    }

    fn has_left(&self, known: &Known) -> bool {
        known.presence == Presence::Left && self.life_of(known.member) <= known.incarnation
    }

    /// The membership that is to follow because some members have left.
    fn without_left(&self) -> Option<Membership> {
        let membership = &self.member.epoch().membership;
        let known = self.known();
        let ids = |is: &dyn Fn(&Known) -> bool| -> Vec<MemberId> {
            let members = known.iter().filter(|known| membership.contains(known.member) && is(known));
            members.map(|known| known.member).collect()
        };
        let present = ids(&|known| known.is_there() && self.is_heard(known.member, DEPARTURE / 2));
        without_left(membership, &present, &ids(&|known| self.has_left(known)))
    }

    /// Whether this member is the first reachable one.
    fn is_first_of(&self, members: &Membership) -> bool {
        members.iter().find(|member| self.is_heard(*member, DEPARTURE / 2)) == Some(self.member.id())
    }

    /// Proposes to remove members that have left.
    pub(super) fn drop_left(&mut self) {
        let Some(fewer) = self.without_left().filter(|fewer| self.is_first_of(fewer)) else { return };
        // Leaving members have to agree, too.
        let membership = self.member.epoch().membership.clone();
        if self.leaving_since.is_none() && membership.is_majority(|id| self.is_heard(id, DEPARTURE / 2)) {
            // A failed attempt is repeated later.
            let _ = self.member.change_membership(fewer);
        }
    }

    /// Whether the others need this leaving member for a change of the membership.
    pub(super) fn is_needed_to_leave(&self) -> bool {
        let me = self.member.id();
        match self.member.epoch().membership.contains(me) {
            true => self.without_left().is_some_and(|fewer| !fewer.contains(me)),
            false => !self.member.has_left(),
        }
    }

    /// Lets returned members catch up, and makes them voters again when they have.
    pub(super) fn take_back(&mut self) {
        // Before this, the last ordered removals may be missing here.
        if !self.is_present() {
            return;
        }
        let membership = self.member.epoch().membership.clone();
        let is_back = |known: &&Known| {
            let is_taken_back = match known.presence {
                Presence::There | Presence::Away => true,
                Presence::Left => self.life_of(known.member) > known.incarnation,
                Presence::Gone => false,
            };
            is_taken_back && !membership.contains(known.member) && self.is_heard(known.member, DEPARTURE)
        };
        let back: Vec<_> = self.known().iter().filter(is_back).map(|known| known.member).collect();
        self.member.set_listeners(Membership::new(back.iter().copied()));
        let ready = Membership::new(back.into_iter().filter(|member| self.member.is_caught_up(*member)));
        if !ready.is_empty() && self.leaving_since.is_none() && self.is_first_of(&membership) {
            let _ = self.member.change_membership(membership.union(&ready));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u64]) -> Vec<MemberId> {
        ids.iter().copied().map(MemberId).collect()
    }

    fn fewer(members: &[u64], present: &[u64], left: &[u64]) -> Option<Vec<u64>> {
        let fewer = without_left(&Membership::new(ids(members)), &ids(present), &ids(left))?;
        Some(fewer.iter().map(|member| member.0).collect())
    }

    #[test]
    fn who_has_left_counts_no_more_where_the_others_need_fewer_votes_then() {
        assert_eq!(fewer(&[1, 2], &[1, 2], &[]), None);
        assert_eq!(fewer(&[1, 2], &[1], &[2]), Some(vec![1]), "one goes on alone");
        assert_eq!(fewer(&[1, 2, 3], &[1, 2], &[3]), None, "of two as many are needed as of three");
        assert_eq!(fewer(&[1, 2, 3], &[1], &[2, 3]), Some(vec![1]), "the last one goes on");
        assert_eq!(fewer(&[1, 2, 3, 4], &[1, 2, 4], &[3]), Some(vec![1, 2, 4]), "of three one may fail");
        assert_eq!(fewer(&[1, 2, 3, 4], &[1, 4], &[2, 3]), Some(vec![1, 2, 4]), "as many as without both");
        assert_eq!(fewer(&[1, 2, 3, 4, 5], &[1, 2, 3, 4], &[5]), None);
        assert_eq!(fewer(&[1, 2, 3, 4, 5], &[1, 2, 3], &[4, 5]), Some(vec![1, 2, 3]));
    }

    #[test]
    fn who_has_not_left_counts_on() {
        assert_eq!(fewer(&[1, 2, 3], &[1], &[2]), None, "the third one has crashed");
        assert_eq!(fewer(&[1, 2, 3, 4], &[1, 2], &[3]), Some(vec![1, 2, 4]), "with two of three it goes on");
        assert_eq!(
            fewer(&[1, 2, 3, 4], &[1], &[3]),
            None,
            "two have crashed, one alone is not most of three"
        );
        assert_eq!(fewer(&[1, 2], &[], &[1, 2]), None, "all have left: all come back");
    }
}
