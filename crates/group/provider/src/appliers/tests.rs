//! All items are handed out in order, even if some of them are only in the log.

use super::*;
use crate::replica::GroupId;
use crate::store::{Identity, Store};
use crate::write_set::Keys;
use redoubt_consensus::Member;
use redoubt_consensus::message::Turns;
use redoubt_consensus::record::Record;
use redoubt_consensus::types::{Ballot, Entry, Incarnation, MemberId, Membership};
use std::sync::Arc;
use std::thread;

const OWN: MemberId = MemberId(11);

fn write_set(number: u64) -> WriteSet {
    let data = vec![number as u8; 5000];
    WriteSet {
        transaction_id: number,
        last_seen: Seqno(1),
        keys: Keys::default(),
        data,
        ..WriteSet::default()
    }
}

fn id(number: u64) -> ProposalId {
    ProposalId { member: OWN, incarnation: Incarnation(1), number }
}

/// Write sets in every second slot; the other slots hold those of this server itself.
fn store(directory: &std::path::Path, count: u64) -> Store {
    let identity = Identity { group: GroupId([3; 16]), member: OWN };
    let first = Record::Snapshot(Member::founding(Membership::new([OWN])));
    let store = Store::create(directory, identity, Slot(1), &[first], b"state").unwrap();
    for slot in 1..=2 * count {
        let body = Action::WriteSet(write_set(slot)).encode().into();
        let entries = vec![(Slot(slot), Entry::Proposal(Proposal { id: id(slot), body }))];
        let turns = Turns { from: Slot(slot), to: Slot(slot + 1), entries };
        store.append(&Record::Accepted { epoch: Ballot::default(), owner: 0, turns }).unwrap();
        store.chosen(&[Slot(slot)]).unwrap();
    }
    store
}

fn push(appliers: &Appliers, number: u64) {
    let (slot, seqno) = (2 * number, number as i64 * 3);
    appliers.push(Item::WriteSet {
        slot: Slot(slot),
        id: id(slot),
        seqno: Seqno(seqno),
        depends_on: Seqno(seqno - 2),
        write_set: write_set(slot),
    });
}

fn next(appliers: &Appliers) -> Item {
    let item = appliers.next().unwrap().unwrap();
    appliers.done();
    item
}

#[test]
fn what_is_too_much_for_the_memory_comes_from_the_log_in_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), 500);
    let appliers = Appliers::default();
    appliers.source.set(store.archive());
    appliers.limit(50_000);
    for number in 1..=500 {
        push(&appliers, number);
        if number % 200 == 0 {
            appliers.push(Item::Synced { seqno: Seqno(number as i64 * 3) });
        }
    }
    let waiting = appliers.waiting();
    assert_eq!(waiting.count, 502);
    assert!(waiting.in_log >= 480 && waiting.len_bytes <= 51_000, "{waiting:?}");
    assert!(matches!(next(&appliers), Item::Begin));
    appliers.begun(Seqno(0));
    let mut synced = 0;
    for number in 1..=500_u64 {
        let mut item = next(&appliers);
        if let Item::Synced { seqno } = item {
            assert_eq!(seqno.0, (number as i64 - 1) * 3);
            synced += 1;
            item = next(&appliers);
        }
        let Item::WriteSet { slot, id: found, seqno, depends_on, write_set: read } = item else {
            panic!("{item:?}")
        };
        assert_eq!((slot, found, seqno.0), (Slot(2 * number), id(2 * number), number as i64 * 3));
        assert_eq!((depends_on.0, read), (seqno.0 - 2, write_set(2 * number)));
        assert!(appliers.waiting().len_bytes <= 50_000 + (1 << 20) + 5200);
    }
    assert_eq!((synced, appliers.waiting()), (2, Waiting { count: 0, in_log: 0, len_bytes: 0 }));
}

#[test]
fn several_threads_get_each_thing_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), 500);
    let appliers = Arc::new(Appliers::default());
    appliers.source.set(store.archive());
    appliers.limit(10_000);
    assert!(matches!(next(&appliers), Item::Begin));
    appliers.begun(Seqno(0));
    let found = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (appliers, found) = (Arc::clone(&appliers), Arc::clone(&found));
            thread::spawn(move || {
                while let Some(Item::WriteSet { seqno, .. }) = appliers.next().unwrap() {
                    found.lock().unwrap().push(seqno.0 / 3);
                    appliers.done();
                }
            })
        })
        .collect();
    (1..=500).for_each(|number| push(&appliers, number));
    redoubt_test_support::wait::until("500 applied write sets", || found.lock().unwrap().len() >= 500);
    assert_eq!(appliers.end(), None);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut found = found.lock().unwrap().clone();
    found.sort_unstable();
    assert_eq!(found, (1..=500).collect::<Vec<_>>());
}

#[test]
fn what_the_server_has_is_not_read_and_the_end_says_what_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), 100);
    let appliers = Appliers::default();
    appliers.source.set(store.archive());
    appliers.limit(0);
    (1..=100).for_each(|number| push(&appliers, number));
    assert!(matches!(next(&appliers), Item::Begin));
    appliers.begun(Seqno(60 * 3));
    // The first item was in memory.
    for expected in [1, 61, 62] {
        let Item::WriteSet { seqno, .. } = next(&appliers) else { panic!("no write set") };
        assert_eq!(seqno.0, expected * 3);
    }
    assert_eq!(appliers.end(), Some(Seqno(63 * 3)));
    assert!(matches!(next(&appliers), Item::End));
    assert!(appliers.next().unwrap().is_none());
}

#[test]
fn what_the_log_does_not_have_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), 2);
    let appliers = Appliers::default();
    appliers.source.set(store.archive());
    appliers.limit(0);
    push(&appliers, 1);
    push(&appliers, 7);
    assert!(matches!(next(&appliers), Item::Begin));
    appliers.begun(Seqno(0));
    assert!(matches!(next(&appliers), Item::WriteSet { .. }));
    let error = appliers.next().unwrap_err().to_string();
    assert!(error.contains("no longer has slot 14"), "{error}");
}
