//! Inserting and deleting a record of a ROW_FORMAT=REDUNDANT page.
//!
//! A REDUNDANT record carries the end of each field below its 6 fixed header bytes, in 1 or 2 bytes per
//! field, so its size follows from the record itself.

use redoubt_redo::mariadb::record::Insert;

use super::frame::{Fault, Frame, ensure};
use super::index_page::{IndexPage, SLOT_MAX_OWNED};
use crate::layout::{PAGE_FREE, PAGE_GARBAGE, PAGE_HEAP_TOP, PAGE_LAST_INSERT, PAGE_N_HEAP};

const FIXED_HEADER_BYTES: usize = 6;
const MAX_FIELDS: usize = 1023;
const N_FIELDS_MASK: u16 = 0x7fe;
const HEAP_NO_MASK: u16 = 0xfff8;

/// Header and data size of a record, in bytes.
#[derive(Clone, Copy)]
struct Size {
    extra_bytes: usize,
    data_bytes: usize,
}

/// Read the size of the record with origin `record`.
fn size_of(frame: &Frame<'_>, record: usize) -> Result<Size, Fault> {
    let n_fields = usize::from((frame.u16(record.wrapping_sub(4))? & N_FIELDS_MASK) >> 1);
    let is_short = frame.u8(record.wrapping_sub(3))? & 1 == 1;
    let extra_bytes = FIXED_HEADER_BYTES + if is_short { n_fields } else { n_fields * 2 };
    ensure(
        0 < n_fields && n_fields <= MAX_FIELDS && extra_bytes <= record,
        record,
        "the record has an impossible number of fields",
    )?;
    let last_end = record - extra_bytes;
    let data_bytes =
        if is_short { usize::from(frame.u8(last_end)? & 0x7f) } else { frame.field(last_end)? & 0x3fff };
    Ok(Size { extra_bytes, data_bytes })
}

/// Header of a new record, built beside the page so that it can be checked first.
struct Header {
    bytes: [u8; FIXED_HEADER_BYTES + MAX_FIELDS * 2],
    size: Size,
}

fn build_header(page: &IndexPage<'_>, insert: &Insert<'_>, prev: usize) -> Result<(Header, usize), Fault> {
    let enc = insert.enc as usize;
    let n_fields = (enc >> 3) + 1;
    let is_short = enc >> 2 & 1 == 1;
    ensure(n_fields <= MAX_FIELDS, prev, "the new record has too many fields")?;
    let extra_bytes = FIXED_HEADER_BYTES + if is_short { n_fields } else { n_fields * 2 };
    let common = insert.hdr_c as usize + FIXED_HEADER_BYTES;
    let literal = extra_bytes
        .checked_sub(common)
        .filter(|literal| *literal <= insert.rest.len())
        .ok_or(Fault::new(prev, "the new record's header does not add up"))?;
    let mut bytes = [0; FIXED_HEADER_BYTES + MAX_FIELDS * 2];
    let mut header = Frame(&mut bytes);
    header.write(0, insert.rest.get(..literal).unwrap_or_default())?;
    header.write(literal, page.frame.bytes(prev.wrapping_sub(common), common)?)?;
    header.set_u8(extra_bytes - 6, (enc as u8 & 3) << 4)?;
    let flag = header.u8(extra_bytes - 3)? & !1 | u8::from(is_short);
    header.set_u8(extra_bytes - 3, flag)?;
    let fields = header.u16(extra_bytes - 4)? & !N_FIELDS_MASK | (n_fields as u16) << 1;
    header.set_u16(extra_bytes - 4, fields)?;
    let size = size_of(&header, extra_bytes)?;
    Ok((Header { bytes, size }, literal))
}

/// Apply an INSERT_HEAP_REDUNDANT or INSERT_REUSE_REDUNDANT record.
pub(super) fn insert(page: &mut IndexPage<'_>, insert: &Insert<'_>) -> Result<(), Fault> {
    let heap_top = page.heap_top()?;
    let last_slot = page.last_slot()?;
    page.check_heap(heap_top, last_slot)?;
    let prev = page.infimum() + insert.prev as usize;
    check_predecessor(page, insert, prev, heap_top)?;
    let next = page.next(prev)?;
    page.check_link(next, heap_top)?;
    let (owner, n_owned) = page.find_owner(next, SLOT_MAX_OWNED, heap_top)?;
    ensure(n_owned <= SLOT_MAX_OWNED, owner, "a directory slot owns more than 8 records")?;
    let slot = page.find_slot(owner)?;

    let (mut header, literal) = build_header(page, insert, prev)?;
    let Size { extra_bytes, data_bytes } = header.size;
    let data_c = insert.data_c as usize;
    ensure(
        data_c <= data_bytes && literal + data_bytes - data_c == insert.rest.len(),
        prev,
        "the new record's data does not add up",
    )?;
    page.frame.bytes(prev, data_c)?;

    let (start, heap_no) = if insert.reuse_shift.is_some() {
        take_free(page, header.size, heap_top)?
    } else {
        ensure(
            heap_top + extra_bytes + data_bytes <= last_slot,
            heap_top,
            "the new record does not fit on the page",
        )?;
        let n_heap = page.n_heap()?;
        page.frame.set_field(PAGE_N_HEAP, n_heap + 1)?;
        page.frame.set_field(PAGE_HEAP_TOP, heap_top + extra_bytes + data_bytes)?;
        (heap_top, n_heap)
    };
    let mut image = Frame(&mut header.bytes);
    let rest_of_heap_no = image.u16(extra_bytes - 5)? & !HEAP_NO_MASK;
    image.set_field(extra_bytes - 5, heap_no << 3 | usize::from(rest_of_heap_no))?;
    page.frame.write(start, image.bytes(0, extra_bytes)?)?;

    let record = start + extra_bytes;
    let last_insert = page.frame.field(PAGE_LAST_INSERT)?;
    page.frame.set_field(PAGE_LAST_INSERT, record)?;
    page.set_next(prev, record)?;
    page.frame.move_within(prev, record, data_c)?;
    page.frame.write(record + data_c, insert.rest.get(literal..).unwrap_or_default())?;
    page.set_n_owned(owner, n_owned + 1)?;
    page.note_insert(last_insert, prev, next)?;
    if n_owned == SLOT_MAX_OWNED { page.split_slot(slot) } else { Ok(()) }
}

fn check_predecessor(
    page: &IndexPage<'_>,
    insert: &Insert<'_>,
    prev: usize,
    heap_top: usize,
) -> Result<(), Fault> {
    let bottom = page.heap_bottom();
    if insert.prev != 0 {
        ensure(
            bottom + FIXED_HEADER_BYTES < prev && prev <= heap_top,
            prev,
            "predecessor outside the record heap",
        )?;
        let size = size_of(&page.frame, prev)?;
        ensure(
            prev >= bottom + size.extra_bytes && prev + size.data_bytes <= heap_top,
            prev,
            "the predecessor's size is impossible",
        )?;
    }
    ensure(
        insert.hdr_c == 0 || prev >= bottom + insert.hdr_c as usize,
        prev,
        "header bytes to copy lie outside the record heap",
    )
}

/// Take the first record of the free list: first byte of its space, and its heap number.
fn take_free(page: &mut IndexPage<'_>, wanted: Size, heap_top: usize) -> Result<(usize, usize), Fault> {
    let bottom = page.heap_bottom();
    let free = page.frame.field(PAGE_FREE)?;
    ensure(
        bottom + FIXED_HEADER_BYTES <= free && free <= heap_top,
        PAGE_FREE,
        "the free list leads outside the record heap",
    )?;
    let old = size_of(&page.frame, free)?;
    let old_bytes = old.extra_bytes + old.data_bytes;
    let wanted_bytes = wanted.extra_bytes + wanted.data_bytes;
    ensure(
        free >= bottom + old.extra_bytes && free + old.data_bytes <= heap_top && wanted_bytes <= old_bytes,
        free,
        "the freed record cannot hold the new one",
    )?;
    let garbage = page.frame.field(PAGE_GARBAGE)?;
    ensure(garbage >= old_bytes, PAGE_GARBAGE, "less space was freed than is reused")?;
    let next_free = page.next(free)?;
    ensure(
        next_free == 0 || (bottom + FIXED_HEADER_BYTES < next_free && next_free <= heap_top),
        free,
        "the free list leads outside the record heap",
    )?;
    let heap_no = page.heap_no(free)?;
    page.frame.set_field(PAGE_GARBAGE, garbage - wanted_bytes)?;
    page.frame.set_field(PAGE_FREE, next_free)?;
    Ok((free - old.extra_bytes, heap_no))
}

/// Apply a DELETE_ROW_FORMAT_REDUNDANT record.
pub(super) fn delete(page: &mut IndexPage<'_>, prev: usize) -> Result<(), Fault> {
    let last_slot = page.last_slot()?;
    let prev = page.infimum() + prev;
    ensure(prev <= last_slot, prev, "predecessor outside the page")?;
    let record = page.next(prev)?;
    let lowest = page.heap_bottom() + FIXED_HEADER_BYTES;
    ensure(
        lowest <= record && record <= last_slot,
        record,
        "the record to delete lies outside the record heap",
    )?;
    let size = size_of(&page.frame, record)?;
    ensure(
        record >= page.heap_bottom() + size.extra_bytes && record + size.data_bytes <= last_slot,
        record,
        "the record to delete lies outside the record heap",
    )?;
    page.delete(prev, record, size.extra_bytes, size.data_bytes)
}
