//! Redo records, decoded one after the other.
//!
//! Owns the meaning of every record byte: header, ids, payload, and which records may follow which.
//! Layout of a record: byte 0 holds same-page (bit 7), type (bits 6..4) and length L (bits 3..0). L > 0: L
//! bytes follow. L = 0: a number n follows, and the record has 16 + n bytes in all. A record without
//! same-page carries tablespace id and page number; same-page before any page record makes it a note about
//! a file, which carries them too.
//!
//! Invariants: a record never reaches beyond the length in its header; a decoded record is checked as far as possible
//! without the page. The applier checks offsets on the page.

use super::record::{Body, Extended, Insert, Record};
use super::varint::{self, VarintError};
use crate::error::RedoError;
use crate::mtr::FileRecord;
use crate::types::PageId;

/// Largest page size of the server, in bytes: no offset, length or record of a page reaches it.
pub const PAGE_SIZE_MAX_BYTES: usize = 65_536;

const SAME_PAGE: u8 = 0x80;
const TYPE_MASK: u8 = 0x70;
const FREE_PAGE: u8 = 0x00;
const INIT_PAGE: u8 = 0x10;
const EXTENDED: u8 = 0x20;
const WRITE: u8 = 0x30;
const MEMSET: u8 = 0x40;
const MEMMOVE: u8 = 0x50;
const RESERVED: u8 = 0x60;

const FILE_CREATE: u8 = 0x80;
const FILE_DELETE: u8 = 0x90;
const FILE_RENAME: u8 = 0xa0;
const FILE_MODIFY: u8 = 0xb0;
const FILE_CHECKPOINT: u8 = 0xf0;

/// Subtype of EXTENDED that cuts a tablespace.
const TRIM_PAGES: u8 = 10;
/// EXTENDED records describe index and undo pages, which are never the first three of a file.
const FIRST_EXTENDED_PAGE_NO: u32 = 3;

/// Where the record at `at` ends, from its header alone. `None`: the header is cut off.
///
/// # Errors
/// When the length is no number or beyond any record.
#[inline(always)]
pub(crate) fn record_end(bytes: &[u8], at: usize) -> Result<Option<usize>, RedoError> {
    let Some(&first) = bytes.get(at) else { return Ok(None) };
    let short_len = (first & 0x0f) as usize;
    if short_len != 0 {
        return Ok(Some(at + 1 + short_len));
    }
    match varint::decode(bytes.get(at + 1..).unwrap_or_default()) {
        Ok((more, length_bytes)) if length_bytes <= 3 => Ok(Some(at + 16 + more as usize)),
        Err(VarintError::Incomplete) => Ok(None),
        _ => Err(RedoError::BadLength { offset: at + 1, byte: bytes.get(at + 1).copied().unwrap_or(0) }),
    }
}

#[cold]
fn bad_byte(bytes: &[u8], offset: usize, expected: &'static str) -> RedoError {
    match bytes.get(offset) {
        Some(&byte) => RedoError::BadByte { offset, byte, expected },
        None => RedoError::Truncated { offset: bytes.len(), expected },
    }
}

#[cold]
fn bad_number(offset: usize, value: u32, expected: &'static str) -> RedoError {
    RedoError::BadNumber { offset, value: u64::from(value), expected }
}

/// Which record may come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    /// No page record yet: records about files are possible.
    Start,
    /// A page is current.
    Page,
    /// The page is gone (FREE_PAGE, TRIM_PAGES): the next record must carry ids.
    PageGone,
    /// FILE_CHECKPOINT was read: nothing may follow.
    Ended,
}

/// State of the decoder from the previous records.
#[derive(Clone, Copy)]
pub(crate) struct ReaderState {
    context: Context,
    /// The current page; meaningful unless `context` is `Start`.
    pub(crate) page: PageId,
}

impl ReaderState {
    /// State at the first record of a mini-transaction.
    pub(crate) const fn new() -> Self {
        Self { context: Context::Start, page: PageId::new(0, 0) }
    }
}

/// The bytes of one record, being consumed.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    /// Everything up to the end of the record, so that positions count from the caller's slice.
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    #[inline(always)]
    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    #[inline(always)]
    fn number(&mut self, max_len_bytes: usize, expected: &'static str) -> Result<u32, RedoError> {
        match varint::decode(self.rest()) {
            Ok((value, len_bytes)) if len_bytes <= max_len_bytes => {
                self.at += len_bytes;
                Ok(value)
            }
            Err(VarintError::Incomplete) => Err(RedoError::Truncated { offset: self.bytes.len(), expected }),
            _ => Err(bad_byte(self.bytes, self.at, expected)),
        }
    }

    /// A number that cannot be larger than a page.
    #[inline(always)]
    fn page_number(&mut self, expected: &'static str) -> Result<u32, RedoError> {
        let at = self.at;
        let value = self.number(3, expected)?;
        if value as usize > PAGE_SIZE_MAX_BYTES {
            return Err(bad_number(at, value, "at most a page size (65536)"));
        }
        Ok(value)
    }

    /// Fail unless the record is used up.
    #[inline(always)]
    fn end(&self, expected: &'static str) -> Result<(), RedoError> {
        if self.is_empty() { Ok(()) } else { Err(bad_byte(self.bytes, self.at, expected)) }
    }

    /// Fail if the record is used up.
    #[inline(always)]
    fn not_empty(&self, expected: &'static str) -> Result<(), RedoError> {
        if self.is_empty() {
            Err(RedoError::Truncated { offset: self.bytes.len(), expected })
        } else {
            Ok(())
        }
    }
}

/// Decode the record `bytes[at..]`, which ends where `bytes` ends, and whose header was read by
/// [`record_end`], into `record`.
///
/// Not returned: a processor that has just written a record in small pieces waits when it is to be copied in large
/// ones.
#[inline(always)]
pub(crate) fn decode_record<'a>(
    bytes: &'a [u8],
    at: usize,
    state: &mut ReaderState,
    record: &mut Record<'a>,
) -> Result<(), RedoError> {
    let Some(&first) = bytes.get(at) else {
        return Err(RedoError::Truncated { offset: bytes.len(), expected: "a record" });
    };
    let kind = first & TYPE_MASK;
    let mut cursor = Cursor { bytes, at: at + 1 };
    if first & 0x0f == 0 {
        cursor.number(3, "a record length")?;
    }
    if first & SAME_PAGE == 0 {
        let space = cursor.number(5, "a tablespace id")?;
        let page_no = cursor.number(5, "a page number")?;
        if state.context == Context::Ended {
            return Err(after_checkpoint(bytes, at));
        }
        let page = PageId::new(space, page_no);
        state.page = page;
        state.context = Context::Page;
        record.page = Some(page);
        return decode_body(kind, at, cursor, page, state, record);
    }
    match state.context {
        Context::Page => {
            record.page = None;
            decode_body(kind, at, cursor, state.page, state, record)
        }
        Context::Start => {
            *record = decode_file(first, at, cursor, state)?;
            Ok(())
        }
        Context::PageGone => {
            Err(bad_byte(bytes, at, "a record with page ids (after FREE_PAGE or TRIM_PAGES)"))
        }
        Context::Ended => Err(after_checkpoint(bytes, at)),
    }
}

#[cold]
fn after_checkpoint(bytes: &[u8], at: usize) -> RedoError {
    bad_byte(bytes, at, "the end of the mini-transaction after FILE_CHECKPOINT")
}

#[inline(always)]
fn decode_body<'a>(
    kind: u8,
    at: usize,
    mut cursor: Cursor<'a>,
    page: PageId,
    state: &mut ReaderState,
    record: &mut Record<'a>,
) -> Result<(), RedoError> {
    if cursor.bytes.len() - at > PAGE_SIZE_MAX_BYTES {
        return Err(RedoError::BadNumber {
            offset: at,
            value: (cursor.bytes.len() - at) as u64,
            expected: "a page record of at most 65536 bytes",
        });
    }
    match kind {
        WRITE => {
            let distance = cursor.page_number("the distance of a WRITE record")?;
            cursor.not_empty("data of a WRITE record")?;
            record.body = Body::Write { distance, data: cursor.rest() };
        }
        EXTENDED => return decode_extended(cursor, page, state, record),
        MEMSET => record.body = decode_memset(cursor)?,
        MEMMOVE => record.body = decode_memmove(cursor)?,
        INIT_PAGE | FREE_PAGE => {
            if record.page.is_none() {
                return Err(bad_byte(cursor.bytes, at, "page ids in a FREE_PAGE or INIT_PAGE record"));
            }
            cursor.end("the end of a FREE_PAGE or INIT_PAGE record")?;
            if kind == INIT_PAGE {
                record.body = Body::InitPage;
            } else {
                state.context = Context::PageGone;
                record.body = Body::FreePage;
            }
        }
        RESERVED => return Err(bad_byte(cursor.bytes, at, "a record type other than the reserved 0x60")),
        _ => record.body = Body::Option { payload: cursor.rest() },
    }
    Ok(())
}

fn decode_memset(mut cursor: Cursor<'_>) -> Result<Body<'_>, RedoError> {
    let distance = cursor.page_number("the distance of a MEMSET record")?;
    let length_at = cursor.at;
    let len_bytes = cursor.page_number("the length of a MEMSET record")?;
    cursor.not_empty("the pattern of a MEMSET record")?;
    let pattern = cursor.rest();
    if pattern.len() > len_bytes as usize {
        return Err(bad_number(length_at, len_bytes, "a MEMSET length not below that of its pattern"));
    }
    Ok(Body::Memset { distance, len_bytes, pattern })
}

fn decode_memmove(mut cursor: Cursor<'_>) -> Result<Body<'_>, RedoError> {
    let distance = cursor.page_number("the distance of a MEMMOVE record")?;
    let len_bytes = cursor.page_number("the length of a MEMMOVE record")?;
    let source_at = cursor.at;
    let source = cursor.number(3, "the source of a MEMMOVE record")?;
    let magnitude = (source >> 1) + 1;
    if magnitude as usize > PAGE_SIZE_MAX_BYTES {
        return Err(bad_number(source_at, source, "a MEMMOVE source inside a page"));
    }
    cursor.end("the end of a MEMMOVE record")?;
    let magnitude = magnitude as i32;
    let source_offset = if source & 1 == 1 { -magnitude } else { magnitude };
    Ok(Body::Memmove { distance, len_bytes, source_offset })
}

#[inline(always)]
fn decode_extended<'a>(
    mut cursor: Cursor<'a>,
    page: PageId,
    state: &mut ReaderState,
    record: &mut Record<'a>,
) -> Result<(), RedoError> {
    let subtype_at = cursor.at;
    let Some(&subtype) = cursor.bytes.get(subtype_at) else {
        return Err(bad_byte(cursor.bytes, subtype_at, "the subtype of an EXTENDED record"));
    };
    cursor.at += 1;
    if subtype != TRIM_PAGES && page.page_no.0 < FIRST_EXTENDED_PAGE_NO {
        return Err(bad_byte(cursor.bytes, subtype_at, "no EXTENDED record on pages 0 to 2"));
    }
    match subtype {
        4..=7 => return decode_insert(cursor, subtype, record),
        3 => {
            let data = cursor.rest();
            if data.len() < 3 {
                let expected = "at least 3 bytes in UNDO_APPEND";
                return Err(RedoError::Truncated { offset: cursor.bytes.len(), expected });
            }
            record.body = Body::Extended(Extended::UndoAppend { data });
        }
        8 => {
            let prev = cursor.page_number("the predecessor in DELETE_ROW_FORMAT_REDUNDANT")?;
            cursor.end("the end of DELETE_ROW_FORMAT_REDUNDANT")?;
            record.body = Body::Extended(Extended::DeleteRedundant { prev });
        }
        9 => {
            let prev = cursor.page_number("the predecessor in DELETE_ROW_FORMAT_DYNAMIC")?;
            let hdr_size = cursor.page_number("the header size in DELETE_ROW_FORMAT_DYNAMIC")?;
            let data_size = cursor.page_number("the data size in DELETE_ROW_FORMAT_DYNAMIC")?;
            cursor.end("the end of DELETE_ROW_FORMAT_DYNAMIC")?;
            record.body = Body::Extended(Extended::DeleteDynamic { prev, hdr_size, data_size });
        }
        0..=2 => {
            cursor.end("the end of an EXTENDED record that initialises a page")?;
            record.body = Body::Extended(match subtype {
                0 => Extended::InitRowFormatRedundant,
                1 => Extended::InitRowFormatDynamic,
                _ => Extended::UndoInit,
            });
        }
        TRIM_PAGES => {
            if record.page.is_none() {
                return Err(bad_byte(cursor.bytes, subtype_at, "page ids in TRIM_PAGES"));
            }
            cursor.end("the end of TRIM_PAGES")?;
            state.context = Context::PageGone;
            record.body = Body::Extended(Extended::TrimPages);
        }
        _ => {
            return Err(bad_byte(
                cursor.bytes,
                subtype_at,
                "an EXTENDED subtype from 0 to 10 (a newer server may write others; see the supported versions)",
            ));
        }
    }
    Ok(())
}

#[inline(always)]
fn decode_insert<'a>(mut cursor: Cursor<'a>, subtype: u8, record: &mut Record<'a>) -> Result<(), RedoError> {
    let comp = subtype & 2 != 0;
    let reuse = subtype & 1 != 0;
    let prev = cursor.page_number("the predecessor in an INSERT record")?;
    let reuse_shift = match (reuse, comp) {
        (false, _) => None,
        (true, false) => Some(0),
        (true, true) => Some(cursor.number(3, "the shift in INSERT_REUSE_DYNAMIC")?),
    };
    let enc = cursor.number(3, "the header information in an INSERT record")?;
    let hdr_c = cursor.page_number("the copied header bytes in an INSERT record")?;
    let data_c = cursor.page_number("the copied data bytes in an INSERT record")?;
    let insert = Insert { comp, reuse_shift, prev, enc, hdr_c, data_c, rest: cursor.rest() };
    record.body = Body::Extended(Extended::Insert(insert));
    Ok(())
}

/// A record about a file. Rare, so out of line.
#[inline(never)]
fn decode_file<'a>(
    first: u8,
    at: usize,
    mut cursor: Cursor<'a>,
    state: &mut ReaderState,
) -> Result<Record<'a>, RedoError> {
    let kind = first & 0xf0;
    let ids_at = cursor.at;
    let space = cursor.number(5, "a tablespace id")?;
    if kind == FILE_CHECKPOINT && space == 0 && cursor.is_empty() {
        // Shortest padding: even the page number is left out.
        state.context = Context::Ended;
        let body = Body::File(FileRecord::Checkpoint { lsn: None });
        return Ok(Record { page: Some(PageId::new(0, 0)), body });
    }
    let page_no = cursor.number(5, "a page number")?;
    if page_no != 0 {
        return Err(bad_number(ids_at, page_no, "page number 0 in a record about a file"));
    }
    let payload_at = cursor.at;
    let payload = cursor.rest();
    let file = match kind {
        FILE_CREATE | FILE_DELETE | FILE_RENAME | FILE_MODIFY => {
            if space == 0 {
                return Err(bad_number(ids_at, space, "a tablespace id other than 0 in a FILE_ record"));
            }
            decode_paths(kind, cursor.bytes, payload_at, payload)?
        }
        FILE_CHECKPOINT => {
            if space != 0 {
                return Err(bad_number(ids_at, space, "tablespace id 0 in FILE_CHECKPOINT"));
            }
            state.context = Context::Ended;
            decode_checkpoint(cursor.bytes, payload_at, payload)?
        }
        _ => {
            return Err(bad_byte(
                cursor.bytes,
                at,
                "FILE_CREATE, FILE_DELETE, FILE_RENAME, FILE_MODIFY, FILE_CHECKPOINT or page ids",
            ));
        }
    };
    Ok(Record { page: Some(PageId::new(space, 0)), body: Body::File(file) })
}

fn decode_checkpoint<'a>(bytes: &[u8], at: usize, payload: &[u8]) -> Result<FileRecord<'a>, RedoError> {
    if let Ok(lsn) = <[u8; 8]>::try_from(payload) {
        let lsn = u64::from_be_bytes(lsn);
        return Ok(FileRecord::Checkpoint { lsn: (lsn != 0).then_some(lsn) });
    }
    match payload.iter().position(|&byte| byte != 0) {
        None => Ok(FileRecord::Checkpoint { lsn: None }),
        Some(index) => Err(bad_byte(bytes, at + index, "zero padding or 8 bytes in FILE_CHECKPOINT")),
    }
}

fn decode_paths<'a>(
    kind: u8,
    bytes: &'a [u8],
    at: usize,
    payload: &'a [u8],
) -> Result<FileRecord<'a>, RedoError> {
    let checked = |path: &'a [u8], end: usize| -> Result<&'a [u8], RedoError> {
        if let Some(nul) = path.iter().position(|&byte| byte == 0) {
            return Err(bad_byte(bytes, end - path.len() + nul, "a path without NUL"));
        }
        if !path.ends_with(b".ibd") {
            return Err(bad_byte(bytes, end.saturating_sub(1), "a path that ends in .ibd"));
        }
        Ok(path)
    };
    if kind == FILE_RENAME {
        let Some(nul) = payload.iter().position(|&byte| byte == 0) else {
            let expected = "a NUL between the two paths of FILE_RENAME";
            return Err(RedoError::Truncated { offset: bytes.len(), expected });
        };
        let (old_path, new_path) = payload.split_at(nul);
        let new_path = new_path.get(1..).unwrap_or_default();
        return Ok(FileRecord::Rename {
            old_path: checked(old_path, at + nul)?,
            new_path: checked(new_path, bytes.len())?,
        });
    }
    let path = checked(payload, bytes.len())?;
    Ok(match kind {
        FILE_CREATE => FileRecord::Create { path },
        FILE_DELETE => FileRecord::Delete { path },
        _ => FileRecord::Modify { path },
    })
}

/// Iterator over the records of one mini-transaction, or of any part of one that starts with a record
/// that carries ids. After an error it ends.
#[derive(Clone)]
pub struct RecordReader<'a> {
    records: &'a [u8],
    at: usize,
    state: ReaderState,
}

impl<'a> RecordReader<'a> {
    /// Read `records`: record bytes only, without end byte and checksum.
    pub const fn new(records: &'a [u8]) -> Self {
        Self { records, at: 0, state: ReaderState::new() }
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
        let result = self.read(record);
        if result.is_err() {
            self.at = self.records.len();
        }
        result.map(|()| true)
    }

    #[inline(always)]
    fn read(&mut self, record: &mut Record<'a>) -> Result<(), RedoError> {
        let at = self.at;
        if self.records.get(at).is_some_and(|&first| first <= 1) {
            return Err(bad_byte(self.records, at, "a record, not the end of a mini-transaction"));
        }
        let end = record_end(self.records, at)?;
        let Some(bytes) = end.and_then(|end| self.records.get(..end)) else {
            let expected = "the rest of the record, as long as its header says";
            return Err(RedoError::Truncated { offset: self.records.len(), expected });
        };
        decode_record(bytes, at, &mut self.state, record)?;
        self.at = bytes.len();
        Ok(())
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

/// The records of a run: contiguous records of one page, the first of which carries the page's ids.
///
/// Iterates over [`Record`]s; where `page` is `Some`, the current position on the page starts at 0 again.
#[derive(Clone)]
pub struct PageRun<'a> {
    page: PageId,
    reader: RecordReader<'a>,
}

impl<'a> PageRun<'a> {
    /// Read the run in `bytes`.
    ///
    /// # Errors
    /// When the first record carries no page ids.
    pub fn new(bytes: &'a [u8]) -> Result<Self, RedoError> {
        let expected = "a record with page ids at the start of a run";
        let Some(&first) = bytes.first() else {
            return Err(RedoError::Truncated { offset: 0, expected });
        };
        if first & SAME_PAGE != 0 || first <= 1 {
            return Err(bad_byte(bytes, 0, expected));
        }
        let mut cursor = Cursor { bytes, at: 1 };
        if first & 0x0f == 0 {
            cursor.number(3, "a record length")?;
        }
        let space = cursor.number(5, "a tablespace id")?;
        let page_no = cursor.number(5, "a page number")?;
        Ok(Self { page: PageId::new(space, page_no), reader: RecordReader::new(bytes) })
    }

    /// The page all records are for.
    pub const fn page(&self) -> PageId {
        self.page
    }
}

impl<'a> Iterator for PageRun<'a> {
    type Item = Result<Record<'a>, RedoError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let at = self.reader.offset_in_bytes();
        let result = self.reader.next()?;
        if let Ok(Record { page: Some(page), .. }) = &result
            && *page != self.page
        {
            self.reader.at = self.reader.records.len();
            return Some(Err(bad_byte(self.reader.records, at, "a record of the run's own page")));
        }
        Some(result)
    }
}

#[cfg(test)]
mod tests;
