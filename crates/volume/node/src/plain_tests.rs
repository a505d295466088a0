use super::*;
use crate::error::Kind;
use crate::mark::Point;
use redoubt_storage::sim::SimDisk;
use redoubt_storage::{BudgetDir, FileBudget, StorageDir};
use redoubt_sync::simulation::{self, Options};
use redoubt_sync::thread;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

fn write(file: u32, offset_bytes: u64, bytes: &[u8]) -> Change {
    let chunk = Chunk {
        kind: 6,
        logged: true,
        start: Point::default(),
        end: Point::default(),
        wire: Vec::new(),
        raw: Some([b"head".as_slice(), bytes].concat()),
    };
    Change::Write { file: FileId(file), offset_bytes, chunk: Arc::new(chunk), from: 4 }
}

#[test]
fn executing_the_same_changes_twice_gives_the_same_contents() {
    let directory = tempfile::tempdir().unwrap();
    let store = PlainStore::new(Folder::open(directory.path()).unwrap());
    let changes = [
        Change::Create(FileId(1)),
        write(1, 0, b"hello world"),
        Change::SetLen(FileId(1), 5),
        write(1, 5, b"!"),
        Change::Create(FileId(2)),
        write(2, 3, b"x"),
        Change::Remove(FileId(2)),
    ];
    for _ in 0..2 {
        for change in &changes {
            store.execute(change).unwrap();
        }
        store.sync().unwrap();
        assert_eq!(std::fs::read(store.path(FileId(1))).unwrap(), b"hello!");
        assert!(store.open_for_reading(FileId(2)).unwrap().is_none());
    }
    store.remove_others(|_| false).unwrap();
    assert_eq!(store.len_bytes(FileId(1)).unwrap(), 0);
}

#[test]
fn waiting_ends_when_earlier_changes_are_executed_and_not_before() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(PlainStore::new(Folder::open(directory.path()).unwrap()));
    store.queue(Seq(10), Change::Create(FileId(1)));
    store.queue(Seq(20), Change::Create(FileId(2)));
    assert_eq!(store.wait_executed(Seq(10), None), WaitEnd::Reached);
    let (seq, change) = store.next().unwrap();
    assert_eq!(seq, Seq(10));
    let waiter = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            assert_eq!(store.wait_executed(Seq(20), None), WaitEnd::Reached);
            store.open_for_reading(FileId(1)).unwrap().is_some()
        })
    };
    store.execute(&change).unwrap();
    store.done();
    assert!(waiter.join().unwrap());
    store.close();
    assert_eq!(store.wait_executed(Seq(21), None), WaitEnd::Closed);
}

/// A directory that notes files which are closed with changes that no sync has covered, and whose syncs fail on one
/// file.
struct Watched {
    dir: Arc<dyn StorageDir>,
    closed_unsynced: Arc<Mutex<Vec<String>>>,
    fails: Option<String>,
}

struct WatchedFile {
    file: Arc<dyn StorageFile>,
    name: String,
    has_unsynced: AtomicBool,
    closed_unsynced: Arc<Mutex<Vec<String>>>,
    fails: bool,
}

impl Drop for WatchedFile {
    fn drop(&mut self) {
        if self.has_unsynced.load(Ordering::Relaxed) {
            self.closed_unsynced.lock().push(self.name.clone());
        }
    }
}

impl Watched {
    fn file(&self, name: &str, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(WatchedFile {
            file,
            name: name.to_owned(),
            has_unsynced: AtomicBool::new(false),
            closed_unsynced: Arc::clone(&self.closed_unsynced),
            fails: self.fails.as_deref() == Some(name),
        })
    }
}

impl StorageDir for Watched {
    fn list(&self) -> io::Result<Vec<String>> {
        self.dir.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.file(name, self.dir.open(name)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.file(name, self.dir.create(name)?))
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

impl StorageFile for WatchedFile {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset_bytes, buf)
    }

    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        self.has_unsynced.store(true, Ordering::Relaxed);
        self.file.write_at(offset_bytes, bytes)
    }

    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.file.allocate(offset_bytes, len_bytes)
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.has_unsynced.store(true, Ordering::Relaxed);
        self.file.set_len(len_bytes)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.file.len_bytes()
    }

    /// As the kernel does it: a failed write is reported by the first sync of a file that was open then, and by no
    /// other.
    fn sync_data(&self) -> io::Result<()> {
        let had_unsynced = self.has_unsynced.swap(false, Ordering::Relaxed);
        if self.fails && had_unsynced {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.file.drop_cache()
    }
}

/// More than may be open.
const MANY: u32 = 3 * MAX_OPEN_FILES as u32;

fn watched(fails: Option<u32>) -> (SimDisk, Arc<Mutex<Vec<String>>>, PlainStore) {
    let (disk, closed_unsynced) = (SimDisk::new(1), Arc::new(Mutex::default()));
    let dir = Watched {
        dir: Arc::new(disk.clone()),
        closed_unsynced: Arc::clone(&closed_unsynced),
        fails: fails.map(|file| name_of(FileId(file))),
    };
    (disk, closed_unsynced, PlainStore::new(Folder::new(Arc::new(dir), Path::new("plain"))))
}

#[test]
fn no_file_is_closed_with_changes_that_no_sync_has_covered() {
    let (disk, closed_unsynced, store) = watched(None);
    for round in 0..2_u8 {
        for file in 0..MANY {
            store.execute(&write(file, 0, &[round; 10])).unwrap();
        }
        assert!(store.open.lock().files.len() <= MAX_OPEN_FILES);
    }
    store.execute(&Change::Remove(FileId(MANY - 1))).unwrap();
    // A removed file need not be durable.
    closed_unsynced.lock().retain(|name| *name != name_of(FileId(MANY - 1)));
    assert_eq!(*closed_unsynced.lock(), Vec::<String>::new());
    store.sync().unwrap();
    drop(store);
    assert_eq!(*closed_unsynced.lock(), Vec::<String>::new());
    let disk = disk.after_power_cut();
    for file in 0..MANY - 1 {
        assert_eq!(disk.content(&name_of(FileId(file))), [1; 10], "file {file}");
    }
}

#[test]
fn a_failed_write_of_a_file_that_is_closed_is_reported_and_no_reason_to_try_again() {
    let (_, _, store) = watched(Some(7));
    let failed = (0..MANY).find_map(|file| store.execute(&write(file, 0, b"x")).err());
    let error = failed.or_else(|| store.sync().err()).expect("nobody was told of the failed write");
    assert!(error.to_string().contains(&name_of(FileId(7))), "{error}");
    assert_eq!(error.kind(), Kind::Fatal, "{error}");
}

const FILES: u32 = 4;
const VERSIONS: u8 = 12;
const CHECKPOINTS_MAX: usize = 200;

/// Changes are executed in rising versions while pages take the descriptors of the plain files, and a checkpoint is made
/// now and then. Returns the disk after a power cut, and the version of the last checkpoint.
fn run_checkpoints(seed: u64) -> (SimDisk, u8) {
    let (disk, open_files) = (SimDisk::new(seed), FileBudget::new(1 + seed as usize % 3));
    let within = |name: &str| BudgetDir::new(Arc::new(disk.subdirectory(name)), &open_files);
    let store = Arc::new(PlainStore::new(Folder::new(Arc::new(within("plain")), Path::new("plain"))));
    for file in 0..FILES {
        store.execute(&write(file, 0, &[0; 600])).unwrap();
    }
    store.sync().unwrap();
    let mut random = simulation::random();
    if random.bool() {
        disk.cut_power_at(disk.ops_done() + random.u64(..150));
    }
    let pages = within("pages");
    let others = thread::spawn(move || {
        (0..30)
            .try_for_each(|n| pages.create(&format!("{n}")).and_then(|file| file.write_at(0, b"page")))
            .is_ok()
    });
    let executed = Arc::new(AtomicU8::new(0));
    let (to, version_executed) = (Arc::clone(&store), Arc::clone(&executed));
    let executing = thread::spawn(move || {
        for version in 1..=VERSIONS {
            for file in 0..FILES {
                if to.execute(&write(file, 0, &[version; 600])).is_err() {
                    return;
                }
            }
            version_executed.store(version, Ordering::Release);
        }
    });
    let mut checkpoint = 0;
    for _ in 0..CHECKPOINTS_MAX {
        thread::yield_now();
        let version = executed.load(Ordering::Acquire);
        if store.sync().is_err() {
            break;
        }
        checkpoint = version;
        if version == VERSIONS {
            break;
        }
    }
    executing.join().unwrap();
    others.join().unwrap();
    (disk.after_power_cut(), checkpoint)
}

#[test]
fn checkpoint_has_plain_files_whose_descriptors_others_took() {
    let mut versions = 0;
    for seed in 0..300 {
        let ((disk, checkpoint), _) =
            simulation::run(&Options::new(seed), move || run_checkpoints(seed)).unwrap();
        versions += u64::from(checkpoint);
        for file in 0..FILES {
            let found = disk.content(&format!("plain/{}", name_of(FileId(file))));
            let oldest = found.iter().min().copied();
            assert!(oldest >= Some(checkpoint), "seed {seed}, file {file}: {oldest:?}, not {checkpoint}");
        }
    }
    // Half of the runs have no power cut before the last version.
    assert!(versions > 100 * u64::from(VERSIONS), "{versions}: checkpoints were of no versions");
}
