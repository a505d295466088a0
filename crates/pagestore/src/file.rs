//! [`FilePageStore`]: objects in files, pages protected by a data journal.
//!
//! Owns a directory with `<object, 8 hex digits>.pages`, each byte for byte a tablespace file, and
//! `pages.journal` (see [`journal`]). A batch goes to the journal, is synced there, is written home in (object,
//! page) order with neighbours in one write, and the files are synced; then the journal may be used again. A batch
//! longer than the journal goes in several such rounds.
//!
//! Invariants:
//! * What the journal holds is either incomplete, or durable at home, or *pending*: a write home or a sync failed.
//!   While it is pending, pages of it are read from the journal, and nothing is written over it.
//! * What changes an object other than through the journal (`create`, `write_raw`, `set_len`) first makes sure
//!   that the journal holds no image for it, so that a crash does not bring an old image back. For a removed
//!   object nothing is written home: its file is not there.
//! * A file exists durably before its object is known, and is gone durably when `remove` returns.
//!
//! Lock order: `namespace`, `writer`, one object's `io`, `pending`; `journaled` is taken last. `io` is held for
//! one write of at most [`RUN_LEN`] bytes.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use redoubt_logdev::storage::{RealDir, StorageDir, StorageFile};
use rustc_hash::FxBuildHasher;

use crate::error::PageStoreError;
use crate::{ObjectId, PageStore, PageStoreStats, PageWrite};

mod batch;
mod journal;
mod objects;

use batch::{check_page, runs, sorted};
use journal::{JOURNAL_NAME, Journal, StoredBatch, images_at};
use objects::{Object, Objects};

/// The most bytes that one write home has, unless a page is longer.
const RUN_LEN: usize = 256 << 10;
const MIN_JOURNAL_LEN: u64 = 128 << 10;
const MAX_JOURNAL_LEN: u64 = 1 << 30;

/// How a [`FilePageStore`] is set up.
#[derive(Clone, Debug)]
pub struct FilePageStoreOptions {
    /// Length of the journal, from 128 KiB to 1 GiB. An existing journal grows to it and does not shrink.
    pub journal_len_bytes: u64,
    /// Object files to keep open, at least 1. Files with bytes that are not synced count, but stay open.
    pub max_open_files: usize,
}

impl Default for FilePageStoreOptions {
    fn default() -> Self {
        Self { journal_len_bytes: 32 << 20, max_open_files: 512 }
    }
}

impl FilePageStoreOptions {
    fn check(&self) -> Result<(), PageStoreError> {
        let len = self.journal_len_bytes;
        if !(MIN_JOURNAL_LEN..=MAX_JOURNAL_LEN).contains(&len) || !len.is_multiple_of(4096) {
            return Err(PageStoreError::InvalidOption {
                option: "journal_len_bytes",
                reason: format!(
                    "{len} is not a multiple of 4096 from {MIN_JOURNAL_LEN} to {MAX_JOURNAL_LEN}"
                ),
            });
        }
        if self.max_open_files == 0 {
            let reason = "0 files are too few: use 1 or more".into();
            return Err(PageStoreError::InvalidOption { option: "max_open_files", reason });
        }
        Ok(())
    }
}

/// Where in the journal a pending image is.
type PendingPages = HashMap<(ObjectId, u32), (u64, u32), FxBuildHasher>;

/// A page store in files of one directory. See the module's documentation.
pub struct FilePageStore {
    dir: Arc<dyn StorageDir>,
    objects: Objects,
    /// Held while names come and go.
    namespace: Mutex<()>,
    writer: Mutex<Writer>,
    /// The journal file, for reading pending pages.
    journal_file: Arc<dyn StorageFile>,
    /// Pages whose image at home cannot be relied on; empty unless something failed.
    pending: RwLock<PendingPages>,
    has_pending: AtomicBool,
    /// Objects that the journal holds images of.
    journaled: Mutex<HashSet<ObjectId, FxBuildHasher>>,
    is_poisoned: AtomicBool,
    poison_cause: OnceLock<String>,
    counters: Counters,
}

/// What whoever writes to the journal needs.
struct Writer {
    journal: Journal,
    run: Vec<u8>,
}

#[derive(Default)]
struct Counters {
    pages_written: AtomicU64,
    bytes_written_home: AtomicU64,
    bytes_written_journal: AtomicU64,
    syncs: AtomicU64,
    pages_read: AtomicU64,
    pages_replayed: AtomicU64,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl FilePageStore {
    /// Opens the store in `dir`, or creates one there, and writes home what the journal holds.
    ///
    /// # Errors
    /// [`PageStoreError::Locked`] if the directory is in use, [`PageStoreError::BadFile`],
    /// [`PageStoreError::NoSpace`] and I/O failures.
    pub fn open(dir: &Path, options: FilePageStoreOptions) -> Result<Self, PageStoreError> {
        let shown = dir.display().to_string();
        let dir = RealDir::open(dir).map_err(|source| match source.kind() {
            std::io::ErrorKind::WouldBlock => PageStoreError::Locked { dir: shown },
            _ => PageStoreError::Io { action: "open directory", file: shown, source },
        })?;
        Self::open_on(Arc::new(dir), options)
    }

    /// Like [`FilePageStore::open`], on any implementation of the file system seam. The caller sees to it that
    /// nobody else uses the directory.
    ///
    /// # Errors
    /// As [`FilePageStore::open`].
    pub fn open_on(dir: Arc<dyn StorageDir>, options: FilePageStoreOptions) -> Result<Self, PageStoreError> {
        options.check()?;
        // A name that a killed process changed may be so in memory only.
        dir.sync().map_err(PageStoreError::io("sync", "the page directory"))?;
        let names = dir.list().map_err(PageStoreError::io("list", "the page directory"))?;
        let mut ids = Vec::new();
        for name in &names {
            if let Some(id) = objects::parse_file_name(name) {
                ids.push(id?);
            }
        }
        let has_journal = names.iter().any(|name| name == JOURNAL_NAME);
        let (journal, stored) = Journal::open(&*dir, has_journal, options.journal_len_bytes)?;
        let store = Self {
            dir,
            objects: Objects::new(ids, options.max_open_files),
            namespace: Mutex::new(()),
            journal_file: journal.file().clone(),
            writer: Mutex::new(Writer { journal, run: Vec::new() }),
            pending: RwLock::default(),
            has_pending: AtomicBool::new(false),
            journaled: Mutex::default(),
            is_poisoned: AtomicBool::new(false),
            poison_cause: OnceLock::new(),
            counters: Counters::default(),
        };
        if let Some(stored) = stored {
            let mut writer = store.writer.lock();
            store.write_stored(&mut writer, &stored)?;
            writer.journal.retire()?;
        }
        Ok(store)
    }

    fn check_poison(&self) -> Result<(), PageStoreError> {
        if !self.is_poisoned.load(Ordering::Acquire) {
            return Ok(());
        }
        let cause = self.poison_cause.get().cloned().unwrap_or_default();
        Err(PageStoreError::Poisoned { cause })
    }

    /// Poisons the store if the error says that the disk's state is unknown.
    fn note(&self, error: PageStoreError) -> PageStoreError {
        if matches!(error, PageStoreError::Io { .. }) {
            let _ = self.poison_cause.set(error.to_string());
            self.is_poisoned.store(true, Ordering::Release);
        }
        error
    }

    fn file(&self, object: &Object) -> Result<Arc<dyn StorageFile>, PageStoreError> {
        self.objects.file(&*self.dir, object)
    }

    fn sync_file(&self, file: &dyn StorageFile, name: &str) -> Result<(), PageStoreError> {
        add(&self.counters.syncs, 1);
        file.sync_data().map_err(PageStoreError::io("sync", name))
    }

    fn sync_names(&self, name: &str) -> Result<(), PageStoreError> {
        add(&self.counters.syncs, 1);
        self.dir.sync().map_err(PageStoreError::io("sync the directory of", name))
    }

    /// Journals what fits, writes it home and makes it durable there; returns how many pages that were.
    fn write_some(&self, writer: &mut Writer, writes: &[PageWrite<'_>]) -> Result<usize, PageStoreError> {
        let count = writer.journal.fitting(writes);
        let (writes, _) = writes.split_at(count);
        self.journaled.lock().extend(writes.iter().map(|write| write.object));
        let written = writer.journal.write(writes)?;
        add(&self.counters.bytes_written_journal, written);
        add(&self.counters.syncs, 1);
        self.write_home(&mut writer.run, writes)?;
        let kept: HashSet<_, FxBuildHasher> = writes.iter().map(|write| write.object).collect();
        *self.journaled.lock() = kept;
        add(&self.counters.pages_written, count as u64);
        Ok(count)
    }

    /// Writes pages that are durable in the journal to their files and syncs those. Objects without a file were
    /// removed; their pages are left out. On failure the pages are pending.
    fn write_home(&self, run_buffer: &mut Vec<u8>, writes: &[PageWrite<'_>]) -> Result<(), PageStoreError> {
        let mut touched: Vec<(Arc<Object>, Arc<dyn StorageFile>)> = Vec::new();
        for run in runs(writes, RUN_LEN) {
            let Some(first) = run.first() else { continue };
            let Ok(object) = self.objects.get(first.object) else { continue };
            let file = match touched.last() {
                Some((last, file)) if last.id == object.id => file.clone(),
                _ => {
                    let file = self.file(&object).inspect_err(|_| self.set_pending(writes))?;
                    touched.push((object.clone(), file.clone()));
                    file
                }
            };
            let bytes = batch::join(run, run_buffer);
            let at = u64::from(first.page_no) * first.page.len() as u64;
            let _no_reader = object.io.write();
            if let Err(source) = file.write_at(at, bytes) {
                // Before a reader can see what the failed write left.
                self.set_pending(writes);
                return Err(PageStoreError::io_or_no_space("write pages to", &object.name)(source));
            }
            add(&self.counters.bytes_written_home, bytes.len() as u64);
        }
        for (object, file) in &touched {
            // What a failed sync leaves in memory may vanish from there at any time.
            self.sync_file(&**file, &object.name).inspect_err(|_| self.set_pending(writes))?;
        }
        Ok(())
    }

    /// From here on, reads of these pages go to the journal.
    fn set_pending(&self, writes: &[PageWrite<'_>]) {
        let mut pending = self.pending.write();
        pending.clear();
        let mut at = images_at(writes.len()) as u64;
        for write in writes {
            pending.insert((write.object, write.page_no), (at, write.page.len() as u32));
            at += write.page.len() as u64;
        }
        self.has_pending.store(true, Ordering::Release);
    }

    /// Writes a batch home that the journal holds.
    fn write_stored(&self, writer: &mut Writer, stored: &StoredBatch) -> Result<(), PageStoreError> {
        let pages = stored.pages();
        self.write_home(&mut writer.run, &pages)?;
        add(&self.counters.pages_replayed, pages.len() as u64);
        Ok(())
    }

    /// Finishes a pending batch, if there is one.
    fn settle(&self, writer: &mut Writer) -> Result<(), PageStoreError> {
        self.check_poison()?;
        if !self.has_pending.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(stored) = writer.journal.read()? else {
            let reason = "the batch it held is no longer readable: check the disk and restart";
            let error = PageStoreError::BadFile { file: JOURNAL_NAME.into(), reason: reason.into() };
            let _ = self.poison_cause.set(error.to_string());
            self.is_poisoned.store(true, Ordering::Release);
            return Err(error);
        };
        self.write_stored(writer, &stored)?;
        let mut pending = self.pending.write();
        pending.clear();
        self.has_pending.store(false, Ordering::Release);
        Ok(())
    }

    /// Makes sure that the journal holds nothing of an object that is about to change in another way.
    fn forget_journaled(&self, object: ObjectId) -> Result<(), PageStoreError> {
        self.check_poison()?;
        if !self.journaled.lock().contains(&object) {
            return Ok(());
        }
        let mut writer = self.writer.lock();
        self.settle(&mut writer)?;
        writer.journal.retire()?;
        self.journaled.lock().clear();
        Ok(())
    }

    fn create_file(&self, object: ObjectId) -> Result<(), PageStoreError> {
        let _names = self.namespace.lock();
        if self.objects.contains(object) {
            return Ok(());
        }
        self.forget_journaled(object)?;
        let name = objects::file_name(object);
        self.dir.create(&name).map_err(PageStoreError::io_or_no_space("create", &name))?;
        self.sync_names(&name)?;
        self.objects.insert(object);
        Ok(())
    }

    fn remove_file(&self, object: ObjectId) -> Result<(), PageStoreError> {
        let _names = self.namespace.lock();
        let _no_batch = self.writer.lock();
        if !self.objects.contains(object) {
            return Ok(());
        }
        let name = objects::file_name(object);
        self.objects.remove(object);
        self.dir.remove(&name).map_err(PageStoreError::io("remove", &name))?;
        self.sync_names(&name)
    }

    /// Sorts, checks and writes a batch.
    fn write_all(&self, writes: &[PageWrite<'_>]) -> Result<(), PageStoreError> {
        let writes = sorted(writes)?;
        let mut writer = self.writer.lock();
        self.settle(&mut writer)?;
        for pages in writes.chunk_by(|a, b| a.object == b.object) {
            if let Some(first) = pages.first() {
                self.objects.get(first.object)?;
            }
        }
        let mut rest = &writes[..];
        while !rest.is_empty() {
            let count = self.write_some(&mut writer, rest)?;
            rest = rest.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    fn write_pieces(&self, object: ObjectId, offset_bytes: u64, bytes: &[u8]) -> Result<(), PageStoreError> {
        self.forget_journaled(object)?;
        let object = self.objects.get(object)?;
        object.has_unsynced.store(true, Ordering::Release);
        let file = self.file(&object)?;
        let mut at = offset_bytes;
        for piece in bytes.chunks(RUN_LEN) {
            let _no_reader = object.io.write();
            file.write_at(at, piece).map_err(PageStoreError::io_or_no_space("write to", &object.name))?;
            at += piece.len() as u64;
            add(&self.counters.bytes_written_home, piece.len() as u64);
        }
        Ok(())
    }

    /// Reads a pending page from the journal. `None` if it is not pending.
    fn read_pending(&self, object: ObjectId, page_no: u32, page: &mut [u8]) -> Option<std::io::Result<()>> {
        let pending = self.pending.read();
        let &(at, len) = pending.get(&(object, page_no))?;
        if len as usize != page.len() {
            return None;
        }
        // Under the lock, since the journal is not written to while there is something pending.
        Some(self.journal_file.read_at(at, page).map(|_| ()))
    }
}

impl PageStore for FilePageStore {
    fn create(&self, object: ObjectId) -> Result<(), PageStoreError> {
        self.check_poison()?;
        self.create_file(object).map_err(|error| self.note(error))
    }

    fn remove(&self, object: ObjectId) -> Result<(), PageStoreError> {
        self.check_poison()?;
        self.remove_file(object).map_err(|error| self.note(error))
    }

    fn objects(&self) -> Result<Vec<ObjectId>, PageStoreError> {
        Ok(self.objects.ids())
    }

    fn read_page(&self, object: ObjectId, page_no: u32, page: &mut [u8]) -> Result<bool, PageStoreError> {
        let object = self.objects.get(object)?;
        let file = self.file(&object)?;
        add(&self.counters.pages_read, 1);
        let at = u64::from(page_no) * page.len() as u64;
        let _no_writer = object.io.read();
        if self.has_pending.load(Ordering::Acquire)
            && let Some(read) = self.read_pending(object.id, page_no, page)
        {
            return read.map(|()| true).map_err(PageStoreError::read(JOURNAL_NAME, at));
        }
        let n = file.read_at(at, page).map_err(PageStoreError::read(&object.name, at))?;
        if let Some(rest) = page.get_mut(n..) {
            rest.fill(0);
        }
        Ok(n > 0)
    }

    fn read_raw(&self, object: ObjectId, offset_bytes: u64, buf: &mut [u8]) -> Result<usize, PageStoreError> {
        if self.has_pending.load(Ordering::Acquire) {
            self.settle(&mut self.writer.lock()).map_err(|error| self.note(error))?;
        }
        let object = self.objects.get(object)?;
        let file = self.file(&object)?;
        let _no_writer = object.io.read();
        file.read_at(offset_bytes, buf).map_err(PageStoreError::read(&object.name, offset_bytes))
    }

    fn write_batch(&self, writes: &[PageWrite<'_>]) -> Result<(), PageStoreError> {
        self.check_poison()?;
        for write in writes {
            check_page(write)?;
        }
        self.write_all(writes).map_err(|error| self.note(error))
    }

    fn write_raw(&self, object: ObjectId, offset_bytes: u64, bytes: &[u8]) -> Result<(), PageStoreError> {
        self.check_poison()?;
        self.write_pieces(object, offset_bytes, bytes).map_err(|error| self.note(error))
    }

    fn sync_object(&self, object: ObjectId) -> Result<(), PageStoreError> {
        self.check_poison()?;
        let object = self.objects.get(object)?;
        let file = self.file(&object)?;
        // Before the sync: what is written during it is not covered.
        object.has_unsynced.store(false, Ordering::Release);
        self.sync_file(&*file, &object.name).map_err(|error| self.note(error))
    }

    fn set_len(&self, object: ObjectId, len_bytes: u64) -> Result<(), PageStoreError> {
        self.forget_journaled(object).map_err(|error| self.note(error))?;
        let object = self.objects.get(object)?;
        let file = self.file(&object)?;
        let set = {
            let _no_reader = object.io.write();
            file.set_len(len_bytes).map_err(PageStoreError::io_or_no_space("set the length of", &object.name))
        };
        set.and_then(|()| self.sync_file(&*file, &object.name)).map_err(|error| self.note(error))
    }

    fn len_bytes(&self, object: ObjectId) -> Result<u64, PageStoreError> {
        let object = self.objects.get(object)?;
        let file = self.file(&object)?;
        file.len_bytes().map_err(PageStoreError::read(&object.name, 0))
    }

    fn stats(&self) -> PageStoreStats {
        let counters = &self.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PageStoreStats {
            pages_written: get(&counters.pages_written),
            bytes_written_home: get(&counters.bytes_written_home),
            bytes_written_journal: get(&counters.bytes_written_journal),
            syncs: get(&counters.syncs),
            pages_read: get(&counters.pages_read),
            pages_replayed: get(&counters.pages_replayed),
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod crash_tests;
