//! Tablespace flags (`FSP_SPACE_FLAGS`, 4 bytes at offset 54 of page 0): page sizes and page format.
//!
//! Two layouts share the word; bit 4 tells them apart.
//!
//! | layout | bits |
//! |---|---|
//! | `full_crc32` (bit 4 set) | 0..3 page size (512 << n), 4 marker, 5..7 page compression algorithm |
//! | older (bit 4 clear) | 0 not REDUNDANT-only, 1..4 ROW_FORMAT=COMPRESSED size (512 << n), 5 atomic BLOBs, 6..9 page size (512 << n, 0 = 16 KiB), 10 ignored, 16 page compression |
//!
//! Invariant: the size methods of [`SpaceFlags`] answer for every 32-bit value (an impossible size is 0);
//! only a value that passed [`SpaceFlags::check`] is known to describe pages.

use std::fmt;

use thiserror::Error;

use crate::layout::{FSP_SPACE_FLAGS, get_u32};

const FULL_CRC32_MARKER: u32 = 1 << 4;
const FULL_CRC32_ALGORITHM_SHIFT: u32 = 5;
const PAGE_ALGORITHM_LAST: u32 = 6;
const POST_ANTELOPE: u32 = 1;
const ATOMIC_BLOBS: u32 = 1 << 5;
const ZIP_SIZE_SHIFT: u32 = 1;
const PAGE_SIZE_SHIFT: u32 = 6;
const RESERVED_SHIFT: u32 = 10;
const PAGE_COMPRESSION: u32 = 1 << 16;
/// Bits that may be set in the older layout.
const KNOWN_BITS: u32 = (1 << 17) - 1;
const DEFAULT_PAGE_SIZE_BYTES: usize = 16384;

/// Flags of a tablespace, as stored in its page 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SpaceFlags(pub u32);

/// How `PAGE_COMPRESSED` tables of a tablespace are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCompression {
    /// Pages are never page-compressed.
    None,
    /// The tablespace names the algorithm (1 zlib, 2 lz4, 3 lzo, 4 lzma, 5 bzip2, 6 snappy).
    Algorithm(u8),
    /// Older layout: each compressed page names its own algorithm.
    PerPage,
}

/// Why a flags word cannot describe a tablespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FlagsError {
    /// The word is in neither layout.
    #[error(
        "tablespace flags {flags:#x} are invalid: {reason}; the file is damaged, encrypted at page 0, or of a \
         server version that is not supported"
    )]
    Invalid {
        /// The word.
        flags: u32,
        /// The mismatch.
        reason: &'static str,
    },
    /// Too few bytes to hold the flags.
    #[error("page 0 has {len_bytes} bytes, too short to hold tablespace flags (58 bytes needed)")]
    TooShort {
        /// Bytes given.
        len_bytes: usize,
    },
}

impl SpaceFlags {
    /// Whether pages carry one CRC-32C over the whole page (`innodb_checksum_algorithm=full_crc32`).
    pub const fn is_full_crc32(self) -> bool {
        self.0 & FULL_CRC32_MARKER != 0
    }

    /// Page size of the server (`innodb_page_size`) in bytes; 0 if the flags name an impossible one.
    pub const fn logical_page_size_bytes(self) -> usize {
        let shift = if self.is_full_crc32() { self.0 & 15 } else { (self.0 >> PAGE_SIZE_SHIFT) & 15 };
        match shift {
            0 if !self.is_full_crc32() => DEFAULT_PAGE_SIZE_BYTES,
            5 if !self.is_full_crc32() => 0,
            3..=7 => 512 << shift,
            _ => 0,
        }
    }

    /// Size in bytes of a page in the file, and of the image that redo addresses. Smaller than the logical
    /// size for ROW_FORMAT=COMPRESSED. 0 if the flags name an impossible size.
    pub const fn physical_page_size_bytes(self) -> usize {
        match self.zip_shift() {
            0 => self.logical_page_size_bytes(),
            shift if shift <= 5 => 512 << shift,
            _ => 0,
        }
    }

    /// Whether the tablespace is ROW_FORMAT=COMPRESSED (`KEY_BLOCK_SIZE`).
    pub const fn is_row_format_compressed(self) -> bool {
        self.zip_shift() != 0
    }

    /// Whether and how pages may be stored page-compressed (`PAGE_COMPRESSED=1`).
    pub const fn page_compression(self) -> PageCompression {
        if self.is_full_crc32() {
            match (self.0 >> FULL_CRC32_ALGORITHM_SHIFT) & 7 {
                0 => PageCompression::None,
                algorithm => PageCompression::Algorithm(algorithm as u8),
            }
        } else if self.0 & PAGE_COMPRESSION != 0 {
            PageCompression::PerPage
        } else {
            PageCompression::None
        }
    }

    /// Pages per extent, which is also the number of pages in a doublewrite block.
    pub const fn extent_size_pages(self) -> usize {
        match self.logical_page_size_bytes() {
            4096 => 256,
            8192 => 128,
            _ => 64,
        }
    }

    /// Check that the flags describe pages this crate understands.
    ///
    /// # Errors
    /// [`FlagsError::Invalid`] names the field that is out of range.
    pub const fn check(self) -> Result<(), FlagsError> {
        let reason = if self.is_full_crc32() { self.full_crc32_fault() } else { self.older_fault() };
        match reason {
            Some(reason) => Err(FlagsError::Invalid { flags: self.0, reason }),
            None => Ok(()),
        }
    }

    const fn zip_shift(self) -> u32 {
        if self.is_full_crc32() { 0 } else { (self.0 >> ZIP_SIZE_SHIFT) & 15 }
    }

    const fn full_crc32_fault(self) -> Option<&'static str> {
        if self.logical_page_size_bytes() == 0 {
            Some("the page size is not between 4 KiB and 64 KiB")
        } else if self.0 >> FULL_CRC32_ALGORITHM_SHIFT > PAGE_ALGORITHM_LAST {
            Some("unknown page compression algorithm or unknown bits")
        } else {
            None
        }
    }

    const fn older_fault(self) -> Option<&'static str> {
        let page_shift = (self.0 >> PAGE_SIZE_SHIFT) & 15;
        let largest_zip_shift = if page_shift == 0 || page_shift > 5 { 5 } else { page_shift };
        if self.0 & !KNOWN_BITS != 0 {
            Some("unknown bits are set")
        } else if self.0 & (POST_ANTELOPE | ATOMIC_BLOBS) == ATOMIC_BLOBS {
            Some("atomic BLOBs without the newer row formats")
        } else if (self.0 >> RESERVED_SHIFT) & 0x3e != 0 {
            Some("reserved bits are set")
        } else if self.logical_page_size_bytes() == 0 {
            Some("the page size is not between 4 KiB and 64 KiB")
        } else if self.zip_shift() > largest_zip_shift {
            Some("the ROW_FORMAT=COMPRESSED page size is larger than the page size")
        } else if self.zip_shift() != 0 && self.0 & (POST_ANTELOPE | ATOMIC_BLOBS) != 33 {
            Some("ROW_FORMAT=COMPRESSED without the flags it needs")
        } else {
            None
        }
    }
}

impl fmt::Debug for SpaceFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpaceFlags({:#x})", self.0)
    }
}

impl fmt::Display for SpaceFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Read and check the flags of a tablespace from the beginning (at least 58 bytes) of its page 0.
///
/// # Errors
/// Too few bytes, or a word that describes no tablespace.
pub fn flags_of_page0(page0: &[u8]) -> Result<SpaceFlags, FlagsError> {
    let flags =
        SpaceFlags(get_u32(page0, FSP_SPACE_FLAGS).ok_or(FlagsError::TooShort { len_bytes: page0.len() })?);
    flags.check()?;
    Ok(flags)
}

#[cfg(test)]
mod tests;
