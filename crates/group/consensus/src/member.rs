//! A member: takes in messages, time and what became durable, and says what is to be sent, written and delivered.
//!
//! Whoever drives it calls one of its methods, then [`Member::take_effects`], and carries them out in their order:
//! records are appended to the member's store, and [`Member::durable`] says how many of them a sync has covered.
//! Messages may be sent at once; those that depend on a record are held back here.
//!
//! | part | what |
//! |---|---|
//! | [`turns`] | owned slots, acknowledgements, delivery |
//! | [`epochs`] | candidates, promises, the beginning of an epoch |
//! | [`catch_up`] | members that are behind |
//! | [`found`] | what a member finds again, and what it keeps for that |
//! | [`barriers`] | reads that must see all that was acknowledged |

mod barriers;
mod catch_up;
mod epochs;
mod found;
mod turns;

use crate::health::{Health, Timing};
use crate::log::Log;
use crate::message::{Message, Opinion, Progress, Turns};
use crate::origins::Origins;
use crate::planted::Bug;
use crate::record::{Record, RecordCount};
use crate::types::{
    Ballot, Entry, EpochStart, Incarnation, MemberId, Membership, Owner, Proposal, ProposalId, Slot, Time,
};
use barriers::Barriers;
use catch_up::CatchingUp;
use epochs::{Asked, Candidacy};
pub use found::{RecoverError, Recovery, Replayed};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How a member works.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Times.
    pub timing: Timing,
    /// How far ahead of what is delivered a member proposes, in slots.
    pub window: u64,
    /// How many entries one message carries to a member that is behind, at most.
    pub chunk: u64,
    /// No more entries than these bytes, in such a message, and at least one.
    pub chunk_len_bytes: usize,
    /// Planted bug that is turned on.
    #[cfg(feature = "planted-bugs")]
    #[doc(hidden)]
    pub planted: Option<Bug>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timing: Timing::default(),
            window: 4096,
            chunk: 1024,
            chunk_len_bytes: 256 << 10,
            #[cfg(feature = "planted-bugs")]
            planted: None,
        }
    }
}

/// What whoever drives a member has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Send it, and do not mind if it is lost.
    Send {
        /// To whom.
        to: MemberId,
        /// What.
        message: Message,
    },
    /// Append it to the store, after those before.
    Append(Record),
    /// These slots have an entry, of the store's records the last one that was written of each. No other slot has, before
    /// the last of them, that was not told of. Comes before what of it is delivered.
    Chosen(Vec<Slot>),
    /// It is chosen, and so is everything before it.
    Deliver {
        /// Where it is in the order.
        slot: Slot,
        /// The proposal.
        proposal: Proposal,
    },
    /// An epoch was chosen.
    Begun(Arc<EpochStart>),
    /// All that was chosen when the barrier was asked for is delivered.
    BarrierReached(u64),
    /// Read from the store what was chosen from `from` on, in order and without leaving out any: at most
    /// [`Settings::chunk`] entries, and [`Settings::chunk_len_bytes`]. To be answered with [`Member::read`], at any time;
    /// there is no other one before.
    Read {
        /// Who needs it.
        to: MemberId,
        /// From here on.
        from: Slot,
    },
    /// What comes next here is given up by all members that are heard: it has to be sent as a snapshot.
    NeedsSnapshot {
        /// Who has one.
        from: MemberId,
    },
}

/// What waits for a record to be durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaited {
    Promise { to: MemberId, ballot: Ballot },
    Adopted(Ballot),
    Accepted { epoch: Ballot, owner: usize, to: Slot, has_entries: bool },
}

/// What is known of another member's part in the epoch.
#[derive(Clone, Debug, Default)]
struct Peer {
    incarnation: Incarnation,
    /// It has durably begun the epoch.
    is_begun: bool,
    /// What it has durably of each owner.
    acked: Vec<Slot>,
    /// It was sent this member's own turns up to here.
    sent: Slot,
    /// When its acknowledgement of this member's turns moved last, or there was nothing to acknowledge.
    moved_at: Time,
    /// Which acknowledgements it was sent.
    ack_version: u64,
    opinion_version: u64,
    sent_at: Option<Time>,
    asked_at: Option<Time>,
    /// It can give nothing from before here.
    given_up: Slot,
    /// From where it was given what it lacks last, and when.
    given: Option<(Slot, Time)>,
    /// What it has, as it said when it asked for a promise.
    asked: Option<Asked>,
}

/// See the module.
pub struct Member {
    id: MemberId,
    incarnation: Incarnation,
    settings: Settings,
    now: Time,
    log: Log,
    promised: Ballot,
    /// No later epoch has had a say in what is delivered, as far as others have said what that is.
    told_as_of: Ballot,
    /// The newest ballot that was heard of.
    newest: Ballot,
    settled_epoch: Arc<EpochStart>,
    /// At `log.delivered()`.
    origins: Origins,
    /// With all that the log holds, and what this member has placed.
    expected: Origins,
    own: VecDeque<Proposal>,
    next_number: u64,
    handed_on: VecDeque<Proposal>,
    forwarded: u64,
    forwarded_at: Time,
    peers: BTreeMap<MemberId, Peer>,
    is_begun: bool,
    acked: Vec<Slot>,
    ack_version: u64,
    /// Of each owner: the version of what was acknowledged of it last, and its last entry.
    ack_versions: Vec<u64>,
    last_entries: Vec<Slot>,
    appended: RecordCount,
    durable: RecordCount,
    awaited: VecDeque<(RecordCount, Awaited)>,
    delivered_record: Slot,
    delivered_at: Time,
    health: Health,
    is_willing: bool,
    opinions: Vec<Opinion>,
    opinion_version: u64,
    candidacy: Option<Candidacy>,
    needed_since: Option<Time>,
    not_before: Time,
    attempts: u32,
    /// From which members to which.
    wanted_membership: Option<(Membership, Membership)>,
    /// See [`Member::set_listeners`].
    listeners: Membership,
    catching_up: CatchingUp,
    entered_at: Time,
    barriers: Barriers,
    effects: Vec<Effect>,
    /// See [`Member::take_replayed`].
    replayed: Vec<Effect>,
}

/// Why the members cannot be changed now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MembershipError {
    /// The last change is not chosen yet.
    #[error("the previous membership change is still in progress; try again")]
    UnderWay,
    /// It would leave none, or not this one.
    #[error(
        "the new membership must include the member that receives the request; send the request to another one"
    )]
    NotWithoutMe,
}

impl Member {
    /// Its id.
    pub const fn id(&self) -> MemberId {
        self.id
    }

    /// Its life.
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// All before this slot is delivered.
    pub const fn delivered(&self) -> Slot {
        self.log.delivered()
    }

    /// All that it has accepted is before this slot.
    pub fn end(&self) -> Slot {
        self.log.end()
    }

    /// Proposals that it has accepted and of which it does not know whether they are chosen.
    pub fn undecided(&self) -> usize {
        let entries = self.log.iter_from(self.log.delivered());
        entries.filter(|(_, entry)| matches!(entry, Entry::Proposal(_))).count()
    }

    /// The epoch of its log, which may not be chosen yet.
    pub const fn epoch(&self) -> &Arc<EpochStart> {
        self.log.epoch()
    }

    /// Whether it owns slots.
    pub fn is_owner(&self) -> bool {
        self.place().is_some()
    }

    /// Proposals that are not delivered yet.
    pub fn undelivered(&self) -> usize {
        self.own.len()
    }

    /// Gives up entries before a slot: nobody will ask for them, or gets them from the store, or gets a snapshot instead.
    pub fn give_up(&mut self, before: Slot) {
        self.log.give_up(before);
    }

    /// Wants to have something ordered.
    pub fn propose(&mut self, body: Arc<[u8]>) -> ProposalId {
        let id = ProposalId { member: self.id, incarnation: self.incarnation, number: self.next_number };
        self.next_number += 1;
        self.own.push_back(Proposal { id, body });
        id
    }

    /// Wants slots, or does not: a member that is busy catching up.
    pub const fn set_willing(&mut self, is_willing: bool) {
        self.is_willing = is_willing;
    }

    /// The connection to a member broke: it is to be taken for dead until it is heard again.
    pub fn lost(&mut self, member: MemberId) {
        self.health.lost(member);
        self.peer(member).given = None;
    }

    /// Asks for other members. They are so once an epoch with them is chosen.
    ///
    /// # Errors
    /// If it cannot be done now, or not here.
    pub fn change_membership(&mut self, membership: Membership) -> Result<(), MembershipError> {
        if !membership.contains(self.id) {
            return Err(MembershipError::NotWithoutMe);
        }
        if !self.is_settled() || self.wanted_membership.is_some() {
            return Err(MembershipError::UnderWay);
        }
        let before = self.log.epoch().membership.clone();
        if membership != before {
            self.wanted_membership = Some((before, membership));
        }
        Ok(())
    }

    /// Members-to-be that are told how far this one is, so that they catch up before anything waits for them.
    pub fn set_listeners(&mut self, listeners: Membership) {
        self.listeners = listeners;
    }

    /// The newest life of a member that was heard.
    pub fn incarnation_of(&self, member: MemberId) -> Incarnation {
        self.health.incarnation(member)
    }

    /// Whether a member is heard, and not far behind.
    pub fn is_caught_up(&self, member: MemberId) -> bool {
        let behind = self.log.delivered().0.saturating_sub(self.health.delivered(member).0);
        self.health.is_heard(member, self.now) && behind <= self.settings.timing.lag
    }

    /// Whether this one is no member any more, and one that is knows that: nobody needs it.
    pub fn has_left(&self) -> bool {
        let epoch = &self.settled_epoch;
        let knows = |member| self.health.delivered(member) > epoch.slot;
        self.is_settled() && !epoch.membership.contains(self.id) && epoch.membership.iter().any(knows)
    }

    /// So many records are durable.
    pub fn durable(&mut self, count: RecordCount) {
        self.durable = self.durable.max(count);
        self.release();
    }

    /// Time goes on. To be called every few milliseconds.
    pub fn tick(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.watch_turns();
        self.ask_for_missing();
        self.retry_barriers();
    }

    /// A message has come.
    pub fn handle(&mut self, from: MemberId, message: Message, now: Time) {
        self.now = self.now.max(now);
        if !message.is_sane() {
            return;
        }
        match message {
            Message::Progress(progress) => self.on_progress(from, progress),
            Message::Prepare { ballot, epoch, frontiers, delivered } => {
                self.on_prepare(from, ballot, Asked { epoch, frontiers, delivered });
            }
            Message::Promise { ballot, epoch, frontiers, delivered, settled, entries } => {
                self.on_promise(
                    from,
                    ballot,
                    epochs::Promise { epoch, frontiers, delivered, settled, entries },
                );
            }
            Message::Refuse { promised } => self.on_refuse(promised),
            Message::Adopt { start, from: first, entries } => self.on_adopt(from, start, first, &entries),
            Message::NeedPrefix { ballot, delivered } => self.on_need_prefix(from, ballot, delivered),
            Message::Fetch { from: first } => self.on_fetch(from, first),
            Message::Chosen { from: first, to, entries, as_of } => {
                self.on_chosen(from, first, to, entries, as_of);
            }
            Message::GivenUp { base } => self.on_given_up(from, base),
            Message::Forward { proposals } => self.on_forward(proposals),
            Message::BarrierAsk { nonce } => self.on_barrier_ask(from, nonce),
            Message::BarrierAnswer { nonce, epoch, to } => self.on_barrier_answer(from, nonce, epoch, to),
        }
    }

    /// What is to be done now.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        self.look_around();
        self.consider_candidacy();
        loop {
            self.place_proposals();
            if !self.settle() {
                break;
            }
        }
        self.forward();
        self.tell();
        std::mem::take(&mut self.effects)
    }

    fn send(&mut self, to: MemberId, message: Message) {
        if to != self.id {
            self.effects.push(Effect::Send { to, message });
        }
    }

    fn append(&mut self, record: Record) {
        self.appended.0 += 1;
        self.effects.push(Effect::Append(record));
    }

    /// Does `awaited` once all that was appended so far is durable.
    fn await_durable(&mut self, awaited: Awaited) {
        let is_early = self.is_planted(Bug::AnsweredBeforeDurable);
        let count = if is_early { RecordCount(0) } else { self.appended };
        self.awaited.push_back((count, awaited));
        self.release();
    }

    /// Whether the bug is turned on.
    #[cfg(feature = "planted-bugs")]
    fn is_planted(&self, bug: Bug) -> bool {
        self.settings.planted == Some(bug) && !std::hint::black_box(crate::planted::MARKER).is_empty()
    }

    /// Whether the bug is turned on: never, as this build has no planted bugs.
    #[cfg(not(feature = "planted-bugs"))]
    #[inline(always)]
    const fn is_planted(&self, _bug: Bug) -> bool {
        false
    }

    fn release(&mut self) {
        while let Some((count, awaited)) = self.awaited.front().copied()
            && count <= self.durable
        {
            self.awaited.pop_front();
            match awaited {
                Awaited::Promise { to, ballot } => self.promise(to, ballot),
                Awaited::Adopted(ballot) if ballot == self.log.epoch().ballot => {
                    self.is_begun = true;
                    self.ack_version += 1;
                }
                Awaited::Accepted { epoch, owner, to, has_entries } if epoch == self.log.epoch().ballot => {
                    self.acked[owner] = self.acked[owner].max(to);
                    if has_entries {
                        self.ack_version += 1;
                        self.ack_versions[owner] = self.ack_version;
                    }
                }
                Awaited::Adopted(_) | Awaited::Accepted { .. } => {}
            }
        }
    }

    /// Whether the epoch of its log is chosen, as far as it knows.
    fn is_settled(&self) -> bool {
        self.settled_epoch.ballot == self.log.epoch().ballot
    }

    /// This life of this member.
    const fn myself(&self) -> Owner {
        Owner { member: self.id, incarnation: self.incarnation }
    }

    /// Place among the owners, if it may use it.
    fn place(&self) -> Option<usize> {
        let epoch = self.log.epoch();
        let is_promised_another =
            self.promised != epoch.ballot && !self.is_planted(Bug::OwnerContinuesAfterPromise);
        let place = epoch.place(self.myself()).filter(|_| !is_promised_another);
        let by_name = || epoch.owners.iter().position(|owner| owner.member == self.id);
        if self.is_planted(Bug::RestartedOwnerContinues) { by_name() } else { place }
    }

    fn peer(&mut self, member: MemberId) -> &mut Peer {
        self.peers.entry(member).or_default()
    }

    /// What it thinks of the others.
    fn look_around(&mut self) {
        let epoch = Arc::clone(self.log.epoch());
        let me = (self.incarnation, self.is_willing);
        let opinions = self.health.opinions(&epoch, me, self.log.delivered(), self.now);
        if opinions != self.opinions {
            self.opinions = opinions;
            self.opinion_version += 1;
        }
    }

    /// Another epoch than before.
    fn entered(&mut self, before: &EpochStart) {
        let epoch = Arc::clone(self.log.epoch());
        self.newest = self.newest.max(epoch.ballot);
        self.promised = self.promised.max(epoch.ballot);
        self.is_begun = false;
        self.entered_at = self.now;
        self.acked = vec![Slot(0); epoch.owners.len()];
        // What waits for the disk was accepted in the epoch before. Should this be one that was left and is come back to,
        // then the log has not kept it.
        self.awaited.retain(|(_, awaited)| matches!(awaited, Awaited::Promise { .. }));
        self.ack_versions = vec![0; epoch.owners.len()];
        self.last_entries = vec![Slot(0); epoch.owners.len()];
        let mine = epoch.place(self.myself()).map_or(Slot(0), |place| epoch.turn(place, epoch.slot.next()));
        for peer in self.peers.values_mut() {
            peer.is_begun = false;
            peer.acked.clear();
            peer.sent = mine;
            peer.moved_at = self.now;
        }
        self.expected = self.origins.clone();
        for (_, entry) in self.log.iter_from(self.log.delivered()) {
            match entry {
                Entry::Proposal(proposal) => {
                    self.expected.take(proposal.id);
                }
                Entry::EpochStart(start) => self.expected.begin(start),
            }
        }
        self.handed_on.clear();
        self.forwarded = 0;
        self.health.began(before, &epoch);
        if self.candidacy.as_ref().is_some_and(|candidacy| candidacy.ballot <= epoch.ballot) {
            self.candidacy = None;
        }
        self.needed_since = None;
    }

    fn progress(&self, turns: Option<Turns>, with_opinions: bool) -> Progress {
        Progress {
            incarnation: self.incarnation,
            epoch: self.log.epoch().ballot,
            turns,
            acked: self.is_begun.then(|| self.acked.clone()),
            delivered: self.log.delivered(),
            is_willing: self.is_willing,
            opinions: if with_opinions { self.opinions.clone() } else { Vec::new() },
        }
    }
}
