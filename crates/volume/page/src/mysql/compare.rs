//! Whether two images are of the same state of a page.
//!
//! Left out is what neither redo nor the page's state determines:
//!
//! | bytes | of | because |
//! |---|---|---|
//! | 0..4, last 8 | all pages | checksum and trailer: computed when a page is written (`buf_flush_init_for_writing` in `buf/buf0flu.cc`) |
//! | 16..24 | all pages | the LSN: a mini-transaction gives its end LSN to every page that it holds exclusively (X or SX), also to those that it did not change and has no record for (`Add_dirty_blocks_to_flush_list` in `mtr/mtr0mtr.cc`) |
//! | 24..26 | pages that were allocated and not used | the server writes page type 13 where the page has 0 (`buf_flush_init_for_writing`, 16 KiB pages) |
//! | 26..34 | all but R-tree pages | page compression leaves the length of the last image here (`os_file_compress_page` in `os/os0file.cc`), a shutdown its LSN in page 0 of the system tablespace; neither is logged |
//!
//! So the LSN of a page that a server wrote is that of the page's last change in redo, or a later one; never an earlier
//! one. LSNs are not part of a [`Difference`]; a caller that needs them compares them itself.
//!
//! Invariant: [`digest`] covers exactly what [`first_difference`] compares.

use std::ops::Range;

use twox_hash::XxHash3_64;

use super::compressed::is_page_compressed_image;
use crate::layout::{
    FIL_PAGE_FILE_FLUSH_LSN, FIL_PAGE_LSN, FIL_PAGE_OFFSET, FIL_PAGE_SPACE_ID, FIL_PAGE_TRAILER_BYTES,
    FIL_PAGE_TYPE, TYPE_RTREE, page_type,
};

/// Where two images differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// First byte that differs.
    pub offset: usize,
    /// It, in the first image.
    pub first: Option<u8>,
    /// It, in the second image.
    pub second: Option<u8>,
}

/// FIL_PAGE_TYPE_ALLOCATED: nothing was written to the page yet.
const TYPE_ALLOCATED: u16 = 0;
/// FIL_PAGE_TYPE_UNKNOWN.
const TYPE_UNKNOWN: u16 = 13;

/// The bytes that count, in page order, apart from the page type.
fn compared_ranges(page: &[u8]) -> [Range<usize>; 2] {
    let end = page.len().saturating_sub(FIL_PAGE_TRAILER_BYTES);
    let after = if page_type(page) == Some(TYPE_RTREE) { FIL_PAGE_FILE_FLUSH_LSN } else { FIL_PAGE_SPACE_ID };
    [FIL_PAGE_OFFSET..FIL_PAGE_LSN, after..end]
}

/// The page type that counts.
fn compared_type(page: &[u8]) -> u16 {
    match page_type(page) {
        None | Some(TYPE_ALLOCATED) => TYPE_UNKNOWN,
        Some(kind) => kind,
    }
}

/// CRC-32C over the bytes that must be equal in two images of the same page state. Both images must be uncompressed
/// (see [`super::decompress`]).
pub fn digest(page: &[u8]) -> u32 {
    let sum = crc32c::crc32c(&compared_type(page).to_be_bytes());
    compared_ranges(page)
        .into_iter()
        .fold(sum, |sum, range| crc32c::crc32c_append(sum, page.get(range).unwrap_or_default()))
}

/// A hash of all of an image but checksum, trailer and LSN, in 64 bits (XXH3): two images of one page that differ there
/// have the same one by chance less often than memory fails. It is not for keeping. More counts than in [`digest`]: what
/// a shutdown leaves in page 0 of the system tablespace is in no redo, and the next start needs it.
pub fn content_hash(page: &[u8]) -> u64 {
    // A page-compressed image may be shorter than a page, and has no trailer then.
    let trailer_bytes = if is_page_compressed_image(page) { 0 } else { FIL_PAGE_TRAILER_BYTES };
    let end = page.len().saturating_sub(trailer_bytes);
    [FIL_PAGE_OFFSET..FIL_PAGE_LSN, FIL_PAGE_TYPE..end]
        .into_iter()
        .fold(0, |seed, range| XxHash3_64::oneshot_with_seed(seed, page.get(range).unwrap_or_default()))
}

/// Where two images differ in what [`digest`] covers.
pub fn differing_ranges(a: &[u8], b: &[u8]) -> Vec<Range<usize>> {
    let mut differing: Vec<Range<usize>> = Vec::new();
    if a.len() != b.len() {
        let common = a.len().min(b.len());
        differing.push(common..a.len().max(b.len()));
    }
    let types = compared_type(a).to_be_bytes().into_iter().zip(compared_type(b).to_be_bytes());
    let in_types = (FIL_PAGE_TYPE..).zip(types).filter(|(_, (a, b))| a != b).map(|(offset, _)| offset);
    let elsewhere =
        compared_ranges(a).into_iter().flatten().filter(|offset| a.get(*offset) != b.get(*offset));
    for offset in in_types.chain(elsewhere) {
        match differing.last_mut() {
            Some(last) if last.end == offset => last.end += 1,
            _ => differing.push(offset..offset + 1),
        }
    }
    differing
}

/// The first byte that differs of those that [`digest`] covers.
pub fn first_difference(a: &[u8], b: &[u8]) -> Option<Difference> {
    let offset = differing_ranges(a, b).into_iter().map(|range| range.start).min()?;
    Some(Difference { offset, first: a.get(offset).copied(), second: b.get(offset).copied() })
}

#[cfg(test)]
mod tests;
