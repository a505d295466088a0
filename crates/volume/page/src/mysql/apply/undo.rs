//! Applying the records of undo log pages.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 38 | 2 | kind: 1 insert, 2 update |
//! | 40 | 2 | where the records of the newest log start |
//! | 42 | 2 | first free byte |
//! | 44 | 12 | list node |
//! | 56 | 2 | segment header: state |
//! | 58 | 2 | newest log on the page |
//! | 60 | 26 | rest of the segment header |
//! | 86 | | undo logs, each a header of 46 bytes and its records |
//!
//! Sources: `trx/trx0undo.cc` (`trx_undo_page_init`, `trx_undo_header_create`, `trx_undo_insert_header_reuse`),
//! `trx/trx0rec.cc` (`trx_undo_parse_add_undo_rec`, `trx_undo_erase_page_end`), `include/trx0undo.h`.

use redoubt_redo::mysql::record::UndoKind;

use crate::apply::frame::{Fault, Frame, ensure};
use crate::layout::{
    FIL_PAGE_TRAILER_BYTES, FIL_PAGE_TYPE, TRX_UNDO_PAGE_FREE, TRX_UNDO_PAGE_START, TRX_UNDO_PAGE_TYPE,
    TRX_UNDO_SEG_HDR, TRX_UNDO_SEG_HDR_END, TYPE_UNDO_LOG,
};

const STATE: usize = TRX_UNDO_SEG_HDR;
const LAST_LOG: usize = TRX_UNDO_SEG_HDR + 2;
const STATE_ACTIVE: u16 = 1;

/// Log header: fields from its first byte on.
const LOG_TRX_ID: usize = 0;
const LOG_DELETE_MARKS: usize = 16;
const LOG_START: usize = 18;
const LOG_FLAGS: usize = 20;
const LOG_NEXT: usize = 30;
const LOG_PREVIOUS: usize = 32;
/// A log header without room for an XID.
const LOG_HEADER_BYTES: usize = 46;
/// A log header with an XID and two GTIDs: what must be free where a log begins.
const LOG_HEADER_MAX_BYTES: usize = LOG_HEADER_BYTES + 140 + 1 + 64 + 64;
/// Additional bytes that must be free.
const MARGIN_BYTES: usize = 100;

/// Apply an UNDO_INIT record.
pub(super) fn init(page: &mut [u8], kind: UndoKind) -> Result<(), Fault> {
    let mut frame = Frame(page);
    frame.set_u16(TRX_UNDO_PAGE_TYPE, kind as u16)?;
    frame.set_field(TRX_UNDO_PAGE_START, TRX_UNDO_SEG_HDR)?;
    frame.set_field(TRX_UNDO_PAGE_FREE, TRX_UNDO_SEG_HDR)?;
    frame.set_u16(FIL_PAGE_TYPE, TYPE_UNDO_LOG)
}

/// The page, and its first free byte.
fn open(page: &mut [u8]) -> Result<(Frame<'_>, usize), Fault> {
    let frame = Frame(page);
    ensure(frame.u16(FIL_PAGE_TYPE)? == TYPE_UNDO_LOG, FIL_PAGE_TYPE, "not an undo log page")?;
    let free = frame.field(TRX_UNDO_PAGE_FREE)?;
    let end = frame.len().saturating_sub(FIL_PAGE_TRAILER_BYTES);
    ensure(
        (TRX_UNDO_SEG_HDR..=end).contains(&free),
        TRX_UNDO_PAGE_FREE,
        "the page's free offset lies outside its records",
    )?;
    Ok((frame, free))
}

/// Apply an UNDO_INSERT record: a link to its end before it, a link to its start after it.
pub(super) fn insert(page: &mut [u8], data: &[u8]) -> Result<(), Fault> {
    let (mut frame, free) = open(page)?;
    let end = free + 4 + data.len();
    let limit = frame.len().saturating_sub(FIL_PAGE_TRAILER_BYTES);
    ensure(end <= limit, free, "the undo record does not fit on the page")?;
    frame.set_field(free, end)?;
    frame.write(free + 2, data)?;
    frame.set_field(end - 2, free)?;
    frame.set_field(TRX_UNDO_PAGE_FREE, end)
}

/// Apply an UNDO_ERASE_END record.
pub(super) fn erase_end(page: &mut [u8]) -> Result<(), Fault> {
    let (mut frame, free) = open(page)?;
    let end = frame.len().saturating_sub(FIL_PAGE_TRAILER_BYTES);
    frame.fill(free, end, 0xff)
}

fn check_room(frame: &Frame<'_>, log: usize) -> Result<(), Fault> {
    ensure(
        log >= TRX_UNDO_SEG_HDR_END && log + LOG_HEADER_MAX_BYTES < frame.len().saturating_sub(MARGIN_BYTES),
        log,
        "an undo log header does not fit on the page",
    )
}

/// Apply an UNDO_HDR_CREATE record.
pub(super) fn create_header(page: &mut [u8], trx_id: u64) -> Result<(), Fault> {
    let (mut frame, log) = open(page)?;
    check_room(&frame, log)?;
    let previous = frame.field(LAST_LOG)?;
    if previous != 0 {
        ensure(
            previous >= TRX_UNDO_SEG_HDR_END && previous + LOG_HEADER_BYTES <= log,
            LAST_LOG,
            "the newest undo log of the page lies outside it",
        )?;
        frame.set_field(previous + LOG_NEXT, log)?;
    }
    begin_log(&mut frame, log, trx_id)?;
    frame.set_field(LAST_LOG, log)?;
    frame.set_u16(log + LOG_DELETE_MARKS, 1)?;
    frame.set_u16(log + LOG_NEXT, 0)?;
    frame.set_field(log + LOG_PREVIOUS, previous)
}

/// Apply an UNDO_HDR_REUSE record: the only log of an insert undo page is reset.
pub(super) fn reuse_header(page: &mut [u8], trx_id: u64) -> Result<(), Fault> {
    let (mut frame, _) = open(page)?;
    check_room(&frame, TRX_UNDO_SEG_HDR_END)?;
    ensure(
        frame.u16(TRX_UNDO_PAGE_TYPE)? == UndoKind::Insert as u16,
        TRX_UNDO_PAGE_TYPE,
        "an undo log is reused on a page that is not for inserts",
    )?;
    begin_log(&mut frame, TRX_UNDO_SEG_HDR_END, trx_id)
}

/// Writes shared by both kinds of new log.
fn begin_log(frame: &mut Frame<'_>, log: usize, trx_id: u64) -> Result<(), Fault> {
    let records = log + LOG_HEADER_BYTES;
    frame.set_field(TRX_UNDO_PAGE_START, records)?;
    frame.set_field(TRX_UNDO_PAGE_FREE, records)?;
    frame.set_u16(STATE, STATE_ACTIVE)?;
    frame.write(log + LOG_TRX_ID, &trx_id.to_be_bytes())?;
    frame.set_field(log + LOG_START, records)?;
    frame.set_u16(log + LOG_FLAGS, 0)
}
