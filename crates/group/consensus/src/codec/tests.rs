use super::bytes::Coded;
use super::*;
use crate::message::{Entries, Opinion, Progress, Turns, Verdict};
use crate::origins::Origins;
use crate::types::{
    Ballot, Entry, EpochStart, Incarnation, MemberId, Membership, Owner, Proposal, ProposalId, Slot,
};
use fastrand::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Anything that has an encoding of its own.
#[derive(Clone, PartialEq, Debug)]
enum Value {
    Message(Message),
    Record(Record),
    Snapshot(Snapshot),
}

impl Value {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.append(&mut out);
        out
    }

    fn append(&self, out: &mut Vec<u8>) {
        match self {
            Self::Message(message) => encode_message(message, out),
            Self::Record(record) => encode_record(record, out),
            Self::Snapshot(snapshot) => encode_snapshot(snapshot, out),
        }
    }

    /// Decodes `bytes` as a value of the same kind.
    fn decode(&self, bytes: &[u8]) -> Result<Self, CodecError> {
        match self {
            Self::Message(_) => decode_message(bytes).map(Self::Message),
            Self::Record(_) => decode_record(bytes).map(Self::Record),
            Self::Snapshot(_) => decode_snapshot(bytes).map(Self::Snapshot),
        }
    }

    /// Damaged `bytes` are rejected, or are the only encoding of the value that they decode to.
    fn require_no_second_form(&self, bytes: &[u8]) {
        if let Ok(other) = self.decode(bytes) {
            assert_eq!(other.encode(), bytes, "{other:?}");
        }
    }
}

const LIMIT: u64 = 1 << 60;

/// Values in the range that members use, and records with any numbers.
struct Random(Rng);

impl Random {
    /// Of each length about as often.
    fn number(&mut self) -> u64 {
        self.0.u64(..) >> self.0.u32(..64)
    }

    fn below_limit(&mut self) -> u64 {
        self.number() % LIMIT
    }

    fn slot(&mut self) -> Slot {
        Slot(self.below_limit())
    }

    fn list<T>(&mut self, from: usize, item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.0.usize(from..6);
        self.some(count, item)
    }

    fn some<T>(&mut self, count: usize, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..count).map(|_| item(self)).collect()
    }

    fn ballot(&mut self) -> Ballot {
        Ballot { round: self.below_limit(), candidate: MemberId(self.number()) }
    }

    fn membership(&mut self) -> Membership {
        Membership::new(self.list(1, |random| MemberId(random.number())))
    }

    fn epoch_at(&mut self, slot: Slot) -> Arc<EpochStart> {
        let owner = |random: &mut Self| Owner {
            member: MemberId(random.number()),
            incarnation: Incarnation(random.number()),
        };
        let ballot = self.ballot();
        let (previous, membership) = (self.membership(), self.membership());
        Arc::new(EpochStart { ballot, slot, previous, membership, owners: self.list(0, owner) })
    }

    fn epoch(&mut self) -> Arc<EpochStart> {
        let slot = self.slot();
        self.epoch_at(slot)
    }

    fn proposal(&mut self) -> Proposal {
        let id = ProposalId {
            member: MemberId(self.number()),
            incarnation: Incarnation(self.number()),
            number: self.number(),
        };
        let len = [0, 1, 127, 128, 200, 2000][self.0.usize(..6)];
        let body = self.some(len, |random| random.0.u8(..)).into();
        Proposal { id, body }
    }

    fn entries(&mut self) -> Entries {
        self.list(0, |random| {
            let slot = random.slot();
            let is_proposal = random.0.u8(..4) > 0;
            let entry = match is_proposal {
                true => Entry::Proposal(random.proposal()),
                false => Entry::EpochStart(random.epoch_at(slot)),
            };
            (slot, entry)
        })
    }

    fn turns(&mut self) -> Turns {
        Turns { from: self.slot(), to: self.slot(), entries: self.entries() }
    }

    fn opinion(&mut self) -> Opinion {
        let verdict = [Verdict::Bad, Verdict::Keep, Verdict::Good][self.0.usize(..3)];
        Opinion { member: MemberId(self.number()), incarnation: Incarnation(self.number()), verdict }
    }

    fn progress(&mut self) -> Progress {
        Progress {
            incarnation: Incarnation(self.number()),
            epoch: self.ballot(),
            turns: self.0.bool().then(|| self.turns()),
            acked: self.0.bool().then(|| self.list(0, Self::slot)),
            delivered: self.slot(),
            is_willing: self.0.bool(),
            opinions: self.list(0, Self::opinion),
        }
    }

    fn promise(&mut self) -> Message {
        let epoch = self.epoch();
        Message::Promise {
            ballot: self.ballot(),
            frontiers: self.some(epoch.owners.len(), Self::slot),
            epoch,
            delivered: self.slot(),
            settled: self.ballot(),
            entries: self.entries(),
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let origins =
            self.list(0, |random| (MemberId(random.number()), Incarnation(random.number()), random.number()));
        let origins = Origins::from_parts(origins, self.membership());
        Snapshot { next: Slot(self.number()), epoch: self.epoch(), origins, as_of: self.ballot() }
    }

    /// One of each variant.
    fn values(&mut self) -> Vec<Value> {
        let messages = [
            Message::Progress(self.progress()),
            Message::Prepare {
                ballot: self.ballot(),
                epoch: self.ballot(),
                frontiers: self.list(0, Self::slot),
                delivered: self.slot(),
            },
            self.promise(),
            Message::Refuse { promised: self.ballot() },
            Message::Adopt { start: self.epoch(), from: self.slot(), entries: self.entries() },
            Message::NeedPrefix { ballot: self.ballot(), delivered: self.slot() },
            Message::Fetch { from: self.slot() },
            Message::Chosen {
                from: self.slot(),
                to: self.slot(),
                entries: self.entries(),
                as_of: self.ballot(),
            },
            Message::GivenUp { base: self.slot() },
            Message::Forward { proposals: self.list(0, Self::proposal) },
            Message::BarrierAsk { nonce: self.number() },
            Message::BarrierAnswer { nonce: self.number(), epoch: self.ballot(), to: self.slot() },
        ];
        let any_slot = Slot(self.number());
        let owner = self.number() as usize;
        let records = [
            Record::Started(Incarnation(self.number())),
            Record::Promised(Ballot { round: self.number(), candidate: MemberId(self.number()) }),
            Record::Snapshot(self.snapshot()),
            Record::Adopted { start: self.epoch(), from: any_slot, entries: self.entries() },
            Record::Accepted { epoch: self.ballot(), owner, turns: self.turns() },
            Record::Chosen { from: self.slot(), to: any_slot, entries: self.entries() },
            Record::Delivered(any_slot),
        ];
        let mut values: Vec<_> = messages.into_iter().map(Value::Message).collect();
        values.extend(records.into_iter().map(Value::Record));
        values.push(Value::Snapshot(self.snapshot()));
        values
    }
}

/// Seeded values of all variants, `rounds` of each.
fn random_values(seed: u64, rounds: usize) -> impl Iterator<Item = Value> {
    let mut random = Random(Rng::with_seed(seed));
    (0..rounds).flat_map(move |_| random.values())
}

fn members(ids: &[u64]) -> Membership {
    Membership::new(ids.iter().copied().map(MemberId))
}

const fn ballot(round: u64, candidate: u64) -> Ballot {
    Ballot { round, candidate: MemberId(candidate) }
}

fn proposal(number: u64, body: &[u8]) -> Proposal {
    let id = ProposalId { member: MemberId(1), incarnation: Incarnation(1), number };
    Proposal { id, body: body.into() }
}

const LOW: Slot = Slot(100);
const MIDDLE: Slot = Slot(131);
const HIGH: Slot = Slot(132);

fn epoch() -> Arc<EpochStart> {
    let owner =
        |member, incarnation| Owner { member: MemberId(member), incarnation: Incarnation(incarnation) };
    Arc::new(EpochStart {
        ballot: ballot(5, 1),
        slot: Slot(130),
        previous: members(&[1, 2, 3]),
        membership: members(&[1, 2, 4]),
        owners: vec![owner(1, 1), owner(4, 2)],
    })
}

fn earlier_epoch() -> (Slot, Entry) {
    let start = EpochStart {
        ballot: ballot(4, 3),
        slot: LOW,
        previous: members(&[1, 2, 3]),
        membership: members(&[1, 2, 3]),
        owners: Vec::new(),
    };
    (LOW, Entry::EpochStart(Arc::new(start)))
}

fn proposal_at(slot: u64) -> (Slot, Entry) {
    (Slot(slot), Entry::Proposal(proposal(7, b"abc")))
}

fn turns() -> Turns {
    Turns { from: MIDDLE, to: Slot(135), entries: vec![proposal_at(131)] }
}

fn snapshot() -> Snapshot {
    let origins = [(MemberId(1), Incarnation(1), 7), (MemberId(9), Incarnation(3), 200)];
    let origins = Origins::from_parts(origins, members(&[1, 2, 4]));
    Snapshot { next: MIDDLE, epoch: epoch(), origins, as_of: ballot(300, 2) }
}

/// Progress between heartbeats, and progress with all optional parts.
fn progress() -> [Progress; 2] {
    let opinion = |member, incarnation, verdict| Opinion {
        member: MemberId(member),
        incarnation: Incarnation(incarnation),
        verdict,
    };
    let idle = Progress {
        incarnation: Incarnation(2),
        epoch: ballot(5, 1),
        turns: None,
        acked: Some(vec![MIDDLE, HIGH]),
        delivered: MIDDLE,
        is_willing: true,
        opinions: Vec::new(),
    };
    let opinions =
        vec![opinion(1, 1, Verdict::Bad), opinion(3, 1, Verdict::Keep), opinion(4, 2, Verdict::Good)];
    let busy = Progress { turns: Some(turns()), acked: None, is_willing: false, opinions, ..idle.clone() };
    [idle, busy]
}

fn sample_messages() -> [(&'static str, Message); 13] {
    let [idle, busy] = progress();
    let (asked, mine, frontiers) = (ballot(300, 2), ballot(5, 1), vec![MIDDLE, HIGH]);
    let promise = Message::Promise {
        ballot: asked,
        epoch: epoch(),
        frontiers: frontiers.clone(),
        delivered: LOW,
        settled: ballot(4, 3),
        entries: vec![proposal_at(131)],
    };
    let chosen = Message::Chosen { from: LOW, to: MIDDLE, entries: vec![earlier_epoch()], as_of: mine };
    let before = vec![earlier_epoch(), proposal_at(101)];
    let proposals = vec![proposal(7, b"abc"), proposal(8, b"")];
    [
        ("message progress idle", Message::Progress(idle)),
        ("message progress", Message::Progress(busy)),
        ("message prepare", Message::Prepare { ballot: asked, epoch: mine, frontiers, delivered: MIDDLE }),
        ("message promise", promise),
        ("message refuse", Message::Refuse { promised: asked }),
        ("message adopt", Message::Adopt { start: epoch(), from: LOW, entries: before }),
        ("message need prefix", Message::NeedPrefix { ballot: asked, delivered: LOW }),
        ("message fetch", Message::Fetch { from: LOW }),
        ("message chosen", chosen),
        ("message given up", Message::GivenUp { base: LOW }),
        ("message forward", Message::Forward { proposals }),
        ("message barrier ask", Message::BarrierAsk { nonce: u64::MAX }),
        ("message barrier answer", Message::BarrierAnswer { nonce: 9, epoch: mine, to: MIDDLE }),
    ]
}

fn sample_records() -> [(&'static str, Record); 7] {
    [
        ("record started", Record::Started(Incarnation(3))),
        ("record promised", Record::Promised(ballot(300, 2))),
        ("record snapshot", Record::Snapshot(snapshot())),
        ("record adopted", Record::Adopted { start: epoch(), from: LOW, entries: vec![proposal_at(101)] }),
        ("record accepted", Record::Accepted { epoch: ballot(5, 1), owner: 1, turns: turns() }),
        ("record chosen", Record::Chosen { from: LOW, to: MIDDLE, entries: vec![earlier_epoch()] }),
        ("record delivered", Record::Delivered(MIDDLE)),
    ]
}

/// The values whose bytes `golden.txt` has, by name.
fn samples() -> Vec<(&'static str, Value)> {
    let messages = sample_messages().into_iter().map(|(name, message)| (name, Value::Message(message)));
    let records = sample_records().into_iter().map(|(name, record)| (name, Value::Record(record)));
    messages.chain(records).chain([("snapshot", Value::Snapshot(snapshot()))]).collect()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

#[test]
fn the_format_is_that_of_the_golden_file() {
    let mut lines: Vec<(&str, String)> = Vec::new();
    for line in include_str!("golden.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix(' ') {
            Some(more) => lines.last_mut().unwrap().1 += more,
            None => lines.extend(line.split_once("  ").map(|(name, bytes)| (name, bytes.to_owned()))),
        }
    }
    let samples = samples();
    assert_eq!(lines.len(), samples.len());
    for ((in_file, bytes), (name, value)) in lines.into_iter().zip(&samples) {
        assert_eq!(in_file, *name);
        let encoded = value.encode();
        let shown: String = encoded.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(encoded, hex(&bytes), "{name} is {shown} now");
        assert_eq!(value.decode(&encoded).as_ref(), Ok(value), "{name}");
    }
    // No variant is left out, here and by chance.
    let tags = |values: Vec<Value>| {
        let tagged = values.iter().filter(|value| !matches!(value, Value::Snapshot(_)));
        tagged.map(|value| value.encode()[0]).collect::<BTreeSet<_>>()
    };
    let all = (1..=12).chain(65..=71).collect();
    assert_eq!(tags(samples.into_iter().map(|(_, value)| value).collect()), all);
    assert_eq!(tags(random_values(1, 1).collect()), all);
}

#[test]
fn what_is_encoded_is_decoded_to_the_same() {
    for value in random_values(1, 2000) {
        let mut out = b"before".to_vec();
        value.append(&mut out);
        let bytes = out.strip_prefix(b"before").unwrap();
        assert_eq!(value.decode(bytes).as_ref(), Ok(&value));
    }
}

#[test]
fn every_prefix_is_refused_and_so_is_what_follows() {
    let samples = samples().into_iter().map(|(_, value)| value);
    for value in samples.chain(random_values(2, 50)) {
        let mut bytes = value.encode();
        for len in 0..bytes.len() {
            match value.decode(&bytes[..len]) {
                Err(CodecError::Truncated { offset, .. }) => assert_eq!(offset, len, "{value:?}"),
                Err(CodecError::TooMany { offset, count, left, .. }) => {
                    assert!(offset + left < len && count > 0, "{len} bytes of {value:?}");
                }
                other => panic!("{len} bytes of {value:?}: {other:?}"),
            }
        }
        let offset = bytes.len();
        for next in [0, 1, 0x80, 0xff] {
            bytes.push(next);
            let trailing = CodecError::Trailing { offset, count: bytes.len() - offset };
            assert_eq!(value.decode(&bytes), Err(trailing), "{value:?}");
        }
    }
}

#[test]
fn damaged_bytes_are_refused_or_say_something_else_in_its_only_form() {
    for (_, value) in samples() {
        let bytes = value.encode();
        for at in 0..bytes.len() {
            for byte in 0..=u8::MAX {
                let mut damaged = bytes.clone();
                damaged[at] = byte;
                value.require_no_second_form(&damaged);
            }
        }
    }
    for value in random_values(3, 4) {
        let bytes = value.encode();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            value.require_no_second_form(&damaged);
        }
    }
}

#[test]
fn no_bytes_are_both_a_message_and_a_record_and_zeros_are_neither() {
    for value in random_values(4, 20) {
        let bytes = value.encode();
        match value {
            Value::Message(_) => assert!(decode_record(&bytes).is_err()),
            Value::Record(_) => assert!(decode_message(&bytes).is_err()),
            Value::Snapshot(_) => {}
        }
    }
    for len in 0..200 {
        assert!(decode_message(&vec![0; len]).is_err());
        assert!(decode_record(&vec![0; len]).is_err());
    }
}

#[test]
fn unknown_tags_are_refused_by_name() {
    for tag in 0..=u8::MAX {
        let bytes = [tag; 40];
        let of = |what| Some(CodecError::UnknownTag { what, tag, offset: 0 });
        let is_unknown = decode_message(&bytes).err() == of("message");
        assert_eq!(is_unknown, !(1..=12).contains(&tag), "{tag}");
        let is_unknown = decode_record(&bytes).err() == of("record");
        assert_eq!(is_unknown, !(65..=71).contains(&tag), "{tag}");
    }
    let of = |what, tag, offset| Err(CodecError::UnknownTag { what, tag, offset });
    assert_eq!(decode_message(&hex("08 64 65 01 64 03 010107 00")), of("entry", 3, 5));
    assert_eq!(decode_message(&hex("08 64 65 01 64 00 010107 00")), of("entry", 0, 5));
    assert_eq!(decode_message(&hex("01 02 0501 00 00 64 00 01 0101 04")), of("verdict", 4, 11));
    assert_eq!(decode_message(&hex("01 02 0501 00 00 64 00 01 0101 00")), of("verdict", 0, 11));
}

#[test]
fn flags_are_zero_or_one() {
    let of = |what, value, offset| Err(CodecError::NoFlag { what, value, offset });
    assert_eq!(decode_message(&hex("01 02 0501 02 00 64 00 00")), of("whether there are turns", 2, 4));
    assert_eq!(decode_message(&hex("01 02 0501 00 ff 64 00 00")), of("acknowledged slots", 255, 5));
    assert_eq!(decode_message(&hex("01 02 0501 00 00 64 80 00")), of("whether it is willing", 128, 7));
    assert!(decode_message(&hex("01 02 0501 00 00 64 00 00")).is_ok());
}

#[test]
fn numbers_have_one_form_and_sixty_four_bits() {
    for number in (0..64).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]).chain([u64::MAX]) {
        let mut bytes = vec![71];
        number.put(&mut bytes);
        assert_eq!(bytes.len() as u32, 1 + (64 - number.leading_zeros()).div_ceil(7).max(1));
        assert_eq!(decode_record(&bytes), Ok(Record::Delivered(Slot(number))));
        // The same with zero bits at its end.
        *bytes.last_mut().unwrap() |= 0x80;
        bytes.push(0);
        let bad = CodecError::BadNumber { what: "delivered slot", offset: 1 };
        assert_eq!(decode_record(&bytes), Err(bad), "{number}");
    }
    let bad = Err(CodecError::BadNumber { what: "delivered slot", offset: 1 });
    for too_large in
        ["ffffffffffffffffff02", "80808080808080808002", "ffffffffffffffffff7f", "ffffffffffffffffffff"]
    {
        assert_eq!(decode_record(&hex(&format!("47{too_large}"))), bad, "{too_large}");
    }
    assert_eq!(
        decode_record(&hex("47ffffffffffffffffffff01")),
        bad,
        "no byte after the tenth belongs to a number"
    );
}

#[test]
fn members_ascend_and_none_comes_twice() {
    let founding = |membership: &str| {
        decode_record(&hex(&format!("44 0501 64 {membership} 01 01 00 64 00"))).map(|_| ())
    };
    assert_eq!(founding("03 010203"), Ok(()));
    assert_eq!(founding("00"), Ok(()));
    let refused = Err(CodecError::NotAscending { what: "membership", offset: 4 });
    for wrong in ["02 0201", "02 0101", "03 010303", "03 020103"] {
        assert_eq!(founding(wrong), refused, "{wrong}");
    }
    let snapshot = |origins: &str| {
        decode_snapshot(&hex(&format!("64 0501 64 01 01 01 01 00 {origins} 01 01 0501"))).map(|_| ())
    };
    assert_eq!(snapshot("02 010107 020107"), Ok(()));
    let refused = Err(CodecError::NotAscending { what: "origins", offset: 9 });
    for wrong in ["02 020107 010107", "02 010107 010108", "03 010107 020107 020207"] {
        assert_eq!(snapshot(wrong), refused, "{wrong}");
    }
}

/// The decoder allocates no memory for items that the bytes cannot hold: fewer bytes follow than the shortest items
/// need.
#[test]
fn lists_longer_than_what_is_left_are_refused() {
    let is_refused = |text: &str, what| {
        let error = decode_message(&hex(text)).unwrap_err();
        assert!(matches!(error, CodecError::TooMany { what: found, .. } if found == what), "{text}: {error}");
    };
    let huge = "ffffffffffffffffff01";
    for (count, rest) in [(huge, ""), (huge, "010101010101"), ("07", "010101010101"), ("ffffff7f", "01")] {
        is_refused(&format!("02 0501 0501 {count} {rest}"), "frontiers");
        is_refused(&format!("01 02 0501 00 01 {count} {rest}"), "acknowledged slots");
        is_refused(&format!("05 0501 64 {count} {rest}"), "membership");
    }
    // Items with several fields.
    for (count, rest) in [(huge, ""), (huge, "010101010101"), ("02", "010101010101")] {
        is_refused(&format!("05 0501 64 01 01 01 01 00 64 {count} {rest}"), "entries");
        is_refused(&format!("0a {count} {rest}"), "proposals");
    }
    is_refused("0a 01 010101 04 616263", "body of a proposal");
    is_refused(&format!("0a 01 010101 {huge} 616263"), "body of a proposal");
    is_refused("05 0501 64 01 01 01 01 02 010203", "owners");
    is_refused("01 02 0501 00 00 64 00 02 0101 01 0101", "opinions");
}

/// Requirements of the encoding of lists.
#[test]
fn nothing_is_shorter_than_it_says() {
    fn require<T: Coded>(shortest: &T) {
        let mut out = Vec::new();
        shortest.put(&mut out);
        assert_eq!(out.len(), T::MIN_LEN_BYTES, "{}", std::any::type_name::<T>());
    }
    let epoch = EpochStart {
        ballot: Ballot::default(),
        slot: Slot(0),
        previous: Membership::default(),
        membership: Membership::default(),
        owners: Vec::new(),
    };
    let opinion = Opinion { member: MemberId(0), incarnation: Incarnation(0), verdict: Verdict::Bad };
    let progress = Progress {
        incarnation: Incarnation(0),
        epoch: Ballot::default(),
        turns: None,
        acked: None,
        delivered: Slot(0),
        is_willing: false,
        opinions: Vec::new(),
    };
    require(&0u64);
    require(&0usize);
    require(&false);
    require(&Arc::<[u8]>::from([]));
    require(&None::<u64>);
    require(&Vec::<u64>::new());
    require(&Slot(0));
    require(&Ballot::default());
    require(&Owner { member: MemberId(0), incarnation: Incarnation(0) });
    require(&Membership::default());
    require(&epoch);
    require(&proposal(1, b""));
    require(&(Slot(0), Entry::Proposal(proposal(1, b""))));
    require(&Turns { from: Slot(0), to: Slot(0), entries: Vec::new() });
    require(&Verdict::Bad);
    require(&opinion);
    require(&(MemberId(0), Incarnation(0), 0u64));
    require(&Origins::default());
    require(&Snapshot {
        next: Slot(0),
        epoch: Arc::new(epoch),
        origins: Origins::default(),
        as_of: Ballot::default(),
    });
    require(&progress);
    require(&Message::BarrierAsk { nonce: 0 });
    require(&Record::Delivered(Slot(0)));
}

#[test]
fn messages_that_no_member_sends_are_refused() {
    let not_sane = |message: Message| {
        let bytes = Value::Message(message).encode();
        assert_eq!(decode_message(&bytes), Err(CodecError::NotSane));
    };
    not_sane(Message::Fetch { from: Slot(LIMIT) });
    not_sane(Message::Refuse { promised: ballot(u64::MAX, 1) });
    let nobody = Arc::new(EpochStart::founding(Membership::default()));
    not_sane(Message::Adopt { start: nobody, from: Slot(0), entries: Vec::new() });
    let elsewhere = Entry::EpochStart(Arc::new(EpochStart::founding(members(&[1]))));
    not_sane(Message::Chosen {
        from: Slot(0),
        to: Slot(9),
        entries: vec![(Slot(1), elsewhere)],
        as_of: Ballot::default(),
    });
    assert!(decode_message(&Value::Message(Message::Fetch { from: Slot(LIMIT - 1) }).encode()).is_ok());
}
