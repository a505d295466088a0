//! The format of a tablespace's pages, of whatever server family: what they are called by, and one place to ask.
//!
//! Matched once for each page or chain of changes, never for a record. Invariant: two formats with the same family and
//! flags describe the same pages.

use crate::apply::ApplyError;
use crate::chain::Change;
use crate::checksum::ChecksumError;
use crate::compressed::PageCompressionError;
use crate::flags::{FlagsError, SpaceFlags};
use crate::layout::{FSP_SPACE_FLAGS, get_u32};
use crate::mysql;
use redoubt_redo::{Family, Lsn, PageId};
use std::fmt;
use std::ops::Range;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Format {
    /// Whose server.
    pub family: Family,
    /// Flags of the tablespace, as its page 0 has them.
    pub flags: u32,
}

/// What is wrong with pages, their flags, or changes of them.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each is the error that it holds")]
pub enum FormatError {
    #[error(transparent)]
    Flags(#[from] FlagsError),
    #[error(transparent)]
    MySqlFlags(#[from] mysql::FlagsError),
    #[error(transparent)]
    Checksum(#[from] ChecksumError),
    #[error(transparent)]
    MySqlChecksum(#[from] mysql::ChecksumError),
    #[error(transparent)]
    Compression(#[from] PageCompressionError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    MySqlApply(#[from] mysql::ApplyError),
    /// Changes of a page that only images tell of.
    #[error(
        "page {page_id} of a tablespace with ROW_FORMAT=COMPRESSED was to be built from redo ({kind}), and is only had as the \
         server wrote it; this is a defect of the caller"
    )]
    NeedsImage {
        /// The page.
        page_id: PageId,
        /// The record.
        kind: mysql::RecordKind,
    },
}

/// Memory that applying changes uses again and again.
pub type Scratch = mysql::Scratch;

impl Format {
    /// Of a MariaDB tablespace.
    pub const fn mariadb(flags: SpaceFlags) -> Self {
        Self { family: Family::MariaDb, flags: flags.0 }
    }

    /// Its flags, if it is of a MariaDB tablespace.
    pub const fn as_mariadb(self) -> Option<SpaceFlags> {
        match self.family {
            Family::MariaDb => Some(SpaceFlags(self.flags)),
            Family::MySql => None,
        }
    }

    const fn mysql_flags(self) -> mysql::Flags {
        mysql::Flags(self.flags)
    }

    const fn mariadb_flags(self) -> SpaceFlags {
        SpaceFlags(self.flags)
    }

    /// Read and check the flags from the beginning (at least 58 bytes) of page 0 of a tablespace.
    ///
    /// # Errors
    /// Too few bytes, or a word that describes no tablespace.
    pub fn of_page0(family: Family, page0: &[u8]) -> Result<Self, FormatError> {
        let flags =
            get_u32(page0, FSP_SPACE_FLAGS).ok_or(FlagsError::TooShort { len_bytes: page0.len() })?;
        let format = Self { family, flags };
        format.check()?;
        Ok(format)
    }

    /// Check that the flags describe pages this crate understands.
    ///
    /// # Errors
    /// One of those for flags.
    pub fn check(self) -> Result<(), FormatError> {
        match self.family {
            Family::MariaDb => Ok(self.mariadb_flags().check()?),
            Family::MySql => Ok(self.mysql_flags().check()?),
        }
    }

    /// Size in bytes of a page in the file; 0 if the flags name an impossible size.
    pub const fn physical_page_size_bytes(self) -> usize {
        match self.family {
            Family::MariaDb => self.mariadb_flags().physical_page_size_bytes(),
            Family::MySql => self.mysql_flags().physical_page_size_bytes(),
        }
    }

    /// Pages are only had as images, because redo of them is not applied (MySQL's ROW_FORMAT=COMPRESSED).
    pub const fn needs_images(self) -> bool {
        matches!(self.family, Family::MySql) && self.mysql_flags().is_row_format_compressed()
    }

    /// Check the checksum of an image as it is stored. All zeros are fine.
    ///
    /// # Errors
    /// What does not match.
    pub fn verify(self, page: &[u8]) -> Result<(), FormatError> {
        match self.family {
            Family::MariaDb => Ok(crate::verify(page, self.mariadb_flags())?),
            Family::MySql => Ok(mysql::verify(page, self.mysql_flags())?),
        }
    }

    /// Write checksum and trailer, so that a stock server accepts the page.
    ///
    /// # Errors
    /// Flags that describe no page, or an image of another size.
    pub fn finalize(self, page: &mut [u8]) -> Result<(), FormatError> {
        match self.family {
            Family::MariaDb => Ok(crate::finalize(page, self.mariadb_flags())?),
            Family::MySql => Ok(mysql::finalize(page, self.mysql_flags())?),
        }
    }

    /// CRC-32C of what is the same in all images of one state of a page.
    pub fn digest(self, page: &[u8]) -> u32 {
        match self.family {
            Family::MariaDb => crate::digest(page, self.mariadb_flags()),
            Family::MySql => mysql::digest(page),
        }
    }

    /// Where two images differ that should be of the same state.
    pub fn differing_ranges(self, a: &[u8], b: &[u8]) -> Vec<Range<usize>> {
        match self.family {
            Family::MariaDb => crate::differing_ranges(a, b, self.mariadb_flags()),
            Family::MySql => mysql::differing_ranges(a, b),
        }
    }

    /// The image is page-compressed.
    pub fn is_page_compressed_image(self, page: &[u8]) -> bool {
        match self.family {
            Family::MariaDb => crate::is_page_compressed_image(page, self.mariadb_flags()),
            Family::MySql => mysql::is_page_compressed_image(page),
        }
    }

    /// The page of an image that is page-compressed; `None`: it is not.
    ///
    /// # Errors
    /// Damage, or an algorithm that is not known here.
    pub fn decompress(self, page: &[u8]) -> Result<Option<Vec<u8>>, FormatError> {
        match self.family {
            Family::MariaDb => Ok(crate::decompress(page, self.mariadb_flags())?),
            Family::MySql => Ok(mysql::decompress(page, self.mysql_flags())?),
        }
    }

    /// [`crate::apply_changes`] or [`mysql::apply_changes`]. True: the last change freed the page.
    ///
    /// # Errors
    /// Those of the two; the page content is undefined afterwards.
    pub fn apply_changes<'a, I>(
        self,
        page: &mut [u8],
        page_id: PageId,
        base_is_valid: bool,
        changes: I,
    ) -> Result<(), FormatError>
    where
        I: IntoIterator<Item = Change<'a>>,
        I::IntoIter: Clone,
    {
        match self.family {
            Family::MariaDb => {
                crate::apply_changes(page, page_id, self.mariadb_flags(), base_is_valid, changes)?;
                Ok(())
            }
            Family::MySql => {
                let (flags, mut scratch) = (self.mysql_flags(), Scratch::default());
                let applied =
                    mysql::apply_changes(page, page_id, flags, base_is_valid, changes, &mut scratch)?;
                up_to_date(page_id, applied)
            }
        }
    }

    /// [`crate::apply_known_changes`] or [`mysql::apply_known_changes`].
    ///
    /// # Errors
    /// Those of the two; the page content is undefined afterwards.
    pub fn apply_known_changes<'a>(
        self,
        page: &mut [u8],
        page_id: PageId,
        starts_anew: bool,
        changes: impl IntoIterator<Item = Change<'a>>,
    ) -> Result<(), FormatError> {
        match self.family {
            Family::MariaDb => {
                crate::apply_known_changes(page, page_id, self.mariadb_flags(), starts_anew, changes)?;
                Ok(())
            }
            Family::MySql => {
                let (flags, mut scratch) = (self.mysql_flags(), Scratch::default());
                let applied =
                    mysql::apply_known_changes(page, page_id, flags, starts_anew, changes, &mut scratch)?;
                up_to_date(page_id, applied)
            }
        }
    }
}

fn up_to_date(page_id: PageId, applied: mysql::Applied) -> Result<(), FormatError> {
    match applied {
        mysql::Applied::UpToDate(_) => Ok(()),
        mysql::Applied::NeedsImage { kind } => Err(FormatError::NeedsImage { page_id, kind }),
    }
}

/// LSN of a page; `None` if the slice holds no file header.
pub fn page_lsn(family: Family, page: &[u8]) -> Option<Lsn> {
    match family {
        Family::MariaDb => crate::layout::page_lsn(page),
        Family::MySql => mysql::page_lsn(page),
    }
}

/// Writes the LSN of a page; `false` if the slice holds no file header.
pub fn set_page_lsn(family: Family, page: &mut [u8], lsn: Lsn) -> bool {
    match family {
        Family::MariaDb => crate::layout::set_page_lsn(page, lsn),
        Family::MySql => mysql::set_page_lsn(page, lsn),
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {:#x}", self.family, self.flags)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#x}", self.flags)
    }
}
