//! One redo record, decoded but not yet applied.
//!
//! Layout (MariaDB 10.8 and later): byte 0 holds same-page (bit 7), type (bits 6..4) and length
//! (bits 3..0); see `docs/volume/reference/mariadb-redo.md`. A record borrows from the bytes it was read from.
//!
//! Invariant: offsets here are *relative* (`distance` from where the previous record of the same page
//! ended), because only the applier knows the current position on the page.

use crate::mtr::FileRecord;
use crate::types::PageId;

/// A record of one page, or a note about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The page ids as written in the record. `None`: same page as the record before it.
    /// For [`Body::File`] always `Some`, with page number 0.
    pub page: Option<PageId>,
    /// Content of the record.
    pub body: Body<'a>,
}

impl Record<'_> {
    /// One to read into.
    pub const EMPTY: Self = Self { page: None, body: Body::Option { payload: &[] } };
}

/// Content of a record. Names follow the server's (`mtr0types.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Page content becomes undefined; bytes and page LSN stay.
    FreePage,
    /// Zero the page and write its identity.
    InitPage,
    /// Copy `data` to `current + distance`.
    Write {
        /// Distance in bytes from the current position.
        distance: u32,
        /// Bytes to copy.
        data: &'a [u8],
    },
    /// Fill `len_bytes` from `current + distance`, repeating `pattern`.
    Memset {
        /// Distance in bytes from the current position.
        distance: u32,
        /// How many bytes to fill.
        len_bytes: u32,
        /// Repeated pattern, at least one byte.
        pattern: &'a [u8],
    },
    /// Move `len_bytes` inside the page, reading the page as it is now.
    Memmove {
        /// Distance in bytes from the current position to the destination.
        distance: u32,
        /// How many bytes to move.
        len_bytes: u32,
        /// Source minus destination, in bytes; never 0.
        source_offset: i32,
    },
    /// Higher-level record on an uncompressed page.
    Extended(Extended<'a>),
    /// Option record; `OPT_PAGE_CHECKSUM` of debug builds. To be ignored.
    Option {
        /// Everything after the ids.
        payload: &'a [u8],
    },
    /// A note about a tablespace file.
    File(FileRecord<'a>),
}

/// Payload of an EXTENDED record (`mrec_ext_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended<'a> {
    /// Initialise a ROW_FORMAT=REDUNDANT index page.
    InitRowFormatRedundant,
    /// Initialise a ROW_FORMAT=COMPACT or DYNAMIC index page.
    InitRowFormatDynamic,
    /// Initialise an undo log page.
    UndoInit,
    /// Append an undo log record.
    UndoAppend {
        /// The record.
        data: &'a [u8],
    },
    /// Insert a record into an index page.
    Insert(Insert<'a>),
    /// Delete a record of a ROW_FORMAT=REDUNDANT page.
    DeleteRedundant {
        /// Predecessor, relative to the infimum.
        prev: u32,
    },
    /// Delete a record of a ROW_FORMAT=COMPACT or DYNAMIC page.
    DeleteDynamic {
        /// Predecessor, relative to the infimum.
        prev: u32,
        /// Header bytes of the record before its 5 fixed bytes.
        hdr_size: u32,
        /// Data bytes of the record.
        data_size: u32,
    },
    /// The tablespace was cut to `record.page.page_no` pages; everything logged before it is void.
    TrimPages,
}

/// Payload of the four INSERT_* records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insert<'a> {
    /// ROW_FORMAT=COMPACT or DYNAMIC (else REDUNDANT).
    pub comp: bool,
    /// `Some`: reuse the first record of the free list, with this shift (0 for REDUNDANT).
    /// `None`: take space from the heap.
    pub reuse_shift: Option<u32>,
    /// Predecessor, relative to the infimum.
    pub prev: u32,
    /// Packed header information (`enc` in the server).
    pub enc: u32,
    /// Header bytes to copy from the predecessor.
    pub hdr_c: u32,
    /// Data bytes to copy from the predecessor.
    pub data_c: u32,
    /// Literal header bytes followed by literal data bytes.
    pub rest: &'a [u8],
}
