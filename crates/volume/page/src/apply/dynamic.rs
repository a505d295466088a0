//! Inserting and deleting a record of a ROW_FORMAT=COMPACT or DYNAMIC page.

use redoubt_redo::mariadb::record::Insert;

use super::frame::{Fault, ensure};
use super::index_page::{IndexPage, SLOT_MAX_OWNED};
use crate::layout::{PAGE_FREE, PAGE_GARBAGE, PAGE_HEAP_TOP, PAGE_LAST_INSERT, PAGE_LEVEL, PAGE_N_HEAP};

const FIXED_HEADER_BYTES: usize = 5;
const STATUS_INSTANT: usize = 4;
const STATUS_NODE_POINTER: usize = 1;

/// Where a new record goes: first byte of its header, and its heap number.
struct RecordPosition {
    start: usize,
    heap_no: usize,
}

/// Apply an INSERT_HEAP_DYNAMIC or INSERT_REUSE_DYNAMIC record.
pub(super) fn insert(page: &mut IndexPage<'_>, insert: &Insert<'_>) -> Result<(), Fault> {
    let heap_top = page.heap_top()?;
    let last_slot = page.last_slot()?;
    page.check_heap(heap_top, last_slot)?;
    let is_leaf = page.frame.u16(PAGE_LEVEL)? == 0;
    let enc = insert.enc as usize;
    ensure(enc & STATUS_INSTANT == 0 || is_leaf, PAGE_LEVEL, "an instant record on a page that is no leaf")?;

    let prev = page.infimum() + insert.prev as usize;
    if insert.prev != 0 {
        ensure(
            page.heap_bottom() + FIXED_HEADER_BYTES <= prev && prev <= heap_top,
            prev,
            "predecessor outside the record heap",
        )?;
    }
    let next = page.next(prev)?;
    page.check_link(next, heap_top)?;
    let (owner, n_owned) = page.find_owner(next, SLOT_MAX_OWNED, heap_top)?;
    ensure(n_owned <= SLOT_MAX_OWNED, owner, "a directory slot owns more than 8 records")?;
    let slot = page.find_slot(owner)?;

    let (header_literal, data_literal) = insert
        .rest
        .split_at_checked(enc >> 3)
        .ok_or(Fault::new(prev, "the record announces more header bytes than it holds"))?;
    let (hdr_c, data_c) = (insert.hdr_c as usize, insert.data_c as usize);
    let extra_bytes = FIXED_HEADER_BYTES + hdr_c + header_literal.len();
    let data_bytes = data_c + data_literal.len();
    let common_header = prev
        .checked_sub(FIXED_HEADER_BYTES + hdr_c)
        .ok_or(Fault::new(prev, "the predecessor's header begins before the page"))?;
    page.frame.bytes(prev, data_c)?;

    let place = match insert.reuse_shift {
        Some(shift) => take_free(page, shift as usize, extra_bytes, data_bytes, heap_top)?,
        None => take_heap(page, extra_bytes + data_bytes, heap_top, last_slot)?,
    };
    let mut at = place.start;
    page.frame.write(at, header_literal)?;
    at += header_literal.len();
    page.frame.move_within(common_header, at, hdr_c)?;
    at += hdr_c;
    let status = if is_leaf { enc & STATUS_INSTANT } else { STATUS_NODE_POINTER };
    let record = at + FIXED_HEADER_BYTES;
    page.frame.set_u8(at, (enc as u8 & 3) << 4)?;
    page.frame.set_field(at + 1, place.heap_no << 3 | status)?;
    page.set_next(record, next)?;
    let last_insert = page.frame.field(PAGE_LAST_INSERT)?;
    page.frame.set_field(PAGE_LAST_INSERT, record)?;
    page.set_next(prev, record)?;
    page.frame.move_within(prev, record, data_c)?;
    page.frame.write(record + data_c, data_literal)?;
    page.set_n_owned(owner, n_owned + 1)?;
    page.note_insert(last_insert, prev, next)?;
    if n_owned == SLOT_MAX_OWNED { page.split_slot(slot) } else { Ok(()) }
}

fn take_heap(
    page: &mut IndexPage<'_>,
    len_bytes: usize,
    heap_top: usize,
    last_slot: usize,
) -> Result<RecordPosition, Fault> {
    ensure(heap_top + len_bytes <= last_slot, heap_top, "the new record does not fit on the page")?;
    let n_heap = page.frame.u16(PAGE_N_HEAP)?;
    page.frame.set_u16(PAGE_N_HEAP, n_heap.wrapping_add(1))?;
    page.frame.set_field(PAGE_HEAP_TOP, heap_top + len_bytes)?;
    Ok(RecordPosition { start: heap_top, heap_no: usize::from(n_heap & 0x7fff) })
}

fn take_free(
    page: &mut IndexPage<'_>,
    shift: usize,
    extra_bytes: usize,
    data_bytes: usize,
    heap_top: usize,
) -> Result<RecordPosition, Fault> {
    let lowest = page.heap_bottom() + FIXED_HEADER_BYTES;
    let free = page.frame.field(PAGE_FREE)?;
    ensure(lowest <= free && free <= heap_top, PAGE_FREE, "the free list leads outside the record heap")?;
    let start = if shift & 1 == 1 {
        free.checked_sub(extra_bytes + (shift >> 1))
    } else {
        (free + (shift >> 1)).checked_sub(extra_bytes)
    };
    let start = start
        .filter(|start| page.heap_bottom() <= *start && start + extra_bytes + data_bytes <= heap_top)
        .ok_or(Fault::new(free, "the reused space lies outside the record heap"))?;
    let garbage = page.frame.field(PAGE_GARBAGE)?;
    let left = garbage
        .checked_sub(extra_bytes + data_bytes)
        .ok_or(Fault::new(PAGE_GARBAGE, "less space was freed than is reused"))?;
    let next_free = if page.frame.u16(free - 2)? == 0 { 0 } else { page.next(free)? };
    ensure(
        next_free == 0 || (lowest <= next_free && next_free <= heap_top),
        free,
        "the free list leads outside the record heap",
    )?;
    let heap_no = page.heap_no(free)?;
    page.frame.set_field(PAGE_FREE, next_free)?;
    page.frame.set_field(PAGE_GARBAGE, left)?;
    Ok(RecordPosition { start, heap_no })
}

/// Apply a DELETE_ROW_FORMAT_DYNAMIC record.
pub(super) fn delete(
    page: &mut IndexPage<'_>,
    prev: usize,
    hdr_size: usize,
    data_bytes: usize,
) -> Result<(), Fault> {
    let last_slot = page.last_slot()?;
    let prev = (page.infimum() + prev) & 0xffff;
    ensure(page.infimum() <= prev && prev <= last_slot, prev, "predecessor outside the page")?;
    let record = page.next(prev)?;
    let extra_bytes = FIXED_HEADER_BYTES + hdr_size;
    ensure(
        record >= page.heap_bottom() + extra_bytes && record + data_bytes <= last_slot,
        record,
        "the record to delete lies outside the record heap",
    )?;
    page.delete(prev, record, extra_bytes, data_bytes)
}
