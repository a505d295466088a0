//! All items arrive in order, even if some of them are only in the log.

use super::*;
use crate::replica::GroupId;
use crate::store::{Identity, Store};
use crate::transactions::Transaction;
use redoubt_consensus::Member;
use redoubt_consensus::record::Record;
use redoubt_consensus::types::{Ballot, Entry, Incarnation, MemberId, Membership, ProposalId};

const OWN: MemberId = MemberId(11);

fn proposal(slot: u64, len: usize) -> Proposal {
    let id = ProposalId { member: OWN, incarnation: Incarnation(1), number: slot };
    Proposal { id, body: vec![slot as u8; len].into() }
}

fn store(directory: &std::path::Path, slots: std::ops::Range<u64>, len: usize) -> Store {
    let identity = Identity { group: GroupId([3; 16]), member: OWN };
    let first = Record::Snapshot(Member::founding(Membership::new([OWN])));
    let store = Store::create(directory, identity, Slot(1), &[first], b"state").unwrap();
    for slot in slots {
        let entries = vec![(Slot(slot), Entry::Proposal(proposal(slot, len)))];
        let turns = redoubt_consensus::message::Turns { from: Slot(slot), to: Slot(slot + 1), entries };
        store.append(&Record::Accepted { epoch: Ballot::default(), owner: 0, turns }).unwrap();
        store.chosen(&[Slot(slot)]).unwrap();
    }
    store
}

#[test]
fn what_is_too_much_for_the_memory_comes_from_the_log_in_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), 1..1001, 1000);
    let (deliveries, mut delivered) = channel(10_000);
    deliveries.set_source(store.archive());
    for slot in 1..1001 {
        // An entry of a local client in between.
        let transaction = (slot % 100 == 7).then(|| Transaction::applied(slot, Seqno(0)));
        deliveries.send(Delivery::Entry { slot: Slot(slot), proposal: proposal(slot, 1000), transaction });
        if slot % 300 == 0 {
            deliveries.send(Delivery::State(Slot(slot)));
        }
    }
    let (held, in_log) = deliveries.waiting();
    assert!(held <= 20 * (1000 + ENTRY_LEN_BYTES) && in_log >= 980, "{held} {in_log}");
    drop(deliveries);
    let (mut next, mut states) = (1, Vec::new());
    while let Some(delivery) = delivered.take().unwrap() {
        match delivery {
            Delivery::Entry { slot, proposal: found, transaction } => {
                assert_eq!((slot, &found), (Slot(next), &proposal(next, 1000)));
                assert_eq!(transaction.is_some(), next % 100 == 7);
                next += 1;
            }
            Delivery::State(slot) => states.push((slot.0, next)),
            _ => panic!("something else"),
        }
    }
    assert_eq!((next, states), (1001, vec![(300, 301), (600, 601), (900, 901)]));
}

#[test]
fn what_the_log_does_not_have_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), 1..3, 1000);
    let (deliveries, mut delivered) = channel(0);
    deliveries.set_source(store.archive());
    for slot in [1, 2, 5] {
        let transaction = None;
        deliveries.send(Delivery::Entry { slot: Slot(slot), proposal: proposal(slot, 1000), transaction });
    }
    assert!(delivered.take().unwrap().is_some());
    assert!(delivered.take().unwrap().is_some());
    let error = delivered.take().err().unwrap().to_string();
    assert!(error.contains("no longer has slot 5"), "{error}");
}
