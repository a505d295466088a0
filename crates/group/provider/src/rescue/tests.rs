//! A log without a quorum, whose member then continues alone.

use super::*;
use crate::certification::{Certification, DEFAULT_SETS_LOG2};
use crate::replica::GroupId;
use crate::store::Identity;
use crate::write_set::Arrival;
use redoubt_consensus::Settings;
use redoubt_consensus::message::Turns;
use redoubt_consensus::record::Record;
use redoubt_consensus::types::{
    Ballot, Entry, EpochStart, Incarnation, Membership, Owner, Proposal, ProposalId, Slot,
};
use std::sync::Arc;

const OWN: MemberId = MemberId(11);
const OTHER: MemberId = MemberId(12);
const THIRD: MemberId = MemberId(13);

fn arrival(member: MemberId, number: u64) -> Entry {
    let arrived = Action::Arrived(Arrival {
        incarnation: 1,
        name: format!("db{}", member.0),
        incoming_address: String::new(),
        listen_address: format!("10.0.0.{}:4567", member.0),
    });
    let id = ProposalId { member, incarnation: Incarnation(1), number };
    Entry::Proposal(Proposal { id, body: arrived.encode().into() })
}

/// A member whose log has an epoch of another member, with one chosen and two undecided entries.
fn make(directory: &Path) {
    let founders = Membership::new([OWN, OTHER, THIRD]);
    let snapshot = Member::founding(founders.clone());
    let replica = Replica::new(GroupId([3; 16]), Certification::new(DEFAULT_SETS_LOG2));
    let ballot = Ballot { round: 1, candidate: OTHER };
    let owner = Owner { member: OTHER, incarnation: Incarnation(1) };
    let start = EpochStart {
        ballot,
        slot: Slot(1),
        previous: founders.clone(),
        membership: founders,
        owners: vec![owner],
    };
    let entries = (2..5).map(|slot| (Slot(slot), arrival(if slot == 2 { OTHER } else { OWN }, slot - 1)));
    let mut entries: Vec<_> = entries.collect();
    // Each origin has its own numbers.
    entries[1].1 = arrival(OTHER, 2);
    entries[2].1 = arrival(OTHER, 3);
    let records = [
        Record::Started(Incarnation(1)),
        Record::Adopted { start: Arc::new(start), from: Slot(1), entries: Vec::new() },
        Record::Accepted { epoch: ballot, owner: 0, turns: Turns { from: Slot(2), to: Slot(5), entries } },
        Record::Delivered(Slot(3)),
    ];
    let identity = Identity { group: replica.group(), member: OWN };
    let first = [Record::Snapshot(snapshot)];
    let store = Store::create(directory, identity, Slot(1), &first, &replica.encode()).unwrap();
    records.iter().for_each(|record| store.append(record).unwrap());
    store.device().sync().unwrap();
}

#[test]
fn looking_changes_nothing_and_going_on_keeps_all_that_was_accepted() {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path());
    for _ in 0..2 {
        let report = Rescue::open(directory.path()).unwrap().report();
        assert_eq!((report.undecided, report.voters.len(), report.reach), (2, 3, (1, 5)));
        assert_eq!((report.lost.len(), report.is_alone), (2, false));
        assert_eq!(report.group, "03030303-0303-0303-0303-030303030303");
        let other = report.voters.iter().find(|voter| voter.name.is_some()).unwrap();
        assert_eq!((other.name.as_deref(), other.is_self), (Some("db12"), false));
    }
    Rescue::open(directory.path()).unwrap().go_on_alone().unwrap();
    let report = Rescue::open(directory.path()).unwrap().report();
    assert_eq!(report.voters.len(), 1);
    assert!(report.voters[0].is_self && report.reach.0 == 2);
    assert!(report.is_alone && report.lost.is_empty(), "{report:?}");

    // The next incarnation delivers everything.
    let (store, _) = Store::open(directory.path()).unwrap().unwrap();
    let records = store.records().map(Result::unwrap);
    let mut member = Member::start(OWN, records, Settings::default(), Time(0)).unwrap();
    let mut delivered = member.take_replayed();
    let mut written = 0;
    for now in 1..2000 {
        member.tick(Time(now * 2000));
        for effect in member.take_effects() {
            if matches!(effect, Effect::Append(_)) {
                written += 1;
            }
            delivered.push(effect);
        }
        member.durable(redoubt_consensus::record::RecordCount(written));
    }
    // The last entries remove the other member.
    let actions: Vec<_> = delivered
        .iter()
        .filter_map(|effect| match effect {
            Effect::Deliver { proposal, .. } => Some(Action::decode(&proposal.body).unwrap()),
            _ => None,
        })
        .collect();
    assert_eq!(actions.len(), 6, "{actions:?}");
    assert!(actions[..3].iter().all(|action| matches!(action, Action::Arrived(_))));
    assert!(matches!(actions[3], Action::Alone { member } if member == OWN.0));
    assert!(matches!(&actions[4], Action::Departed(gone) if gone.member == OTHER.0));
    assert!(matches!(actions[5], Action::Removed { member } if member == OTHER.0));
}

#[test]
fn a_directory_that_is_none_of_a_member_and_one_without_a_state_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |directory: &Path| Rescue::open(directory).err().unwrap().to_string();
    assert!(refused(directory.path()).contains("not the data directory of a member"));
    let missing = directory.path().join("missing");
    assert!(refused(&missing).contains("not the data directory of a member"));
    assert!(!missing.exists());
    make(directory.path());
    std::fs::write(directory.path().join("redoubt_group.transfer.log"), b"").unwrap();
    assert!(refused(directory.path()).contains("is incomplete"));
}
