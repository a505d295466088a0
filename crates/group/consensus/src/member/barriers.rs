//! Reads that must see everything that was acknowledged before them.
//!
//! Chosen entries are on a majority. So the last entry of any member of a majority is not before the last chosen one.
//! When all entries up to that one are delivered here, so is everything that was chosen at the time of the answers. If
//! the answers belong to another epoch, the member asks again, because the membership may have changed.

use super::{Effect, Member};
use crate::message::Message;
use crate::planted::Bug;
use crate::types::{Ballot, MemberId, Slot, Time};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
struct Barrier {
    epoch: Ballot,
    answers: BTreeSet<MemberId>,
    to: Slot,
    is_known: bool,
    asked_at: Time,
}

/// Barriers in progress.
#[derive(Debug, Default)]
pub(super) struct Barriers(BTreeMap<u64, Barrier>);

impl Member {
    /// Requests an [`Effect::BarrierReached`] when everything that is chosen now is delivered here. The caller chooses
    /// `nonce`, which must differ for each call, over all incarnations of the member.
    pub fn barrier(&mut self, nonce: u64) {
        let barrier = Barrier {
            epoch: self.log.epoch().ballot,
            answers: BTreeSet::new(),
            to: Slot(0),
            is_known: false,
            asked_at: self.now,
        };
        self.barriers.0.insert(nonce, barrier);
        self.ask_barrier(nonce);
    }

    fn ask_barrier(&mut self, nonce: u64) {
        let (epoch, end) = (self.log.epoch().ballot, self.log.end());
        for member in self.log.epoch().voters().iter().collect::<Vec<_>>() {
            self.send(member, Message::BarrierAsk { nonce });
        }
        self.on_barrier_answer(self.id, nonce, epoch, end);
    }

    pub(super) fn on_barrier_ask(&mut self, from: MemberId, nonce: u64) {
        let message = Message::BarrierAnswer { nonce, epoch: self.log.epoch().ballot, to: self.log.end() };
        self.send(from, message);
        // It waits for the progress that would be sent later.
        self.peer(from).sent_at = None;
    }

    pub(super) fn on_barrier_answer(&mut self, from: MemberId, nonce: u64, epoch: Ballot, to: Slot) {
        let is_settled = self.is_settled();
        let mine = self.log.epoch();
        let has_no_majority = self.is_planted(Bug::BarrierWithoutMajority);
        let Some(barrier) = self.barriers.0.get_mut(&nonce).filter(|barrier| !barrier.is_known) else {
            return;
        };
        if barrier.epoch != mine.ballot {
            barrier.epoch = mine.ballot;
            barrier.answers.clear();
            barrier.to = Slot(0);
        }
        if epoch > mine.ballot {
            // The question is repeated when this member has that epoch, too.
            return;
        }
        if has_no_majority {
            barrier.answers.extend(mine.voters().iter());
        }
        barrier.answers.insert(from);
        // Entries of an earlier epoch after the start of this one were not chosen.
        let to = if epoch < mine.ballot { to.min(mine.slot.next()) } else { to };
        barrier.to = barrier.to.max(to);
        let answers = &barrier.answers;
        barrier.is_known = mine.membership.is_majority(|member| answers.contains(&member))
            && (is_settled || mine.previous.is_majority(|member| answers.contains(&member)));
        self.reach_barriers();
    }

    /// Reports the barriers that are reached.
    pub(super) fn reach_barriers(&mut self) {
        let (delivered, begun) = (self.log.delivered(), self.settled_epoch.ballot);
        let is_reached =
            |barrier: &Barrier| barrier.is_known && (delivered >= barrier.to || begun > barrier.epoch);
        let reached: Vec<_> = self
            .barriers
            .0
            .iter()
            .filter(|(_, barrier)| is_reached(barrier))
            .map(|(nonce, _)| *nonce)
            .collect();
        for nonce in reached {
            self.barriers.0.remove(&nonce);
            self.effects.push(Effect::BarrierReached(nonce));
        }
    }

    /// Repeats the questions whose answers are missing.
    pub(super) fn retry_barriers(&mut self) {
        let (now, wait_us) = (self.now, self.settings.timing.retransmit_us);
        let mut again = Vec::new();
        for (nonce, barrier) in &mut self.barriers.0 {
            if !barrier.is_known && now.since(barrier.asked_at) >= wait_us {
                barrier.asked_at = now;
                again.push(*nonce);
            }
        }
        for nonce in again {
            self.ask_barrier(nonce);
        }
    }
}
