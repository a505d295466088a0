//! Chosen entries are read again: across indexes, files and restarts, but not when they are gone or damaged.

use super::super::{Identity, Store};
use super::*;
use crate::replica::GroupId;
use redoubt_consensus::Member;
use redoubt_consensus::message::Turns;
use redoubt_consensus::types::{
    Ballot, Entry, EpochStart, Incarnation, MemberId, Membership, Proposal, ProposalId,
};
use std::path::Path;

const OWN: MemberId = MemberId(11);
/// Longer than a segment of the log.
const LARGE: usize = 70 << 20;

fn snapshot(next: u64) -> Record {
    let Record::Snapshot(mut snapshot) = Record::Snapshot(Member::founding(Membership::new([OWN]))) else {
        unreachable!()
    };
    snapshot.next = Slot(next);
    Record::Snapshot(snapshot)
}

fn create(directory: &Path, next: u64) -> Store {
    let identity = Identity { group: GroupId([3; 16]), member: OWN };
    Store::create(directory, identity, Slot(next), &[snapshot(next)], b"state").unwrap()
}

fn open(directory: &Path) -> Store {
    Store::open(directory).unwrap().unwrap().0
}

fn entry(slot: u64, len: usize) -> (Slot, Entry) {
    let id = ProposalId { member: OWN, incarnation: Incarnation(1), number: slot };
    let mut body = vec![slot as u8; len];
    body[..8].copy_from_slice(&slot.to_le_bytes());
    (Slot(slot), Entry::Proposal(Proposal { id, body: body.into() }))
}

fn accepted(slots: &[u64], len: usize) -> Record {
    let entries: Entries = slots.iter().map(|slot| entry(*slot, len)).collect();
    let (from, to) = (entries[0].0, entries[entries.len() - 1].0.next());
    Record::Accepted { epoch: Ballot::default(), owner: 0, turns: Turns { from, to, entries } }
}

/// Every third slot from `from` on is skipped.
fn write(store: &Store, slots: std::ops::Range<u64>, len: usize) -> Vec<u64> {
    let written: Vec<_> = slots.filter(|slot| slot % 3 != 0).collect();
    for few in written.chunks(2) {
        store.append(&accepted(few, len)).unwrap();
        let slots: Vec<_> = few.iter().copied().map(Slot).collect();
        store.chosen(&slots).unwrap();
    }
    written
}

/// Reads everything from a slot on, part by part.
fn read(store: &Store, from: u64, len_bytes: usize) -> Vec<u64> {
    let (mut from, mut found) = (Slot(from), Vec::new());
    loop {
        let part = store.archive().read(from, 1000, len_bytes).unwrap().expect("it is kept");
        let Some((last, _)) = part.last() else { return found };
        from = last.next();
        for (slot, read) in &part {
            let Entry::Proposal(proposal) = read else { panic!("no proposal") };
            assert_eq!(entry(slot.0, proposal.body.len()).1, *read);
            found.push(slot.0);
        }
    }
}

#[test]
fn ranges_are_read_across_indexes_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = create(directory.path(), 5);
    let written = write(&store, 5..20_000, 100);
    assert!(store.archive().state().indexes.len() >= 3);
    let check = |store: &Store| {
        assert_eq!(store.archive().readable(), Slot(5));
        for from in [5, 6, 7, 6000, 12_288, 19_998, 19_999, 20_000] {
            let expected: Vec<_> = written.iter().copied().filter(|slot| *slot >= from).collect();
            assert_eq!(read(store, from, 10_000), expected, "from {from}");
        }
        assert!(store.archive().read(Slot(4), 10, 1000).unwrap().is_none());
        let few = store.archive().read(Slot(5), 3, usize::MAX).unwrap().unwrap();
        assert_eq!(few.iter().map(|(slot, _)| slot.0).collect::<Vec<_>>(), [5, 7, 8]);
        let one = store.archive().read(Slot(5), 10, 0).unwrap().unwrap();
        assert_eq!(one.len(), 1, "at least one");
    };
    check(&store);
    store.device().sync().unwrap();
    drop(store);
    // A restarted archive has the entries of its indexes, and after the records are read, those of the records.
    let store = open(directory.path());
    let mut slots = Vec::new();
    for record in store.records() {
        slots.extend(record.unwrap().slots());
    }
    store.chosen_before(&slots).unwrap();
    check(&store);
    // It accepts further entries.
    let more = write(&store, 20_000..30_000, 100);
    assert_eq!(read(&store, 20_000, 10_000), more);
}

#[test]
fn of_several_records_of_a_slot_the_last_one_counts() {
    let directory = tempfile::tempdir().unwrap();
    let store = create(directory.path(), 1);
    store.append(&accepted(&[1, 2, 3], 50)).unwrap();
    let start = EpochStart { slot: Slot(3), ..EpochStart::founding(Membership::new([OWN])) };
    let entries = vec![entry(2, 60)];
    store.append(&Record::Adopted { start: Arc::new(start.clone()), from: Slot(2), entries }).unwrap();
    store.chosen(&[Slot(1), Slot(2), Slot(3)]).unwrap();
    let found = store.archive().read(Slot(1), 10, usize::MAX).unwrap().unwrap();
    assert_eq!(found, [entry(1, 50), entry(2, 60), (Slot(3), Entry::EpochStart(Arc::new(start)))]);
    let error = store.chosen(&[Slot(9)]).unwrap_err().to_string();
    assert!(error.contains("slot 9 was chosen, but no record of it was written"), "{error}");
}

#[test]
fn what_is_longer_than_a_file_is_read_across_them() {
    let directory = tempfile::tempdir().unwrap();
    let store = create(directory.path(), 1);
    for slot in 1..6 {
        store.append(&accepted(&[slot], LARGE / 3)).unwrap();
        store.chosen(&[Slot(slot)]).unwrap();
    }
    assert_eq!(read(&store, 1, 1 << 20), [1, 2, 3, 4, 5]);
}

#[test]
fn the_log_is_kept_before_the_checkpoint_as_long_as_is_said_and_then_it_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = create(directory.path(), 1);
    let checkpoint = |store: &mut Store, next: u64| {
        store.begin_checkpoint(Slot(next), || vec![snapshot(next)]).unwrap();
        store.end_checkpoint(Slot(next), b"another state").unwrap();
    };
    // Three files.
    let mut next = 1;
    let mut fill = |store: &Store| {
        for _ in 0..20 {
            write(store, next..next + 6, 2 << 20);
            next += 6;
        }
        next
    };
    store.keep(1 << 30);
    let after = fill(&store);
    checkpoint(&mut store, after);
    assert_eq!(store.archive().readable(), Slot(1));
    store.device().sync().unwrap();
    drop(store);
    // It is still there after a restart, before the records are read.
    let mut store = open(directory.path());
    assert_eq!(store.records().count(), 1);
    assert_eq!(store.archive().readable(), Slot(1));
    assert_eq!(read(&store, 1, 8 << 20).len() as u64, (after - 1) / 3 * 2);

    store.keep(0);
    let before = store.archive().places(Slot(1), 1).unwrap();
    assert!(before.is_some());
    let end = fill(&store);
    checkpoint(&mut store, end);
    let readable = store.archive().readable();
    assert!(readable >= Slot(after) && readable <= Slot(end), "{readable}");
    assert!(store.archive().read(Slot(1), 10, 1000).unwrap().is_none());
    let last = write(&store, end..end + 20, 100);
    assert_eq!(read(&store, end, 1 << 20), last);
}

#[test]
fn what_is_not_chosen_at_a_checkpoint_is_found_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = create(directory.path(), 1);
    store.keep(0);
    store.append(&accepted(&[1, 2], 50)).unwrap();
    store.chosen(&[Slot(1)]).unwrap();
    store.begin_checkpoint(Slot(2), || vec![snapshot(2), accepted(&[2], 50)]).unwrap();
    store.end_checkpoint(Slot(2), b"state at 2").unwrap();
    store.chosen(&[Slot(2)]).unwrap();
    assert_eq!(read(&store, 2, 1 << 20), [2]);
    let (_, places) = {
        let archive = store.archive();
        let state = archive.state();
        (state.first, state.newer.clone())
    };
    assert_eq!(places.len(), 1);
    assert!(places[0].1 >= store.checkpoint.0, "it is not before the checkpoint");
}

/// After a crash the member has fewer choices than the indexes of the previous incarnation, until it learns them again.
/// A checkpoint at a slot within an index would leave a log without a beginning.
#[test]
fn there_is_no_checkpoint_of_less_than_the_indexes_have() {
    let directory = tempfile::tempdir().unwrap();
    write(&create(directory.path(), 5), 5..20_000, 100);
    let mut store = open(directory.path());
    store.records().for_each(|record| drop(record.unwrap()));
    let indexed = store.archive().state().first;
    assert!(indexed > Slot(6000) && indexed < Slot(20_000));
    for slot in [Slot(6000), Slot(indexed.0 - 1)] {
        assert!(!store.begin_checkpoint(slot, || vec![snapshot(slot.0)]).unwrap());
        store.end_checkpoint(slot, b"state").unwrap();
    }
    let left: Vec<_> = (indexed.0..20_000).filter(|slot| slot % 3 != 0).map(Slot).collect();
    store.chosen(&left).unwrap();
    write(&store, 20_000..30_000, 100);
    drop(store);
    let store = open(directory.path());
    store.records().for_each(|record| drop(record.unwrap()));
    assert_eq!(store.archive().readable(), Slot(5));
    drop(store);
    let mut store = open(directory.path());
    store.records().for_each(|record| drop(record.unwrap()));
    assert!(store.begin_checkpoint(Slot(30_000), || vec![snapshot(30_000)]).unwrap());
}

fn damage(directory: &Path, pattern: &[u8]) {
    let name = directory.join("redoubt_group.log-00000000000000000000.seg.log");
    let mut bytes = std::fs::read(&name).unwrap();
    let at = bytes.windows(pattern.len()).position(|window| window == pattern).expect("it is in the file");
    bytes[at + pattern.len() - 1] ^= 1;
    std::fs::write(&name, bytes).unwrap();
}

#[test]
fn a_damaged_record_is_an_error_that_says_where_and_what_is_after_it_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let store = create(directory.path(), 1);
    for slot in 1..=9 {
        store.append(&accepted(&[slot], 64)).unwrap();
        store.chosen(&[Slot(slot)]).unwrap();
    }
    store.device().sync().unwrap();
    let place = store.archive().places(Slot(5), 1).unwrap().unwrap()[0].1;
    let mut body = vec![5; 64];
    body[..8].copy_from_slice(&5_u64.to_le_bytes());
    damage(directory.path(), &body);
    // Entries before the damage can be read.
    let before = store.archive().read(Slot(3), 100, usize::MAX).unwrap().unwrap();
    assert_eq!(before.iter().map(|(slot, _)| slot.0).collect::<Vec<_>>(), [3, 4]);
    let error = store.archive().read(Slot(5), 100, usize::MAX).unwrap_err().to_string();
    assert!(error.contains(&format!("the group's log at {place}: a frame with another checksum")), "{error}");
    store.archive().give_up(Slot(6));
    assert_eq!(store.archive().readable(), Slot(6));
    assert!(store.archive().read(Slot(5), 100, usize::MAX).unwrap().is_none());
    assert_eq!(read(&store, 6, 1 << 20), [6, 7, 8, 9]);
}

#[test]
fn numbers_of_any_size_come_back() {
    let first = Slot(7);
    let places = [(Slot(7), 1 << 40), (Slot(9), 3), (Slot(1 << 50), u64::MAX >> 1)];
    let (next, lowest, content) = encode(first, Some(17), &places);
    assert_eq!((next, lowest), (Slot((1 << 50) + 1), 3));
    let frame = Frame { position: 99, kind: Kind::Index, content };
    let (index, previous, found) = decode(&frame).unwrap();
    assert_eq!((index.first, index.next, index.at, previous), (first, next, 99, Some(17)));
    assert_eq!(found, places);
    for len in 0..frame.content.len() {
        let cut = Frame { position: 99, kind: Kind::Index, content: frame.content[..len].to_vec() };
        assert!(decode(&cut).is_err());
    }
}

#[test]
fn an_index_with_a_slot_twice_is_refused() {
    let frame = |places: &[(Slot, u64)]| {
        let (_, _, content) = encode(Slot(5), None, places);
        Frame { position: 9, kind: Kind::Index, content }
    };
    assert!(decode(&frame(&[(Slot(5), 1), (Slot(6), 1)])).is_ok());
    let refused = decode(&frame(&[(Slot(5), 1), (Slot(5), 2)])).map(drop).unwrap_err();
    assert!(refused.to_string().contains("it is no index"), "{refused}");
    let last = u64::MAX - 1;
    assert!(decode(&frame(&[(Slot(last), 1)])).is_ok());
    let mut content = frame(&[(Slot(last), 1)]).content;
    content[0] += 1;
    let beyond = Frame { position: 9, kind: Kind::Index, content };
    assert!(decode(&beyond).is_err(), "there is no slot after the last one");
}
