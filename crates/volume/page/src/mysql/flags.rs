//! Tablespace flags of MySQL 8.0 and later (`FSP_SPACE_FLAGS`, 4 bytes at offset 54 of page 0).
//!
//! | bits | meaning |
//! |---|---|
//! | 0 | not REDUNDANT or COMPACT only; always equal to bit 5 |
//! | 1..4 | ROW_FORMAT=COMPRESSED page size (512 << n), 0 if it is not |
//! | 5 | externally stored columns have no prefix in the record |
//! | 6..9 | page size (512 << n), 0 = 16 KiB |
//! | 10 | DATA DIRECTORY |
//! | 11 | tablespace of several tables |
//! | 12 | temporary |
//! | 13 | encrypted |
//! | 14 | holds the dictionary's description of itself (SDI) |
//!
//! Source: `include/fsp0types.h`, `fsp_flags_is_valid` in `include/fsp0fsp.ic`. The first ten bits are those of
//! MariaDB's older layout ([`crate::SpaceFlags`]). From bit 10 on the two differ: MariaDB ignores bit 10, has bit 16
//! for page compression and no other, while MySQL's flags say nothing about page compression: each page that is
//! compressed carries a mark of its own.
//!
//! Invariant: the size methods of [`Flags`] answer for every 32-bit value (an impossible size is 0); only a value that
//! passed [`Flags::check`] is known to describe pages.

use std::fmt;

use thiserror::Error;

use crate::layout::{FSP_SPACE_FLAGS, get_u32};

const POST_ANTELOPE: u32 = 1;
const ZIP_SIZE_SHIFT: u32 = 1;
const ATOMIC_BLOBS: u32 = 1 << 5;
const PAGE_SIZE_SHIFT: u32 = 6;
const DATA_DIRECTORY: u32 = 1 << 10;
const SHARED: u32 = 1 << 11;
const TEMPORARY: u32 = 1 << 12;
const ENCRYPTED: u32 = 1 << 13;
const SDI: u32 = 1 << 14;
/// Bits that may be set.
const KNOWN_BITS: u32 = (1 << 15) - 1;
const DEFAULT_PAGE_SIZE_BYTES: usize = 16384;
/// Largest code of a ROW_FORMAT=COMPRESSED page: 16 KiB.
const ZIP_SHIFT_MAX: u32 = 5;

/// Flags of a tablespace, as stored in its page 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u32);

/// Why a flags word cannot describe a tablespace that is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FlagsError {
    /// No server writes it.
    #[error(
        "tablespace flags {flags} are invalid: {reason}; the file is damaged, or of a server version that is not \
         supported"
    )]
    Invalid {
        /// The word.
        flags: Flags,
        /// The mismatch.
        reason: &'static str,
    },
    /// The tablespace is encrypted.
    #[error(
        "the tablespace is encrypted (flags {flags}), and its pages cannot be read outside the server; decrypt \
         it (ALTER TABLE ... ENCRYPTION='N', or ALTER TABLESPACE)"
    )]
    Encrypted {
        /// The word.
        flags: Flags,
    },
    /// Too few bytes to hold the flags.
    #[error("page 0 has {len_bytes} bytes, too short to hold tablespace flags (58 bytes needed)")]
    TooShort {
        /// Bytes given.
        len_bytes: usize,
    },
}

impl Flags {
    /// Page size of the server (`innodb_page_size`) in bytes; 0 if the flags name an impossible one.
    pub const fn logical_page_size_bytes(self) -> usize {
        match (self.0 >> PAGE_SIZE_SHIFT) & 15 {
            0 => DEFAULT_PAGE_SIZE_BYTES,
            shift @ 3..=7 => 512 << shift,
            _ => 0,
        }
    }

    /// Size in bytes of a page in the file. Smaller than the logical size for ROW_FORMAT=COMPRESSED. 0 if the flags
    /// name an impossible size.
    pub const fn physical_page_size_bytes(self) -> usize {
        match self.zip_shift() {
            0 => self.logical_page_size_bytes(),
            shift if shift <= ZIP_SHIFT_MAX => 512 << shift,
            _ => 0,
        }
    }

    /// Whether the tablespace is ROW_FORMAT=COMPRESSED (`KEY_BLOCK_SIZE`). Redo is not applied to its pages
    /// ([`crate::mysql::Applied::NeedsImage`]).
    pub const fn is_row_format_compressed(self) -> bool {
        self.zip_shift() != 0
    }

    /// Whether tables share the tablespace.
    pub const fn is_shared(self) -> bool {
        self.0 & SHARED != 0
    }

    /// Whether the tablespace is temporary: it has no redo.
    pub const fn is_temporary(self) -> bool {
        self.0 & TEMPORARY != 0
    }

    /// Whether pages are encrypted.
    pub const fn is_encrypted(self) -> bool {
        self.0 & ENCRYPTED != 0
    }

    /// Whether the dictionary's description of the tablespace is in it.
    pub const fn has_sdi(self) -> bool {
        self.0 & SDI != 0
    }

    /// Pages per extent.
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
    /// [`FlagsError::Invalid`] names the field that is out of range; [`FlagsError::Encrypted`].
    pub const fn check(self) -> Result<(), FlagsError> {
        match self.fault() {
            Some(reason) => Err(FlagsError::Invalid { flags: self, reason }),
            None if self.is_encrypted() => Err(FlagsError::Encrypted { flags: self }),
            None => Ok(()),
        }
    }

    const fn zip_shift(self) -> u32 {
        (self.0 >> ZIP_SIZE_SHIFT) & 15
    }

    const fn fault(self) -> Option<&'static str> {
        let is_file_per_table = self.0 & (SHARED | TEMPORARY) == 0;
        if self.0 & !KNOWN_BITS != 0 {
            Some("unknown bits are set")
        } else if (self.0 & POST_ANTELOPE != 0) != (self.0 & ATOMIC_BLOBS != 0) {
            Some("bits 0 and 5 differ")
        } else if self.logical_page_size_bytes() == 0 {
            Some("the page size is not between 4 KiB and 64 KiB")
        } else if self.zip_shift() != 0 && self.0 & ATOMIC_BLOBS == 0 {
            Some("ROW_FORMAT=COMPRESSED without the flags it needs")
        } else if self.zip_shift() > ZIP_SHIFT_MAX
            || self.physical_page_size_bytes() > self.logical_page_size_bytes()
        {
            Some("the ROW_FORMAT=COMPRESSED page size is larger than the page size")
        } else if self.0 & DATA_DIRECTORY != 0 && !is_file_per_table {
            Some("DATA DIRECTORY of a tablespace that is shared or temporary")
        } else if self.is_encrypted() && self.is_temporary() {
            Some("temporary and encrypted")
        } else {
            None
        }
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({:#x})", self.0)
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Read and check the flags of a tablespace from the beginning (at least 58 bytes) of its page 0.
///
/// # Errors
/// Too few bytes, or a word that describes no tablespace that is supported.
pub fn flags_of_page0(page0: &[u8]) -> Result<Flags, FlagsError> {
    let flags =
        Flags(get_u32(page0, FSP_SPACE_FLAGS).ok_or(FlagsError::TooShort { len_bytes: page0.len() })?);
    flags.check()?;
    Ok(flags)
}

#[cfg(test)]
mod tests;
