//! Members that are not in the group yet: newcomers that ask this member, and this member itself.

use super::checkpoints::Purpose;
use super::hearing::DEPARTURE;
use super::{Event, Input, Order, Parts};
use crate::frame::Frame;
use crate::replica::{Replica, ReplicaError};
use crate::store::{Identity, Store, StoreError};
use redoubt_consensus::record::Record;
use redoubt_consensus::types::{MemberId, Membership, Time};
use redoubt_consensus::{Member, RecoverError, Settings};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Interval at which a snapshot is sent to a newcomer again.
const AGAIN: Duration = Duration::from_secs(2);
/// Time after which a newcomer is forgotten. A connected one that has to wait is not, as it greets only once.
const FORGOTTEN: Duration = Duration::from_secs(60);

struct Newcomer {
    address: String,
    since: Instant,
    told_at: Option<Instant>,
    /// It has to wait, which was logged.
    waits: bool,
    is_lost: bool,
}

/// Newcomers that have greeted this member.
#[derive(Default)]
pub struct Newcomers(BTreeMap<MemberId, Newcomer>);

impl Newcomers {
    /// Adds a newcomer that has greeted this member.
    pub fn greeted(&mut self, member: MemberId, address: String) {
        let waits = self.0.get(&member).is_some_and(|before| before.waits);
        self.0.insert(
            member,
            Newcomer { address, since: Instant::now(), told_at: None, waits, is_lost: false },
        );
    }

    /// Records that the connection of a newcomer ended. It greets again if it is still running.
    pub fn lost(&mut self, member: MemberId) {
        if let Some(newcomer) = self.0.get_mut(&member) {
            newcomer.is_lost = true;
        }
    }

    /// Records that a newcomer has to wait. Returns whether that is new.
    pub fn waits(&mut self, member: MemberId) -> bool {
        self.0.get_mut(&member).is_some_and(|newcomer| !std::mem::replace(&mut newcomer.waits, true))
    }

    /// Removes a newcomer that has all that it needs.
    pub fn is_in(&mut self, member: MemberId) {
        self.0.remove(&member);
    }

    /// Newcomers that are due for a snapshot, with their addresses.
    pub fn due(&mut self) -> Vec<(MemberId, String)> {
        self.0.retain(|_, newcomer| {
            newcomer.since.elapsed() < FORGOTTEN || (newcomer.waits && !newcomer.is_lost)
        });
        let is_due = |newcomer: &Newcomer| newcomer.told_at.is_none_or(|at| at.elapsed() >= AGAIN);
        let mut due = Vec::new();
        for (member, newcomer) in self.0.iter_mut().filter(|(_, newcomer)| is_due(newcomer)) {
            newcomer.told_at = Some(Instant::now());
            due.push((*member, newcomer.address.clone()));
        }
        due
    }
}

impl Order {
    /// Adds newcomers to the membership and sends them a snapshot. A newcomer replaces a member that was at its address
    /// and is unreachable: that one has lost its log.
    ///
    /// A member without a quorum sends none, nor does one that is not a voter yet. A snapshot binds the newcomer to
    /// that history for good, and the newcomer may have asked the members of another history as well.
    pub(super) fn take_in_newcomers(&mut self) {
        let membership = self.member.epoch().membership.clone();
        for (member, address) in self.newcomers.due() {
            if !membership.contains(member)
                && let Some(reason) = self.why_it_waits(&membership, &address)
            {
                if self.newcomers.waits(member) {
                    (self.parts.say)(
                        false,
                        format!("{address} asks to be a member: it has to wait, for {reason}"),
                    );
                }
                continue;
            }
            if !membership.contains(member) {
                let is_replaced = |id: &MemberId| self.is_gone_from(*id, &address);
                let stay = membership.iter().filter(|id| !is_replaced(id));
                let with_it = Membership::new(stay.chain([member]));
                // A failed attempt is repeated later.
                let _ = self.member.change_membership(with_it);
            }
            let snapshot = self.member.snapshot();
            self.ask_for_state(snapshot.next, Purpose::Newcomer(member, snapshot));
        }
    }

    /// The reason why a newcomer at this address has to wait, if any. A second member at one address is rejected: both
    /// would count, and once the first one is gone, the others would need one vote more.
    fn why_it_waits(&self, membership: &Membership, address: &str) -> Option<String> {
        if !membership.contains(self.member.id()) || !self.has_company() {
            return Some("most of the members are away".into());
        }
        let is_here = |id: &MemberId| self.was_at(*id, address) && self.is_heard(*id, DEPARTURE);
        let other = membership.iter().find(is_here)?;
        Some(format!("{}, a member, is there, or was a moment ago", self.shown(other)))
    }
}

/// Reasons for which this server cannot become a member.
#[derive(Debug, thiserror::Error)]
pub enum TakenInError {
    /// The state that it received is invalid.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// The log is not writable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log has no valid state.
    #[error("the group's log: {0}")]
    Recover(#[from] RecoverError),
}

/// Waits until a member of the group sends a snapshot. `None`: the server leaves before.
///
/// # Errors
/// [`TakenInError`].
pub fn be_taken_in(parts: &Parts, id: MemberId) -> Result<Option<(Store, Member, Replica)>, TakenInError> {
    (parts.say)(false, format!("member {id} is new: it waits until a member of the group takes it in"));
    while let Some(input) = parts.inlet.next() {
        match input {
            Input::Event(Event::Frame { frame: Frame::Start { snapshot, replica: bytes }, .. }) => {
                let replica = Replica::decode(&bytes)?;
                let identity = Identity { group: replica.group(), member: id };
                let slot = snapshot.next;
                let records = vec![Record::Snapshot(snapshot)];
                let store = Store::create(&parts.directory, identity, slot, &records, &bytes)?;
                let mut member = Member::start(id, records, Settings::default(), Time(0))?;
                member.set_willing(false);
                return Ok(Some((store, member, replica)));
            }
            Input::Event(Event::Said(text)) => (parts.say)(false, text),
            Input::Leave => return Ok(None),
            other => other.lost(),
        }
    }
    Ok(None)
}
