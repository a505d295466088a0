//! The ring journal: page images on their way home, in one preallocated file.
//!
//! `pages.journal` has two superblocks (see [`superblock`]) and after them the ring. Positions in the ring grow for
//! ever; position `p` lies at byte `p % ring length` of it, and a write that crosses the end continues at the start. Groups of
//! images (see [`format`]) follow one another from the *tail* to the *head*:
//!
//! ```text
//!   kept, already home   |  live: tail .. head          |  free, or kept from the lap before
//!   ---------------------+------------------------------+----------------------------------->
//!                        tail (durable, superblock)     head (found by scanning)
//! ```
//!
//! Invariants:
//! * Nothing is written over a position before a tail beyond it is durable in a superblock.
//! * The tail moves only over images that are durable at home, replaced by a newer durable image further on, or of no
//!   account (their object is gone, or was forgotten).
//! * Positions, identity and epoch distinguish a group from leftovers. The position excludes groups of an earlier lap,
//!   the identity those of another store. The epoch excludes those of an earlier opening, or of a failed attempt at the
//!   same position; it never falls along the ring. For an empty ring, the superblock contains the epoch.
//! * The part that a group records as durable before it (`synced_until`) needs no checking after a crash but for damage.
//!
//! Everything is written at multiples of 4096 bytes, in the journal's stream.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use redoubt_storage::{StorageDir, StorageFile, Stream, WriteOptions};

use super::lost::{self, Drive, Patience};
use super::protection::PageProtection;
use crate::error::PageStoreError;
use crate::{ObjectId, PageWrite};

mod contents;
mod format;
mod recovery;
mod superblock;

pub(super) use contents::Contents;
pub(super) use format::{BLOCK, GroupEntry, MAX_ENTRIES, group_len, u32_at, u64_at};
pub(super) use superblock::{MAGIC, RING_AT, Superblock, VERSION};

/// Name of the journal file.
pub const JOURNAL_NAME: &str = "pages.journal";
/// Images are gathered to about this length before they are written.
const STAGE_LEN: usize = 1 << 20;
/// The most bytes of images in a group, unless one page is longer.
pub(super) const MAX_GROUP_IMAGES: u64 = 4 << 20;
/// A new opening takes the life after the next: if the newest superblock was lost, that of the previous one is lower by
/// one only.
const LIVES_APART: u64 = 2;

/// Where the ring has an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ImageLocation {
    /// Position.
    pub at: u64,
    /// Length in bytes.
    pub len: u32,
    /// CRC-32C.
    pub crc: u32,
}

/// Reads from the ring. Needs no lock: the reader checks the bytes.
#[derive(Clone)]
pub(super) struct RingReader {
    file: Arc<dyn StorageFile>,
    len_bytes: u64,
}

impl RingReader {
    /// Where a position lies in the file, and how many bytes there are to the end of the ring.
    fn physical(&self, at: u64) -> (u64, u64) {
        let inside = at % self.len_bytes;
        (RING_AT + inside, self.len_bytes - inside)
    }

    /// Reads `buf.len()` bytes, at most the ring's length.
    pub fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), PageStoreError> {
        let (offset, left) = self.physical(at);
        let (first, second) = buf.split_at_mut(buf.len().min(left as usize));
        for (offset, piece) in [(offset, first), (RING_AT, second)] {
            let error = PageStoreError::read(JOURNAL_NAME, offset);
            match self.file.read_at(offset, piece) {
                Ok(n) if n == piece.len() => {}
                Ok(_) => return Err(error(io::ErrorKind::UnexpectedEof.into())),
                Err(source) => return Err(error(source)),
            }
        }
        Ok(())
    }

    /// Reads an image; false if it is not the one that was written there.
    pub fn read_image(&self, image: ImageLocation, page: &mut [u8]) -> Result<bool, PageStoreError> {
        self.read(image.at, page)?;
        Ok(crc32c::crc32c(page) == image.crc)
    }

    /// Reads from the drive, several times if it fails. False: it has lost some of the bytes, and all of them are zero.
    fn read_again(&self, at: u64, buf: &mut [u8]) -> Result<bool, PageStoreError> {
        let len = buf.len() as u64;
        let (offset, left) = self.physical(at);
        let patience = Patience::begin();
        let mut tries = 0;
        let error = loop {
            // Without effect, the same bytes are read from memory.
            let _ = self.file.drop_cache_of(offset, len.min(left));
            let _ = self.file.drop_cache_of(RING_AT, len.saturating_sub(left));
            tries += 1;
            match self.read(at, buf) {
                Ok(()) => return Ok(true),
                Err(error) if error.is_lost_content() && tries < lost::TRIES && !patience.is_over() => {}
                Err(error) => break error,
            }
        };
        let drive = || lost::examine(&*self.file, offset..offset + len, patience);
        if error.is_lost_content() && drive() == Drive::Works {
            buf.fill(0);
            return Ok(false);
        }
        Err(error)
    }

    /// [`RingReader::read_image`] from the drive. False also if the drive has lost the image.
    pub fn read_image_again(&self, image: ImageLocation, page: &mut [u8]) -> Result<bool, PageStoreError> {
        Ok(self.read_again(image.at, page)? && crc32c::crc32c(page) == image.crc)
    }

    /// The same, from memory if that has the whole image.
    pub fn find_image(&self, image: ImageLocation, page: &mut [u8]) -> Result<bool, PageStoreError> {
        match self.read_image(image, page) {
            Ok(true) => Ok(true),
            Err(error) if !error.is_lost_content() => Err(error),
            _ => self.read_image_again(image, page),
        }
    }

    /// Reads whole blocks. A block that the drive has lost is zero.
    pub fn read_blocks(&self, at: u64, buf: &mut [u8]) -> Result<(), PageStoreError> {
        match self.read(at, buf) {
            Err(error) if error.is_lost_content() => {}
            read => return read,
        }
        for (block, at) in buf.chunks_mut(BLOCK).zip((at..).step_by(BLOCK)) {
            self.read_again(at, block)?;
        }
        Ok(())
    }

    /// The error for an image that is damaged.
    pub fn damaged(&self, object: ObjectId, page_no: u32, image: ImageLocation) -> PageStoreError {
        PageStoreError::DamagedImage { object, page_no, offset_bytes: self.physical(image.at).0 }
    }
}

/// Writer of the ring.
pub(super) struct JournalRing {
    reader: RingReader,
    superblock: Superblock,
    /// Failed attempts in this life.
    attempt: u32,
    head: u64,
    /// Everything before this is durable.
    synced: u64,
    /// No position from here on was ever written to.
    high: u64,
    /// At the head there may be a group on the disk that was taken back.
    has_leftovers: bool,
    contents: Contents,
    stage: Vec<u8>,
}

impl JournalRing {
    /// Makes a journal of `len_bytes`, filled and durable. The name must be free.
    pub fn create(
        dir: &dyn StorageDir,
        identity: u64,
        len_bytes: u64,
        protection: PageProtection,
    ) -> Result<Self, PageStoreError> {
        let error = |action| PageStoreError::io_or_no_space(action, JOURNAL_NAME);
        let file = dir.create(JOURNAL_NAME).map_err(error("create"))?;
        let ring_len_bytes = len_bytes - RING_AT;
        let superblock = Superblock {
            protection,
            counter: 1,
            identity,
            life: 1,
            ring_len_bytes,
            tail: 0,
            epoch_floor: epoch(1, 0),
        };
        fill(&*file, len_bytes).map_err(error("preallocate")).inspect_err(|_| {
            // It has taken the rest of the room.
            let _ = dir.remove(JOURNAL_NAME);
        })?;
        for counter in 0..2 {
            Superblock { counter, ..superblock }.write(&*file)?;
        }
        file.sync_all().map_err(PageStoreError::io("sync", JOURNAL_NAME))?;
        dir.sync().map_err(PageStoreError::io("sync the directory of", JOURNAL_NAME))?;
        let reader = RingReader { file, len_bytes: ring_len_bytes };
        Ok(Self::new(reader, superblock, Contents::default(), 0))
    }

    /// Opens a journal and finds what it holds. `file` is durable in its present state (see
    /// [`open_file`]). Before anything is written, [`JournalRing::begin_life`] must be called.
    pub fn open(file: Arc<dyn StorageFile>, superblock: Superblock) -> Result<Self, PageStoreError> {
        let reader = RingReader { file, len_bytes: superblock.ring_len_bytes };
        let len_bytes = reader.file.len_bytes().map_err(PageStoreError::read(JOURNAL_NAME, 0))?;
        if len_bytes < RING_AT.saturating_add(superblock.ring_len_bytes) {
            let reason = format!(
                "it should have {} bytes and has {len_bytes}, so pages may be lost: restore it and the pages \
                 from a copy",
                RING_AT.saturating_add(superblock.ring_len_bytes)
            );
            return Err(PageStoreError::LostJournal { file: JOURNAL_NAME.into(), reason });
        }
        let found = recovery::scan(&reader, &superblock)?;
        let mut superblock = superblock;
        superblock.life = superblock.life.max(found.epoch >> 32);
        Ok(Self::new(reader, superblock, found.contents, found.head))
    }

    fn new(reader: RingReader, superblock: Superblock, contents: Contents, head: u64) -> Self {
        let (attempt, stage) = (0, Vec::new());
        let has_leftovers = false;
        Self { reader, superblock, attempt, head, synced: head, high: head, has_leftovers, contents, stage }
    }

    /// Makes a new life durable, in which groups may be written. Nothing before `tail` counts any more.
    pub fn begin_life(&mut self, tail: u64, protection: PageProtection) -> Result<(), PageStoreError> {
        let life = self.superblock.life + LIVES_APART;
        self.attempt = 0;
        self.put_superblock(Superblock { life, tail, protection, ..self.superblock })
    }

    /// Makes the room before `tail` free, durably.
    pub fn set_tail(&mut self, tail: u64) -> Result<(), PageStoreError> {
        self.put_superblock(Superblock { tail, ..self.superblock })
    }

    fn put_superblock(&mut self, mut superblock: Superblock) -> Result<(), PageStoreError> {
        superblock.counter += 1;
        if superblock.tail == self.head {
            // Leftovers of an earlier life or a failed attempt are not mistaken for a new group.
            superblock.epoch_floor = epoch(superblock.life, self.attempt);
        }
        superblock.write(&*self.reader.file)?;
        self.sync_file()?;
        self.superblock = superblock;
        self.has_leftovers &= superblock.tail != self.head;
        Ok(())
    }

    fn sync_file(&self) -> Result<(), PageStoreError> {
        self.reader.file.sync_data().map_err(PageStoreError::io("sync", JOURNAL_NAME))
    }

    pub fn reader(&self) -> &RingReader {
        &self.reader
    }

    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The object is gone or has changed: its images are no earlier versions of its pages. They stay in the ring.
    pub fn object_changed(&mut self, object: ObjectId) {
        self.contents.disown(object, self.head);
    }

    pub fn protection(&self) -> PageProtection {
        self.superblock.protection
    }

    /// Length of the file in bytes.
    pub fn file_len_bytes(&self) -> u64 {
        RING_AT + self.reader.len_bytes
    }

    pub fn tail(&self) -> u64 {
        self.superblock.tail
    }

    pub fn head(&self) -> u64 {
        self.head
    }

    /// Bytes that are in use.
    pub fn live_bytes(&self) -> u64 {
        self.head - self.superblock.tail
    }

    /// Bytes that can be written to.
    pub fn free_bytes(&self) -> u64 {
        self.reader.len_bytes - self.live_bytes()
    }

    /// Bytes of the ring.
    pub fn len_bytes(&self) -> u64 {
        self.reader.len_bytes
    }

    /// The most bytes of images to put in one group, unless one page is longer.
    pub fn max_group_images(&self) -> u64 {
        MAX_GROUP_IMAGES.min(self.reader.len_bytes / 4)
    }

    /// Would nothing come back after a crash?
    pub fn is_empty(&self) -> bool {
        self.live_bytes() == 0 && !self.has_leftovers
    }

    /// Does the ring have images of the object that would come back after a crash?
    pub fn holds(&self, object: ObjectId) -> bool {
        self.contents.holds(object, self.superblock.tail)
    }

    /// Positions of the images of a page that are still there, newest first.
    pub fn images(&self, object: ObjectId, page_no: u32, len: u32) -> Vec<ImageLocation> {
        let oldest = self.high.saturating_sub(self.reader.len_bytes);
        self.contents.images(object, page_no, len, oldest)
    }

    /// As [`Contents::newest_images`].
    pub fn newest_images(&self, object: ObjectId, pages: &Range<u32>, len: u32) -> BTreeMap<u32, u32> {
        let oldest = self.high.saturating_sub(self.reader.len_bytes);
        self.contents.newest_images(object, pages, len, oldest)
    }

    /// Writes a group of images; returns its bytes. There is room for it. Durable after [`JournalRing::sync`].
    ///
    /// On failure [`JournalRing::abandon`] must follow.
    pub fn append(&mut self, writes: &[PageWrite<'_>]) -> Result<u64, PageStoreError> {
        self.append_group(writes.iter().map(GroupEntry::image).collect(), writes)
    }

    /// Writes a forget record, like [`JournalRing::append`].
    pub fn append_forget(&mut self, object: ObjectId) -> Result<u64, PageStoreError> {
        self.append_group(vec![GroupEntry::forget(object)], &[])
    }

    /// Writes a group without images, like [`JournalRing::append`].
    pub fn append_seal(&mut self) -> Result<u64, PageStoreError> {
        self.append_group(Vec::new(), &[])
    }

    fn append_group(
        &mut self,
        entries: Vec<GroupEntry>,
        writes: &[PageWrite<'_>],
    ) -> Result<u64, PageStoreError> {
        let header = format::Header {
            identity: self.superblock.identity,
            epoch: epoch(self.superblock.life, self.attempt),
            at: self.head,
            synced_until: self.synced,
        };
        let mut stage = std::mem::take(&mut self.stage);
        stage.clear();
        format::encode(&header, &entries, &mut stage);
        let group = format::Group::new(self.head, entries);
        let (mut at, end) = (group.at, group.end);
        self.head = end;
        self.high = self.high.max(end);
        self.contents.prune(self.high.saturating_sub(self.reader.len_bytes));
        self.contents.push(group);
        for write in writes {
            if stage.len() >= STAGE_LEN {
                let whole = stage.len() - stage.len() % BLOCK;
                self.write(at, stage.get(..whole).unwrap_or_default())?;
                stage.drain(..whole);
                at += whole as u64;
            }
            stage.extend_from_slice(write.page);
        }
        stage.resize(stage.len().next_multiple_of(BLOCK), 0);
        self.write(at, &stage)?;
        self.stage = stage;
        Ok(end - header.at)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), PageStoreError> {
        let options = WriteOptions { stream: Stream::Journal, untorn: false };
        let (offset, left) = self.reader.physical(at);
        let (first, second) = bytes.split_at(bytes.len().min(left as usize));
        for (offset, piece) in [(offset, first), (RING_AT, second)] {
            if !piece.is_empty() {
                let write = self.reader.file.write_with(offset, piece, options);
                write.map_err(PageStoreError::io_or_no_space("write", JOURNAL_NAME))?;
                self.reader.file.will_sync(offset, piece.len() as u64);
            }
        }
        Ok(())
    }

    /// Takes back all groups since the last sync, after a failed write. Their bytes on the disk are overwritten
    /// by the next group, or told from it by its lower epoch.
    pub fn abandon(&mut self) {
        self.attempt += 1;
        self.has_leftovers = true;
        self.head = self.synced;
        self.contents.truncate(self.head);
    }

    /// Makes everything written durable; returns from where on it was not.
    pub fn sync(&mut self) -> Result<u64, PageStoreError> {
        self.sync_file()?;
        self.has_leftovers &= self.head == self.synced;
        Ok(std::mem::replace(&mut self.synced, self.head))
    }
}

/// Life in the upper half, attempt within it in the lower.
fn epoch(life: u64, attempt: u32) -> u64 {
    life << 32 | u64::from(attempt)
}

/// Ensures that the file's content is that of the disk: after a crash of the process alone, groups may be in memory
/// only; after a failed sync, memory may hold what the disk does not.
pub(super) fn open_file(dir: &dyn StorageDir) -> Result<Arc<dyn StorageFile>, PageStoreError> {
    let file = dir.open(JOURNAL_NAME).map_err(PageStoreError::io("open", JOURNAL_NAME))?;
    file.sync_data().map_err(PageStoreError::io("sync", JOURNAL_NAME))?;
    file.drop_cache().map_err(PageStoreError::io("drop the cache of", JOURNAL_NAME))?;
    Ok(file)
}

fn fill(file: &dyn StorageFile, len_bytes: u64) -> io::Result<()> {
    let options = WriteOptions { stream: Stream::Journal, untorn: false };
    let zeros = vec![0; STAGE_LEN];
    file.allocate(0, len_bytes)?;
    let mut at = 0;
    while at < len_bytes {
        let len = STAGE_LEN.min((len_bytes - at) as usize);
        file.write_with(at, zeros.get(..len).unwrap_or_default(), options)?;
        at += len as u64;
    }
    Ok(())
}
