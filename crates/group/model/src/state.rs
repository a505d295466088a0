//! A state of the group: the members, and all that was ever sent. Nothing that was sent goes away, so each message may
//! be lost (nobody takes it in), doubled, delayed and overtaken. It is kept by epoch, not one by one.

use crate::log::{Ballot, Cell, Log, Members, Slot, Start};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a member has to find again.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Store {
    pub log: Log,
    pub promised: Ballot,
    /// To where a record says that everything is delivered.
    pub recorded: Slot,
}

/// `Asked`: what the candidate has, in its question.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Asked {
    pub epoch: Arc<Start>,
    pub frontiers: Vec<Slot>,
    pub delivered: Slot,
}

/// `Candidacy`, without the promises: it counts those that it likes of `Epoch::promises`.
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
    /// What is durable, if that is not what is in the store.
    pub durable: Option<Store>,
    pub incarnation: u8,
    pub told_as_of: Ballot,
    /// `Awaited::Accepted`: for each owner, what may be acknowledged once it is durable.
    pub accepted: Vec<Slot>,
    pub candidacy: Option<Candidacy>,
    /// `Awaited::Promise`
    pub owes_promise: Option<Ballot>,
}

/// All that was said of an epoch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Epoch {
    pub candidate: Option<usize>,
    /// `Message::Prepare`
    pub asked: Option<Asked>,
    pub promises: BTreeSet<Promise>,
    /// `Message::Adopt`
    pub start: Option<Arc<Start>>,
    pub before: Vec<(Slot, Cell)>,
    /// `Progress::turns`: of each owner what it did with its turns.
    pub turns: Vec<Vec<Cell>>,
    /// `Progress::acked` is something: who has durably begun it.
    pub begun: Members,
    /// `Progress::acked`: of each member, for each owner.
    pub acked: Vec<Vec<Slot>>,
}

/// A state of the group: the members, and all that was ever sent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub members: Vec<Arc<Member>>,
    /// By ballot.
    pub epochs: Vec<Arc<Epoch>>,
    pub chosen: BTreeSet<Chosen>,
    /// How often there was a thing of which the bounds allow so many.
    pub proposals: u8,
    pub stops: u8,
    /// Only to check: what was delivered first in each slot, by whomever.
    pub delivered: Vec<Option<Cell>>,
    /// Only to check: two entries were delivered in one slot.
    pub has_two_values: bool,
    /// Only to check: an entry was delivered in a slot, and nothing in the same by another one.
    pub has_gap: bool,
    /// Only to check: two things were said of one turn of an owner.
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

    /// Who has acknowledged what an owner did in a slot.
    pub fn acked_by(&self, owner: usize, slot: Slot) -> Members {
        let members = self.acked.iter().enumerate().filter(|(_, acked)| acked[owner] > slot);
        members.fold(0, |all, (member, _)| all | 1 << member)
    }
}

impl State {
    /// To change it. States share what is the same in them.
    pub fn member(&mut self, member: usize) -> &mut Member {
        Arc::make_mut(&mut self.members[member])
    }

    /// To change it.
    pub fn epoch(&mut self, ballot: Ballot) -> &mut Epoch {
        Arc::make_mut(&mut self.epochs[usize::from(ballot)])
    }

    /// The epoch at what a member has delivered: `Member::settled_epoch`.
    pub fn settled(&self, log: &Log, to: Slot) -> Arc<Start> {
        let ballot = log.cells[..usize::from(to)].iter().rev().find_map(|cell| match cell {
            Cell::Start(ballot) => Some(*ballot),
            _ => None,
        });
        Arc::clone(self.epochs[usize::from(ballot.unwrap_or(0))].start.as_ref().expect("it began"))
    }
}
