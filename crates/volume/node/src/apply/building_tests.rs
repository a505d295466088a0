use super::*;
use crate::apply::{Applied, apply_tables};
use crate::construct::StoredPages;
use crate::figures::Worker;
use crate::index::{Entry, LogIndex};
use crate::log_buffer::Chunk;
use crate::mark::Point;
use crate::quarantine::{Contents, Damage, Quarantine};
use crate::rescue::Rescue;
use redoubt_page::layout::{page_lsn, set_page_lsn};
use redoubt_page::{Format, SpaceFlags, finalize, verify};
use redoubt_pagestore::{
    FilePageStore, FilePageStoreOptions, PageProtection, PageStore, PageStoreError, PageWrite,
};
use redoubt_redo::{PageReset, SpaceId};
use redoubt_storage::UntornLimits;
use redoubt_storage::sim::SimDisk;
use redoubt_sync::Mutex;
use redoubt_wire::Seq;
use std::sync::Arc;

const FLAGS: SpaceFlags = SpaceFlags(0x15);
const FORMAT: Format = Format::of_mariadb(FLAGS);
const OBJECT: ObjectId = ObjectId(3);
const FILE: &str = "00000003.pages";

fn id(page_no: u32) -> PageId {
    PageId::new(5, page_no)
}

fn key(page_no: u32) -> PageKey {
    PageKey::new(OBJECT, page_no)
}

fn page(page_no: u32, lsn: u64, value: u8) -> Vec<u8> {
    let mut page = vec![0; FORMAT.physical_page_size_bytes()];
    page[4..8].copy_from_slice(&page_no.to_be_bytes());
    page[34..38].copy_from_slice(&5u32.to_be_bytes());
    page[100] = value;
    assert!(set_page_lsn(&mut page, Lsn(lsn)));
    finalize(&mut page, FLAGS).unwrap();
    page
}

struct Fixture {
    disk: SimDisk,
    store: FilePageStore,
    index: LogIndex,
}

impl Fixture {
    /// A store with these pages, all of them at home.
    fn new(pages: &[(u32, Vec<u8>)]) -> Self {
        let disk = SimDisk::new(1);
        disk.set_untorn_limits(Some(UntornLimits { min_len_bytes: 512, max_len_bytes: 65_536 }));
        let options = FilePageStoreOptions {
            protection: Some(PageProtection::Atomic),
            journal_len_bytes: 128 << 10,
            ..FilePageStoreOptions::default()
        };
        let store = FilePageStore::open_on(Arc::new(disk.clone()), None, options).unwrap();
        store.create(OBJECT).unwrap();
        for pages in pages.chunks(100) {
            let write = |(page_no, page): &'_ (u32, Vec<u8>)| (*page_no, page.clone());
            let pages: Vec<_> = pages.iter().map(write).collect();
            let writes: Vec<_> = pages
                .iter()
                .map(|(page_no, page)| PageWrite { object: OBJECT, page_no: *page_no, page })
                .collect();
            store.write_batch(&writes).unwrap();
        }
        Self { disk, store, index: LogIndex::new(Point::default()) }
    }

    /// The drive cannot read a page any more.
    fn lose(&self, page_no: u32) {
        let at = page_no as usize * FORMAT.physical_page_size_bytes();
        self.disk.lose(FILE, at + 512..at + 1024);
    }

    fn set_aside(&self, page_no: u32) -> Quarantine {
        let set_aside = DamagedPage {
            key: key(page_no),
            page_id: PageId { space: SpaceId(5), ..id(page_no) },
            is_whole_object: false,
            found_at: None,
            differs: None,
            lsn: Lsn(10),
            reason: "rotten".to_owned(),
            evidence: None,
        };
        let damage = Damage { set_aside: vec![set_aside], ..Damage::default() };
        Quarantine::new(Contents::default().after(&damage, &[], &|_| "d/t.ibd".to_owned()))
    }

    /// Records of a page, as they are in the redo.
    fn run(&self, page_no: u32, (start, end): (u64, u64), bytes: Vec<u8>, reset: Option<PageReset>) {
        let len = bytes.len() as u32;
        let (from, to) = (Point::default(), Point { seq: Seq(1), lsn: Lsn(1) });
        let chunk = Chunk { kind: 1, logged: true, start: from, end: to, wire: Vec::new(), raw: Some(bytes) };
        let chunk = self.index.open_table().add_chunk(&Arc::new(chunk));
        self.add(page_no, start, end, Body::Run { chunk, offset: 0, len, reset });
    }

    fn add(&self, page_no: u32, start: u64, end: u64, body: Body) {
        let entry = Entry { start_lsn: Lsn(start), end_lsn: Lsn(end), body };
        self.index.insert(&self.index.open_table(), key(page_no), entry);
    }

    fn apply(&self, pages: StoredPages<'_>) -> Result<Applied, NodeError> {
        let describe = |key: PageKey| Some((id(key.page_no()), Some(FORMAT)));
        let on_verify = |_: &Builder, _: PageKey, _: VerifyCase<'_>| Ok(());
        let table = self.index.open_table();
        apply_tables(pages, &[table], &Worker::several(1), &describe, &on_verify, &|_| {})
    }

    fn stored(&self, page_no: u32) -> Vec<u8> {
        let mut page = vec![0; FORMAT.physical_page_size_bytes()];
        self.store.read_page(OBJECT, page_no, &mut page).unwrap();
        page
    }
}

/// WRITE of one byte at offset 100.
fn write(page_no: u8, value: u8) -> Vec<u8> {
    vec![0x34, 5, page_no, 100, value]
}

#[test]
fn record_that_fits_nothing_before_an_initialisation_is_void() {
    for is_freed in [false, true] {
        let fixture = Fixture::new(&[(7, page(7, 5, 1))]);
        fixture.run(7, (10, 20), vec![0x34, 5, 7], None);
        fixture.add(7, 20, 20, Body::Verify { digest: 1, heals: false });
        if is_freed {
            fixture.run(7, (20, 30), vec![0x02, 5, 7], Some(PageReset::Free));
        } else {
            fixture.run(7, (20, 30), vec![0x12, 5, 7, 0xb2, 76, 2], Some(PageReset::Init));
            fixture.run(7, (30, 40), write(7, 3), None);
        }
        let applied = fixture.apply(StoredPages::without_rescue(&fixture.store)).unwrap();
        assert!(applied.damage.is_empty(), "freed {is_freed}: {:?}", applied.damage);
        let stored = fixture.stored(7);
        let expected = if is_freed { (Some(Lsn(5)), 1) } else { (Some(Lsn(40)), 3) };
        assert_eq!((page_lsn(&stored), stored[100]), expected, "freed {is_freed}");
    }
    // Without an initialisation it is a finding.
    let fixture = Fixture::new(&[(7, page(7, 5, 1))]);
    fixture.run(7, (10, 20), vec![0x34, 5, 7], None);
    let applied = fixture.apply(StoredPages::without_rescue(&fixture.store)).unwrap();
    assert_eq!(applied.damage.set_aside.len(), 1);
    assert_eq!(fixture.stored(7), page(7, 5, 1));
}

#[test]
fn freed_page_leaves_the_quarantine_with_the_lsn_of_its_end() {
    for is_listed in [true, false] {
        let fixture = Fixture::new(&[(7, vec![0xdb; FORMAT.physical_page_size_bytes()])]);
        let quarantine = fixture.set_aside(7);
        let quarantine = is_listed.then_some(&quarantine);
        let pages = StoredPages { store: &fixture.store, rescue: None, quarantine };
        fixture.run(7, (20, 30), [write(7, 3), vec![0x02, 5, 7]].concat(), Some(PageReset::Free));
        let applied = fixture.apply(pages).unwrap();
        assert!(applied.damage.set_aside.is_empty(), "{:?}", applied.damage);
        assert_eq!(applied.damage.renewed, vec![key(7); usize::from(is_listed)]);
        // An older record, which a restart applies again, is skipped.
        let stored = fixture.stored(7);
        verify(&stored, FLAGS).unwrap();
        assert_eq!(page_lsn(&stored), Some(Lsn(30)), "listed {is_listed}");
    }
}

#[test]
fn page_that_is_changed_after_it_was_freed_is_a_finding() {
    // In one mini-transaction the server does not do that.
    let invalid = [vec![0x02, 5, 7], write(7, 3)].concat();
    for is_damaged in [false, true] {
        let stored = if is_damaged { vec![0xdb; FORMAT.physical_page_size_bytes()] } else { page(7, 5, 1) };
        let fixture = Fixture::new(&[(7, stored.clone())]);
        fixture.run(7, (20, 30), invalid.clone(), Some(PageReset::Free));
        let applied = fixture.apply(StoredPages::without_rescue(&fixture.store)).unwrap();
        assert_eq!(applied.damage.set_aside.len(), 1, "damaged {is_damaged}");
        assert_eq!(fixture.stored(7), stored);
        let quarantine = fixture.set_aside(7);
        let pages = StoredPages { store: &fixture.store, rescue: None, quarantine: Some(&quarantine) };
        assert!(fixture.apply(pages).unwrap().damage.is_empty(), "it stays in quarantine");
    }
}

#[test]
fn last_initialisation_of_a_page_counts() {
    let init = || vec![0x12, 5, 7, 0xb2, 76, 2];
    for is_set_aside in [false, true] {
        let fixture = Fixture::new(&[(7, page(7, 5, 1))]);
        fixture.add(7, 10, 10, Body::Verify { digest: 1, heals: false });
        fixture.run(7, (10, 20), init(), Some(PageReset::Init));
        fixture.run(7, (20, 30), vec![0x34, 5, 7], None);
        fixture.add(7, 30, 30, Body::Verify { digest: 1, heals: false });
        fixture.run(7, (30, 40), init(), Some(PageReset::Init));
        fixture.run(7, (40, 50), write(7, 3), None);
        let quarantine = fixture.set_aside(7);
        let quarantine = is_set_aside.then_some(&quarantine);
        let applied = fixture.apply(StoredPages { store: &fixture.store, rescue: None, quarantine }).unwrap();
        assert!(applied.damage.set_aside.is_empty(), "{:?}", applied.damage);
        assert_eq!(applied.damage.renewed.len(), usize::from(is_set_aside));
        let stored = fixture.stored(7);
        assert_eq!((page_lsn(&stored), stored[100]), (Some(Lsn(50)), 3), "set aside {is_set_aside}");
    }
    // Also if nothing compares with the page before.
    let fixture = Fixture::new(&[(7, page(7, 5, 1))]);
    fixture.run(7, (10, 20), init(), Some(PageReset::Init));
    fixture.run(7, (20, 30), vec![0x34, 5, 7], None);
    fixture.add(7, 30, 30, Body::Verify { digest: 1, heals: false });
    fixture.run(7, (30, 40), init(), Some(PageReset::Init));
    let applied = fixture.apply(StoredPages::without_rescue(&fixture.store)).unwrap();
    assert!(applied.damage.is_empty(), "{:?}", applied.damage);
    assert_eq!(page_lsn(&fixture.stored(7)), Some(Lsn(40)));
}

#[test]
fn page_that_the_drive_has_lost_is_set_aside() {
    let pages: Vec<_> = (0..4).map(|page_no| (page_no, page(page_no, 5, 1))).collect();
    let fixture = Fixture::new(&pages);
    for page_no in 0..4 {
        fixture.run(page_no, (10, 20), write(page_no as u8, 2), None);
    }
    fixture.lose(2);
    let stored = StoredPages::without_rescue(&fixture.store);
    let applied = fixture.apply(stored).unwrap();
    let [lost] = &applied.damage.set_aside[..] else { panic!("{:?}", applied.damage) };
    assert!(lost.key == key(2) && lost.reason.contains("the drive has lost page 2"), "{}", lost.reason);
    for page_no in [0, 1, 3] {
        assert_eq!(page_lsn(&fixture.stored(page_no)), Some(Lsn(20)), "{page_no}");
    }
    let read = |page_no| stored.read(key(page_no), id(page_no), FORMAT);
    assert!(matches!(read(2), Err(NodeError::Page { .. })));
    assert_eq!(read(3).unwrap(), fixture.stored(3));
    // If nothing can be read, no page is lost.
    (0..4).for_each(|page_no| fixture.disk.lose(FILE, page_no * stored_len()..(page_no + 1) * stored_len()));
    let failed = fixture.apply(stored).unwrap_err();
    assert!(matches!(failed, NodeError::PageStore(PageStoreError::Read { .. })), "{failed}");
}

fn stored_len() -> usize {
    FORMAT.physical_page_size_bytes()
}

#[test]
fn page_that_only_memory_has_damaged_is_whole() {
    let fixture = Fixture::new(&[(7, page(7, 5, 1)), (8, page(8, 5, 1))]);
    for page_no in [7, 8] {
        let at = page_no * stored_len() + 5000;
        fixture.disk.damage_memory(FILE, at, |bytes| bytes[0] ^= 1);
    }
    let stored = StoredPages::without_rescue(&fixture.store);
    assert_eq!(stored.read(key(8), id(8), FORMAT).unwrap(), page(8, 5, 1));
    fixture.disk.damage_memory(FILE, 7 * stored_len() + 5000, |bytes| bytes[0] ^= 2);
    fixture.run(7, (10, 20), write(7, 2), None);
    let applied = fixture.apply(stored).unwrap();
    assert!(applied.damage.is_empty(), "{:?}", applied.damage);
    assert_eq!(page_lsn(&fixture.stored(7)), Some(Lsn(20)));
}

#[test]
fn panic_while_a_page_is_rebuilt_concerns_that_page_only() {
    let fixture = rotten(9);
    let rescue = Rebuilding { rebuilds: true, panics_at: Some(4), ..Rebuilding::default() };
    let pages = StoredPages { store: &fixture.store, rescue: Some(&rescue), quarantine: None };
    let applied = fixture.apply(pages).unwrap();
    let set_aside: Vec<_> = applied.damage.set_aside.iter().map(|page| page.key.page_no()).collect();
    assert_eq!(set_aside, [1, 3, 4, 5, 7]);
    let panicked = &applied.damage.set_aside[2].reason;
    assert!(panicked.contains("defect of the node: page 4"), "{panicked}");
    assert_eq!(page_lsn(&fixture.stored(6)), Some(Lsn(20)));
    let failed = pages.read(key(4), id(4), FORMAT).unwrap_err();
    assert!(failed.to_string().contains("defect of the node"), "{failed}");
}

/// Rebuilds even pages, and counts the pages of each call.
#[derive(Default)]
struct Rebuilding {
    calls: Mutex<Vec<usize>>,
    rebuilds: bool,
    fails: bool,
    is_needed: bool,
    panics_at: Option<u32>,
}

impl Rescue for Rebuilding {
    fn rescue(&self, damaged: &[DamagedImage]) -> Result<Vec<Result<Vec<u8>, NodeError>>, NodeError> {
        self.calls.lock().push(damaged.len());
        if self.fails {
            let error = std::io::Error::from_raw_os_error(libc::EMFILE);
            return Err(NodeError::io("open", "log", error));
        }
        let of = |damaged: &DamagedImage| {
            let page_no = damaged.key.page_no();
            assert!(Some(page_no) != self.panics_at, "page {page_no}");
            if self.rebuilds && page_no.is_multiple_of(2) {
                return Ok(page(page_no, 5, 1));
            }
            let reason = damaged.fault.clone();
            Err(NodeError::Page { page: damaged.page_id, file: "?".to_owned(), reason })
        };
        Ok(damaged.iter().map(of).collect())
    }

    fn is_dispensable(&self, _: ObjectId) -> bool {
        !self.is_needed
    }
}

/// All of `count` pages are damaged, and changed.
fn rotten(count: u32) -> Fixture {
    let garbage = vec![0xdb; FORMAT.physical_page_size_bytes()];
    let pages: Vec<_> = (0..count).map(|page_no| (page_no, garbage.clone())).collect();
    let fixture = Fixture::new(&pages);
    for page_no in 0..count {
        // Records of one byte of page number apply to any page: the entry names it.
        fixture.run(page_no, (10, 20), write(page_no as u8 % 100, 2), None);
    }
    fixture
}

#[test]
fn many_damaged_pages_are_rebuilt_together() {
    let fixture = rotten(100);
    let rescue = Rebuilding { rebuilds: true, ..Rebuilding::default() };
    let pages = StoredPages { store: &fixture.store, rescue: Some(&rescue), quarantine: None };
    let applied = fixture.apply(pages).unwrap();
    assert_eq!(*rescue.calls.lock(), [100]);
    let set_aside: Vec<_> = applied.damage.set_aside.iter().map(|page| page.key.page_no()).collect();
    assert_eq!(set_aside, (1..100).step_by(2).collect::<Vec<_>>());
    for page_no in (0..100).step_by(2) {
        let stored = fixture.stored(page_no);
        assert_eq!((page_lsn(&stored), stored[100]), (Some(Lsn(20)), 2), "{page_no}");
    }
}

#[test]
fn object_with_too_many_lost_pages_is_not_tried_further() {
    let most = PAGES_OF_OBJECT_MAX as u32;
    let fixture = rotten(most + 600);
    let needed = Rebuilding { is_needed: true, ..Rebuilding::default() };
    let pages = StoredPages { store: &fixture.store, rescue: Some(&needed), quarantine: None };
    fixture.apply(pages).unwrap();
    assert_eq!(needed.calls.lock().iter().sum::<usize>(), PAGES_OF_OBJECT_MAX + 600);
    let rescue = Rebuilding::default();
    let pages = StoredPages { store: &fixture.store, rescue: Some(&rescue), quarantine: None };
    let applied = fixture.apply(pages).unwrap();
    let tried: usize = rescue.calls.lock().iter().sum();
    assert!((PAGES_OF_OBJECT_MAX + 1..=PAGES_OF_OBJECT_MAX + REBUILT_TOGETHER).contains(&tried), "{tried}");
    assert!(rescue.calls.lock().iter().all(|pages| *pages > 0), "{:?}", rescue.calls.lock());
    assert_eq!(applied.damage.set_aside.len(), most as usize + 600);
}

#[test]
fn unreadable_disk_sets_no_page_aside() {
    let fixture = rotten(3);
    let rescue = Rebuilding { fails: true, ..Rebuilding::default() };
    let pages = StoredPages { store: &fixture.store, rescue: Some(&rescue), quarantine: None };
    let failed = fixture.apply(pages).unwrap_err();
    assert!(matches!(failed, NodeError::Io { .. }), "{failed}");
}
