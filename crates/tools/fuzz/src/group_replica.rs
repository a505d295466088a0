//! Any bytes as a member's replica of the group state: membership, ballots, certification. A state comes from a file,
//! or from a donor that sends it to a new member. It is decoded or refused, never a panic, and a decoded state is
//! encoded to the very same bytes. A state of the previous version is encoded to bytes of the current one.
//!
//! Checked besides: a member that was given the state continues as the one that gave it, whatever is ordered next.
//!
//! Input: how many bytes the actions have (2, little-endian); the actions, each with member, life and length (1 byte
//! each) before it; the state.

use redoubt_consensus::types::{Incarnation, MemberId, ProposalId};
use redoubt_group::replica::Replica;
use redoubt_group::write_set::Action;

const MAX_ACTIONS: usize = 40;
/// Reading and writing a state takes its whole array, of which there is one for each action.
const MAX_STATE_LEN_BYTES: usize = 1 << 16;

/// Of states that are read, and written as those of the next version.
const VERSION_BEFORE: u8 = 3;

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let Some((actions_len_bytes, rest)) = data.split_first_chunk() else { return };
    let Some((actions, state)) = rest.split_at_checked(usize::from(u16::from_le_bytes(*actions_len_bytes)))
    else {
        return;
    };
    if state.len() > MAX_STATE_LEN_BYTES {
        return;
    }
    let Ok(mut gives) = Replica::decode(state) else { return };
    let written = gives.encode();
    assert!(state.first() == Some(&VERSION_BEFORE) || written == state);
    assert_eq!(Replica::decode(&written).map(|again| again.encode()).ok().as_ref(), Some(&written));
    for (id, action) in actions_of(actions).take(MAX_ACTIONS) {
        let Ok(mut takes) = Replica::decode(&gives.encode()) else {
            panic!("a state that was encoded is refused")
        };
        let again = Action::decode(&action.encode()).unwrap();
        let ordered = format!("{:?}", gives.take(id, action));
        assert_eq!(format!("{:?}", takes.take(id, again)), ordered);
        assert_eq!(takes.take_news(), gives.take_news());
        assert!(takes.encode() == gives.encode());
    }
}

fn actions_of(mut bytes: &[u8]) -> impl Iterator<Item = (ProposalId, Action)> {
    std::iter::from_fn(move || {
        let ([member, incarnation, len_bytes], rest) = bytes.split_first_chunk()?;
        let (action, rest) = rest.split_at_checked(usize::from(*len_bytes))?;
        bytes = rest;
        let id = ProposalId {
            member: MemberId(u64::from(*member)),
            incarnation: Incarnation(u64::from(*incarnation)),
            number: 1,
        };
        Some(Action::decode(action).ok().map(|action| (id, action)))
    })
    .flatten()
}
