//! A member: a state machine with the inputs messages, time and durability, and the outputs messages, records and
//! deliveries.
//!
//! The driver calls one of its methods, then [`Member::take_effects`], and carries out the effects in their order. It
//! appends records to the member's store, and reports with [`Member::durable`] how many of them a sync has covered. It
//! may send messages at once: the member holds back a message that depends on a record.
//!
//! | part | what |
//! |---|---|
//! | [`turns`] | owned slots, acknowledgements, delivery |
//! | [`epochs`] | candidates, promises, the beginning of an epoch |
//! | [`catch_up`] | members that are behind |
//! | [`found`] | recovery of a member from its records, and checkpoints |
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

/// Settings of a member.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Timeouts and intervals.
    pub timing: Timing,
    /// Number of slots after the delivered ones in which a member proposes.
    pub window: u64,
    /// Maximum number of entries in one message to a member that is behind.
    pub chunk: u64,
    /// Maximum size in bytes of the entries in such a message, which carries at least one.
    pub chunk_len_bytes: usize,
    /// The active planted bug.
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

/// An action for the driver of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Send the message. It may be lost.
    Send {
        /// Receiver of the message.
        to: MemberId,
        /// The message.
        message: Message,
    },
    /// Append the record to the store, after the previous ones.
    Append(Record),
    /// Slots with a chosen entry: the last record of each in the store counts. Any other slot before the last of them
    /// has no entry, unless an earlier effect listed it. Precedes the deliveries of these slots.
    Chosen(Vec<Slot>),
    /// Deliver a proposal. It is chosen, and so is everything before it.
    Deliver {
        /// Position of the proposal in the order.
        slot: Slot,
        /// The proposal.
        proposal: Proposal,
    },
    /// An epoch was chosen.
    Begun(Arc<EpochStart>),
    /// All entries that were chosen when the barrier was requested are delivered.
    BarrierReached(u64),
    /// Read the chosen entries from `from` on from the store, in order and without gaps: at most [`Settings::chunk`]
    /// entries, and [`Settings::chunk_len_bytes`]. The driver answers with [`Member::read`], at any time. The member
    /// requests no other read before that.
    Read {
        /// Member that needs the entries.
        to: MemberId,
        /// First slot to read.
        from: Slot,
    },
    /// No reachable member retains the next entries of this one: a snapshot has to be transferred.
    NeedsSnapshot {
        /// A member that has a snapshot.
        from: MemberId,
    },
}

/// Action after a record is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaited {
    Promise { to: MemberId, ballot: Ballot },
    Adopted(Ballot),
    Accepted { epoch: Ballot, owner: usize, to: Slot, has_entries: bool },
}

/// State of another member in the epoch.
#[derive(Clone, Debug, Default)]
struct Peer {
    incarnation: Incarnation,
    /// Whether it has durably begun the epoch.
    is_begun: bool,
    /// For each owner, the slot before which it has everything durably.
    acked: Vec<Slot>,
    /// The slot before which this member's own slots were sent to it.
    sent: Slot,
    /// Time when its acknowledgement of this member's slots last advanced, or nothing was unacknowledged.
    moved_at: Time,
    /// Version of the acknowledgements that were sent to it.
    ack_version: u64,
    opinion_version: u64,
    sent_at: Option<Time>,
    asked_at: Option<Time>,
    /// First slot that it can still send.
    given_up: Slot,
    /// First slot of the last entries that were sent to it as missing, and the time.
    given: Option<(Slot, Time)>,
    /// State of its log, from its question for a promise.
    asked: Option<Asked>,
}

/// State machine of a member.
pub struct Member {
    id: MemberId,
    incarnation: Incarnation,
    settings: Settings,
    now: Time,
    log: Log,
    promised: Ballot,
    /// Ballot bound from other members: no later epoch influenced the entries that they reported as chosen.
    told_as_of: Ballot,
    /// The newest ballot seen in any message.
    newest: Ballot,
    settled_epoch: Arc<EpochStart>,
    /// Delivered proposals, at `log.delivered()`.
    origins: Origins,
    /// Delivered proposals, with all entries of the log and this member's new proposals.
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
    /// For each owner: the version of its last acknowledgement. `last_entries` holds its last entry.
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
    /// Current membership and wanted membership.
    wanted_membership: Option<(Membership, Membership)>,
    /// Members-to-be: [`Member::set_listeners`].
    listeners: Membership,
    catching_up: CatchingUp,
    entered_at: Time,
    barriers: Barriers,
    effects: Vec<Effect>,
    /// Deliveries of earlier incarnations: [`Member::take_replayed`].
    replayed: Vec<Effect>,
}

/// Reason why the membership does not change now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MembershipError {
    /// The previous change is not chosen yet.
    #[error("the previous membership change is still in progress; try again")]
    UnderWay,
    /// The new membership does not contain this member, or is empty.
    #[error(
        "the new membership must include the member that receives the request; send the request to another one"
    )]
    NotWithoutMe,
}

impl Member {
    /// Id of the member.
    pub const fn id(&self) -> MemberId {
        self.id
    }

    /// Incarnation of the member.
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// All slots before this one are delivered.
    pub const fn delivered(&self) -> Slot {
        self.log.delivered()
    }

    /// All accepted entries are before this slot.
    pub fn end(&self) -> Slot {
        self.log.end()
    }

    /// Number of accepted proposals that may or may not be chosen.
    pub fn undecided(&self) -> usize {
        let entries = self.log.iter_from(self.log.delivered());
        entries.filter(|(_, entry)| matches!(entry, Entry::Proposal(_))).count()
    }

    /// The epoch of the log, which may not be chosen yet.
    pub const fn epoch(&self) -> &Arc<EpochStart> {
        self.log.epoch()
    }

    /// Whether the member owns slots.
    pub fn is_owner(&self) -> bool {
        self.place().is_some()
    }

    /// Number of own proposals that are not delivered yet.
    pub fn undelivered(&self) -> usize {
        self.own.len()
    }

    /// Drops entries before a slot. Members that ask for them get them from the store, or get a snapshot.
    pub fn give_up(&mut self, before: Slot) {
        self.log.give_up(before);
    }

    /// Proposes data for the total order.
    pub fn propose(&mut self, body: Arc<[u8]>) -> ProposalId {
        let id = ProposalId { member: self.id, incarnation: self.incarnation, number: self.next_number };
        self.next_number += 1;
        self.own.push_back(Proposal { id, body });
        id
    }

    /// Sets whether this member accepts slots. A member that is busy with catching up does not.
    pub const fn set_willing(&mut self, is_willing: bool) {
        self.is_willing = is_willing;
    }

    /// The connection to a member broke: the member counts as failed until its next message.
    pub fn lost(&mut self, member: MemberId) {
        self.health.lost(member);
        self.peer(member).given = None;
    }

    /// Requests another membership. It takes effect when an epoch with it is chosen.
    ///
    /// # Errors
    /// If another change is in progress, or the membership does not contain this member.
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

    /// Sets the members-to-be. They receive this member's progress, and catch up before any member waits for them.
    pub fn set_listeners(&mut self, listeners: Membership) {
        self.listeners = listeners;
    }

    /// The newest known incarnation of a member.
    pub fn incarnation_of(&self, member: MemberId) -> Incarnation {
        self.health.incarnation(member)
    }

    /// Whether a member is reachable and not far behind.
    pub fn is_caught_up(&self, member: MemberId) -> bool {
        let behind = self.log.delivered().0.saturating_sub(self.health.delivered(member).0);
        self.health.is_heard(member, self.now) && behind <= self.settings.timing.lag
    }

    /// Whether this one is no longer a member, and a current member knows it. Then the group does not need this one.
    pub fn has_left(&self) -> bool {
        let epoch = &self.settled_epoch;
        let knows = |member| self.health.delivered(member) > epoch.slot;
        self.is_settled() && !epoch.membership.contains(self.id) && epoch.membership.iter().any(knows)
    }

    /// Reports the number of durable records.
    pub fn durable(&mut self, count: RecordCount) {
        self.durable = self.durable.max(count);
        self.release();
    }

    /// Advances the time. The driver calls this every few milliseconds.
    pub fn tick(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.watch_turns();
        self.ask_for_missing();
        self.retry_barriers();
    }

    /// Handles a received message.
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

    /// Returns the actions that are due now.
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

    /// Runs `awaited` once all records that were appended so far are durable.
    fn await_durable(&mut self, awaited: Awaited) {
        let is_early = self.is_planted(Bug::AnsweredBeforeDurable);
        let count = if is_early { RecordCount(0) } else { self.appended };
        self.awaited.push_back((count, awaited));
        self.release();
    }

    /// Whether the planted bug is active.
    #[cfg(feature = "planted-bugs")]
    fn is_planted(&self, bug: Bug) -> bool {
        self.settings.planted == Some(bug) && !std::hint::black_box(crate::planted::MARKER).is_empty()
    }

    /// Whether the planted bug is active: never, as this build has no planted bugs.
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

    /// Whether the epoch of its log is known to be chosen.
    fn is_settled(&self) -> bool {
        self.settled_epoch.ballot == self.log.epoch().ballot
    }

    /// This incarnation of this member.
    const fn myself(&self) -> Owner {
        Owner { member: self.id, incarnation: self.incarnation }
    }

    /// Index among the owners, unless a promise forbids its use.
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

    /// Updates this member's votes about the others.
    fn look_around(&mut self) {
        let epoch = Arc::clone(self.log.epoch());
        let me = (self.incarnation, self.is_willing);
        let opinions = self.health.opinions(&epoch, me, self.log.delivered(), self.now);
        if opinions != self.opinions {
            self.opinions = opinions;
            self.opinion_version += 1;
        }
    }

    /// The log has another epoch than `before`.
    fn entered(&mut self, before: &EpochStart) {
        let epoch = Arc::clone(self.log.epoch());
        self.newest = self.newest.max(epoch.ballot);
        self.promised = self.promised.max(epoch.ballot);
        self.is_begun = false;
        self.entered_at = self.now;
        self.acked = vec![Slot(0); epoch.owners.len()];
        // Entries that are waiting for the disk were accepted in the previous epoch. If the member returns later to
        // that epoch, its log has discarded those entries.
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
