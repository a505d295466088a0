//! [`FilePageStore`]: objects in files, pages protected by one of three modes.
//!
//! Owns a directory with `<object, 8 hex digits>.pages`, each byte for byte a tablespace file; `pages.identity` (see
//! [`identity`]); and, there or in a directory of its own, the ring journal `pages.journal` (see [`ring`]).
//!
//! | mode | writes of a batch before it returns | later writes home |
//! |---|---|---|
//! | `atomic` | each page goes home in one untorn write, then the files are synced (see [`atomic`]) | |
//! | `journal` | images go to the ring, which is synced | pages that are in the oldest part of the ring, when it needs room, in page order, each only in its newest version (see [`write`](self::write)) |
//! | `doublewrite` | images go to the ring, which is synced; then home, and the files are synced | |
//!
//! Invariants:
//! * Of every page, either the file holds the newest version, durably, or the page is *pending*: the newest version is
//!   durable in the ring, and read from there. So a torn or failed write home is never visible.
//! * Images in the ring that are older than the file's come back after a crash only until newer ones after them do, or
//!   a forget record. Some operations change an object other than through the ring: `create`, `write_raw`, a `set_len`
//!   that cuts, pages in mode `atomic`. They first ensure that the ring has no image of the object that would come
//!   back. For a removed object nothing goes home: its file is not there.
//! * A file exists durably before its object is known, and is gone durably when `remove` returns.
//! * Pages written home are synced before the room of its images is used again.
//!
//! Lock order: `namespace`, `writer`, one object's `io`, `pending`. `io` is held for one write of at most
//! [`RUN_LEN`] bytes; `pending` never during input or output.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use redoubt_storage::{RealDir, StorageDir, StorageFile, UntornLimits};
use redoubt_sync::{Mutex, RwLock};

use crate::error::PageStoreError;
use crate::{ObjectId, PageStore, PageStoreInfo, PageStoreStats, PageWrite, RetainedImage};

mod atomic;
mod batch;
mod heat;
mod home;
mod identity;
mod objects;
mod open;
mod options;
mod pending;
#[cfg(test)]
mod planted;
mod protection;
mod ring;
mod write;

use batch::check_page;
use home::{Home, RUN_LEN, Scratch, add};
use objects::Object;
pub use options::FilePageStoreOptions;
use pending::{PageLocation, Pending};
pub use protection::PageProtection;
use ring::{ImageLocation, RingReader};
use write::Writer;

/// A page store in files of one directory. See the module's documentation.
pub struct FilePageStore {
    home: Home,
    protection: PageProtection,
    reason: String,
    untorn: Option<UntornLimits>,
    /// Held while names come and go.
    namespace: Mutex<()>,
    writer: Mutex<Writer>,
    /// The ring, for reading pending pages.
    reader: RingReader,
    journal_len_bytes: u64,
    /// Bytes of the ring that are in use.
    live_bytes: AtomicU64,
    pending: RwLock<Pending>,
    /// How many pages are pending.
    pending_pages: AtomicUsize,
    is_poisoned: AtomicBool,
    poison_cause: OnceLock<String>,
}

fn open_dir(path: &Path) -> Result<Arc<dyn StorageDir>, PageStoreError> {
    let shown = path.display().to_string();
    match RealDir::open(path) {
        Ok(dir) => Ok(Arc::new(dir)),
        Err(source) if source.kind() == std::io::ErrorKind::WouldBlock => {
            Err(PageStoreError::Locked { dir: shown })
        }
        Err(source) => Err(PageStoreError::Io { action: "open directory", file: shown, source }),
    }
}

impl FilePageStore {
    /// Opens the store in `pages`, or creates one there. The journal lies in `journal`, or with the pages.
    ///
    /// A journal that lies with the pages is brought home and moved if `journal` names another directory; for the
    /// way back, move the file.
    ///
    /// # Errors
    /// [`PageStoreError::Locked`] if a directory is in use, [`PageStoreError::BadFile`] if the journal is not the right
    /// one or damaged, [`PageStoreError::InvalidOption`] if untorn writes are asked for where there are none,
    /// [`PageStoreError::NoSpace`] and I/O failures.
    pub fn open(
        pages: &Path,
        journal: Option<&Path>,
        options: FilePageStoreOptions,
    ) -> Result<Self, PageStoreError> {
        let pages_dir = open_dir(pages)?;
        let is_elsewhere = |path: &&Path| match (path.canonicalize(), pages.canonicalize()) {
            (Ok(journal), Ok(pages)) => journal != pages,
            _ => true,
        };
        let journal = journal.filter(is_elsewhere).map(open_dir).transpose()?;
        Self::open_on(pages_dir, journal, options)
    }

    /// Checks that a store in these directories is of a format that [`FilePageStore::open_on`] can read. Changes
    /// nothing.
    ///
    /// # Errors
    /// [`PageStoreError::BadFile`]; I/O failures.
    pub fn check(pages: &dyn StorageDir, journal: Option<&dyn StorageDir>) -> Result<(), PageStoreError> {
        open::check(pages, journal)
    }

    /// Like [`FilePageStore::open`], on any implementation of the file system seam. The caller sees to it that
    /// no other process uses the directories.
    ///
    /// # Errors
    /// As [`FilePageStore::open`].
    pub fn open_on(
        pages: Arc<dyn StorageDir>,
        journal: Option<Arc<dyn StorageDir>>,
        options: FilePageStoreOptions,
    ) -> Result<Self, PageStoreError> {
        options.check()?;
        let untorn = pages.untorn_limits().map_err(PageStoreError::io("probe", "the page directory"))?;
        let (protection, reason) = protection::choose(options.protection, untorn)?;
        // A name that a killed process changed may be so in memory only.
        for (dir, name) in [(Some(&pages), "the page directory"), (journal.as_ref(), "the journal directory")]
        {
            if let Some(dir) = dir {
                dir.sync().map_err(PageStoreError::io("sync", name))?;
            }
        }
        let names = pages.list().map_err(PageStoreError::io("list", "the page directory"))?;
        let ids = names.iter().filter_map(|name| objects::parse_file_name(name));
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        let home = Home::new(pages.clone(), ids, options.max_open_files);
        let wanted = open::Wanted {
            pages: &*pages,
            journal: journal.as_deref(),
            protection,
            journal_len_bytes: options.journal_len_bytes,
        };
        let (ring, pending) = open::open_ring(&home, &wanted, &names)?;
        Ok(Self {
            home,
            protection,
            reason,
            untorn,
            namespace: Mutex::new(()),
            reader: ring.reader().clone(),
            journal_len_bytes: ring.file_len_bytes(),
            live_bytes: AtomicU64::new(ring.live_bytes()),
            writer: Mutex::new(Writer { ring, scratch: Scratch::default() }),
            pending_pages: AtomicUsize::new(pending.len()),
            pending: RwLock::new(pending),
            is_poisoned: AtomicBool::new(false),
            poison_cause: OnceLock::new(),
        })
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
        if matches!(error, PageStoreError::Io { .. } | PageStoreError::DamagedImage { .. }) {
            let _ = self.poison_cause.set(error.to_string());
            self.is_poisoned.store(true, Ordering::Release);
        }
        error
    }

    /// The object's file. Opening it may include a sync, whose failure is as bad as that of any sync.
    fn file(&self, object: &Arc<Object>) -> Result<Arc<dyn StorageFile>, PageStoreError> {
        self.home.file(object).map_err(|error| self.note(error))
    }

    fn create_file(&self, object: ObjectId) -> Result<(), PageStoreError> {
        let _names = self.namespace.lock();
        if self.home.objects.contains(object) {
            return Ok(());
        }
        self.forget(&mut self.writer.lock(), object)?;
        let name = objects::file_name(object);
        self.home.dir.create(&name).map_err(PageStoreError::io_or_no_space("create", &name))?;
        self.home.sync_names(&name)?;
        self.home.objects.insert(object);
        Ok(())
    }

    fn remove_files(&self, objects: &[ObjectId]) -> Result<(), PageStoreError> {
        let _names = self.namespace.lock();
        let mut writer = self.writer.lock();
        let mut last_name = None;
        for &object in objects {
            if !self.home.objects.contains(object) {
                continue;
            }
            let name = objects::file_name(object);
            self.home.objects.remove(object);
            {
                let mut pending = self.pending.write();
                add(&self.home.counters.images_superseded, pending.remove_object(object) as u64);
                self.pending_pages.store(pending.len(), Ordering::Release);
            }
            writer.ring.object_changed(object);
            self.home.dir.remove(&name).map_err(PageStoreError::io("remove", &name))?;
            last_name = Some(name);
        }
        last_name.map_or(Ok(()), |name| self.home.sync_names(&name))
    }

    fn write_pieces(&self, object: ObjectId, offset_bytes: u64, bytes: &[u8]) -> Result<(), PageStoreError> {
        self.forget(&mut self.writer.lock(), object)?;
        let object = self.home.objects.get(object)?;
        object.has_unsynced.store(true, Ordering::Release);
        let file = self.home.file(&object)?;
        let mut at = offset_bytes;
        for piece in bytes.chunks(RUN_LEN) {
            let _no_reader = object.io.write();
            file.write_at(at, piece).map_err(PageStoreError::io_or_no_space("write to", &object.name))?;
            at += piece.len() as u64;
            add(&self.home.counters.bytes_written_home, piece.len() as u64);
        }
        Ok(())
    }

    fn change_len(&self, object: ObjectId, len_bytes: u64) -> Result<(), PageStoreError> {
        let mut writer = self.writer.lock();
        self.check_poison()?;
        // Images in the ring lie within the present length, so they matter only if that is cut.
        if len_bytes < self.len_bytes(object)? {
            self.forget(&mut writer, object)?;
        }
        let object = self.home.objects.get(object)?;
        let file = self.home.file(&object)?;
        {
            let _no_reader = object.io.write();
            file.set_len(len_bytes)
                .map_err(PageStoreError::io_or_no_space("set the length of", &object.name))?;
        }
        self.home.sync_file(&*file, &object.name)
    }

    fn locate(&self, object: ObjectId, page_no: u32, len: usize) -> PageLocation {
        match self.pending_pages.load(Ordering::Acquire) {
            0 => PageLocation::Home(0),
            _ => self.pending.read().locate(object, page_no, len),
        }
    }

    fn read_home(
        &self,
        object: &Arc<Object>,
        at: u64,
        end: u64,
        page: &mut [u8],
    ) -> Result<bool, PageStoreError> {
        let file = self.file(object)?;
        let n = file.read_at(at, page).map_err(PageStoreError::read(&object.name, at))?;
        if let Some(rest) = page.get_mut(n..) {
            rest.fill(0);
        }
        Ok(n > 0 || at < end)
    }
}

impl PageStore for FilePageStore {
    fn create(&self, object: ObjectId) -> Result<(), PageStoreError> {
        self.check_poison()?;
        self.create_file(object).map_err(|error| self.note(error))
    }

    fn remove_all(&self, objects: &[ObjectId]) -> Result<(), PageStoreError> {
        self.check_poison()?;
        self.remove_files(objects).map_err(|error| self.note(error))
    }

    fn objects(&self) -> Result<Vec<ObjectId>, PageStoreError> {
        Ok(self.home.objects.ids())
    }

    fn read_page(&self, object: ObjectId, page_no: u32, page: &mut [u8]) -> Result<bool, PageStoreError> {
        let object = self.home.objects.get(object)?;
        add(&self.home.counters.pages_read, 1);
        let at = u64::from(page_no) * page.len() as u64;
        let mut failed: Option<ImageLocation> = None;
        loop {
            let no_writer = object.io.read();
            match self.locate(object.id, page_no, page.len()) {
                PageLocation::Home(end) => return self.read_home(&object, at, end, page),
                // It was not gone home meanwhile, and its room used again.
                PageLocation::Ring(image) if failed == Some(image) => {
                    return Err(self.reader.damaged(object.id, page_no, image));
                }
                PageLocation::Ring(image) => {
                    drop(no_writer);
                    if self.reader.read_image(image, page)? {
                        return Ok(true);
                    }
                    failed = Some(image);
                }
                PageLocation::OtherLength => {
                    drop(no_writer);
                    self.settle_object(&mut self.writer.lock(), object.id)
                        .map_err(|error| self.note(error))?;
                }
            }
        }
    }

    fn will_read(&self, object: ObjectId, page_nos: &[u32], page_len_bytes: usize) {
        let Ok(file) = self.home.objects.get(object).and_then(|object| self.file(&object)) else { return };
        // Images in the ring were written recently.
        let is_home =
            |page_no: u32| matches!(self.locate(object, page_no, page_len_bytes), PageLocation::Home(_));
        let len = page_len_bytes as u64;
        let at_home: Vec<_> = page_nos.iter().copied().filter(|page_no| is_home(*page_no)).collect();
        for neighbours in at_home.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
            let Some(first) = neighbours.first() else { continue };
            file.will_read(u64::from(*first) * len, neighbours.len() as u64 * len);
        }
    }

    fn read_raw(&self, object: ObjectId, offset_bytes: u64, buf: &mut [u8]) -> Result<usize, PageStoreError> {
        if self.pending.read().page_len(object).is_some() {
            self.settle_object(&mut self.writer.lock(), object).map_err(|error| self.note(error))?;
        }
        let object = self.home.objects.get(object)?;
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

    fn seal(&self) -> Result<(), PageStoreError> {
        self.write_seal(&mut self.writer.lock()).map_err(|error| self.note(error))
    }

    fn write_raw(&self, object: ObjectId, offset_bytes: u64, bytes: &[u8]) -> Result<(), PageStoreError> {
        self.check_poison()?;
        self.write_pieces(object, offset_bytes, bytes).map_err(|error| self.note(error))
    }

    fn sync_object(&self, object: ObjectId) -> Result<(), PageStoreError> {
        self.check_poison()?;
        let object = self.home.objects.get(object)?;
        let file = self.file(&object)?;
        // Before the sync: what is written during it is not covered.
        object.has_unsynced.store(false, Ordering::Release);
        self.home.sync_file(&*file, &object.name).map_err(|error| self.note(error))?;
        self.home.objects.may_be_closed(&object);
        Ok(())
    }

    fn set_len(&self, object: ObjectId, len_bytes: u64) -> Result<(), PageStoreError> {
        self.change_len(object, len_bytes).map_err(|error| self.note(error))
    }

    fn len_bytes(&self, object: ObjectId) -> Result<u64, PageStoreError> {
        let object = self.home.objects.get(object)?;
        let file = self.file(&object)?;
        // First: what ceases to be pending in between is in the file by then.
        let pending_end = self.pending.read().end(object.id);
        let len = file.len_bytes().map_err(PageStoreError::read(&object.name, 0))?;
        Ok(len.max(pending_end))
    }

    fn retained_images(
        &self,
        object: ObjectId,
        page_no: u32,
        len_bytes: u32,
    ) -> Result<Vec<RetainedImage>, PageStoreError> {
        let writer = self.writer.lock();
        let mut images = Vec::new();
        for (number, image) in writer.ring.images(object, page_no, len_bytes).into_iter().enumerate() {
            let mut page = vec![0; len_bytes as usize];
            if self.reader.read_image(image, &mut page)? {
                // In mode `atomic` pages also go home past the ring.
                let is_newest = number == 0 && self.protection != PageProtection::Atomic;
                images.push(RetainedImage { page, is_newest });
            }
        }
        Ok(images)
    }

    fn info(&self) -> PageStoreInfo {
        PageStoreInfo {
            protection: self.protection,
            reason: self.reason.clone(),
            journal_len_bytes: self.journal_len_bytes,
            journal_live_bytes: self.live_bytes.load(Ordering::Relaxed),
            pending_pages: self.pending_pages.load(Ordering::Relaxed) as u64,
            untorn: self.untorn,
        }
    }

    fn stats(&self) -> PageStoreStats {
        self.home.counters.stats()
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod crash_tests;
