//! Inserting a record, and appending many to a page that was just created.
//!
//! A logged record is a difference to its predecessor: so many first bytes of it (extra bytes and data), then the bytes
//! that follow in the log. Its place is the head of the free list if that is big enough, else the end of the heap.
//!
//! Sources: `page_cur_parse_insert_rec`, `page_cur_insert_rec_low` and `page_parse_copy_rec_list_to_created_page` in
//! `page/page0cur.cc`.

use redoubt_redo::mysql::record::{InsertBody, ShortInserts};

use super::fields::{COMPACT_HEADER_BYTES, REDUNDANT_HEADER_BYTES, RecordLayout, RecordSize};
use crate::apply::frame::{Fault, ensure};
use crate::apply::index_page::{IndexPage, SLOT_MAX_OWNED};
use crate::layout::{
    PAGE_DIRECTION_B, PAGE_FREE, PAGE_GARBAGE, PAGE_HEAP_TOP, PAGE_LAST_INSERT, PAGE_N_DIRECTION, PAGE_N_HEAP,
};

const DIRECTION_NONE: u8 = 5;
const INFO_BITS: u8 = 0xf0;
const STATUS_BITS: u8 = 7;

/// Where a new record goes: its first byte, and its heap number.
struct Place {
    start: usize,
    heap_no: usize,
}

/// Parts of a new record.
struct Shape {
    info_and_status_bits: u8,
    /// Its origin, from its first byte.
    origin: usize,
    /// First byte of the predecessor.
    predecessor_start: usize,
    /// How many bytes come from there.
    prefix_bytes: usize,
    total_bytes: usize,
}

/// Apply a REC_INSERT record.
pub(super) fn insert(
    page: &mut IndexPage<'_>,
    layout: &RecordLayout<'_, '_>,
    predecessor: usize,
    body: &InsertBody<'_>,
) -> Result<(), Fault> {
    let heap_top = page.heap_top()?;
    let last_slot = page.last_slot()?;
    page.check_heap(heap_top, last_slot)?;
    if predecessor != page.infimum() {
        let lowest = page.heap_bottom() + page.fixed_header_bytes();
        ensure(
            lowest <= predecessor && predecessor <= heap_top,
            predecessor,
            "predecessor outside the record heap",
        )?;
    }
    insert_after(page, layout, predecessor, body, heap_top, last_slot).map(|_| ())
}

/// Apply a LIST_END_COPY_CREATED record: append records, and forget the direction of the inserts.
pub(super) fn append(
    page: &mut IndexPage<'_>,
    layout: &RecordLayout<'_, '_>,
    inserts: ShortInserts<'_>,
) -> Result<(), Fault> {
    page.check_heap(page.heap_top()?, page.last_slot()?)?;
    let mut last = super::delete::last_record(page)?;
    for body in inserts {
        let (heap_top, last_slot) = (page.heap_top()?, page.last_slot()?);
        last = insert_after(page, layout, last, &body, heap_top, last_slot)?;
    }
    page.frame.set_u16(PAGE_LAST_INSERT, 0)?;
    page.frame.set_u16(PAGE_DIRECTION_B - 1, u16::from(DIRECTION_NONE))?;
    page.frame.set_u16(PAGE_N_DIRECTION, 0)?;
    page.check_heap(page.heap_top()?, page.last_slot()?)
}

fn insert_after(
    page: &mut IndexPage<'_>,
    layout: &RecordLayout<'_, '_>,
    predecessor: usize,
    body: &InsertBody<'_>,
    heap_top: usize,
    last_slot: usize,
) -> Result<usize, Fault> {
    let next = page.next(predecessor)?;
    page.check_link(next, heap_top)?;
    let shape = shape(page, layout, predecessor, body)?;
    let place = match take_free(page, layout, shape.total_bytes, heap_top)? {
        Some(place) => place,
        None => take_heap(page, shape.total_bytes, heap_top, last_slot)?,
    };
    page.frame.move_within(shape.predecessor_start, place.start, shape.prefix_bytes)?;
    page.frame.write(place.start + shape.prefix_bytes, body.tail)?;
    let record = place.start + shape.origin;
    set_header(page, record, &place, shape.info_and_status_bits)?;
    // Wrong bytes before the place of a wrong base give a record that is not as long as it should be.
    let expected = RecordSize { extra_bytes: shape.origin, data_bytes: shape.total_bytes - shape.origin };
    ensure(
        layout.size(page.frame.0, record)? == expected,
        record,
        "the new record is not as long as its header says",
    )?;
    link(page, record, predecessor, next)?;
    Ok(record)
}

/// Put a record that is in its place, `record`, into the list between `predecessor` and `next`.
pub(super) fn link(
    page: &mut IndexPage<'_>,
    record: usize,
    predecessor: usize,
    next: usize,
) -> Result<(), Fault> {
    let heap_top = page.heap_top()?;
    let (owner, n_owned) = page.find_owner(next, SLOT_MAX_OWNED, heap_top)?;
    ensure(n_owned <= SLOT_MAX_OWNED, owner, "a directory slot owns more than 8 records")?;
    page.set_next(record, next)?;
    page.set_next(predecessor, record)?;
    let last_insert = page.frame.field(PAGE_LAST_INSERT)?;
    page.frame.set_field(PAGE_LAST_INSERT, record)?;
    page.note_insert(last_insert, predecessor, next)?;
    page.set_n_owned(owner, n_owned + 1)?;
    if n_owned == SLOT_MAX_OWNED {
        let slot = page.find_slot(owner)?;
        page.split_slot(slot)?;
    }
    Ok(())
}

fn shape(
    page: &IndexPage<'_>,
    layout: &RecordLayout<'_, '_>,
    predecessor: usize,
    body: &InsertBody<'_>,
) -> Result<Shape, Fault> {
    let tail_bytes = body.tail.len();
    let fault = |what| Fault::new(predecessor, what);
    let shape = match body.header {
        Some(header) if header.mismatch_offset == 0 => Shape {
            info_and_status_bits: header.info_and_status_bits,
            origin: usize::from(header.origin_offset),
            predecessor_start: predecessor,
            prefix_bytes: 0,
            total_bytes: tail_bytes,
        },
        _ => {
            let size = layout.size(page.frame.0, predecessor)?;
            let (bits, origin, prefix_bytes) = match body.header {
                Some(header) => (
                    header.info_and_status_bits,
                    usize::from(header.origin_offset),
                    usize::from(header.mismatch_offset),
                ),
                None => (
                    info_and_status_bits(page, predecessor)?,
                    size.extra_bytes,
                    size.total_bytes()
                        .checked_sub(tail_bytes)
                        .ok_or(fault("the record to insert is longer than its predecessor"))?,
                ),
            };
            ensure(
                prefix_bytes <= size.total_bytes(),
                predecessor,
                "the record to insert has more of its predecessor than there is",
            )?;
            Shape {
                info_and_status_bits: bits,
                origin,
                predecessor_start: predecessor - size.extra_bytes,
                prefix_bytes,
                total_bytes: prefix_bytes + tail_bytes,
            }
        }
    };
    ensure(
        page.fixed_header_bytes() <= shape.origin && shape.origin <= shape.total_bytes,
        predecessor,
        "the record to insert has an impossible header",
    )?;
    Ok(shape)
}

fn info_and_status_bits(page: &IndexPage<'_>, record: usize) -> Result<u8, Fault> {
    if !page.comp {
        return Ok(page.frame.u8(record.wrapping_sub(REDUNDANT_HEADER_BYTES))? & INFO_BITS);
    }
    let info = page.frame.u8(record.wrapping_sub(COMPACT_HEADER_BYTES))? & INFO_BITS;
    Ok(info | page.frame.u8(record.wrapping_sub(3))? & STATUS_BITS)
}

/// The head of the free list, if it is as long as `total_bytes`. The surplus stays unused behind the record.
fn take_free(
    page: &mut IndexPage<'_>,
    layout: &RecordLayout<'_, '_>,
    total_bytes: usize,
    heap_top: usize,
) -> Result<Option<Place>, Fault> {
    let free = page.frame.field(PAGE_FREE)?;
    if free == 0 {
        return Ok(None);
    }
    let lowest = page.heap_bottom() + page.fixed_header_bytes();
    let in_heap = |record: usize| lowest <= record && record <= heap_top;
    ensure(in_heap(free), PAGE_FREE, "the free list leads outside the record heap")?;
    let size = layout.size(page.frame.0, free)?;
    ensure(
        free - size.extra_bytes >= page.heap_bottom() && free + size.data_bytes <= heap_top,
        free,
        "a free record lies outside the record heap",
    )?;
    if size.total_bytes() < total_bytes {
        return Ok(None);
    }
    let next_free = if page.frame.u16(free - 2)? == 0 { 0 } else { page.next(free)? };
    ensure(next_free == 0 || in_heap(next_free), free, "the free list leads outside the record heap")?;
    let garbage = page.frame.field(PAGE_GARBAGE)?;
    let left = garbage
        .checked_sub(total_bytes)
        .ok_or(Fault::new(PAGE_GARBAGE, "less space was freed than is reused"))?;
    let heap_no = page.heap_no(free)?;
    page.frame.set_field(PAGE_FREE, next_free)?;
    page.frame.set_field(PAGE_GARBAGE, left)?;
    Ok(Some(Place { start: free - size.extra_bytes, heap_no }))
}

fn take_heap(
    page: &mut IndexPage<'_>,
    total_bytes: usize,
    heap_top: usize,
    last_slot: usize,
) -> Result<Place, Fault> {
    ensure(heap_top + total_bytes <= last_slot, heap_top, "the new record does not fit on the page")?;
    let n_heap = page.frame.u16(PAGE_N_HEAP)?;
    page.frame.set_u16(PAGE_N_HEAP, n_heap.wrapping_add(1))?;
    page.frame.set_field(PAGE_HEAP_TOP, heap_top + total_bytes)?;
    Ok(Place { start: heap_top, heap_no: usize::from(n_heap & 0x7fff) })
}

/// Append a copy of a record of another page, given by its bytes and where its origin is among them.
pub(super) fn append_copy(
    page: &mut IndexPage<'_>,
    last: usize,
    bytes: &[u8],
    origin: usize,
) -> Result<usize, Fault> {
    let (heap_top, last_slot) = (page.heap_top()?, page.last_slot()?);
    let place = take_heap(page, bytes.len(), heap_top, last_slot)?;
    page.frame.write(place.start, bytes)?;
    let record = place.start + origin;
    let bits = info_and_status_bits(page, record)?;
    set_header(page, record, &place, bits)?;
    link(page, record, last, page.supremum())?;
    Ok(record)
}

/// Write info and status bits, heap number, and that the record owns none.
fn set_header(page: &mut IndexPage<'_>, record: usize, place: &Place, bits: u8) -> Result<(), Fault> {
    if page.comp {
        page.frame.set_u8(record.wrapping_sub(COMPACT_HEADER_BYTES), bits & INFO_BITS)?;
        let status = usize::from(bits & STATUS_BITS);
        page.frame.set_field(record.wrapping_sub(4), place.heap_no << 3 | status)
    } else {
        page.frame.set_u8(record.wrapping_sub(REDUNDANT_HEADER_BYTES), bits & INFO_BITS)?;
        let at = record.wrapping_sub(5);
        // The low three bits belong to the number of fields.
        let n_fields_high = page.frame.field(at)? & 7;
        page.frame.set_field(at, place.heap_no << 3 | n_fields_high)
    }
}
