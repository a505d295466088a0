use super::*;

/// Offsets in the encoded [`write_set`].
const FIRST_KEY: usize = 38;
const DATA: usize = FIRST_KEY + 3 * 9 + 8;

fn keys(list: &[(&[&[u8]], KeyKind)]) -> Keys {
    let mut keys = Keys::default();
    list.iter().for_each(|(parts, kind)| keys.add(parts, *kind));
    keys
}

fn write_set() -> WriteSet {
    WriteSet {
        transaction_id: 0x0102_0304_0506_0708,
        connection_id: 9,
        flags: WriteSet::PARALLEL_UNSAFE | WriteSet::START | WriteSet::END,
        last_seen: Seqno(77),
        keys: keys(&[(&[b"shop", b"orders", b"\x00\x80\x00\x00\x07"], KeyKind::Exclusive)]),
        data: b"rows".to_vec(),
    }
}

fn arrival() -> Arrival {
    Arrival {
        incarnation: 3,
        name: "alpha".into(),
        incoming_address: "10.0.0.1:3306".into(),
        listen_address: "10.0.0.1:4567".into(),
    }
}

fn one_of_each() -> Vec<Action> {
    vec![
        Action::WriteSet(write_set()),
        Action::WriteSet(WriteSet::default()),
        Action::Arrived(arrival()),
        Action::Arrived(Arrival::default()),
        Action::Departed(Departure { member: 5, incarnation: u64::MAX }),
        Action::Vote { seqno: Seqno(12), code: -1 },
        Action::Removed { member: 5 },
        Action::Alone { member: 7 },
    ]
}

fn random_keys(rng: &mut fastrand::Rng) -> Keys {
    let mut keys = Keys::default();
    for _ in 0..rng.usize(..8) {
        let parts: Vec<Vec<u8>> = (0..rng.usize(..4)).map(|_| vec![rng.u8(..3); rng.usize(..3)]).collect();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        keys.add(&parts, KeyKind::ALL[rng.usize(..4)]);
    }
    keys
}

fn random_action(rng: &mut fastrand::Rng) -> Action {
    let text = |rng: &mut fastrand::Rng, most| (0..rng.usize(..most)).map(|_| rng.alphanumeric()).collect();
    match rng.u8(..8) {
        0 => Action::Arrived(Arrival {
            incarnation: rng.u64(..),
            name: text(rng, 32),
            incoming_address: text(rng, 256),
            listen_address: text(rng, 256),
        }),
        1 => Action::Departed(Departure { member: rng.u64(..), incarnation: rng.u64(..) }),
        3 => Action::Removed { member: rng.u64(..) },
        4 => Action::Alone { member: rng.u64(..) },
        2 => Action::Vote { seqno: Seqno(rng.i64(..)), code: rng.i64(..) },
        _ => Action::WriteSet(WriteSet {
            transaction_id: rng.u64(..),
            connection_id: rng.u64(..),
            flags: rng.u32(..),
            last_seen: Seqno(rng.i64(..)),
            keys: random_keys(rng),
            data: (0..rng.usize(..50)).map(|_| rng.u8(..)).collect(),
        }),
    }
}

#[test]
fn what_is_encoded_decodes_to_the_same() {
    let mut rng = fastrand::Rng::with_seed(1);
    let random: Vec<_> = (0..2000).map(|_| random_action(&mut rng)).collect();
    for action in one_of_each().into_iter().chain(random) {
        let bytes = action.encode();
        assert_eq!(Action::decode(&bytes), Ok(action.clone()), "{bytes:?}");
        if let Action::WriteSet(write_set) = &action {
            assert_eq!(write_set.encoded_len_bytes(), bytes.len());
        }
    }
}

/// The format and the hashes are a protocol between members: this test detects changes.
#[test]
fn the_bytes_are_those_of_the_table() {
    let bytes = Action::WriteSet(write_set()).encode();
    let words = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
    let key = |hash: u64, kind: u8| [&words(&[hash])[..], &[kind]].concat();
    let expected = [
        vec![1, 1],
        words(&[0x0102_0304_0506_0708, 9]),
        vec![0x49, 0, 0, 0],
        words(&[77, 3]),
        key(0x7869_adaf_f221_e62a, 0),
        key(0xbeab_0698_b982_1f8b, 3),
        key(0xc7c9_45a2_5d05_5d32, 0),
        words(&[4]),
        b"rows".to_vec(),
    ];
    assert_eq!(bytes, expected.concat());
    let arrival = Action::Arrived(arrival()).encode();
    let expected = b"\x01\x02\x03\0\0\0\0\0\0\0\x05alpha\x0d10.0.0.1:3306\x0d10.0.0.1:4567";
    assert_eq!(arrival, expected);
    let departure = Action::Departed(Departure { member: 5, incarnation: 2 }).encode();
    assert_eq!(departure, b"\x01\x03\x05\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0");
    let vote = Action::Vote { seqno: Seqno(12), code: -2 }.encode();
    assert_eq!(vote, b"\x01\x04\x0c\0\0\0\0\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff");
    assert_eq!(Action::Removed { member: 5 }.encode(), b"\x01\x05\x05\0\0\0\0\0\0\0");
    assert_eq!(Action::Alone { member: 5 }.encode(), b"\x01\x06\x05\0\0\0\0\0\0\0");
}

#[test]
fn where_parts_end_and_how_many_there_are_makes_another_hash() {
    let lists: [&[&[u8]]; 8] = [
        &[b"ab", b"c"],
        &[b"a", b"bc"],
        &[b"abc"],
        &[b"abc", b""],
        &[b"", b"abc"],
        &[b"abc", b"", b""],
        &[b"a", b"b", b"c"],
        &[b""],
    ];
    let mut hashes: Vec<_> = lists.iter().map(|parts| KeyHash::of(parts)).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), lists.len());
    // Bytes that look like a length and a part.
    let looks_like_two = [&b"a"[..], &2u64.to_le_bytes(), b"bc"].concat();
    assert_ne!(KeyHash::of(&[&looks_like_two]), KeyHash::of(&[b"a", b"bc"]));
}

#[test]
fn a_key_brings_what_contains_it_as_shared() {
    let parts: [&[u8]; 3] = [b"shop", b"orders", b"1"];
    let keys = keys(&[(&parts, KeyKind::Update)]);
    let mut expected: Vec<_> = (1..=3)
        .map(|count| {
            (KeyHash::of(&parts[..count]), if count == 3 { KeyKind::Update } else { KeyKind::Shared })
        })
        .collect();
    expected.sort_unstable();
    assert_eq!(keys.iter().collect::<Vec<_>>(), expected);
    assert_eq!(keys.len(), 3);
}

#[test]
fn each_key_has_the_strongest_of_its_kinds_whatever_came_first() {
    let table: [&[u8]; 2] = [b"shop", b"orders"];
    let row: [&[u8]; 3] = [b"shop", b"orders", b""];
    for first in KeyKind::ALL {
        for second in KeyKind::ALL {
            let keys = keys(&[(&table, first), (&row, KeyKind::Exclusive), (&table, second)]);
            let found = keys.iter().find(|(hash, _)| *hash == KeyHash::of(&table));
            assert_eq!(found, Some((KeyHash::of(&table), first.max(second))));
            assert_eq!(keys.len(), 3);
        }
    }
}

#[test]
fn a_key_without_parts_is_none_and_clearing_leaves_none() {
    let mut keys = keys(&[(&[], KeyKind::Exclusive)]);
    assert!(keys.is_empty());
    keys.add(&[b"x"], KeyKind::Shared);
    assert!(!keys.is_empty());
    keys.clear();
    assert_eq!(keys, Keys::default());
}

#[test]
fn the_order_in_which_keys_were_added_does_not_show() {
    let names: Vec<[u8; 1]> = (0..50).map(|number| [number]).collect();
    let add = |numbers: &mut dyn Iterator<Item = usize>| {
        let mut keys = Keys::default();
        numbers.for_each(|number| keys.add(&[b"t", &names[number]], KeyKind::Exclusive));
        Action::WriteSet(WriteSet { keys, ..WriteSet::default() }).encode()
    };
    assert_eq!(add(&mut (0..50)), add(&mut (0..50).rev()));
}

#[test]
fn kinds_have_the_numbers_of_the_provider_interface() {
    for (number, kind) in (0u8..).zip(KeyKind::ALL) {
        assert_eq!((kind as u8, KeyKind::from_number(number)), (number, Some(kind)));
    }
    assert_eq!(KeyKind::from_number(4), None);
}

#[test]
fn everything_cut_short_is_refused_and_says_where_it_ends() {
    for action in one_of_each() {
        let bytes = action.encode();
        for len in 0..bytes.len() {
            let Err(ActionError::Truncated(error)) = Action::decode(&bytes[..len]) else {
                panic!("{len} bytes of {bytes:?}");
            };
            assert!(error.at_byte <= len, "{error}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert_eq!(
            Action::decode(&longer),
            Err(ActionError::Trailing { len_bytes: 1, at_byte: bytes.len() })
        );
    }
}

#[test]
fn unknown_versions_tags_and_kinds_are_refused() {
    let mut bytes = Action::WriteSet(write_set()).encode();
    let with = |bytes: &mut Vec<u8>, at: usize, byte: u8| {
        let before = std::mem::replace(&mut bytes[at], byte);
        let result = Action::decode(bytes);
        bytes[at] = before;
        result
    };
    assert_eq!(with(&mut bytes, 0, 2), Err(ActionError::UnknownVersion { version: 2 }));
    assert_eq!(with(&mut bytes, 0, 0), Err(ActionError::UnknownVersion { version: 0 }));
    assert_eq!(with(&mut bytes, 0, 3), Err(ActionError::UnknownVersion { version: 3 }));
    // The version marks a part of a transaction, also for libraries without support for parts.
    let flags_at = 2 + 8 + 8;
    let flags = |flags: u32| Action::WriteSet(WriteSet { flags, ..write_set() }).encode();
    assert_eq!(
        (flags(WriteSet::START)[0], flags(WriteSet::ROLLBACK)[0], flags(WriteSet::ISOLATION)[0]),
        (2, 2, 1)
    );
    assert_eq!(
        with(&mut bytes, flags_at, WriteSet::START as u8),
        Err(ActionError::UnknownVersion { version: 1 })
    );
    for tag in (7..=255).chain([0]) {
        assert_eq!(with(&mut bytes, 1, tag), Err(ActionError::UnknownTag { tag, at_byte: 1 }));
    }
    // The kind of the second key.
    let at_byte = FIRST_KEY + 9 + 8;
    assert_eq!(with(&mut bytes, at_byte, 4), Err(ActionError::UnknownKind { number: 4, at_byte }));
}

#[test]
fn keys_that_do_not_ascend_are_refused() {
    let bytes = Action::WriteSet(write_set()).encode();
    let (first, second) = (FIRST_KEY..FIRST_KEY + 8, FIRST_KEY + 9..FIRST_KEY + 17);
    let at_byte = second.start;
    let mut doubled = bytes.clone();
    doubled.copy_within(first.clone(), second.start);
    assert_eq!(Action::decode(&doubled), Err(ActionError::KeysOutOfOrder { at_byte }));
    let mut exchanged = bytes.clone();
    exchanged[second.clone()].copy_from_slice(&bytes[first.clone()]);
    exchanged[first].copy_from_slice(&bytes[second]);
    assert_eq!(Action::decode(&exchanged), Err(ActionError::KeysOutOfOrder { at_byte }));
}

#[test]
fn what_is_announced_and_not_there_is_not_allocated() {
    let bytes = Action::WriteSet(write_set()).encode();
    for count in [u64::MAX, u64::MAX / 9, 1 << 40, 7] {
        let mut many_keys = bytes.clone();
        many_keys[FIRST_KEY - 8..FIRST_KEY].copy_from_slice(&count.to_le_bytes());
        let error = Truncated { what: "keys", at_byte: FIRST_KEY };
        assert_eq!(Action::decode(&many_keys), Err(ActionError::Truncated(error)));
        let mut much_data = bytes.clone();
        much_data[DATA - 8..DATA].copy_from_slice(&count.to_le_bytes());
        let error = Truncated { what: "data", at_byte: DATA };
        assert_eq!(Action::decode(&much_data), Err(ActionError::Truncated(error)));
    }
}

#[test]
fn texts_that_the_interface_has_no_room_for_are_refused() {
    let long_name = [&b"\x01\x02\0\0\0\0\0\0\0\0\x20"[..], &[b'n'; 32], &[0, 0]].concat();
    let error = ActionError::TooLong { what: "name", len_bytes: 32, limit_bytes: 31, at_byte: 10 };
    assert_eq!(Action::decode(&long_name), Err(error));
    assert_eq!(error.to_string(), "name at byte 10 has 32 bytes; the limit is 31");
    let no_text = b"\x01\x02\0\0\0\0\0\0\0\0\x03ab\xff\0\0";
    assert_eq!(Action::decode(no_text), Err(ActionError::NotText { what: "name", at_byte: 13 }));
}

#[test]
fn texts_that_are_too_long_are_cut_between_characters() {
    let arrival = Arrival {
        incarnation: 1,
        name: "é".repeat(20),
        incoming_address: "a".repeat(300),
        listen_address: "b".repeat(255),
    };
    let Ok(Action::Arrived(decoded)) = Action::decode(&Action::Arrived(arrival.clone()).encode()) else {
        panic!("it does not decode");
    };
    assert_eq!(decoded.name, "é".repeat(15));
    assert_eq!(decoded.incoming_address, "a".repeat(255));
    assert_eq!(decoded.listen_address, arrival.listen_address);
}

#[test]
fn whatever_decodes_has_one_form() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut decoded = 0;
    for _ in 0..20_000 {
        let mut bytes = random_action(&mut rng).encode();
        for _ in 0..rng.usize(..3) {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        if let Ok(action) = Action::decode(&bytes) {
            assert_eq!(action.encode(), bytes);
            decoded += 1;
        }
    }
    assert!(decoded > 5000, "{decoded}");
}

/// The kinds that the last build without negotiation (commit 57d19713) decodes: version, tag. An action of another kind
/// needs a feature, and must not be ordered before all members have it (see `kinds.rs`).
const OF_LEGACY_BUILDS: [(u8, u8); 7] = [(1, 1), (2, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6)];

#[test]
fn every_later_kind_of_action_has_a_feature() {
    for kind in &kinds::KINDS {
        let is_legacy = OF_LEGACY_BUILDS.contains(&(kind.version, kind.tag));
        assert_eq!(kind.feature.is_empty(), is_legacy, "version {}, tag {}", kind.version, kind.tag);
        assert!(crate::frame::ANNOUNCED.known().contains(kind.feature), "it is not announced");
    }
    assert!(OF_LEGACY_BUILDS.iter().all(|(version, tag)| kinds::is_known(*version, *tag)));
}

#[test]
fn decoder_and_encoder_know_only_the_listed_kinds() {
    for action in one_of_each() {
        let bytes = action.encode();
        assert!(kinds::is_known(bytes[0], bytes[1]), "{action:?}");
    }
    for (version, tag) in (0..=u8::MAX).flat_map(|version| (0..=u8::MAX).map(move |tag| (version, tag))) {
        let bodies = one_of_each().into_iter().map(|action| action.encode().split_off(2));
        let decodes =
            bodies.into_iter().any(|body| Action::decode(&[&[version, tag], &body[..]].concat()).is_ok());
        assert_eq!(decodes, kinds::is_known(version, tag), "version {version}, tag {tag}");
    }
}
