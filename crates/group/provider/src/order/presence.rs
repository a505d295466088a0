//! Which servers are present: this one announces itself, and declares others gone after a long silence.
//!
//! Servers show this as the group's view. It is independent of slot ownership, which changes within milliseconds. A
//! server that was declared gone by mistake announces itself again.

use super::hearing::{DEPARTURE, Next};
use super::{Delivery, Order};
use crate::frame::Frame;
use crate::replica::Known;
use crate::write_set::{Action, Departure};
use redoubt_consensus::types::{Incarnation, MemberId, Membership};
use redoubt_locks::IgnorePoison;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time after which an ordered announcement is known to all members.
const KNOWN_AFTER: Duration = Duration::from_secs(1);

/// Whether the group lists this server as present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arriving {
    /// Not announced.
    Not,
    /// Announced, with the proposal of this number.
    Told {
        /// Number of the proposal.
        number: u64,
        /// Time of the proposal.
        at: Instant,
    },
    /// Announced and listed.
    Known,
}

/// Inputs of [`Arriving::next`].
#[derive(Clone, Copy, Debug)]
struct Signs {
    /// The group lists this incarnation of this server as present.
    is_present: bool,
    /// The member was without a quorum, and has one again.
    was_alone: bool,
    /// The server is leaving: no more announcements.
    is_leaving: bool,
    /// The announcement is not ordered yet.
    is_pending: bool,
    now: Instant,
}

impl Arriving {
    /// The next state. [`Arriving::Not`] requests an announcement, the first one or another one.
    fn next(self, signs: Signs) -> Self {
        match self {
            // All servers receive a view, this one with them.
            Self::Known if signs.was_alone => Self::Not,
            Self::Known if !signs.is_present && !signs.is_leaving => Self::Not,
            Self::Told { .. } if signs.is_present => Self::Known,
            // A departure that others had proposed before was ordered after it.
            Self::Told { at, .. } if !signs.is_pending && signs.now.duration_since(at) >= KNOWN_AFTER => {
                Self::Not
            }
            other => other,
        }
    }
}

impl Order {
    /// Announces this server to the group once this member is a voter, and again if another member declared it gone.
    pub(super) fn arrive(&mut self) {
        let is_present = self.is_present();
        self.parts.status.is_present.store(is_present, Ordering::Relaxed);
        if self.arrival == Arriving::Not && self.member.epoch().membership.contains(self.member.id()) {
            let number = self.propose(&Action::Arrived(self.parts.arrival.clone()));
            self.arrival = Arriving::Told { number, at: Instant::now() };
            return;
        }
        let is_known = self.arrival == Arriving::Known;
        self.arrival = self.arrival.next(Signs {
            is_present,
            was_alone: is_known && std::mem::take(&mut self.was_alone),
            is_leaving: self.leaving_since.is_some(),
            is_pending: matches!(self.arrival, Arriving::Told { number, .. } if self.own.contains_key(&number)),
            now: Instant::now(),
        });
    }

    pub(super) fn is_present(&self) -> bool {
        let me = (self.member.id(), self.member.incarnation());
        self.known().iter().any(|known| known.is_there() && (known.member, known.incarnation) == me)
    }

    pub(super) fn known(&self) -> Vec<Known> {
        self.parts.status.known.lock().ignore_poison().clone()
    }

    /// Declares servers gone that all members have found silent for long, if most of the others are reachable.
    pub(super) fn drop_absent(&mut self) {
        let me = self.member.id();
        let membership = self.member.epoch().membership.clone();
        let is_in_company = membership.is_majority(|id| self.is_heard(id, DEPARTURE / 2));
        self.hearing.set_in_company(is_in_company, Instant::now());
        if !is_in_company {
            return;
        }
        let others: Vec<Known> = self.known().into_iter().filter(|known| known.member != me).collect();
        for present in others {
            if membership.contains(present.member) {
                self.parts.peers.dial(&present.listen_address);
            }
            if !present.is_there() {
                continue;
            }
            match self.hearing.look_at(present.member, Instant::now()) {
                Next::Nothing => {}
                Next::Ask => {
                    let others = membership.iter().filter(|id| *id != me && *id != present.member);
                    others.for_each(|to| self.parts.peers.send(to, &Frame::WhoHears(present.member)));
                }
                Next::Gone => self.depart(present.member, present.incarnation),
            }
        }
    }

    /// Answers another member's question whether this one has contact with a member.
    pub(super) fn answer(&self, to: MemberId, member: MemberId) {
        if self.hearing.is_heard(member, DEPARTURE / 2, Instant::now()) {
            self.parts.peers.send(to, &Frame::Hears(member));
        }
    }

    pub(super) fn depart(&mut self, member: MemberId, incarnation: Incarnation) {
        self.propose(&Action::Departed(Departure { member: member.0, incarnation: incarnation.0 }));
    }

    pub(super) fn is_heard(&self, id: MemberId, within: Duration) -> bool {
        id == self.member.id() || self.hearing.is_heard(id, within, Instant::now())
    }

    /// Whether the member has this address.
    pub(super) fn was_at(&self, id: MemberId, address: &str) -> bool {
        self.known().iter().any(|known| known.member == id && known.listen_address == address)
    }

    /// Whether the member had this address and is unreachable.
    pub(super) fn is_gone_from(&self, id: MemberId, address: &str) -> bool {
        self.was_at(id, address) && !self.is_heard(id, DEPARTURE)
    }

    /// Removes the vote of a member that has lost its log: a newer member is at its address. The membership changes one
    /// step at a time; a failed attempt is repeated later.
    pub(super) fn remove_replaced(&mut self) {
        let membership = self.member.epoch().membership.clone();
        let is_replaced = |id: &MemberId| {
            let known = self.known();
            let own = known.iter().find(|known| known.member == *id);
            own.is_some_and(|own| {
                let is_newer = |other: &&Known| {
                    other.member != *id && other.is_there() && membership.contains(other.member)
                };
                let has_other =
                    known.iter().filter(is_newer).any(|other| other.listen_address == own.listen_address);
                !own.is_there() && has_other && !self.is_heard(*id, DEPARTURE)
            })
        };
        let stay = Membership::new(membership.iter().filter(|id| !is_replaced(id)));
        if stay != membership {
            let _ = self.member.change_membership(stay);
        }
    }

    /// Removes the vote of a server that is gone for good. That vote is missing until then, so most of the members must
    /// be reachable without it.
    ///
    /// # Errors
    /// The reason why it is impossible, for the operator.
    pub(super) fn remove(&mut self, name: &str) -> Result<(), String> {
        let membership = self.member.epoch().membership.clone();
        let known = self.known();
        let named: Vec<_> =
            known.iter().filter(|known| known.name == name && membership.contains(known.member)).collect();
        if named.is_empty() {
            let names: Vec<_> = membership.iter().map(|id| self.shown(id)).collect();
            return Err(format!("{name} is no member; the members are {}", names.join(", ")));
        }
        let is_gone = |known: &&&Known| !known.is_there() && !self.is_heard(known.member, DEPARTURE);
        let gone: Vec<_> = named.iter().filter(is_gone).map(|known| known.member).collect();
        if gone.is_empty() {
            return Err(format!("{name} is here: shut it down first"));
        }
        let stay = Membership::new(membership.iter().filter(|id| !gone.contains(id)));
        self.member.change_membership(stay).map_err(|error| error.to_string())?;
        gone.iter().for_each(|member| _ = self.propose(&Action::Removed { member: member.0 }));
        (self.parts.say)(false, format!("{name} is removed from the group, as was asked for"));
        Ok(())
    }

    /// Whether most of the members are reachable.
    pub(super) fn has_company(&self) -> bool {
        self.member.epoch().membership.is_majority(|id| self.is_heard(id, DEPARTURE))
    }

    /// Logs once that commits wait for other members, and once that they continue.
    pub(super) fn say_alone(&mut self) {
        let membership = self.member.epoch().membership.clone();
        let is_alone = !self.has_company();
        let has_said = self.parts.status.is_alone.load(Ordering::Relaxed);
        if is_alone && !has_said && self.began.elapsed() >= DEPARTURE {
            let (heard, missing): (Vec<_>, Vec<_>) =
                membership.iter().partition(|id| self.is_heard(*id, DEPARTURE));
            let all = heard.len() + missing.len();
            let missing: Vec<String> = missing.into_iter().map(|id| self.shown(id)).collect();
            (self.parts.say)(
                false,
                format!(
                    "commits wait: {} of {all} members are here, {} are needed; not heard: {}",
                    heard.len(),
                    all / 2 + 1,
                    missing.join(", ")
                ),
            );
            self.parts.status.is_alone.store(true, Ordering::Relaxed);
            let is_shown = |known: &Known| known.is_there() && self.is_heard(known.member, DEPARTURE);
            let here: Vec<Known> = self.known().into_iter().filter(is_shown).collect();
            if self.is_present() {
                self.parts.deliveries.send(Delivery::Alone { here });
            }
        } else if !is_alone && has_said {
            (self.parts.say)(false, "commits go on: most of the members are here".into());
            self.parts.status.is_alone.store(false, Ordering::Relaxed);
            self.was_alone = true;
        }
    }

    /// Display text of a member: its name and address if they are known.
    pub(super) fn shown(&self, id: MemberId) -> String {
        let known = self.known();
        let known = known.iter().find(|known| known.member == id);
        known.map_or_else(
            || format!("member {id}"),
            |known| format!("{} ({})", known.name, known.listen_address),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_taken_for_gone_between_two_looks_says_again_that_it_is_there() {
        let at = Instant::now();
        let told = Arriving::Told { number: 7, at };
        let signs =
            Signs { is_present: false, was_alone: false, is_leaving: false, is_pending: true, now: at };
        let later = at + KNOWN_AFTER;
        assert_eq!(told.next(Signs { now: later, ..signs }), told, "it is on its way");
        let ordered = Signs { is_pending: false, ..signs };
        assert_eq!(told.next(ordered), told, "what follows from it comes a moment later");
        assert_eq!(told.next(Signs { is_present: true, ..ordered }), Arriving::Known);
        assert_eq!(told.next(Signs { now: later, ..ordered }), Arriving::Not, "it came, and was undone");
    }

    #[test]
    fn one_that_is_known_says_it_again_after_it_was_alone_or_taken_for_gone() {
        let now = Instant::now();
        let signs = Signs { is_present: true, was_alone: false, is_leaving: false, is_pending: false, now };
        assert_eq!(Arriving::Known.next(signs), Arriving::Known);
        assert_eq!(Arriving::Known.next(Signs { was_alone: true, ..signs }), Arriving::Not);
        let gone = Signs { is_present: false, ..signs };
        assert_eq!(Arriving::Known.next(gone), Arriving::Not);
        assert_eq!(Arriving::Known.next(Signs { is_leaving: true, ..gone }), Arriving::Known);
    }
}
