//! Pages that the drive needs long to fail to read: they are read seldom, and no writer waits for that.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use redoubt_storage::WriteOptions;
use redoubt_storage::sim::{Fault, OpKind};

use super::super::lost::{self, Drive, Patience, TRIES};
use super::*;

const HOME: &str = "00000001.pages";
const PATIENCE: Duration = Duration::from_secs(60);

fn setup() -> Setup {
    Setup::new(PageProtection::Atomic, 512)
}

fn write(store: &FilePageStore, page_no: u32, version: u32) {
    let page = image(version);
    store.write_batch(&[PageWrite { object: ObjectId(1), page_no, page: &page }]).unwrap();
}

fn read(store: &FilePageStore, page_no: u32) -> Result<Vec<u8>, PageStoreError> {
    let mut page = image(0);
    store.read_page(ObjectId(1), page_no, &mut page).map(|_| page)
}

fn fail_reads(disk: &SimDisk, reads: usize) {
    for _ in 0..reads {
        let error = io::ErrorKind::UnexpectedEof;
        disk.inject(Fault { kind: OpKind::Read, name: HOME.to_owned(), skip: 0, error });
    }
}

#[test]
fn lost_page_is_not_read_again_for_a_while() {
    let disk = setup().disk(1);
    let store = setup().prepared(&disk);
    disk.lose(HOME, 3 * PAGE..4 * PAGE);
    let require_lost = |read: Result<Vec<u8>, PageStoreError>| {
        let error = read.unwrap_err();
        assert!(matches!(error, PageStoreError::LostPage { page_no: 3, .. }), "{error}");
    };
    require_lost(read(&store, 3));
    fail_reads(&disk, 1);
    require_lost(read(&store, 3));
    let mut page = image(0);
    require_lost(store.read_page_again(ObjectId(1), 3, &mut page).map(|_| page));
    assert_eq!(disk.clear_faults(), 1, "the drive was read");
    write(&store, 4, 2);
    require_lost(read(&store, 3));
    write(&store, 3, 2);
    assert_eq!(versions(&store)[2..5], [1, 2, 2]);
}

#[test]
fn slow_drive_is_read_only_once_more() {
    let disk = setup().disk(1);
    drop(setup().prepared(&disk));
    let file = StorageDir::open(&disk, HOME).unwrap();
    let again = |patience| {
        fail_reads(&disk, TRIES);
        lost::read_again(&*file, 0, &mut [0; PAGE], patience).unwrap_err();
        TRIES - disk.clear_faults()
    };
    assert_eq!((again(Patience::none()), again(Patience::begin())), (1, TRIES));
    let examined_bytes = |patience| {
        let before = disk.bytes_read();
        assert_eq!(lost::examine(&*file, 0..0, patience), Drive::Works);
        disk.bytes_read() - before
    };
    let one = examined_bytes(Patience::none());
    assert!(one > 0 && examined_bytes(Patience::begin()) >= one * TRIES as u64);
}

/// Holds failed reads back.
struct Gate {
    failed: Sender<()>,
    go: Mutex<Receiver<()>>,
    was_in_time: AtomicBool,
}

struct GatedDir {
    disk: SimDisk,
    gate: Arc<Gate>,
}

struct GatedFile {
    file: Arc<dyn StorageFile>,
    gate: Arc<Gate>,
}

impl GatedDir {
    fn gated(&self, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(GatedFile { file, gate: Arc::clone(&self.gate) })
    }
}

impl StorageDir for GatedDir {
    fn list(&self) -> io::Result<Vec<String>> {
        StorageDir::list(&self.disk)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.gated(StorageDir::open(&self.disk, name)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.gated(StorageDir::create(&self.disk, name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        StorageDir::rename(&self.disk, from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        StorageDir::remove(&self.disk, name)
    }

    fn sync(&self) -> io::Result<()> {
        StorageDir::sync(&self.disk)
    }

    fn untorn_limits(&self) -> io::Result<Option<UntornLimits>> {
        StorageDir::untorn_limits(&self.disk)
    }
}

impl StorageFile for GatedFile {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(offset_bytes, buf);
        if read.is_err() {
            let _ = self.gate.failed.send(());
            if self.gate.go.lock().recv_timeout(PATIENCE).is_err() {
                self.gate.was_in_time.store(false, Ordering::Release);
            }
        }
        read
    }

    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset_bytes, bytes)
    }

    fn write_with(&self, offset_bytes: u64, bytes: &[u8], options: WriteOptions) -> io::Result<()> {
        self.file.write_with(offset_bytes, bytes, options)
    }

    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.file.allocate(offset_bytes, len_bytes)
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.file.set_len(len_bytes)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.file.len_bytes()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.file.drop_cache()
    }

    fn drop_cache_of(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.file.drop_cache_of(offset_bytes, len_bytes)
    }
}

#[test]
fn writer_does_not_wait_for_reads_that_fail() {
    for written in [5, 3] {
        let disk = setup().disk(1);
        drop(setup().prepared(&disk));
        disk.lose(HOME, 3 * PAGE..4 * PAGE);
        let (failed, has_failed) = channel();
        let (go, may_go) = channel();
        let gate = Arc::new(Gate { failed, go: Mutex::new(may_go), was_in_time: AtomicBool::new(true) });
        let dir = GatedDir { disk, gate: Arc::clone(&gate) };
        let options = FilePageStoreOptions {
            protection: Some(PageProtection::Atomic),
            journal_len_bytes: MIN_JOURNAL_LEN,
            max_open_files: 2,
            ..FilePageStoreOptions::default()
        };
        let store = FilePageStore::open_on(Arc::new(dir), None, options).unwrap();
        let read = std::thread::scope(|scope| {
            let reader = scope.spawn(|| read(&store, 3));
            // The first read keeps writers away.
            has_failed.recv_timeout(PATIENCE).unwrap();
            go.send(()).unwrap();
            has_failed.recv_timeout(PATIENCE).unwrap();
            write(&store, written, 2);
            (0..100).for_each(|_| go.send(()).unwrap());
            reader.join().unwrap()
        });
        assert!(gate.was_in_time.load(Ordering::Acquire), "the writer waited");
        match read {
            Ok(page) => assert!(written == 3 && page == image(2)),
            Err(error) => assert!(written == 5 && error.is_lost_content(), "{error}"),
        }
    }
}
