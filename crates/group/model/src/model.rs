//! Possible actions. Each action is one of `crates/group/consensus/src/member.rs` or of the files in `member/` beside
//! it. The model lets an action happen at any time, where the code depends on time or on received messages.

mod actions;
mod properties;

pub use properties::{EQUAL_ORDER, ONE_OWNER, ONE_VALUE, REVOKED, SKIPPED, STAYS_CHOSEN};

use crate::log::{Ballot, Cell, Log, Members, Owner, Slot, Start, is_majority};
use crate::state::{Chosen, Epoch, Member, Promise, State, Store};
use stateright::{Model, Property};
use std::sync::Arc;

/// A planted bug of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// A candidate begins an epoch although no majority has promised it.
    NoMajority,
    /// A restarted member has forgotten its promises.
    PromiseForgotten,
    /// A member delivers entries before the start of its epoch, although no majority has begun it.
    EpochBeforeChosen,
    /// Slots that were skipped after the last entry count as chosen.
    SkipsAtTheEnd,
    /// A restarted member continues with the slots of its previous incarnation.
    RestartedOwner,
    /// A member accepts something of its epoch after it has promised another one.
    AcceptedAfterPromise,
    /// A new epoch needs a majority of the new members only.
    NewMembersAlone,
    /// A member acknowledges entries that others have chosen in any epoch.
    ToldIsAcknowledged,
    /// A candidate that receives a later ballot with chosen entries continues with its own. The model found this bug
    /// in the code; see README.md.
    CandidateGoesOn,
    /// A promise is sent before it is durable.
    EarlyPromise,
}

/// Bounds, and the initial state.
#[derive(Clone, Debug)]
pub struct Group {
    pub members: usize,
    pub slots: Slot,
    /// The ballots are the numbers before this one; 0 is the founding epoch.
    pub ballots: Ballot,
    pub proposals: u8,
    pub stops: u8,
    /// Maximum number of different `Message::Chosen`.
    pub told: usize,
    /// Senders of `Message::Chosen`.
    pub tellers: Members,
    /// Initial members.
    pub founders: Members,
    /// The initial epoch, chosen everywhere. `None`: the founding epoch.
    pub first: Option<(Members, Members, Vec<usize>)>,
    /// Actions before the search begins.
    pub prelude: Vec<Action>,
    /// Another membership that a candidate may request.
    pub wanted: Option<Members>,
    /// Owners that a candidate may choose, as far as they are members; 0 stands for the candidate alone.
    pub owners: Vec<Members>,
    /// Members that may become candidates.
    pub candidates: Members,
    /// Members that may be restarted.
    pub stopping: Members,
    /// Members with slow disks: a restart loses the last records, and messages that depend on them are sent later.
    pub slow_disks: Members,
    pub mistake: Option<Mistake>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// `epochs.rs` `become_candidate`
    Ask { member: usize, ballot: Ballot },
    /// `epochs.rs` `on_prepare`
    Promise { member: usize, ballot: Ballot },
    /// `epochs.rs` `begin_if_promised`
    Begin { member: usize, promises: Vec<Promise>, owners: Members, changes_members: bool },
    /// `epochs.rs` `on_adopt`
    Adopt { member: usize, ballot: Ballot },
    /// `turns.rs` `place_proposals`, a proposal
    Propose { member: usize },
    /// `turns.rs` `place_proposals`, the slots before entries of others
    Skip { member: usize },
    /// `turns.rs` `on_progress` and `accept`
    Accept { member: usize, owner: usize },
    /// `turns.rs` `settle`
    Deliver { member: usize },
    /// `catch_up.rs` `on_fetch`
    Tell { member: usize, to: Slot },
    /// `catch_up.rs` `on_chosen`
    Learn { member: usize, chosen: Chosen },
    /// `member.rs` `durable`: the store's records are on the disk
    Sync { member: usize },
    /// `found.rs` `start`, at any time
    Restart { member: usize },
}

impl Group {
    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn first_state(&self) -> State {
        let owner = |member: &usize| Owner { member: *member, incarnation: 1 };
        let mut starts = vec![Start {
            ballot: 0,
            slot: 0,
            previous: self.founders,
            membership: self.founders,
            owners: Vec::new(),
        }];
        if let Some((previous, membership, owners)) = &self.first {
            let owners = owners.iter().map(owner).collect();
            let (previous, membership) = (*previous, *membership);
            starts.push(Start { ballot: 1, slot: 1, previous, membership, owners });
        }
        let mut epochs = vec![Epoch::unused(); usize::from(self.ballots)];
        let mut cells = vec![Cell::Nothing; usize::from(self.slots)];
        for start in &starts {
            let before = (0..start.slot).map(|slot| (slot, Cell::Start(slot))).collect();
            let epoch = &mut epochs[usize::from(start.ballot)];
            epoch.begin(Arc::new(start.clone()), before, self.members);
            epoch.candidate = Some(0);
            epoch.begun = start.voters();
            cells[usize::from(start.slot)] = Cell::Start(start.ballot);
        }
        let last = starts.pop().expect("there is one");
        let delivered = last.slot + 1;
        let frontiers = (0..last.owners.len()).map(|owner| last.turn(owner, delivered)).collect::<Vec<_>>();
        let seen =
            cells.iter().enumerate().map(|(slot, cell)| (slot < usize::from(delivered)).then_some(*cell));
        let seen = seen.collect();
        let promised = last.ballot;
        let log = Log { cells, epoch: Arc::new(last), frontiers: frontiers.clone(), delivered };
        let member = Member {
            store: Store { log, promised, recorded: delivered },
            durable: None,
            incarnation: 1,
            told_as_of: promised,
            accepted: frontiers,
            candidacy: None,
            owes_promise: None,
        };
        State {
            members: vec![Arc::new(member); self.members],
            epochs: epochs.into_iter().map(Arc::new).collect(),
            chosen: Default::default(),
            proposals: 0,
            stops: 0,
            delivered: seen,
            has_two_values: false,
            has_gap: false,
            has_two_owners: false,
        }
    }

    /// `Member::place`
    fn place(&self, state: &State, member: usize) -> Option<usize> {
        let me = &state.members[member];
        let epoch = &me.store.log.epoch;
        if self.has(Mistake::RestartedOwner) {
            return epoch.owners.iter().position(|owner| owner.member == member);
        }
        let place = epoch.place(Owner { member, incarnation: me.incarnation });
        place.filter(|_| me.store.promised == epoch.ballot)
    }

    /// The next slot to which `settle` delivers.
    fn next_chosen(&self, state: &State, member: usize) -> Option<Slot> {
        let log = &state.members[member].store.log;
        let start = &log.epoch;
        let epoch = &state.epochs[usize::from(start.ballot)];
        let is_settled = state.settled(log, log.delivered).ballot == start.ballot;
        let is_begun = is_settled
            || is_majority(start.membership, epoch.begun)
                && (is_majority(start.previous, epoch.begun) || self.has(Mistake::NewMembersAlone))
            || self.has(Mistake::EpochBeforeChosen) && epoch.begun & 1 << member != 0;
        let is_accepted = |owner, slot| is_majority(start.membership, epoch.acked_by(owner, slot));
        let next = log.next_chosen(is_begun, is_accepted);
        if next.is_none() && is_settled && log.end() == log.delivered && self.has(Mistake::SkipsAtTheEnd) {
            let known = log.frontiers.iter().copied().min()?;
            return (known > log.delivered && known <= self.slots).then_some(known);
        }
        next
    }

    /// Members that receive a candidate's question: `epochs.rs` `ask`.
    fn asks(state: &State, ballot: Ballot) -> Members {
        let epoch = &state.epochs[usize::from(ballot)];
        let Some(asked) = &epoch.asked else { return 0 };
        epoch.promises.iter().fold(asked.epoch.voters(), |all, promise| all | promise.epoch.voters())
    }

    /// All sets of promises with at most one promise per member.
    fn choices(state: &State, ballot: Ballot) -> Vec<Vec<Promise>> {
        let mut choices: Vec<Vec<Promise>> = vec![Vec::new()];
        for promise in &state.epochs[usize::from(ballot)].promises {
            for at in 0..choices.len() {
                if choices[at].iter().all(|other| other.from != promise.from) {
                    let more = choices[at].iter().chain([promise]).cloned().collect();
                    choices.push(more);
                }
            }
        }
        choices
    }

    /// The basis of a candidate's epoch: the newest epoch, whether it is chosen, and the delivered slot of any member.
    /// `None` without a majority of promises. `epochs.rs` `begin_if_promised`, first half.
    fn newest(&self, state: &State, member: usize, promises: &[Promise]) -> Option<(Arc<Start>, bool, Slot)> {
        let log = &state.members[member].store.log;
        let own = (log.delivered, state.settled(log, log.delivered).ballot);
        let known = promises.iter().map(|promise| (promise.delivered, promise.settled)).chain([own]);
        let (delivered, settled) = known.max()?;
        let was_never = |epoch: &Start| epoch.ballot > settled && epoch.slot < delivered;
        let epochs = promises.iter().map(|promise| &promise.epoch).chain([&log.epoch]);
        let newest = epochs.filter(|epoch| !was_never(epoch)).max_by_key(|epoch| epoch.ballot)?;
        if was_never(&log.epoch) || newest.slot < log.delivered && newest.ballot > log.epoch.ballot {
            return None;
        }
        let who = promises.iter().fold(1 << member, |all, promise| all | 1 << promise.from);
        let is_chosen = settled == newest.ballot;
        let is_enough =
            is_majority(newest.membership, who) && (is_chosen || is_majority(newest.previous, who));
        let is_member = newest.membership & 1 << member != 0;
        (is_member && (is_enough || self.has(Mistake::NoMajority)))
            .then(|| (Arc::clone(newest), is_chosen, delivered))
    }

    fn owners_of(state: &State, owners: Members, membership: Members, candidate: usize) -> Vec<Owner> {
        let owner = |member: usize| Owner { member, incarnation: state.members[member].incarnation };
        let members = 0..state.members.len();
        let owners: Vec<_> =
            members.filter(|member| owners & membership & 1 << member != 0).map(owner).collect();
        if owners.is_empty() { vec![owner(candidate)] } else { owners }
    }

    fn begin(
        &self,
        state: &mut State,
        member: usize,
        promises: &[Promise],
        owners: Members,
        changes_members: bool,
    ) -> Option<()> {
        let ballot = state.members[member].candidacy.as_ref()?.ballot;
        let (newest, is_chosen, delivered) = self.newest(state, member, promises)?;
        let log = &mut state.member(member).store.log;
        // `epochs.rs` `merge`
        let of_newest = || promises.iter().filter(|promise| promise.epoch.ballot == newest.ballot);
        if newest.ballot > log.epoch.ballot
            && let Some(first) = of_newest().next()
        {
            log.adopt(Arc::clone(&newest), &first.entries);
        }
        for promise in of_newest() {
            for owner in 0..newest.owners.len() {
                let to = promise.frontiers[owner];
                log.accept(owner, to, &promise.entries);
            }
        }
        let slot = log.end();
        if slot >= self.slots {
            return None;
        }
        let (previous, membership) = match (is_chosen, changes_members) {
            (true, true) => (newest.membership, self.wanted?),
            (true, false) => (newest.membership, newest.membership),
            (false, true) => return None,
            (false, false) => (newest.previous, newest.membership),
        };
        let before = log.range(0, slot);
        let owners = Self::owners_of(state, owners, membership, member);
        let start = Arc::new(Start { ballot, slot, previous, membership, owners });
        // `epochs.rs` `begin`
        state.epoch(ballot).begin(Arc::clone(&start), before.clone(), self.members);
        self.enter(state, member, &start, &before);
        self.deliver(state, member, delivered);
        Some(())
    }

    /// Adopts an epoch: the end of `epochs.rs` `begin` and `on_adopt`.
    fn enter(&self, state: &mut State, member: usize, start: &Arc<Start>, before: &[(Slot, Cell)]) {
        let me = state.member(member);
        me.store.recorded = me.store.log.delivered;
        me.store.log.adopt(Arc::clone(start), before);
        self.entered(state, member);
    }

    /// `Member::entered`
    fn entered(&self, state: &mut State, member: usize) {
        let me = state.member(member);
        let epoch = &me.store.log.epoch;
        me.store.promised = me.store.promised.max(epoch.ballot);
        me.accepted = vec![0; epoch.owners.len()];
        if me.candidacy.as_ref().is_some_and(|candidacy| candidacy.ballot <= epoch.ballot) {
            me.candidacy = None;
        }
    }

    /// `turns.rs` `deliver_to`
    fn deliver(&self, state: &mut State, member: usize, to: Slot) {
        let delivered = state.members[member].store.log.delivered;
        for slot in delivered..to {
            let cell = state.members[member].store.log.cells[usize::from(slot)];
            match state.delivered[usize::from(slot)].replace(cell) {
                Some(before) if before != cell && (before == Cell::Nothing || cell == Cell::Nothing) => {
                    state.has_gap = true;
                }
                Some(before) if before != cell => state.has_two_values = true,
                _ => {}
            }
            if matches!(cell, Cell::Start(_)) {
                state.member(member).store.recorded = to;
            }
        }
        state.member(member).store.log.deliver(to);
    }

    /// An owner fills its next slots. `turns.rs` `place_proposals` and `tell`.
    fn take_turns(&self, state: &mut State, member: usize, place: usize, to: Slot, cell: Cell) {
        let log = &state.members[member].store.log;
        let start = Arc::clone(&log.epoch);
        let mut slot = log.frontiers[place];
        let mut has_two_owners = false;
        let turns = &mut state.epoch(start.ballot).turns[place];
        let placed = (slot, cell);
        while slot < to {
            let number = start.number_of_turn(slot);
            let cell = if slot == placed.0 { cell } else { Cell::Nothing };
            if number < turns.len() {
                has_two_owners |= turns[number] != cell;
                turns[number] = cell;
            } else {
                turns.resize(number, Cell::Nothing);
                turns.push(cell);
            }
            slot = start.turn(place, slot + 1);
        }
        state.has_two_owners |= has_two_owners;
        let me = state.member(member);
        me.store.log.accept(place, slot, &[placed]);
        me.accepted[place] = me.accepted[place].max(slot);
    }

    /// `catch_up.rs` `on_chosen`
    fn learn(&self, state: &mut State, member: usize, chosen: &Chosen) {
        let log = &state.members[member].store.log;
        let settled = state.settled(log, log.delivered);
        let starts = chosen.cells[usize::from(log.delivered)..].iter();
        let mut starts = starts.filter_map(|cell| match cell {
            Cell::Start(ballot) => state.epochs[usize::from(*ballot)].start.clone(),
            _ => None,
        });
        let settled = starts.next_back().unwrap_or(settled);
        let me = state.member(member);
        let before = me.store.log.epoch.ballot;
        me.store.log.install(chosen.to, &chosen.cells, &settled);
        me.told_as_of = me.told_as_of.max(chosen.as_of);
        let is_of_epoch = chosen.as_of <= me.store.log.epoch.ballot || self.has(Mistake::ToldIsAcknowledged);
        if !is_of_epoch && chosen.as_of > me.store.promised {
            me.store.promised = chosen.as_of;
            if !self.has(Mistake::CandidateGoesOn) {
                me.candidacy = None;
            }
        }
        me.store.recorded = chosen.to;
        self.deliver(state, member, chosen.to);
        if state.members[member].store.log.epoch.ballot != before {
            self.entered(state, member);
        }
        let me = state.member(member);
        if is_of_epoch {
            for (accepted, known) in me.accepted.iter_mut().zip(&me.store.log.frontiers) {
                *accepted = (*accepted).max(*known);
            }
        }
    }

    /// All written records are durable: `Member::release`.
    fn release(&self, state: &mut State, member: usize) {
        if state.members[member].durable.is_some() {
            state.member(member).durable = None;
        }
        let me = Arc::clone(&state.members[member]);
        let epoch = state.epoch(me.store.log.epoch.ballot);
        epoch.begun |= 1 << member;
        for (acked, accepted) in epoch.acked[member].iter_mut().zip(&me.accepted) {
            *acked = (*acked).max(*accepted);
        }
        self.promise(state, member);
    }

    /// `epochs.rs` `promise`
    fn promise(&self, state: &mut State, member: usize) {
        let Some(ballot) = state.members[member].owes_promise else { return };
        state.member(member).owes_promise = None;
        let me = &state.members[member];
        let log = &me.store.log;
        if me.store.promised != ballot || log.epoch.ballot >= ballot {
            return;
        }
        if state.epochs[usize::from(ballot)].candidate == Some(member) {
            let asked = me.candidacy.as_ref().map(|candidacy| candidacy.asked.clone());
            state.epoch(ballot).asked = asked;
            return;
        }
        let Some(asked) = &state.epochs[usize::from(ballot)].asked else { return };
        let entries = if asked.epoch.ballot == log.epoch.ballot {
            let owners = asked.frontiers.iter().enumerate();
            owners.flat_map(|(owner, from)| log.turns_of(owner, *from)).collect()
        } else if asked.epoch.ballot < log.epoch.ballot {
            log.range(asked.delivered, log.end())
        } else {
            Vec::new()
        };
        let promise = Promise {
            from: member,
            epoch: Arc::clone(&log.epoch),
            frontiers: log.frontiers.clone(),
            delivered: log.delivered,
            settled: state.settled(log, log.delivered).ballot,
            entries,
        };
        state.epoch(ballot).promises.insert(promise);
    }

    /// `found.rs` `start` and `replay`, from the durable records. The record of the start is durable before any other
    /// action.
    fn restart(&self, state: &mut State, member: usize) {
        state.stops += 1;
        let me = state.member(member);
        if let Some(durable) = me.durable.take() {
            me.store = durable;
        }
        let store = &mut me.store;
        store.log = store.log.replayed(store.recorded);
        if self.has(Mistake::PromiseForgotten) {
            store.promised = store.log.epoch.ballot;
        }
        me.incarnation += 1;
        me.candidacy = None;
        me.owes_promise = None;
        me.told_as_of = store.promised;
        me.accepted = match store.promised == store.log.epoch.ballot {
            true => store.log.frontiers.clone(),
            false => vec![0; store.log.frontiers.len()],
        };
        self.release(state, member);
    }
}

impl Model for Group {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let first = self.first_state();
        let next = |state: State, action: &Action| {
            let mut actions = Vec::new();
            self.actions(&state, &mut actions);
            assert!(actions.contains(action), "{action:?} cannot happen");
            self.next_state(&state, action.clone()).expect("it can happen")
        };
        vec![self.prelude.iter().fold(first, next)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        (0..self.members).for_each(|member| self.actions_of(state, member, actions));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Restart { member } => self.restart(&mut state, member),
            Action::Sync { member } => self.release(&mut state, member),
            Action::Tell { .. } => _ = self.act(&mut state, action),
            _ => {
                let member = self.act(&mut state, action)?;
                let before = &last.members[member];
                if self.slow_disks & 1 << member == 0 {
                    self.release(&mut state, member);
                } else if before.durable.is_none() {
                    state.member(member).durable = Some(before.store.clone());
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_VALUE, |_, state: &State| !state.has_two_values),
            Property::always(EQUAL_ORDER, |_, state: &State| !state.has_two_values && !state.has_gap),
            Property::always(ONE_OWNER, |_, state: &State| !state.has_two_owners),
            Property::always(STAYS_CHOSEN, |group: &Self, state| group.stays_chosen(state)),
            Property::sometimes(REVOKED, |group: &Self, state| group.is_revoked(state)),
            Property::sometimes(SKIPPED, |_, state: &State| state.delivered.contains(&Some(Cell::Nothing))),
        ]
    }
}
