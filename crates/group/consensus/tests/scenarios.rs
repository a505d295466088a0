//! Cases that random worlds seldom reach: step by step, with a test that selects the messages that arrive.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_consensus::message::Message;
use redoubt_consensus::record::{Record, RecordCount, Snapshot};
use redoubt_consensus::types::{MemberId, Membership, Proposal, Slot, Time};
use redoubt_consensus::{Effect, Member, Settings};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

const A: MemberId = MemberId(1);
const B: MemberId = MemberId(2);
const C: MemberId = MemberId(3);
const D: MemberId = MemberId(4);
const E: MemberId = MemberId(5);
/// A member that joins later.
const X: MemberId = MemberId(9);

/// Members with fast disks, and a network that delivers the messages that the test selects.
#[derive(Default)]
struct Group {
    now: u64,
    members: BTreeMap<MemberId, Member>,
    stores: BTreeMap<MemberId, Vec<Record>>,
    /// Number of records in each store when its member was started.
    before: BTreeMap<MemberId, usize>,
    under_way: Vec<(MemberId, MemberId, Message)>,
    /// Messages that [`Group::until`] did not deliver.
    late: Vec<(MemberId, MemberId, Message)>,
    delivered: BTreeMap<MemberId, BTreeMap<Slot, Proposal>>,
    /// Deliveries of this incarnation of each member to its user, in order.
    given: BTreeMap<MemberId, Vec<Effect>>,
    /// Members that need a snapshot, because no member has their missing entries.
    lacking: Vec<MemberId>,
    /// Reads that members have requested: the reader, the receiver, and the first slot.
    reads: Vec<(MemberId, MemberId, Slot)>,
}

impl Group {
    /// A group of founders that have received messages of each other.
    fn founded(founders: &Membership) -> Self {
        let mut group = Self::default();
        founders.iter().for_each(|id| group.add(id, Member::founding(founders.clone())));
        group.run(1000, |_, _, _| true);
        group
    }

    fn add(&mut self, id: MemberId, first: Snapshot) {
        self.stores.insert(id, vec![Record::Snapshot(first)]);
        self.start(id);
    }

    /// Starts or restarts a member from its store.
    fn start(&mut self, id: MemberId) {
        let settings = Settings { window: 3000, chunk: 100, ..Settings::default() };
        let member = Member::start(id, self.stores[&id].clone(), settings, Time(self.now)).unwrap();
        self.before.insert(id, self.stores[&id].len());
        self.members.insert(id, member);
        self.given.insert(id, Vec::new());
        self.carry_out(id);
    }

    fn carry_out(&mut self, id: MemberId) {
        loop {
            let effects = self.members.get_mut(&id).unwrap().take_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Append(record) => self.stores.get_mut(&id).unwrap().push(record),
                    Effect::Send { to, message } => self.under_way.push((id, to, message)),
                    Effect::Deliver { slot, ref proposal } => {
                        self.delivered.entry(id).or_default().insert(slot, proposal.clone());
                        self.given.get_mut(&id).unwrap().push(effect);
                    }
                    Effect::Begun(_) => self.given.get_mut(&id).unwrap().push(effect),
                    Effect::NeedsSnapshot { .. } => self.lacking.push(id),
                    Effect::Read { to, from } => self.reads.push((id, to, from)),
                    _ => {}
                }
            }
            let written = self.stores[&id].len() - self.before[&id];
            self.members.get_mut(&id).unwrap().durable(RecordCount(written as u64));
        }
    }

    /// Advances the time. Messages that `arrives` selects arrive at once, the others never.
    fn run(&mut self, duration_ms: u64, arrives: impl Fn(MemberId, MemberId, &Message) -> bool) {
        for _ in 0..duration_ms / 2 {
            self.now += 2000;
            for id in self.members.keys().copied().collect::<Vec<_>>() {
                self.members.get_mut(&id).unwrap().tick(Time(self.now));
                self.carry_out(id);
            }
            while !self.under_way.is_empty() {
                for (from, to, message) in std::mem::take(&mut self.under_way) {
                    if arrives(from, to, &message)
                        && let Some(member) = self.members.get_mut(&to)
                    {
                        member.handle(from, message, Time(self.now));
                        self.carry_out(to);
                    }
                }
            }
        }
    }

    /// Advances the time until such a message is sent. Messages that `arrives` selects arrive, the others are late.
    #[track_caller]
    fn until(
        &mut self,
        is_last: impl Fn(MemberId, MemberId, &Message) -> bool,
        arrives: impl Fn(MemberId, MemberId, &Message) -> bool,
    ) {
        for _ in 0..300 {
            self.now += 1000;
            for id in self.members.keys().copied().collect::<Vec<_>>() {
                self.members.get_mut(&id).unwrap().tick(Time(self.now));
                self.carry_out(id);
            }
            let mut is_done = false;
            while !self.under_way.is_empty() {
                for (from, to, message) in std::mem::take(&mut self.under_way) {
                    is_done |= is_last(from, to, &message);
                    if arrives(from, to, &message) {
                        self.members.get_mut(&to).unwrap().handle(from, message, Time(self.now));
                        self.carry_out(to);
                    } else {
                        self.late.push((from, to, message));
                    }
                }
            }
            if is_done {
                return;
            }
        }
        panic!("there was no such message");
    }

    /// Like [`Group::run`], but messages that do not arrive are late.
    fn run_late(&mut self, duration_ms: u64, arrives: impl Fn(MemberId, MemberId, &Message) -> bool) {
        let until = self.now + duration_ms * 1000;
        while self.now < until {
            self.until(|_, _, _| true, &arrives);
        }
    }

    /// Delivers the last such message between two members. The messages that it causes are late again.
    #[track_caller]
    fn arrives(&mut self, from: MemberId, to: MemberId, is_it: impl Fn(&Message) -> bool) {
        self.late.append(&mut self.under_way);
        let is_last = |(sender, receiver, message): &_| (*sender, *receiver) == (from, to) && is_it(message);
        let at = self.late.iter().rposition(is_last).expect("there is such a message");
        let (_, _, message) = self.late.remove(at);
        self.members.get_mut(&to).unwrap().handle(from, message, Time(self.now));
        self.carry_out(to);
        self.late.append(&mut self.under_way);
    }

    /// Proposals that this incarnation of a member delivered, by slot.
    fn texts(&self, id: MemberId) -> BTreeMap<Slot, String> {
        let text = |effect: &Effect| match effect {
            Effect::Deliver { slot, proposal } => {
                (*slot, format!("proposal {} of {}", proposal.id.number, proposal.id.member))
            }
            Effect::Begun(start) => (start.slot, format!("epoch {}", start.ballot)),
            other => panic!("not for the user: {other:?}"),
        };
        self.given[&id].iter().map(text).collect()
    }

    fn propose(&mut self, id: MemberId, count: usize) {
        let member = self.members.get_mut(&id).unwrap();
        (0..count).for_each(|_| _ = member.propose(Arc::from(&b"x"[..])));
        self.carry_out(id);
    }

    fn delivered(&self, id: MemberId) -> Slot {
        self.members[&id].delivered()
    }

    fn replayed(&mut self, id: MemberId) -> Vec<Effect> {
        self.members.get_mut(&id).unwrap().take_replayed()
    }

    /// Two members have delivered the same where both have delivered anything.
    fn require_agreement(&self) {
        for (one, of_one) in &self.delivered {
            for (other, of_other) in &self.delivered {
                let Some(from) = of_one.keys().next().max(of_other.keys().next()).copied() else { continue };
                let to = self.delivered(*one).min(self.delivered(*other)).max(from);
                let slots = |of: &BTreeMap<Slot, Proposal>| {
                    of.range(from..to).map(|(slot, _)| *slot).collect::<Vec<_>>()
                };
                assert_eq!(slots(of_one), slots(of_other), "{one} and {other}");
                assert!(of_one.range(from..to).eq(of_other.range(from..to)), "{one} and {other}");
            }
        }
    }
}

/// A begins an epoch with X, and only X adopts it. B and C begin another epoch from C's log, which is much longer. A
/// receives the entries of that epoch in parts, none of which contains the beginning of an epoch. The entries of A's
/// own epoch are not chosen, although A has delivered the slot where that epoch would have begun.
#[test]
fn an_epoch_that_was_never_chosen_is_left() {
    let mut group = Group::default();
    let founders = Membership::new([A, B, C]);
    for id in founders.iter() {
        group.add(id, Member::founding(founders.clone()));
    }
    group.run(1000, |_, _, _| true);
    group.propose(A, 10);
    group.run(200, |_, _, _| true);
    assert!(group.members.values().all(|member| member.is_owner()));
    let common = group.delivered(A);
    let snapshot = group.members[&A].snapshot();
    group.add(X, snapshot);

    // C continues alone.
    group.propose(C, 500);
    group.members.get_mut(&A).unwrap().change_membership(Membership::new([A, B, X])).unwrap();
    group.run(40, |from, to, message| match message {
        Message::Adopt { .. } => to == X,
        _ if from == C || to == C => false,
        Message::Promise { .. } | Message::Prepare { .. } => true,
        _ => [from, to] == [A, X] || [from, to] == [X, A],
    });
    group.propose(A, 400);
    group.run(60, |from, to, _| from != C && to != C && from != B && to != B);
    let ours = Arc::clone(group.members[&A].epoch());
    assert!(ours.membership.contains(X) && group.members[&X].epoch().ballot == ours.ballot);
    assert_eq!(group.delivered(A), common, "not chosen");

    // B and C continue without A.
    group.run(2000, |from, to, _| ![from, to].iter().any(|id| [A, X].contains(id)));
    assert!(group.delivered(B).0 > common.0 + 400 && group.delivered(C) == group.delivered(B));
    group.require_agreement();

    group.run(3000, |_, _, _| true);
    group.require_agreement();
    assert_eq!(group.delivered(A), group.delivered(B));
    assert_eq!(group.members[&A].undelivered(), 0);
}

/// A member's user receives the deliveries of earlier incarnations again, from the snapshot of the store on, and then
/// the later ones. Between these two, no delivery is missing or duplicated.
#[test]
fn a_restarted_member_gives_the_same_deliveries_again() {
    let is_of_user = |effect: &Effect| matches!(effect, Effect::Deliver { .. } | Effect::Begun(_));
    let slot_of = |effect: &Effect| match effect {
        Effect::Deliver { slot, .. } => *slot,
        Effect::Begun(start) => start.slot,
        other => panic!("not for the user: {other:?}"),
    };
    let mut group = Group::default();
    let founders = Membership::new([A, B, C]);
    for id in founders.iter() {
        group.add(id, Member::founding(founders.clone()));
        assert_eq!(group.replayed(id), [], "a new member has no earlier lives");
    }
    group.run(1000, |_, _, _| true);
    // More deliveries than a member makes before it records its delivered slot.
    for id in founders.iter() {
        group.propose(id, 700);
    }
    group.run(1000, |_, _, _| true);
    let all = group.given[&C].clone();
    assert!(all.len() > 2100 && all.iter().all(is_of_user), "{}", all.len());
    assert!(matches!(all[0], Effect::Begun(_)));

    // Two restarts, each with an epoch without the restarted member, and more proposals.
    let mut replayed = Vec::new();
    for _ in 0..2 {
        group.start(B);
        assert_eq!(group.given[&B], [], "what is replayed is not among the effects");
        replayed = group.replayed(B);
        assert!(replayed.len() > 700 && replayed == group.given[&C][..replayed.len()], "{}", replayed.len());
        assert_eq!(group.replayed(B), [], "given once");
        group.propose(B, 5);
        group.run(1000, |_, _, _| true);
        assert_eq!(group.members[&B].undelivered(), 0);
        let given = [&replayed[..], &group.given[&B]].concat();
        assert_eq!(given, group.given[&C]);
    }
    let twice = group.given[&C].clone();
    assert!(twice.len() > all.len() + 10 && replayed.len() > all.len());

    // A store that begins with a later snapshot.
    let snapshot = group.members[&B].snapshot();
    group.stores.insert(B, group.members[&B].checkpoint());
    group.start(B);
    assert_eq!(group.replayed(B), []);
    group.propose(A, 1500);
    group.run(1000, |_, _, _| true);
    group.start(B);
    let replayed = group.replayed(B);
    assert!(replayed.len() > 1000 && replayed == group.given[&C][twice.len()..][..replayed.len()]);
    assert!(replayed.iter().all(|effect| slot_of(effect) >= snapshot.next));

    // A snapshot in the middle of a store replaces everything before it, unless it is not ahead.
    group.propose(A, 10);
    group.run(1000, |_, to, _| to != B);
    let later = group.members[&C].snapshot();
    assert!(later.next > group.members[&B].delivered());
    let store = group.stores.get_mut(&B).unwrap();
    store.extend([Record::Snapshot(later), Record::Snapshot(snapshot)]);
    group.start(B);
    assert_eq!(group.replayed(B), []);
    group.propose(B, 5);
    let before = group.given[&C].len();
    group.run(1000, |_, _, _| true);
    assert_eq!(group.members[&B].undelivered(), 0);
    assert_eq!(group.given[&B], group.given[&C][before..]);
}

/// One of two members leaves with a clean shutdown. It detects when the group no longer needs it, and the other one
/// continues alone. After its return it catches up as a listener, however far behind, while no proposal waits for it.
/// Then it becomes a member again.
#[test]
fn one_of_two_leaves_and_comes_back() {
    let founders = Membership::new([A, B]);
    let mut group = Group::founded(&founders);
    group.propose(A, 10);
    group.propose(B, 10);
    group.run(200, |_, _, _| true);
    assert!(group.members.values().all(|member| member.is_owner() && !member.has_left()));

    group.members.get_mut(&B).unwrap().set_willing(false);
    group.members.get_mut(&A).unwrap().change_membership(Membership::new([A])).unwrap();
    // B does not know yet that the new epoch is chosen.
    group.run(100, |from, _, _| from == A);
    assert!(!group.members[&B].has_left(), "the other one may still need it");
    group.run(1000, |_, _, _| true);
    assert!(group.members[&B].has_left());
    assert!(!group.members[&A].has_left());
    group.members.remove(&B);
    // A begins another epoch, and B receives nothing about it.
    group.start(A);
    group.run(1000, |_, _, _| true);
    group.propose(A, 5000);
    group.run(1000, |_, _, _| true);
    assert_eq!(group.members[&A].undelivered(), 0, "it goes on alone");

    group.start(B);
    group.run(1000, |_, _, _| true);
    assert!(!group.members[&A].is_caught_up(B), "nobody tells it anything");
    group.members.get_mut(&A).unwrap().set_listeners(Membership::new([B]));
    for _ in 0..20 {
        group.propose(A, 50);
        group.run(100, |_, _, _| true);
        assert_eq!(group.members[&A].undelivered(), 0, "nothing waits for it");
    }
    assert!(group.members[&A].is_caught_up(B));
    assert_eq!(group.members[&A].epoch().membership, Membership::new([A]));
    group.members.get_mut(&A).unwrap().change_membership(founders).unwrap();
    group.run(1000, |_, _, _| true);
    group.propose(B, 10);
    group.run(1000, |_, _, _| true);
    assert!(group.members.values().all(|member| member.is_owner() && member.undelivered() == 0));
    assert_eq!(group.delivered(A), group.delivered(B));
    group.require_agreement();
}

/// Two of three members have lost their stores. The third one retains all accepted entries, although it is unknown
/// whether they were chosen. It continues alone, also after a restart, and accepts new members. Messages of the lost
/// members have no effect.
#[test]
fn the_last_one_goes_on_alone_with_all_it_has() {
    let mut group = Group::default();
    let founders = Membership::new([A, B, C]);
    for id in founders.iter() {
        group.add(id, Member::founding(founders.clone()));
    }
    group.run(1000, |_, _, _| true);
    group.propose(B, 10);
    group.run(200, |_, _, _| true);
    let common = group.delivered(A);
    // A receives messages of B and C, and sends no answer. It detects that all entries are chosen, and forgets that in
    // a restart.
    group.propose(B, 50);
    group.run(4, |from, _, _| from != A);
    group.members.remove(&B);
    group.members.remove(&C);
    group.start(A);
    group.run(2000, |_, _, _| true);
    assert!(group.delivered(A).0 < common.0 + 50, "nobody tells it what was chosen");

    let mark = || Arc::from(b"alone".as_slice());
    assert!(group.members.get_mut(&A).unwrap().go_on_alone(mark()).is_some());
    group.carry_out(A);
    group.propose(A, 5);
    group.run(1000, |_, _, _| true);
    assert_eq!(group.delivered[&A].len(), 10 + 50 + 1 + 5);
    let marked = group.delivered[&A].values().nth(60).map(|proposal| proposal.id.member);
    assert_eq!(marked, Some(MemberId::NOBODY), "before what it does alone");
    group.start(A);
    group.propose(A, 5);
    group.run(1000, |_, _, _| true);
    assert_eq!(group.delivered[&A].len(), 10 + 50 + 1 + 10);

    let snapshot = group.members[&A].snapshot();
    group.add(X, snapshot);
    group.members.get_mut(&A).unwrap().change_membership(Membership::new([A, X])).unwrap();
    group.run(2000, |_, _, _| true);
    group.propose(X, 5);
    group.run(1000, |_, _, _| true);
    assert_eq!(group.delivered(X), group.delivered(A));
    assert!(group.members[&X].epoch().membership.contains(X));

    // A process that is not a member does not begin an epoch.
    group.add(C, Member::founding(Membership::new([A, B])));
    assert!(group.members.get_mut(&C).unwrap().go_on_alone(mark()).is_none());
}

/// One of two members continues without the other one. The other one is alive, its proposals are lost, and it tries to
/// begin epochs; in a second run it is also restarted. After its return, all acknowledged entries are in one order.
#[test]
fn the_other_one_of_two_comes_back_to_the_one_that_went_on_alone() {
    for is_restarted in [false, true] {
        let founders = Membership::new([A, B]);
        let mut group = Group::founded(&founders);
        group.propose(A, 10);
        group.propose(B, 10);
        group.run(500, |_, _, _| true);
        let common = group.delivered(A);
        assert_eq!((group.delivered[&A].len(), group.delivered(B)), (20, common));
        // Messages of B still arrive at A for a short time. So A has some of B's proposals, and B does not know that.
        group.propose(B, 30);
        group.run(3, |from, _, _| from == B);
        group.propose(B, 5);
        group.propose(A, 7);
        group.run_late(3000, |_, _, _| false);
        assert_eq!(group.delivered(B), common);

        let mark = Arc::from(b"alone".as_slice());
        assert!(group.members.get_mut(&A).unwrap().go_on_alone(mark).is_some());
        group.carry_out(A);
        group.propose(A, 3);
        group.run(1000, |_, _, _| false);
        let alone = group.delivered[&A].len();
        assert!((31..=61).contains(&alone), "its own, the mark, and what it had of B's: {alone}");
        assert_eq!(group.delivered(B), common, "B alone decides nothing");

        if is_restarted {
            group.start(B);
        }
        group.run(1000, |_, _, _| true);
        group.members.get_mut(&A).unwrap().set_listeners(Membership::new([B]));
        group.run(3000, |_, _, _| true);
        assert!(group.members[&A].is_caught_up(B));
        group.members.get_mut(&A).unwrap().change_membership(founders.clone()).unwrap();
        group.run(3000, |_, _, _| true);
        group.propose(A, 4);
        group.propose(B, 4);
        group.run(2000, |_, _, _| true);
        assert_eq!(group.members[&B].epoch().membership, founders);
        assert_eq!(group.delivered[&A], group.delivered[&B]);
        let of_b = group.delivered[&A].values().filter(|proposal| proposal.id.member == B).count();
        assert!(is_restarted || of_b == 10 + 30 + 5 + 4, "what B still waits for is in the order: {of_b}");
    }
}

/// The previous case, repeatedly, with either member alone, lost messages in either direction, and restarts.
#[test]
fn nothing_delivered_is_lost_whichever_of_two_goes_on_alone() {
    for seed in 0..300 {
        let rng = RefCell::new(fastrand::Rng::with_seed(seed));
        let number = |limit: u64| rng.borrow_mut().u64(..limit);
        let founders = Membership::new([A, B]);
        let mut group = Group::founded(&founders);
        for round in 0..1 + number(3) {
            let lost = BTreeMap::from([(A, number(3) * 50), (B, number(3) * 50)]);
            for _ in 0..1 + number(4) {
                group.propose(A, number(40) as usize);
                group.propose(B, number(40) as usize);
                group.run(2 + number(60), |from, _, _| number(100) >= lost[&from]);
                if number(5) == 0 {
                    group.start(if number(2) == 0 { A } else { B });
                }
            }
            let (one, other) = if number(2) == 0 { (A, B) } else { (B, A) };
            let is_heard = number(2) == 0;
            group.run(3000, |from, _, _| is_heard && from == one);
            let before = group.delivered.clone();
            let mark = Arc::from(b"alone".as_slice());
            assert!(group.members.get_mut(&one).unwrap().go_on_alone(mark).is_some());
            group.carry_out(one);
            group.propose(one, number(20) as usize);
            group.run(number(500), |_, _, _| false);
            for id in [one, other] {
                if number(3) == 0 {
                    group.start(id);
                }
            }
            group.run(number(1000), |_, _, _| true);
            group.members.get_mut(&one).unwrap().set_listeners(Membership::new([other]));
            group.run(3000, |_, _, _| true);
            assert!(group.members[&one].is_caught_up(other), "seed {seed}, round {round}");
            group.members.get_mut(&one).unwrap().change_membership(founders.clone()).unwrap();
            group.run(3000, |_, _, _| true);
            group.propose(A, 2);
            group.propose(B, 2);
            group.run(2000, |_, _, _| true);
            for id in founders.iter() {
                assert_eq!(group.members[&id].epoch().membership, founders, "seed {seed}, round {round}");
                let mut was = before.get(&id).into_iter().flatten();
                let kept = was.all(|(slot, was)| group.delivered[&one].get(slot) == Some(was));
                assert!(kept, "seed {seed}, round {round}: {id} had delivered something else");
            }
            assert!(group.delivered[&A] == group.delivered[&B], "seed {seed}, round {round}");
        }
    }
}

/// A bug that the checked model (`model/`) has found. A candidate receives chosen entries with a later ballot, and
/// treats that ballot as promised. It also promises that ballot to the other candidate. Then it began its own epoch,
/// which is an earlier one. The run has five members, no membership change, and one restart.
#[test]
fn a_candidate_that_has_promised_a_later_epoch_begins_no_earlier_one() {
    let is_progress = |message: &Message| matches!(message, Message::Progress(_));
    let is_prepare = |message: &Message| matches!(message, Message::Prepare { .. });
    let is_promise = |message: &Message| matches!(message, Message::Promise { .. });
    let is_adopt = |message: &Message| matches!(message, Message::Adopt { .. });
    let mut group = Group::default();
    let founders = Membership::new([A, B, C, D, E]);
    for id in founders.iter() {
        group.add(id, Member::founding(founders.clone()));
    }
    // B owns no slots, so that no member waits for it.
    group.members.get_mut(&B).unwrap().set_willing(false);
    for _ in 0..20 {
        group.run_late(50, |_, _, _| true);
    }
    assert!(founders.iter().all(|id| group.members[&id].is_owner() == (id != B)));
    let epoch = group.members[&A].epoch().ballot;

    // B misses A's proposals. C has them, and has recorded that. B asks C for them, and the answer is late.
    group.propose(A, 600);
    group.run_late(60, |from, to, message| is_progress(message) && (to != B || from == C));
    let behind = group.members[&B].delivered();
    assert!(group.members[&C].delivered().0 > behind.0 + 2000);

    // A proposes one more entry, which no other member has yet. E is silent: A, B and D each ask for an epoch of their
    // own without E.
    group.propose(A, 1);
    group.late.retain(|(_, _, message)| matches!(message, Message::Fetch { .. }));
    group.until(
        |from, _, message| from == D && is_prepare(message),
        |from, to, message| {
            let has_turns = matches!(message, Message::Progress(progress) if progress.turns.is_some());
            let is_silent = from == E || to == E || [from, to] == [B, D];
            is_progress(message) && !is_silent && (from != A || !has_turns)
        },
    );
    // C promises D's epoch, and is restarted.
    group.arrives(D, C, is_prepare);
    group.arrives(C, D, is_promise);
    group.start(C);

    // C sends the chosen entries to B. As far as C knows, no epoch after D's influenced them.
    group.arrives(B, C, |message| matches!(message, Message::Fetch { .. }));
    group.arrives(C, B, |message| matches!(message, Message::Chosen { .. }));
    assert!(group.members[&B].delivered() > behind);

    // So B treats D's epoch as promised, and promises it. D has a majority: B, C and itself.
    group.arrives(D, B, is_prepare);
    group.arrives(B, D, is_promise);
    let of_d = group.members[&D].epoch().ballot;
    assert!(of_d > epoch && of_d.candidate == D);

    // A and E have promised B's epoch, which is an earlier one. B must not begin it.
    for other in [A, E] {
        group.arrives(B, other, is_prepare);
        group.arrives(other, B, is_promise);
    }
    let of_b = group.members[&B].epoch().ballot;
    println!("after epoch {epoch}: D has begun {of_d}, B {of_b}");
    if of_b != epoch {
        for other in [A, E] {
            group.arrives(B, other, is_adopt);
        }
        group.arrives(E, A, is_progress);
        group.run_late(4, |from, to, _| {
            [from, to].iter().all(|id| [A, E].contains(id)) || (from, to) == (B, A)
        });
    }
    // D's epoch continues with B, C and D.
    group.propose(D, 3);
    group.run_late(90, |from, to, _| [from, to].iter().all(|id| [B, C, D].contains(id)));
    for (id, member) in &group.members {
        println!("{id}: epoch {}, delivered {}", member.epoch().ballot, member.delivered());
    }

    let (of_a, of_d) = (group.texts(A), group.texts(D));
    let both = of_a.keys().next_back().min(of_d.keys().next_back()).copied().unwrap();
    let slots = (0..=both.0).map(Slot);
    let differs: Vec<_> = slots.filter(|slot| of_a.get(slot) != of_d.get(slot)).collect();
    for slot in &differs {
        println!("slot {slot}: A has delivered {:?}, D {:?}", of_a.get(slot), of_d.get(slot));
    }
    assert_eq!(differs, [], "slots in which A and D have delivered different things");
}

/// C is away. At first, A has dropped the entries that C misses, and B has them. Then both have dropped them.
#[test]
fn who_is_refused_by_one_asks_another_and_needs_a_snapshot_if_nobody_has_it() {
    let mut group = Group::default();
    let founders = Membership::new([A, B, C]);
    for id in founders.iter() {
        group.add(id, Member::founding(founders.clone()));
    }
    group.run(1000, |_, _, _| true);
    for gives_up in [&[A][..], &[A, B]] {
        let before = group.delivered(C);
        for _ in 0..10 {
            group.propose(A, 100);
            group.run(100, |from, to, _| from != C && to != C);
        }
        assert_eq!(group.delivered(C), before);
        for id in gives_up {
            let delivered = group.delivered(*id);
            group.members.get_mut(id).unwrap().give_up(delivered);
        }
        // A's rejection reaches C, even if another member is further ahead.
        let base = group.delivered(A);
        group.members.get_mut(&C).unwrap().handle(A, Message::GivenUp { base }, Time(0));
        group.run(700, |_, _, _| true);
        assert!(group.lacking.is_empty(), "somebody else may come who has it");
        match gives_up.len() {
            1 => assert_eq!(group.delivered(C), group.delivered(A)),
            _ => assert_eq!(group.delivered(C), before),
        }
    }
    group.run(1500, |_, _, _| true);
    assert_eq!(group.lacking.first(), Some(&C));
    group.require_agreement();
}

/// A reads one part at a time, for B and C in rotation. A member that asks twice gets the entries once.
#[test]
fn one_part_is_read_at_a_time_and_each_gets_its_own() {
    let mut group = Group::default();
    let founders = Membership::new([A, B, C]);
    for id in founders.iter() {
        group.add(id, Member::founding(founders.clone()));
    }
    group.run(1000, |_, _, _| true);
    group.propose(A, 200);
    group.run(500, |_, _, _| true);
    let (end, now) = (group.delivered(A), Time(group.now));
    let a = group.members.get_mut(&A).unwrap();
    a.give_up(end);
    a.set_readable(Slot(3));
    for (from, first) in [(B, 3), (C, 5), (C, 7), (C, 7), (B, 2)] {
        a.handle(from, Message::Fetch { from: Slot(first) }, now);
    }
    group.under_way.clear();
    group.carry_out(A);
    assert_eq!(group.reads, [(A, B, Slot(3))]);
    let refused = |(_, to, message): &(MemberId, MemberId, Message)| {
        *to == B && *message == Message::GivenUp { base: Slot(3) }
    };
    assert!(group.under_way.iter().any(refused), "it asked for what is not there");
    let proposal = group.delivered[&A].first_key_value().unwrap();
    let entries = vec![(Slot(9), redoubt_consensus::types::Entry::Proposal(proposal.1.clone()))];
    group.members.get_mut(&A).unwrap().read(B, Slot(3), Some(entries));
    group.carry_out(A);
    assert_eq!(group.reads[1..], [(A, C, Slot(7))], "what it asked for last");
    let told = |(_, to, message): &(MemberId, MemberId, Message)| {
        *to == B && matches!(message, Message::Chosen { from: Slot(3), to: Slot(10), .. })
    };
    assert!(group.under_way.iter().any(told));
    group.members.get_mut(&A).unwrap().read(C, Slot(7), None);
    group.carry_out(A);
    assert_eq!(group.reads.len(), 2);
}
