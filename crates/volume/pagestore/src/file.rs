//! [`FilePageStore`]: objects in files, pages protected by one of three modes.
//!
//! Owns a directory with `<object, 8 hex digits>.pages`, each byte for byte a tablespace file; `pages.identity` (see
//! [`identity`]); sometimes `pages.lengths` (see [`found_lens`]); and, there or in a directory of its own, the ring journal `pages.journal` (see [`ring`]).
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
//! * Pages written home are synced, and the lengths of their files recorded ([`growth`]), before the room of its images is
//!   used again.
//! * A damaged image is an error when its page is read, unless the page at home is the same. It stops nothing else: if
//!   its room is wanted, it goes home, and there its page fails the page checksum. An image or a page that the drive
//!   cannot read is damaged if other bytes of the store are readable (see [`lost`]).
//!
//! Lock order: `namespace`, `writer`, one object's `io`, `pending`. `io` is held for one read, or one write of at most
//! [`RUN_LEN`] bytes; `pending` never during input or output. A page that the drive fails to read is read again without
//! `io` ([`lost`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use redoubt_storage::{RealDir, StorageDir, StorageFile, UntornLimits, is_lost_content};
use redoubt_sync::{Mutex, RwLock};

use crate::error::PageStoreError;
use crate::{
    GrowthRecorder, ObjectId, PageStore, PageStoreInfo, PageStoreStats, PageWrite, RetainedImage,
    UNKNOWN_ORIGIN,
};

mod atomic;
mod batch;
mod examine;
mod found_lens;
mod growth;
mod heat;
mod home;
mod identity;
mod lost;
mod names;
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
use lost::{Drive, Patience};
use objects::Object;
pub use options::FilePageStoreOptions;
use pending::{PageLocation, Pending};
pub use protection::PageProtection;
pub use ring::JOURNAL_NAME;
use ring::{ImageLocation, RingReader};
use write::Writer;

/// Objects that are read to see whether the drive works.
const PROBED_OBJECTS: usize = 8;

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
    /// See [`PageStore::begin_changes`].
    origin: AtomicU64,
    /// Directory of the journal, if it is not with the pages.
    journal_dir: Option<Arc<dyn StorageDir>>,
    has_replaced_journal: AtomicBool,
    is_poisoned: AtomicBool,
    poison_cause: OnceLock<String>,
}

/// Offset of a page in its file.
fn offset_of(page_no: u32, page: &[u8]) -> u64 {
    u64::from(page_no) * page.len() as u64
}

/// Fills the rest of a page after the `len` bytes that were read at `at`. False: all of it is past the end of an object
/// that reaches at least to `end`.
fn complete(page: &mut [u8], len: usize, at: u64, end: u64) -> bool {
    if let Some(rest) = page.get_mut(len..) {
        rest.fill(0);
    }
    len > 0 || at < end
}

fn lost_page(object: &Object, page_no: u32, offset_bytes: u64, source: std::io::Error) -> PageStoreError {
    PageStoreError::LostPage { object: object.id, page_no, file: object.name.clone(), offset_bytes, source }
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
            replaces_lost_journal: options.replaces_lost_journal,
        };
        let open::Opened { ring, pending, is_replaced } = open::open_ring(&home, &wanted, &names)?;
        Ok(Self {
            home,
            protection,
            reason,
            untorn,
            namespace: Mutex::new(()),
            reader: ring.reader().clone(),
            journal_len_bytes: ring.file_len_bytes(),
            live_bytes: AtomicU64::new(ring.live_bytes()),
            writer: Mutex::new(Writer { ring, scratch: Scratch::default(), cut: None }),
            pending_pages: AtomicUsize::new(pending.len()),
            pending: RwLock::new(pending),
            origin: AtomicU64::new(UNKNOWN_ORIGIN),
            journal_dir: journal,
            has_replaced_journal: AtomicBool::new(is_replaced),
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
        if matches!(error, PageStoreError::Io { .. }) {
            let _ = self.poison_cause.set(error.to_string());
            self.is_poisoned.store(true, Ordering::Release);
        }
        error
    }

    /// The object's file. Opening it may include a sync, whose failure is as bad as that of any sync.
    fn file(&self, object: &Arc<Object>) -> Result<Arc<dyn StorageFile>, PageStoreError> {
        self.home.file(object).map_err(|error| self.note(error))
    }

    fn write_pieces(&self, object: ObjectId, offset_bytes: u64, bytes: &[u8]) -> Result<(), PageStoreError> {
        self.forget(&mut self.writer.lock(), object)?;
        let object = self.home.objects.get(object)?;
        object.has_unsynced.store(true, Ordering::Release);
        let file = self.home.file(&object)?;
        let mut at = offset_bytes;
        for piece in bytes.chunks(RUN_LEN) {
            let _no_reader = object.begin_write(at..at + piece.len() as u64);
            file.write_at(at, piece).map_err(PageStoreError::io_or_no_space("write to", &object.name))?;
            at += piece.len() as u64;
            add(&self.home.counters.bytes_written_home, piece.len() as u64);
        }
        Ok(())
    }

    fn locate(&self, object: ObjectId, page_no: u32, len: usize) -> PageLocation {
        match self.pending_pages.load(Ordering::Acquire) {
            0 => PageLocation::Home(0),
            _ => self.pending.read().locate(object, page_no, len),
        }
    }

    /// Reads a page at home. The object is not written meanwhile. `None`: the drive failed to read it.
    fn read_home(
        &self,
        object: &Arc<Object>,
        page_no: u32,
        end: u64,
        page: &mut [u8],
    ) -> Result<Option<bool>, PageStoreError> {
        let file = self.file(object)?;
        let at = offset_of(page_no, page);
        if let Some(source) = object.lost.find(at, page.len()) {
            return Err(lost_page(object, page_no, at, source));
        }
        match file.read_at(at, page) {
            Ok(len) => Ok(Some(complete(page, len, at, end))),
            Err(error) if is_lost_content(&error) => Ok(None),
            Err(error) => Err(PageStoreError::read(&object.name, at)(error)),
        }
    }

    /// Reads a page at home that [`FilePageStore::read_home`] failed to read. Without a lock of the writers: it may take
    /// long. `None`: the object was written meanwhile, since it had this number of writes.
    fn read_failed(
        &self,
        object: &Arc<Object>,
        page_no: u32,
        writes: u64,
        page: &mut [u8],
    ) -> Result<Option<bool>, PageStoreError> {
        let _examining = object.lost.examining.lock();
        let (file, at) = (self.file(object)?, offset_of(page_no, page));
        if let Some(source) = object.lost.find(at, page.len()) {
            return Err(lost_page(object, page_no, at, source));
        }
        let patience = Patience::begin();
        let read = lost::read_again(&*file, at, page, patience);
        let is_lost = read.as_ref().is_err_and(is_lost_content)
            && self.is_readable_elsewhere(object, &*file, at..at + page.len() as u64, patience);
        let _no_writer = object.io.read();
        let PageLocation::Home(end) = self.locate(object.id, page_no, page.len()) else { return Ok(None) };
        if object.writes.load(Ordering::Acquire) != writes {
            return Ok(None);
        }
        match read {
            Ok(len) => Ok(Some(complete(page, len, at, end))),
            Err(source) if is_lost => {
                object.lost.note(at, page.len(), &source);
                Err(lost_page(object, page_no, at, source))
            }
            Err(source) => Err(PageStoreError::read(&object.name, at)(source)),
        }
    }

    /// The drive reads other bytes than these of an object: of the same file, or of another one if it reads no others.
    fn is_readable_elsewhere(
        &self,
        object: &Object,
        file: &dyn StorageFile,
        lost: Range<u64>,
        patience: Patience,
    ) -> bool {
        let mut drive = lost::examine(file, lost, patience);
        let others = self.home.objects.ids().into_iter().filter(|id| *id != object.id).take(PROBED_OBJECTS);
        for id in others {
            if drive != Drive::ReadsNothing || patience.is_long_over() {
                break;
            }
            let other = self.home.objects.get(id).and_then(|other| self.file(&other));
            drive = other.map_or(drive, |file| lost::examine(&*file, 0..0, patience));
        }
        drive == Drive::Works
    }

    /// A page whose image in the ring failed a read. Only certain if the image is still in the ring afterwards. Without a
    /// lock of the writers: it may take long.
    fn read_damaged(
        &self,
        object: &Arc<Object>,
        page_no: u32,
        image: ImageLocation,
        page: &mut [u8],
    ) -> Result<bool, PageStoreError> {
        if self.reader.read_image_again(image, page)? {
            return Ok(true);
        }
        let at_home = self.home.find_image(object, page_no, image)?;
        if let Some(found) = &at_home {
            page.copy_from_slice(found);
        }
        Ok(at_home.is_some())
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
        let mut failed: Option<ImageLocation> = None;
        loop {
            let no_writer = object.io.read();
            match self.locate(object.id, page_no, page.len()) {
                PageLocation::Home(end) => {
                    let mut read = self.read_home(&object, page_no, end, page)?;
                    if read.is_none() {
                        let writes = object.writes.load(Ordering::Acquire);
                        drop(no_writer);
                        read = self.read_failed(&object, page_no, writes, page)?;
                    }
                    if let Some(is_there) = read {
                        return Ok(is_there);
                    }
                }
                PageLocation::Ring(image) if failed == Some(image) => {
                    drop(no_writer);
                    let read = self.read_damaged(&object, page_no, image, page);
                    let _no_writer = object.io.read();
                    // It was not gone home meanwhile, and its room used again.
                    if self.locate(object.id, page_no, page.len()) == PageLocation::Ring(image) {
                        let is_read = read?;
                        let damaged = || self.reader.damaged(object.id, page_no, image);
                        return is_read.then_some(true).ok_or_else(damaged);
                    }
                    failed = None;
                }
                PageLocation::Ring(image) => {
                    drop(no_writer);
                    match self.reader.read_image(image, page) {
                        Ok(true) => return Ok(true),
                        Err(error) if !error.is_lost_content() => return Err(error),
                        _ => failed = Some(image),
                    }
                }
                PageLocation::OtherLength => {
                    drop(no_writer);
                    self.settle_object(&mut self.writer.lock(), object.id)
                        .map_err(|error| self.note(error))?;
                }
            }
        }
    }

    fn read_page_again(
        &self,
        object: ObjectId,
        page_no: u32,
        page: &mut [u8],
    ) -> Result<bool, PageStoreError> {
        let file = self.file(&self.home.objects.get(object)?)?;
        // Without effect, the same bytes are read from memory.
        let _ = file.drop_cache_of(u64::from(page_no) * page.len() as u64, page.len() as u64);
        self.read_page(object, page_no, page)
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
        let had_unsynced = object.has_unsynced.swap(false, Ordering::AcqRel);
        let synced = self.home.sync_file(&*file, &object.name);
        object.has_unsynced.fetch_or(had_unsynced && synced.is_err(), Ordering::AcqRel);
        synced.map_err(|error| self.note(error))?;
        self.home.objects.may_be_closed(&object);
        Ok(())
    }

    fn set_len(&self, object: ObjectId, len_bytes: u64) -> Result<(), PageStoreError> {
        self.change_len(object, len_bytes).map_err(|error| self.note(error))
    }

    fn len_bytes(&self, object: ObjectId) -> Result<u64, PageStoreError> {
        self.stored_len_bytes(object)
    }

    fn found_len_bytes(&self, object: ObjectId) -> Result<u64, PageStoreError> {
        let object = self.home.objects.get(object)?;
        self.home.found_len_bytes(&object)
    }

    fn has_lost_images(&self, object: ObjectId) -> bool {
        self.home.lost_images.get().is_some_and(|objects| objects.contains(&object))
    }

    fn forget_found_lens(&self) -> Result<(), PageStoreError> {
        found_lens::remove(&*self.home.dir)
    }

    fn synced_len_bytes(&self, object: ObjectId, synced_bytes: u64) -> Result<u64, PageStoreError> {
        let known = self.home.objects.get(object)?;
        // Before the sync: the file may become longer during it.
        let len_bytes = self.home.len_bytes(&known)?;
        if len_bytes > synced_bytes {
            self.sync_object(object)?;
        }
        Ok(len_bytes)
    }

    fn set_growth_recorder(&self, recorder: GrowthRecorder) {
        self.home.growth.set_recorder(recorder);
    }

    fn record_growth(&self) -> Result<(), PageStoreError> {
        self.check_poison()?;
        self.record_ends(&self.writer.lock()).map_err(|error| self.note(error))
    }

    fn begin_changes(&self, position: u64) {
        self.origin.store(position, Ordering::Release);
    }

    fn oldest_changes(&self) -> Option<u64> {
        self.pending.read().oldest_origin()
    }

    fn bring_home_before(&self, position: u64) -> Result<bool, PageStoreError> {
        self.settle_before(&mut self.writer.lock(), position).map_err(|error| self.note(error))
    }

    fn read_page_of_file(
        &self,
        object: ObjectId,
        page_no: u32,
        page: &mut [u8],
    ) -> Result<bool, PageStoreError> {
        let object = self.home.objects.get(object)?;
        let _no_writer = object.io.read();
        Ok(self.read_home(&object, page_no, 0, page)?.unwrap_or(false))
    }

    fn has_replaced_journal(&self) -> bool {
        self.has_replaced_journal.load(Ordering::Acquire)
    }

    fn end_replacement(&self) -> Result<(), PageStoreError> {
        self.check_poison()?;
        open::end_replacement(&*self.home.dir, self.journal_dir.as_deref())?;
        self.has_replaced_journal.store(false, Ordering::Release);
        Ok(())
    }

    fn retained_images(
        &self,
        object: ObjectId,
        page_no: u32,
        len_bytes: u32,
    ) -> Result<Vec<RetainedImage>, PageStoreError> {
        self.find_retained_images(object, page_no, len_bytes)
    }

    fn newest_images(&self, object: ObjectId, pages: Range<u32>, len_bytes: u32) -> BTreeMap<u32, u32> {
        self.find_newest_images(object, &pages, len_bytes)
    }

    fn drop_cache(&self, object: ObjectId, pages: Range<u32>, len_bytes: u32) {
        self.drop_cache_of(object, &pages, len_bytes);
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
mod descriptor_tests;

#[cfg(test)]
mod lost_journal_tests;

#[cfg(test)]
mod crash_tests;
