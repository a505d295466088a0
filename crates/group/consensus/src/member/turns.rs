//! Owned slots. An owner places its proposals and skips other slots. Members accept and acknowledge the slots of
//! others, and deliver in order the entries that a majority has durably.
//!
//! An owner skips its slots before any entry that it receives, in the same message in which it acknowledges the entry.
//! So a proposal is chosen after one round trip to a majority and delivered as soon as all owners have answered.
//!
//! A skip needs no majority and no disk. No other member can fill the slot in this epoch, this incarnation of its
//! owner does not, and a later incarnation owns no slots. Later epochs do not either, because [`Log::chosen_to`] ends
//! at an entry: a later epoch retains all chosen entries, and so all slots before them.
//!
//! [`Log::chosen_to`]: crate::log::Log::chosen_to

use super::{Awaited, Effect, Member, Peer};
use crate::message::{Message, Progress, Turns};
use crate::planted::Bug;
use crate::record::Record;
use crate::types::{Entry, MemberId, Owner, Proposal, Slot};
use std::sync::Arc;

/// Maximum number of proposals in one forwarding message.
const FORWARDED: usize = 64;
/// Maximum number of forwarded proposals that are queued here for room in the window.
const MAX_HANDED_ON: usize = 4096;
/// Maximum number of entries in one message.
const MAX_ENTRIES: usize = 1024;
/// Interval between records of the delivered slot, in slots.
const DELIVERED_RECORD_SLOTS: u64 = 1024;

impl Member {
    pub(super) fn on_progress(&mut self, from: MemberId, progress: Progress) {
        let now = self.now;
        self.health.heard(from, &progress, now);
        self.newest = self.newest.max(progress.epoch);
        let epoch = Arc::clone(self.log.epoch());
        let peer = self.peer(from);
        if progress.incarnation > peer.incarnation {
            // It may know less than its previous incarnation: skipped slots are in no record.
            *peer = Peer { incarnation: progress.incarnation, moved_at: now, ..Peer::default() };
        }
        if progress.epoch > epoch.ballot {
            return self.ask_for_epoch(from, progress.epoch);
        }
        if progress.epoch < epoch.ballot {
            return;
        }
        if let Some(turns) = &progress.turns
            && let Some(owner) = epoch.place(Owner { member: from, incarnation: progress.incarnation })
            && (self.promised == epoch.ballot || self.is_planted(Bug::AcceptedAfterPromise))
        {
            self.accept(owner, turns);
        }
        let mine = self.place();
        if let Some(acked) = progress.acked.filter(|acked| acked.len() == epoch.owners.len()) {
            let peer = self.peer(from);
            peer.is_begun = true;
            peer.acked.resize(acked.len(), Slot(0));
            for (owner, (known, to)) in peer.acked.iter_mut().zip(acked).enumerate() {
                if to > *known {
                    *known = to;
                    if Some(owner) == mine {
                        peer.moved_at = now;
                    }
                }
            }
        }
    }

    /// Accepts slots of an owner, which may be this member.
    fn accept(&mut self, owner: usize, turns: &Turns) {
        let Some(new) = self.log.accept(owner, turns).filter(|new| new.to > new.from) else { return };
        let (epoch, to, has_entries) = (self.log.epoch().ballot, new.to, !new.entries.is_empty());
        if let Some((slot, _)) = new.entries.last() {
            self.last_entries[owner] = *slot;
            self.append(Record::Accepted { epoch, owner, turns: new });
        }
        self.await_durable(Awaited::Accepted { epoch, owner, to, has_entries });
    }

    /// Places proposals in this member's slots, and skips its slots before entries of others.
    pub(super) fn place_proposals(&mut self) {
        let Some(me) = self.place() else { return };
        let epoch = Arc::clone(self.log.epoch());
        let from = self.log.frontiers()[me];
        let limit = Slot(self.log.delivered().0 + self.settings.window);
        let mut turns = Turns { from, to: from, entries: Vec::new() };
        while turns.to < limit {
            let own = self.next_own();
            let is_own = own.is_some();
            let Some(proposal) = own.or_else(|| self.handed_on.pop_front()) else { break };
            if self.expected.take(proposal.id) {
                turns.entries.push((turns.to, Entry::Proposal(proposal)));
                turns.to = epoch.turn(me, turns.to.next());
            } else if is_own {
                break;
            }
        }
        turns.to = turns.to.max(epoch.turn(me, self.log.end()));
        self.accept(me, &turns);
    }

    /// The first of this member's own proposals that is not placed. Their numbers have no gaps.
    fn next_own(&self) -> Option<Proposal> {
        let next = self.expected.last(self.id, self.incarnation) + 1;
        let at = next.checked_sub(self.own.front()?.id.number)?;
        self.own.get(usize::try_from(at).ok()?).cloned()
    }

    /// Delivers chosen entries. Returns whether there were any.
    pub(super) fn settle(&mut self) -> bool {
        let epoch = self.log.epoch();
        let has_begun = |member| match member == self.id {
            true => self.is_begun,
            false => self.peers.get(&member).is_some_and(|peer| peer.is_begun),
        };
        let begun = epoch.previous.is_majority(has_begun) && epoch.membership.is_majority(has_begun);
        let begun = begun
            || self.is_settled()
            || (self.is_planted(Bug::NewMembersAlone) && epoch.membership.is_majority(has_begun));
        let to = self.log.chosen_to(begun, |owner, slot| {
            epoch.membership.is_majority(|member| match member == self.id {
                true => self.acked[owner] > slot,
                false => self.peers.get(&member).is_some_and(|peer| peer.acked.get(owner) > Some(&slot)),
            })
        });
        let known = self.log.frontiers().iter().copied().min().unwrap_or(to);
        let is_all_chosen = to == self.log.end() && self.is_planted(Bug::TrailingSkipsDelivered);
        let to = if is_all_chosen { to.max(known) } else { to };
        let is_more = to > self.log.delivered();
        if is_more {
            self.deliver_to(to);
        }
        is_more
    }

    pub(super) fn deliver_to(&mut self, to: Slot) {
        if to <= self.log.delivered() {
            return;
        }
        let mut has_epoch = false;
        let entries = self.log.deliver(to);
        self.effects.push(Effect::Chosen(entries.iter().map(|(slot, _)| *slot).collect()));
        for (slot, entry) in entries {
            match entry {
                Entry::Proposal(proposal) => {
                    let is_in_turn = self.origins.take(proposal.id);
                    self.expected.take(proposal.id);
                    if is_in_turn || self.is_planted(Bug::DeliveredTwice) {
                        if self.own.front().is_some_and(|own| own.id == proposal.id) {
                            self.own.pop_front();
                        }
                        self.effects.push(Effect::Deliver { slot, proposal });
                    }
                }
                Entry::EpochStart(start) => {
                    self.origins.begin(&start);
                    self.settled_epoch = Arc::clone(&start);
                    if start.membership != start.previous {
                        // This member's change, or another one that supersedes it.
                        self.wanted_membership = None;
                    }
                    self.attempts = 0;
                    has_epoch = true;
                    self.effects.push(Effect::Begun(start));
                }
            }
        }
        self.delivered_at = self.now;
        if has_epoch || to.0 - self.delivered_record.0 >= DELIVERED_RECORD_SLOTS {
            self.delivered_record = to;
            self.append(Record::Delivered(to));
        }
        self.reach_barriers();
    }

    /// Queues proposals of another member. That member sends undelivered proposals again after a while.
    pub(super) fn on_forward(&mut self, proposals: Vec<Proposal>) {
        if self.is_owner() {
            let room = MAX_HANDED_ON.saturating_sub(self.handed_on.len());
            self.handed_on.extend(proposals.into_iter().take(room));
        }
    }

    /// Forwards proposals that this member cannot place itself.
    pub(super) fn forward(&mut self) {
        let epoch = Arc::clone(self.log.epoch());
        if self.place().is_some() || self.own.is_empty() || self.promised != epoch.ballot {
            return;
        }
        if self.now.since(self.forwarded_at) >= self.settings.timing.retransmit_us {
            self.forwarded = 0;
        }
        let count = epoch.owners.len();
        let to = (0..count).map(|at| epoch.owners[at.wrapping_add(self.id.0 as usize) % count].member);
        let Some(to) = to.into_iter().find(|member| self.health.is_heard(*member, self.now)) else { return };
        let is_new = |proposal: &&Proposal| proposal.id.number > self.forwarded;
        let proposals: Vec<_> = self.own.iter().filter(is_new).take(FORWARDED).cloned().collect();
        if let Some(last) = proposals.last() {
            self.forwarded = last.id.number;
            self.forwarded_at = self.now;
            self.send(to, Message::Forward { proposals });
        }
    }

    /// Detects owners that hold the others up, and resends slots that were not acknowledged.
    pub(super) fn watch_turns(&mut self) {
        let epoch = Arc::clone(self.log.epoch());
        let end = self.log.end();
        for (owner, frontier) in self.log.frontiers().to_vec().into_iter().enumerate() {
            if epoch.owners[owner].member != self.id {
                let owed = epoch.turn(owner, frontier);
                self.health.owes(epoch.owners[owner], (owed < end).then_some(owed), self.now);
            }
        }
        let Some(me) = self.place() else { return };
        let (now, wait_us) = (self.now, self.settings.timing.retransmit_us);
        let first = epoch.turn(me, epoch.slot.next());
        for peer in self.peers.values_mut() {
            let acked = peer.acked.get(me).copied().unwrap_or_default().max(first);
            if acked >= peer.sent {
                peer.moved_at = now;
            } else if now.since(peer.moved_at) >= wait_us {
                peer.sent = acked;
                peer.moved_at = now;
            }
        }
    }

    /// Sends news to the others.
    pub(super) fn tell(&mut self) {
        let epoch = Arc::clone(self.log.epoch());
        let me = self.place();
        let (me_id, voters) = (self.id, epoch.voters());
        for member in voters.union(&self.listeners).iter().filter(|member| *member != me_id) {
            let mut peer = self.peers.remove(&member).unwrap_or_default();
            // Listeners ask for delivered entries themselves.
            let me = me.filter(|_| voters.contains(member));
            let turns = me.and_then(|me| {
                let from = peer.sent.max(epoch.turn(me, epoch.slot.next()));
                // Slots that were dropped here have to reach the member in another way.
                let is_kept = from >= epoch.turn(me, self.log.base());
                let is_new = from < self.log.frontiers()[me] && self.health.is_heard(member, self.now);
                (is_kept && is_new).then(|| self.log.turns_of(me, from, MAX_ENTRIES))
            });
            let is_due =
                peer.sent_at.is_none_or(|at| self.now.since(at) >= self.settings.timing.heartbeat_us);
            let with_opinions = is_due || peer.opinion_version != self.opinion_version;
            let is_news =
                turns.is_some() || (peer.ack_version != self.ack_version && voters.contains(member));
            let is_lazy_due =
                || peer.sent_at.is_some_and(|at| self.now.since(at) >= self.settings.timing.lazy_us);
            let is_urgent = || self.is_waited_for(member, &peer, turns.as_ref());
            if with_opinions || is_news && (is_lazy_due() || is_urgent()) {
                if let Some(turns) = &turns {
                    peer.sent = turns.to;
                }
                peer.ack_version = self.ack_version;
                if with_opinions {
                    peer.opinion_version = self.opinion_version;
                }
                peer.sent_at = Some(self.now);
                let progress = self.progress(turns, with_opinions);
                self.send(member, Message::Progress(progress));
            }
            self.peers.insert(member, peer);
        }
    }

    /// Whether a member waits for the news: for proposals, or for acknowledgements that let its own proposals be
    /// delivered. Acknowledgements for the proposals of others follow with these, or a little later.
    fn is_waited_for(&self, member: MemberId, peer: &Peer, turns: Option<&Turns>) -> bool {
        let owner = self.log.epoch().owners.iter().position(|owner| owner.member == member);
        let Some(owner) = owner.filter(|_| self.is_settled()) else { return true };
        let is_skipped_for_it =
            |turns: &Turns| !turns.entries.is_empty() || self.last_entries[owner] >= turns.from;
        turns.is_some_and(is_skipped_for_it) || self.ack_versions[owner] > peer.ack_version
    }
}
