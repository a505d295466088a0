//! Whether two images are of the same state of a page.
//!
//! Left out is what neither redo nor the page's state determines:
//!
//! | bytes | of | because |
//! |---|---|---|
//! | 0..4, last 8 | all pages | checksum and trailer: computed when a page is written (`buf_flush_init_for_writing`) |
//! | 26..34 | all but R-tree pages | page compression leaves the length of the last image here (`os_file_compress_page`), a clean shutdown the LSN in page 0 of the system tablespace; neither is logged |
//!
//! Invariant: [`digest`] covers exactly what [`first_difference`] compares.

use std::ops::Range;

use crate::layout::{
    FIL_PAGE_FILE_FLUSH_LSN, FIL_PAGE_OFFSET, FIL_PAGE_SPACE_ID, FIL_PAGE_TRAILER_BYTES, TYPE_RTREE, page_type,
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

/// The bytes that count, in page order.
fn compared_ranges(page: &[u8]) -> [Range<usize>; 2] {
    let end = page.len().saturating_sub(FIL_PAGE_TRAILER_BYTES);
    let after = if page_type(page) == Some(TYPE_RTREE) { FIL_PAGE_FILE_FLUSH_LSN } else { FIL_PAGE_SPACE_ID };
    [FIL_PAGE_OFFSET..FIL_PAGE_FILE_FLUSH_LSN, after..end]
}

/// CRC-32C over the bytes that must be equal in two images of the same page state. Both images must be uncompressed (see
/// [`super::decompress`]).
pub fn digest(page: &[u8]) -> u32 {
    let [first, second] = compared_ranges(page);
    let sum = crc32c::crc32c_append(0, page.get(first).unwrap_or_default());
    crc32c::crc32c_append(sum, page.get(second).unwrap_or_default())
}

/// The first byte that differs of those that [`digest`] covers.
pub fn first_difference(a: &[u8], b: &[u8]) -> Option<Difference> {
    let at = |offset: usize| Difference { offset, first: a.get(offset).copied(), second: b.get(offset).copied() };
    if a.len() != b.len() {
        return Some(at(a.len().min(b.len())));
    }
    // The ranges are those of both images unless their page types differ, which is found first.
    compared_ranges(a).into_iter().flatten().find(|offset| a.get(*offset) != b.get(*offset)).map(at)
}

#[cfg(test)]
mod tests;
