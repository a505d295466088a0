//! Mini-transactions: where they end, and which pages they touch. The server's source calls one a group.
//!
//! Layout (`mtr/mtr0mtr.cc`, `log/log0recv.cc`): either one record with bit 7 of its type set, or several without it
//! and then the byte 31. There is no length and no checksum: only decoding all records tells where a mini-transaction
//! ends. (The blocks have checksums, see [`block`](super::block).)
//!
//! Filler of the thread that makes log files is a mini-transaction of thousands of bytes 32 (`log0files_governor.cc`).
//! Recovery takes each 32 at the start of a mini-transaction for one of its own; here it is a record like others, as
//! the server means it. It is in no run.
//!
//! Records without a change of a page are reported apart from the runs: records about files, and INDEX_LOAD. The server
//! writes each of these as a mini-transaction of its own (`fil/fil0fil.cc`, `ddl/ddl0builder.cc`), so their order among
//! the runs says nothing; the walk would take them anywhere. TABLE_DYNAMIC_META is for the server's recovery alone and
//! not reported. FILE_CREATE comes after the file was made and page 0 was written to it; FILE_DELETE is in the stream
//! before the file is deleted; FILE_RENAME before it is renamed, which then may fail; FILE_EXTEND before it is
//! extended.
//!
//! Invariant: nothing of a mini-transaction is reported before its last byte was seen and each of its records was
//! decoded.

use super::record::{Body, Record};
use super::record_reader::{MULTI_REC_END, SINGLE, decode_record};
use super::space_flags::SpaceFlagsTracker;
use crate::error::{RedoError, StreamError};
use crate::mtr::{
    FileNote, FileRecord, IndexLoad, Mtr, MtrVisitor, RunContent, RunRef, SpaceFlagsChange, WalkStop, Walked,
};
use crate::types::Lsn;

/// Most bytes a mini-transaction may have: the default of `innodb_log_buffer_size`. A server grows its buffer for a
/// larger one (`log/log0buf.cc`), but its recovery gives up at a mini-transaction larger than that setting, so that it
/// could not be started again. The largest known are a few MiB: a new undo tablespace.
pub const MTR_SIZE_MAX_BYTES: usize = 64 << 20;

/// Report every whole mini-transaction of `bytes`, payload of log blocks, to `visitor`. `bytes[0]` must be the first
/// byte of a mini-transaction; `start_lsn` is its position.
///
/// Ends with [`WalkStop::AllConsumed`] or [`WalkStop::Incomplete`].
///
/// # Errors
/// When a mini-transaction is invalid. Those before it have been reported.
pub fn walk_mtrs(bytes: &[u8], start_lsn: Lsn, visitor: &mut impl MtrVisitor) -> Result<Walked, StreamError> {
    let mut parts = Parts::default();
    let mut at = 0;
    let stop = loop {
        let start = at;
        let Some(&first) = bytes.get(start) else { break WalkStop::AllConsumed };
        let mtr_lsn = start_lsn.advance(start as u64);
        let (records_end, end) = match split_records(bytes, start, first, &mut parts) {
            Ok(ends) => ends,
            // The bytes end inside a record, or between two.
            Err(RedoError::Truncated { .. }) if bytes.len() - start <= MTR_SIZE_MAX_BYTES => {
                break WalkStop::Incomplete;
            }
            Err(RedoError::Truncated { offset, .. }) => {
                return Err(StreamError { mtr_lsn, error: too_long(offset) });
            }
            Err(error) => return Err(StreamError { mtr_lsn, error }),
        };
        at = end;
        visitor.visit_mtr(&Mtr {
            start_lsn: mtr_lsn,
            end_lsn: start_lsn.advance(end as u64),
            bytes: bytes.get(start..end).unwrap_or_default(),
            records: bytes.get(start..records_end).unwrap_or_default(),
            offset_in_bytes: start,
            runs: &parts.runs,
            contents: &parts.contents,
            files: &parts.files,
            index_loads: &parts.index_loads,
        });
    };
    Ok(Walked { end_lsn: start_lsn.advance(at as u64), len_bytes: at, stop })
}

/// Where a mini-transaction ends, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtrEnd {
    /// After this many bytes.
    At(usize),
    /// Not in the bytes that there are. The first so many are whole records.
    After(usize),
}

/// End of the mini-transaction at `bytes[0]`, of which the first `known` bytes are whole records (0 at first). When a
/// mini-transaction comes in many pieces, `known` ensures that no part is examined twice.
///
/// # Errors
/// When it is invalid.
pub fn mtr_end(bytes: &[u8], known: usize) -> Result<MtrEnd, RedoError> {
    let mut record = Record::EMPTY;
    let mut at = known;
    loop {
        let step = match bytes.get(at) {
            None => return not_yet(at),
            Some(&MULTI_REC_END) if at != 0 => Ok((at + 1, true)),
            Some(&kind) if at != 0 && kind & SINGLE != 0 => Err(inner_kind(at, kind)),
            Some(&kind) => decode_record(bytes, at, &mut record).map(|end| (end, kind & SINGLE != 0)),
        };
        match step {
            Ok((end, true)) => return Ok(MtrEnd::At(end)),
            Ok((end, false)) => at = end,
            Err(RedoError::Truncated { .. }) => return not_yet(at),
            Err(error) => return Err(error),
        }
        if at > MTR_SIZE_MAX_BYTES {
            return Err(too_long(at));
        }
    }
}

fn not_yet(known: usize) -> Result<MtrEnd, RedoError> {
    if known > MTR_SIZE_MAX_BYTES { Err(too_long(known)) } else { Ok(MtrEnd::After(known)) }
}

#[cold]
const fn inner_kind(offset: usize, byte: u8) -> RedoError {
    RedoError::BadByte {
        offset,
        byte,
        expected: "a record without bit 7, or the end of the mini-transaction (31)",
    }
}

#[cold]
const fn too_long(offset: usize) -> RedoError {
    RedoError::MtrTooLong { offset, limit_bytes: MTR_SIZE_MAX_BYTES }
}

/// Parts of one mini-transaction.
#[derive(Default)]
struct Parts<'a> {
    runs: Vec<RunRef>,
    /// One for each run.
    contents: Vec<RunContent>,
    files: Vec<FileNote<'a>>,
    index_loads: Vec<IndexLoad>,
}

/// Split the mini-transaction from `start` on into `parts`. Returns where its records end, and where it ends.
#[inline(always)]
fn split_records<'a>(
    bytes: &'a [u8],
    start: usize,
    first: u8,
    parts: &mut Parts<'a>,
) -> Result<(usize, usize), RedoError> {
    parts.runs.clear();
    parts.contents.clear();
    parts.files.clear();
    parts.index_loads.clear();
    let mut page0 = SpaceFlagsTracker::new();
    let mut record = Record::EMPTY;
    if first & SINGLE != 0 {
        let end = decode_record(bytes, start, &mut record)?;
        note_record(parts, &record, start, end, &mut page0);
        return Ok((end, end));
    }
    let mut at = start;
    loop {
        let Some(&kind) = bytes.get(at) else {
            return Err(RedoError::Truncated { offset: at, expected: "the end of the mini-transaction" });
        };
        if kind == MULTI_REC_END && at != start {
            return Ok((at, at + 1));
        }
        if kind & SINGLE != 0 {
            return Err(inner_kind(at, kind));
        }
        let end = decode_record(bytes, at, &mut record)?;
        if end - start > MTR_SIZE_MAX_BYTES {
            return Err(too_long(end));
        }
        note_record(parts, &record, at, end, &mut page0);
        at = end;
    }
}

/// Add one record to what it belongs to.
#[inline(always)]
fn note_record<'a>(
    parts: &mut Parts<'a>,
    record: &Record<'a>,
    at: usize,
    end: usize,
    page0: &mut SpaceFlagsTracker,
) {
    match record.body {
        Body::FileCreate { path, .. } => {
            parts.files.push(FileNote { space: record.page.space, record: FileRecord::Create { path } });
        }
        Body::File(file) => parts.files.push(FileNote { space: record.page.space, record: file }),
        Body::IndexLoad { index_id } => parts.index_loads.push(IndexLoad { root: record.page, index_id }),
        Body::DynamicMetadata(_) | Body::Dummy => {}
        _ => note_page_record(parts, record, at, end, page0),
    }
}

/// Add one page record to the runs.
#[inline(always)]
fn note_page_record(
    parts: &mut Parts<'_>,
    record: &Record<'_>,
    at: usize,
    end: usize,
    page0: &mut SpaceFlagsTracker,
) {
    let Parts { runs, contents, .. } = parts;
    let extends =
        runs.last().is_some_and(|run| run.page == record.page && run.offset_in_bytes + run.len_bytes == at);
    if !extends {
        *page0 = SpaceFlagsTracker::new();
        runs.push(RunRef {
            page: record.page,
            offset_in_bytes: at,
            len_bytes: 0,
            last_init_offset: None,
            contains_free: false,
            ends_with_free: false,
            trim_pages: None,
            space_flags: SpaceFlagsChange::Unchanged,
        });
        contents.push(RunContent { records: Some(0), ..RunContent::default() });
    }
    let (Some(run), Some(content)) = (runs.last_mut(), contents.last_mut()) else { return };
    run.len_bytes = end - run.offset_in_bytes;
    note_content(content, &record.body);
    if matches!(record.body, Body::InitFilePage) {
        run.last_init_offset = Some(at - run.offset_in_bytes);
    }
    if record.page.page_no.0 == 0 {
        page0.apply(record);
        run.space_flags = page0.change();
    }
}

/// Index page header: id of the index, and the two segments of a root.
const PAGE_INDEX_ID: u16 = 66;
const PAGE_SEGMENTS: std::ops::Range<u16> = 74..94;

/// Content that a record puts on its page.
#[inline(always)]
fn note_content(content: &mut RunContent, body: &Body<'_>) {
    let change = match body {
        Body::InitFilePage => {
            *content = RunContent { records: Some(0), ..RunContent::default() };
            return;
        }
        Body::PageCreate { .. } => {
            let has_segments = content.has_segments;
            *content = RunContent {
                is_created: true,
                is_changed: true,
                records: Some(0),
                has_segments,
                index_id: None,
            };
            return;
        }
        Body::Number { offset, value, .. } => {
            match *offset {
                PAGE_INDEX_ID => content.index_id = Some(*value),
                offset if PAGE_SEGMENTS.contains(&offset) => content.has_segments = true,
                _ => {}
            }
            Some(0)
        }
        Body::Insert { .. } => Some(1),
        Body::Delete { .. } => Some(-1),
        Body::ListEndCopyCreated { inserts, .. } => i32::try_from(inserts.count()).ok(),
        Body::ListEndDelete { .. } | Body::ListStartDelete { .. } => None,
        _ => Some(0),
    };
    content.is_changed = true;
    content.records = content.records.zip(change).map(|(records, change)| records.saturating_add(change));
}

#[cfg(test)]
mod tests;
