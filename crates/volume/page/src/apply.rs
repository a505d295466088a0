//! Applying redo records to one page.
//!
//! Redo of this family is physical per page: a record needs nothing but the page it names. The image that
//! records address is the page as it is in the server's buffer pool, and for ROW_FORMAT=COMPRESSED the
//! compressed image of the file. `PAGE_COMPRESSED` images must be decompressed first.
//!
//! Invariants:
//! - Every offset is checked against the page, and every walk along links is bounded: no record and no page
//!   content can cause a panic, an access outside the page, or an endless loop.
//! - A record that cannot be applied is an error and never skipped. After an error the page content is
//!   undefined; the caller throws the image away.
//! - Bytes 0..4, the page LSN and the trailer are not logged. [`crate::apply_changes`] sets the LSN,
//!   [`crate::finalize`] the rest.

use std::fmt;

use redoubt_redo::mariadb::record::{Body, Extended, Record};
use redoubt_redo::mariadb::record_reader::RecordReader;
use redoubt_redo::{PageId, RedoError};
use thiserror::Error;

use crate::flags::SpaceFlags;
use crate::layout::{FIL_PAGE_TYPE, TYPE_INDEX};
use frame::{Fault, Frame, ensure};
use index_page::IndexPage;

mod dynamic;
pub(crate) mod frame;
pub(crate) mod index_page;
pub(crate) mod init;
mod redundant;

/// First offset that a WRITE, MEMSET or MEMMOVE may touch: checksum and page number are not logged.
const FIRST_LOGGED_OFFSET: usize = 8;
/// The first pages of a file are never index or undo pages.
const FIRST_EXTENDED_PAGE_NO: u32 = 3;
/// Smallest page that EXTENDED records can work on.
const SMALLEST_LOGICAL_PAGE_BYTES: usize = 4096;

/// Kind of a redo record, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum RecordKind {
    FreePage,
    InitPage,
    Write,
    Memset,
    Memmove,
    Option,
    File,
    InitRowFormatRedundant,
    InitRowFormatDynamic,
    UndoInit,
    UndoAppend,
    InsertHeapRedundant,
    InsertReuseRedundant,
    InsertHeapDynamic,
    InsertReuseDynamic,
    DeleteRowFormatRedundant,
    DeleteRowFormatDynamic,
    TrimPages,
}

impl RecordKind {
    /// Kind of a decoded record.
    pub const fn of(body: &Body<'_>) -> Self {
        match body {
            Body::FreePage => Self::FreePage,
            Body::InitPage => Self::InitPage,
            Body::Write { .. } => Self::Write,
            Body::Memset { .. } => Self::Memset,
            Body::Memmove { .. } => Self::Memmove,
            Body::Option { .. } => Self::Option,
            Body::File(_) => Self::File,
            Body::Extended(extended) => match extended {
                Extended::InitRowFormatRedundant => Self::InitRowFormatRedundant,
                Extended::InitRowFormatDynamic => Self::InitRowFormatDynamic,
                Extended::UndoInit => Self::UndoInit,
                Extended::UndoAppend { .. } => Self::UndoAppend,
                Extended::Insert(insert) => match (insert.comp, insert.reuse_shift.is_some()) {
                    (false, false) => Self::InsertHeapRedundant,
                    (false, true) => Self::InsertReuseRedundant,
                    (true, false) => Self::InsertHeapDynamic,
                    (true, true) => Self::InsertReuseDynamic,
                },
                Extended::DeleteRedundant { .. } => Self::DeleteRowFormatRedundant,
                Extended::DeleteDynamic { .. } => Self::DeleteRowFormatDynamic,
                Extended::TrimPages => Self::TrimPages,
            },
        }
    }

    /// The server's name of the record.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FreePage => "FREE_PAGE",
            Self::InitPage => "INIT_PAGE",
            Self::Write => "WRITE",
            Self::Memset => "MEMSET",
            Self::Memmove => "MEMMOVE",
            Self::Option => "OPTION",
            Self::File => "FILE",
            Self::InitRowFormatRedundant => "INIT_ROW_FORMAT_REDUNDANT",
            Self::InitRowFormatDynamic => "INIT_ROW_FORMAT_DYNAMIC",
            Self::UndoInit => "UNDO_INIT",
            Self::UndoAppend => "UNDO_APPEND",
            Self::InsertHeapRedundant => "INSERT_HEAP_REDUNDANT",
            Self::InsertReuseRedundant => "INSERT_REUSE_REDUNDANT",
            Self::InsertHeapDynamic => "INSERT_HEAP_DYNAMIC",
            Self::InsertReuseDynamic => "INSERT_REUSE_DYNAMIC",
            Self::DeleteRowFormatRedundant => "DELETE_ROW_FORMAT_REDUNDANT",
            Self::DeleteRowFormatDynamic => "DELETE_ROW_FORMAT_DYNAMIC",
            Self::TrimPages => "TRIM_PAGES",
        }
    }
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why records could not be applied to a page.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The record does not fit the page: one of them is damaged, or the image is not the one it was logged for.
    #[error(
        "cannot apply {kind} to page {page_id} at offset {offset}: {what}; the page image or the redo log is \
         damaged: rebuild the page from its last INIT_PAGE, or restore it from a copy"
    )]
    Corrupt {
        /// The page.
        page_id: PageId,
        /// The record.
        kind: RecordKind,
        /// Byte offset on the page.
        offset: usize,
        /// The mismatch.
        what: &'static str,
    },
    /// The image has not the size that the tablespace flags say.
    #[error(
        "page {page_id} has {actual_bytes} bytes, expected {expected_bytes} from tablespace flags {flags}"
    )]
    PageSize {
        /// The page.
        page_id: PageId,
        /// Flags of its tablespace.
        flags: SpaceFlags,
        /// Bytes given.
        actual_bytes: usize,
        /// Bytes per page by the flags.
        expected_bytes: usize,
    },
    /// A run of records names another page than the one it is applied to.
    #[error("records for page {found} were routed to page {page_id}; this is a defect of the caller")]
    WrongPage {
        /// The page to change.
        page_id: PageId,
        /// The page the record names.
        found: PageId,
    },
    /// A record changes no page.
    #[error(
        "{kind} does not change a page, but was routed to page {page_id}; this is a defect of the caller"
    )]
    NotAPageChange {
        /// The page to change.
        page_id: PageId,
        /// The record.
        kind: RecordKind,
    },
    /// A page was freed and then changed without INIT_PAGE, which no server does.
    #[error(
        "{kind} changes page {page_id} after FREE_PAGE and without INIT_PAGE, which a server's own recovery could not \
         follow either; the redo log is damaged, or the server's version is not supported"
    )]
    ChangeOfFreePage {
        /// The page.
        page_id: PageId,
        /// The record.
        kind: RecordKind,
    },
    /// There is no image to start from, and the records do not begin with one.
    #[error(
        "page {page_id} has no valid base image and its pending records contain no INIT_PAGE; restore the page \
         from a copy, or replay from an older checkpoint"
    )]
    NoBase {
        /// The page.
        page_id: PageId,
    },
    /// A run without records.
    #[error("records of page {page_id} are missing; this is a defect of the caller")]
    EmptyRun {
        /// The page.
        page_id: PageId,
    },
    /// The bytes of the run are no records.
    #[error("records of page {page_id} cannot be decoded: {source}")]
    Decode {
        /// The page.
        page_id: PageId,
        /// The decoder's error.
        source: RedoError,
    },
}

/// Effect of a run of records on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RunOutcome {
    /// A record other than FREE_PAGE was applied: the page LSN moves.
    pub modified: bool,
    /// The last record was FREE_PAGE: the content is undefined until the next INIT_PAGE.
    pub freed: bool,
}

/// Position on a page between two records of a run, and the applier's state of the page.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    page_id: PageId,
    /// Where the previous record ended; `None` if the next record must carry page ids.
    position: Option<usize>,
    compressed: bool,
}

impl Cursor {
    /// Before the first record of a run for page `page_id`. `flags` are those of its tablespace.
    pub const fn new(page_id: PageId, flags: SpaceFlags) -> Self {
        Self { page_id, position: None, compressed: flags.is_row_format_compressed() }
    }

    pub(crate) const fn page_id(&self) -> PageId {
        self.page_id
    }

    fn corrupt(&self, body: &Body<'_>, fault: Fault) -> ApplyError {
        let kind = RecordKind::of(body);
        ApplyError::Corrupt { page_id: self.page_id, kind, offset: fault.offset, what: fault.what }
    }
}

/// Whether the image is all zero: a page that the server allocated but never wrote.
pub fn page_is_never_written(page: &[u8]) -> bool {
    page.iter().all(|byte| *byte == 0)
}

/// Check that `page` is as long as `flags` say.
pub(crate) fn check_size(page: &[u8], page_id: PageId, flags: SpaceFlags) -> Result<(), ApplyError> {
    let expected_bytes = flags.physical_page_size_bytes();
    if page.len() == expected_bytes {
        return Ok(());
    }
    Err(ApplyError::PageSize { page_id, flags, actual_bytes: page.len(), expected_bytes })
}

/// Apply one run: the records of one mini-transaction for one page, beginning with a record that carries the
/// page ids. Does not touch the page LSN; [`crate::apply_changes`] does.
///
/// # Errors
/// See [`ApplyError`]; the page content is undefined afterwards.
pub fn apply_run(
    page: &mut [u8],
    page_id: PageId,
    flags: SpaceFlags,
    run: &[u8],
) -> Result<RunOutcome, ApplyError> {
    check_size(page, page_id, flags)?;
    apply_run_from(page, Cursor::new(page_id, flags), run, 0)
}

/// Apply the records of a run from number `first_record` on, which must carry page ids.
pub(crate) fn apply_run_from(
    page: &mut [u8],
    mut cursor: Cursor,
    run: &[u8],
    first_record: usize,
) -> Result<RunOutcome, ApplyError> {
    let mut outcome = RunOutcome::default();
    let page_id = cursor.page_id;
    let (mut records, mut record, mut number) = (RecordReader::new(run), Record::EMPTY, 0);
    while records.read_into(&mut record).map_err(|source| ApplyError::Decode { page_id, source })? {
        if number >= first_record {
            apply_record(page, &mut cursor, &record)?;
            outcome.freed = matches!(record.body, Body::FreePage);
            outcome.modified |= !outcome.freed;
        }
        number += 1;
    }
    Ok(outcome)
}

/// Apply one record.
///
/// FREE_PAGE and OPTION change nothing. TRIM_PAGES and FILE_ records concern files, not pages: routing them
/// here is an error.
///
/// # Errors
/// See [`ApplyError`]; the page content is undefined afterwards.
pub fn apply_record(page: &mut [u8], cursor: &mut Cursor, record: &Record<'_>) -> Result<(), ApplyError> {
    let page_id = cursor.page_id;
    if let Body::File(_) | Body::Extended(Extended::TrimPages) = record.body {
        return Err(ApplyError::NotAPageChange { page_id, kind: RecordKind::of(&record.body) });
    }
    let position = match record.page {
        Some(found) if found != page_id => return Err(ApplyError::WrongPage { page_id, found }),
        Some(_) => Some(0),
        None => cursor.position,
    };
    let result = match position {
        Some(position) => apply_body(page, cursor, position, &record.body),
        None => Err(Fault::new(0, "the record carries no page ids and follows no record of a page")),
    };
    cursor.position = result.map_err(|fault| cursor.corrupt(&record.body, fault))?;
    Ok(())
}

/// Apply a record's body at `position`; answers where it ended.
fn apply_body(
    page: &mut [u8],
    cursor: &Cursor,
    position: usize,
    body: &Body<'_>,
) -> Result<Option<usize>, Fault> {
    let end = match *body {
        Body::Write { distance, data } => {
            let start = logged_range(page, position, distance, data.len())?;
            Frame(page).write(start, data)?;
            start + data.len()
        }
        Body::Memset { distance, len_bytes, pattern } => {
            let start = logged_range(page, position, distance, len_bytes as usize)?;
            memset(page, start, len_bytes as usize, pattern)?;
            start + len_bytes as usize
        }
        Body::Memmove { distance, len_bytes, source_offset } => {
            let target = logged_range(page, position, distance, len_bytes as usize)?;
            let source = target
                .checked_add_signed(source_offset as isize)
                .filter(|source| *source >= FIRST_LOGGED_OFFSET)
                .ok_or(Fault::new(target, "the source lies before the page content"))?;
            Frame(page).move_within(source, target, len_bytes as usize)?;
            target + len_bytes as usize
        }
        Body::InitPage => {
            init::init_page(page, cursor.page_id)?;
            FIL_PAGE_TYPE
        }
        Body::Extended(ref extended) => {
            apply_extended(page, cursor, extended)?;
            FIL_PAGE_TYPE
        }
        Body::Option { .. } => position,
        Body::FreePage | Body::File(_) => return Ok(None),
    };
    Ok(Some(end))
}

/// Start of the bytes that a record changes, after checking that they are on the page.
#[inline]
fn logged_range(page: &[u8], position: usize, distance: u32, len_bytes: usize) -> Result<usize, Fault> {
    let start = position + distance as usize;
    ensure(start >= FIRST_LOGGED_OFFSET, start, "bytes 0..8 are never logged")?;
    ensure(start < page.len() && len_bytes <= page.len() - start, start, "the change ends outside the page")?;
    Ok(start)
}

fn memset(page: &mut [u8], start: usize, len_bytes: usize, pattern: &[u8]) -> Result<(), Fault> {
    let mut frame = Frame(page);
    let target = frame.bytes_mut(start, len_bytes)?;
    if let [byte] = pattern {
        target.fill(*byte);
        return Ok(());
    }
    ensure(
        !pattern.is_empty() && len_bytes.is_multiple_of(pattern.len()),
        start,
        "the length is no multiple of the pattern",
    )?;
    for chunk in target.chunks_exact_mut(pattern.len()) {
        chunk.copy_from_slice(pattern);
    }
    Ok(())
}

fn apply_extended(page: &mut [u8], cursor: &Cursor, extended: &Extended<'_>) -> Result<(), Fault> {
    let page_no = cursor.page_id.page_no.0;
    ensure(page_no >= FIRST_EXTENDED_PAGE_NO, 0, "the record is illegal for the first 3 pages of a file")?;
    ensure(!cursor.compressed, 0, "the record is illegal for ROW_FORMAT=COMPRESSED")?;
    ensure(page.len() >= SMALLEST_LOGICAL_PAGE_BYTES, 0, "the page is smaller than 4 KiB")?;
    match *extended {
        Extended::InitRowFormatRedundant => init::init_index_page(page, false, TYPE_INDEX),
        Extended::InitRowFormatDynamic => init::init_index_page(page, true, TYPE_INDEX),
        Extended::UndoInit => init::init_undo_page(page),
        Extended::UndoAppend { data } => init::append_undo(page, data),
        Extended::Insert(ref insert) => {
            let mut index_page = IndexPage::open(page, page_no, insert.comp)?;
            if insert.comp {
                dynamic::insert(&mut index_page, insert)
            } else {
                redundant::insert(&mut index_page, insert)
            }
        }
        Extended::DeleteRedundant { prev } => {
            redundant::delete(&mut IndexPage::open(page, page_no, false)?, prev as usize)
        }
        Extended::DeleteDynamic { prev, hdr_size, data_size } => dynamic::delete(
            &mut IndexPage::open(page, page_no, true)?,
            prev as usize,
            hdr_size as usize,
            data_size as usize,
        ),
        Extended::TrimPages => Ok(()),
    }
}

#[cfg(test)]
mod tests;
