//! The frame of a page: making a replayed page valid for disk, and checking one.
//!
//! | page | checksum | trailer |
//! |---|---|---|
//! | as redo addresses it | CRC-32C of 4..26 xor CRC-32C of 38..size-8, at 0 and at size-8 | low half of the LSN in the last 4 bytes |
//! | ROW_FORMAT=COMPRESSED | CRC-32C of 4..16 xor of 24..26 xor of 34..size, at 0 | none |
//! | page-compressed | none of its own: that of the page is in the payload | none |
//!
//! `innodb_checksum_algorithm` is `crc32` unless it was set; `none` and `innodb` are what other servers wrote, and
//! every server reads all three (`buf/checksum.cc`). They are accepted and never made.
//!
//! Bytes 26..34 are no part of any checksum. In page 0 of the system tablespace they are the LSN of a shutdown, in
//! R-tree pages the split sequence number, in others what page compression left there; they are stored as they are.
//!
//! One thing the server changes when it writes a page: with 16 KiB pages a page type that does not fit its page number
//! or is not known becomes 13 (`buf_flush_init_for_writing` in `buf/buf0flu.cc`). No release since MySQL 5.5 makes such
//! pages, and a page that is not changed is not written, so [`finalize`] leaves types alone.

use super::flags::{Flags, FlagsError};
use crate::apply::page_is_never_written;
use crate::checksum::{self as shared, ChecksumError as SharedError};
use crate::layout::{FIL_PAGE_CHECKSUM, FIL_PAGE_LSN, FIL_PAGE_TRAILER_BYTES, page_type, put};

use thiserror::Error;

/// Page type of a page-compressed image.
pub(super) const TYPE_PAGE_COMPRESSED: u16 = 14;
/// Page types of encrypted images.
const ENCRYPTED_TYPES: std::ops::RangeInclusive<u16> = 15..=17;

/// Why a page image cannot be trusted, or cannot be made valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChecksumError {
    /// The image is not as long as the flags say.
    #[error("the page image has {actual_bytes} bytes, but tablespace flags {flags} say {expected_bytes}")]
    Size {
        /// Flags of the tablespace.
        flags: Flags,
        /// Bytes given.
        actual_bytes: usize,
        /// Bytes per page by the flags.
        expected_bytes: usize,
    },
    /// The flags describe no page.
    #[error(transparent)]
    Flags(#[from] FlagsError),
    /// The page is encrypted.
    #[error("the page is encrypted; encrypted tablespaces cannot be read outside the server")]
    Encrypted,
    /// The checksum or the trailer does not match the content.
    #[error(transparent)]
    Content(SharedError),
}

/// The image is encrypted, page-compressed or not.
pub fn is_encrypted_image(page: &[u8]) -> bool {
    page_type(page).is_some_and(|kind| ENCRYPTED_TYPES.contains(&kind))
}

fn check_size(page: &[u8], flags: Flags) -> Result<(), ChecksumError> {
    flags.check()?;
    let expected_bytes = flags.physical_page_size_bytes();
    if page.len() == expected_bytes {
        Ok(())
    } else {
        Err(ChecksumError::Size { flags, actual_bytes: page.len(), expected_bytes })
    }
}

/// Write checksum and trailer of an image that is not page-compressed, so that a stock server accepts it. An all-zero
/// image, a page never written, is left alone.
///
/// # Errors
/// Flags that describe no page, or an image of another size.
pub fn finalize(page: &mut [u8], flags: Flags) -> Result<(), ChecksumError> {
    check_size(page, flags)?;
    if page_is_never_written(page) {
        return Ok(());
    }
    if flags.is_row_format_compressed() {
        let sum = shared::row_format_compressed_sum(page);
        put(page, FIL_PAGE_CHECKSUM, &sum.to_be_bytes());
        return Ok(());
    }
    let trailer = page.len() - FIL_PAGE_TRAILER_BYTES;
    let lsn_low = shared::u32_at(page, FIL_PAGE_LSN + 4).to_be_bytes();
    let sum = shared::crc32_sum(page).to_be_bytes();
    put(page, FIL_PAGE_CHECKSUM, &sum);
    put(page, trailer, &sum);
    put(page, trailer + 4, &lsn_low);
    Ok(())
}

/// Check a page image as read from a file: checksum, and agreement of LSN and trailer.
///
/// An all-zero image (a page never written) is accepted. So is a page-compressed image, which carries no checksum: only
/// decompressing it shows damage.
///
/// # Errors
/// The mismatch, with both values.
pub fn verify(page: &[u8], flags: Flags) -> Result<(), ChecksumError> {
    check_size(page, flags)?;
    if page_is_never_written(page) {
        return Ok(());
    }
    if flags.is_row_format_compressed() {
        return shared::verify_row_format_compressed(page).map_err(ChecksumError::Content);
    }
    match page_type(page) {
        Some(TYPE_PAGE_COMPRESSED) => Ok(()),
        Some(kind) if ENCRYPTED_TYPES.contains(&kind) => Err(ChecksumError::Encrypted),
        _ => shared::verify_crc32_page(page).map_err(ChecksumError::Content),
    }
}

#[cfg(test)]
mod tests;
