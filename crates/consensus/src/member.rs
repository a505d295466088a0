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
//! | [`barriers`] | reads that must see all that was acknowledged |

mod barriers;
mod catch_up;
mod epochs;
mod turns;

use crate::health::{Health, Timing};
use crate::log::Log;
use crate::message::{Message, Opinion, Progress, Turns};
use crate::origins::Origins;
use crate::record::{Record, RecordCount, Snapshot};
use crate::types::{
    Ballot, Entry, EpochStart, Incarnation, MemberId, Membership, Owner, Proposal, ProposalId, Slot, Time,
};
use barriers::Barriers;
use epochs::{Asked, Candidacy};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How a member works.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Times.
    pub timing: Timing,
    /// How far ahead of what is delivered a member proposes, in slots.
    pub window: u64,
    /// How many slots one message carries to a member that is behind.
    pub chunk: u64,
    /// A bug of this name is turned on, so that tests see that a simulation notices. `None` outside of it.
    #[doc(hidden)]
    pub planted: Option<&'static str>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { timing: Timing::default(), window: 4096, chunk: 1024, planted: None }
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
    /// It is chosen, and so is everything before it.
    Deliver {
        /// Where it is in the order.
        slot: Slot,
        /// What it is.
        proposal: Proposal,
    },
    /// An epoch was chosen.
    Begun(Arc<EpochStart>),
    /// All that was chosen when the barrier was asked for is delivered.
    BarrierReached(u64),
    /// What comes next here is given up by this member: it has to be sent as a snapshot.
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
    entered_at: Time,
    barriers: Barriers,
    effects: Vec<Effect>,
    /// See [`Member::take_replayed`].
    replayed: Vec<Effect>,
}

/// Why a store's records are none of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecoverError {
    /// The first record is not a snapshot.
    #[error("the store does not begin with a snapshot: it is not one of a member, or its beginning is lost")]
    NoSnapshot,
    /// Two records do not fit each other.
    #[error("record {0} of the store does not follow from those before it: the store is damaged")]
    Gap(u64),
}

/// Why the members cannot be changed now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MembershipError {
    /// The last change is not chosen yet.
    #[error("the last change of members is still under way: try again")]
    UnderWay,
    /// It would leave none, or not this one.
    #[error("the members must include the one that is asked: ask another one")]
    NotWithoutMe,
}

impl Member {
    /// The first state of every member of a new group, for its store.
    pub fn founding(founders: Membership) -> Snapshot {
        let epoch = EpochStart::founding(founders);
        let mut origins = Origins::default();
        origins.begin(&epoch);
        let as_of = epoch.ballot;
        Snapshot { next: Slot(1), epoch: Arc::new(epoch), origins, as_of }
    }

    /// Starts from the records of its store: for a new one a single [`Record::Snapshot`]. The record that it is started
    /// is among the first effects, and has to be durable before anything is sent.
    ///
    /// # Errors
    /// If the records are none of a member.
    pub fn start(
        id: MemberId,
        records: impl IntoIterator<Item = Record>,
        settings: Settings,
        now: Time,
    ) -> Result<Self, RecoverError> {
        let mut records = records.into_iter().enumerate();
        let Some((_, Record::Snapshot(snapshot))) = records.next() else {
            return Err(RecoverError::NoSnapshot);
        };
        let mut member = Self::at(id, &snapshot, settings, now);
        for (number, record) in records {
            member.replay(record).ok_or(RecoverError::Gap(number as u64))?;
        }
        let is_for_the_user = |effect: &Effect| matches!(effect, Effect::Deliver { .. } | Effect::Begun(_));
        member.replayed = std::mem::take(&mut member.effects);
        member.replayed.retain(is_for_the_user);
        member.appended = RecordCount(0);
        let epoch = Arc::clone(member.log.epoch());
        member.entered(&epoch);
        member.incarnation = Incarnation(member.incarnation.0 + 1);
        member.append(Record::Started(member.incarnation));
        // All that was read is durable; the epoch is so with what is accepted of it.
        let epoch = member.log.epoch().ballot;
        member.awaited.push_back((member.appended, Awaited::Adopted(epoch)));
        // Or others have said what was chosen in a later epoch: it is not known what was accepted of this one.
        member.told_as_of = member.promised;
        let is_accepted = member.promised == epoch;
        let frontiers = member.log.frontiers().iter().enumerate().filter(|_| is_accepted);
        for (owner, to) in frontiers {
            let accepted = Awaited::Accepted { epoch, owner, to: *to, has_entries: true };
            member.awaited.push_back((member.appended, accepted));
        }
        Ok(member)
    }

    fn at(id: MemberId, snapshot: &Snapshot, settings: Settings, now: Time) -> Self {
        let log = Log::after(Arc::clone(&snapshot.epoch), snapshot.next);
        Self {
            id,
            incarnation: Incarnation(0),
            settings,
            now,
            promised: snapshot.epoch.ballot.max(snapshot.as_of),
            told_as_of: snapshot.as_of,
            newest: snapshot.epoch.ballot.max(snapshot.as_of),
            settled_epoch: Arc::clone(&snapshot.epoch),
            origins: snapshot.origins.clone(),
            expected: snapshot.origins.clone(),
            own: VecDeque::new(),
            next_number: 1,
            handed_on: VecDeque::new(),
            forwarded: 0,
            forwarded_at: now,
            peers: BTreeMap::new(),
            is_begun: false,
            acked: vec![Slot(0); log.frontiers().len()],
            ack_version: 1,
            ack_versions: vec![0; log.frontiers().len()],
            last_entries: vec![Slot(0); log.frontiers().len()],
            appended: RecordCount(0),
            durable: RecordCount(0),
            awaited: VecDeque::new(),
            delivered_record: snapshot.next,
            delivered_at: now,
            health: Health::new(id, settings.timing),
            is_willing: true,
            opinions: Vec::new(),
            opinion_version: 1,
            candidacy: None,
            needed_since: None,
            not_before: now,
            attempts: 0,
            wanted_membership: None,
            listeners: Membership::default(),
            entered_at: now,
            barriers: Barriers::default(),
            effects: Vec::new(),
            replayed: Vec::new(),
            log,
        }
    }

    /// Takes in a record of its own store. `None` if it does not fit.
    fn replay(&mut self, record: Record) -> Option<()> {
        match record {
            Record::Started(incarnation) => self.incarnation = self.incarnation.max(incarnation),
            Record::Promised(ballot) => self.promised = self.promised.max(ballot),
            // One that is no news was written by a life that did not know better.
            Record::Snapshot(snapshot) if snapshot.next <= self.log.delivered() => {}
            Record::Snapshot(snapshot) => {
                // The user's state at the snapshot has taken the place of what was delivered before it.
                self.effects.clear();
                self.log.jump(&snapshot.epoch, snapshot.next);
                self.settled_epoch = snapshot.epoch;
                self.origins = snapshot.origins;
                self.promised = self.promised.max(self.settled_epoch.ballot).max(snapshot.as_of);
            }
            Record::Adopted { start, from, entries } => {
                self.deliver_to(from);
                self.promised = self.promised.max(start.ballot);
                self.log.adopt(start, from, &entries);
            }
            Record::Accepted { epoch, owner, mut turns } => {
                // Of an epoch that was left since nothing counts.
                if epoch == self.log.epoch().ballot {
                    // What was skipped before is in no record.
                    turns.from = turns.from.min(*self.log.frontiers().get(owner)?);
                    self.log.accept(owner, &turns)?;
                }
            }
            Record::Chosen { from, to, entries } => {
                self.deliver_to(from);
                self.log.install(to, &entries, &self.settled_epoch);
                self.deliver_to(to);
            }
            Record::Delivered(slot) => self.deliver_to(slot),
        }
        self.newest = self.newest.max(self.promised).max(self.log.epoch().ballot);
        Some(())
    }

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

    /// All before what is delivered, to give to a member that needs it.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            next: self.log.delivered(),
            epoch: Arc::clone(&self.settled_epoch),
            origins: self.origins.clone(),
            as_of: self.as_of(),
        }
    }

    /// No later epoch has had a say in what is delivered.
    fn as_of(&self) -> Ballot {
        self.log.epoch().ballot.max(self.told_as_of)
    }

    /// Records that can take the place of all that were written so far, once they are durable.
    pub fn checkpoint(&self) -> Vec<Record> {
        let epoch = self.log.epoch();
        let delivered = self.log.delivered();
        let mut records = vec![
            Record::Snapshot(self.snapshot()),
            Record::Started(self.incarnation),
            Record::Promised(self.promised),
        ];
        if !self.is_settled() {
            records.push(Record::Adopted {
                start: Arc::clone(epoch),
                from: delivered,
                entries: self.log.range(delivered, epoch.slot),
            });
        }
        for owner in 0..epoch.owners.len() {
            let from = epoch.turn(owner, delivered.max(epoch.slot.next()));
            let turns = self.log.turns_of(owner, from, usize::MAX);
            records.push(Record::Accepted { epoch: epoch.ballot, owner, turns });
        }
        records
    }

    /// Gives up entries before a slot: nobody will ask for them, or gets a snapshot instead.
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
            Message::GivenUp { base } => {
                if base > self.log.delivered() {
                    self.effects.push(Effect::NeedsSnapshot { from });
                }
            }
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

    /// What was delivered by earlier lives, from the store's snapshot on, in order: the user of a member builds its own
    /// state from it. Only [`Effect::Deliver`] and [`Effect::Begun`], and only once; what follows is among the effects.
    /// If the store has several snapshots, it begins at the last one that was ahead of what had been delivered.
    pub fn take_replayed(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.replayed)
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
        let is_early = self.is_planted("answered before durable");
        let count = if is_early { RecordCount(0) } else { self.appended };
        self.awaited.push_back((count, awaited));
        self.release();
    }

    /// See [`Settings::planted`].
    fn is_planted(&self, bug: &str) -> bool {
        self.settings.planted == Some(bug)
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
            self.promised != epoch.ballot && !self.is_planted("owner goes on after a promise");
        let place = epoch.place(self.myself()).filter(|_| !is_promised_another);
        let by_name = || epoch.owners.iter().position(|owner| owner.member == self.id);
        if self.is_planted("restarted owner goes on") { by_name() } else { place }
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
