//! Pages on disk, safe against torn writes. Knows pages as bytes of a fixed length; nothing about redo.
//!
//! One object is one tablespace in one incarnation and one file, which is the tablespace file byte for byte:
//! page `n` stands at `n * page length`. To export an object is to copy its file.
//!
//! Promises of every store:
//! * When [`PageStore::write_batch`] returns, its pages are durable, and no crash at any time leaves a page
//!   that is part old and part new. The batch as a whole is not atomic: after a crash some pages of an
//!   unfinished batch may be new and others old.
//! * A read never sees a page that is part old and part new, whatever fails meanwhile.
//! * An object that was removed does not come back.
//! * After a failed write or a failed sync the store answers [`PageStoreError::Poisoned`] to all that would
//!   change something, until it is opened again. A full disk is not such a failure: see
//!   [`PageStoreError::NoSpace`].
//!
//! [`FilePageStore`] keeps objects in files and protects pages by untorn writes, by a ring of page images that go home
//! later, or by writing them twice (see [`PageProtection`]). It goes through the seam of [`redoubt_storage`],
//! so that tests can lose, tear and fail its writes.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod error;
mod file;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use redoubt_storage::UntornLimits;

pub use error::PageStoreError;
pub use file::{FilePageStore, FilePageStoreOptions, JOURNAL_NAME, PageProtection};

/// Position for [`PageStore::begin_changes`]: the files of the pages may lack any changes.
pub const UNKNOWN_ORIGIN: u64 = 0;
/// Position of the pages that the journal had when the store was opened ([`PageStore::oldest_changes`]).
pub const FOUND_ORIGIN: u64 = 1;
/// Least position of the caller's log.
pub const FIRST_POSITION: u64 = 2;
const _: () =
    assert!(UNKNOWN_ORIGIN < FOUND_ORIGIN && FOUND_ORIGIN < FIRST_POSITION, "they go home in this order");

/// One tablespace in one incarnation. Never reused for another by the caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ObjectId(pub u32);

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// One page of a batch.
#[derive(Clone, Copy, Debug)]
pub struct PageWrite<'a> {
    /// The object to write to. It must exist.
    pub object: ObjectId,
    /// Number of the page in the object.
    pub page_no: u32,
    /// The page. Its length is the physical page size of the object: a power of two from 512 to 65536,
    /// the same for all pages of an object.
    pub page: &'a [u8],
}

/// Counters of a store since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PageStoreStats {
    /// Pages written by `write_batch`.
    pub pages_written: u64,
    /// Pages of `write_batch` that were written to object files, each time they were.
    pub pages_written_home: u64,
    /// Calls that wrote such pages.
    pub home_writes: u64,
    /// Bytes written to object files.
    pub bytes_written_home: u64,
    /// Bytes written to the journal.
    pub bytes_written_journal: u64,
    /// Images in the journal that never had to go home, since a newer one of the page came or its object went.
    pub images_superseded: u64,
    /// Calls that made a file durable.
    pub syncs: u64,
    /// Pages read by `read_page`.
    pub pages_read: u64,
    /// Pages that opening the store wrote again from the journal.
    pub pages_replayed: u64,
}

/// A version of a page that the journal still holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetainedImage {
    /// The page.
    pub page: Vec<u8>,
    /// It is what [`PageStore::read_page`] should read: no newer version was ever written.
    pub is_newest: bool,
}

/// How a store protects its pages at this moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageStoreInfo {
    /// The mode.
    pub protection: PageProtection,
    /// Why this mode, in words.
    pub reason: String,
    /// Length of the journal in bytes.
    pub journal_len_bytes: u64,
    /// Bytes of the journal that are in use: its images would be taken up after a crash.
    pub journal_live_bytes: u64,
    /// Pages whose newest version is in the journal only.
    pub pending_pages: u64,
    /// Which writes of pages can be untorn.
    pub untorn: Option<UntornLimits>,
}

/// Takes durable lengths of files in bytes, and makes them durable itself.
pub type GrowthRecorder = Box<dyn Fn(&[(ObjectId, u64)]) -> std::io::Result<()> + Send + Sync>;

/// Pages on disk. See the crate's documentation for what is promised.
///
/// ```
/// use redoubt_pagestore::{FilePageStore, FilePageStoreOptions, ObjectId, PageStore, PageWrite};
///
/// const PAGE_LEN: usize = 16 << 10;
/// let place = tempfile::tempdir()?;
/// let open = || FilePageStore::open(place.path(), None, FilePageStoreOptions::default());
/// let store: Box<dyn PageStore> = Box::new(open()?);
/// let object = ObjectId(7);
/// store.create(object)?;
/// let (one, other) = (vec![1; PAGE_LEN], vec![2; PAGE_LEN]);
/// // All durable when it returns, none of them torn by any crash.
/// store.write_batch(&[
///     PageWrite { object, page_no: 0, page: &one },
///     PageWrite { object, page_no: 5, page: &other },
/// ])?;
/// drop(store);
///
/// let store = open()?;
/// let mut page = vec![0; PAGE_LEN];
/// assert!(store.read_page(object, 5, &mut page)?);
/// assert_eq!(page, other);
/// // Never written: zeros, as in the tablespace file. Past the end there is no page.
/// assert!(store.read_page(object, 3, &mut page)?);
/// assert!(page.iter().all(|byte| *byte == 0));
/// assert!(!store.read_page(object, 6, &mut page)?);
/// assert_eq!(store.len_bytes(object)?, 6 * PAGE_LEN as u64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait PageStore: Send + Sync {
    /// Creates an object without pages; does nothing if it exists. Durable when it returns.
    ///
    /// # Errors
    /// [`PageStoreError::NoSpace`] or an I/O failure.
    fn create(&self, object: ObjectId) -> Result<(), PageStoreError>;

    /// Removes objects, those of them that are there. Durable when it returns; one sync for all of them.
    ///
    /// # Errors
    /// An I/O failure.
    fn remove_all(&self, objects: &[ObjectId]) -> Result<(), PageStoreError>;

    /// [`PageStore::remove_all`] of one.
    ///
    /// # Errors
    /// An I/O failure.
    fn remove(&self, object: ObjectId) -> Result<(), PageStoreError> {
        self.remove_all(&[object])
    }

    /// All objects, in order.
    ///
    /// # Errors
    /// None so far; kept for stores that have to ask a device.
    fn objects(&self) -> Result<Vec<ObjectId>, PageStoreError>;

    /// Reads a page of `page.len()` bytes; bytes past the end of the object read as zero. Returns false if the
    /// whole page is past the end.
    ///
    /// # Errors
    /// [`PageStoreError::NoSuchObject`]; [`PageStoreError::DamagedImage`] and [`PageStoreError::LostPage`] concern this page
    /// only; a failed read.
    fn read_page(&self, object: ObjectId, page_no: u32, page: &mut [u8]) -> Result<bool, PageStoreError>;

    /// [`PageStore::read_page`] from the drive, as far as its caches can be dropped: memory may differ from it, and a page
    /// that was damaged on its way may be whole.
    ///
    /// # Errors
    /// As [`PageStore::read_page`].
    fn read_page_again(
        &self,
        object: ObjectId,
        page_no: u32,
        page: &mut [u8],
    ) -> Result<bool, PageStoreError> {
        self.read_page(object, page_no, page)
    }

    /// These pages of an object, in order and of this length, will be read soon: a store that can may begin with it. A
    /// hint.
    fn will_read(&self, _object: ObjectId, _page_nos: &[u32], _page_len_bytes: usize) {}

    /// Reads bytes at an offset until `buf` is full or the object ends; returns how many were read.
    ///
    /// # Errors
    /// [`PageStoreError::NoSuchObject`] or a failed read. While pages of the object are in the journal only, the error
    /// of the attempt to write them home.
    fn read_raw(&self, object: ObjectId, offset_bytes: u64, buf: &mut [u8]) -> Result<usize, PageStoreError>;

    /// Writes pages. When it returns, all are durable, and no crash leaves one of them torn. Of two writes to
    /// the same page, the later one counts.
    ///
    /// # Errors
    /// [`PageStoreError::NoSpace`]: some of the pages may be written, none is torn; try the same batch again when
    /// there is space. [`PageStoreError::NoSuchObject`] and [`PageStoreError::InvalidBatch`]: nothing was
    /// written. Other failures poison the store.
    fn write_batch(&self, writes: &[PageWrite<'_>]) -> Result<(), PageStoreError>;

    /// Puts on record that everything written so far is durable, durably. Without it, pages of the last batch that the
    /// medium damages before a restart look like pages of a batch that was under way when the power failed, and
    /// their older versions come back. Call it before relying on the batch for good.
    ///
    /// # Errors
    /// As [`PageStore::write_batch`].
    fn seal(&self) -> Result<(), PageStoreError>;

    /// Writes bytes without protection against torn pages, for loading an object in bulk. Durable only after
    /// [`PageStore::sync_object`]. Not while another thread writes pages of the object.
    ///
    /// # Errors
    /// [`PageStoreError::NoSpace`]: part may be written. Other failures poison the store.
    fn write_raw(&self, object: ObjectId, offset_bytes: u64, bytes: &[u8]) -> Result<(), PageStoreError>;

    /// Makes everything written to an object durable.
    ///
    /// # Errors
    /// An I/O failure poisons the store.
    fn sync_object(&self, object: ObjectId) -> Result<(), PageStoreError>;

    /// Cuts an object or extends it with zeros. Durable when it returns.
    ///
    /// If the process dies before it returns, the next one may see the new length before it is durable: repeat
    /// the call, or call [`PageStore::sync_object`], before relying on it.
    ///
    /// # Errors
    /// [`PageStoreError::NoSpace`]; other failures poison the store.
    fn set_len(&self, object: ObjectId, len_bytes: u64) -> Result<(), PageStoreError>;

    /// Length of an object in bytes.
    ///
    /// # Errors
    /// [`PageStoreError::NoSuchObject`] or an I/O failure.
    fn len_bytes(&self, object: ObjectId) -> Result<u64, PageStoreError>;

    /// Length of an object's own file when the store was opened, in bytes: without pages of the journal, whether they
    /// have been written to the file meanwhile or not. Keeps no file open.
    ///
    /// # Errors
    /// As [`PageStore::len_bytes`].
    fn found_len_bytes(&self, object: ObjectId) -> Result<u64, PageStoreError> {
        self.len_bytes(object)
    }

    /// When the store was opened, the journal had pages of this object, and the object had no file. They are lost, also if
    /// its file comes back.
    fn has_lost_images(&self, _object: ObjectId) -> bool {
        false
    }

    /// The lengths of [`PageStore::found_len_bytes`] were compared, and the findings are durable. Until then, the next
    /// opening tells the same lengths.
    ///
    /// # Errors
    /// An I/O failure.
    fn forget_found_lens(&self) -> Result<(), PageStoreError> {
        Ok(())
    }

    /// Length of an object's own file in bytes, without pages that are in the journal only. Makes it durable if it is more
    /// than `synced_bytes`. Without cuts ([`PageStore::set_len`]) no crash makes the file shorter.
    ///
    /// # Errors
    /// As [`PageStore::len_bytes`] and [`PageStore::sync_object`].
    fn synced_len_bytes(&self, object: ObjectId, _synced_bytes: u64) -> Result<u64, PageStoreError> {
        self.len_bytes(object)
    }

    /// `recorder` receives the lengths of files that are created or written, also of some that are not longer than before.
    /// It has them before other copies of their pages are given up, and after [`PageStore::record_growth`]. It must
    /// not call the store. Of several recorders the first one counts.
    fn set_growth_recorder(&self, _recorder: GrowthRecorder) {}

    /// Hands the lengths of all files that were written so far to the recorder.
    ///
    /// # Errors
    /// That of the recorder: [`PageStoreError::NoSpace`], and the call may be repeated; other failures poison the store.
    fn record_growth(&self) -> Result<(), PageStoreError> {
        Ok(())
    }

    /// Files may lack changes of the caller's log from `position` on of pages that are written from now on, and have all from
    /// before it. At least [`FIRST_POSITION`], or [`UNKNOWN_ORIGIN`], as it is before the first call.
    fn begin_changes(&self, _position: u64) {}

    /// The position of the log from which on files may lack changes of pages that the journal has: the oldest one of
    /// [`PageStore::begin_changes`], or [`FOUND_ORIGIN`]. `None`: files lack nothing that was written.
    fn oldest_changes(&self) -> Option<u64> {
        None
    }

    /// Writes pages to their files that lack changes from before `position`, durably: at most some MiB of them, the oldest
    /// first. True: there are no more.
    ///
    /// # Errors
    /// As [`PageStore::write_batch`]; after [`PageStoreError::NoSpace`] some of them may be written.
    fn bring_home_before(&self, _position: u64) -> Result<bool, PageStoreError> {
        Ok(true)
    }

    /// Reads a page from its file as it is there, also if the journal has a newer version. False: the file does not have it, or
    /// the drive does not read it.
    ///
    /// # Errors
    /// As [`PageStore::read_page`].
    fn read_page_of_file(
        &self,
        _object: ObjectId,
        _page_no: u32,
        _page: &mut [u8],
    ) -> Result<bool, PageStoreError> {
        Ok(false)
    }

    /// The journal was lost, and replaced by an empty one ([`FilePageStoreOptions::replaces_lost_journal`]). Pages that only the
    /// lost one had are read as they are in their files, until the caller has written them. Remains true after a restart.
    fn has_replaced_journal(&self) -> bool {
        false
    }

    /// All pages that the lost journal had are written, durably. Its remains are removed.
    ///
    /// # Errors
    /// An I/O failure, or [`PageStoreError::NoSpace`]; then the call may be repeated.
    fn end_replacement(&self) -> Result<(), PageStoreError> {
        Ok(())
    }

    /// Versions of a page of `len_bytes` that the journal still holds, each whole, newest first. Images that the drive
    /// has lost are left out.
    ///
    /// # Errors
    /// A failed read.
    fn retained_images(
        &self,
        object: ObjectId,
        page_no: u32,
        len_bytes: u32,
    ) -> Result<Vec<RetainedImage>, PageStoreError>;

    /// The newest images of an object's pages of this length in the journal, as page number and CRC-32C. The store has
    /// exactly these pages. Others have none, or it is not certain that they are the newest. Waits for writes that are
    /// under way.
    fn newest_images(&self, _object: ObjectId, _pages: Range<u32>, _len_bytes: u32) -> BTreeMap<u32, u32> {
        BTreeMap::new()
    }

    /// The next reads of these pages of an object go to the drive, as far as its caches can be dropped. A hint.
    fn drop_cache(&self, _object: ObjectId, _pages: Range<u32>, _len_bytes: u32) {}

    /// How pages are protected.
    fn info(&self) -> PageStoreInfo;

    /// Counters since the store was opened.
    fn stats(&self) -> PageStoreStats;
}
