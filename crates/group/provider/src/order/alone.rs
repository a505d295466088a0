//! Of two members one goes on without the other, if an operator wants that (`pc.ignore_sb`).
//!
//! Of two, both have every commit that was acknowledged, so nothing is lost when one of them is. But the one that goes on
//! cannot tell whether the other one is gone or only not to be heard; if that one goes on, too, there are two histories
//! of which one is lost. Then they do not speak to each other any more ([`crate::history`]), and a person decides.
//!
//! It goes on alone only in a life in which the other one has had a part: one that was just started does not know what
//! the other one did alone meanwhile.
//!
//! Invariant: from the mark of this member on, nothing is taken in of a connection that was made before it.

use super::Order;
use super::hearing::DEPARTURE;
use crate::history::{Alone, History};
use crate::write_set::Action;
use redoubt_consensus::record::Record;
use redoubt_consensus::types::{Entry, MemberId, Proposal, Slot};
use std::collections::BTreeMap;

/// The mark of a member that went on alone, if this is one.
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

/// Marks in a member's log, also what it has not delivered: all that comes before them is there, too.
#[derive(Default)]
pub struct Marks(BTreeMap<Slot, Alone>);

impl Marks {
    /// From the next record.
    pub fn take(&mut self, record: &Record) {
        for (slot, entry) in record.entries() {
            let mark = if let Entry::Proposal(proposal) = entry { mark_in(proposal) } else { None };
            // What a later epoch has put there counts.
            match mark {
                Some(mark) => self.0.insert(*slot, mark),
                None => self.0.remove(slot),
            };
        }
    }

    /// What was there before, and these.
    pub fn after(self, history: &History) -> History {
        let mut history = history.clone();
        self.0.into_values().for_each(|mark| history.add(mark));
        history
    }
}

impl Order {
    /// Something is delivered.
    pub(super) fn note_alone(&mut self, proposal: &Proposal) {
        if let Some(mark) = mark_in(proposal) {
            self.parts.history.add(mark);
            self.parts.peers.set_history(&self.parts.history);
        }
    }

    /// The other one of two, if this one is to go on without it.
    fn is_left_by(&self) -> Option<MemberId> {
        let (me, membership) = (self.member.id(), &self.member.epoch().membership);
        let mut others = membership.iter().filter(|member| *member != me);
        let (other, more) = (others.next()?, others.next());
        let is_one_of_two = membership.contains(me) && more.is_none();
        let may = self.parts.goes_on_alone && self.leaving_since.is_none() && !self.parts.peers.is_isolated();
        // Its arrival is in the order, for which the other one was needed.
        let is_left = self.is_present() && !self.is_heard(other, DEPARTURE);
        (is_one_of_two && may && is_left).then_some(other)
    }

    /// Goes on without the other one of two, if that is not heard.
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
