//! The entries that a member has accepted, and how far it has each owner's part of the epoch.
//!
//! Invariants:
//! * All slots before `delivered` hold what was chosen, permanently.
//! * All slots before the start of the epoch hold what the epoch's candidate put there. No other entry can have been
//!   chosen there in an earlier epoch.
//! * All slots of an owner before its frontier are known: each has an entry, or was skipped. So an owner's part is
//!   always a prefix of its slots, and the longest of several parts contains all the others.
//! * `delivered` is one after an entry. A skipped slot at the end is not delivered: a later epoch may begin there.

use crate::message::{Entries, Turns};
use crate::types::{Entry, EpochStart, Slot};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The accepted entries of a member, and their epoch.
#[derive(Clone, Debug)]
pub struct Log {
    /// First slot whose entry is retained.
    base: Slot,
    entries: BTreeMap<Slot, Entry>,
    epoch: Arc<EpochStart>,
    frontiers: Vec<Slot>,
    delivered: Slot,
}

impl Log {
    /// A log that continues after what a snapshot holds.
    pub fn after(epoch: Arc<EpochStart>, delivered: Slot) -> Self {
        let frontiers = (0..epoch.owners.len()).map(|owner| epoch.turn(owner, delivered)).collect();
        Self { base: delivered, entries: BTreeMap::new(), epoch, frontiers, delivered }
    }

    /// The epoch of the log.
    pub const fn epoch(&self) -> &Arc<EpochStart> {
        &self.epoch
    }

    /// For each owner of the epoch, its first unknown slot.
    pub fn frontiers(&self) -> &[Slot] {
        &self.frontiers
    }

    /// All slots before this one are chosen and were delivered.
    pub const fn delivered(&self) -> Slot {
        self.delivered
    }

    /// The first retained slot.
    pub const fn base(&self) -> Slot {
        self.base
    }

    /// All entries are before this slot.
    pub fn end(&self) -> Slot {
        self.entries.last_key_value().map_or(self.delivered, |(slot, _)| slot.next())
    }

    /// Entries in these slots.
    pub fn range(&self, from: Slot, to: Slot) -> Entries {
        if from >= to {
            return Vec::new();
        }
        self.entries.range(from..to).map(|(slot, entry)| (*slot, entry.clone())).collect()
    }

    /// The delivered entries from `from` on: at least one, at most `count` entries and `len_bytes` bytes. The returned
    /// slot is the end of the part. It follows an entry, like the end of all delivered slots.
    pub fn part(&self, from: Slot, count: u64, len_bytes: usize) -> (Slot, Entries) {
        let (mut entries, mut left) = (Entries::new(), len_bytes);
        for (slot, entry) in self.entries.range(from..self.delivered.max(from)) {
            let len = entry.len_bytes();
            if !entries.is_empty() && (entries.len() as u64 >= count || len > left) {
                let to = entries.last().map_or(from, |(last, _)| last.next());
                return (to, entries);
            }
            left = left.saturating_sub(len);
            entries.push((*slot, entry.clone()));
        }
        (self.delivered, entries)
    }

    /// Entries from `from` on.
    pub fn iter_from(&self, from: Slot) -> impl Iterator<Item = (Slot, &Entry)> {
        self.entries.range(from..).map(|(slot, entry)| (*slot, entry))
    }

    /// One owner's part from `from` on, with at most `limit` entries.
    pub fn turns_of(&self, owner: usize, from: Slot, limit: usize) -> Turns {
        let end = self.frontiers[owner];
        let mut turns = Turns { from, to: end, entries: Vec::new() };
        for (slot, entry) in self.entries.range(from..end.max(from)) {
            if self.epoch.owner_of(*slot) == Some(owner) {
                if turns.entries.len() == limit {
                    turns.to = *slot;
                    break;
                }
                turns.entries.push((*slot, entry.clone()));
            }
        }
        turns
    }

    /// Accepts an owner's slots. Returns the new part of them, or `None` if earlier slots are missing here.
    pub fn accept(&mut self, owner: usize, turns: &Turns) -> Option<Turns> {
        let known = *self.frontiers.get(owner)?;
        let is_proposals = turns.entries.iter().all(|(_, entry)| matches!(entry, Entry::Proposal(_)));
        if turns.from > known || !is_proposals {
            return None;
        }
        let mut new = Turns { from: known, to: turns.to.max(known), entries: Vec::new() };
        for (slot, entry) in &turns.entries {
            let is_new = *slot >= known && *slot < turns.to && self.epoch.owner_of(*slot) == Some(owner);
            if is_new {
                new.entries.push((*slot, entry.clone()));
                self.entries.insert(*slot, entry.clone());
            }
        }
        self.frontiers[owner] = new.to;
        Some(new)
    }

    /// Begins an epoch: `entries` lie between `from` and its start. All slots before `from` must be delivered.
    pub fn adopt(&mut self, start: Arc<EpochStart>, from: Slot, entries: &[(Slot, Entry)]) {
        let from = from.max(self.delivered);
        drop(self.entries.split_off(&from));
        let before = entries.iter().filter(|(slot, _)| *slot >= from && *slot < start.slot);
        self.entries.extend(before.cloned());
        self.entries.insert(start.slot, Entry::EpochStart(Arc::clone(&start)));
        self.frontiers = (0..start.owners.len()).map(|owner| start.turn(owner, start.slot.next())).collect();
        self.epoch = start;
    }

    /// Installs the chosen entries from `delivered` to before `to`, and does not deliver them. `settled` is the epoch
    /// at `delivered`.
    pub fn install(&mut self, to: Slot, entries: &[(Slot, Entry)], settled: &Arc<EpochStart>) {
        let from = self.delivered;
        let mut later = self.entries.split_off(&from);
        let mut later = later.split_off(&to);
        let mut settled = settled;
        for (slot, entry) in entries.iter().filter(|(slot, _)| *slot >= from && *slot < to) {
            self.entries.insert(*slot, entry.clone());
            if let Entry::EpochStart(start) = entry {
                settled = start;
            }
        }
        if self.leave_for(settled, to) {
            later.clear();
        }
        self.entries.append(&mut later);
        if self.epoch.slot < to {
            for (owner, frontier) in self.frontiers.iter_mut().enumerate() {
                *frontier = (*frontier).max(self.epoch.turn(owner, to));
            }
        }
    }

    /// `settled` is the epoch in which everything before `to` was chosen. An earlier epoch is over. A later one that
    /// would have begun before `to` was never chosen. Returns whether this log had such an epoch and now has
    /// `settled`.
    fn leave_for(&mut self, settled: &Arc<EpochStart>, to: Slot) -> bool {
        let is_over = settled.ballot > self.epoch.ballot;
        let was_never = settled.ballot < self.epoch.ballot && self.epoch.slot < to;
        if is_over || was_never {
            self.epoch = Arc::clone(settled);
            self.frontiers = vec![Slot(0); settled.owners.len()];
        }
        is_over || was_never
    }

    /// Continues after a snapshot. Known later slots stay, unless the snapshot's epoch is newer.
    pub fn jump(&mut self, epoch: &Arc<EpochStart>, to: Slot) {
        if to <= self.delivered {
            return;
        }
        if self.leave_for(epoch, to) {
            self.entries.clear();
        }
        self.install(to, &[], epoch);
        self.entries = self.entries.split_off(&to);
        (self.base, self.delivered) = (to, to);
    }

    /// Delivers all slots before `to`, which are chosen. Returns the newly delivered entries.
    pub fn deliver(&mut self, to: Slot) -> Entries {
        let entries = self.range(self.delivered, to);
        self.delivered = self.delivered.max(to);
        if self.epoch.slot < self.delivered {
            for (owner, frontier) in self.frontiers.iter_mut().enumerate() {
                *frontier = (*frontier).max(self.epoch.turn(owner, self.delivered));
            }
        }
        entries
    }

    /// The slot before which everything is chosen. `begun`: whether the epoch is chosen. `accepted`: whether a
    /// majority has accepted an owner's entry.
    pub fn chosen_to(&self, begun: bool, accepted: impl Fn(usize, Slot) -> bool) -> Slot {
        if !begun {
            return self.delivered;
        }
        let mut chosen = self.delivered.max(self.epoch.slot.next());
        for (slot, _) in self.entries.range(chosen..) {
            let Some(owner) = self.epoch.owner_of(*slot) else { break };
            // The content of all slots up to here is known.
            let turns = self.frontiers.iter().enumerate().map(|(other, from)| self.epoch.turn(other, *from));
            let is_next = turns.into_iter().all(|turn| turn > *slot);
            if !is_next || !accepted(owner, *slot) {
                break;
            }
            chosen = slot.next();
        }
        chosen
    }

    /// Drops the entries before `slot`, as far as they are delivered.
    pub fn give_up(&mut self, slot: Slot) {
        let base = slot.min(self.delivered).max(self.base);
        self.entries = self.entries.split_off(&base);
        self.base = base;
    }
}
