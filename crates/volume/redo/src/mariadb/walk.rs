//! Mini-transactions: where they end, whether they are whole, and which pages they touch.
//!
//! Layout: records, an end byte (0 or 1, the sequence bit), and the CRC-32C of the record bytes, 4 bytes
//! big-endian. The checksum does not cover the end byte. The end LSN is that of the byte after the checksum,
//! where the next mini-transaction starts.
//!
//! Invariant: nothing of a mini-transaction is reported before its last byte was seen, its checksum was
//! found right and each of its records was decoded.

use super::log_file::LogGeometry;
use super::page0::SpaceFlagsTracker;
use super::record::{Body, Extended, Record};
use super::record_reader::{ReaderState, decode_record, record_end};
use crate::error::{RedoError, StreamError};
use crate::mtr::{FileNote, Mtr, MtrVisitor, RunRef, SpaceFlagsChange, WalkStop, Walked};
use crate::types::{Lsn, PageId, SpaceId};

/// Most record bytes a mini-transaction may have.
pub const MTR_SIZE_MAX_BYTES: usize = 1 << 20;
/// End byte and checksum.
pub const MTR_TRAILER_BYTES: usize = 5;

/// Kind of the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtrStep<'a> {
    /// A whole mini-transaction with a right checksum.
    Mtr {
        /// Its records.
        records: &'a [u8],
        /// Its end byte: the sequence bit.
        end_byte: u8,
        /// Records and trailer, in bytes.
        total_len_bytes: usize,
    },
    /// A mini-transaction that is cut off.
    Incomplete,
    /// A byte 0 or 1 where a record would start: nothing was written here yet.
    EndOfLog,
}

/// The mini-transaction at `bytes[0]`. Looks at record headers only.
///
/// # Errors
/// When the checksum is wrong or no end is found where one must be.
pub fn next_mtr(bytes: &[u8]) -> Result<MtrStep<'_>, RedoError> {
    let mut at = 0;
    loop {
        match bytes.get(at) {
            None => return incomplete_or_too_long(at),
            Some(0 | 1) => break,
            Some(_) => {}
        }
        match record_end(bytes, at)? {
            Some(end) if end <= MTR_SIZE_MAX_BYTES => at = end,
            Some(end) => return Err(too_long(end)),
            None => return Ok(MtrStep::Incomplete),
        }
    }
    if at == 0 {
        return Ok(MtrStep::EndOfLog);
    }
    let Some((records, trailer)) = split_mtr(bytes, 0, at) else { return Ok(MtrStep::Incomplete) };
    check_crc(records, trailer, at)?;
    let [end_byte, ..] = trailer;
    Ok(MtrStep::Mtr { records, end_byte, total_len_bytes: at + MTR_TRAILER_BYTES })
}

fn incomplete_or_too_long<'a>(at: usize) -> Result<MtrStep<'a>, RedoError> {
    if at > MTR_SIZE_MAX_BYTES { Err(too_long(at)) } else { Ok(MtrStep::Incomplete) }
}

#[cold]
const fn too_long(offset: usize) -> RedoError {
    RedoError::MtrTooLong { offset, limit_bytes: MTR_SIZE_MAX_BYTES }
}

/// Records `bytes[start..end]` and the trailer after them, if all of it is there.
#[inline(always)]
fn split_mtr(bytes: &[u8], start: usize, end: usize) -> Option<(&[u8], [u8; MTR_TRAILER_BYTES])> {
    let (records, rest) = bytes.get(start..)?.split_at_checked(end - start)?;
    Some((records, *rest.first_chunk::<MTR_TRAILER_BYTES>()?))
}

#[inline(always)]
fn check_crc(records: &[u8], trailer: [u8; MTR_TRAILER_BYTES], end: usize) -> Result<(), RedoError> {
    let [_, a, b, c, d] = trailer;
    let stored = u32::from_be_bytes([a, b, c, d]);
    let computed = crc32c::crc32c(records);
    if stored == computed { Ok(()) } else { Err(RedoError::Checksum { offset: end + 1, stored, computed }) }
}

/// Which end bytes are right.
#[derive(Clone, Copy, Debug)]
pub enum SequenceRule<'g> {
    /// Both 0 and 1: a stream whose file geometry is not known or changes on the way.
    Any,
    /// The sequence bit of this file at the LSN of the end byte. A different bit means that the bytes are
    /// from an earlier lap of the circular file: the end of the log.
    Geometry(&'g LogGeometry),
}

/// Report every whole mini-transaction of `bytes` to `visitor`. `bytes[0]` must be the first byte of a
/// mini-transaction; `start_lsn` is its LSN.
///
/// # Errors
/// When a mini-transaction is invalid. Those before it have been reported.
pub fn walk_mtrs(
    bytes: &[u8],
    start_lsn: Lsn,
    rule: SequenceRule<'_>,
    visitor: &mut impl MtrVisitor,
) -> Result<Walked, StreamError> {
    let mut parts = Parts { runs: Vec::with_capacity(64), files: Vec::new() };
    let mut at = 0;
    let stop = loop {
        if at == bytes.len() {
            break WalkStop::AllConsumed;
        }
        let start = at;
        let mtr_lsn = start_lsn.advance(start as u64);
        let records_end = match split_records(bytes, start, &mut parts) {
            Ok(Some(end)) => end,
            Ok(None) => break WalkStop::Incomplete,
            Err(error) => match explain(bytes, start, error) {
                Some(error) => return Err(StreamError { mtr_lsn, error }),
                None => break WalkStop::Incomplete,
            },
        };
        if records_end == start {
            break WalkStop::EndOfLog;
        }
        let Some((records, trailer)) = split_mtr(bytes, start, records_end) else {
            break WalkStop::Incomplete;
        };
        if let SequenceRule::Geometry(geometry) = rule
            && trailer[0] != geometry.sequence_bit(start_lsn.advance(records_end as u64))
        {
            break WalkStop::WrongSequenceBit;
        }
        check_crc(records, trailer, records_end).map_err(|error| StreamError { mtr_lsn, error })?;
        at = records_end + MTR_TRAILER_BYTES;
        visitor.visit_mtr(&Mtr {
            start_lsn: mtr_lsn,
            end_lsn: start_lsn.advance(at as u64),
            bytes: bytes.get(start..at).unwrap_or_default(),
            records,
            offset_in_bytes: start,
            runs: &parts.runs,
            contents: &[],
            files: &parts.files,
            index_loads: &[],
        });
    };
    Ok(Walked { end_lsn: start_lsn.advance(at as u64), len_bytes: at, stop })
}

/// A record could not be decoded, but the checksum was not looked at yet: report the record only if the
/// checksum is right, so that damaged or old bytes are called that. `None`: the bytes are cut off.
#[cold]
fn explain(bytes: &[u8], start: usize, record_error: RedoError) -> Option<RedoError> {
    match next_mtr(bytes.get(start..).unwrap_or_default()) {
        Ok(MtrStep::Incomplete) => None,
        Ok(MtrStep::Mtr { .. } | MtrStep::EndOfLog) => Some(record_error),
        Err(error) => Some(error.shifted(start)),
    }
}

/// Parts of one mini-transaction.
struct Parts<'a> {
    runs: Vec<RunRef>,
    files: Vec<FileNote<'a>>,
}

/// Decode the records from `start` on and split them into `parts`. Returns where they end (at the end
/// byte), or `None` if the bytes end first.
#[inline(always)]
fn split_records<'a>(
    bytes: &'a [u8],
    start: usize,
    parts: &mut Parts<'a>,
) -> Result<Option<usize>, RedoError> {
    parts.runs.clear();
    parts.files.clear();
    let mut state = ReaderState::new();
    let mut page0 = SpaceFlagsTracker::new();
    let mut record = Record::EMPTY;
    let mut at = start;
    loop {
        match bytes.get(at) {
            None if at - start > MTR_SIZE_MAX_BYTES => return Err(too_long(at)),
            None => return Ok(None),
            Some(0 | 1) => return Ok(Some(at)),
            Some(_) => {}
        }
        let Some(end) = record_end(bytes, at)? else { return Ok(None) };
        if end - start > MTR_SIZE_MAX_BYTES {
            return Err(too_long(end));
        }
        let Some(upto) = bytes.get(..end) else { return Ok(None) };
        decode_record(upto, at, &mut state, &mut record)?;
        if let Body::File(file) = record.body {
            let space = record.page.map_or(SpaceId(0), |page| page.space);
            parts.files.push(FileNote { space, record: file });
        } else {
            note_page_record(&mut parts.runs, &record, state.page, at, end, &mut page0);
        }
        at = end;
    }
}

/// Add one page record to the runs.
#[inline(always)]
fn note_page_record(
    runs: &mut Vec<RunRef>,
    record: &Record<'_>,
    page: PageId,
    at: usize,
    end: usize,
    page0: &mut SpaceFlagsTracker,
) {
    let is_trim = matches!(record.body, Body::Extended(Extended::TrimPages));
    let extends = match runs.last() {
        None => false,
        Some(run) => record.page.is_none() || (run.page == page && run.trim_pages.is_none() && !is_trim),
    };
    if !extends {
        *page0 = SpaceFlagsTracker::new();
        runs.push(RunRef {
            page,
            offset_in_bytes: at,
            len_bytes: 0,
            last_init_offset: None,
            contains_free: false,
            ends_with_free: false,
            trim_pages: is_trim.then_some(page.page_no.0),
            space_flags: SpaceFlagsChange::Unchanged,
        });
    }
    let Some(run) = runs.last_mut() else { return };
    run.len_bytes = end - run.offset_in_bytes;
    run.ends_with_free = false;
    match record.body {
        Body::FreePage => {
            run.contains_free = true;
            run.ends_with_free = true;
        }
        Body::InitPage => run.last_init_offset = Some(at - run.offset_in_bytes),
        _ => {}
    }
    if page.page_no.0 == 0 && !is_trim {
        page0.apply(record);
        run.space_flags = page0.change();
    }
}

#[cfg(test)]
mod tests;
