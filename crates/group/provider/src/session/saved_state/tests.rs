use super::*;
use redoubt_consensus::Member;
use redoubt_consensus::types::{Ballot, EpochStart, Slot};
use std::sync::Arc;

#[test]
fn it_was_removed_only_where_it_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    assert!(!was_removed(directory.path()), "a directory of before");
    write(directory.path(), GroupId([0xab; 16])).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("uuid:    abababab-abab-abab-abab-abababababab\nseqno:   -1\n"), "{text}");
    assert!(!was_removed(directory.path()));
    std::fs::remove_file(&path).unwrap();
    assert!(was_removed(directory.path()));
    write(directory.path(), GroupId([0xab; 16])).unwrap();
    assert!(!was_removed(directory.path()) && path.exists());
}

#[test]
fn one_of_another_group_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), GroupId([1; 16])).unwrap();
    write(directory.path(), GroupId([2; 16])).unwrap();
    let text = std::fs::read_to_string(directory.path().join(FILE)).unwrap();
    assert!(text.contains("02020202-") && !text.contains("01010101-"), "{text}");
}

#[test]
fn the_last_change_of_the_members_counts() {
    let (me, other) = (MemberId(7), MemberId(8));
    let is_only = |records: &[&Record], member| {
        let records = records.iter().map(|record| Ok::<_, ()>((*record).clone()));
        is_only_member(records, member).unwrap()
    };
    let founded = Record::Snapshot(Member::founding(Membership::new([me])));
    assert!(is_only(&[&founded], me));
    assert!(!is_only(&[&founded], other));
    let start = EpochStart {
        ballot: Ballot { round: 2, candidate: me },
        slot: Slot(3),
        previous: Membership::new([me]),
        membership: Membership::new([me, other]),
        owners: Vec::new(),
    };
    let adopted = Record::Adopted { start: Arc::new(start), from: Slot(2), entries: Vec::new() };
    assert!(!is_only(&[&founded, &adopted, &Record::Delivered(Slot(3))], me));
    assert!(!is_only(&[], me));
}
