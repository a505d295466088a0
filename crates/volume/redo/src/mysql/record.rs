//! One redo record of MySQL, decoded but not yet applied: one variant for each thing that there is to do.
//!
//! Layout: a type (1 byte; bit 7 marks a mini-transaction of a single record), tablespace id and page number (c32 each,
//! see [`varint`](super::varint)), then what the variants say. Three types have no ids. Names follow the server's
//! (`include/mtr0types.h`); a record borrows from the bytes it was read from.
//!
//! | types | variant |
//! |---|---|
//! | 1, 2, 4, 8 (1BYTE to 8BYTES) | [`Body::Number`] |
//! | 30 WRITE_STRING | [`Body::WriteString`] |
//! | 59 INIT_FILE_PAGE2, 29 INIT_FILE_PAGE | [`Body::InitFilePage`] |
//! | 27 IBUF_BITMAP_INIT | [`Body::IbufBitmapInit`] |
//! | 22, 20, 21, 25, 24 UNDO_* | [`Body::UndoInit`] to [`Body::UndoHeaderReuse`] |
//! | 19, 37; 57, 58 _RTREE; 63, 64 _SDI (PAGE_CREATE, COMP_PAGE_CREATE) | [`Body::PageCreate`] |
//! | 67 REC_INSERT | [`Body::Insert`] |
//! | 69 REC_DELETE | [`Body::Delete`] |
//! | 68 REC_CLUST_DELETE_MARK, 11 REC_SEC_DELETE_MARK | [`Body::ClusteredDeleteMark`], [`Body::SecondaryDeleteMark`] |
//! | 70 REC_UPDATE_IN_PLACE | [`Body::UpdateInPlace`] |
//! | 75, 76 LIST_END_DELETE, LIST_START_DELETE | [`Body::ListEndDelete`], [`Body::ListStartDelete`] |
//! | 71 LIST_END_COPY_CREATED | [`Body::ListEndCopyCreated`] |
//! | 72 PAGE_REORGANIZE | [`Body::PageReorganize`] |
//! | 26, 36 REC_MIN_MARK, COMP_REC_MIN_MARK | [`Body::MinRecordMark`] |
//! | 48 to 51, 73, 74 ZIP_* | [`Body::ZipWriteNodePointer`] to [`Body::ZipPageCompressNoData`] |
//! | 61 INDEX_LOAD | [`Body::IndexLoad`] |
//! | 62 TABLE_DYNAMIC_META (no ids) | [`Body::DynamicMetadata`] |
//! | 33, 34, 35, 65 FILE_* | [`Body::FileCreate`], [`Body::File`] |
//! | 32 DUMMY_RECORD (no ids) | [`Body::Dummy`] |
//! | 31 MULTI_REC_END (no ids) | none: the end of a mini-transaction |
//!
//! Not read: 28 (LSN, debug builds), 66 (TEST, the server's own unit tests), and the codes before 8.0.28 (9, 10, 13 to
//! 18, 38 to 46, 52, 53). Servers of this format do not write those old codes, and their recovery does not read them.
//!
//! Invariant: offsets are those on the page (uncompressed frame) and below 65,536; that they lie in the page and mean
//! something there is the applier's to check.

use super::cursor::Cursor;
use super::index_info::IndexInfo;
use super::record_reader::read_insert_body;
use crate::mtr::FileRecord;
use crate::types::PageId;

/// Field numbers from here on are virtual columns: this number plus the column's. Servers before 9.5.0 wrote them so
/// in [`Body::UpdateInPlace`] (`row/row0upd.cc`).
pub const FIRST_VIRTUAL_FIELD: u16 = 1023;

/// What to do, and on which page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The page; [`Record::NO_PAGE`] for records that have none. Page 0 for records about files, the root for
    /// [`Body::IndexLoad`].
    pub page: PageId,
    /// What to do.
    pub body: Body<'a>,
}

impl Record<'_> {
    /// Page of a record without one, as in the server.
    pub const NO_PAGE: PageId = PageId::new(u32::MAX, u32::MAX);
    /// One to read into.
    pub const EMPTY: Self = Self { page: Self::NO_PAGE, body: Body::Dummy };
}

/// Content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Store a big-endian number; on the compressed image too, if there is one.
    Number {
        /// Where.
        offset: u16,
        /// 1, 2, 4 or 8 bytes.
        len_bytes: u8,
        /// Which number; it fits.
        value: u64,
    },
    /// Store bytes; on the compressed image too, if there is one.
    WriteString {
        /// Where.
        offset: u16,
        /// Which bytes. Where they end is not above 65,536.
        data: &'a [u8],
    },
    /// Zero the page, and write its page number and tablespace id.
    InitFilePage,
    /// Make the page an empty change buffer bitmap.
    IbufBitmapInit,
    /// Make the page an empty undo log page.
    UndoInit {
        /// Of which kind of undo log.
        kind: UndoKind,
    },
    /// Append an undo log record at the page's free offset.
    UndoInsert {
        /// The record without its two links.
        data: &'a [u8],
    },
    /// Fill what is free on an undo log page with 0xff.
    UndoEraseEnd,
    /// Begin a new undo log on its header page.
    UndoHeaderCreate {
        /// Its transaction.
        trx_id: u64,
    },
    /// Reset the single undo log of an insert undo page.
    UndoHeaderReuse {
        /// Its transaction.
        trx_id: u64,
    },
    /// Make the page an empty index page.
    PageCreate {
        /// ROW_FORMAT=COMPACT or DYNAMIC (else REDUNDANT).
        is_compact: bool,
        /// Which page type.
        kind: IndexPageKind,
    },
    /// Insert a record.
    Insert {
        /// The index.
        index: IndexInfo<'a>,
        /// Predecessor of the record: its origin.
        predecessor_offset: u16,
        /// The record.
        body: InsertBody<'a>,
    },
    /// Delete a record.
    Delete {
        /// The index.
        index: IndexInfo<'a>,
        /// Its origin.
        offset: u16,
    },
    /// Set or clear the delete mark of a record of a clustered index.
    ClusteredDeleteMark {
        /// The index.
        index: IndexInfo<'a>,
        /// The mark is to be set.
        is_deleted: bool,
        /// DB_TRX_ID and DB_ROLL_PTR to write; `None`: they stay.
        system: Option<SystemColumns>,
        /// Origin of the record.
        offset: u16,
    },
    /// Set or clear the delete mark of a record of a secondary index.
    SecondaryDeleteMark {
        /// The mark is to be set.
        is_deleted: bool,
        /// Origin of the record.
        offset: u16,
    },
    /// Overwrite fields of a record; their lengths stay.
    UpdateInPlace {
        /// The index.
        index: IndexInfo<'a>,
        /// DB_TRX_ID and DB_ROLL_PTR to write; `None`: they stay.
        system: Option<SystemColumns>,
        /// Origin of the record.
        offset: u16,
        /// Info bits of the record afterwards.
        info_bits: u8,
        /// The fields.
        fields: FieldUpdates<'a>,
    },
    /// Delete this record and all after it.
    ListEndDelete {
        /// The index.
        index: IndexInfo<'a>,
        /// Origin of the first record to go.
        offset: u16,
    },
    /// Delete all records before this one.
    ListStartDelete {
        /// The index.
        index: IndexInfo<'a>,
        /// Origin of the first record to stay.
        offset: u16,
    },
    /// Append records to a page that was just created.
    ListEndCopyCreated {
        /// The index.
        index: IndexInfo<'a>,
        /// The records.
        inserts: ShortInserts<'a>,
    },
    /// Rebuild the page, with its records in key order.
    PageReorganize {
        /// The index.
        index: IndexInfo<'a>,
    },
    /// Mark a record as the smallest of its level.
    MinRecordMark {
        /// ROW_FORMAT=COMPACT, DYNAMIC or COMPRESSED (else REDUNDANT).
        is_compact: bool,
        /// Origin of the record.
        offset: u16,
    },
    /// Store the page number of a node pointer of a compressed page.
    ZipWriteNodePointer {
        /// Where on the uncompressed page.
        offset: u16,
        /// Where on the compressed image.
        zip_offset: u16,
        /// The 4 bytes.
        value: &'a [u8; 4],
    },
    /// Store a reference to externally stored data on a compressed page.
    ZipWriteBlobPointer {
        /// Where on the uncompressed page.
        offset: u16,
        /// Where on the compressed image.
        zip_offset: u16,
        /// The 20 bytes.
        value: &'a [u8; 20],
    },
    /// Store header bytes of a compressed page, in the page and in the compressed image.
    ZipWriteHeader {
        /// Where.
        offset: u8,
        /// Which bytes; at least one, and their end is below 94.
        data: &'a [u8],
    },
    /// The compressed image of the page is this; decompressing it gives the page.
    ZipPageCompress {
        /// FIL_PAGE_PREV and FIL_PAGE_NEXT.
        siblings: &'a [u8; 8],
        /// From the page type (offset 24) on.
        data: &'a [u8],
        /// Up to the end of the image; zeros come between `data` and this.
        trailer: &'a [u8],
    },
    /// Rebuild a compressed page, with its records in key order, and compress it.
    ZipPageReorganize {
        /// The index.
        index: IndexInfo<'a>,
        /// zlib's level.
        level: u8,
    },
    /// Compress the page. Written instead of [`Body::ZipPageCompress`] with `innodb_log_compressed_pages=OFF`.
    ZipPageCompressNoData {
        /// The index.
        index: IndexInfo<'a>,
        /// zlib's level.
        level: u8,
    },
    /// Nothing on the page. The index with this root was built without redo, and all its pages are in their file by
    /// now.
    IndexLoad {
        /// Its id.
        index_id: u64,
    },
    /// Nothing on a page. To be kept for the next checkpoint, when the server writes it to a table.
    DynamicMetadata(DynamicMetadata<'a>),
    /// A file was created.
    FileCreate {
        /// Its path, e.g. `./test/t1.ibd`, or `./undo_003` and the like for an undo tablespace.
        path: &'a [u8],
        /// The tablespace flags that it has.
        flags: u32,
    },
    /// A note about a file; never [`FileRecord::Create`].
    File(FileRecord<'a>),
    /// Nothing: filler of the thread that makes log files.
    Dummy,
}

/// Undo logs of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoKind {
    /// Of rows it inserted: nothing after its commit needs it.
    Insert = 1,
    /// Of rows it updated or deleted.
    Update = 2,
}

/// Page types of index pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexPageKind {
    /// FIL_PAGE_INDEX.
    BTree,
    /// FIL_PAGE_RTREE.
    RTree,
    /// FIL_PAGE_SDI: the dictionary's description of the tablespace.
    Sdi,
}

/// Values of the system columns of a clustered index record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemColumns {
    /// Where DB_TRX_ID is in the index. 0 also stands for "none" in records of secondary indexes, which say this
    /// although they have no system columns (`btr/btr0cur.cc`); those come with the flag that nothing is written.
    pub trx_id_position: u16,
    /// DB_TRX_ID.
    pub trx_id: u64,
    /// DB_ROLL_PTR, 56 bits.
    pub roll_pointer: u64,
}

/// A record to insert, as a difference to its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsertBody<'a> {
    /// Difference besides the end. `None`: the predecessor's info bits and origin, and as long as the predecessor.
    pub header: Option<InsertHeader>,
    /// The end of the record, from its first byte that differs on. In the record, extra bytes (header, in reverse
    /// order) come before data; the first byte is that of the extra bytes.
    pub tail: &'a [u8],
}

/// Shape of a record to insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsertHeader {
    /// Info bits, and the status bits in a compact record.
    pub info_and_status_bits: u8,
    /// How many bytes before the data: where the record's origin is, from its first byte.
    pub origin_offset: u16,
    /// How many first bytes are the predecessor's.
    pub mismatch_offset: u16,
}

/// Fields that [`Body::UpdateInPlace`] overwrites: an iterator over [`FieldUpdate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldUpdates<'a> {
    /// Rest of them; decoded once before.
    pub(super) bytes: &'a [u8],
    /// How many are left.
    pub(super) count: u16,
}

/// A field to overwrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldUpdate<'a> {
    /// Its position in the index; see [`FIRST_VIRTUAL_FIELD`].
    pub field: u16,
    /// Its value; `None` is NULL.
    pub data: Option<&'a [u8]>,
}

impl<'a> Iterator for FieldUpdates<'a> {
    type Item = FieldUpdate<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        let mut cursor = Cursor::new(self.bytes, 0);
        let update = super::record_reader::read_field_update(&mut cursor).ok()?;
        self.bytes = self.bytes.get(cursor.at..).unwrap_or_default();
        Some(update)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.count), Some(usize::from(self.count)))
    }
}

impl ExactSizeIterator for FieldUpdates<'_> {}

/// Records that [`Body::ListEndCopyCreated`] appends: an iterator over [`InsertBody`]. The predecessor of each is the
/// last record of the page at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortInserts<'a> {
    /// Rest of them; decoded once before.
    pub(super) bytes: &'a [u8],
}

impl<'a> Iterator for ShortInserts<'a> {
    type Item = InsertBody<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let mut cursor = Cursor::new(self.bytes, 0);
        let insert = read_insert_body(&mut cursor).ok()?;
        self.bytes = self.bytes.get(cursor.at..).unwrap_or_default();
        Some(insert)
    }
}

/// State of a table that the server keeps outside of its pages until a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DynamicMetadata<'a> {
    /// The table's id.
    pub table_id: u64,
    /// Grows with each change of the table's metadata.
    pub version: u64,
    /// The change.
    pub change: MetadataChange<'a>,
}

/// A change of [`DynamicMetadata`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataChange<'a> {
    /// The highest AUTO_INCREMENT value that was used.
    AutoIncrement(u64),
    /// Indexes that were found corrupt: tablespace (4 bytes) and index id (8 bytes) each.
    CorruptIndexes(&'a [[u8; 12]]),
}
