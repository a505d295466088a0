//! Members that are behind: they are given what is chosen, a part at a time, by anyone who has it.

use super::{Awaited, Member};
use crate::message::{Entries, Message};
use crate::record::Record;
use crate::types::{Ballot, MemberId, Slot};
use std::sync::Arc;

impl Member {
    /// Asks for what others have delivered, if nothing was delivered here for a while.
    pub(super) fn ask_for_missing(&mut self) {
        let wait_us = self.settings.timing.retransmit_us;
        if self.now.since(self.delivered_at) < wait_us {
            return;
        }
        let delivered = self.log.delivered();
        let heard = self.peers.keys().copied().filter(|member| self.health.is_heard(*member, self.now));
        let ahead = heard.max_by_key(|member| self.health.delivered(*member));
        if let Some(member) = ahead.filter(|member| self.health.delivered(*member) > delivered) {
            self.delivered_at = self.now;
            self.send(member, Message::Fetch { from: delivered });
        }
    }

    pub(super) fn on_fetch(&mut self, from: MemberId, first: Slot) {
        let (base, delivered) = (self.log.base(), self.log.delivered());
        if first < base {
            return self.send(from, Message::GivenUp { base });
        }
        if first >= delivered {
            return;
        }
        let mut to = Slot(delivered.0.min(first.0 + self.settings.chunk));
        let mut entries = self.log.range(first, to);
        if to < delivered {
            // A part ends at an entry, like all that is delivered.
            match entries.last() {
                Some((slot, _)) => to = slot.next(),
                None => {
                    let next = self.log.iter_from(to).next().map(|(slot, _)| slot.next());
                    to = next.unwrap_or(delivered).min(delivered);
                    entries = self.log.range(first, to);
                }
            }
        }
        let as_of = self.as_of();
        self.send(from, Message::Chosen { from: first, to, entries, as_of });
    }

    /// What was chosen as of a later epoch than that of this log may differ from what the owners did in this one, and
    /// was not accepted from them. So it counts as a promise of the later epoch: nothing of this one is acknowledged
    /// any more.
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
            as_of <= self.log.epoch().ballot || self.is_planted("acknowledged what others have chosen");
        if !is_of_epoch && as_of > self.promised {
            self.promised = as_of;
            // Who has promised a later epoch must not begin an earlier one: those that promised that did not promise this.
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
            self.send(from, Message::Fetch { from: to });
        }
    }
}
