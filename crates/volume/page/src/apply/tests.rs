//! Every record kind on hand-built pages, and hostile records on random pages.

use redoubt_redo::mariadb::record::Insert;

use super::*;
use crate::layout::{self, get_u16};

const PAGE_BYTES: usize = 16384;
const FULL_CRC32: SpaceFlags = SpaceFlags(0x15);
const ID: PageId = PageId::new(7, 9);

/// A page and the position on it, fed with decoded records.
struct Bench {
    page: Vec<u8>,
    cursor: Cursor,
    first: bool,
}

impl Bench {
    fn new() -> Self {
        Self::with(ID, FULL_CRC32)
    }

    fn with(id: PageId, flags: SpaceFlags) -> Self {
        Self { page: vec![0; flags.physical_page_size_bytes()], cursor: Cursor::new(id, flags), first: true }
    }

    /// Apply a record as the next one of the run; the first one carries the ids.
    fn try_apply(&mut self, body: Body<'_>) -> Result<(), ApplyError> {
        let needs_ids = self.first || matches!(body, Body::InitPage | Body::FreePage);
        self.first = false;
        let page = needs_ids.then_some(self.cursor.page_id);
        apply_record(&mut self.page, &mut self.cursor, &Record { page, body })
    }

    fn apply(&mut self, body: Body<'_>) {
        self.try_apply(body).unwrap_or_else(|error| panic!("{error}"));
    }

    fn extended(&mut self, extended: Extended<'_>) {
        self.apply(Body::Extended(extended));
    }

    fn field(&self, offset: usize) -> u16 {
        get_u16(&self.page, offset).unwrap()
    }

    /// User records in list order: origin and first data byte.
    fn records(&self, comp: bool) -> Vec<(usize, u8)> {
        let (infimum, supremum) = if comp { (99, 112) } else { (101, 116) };
        let mut records = Vec::new();
        let mut record = infimum;
        loop {
            let link = usize::from(self.field(record - 2));
            record = if comp { (record + link) & 0xffff } else { link };
            if record == supremum {
                return records;
            }
            records.push((record, self.page[record]));
            assert!(records.len() < 2000, "cyclic list");
        }
    }

    /// The directory must own every record exactly once, in groups of legal size.
    fn check_directory(&self, comp: bool) {
        let (infimum, supremum, header) = if comp { (99, 112, 5) } else { (101, 116, 6) };
        let mut order = vec![infimum];
        order.extend(self.records(comp).iter().map(|(record, _)| *record));
        order.push(supremum);
        let n_slots = usize::from(self.field(layout::PAGE_N_DIR_SLOTS));
        let mut owned_total = 0;
        for slot in 0..n_slots {
            let record = usize::from(self.field(PAGE_BYTES - 10 - 2 * slot));
            let n_owned = usize::from(self.page[record - header] & 15);
            owned_total += n_owned;
            assert_eq!(order[owned_total - 1], record, "slot {slot}");
            match slot {
                0 => assert_eq!(n_owned, 1),
                slot if slot + 1 == n_slots => assert!((1..=8).contains(&n_owned)),
                _ => assert!((4..=8).contains(&n_owned), "slot {slot} owns {n_owned}"),
            }
        }
        assert_eq!(owned_total, order.len());
        assert_eq!(usize::from(self.field(layout::PAGE_N_RECS)), order.len() - 2);
    }
}

fn corrupt(result: Result<(), ApplyError>) -> &'static str {
    match result {
        Err(ApplyError::Corrupt { what, .. }) => what,
        other => panic!("expected a corruption error, got {other:?}"),
    }
}

#[test]
fn init_page_clears_and_identifies() {
    let mut bench = Bench::new();
    bench.page.fill(0xee);
    bench.apply(Body::InitPage);
    assert_eq!(layout::page_id(&bench.page), Some(ID));
    assert_eq!(bench.page[8..16], [0xff; 8]);
    assert!(page_is_never_written(&bench.page[38..]));
    // The position is now the page type.
    bench.apply(Body::Write { distance: 0, data: &[0, 6] });
    assert_eq!(layout::page_type(&bench.page), Some(6));
}

#[test]
fn init_page_of_row_format_compressed_has_the_physical_size() {
    let flags = SpaceFlags(0x23);
    let mut bench = Bench::with(ID, flags);
    assert_eq!(bench.page.len(), 1024);
    bench.apply(Body::InitPage);
    assert_eq!(layout::page_id(&bench.page), Some(ID));
    let error = bench.try_apply(Body::Extended(Extended::InitRowFormatDynamic));
    assert!(corrupt(error).contains("COMPRESSED"));
}

#[test]
fn write_memset_memmove_move_the_position() {
    let mut bench = Bench::new();
    bench.apply(Body::Write { distance: 100, data: b"abcd" });
    bench.apply(Body::Memset { distance: 6, len_bytes: 6, pattern: b"xyz" });
    bench.apply(Body::Memset { distance: 4, len_bytes: 3, pattern: b"!" });
    bench.apply(Body::Memmove { distance: 3, len_bytes: 4, source_offset: -26 });
    bench.apply(Body::Option { payload: &[0; 5] });
    bench.apply(Body::Write { distance: 0, data: b"end" });
    assert_eq!(&bench.page[100..104], b"abcd");
    assert_eq!(&bench.page[110..116], b"xyzxyz");
    assert_eq!(&bench.page[120..123], b"!!!");
    assert_eq!(&bench.page[126..133], b"abcdend");
}

#[test]
fn memmove_overlapping_reads_the_page_as_it_is_now() {
    let mut bench = Bench::new();
    bench.apply(Body::Write { distance: 100, data: b"0123456789" });
    bench.apply(Body::Memmove { distance: 0, len_bytes: 8, source_offset: -4 });
    assert_eq!(&bench.page[100..118], b"01234567896789\0\0\0\0");
    bench.first = true;
    bench.apply(Body::Memmove { distance: 98, len_bytes: 8, source_offset: 2 });
    assert_eq!(&bench.page[98..108], b"0123456767");
}

#[test]
fn writes_outside_the_page_are_refused() {
    let end = PAGE_BYTES as u32;
    let data = [1u8; 4];
    for body in [
        Body::Write { distance: 7, data: &data },
        Body::Write { distance: end - 3, data: &data },
        Body::Write { distance: u32::MAX, data: &data },
        Body::Memset { distance: end, len_bytes: 0, pattern: &data[..1] },
        Body::Memset { distance: 20, len_bytes: u32::MAX, pattern: &data[..1] },
        Body::Memset { distance: 20, len_bytes: 6, pattern: &data },
        Body::Memset { distance: 20, len_bytes: 6, pattern: &[] },
        Body::Memmove { distance: 100, len_bytes: 4, source_offset: -93 },
        Body::Memmove { distance: 100, len_bytes: 4, source_offset: i32::MIN },
        Body::Memmove { distance: end - 8, len_bytes: 8, source_offset: 1 },
        Body::Memmove { distance: 100, len_bytes: u32::MAX, source_offset: 1 },
    ] {
        let mut bench = Bench::new();
        corrupt(bench.try_apply(body));
        assert!(page_is_never_written(&bench.page), "{body:?}");
    }
    Bench::new().apply(Body::Write { distance: end - 4, data: &data });
}

#[test]
fn free_page_changes_nothing_and_ends_the_run_of_same_page_records() {
    let mut bench = Bench::new();
    bench.apply(Body::Write { distance: 50, data: b"kept" });
    let before = bench.page.clone();
    bench.apply(Body::FreePage);
    assert_eq!(bench.page, before);
    assert!(corrupt(bench.try_apply(Body::Write { distance: 50, data: b"x" })).contains("page ids"));
    bench.apply(Body::InitPage);
}

#[test]
fn records_for_files_and_other_pages_are_refused() {
    let mut bench = Bench::new();
    let result = bench.try_apply(Body::Extended(Extended::TrimPages));
    assert!(matches!(result, Err(ApplyError::NotAPageChange { kind: RecordKind::TrimPages, .. })));
    let record = Record { page: Some(PageId::new(7, 10)), body: Body::InitPage };
    let result = apply_record(&mut bench.page, &mut bench.cursor, &record);
    assert!(matches!(result, Err(ApplyError::WrongPage { found: PageId { .. }, .. })));
    let mut first_pages = Bench::with(PageId::new(7, 2), FULL_CRC32);
    corrupt(first_pages.try_apply(Body::Extended(Extended::UndoInit)));
}

#[test]
fn init_row_format_keeps_what_is_not_its_own() {
    for (comp, extended) in
        [(false, Extended::InitRowFormatRedundant), (true, Extended::InitRowFormatDynamic)]
    {
        let mut bench = Bench::new();
        bench.page.fill(0xee);
        bench.extended(extended);
        assert_eq!(layout::page_type(&bench.page), Some(layout::TYPE_INDEX));
        assert_eq!(bench.field(layout::PAGE_HEAP_TOP), if comp { 120 } else { 125 });
        assert_eq!(bench.field(layout::PAGE_N_HEAP), if comp { 0x8002 } else { 2 });
        for kept in [0..24, 26..38, 64..94, PAGE_BYTES - 8..PAGE_BYTES] {
            assert!(bench.page[kept].iter().all(|byte| *byte == 0xee));
        }
        bench.check_directory(comp);
        assert!(bench.records(comp).is_empty());
        assert!(bench.page[125..PAGE_BYTES - 12].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn undo_init_and_append() {
    let mut bench = Bench::new();
    bench.page.fill(0xee);
    bench.extended(Extended::UndoInit);
    assert_eq!(layout::page_type(&bench.page), Some(layout::TYPE_UNDO_LOG));
    assert!(bench.page[56..86].iter().all(|byte| *byte == 0xee));
    bench.extended(Extended::UndoAppend { data: b"first" });
    bench.extended(Extended::UndoAppend { data: b"second" });
    assert_eq!(bench.field(layout::TRX_UNDO_PAGE_FREE), 56 + 9 + 10);
    assert_eq!(&bench.page[56..75], b"\x00\x41first\x00\x38\x00\x4bsecond\x00\x41");
    let too_long = vec![1; PAGE_BYTES - 8 - 6 - 75];
    assert!(
        corrupt(bench.try_apply(Body::Extended(Extended::UndoAppend { data: &too_long }))).contains("fit")
    );
    bench.extended(Extended::UndoAppend { data: &too_long[1..] });
}

/// Insert a DYNAMIC record of one header byte and `data`, after `prev` (an origin).
fn insert_dynamic(bench: &mut Bench, prev: usize, reuse_shift: Option<u32>, data: &[u8]) {
    let mut rest = vec![data.len() as u8];
    rest.extend_from_slice(data);
    let prev = (prev - 99) as u32;
    let enc = 1 << 3;
    bench.extended(Extended::Insert(Insert {
        comp: true,
        reuse_shift,
        prev,
        enc,
        hdr_c: 0,
        data_c: 0,
        rest: &rest,
    }));
}

/// Insert a REDUNDANT record of one short field `data`, after `prev` (an origin).
fn insert_redundant(bench: &mut Bench, prev: usize, reuse: bool, data: &[u8]) {
    let mut rest = vec![data.len() as u8];
    rest.extend_from_slice(data);
    let prev = (prev - 101) as u32;
    bench.extended(Extended::Insert(Insert {
        comp: false,
        reuse_shift: reuse.then_some(0),
        prev,
        enc: 1 << 2,
        hdr_c: 0,
        data_c: 0,
        rest: &rest,
    }));
}

fn index_page(comp: bool) -> Bench {
    let mut bench = Bench::new();
    bench.apply(Body::InitPage);
    bench.extended(if comp { Extended::InitRowFormatDynamic } else { Extended::InitRowFormatRedundant });
    bench
}

#[test]
fn inserted_dynamic_record_has_the_expected_bytes() {
    let mut bench = index_page(true);
    insert_dynamic(&mut bench, 99, None, b"abc");
    // Literal header byte, info|owned, heap number 2 << 3 | ordinary, next (supremum 112 - 126), data.
    assert_eq!(&bench.page[120..129], b"\x03\x00\x00\x10\xff\xf2abc");
    assert_eq!(bench.field(97), 126 - 99);
    assert_eq!(bench.field(layout::PAGE_HEAP_TOP), 129);
    assert_eq!(bench.field(layout::PAGE_LAST_INSERT), 126);
    assert_eq!(bench.page[107] & 15, 2);
    // The second record copies one header byte and two data bytes from the first.
    bench.extended(Extended::Insert(Insert {
        comp: true,
        reuse_shift: None,
        prev: 126 - 99,
        enc: 2,
        hdr_c: 1,
        data_c: 2,
        rest: b"z",
    }));
    assert_eq!(&bench.page[129..138], b"\x03\x20\x00\x18\xff\xe9abz");
    assert_eq!(bench.page[layout::PAGE_DIRECTION_B] & 7, 2);
    assert_eq!(bench.field(layout::PAGE_N_DIRECTION), 1);
}

#[test]
fn inserted_redundant_record_has_the_expected_bytes() {
    let mut bench = index_page(false);
    insert_redundant(&mut bench, 101, false, b"abc");
    // Field end, info|owned, heap number 2, one field, short, next = supremum, data.
    assert_eq!(&bench.page[125..135], b"\x03\x00\x00\x10\x03\x00\x74abc");
    assert_eq!(bench.field(99), 132);
    assert_eq!(bench.field(layout::PAGE_HEAP_TOP), 135);
}

#[test]
fn deleting_the_last_heap_record_shrinks_the_heap_and_others_go_to_the_free_list() {
    for comp in [false, true] {
        let mut bench = index_page(comp);
        let infimum = if comp { 99 } else { 101 };
        let insert = |bench: &mut Bench, prev, data: &[u8]| {
            if comp {
                insert_dynamic(bench, prev, None, data)
            } else {
                insert_redundant(bench, prev, false, data)
            }
        };
        insert(&mut bench, infimum, b"one");
        let first = bench.records(comp)[0].0;
        insert(&mut bench, first, b"two");
        let top = bench.field(layout::PAGE_HEAP_TOP);
        let delete = |bench: &mut Bench| {
            bench.extended(if comp {
                Extended::DeleteDynamic { prev: 0, hdr_size: 1, data_size: 3 }
            } else {
                Extended::DeleteRedundant { prev: 0 }
            });
        };
        delete(&mut bench);
        assert_eq!(bench.field(layout::PAGE_FREE), first as u16);
        assert_eq!(bench.field(layout::PAGE_GARBAGE), if comp { 9 } else { 10 });
        assert_eq!(bench.page[first..first + 3], [0; 3]);
        assert_eq!(bench.field(layout::PAGE_HEAP_TOP), top);
        delete(&mut bench);
        assert!(bench.field(layout::PAGE_HEAP_TOP) < top);
        assert!(bench.records(comp).is_empty());
        bench.check_directory(comp);
        let result = bench.try_apply(Body::Extended(if comp {
            Extended::DeleteDynamic { prev: 0, hdr_size: 1, data_size: 3 }
        } else {
            Extended::DeleteRedundant { prev: 0 }
        }));
        corrupt(result);
    }
}

/// Random inserts, reuses and deletes against a plain list of values.
#[test]
fn random_inserts_and_deletes_follow_a_model() {
    for seed in 0..40 {
        let comp = seed % 2 == 0;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bench = index_page(comp);
        let mut model: Vec<u8> = Vec::new();
        let mut free: Vec<usize> = Vec::new();
        for step in 0..1500 {
            let records = bench.records(comp);
            let origin =
                |index: usize| if index == 0 { if comp { 99 } else { 101 } } else { records[index - 1].0 };
            let at = random.usize(0..=model.len());
            // Grow first, then shrink, so that slots are split and balanced.
            if random.usize(0..1500) > step || model.is_empty() {
                let value = random.u8(..);
                let data = [value, 1, 2, 3];
                let reuse = free.pop().is_some();
                if comp {
                    insert_dynamic(&mut bench, origin(at), reuse.then_some(0), &data);
                } else {
                    insert_redundant(&mut bench, origin(at), reuse, &data);
                }
                model.insert(at, value);
            } else {
                let at = at.min(model.len() - 1);
                let before = bench.field(layout::PAGE_N_HEAP);
                let victim = records[at].0;
                let prev = (origin(at) - origin(0)) as u32;
                bench.extended(if comp {
                    Extended::DeleteDynamic { prev, hdr_size: 1, data_size: 4 }
                } else {
                    Extended::DeleteRedundant { prev }
                });
                model.remove(at);
                if bench.field(layout::PAGE_N_HEAP) == before {
                    free.push(victim);
                }
            }
            let values: Vec<u8> = bench.records(comp).iter().map(|(_, value)| *value).collect();
            assert_eq!(values, model, "seed {seed} step {step}");
            bench.check_directory(comp);
        }
    }
}

#[test]
fn cyclic_record_links_end_in_an_error() {
    let mut bench = index_page(true);
    insert_dynamic(&mut bench, 99, None, b"abc");
    // The record's successor is the record itself.
    bench.page[124..126].fill(0);
    let insert =
        Insert { comp: true, reuse_shift: None, prev: 0, enc: 8, hdr_c: 0, data_c: 0, rest: b"\x01x" };
    assert!(corrupt(bench.try_apply(Body::Extended(Extended::Insert(insert)))).contains("cyclic"));
    let delete = Extended::DeleteDynamic { prev: 0, hdr_size: 1, data_size: 3 };
    assert!(corrupt(bench.try_apply(Body::Extended(delete))).contains("cyclic"));
}

/// A random record, mostly with plausible numbers.
fn random_body<'a>(random: &mut fastrand::Rng, data: &'a [u8]) -> Body<'a> {
    let number = |random: &mut fastrand::Rng| match random.u8(0..4) {
        0 => random.u32(0..64),
        1 => random.u32(0..20_000),
        2 => random.u32(0..70_000),
        _ => random.u32(..),
    };
    let data = &data[..random.usize(0..data.len())];
    match random.u8(0..10) {
        0 => Body::Write { distance: number(random), data },
        1 => Body::Memset { distance: number(random), len_bytes: number(random), pattern: data },
        2 => Body::Memmove {
            distance: number(random),
            len_bytes: number(random),
            source_offset: random.i32(-70_000..70_000),
        },
        3 => Body::Extended(Extended::UndoAppend { data }),
        4 => Body::Extended(Extended::DeleteRedundant { prev: number(random) }),
        5 => Body::Extended(Extended::DeleteDynamic {
            prev: number(random),
            hdr_size: number(random),
            data_size: number(random),
        }),
        _ => Body::Extended(Extended::Insert(Insert {
            comp: random.bool(),
            reuse_shift: random.bool().then(|| number(random)),
            prev: number(random),
            enc: number(random),
            hdr_c: number(random),
            data_c: number(random),
            rest: data,
        })),
    }
}

/// A page that passes the first checks, with damage in many places.
fn damaged_page(random: &mut fastrand::Rng, size: usize) -> Vec<u8> {
    let mut page = vec![0; size];
    match random.u8(0..3) {
        0 => page.iter_mut().for_each(|byte| *byte = random.u8(..)),
        1 => init::init_undo_page(&mut page).unwrap(),
        _ => {
            init::init_page(&mut page, ID).unwrap();
            init::init_index_page(&mut page, random.bool(), TYPE_INDEX).unwrap();
        }
    }
    for _ in 0..random.usize(0..60) {
        let at = if random.bool() { random.usize(38..140) } else { random.usize(0..size) };
        page[at] = random.u8(..);
    }
    page
}

#[test]
fn hostile_records_on_damaged_pages_never_panic() {
    let literal: Vec<u8> = (0..=255).collect();
    let mut applied = 0;
    let mut refused = 0;
    for seed in 0..20_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let flags = [SpaceFlags(0x13), FULL_CRC32, SpaceFlags(0x17), SpaceFlags(0x23)][random.usize(0..4)];
        let size = flags.physical_page_size_bytes();
        let mut bench = Bench::with(ID, flags);
        bench.page = damaged_page(&mut random, size);
        for _ in 0..12 {
            match bench.try_apply(random_body(&mut random, &literal)) {
                Ok(()) => applied += 1,
                Err(error) => {
                    assert!(error.to_string().contains("7:9"), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(applied > 1000 && refused > 1000, "{applied} applied, {refused} refused");
}

#[test]
fn wrong_page_size_is_refused() {
    let result = apply_run(&mut [0; 8192], ID, FULL_CRC32, &[]);
    assert!(matches!(result, Err(ApplyError::PageSize { expected_bytes: 16384, .. })));
}

#[test]
fn undecodable_run_names_the_page() {
    let error = apply_run(&mut vec![0; PAGE_BYTES], ID, FULL_CRC32, &[0x61, 7]).expect_err("must fail");
    assert!(error.to_string().contains("7:9"), "{error}");
}
