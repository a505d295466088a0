//! Members that are not in the group yet: those that ask this one, and this one itself.

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

/// A newcomer is told again where to start after this.
const AGAIN: Duration = Duration::from_secs(2);
/// One that is not heard of any more is forgotten; not one that waits, for it says hello once.
const FORGOTTEN: Duration = Duration::from_secs(60);

struct Newcomer {
    address: String,
    since: Instant,
    told_at: Option<Instant>,
    /// It has to wait, which was said.
    waits: bool,
    is_lost: bool,
}

/// Those that ask.
#[derive(Default)]
pub struct Newcomers(BTreeMap<MemberId, Newcomer>);

impl Newcomers {
    /// It has said hello.
    pub fn greeted(&mut self, member: MemberId, address: String) {
        let waits = self.0.get(&member).is_some_and(|before| before.waits);
        self.0.insert(
            member,
            Newcomer { address, since: Instant::now(), told_at: None, waits, is_lost: false },
        );
    }

    /// A connection with it has ended. It says hello again if it is still there.
    pub fn lost(&mut self, member: MemberId) {
        if let Some(newcomer) = self.0.get_mut(&member) {
            newcomer.is_lost = true;
        }
    }

    /// It cannot be taken in now. Whether that is new.
    pub fn waits(&mut self, member: MemberId) -> bool {
        self.0.get_mut(&member).is_some_and(|newcomer| !std::mem::replace(&mut newcomer.waits, true))
    }

    /// It has what it needs.
    pub fn is_in(&mut self, member: MemberId) {
        self.0.remove(&member);
    }

    /// Those that are to be told now, with their addresses.
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
    /// Newcomers become members, and are told where to start. One takes the place of a member that was at its address
    /// and is not heard any more: that one has lost its log.
    ///
    /// Nobody is told so by a member without a majority, or by one that is none itself yet: a newcomer that takes its
    /// start from one is bound to that history for good, and may have asked the members of another one as well.
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
                // If it cannot be done now, it is tried again.
                let _ = self.member.change_membership(with_it);
            }
            let snapshot = self.member.snapshot();
            self.ask_for_state(snapshot.next, Purpose::Newcomer(member, snapshot));
        }
    }

    /// Why a newcomer at this address cannot be taken in now, if so. Where a member is, there is no place for another
    /// one: both would count, and if that one is gone, the others would need one more of them.
    fn why_it_waits(&self, membership: &Membership, address: &str) -> Option<String> {
        if !membership.contains(self.member.id()) || !self.has_company() {
            return Some("most of the members are away".into());
        }
        let is_here = |id: &MemberId| self.was_at(*id, address) && self.is_heard(*id, DEPARTURE);
        let other = membership.iter().find(is_here)?;
        Some(format!("{}, a member, is there, or was a moment ago", self.shown(other)))
    }
}

/// Why this one cannot become a member.
#[derive(Debug, thiserror::Error)]
pub enum TakenInError {
    /// What it was told means nothing.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// Its log cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its log is none.
    #[error("the group's log: {0}")]
    Recover(#[from] RecoverError),
}

/// Waits until a member of the group tells where to start. `None`: it is over before.
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
