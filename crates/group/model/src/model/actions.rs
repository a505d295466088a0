//! Possible actions in a state, and their effects.

use super::{Action, Group, Mistake};
use crate::log::{Ballot, Cell};
use crate::state::{Asked, Candidacy, Chosen, State};
use std::sync::Arc;

impl Group {
    pub(super) fn actions_of(&self, state: &State, member: usize, actions: &mut Vec<Action>) {
        let me = &state.members[member];
        let (log, promised) = (&me.store.log, me.store.promised);
        let is_unused = |ballot: &Ballot| state.epochs[usize::from(*ballot)].candidate.is_none();
        if self.candidates & log.epoch.membership & 1 << member != 0 {
            let ballots = (promised + 1..self.ballots).filter(is_unused);
            actions.extend(ballots.map(|ballot| Action::Ask { member, ballot }));
        }
        for ballot in promised.max(1)..self.ballots {
            let epoch = &state.epochs[usize::from(ballot)];
            let Some(candidate) = epoch.candidate.filter(|candidate| *candidate != member) else { continue };
            let is_asked = Self::asks(state, ballot) & 1 << member != 0;
            if is_asked && log.epoch.voters() & 1 << candidate != 0 && log.epoch.ballot < ballot {
                actions.push(Action::Promise { member, ballot });
            }
            if let Some(start) = &epoch.start
                && ballot != log.epoch.ballot
                && start.slot >= log.delivered
            {
                actions.push(Action::Adopt { member, ballot });
            }
        }
        if let Some(candidacy) = &me.candidacy
            && state.epochs[usize::from(candidacy.ballot)].asked.is_some()
        {
            for promises in Self::choices(state, candidacy.ballot) {
                let Some((_, is_chosen, _)) = self.newest(state, member, &promises) else { continue };
                for owners in &self.owners {
                    let (promises, owners) = (promises.clone(), *owners);
                    if self.wanted.is_some() && is_chosen {
                        let promises = promises.clone();
                        actions.push(Action::Begin { member, promises, owners, changes_members: true });
                    }
                    actions.push(Action::Begin { member, promises, owners, changes_members: false });
                }
            }
        }
        if let Some(place) = self.place(state, member) {
            if state.proposals < self.proposals && log.frontiers[place] < self.slots {
                actions.push(Action::Propose { member });
            }
            if log.epoch.turn(place, log.end()) > log.frontiers[place] {
                actions.push(Action::Skip { member });
            }
        }
        if promised == log.epoch.ballot || self.has(Mistake::AcceptedAfterPromise) {
            let epoch = &state.epochs[usize::from(log.epoch.ballot)];
            for owner in 0..log.epoch.owners.len() {
                let is_new = log.frontiers[owner] < self.slots
                    && log.epoch.number_of_turn(log.frontiers[owner]) < epoch.turns[owner].len();
                let is_sent =
                    log.epoch.voters() & 1 << member != 0 && log.epoch.owners[owner].member != member;
                if is_new && is_sent {
                    actions.push(Action::Accept { member, owner });
                }
            }
        }
        if self.next_chosen(state, member).is_some() {
            actions.push(Action::Deliver { member });
        }
        if state.chosen.len() < self.told && self.tellers & 1 << member != 0 {
            let first = if self.first.is_some() { 2 } else { 1 };
            let ends = (first..log.delivered).filter(|slot| log.cells[usize::from(*slot)] != Cell::Nothing);
            actions.extend(ends.map(|slot| Action::Tell { member, to: slot + 1 }));
        }
        let news = state.chosen.iter().filter(|chosen| chosen.to > log.delivered);
        actions.extend(news.map(|chosen| Action::Learn { member, chosen: chosen.clone() }));
        if me.durable.is_some() {
            actions.push(Action::Sync { member });
        }
        if state.stops < self.stops && self.stopping & 1 << member != 0 {
            actions.push(Action::Restart { member });
        }
    }

    /// Applies an action, except for its parts that depend on the disk. `None` if the bounds do not allow it.
    pub(super) fn act(&self, state: &mut State, action: Action) -> Option<usize> {
        match action {
            Action::Ask { member, ballot } => {
                let me = state.member(member);
                let log = &me.store.log;
                let (epoch, frontiers, delivered) =
                    (Arc::clone(&log.epoch), log.frontiers.clone(), log.delivered);
                me.candidacy = Some(Candidacy { ballot, asked: Asked { epoch, frontiers, delivered } });
                me.store.promised = ballot;
                me.owes_promise = Some(ballot);
                state.epoch(ballot).candidate = Some(member);
                Some(member)
            }
            Action::Promise { member, ballot } => {
                let me = state.member(member);
                if ballot > me.store.promised {
                    me.store.promised = ballot;
                    me.candidacy = None;
                }
                me.owes_promise = Some(ballot);
                if self.has(Mistake::EarlyPromise) {
                    self.promise(state, member);
                }
                Some(member)
            }
            Action::Begin { member, promises, owners, changes_members } => {
                self.begin(state, member, &promises, owners, changes_members).map(|()| member)
            }
            Action::Adopt { member, ballot } => {
                let epoch = &state.epochs[usize::from(ballot)];
                let (start, before) = (epoch.start.clone()?, epoch.before.clone());
                self.enter(state, member, &start, &before);
                Some(member)
            }
            Action::Propose { member } => {
                let place = self.place(state, member)?;
                let slot = state.members[member].store.log.frontiers[place];
                let cell = Cell::Value(state.proposals);
                state.proposals += 1;
                self.take_turns(state, member, place, slot + 1, cell);
                Some(member)
            }
            Action::Skip { member } => {
                let place = self.place(state, member)?;
                let log = &state.members[member].store.log;
                let to = log.epoch.turn(place, log.end());
                self.take_turns(state, member, place, to, Cell::Nothing);
                Some(member)
            }
            Action::Accept { member, owner } => {
                let log = &state.members[member].store.log;
                let slot = log.frontiers[owner];
                let epoch = &state.epochs[usize::from(log.epoch.ballot)];
                let cell = epoch.turns[owner][log.epoch.number_of_turn(slot)];
                let to = log.epoch.turn(owner, slot + 1);
                let me = state.member(member);
                me.store.log.accept(owner, to, &[(slot, cell)]);
                me.accepted[owner] = me.accepted[owner].max(to);
                Some(member)
            }
            Action::Deliver { member } => {
                let to = self.next_chosen(state, member)?;
                self.deliver(state, member, to);
                Some(member)
            }
            Action::Tell { member, to } => {
                let me = &state.members[member];
                let as_of = me.store.log.epoch.ballot.max(me.told_as_of);
                let cells = me.store.log.cells[..usize::from(to)].to_vec();
                state.chosen.insert(Chosen { to, as_of, cells });
                None
            }
            Action::Learn { member, chosen } => {
                self.learn(state, member, &chosen);
                Some(member)
            }
            Action::Sync { member } | Action::Restart { member } => Some(member),
        }
    }
}
