//! Beginning of an epoch: a candidate collects promises from a majority, and combines all entries that may have been
//! chosen. A majority adopts these together with the first entry of the new epoch.
//!
//! An epoch is a ballot of Paxos for all slots at once, in which each slot has one proposer. A member that begins an
//! epoch discards the entries of earlier epochs after its start. So only the logs of the newest epoch count. Of these,
//! the longest part of each owner counts.
//!
//! The membership changes with an epoch, one change at a time. A majority of the previous members and a majority of
//! the new ones choose the entry; the next change waits until then. A candidate that does not know whether an epoch
//! was chosen asks both.
//!
//! A member becomes a candidate when a majority is reachable and some member should lose or get slots. It also becomes
//! a candidate when it has promised an epoch that does not begin. Wrong votes of the others do no harm.

use super::{Awaited, Member};
use crate::log::Log;
use crate::message::{Entries, Message, Turns};
use crate::planted::Bug;
use crate::record::Record;
use crate::types::{
    Ballot, Entry, EpochStart, Incarnation, MemberId, Membership, Owner, Proposal, ProposalId, Slot, Time,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// State of a candidate's log, in its question.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub epoch: Ballot,
    pub frontiers: Vec<Slot>,
    pub delivered: Slot,
}

/// An answer to a candidate.
pub(super) struct Promise {
    pub epoch: Arc<EpochStart>,
    pub frontiers: Vec<Slot>,
    pub delivered: Slot,
    pub settled: Ballot,
    pub entries: Entries,
}

/// A candidacy of this member.
pub(super) struct Candidacy {
    pub ballot: Ballot,
    since: Time,
    asked_at: Option<Time>,
    /// State of the log that the question reports; the answers leave that part out. So it stays constant, even if
    /// entries arrive later.
    asked: Asked,
    promises: BTreeMap<MemberId, Promise>,
    has_own: bool,
}

impl Member {
    /// Becomes a candidate if one is needed and this member's delay is over. Continues an existing candidacy.
    pub(super) fn consider_candidacy(&mut self) {
        if let Some(candidacy) = &self.candidacy {
            if self.now.since(candidacy.since) > self.settings.timing.candidacy_us {
                self.give_up_candidacy();
            } else {
                return self.ask();
            }
        }
        let epoch = Arc::clone(self.log.epoch());
        if !epoch.membership.contains(self.id) || self.now < self.not_before {
            return;
        }
        let Some(wanted) = self.health.wanted_owners(&epoch, &self.opinions, self.now) else {
            self.needed_since = None;
            return;
        };
        let is_late =
            !self.is_settled() && self.now.since(self.entered_at) > self.settings.timing.candidacy_us;
        let is_stuck = self.promised > epoch.ballot || is_late;
        let is_same =
            wanted.len() == epoch.owners.len() && wanted.iter().all(|owner| epoch.place(*owner).is_some());
        let is_needed = (!is_same && !wanted.is_empty()) || is_stuck || self.wants_members();
        if !is_needed {
            self.needed_since = None;
            return;
        }
        let since = *self.needed_since.get_or_insert(self.now);
        let rank = match self.wants_members() {
            true => 0,
            false => self.health.rank(&epoch.membership, self.log.delivered(), self.now),
        };
        // A promised candidate gets time to begin its epoch.
        let patience_us = if is_stuck { self.settings.timing.candidacy_us } else { 0 };
        if self.now.since(since) >= patience_us + rank * self.settings.timing.rank_us {
            self.become_candidate();
        }
    }

    /// Whether a membership change is requested and possible.
    fn wants_members(&self) -> bool {
        self.wanted_membership.is_some() && self.is_settled()
    }

    fn become_candidate(&mut self) {
        let round = self.newest.max(self.promised).round + 1;
        let ballot = Ballot { round, candidate: self.id };
        self.newest = ballot;
        self.promised = ballot;
        self.candidacy = Some(Candidacy {
            ballot,
            since: self.now,
            asked_at: None,
            asked: Asked {
                epoch: self.log.epoch().ballot,
                frontiers: self.log.frontiers().to_vec(),
                delivered: self.log.delivered(),
            },
            promises: BTreeMap::new(),
            has_own: false,
        });
        self.handed_on.clear();
        self.append(Record::Promised(ballot));
        self.await_durable(Awaited::Promise { to: self.id, ballot });
    }

    fn give_up_candidacy(&mut self) {
        self.candidacy = None;
        self.needed_since = None;
        self.attempts = (self.attempts + 1).min(8);
        // Two candidates with the same goal should not collide again: their delays differ.
        let mixed = (self.id.0 ^ self.newest.round.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let timing = self.settings.timing;
        let wait_us = timing.rank_us * u64::from(self.attempts);
        self.not_before = Time(self.now.0 + wait_us + mixed % (wait_us + timing.rank_us));
    }

    /// Asks the members that have not promised yet.
    fn ask(&mut self) {
        // The own promise has to be durable first. Otherwise a later incarnation could ask for the same epoch with
        // another log.
        let Some(candidacy) = self.candidacy.as_mut().filter(|candidacy| candidacy.has_own) else { return };
        let wait_us = self.settings.timing.retransmit_us;
        if candidacy.asked_at.is_some_and(|at| self.now.since(at) < wait_us) {
            return;
        }
        candidacy.asked_at = Some(self.now);
        let voters = self.log.epoch().voters();
        let newest = candidacy.promises.values().map(|promise| promise.epoch.voters());
        let voters = newest.fold(voters, |all, more| all.union(&more));
        let message = Message::Prepare {
            ballot: candidacy.ballot,
            epoch: candidacy.asked.epoch,
            frontiers: candidacy.asked.frontiers.clone(),
            delivered: candidacy.asked.delivered,
        };
        let missing: Vec<_> =
            voters.iter().filter(|member| !candidacy.promises.contains_key(member)).collect();
        for member in missing {
            self.send(member, message.clone());
        }
    }

    pub(super) fn on_prepare(&mut self, from: MemberId, ballot: Ballot, asked: Asked) {
        self.newest = self.newest.max(ballot);
        if !self.log.epoch().voters().contains(from) {
            return;
        }
        if ballot < self.promised || (ballot == self.promised && ballot.candidate != from) {
            return self.send(from, Message::Refuse { promised: self.promised });
        }
        self.peer(from).asked = Some(asked);
        if ballot > self.promised {
            self.promised = ballot;
            self.candidacy = None;
            self.needed_since = None;
            self.handed_on.clear();
            if !self.is_planted(Bug::PromiseForgotten) {
                self.append(Record::Promised(ballot));
            }
        }
        self.await_durable(Awaited::Promise { to: from, ballot });
    }

    /// The promise is durable: sends it.
    pub(super) fn promise(&mut self, to: MemberId, ballot: Ballot) {
        if self.promised != ballot || self.log.epoch().ballot >= ballot {
            return;
        }
        if to == self.id {
            if let Some(candidacy) = self.candidacy.as_mut().filter(|candidacy| candidacy.ballot == ballot) {
                candidacy.has_own = true;
            }
            self.ask();
            return self.try_to_begin();
        }
        let Some(asked) = self.peers.get(&to).and_then(|peer| peer.asked.clone()) else { return };
        let Asked { epoch, frontiers, delivered } = asked;
        if delivered < self.log.base() {
            // The candidate has to ask again, or not at all, after it received the chosen entries.
            return self.on_fetch(to, delivered.max(self.health.delivered(to)));
        }
        let mine = Arc::clone(self.log.epoch());
        let mut entries = Entries::new();
        let is_of_mine = epoch == mine.ballot || self.is_planted(Bug::QuestionOfOtherEpoch);
        if is_of_mine && frontiers.len() == mine.owners.len() {
            for (owner, from) in frontiers.into_iter().enumerate() {
                entries.extend(self.log.turns_of(owner, from, usize::MAX).entries);
            }
        } else if epoch <= mine.ballot {
            entries = self.log.range(delivered, self.log.end());
        }
        let message = Message::Promise {
            ballot,
            epoch: mine,
            frontiers: self.log.frontiers().to_vec(),
            delivered: self.log.delivered(),
            settled: self.settled_epoch.ballot,
            entries,
        };
        self.send(to, message);
    }

    pub(super) fn on_refuse(&mut self, promised: Ballot) {
        self.newest = self.newest.max(promised);
        if self.candidacy.as_ref().is_some_and(|candidacy| promised > candidacy.ballot) {
            self.give_up_candidacy();
        }
    }

    pub(super) fn on_promise(&mut self, from: MemberId, ballot: Ballot, promise: Promise) {
        let Some(candidacy) = self.candidacy.as_mut().filter(|candidacy| candidacy.ballot == ballot) else {
            return;
        };
        candidacy.promises.entry(from).or_insert(promise);
        self.try_to_begin();
    }

    fn try_to_begin(&mut self) {
        let Some(candidacy) = self.candidacy.take() else { return };
        if !self.begin_if_promised(&candidacy) {
            self.candidacy = Some(candidacy);
        }
    }

    /// Begins the epoch if enough members have promised it. Returns whether it did.
    fn begin_if_promised(&mut self, candidacy: &Candidacy) -> bool {
        if !candidacy.has_own || self.promised != candidacy.ballot {
            return false;
        }
        let promises = &candidacy.promises;
        let mine = self.log.epoch();
        let own = (self.log.delivered(), self.settled_epoch.ballot);
        let known = promises.values().map(|promise| (promise.delivered, promise.settled)).chain([own]).max();
        let (delivered, settled) = known.unwrap_or(own);
        // An epoch was never chosen if a member has delivered slots after its start without it.
        let was_never = |epoch: &EpochStart| epoch.ballot > settled && epoch.slot < delivered;
        let epochs = promises.values().map(|promise| &promise.epoch).chain([mine]);
        let newest = epochs.filter(|epoch| !was_never(epoch)).max_by_key(|epoch| epoch.ballot);
        let Some(mut newest) = newest.cloned() else { return false };
        if self.is_planted(Bug::EpochsOfOthersIgnored) {
            newest = Arc::clone(mine);
        }
        if was_never(mine) || newest.slot < self.log.delivered() && newest.ballot > mine.ballot {
            // This member has to receive the chosen entries first.
            return false;
        }
        let has_promised = |member| member == self.id || promises.contains_key(&member);
        let is_chosen = settled == newest.ballot;
        let has_promised = |member| has_promised(member) || self.is_planted(Bug::NoMajorityAsked);
        if !newest.membership.is_majority(has_promised)
            || !(is_chosen || newest.previous.is_majority(has_promised))
        {
            return false;
        }
        if !newest.membership.contains(self.id) {
            return false;
        }
        let before = Arc::clone(self.log.epoch());
        merge(&mut self.log, &newest, promises);
        let (previous, membership) = match is_chosen {
            true => {
                let wanted = self.wanted_membership.clone().filter(|(from, _)| *from == newest.membership);
                let wanted = wanted.map_or_else(|| newest.membership.clone(), |(_, to)| to);
                (newest.membership.clone(), wanted)
            }
            false => (newest.previous.clone(), newest.membership.clone()),
        };
        let start = Arc::new(EpochStart {
            ballot: candidacy.ballot,
            slot: self.log.end(),
            previous,
            owners: self.new_owners(&newest, &membership),
            membership,
        });
        self.begin(start, &before);
        // Another member has delivered these entries, so they are chosen.
        if delivered > self.log.delivered() {
            self.deliver_to(delivered);
        }
        true
    }

    /// Continues as the only member, without a question to any other: for a group whose other members have lost their
    /// stores permanently. All entries that this member has accepted stay, including those that may never have been
    /// chosen. Entries that only the others had are lost. **This creates two histories if a majority of the others
    /// still exists.** No entry is delivered before its record is durable.
    ///
    /// The last entry before the new epoch is the mark: a proposal of [`MemberId::NOBODY`], with the round of the
    /// epoch as its incarnation. The mark is in the same record as the epoch, so that every history of a lone member
    /// contains it.
    ///
    /// Returns the round, or `None` without any effect if this one is not a member.
    pub fn go_on_alone(&mut self, mark: Arc<[u8]>) -> Option<u64> {
        let before = Arc::clone(self.log.epoch());
        if !before.membership.contains(self.id) {
            return None;
        }
        let alone = Membership::new([self.id]);
        let round = self.newest.max(self.promised).round + 1;
        let at = self.log.end();
        let id = ProposalId { member: MemberId::NOBODY, incarnation: Incarnation(round), number: 1 };
        let start = Arc::new(EpochStart {
            ballot: Ballot { round, candidate: self.id },
            slot: at.next(),
            previous: alone.clone(),
            membership: alone,
            owners: vec![self.myself()],
        });
        (self.candidacy, self.wanted_membership) = (None, None);
        self.begin_with(start, &before, Some((at, Entry::Proposal(Proposal { id, body: mark }))));
        Some(round)
    }

    fn new_owners(&self, newest: &EpochStart, membership: &Membership) -> Vec<Owner> {
        let wanted = self.health.wanted_owners(newest, &self.opinions, self.now).unwrap_or_default();
        let mut owners: Vec<_> =
            wanted.into_iter().filter(|owner| membership.contains(owner.member)).collect();
        if owners.is_empty() {
            owners.push(self.myself());
        }
        owners.sort_unstable();
        owners
    }

    fn begin(&mut self, start: Arc<EpochStart>, before: &EpochStart) {
        self.begin_with(start, before, None);
    }

    /// Like [`Member::begin`], with an additional entry before the epoch.
    fn begin_with(&mut self, start: Arc<EpochStart>, before: &EpochStart, more: Option<(Slot, Entry)>) {
        let from = self.log.delivered();
        let mut entries = self.log.range(from, start.slot);
        entries.extend(more);
        self.log.adopt(Arc::clone(&start), from, &entries);
        self.entered(before);
        self.append(Record::Adopted { start: Arc::clone(&start), from, entries });
        self.await_durable(Awaited::Adopted(start.ballot));
        for member in start.voters().iter().collect::<Vec<_>>() {
            if member != self.id {
                let delivered = self.health.delivered(member);
                self.send_epoch(member, delivered);
            }
        }
    }

    /// Sends the epoch to a member that has delivered all slots before `delivered`.
    pub(super) fn send_epoch(&mut self, to: MemberId, delivered: Slot) {
        let start = Arc::clone(self.log.epoch());
        let is_far = self.log.delivered().0.saturating_sub(delivered.0) > self.settings.chunk;
        if is_far || delivered < self.log.base() {
            // Chosen entries precede the epoch, in parts.
            return self.on_fetch(to, delivered);
        }
        let entries = self.log.range(delivered, start.slot);
        self.send(to, Message::Adopt { start, from: delivered, entries });
    }

    pub(super) fn on_adopt(
        &mut self,
        from: MemberId,
        start: Arc<EpochStart>,
        first: Slot,
        entries: &[(Slot, Entry)],
    ) {
        self.newest = self.newest.max(start.ballot);
        if start.ballot < self.promised {
            return self.send(from, Message::Refuse { promised: self.promised });
        }
        if start.ballot == self.log.epoch().ballot {
            return;
        }
        let delivered = self.log.delivered();
        if first > delivered {
            return self.send(from, Message::NeedPrefix { ballot: start.ballot, delivered });
        }
        if start.slot < delivered || entries.iter().any(|(slot, _)| *slot >= start.slot) {
            return;
        }
        let before = Arc::clone(self.log.epoch());
        self.log.adopt(Arc::clone(&start), first, entries);
        self.entered(&before);
        let entries = self.log.range(delivered, start.slot);
        self.append(Record::Adopted { start: Arc::clone(&start), from: delivered, entries });
        self.await_durable(Awaited::Adopted(start.ballot));
    }

    /// Asks for an epoch that has begun elsewhere and that this member does not have.
    pub(super) fn ask_for_epoch(&mut self, from: MemberId, ballot: Ballot) {
        // Chosen entries come first.
        if ballot < self.promised || self.is_fetching() {
            return;
        }
        let (now, wait_us, delivered) = (self.now, self.settings.timing.retransmit_us, self.log.delivered());
        let peer = self.peer(from);
        if peer.asked_at.is_none_or(|at| now.since(at) >= wait_us) {
            peer.asked_at = Some(now);
            self.send(from, Message::NeedPrefix { ballot, delivered });
        }
    }

    pub(super) fn on_need_prefix(&mut self, from: MemberId, ballot: Ballot, delivered: Slot) {
        if ballot <= self.log.epoch().ballot {
            self.send_epoch(from, delivered);
        }
    }
}

/// Merges into `log` the entries of the newest epoch from all members that have begun it.
fn merge(log: &mut Log, newest: &Arc<EpochStart>, promises: &BTreeMap<MemberId, Promise>) {
    let of_newest = || promises.values().filter(|promise| promise.epoch.ballot == newest.ballot);
    if newest.ballot > log.epoch().ballot {
        // Each of these members sent all entries from this member's `delivered` on.
        let Some(first) = of_newest().next() else { return };
        let delivered = log.delivered();
        if newest.slot >= delivered {
            log.adopt(Arc::clone(newest), delivered, &first.entries);
        }
    }
    for promise in of_newest() {
        for owner in 0..newest.owners.len() {
            let Some(from) = log.frontiers().get(owner).copied() else { return };
            let to = promise.frontiers.get(owner).copied().unwrap_or(from);
            let is_of = |slot: &Slot| *slot >= from && newest.owner_of(*slot) == Some(owner);
            let entries = promise.entries.iter().filter(|(slot, _)| is_of(slot)).cloned().collect();
            if to > from {
                log.accept(owner, &Turns { from, to, entries });
            }
        }
    }
}
