//! Checksums and trailers: making a replayed page valid for disk, checking one, and comparing two.
//!
//! | format | checksum | trailer |
//! |---|---|---|
//! | `full_crc32` | CRC-32C of all but the last 4 bytes, in the last 4 bytes; bytes 0..4 are 0 | low half of the LSN before the checksum |
//! | `full_crc32`, page-compressed image | the same over the compressed length | none |
//! | `crc32` | CRC-32C of 4..26 xor CRC-32C of 38..size-8, at 0 and at size-8 | low half of the LSN in the last 4 bytes |
//! | ROW_FORMAT=COMPRESSED | CRC-32C of 4..16 xor of 24..26 xor of 34..size, at 0 | none |
//!
//! Servers before `crc32` had other checksums, which are accepted and never made ([`old`]).
//!
//! Bytes 26..34 hold the key version of an encrypted page, and in memory the split sequence number of an R-tree page.
//! In all files that are not `full_crc32` the server clears them when it writes a page (`buf_page_encrypt`), but for
//! page 0, for TRX_SYS, and in tablespaces with page compression, whose pages that do not compress are written as
//! they are.
//!
//! Invariant: [`digest`] and [`differing_ranges`] leave out exactly the bytes that [`finalize`] computes or
//! that no redo record describes, so two images of one page state always compare equal.

mod old;

use std::ops::Range;

use crc32c::crc32c;
use thiserror::Error;

use crate::apply::page_is_never_written;
use crate::doublewrite::TRX_SYS_PAGE_NO;
use crate::encryption::key_version;
use crate::flags::{FlagsError, PageCompression, SpaceFlags};
use crate::layout::{
    FIL_PAGE_CHECKSUM, FIL_PAGE_DATA, FIL_PAGE_FILE_FLUSH_LSN, FIL_PAGE_LSN, FIL_PAGE_OFFSET,
    FIL_PAGE_SPACE_ID, FIL_PAGE_TRAILER_BYTES, FIL_PAGE_TYPE, TYPE_PAGE_COMPRESSED,
    TYPE_PAGE_COMPRESSED_ENCRYPTED, get_u32, page_id, page_type, put,
};

/// Value that `innodb_checksum_algorithm=none` wrote in place of a checksum.
pub const NO_CHECKSUM_MAGIC: u32 = 0xdead_beef;

/// Why a page image cannot be trusted, or cannot be made valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChecksumError {
    /// The image is not as long as the flags say.
    #[error("the page image has {actual_bytes} bytes, but tablespace flags {flags} say {expected_bytes}")]
    Size {
        /// Flags of the tablespace.
        flags: SpaceFlags,
        /// Bytes given.
        actual_bytes: usize,
        /// Bytes per page by the flags.
        expected_bytes: usize,
    },
    /// The flags describe no page.
    #[error(transparent)]
    Flags(#[from] FlagsError),
    /// The stored checksum does not match the content.
    #[error(
        "stored page checksum {stored:#010x} does not match the content ({computed:#010x}); the page is torn or damaged"
    )]
    Mismatch {
        /// In the page.
        stored: u32,
        /// Of the content.
        computed: u32,
    },
    /// The two copies of the LSN's low half differ.
    #[error(
        "the page LSN ends in {header:#010x} but its trailer says {trailer:#010x}; the page is torn or damaged"
    )]
    Trailer {
        /// In the file header.
        header: u32,
        /// In the trailer.
        trailer: u32,
    },
    /// The page is marked as compressed to an impossible size.
    #[error(
        "the page-compressed image claims {claimed_bytes} bytes, the page has {page_bytes}; the page is damaged"
    )]
    CompressedSize {
        /// By the page type field.
        claimed_bytes: usize,
        /// Length of the page.
        page_bytes: usize,
    },
}

/// Length in bytes of a page-compressed image in a `full_crc32` file, by its page type. `None`: not compressed.
pub fn full_crc32_compressed_len_bytes(page: &[u8]) -> Option<usize> {
    let kind = page_type(page)?;
    (kind & crate::layout::TYPE_FULL_CRC32_COMPRESSED != 0).then(|| usize::from(kind & 0x7fff) << 8)
}

fn check_size(page: &[u8], flags: SpaceFlags) -> Result<(), ChecksumError> {
    flags.check()?;
    let expected_bytes = flags.physical_page_size_bytes();
    if page.len() == expected_bytes {
        Ok(())
    } else {
        Err(ChecksumError::Size { flags, actual_bytes: page.len(), expected_bytes })
    }
}

/// CRC-32C of a range; an impossible range counts as empty.
fn crc_of(page: &[u8], range: Range<usize>) -> u32 {
    crc32c(page.get(range).unwrap_or_default())
}

pub(crate) fn crc32_sum(page: &[u8]) -> u32 {
    let end = page.len().saturating_sub(FIL_PAGE_TRAILER_BYTES);
    crc_of(page, FIL_PAGE_OFFSET..FIL_PAGE_FILE_FLUSH_LSN) ^ crc_of(page, FIL_PAGE_DATA..end)
}

pub(crate) fn row_format_compressed_sum(page: &[u8]) -> u32 {
    crc_of(page, FIL_PAGE_OFFSET..FIL_PAGE_LSN)
        ^ crc_of(page, FIL_PAGE_TYPE..FIL_PAGE_TYPE + 2)
        ^ crc_of(page, FIL_PAGE_SPACE_ID..page.len())
}

pub(crate) fn u32_at(page: &[u8], offset: usize) -> u32 {
    get_u32(page, offset).unwrap_or_default()
}

/// Write checksum and trailer of an uncompressed image (as redo addresses it), so that a stock server
/// accepts it. An all-zero image, a page never written, is left alone.
///
/// # Errors
/// Flags that describe no page, or an image of another size.
pub fn finalize(page: &mut [u8], flags: SpaceFlags) -> Result<(), ChecksumError> {
    check_size(page, flags)?;
    if page_is_never_written(page) {
        return Ok(());
    }
    let trailer = page.len() - FIL_PAGE_TRAILER_BYTES;
    if clears_key_version(page, flags) {
        put(page, FIL_PAGE_FILE_FLUSH_LSN, &[0; FIL_PAGE_SPACE_ID - FIL_PAGE_FILE_FLUSH_LSN]);
    }
    if flags.is_row_format_compressed() {
        let sum = row_format_compressed_sum(page);
        put(page, FIL_PAGE_CHECKSUM, &sum.to_be_bytes());
        return Ok(());
    }
    let lsn_low = u32_at(page, FIL_PAGE_LSN + 4).to_be_bytes();
    if flags.is_full_crc32() {
        put(page, FIL_PAGE_CHECKSUM, &[0; 4]);
        put(page, trailer, &lsn_low);
        let sum = crc_of(page, 0..trailer + 4);
        put(page, trailer + 4, &sum.to_be_bytes());
    } else {
        let sum = crc32_sum(page).to_be_bytes();
        put(page, FIL_PAGE_CHECKSUM, &sum);
        put(page, trailer, &sum);
        put(page, trailer + 4, &lsn_low);
    }
    Ok(())
}

fn clears_key_version(page: &[u8], flags: SpaceFlags) -> bool {
    let is_exempt = match u32_at(page, FIL_PAGE_OFFSET) {
        0 => true,
        TRX_SYS_PAGE_NO => u32_at(page, FIL_PAGE_SPACE_ID) == 0,
        _ => false,
    };
    !flags.is_full_crc32() && flags.page_compression() == PageCompression::None && !is_exempt
}

/// Check a page image as read from a file: checksum, and agreement of LSN and trailer.
///
/// An all-zero image (a page never written) is accepted. So is a page-compressed image; in files older than
/// `full_crc32` such an image carries no checksum, and only decompressing it shows damage. In those files
/// `innodb_checksum_algorithm=none` and the checksums of servers before `crc32` are accepted too, as servers do. Their
/// encrypted pages keep the checksums of before the encryption; the one of what is in the file comes after the key
/// version (`fil_encrypt_buf_for_non_full_checksum` in `fil0crypt.cc`).
///
/// # Errors
/// The mismatch, with both values.
pub fn verify(page: &[u8], flags: SpaceFlags) -> Result<(), ChecksumError> {
    check_size(page, flags)?;
    if page_is_never_written(page) {
        return Ok(());
    }
    if flags.is_full_crc32() {
        return verify_full_crc32(page);
    }
    if is_sound_encrypted(page, flags) {
        return Ok(());
    }
    if flags.is_row_format_compressed() {
        verify_row_format_compressed(page)
    } else {
        verify_crc32(page, flags)
    }
}

/// A whole encrypted page of a format older than `full_crc32`.
fn is_sound_encrypted(page: &[u8], flags: SpaceFlags) -> bool {
    if page_id(page).is_none_or(|id| key_version(page, id, flags) == 0) {
        return false;
    }
    let (computed, has_trailer) = if flags.is_row_format_compressed() {
        (row_format_compressed_sum(page), false)
    } else {
        (crc32_sum(page), page_type(page) != Some(TYPE_PAGE_COMPRESSED_ENCRYPTED))
    };
    u32_at(page, FIL_PAGE_FILE_FLUSH_LSN + 4) == computed
        && (!has_trailer || check_trailer(page, page.len() - 4).is_ok())
}

/// Check the checksum of a ROW_FORMAT=COMPRESSED page.
pub(crate) fn verify_row_format_compressed(page: &[u8]) -> Result<(), ChecksumError> {
    let (stored, computed) = (u32_at(page, FIL_PAGE_CHECKSUM), row_format_compressed_sum(page));
    let is_valid =
        stored == computed || stored == NO_CHECKSUM_MAGIC || old::is_row_format_compressed_valid(page);
    accept(is_valid, stored, computed)
}

fn accept(valid: bool, stored: u32, computed: u32) -> Result<(), ChecksumError> {
    if valid { Ok(()) } else { Err(ChecksumError::Mismatch { stored, computed }) }
}

fn check_trailer(page: &[u8], trailer_offset: usize) -> Result<(), ChecksumError> {
    let (header, trailer) = (u32_at(page, FIL_PAGE_LSN + 4), u32_at(page, trailer_offset));
    if header == trailer { Ok(()) } else { Err(ChecksumError::Trailer { header, trailer }) }
}

fn verify_full_crc32(page: &[u8]) -> Result<(), ChecksumError> {
    let compressed = full_crc32_compressed_len_bytes(page);
    let len_bytes = compressed.unwrap_or(page.len());
    if compressed.is_some() && !(FIL_PAGE_FILE_FLUSH_LSN + 4..page.len()).contains(&len_bytes) {
        return Err(ChecksumError::CompressedSize { claimed_bytes: len_bytes, page_bytes: page.len() });
    }
    let (stored, computed) = (u32_at(page, len_bytes - 4), crc_of(page, 0..len_bytes - 4));
    accept(stored == computed, stored, computed)?;
    let is_encrypted = u32_at(page, FIL_PAGE_CHECKSUM) != 0;
    if compressed.is_some() || is_encrypted { Ok(()) } else { check_trailer(page, len_bytes - 8) }
}

fn verify_crc32(page: &[u8], flags: SpaceFlags) -> Result<(), ChecksumError> {
    let is_compressed_image =
        matches!(page_type(page), Some(TYPE_PAGE_COMPRESSED | TYPE_PAGE_COMPRESSED_ENCRYPTED));
    if is_compressed_image && flags.page_compression() == PageCompression::PerPage {
        return Ok(());
    }
    verify_crc32_page(page)
}

/// Check checksum and trailer of a page that is not `full_crc32`, ROW_FORMAT=COMPRESSED or page-compressed.
pub(crate) fn verify_crc32_page(page: &[u8]) -> Result<(), ChecksumError> {
    let trailer = page.len().saturating_sub(FIL_PAGE_TRAILER_BYTES);
    check_trailer(page, trailer + 4)?;
    let (first, second) = (u32_at(page, FIL_PAGE_CHECKSUM), u32_at(page, trailer));
    let computed = crc32_sum(page);
    if [first, second] == [computed; 2] || [first, second] == [NO_CHECKSUM_MAGIC; 2] || old::is_valid(page) {
        return Ok(());
    }
    Err(ChecksumError::Mismatch { stored: if first == computed { second } else { first }, computed })
}

/// The bytes of an image that redo determines, in page order.
fn logged_ranges(len_bytes: usize, flags: SpaceFlags) -> [Range<usize>; 2] {
    let trailer = len_bytes.saturating_sub(FIL_PAGE_TRAILER_BYTES);
    if flags.is_full_crc32() {
        return [FIL_PAGE_OFFSET..trailer, trailer..trailer];
    }
    let end = if flags.is_row_format_compressed() { len_bytes } else { trailer };
    [FIL_PAGE_OFFSET..FIL_PAGE_FILE_FLUSH_LSN, FIL_PAGE_SPACE_ID..end]
}

/// CRC-32C over the bytes that must be equal in two images of the same page state: all but checksum and trailer, and
/// in files that are not `full_crc32` bytes 26..34, which the server clears in most files (see [`finalize`]). Both
/// images must be uncompressed (see [`crate::decompress`]).
pub fn digest(page: &[u8], flags: SpaceFlags) -> u32 {
    let [first, second] = logged_ranges(page.len(), flags);
    let sum = crc32c::crc32c_append(0, page.get(first).unwrap_or_default());
    crc32c::crc32c_append(sum, page.get(second).unwrap_or_default())
}

/// Where two images differ, over the bytes that [`digest`] covers. Images of different length differ from
/// the end of the shorter one on.
pub fn differing_ranges(a: &[u8], b: &[u8], flags: SpaceFlags) -> Vec<Range<usize>> {
    let common = a.len().min(b.len());
    let mut differing: Vec<Range<usize>> = Vec::new();
    for range in logged_ranges(common, flags) {
        let pairs =
            a.get(range.clone()).unwrap_or_default().iter().zip(b.get(range.clone()).unwrap_or_default());
        for (offset, _) in range.clone().zip(pairs).filter(|(_, (a, b))| a != b) {
            match differing.last_mut() {
                Some(last) if last.end == offset => last.end += 1,
                _ => differing.push(offset..offset + 1),
            }
        }
    }
    if a.len() != b.len() {
        differing.push(common..a.len().max(b.len()));
    }
    differing
}

#[cfg(test)]
mod tests;
