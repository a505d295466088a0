//! Creating pages: INIT_PAGE, empty index pages, undo pages, and appending to an undo page.

use redoubt_redo::PageId;

use super::frame::{Fault, Frame, ensure};
use crate::layout::{
    FIL_PAGE_OFFSET, FIL_PAGE_PREV, FIL_PAGE_SPACE_ID, FIL_PAGE_TRAILER_BYTES, FIL_PAGE_TYPE, PAGE_DATA,
    PAGE_DIR, PAGE_DIRECTION_B, PAGE_HEAP_TOP, PAGE_N_DIR_SLOTS, PAGE_N_HEAP, TRX_UNDO_PAGE_FREE,
    TRX_UNDO_PAGE_NODE, TRX_UNDO_PAGE_START, TRX_UNDO_PAGE_TYPE, TRX_UNDO_SEG_HDR, TRX_UNDO_SEG_HDR_END,
    TYPE_UNDO_LOG,
};

/// Infimum and supremum of an empty REDUNDANT page: one field each, infimum linked to supremum.
const REDUNDANT_BOUNDS: &[u8] =
    b"\x08\x01\x00\x00\x03\x00\x74infimum\x00\x09\x01\x00\x08\x03\x00\x00supremum\x00";
/// Infimum and supremum of an empty COMPACT or DYNAMIC page.
const DYNAMIC_BOUNDS: &[u8] = b"\x01\x00\x02\x00\x0dinfimum\x00\x01\x00\x0b\x00\x00supremum";
/// The part of the page header that creating an index page clears.
const PAGE_HEADER_PRIVATE_BYTES: usize = 26;

/// Zero the page and write its identity.
pub(super) fn init_page(page: &mut [u8], id: PageId) -> Result<(), Fault> {
    page.fill(0);
    let mut frame = Frame(page);
    frame.write(FIL_PAGE_OFFSET, &id.page_no.0.to_be_bytes())?;
    frame.write(FIL_PAGE_PREV, &[0xff; 8])?;
    frame.write(FIL_PAGE_SPACE_ID, &id.space.0.to_be_bytes())
}

/// Turn the page into an empty index page of this page type.
pub(crate) fn init_index_page(page: &mut [u8], comp: bool, page_type: u16) -> Result<(), Fault> {
    let (bounds, n_heap, infimum, supremum) =
        if comp { (DYNAMIC_BOUNDS, 0x8002, 99, 112) } else { (REDUNDANT_BOUNDS, 2, 101, 116) };
    let heap_bottom = PAGE_DATA + bounds.len();
    let mut frame = Frame(page);
    let directory_end = frame.len().saturating_sub(PAGE_DIR);
    frame.set_u16(FIL_PAGE_TYPE, page_type)?;
    frame.fill(PAGE_N_DIR_SLOTS, PAGE_N_DIR_SLOTS + PAGE_HEADER_PRIVATE_BYTES, 0)?;
    frame.set_u16(PAGE_N_DIR_SLOTS, 2)?;
    frame.set_field(PAGE_HEAP_TOP, heap_bottom)?;
    frame.set_u16(PAGE_N_HEAP, n_heap)?;
    frame.set_u8(PAGE_DIRECTION_B, 5)?;
    frame.write(PAGE_DATA, bounds)?;
    frame.fill(heap_bottom, directory_end, 0)?;
    frame.set_u16(directory_end - 4, supremum)?;
    frame.set_u16(directory_end - 2, infimum)
}

/// Turn the page into an undo page, keeping the segment header.
pub(super) fn init_undo_page(page: &mut [u8]) -> Result<(), Fault> {
    let mut frame = Frame(page);
    let end = frame.len().saturating_sub(FIL_PAGE_TRAILER_BYTES);
    frame.set_u16(FIL_PAGE_TYPE, TYPE_UNDO_LOG)?;
    frame.set_u16(TRX_UNDO_PAGE_TYPE, 0)?;
    frame.set_field(TRX_UNDO_PAGE_START, TRX_UNDO_SEG_HDR)?;
    frame.set_field(TRX_UNDO_PAGE_FREE, TRX_UNDO_SEG_HDR)?;
    frame.write(TRX_UNDO_PAGE_NODE, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0])?;
    frame.fill(TRX_UNDO_SEG_HDR_END, end, 0)
}

/// Append an undo record: a link to its end before it, a link to its start after it.
pub(super) fn append_undo(page: &mut [u8], data: &[u8]) -> Result<(), Fault> {
    let mut frame = Frame(page);
    let free = frame.field(TRX_UNDO_PAGE_FREE)?;
    let limit = frame.len().saturating_sub(FIL_PAGE_TRAILER_BYTES);
    ensure(data.len() > 2, free, "the undo record is shorter than 3 bytes")?;
    ensure(free >= TRX_UNDO_SEG_HDR, TRX_UNDO_PAGE_FREE, "the undo page's free offset lies in its header")?;
    ensure(free + data.len() + 6 < limit, free, "the undo record does not fit on the page")?;
    let end = free + 4 + data.len();
    frame.set_field(TRX_UNDO_PAGE_FREE, end)?;
    frame.set_field(free, end)?;
    frame.write(free + 2, data)?;
    frame.set_field(end - 2, free)
}
