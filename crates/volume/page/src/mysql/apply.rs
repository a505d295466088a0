//! Applying redo records of MySQL to one page.
//!
//! Redo of this family is physiological: a record says what the server did on the page, and for index pages what its
//! fields are; the work itself is done again. So a page gets right only if it was exactly right before. Every record
//! that looks at records of the page checks what it finds (the page directory, lengths, links), and a new record must
//! turn out as long as its header says: a wrong image shows as an error at once.
//!
//! The image is the page as it is in the server's buffer pool. Pages of ROW_FORMAT=COMPRESSED tablespaces have two
//! images, and redo addresses both; they are not applied to ([`RunOutcome::needs_image`]).
//!
//! Invariants:
//! - Every offset is checked against the page, and every walk along links is bounded: no record and no page content can
//!   cause a panic, an access outside the page, or an endless loop.
//! - A record that cannot be applied is an error and never skipped. After an error the page content is undefined; the
//!   caller throws the image away.
//! - Bytes 0..4, the page LSN and the trailer are not logged. [`super::apply_changes`] sets the LSN,
//!   [`super::finalize`] the rest.
//! - Applying a record allocates nothing, but for the first PAGE_REORGANIZE and the first index with instant changes
//!   that a [`Scratch`] sees.
//!
//! Source of what there is: `recv_parse_or_apply_log_rec_body` in `log/log0recv.cc`. Its effects beyond the page (the
//! size of a tablespace from its page 0, files) is not the applier's business.

use std::fmt;

use redoubt_redo::mysql::record::IndexPageKind;
use redoubt_redo::mysql::{Body, IndexInfo, Record, RecordReader};
use redoubt_redo::{PageId, RedoError};
use thiserror::Error;

use super::flags::Flags;
use crate::apply::frame::{Fault, Frame, ensure};
use crate::apply::index_page::IndexPage;
use crate::apply::init::init_index_page;
use crate::layout::{
    FIL_PAGE_OFFSET, FIL_PAGE_SPACE_ID, FIL_PAGE_TYPE, PAGE_DATA, PAGE_N_HEAP, TYPE_INDEX, TYPE_RTREE,
};
use fields::{InstantIndex, RecordLayout};

mod delete;
mod fields;
mod insert;
mod reorganize;
mod undo;
mod update;

/// Page type: node of the tree with the dictionary's description of the tablespace.
pub const TYPE_SDI: u16 = 17853;
/// Page type: change buffer bitmap.
const TYPE_IBUF_BITMAP: u16 = 5;
/// Bits that the change buffer bitmap has for each page.
const IBUF_BITS_PER_PAGE: usize = 4;
/// Page types of index pages.
const INDEX_TYPES: [u16; 3] = [TYPE_INDEX, TYPE_RTREE, TYPE_SDI];
/// First offset that is logged: checksum and page number are not.
const FIRST_LOGGED_OFFSET: usize = 8;
/// Flag in the heap count of compact pages.
const COMPACT_FLAG: u16 = 0x8000;

macro_rules! record_kinds {
    ($($kind:ident $name:literal),* $(,)?) => {
        /// Kind of a redo record, for messages.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)]
        pub enum RecordKind { $($kind),* }

        impl RecordKind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The server's name of the record.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),* }
            }
        }
    };
}

record_kinds! {
    Number "nBYTES", WriteString "WRITE_STRING", InitFilePage "INIT_FILE_PAGE2", IbufBitmapInit "IBUF_BITMAP_INIT",
    UndoInit "UNDO_INIT", UndoInsert "UNDO_INSERT", UndoEraseEnd "UNDO_ERASE_END",
    UndoHeaderCreate "UNDO_HDR_CREATE", UndoHeaderReuse "UNDO_HDR_REUSE", PageCreate "PAGE_CREATE",
    Insert "REC_INSERT", Delete "REC_DELETE", ClusteredDeleteMark "REC_CLUST_DELETE_MARK",
    SecondaryDeleteMark "REC_SEC_DELETE_MARK", UpdateInPlace "REC_UPDATE_IN_PLACE",
    ListEndDelete "LIST_END_DELETE", ListStartDelete "LIST_START_DELETE",
    ListEndCopyCreated "LIST_END_COPY_CREATED", PageReorganize "PAGE_REORGANIZE", MinRecordMark "REC_MIN_MARK",
    ZipWriteNodePointer "ZIP_WRITE_NODE_PTR", ZipWriteBlobPointer "ZIP_WRITE_BLOB_PTR",
    ZipWriteHeader "ZIP_WRITE_HEADER", ZipPageCompress "ZIP_PAGE_COMPRESS",
    ZipPageReorganize "ZIP_PAGE_REORGANIZE", ZipPageCompressNoData "ZIP_PAGE_COMPRESS_NO_DATA",
    IndexLoad "INDEX_LOAD", DynamicMetadata "TABLE_DYNAMIC_META", File "FILE", Dummy "DUMMY_RECORD",
}

impl RecordKind {
    /// Kind of a decoded record.
    pub const fn of(body: &Body<'_>) -> Self {
        match body {
            Body::Number { .. } => Self::Number,
            Body::WriteString { .. } => Self::WriteString,
            Body::InitFilePage => Self::InitFilePage,
            Body::IbufBitmapInit => Self::IbufBitmapInit,
            Body::UndoInit { .. } => Self::UndoInit,
            Body::UndoInsert { .. } => Self::UndoInsert,
            Body::UndoEraseEnd => Self::UndoEraseEnd,
            Body::UndoHeaderCreate { .. } => Self::UndoHeaderCreate,
            Body::UndoHeaderReuse { .. } => Self::UndoHeaderReuse,
            Body::PageCreate { .. } => Self::PageCreate,
            Body::Insert { .. } => Self::Insert,
            Body::Delete { .. } => Self::Delete,
            Body::ClusteredDeleteMark { .. } => Self::ClusteredDeleteMark,
            Body::SecondaryDeleteMark { .. } => Self::SecondaryDeleteMark,
            Body::UpdateInPlace { .. } => Self::UpdateInPlace,
            Body::ListEndDelete { .. } => Self::ListEndDelete,
            Body::ListStartDelete { .. } => Self::ListStartDelete,
            Body::ListEndCopyCreated { .. } => Self::ListEndCopyCreated,
            Body::PageReorganize { .. } => Self::PageReorganize,
            Body::MinRecordMark { .. } => Self::MinRecordMark,
            Body::ZipWriteNodePointer { .. } => Self::ZipWriteNodePointer,
            Body::ZipWriteBlobPointer { .. } => Self::ZipWriteBlobPointer,
            Body::ZipWriteHeader { .. } => Self::ZipWriteHeader,
            Body::ZipPageCompress { .. } => Self::ZipPageCompress,
            Body::ZipPageReorganize { .. } => Self::ZipPageReorganize,
            Body::ZipPageCompressNoData { .. } => Self::ZipPageCompressNoData,
            Body::IndexLoad { .. } => Self::IndexLoad,
            Body::DynamicMetadata(_) => Self::DynamicMetadata,
            Body::FileCreate { .. } | Body::File(_) => Self::File,
            Body::Dummy => Self::Dummy,
        }
    }

    /// A record of ROW_FORMAT=COMPRESSED pages: the page is available as an image only.
    pub const fn needs_image(self) -> bool {
        matches!(
            self,
            Self::ZipWriteNodePointer
                | Self::ZipWriteBlobPointer
                | Self::ZipWriteHeader
                | Self::ZipPageCompress
                | Self::ZipPageReorganize
                | Self::ZipPageCompressNoData
        )
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
        "cannot apply {kind} to page {page_id} at offset {offset}: {what}; the page image or the redo log is damaged, \
         or a change of the page is in neither: restore the page from a copy"
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
        flags: Flags,
        /// Bytes given.
        actual_bytes: usize,
        /// Bytes per page by the flags.
        expected_bytes: usize,
    },
    /// A record names another page than the one it is applied to.
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
    /// There is no image to start from, and the records do not begin with one.
    #[error(
        "page {page_id} has no valid base image and its pending records contain no INIT_FILE_PAGE2; restore the page \
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
    /// A record was applied: the page LSN moves.
    pub modified: bool,
    /// A record is of a kind that is not applied; the page is as it was before that record.
    pub needs_image: Option<RecordKind>,
}

/// State of the applier between records. One for each thread or each chain of changes.
#[derive(Debug, Default)]
pub struct Scratch {
    instant: InstantIndex,
    old_page: Vec<u8>,
}

/// Check that `page` is as long as `flags` say.
pub(super) fn check_size(page: &[u8], page_id: PageId, flags: Flags) -> Result<(), ApplyError> {
    let expected_bytes = flags.physical_page_size_bytes();
    if page.len() == expected_bytes {
        return Ok(());
    }
    Err(ApplyError::PageSize { page_id, flags, actual_bytes: page.len(), expected_bytes })
}

/// Apply one run: consecutive records of one mini-transaction for one page. Does not touch the page LSN;
/// [`super::apply_changes`] does.
///
/// # Errors
/// See [`ApplyError`]; the page content is undefined afterwards.
pub fn apply_run(
    page: &mut [u8],
    page_id: PageId,
    flags: Flags,
    run: &[u8],
    scratch: &mut Scratch,
) -> Result<RunOutcome, ApplyError> {
    check_size(page, page_id, flags)?;
    apply_run_from(page, page_id, flags, run, 0, scratch)
}

/// Apply the records of a run from number `first_record` on.
pub(super) fn apply_run_from(
    page: &mut [u8],
    page_id: PageId,
    flags: Flags,
    run: &[u8],
    first_record: usize,
    scratch: &mut Scratch,
) -> Result<RunOutcome, ApplyError> {
    let mut outcome = RunOutcome::default();
    let (mut records, mut record, mut number) = (RecordReader::new(run), Record::EMPTY, 0);
    while records.read_into(&mut record).map_err(|source| ApplyError::Decode { page_id, source })? {
        number += 1;
        if number <= first_record {
            continue;
        }
        let kind = RecordKind::of(&record.body);
        if matches!(kind, RecordKind::DynamicMetadata | RecordKind::File | RecordKind::Dummy) {
            return Err(ApplyError::NotAPageChange { page_id, kind });
        }
        if record.page != page_id {
            return Err(ApplyError::WrongPage { page_id, found: record.page });
        }
        if kind.needs_image() || flags.is_row_format_compressed() && kind != RecordKind::IndexLoad {
            outcome.needs_image = Some(kind);
            return Ok(outcome);
        }
        outcome.modified |= kind != RecordKind::IndexLoad;
        apply_body(page, page_id, &record.body, scratch).map_err(|fault| ApplyError::Corrupt {
            page_id,
            kind,
            offset: fault.offset,
            what: fault.what,
        })?;
    }
    Ok(outcome)
}

#[inline]
fn apply_body(page: &mut [u8], id: PageId, body: &Body<'_>, scratch: &mut Scratch) -> Result<(), Fault> {
    match *body {
        Body::Number { offset, len_bytes, value } => write_number(page, offset, len_bytes, value),
        Body::WriteString { offset, data } => {
            let offset = logged_offset(offset)?;
            Frame(page).write(offset, data)
        }
        Body::InitFilePage => init_file_page(page, id),
        Body::IbufBitmapInit => init_bitmap(page),
        Body::UndoInit { kind } => undo::init(page, kind),
        Body::UndoInsert { data } => undo::insert(page, data),
        Body::UndoEraseEnd => undo::erase_end(page),
        Body::UndoHeaderCreate { trx_id } => undo::create_header(page, trx_id),
        Body::UndoHeaderReuse { trx_id } => undo::reuse_header(page, trx_id),
        Body::PageCreate { is_compact, kind } => create_index_page(page, is_compact, kind),
        _ => apply_to_index_page(page, id, body, scratch),
    }
}

#[inline]
fn open<'p>(page: &'p mut [u8], page_no: u32, index: &IndexInfo<'_>) -> Result<IndexPage<'p>, Fault> {
    IndexPage::open_of(page, page_no, index.is_compact(), INDEX_TYPES)
}

/// Records that change an index page.
#[inline]
fn apply_to_index_page(
    page: &mut [u8],
    id: PageId,
    body: &Body<'_>,
    scratch: &mut Scratch,
) -> Result<(), Fault> {
    let page_no = id.page_no.0;
    let Scratch { instant, old_page } = scratch;
    match *body {
        Body::Insert { index, predecessor_offset, body } => {
            let layout = RecordLayout::new(index, instant)?;
            insert::insert(&mut open(page, page_no, &index)?, &layout, usize::from(predecessor_offset), &body)
        }
        Body::Delete { index, offset } => {
            let layout = RecordLayout::new(index, instant)?;
            delete::delete(&mut open(page, page_no, &index)?, &layout, usize::from(offset))
        }
        Body::UpdateInPlace { index, ref system, offset, info_bits, fields } => {
            let (layout, record) = (RecordLayout::new(index, instant)?, usize::from(offset));
            let mut page = open(page, page_no, &index)?;
            update::update_in_place(&mut page, &layout, record, system.as_ref(), info_bits, fields)
        }
        Body::ClusteredDeleteMark { index, is_deleted, ref system, offset } => {
            let (layout, record) = (RecordLayout::new(index, instant)?, usize::from(offset));
            let mut page = open(page, page_no, &index)?;
            update::mark_clustered_deleted(&mut page, &layout, record, is_deleted, system.as_ref())
        }
        Body::SecondaryDeleteMark { is_deleted, offset } => {
            let is_compact = Frame(page).u16(PAGE_N_HEAP)? & COMPACT_FLAG != 0;
            let mut page = IndexPage::open_of(page, page_no, is_compact, INDEX_TYPES)?;
            update::mark_deleted(&mut page, usize::from(offset), is_deleted)
        }
        Body::MinRecordMark { is_compact, offset } => {
            let mut page = IndexPage::open_of(page, page_no, is_compact, INDEX_TYPES)?;
            update::mark_smallest(&mut page, usize::from(offset))
        }
        Body::ListEndDelete { index, offset } => {
            let layout = RecordLayout::new(index, instant)?;
            delete::delete_end(&mut open(page, page_no, &index)?, &layout, usize::from(offset))
        }
        Body::ListStartDelete { index, offset } => {
            let layout = RecordLayout::new(index, instant)?;
            delete::delete_start(&mut open(page, page_no, &index)?, &layout, usize::from(offset))
        }
        Body::ListEndCopyCreated { index, inserts } => {
            let layout = RecordLayout::new(index, instant)?;
            insert::append(&mut open(page, page_no, &index)?, &layout, inserts)
        }
        Body::PageReorganize { index } => {
            let layout = RecordLayout::new(index, instant)?;
            let is_secondary = !index.is_clustered();
            reorganize::reorganize(page, old_page, page_no, &layout, index.is_compact(), is_secondary)
        }
        // The remaining kinds change no page; the caller filtered them.
        _ => Ok(()),
    }
}

#[inline]
fn logged_offset(offset: u16) -> Result<usize, Fault> {
    let offset = usize::from(offset);
    ensure(offset >= FIRST_LOGGED_OFFSET, offset, "bytes 0..8 are never logged")?;
    Ok(offset)
}

#[inline]
fn write_number(page: &mut [u8], offset: u16, len_bytes: u8, value: u64) -> Result<(), Fault> {
    let offset = logged_offset(offset)?;
    let bytes = value.to_be_bytes();
    let skipped = bytes.len().saturating_sub(usize::from(len_bytes));
    Frame(page).write(offset, bytes.get(skipped..).unwrap_or_default())
}

/// Zero the page and write its identity.
fn init_file_page(page: &mut [u8], id: PageId) -> Result<(), Fault> {
    page.fill(0);
    let mut frame = Frame(page);
    frame.write(FIL_PAGE_OFFSET, &id.page_no.0.to_be_bytes())?;
    frame.write(FIL_PAGE_SPACE_ID, &id.space.0.to_be_bytes())
}

/// Make the page an empty change buffer bitmap. What follows the bitmap stays as it is.
fn init_bitmap(page: &mut [u8]) -> Result<(), Fault> {
    let mut frame = Frame(page);
    frame.set_u16(FIL_PAGE_TYPE, TYPE_IBUF_BITMAP)?;
    let len_bytes = (frame.len() * IBUF_BITS_PER_PAGE).div_ceil(8);
    frame.fill(PAGE_DATA, PAGE_DATA + len_bytes, 0)
}

fn create_index_page(page: &mut [u8], is_compact: bool, kind: IndexPageKind) -> Result<(), Fault> {
    let page_type = match kind {
        IndexPageKind::BTree => TYPE_INDEX,
        IndexPageKind::RTree => TYPE_RTREE,
        IndexPageKind::Sdi => TYPE_SDI,
    };
    init_index_page(page, is_compact, page_type)
}

#[cfg(test)]
mod tests;
