//! Redo records, decoded one after the other.
//!
//! Owns the meaning of every byte of a record; the layouts stand at the functions that read them, the types in
//! [`record`](super::record). Sources: `log/log0recv.cc` for what there is, `page/page0cur.cc`, `page/page0page.cc`,
//! `btr/btr0cur.cc`, `row/row0upd.cc`, `trx/trx0undo.cc`, `trx/trx0rec.cc`, `page/page0zip.cc`, `fil/fil0fil.cc` and
//! `dict/dict0dict.cc` for single records.
//!
//! Invariants: what is decoded is checked as far as it can be without the page and its size. [`RedoError::Truncated`]
//! is returned only when the bytes given end inside the record; everything else that is wrong is another error.

use super::cursor::{Cursor, bad_number};
use super::index_info::IndexInfo;
use super::record::{
    Body, DynamicMetadata, FieldUpdate, FieldUpdates, IndexPageKind, InsertBody, InsertHeader,
    MetadataChange, Record, ShortInserts, SystemColumns, UndoKind,
};
use crate::error::RedoError;
use crate::mtr::FileRecord;
use crate::types::PageId;

/// Largest page size of the server, in bytes.
pub const PAGE_SIZE_MAX_BYTES: usize = 65_536;

/// Bit 7 of a type: the record is a mini-transaction of its own.
pub(super) const SINGLE: u8 = 0x80;
/// Type of the byte that ends a mini-transaction of several records.
pub(super) const MULTI_REC_END: u8 = 31;
/// Type of the record that is one byte.
const DUMMY: u8 = 32;
/// Type of the only other record without page ids.
const TABLE_DYNAMIC_META: u8 = 62;

/// Flag of an update or delete mark: DB_TRX_ID and DB_ROLL_PTR stay (`include/btr0types.h`).
const KEEP_SYSTEM_COLUMNS: u8 = 4;
/// Length that means NULL in an update.
const LEN_NULL: u32 = u32::MAX;
/// Field numbers of updates: the fields of an index, and after them its table's virtual columns.
const FIELD_NUMBER_MAX: u32 = 2 * 1023;
/// Where the records of a compressed page begin at the earliest.
const ZIP_RECORDS_START: u16 = 94;
/// Highest level of zlib.
const ZLIB_LEVEL_MAX: u8 = 9;
/// Most bytes of the records that are copied to one page: less than a page of records, of which each has at most 10
/// bytes besides its own 6 or more.
const COPIED_MAX_BYTES: u32 = 4 * PAGE_SIZE_MAX_BYTES as u32;

/// Tablespace ids of undo tablespaces (`include/dict0dict.h`: 127 ranges of 400,000 below the log's own id).
const UNDO_SPACES: std::ops::Range<u32> = 0xffff_fff0 - 127 * 400_000..0xffff_fff0;

/// Decode the record at `bytes[at..]` into `record`, and return where it ends. [`MULTI_REC_END`] is no record.
///
/// Not returned: a processor that has just written a record in small pieces waits when it is to be copied in large
/// ones.
#[inline(always)]
pub(super) fn decode_record<'a>(
    bytes: &'a [u8],
    at: usize,
    record: &mut Record<'a>,
) -> Result<usize, RedoError> {
    let mut cursor = Cursor::new(bytes, at);
    let first = cursor.byte("a redo record")?;
    let kind = first & !SINGLE;
    if kind == TABLE_DYNAMIC_META {
        record.page = Record::NO_PAGE;
        record.body = Body::DynamicMetadata(decode_dynamic_metadata(&mut cursor)?);
        return Ok(cursor.at);
    }
    if first == DUMMY {
        *record = Record { page: Record::NO_PAGE, body: Body::Dummy };
        return Ok(cursor.at);
    }
    if !is_page_type(kind) {
        return Err(unknown_type(at, first));
    }
    let space = cursor.c32("a tablespace id")?;
    let page_no = cursor.c32("a page number")?;
    record.page = PageId::new(space, page_no);
    decode_body(kind, &mut cursor, record)?;
    Ok(cursor.at)
}

/// The types that are followed by page ids.
#[inline(always)]
const fn is_page_type(kind: u8) -> bool {
    const TYPES: u128 = {
        let types = [
            1, 2, 4, 8, 11, 19, 20, 21, 22, 24, 25, 26, 27, 29, 30, 33, 34, 35, 36, 37, 48, 49, 50, 51, 57,
            58, 59, 61, 63, 64, 65, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76,
        ];
        let mut bits = 0;
        let mut index = 0;
        while index < types.len() {
            bits |= 1 << types[index];
            index += 1;
        }
        bits
    };
    TYPES >> kind & 1 != 0
}

#[cold]
const fn unknown_type(offset: usize, byte: u8) -> RedoError {
    let expected = match byte & !SINGLE {
        9 | 10 | 13..=18 | 38..=46 | 52 | 53 => {
            "a record type of MySQL 8.0.30 or later (this one is from before; start and stop that server cleanly first)"
        }
        28 | 66 => "a record type of a release build (this one is for the server's own tests)",
        MULTI_REC_END => "a record, not the end of a mini-transaction",
        _ => "a record type from 1 to 76 (a newer server may write others; see the supported versions)",
    };
    RedoError::BadByte { offset, byte, expected }
}

/// The bytes after the page ids.
#[inline(always)]
fn decode_body<'a>(kind: u8, cursor: &mut Cursor<'a>, record: &mut Record<'a>) -> Result<(), RedoError> {
    record.body = match kind {
        1 | 2 | 4 => decode_number(kind, cursor)?,
        67 => {
            let index = IndexInfo::decode(cursor)?;
            let predecessor_offset = cursor.u16("the predecessor in REC_INSERT")?;
            Body::Insert { index, predecessor_offset, body: read_insert_body(cursor)? }
        }
        20 => {
            let len_bytes = cursor.u16("the length in UNDO_INSERT")?;
            Body::UndoInsert {
                data: cursor.take(usize::from(len_bytes), "the undo log record in UNDO_INSERT")?,
            }
        }
        30 => {
            let at = cursor.at;
            let offset = cursor.u16("the offset in WRITE_STRING")?;
            let len_bytes = cursor.u16("the length in WRITE_STRING")?;
            if usize::from(offset) + usize::from(len_bytes) > PAGE_SIZE_MAX_BYTES {
                return Err(bad_number(at, u64::from(offset), "a WRITE_STRING that ends in the page"));
            }
            Body::WriteString {
                offset,
                data: cursor.take(usize::from(len_bytes), "the data of WRITE_STRING")?,
            }
        }
        69 => {
            let index = IndexInfo::decode(cursor)?;
            Body::Delete { index, offset: cursor.u16("the record of REC_DELETE")? }
        }
        68 => decode_clustered_delete_mark(cursor)?,
        70 => decode_update(cursor)?,
        59 | 29 => Body::InitFilePage,
        _ => decode_rare(kind, cursor, record.page)?,
    };
    Ok(())
}

/// offset u16, number c32 (8 bytes: c64).
#[inline(always)]
fn decode_number<'a>(len_bytes: u8, cursor: &mut Cursor<'a>) -> Result<Body<'a>, RedoError> {
    let offset = cursor.u16("the offset in nBYTES")?;
    let at = cursor.at;
    let value = cursor.c32("the number in nBYTES")?;
    if len_bytes < 4 && value >> (8 * len_bytes) != 0 {
        return Err(bad_number(at, u64::from(value), "a number of as many bytes as 1BYTE or 2BYTES says"));
    }
    Ok(Body::Number { offset, len_bytes, value: u64::from(value) })
}

/// c32 e; if e is odd: info and status bits u8, origin c32, mismatch c32; then e / 2 bytes.
#[inline(always)]
pub(super) fn read_insert_body<'a>(cursor: &mut Cursor<'a>) -> Result<InsertBody<'a>, RedoError> {
    let encoded = cursor.c32_up_to(2 * PAGE_SIZE_MAX_BYTES as u32 - 1, "the length of a record to insert")?;
    let header = if encoded & 1 == 0 {
        None
    } else {
        Some(InsertHeader {
            info_and_status_bits: cursor.byte("the info bits of a record to insert")?,
            origin_offset: cursor.c32_in_page("the origin of a record to insert")?,
            mismatch_offset: cursor.c32_in_page("the common prefix of a record to insert")?,
        })
    };
    Ok(InsertBody { header, tail: cursor.take((encoded >> 1) as usize, "the end of a record to insert")? })
}

/// position c32, DB_ROLL_PTR 7 bytes, DB_TRX_ID c64. `None` with the flag that they stay.
#[inline(always)]
fn decode_system_columns(flags: u8, cursor: &mut Cursor<'_>) -> Result<Option<SystemColumns>, RedoError> {
    let trx_id_position = cursor.c32_up_to(1023, "the position of DB_TRX_ID")? as u16;
    let [a, b, c, d, e, f, g] = *cursor.array("a DB_ROLL_PTR")?;
    let trx_id = cursor.c64("a DB_TRX_ID")?;
    if flags & KEEP_SYSTEM_COLUMNS != 0 {
        return Ok(None);
    }
    let roll_pointer = u64::from_be_bytes([0, a, b, c, d, e, f, g]);
    Ok(Some(SystemColumns { trx_id_position, trx_id, roll_pointer }))
}

/// index, flags u8, value u8, system columns, offset u16.
#[inline(always)]
fn decode_clustered_delete_mark<'a>(cursor: &mut Cursor<'a>) -> Result<Body<'a>, RedoError> {
    let index = IndexInfo::decode(cursor)?;
    let flags = cursor.byte("the flags of REC_CLUST_DELETE_MARK")?;
    let is_deleted = read_flag(cursor)?;
    let system = decode_system_columns(flags, cursor)?;
    Ok(Body::ClusteredDeleteMark {
        index,
        is_deleted,
        system,
        offset: cursor.u16("the record of REC_CLUST_DELETE_MARK")?,
    })
}

fn read_flag(cursor: &mut Cursor<'_>) -> Result<bool, RedoError> {
    let offset = cursor.at;
    match cursor.byte("a delete mark")? {
        0 => Ok(false),
        1 => Ok(true),
        byte => Err(RedoError::BadByte { offset, byte, expected: "a delete mark of 0 or 1" }),
    }
}

/// index, flags u8, system columns, offset u16, info bits u8, count c32, then per field: number c32, length c32, bytes.
#[inline(always)]
fn decode_update<'a>(cursor: &mut Cursor<'a>) -> Result<Body<'a>, RedoError> {
    let index = IndexInfo::decode(cursor)?;
    let flags = cursor.byte("the flags of REC_UPDATE_IN_PLACE")?;
    let system = decode_system_columns(flags, cursor)?;
    let offset = cursor.u16("the record of REC_UPDATE_IN_PLACE")?;
    let info_bits = cursor.byte("the info bits in REC_UPDATE_IN_PLACE")?;
    let count = cursor.c32_up_to(FIELD_NUMBER_MAX, "the fields of REC_UPDATE_IN_PLACE")? as u16;
    let start = cursor.at;
    for _ in 0..count {
        read_field_update(cursor)?;
    }
    let fields = FieldUpdates { bytes: cursor.since(start), count };
    Ok(Body::UpdateInPlace { index, system, offset, info_bits, fields })
}

#[inline(always)]
pub(super) fn read_field_update<'a>(cursor: &mut Cursor<'a>) -> Result<FieldUpdate<'a>, RedoError> {
    let field = cursor.c32_up_to(FIELD_NUMBER_MAX, "the field of an update")? as u16;
    let at = cursor.at;
    let len_bytes = cursor.c32("the length of a field of an update")?;
    if len_bytes == LEN_NULL {
        return Ok(FieldUpdate { field, data: None });
    }
    if len_bytes as usize > PAGE_SIZE_MAX_BYTES {
        return Err(bad_number(at, u64::from(len_bytes), "a field no longer than a page, or NULL"));
    }
    Ok(FieldUpdate { field, data: Some(cursor.take(len_bytes as usize, "a field of an update")?) })
}

/// The types that a load has few of. Out of line, so that the others fit into the walk.
#[inline(never)]
fn decode_rare<'a>(kind: u8, cursor: &mut Cursor<'a>, page: PageId) -> Result<Body<'a>, RedoError> {
    Ok(match kind {
        8 => Body::Number {
            offset: cursor.u16("the offset in 8BYTES")?,
            len_bytes: 8,
            value: cursor.c64("the number in 8BYTES")?,
        },
        11 => {
            let is_deleted = read_flag(cursor)?;
            Body::SecondaryDeleteMark { is_deleted, offset: cursor.u16("the record of REC_SEC_DELETE_MARK")? }
        }
        19 | 37 | 57 | 58 | 63 | 64 => decode_page_create(kind),
        21 => Body::UndoEraseEnd,
        22 => Body::UndoInit { kind: read_undo_kind(cursor)? },
        24 => Body::UndoHeaderReuse { trx_id: cursor.c64("the transaction of UNDO_HDR_REUSE")? },
        25 => Body::UndoHeaderCreate { trx_id: cursor.c64("the transaction of UNDO_HDR_CREATE")? },
        26 | 36 => {
            Body::MinRecordMark { is_compact: kind == 36, offset: cursor.u16("the record of REC_MIN_MARK")? }
        }
        27 => Body::IbufBitmapInit,
        33 | 34 | 35 | 65 => decode_file(kind, cursor, page)?,
        61 => Body::IndexLoad { index_id: cursor.u64("the index of INDEX_LOAD")? },
        48..=51 => decode_zip(kind, cursor)?,
        _ => decode_rare_with_index(kind, cursor)?,
    })
}

const fn decode_page_create<'a>(kind: u8) -> Body<'a> {
    let (is_compact, kind) = match kind {
        19 => (false, IndexPageKind::BTree),
        37 => (true, IndexPageKind::BTree),
        57 => (false, IndexPageKind::RTree),
        58 => (true, IndexPageKind::RTree),
        63 => (false, IndexPageKind::Sdi),
        _ => (true, IndexPageKind::Sdi),
    };
    Body::PageCreate { is_compact, kind }
}

fn read_undo_kind(cursor: &mut Cursor<'_>) -> Result<UndoKind, RedoError> {
    let at = cursor.at;
    match cursor.c32("the kind of an undo log")? {
        1 => Ok(UndoKind::Insert),
        2 => Ok(UndoKind::Update),
        value => Err(bad_number(at, u64::from(value), "undo log kind 1 or 2")),
    }
}

/// Decodes the index, then the payload that the types document.
fn decode_rare_with_index<'a>(kind: u8, cursor: &mut Cursor<'a>) -> Result<Body<'a>, RedoError> {
    let index = IndexInfo::decode(cursor)?;
    Ok(match kind {
        75 => Body::ListEndDelete { index, offset: cursor.u16("the record of LIST_END_DELETE")? },
        76 => Body::ListStartDelete { index, offset: cursor.u16("the record of LIST_START_DELETE")? },
        71 => Body::ListEndCopyCreated { index, inserts: decode_short_inserts(cursor)? },
        73 => Body::ZipPageReorganize { index, level: read_level(cursor)? },
        74 => Body::ZipPageCompressNoData { index, level: read_level(cursor)? },
        // 72: is_page_type() lets no other come here.
        _ => Body::PageReorganize { index },
    })
}

fn read_level(cursor: &mut Cursor<'_>) -> Result<u8, RedoError> {
    let offset = cursor.at;
    let byte = cursor.byte("a compression level")?;
    if byte > ZLIB_LEVEL_MAX {
        return Err(RedoError::BadByte { offset, byte, expected: "a compression level of 0 to 9" });
    }
    Ok(byte)
}

/// length u32, then records to insert without predecessor.
fn decode_short_inserts<'a>(cursor: &mut Cursor<'a>) -> Result<ShortInserts<'a>, RedoError> {
    let at = cursor.at;
    let len_bytes = cursor.u32("the length of the copied records")?;
    if len_bytes > COPIED_MAX_BYTES {
        return Err(bad_number(at, u64::from(len_bytes), "at most 262144 bytes of copied records"));
    }
    let start = cursor.at;
    let bytes = cursor.take(len_bytes as usize, "the copied records")?;
    let mut inner = Cursor::new(bytes, 0);
    while inner.at < bytes.len() {
        let record_at = inner.at;
        // Cut off here is wrong: the length says that nothing more comes.
        read_insert_body(&mut inner).map_err(|error| match error {
            RedoError::Truncated { .. } => bad_number(
                start + record_at,
                record_at as u64,
                "whole records up to the length of LIST_END_COPY_CREATED",
            ),
            error => error.shifted(start),
        })?;
    }
    Ok(ShortInserts { bytes })
}

/// 48, 49: offset u16, offset in the image u16, 4 or 20 bytes. 50: offset u8, length u8, bytes. 51: length u16, length
/// of the trailer u16, siblings 8 bytes, data, trailer.
fn decode_zip<'a>(kind: u8, cursor: &mut Cursor<'a>) -> Result<Body<'a>, RedoError> {
    let at = cursor.at;
    match kind {
        48 | 49 => {
            let offset = cursor.u16("the offset in ZIP_WRITE_*_PTR")?;
            let zip_offset = cursor.u16("the offset in the image in ZIP_WRITE_*_PTR")?;
            if offset < ZIP_RECORDS_START {
                return Err(bad_number(
                    at,
                    u64::from(offset),
                    "a ZIP_WRITE_*_PTR after the page header (94)",
                ));
            }
            if kind == 48 {
                let value = cursor.array("the page number in ZIP_WRITE_NODE_PTR")?;
                return Ok(Body::ZipWriteNodePointer { offset, zip_offset, value });
            }
            let value = cursor.array("the reference in ZIP_WRITE_BLOB_PTR")?;
            Ok(Body::ZipWriteBlobPointer { offset, zip_offset, value })
        }
        50 => {
            let [offset, len_bytes] = *cursor.array("offset and length in ZIP_WRITE_HEADER")?;
            if len_bytes == 0 || u16::from(offset) + u16::from(len_bytes) >= ZIP_RECORDS_START {
                let expected = "a ZIP_WRITE_HEADER of at least a byte that ends below 94";
                return Err(bad_number(at, u64::from(offset) + u64::from(len_bytes), expected));
            }
            Ok(Body::ZipWriteHeader {
                offset,
                data: cursor.take(usize::from(len_bytes), "the data of ZIP_WRITE_HEADER")?,
            })
        }
        _ => {
            let len_bytes = cursor.u16("the length in ZIP_PAGE_COMPRESS")?;
            let trailer_len_bytes = cursor.u16("the length of the trailer in ZIP_PAGE_COMPRESS")?;
            Ok(Body::ZipPageCompress {
                siblings: cursor.array("the siblings in ZIP_PAGE_COMPRESS")?,
                data: cursor.take(usize::from(len_bytes), "the image in ZIP_PAGE_COMPRESS")?,
                trailer: cursor.take(usize::from(trailer_len_bytes), "the trailer in ZIP_PAGE_COMPRESS")?,
            })
        }
    }
}

/// 33: flags u32, path. 34: path before, path after. 35: path. 65: offset u64, length u64.
fn decode_file<'a>(kind: u8, cursor: &mut Cursor<'a>, page: PageId) -> Result<Body<'a>, RedoError> {
    let at = cursor.at;
    let space = page.space.0;
    if page.page_no.0 != 0 {
        return Err(bad_number(at, u64::from(page.page_no.0), "page number 0 in a record about a file"));
    }
    if kind == 65 {
        let offset_bytes = cursor.u64("the offset in FILE_EXTEND")?;
        let len_bytes = cursor.u64("the length in FILE_EXTEND")?;
        if len_bytes == 0 || offset_bytes.checked_add(len_bytes).is_none() {
            return Err(bad_number(at + 8, len_bytes, "a length above 0 in FILE_EXTEND"));
        }
        return Ok(Body::File(FileRecord::Extend { offset_bytes, len_bytes }));
    }
    if space == 0 {
        return Err(bad_number(
            at,
            0,
            "a tablespace id other than 0 in FILE_CREATE, FILE_RENAME or FILE_DELETE",
        ));
    }
    let is_undo = UNDO_SPACES.contains(&space);
    Ok(match kind {
        33 => {
            let flags = cursor.u32("the flags in FILE_CREATE")?;
            Body::FileCreate { path: read_path(cursor, !is_undo)?, flags }
        }
        34 => {
            let old_path = read_path(cursor, true)?;
            Body::File(FileRecord::Rename { old_path, new_path: read_path(cursor, true)? })
        }
        _ => Body::File(FileRecord::Delete { path: read_path(cursor, !is_undo)? }),
    })
}

/// length u16 with the NUL, bytes, NUL.
fn read_path<'a>(cursor: &mut Cursor<'a>, has_suffix: bool) -> Result<&'a [u8], RedoError> {
    let at = cursor.at;
    let len_bytes = cursor.u16("the length of a path")?;
    if len_bytes < 5 {
        return Err(bad_number(at, u64::from(len_bytes), "a path of at least 4 bytes and a NUL"));
    }
    let start = cursor.at;
    let bytes = cursor.take(usize::from(len_bytes), "a path")?;
    let nul = bytes.iter().position(|&byte| byte == 0);
    let path = match bytes.split_last() {
        Some((_, path)) if nul == Some(path.len()) => path,
        _ => {
            let offset = start + nul.unwrap_or(usize::from(len_bytes) - 1);
            return Err(bad_number(
                offset,
                u64::from(len_bytes),
                "a path with a NUL at its end and nowhere else",
            ));
        }
    };
    if has_suffix && !path.ends_with(b".ibd") {
        return Err(bad_number(at, u64::from(len_bytes), "a path that ends in .ibd"));
    }
    Ok(path)
}

/// table m64, version m64, kind u8: 1: count u8, then tablespace u32 and index u64 each; 2: number m64.
#[inline(never)]
fn decode_dynamic_metadata<'a>(cursor: &mut Cursor<'a>) -> Result<DynamicMetadata<'a>, RedoError> {
    let table_id = cursor.m64("the table of TABLE_DYNAMIC_META")?;
    let version = cursor.m64("the version in TABLE_DYNAMIC_META")?;
    let offset = cursor.at;
    let change = match cursor.byte("the kind of TABLE_DYNAMIC_META")? {
        1 => {
            let count = cursor.byte("the indexes in TABLE_DYNAMIC_META")?;
            if count == 0 {
                let expected = "at least one corrupt index in TABLE_DYNAMIC_META";
                return Err(RedoError::BadByte { offset: offset + 1, byte: count, expected });
            }
            let bytes = cursor.take(usize::from(count) * 12, "the indexes in TABLE_DYNAMIC_META")?;
            MetadataChange::CorruptIndexes(bytes.as_chunks().0)
        }
        2 => MetadataChange::AutoIncrement(cursor.m64("the number in TABLE_DYNAMIC_META")?),
        byte => {
            let expected = "kind 1 or 2 of TABLE_DYNAMIC_META";
            return Err(RedoError::BadByte { offset, byte, expected });
        }
    };
    Ok(DynamicMetadata { table_id, version, change })
}

/// Iterator over the records of a run, or of any other records of a mini-transaction one after the other, without the
/// end of the mini-transaction. After an error it ends.
#[derive(Clone)]
pub struct RecordReader<'a> {
    records: &'a [u8],
    at: usize,
}

impl<'a> RecordReader<'a> {
    /// Read `records`.
    pub const fn new(records: &'a [u8]) -> Self {
        Self { records, at: 0 }
    }

    /// Byte position of the next record.
    pub const fn offset_in_bytes(&self) -> usize {
        self.at
    }

    /// Reads the next record into `record`. False: there is none.
    ///
    /// # Errors
    /// Bytes that are no record; there is none after that.
    #[inline(always)]
    pub fn read_into(&mut self, record: &mut Record<'a>) -> Result<bool, RedoError> {
        if self.at >= self.records.len() {
            return Ok(false);
        }
        match decode_record(self.records, self.at, record) {
            Ok(end) => {
                self.at = end;
                Ok(true)
            }
            Err(error) => {
                self.at = self.records.len();
                Err(error)
            }
        }
    }
}

impl<'a> Iterator for RecordReader<'a> {
    type Item = Result<Record<'a>, RedoError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let mut record = Record::EMPTY;
        match self.read_into(&mut record) {
            Ok(true) => Some(Ok(record)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests;
