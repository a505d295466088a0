//! Entries that a member has accepted. Follows `crates/group/consensus/src/log.rs`, function by function, with an
//! array instead of the map of entries. All slots from the first on are retained: there are no `base` and no
//! snapshots.

use std::sync::Arc;

pub type Slot = u8;
pub type Ballot = u8;
/// A bit for each member.
pub type Members = u8;

/// Whether `who` is more than half of `of`.
pub const fn is_majority(of: Members, who: Members) -> bool {
    2 * (of & who).count_ones() > of.count_ones()
}

/// Content of a slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cell {
    Nothing,
    Start(Ballot),
    Value(u8),
}

/// `types::Owner`: an incarnation of a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner {
    pub member: usize,
    pub incarnation: u8,
}

/// `types::EpochStart`
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Start {
    pub ballot: Ballot,
    pub slot: Slot,
    pub previous: Members,
    pub membership: Members,
    pub owners: Vec<Owner>,
}

impl Start {
    /// `EpochStart::owner_of`
    pub fn owner_of(&self, slot: Slot) -> Option<usize> {
        let after = slot.checked_sub(self.slot + 1)?;
        after.checked_rem(self.owners.len() as u8).map(usize::from)
    }

    /// `EpochStart::turn`
    pub fn turn(&self, owner: usize, slot: Slot) -> Slot {
        let count = self.owners.len() as u8;
        let first = self.slot + 1 + owner as u8;
        first + slot.saturating_sub(first).div_ceil(count) * count
    }

    /// Number of a slot among the slots of its owner.
    pub fn number_of_turn(&self, slot: Slot) -> usize {
        usize::from((slot - self.slot - 1) / self.owners.len() as u8)
    }

    pub fn place(&self, owner: Owner) -> Option<usize> {
        self.owners.iter().position(|other| *other == owner)
    }

    pub const fn voters(&self) -> Members {
        self.previous | self.membership
    }

    fn first_turns(&self, slot: Slot) -> Vec<Slot> {
        (0..self.owners.len()).map(|owner| self.turn(owner, slot)).collect()
    }
}

/// `log::Log`
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Log {
    pub cells: Vec<Cell>,
    pub epoch: Arc<Start>,
    pub frontiers: Vec<Slot>,
    pub delivered: Slot,
}

impl Log {
    /// `Log::end`: all entries are before it.
    pub fn end(&self) -> Slot {
        let last = self.cells.iter().rposition(|cell| *cell != Cell::Nothing);
        last.map_or(0, |slot| slot as Slot + 1).max(self.delivered)
    }

    /// `Log::range`: entries, without empty slots.
    pub fn range(&self, from: Slot, to: Slot) -> Vec<(Slot, Cell)> {
        let cells = self.cells.iter().enumerate().map(|(slot, cell)| (slot as Slot, *cell));
        cells.filter(|(slot, cell)| *slot >= from && *slot < to && *cell != Cell::Nothing).collect()
    }

    /// `Log::turns_of`: entries of an owner from `from` on.
    pub fn turns_of(&self, owner: usize, from: Slot) -> Vec<(Slot, Cell)> {
        let entries = self.range(from, self.frontiers[owner].max(from));
        entries.into_iter().filter(|(slot, _)| self.epoch.owner_of(*slot) == Some(owner)).collect()
    }

    /// `Log::accept`, of slots that follow the known ones.
    pub fn accept(&mut self, owner: usize, to: Slot, entries: &[(Slot, Cell)]) {
        let known = self.frontiers[owner];
        for (slot, cell) in entries {
            if *slot >= known && *slot < to && self.epoch.owner_of(*slot) == Some(owner) {
                self.cells[usize::from(*slot)] = *cell;
            }
        }
        self.frontiers[owner] = to.max(known);
    }

    /// `Log::adopt`; delivered slots stay.
    pub fn adopt(&mut self, start: Arc<Start>, entries: &[(Slot, Cell)]) {
        let from = self.delivered;
        self.cells[usize::from(from)..].fill(Cell::Nothing);
        for (slot, cell) in entries.iter().filter(|(slot, _)| *slot >= from && *slot < start.slot) {
            self.cells[usize::from(*slot)] = *cell;
        }
        self.cells[usize::from(start.slot)] = Cell::Start(start.ballot);
        self.frontiers = start.first_turns(start.slot + 1);
        self.epoch = start;
    }

    /// `Log::install`; `settled` is the epoch in which the slots before `to` were chosen.
    pub fn install(&mut self, to: Slot, cells: &[Cell], settled: &Arc<Start>) {
        let (from, end) = (usize::from(self.delivered), usize::from(to));
        self.cells[from..end].copy_from_slice(&cells[from..end]);
        // `Log::leave_for`
        let is_over = settled.ballot > self.epoch.ballot;
        let was_never = settled.ballot < self.epoch.ballot && self.epoch.slot < to;
        if is_over || was_never {
            self.epoch = Arc::clone(settled);
            self.frontiers = vec![0; settled.owners.len()];
            self.cells[end..].fill(Cell::Nothing);
        }
        self.know_all_before(to);
    }

    /// `Log::deliver`
    pub fn deliver(&mut self, to: Slot) {
        self.delivered = self.delivered.max(to);
        self.know_all_before(self.delivered);
    }

    fn know_all_before(&mut self, to: Slot) {
        if self.epoch.slot < to {
            for (owner, frontier) in self.frontiers.iter_mut().enumerate() {
                *frontier = (*frontier).max(self.epoch.turn(owner, to));
            }
        }
    }

    /// `Log::chosen_to`, up to the next entry only: the member may know less of the others than possible.
    pub fn next_chosen(&self, is_begun: bool, is_accepted: impl Fn(usize, Slot) -> bool) -> Option<Slot> {
        if !is_begun {
            return None;
        }
        if self.delivered <= self.epoch.slot {
            return Some(self.epoch.slot + 1);
        }
        let (slot, _) = self.range(self.delivered, self.cells.len() as Slot).first().copied()?;
        let owner = self.epoch.owner_of(slot)?;
        let is_next = (0..self.frontiers.len()).all(|o| self.epoch.turn(o, self.frontiers[o]) > slot);
        (is_next && is_accepted(owner, slot)).then_some(slot + 1)
    }

    /// The log after a restart. Skips after an owner's last entry are in no record (`Member::accept` writes none). The
    /// delivered slot is known up to `recorded`.
    pub fn replayed(&self, recorded: Slot) -> Self {
        let mut log = self.clone();
        log.delivered = recorded;
        let entries = log.range(log.epoch.slot + 1, log.cells.len() as Slot);
        log.frontiers = log.epoch.first_turns(log.epoch.slot + 1);
        for (slot, _) in entries {
            if let Some(owner) = log.epoch.owner_of(slot).filter(|owner| slot < self.frontiers[*owner]) {
                log.frontiers[owner] = log.epoch.turn(owner, slot + 1);
            }
        }
        log.know_all_before(recorded);
        log
    }
}
