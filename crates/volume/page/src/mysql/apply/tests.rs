use super::*;
use crate::layout::{
    PAGE_DIR, PAGE_DIR_SLOT_BYTES, PAGE_FREE, PAGE_GARBAGE, PAGE_HEAP_TOP, PAGE_LAST_INSERT, PAGE_LEVEL,
    PAGE_N_DIR_SLOTS, PAGE_N_RECS, get_u16, put,
};
use crate::mysql::chain::{Applied, apply_changes};
use crate::{Change, layout};
use redoubt_redo::Lsn;
use redoubt_redo::mysql::varint::{encode_c32, encode_c64};

const SPACE: u8 = 7;
const PAGE_NO: u8 = 4;
const ID: PageId = PageId::new(SPACE as u32, PAGE_NO as u32);
const FLAGS: Flags = Flags(0xc0);

/// The kinds of index that tests have: all have an INT, DB_TRX_ID, DB_ROLL_PTR and two nullable strings; and what
/// instant changes gave and took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Compact,
    Redundant,
    /// Added in version 1, and the first string dropped in version 2.
    Versioned,
    RedundantVersioned,
    /// The second string was added instantly by an old server.
    OldInstant,
}

const KINDS: [Kind; 5] =
    [Kind::Compact, Kind::Redundant, Kind::Versioned, Kind::RedundantVersioned, Kind::OldInstant];

impl Kind {
    fn is_compact(self) -> bool {
        !matches!(self, Self::Redundant | Self::RedundantVersioned)
    }

    fn info(self) -> Vec<u8> {
        let fields = [0x80, 4, 0x80, 6, 0x80, 7, 0x7f, 0xff, 0, 0];
        let versions = [0, 2, 0, 3, 0x40, 3, 2, 0, 5, 0x80, 5, 1];
        match self {
            Self::Compact => [&[1, 1, 0, 5, 0, 1][..], &fields].concat(),
            Self::Redundant => vec![1, 0],
            Self::Versioned => [&[1, 3, 0, 6, 0, 1][..], &fields, &[0, 4], &versions].concat(),
            Self::RedundantVersioned => [&[1, 2, 0, 6][..], &versions].concat(),
            Self::OldInstant => [&[1, 5, 0, 5, 0, 4, 0, 1][..], &fields].concat(),
        }
    }

    /// A record of this kind, and where its origin is. `age` chooses among the layouts that the index may have.
    fn record(self, key: u32, a: Option<&[u8]>, b: Option<&[u8]>, age: u8) -> (Vec<u8>, usize) {
        let system = [&key.to_be_bytes()[..], &[0, 0, 0, 0, 0, 9], &[8; 7]].concat();
        let mut fields: Vec<Option<&[u8]>> =
            vec![Some(&system[..4]), Some(&system[4..10]), Some(&system[10..])];
        let extra = 0x5a5a_5a5au32.to_be_bytes();
        let (mut info, mut below) = (0, Vec::new());
        let version = match self {
            Self::Versioned | Self::RedundantVersioned => age % 3,
            _ => 0,
        };
        if version < 2 {
            fields.push(a);
        }
        match self {
            Self::OldInstant if age.is_multiple_of(2) => {}
            Self::OldInstant => {
                (info, below) = (0x80, vec![5]);
                fields.push(b);
            }
            _ => fields.push(b),
        }
        if version > 0 {
            (info, below) = (0x40, vec![version]);
            fields.push(Some(&extra));
        }
        let data: Vec<u8> = fields.iter().flat_map(|field| field.unwrap_or_default()).copied().collect();
        if !self.is_compact() {
            return Self::redundant(info, &below, &fields, &data);
        }
        let n_fields = fields.len();
        let has_a = version < 2;
        let strings = &fields[3..n_fields - usize::from(version > 0)];
        let nulls = strings
            .iter()
            .enumerate()
            .fold(0, |nulls, (bit, field)| nulls | u8::from(field.is_none()) << bit);
        below.push(nulls);
        for (number, field) in strings.iter().enumerate() {
            let Some(field) = field else { continue };
            if number == 0 && has_a && field.len() > 127 {
                below.extend([0x80 | (field.len() >> 8) as u8, field.len() as u8]);
            } else {
                below.push(field.len() as u8);
            }
        }
        let mut record: Vec<u8> = below.into_iter().rev().collect();
        record.extend([info, 0, 0, 0, 0]);
        let origin = record.len();
        record.extend(data);
        (record, origin)
    }

    fn redundant(info: u8, below: &[u8], fields: &[Option<&[u8]>], data: &[u8]) -> (Vec<u8>, usize) {
        let is_short = data.len() < 128;
        let (mut ends, mut end) = (Vec::new(), 0usize);
        for field in fields {
            end += field.map_or(0, <[u8]>::len);
            let null = field.is_none();
            if is_short {
                ends.push(end as u8 | if null { 0x80 } else { 0 });
            } else {
                ends.extend([end as u8, (end >> 8) as u8 | if null { 0x80 } else { 0 }]);
            }
        }
        let mut record: Vec<u8> = ends.into_iter().rev().collect();
        record.extend(below);
        let n_fields = (fields.len() as u16) << 1 | u16::from(is_short);
        record.extend([info, 0, (n_fields >> 8) as u8, n_fields as u8, 0, 0]);
        let origin = record.len();
        record.extend(data);
        (record, origin)
    }
}

fn head(kind: u8) -> Vec<u8> {
    vec![kind, SPACE, PAGE_NO]
}

/// A REC_INSERT that has nothing of its predecessor.
fn insert(kind: Kind, after: u16, record: &[u8], origin: usize) -> Vec<u8> {
    let info_at = origin - if kind.is_compact() { 5 } else { 6 };
    let mut bytes = [head(67), kind.info(), after.to_be_bytes().to_vec()].concat();
    encode_c32(record.len() as u32 * 2 + 1, &mut bytes);
    bytes.push(record[info_at]);
    encode_c32(origin as u32, &mut bytes);
    encode_c32(0, &mut bytes);
    bytes.extend_from_slice(record);
    bytes
}

fn at_offset(kind: u8, index: Kind, offset: u16) -> Vec<u8> {
    [head(kind), index.info(), offset.to_be_bytes().to_vec()].concat()
}

fn create(kind: Kind) -> Vec<u8> {
    [head(59), head(if kind.is_compact() { 37 } else { 19 })].concat()
}

fn apply(page: &mut [u8], run: &[u8], scratch: &mut Scratch) {
    let flags = Flags((page.len().ilog2() - 9) << 6);
    let outcome = apply_run(page, ID, flags, run, scratch).unwrap();
    assert!(outcome.modified && outcome.needs_image.is_none());
}

/// Origins of the user records in the order of the list, after checking the directory and the header against them.
fn records(page: &[u8], is_compact: bool) -> Vec<usize> {
    let field = |offset: usize| usize::from(get_u16(page, offset).unwrap());
    let (infimum, supremum, header) = if is_compact { (99, 112, 5) } else { (101, 116, 6) };
    let next = |record: usize| {
        let link = field(record - 2);
        if is_compact { (record + link) & 0xffff } else { link }
    };
    let mut list = vec![infimum];
    while *list.last().unwrap() != supremum {
        list.push(next(*list.last().unwrap()));
        assert!(list.len() < page.len());
    }
    let n_slots = field(PAGE_N_DIR_SLOTS);
    let slots: Vec<_> =
        (0..n_slots).map(|slot| field(page.len() - PAGE_DIR - PAGE_DIR_SLOT_BYTES * (slot + 1))).collect();
    let mut owned = 0;
    let mut owners = Vec::new();
    for record in &list {
        owned += 1;
        let n_owned = usize::from(page[record - header] & 15);
        if n_owned != 0 {
            assert_eq!(n_owned, owned, "record {record}");
            assert!((1..=8).contains(&n_owned));
            owners.push(*record);
            owned = 0;
        }
    }
    assert_eq!(owners, slots);
    let mut free = field(PAGE_FREE);
    let mut n_free = 0;
    while free != 0 {
        n_free += 1;
        assert!(n_free < page.len());
        let link = field(free - 2);
        free = if link == 0 { 0 } else { next(free) };
    }
    assert!((field(PAGE_N_HEAP) & 0x7fff) >= list.len());
    assert!(field(PAGE_GARBAGE) < field(PAGE_HEAP_TOP));
    list.retain(|record| ![infimum, supremum].contains(record));
    assert_eq!(list.len(), field(PAGE_N_RECS));
    list
}

fn key_at(page: &[u8], record: usize) -> u32 {
    layout::get_u32(page, record).unwrap()
}

fn text(random: &mut fastrand::Rng, max: usize) -> Option<Vec<u8>> {
    (random.u8(..5) > 0).then(|| (0..random.usize(..max)).map(|_| random.u8(..)).collect())
}

/// Inserts a new key at its place; answers whether there was room.
fn insert_key(page: &mut [u8], kind: Kind, key: u32, random: &mut fastrand::Rng, scratch: &mut Scratch) {
    let (a, b) = (text(random, 200), text(random, 30));
    let (record, origin) = kind.record(key, a.as_deref(), b.as_deref(), random.u8(..));
    let list = records(page, kind.is_compact());
    let infimum = if kind.is_compact() { 99 } else { 101 };
    let after = list.iter().copied().rfind(|record| key_at(page, *record) < key).unwrap_or(infimum);
    apply(page, &insert(kind, after as u16, &record, origin), scratch);
    let now = records(page, kind.is_compact());
    assert_eq!(now.len(), list.len() + 1);
    let place = now.iter().copied().find(|record| key_at(page, *record) == key).unwrap();
    assert_eq!(page[place..][..record.len() - origin], record[origin..], "{kind:?}");
}

/// A page with records, made by random inserts and deletes.
fn page_of(kind: Kind, size: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut scratch = Scratch::default();
    let mut page = vec![0xaa; size];
    apply(&mut page, &create(kind), &mut scratch);
    for step in 0..300u32 {
        let list = records(&page, kind.is_compact());
        let room = page.len() - 400 - list.len() * 2;
        if random.u8(..3) > 0 && usize::from(get_u16(&page, PAGE_HEAP_TOP).unwrap()) < room {
            let key = random.u32(..0x00ff_0000) << 8 | step & 0xff;
            insert_key(&mut page, kind, key, &mut random, &mut scratch);
        } else if list.len() > 12 && random.u8(..8) > 0 || list.len() > 1 && random.u8(..3) == 0 {
            let victim = list[random.usize(..list.len())];
            apply(&mut page, &at_offset(69, kind, victim as u16), &mut scratch);
            assert_eq!(records(&page, kind.is_compact()).len(), list.len() - 1);
        } else {
            apply(&mut page, &[head(72), kind.info()].concat(), &mut scratch);
            assert_eq!(records(&page, kind.is_compact()).len(), list.len());
        }
    }
    page
}

#[test]
fn pages_stay_sound_through_inserts_and_deletes() {
    for kind in KINDS {
        for (seed, size) in [(1, 4096), (2, 16384), (3, 65536)] {
            assert!(records(&page_of(kind, size, seed), kind.is_compact()).len() > 5, "{kind:?}");
        }
    }
}

#[test]
fn lists_are_cut_at_both_ends_and_pages_reorganized() {
    for kind in KINDS {
        let page = page_of(kind, 16384, 7);
        let list = records(&page, kind.is_compact());
        let keys: Vec<_> = list.iter().map(|record| key_at(&page, *record)).collect();
        let mut scratch = Scratch::default();
        for cut in 1..list.len() {
            let mut end = page.clone();
            apply(&mut end, &at_offset(75, kind, list[cut] as u16), &mut scratch);
            assert_eq!(records(&end, kind.is_compact()), list[..cut], "{kind:?}");
            let mut start = page.clone();
            apply(&mut start, &at_offset(76, kind, list[cut] as u16), &mut scratch);
            assert_eq!(records(&start, kind.is_compact()), list[cut..], "{kind:?}");
        }
        let mut anew = page.clone();
        apply(&mut anew, &[head(72), kind.info()].concat(), &mut scratch);
        let now: Vec<_> =
            records(&anew, kind.is_compact()).iter().map(|record| key_at(&anew, *record)).collect();
        assert_eq!(now, keys);
        assert_eq!((get_u16(&anew, PAGE_FREE), get_u16(&anew, PAGE_GARBAGE)), (Some(0), Some(0)));
        let data = |page: &[u8]| get_u16(page, PAGE_HEAP_TOP).unwrap() - get_u16(page, PAGE_GARBAGE).unwrap();
        assert!(data(&anew) <= data(&page));
        // Records are the same wherever they are.
        let again = anew.clone();
        apply(&mut anew, &[head(72), kind.info()].concat(), &mut scratch);
        assert_eq!(anew, again);
    }
}

#[test]
fn only_a_leaf_of_a_secondary_index_keeps_its_newest_transaction_when_reorganized() {
    // All fields unique: a secondary index.
    let index = [1, 1, 0, 2, 0, 2, 0x80, 4, 0x80, 4];
    for (level, kept) in [(0u16, 0x1234u64), (1, 0)] {
        let mut page = vec![0; 4096];
        let mut scratch = Scratch::default();
        apply(&mut page, &create(Kind::Compact), &mut scratch);
        put(&mut page, 56, &0x1234u64.to_be_bytes());
        put(&mut page, PAGE_LEVEL, &level.to_be_bytes());
        apply(&mut page, &[&head(72)[..], &index].concat(), &mut scratch);
        assert_eq!(layout::get_u64(&page, 56), Some(kept));
    }
    let mut page = page_of(Kind::Compact, 4096, 3);
    put(&mut page, 56, &0x1234u64.to_be_bytes());
    apply(&mut page, &[head(72), Kind::Compact.info()].concat(), &mut Scratch::default());
    assert_eq!(layout::get_u64(&page, 56), Some(0));
}

#[test]
fn a_difference_to_the_predecessor_is_resolved() {
    for kind in KINDS {
        let mut scratch = Scratch::default();
        let mut page = vec![0; 16384];
        apply(&mut page, &create(kind), &mut scratch);
        let infimum = if kind.is_compact() { 99 } else { 101 };
        let (first, origin) = kind.record(1, Some(b"abcdef"), Some(b"xyz"), 1);
        apply(&mut page, &insert(kind, infimum, &first, origin), &mut scratch);
        let at = records(&page, kind.is_compact())[0];
        // The same but for the last two bytes.
        let tail = *b"!?";
        let mut same = [head(67), kind.info(), (at as u16).to_be_bytes().to_vec()].concat();
        encode_c32(tail.len() as u32 * 2, &mut same);
        same.extend(tail);
        apply(&mut page, &same, &mut scratch);
        let second = records(&page, kind.is_compact())[1];
        let len = first.len() - origin;
        assert_eq!(page[second..][..len - 2], page[at..][..len - 2]);
        assert_eq!(page[second..][len - 2..len], tail);
        // A copied list is the same records once more, each with its predecessor's beginning.
        let mut copied = vec![0; 16384];
        apply(&mut copied, &create(kind), &mut scratch);
        let mut short = Vec::new();
        encode_c32(first.len() as u32 * 2 + 1, &mut short);
        short.push(first[origin - if kind.is_compact() { 5 } else { 6 }]);
        encode_c32(origin as u32, &mut short);
        encode_c32(0, &mut short);
        short.extend_from_slice(&first);
        for number in 0..30u8 {
            encode_c32(4, &mut short);
            short.extend([b'n', number]);
        }
        let run = [head(71), kind.info(), (short.len() as u32).to_be_bytes().to_vec(), short].concat();
        apply(&mut copied, &run, &mut scratch);
        assert_eq!(records(&copied, kind.is_compact()).len(), 31);
        assert_eq!(get_u16(&copied, PAGE_LAST_INSERT), Some(0));
        assert_eq!(copied[50..54], [0, 5, 0, 0]);
    }
}

fn update(kind: Kind, offset: usize, system: bool, fields: &[(u32, Option<&[u8]>)]) -> Vec<u8> {
    let mut bytes = [head(70), kind.info()].concat();
    bytes.push(if system { 0 } else { 4 });
    encode_c32(1, &mut bytes);
    bytes.extend([0xf1, 2, 3, 4, 5, 6, 7]);
    encode_c64(0xabcdef, &mut bytes);
    bytes.extend((offset as u16).to_be_bytes());
    bytes.push(0x20);
    encode_c32(fields.len() as u32, &mut bytes);
    for (field, data) in fields {
        encode_c32(*field, &mut bytes);
        encode_c32(data.map_or(u32::MAX, |data| data.len() as u32), &mut bytes);
        bytes.extend(data.unwrap_or_default());
    }
    bytes
}

#[test]
fn fields_are_overwritten_where_they_are() {
    for kind in KINDS {
        for age in 0..3 {
            let mut scratch = Scratch::default();
            let mut page = vec![0; 16384];
            apply(&mut page, &create(kind), &mut scratch);
            let infimum = if kind.is_compact() { 99 } else { 101 };
            let (record, origin) = kind.record(1, Some(b"abcdef"), Some(b"xyz"), age);
            apply(&mut page, &insert(kind, infimum, &record, origin), &mut scratch);
            let at = records(&page, kind.is_compact())[0];
            let info_at = at - if kind.is_compact() { 5 } else { 6 };
            let layout_bits = page[info_at] & 0xc0;
            let has_b = kind != Kind::OldInstant || age % 2 == 1;
            let new: &[(u32, Option<&[u8]>)] =
                if has_b { &[(4, Some(b"XYZ"))] } else { &[(3, Some(b"ABCDEF"))] };
            apply(&mut page, &update(kind, at, true, new), &mut scratch);
            assert_eq!(page[info_at] & 0xf0, layout_bits | 0x20, "{kind:?} {age}");
            assert_eq!(page[at + 4..at + 17], [0, 0, 0, 0xab, 0xcd, 0xef, 0xf1, 2, 3, 4, 5, 6, 7]);
            let expected: &[u8] = if has_b { b"XYZ" } else { b"ABCDEF" };
            assert!(page[at + 17..at + 40].windows(expected.len()).any(|window| window == expected));
            // Another length does not fit.
            let run = update(kind, at, false, &[(4, Some(b"longer"))]);
            let flags = Flags(0);
            assert!(apply_run(&mut page.clone(), ID, flags, &run, &mut scratch).is_err());
        }
    }
}

#[test]
fn a_null_comes_and_goes_in_a_redundant_record() {
    let kind = Kind::Redundant;
    let mut scratch = Scratch::default();
    let mut page = vec![0; 16384];
    apply(&mut page, &create(kind), &mut scratch);
    let (record, origin) = kind.record(1, Some(b"abcdef"), Some(b"xyz"), 0);
    apply(&mut page, &insert(kind, 101, &record, origin), &mut scratch);
    let at = records(&page, false)[0];
    let before = page.clone();
    apply(&mut page, &update(kind, at, false, &[(3, None)]), &mut scratch);
    assert_eq!(page[at + 17..at + 26], *b"\0\0\0\0\0\0xyz");
    assert_eq!(page[at - 10] & 0x80, 0x80);
    apply(&mut page, &update(kind, at, false, &[(3, None)]), &mut scratch);
    apply(&mut page, &update(kind, at, false, &[(3, Some(b"abcdef"))]), &mut scratch);
    page[at - 6] &= !0x20;
    assert_eq!(page, before);
    // A compact record has no place for it.
    let mut compact = page_of(Kind::Compact, 4096, 5);
    let at = records(&compact, true)[0];
    let run = update(Kind::Compact, at, false, &[(0, None)]);
    let error = apply_run(&mut compact, ID, FLAGS, &run, &mut scratch).unwrap_err();
    assert!(error.to_string().contains("REC_UPDATE_IN_PLACE to page 7:4"), "{error}");
}

#[test]
fn marks_are_set_and_cleared() {
    for kind in KINDS {
        let mut page = page_of(kind, 4096, 9);
        let at = records(&page, kind.is_compact())[0];
        let info_at = at - if kind.is_compact() { 5 } else { 6 };
        let before = page[info_at];
        let mut scratch = Scratch::default();
        let sec = |value: u8| [&head(11)[..], &[value], &(at as u16).to_be_bytes()].concat();
        apply(&mut page, &sec(1), &mut scratch);
        assert_eq!(page[info_at], before | 0x20);
        apply(&mut page, &sec(0), &mut scratch);
        assert_eq!(page[info_at], before);
        let smallest = [head(if kind.is_compact() { 36 } else { 26 }), (at as u16).to_be_bytes().to_vec()];
        apply(&mut page, &smallest.concat(), &mut scratch);
        assert_eq!(page[info_at], before | 0x10);
        let mut clustered = [head(68), kind.info(), vec![0, 1, 1, 0xf1, 2, 3, 4, 5, 6, 7]].concat();
        encode_c64(0x0102_0304_0506, &mut clustered);
        clustered.extend((at as u16).to_be_bytes());
        apply(&mut page, &clustered, &mut scratch);
        assert_eq!(page[info_at], before | 0x30);
        assert_eq!(page[at + 4..at + 17], [1, 2, 3, 4, 5, 6, 0xf1, 2, 3, 4, 5, 6, 7]);
    }
}

#[test]
fn undo_pages_are_made_and_filled() {
    let mut scratch = Scratch::default();
    let mut page = vec![0xaa; 16384];
    apply(&mut page, &[head(59), head(22), vec![1]].concat(), &mut scratch);
    assert_eq!(page[24..26], [0, 2]);
    assert_eq!(page[38..44], [0, 1, 0, 56, 0, 56]);
    put(&mut page, 42, &86u16.to_be_bytes());
    let mut header = head(25);
    encode_c64(0x0102_0304_0506, &mut header);
    apply(&mut page, &header, &mut scratch);
    assert_eq!(page[38..44], [0, 1, 0, 132, 0, 132]);
    assert_eq!(page[56..60], [0, 1, 0, 86]);
    assert_eq!(page[86..94], 0x0102_0304_0506u64.to_be_bytes());
    assert_eq!(page[102..108], [0, 1, 0, 132, 0, 0]);
    apply(&mut page, &[head(20), vec![0, 3, 9, 8, 7]].concat(), &mut scratch);
    assert_eq!(page[132..139], [0, 139, 9, 8, 7, 0, 132]);
    apply(&mut page, &header, &mut scratch);
    assert_eq!(get_u16(&page, 86 + 30), Some(139));
    assert_eq!(get_u16(&page, 139 + 32), Some(86));
    apply(&mut page, &head(21), &mut scratch);
    assert!(page[185..16376].iter().all(|byte| *byte == 0xff));
    let mut reuse = head(24);
    encode_c64(77, &mut reuse);
    apply(&mut page, &reuse, &mut scratch);
    assert_eq!(page[38..44], [0, 1, 0, 132, 0, 132]);
    assert_eq!(page[86..94], 77u64.to_be_bytes());
    for (offset, value) in [(42, 55u16), (42, 16377), (24, 17855)] {
        let mut wrong = page.clone();
        put(&mut wrong, offset, &value.to_be_bytes());
        let run = [head(20), vec![0, 3, 9, 8, 7]].concat();
        assert!(apply_run(&mut wrong, ID, Flags(0), &run, &mut scratch).is_err(), "{offset} {value}");
    }
}

#[test]
fn other_pages_are_made() {
    let mut scratch = Scratch::default();
    let mut page = vec![0xaa; 4096];
    apply(&mut page, &head(27), &mut scratch);
    assert_eq!(page[24..26], [0, 5]);
    assert!(page[94..94 + 2048].iter().all(|byte| *byte == 0));
    assert_eq!(page[94 + 2048], 0xaa);
    apply(&mut page, &head(59), &mut scratch);
    assert_eq!((page[7], page[37]), (PAGE_NO, SPACE));
    assert_eq!(page.iter().filter(|byte| **byte != 0).count(), 2);
    for (kind, page_type, is_compact) in
        [(57, 17854, false), (58, 17854, true), (63, 17853, false), (64, 17853, true)]
    {
        apply(&mut page, &head(kind), &mut scratch);
        assert_eq!(get_u16(&page, 24), Some(page_type));
        assert!(records(&page, is_compact).is_empty());
    }
    let numbers = [
        vec![1, SPACE, PAGE_NO, 0, 60, 0x80, 0xff],
        vec![2, SPACE, PAGE_NO, 0, 61, 0xc0, 0xab, 0xcd],
        vec![8, SPACE, PAGE_NO, 0, 63, 5, 1, 2, 3, 4],
        vec![30, SPACE, PAGE_NO, 0, 71, 0, 2, 0x77, 0x78],
    ];
    apply(&mut page, &numbers.concat(), &mut scratch);
    assert_eq!(page[60..73], [0xff, 0xab, 0xcd, 0, 0, 0, 5, 1, 2, 3, 4, 0x77, 0x78]);
}

#[test]
fn what_is_not_for_the_page_is_refused() {
    let mut scratch = Scratch::default();
    let mut page = page_of(Kind::Compact, 4096, 1);
    let mut try_run = |run: &[u8]| apply_run(&mut page.clone(), ID, FLAGS, run, &mut scratch);
    assert!(matches!(try_run(&[59, SPACE, 5]), Err(ApplyError::WrongPage { .. })));
    assert!(matches!(try_run(&[32]), Err(ApplyError::NotAPageChange { kind: RecordKind::Dummy, .. })));
    assert!(matches!(try_run(&[59, SPACE]), Err(ApplyError::Decode { .. })));
    // The other row format, an offset that is not logged, one outside, no index page.
    for run in [
        at_offset(69, Kind::Redundant, 130),
        vec![1, SPACE, PAGE_NO, 0, 7, 1],
        vec![8, SPACE, PAGE_NO, 0x0f, 0xf9, 5, 1, 2, 3, 4],
        [head(59), at_offset(69, Kind::Compact, 130)].concat(),
        at_offset(69, Kind::Compact, 112),
        at_offset(69, Kind::Compact, 99),
        at_offset(69, Kind::Compact, 4000),
        at_offset(76, Kind::Compact, 4000),
    ] {
        assert!(matches!(try_run(&run), Err(ApplyError::Corrupt { .. })), "{run:?}");
    }
    let wrong_size = apply_run(&mut page[..1024], ID, FLAGS, &head(59), &mut Scratch::default());
    assert!(matches!(wrong_size, Err(ApplyError::PageSize { expected_bytes: 4096, .. })));
}

#[test]
fn pages_of_row_format_compressed_ask_for_an_image_and_stay_as_they_are() {
    let zip = Flags(0x27);
    let mut scratch = Scratch::default();
    let mut page = vec![3; zip.physical_page_size_bytes()];
    let run = [head(59), head(37)].concat();
    let outcome = apply_run(&mut page, ID, zip, &run, &mut scratch).unwrap();
    assert_eq!(outcome, RunOutcome { modified: false, needs_image: Some(RecordKind::InitFilePage) });
    let change = Change { start_lsn: Lsn(u64::MAX / 4), end_lsn: Lsn(u64::MAX / 3), run: &run };
    for base_is_valid in [false, true] {
        let applied = apply_changes(&mut page, ID, zip, base_is_valid, [change], &mut scratch).unwrap();
        assert_eq!(applied, Applied::NeedsImage { kind: RecordKind::InitFilePage });
    }
    assert!(page.iter().all(|byte| *byte == 3));
    // The flags need not say it.
    let mut page = vec![0; 16384];
    let run = [&head(50)[..], &[40, 2, 1, 1]].concat();
    let outcome = apply_run(&mut page, ID, Flags(0), &run, &mut scratch).unwrap();
    assert_eq!(outcome.needs_image, Some(RecordKind::ZipWriteHeader));
    assert!(page.iter().all(|byte| *byte == 0));
}

#[test]
fn damaged_pages_and_records_end_in_errors() {
    let mut scratch = Scratch::default();
    let (mut applied, mut refused) = (0, 0);
    for seed in 0..4000u64 {
        let mut random = fastrand::Rng::with_seed(seed);
        let kind = random.choice(KINDS).unwrap();
        let mut page = page_for(kind, seed % 8);
        let list = records(&page, kind.is_compact());
        let at = list[random.usize(..list.len())];
        let (record, origin) = kind.record(random.u32(..), Some(b"abc"), None, random.u8(..));
        let mut run = match random.u8(..7) {
            0 => insert(kind, at as u16, &record, origin),
            1 => at_offset(69, kind, at as u16),
            2 => at_offset(75, kind, at as u16),
            3 => at_offset(76, kind, at as u16),
            4 => update(kind, at, true, &[(3, Some(b"abc")), (4, None)]),
            5 => [head(72), kind.info()].concat(),
            _ => [at_offset(69, kind, at as u16), insert(kind, at as u16, &record, origin)].concat(),
        };
        for _ in 0..random.usize(..4) {
            let offset = if random.bool() { random.usize(..130) } else { random.usize(..page.len()) };
            page[offset] = random.u8(..);
        }
        if random.bool() {
            let offset = random.usize(3..run.len());
            run[offset] = random.u8(..);
        }
        let size = page.len();
        match apply_run(&mut page, ID, FLAGS, &run, &mut scratch) {
            Ok(_) => applied += 1,
            Err(_) => refused += 1,
        }
        assert_eq!(page.len(), size);
    }
    assert!(applied > 200 && refused > 500, "{applied} {refused}");
}

/// A page that was made once for each kind and seed.
fn page_for(kind: Kind, seed: u64) -> Vec<u8> {
    use std::collections::HashMap;
    use std::sync::{LazyLock, Mutex};
    type Pages = HashMap<(String, u64), Vec<u8>>;
    static PAGES: LazyLock<Mutex<Pages>> = LazyLock::new(Mutex::default);
    let mut pages = PAGES.lock().unwrap();
    pages.entry((format!("{kind:?}"), seed)).or_insert_with(|| page_of(kind, 4096, seed)).clone()
}
