//! InnoDB pages: layout, checksums, page compression, and applying redo records to them.
//!
//! Everything here is pure: bytes in, bytes out. Reading files, locking pages and ordering changes are the
//! business of the caller.
//!
//! The usual way through this crate:
//!
//! 1. [`SpaceFlags`] says how the pages of a tablespace look on disk.
//! 2. [`apply_changes`] brings a page image up to date with a chain of [`Change`]s.
//! 3. [`finalize`] writes checksum and trailer, so that a stock server accepts the page; [`verify`] checks one.
//!
//! These are MariaDB's. [`mysql`] has the same for MySQL, and [`Format`] asks whichever it is.

#![forbid(unsafe_code)]

pub mod apply;
pub mod chain;
pub mod checksum;
pub mod compressed;
pub mod doublewrite;
pub mod encryption;
pub mod flags;
pub mod format;
pub mod layout;
pub mod mysql;

pub use apply::{ApplyError, Cursor, RecordKind, RunOutcome, apply_record, apply_run, page_is_never_written};
pub use chain::{ApplyOutcome, Change, apply_changes, apply_known_changes};
pub use checksum::{ChecksumError, differing_ranges, digest, finalize, verify};
pub use compressed::{
    PageCompressionError, compress, decompress, has_known_algorithm, is_page_compressed_image,
};
pub use flags::{FlagsError, PageCompression, SpaceFlags, flags_of_page0};
pub use format::{Format, FormatError};
