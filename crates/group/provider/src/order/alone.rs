//! One of two members continues without the other one, if the operator allows it (`pc.ignore_sb`).
//!
//! Both of two members have every acknowledged commit, so losing one of them loses no data. But the remaining one
//! cannot tell whether the other is gone or only unreachable. If the other one continues as well, there are two
//! histories, and one of them will be lost. They then refuse to connect to each other ([`crate::history`]), and an
//! operator decides.
//!
//! A member continues alone only in an incarnation in which the other one has taken part. A freshly started member
//! cannot tell what the other one did alone meanwhile.
//!
//! Invariant: after this member's mark, nothing is accepted from a connection that was made before it.

use super::Order;
use super::hearing::DEPARTURE;
use crate::history::{Alone, History};
use crate::write_set::Action;
use redoubt_consensus::record::Record;
use redoubt_consensus::types::{Entry, MemberId, Proposal, Slot};
use std::collections::BTreeMap;

/// The mark in a proposal of a member that continued alone.
fn mark_in(proposal: &Proposal) -> Option<Alone> {
    if proposal.id.member != MemberId::NOBODY {
        return None;
    }
    match Action::decode(&proposal.body) {
        Ok(Action::Alone { member }) => {
            Some(Alone { member: MemberId(member), round: proposal.id.incarnation.0 })
        }
        _ => None,
    }
}

/// Marks in a member's log, including undelivered ones: everything before them is in the log, too.
#[derive(Default)]
pub struct Marks(BTreeMap<Slot, Alone>);

impl Marks {
    /// Adds the marks in the next record, and drops those that it replaces.
    pub fn take(&mut self, record: &Record) {
        for (slot, entry) in record.entries() {
            let mark = if let Entry::Proposal(proposal) = entry { mark_in(proposal) } else { None };
            // The entry of a later epoch counts.
            match mark {
                Some(mark) => self.0.insert(*slot, mark),
                None => self.0.remove(slot),
            };
        }
    }

    /// The given history, extended by these marks.
    pub fn after(self, history: &History) -> History {
        let mut history = history.clone();
        self.0.into_values().for_each(|mark| history.add(mark));
        history
    }
}

impl Order {
    /// Records the mark of a delivered proposal, if it has one.
    pub(super) fn note_alone(&mut self, proposal: &Proposal) {
        if let Some(mark) = mark_in(proposal) {
            self.parts.history.add(mark);
            self.parts.peers.set_history(&self.parts.history);
        }
    }

    /// The other one of two members, if this one is to continue without it.
    fn is_left_by(&self) -> Option<MemberId> {
        let (me, membership) = (self.member.id(), &self.member.epoch().membership);
        let mut others = membership.iter().filter(|member| *member != me);
        let (other, more) = (others.next()?, others.next());
        let is_one_of_two = membership.contains(me) && more.is_none();
        let may = self.parts.goes_on_alone && self.leaving_since.is_none() && !self.parts.peers.is_isolated();
        // The group lists this member as present, and ordering that took the other one's vote.
        let is_left = self.is_present() && !self.is_heard(other, DEPARTURE);
        (is_one_of_two && may && is_left).then_some(other)
    }

    /// Continues alone if the other one of two members is unreachable.
    pub(super) fn go_on_alone(&mut self) {
        let Some(other) = self.is_left_by() else { return };
        let member = self.member.id();
        let mark = Action::Alone { member: member.0 }.encode();
        let Some(round) = self.member.go_on_alone(mark.into()) else { return };
        self.parts.history.add(Alone { member, round });
        self.parts.peers.set_history(&self.parts.history);
        self.parts.peers.greet_again();
        self.not_greeted.insert(other);
        let text = format!(
            "{} does not answer: this server, the other one of two, continues alone (pc.ignore_sb). If {0} \
             continues alone, too, the group has two histories, and one of them will be lost",
            self.shown(other)
        );
        (self.parts.say)(false, text);
    }
}
