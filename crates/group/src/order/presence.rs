//! Which servers are there: this one says that it is, those that are not heard for long are said not to be.
//!
//! This is what the servers show as the group's view. It has nothing to do with who owns slots, which changes within
//! milliseconds; a server that is said to have gone though it has not says again that it is there.

use super::{Delivery, Order};
use crate::replica::Known;
use crate::write_set::{Action, Departure};
use redoubt_consensus::types::{Incarnation, MemberId, Membership};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A server that is not heard for so long is not there any more.
pub(super) const DEPARTURE: Duration = Duration::from_secs(3);

/// Whether the group knows that this server is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Arriving {
    /// It was not told.
    Not,
    /// It was told.
    Told,
    /// It knows.
    Known,
}

impl Order {
    /// Tells the group that this server is there, once the group knows this member; and again if somebody thought that
    /// it had gone.
    pub(super) fn arrive(&mut self) {
        let is_present = self.is_present();
        self.parts.status.is_present.store(is_present, Ordering::Relaxed);
        self.arrival = match self.arrival {
            // Most of the members are here again: all servers get a view, this one with the others.
            Arriving::Known if std::mem::take(&mut self.was_alone) => Arriving::Not,
            Arriving::Not if self.member.epoch().membership.contains(self.member.id()) => {
                self.propose(&Action::Arrived(self.parts.arrival.clone()));
                Arriving::Told
            }
            Arriving::Told if is_present => Arriving::Known,
            Arriving::Known if !is_present && self.leaving_since.is_none() => Arriving::Not,
            other => other,
        };
    }

    pub(super) fn is_present(&self) -> bool {
        let me = (self.member.id(), self.member.incarnation());
        self.known().iter().any(|known| known.is_there() && (known.member, known.incarnation) == me)
    }

    pub(super) fn known(&self) -> Vec<Known> {
        self.parts.status.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Servers that were not heard for long are not there, if most of the others are.
    pub(super) fn drop_absent(&mut self) {
        let me = self.member.id();
        let membership = self.member.epoch().membership.clone();
        if !membership.is_majority(|id| self.is_heard(id, DEPARTURE / 2)) {
            return;
        }
        let others: Vec<Known> = self.known().into_iter().filter(|known| known.member != me).collect();
        self.departing.retain(|_, since| since.elapsed() < DEPARTURE);
        for present in others {
            if membership.contains(present.member) {
                self.parts.peers.dial(&present.listen_address);
            }
            if !present.is_there() {
                continue;
            }
            let heard = *self.heard.entry(present.member).or_insert_with(Instant::now);
            if heard.elapsed() >= DEPARTURE && !self.departing.contains_key(&present.member) {
                self.departing.insert(present.member, Instant::now());
                self.depart(present.member, present.incarnation);
            }
        }
    }

    pub(super) fn depart(&mut self, member: MemberId, incarnation: Incarnation) {
        self.propose(&Action::Departed(Departure { member: member.0, incarnation: incarnation.0 }));
    }

    pub(super) fn is_heard(&self, id: MemberId, within: Duration) -> bool {
        id == self.member.id() || self.heard.get(&id).is_some_and(|at| at.elapsed() < within)
    }

    /// Whether a member was at this address and is not heard.
    pub(super) fn is_gone_from(&self, id: MemberId, address: &str) -> bool {
        let was_there =
            self.known().iter().any(|known| known.member == id && known.listen_address == address);
        was_there && !self.is_heard(id, DEPARTURE)
    }

    /// A member that has lost its log votes no more: there is a newer one at its address. Members are changed one change at
    /// a time; what cannot be done now is tried again.
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

    /// A server that is gone for good votes no more. Its votes are missing until then, so most of the members have to be
    /// here without it.
    ///
    /// # Errors
    /// Why it cannot be done, for people.
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
        gone.iter().for_each(|member| self.propose(&Action::Removed { member: member.0 }));
        (self.parts.say)(false, format!("{name} is removed from the group, as was asked for"));
        Ok(())
    }

    /// Says that commits wait for others, once, and that they go on.
    pub(super) fn say_alone(&mut self) {
        let membership = self.member.epoch().membership.clone();
        let is_alone = !membership.is_majority(|id| self.is_heard(id, DEPARTURE));
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
                let _ = self.parts.deliveries.send(Delivery::Alone { here });
            }
        } else if !is_alone && has_said {
            (self.parts.say)(false, "commits go on: most of the members are here".into());
            self.parts.status.is_alone.store(false, Ordering::Relaxed);
            self.was_alone = true;
        }
    }

    /// A member, for people: by its name if it has one.
    fn shown(&self, id: MemberId) -> String {
        let known = self.known();
        let known = known.iter().find(|known| known.member == id);
        known.map_or_else(
            || format!("member {id}"),
            |known| format!("{} ({})", known.name, known.listen_address),
        )
    }
}
