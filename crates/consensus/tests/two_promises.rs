//! What the checked model (`model/`) has found: a candidate learns from what others have chosen that there is a later
//! ballot, and takes that for promised; it promises it to its candidate, too, when that asks; and then it began its own
//! epoch, which is an earlier one. With five members, no change of members, and one restart.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_consensus::message::Message;
use redoubt_consensus::record::{Record, RecordCount};
use redoubt_consensus::types::{MemberId, Membership, Slot, Time};
use redoubt_consensus::{Effect, Member, Settings};
use std::collections::BTreeMap;
use std::sync::Arc;

const A: MemberId = MemberId(1);
const B: MemberId = MemberId(2);
const C: MemberId = MemberId(3);
const D: MemberId = MemberId(4);
const E: MemberId = MemberId(5);

/// Members whose disks are fast, and a network that carries what it is told to.
#[derive(Default)]
struct Group {
    now: u64,
    members: BTreeMap<MemberId, Member>,
    stores: BTreeMap<MemberId, Vec<Record>>,
    before: BTreeMap<MemberId, usize>,
    under_way: Vec<(MemberId, MemberId, Message)>,
    /// What has not arrived yet.
    late: Vec<(MemberId, MemberId, Message)>,
    delivered: BTreeMap<MemberId, BTreeMap<Slot, String>>,
}

impl Group {
    fn start(&mut self, id: MemberId) {
        let settings = Settings { window: 3000, chunk: 100, ..Settings::default() };
        let member = Member::start(id, self.stores[&id].clone(), settings, Time(self.now)).unwrap();
        self.before.insert(id, self.stores[&id].len());
        self.members.insert(id, member);
        self.carry_out(id);
    }

    fn carry_out(&mut self, id: MemberId) {
        loop {
            let effects = self.members.get_mut(&id).unwrap().take_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                let delivered = self.delivered.entry(id).or_default();
                match effect {
                    Effect::Append(record) => self.stores.get_mut(&id).unwrap().push(record),
                    Effect::Send { to, message } => self.under_way.push((id, to, message)),
                    Effect::Deliver { slot, proposal } => {
                        let id = proposal.id;
                        delivered.insert(slot, format!("proposal {} of {}", id.number, id.member));
                    }
                    Effect::Begun(start) => {
                        delivered.insert(start.slot, format!("epoch {}", start.ballot));
                    }
                    _ => {}
                }
            }
            let written = self.stores[&id].len() - self.before[&id];
            self.members.get_mut(&id).unwrap().durable(RecordCount(written as u64));
        }
    }

    /// Lets time pass until there was such a message. Those that `arrives` says arrive, the others are late.
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

    fn run(&mut self, duration_ms: u64, arrives: impl Fn(MemberId, MemberId, &Message) -> bool) {
        let until = self.now + duration_ms * 1000;
        while self.now < until {
            self.until(|_, _, _| true, &arrives);
        }
    }

    /// The last such message between two members arrives, and what it has as a consequence is late again.
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

    fn propose(&mut self, id: MemberId, count: usize) {
        let member = self.members.get_mut(&id).unwrap();
        (0..count).for_each(|_| _ = member.propose(Arc::from(&b"x"[..])));
        self.carry_out(id);
    }
}

#[test]
fn a_candidate_that_has_promised_a_later_epoch_begins_no_earlier_one() {
    let is_progress = |message: &Message| matches!(message, Message::Progress(_));
    let is_prepare = |message: &Message| matches!(message, Message::Prepare { .. });
    let is_promise = |message: &Message| matches!(message, Message::Promise { .. });
    let is_adopt = |message: &Message| matches!(message, Message::Adopt { .. });
    let mut group = Group::default();
    let founders = Membership::new([A, B, C, D, E]);
    for id in founders.iter() {
        group.stores.insert(id, vec![Record::Snapshot(Member::founding(founders.clone()))]);
        group.start(id);
    }
    // B owns no slots, so that nobody waits for it.
    group.members.get_mut(&B).unwrap().set_willing(false);
    for _ in 0..20 {
        group.run(50, |_, _, _| true);
    }
    assert!(founders.iter().all(|id| group.members[&id].is_owner() == (id != B)));
    let epoch = group.members[&A].epoch().ballot;

    // B misses what A proposes. C has it, and has written down that it has. B asks C for it, which takes its time.
    group.propose(A, 600);
    group.run(60, |from, to, message| is_progress(message) && (to != B || from == C));
    let behind = group.members[&B].delivered();
    assert!(group.members[&C].delivered().0 > behind.0 + 2000);

    // A proposes something more, which nobody else has yet. E is silent: A, B and D ask for an epoch without it, each
    // for its own.
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
    // C promises D's epoch, is stopped, and is back.
    group.arrives(D, C, is_prepare);
    group.arrives(C, D, is_promise);
    group.start(C);

    // It tells B what was chosen; no later epoch than D's has had a say in that, as far as it knows.
    group.arrives(B, C, |message| matches!(message, Message::Fetch { .. }));
    group.arrives(C, B, |message| matches!(message, Message::Chosen { .. }));
    assert!(group.members[&B].delivered() > behind);

    // So B takes D's epoch for promised, and promises it. D has a majority: B, C and itself.
    group.arrives(D, B, is_prepare);
    group.arrives(B, D, is_promise);
    let of_d = group.members[&D].epoch().ballot;
    assert!(of_d > epoch && of_d.candidate == D);

    // A and E have promised B's epoch, which is an earlier one. Does B begin it?
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
        group.run(4, |from, to, _| [from, to].iter().all(|id| [A, E].contains(id)) || (from, to) == (B, A));
    }
    // D's goes on with B, C and D.
    group.propose(D, 3);
    group.run(90, |from, to, _| [from, to].iter().all(|id| [B, C, D].contains(id)));
    for (id, member) in &group.members {
        println!("{id}: epoch {}, delivered {}", member.epoch().ballot, member.delivered());
    }

    let (of_a, of_d) = (&group.delivered[&A], &group.delivered[&D]);
    let both = of_a.keys().next_back().min(of_d.keys().next_back()).copied().unwrap();
    let slots = (0..=both.0).map(Slot);
    let differs: Vec<_> = slots.filter(|slot| of_a.get(slot) != of_d.get(slot)).collect();
    for slot in &differs {
        println!("slot {slot}: A has delivered {:?}, D {:?}", of_a.get(slot), of_d.get(slot));
    }
    assert_eq!(differs, [], "slots in which A and D have delivered different things");
}
