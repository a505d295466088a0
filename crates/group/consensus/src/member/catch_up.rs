//! Transfer of chosen entries to members that are behind, in parts, from any member that has them.
//!
//! The driver of the member reads entries that are no longer in memory from the store, at its own speed
//! ([`Effect::Read`]). It reads one part at a time, for the requesting members in rotation. Chosen entries never
//! change, and no epoch after that of the answer influenced them. So other events in the meantime do not matter.
//!
//! A member needs a snapshot if no member can send its missing entries.

use super::{Awaited, Effect, Member};
use crate::message::{Entries, Message};
use crate::planted::Bug;
use crate::record::Record;
use crate::types::{Ballot, MemberId, Slot, Time};
use std::collections::VecDeque;
use std::sync::Arc;

/// In retransmission intervals: an answer may have to be read from the store first, and is long.
const PATIENCE: u64 = 10;

/// State of the transfers.
#[derive(Debug, Default)]
pub(super) struct CatchingUp {
    /// First slot that can be read from the store.
    readable: Option<Slot>,
    /// Members that wait for a part of the store, and their first slot.
    reads: VecDeque<(MemberId, Slot)>,
    is_reading: bool,
    /// Member that this one asked for its missing entries, the first slot, and the time.
    asked: Option<(MemberId, Slot, Time)>,
    /// Time since when no reachable member can send the missing entries.
    lacking: Option<Time>,
}

impl Member {
    /// Reports that the chosen entries from this slot on can be read from the store: see [`Effect::Read`].
    pub fn set_readable(&mut self, from: Slot) {
        self.catching_up.readable = Some(from);
    }

    /// Answers [`Effect::Read`] with the chosen entries from `from` on, or `None` if the read failed.
    pub fn read(&mut self, to: MemberId, from: Slot, entries: Option<Entries>) {
        self.catching_up.is_reading = false;
        let entries = entries.unwrap_or_default();
        let end = entries.last().map(|(slot, _)| slot.next());
        let is_more_told = self.is_planted(Bug::MoreReportedThanRead);
        let end = if is_more_told { end.map(|_| self.log.base()) } else { end };
        if let Some(end) = end {
            let as_of = self.as_of();
            self.send(to, Message::Chosen { from, to: end, entries, as_of });
        } else if self.catching_up.readable.is_none_or(|readable| from < readable) {
            self.give_up_on(to);
        }
        self.read_next();
    }

    fn read_next(&mut self) {
        if !self.catching_up.is_reading
            && let Some((to, from)) = self.catching_up.reads.pop_front()
        {
            self.catching_up.is_reading = true;
            self.effects.push(Effect::Read { to, from });
        }
    }

    /// Reports to a member that its missing entries are no longer available here.
    fn give_up_on(&mut self, member: MemberId) {
        let base = self.log.base();
        let base = self.catching_up.readable.map_or(base, |readable| readable.min(base));
        self.send(member, Message::GivenUp { base });
    }

    /// Asks for entries that others have delivered, if nothing was delivered here for a while.
    pub(super) fn ask_for_missing(&mut self) {
        let (now, wait_us) = (self.now, self.settings.timing.retransmit_us);
        if now.since(self.delivered_at) < wait_us {
            return;
        }
        let delivered = self.log.delivered();
        let is_ahead =
            |member: MemberId| self.health.is_heard(member, now) && self.health.delivered(member) > delivered;
        let ahead: Vec<_> = self.peers.keys().copied().filter(|member| is_ahead(*member)).collect();
        let can_give = |member: &MemberId| self.peers[member].given_up <= delivered;
        let giver =
            ahead.iter().copied().filter(can_give).max_by_key(|member| self.health.delivered(*member));
        match (giver, ahead.first().copied()) {
            (Some(giver), _) => {
                self.catching_up.lacking = None;
                if !self.is_fetching() {
                    self.delivered_at = now;
                    self.fetch(giver, delivered);
                }
            }
            (None, Some(from)) => self.lack(from),
            (None, None) => self.catching_up.lacking = None,
        }
    }

    /// Whether a reachable member was asked for the next entries, and may still answer.
    pub(super) fn is_fetching(&self) -> bool {
        let patience_us = PATIENCE * self.settings.timing.retransmit_us;
        self.catching_up.asked.is_some_and(|(member, from, at)| {
            from == self.log.delivered()
                && self.now.since(at) < patience_us
                && self.health.is_heard(member, self.now)
        })
    }

    fn fetch(&mut self, from: MemberId, first: Slot) {
        self.catching_up.asked = Some((from, first, self.now));
        self.send(from, Message::Fetch { from: first });
    }

    /// No reachable member that is ahead has the next entries.
    fn lack(&mut self, from: MemberId) {
        let timing = &self.settings.timing;
        let is_all_heard = self.log.epoch().voters().iter().all(|id| self.health.is_heard(id, self.now));
        let patience_us = if is_all_heard { timing.lacking_us } else { PATIENCE * timing.lacking_us };
        let since = *self.catching_up.lacking.get_or_insert(self.now);
        if self.now.since(since) >= patience_us {
            self.catching_up.lacking = None;
            self.effects.push(Effect::NeedsSnapshot { from });
        }
    }

    pub(super) fn on_given_up(&mut self, from: MemberId, base: Slot) {
        if base > self.log.delivered() {
            self.peer(from).given_up = base;
            self.catching_up.asked = None;
        }
    }

    pub(super) fn on_fetch(&mut self, from: MemberId, first: Slot) {
        let (now, patience_us) = (self.now, PATIENCE * self.settings.timing.retransmit_us);
        if first >= self.log.delivered() {
            return;
        }
        let is_kept = first >= self.log.base();
        if !is_kept && self.catching_up.readable.is_none_or(|readable| first < readable) {
            return self.give_up_on(from);
        }
        let peer = self.peer(from);
        if peer.given.is_some_and(|(given, at)| given == first && now.since(at) < patience_us) {
            return;
        }
        peer.given = Some((first, now));
        if is_kept {
            let (to, entries) = self.log.part(first, self.settings.chunk, self.settings.chunk_len_bytes);
            let as_of = self.as_of();
            return self.send(from, Message::Chosen { from: first, to, entries, as_of });
        }
        self.catching_up.reads.retain(|(member, _)| *member != from);
        self.catching_up.reads.push_back((from, first));
        self.read_next();
    }

    /// Entries that were chosen as of a later epoch may differ from those of the owners in this log's epoch, and were
    /// not accepted from them. So they count as a promise of the later epoch: this member no longer acknowledges
    /// anything of its own epoch.
    pub(super) fn on_chosen(
        &mut self,
        from: MemberId,
        first: Slot,
        to: Slot,
        entries: Entries,
        as_of: Ballot,
    ) {
        let delivered = self.log.delivered();
        if first > delivered || to <= delivered {
            return;
        }
        let before = Arc::clone(self.log.epoch());
        self.log.install(to, &entries, &self.settled_epoch);
        self.told_as_of = self.told_as_of.max(as_of);
        self.newest = self.newest.max(as_of);
        let is_of_epoch =
            as_of <= self.log.epoch().ballot || self.is_planted(Bug::ChosenByOthersAcknowledged);
        if !is_of_epoch && as_of > self.promised {
            self.promised = as_of;
            // A member that has promised a later epoch must not begin an earlier one. Members that promised the later
            // epoch did not promise this one.
            self.candidacy = None;
            self.append(Record::Promised(as_of));
        }
        self.append(Record::Chosen { from: first, to, entries });
        self.deliver_to(to);
        let epoch = Arc::clone(self.log.epoch());
        if epoch.ballot != before.ballot {
            self.entered(&before);
            self.await_durable(Awaited::Adopted(epoch.ballot));
        }
        for (owner, to) in self.log.frontiers().to_vec().into_iter().enumerate().filter(|_| is_of_epoch) {
            self.await_durable(Awaited::Accepted { epoch: epoch.ballot, owner, to, has_entries: true });
        }
        if self.health.delivered(from) > to {
            self.fetch(from, to);
        }
    }
}
