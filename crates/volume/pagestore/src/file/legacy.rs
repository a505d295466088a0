//! Reading the journal of earlier versions, which held one batch at a time.
//!
//! It has the name of the present one and other magic bytes. Its batch is written home when the store is opened, and
//! a journal of the present format takes its place. Numbers are little-endian:
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
//! A batch is complete if every checksum is right. An incomplete batch has no page at home, and is ignored; a batch
//! that is complete may be written home again.

use redoubt_storage::StorageFile;
use redoubt_storage::format_version::unknown_version;

use super::ring::{BLOCK, JOURNAL_NAME, u32_at, u64_at};
use crate::error::PageStoreError;
use crate::{ObjectId, PageWrite};

pub(super) const MAGIC: [u8; 8] = *b"RDBTPGJ1";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 40;
const CRC_AT: usize = 32;
const ENTRY_LEN: usize = 16;

/// A page image in the journal.
struct LegacyEntry {
    object: ObjectId,
    page_no: u32,
    len: u32,
}

/// Bytes of the journal that come before the images of a batch of `pages` pages.
fn images_at(pages: usize) -> usize {
    (HEADER_LEN + pages * ENTRY_LEN).next_multiple_of(BLOCK)
}

/// A complete batch that was read back.
pub(super) struct StoredBatch {
    entries: Vec<LegacyEntry>,
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

/// Checksum of the header and table that `bytes` consist of.
fn header_crc(bytes: &[u8]) -> u32 {
    let fixed = crc32c::crc32c(bytes.get(..CRC_AT).unwrap_or_default());
    crc32c::crc32c_append(fixed, bytes.get(HEADER_LEN..).unwrap_or_default())
}

/// Reads the batch, if a complete one is there. The file begins with [`MAGIC`] or with zeros.
pub(super) fn read_batch(file: &dyn StorageFile) -> Result<Option<StoredBatch>, PageStoreError> {
    let len_bytes = file.len_bytes().map_err(PageStoreError::read(JOURNAL_NAME, 0))?;
    let mut content = vec![0; BLOCK.min(len_bytes as usize)];
    read_exact(file, &mut content)?;
    if content.first_chunk() != Some(&MAGIC) {
        return Ok(None);
    }
    if u32_at(&content, 8) != Some(VERSION) {
        let found = u32_at(&content, 8).unwrap_or_default();
        let reason = unknown_version(u64::from(found), VERSION);
        return Err(PageStoreError::BadFile { file: JOURNAL_NAME.into(), reason });
    }
    let (Some(count), Some(image_bytes)) = (u32_at(&content, 12), u64_at(&content, 24)) else {
        return Ok(None);
    };
    let total = (images_at(count as usize) as u64).checked_add(image_bytes);
    let Some(total) = total.filter(|&total| total <= len_bytes) else { return Ok(None) };
    content.resize(total as usize, 0);
    read_exact(file, &mut content)?;
    Ok(decode_table(&content, count as usize, image_bytes).map(|entries| StoredBatch { entries, content }))
}

/// The table, if it and all images are as they were written.
fn decode_table(content: &[u8], count: usize, image_bytes: u64) -> Option<Vec<LegacyEntry>> {
    let header = content.get(..HEADER_LEN + count * ENTRY_LEN)?;
    if u32_at(content, CRC_AT)? != header_crc(header) {
        return None;
    }
    let mut entries = Vec::with_capacity(count);
    let mut at = images_at(count);
    for row in header.get(HEADER_LEN..)?.chunks_exact(ENTRY_LEN) {
        let entry =
            LegacyEntry { object: ObjectId(u32_at(row, 0)?), page_no: u32_at(row, 4)?, len: u32_at(row, 8)? };
        let end = at + entry.len as usize;
        if crc32c::crc32c(content.get(at..end)?) != u32_at(row, 12)? {
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
