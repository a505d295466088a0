//! The format of the pages of a tablespace, whichever server family it is of: what the rest of Redoubt asks of a page
//! without knowing whose it is.
//!
//! Invariant: an answer is exactly that of the family's own function ([`crate::apply_changes`] and its like for
//! MariaDB, [`crate::mysql`] for MySQL).

use std::fmt;
use std::ops::Range;

use redoubt_redo::{Family, Lsn, PageId};
use thiserror::Error;

use crate::apply::page_is_never_written;
use crate::chain::Change;
use crate::flags::{FlagsError, PageCompression, SpaceFlags, flags_of_page0};
use crate::mysql::{self, Applied, Flags, Scratch};
use crate::{ApplyError, ChecksumError, PageCompressionError, layout};

/// The family and the tablespace flags, as stored in page 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    /// Whose pages.
    pub family: Family,
    /// Its tablespace flags.
    pub flags: u32,
}

/// Why a format describes no pages that are supported, or a page is not of it.
#[derive(Debug, Error)]
pub enum FormatError {
    /// Flags of MariaDB.
    #[error(transparent)]
    MariaDbFlags(#[from] FlagsError),
    /// Flags of MySQL.
    #[error(transparent)]
    MySqlFlags(#[from] mysql::FlagsError),
    /// Frame of a MariaDB page.
    #[error(transparent)]
    MariaDbChecksum(#[from] ChecksumError),
    /// Frame of a MySQL page.
    #[error(transparent)]
    MySqlChecksum(#[from] mysql::checksum::ChecksumError),
    /// Page compression.
    #[error(transparent)]
    PageCompression(#[from] PageCompressionError),
    /// Redo of MariaDB.
    #[error(transparent)]
    MariaDbApply(#[from] ApplyError),
    /// Redo of MySQL.
    #[error(transparent)]
    MySqlApply(#[from] mysql::ApplyError),
    /// Changes of a page that only images tell of.
    #[error(
        "cannot build page {page_id} from redo ({kind}): pages with ROW_FORMAT=COMPRESSED exist only as the \
         server wrote them; this is a defect of the caller"
    )]
    NeedsImage {
        /// The page.
        page_id: PageId,
        /// The record.
        kind: mysql::RecordKind,
    },
}

impl Format {
    /// Of a MariaDB tablespace.
    pub const fn of_mariadb(flags: SpaceFlags) -> Self {
        Self { family: Family::MariaDb, flags: flags.0 }
    }

    /// The flags, if the tablespace is MariaDB's.
    pub const fn as_mariadb(self) -> Option<SpaceFlags> {
        match self.family {
            Family::MariaDb => Some(self.mariadb()),
            Family::MySql => None,
        }
    }

    /// Read and check the flags of a tablespace from the beginning (at least 58 bytes) of its page 0.
    ///
    /// # Errors
    /// Too few bytes, or a word that describes no tablespace that is supported.
    pub fn of_page0(family: Family, page0: &[u8]) -> Result<Self, FormatError> {
        let flags = match family {
            Family::MariaDb => flags_of_page0(page0)?.0,
            Family::MySql => mysql::flags_of_page0(page0)?.0,
        };
        Ok(Self { family, flags })
    }

    /// Check that the flags describe pages this crate understands.
    ///
    /// # Errors
    /// Flags that no server writes, or that are not supported.
    pub fn check(self) -> Result<(), FormatError> {
        match self.family {
            Family::MariaDb => Ok(self.mariadb().check()?),
            Family::MySql => Ok(self.mysql().check()?),
        }
    }

    const fn mariadb(self) -> SpaceFlags {
        SpaceFlags(self.flags)
    }

    const fn mysql(self) -> Flags {
        Flags(self.flags)
    }

    /// Size in bytes of a page in the file; 0 if the flags name an impossible one.
    pub const fn physical_page_size_bytes(self) -> usize {
        match self.family {
            Family::MariaDb => self.mariadb().physical_page_size_bytes(),
            Family::MySql => self.mysql().physical_page_size_bytes(),
        }
    }

    /// Whether redo tells what a page of the tablespace is. If not, it is available as an image only.
    pub const fn is_replayed(self) -> bool {
        match self.family {
            Family::MariaDb => true,
            Family::MySql => !self.mysql().is_row_format_compressed(),
        }
    }

    /// Write checksum and trailer of an uncompressed image, so that a stock server accepts it. An all-zero image, a
    /// page never written, is left alone.
    ///
    /// # Errors
    /// Flags that describe no page, or an image of another size.
    pub fn finalize(self, page: &mut [u8]) -> Result<(), FormatError> {
        match self.family {
            Family::MariaDb => Ok(crate::finalize(page, self.mariadb())?),
            Family::MySql => Ok(mysql::finalize(page, self.mysql())?),
        }
    }

    /// Check a page image as read from a file.
    ///
    /// # Errors
    /// The mismatch.
    pub fn verify(self, page: &[u8]) -> Result<(), FormatError> {
        match self.family {
            Family::MariaDb => Ok(crate::verify(page, self.mariadb())?),
            Family::MySql => Ok(mysql::verify(page, self.mysql())?),
        }
    }

    /// Whether the image of a page is page-compressed.
    pub fn is_page_compressed_image(self, page: &[u8]) -> bool {
        match self.family {
            Family::MariaDb => crate::is_page_compressed_image(page, self.mariadb()),
            Family::MySql => mysql::is_page_compressed_image(page),
        }
    }

    /// Whether [`Format::decompress`] has the algorithm of this image. True for an image that is not compressed.
    pub fn has_known_algorithm(self, page: &[u8]) -> bool {
        match self.family {
            Family::MariaDb => crate::has_known_algorithm(page, self.mariadb()),
            // Both algorithms of MySQL are known.
            Family::MySql => true,
        }
    }

    /// Whether the tablespace names an algorithm that [`Format::decompress`] does not have.
    pub fn names_unknown_algorithm(self) -> bool {
        match self.as_mariadb().map(SpaceFlags::page_compression) {
            Some(PageCompression::Algorithm(algorithm)) => !crate::compressed::is_known(u64::from(algorithm)),
            _ => false,
        }
    }

    /// Decompress a page-compressed image. `Ok(None)`: the image is not compressed.
    ///
    /// # Errors
    /// An algorithm that is not supported, an encrypted image, or damage.
    pub fn decompress(self, page: &[u8]) -> Result<Option<Vec<u8>>, FormatError> {
        match self.family {
            Family::MariaDb => Ok(crate::decompress(page, self.mariadb())?),
            Family::MySql => Ok(mysql::decompress(page, self.mysql())?),
        }
    }

    /// CRC-32C over the bytes that must be equal in two uncompressed images of the same page state. The page LSN is one
    /// of them for MariaDB, and not for MySQL, whose servers raise it without a change ([`mysql::compare`]).
    pub fn digest(self, page: &[u8]) -> u32 {
        match self.family {
            Family::MariaDb => crate::digest(page, self.mariadb()),
            Family::MySql => mysql::digest(page),
        }
    }

    /// Where two images of the same length differ, in the bytes that [`Format::digest`] covers.
    pub fn differing_ranges(self, a: &[u8], b: &[u8]) -> Vec<Range<usize>> {
        match self.family {
            Family::MariaDb => crate::differing_ranges(a, b, self.mariadb()),
            Family::MySql => mysql::differing_ranges(a, b),
        }
    }

    /// Bring an image up to date with changes that come in LSN order. `base_is_valid`: `page` holds a sound image; if
    /// not, the changes must contain one that initialises the page.
    ///
    /// # Errors
    /// See [`ApplyError`] and [`mysql::ApplyError`]; the page content is undefined afterwards.
    pub fn apply_changes<'a, I>(
        self,
        page: &mut [u8],
        page_id: PageId,
        base_is_valid: bool,
        changes: I,
        scratch: &mut Scratch,
    ) -> Result<(), FormatError>
    where
        I: IntoIterator<Item = Change<'a>>,
        I::IntoIter: Clone,
    {
        match self.family {
            Family::MariaDb => {
                crate::apply_changes(page, page_id, self.mariadb(), base_is_valid, changes)?;
                Ok(())
            }
            Family::MySql => {
                let flags = self.mysql();
                let applied = mysql::apply_changes(page, page_id, flags, base_is_valid, changes, scratch)?;
                up_to_date(page_id, applied)
            }
        }
    }

    /// [`Format::apply_changes`] to a sound image, with changes that initialise the page only by
    /// the very first record, if at all (`starts_anew`), and that they do not free it.
    ///
    /// # Errors
    /// See [`ApplyError`] and [`mysql::ApplyError`]; the page content is undefined afterwards.
    pub fn apply_known_changes<'a>(
        self,
        page: &mut [u8],
        page_id: PageId,
        starts_anew: bool,
        changes: impl IntoIterator<Item = Change<'a>>,
        scratch: &mut Scratch,
    ) -> Result<(), FormatError> {
        match self.family {
            Family::MariaDb => {
                crate::apply_known_changes(page, page_id, self.mariadb(), starts_anew, changes)?;
                Ok(())
            }
            Family::MySql => {
                let flags = self.mysql();
                let applied =
                    mysql::apply_known_changes(page, page_id, flags, starts_anew, changes, scratch)?;
                up_to_date(page_id, applied)
            }
        }
    }
}

fn up_to_date(page_id: PageId, applied: Applied) -> Result<(), FormatError> {
    match applied {
        Applied::UpToDate(_) => Ok(()),
        Applied::NeedsImage { kind } => Err(FormatError::NeedsImage { page_id, kind }),
    }
}

/// Raises the LSN of a MySQL image to `lsn`. An image that a server wrote when the redo had come to `lsn`, and not in
/// its recovery, has all changes up to there, even if its own LSN is older. MySQL gives a page that was filled without
/// redo the LSN of the oldest unwritten page. Recovery would apply redo of the page's previous content to such an
/// image.
pub fn complete_image(family: Family, page: &mut [u8], lsn: Lsn) {
    let is_written = !page_is_never_written(page);
    if family == Family::MySql && is_written && mysql::page_lsn(page).is_some_and(|own| own < lsn) {
        mysql::set_page_lsn(page, lsn);
    }
}

/// LSN of a page as a position in the redo stream; `None` if the slice holds no file header.
pub fn page_lsn(family: Family, page: &[u8]) -> Option<Lsn> {
    match family {
        Family::MariaDb => layout::page_lsn(page),
        Family::MySql => mysql::page_lsn(page),
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tablespace flags {:#x}", self.family, self.flags)
    }
}

#[cfg(test)]
mod tests;
