//! Invariants of all states, and events that have to happen in some.

use super::Group;
use crate::log::{Ballot, Cell, Slot, is_majority};
use crate::state::State;

/// No two members ever deliver different entries in one slot.
pub const ONE_VALUE: &str = "one value in a slot";
/// All members deliver in the same order, with the same slots skipped.
pub const EQUAL_ORDER: &str = "equal order";
/// Each slot of an epoch has one incarnation of one member as its owner, which always reports the same content.
pub const ONE_OWNER: &str = "one owner of a slot";
/// Entries that a majority has durably accepted, in an epoch that a majority has begun, are in all later epochs and in
/// the order.
pub const STAYS_CHOSEN: &str = "what is chosen stays";
/// In some state, a proposal is recovered after its owner has lost its slots, and is delivered.
pub const REVOKED: &str = "a proposal outlives its owner's slots";
/// In some state, a slot stays empty.
pub const SKIPPED: &str = "a slot is skipped";

impl Group {
    /// Entries that are chosen, by epoch.
    fn chosen(&self, state: &State) -> Vec<(Ballot, Slot, Cell)> {
        let mut chosen = Vec::new();
        for epoch in &state.epochs {
            let Some(start) = &epoch.start else { continue };
            let is_begun =
                is_majority(start.previous, epoch.begun) && is_majority(start.membership, epoch.begun);
            if !is_begun {
                continue;
            }
            chosen.extend(epoch.before.iter().map(|(slot, cell)| (start.ballot, *slot, *cell)));
            chosen.push((start.ballot, start.slot, Cell::Start(start.ballot)));
            for (owner, turns) in epoch.turns.iter().enumerate() {
                let mut slot = start.turn(owner, start.slot + 1);
                for cell in turns {
                    let is_accepted = is_majority(start.membership, epoch.acked_by(owner, slot));
                    if *cell != Cell::Nothing && is_accepted {
                        chosen.push((start.ballot, slot, *cell));
                    }
                    slot = start.turn(owner, slot + 1);
                }
            }
        }
        chosen
    }

    pub(super) fn stays_chosen(&self, state: &State) -> bool {
        self.chosen(state).into_iter().all(|(ballot, slot, cell)| {
            let later =
                state.epochs.iter().skip(usize::from(ballot) + 1).filter(|epoch| epoch.start.is_some());
            let is_in_later = later.into_iter().all(|epoch| epoch.before.contains(&(slot, cell)));
            let is_in_order = state.delivered[usize::from(slot)].is_none_or(|delivered| delivered == cell);
            is_in_later && is_in_order
        })
    }

    pub(super) fn is_revoked(&self, state: &State) -> bool {
        state.epochs.iter().flat_map(|epoch| epoch.start.as_ref()).any(|start| {
            let log = |member: usize| &state.members[member].store.log;
            (0..self.members).any(|member| {
                let log = log(member);
                log.delivered > start.slot
                    && log.epoch.ballot > start.ballot
                    && log.range(start.slot, log.delivered).iter().any(|(slot, cell)| {
                        let owner = start.owner_of(*slot).map(|owner| start.owners[owner]);
                        matches!(cell, Cell::Value(_))
                            && *slot < log.epoch.slot
                            && log.delivered > log.epoch.slot
                            && owner.is_some_and(|owner| log.epoch.place(owner).is_none())
                    })
            })
        })
    }
}
