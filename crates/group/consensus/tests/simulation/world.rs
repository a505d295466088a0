use fastrand::Rng;
use redoubt_consensus::codec::{decode_message, decode_record, encode_message, encode_record};
use redoubt_consensus::message::{Entries, Message};
use redoubt_consensus::places::Places;
use redoubt_consensus::record::{Record, RecordCount};
use redoubt_consensus::types::{Incarnation, MemberId, Membership, Owner, ProposalId, Slot, Time};
use redoubt_consensus::{Effect, Member, Recovery, Settings};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::LazyLock;

/// Whether deliveries and messages are printed.
static NOTES: LazyLock<bool> =
    LazyLock::new(|| redoubt_test_support::setting_os("REDOUBT_CONSENSUS_NOTES").is_some());

/// Faults, in percent of messages or as a number per world.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    pub loss: u64,
    pub doubled: u64,
    pub kills: u64,
    pub pauses: u64,
    pub partitions: u64,
    /// Members are removed, and new members join.
    pub changes: u64,
    pub all_killed: u64,
    /// Percentage of the messages that begin an epoch for which a fault occurs at that moment.
    pub epochs: u64,
}

#[derive(Debug)]
enum Event {
    Message {
        from: MemberId,
        to: MemberId,
        message: Message,
    },
    Synced {
        member: MemberId,
        life: u64,
        records: usize,
    },
    Tick {
        member: MemberId,
        life: u64,
    },
    Read {
        member: MemberId,
        life: u64,
        to: MemberId,
        from: Slot,
    },
    Resume {
        member: MemberId,
    },
    Start {
        member: MemberId,
    },
    /// Killed, and restarted after this time at most.
    Kill {
        member: MemberId,
        for_us: u64,
    },
    Trouble(Kind),
    Load,
    Unblock {
        from: MemberId,
        to: MemberId,
    },
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Kill,
    Pause,
    Partition,
    Change,
    KillAll,
}

struct Queued {
    at: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

struct Node {
    member: Option<Member>,
    /// Counter of incarnations and pauses. An event that was queued for an earlier one is ignored.
    life: u64,
    /// Records on the disk: `durable` durable ones, then the others.
    disk: Vec<Record>,
    durable: usize,
    /// All records ever written, including those that checkpoints have replaced. The disk holds the last ones.
    written: Vec<Record>,
    places: Places,
    /// Position in `written` of the chosen entries, from `readable` on.
    index: BTreeMap<Slot, u64>,
    readable: Slot,
    /// Index on the disk of the first record of this incarnation, as if no record had been removed.
    before: isize,
    is_paused: bool,
    held: Vec<(MemberId, Message)>,
    /// Speed of the node's clock, in thousandths of real time.
    rate: u64,
    sync_us: u64,
    delivered: Slot,
    barriers: BTreeMap<u64, Slot>,
    wants_slots: bool,
    /// The node is no longer a member, or is down permanently.
    is_gone: bool,
}

impl Node {
    /// Drops the records that are not durable.
    fn cut(&mut self) {
        let lost = self.disk.len() - self.durable;
        self.disk.truncate(self.durable);
        self.written.truncate(self.written.len() - lost);
    }

    fn write(&mut self, record: Record) {
        self.places.wrote(&record, self.written.len() as u64);
        self.written.push(record);
    }

    /// Finds the positions of chosen entries, as the product does at a start. Entries before the first record on the
    /// disk are known, and the records give the others.
    fn find_places(&mut self, id: MemberId) {
        let Some(Record::Snapshot(first)) = self.disk.first() else { panic!("no snapshot") };
        self.index.retain(|slot, _| *slot < first.next);
        self.places = Places::after(first.next);
        let mut recovery = None;
        let first = (self.written.len() - self.disk.len()) as u64;
        for (place, record) in (first..).zip(self.disk.clone()) {
            self.places.wrote(&record, place);
            match recovery.as_mut() {
                None => {
                    let new = Recovery::new(id, Some(record), Settings::default(), Time(0));
                    recovery = Some(new.unwrap());
                }
                Some(recovery) => {
                    let next = self.places.next();
                    let replayed = recovery.take(record).unwrap();
                    if replayed.is_anew {
                        self.index.clear();
                        self.readable = next;
                    }
                    for effect in replayed.effects {
                        if let Effect::Chosen(slots) = effect {
                            self.index.extend(self.places.chosen(&slots).unwrap());
                        }
                    }
                }
            }
        }
    }

    /// Reads chosen entries from the log.
    fn read(&self, from: Slot, count: u64, is_first: bool) -> Option<Entries> {
        let entry = |slot: Slot, place: u64| match is_first {
            true => self.written.iter().find_map(|record| record.entry_at(slot)).unwrap(),
            false => self.written[place as usize].entry_at(slot).unwrap(),
        };
        let found = self.index.range(from..).take(count as usize);
        (from >= self.readable).then(|| found.map(|(slot, place)| (*slot, entry(*slot, *place))).collect())
    }
}

pub struct World {
    /// Number of parts that were read from logs.
    reads: usize,
    seed: u64,
    settings: Settings,
    /// A bug of the caller: every read of the log returns its first record.
    pub reads_first_record: bool,
    random: Rng,
    now: u64,
    next: u64,
    queue: BinaryHeap<Reverse<Queued>>,
    nodes: BTreeMap<MemberId, Node>,
    trouble: Trouble,
    is_healed: bool,
    blocked: BTreeSet<(MemberId, MemberId)>,
    delay_us: u64,
    window: u64,
    chunk: u64,
    /// Chosen proposals.
    truth: BTreeMap<Slot, ProposalId>,
    last: BTreeMap<MemberId, (Incarnation, u64)>,
    epochs: BTreeSet<Slot>,
    /// End of the slots that any member has delivered.
    end: Slot,
    next_member: u64,
    next_nonce: u64,
}

impl World {
    pub fn new(
        seed: u64,
        members: std::ops::RangeInclusive<u64>,
        trouble: Trouble,
        settings: Settings,
    ) -> Self {
        let mut random = Rng::with_seed(seed);
        let count = random.u64(members);
        let founders = Membership::new((1..=count).map(MemberId));
        let delay_us = [50, 200, 2000][random.usize(..3)];
        let window = [16, 64, 1024][random.usize(..3)];
        let chunk = [2, 16, 256][random.usize(..3)];
        let mut world = Self {
            reads: 0,
            seed,
            settings,
            reads_first_record: false,
            random,
            now: 0,
            next: 0,
            queue: BinaryHeap::new(),
            nodes: BTreeMap::new(),
            trouble,
            is_healed: false,
            blocked: BTreeSet::new(),
            delay_us,
            window,
            chunk,
            truth: BTreeMap::new(),
            last: BTreeMap::new(),
            epochs: BTreeSet::new(),
            end: Slot(1),
            next_member: count + 1,
            next_nonce: 1,
        };
        for id in founders.iter() {
            world.add(id, Record::Snapshot(Member::founding(founders.clone())));
        }
        let kinds = [
            (Kind::Kill, trouble.kills),
            (Kind::Pause, trouble.pauses),
            (Kind::Partition, trouble.partitions),
            (Kind::Change, trouble.changes),
            (Kind::KillAll, trouble.all_killed),
        ];
        for (kind, count) in kinds {
            for _ in 0..count {
                let at = world.random.u64(300_000..3_000_000);
                world.push(at, Event::Trouble(kind));
            }
        }
        world.push(0, Event::Load);
        world
    }

    fn add(&mut self, id: MemberId, first: Record) {
        let Record::Snapshot(snapshot) = &first else { panic!("not the first record") };
        let next = snapshot.next;
        let node = Node {
            member: None,
            life: 0,
            written: vec![first.clone()],
            places: Places::after(next),
            index: BTreeMap::new(),
            readable: next,
            disk: vec![first],
            durable: 1,
            before: 1,
            wants_slots: true,
            is_paused: false,
            held: Vec::new(),
            rate: self.random.u64(900..1100),
            sync_us: [100, 300, 5000][self.random.usize(..3)],
            delivered: Slot(1),
            barriers: BTreeMap::new(),
            is_gone: false,
        };
        self.nodes.insert(id, node);
        self.start(id);
    }

    fn push(&mut self, at: u64, event: Event) {
        self.next += 1;
        self.queue.push(Reverse(Queued { at, number: self.next, event }));
    }

    fn clock(&self, id: MemberId) -> Time {
        Time(self.now * self.nodes[&id].rate / 1000)
    }

    fn start(&mut self, id: MemberId) {
        let now = self.clock(id);
        let seed = self.seed;
        let node = self.nodes.get_mut(&id).unwrap();
        if node.member.is_some() || node.is_gone {
            return;
        }
        node.life += 1;
        node.cut();
        node.find_places(id);
        node.before = node.disk.len() as isize;
        node.is_paused = false;
        node.held.clear();
        node.barriers.clear();
        let mut settings = Settings { window: self.window, chunk: self.chunk, ..self.settings };
        settings.timing.lag = self.window;
        settings.timing.longest_join_us = 1_000_000;
        settings.timing.lacking_us = 100_000;
        let member = Member::start(id, node.disk.clone(), settings, now);
        let mut member = member.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        node.delivered = member.delivered();
        member.set_readable(node.readable);
        let (replayed, delivered) = (member.take_replayed(), member.delivered());
        self.check_replayed(id, &replayed, delivered);
        let node = self.nodes.get_mut(&id).unwrap();
        // The record of the start is durable before any other action.
        let life = node.life;
        let effects = member.take_effects();
        node.member = Some(member);
        let records = effects.iter().filter(|effect| matches!(effect, Effect::Append(_))).count();
        self.carry_out(
            id,
            effects.into_iter().filter(|effect| matches!(effect, Effect::Append(_))).collect(),
        );
        self.synced(id, life, records);
        self.push(self.now, Event::Tick { member: id, life });
    }

    /// The repeated deliveries of a new incarnation are the chosen entries from their first slot to before
    /// `delivered`.
    fn check_replayed(&self, id: MemberId, replayed: &[Effect], delivered: Slot) {
        let found: Vec<_> = replayed
            .iter()
            .map(|effect| match effect {
                Effect::Deliver { slot, proposal } => (*slot, Some(proposal.id)),
                Effect::Begun(start) => (start.slot, None),
                other => panic!("seed {}: {id} replays {other:?}", self.seed),
            })
            .collect();
        let Some((first, _)) = found.first().copied() else { return };
        let mut expected: BTreeMap<_, _> =
            self.truth.range(first..delivered).map(|(slot, proposal)| (*slot, Some(*proposal))).collect();
        expected.extend(self.epochs.range(first..delivered).map(|slot| (*slot, None)));
        assert!(found.into_iter().eq(expected), "seed {}: {id} replays something else", self.seed);
    }

    fn synced(&mut self, id: MemberId, life: u64, records: usize) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.life == life) else { return };
        let Some(member) = node.member.as_mut() else { return };
        node.durable = (node.durable as isize).max(node.before + records as isize) as usize;
        member.durable(RecordCount(records as u64));
        self.effects_of(id);
    }

    fn effects_of(&mut self, id: MemberId) {
        let Some(member) = self.nodes.get_mut(&id).and_then(|node| node.member.as_mut()) else { return };
        let effects = member.take_effects();
        self.carry_out(id, effects);
    }

    fn carry_out(&mut self, id: MemberId, effects: Vec<Effect>) {
        let mut has_records = false;
        for effect in effects {
            match effect {
                Effect::Append(record) => {
                    has_records = true;
                    let mut bytes = Vec::new();
                    encode_record(&record, &mut bytes);
                    assert_eq!(decode_record(&bytes).as_ref(), Ok(&record), "seed {}", self.seed);
                    let node = self.nodes.get_mut(&id).unwrap();
                    node.write(record.clone());
                    node.disk.push(record);
                }
                Effect::Send { to, message } => self.send(id, to, message),
                Effect::Chosen(slots) => {
                    let node = self.nodes.get_mut(&id).unwrap();
                    let places = node.places.chosen(&slots);
                    node.index.extend(places.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed)));
                }
                Effect::Read { to, from } => {
                    let life = self.nodes[&id].life;
                    let slow = if !self.is_healed && self.random.u8(..10) == 0 { 20 } else { 1 };
                    let at = self.now + self.random.u64(100..2000) * slow;
                    self.push(at, Event::Read { member: id, life, to, from });
                }
                Effect::Deliver { slot, proposal } => self.check_delivered(id, slot, Some(proposal.id)),
                Effect::Begun(start) => self.check_delivered(id, start.slot, None),
                Effect::BarrierReached(nonce) => {
                    let node = self.nodes.get_mut(&id).unwrap();
                    let wanted = node.barriers.remove(&nonce).unwrap();
                    let delivered = node.member.as_ref().unwrap().delivered();
                    assert!(
                        delivered >= wanted,
                        "seed {}: barrier of {id}: {delivered} is before {wanted}",
                        self.seed
                    );
                }
                Effect::NeedsSnapshot { from } => {
                    if self.install(id, from) {
                        // The remaining effects belong to the previous incarnation.
                        return;
                    }
                }
            }
        }
        let node = &self.nodes[&id];
        if has_records {
            let (records, life) = ((node.disk.len() as isize - node.before) as usize, node.life);
            let at = self.now + self.random.u64(node.sync_us / 2..node.sync_us * 2);
            self.push(at, Event::Synced { member: id, life, records });
        }
    }

    fn install(&mut self, id: MemberId, from: MemberId) -> bool {
        let snapshot = self.nodes.get(&from).and_then(|node| node.member.as_ref()).map(Member::snapshot);
        let Some(snapshot) = snapshot else { return false };
        let node = self.nodes.get_mut(&id).unwrap();
        if snapshot.next <= node.member.as_ref().unwrap().delivered() {
            return false;
        }
        // Like the product, the member continues as a new incarnation.
        node.member = None;
        node.write(Record::Snapshot(snapshot.clone()));
        node.disk.push(Record::Snapshot(snapshot));
        node.durable = node.disk.len();
        self.start(id);
        true
    }

    fn check_delivered(&mut self, id: MemberId, slot: Slot, proposal: Option<ProposalId>) {
        let seed = self.seed;
        if *NOTES {
            println!("{} {id} delivers {slot} {proposal:?}", self.now);
        }
        let node = self.nodes.get_mut(&id).unwrap();
        assert!(slot >= node.delivered, "seed {seed}: {id} delivers {slot} again");
        let skipped = self.truth.range(node.delivered..slot).next();
        assert!(skipped.is_none(), "seed {seed}: {id} delivers {slot} and has left out {skipped:?}");
        let skipped = self.epochs.range(node.delivered..slot).next();
        assert!(skipped.is_none(), "seed {seed}: {id} delivers {slot} and has left out epoch {skipped:?}");
        node.delivered = slot.next();
        let Some(proposal) = proposal else {
            assert!(
                slot >= self.end || self.epochs.contains(&slot),
                "seed {seed}: {id} has an epoch at {slot}"
            );
            self.epochs.insert(slot);
            self.end = self.end.max(slot.next());
            return;
        };
        if slot < self.end {
            let known = self.truth.get(&slot);
            assert_eq!(known, Some(&proposal), "seed {seed}: {id} delivers something else in {slot}");
            return;
        }
        self.truth.insert(slot, proposal);
        self.end = slot.next();
        let last = self.last.entry(proposal.member).or_default();
        let is_next = if proposal.incarnation == last.0 {
            proposal.number == last.1 + 1
        } else {
            proposal.incarnation > last.0 && proposal.number == 1
        };
        assert!(is_next, "seed {seed}: {proposal:?} comes after {last:?}");
        *last = (proposal.incarnation, proposal.number);
    }

    fn send(&mut self, from: MemberId, to: MemberId, message: Message) {
        let mut bytes = Vec::new();
        encode_message(&message, &mut bytes);
        assert_eq!(decode_message(&bytes).as_ref(), Ok(&message), "seed {}", self.seed);
        let is_of_epoch =
            matches!(message, Message::Prepare { .. } | Message::Promise { .. } | Message::Adopt { .. });
        let is_met = is_of_epoch && !self.is_healed && self.random.u64(..100) < self.trouble.epochs;
        let is_before = is_met && self.random.bool();
        if is_before {
            self.trouble_epoch(from, to);
        }
        if self.blocked.contains(&(from, to)) {
            return;
        }
        let (loss, doubled) = if self.is_healed { (0, 0) } else { (self.trouble.loss, self.trouble.doubled) };
        let copies = match self.random.u64(..100) {
            roll if roll < loss => 0,
            roll if roll < loss + doubled => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let slow = if !self.is_healed && self.random.u64(..200) == 0 { 50 } else { 1 };
            let at = self.now + self.random.u64(self.delay_us / 2..=self.delay_us * 2) * slow;
            self.push(at, Event::Message { from, to, message: message.clone() });
        }
        if is_met && !is_before {
            self.trouble_epoch(from, to);
        }
    }

    fn any(&mut self, wanted: impl Fn(&Node) -> bool) -> Option<MemberId> {
        let ids: Vec<_> =
            self.nodes.iter().filter(|(_, node)| !node.is_gone && wanted(node)).map(|(id, _)| *id).collect();
        (!ids.is_empty()).then(|| ids[self.random.usize(..ids.len())])
    }

    pub fn run(&mut self, until_us: u64) {
        while let Some(Reverse(queued)) = self.queue.pop() {
            if queued.at > until_us {
                self.queue.push(Reverse(queued));
                break;
            }
            self.now = queued.at;
            self.step(queued.event);
        }
        self.now = until_us;
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Message { from, to, message } => {
                let now = self.clock(to);
                let Some(node) = self.nodes.get_mut(&to) else { return };
                if node.is_paused {
                    node.held.push((from, message));
                    return;
                }
                let Some(member) = node.member.as_mut() else { return };
                if *NOTES {
                    println!("{} {to} gets from {from} {message:?}", self.now);
                }
                member.handle(from, message, now);
                self.effects_of(to);
            }
            Event::Synced { member, life, records } => {
                if self.nodes[&member].is_paused && self.nodes[&member].life == life {
                    self.push(self.now + 1000, Event::Synced { member, life, records });
                } else {
                    self.synced(member, life, records);
                }
            }
            Event::Tick { member: id, life } => {
                let now = self.clock(id);
                let node = self.nodes.get_mut(&id).unwrap();
                if node.life != life || node.member.is_none() {
                    return;
                }
                if !node.is_paused {
                    node.member.as_mut().unwrap().tick(now);
                    self.effects_of(id);
                }
                self.push(self.now + 2000, Event::Tick { member: id, life });
            }
            Event::Read { member: id, life, to, from } => {
                let (count, is_first) = (self.chunk * 16, self.reads_first_record);
                let node = self.nodes.get_mut(&id).unwrap();
                if node.life == life && node.is_paused {
                    return self.push(self.now + 1000, Event::Read { member: id, life, to, from });
                }
                if node.life != life {
                    return;
                }
                let entries = node.read(from, count, is_first);
                if let Some(member) = node.member.as_mut() {
                    self.reads += 1;
                    member.read(to, from, entries);
                    self.effects_of(id);
                }
            }
            Event::Resume { member } => {
                let node = self.nodes.get_mut(&member).unwrap();
                node.is_paused = false;
                for (from, message) in std::mem::take(&mut node.held) {
                    self.push(self.now, Event::Message { from, to: member, message });
                }
            }
            Event::Start { member } => self.start(member),
            Event::Kill { member, for_us } => {
                if !self.is_healed && self.nodes.get(&member).is_some_and(|node| node.member.is_some()) {
                    self.kill(member, for_us);
                }
            }
            Event::Unblock { from, to } => _ = self.blocked.remove(&(from, to)),
            Event::Trouble(kind) => self.make(kind),
            Event::Load => self.load(),
        }
    }

    fn load(&mut self) {
        if let Some(id) = self.any(|node| node.member.is_some() && !node.is_paused) {
            let count =
                if self.random.u8(..20) == 0 { self.random.usize(..600) } else { self.random.usize(1..6) };
            let nonce = self.next_nonce;
            let end = self.end;
            let node = self.nodes.get_mut(&id).unwrap();
            let member = node.member.as_mut().unwrap();
            if member.undelivered() < 1000 {
                for _ in 0..count {
                    member.propose(std::sync::Arc::from(&b"x"[..]));
                }
            }
            if nonce.is_multiple_of(8) {
                node.barriers.insert(nonce, end);
                member.barrier(nonce);
            }
            self.next_nonce += 1;
            if nonce % 16 == 3 {
                let kept = [3, 100][self.random.usize(..2)];
                member.give_up(Slot(member.delivered().0.saturating_sub(kept)));
                if self.trouble.changes > 0 && self.random.bool() {
                    let first = Slot(member.delivered().0.saturating_sub(400)).max(node.readable);
                    node.index = node.index.split_off(&first);
                    node.readable = first;
                    member.set_readable(first);
                }
            }
            if self.trouble.changes > 0 && !self.is_healed && nonce % 64 == 5 {
                node.wants_slots = !node.wants_slots;
                member.set_willing(node.wants_slots);
            }
            if self.trouble.kills > 0 && nonce % 32 == 7 {
                // The store is replaced at once by a new one.
                let written = node.disk.len() as isize - node.before;
                node.disk = member.checkpoint();
                for record in &node.disk {
                    node.places.wrote(record, node.written.len() as u64);
                    node.written.push(record.clone());
                }
                node.durable = node.disk.len();
                node.before = node.disk.len() as isize - written;
                member.durable(RecordCount(written as u64));
            }
            self.effects_of(id);
        }
        if !self.is_healed {
            let at = self.now + self.random.u64(100..10_000);
            self.push(at, Event::Load);
        }
    }

    fn kill(&mut self, id: MemberId, for_us: u64) {
        let node = self.nodes.get_mut(&id).unwrap();
        node.member = None;
        node.life += 1;
        // Unsynced records may survive, as far as they were written.
        let unsynced = node.disk.len() - node.durable;
        let kept = self.random.usize(..=unsynced);
        node.durable += kept;
        node.cut();
        // The others may detect the broken connection.
        for other in self.nodes.keys().copied().collect::<Vec<_>>() {
            if self.random.bool()
                && let Some(member) = self.nodes.get_mut(&other).unwrap().member.as_mut()
            {
                member.lost(id);
            }
        }
        let at = self.now + self.random.u64(1000..for_us);
        self.push(at, Event::Start { member: id });
    }

    fn pause(&mut self, id: MemberId, for_us: u64) {
        self.nodes.get_mut(&id).unwrap().is_paused = true;
        let at = self.now + self.random.u64(1000..for_us);
        self.push(at, Event::Resume { member: id });
    }

    fn cut(&mut self, from: MemberId, to: MemberId, until: u64) {
        self.blocked.insert((from, to));
        self.push(until, Event::Unblock { from, to });
    }

    /// A message about the beginning of an epoch was sent: causes a fault during that beginning. The promises of an
    /// epoch matter only until all members have begun it. Faults at random times seldom hit that period.
    fn trouble_epoch(&mut self, from: MemberId, to: MemberId) {
        let for_us = [5_000, 50_000, 300_000][self.random.usize(..3)];
        let (one, other) = if self.random.bool() { (from, to) } else { (to, from) };
        match self.random.u8(..5) {
            0 => self.kill_soon(one, for_us),
            1 if self.nodes.get(&one).is_some_and(|node| node.member.is_some() && !node.is_paused) => {
                self.pause(one, for_us);
            }
            2 => self.cut(from, to, self.now + for_us),
            3 => self.silence(one, for_us),
            // One member loses its records that are not durable, before the other one can report their content.
            _ => {
                self.kill_soon(one, 5_000);
                self.silence(other, for_us);
            }
        }
    }

    fn kill_soon(&mut self, id: MemberId, for_us: u64) {
        let at = self.now + self.random.u64(..4 * self.delay_us);
        self.push(at, Event::Kill { member: id, for_us });
    }

    /// Blocks all messages of a member.
    fn silence(&mut self, id: MemberId, for_us: u64) {
        let until = self.now + self.random.u64(1000..=for_us);
        for other in self.nodes.keys().copied().filter(|other| *other != id).collect::<Vec<_>>() {
            self.cut(id, other, until);
        }
    }

    fn make(&mut self, kind: Kind) {
        if self.is_healed {
            return;
        }
        match kind {
            Kind::Kill => {
                if let Some(id) = self.any(|node| node.member.is_some()) {
                    self.kill(id, 800_000);
                }
            }
            Kind::KillAll => {
                for id in self.nodes.keys().copied().collect::<Vec<_>>() {
                    if self.nodes[&id].member.is_some() {
                        self.kill(id, 800_000);
                    }
                }
            }
            Kind::Pause => {
                if let Some(id) = self.any(|node| node.member.is_some() && !node.is_paused) {
                    self.pause(id, 600_000);
                }
            }
            Kind::Partition => {
                let ids: Vec<_> = self.nodes.keys().copied().collect();
                let (is_out, is_in) = [(true, true), (true, false), (false, true)][self.random.usize(..3)];
                let until = self.now + self.random.u64(1000..800_000);
                // One member, one link, or a group of members.
                let (some, others): (Vec<_>, Vec<_>) = match self.random.u8(..3) {
                    0 => (vec![ids[self.random.usize(..ids.len())]], ids.clone()),
                    1 => {
                        (vec![ids[self.random.usize(..ids.len())]], vec![ids[self.random.usize(..ids.len())]])
                    }
                    _ => {
                        let is_one: Vec<_> = ids.iter().map(|_| self.random.bool()).collect();
                        let of = |wanted| {
                            ids.iter().zip(&is_one).filter(move |(_, is)| **is == wanted).map(|(id, _)| *id)
                        };
                        (of(true).collect(), of(false).collect())
                    }
                };
                for (one, other) in some.iter().flat_map(|one| others.iter().map(move |other| (*one, *other)))
                {
                    for (from, to, is_cut) in [(one, other, is_out), (other, one, is_in)] {
                        if is_cut && from != to {
                            self.cut(from, to, until);
                        }
                    }
                }
            }
            Kind::Change => self.change(),
        }
    }

    /// A member requests another membership: members leave, and new or former members join.
    fn change(&mut self) {
        let Some(by) = self.any(|node| node.member.is_some() && !node.is_paused) else { return };
        let member = self.nodes[&by].member.as_ref().unwrap();
        let before = member.epoch().membership.clone();
        let snapshot = member.snapshot();
        let mut ids: Vec<_> = before.iter().collect();
        let former: Vec<_> = self.nodes.keys().copied().filter(|id| !before.contains(*id)).collect();
        for _ in 0..self.random.usize(1..3) {
            let others: Vec<_> = ids.iter().copied().filter(|id| *id != by).collect();
            if !others.is_empty() && self.random.bool() {
                let gone = others[self.random.usize(..others.len())];
                ids.retain(|id| *id != gone);
            }
        }
        let mut new = Vec::new();
        let least = self.random.usize(1..=3);
        while ids.len() < least || (ids.len() < 5 && self.random.u8(..3) == 0) {
            if !former.is_empty() && self.random.bool() {
                ids.push(former[self.random.usize(..former.len())]);
            } else {
                new.push(MemberId(self.next_member));
                ids.push(MemberId(self.next_member));
                self.next_member += 1;
            }
        }
        let member = self.nodes.get_mut(&by).unwrap().member.as_mut().unwrap();
        if self.random.bool() {
            member.set_listeners(Membership::new(former));
        }
        if member.change_membership(Membership::new(ids)).is_ok() {
            for id in new {
                self.add(id, Record::Snapshot(snapshot.clone()));
            }
        }
        self.effects_of(by);
    }

    fn newest(&self) -> std::sync::Arc<redoubt_consensus::types::EpochStart> {
        let epochs = self.nodes.values().filter_map(|node| node.member.as_ref()).map(Member::epoch);
        std::sync::Arc::clone(epochs.max_by_key(|epoch| epoch.ballot).unwrap())
    }

    /// Ends all faults, except that less than half of the members stay down.
    pub fn heal_most(&mut self) {
        self.heal();
        self.settle();
        let ids: Vec<_> = self.newest().membership.iter().collect();
        let down = (ids.len() - 1) / 2;
        let first = self.random.usize(..ids.len());
        for at in 0..down {
            let node = self.nodes.get_mut(&ids[(first + at) % ids.len()]).unwrap();
            node.member = None;
            node.life += 1;
            node.cut();
            node.is_gone = true;
        }
        self.push(self.now, Event::Load);
        self.settle();
        for node in self.nodes.values_mut() {
            node.is_gone = false;
        }
    }

    pub fn heal(&mut self) {
        self.is_healed = true;
        self.blocked.clear();
        for node in self.nodes.values_mut() {
            node.wants_slots = true;
            if let Some(member) = &mut node.member {
                member.set_willing(true);
            }
        }
        let ids: Vec<_> = self.nodes.keys().copied().collect();
        for id in ids {
            if self.nodes[&id].is_paused {
                self.step(Event::Resume { member: id });
            }
            self.start(id);
        }
    }

    /// Runs until all members have delivered everything.
    pub fn settle(&mut self) {
        for _ in 0..200 {
            self.run(self.now + 100_000);
            if self.is_settled() {
                return;
            }
        }
        for (id, node) in &self.nodes {
            let Some(member) = node.member.as_ref() else { continue };
            println!(
                "{id}.{}: delivered {}, epoch {:?}, undelivered {}, owner {}",
                member.incarnation().0,
                member.delivered(),
                member.epoch(),
                member.undelivered(),
                member.is_owner()
            );
        }
        panic!("seed {}: not settled; end {}", self.seed, self.end);
    }

    fn is_settled(&self) -> bool {
        let newest = self.newest();
        // The last slots may hold proposals that were delivered before, because they were forwarded twice.
        let delivered = |node: &Node| node.member.as_ref().map(Member::delivered);
        let end = self.nodes.values().filter_map(delivered).max().unwrap().max(self.end);
        newest.membership.iter().filter(|id| !self.nodes[id].is_gone).all(|id| {
            let node = &self.nodes[&id];
            let member = node.member.as_ref().unwrap();
            let owner = Owner { member: id, incarnation: member.incarnation() };
            member.delivered() == end
                && member.undelivered() == 0
                && node.barriers.is_empty()
                && newest.place(owner).is_some()
        })
    }

    pub fn delivered(&self) -> usize {
        self.truth.len()
    }

    pub fn reads(&self) -> usize {
        self.reads
    }

    pub fn epochs(&self) -> usize {
        self.epochs.len()
    }
}
