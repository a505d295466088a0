use super::*;
use crate::home::Folder;
use crate::options::NodeOptions;
use crate::rescue::Rescue;
use redoubt_page::layout::set_page_lsn;
use redoubt_page::{Format, SpaceFlags, finalize};
use redoubt_pagestore::{FilePageStore, FilePageStoreOptions, ObjectId, PageProtection};
use redoubt_redo::Lsn;
use redoubt_storage::UntornLimits;
use redoubt_storage::sim::SimDisk;

const FLAGS: SpaceFlags = SpaceFlags(0x15);
const FORMAT: Format = Format::of_mariadb(FLAGS);
const OBJECT: ObjectId = ObjectId(3);
const FILE: &str = "00000003.pages";

fn key(page_no: u32) -> PageKey {
    PageKey::new(OBJECT, page_no)
}

fn page_id(key: PageKey) -> PageId {
    PageId::new(5, key.page_no())
}

fn page(page_no: u32) -> Vec<u8> {
    let mut page = vec![0; FORMAT.physical_page_size_bytes()];
    page[4..8].copy_from_slice(&page_no.to_be_bytes());
    page[34..38].copy_from_slice(&5u32.to_be_bytes());
    assert!(set_page_lsn(&mut page, Lsn(5)));
    finalize(&mut page, FLAGS).unwrap();
    page
}

/// A volume of which some pages are damaged.
struct Damaged {
    _directory: tempfile::TempDir,
    disk: SimDisk,
    store: FilePageStore,
    repairs: Repairs,
    found: Found,
}

impl Damaged {
    /// The first `count` pages are, and wait for their repair.
    fn new(count: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let own = Folder::open(directory.path()).unwrap();
        let options = NodeOptions::new(directory.path().to_owned(), String::new());
        let context = Arc::new(Context::new("v", own, &options));
        let disk = SimDisk::new(1);
        disk.set_untorn_limits(Some(UntornLimits { min_len_bytes: 512, max_len_bytes: 65_536 }));
        let options = FilePageStoreOptions {
            protection: Some(PageProtection::Atomic),
            journal_len_bytes: 128 << 10,
            ..FilePageStoreOptions::default()
        };
        let store = FilePageStore::open_on(Arc::new(disk.clone()), None, options).unwrap();
        store.create(OBJECT).unwrap();
        let repairs = Repairs::new(&context);
        for page_no in 0..count {
            let mut rotten = page(page_no);
            rotten[5000] ^= 1;
            store.write_batch(&[PageWrite { object: OBJECT, page_no, page: &rotten }]).unwrap();
            repairs.add_damaged(key(page_no));
        }
        Self { _directory: directory, disk, store, repairs, found: Found::default() }
    }

    fn repair(&self, log: &Log<'_>) -> Result<(), NodeError> {
        let pages = StoredPages { store: &self.store, rescue: Some(log), quarantine: None };
        let describe = |key| Some((page_id(key), Some(FORMAT)));
        self.repairs.repair(pages, &describe, &self.found)
    }

    fn is_whole(&self, page_no: u32) -> bool {
        StoredPages::without_rescue(&self.store).read_stored(key(page_no), FORMAT).unwrap().is_ok()
    }
}

/// Has all pages but one, or cannot be read.
struct Log<'r> {
    repairs: &'r Repairs,
    /// Pages of each pass over it.
    passes: Mutex<Vec<usize>>,
    lost: Option<u32>,
    failure: fn() -> Option<NodeError>,
}

impl<'r> Log<'r> {
    fn new(damaged: &'r Damaged) -> Self {
        Self { repairs: &damaged.repairs, passes: Mutex::default(), lost: None, failure: || None }
    }
}

impl Rescue for Log<'_> {
    fn rescue(&self, damaged: &[DamagedImage]) -> Result<Vec<Result<Vec<u8>, NodeError>>, NodeError> {
        self.passes.lock().push(damaged.len());
        // As that of a volume does.
        damaged.iter().for_each(|page| self.repairs.add_damaged(page.key));
        if let Some(failure) = (self.failure)() {
            return Err(failure);
        }
        let rebuilt = damaged.iter().map(|image| {
            let page_no = image.key.page_no();
            if self.lost == Some(page_no) {
                let (page, reason) = (image.page_id, "gone".to_owned());
                return Err(NodeError::Page { page, file: "?".to_owned(), reason });
            }
            Ok(page(page_no))
        });
        Ok(rebuilt.collect())
    }
}

#[test]
fn many_damaged_pages_take_one_pass_over_the_log() {
    const PAGES: u32 = 300;
    let damaged = Damaged::new(PAGES);
    let log = Log::new(&damaged);
    damaged.repair(&log).unwrap();
    assert_eq!(*log.passes.lock(), [REPAIRED_TOGETHER]);
    // The apply thread applies a table before the others.
    assert!(damaged.repairs.has_damaged() && damaged.repairs.has_any());
    damaged.repair(&log).unwrap();
    assert_eq!(*log.passes.lock(), [REPAIRED_TOGETHER, PAGES as usize - REPAIRED_TOGETHER]);
    assert!(!damaged.repairs.has_any());
    assert!((0..PAGES).all(|page_no| damaged.is_whole(page_no)));
}

#[test]
fn page_that_cannot_be_rebuilt_does_not_keep_others_from_it() {
    let damaged = Damaged::new(3);
    let log = Log { lost: Some(1), ..Log::new(&damaged) };
    damaged.repair(&log).unwrap();
    assert_eq!([0, 1, 2].map(|page_no| damaged.is_whole(page_no)), [true, false, true]);
    assert!(!damaged.repairs.has_any());
}

#[test]
fn repair_that_fails_for_now_does_not_stop_the_volume() {
    let damaged = Damaged::new(3);
    let failure = || Some(NodeError::io("read", "log", std::io::ErrorKind::Other.into()));
    let log = Log { failure, ..Log::new(&damaged) };
    damaged.repair(&log).unwrap();
    assert!(!damaged.repairs.has_any() && !damaged.is_whole(0));
    // The drive does not read at all.
    (0..3).for_each(|page_no| damaged.repairs.add_damaged(key(page_no)));
    let page_len = FORMAT.physical_page_size_bytes();
    damaged.disk.lose(FILE, 0..3 * page_len);
    let pages = StoredPages::without_rescue(&damaged.store);
    assert!(pages.read_stored(key(0), FORMAT).is_err());
    damaged.repair(&Log::new(&damaged)).unwrap();
    assert!(!damaged.repairs.has_any());
}

#[test]
fn repair_ends_with_the_volume() {
    let damaged = Damaged::new(1);
    let log = Log { failure: || Some(NodeError::Stopped("it ends".to_owned())), ..Log::new(&damaged) };
    assert!(matches!(damaged.repair(&log), Err(NodeError::Stopped(_))));
    assert!(!damaged.repairs.has_any());
}

#[test]
fn suspects_are_examined_some_at_a_time() {
    let damaged = Damaged::new(0);
    for page_no in 0..300 {
        assert!(damaged.repairs.add_suspect(key(page_no)));
    }
    let passes = Mutex::new(Vec::new());
    let examine = |keys: &[PageKey]| {
        passes.lock().push(keys.len());
        let reason = "its redo is gone".to_owned();
        let verdict = Examined::Lost { lsn: Lsn(7), reason };
        Ok(vec![Suspect { key: keys[0], page_id: page_id(keys[0]), verdict }])
    };
    let settled = Mutex::new(Vec::new());
    let settle = |damage: &Damage| {
        settled.lock().extend(damage.set_aside.iter().map(|page| page.key));
        Ok(())
    };
    damaged.repairs.examine(&damaged.store, &examine, &settle).unwrap();
    assert!(damaged.repairs.has_suspects());
    damaged.repairs.examine(&damaged.store, &examine, &settle).unwrap();
    assert!(!damaged.repairs.has_any());
    assert_eq!(*passes.lock(), [REPAIRED_TOGETHER, 300 - REPAIRED_TOGETHER]);
    assert_eq!(*settled.lock(), [key(0), key(REPAIRED_TOGETHER as u32)]);
    // Pages that cannot be examined are counted.
    assert!(damaged.repairs.add_suspect(key(1)));
    let fails = |_: &[PageKey]| Err(NodeError::NotNow("later".to_owned()));
    damaged.repairs.examine(&damaged.store, &fails, &settle).unwrap();
    assert_eq!(damaged.repairs.unexamined.load(Ordering::Relaxed), 1);
}
