//! Numbers, views and verdicts depend only on the order.

use super::*;
use crate::write_set::{Arrival, Departure, KeyKind};

fn id(member: u64, incarnation: u64) -> ProposalId {
    ProposalId { member: MemberId(member), incarnation: Incarnation(incarnation), number: 1 }
}

fn arrived(name: &str) -> Action {
    Action::Arrived(Arrival {
        incarnation: 0,
        name: name.into(),
        incoming_address: "10.0.0.1:3306".into(),
        listen_address: "10.0.0.1:4567".into(),
    })
}

fn write_set(last_seen: i64, key: &str) -> Action {
    let mut keys = Keys::default();
    keys.add(&[b"d", b"t", key.as_bytes()], KeyKind::Exclusive);
    let data = key.as_bytes().to_vec();
    Action::WriteSet(WriteSet {
        transaction_id: 9,
        connection_id: 3,
        flags: WriteSet::START | WriteSet::END,
        last_seen: Seqno(last_seen),
        keys,
        data,
    })
}

fn verdict(ordered: Ordered) -> (i64, Verdict) {
    match ordered {
        Ordered::WriteSet { seqno, verdict, .. } => (seqno.0, verdict),
        other => panic!("{other:?}"),
    }
}

fn names(ordered: Ordered) -> (i64, i64, Vec<String>) {
    match ordered {
        Ordered::View(view) => {
            (view.seqno.0, view.number, view.members.into_iter().map(|member| member.name).collect())
        }
        other => panic!("{other:?}"),
    }
}

fn replica() -> Replica {
    Replica::new(GroupId([7; 16]), Certification::new(4))
}

#[test]
fn who_is_there_follows_from_arrivals_and_departures_of_the_same_life() {
    let mut replica = replica();
    assert_eq!(names(replica.take(id(1, 1), arrived("a"))), (1, 1, vec!["a".into()]));
    assert_eq!(names(replica.take(id(2, 1), arrived("b"))), (2, 2, vec!["a".into(), "b".into()]));
    assert_eq!(names(replica.take(id(2, 2), arrived("b2"))), (3, 3, vec!["a".into(), "b2".into()]));
    let departed = |incarnation| Action::Departed(Departure { member: 2, incarnation });
    assert!(matches!(replica.take(id(1, 1), departed(1)), Ordered::Nothing), "that life is over");
    assert_eq!(replica.seqno(), Seqno(3), "and it has no number");
    assert_eq!(names(replica.take(id(1, 1), departed(2))), (4, 4, vec!["a".into()]));
    assert!(matches!(replica.take(id(1, 1), departed(2)), Ordered::Nothing), "said twice");
}

/// A member that has left by itself may return, unless it was removed since.
#[test]
fn how_a_member_went_is_known() {
    let mut replica = replica();
    for member in 1..=3 {
        replica.take(id(member, 1), arrived("any"));
    }
    let departed = |member| Action::Departed(Departure { member, incarnation: 1 });
    replica.take(id(2, 1), departed(2));
    replica.take(id(1, 1), departed(3));
    replica.take(id(3, 1), departed(3));
    let presence = |replica: &Replica| replica.known().map(|known| known.presence).collect::<Vec<_>>();
    assert_eq!(presence(&replica), [Presence::There, Presence::Left, Presence::Gone]);
    let restored = Replica::decode(&replica.encode()).unwrap();
    assert_eq!(presence(&restored), presence(&replica));
    for member in 1..=9 {
        let seqno = replica.seqno();
        assert!(matches!(replica.take(id(1, 1), Action::Removed { member }), Ordered::Nothing));
        assert_eq!(replica.seqno(), seqno);
    }
    assert_eq!(presence(&replica), [Presence::There, Presence::Gone, Presence::Gone]);
    replica.take(id(2, 2), arrived("any"));
    assert_eq!(presence(&replica), [Presence::There, Presence::There, Presence::Gone]);
}

/// Members that were present when another one continued alone may return, even in the same incarnation, unless they
/// were removed or replaced.
#[test]
fn one_goes_on_alone_and_the_others_are_away() {
    let mut replica = replica();
    for (member, address) in [(1, "a:1"), (2, "b:1"), (3, "c:1")] {
        let arrival = Arrival { listen_address: address.into(), ..Arrival::default() };
        replica.take(id(member, 1), Action::Arrived(arrival));
    }
    replica.take(id(3, 1), Action::Departed(Departure { member: 3, incarnation: 1 }));
    assert!(replica.history().is_empty() && replica.encode()[0] == VERSION);
    let alone = |round| (id(0, round), Action::Alone { member: 1 });
    let (nobody, action) = alone(7);
    assert_eq!(names(replica.take(nobody, action)).0, 5);
    let presence = |replica: &Replica| replica.known().map(|known| known.presence).collect::<Vec<_>>();
    assert_eq!(presence(&replica), [Presence::There, Presence::Away, Presence::Left]);
    let (nobody, action) = alone(9);
    assert!(matches!(replica.take(nobody, action), Ordered::Nothing), "nobody was there");
    let mut history = History::default();
    history.add(Alone { member: MemberId(1), round: 7 });
    assert!(
        !replica.history().is_empty() && replica.history() != &history && replica.history().fits(&history)
    );

    let restored = || Replica::decode(&replica.encode()).unwrap();
    assert_eq!((presence(&restored()), restored().history()), (presence(&replica), replica.history()));
    let mut back = restored();
    back.take(id(2, 1), arrived("again"));
    assert_eq!(presence(&back), [Presence::There, Presence::There, Presence::Left]);
    let mut removed = restored();
    removed.take(id(1, 1), Action::Removed { member: 2 });
    assert_eq!(presence(&removed), [Presence::There, Presence::Gone, Presence::Left]);
    let mut replaced = restored();
    let arrival = Arrival { listen_address: "b:1".into(), ..Arrival::default() };
    replaced.take(id(4, 1), Action::Arrived(arrival));
    assert_eq!(presence(&replaced)[1], Presence::Gone);
}

#[test]
fn what_comes_after_a_view_waits_for_it() {
    let mut replica = replica();
    replica.take(id(1, 1), arrived("a"));
    let (seqno, verdict) = verdict(replica.take(id(1, 1), write_set(0, "k")));
    assert_eq!(seqno, 2);
    assert_eq!(verdict, Verdict::Passed { depends_on: Seqno(1) });
}

#[test]
fn two_members_that_change_the_same_row_conflict_and_a_restored_state_says_the_same() {
    let mut first = replica();
    first.take(id(1, 1), arrived("a"));
    first.take(id(2, 1), arrived("b"));
    assert!(matches!(verdict(first.take(id(1, 1), write_set(2, "k"))).1, Verdict::Passed { .. }));
    let mut second = Replica::decode(&first.encode()).unwrap();
    assert_eq!(second.view(), first.view());
    for replica in [&mut first, &mut second] {
        assert_eq!(verdict(replica.take(id(2, 1), write_set(2, "k"))), (4, Verdict::Conflict));
        let (seqno, passed) = verdict(replica.take(id(2, 1), write_set(3, "k")));
        assert_eq!((seqno, passed), (5, Verdict::Passed { depends_on: Seqno(3) }));
    }
}

#[test]
fn bytes_that_are_no_state_are_refused() {
    let mut replica = replica();
    replica.take(id(1, 1), arrived("a"));
    let bytes = replica.encode();
    for len in 0..bytes.len() {
        assert!(Replica::decode(&bytes[..len]).is_err(), "{len} bytes");
    }
    assert!(matches!(Replica::decode(&[2]), Err(ReplicaError::Version(2))));
    // Two servers with one member id: the second entry repeats the first one.
    let entry = 16 + 1 + 8 + 4 + 1 + 4 + 13 + 4 + 13;
    let count_at = 1 + 16 + 8 + 8;
    let mut doubled = bytes.clone();
    doubled[count_at] = 2;
    doubled.splice(count_at + 4..count_at + 4, bytes[count_at + 4..count_at + 4 + entry].to_vec());
    assert!(matches!(Replica::decode(&doubled), Err(ReplicaError::Bytes(BytesError::Unknown { .. }))));
}

#[test]
fn a_state_that_could_not_go_on_is_refused() {
    let mut replica = replica();
    replica.take(id(1, 1), arrived("a"));
    let encoded = replica.encode();
    for (at_byte, number) in [(17, i64::MAX), (17, -1), (25, i64::MAX), (25, -1)] {
        let mut bytes = encoded.clone();
        bytes[at_byte..at_byte + 8].copy_from_slice(&number.to_le_bytes());
        assert!(matches!(Replica::decode(&bytes), Err(ReplicaError::Bytes(_))), "{number} at {at_byte}");
    }
    assert_eq!(Replica::decode(&encoded).unwrap().encode(), encoded);
}

fn part(flags: u32, last_seen: i64) -> Action {
    Action::WriteSet(WriteSet { flags, last_seen: Seqno(last_seen), ..WriteSet::default() })
}

/// All servers roll back a member's parts of transactions at a view without it, so no later part may pass.
#[test]
fn parts_do_not_go_on_after_a_view_without_their_member() {
    let mut replica = replica();
    let departed = |member| Action::Departed(Departure { member, incarnation: 1 });
    let passes = |replica: &mut Replica, member, incarnation, flags, last_seen| {
        verdict(replica.take(id(member, incarnation), part(flags, last_seen))).1 != Verdict::Conflict
    };
    replica.take(id(1, 1), arrived("a"));
    assert!(!passes(&mut replica, 2, 1, WriteSet::START, 1), "it is not there yet");
    replica.take(id(2, 1), arrived("b"));
    assert!(passes(&mut replica, 2, 1, WriteSet::START, 3));
    assert!(passes(&mut replica, 2, 1, 0, 4));
    replica.take(id(1, 1), departed(2));
    assert_eq!(replica.seqno(), Seqno(6), "the view without it");
    assert!(!passes(&mut replica, 2, 1, WriteSet::END, 5), "it is not there");
    assert!(!passes(&mut replica, 2, 1, WriteSet::START, 6), "nobody would end it");
    assert!(passes(&mut replica, 2, 1, WriteSet::ROLLBACK, 5), "no harm");
    assert!(passes(&mut replica, 2, 1, WriteSet::START | WriteSet::END, 9), "a whole one");
    replica.take(id(3, 1), arrived("c"));
    assert_eq!(replica.seqno(), Seqno(11), "another one without it");
    replica.take(id(2, 1), arrived("b"));
    let mut restored = Replica::decode(&replica.encode()).unwrap();
    for replica in [&mut replica, &mut restored] {
        for flags in [WriteSet::START, 0, WriteSet::END] {
            assert!(!passes(replica, 2, 1, flags, 10), "sent before it knew");
            assert!(passes(replica, 2, 1, flags, 11));
        }
        replica.take(id(2, 2), arrived("b"));
        assert!(!passes(replica, 2, 1, 0, 18), "of the life before");
        assert!(passes(replica, 2, 2, WriteSet::START, 0), "another life was never away");
    }
}

#[test]
fn a_state_of_before_there_were_parts_is_read() {
    let mut replica = replica();
    replica.take(id(1, 1), arrived("a"));
    let mut bytes = replica.encode();
    let absent_at = 1 + 16 + 8 + 8 + 4 + 16 + 1;
    bytes.drain(absent_at..absent_at + 8);
    bytes[0] = 3;
    assert_eq!(Replica::decode(&bytes).unwrap().encode(), replica.encode());
}
