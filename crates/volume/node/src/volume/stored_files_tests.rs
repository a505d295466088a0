//! The list of stored files on a simulated disk: its writes fail, its file is lost, files cannot be looked at.

use super::*;
use crate::home::Folder;
use crate::options::NodeOptions;
use redoubt_page::SpaceFlags;
use redoubt_pagestore::{FilePageStore, FilePageStoreOptions, PageProtection, PageWrite};
use redoubt_redo::SpaceId;
use redoubt_storage::sim::{Fault, OpKind, SimDisk};
use redoubt_storage::{BudgetDir, FileBudget, StorageDir, StorageFile};
use redoubt_wire::Seq;
use redoubt_wire::stream::FileKind;
use std::io;
use std::path::Path;

const PAGE_LEN: usize = 16_384;
const PAGES: u32 = 6;

/// The directory of the pages, in which page files cannot be looked at for some time.
struct Faulty {
    dir: Arc<dyn StorageDir>,
    /// Error code, and how often.
    failure: Arc<Mutex<(i32, usize)>>,
}

impl Faulty {
    fn fail(&self, name: &str) -> io::Result<()> {
        let (code, times) = &mut *self.failure.lock();
        if *times == 0 || !name.ends_with(".pages") {
            return Ok(());
        }
        *times -= 1;
        Err(io::Error::from_raw_os_error(*code))
    }
}

impl StorageDir for Faulty {
    fn list(&self) -> io::Result<Vec<String>> {
        self.dir.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.fail(name)?;
        self.dir.open(name)
    }

    fn len_bytes_of(&self, name: &str) -> io::Result<u64> {
        self.fail(name)?;
        self.dir.len_bytes_of(name)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.dir.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.dir.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.dir.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.dir.sync()
    }
}

struct Fixture {
    disk: SimDisk,
    failure: Arc<Mutex<(i32, usize)>>,
    store: FilePageStore,
    plain: PlainStore,
    names: Namespace,
    object: ObjectId,
}

impl Fixture {
    /// An object at `path` with [`PAGES`] pages, in the list on disk.
    fn new(path: &str, space: u32) -> Self {
        let mut names = Namespace::default();
        names.create(path, FileKind::Tablespace, 0o660);
        names.bind_space(path, SpaceId(space));
        let object = names.object_of_space(SpaceId(space));
        names.set_flags(object, SpaceFlags(0x15).0);
        let disk = SimDisk::new(1);
        let failure = Arc::new(Mutex::new((0, 0)));
        let pages = Faulty { dir: Arc::new(disk.subdirectory("pages")), failure: Arc::clone(&failure) };
        let options = FilePageStoreOptions {
            protection: Some(PageProtection::Doublewrite),
            journal_len_bytes: 128 << 10,
            ..FilePageStoreOptions::default()
        };
        let store = FilePageStore::open_on(Arc::new(pages), None, options).unwrap();
        store.create(object).unwrap();
        let page = [1; PAGE_LEN];
        for page_no in 0..PAGES {
            store.write_batch(&[PageWrite { object, page_no, page: &page }]).unwrap();
        }
        let plain: Arc<dyn StorageDir> = Arc::new(disk.subdirectory("plain"));
        let plain = PlainStore::new(Folder::new(plain, Path::new("plain")));
        let fixture = Self { disk, failure, store, plain, names, object };
        let stored_files = fixture.open();
        assert_eq!(fixture.check(&stored_files), Findings::default());
        stored_files.applied(&[], &fixture.store);
        stored_files.save(&fixture.plain).unwrap();
        assert_eq!(fixture.listed(), PAGES);
        fixture
    }

    /// The list of a process that starts.
    fn open(&self) -> StoredFiles {
        self.open_on(Arc::new(self.disk.subdirectory("own")))
    }

    fn open_on(&self, own: Arc<dyn StorageDir>) -> StoredFiles {
        let options = NodeOptions::new("own".into(), String::new());
        StoredFiles::new(&Arc::new(Context::new("v", Folder::new(own, Path::new("own")), &options)))
    }

    fn check(&self, stored_files: &StoredFiles) -> Findings {
        stored_files.check(true, &self.store, &self.plain, &self.names).unwrap()
    }

    /// Pages of the object in the list on disk.
    fn listed(&self) -> u32 {
        let len_bytes = self.open().read().unwrap().pages.get(&self.object.0).copied().unwrap_or(0);
        (len_bytes / PAGE_LEN as u64) as u32
    }

    /// Bytes of the volume's own file.
    fn own(&self, name: &str) -> Vec<u8> {
        self.disk.content(&format!("own/{name}"))
    }

    /// The file of the object has so many pages.
    fn grow(&self, stored_files: &StoredFiles, pages: u32) {
        stored_files.grown(&[(self.object, u64::from(pages) * PAGE_LEN as u64)]).unwrap();
    }

    /// Cuts the file on the disk.
    fn cut(&self, pages: u32) {
        let name = format!("pages/{}.pages", self.object);
        self.disk.open(&name).unwrap().set_len(u64::from(pages) * PAGE_LEN as u64).unwrap();
    }

    fn short(&self, pages: Option<u32>) -> Short {
        let len_bytes = |pages: u32| u64::from(pages) * PAGE_LEN as u64;
        Short { object: self.object, len_bytes: pages.map(len_bytes), had_bytes: len_bytes(PAGES) }
    }
}

#[test]
fn cut_waits_until_the_list_is_written() {
    let fixture = Fixture::new("ibdata1", 0);
    let stored_files = fixture.open();
    fixture.check(&stored_files);
    let len_bytes = 2 * PAGE_LEN as u64;
    for _ in 0..2 {
        let (name, error) = ("own/stored-files".to_owned(), io::ErrorKind::StorageFull);
        fixture.disk.inject(Fault { kind: OpKind::Write, name, skip: 0, error });
        stored_files.before_cut(fixture.object, len_bytes).unwrap_err();
        assert_eq!((fixture.listed(), fixture.disk.clear_faults()), (PAGES, 0));
    }
    stored_files.before_cut(fixture.object, len_bytes).unwrap();
    assert_eq!(fixture.listed(), 2);
}

#[test]
fn page_file_that_cannot_be_looked_at_gets_no_verdict() {
    let fixture = Fixture::new("d/t.ibd", 5);
    let whole = || Findings { whole: BTreeSet::from([fixture.object]), ..Findings::default() };
    let cases = [
        (libc::ENOENT, 1, whole()),
        (libc::EIO, TRIES - 1, whole()),
        (libc::EIO, TRIES, Findings::default()),
        (libc::EMFILE, TRIES, Findings::default()),
        (libc::EACCES, TRIES, Findings::default()),
        (libc::ENOENT, TRIES, Findings { short: vec![fixture.short(None)], ..Findings::default() }),
    ];
    for (code, times, expected) in cases {
        *fixture.failure.lock() = (code, times);
        let stored_files = fixture.open();
        assert_eq!(fixture.check(&stored_files), expected, "{code}, {times} times");
        assert_eq!(fixture.failure.lock().1, 0, "{code}, {times} times");
        // The next start knows what it had.
        stored_files.save(&fixture.plain).unwrap();
        assert_eq!(fixture.listed(), PAGES, "{code}, {times} times");
    }
    assert_eq!(fixture.check(&fixture.open()), whole());
}

#[test]
fn list_that_the_drive_cannot_read_is_as_good_as_none() {
    let fixture = Fixture::new("d/t.ibd", 5);
    fixture.disk.lose("own/stored-files", 0..8);
    let stored_files = fixture.open();
    assert_eq!(fixture.check(&stored_files), Findings::default());
    stored_files.applied(&[], &fixture.store);
    stored_files.save(&fixture.plain).unwrap();
    assert_eq!(fixture.listed(), PAGES);
}

#[test]
fn full_disk_at_a_start_without_a_new_loss_is_no_failure() {
    let fixture = Fixture::new("d/t.ibd", 5);
    let of_plain = |fixture: &Fixture| {
        let names = &mut fixture.names.clone();
        names.create("a.frm", FileKind::Plain, 0o660);
        (names.clone(), names.file_at("a.frm").unwrap().0)
    };
    let (with_file, file) = of_plain(&fixture);
    fixture.plain.execute(&crate::plain::Change::Create(file)).unwrap();
    fixture.open().save(&fixture.plain).unwrap();
    fixture.plain.execute(&crate::plain::Change::Remove(file)).unwrap();
    let full = || {
        let (name, error) = ("own/stored-files".to_owned(), io::ErrorKind::StorageFull);
        fixture.disk.inject(Fault { kind: OpKind::Write, name, skip: 0, error });
    };
    // It was dropped with the change that removed it.
    full();
    assert_eq!(fixture.check(&fixture.open()), Findings::default());
    assert_eq!(fixture.disk.clear_faults(), 1, "the list was written");
    // It is lost, and the changes after A would hide that.
    full();
    fixture.open().check(true, &fixture.store, &fixture.plain, &with_file).unwrap_err();
    fixture.disk.clear_faults();
    fixture.open().check(true, &fixture.store, &fixture.plain, &with_file).unwrap();
    // Now it is listed as lost.
    full();
    fixture.open().check(true, &fixture.store, &fixture.plain, &with_file).unwrap();
}

#[test]
fn list_of_before_a_downgrade_never_counts_again() {
    let fixture = Fixture::new("d/t.ibd", 5);
    // By the older build.
    fixture.cut(2);
    let stored_files = fixture.open();
    let checked = stored_files.check(false, &fixture.store, &fixture.plain, &fixture.names).unwrap();
    assert_eq!(checked, Findings::default());
    // Killed after its first checkpoint, before it has written the list.
    assert_eq!(fixture.check(&fixture.open()), Findings::default());
}

/// Page number, whether the whole object is meant, and A if that counts.
fn set_aside(short: &Short, Fixture { names, store, .. }: &Fixture) -> Vec<(u32, bool, Option<Seq>)> {
    let pages = short.set_aside(names, Point { seq: Seq(70), lsn: Lsn(7) }, store);
    pages.iter().map(|page| (page.key.page_no(), page.is_whole_object, page.found_at)).collect()
}

#[test]
fn missing_pages_of_a_cut_file_are_set_aside_one_by_one() {
    for (path, space, most) in [("ibdata1", 0, PAGES_MAX), ("d/t.ibd", 5, PAGES_OF_OBJECT_MAX)] {
        let fixture = Fixture::new(path, space);
        let at_a = Some(Seq(70));
        fixture.cut(4);
        let findings = fixture.check(&fixture.open());
        assert_eq!(findings, Findings { short: vec![fixture.short(Some(4))], ..Findings::default() });
        assert_eq!(set_aside(&findings.short[0], &fixture), [(4, false, at_a), (5, false, at_a)], "{path}");
        // A part of a page is none.
        let part = Short { len_bytes: Some(5 * PAGE_LEN as u64 + 100), ..fixture.short(None) };
        assert_eq!(set_aside(&part, &fixture), [(5, false, at_a)], "{path}");
        assert_eq!(set_aside(&fixture.short(None), &fixture), [(0, true, at_a)], "{path}");
        let parts = &Short { had_bytes: u64::from(u32::MAX), ..fixture.short(Some(4)) };
        assert_eq!(set_aside(parts, &fixture), [(0, true, None)], "{path}: it may have holes later");
        for (pages, count) in [(most, most), (most + 1, 1)] {
            let had_bytes = (4 + pages as u64) * PAGE_LEN as u64;
            let pages = set_aside(&Short { had_bytes, ..fixture.short(Some(4)) }, &fixture);
            assert_eq!((pages.len(), pages[0].1), (count, count == 1), "{path}");
        }
    }
}

#[test]
fn newer_lengths_are_appended_and_the_list_stays() {
    let fixture = Fixture::new("d/t.ibd", 5);
    let stored_files = fixture.open();
    fixture.check(&stored_files);
    // The list of this process.
    fixture.grow(&stored_files, PAGES + 1);
    let list = fixture.own(FILE_NAME);
    for more in 2..5 {
        fixture.grow(&stored_files, PAGES + more);
        // Not longer.
        fixture.grow(&stored_files, PAGES);
        assert_eq!(fixture.listed(), PAGES + more);
    }
    assert!(fixture.own(FILE_NAME) == list, "the list was written again");
    assert_eq!(fixture.own(newer::FILE_NAME).iter().filter(|byte| **byte == b'\n').count(), 4);
    // The file on the disk has not become longer.
    let short = Short { had_bytes: u64::from(PAGES + 4) * PAGE_LEN as u64, ..fixture.short(Some(PAGES)) };
    assert_eq!(fixture.check(&fixture.open()).short, [short]);
    stored_files.save(&fixture.plain).unwrap();
    assert_eq!(fixture.listed(), PAGES + 4);
}

#[test]
fn newer_length_that_is_not_whole_ends_them() {
    let fixture = Fixture::new("d/t.ibd", 5);
    let stored_files = fixture.open();
    fixture.check(&stored_files);
    for more in 1..4 {
        fixture.grow(&stored_files, PAGES + more);
    }
    let name = format!("own/{}", newer::FILE_NAME);
    let file = fixture.disk.open(&name).unwrap();
    file.set_len(file.len_bytes().unwrap() - 1).unwrap();
    assert_eq!(fixture.listed(), PAGES + 2);
}

#[test]
fn newer_lengths_count_only_with_the_list_before_them() {
    let fixture = Fixture::new("d/t.ibd", 5);
    let grown = || {
        let stored_files = fixture.open();
        fixture.check(&stored_files);
        (1..3).for_each(|more| fixture.grow(&stored_files, PAGES + more));
        assert_eq!(fixture.listed(), PAGES + 2);
        stored_files
    };
    grown().before_cut(fixture.object, 2 * PAGE_LEN as u64).unwrap();
    assert_eq!(fixture.listed(), 2);
    // Of an older build, which leaves the other file.
    grown();
    let list = r#"{"format":1,"pages":{"0":98304},"plain":[],"lost":[]}"#;
    let own = &fixture.open().context.own.clone();
    write_checked(own, FILE_NAME, list.replace("\"0\"", &format!("\"{}\"", fixture.object.0)).as_bytes())
        .unwrap();
    assert_eq!(fixture.listed(), PAGES);
    let stored_files = fixture.open();
    fixture.check(&stored_files);
    assert!(own.find(newer::FILE_NAME).unwrap().is_none(), "it would count with a later list");
    stored_files.save(&fixture.plain).unwrap();
    assert_eq!(fixture.listed(), PAGES);
}

#[test]
fn newer_lengths_after_a_failed_list_go_to_the_next_one() {
    let fixture = Fixture::new("d/t.ibd", 5);
    let stored_files = fixture.open();
    fixture.check(&stored_files);
    fixture.grow(&stored_files, PAGES + 1);
    fixture.grow(&stored_files, PAGES + 2);
    let (name, error) = ("own/stored-files".to_owned(), io::ErrorKind::StorageFull);
    fixture.disk.inject(Fault { kind: OpKind::Write, name, skip: 0, error });
    stored_files.save(&fixture.plain).unwrap_err();
    assert_eq!(fixture.listed(), PAGES + 2, "the list before counts");
    let before = fixture.own(newer::FILE_NAME);
    fixture.grow(&stored_files, PAGES + 3);
    assert_eq!(fixture.listed(), PAGES + 3);
    assert!(fixture.own(newer::FILE_NAME) == before, "it went to a list");
}

#[test]
fn newer_lengths_that_met_a_full_disk_go_to_the_next_list() {
    let fixture = Fixture::new("d/t.ibd", 5);
    let own = BudgetDir::new(Arc::new(fixture.disk.subdirectory("own")), &FileBudget::new(8));
    let stored_files = fixture.open_on(Arc::new(own));
    fixture.check(&stored_files);
    fixture.grow(&stored_files, PAGES + 1);
    fixture.grow(&stored_files, PAGES + 2);
    let (name, error) = (format!("own/{}", newer::FILE_NAME), io::ErrorKind::StorageFull);
    fixture.disk.inject(Fault { kind: OpKind::Sync, name, skip: 0, error });
    let lens = [(fixture.object, u64::from(PAGES + 3) * PAGE_LEN as u64)];
    assert_eq!(stored_files.grown(&lens).unwrap_err().kind(), crate::error::Kind::Retry);
    assert_eq!(fixture.disk.clear_faults(), 0);
    // There is room again.
    stored_files.grown(&lens).unwrap();
    assert_eq!(fixture.listed(), PAGES + 3);
}

#[test]
fn newer_lengths_cost_what_is_new_and_not_all_files() {
    let fixture = Fixture::new("d/t.ibd", 5);
    let stored_files = fixture.open();
    let lens = |objects: std::ops::Range<u32>, len_bytes| -> Vec<_> {
        objects.map(|object| (ObjectId(object), len_bytes)).collect()
    };
    stored_files.grown(&lens(0..12_000, 1)).unwrap();
    let list = fixture.own(FILE_NAME);
    let (mut len_bytes, mut checkpoints) = (2, 0);
    let mut written = 0;
    while fixture.own(FILE_NAME) == list {
        stored_files.grown(&lens(0..20, len_bytes)).unwrap();
        written = written.max(fixture.disk.open("own/stored-files.newer").unwrap().len_bytes().unwrap());
        (len_bytes, checkpoints) = (len_bytes + 1, checkpoints + 1);
        assert!(checkpoints < 10_000, "the file becomes long without end");
    }
    assert!(checkpoints > 1000, "a list after {checkpoints} checkpoints");
    assert!(written / checkpoints <= 4096, "{written} bytes");
}
