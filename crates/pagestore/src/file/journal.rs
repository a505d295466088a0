//! The data journal: page images on their way home, in one preallocated file.
//!
//! It holds one batch at a time, from the start of the file. Numbers are little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `RDBTPGJ1`; zero: no batch |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | number of pages `n` |
//! | 16 | 8 | batch number |
//! | 24 | 8 | bytes of all images |
//! | 32 | 4 | CRC-32C of bytes 0..32 and of the table |
//! | 36 | 4 | zero |
//! | 40 | 16 n | table: for each page object, page number, length, CRC-32C of the image, 4 bytes each |
//! | | | images, back to back, from the next multiple of 4096 |
//!
//! A batch is complete if every checksum is right. Writing home starts only after the journal was synced, and a
//! new batch is written over an old one only after all pages of the old one are durable at home. So a batch that is
//! not complete has no page at home, and may be ignored; one that is complete may be written home again.
//! The fixed part of the header is in one sector, so a crash never leaves another magic.

use std::sync::Arc;

use redoubt_logdev::storage::{StorageDir, StorageFile};

use crate::error::PageStoreError;
use crate::{ObjectId, PageWrite};

/// Name of the journal file.
pub(super) const JOURNAL_NAME: &str = "pages.journal";
const MAGIC: [u8; 8] = *b"RDBTPGJ1";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 40;
const CRC_AT: usize = 32;
const ENTRY_LEN: usize = 16;
const BLOCK: usize = 4096;
/// Images are gathered to about this length before they are written.
const STAGE_LEN: usize = 1 << 20;

/// A page image in the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub object: ObjectId,
    pub page_no: u32,
    pub len: u32,
    crc: u32,
}

/// Bytes of the journal that come before the images of a batch of `pages` pages.
pub(super) fn images_at(pages: usize) -> usize {
    (HEADER_LEN + pages * ENTRY_LEN).next_multiple_of(BLOCK)
}

/// A complete batch that was read back.
pub(super) struct StoredBatch {
    entries: Vec<Entry>,
    content: Vec<u8>,
}

impl StoredBatch {
    /// The pages of the batch, in the order they were written.
    pub fn pages(&self) -> Vec<PageWrite<'_>> {
        let mut at = images_at(self.entries.len());
        let mut pages = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            let end = at + entry.len as usize;
            if let Some(page) = self.content.get(at..end) {
                pages.push(PageWrite { object: entry.object, page_no: entry.page_no, page });
            }
            at = end;
        }
        pages
    }
}

/// The journal file.
pub(super) struct Journal {
    file: Arc<dyn StorageFile>,
    len_bytes: u64,
    batch_no: u64,
    buffer: Vec<u8>,
}

impl Journal {
    /// Opens the journal, or creates it, at least `len_bytes` long, and returns the batch it holds.
    pub fn open(
        dir: &dyn StorageDir,
        exists: bool,
        len_bytes: u64,
    ) -> Result<(Self, Option<StoredBatch>), PageStoreError> {
        let name = JOURNAL_NAME;
        let file = if exists {
            dir.open(name).map_err(PageStoreError::io("open", name))?
        } else {
            dir.create(name).map_err(PageStoreError::io_or_no_space("create", name))?
        };
        // After a crash of the process alone the batch may be in memory only; after a failed sync, memory may
        // hold what the disk does not.
        file.sync_data().map_err(PageStoreError::io("sync", name))?;
        file.drop_cache().map_err(PageStoreError::io("drop the cache of", name))?;
        let old_len = file.len_bytes().map_err(PageStoreError::io("get the length of", name))?;
        let (stored, batch_no) = read_batch(&*file, old_len)?;
        if old_len < len_bytes {
            let fill = fill(&*file, old_len, len_bytes);
            fill.map_err(PageStoreError::io_or_no_space("preallocate", name))?;
        }
        if !exists {
            dir.sync().map_err(PageStoreError::io("sync the directory of", name))?;
        }
        let journal = Self { file, len_bytes: len_bytes.max(old_len), batch_no, buffer: Vec::new() };
        Ok((journal, stored))
    }

    /// How many of `writes` fit in one batch, from the first on.
    pub fn fitting(&self, writes: &[PageWrite<'_>]) -> usize {
        let mut image_bytes = 0;
        for (n, write) in writes.iter().enumerate() {
            image_bytes += write.page.len();
            if (images_at(n + 1) + image_bytes) as u64 > self.len_bytes {
                return n;
            }
        }
        writes.len()
    }

    /// Writes a batch and syncs it; returns how many bytes were written. `writes` fit.
    pub fn write(&mut self, writes: &[PageWrite<'_>]) -> Result<u64, PageStoreError> {
        self.batch_no += 1;
        let error = || PageStoreError::io_or_no_space("write", JOURNAL_NAME);
        let buffer = &mut self.buffer;
        buffer.clear();
        encode_header(writes, self.batch_no, buffer);
        let mut at = 0;
        for write in writes {
            if buffer.len() >= STAGE_LEN {
                self.file.write_at(at, buffer).map_err(error())?;
                at += buffer.len() as u64;
                buffer.clear();
            }
            buffer.extend_from_slice(write.page);
        }
        self.file.write_at(at, buffer).map_err(error())?;
        at += buffer.len() as u64;
        self.file.sync_data().map_err(PageStoreError::io("sync", JOURNAL_NAME))?;
        Ok(at)
    }

    /// Makes the batch that the journal holds unreadable, durably.
    pub fn retire(&mut self) -> Result<(), PageStoreError> {
        self.file.write_at(0, &[0; BLOCK]).map_err(PageStoreError::io("clear", JOURNAL_NAME))?;
        self.file.sync_data().map_err(PageStoreError::io("sync", JOURNAL_NAME))
    }

    /// Reads back the batch that was written last.
    pub fn read(&self) -> Result<Option<StoredBatch>, PageStoreError> {
        Ok(read_batch(&*self.file, self.len_bytes)?.0)
    }

    /// The file, for reading single images.
    pub fn file(&self) -> &Arc<dyn StorageFile> {
        &self.file
    }
}

fn encode_header(writes: &[PageWrite<'_>], batch_no: u64, out: &mut Vec<u8>) {
    let image_bytes: usize = writes.iter().map(|write| write.page.len()).sum();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(writes.len() as u32).to_le_bytes());
    out.extend_from_slice(&batch_no.to_le_bytes());
    out.extend_from_slice(&(image_bytes as u64).to_le_bytes());
    out.extend_from_slice(&[0; HEADER_LEN - CRC_AT]);
    for write in writes {
        let crc = crc32c::crc32c(write.page);
        for field in [write.object.0, write.page_no, write.page.len() as u32, crc] {
            out.extend_from_slice(&field.to_le_bytes());
        }
    }
    let crc = header_crc(out);
    out[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    out.resize(images_at(writes.len()), 0);
}

/// Checksum of the header and table that `bytes` consist of.
fn header_crc(bytes: &[u8]) -> u32 {
    let fixed = crc32c::crc32c(bytes.get(..CRC_AT).unwrap_or_default());
    crc32c::crc32c_append(fixed, bytes.get(HEADER_LEN..).unwrap_or_default())
}

/// Reads the batch, if a complete one is there, and the number of the last batch known.
fn read_batch(file: &dyn StorageFile, len_bytes: u64) -> Result<(Option<StoredBatch>, u64), PageStoreError> {
    let mut content = vec![0; BLOCK.min(len_bytes as usize)];
    read_exact(file, &mut content)?;
    let none = Ok((None, 0));
    if content.iter().take(HEADER_LEN).all(|&byte| byte == 0) {
        return none;
    }
    let bad = |reason: &str| PageStoreError::BadFile { file: JOURNAL_NAME.into(), reason: reason.into() };
    if content.get(..8) != Some(&MAGIC) {
        return Err(bad(
            "it does not begin like a page journal, so pages that were being written may be torn: \
             restore the directory from a copy",
        ));
    }
    if u32_at(&content, 8) != Some(VERSION) {
        return Err(bad("its format version is not known to this program: use the program that wrote it"));
    }
    let (Some(count), Some(batch_no), Some(image_bytes)) =
        (u32_at(&content, 12), u64_at(&content, 16), u64_at(&content, 24))
    else {
        return none;
    };
    let total = (images_at(count as usize) as u64).checked_add(image_bytes);
    let Some(total) = total.filter(|&total| total <= len_bytes) else { return Ok((None, batch_no)) };
    content.resize(total as usize, 0);
    read_exact(file, &mut content)?;
    let entries = decode_table(&content, count as usize, image_bytes);
    Ok((entries.map(|entries| StoredBatch { entries, content }), batch_no))
}

/// The table, if it and all images are as they were written.
fn decode_table(content: &[u8], count: usize, image_bytes: u64) -> Option<Vec<Entry>> {
    let header = content.get(..HEADER_LEN + count * ENTRY_LEN)?;
    if u32_at(content, CRC_AT)? != header_crc(header) {
        return None;
    }
    let mut entries = Vec::with_capacity(count);
    let mut at = images_at(count);
    for row in header.get(HEADER_LEN..)?.chunks_exact(ENTRY_LEN) {
        let entry = Entry {
            object: ObjectId(u32_at(row, 0)?),
            page_no: u32_at(row, 4)?,
            len: u32_at(row, 8)?,
            crc: u32_at(row, 12)?,
        };
        let end = at + entry.len as usize;
        if crc32c::crc32c(content.get(at..end)?) != entry.crc {
            return None;
        }
        at = end;
        entries.push(entry);
    }
    ((at - images_at(count)) as u64 == image_bytes).then_some(entries)
}

fn read_exact(file: &dyn StorageFile, buf: &mut [u8]) -> Result<(), PageStoreError> {
    let n = file.read_at(0, buf).map_err(PageStoreError::read(JOURNAL_NAME, 0))?;
    if n < buf.len() {
        let source = std::io::ErrorKind::UnexpectedEof.into();
        return Err(PageStoreError::read(JOURNAL_NAME, n as u64)(source));
    }
    Ok(())
}

fn fill(file: &dyn StorageFile, from: u64, to: u64) -> std::io::Result<()> {
    let zeros = vec![0; STAGE_LEN];
    file.allocate(from, to - from)?;
    let mut at = from;
    while at < to {
        let len = STAGE_LEN.min((to - at) as usize);
        file.write_at(at, &zeros[..len])?;
        at += len as u64;
    }
    file.sync_all()
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}
