//! Recovery of a member from its records, and checkpoints.
//!
//! A member replays its records in their order, with the same effect. Its user receives the same deliveries again
//! ([`Member::take_replayed`]). Anything that an incarnation had not made durable does not count, because it was never
//! sent to others.

use super::barriers::Barriers;
use super::catch_up::CatchingUp;
use super::{Awaited, Effect, Member, Settings};
use crate::health::Health;
use crate::log::Log;
use crate::origins::Origins;
use crate::record::{Record, RecordCount, Snapshot};
use crate::types::{Ballot, EpochStart, Incarnation, MemberId, Membership, Slot, Time};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Reason why the records of a store do not belong to a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecoverError {
    /// The first record is not a snapshot.
    #[error(
        "the store does not begin with a snapshot; it is not the store of a member, or its beginning is lost"
    )]
    NoSnapshot,
    /// A record does not follow from the previous ones.
    #[error("record {0} of the store does not follow from the previous records; the store is damaged")]
    Gap(u64),
}

/// A member during the replay of its records, one after the other. It retains no entry longer than
/// [`Recovery::give_up`] allows.
pub struct Recovery {
    member: Member,
    count: u64,
}

/// Result of one record.
#[derive(Debug)]
pub struct Replayed {
    /// Whether a snapshot replaced everything that was delivered before.
    pub is_anew: bool,
    /// The chosen slots, and the deliveries for the user: see [`Member::take_replayed`].
    pub effects: Vec<Effect>,
}

impl Recovery {
    /// Begins with the first record of the store.
    ///
    /// # Errors
    /// [`RecoverError::NoSnapshot`].
    pub fn new(
        id: MemberId,
        first: Option<Record>,
        settings: Settings,
        now: Time,
    ) -> Result<Self, RecoverError> {
        let Some(Record::Snapshot(snapshot)) = first else { return Err(RecoverError::NoSnapshot) };
        Ok(Self { member: Member::at(id, &snapshot, settings, now), count: 1 })
    }

    /// Replays the next record.
    ///
    /// # Errors
    /// [`RecoverError::Gap`].
    pub fn take(&mut self, record: Record) -> Result<Replayed, RecoverError> {
        let is_anew =
            matches!(&record, Record::Snapshot(snapshot) if snapshot.next > self.member.delivered());
        self.member.replay(record).ok_or(RecoverError::Gap(self.count))?;
        self.count += 1;
        let mut effects = std::mem::take(&mut self.member.effects);
        effects.retain(|effect| !matches!(effect, Effect::Append(_)));
        Ok(Replayed { is_anew, effects })
    }

    /// Drops entries before a slot, like [`Member::give_up`].
    pub fn give_up(&mut self, before: Slot) {
        self.member.give_up(before);
    }

    /// Ends the replay: there are no more records.
    pub fn finish(mut self) -> Member {
        self.member.begin_life();
        self.member
    }
}

impl Member {
    /// The initial state of every member of a new group, for its store.
    pub fn founding(founders: Membership) -> Snapshot {
        let epoch = EpochStart::founding(founders);
        let mut origins = Origins::default();
        origins.begin(&epoch);
        let as_of = epoch.ballot;
        Snapshot { next: Slot(1), epoch: Arc::new(epoch), origins, as_of }
    }

    /// Starts from the records of its store: for a new store a single [`Record::Snapshot`]. The record of this start
    /// is among the first effects, and has to be durable before anything is sent.
    ///
    /// # Errors
    /// If the records do not belong to a member.
    pub fn start(
        id: MemberId,
        records: impl IntoIterator<Item = Record>,
        settings: Settings,
        now: Time,
    ) -> Result<Self, RecoverError> {
        let mut records = records.into_iter();
        let mut recovery = Recovery::new(id, records.next(), settings, now)?;
        let mut replayed = Vec::new();
        for record in records {
            let Replayed { is_anew, effects } = recovery.take(record)?;
            if is_anew {
                replayed.clear();
            }
            replayed.extend(effects);
        }
        let mut member = recovery.finish();
        let is_for_the_user = |effect: &Effect| matches!(effect, Effect::Deliver { .. } | Effect::Begun(_));
        replayed.retain(is_for_the_user);
        member.replayed = replayed;
        Ok(member)
    }

    /// Begins a new incarnation after the replay.
    fn begin_life(&mut self) {
        let member = self;
        member.appended = RecordCount(0);
        let epoch = Arc::clone(member.log.epoch());
        member.entered(&epoch);
        member.incarnation = Incarnation(member.incarnation.0 + 1);
        member.append(Record::Started(member.incarnation));
        // All replayed records are durable. So are the epoch and its accepted entries.
        let epoch = member.log.epoch().ballot;
        member.awaited.push_back((member.appended, Awaited::Adopted(epoch)));
        // If the promise is of another ballot, other members may have reported entries of a later epoch. Then it is
        // unknown which of the entries were accepted in this one.
        member.told_as_of = member.promised;
        let is_accepted = member.promised == epoch;
        let frontiers = member.log.frontiers().iter().enumerate().filter(|_| is_accepted);
        for (owner, to) in frontiers {
            let accepted = Awaited::Accepted { epoch, owner, to: *to, has_entries: true };
            member.awaited.push_back((member.appended, accepted));
        }
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
            catching_up: CatchingUp::default(),
            entered_at: now,
            barriers: Barriers::default(),
            effects: Vec::new(),
            replayed: Vec::new(),
            log,
        }
    }

    /// Replays a record of its own store. Returns `None` if the record does not follow from the previous ones.
    fn replay(&mut self, record: Record) -> Option<()> {
        match record {
            Record::Started(incarnation) => self.incarnation = self.incarnation.max(incarnation),
            Record::Promised(ballot) => self.promised = self.promised.max(ballot),
            // A snapshot that is not ahead was written by an incarnation with an older state.
            Record::Snapshot(snapshot) if snapshot.next <= self.log.delivered() => {}
            Record::Snapshot(snapshot) => {
                // The user's state at the snapshot replaces everything that was delivered before it.
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
                // Records of an epoch that the member left since do not count.
                if epoch == self.log.epoch().ballot {
                    // Skipped slots are in no record.
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

    /// State before the first undelivered slot, for a member that needs a snapshot.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            next: self.log.delivered(),
            epoch: Arc::clone(&self.settled_epoch),
            origins: self.origins.clone(),
            as_of: self.as_of(),
        }
    }

    /// Ballot bound: no later epoch influenced the delivered entries.
    pub(super) fn as_of(&self) -> Ballot {
        self.log.epoch().ballot.max(self.told_as_of)
    }

    /// Records that can replace all records that were written so far, once they are durable.
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

    /// The deliveries of earlier incarnations, from the store's snapshot on, in order: the user of a member builds its
    /// own state from these. They are only [`Effect::Deliver`] and [`Effect::Begun`], and are returned only once.
    /// Later deliveries are among the effects. If the store has several snapshots, the deliveries begin at the last
    /// one that was ahead of the delivered slots.
    pub fn take_replayed(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.replayed)
    }
}
