//! A state of the group: the members, and all messages ever sent. Messages are never removed, so each may be lost (no
//! member receives it), duplicated, delayed and reordered. They are stored by epoch, not one by one.

use crate::log::{Ballot, Cell, Log, Members, Slot, Start};
use std::collections::BTreeSet;
use std::sync::Arc;

/// State of a member that survives a restart.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Store {
    pub log: Log,
    pub promised: Ballot,
    /// The delivered slot of the last record that has one.
    pub recorded: Slot,
}

/// `Asked`: state of the candidate's log, in its question.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Asked {
    pub epoch: Arc<Start>,
    pub frontiers: Vec<Slot>,
    pub delivered: Slot,
}

/// `Candidacy`, without the promises: it counts any subset of `Epoch::promises`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Candidacy {
    pub ballot: Ballot,
    pub asked: Asked,
}

/// `Message::Promise`
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Promise {
    pub from: usize,
    pub epoch: Arc<Start>,
    pub frontiers: Vec<Slot>,
    pub delivered: Slot,
    pub settled: Ballot,
    pub entries: Vec<(Slot, Cell)>,
}

/// `Message::Chosen`, from the first slot on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Chosen {
    pub to: Slot,
    pub as_of: Ballot,
    pub cells: Vec<Cell>,
}

/// `Member`
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Member {
    pub store: Store,
    /// The durable state, if it differs from `store`.
    pub durable: Option<Store>,
    pub incarnation: u8,
    pub told_as_of: Ballot,
    /// `Awaited::Accepted`: for each owner, the slot that is acknowledged once it is durable.
    pub accepted: Vec<Slot>,
    pub candidacy: Option<Candidacy>,
    /// `Awaited::Promise`
    pub owes_promise: Option<Ballot>,
}

/// All messages about an epoch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Epoch {
    pub candidate: Option<usize>,
    /// `Message::Prepare`
    pub asked: Option<Asked>,
    pub promises: BTreeSet<Promise>,
    /// `Message::Adopt`
    pub start: Option<Arc<Start>>,
    pub before: Vec<(Slot, Cell)>,
    /// `Progress::turns`: the content of each owner's slots.
    pub turns: Vec<Vec<Cell>>,
    /// `Progress::acked` is `Some`: members that have durably begun it.
    pub begun: Members,
    /// `Progress::acked`: of each member, for each owner.
    pub acked: Vec<Vec<Slot>>,
}

/// A state of the group: the members, and all messages ever sent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub members: Vec<Arc<Member>>,
    /// Indexed by ballot.
    pub epochs: Vec<Arc<Epoch>>,
    pub chosen: BTreeSet<Chosen>,
    /// Number of proposals so far, which the bounds limit. `stops` counts restarts.
    pub proposals: u8,
    pub stops: u8,
    /// For checks only: the first delivered entry of each slot, by any member.
    pub delivered: Vec<Option<Cell>>,
    /// For checks only: two entries were delivered in one slot.
    pub has_two_values: bool,
    /// For checks only: one member delivered an entry in a slot that another one skipped.
    pub has_gap: bool,
    /// For checks only: one slot of an owner was reported with two contents.
    pub has_two_owners: bool,
}

impl Epoch {
    pub const fn unused() -> Self {
        Self {
            candidate: None,
            asked: None,
            promises: BTreeSet::new(),
            start: None,
            before: Vec::new(),
            turns: Vec::new(),
            begun: 0,
            acked: Vec::new(),
        }
    }

    pub fn begin(&mut self, start: Arc<Start>, before: Vec<(Slot, Cell)>, members: usize) {
        self.turns = vec![Vec::new(); start.owners.len()];
        self.acked = vec![vec![0; start.owners.len()]; members];
        self.before = before;
        self.start = Some(start);
    }

    /// Members that have acknowledged an owner's slot.
    pub fn acked_by(&self, owner: usize, slot: Slot) -> Members {
        let members = self.acked.iter().enumerate().filter(|(_, acked)| acked[owner] > slot);
        members.fold(0, |all, (member, _)| all | 1 << member)
    }
}

impl State {
    /// Mutable access to a member. States share equal parts.
    pub fn member(&mut self, member: usize) -> &mut Member {
        Arc::make_mut(&mut self.members[member])
    }

    /// Mutable access to an epoch.
    pub fn epoch(&mut self, ballot: Ballot) -> &mut Epoch {
        Arc::make_mut(&mut self.epochs[usize::from(ballot)])
    }

    /// The epoch of the delivered slots of a member: `Member::settled_epoch`.
    pub fn settled(&self, log: &Log, to: Slot) -> Arc<Start> {
        let ballot = log.cells[..usize::from(to)].iter().rev().find_map(|cell| match cell {
            Cell::Start(ballot) => Some(*ballot),
            _ => None,
        });
        Arc::clone(self.epochs[usize::from(ballot.unwrap_or(0))].start.as_ref().expect("it began"))
    }
}
