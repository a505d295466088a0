//! The disk of a simulated node: the simulated disk of `redoubt-storage`, with delays, and watched.

use crate::facts::Facts;
use redoubt_logdev::{
    BlockLogDevice, BlockLogOptions, DeviceKind, FileLogDevice, Held, LogDevice, SegmentOptions,
};
use redoubt_node::NodeError;
use redoubt_node::NodeOptions;
use redoubt_node::home::{Folder, Home};
use redoubt_node::log_device::Opened;
use redoubt_node::page_store::Description;
use redoubt_page::layout;
use redoubt_pagestore::{
    FilePageStore, FilePageStoreOptions, GrowthRecorder, ObjectId, PageStore, PageStoreError, PageStoreInfo,
    PageStoreStats, PageWrite, RetainedImage,
};
use redoubt_storage::durable_io::{DurableFile, DurableIo};
use redoubt_storage::sim::{SimDisk, SimIo};
use redoubt_storage::{
    AlignedBuffer, BudgetDir, FileBudget, StorageDir, StorageFile, UntornLimits, WriteOptions,
};
use redoubt_sync::{simulation, thread};
use redoubt_wire::Seq;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Parts of the disk, by owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Own,
    Plain,
    Log,
    Pages,
}

/// Open files of an incarnation of the node.
const OPEN_FILES: usize = 3;

/// The disk of one incarnation of the node.
pub struct Life {
    pub disk: SimDisk,
    /// The node is gone: nothing it still does reaches the disk.
    pub is_over: AtomicBool,
    /// An operation failed that was not for lack of space.
    pub had_errors: AtomicBool,
    /// An operation failed for lack of space.
    pub was_full: AtomicBool,
    /// Longest delay of an operation, in microseconds.
    pub delay_micros: AtomicU64,
    pub facts: Arc<Facts>,
    /// Bound of its open files: so few that they are closed all the time.
    open_files: Arc<FileBudget>,
}

impl Life {
    pub fn new(disk: SimDisk, facts: &Arc<Facts>) -> Arc<Self> {
        Arc::new(Self {
            disk,
            is_over: AtomicBool::new(false),
            had_errors: AtomicBool::new(false),
            was_full: AtomicBool::new(false),
            delay_micros: AtomicU64::new(0),
            facts: Arc::clone(facts),
            open_files: FileBudget::new(OPEN_FILES),
        })
    }

    /// Before each operation.
    fn begin(&self) -> io::Result<()> {
        simulation::point();
        let delay_micros = self.delay_micros.load(Ordering::Relaxed);
        if delay_micros > 0 && fastrand::u8(..4) == 0 {
            thread::sleep(Duration::from_micros(fastrand::u64(..delay_micros)));
        }
        if self.is_over.load(Ordering::Acquire) {
            return Err(io::Error::other("the process is gone"));
        }
        Ok(())
    }

    /// After each operation.
    fn end<T>(&self, what: &'static str, part: Part, result: io::Result<T>) -> io::Result<T> {
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
            self.was_full.store(true, Ordering::Release);
        }
        if let Err(error) = &result
            && !matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::StorageFull | io::ErrorKind::AlreadyExists
            )
            && !self.is_over.load(Ordering::Acquire)
        {
            self.had_errors.store(true, Ordering::Release);
            self.facts.count_fault(what);
            simulation::note(|| format!("{part:?} {what}: {error}"));
            // A thread that prepares spare segments may fail without harm: they are not in use yet.
            let is_spare = std::thread::current().name() == Some("log-spares");
            // Checksums of plain files are a cache, which a connection saves.
            let is_cache = part == Part::Plain && std::thread::current().name() == Some("connection");
            if what == "sync" && !is_spare && !is_cache {
                self.facts.sync_failed(part);
            }
        }
        simulation::trace(what.len() as u64 + u64::from(result.is_ok()));
        result
    }
}

struct WatchedDir {
    life: Arc<Life>,
    part: Part,
    dir: Arc<dyn StorageDir>,
}

struct WatchedFile {
    life: Arc<Life>,
    part: Part,
    file: Arc<dyn StorageFile>,
}

impl WatchedDir {
    fn file(&self, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(WatchedFile { life: Arc::clone(&self.life), part: self.part, file })
    }
}

impl StorageDir for WatchedDir {
    fn list(&self) -> io::Result<Vec<String>> {
        self.life.begin()?;
        self.dir.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.life.begin()?;
        Ok(self.file(self.life.end("open", self.part, self.dir.open(name))?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.life.begin()?;
        Ok(self.file(self.life.end("create", self.part, self.dir.create(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.life.begin()?;
        self.life.end("rename", self.part, self.dir.rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.life.begin()?;
        self.life.end("remove", self.part, self.dir.remove(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.life.begin()?;
        self.life.end("sync", self.part, self.dir.sync())
    }

    fn untorn_limits(&self) -> io::Result<Option<UntornLimits>> {
        self.life.begin()?;
        self.dir.untorn_limits()
    }
}

impl StorageFile for WatchedFile {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.life.begin()?;
        self.life.end("read", self.part, self.file.read_at(offset_bytes, buf))
    }

    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        self.life.begin()?;
        if self.part == Part::Plain {
            self.life.facts.plain_written(offset_bytes, bytes);
        }
        self.life.end("write", self.part, self.file.write_at(offset_bytes, bytes))
    }

    fn write_with(&self, offset_bytes: u64, bytes: &[u8], options: WriteOptions) -> io::Result<()> {
        self.life.begin()?;
        self.life.end("write", self.part, self.file.write_with(offset_bytes, bytes, options))
    }

    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.life.begin()?;
        self.life.end("allocate", self.part, self.file.allocate(offset_bytes, len_bytes))
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.life.begin()?;
        self.life.end("set_len", self.part, self.file.set_len(len_bytes))
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.life.begin()?;
        self.file.len_bytes()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.life.begin()?;
        self.life.end("sync", self.part, self.file.sync_data())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.life.begin()?;
        self.life.end("sync", self.part, self.file.sync_all())
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.life.begin()?;
        self.file.drop_cache()
    }
}

/// Durable writes, watched.
struct WatchedIo {
    life: Arc<Life>,
    io: SimIo,
}

struct WatchedDurable {
    life: Arc<Life>,
    file: Arc<dyn DurableFile>,
}

impl DurableIo for WatchedIo {
    fn slots(&self) -> usize {
        self.io.slots()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DurableFile>> {
        self.life.begin()?;
        Ok(Arc::new(WatchedDurable { life: Arc::clone(&self.life), file: self.io.open(name)? }))
    }

    fn finish(&self, slot: usize) -> io::Result<AlignedBuffer> {
        self.life.begin()?;
        self.life.end("finish", Part::Log, self.io.finish(slot))
    }
}

impl DurableFile for WatchedDurable {
    fn start(&self, slot: usize, offset_bytes: u64, buffer: AlignedBuffer) -> io::Result<()> {
        self.life.begin()?;
        self.life.end("start", Part::Log, self.file.start(slot, offset_bytes, buffer))
    }
}

/// The disk of a volume.
pub struct SimHome {
    pub life: Arc<Life>,
}

impl SimHome {
    fn dir(&self, part: Part) -> Arc<dyn StorageDir> {
        let disk = &self.life.disk;
        let dir: Arc<dyn StorageDir> = match part {
            Part::Own => Arc::new(disk.subdirectory("own")),
            Part::Plain => Arc::new(disk.subdirectory("plain")),
            Part::Pages => Arc::new(disk.subdirectory("pages")),
            Part::Log => Arc::new(disk.clone()),
        };
        let watched = Arc::new(WatchedDir { life: Arc::clone(&self.life), part, dir });
        Arc::new(BudgetDir::new(watched, &self.life.open_files))
    }
}

/// Opens a log with the options.
pub fn open_log(
    disk: &SimDisk,
    dir: Arc<dyn StorageDir>,
    io: Arc<dyn DurableIo>,
    options: &NodeOptions,
    held: Held,
) -> Result<Box<dyn LogDevice>, NodeError> {
    let segment_len_bytes = options.log.segment_len_bytes;
    let segments = SegmentOptions { segment_len_bytes, held, ..SegmentOptions::default() };
    let _ = disk;
    Ok(match options.log.device {
        Some(DeviceKind::Block) => {
            let block = BlockLogOptions {
                segments,
                write_unit_bytes: options.log.write_unit_bytes.unwrap_or(4096),
                max_in_flight: options.log.max_in_flight,
                group_len_bytes: 64 << 10,
                ..BlockLogOptions::default()
            };
            Box::new(BlockLogDevice::open_on(dir, io, block)?)
        }
        _ => Box::new(FileLogDevice::open_on(dir, segments)?),
    })
}

impl Home for SimHome {
    fn own(&self) -> Result<Folder, NodeError> {
        Ok(Folder::new(self.dir(Part::Own), Path::new("own")))
    }

    fn plain(&self) -> Result<Folder, NodeError> {
        Ok(Folder::new(self.dir(Part::Plain), Path::new("plain")))
    }

    fn log(&self, _: &str, options: &NodeOptions, held: Held) -> Result<Opened, NodeError> {
        let io = WatchedIo {
            life: Arc::clone(&self.life),
            io: SimIo::new(&self.life.disk, options.log.max_in_flight),
        };
        let device = open_log(&self.life.disk, self.dir(Part::Log), Arc::new(io), options, held)?;
        Ok(Opened {
            device,
            place: "log".to_owned(),
            reason: "simulated".to_owned(),
            warnings: Vec::new(),
            held: None,
            damage: None,
        })
    }

    fn pages(
        &self,
        _: &str,
        options: &NodeOptions,
        replaces_lost_journal: bool,
    ) -> Result<(Box<dyn PageStore>, Description), NodeError> {
        let store = FilePageStore::open_on(
            self.dir(Part::Pages),
            None,
            FilePageStoreOptions {
                protection: options.pages.protection,
                journal_len_bytes: options.pages.journal_len_bytes,
                max_open_files: 3,
                replaces_lost_journal,
            },
        )
        .map_err(|error| match error {
            PageStoreError::LostJournal { file, reason } => {
                NodeError::LostJournal { path: file.into(), reason }
            }
            error => error.into(),
        })?;
        let store = WatchedStore { store, facts: Arc::clone(&self.life.facts) };
        Ok((Box::new(store), Description::new("pages", "pages")))
    }
}

/// A page store that observes its writes.
struct WatchedStore {
    store: FilePageStore,
    facts: Arc<Facts>,
}

impl PageStore for WatchedStore {
    fn create(&self, object: ObjectId) -> Result<(), PageStoreError> {
        self.store.create(object)
    }

    fn remove_all(&self, objects: &[ObjectId]) -> Result<(), PageStoreError> {
        self.store.remove_all(objects)
    }

    fn objects(&self) -> Result<Vec<ObjectId>, PageStoreError> {
        self.store.objects()
    }

    fn read_page(&self, object: ObjectId, page_no: u32, page: &mut [u8]) -> Result<bool, PageStoreError> {
        self.store.read_page(object, page_no, page)
    }

    fn read_page_again(
        &self,
        object: ObjectId,
        page_no: u32,
        page: &mut [u8],
    ) -> Result<bool, PageStoreError> {
        self.store.read_page_again(object, page_no, page)
    }

    fn read_raw(&self, object: ObjectId, offset_bytes: u64, buf: &mut [u8]) -> Result<usize, PageStoreError> {
        self.store.read_raw(object, offset_bytes, buf)
    }

    fn write_batch(&self, writes: &[PageWrite<'_>]) -> Result<(), PageStoreError> {
        for write in writes {
            let lsn = layout::page_lsn(write.page).unwrap_or_default();
            self.facts.page_stored(write.object.0, write.page_no, lsn);
        }
        self.store.write_batch(writes)
    }

    fn seal(&self) -> Result<(), PageStoreError> {
        self.store.seal()
    }

    fn write_raw(&self, object: ObjectId, offset_bytes: u64, bytes: &[u8]) -> Result<(), PageStoreError> {
        self.store.write_raw(object, offset_bytes, bytes)
    }

    fn sync_object(&self, object: ObjectId) -> Result<(), PageStoreError> {
        self.store.sync_object(object)
    }

    fn set_len(&self, object: ObjectId, len_bytes: u64) -> Result<(), PageStoreError> {
        self.store.set_len(object, len_bytes)
    }

    fn len_bytes(&self, object: ObjectId) -> Result<u64, PageStoreError> {
        self.store.len_bytes(object)
    }

    fn found_len_bytes(&self, object: ObjectId) -> Result<u64, PageStoreError> {
        self.store.found_len_bytes(object)
    }

    fn has_lost_images(&self, object: ObjectId) -> bool {
        self.store.has_lost_images(object)
    }

    fn begin_changes(&self, position: u64) {
        self.store.begin_changes(position);
    }

    fn oldest_changes(&self) -> Option<u64> {
        self.store.oldest_changes()
    }

    fn bring_home_before(&self, position: u64) -> Result<bool, PageStoreError> {
        self.store.bring_home_before(position)
    }

    fn read_page_of_file(
        &self,
        object: ObjectId,
        page_no: u32,
        page: &mut [u8],
    ) -> Result<bool, PageStoreError> {
        self.store.read_page_of_file(object, page_no, page)
    }

    fn has_replaced_journal(&self) -> bool {
        self.store.has_replaced_journal()
    }

    fn end_replacement(&self) -> Result<(), PageStoreError> {
        self.store.end_replacement()
    }

    fn forget_found_lens(&self) -> Result<(), PageStoreError> {
        self.store.forget_found_lens()
    }

    fn synced_len_bytes(&self, object: ObjectId, synced_bytes: u64) -> Result<u64, PageStoreError> {
        self.store.synced_len_bytes(object, synced_bytes)
    }

    fn set_growth_recorder(&self, recorder: GrowthRecorder) {
        self.store.set_growth_recorder(recorder);
    }

    fn record_growth(&self) -> Result<(), PageStoreError> {
        self.store.record_growth()
    }

    fn retained_images(
        &self,
        object: ObjectId,
        page_no: u32,
        len_bytes: u32,
    ) -> Result<Vec<RetainedImage>, PageStoreError> {
        self.store.retained_images(object, page_no, len_bytes)
    }

    fn newest_images(&self, object: ObjectId, pages: Range<u32>, len_bytes: u32) -> BTreeMap<u32, u32> {
        self.store.newest_images(object, pages, len_bytes)
    }

    fn drop_cache(&self, object: ObjectId, pages: Range<u32>, len_bytes: u32) {
        self.store.drop_cache(object, pages, len_bytes);
    }

    fn info(&self) -> PageStoreInfo {
        self.store.info()
    }

    fn stats(&self) -> PageStoreStats {
        self.store.stats()
    }
}

/// Contents of the log after a power cut right now: its end, and its bytes from its start on.
pub fn log_after_power_cut(disk: &SimDisk, options: &NodeOptions) -> Result<(Seq, Vec<u8>), NodeError> {
    let after = disk.after_power_cut();
    let io = SimIo::new(&after, options.log.max_in_flight);
    let device = open_log(&after, Arc::new(after.clone()), Arc::new(io), options, Held::default())?;
    let (start, end) = (device.start(), device.end());
    let mut bytes = vec![0; (end.0 - start.0) as usize];
    device.read_at(redoubt_logdev::Seq(start.0), &mut bytes)?;
    Ok((Seq(start.0), bytes))
}
