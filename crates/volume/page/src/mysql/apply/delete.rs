//! Deleting a record, all from one on, or all before one.
//!
//! A deleted record goes to the head of the free list as it is; the heap stays as long as it was.
//!
//! Sources: `page_cur_delete_rec` in `page/page0cur.cc`, `page_mem_free` in `include/page0page.ic`,
//! `page_delete_rec_list_end` and `page_delete_rec_list_start` in `page/page0page.cc`.

use super::fields::RecordLayout;
use crate::apply::frame::{Fault, ensure};
use crate::apply::index_page::{IndexPage, SLOT_MAX_OWNED, SLOT_MIN_OWNED};
use crate::layout::{
    PAGE_DIR_SLOT_BYTES, PAGE_FREE, PAGE_GARBAGE, PAGE_LAST_INSERT, PAGE_N_DIR_SLOTS, PAGE_N_RECS,
};

const PAST_DIRECTORY: &str = "the record is not in the list of records";

/// Apply a REC_DELETE record.
pub(super) fn delete(
    page: &mut IndexPage<'_>,
    layout: &RecordLayout<'_, '_>,
    record: usize,
) -> Result<(), Fault> {
    page.check_heap(page.heap_top()?, page.last_slot()?)?;
    delete_record(page, layout, record)
}

fn delete_record(
    page: &mut IndexPage<'_>,
    layout: &RecordLayout<'_, '_>,
    record: usize,
) -> Result<(), Fault> {
    let heap_top = page.heap_top()?;
    check_user_record(page, record, heap_top)?;
    let size = layout.size(page.frame.0, record)?;
    ensure(
        record - size.extra_bytes >= page.heap_bottom() && record + size.data_bytes <= heap_top,
        record,
        "the record lies outside the record heap",
    )?;
    let next = page.next(record)?;
    page.check_link(next, heap_top)?;
    let (owner, n_owned) = page.find_owner(record, SLOT_MAX_OWNED, heap_top)?;
    let slot = page.find_slot(owner)?;
    let previous = predecessor(page, slot, record)?;
    let n_recs = page.frame.field(PAGE_N_RECS)?;
    ensure(n_recs > 0, PAGE_N_RECS, "the page has no record to delete")?;

    page.frame.set_u16(PAGE_LAST_INSERT, 0)?;
    page.set_next(previous, next)?;
    if owner == record {
        page.frame.set_field(slot, previous)?;
        page.set_n_owned(previous, n_owned - 1)?;
    } else {
        page.set_n_owned(owner, n_owned - 1)?;
    }
    free_list(page, record, record, size.total_bytes())?;
    page.frame.set_field(PAGE_N_RECS, n_recs - 1)?;
    let is_balanced = n_owned > SLOT_MIN_OWNED || slot == page.last_slot()?;
    if is_balanced {
        return Ok(());
    }
    ensure(n_owned == SLOT_MIN_OWNED, slot, "a directory slot owns fewer than 4 records")?;
    page.balance_slot(slot)
}

/// Check that `record` can be the origin of a user record.
pub(super) fn check_user_record(page: &IndexPage<'_>, record: usize, heap_top: usize) -> Result<(), Fault> {
    let lowest = page.heap_bottom() + page.fixed_header_bytes();
    ensure(lowest <= record && record <= heap_top, record, "the record lies outside the record heap")
}

/// The predecessor of `record`, whose group the directory slot at offset `slot` holds.
fn predecessor(page: &IndexPage<'_>, slot: usize, record: usize) -> Result<usize, Fault> {
    let mut at = page.frame.field(slot + PAGE_DIR_SLOT_BYTES)?;
    for _ in 0..=SLOT_MAX_OWNED {
        let next = page.next(at)?;
        if next == record {
            return Ok(at);
        }
        at = next;
    }
    Err(Fault::new(record, PAST_DIRECTORY))
}

/// The last user record, or the infimum.
pub(super) fn last_record(page: &IndexPage<'_>) -> Result<usize, Fault> {
    predecessor(page, page.last_slot()?, page.supremum())
}

/// Put the records from `first` to `last`, which are linked, at the head of the free list.
fn free_list(page: &mut IndexPage<'_>, first: usize, last: usize, len_bytes: usize) -> Result<(), Fault> {
    match page.frame.field(PAGE_FREE)? {
        0 => page.frame.set_u16(last.wrapping_sub(2), 0)?,
        free => page.set_next(last, free)?,
    }
    page.frame.set_field(PAGE_FREE, first)?;
    let garbage = page.frame.field(PAGE_GARBAGE)? + len_bytes;
    ensure(garbage <= page.heap_top()?, PAGE_GARBAGE, "more space is free than the record heap has")?;
    page.frame.set_field(PAGE_GARBAGE, garbage)
}

/// Apply a LIST_END_DELETE record: delete `first` and all after it.
pub(super) fn delete_end(
    page: &mut IndexPage<'_>,
    layout: &RecordLayout<'_, '_>,
    first: usize,
) -> Result<(), Fault> {
    if first == page.supremum() {
        return Ok(());
    }
    let heap_top = page.heap_top()?;
    page.check_heap(heap_top, page.last_slot()?)?;
    check_user_record(page, first, heap_top)?;
    let (mut record, mut n_deleted, mut len_bytes) = (first, 0, 0);
    let n_recs = page.frame.field(PAGE_N_RECS)?;
    while record != page.supremum() {
        ensure(n_deleted < n_recs, record, "the list of records is longer than it says, or cyclic")?;
        check_user_record(page, record, heap_top)?;
        len_bytes += layout.size(page.frame.0, record)?.total_bytes();
        n_deleted += 1;
        record = page.next(record)?;
    }
    let last = last_record(page)?;

    let (mut owner, mut n_before) = (first, 0);
    while page.n_owned(owner)? == 0 {
        ensure(n_before < SLOT_MAX_OWNED, first, PAST_DIRECTORY)?;
        n_before += 1;
        owner = page.next(owner)?;
        page.check_link(owner, heap_top)?;
    }
    let n_owned = page
        .n_owned(owner)?
        .checked_sub(n_before)
        .filter(|n_owned| *n_owned > 0)
        .ok_or(Fault::new(owner, "a directory slot owns fewer records than it has"))?;
    let slot = page.find_slot(owner)?;
    let previous = predecessor(page, slot, first)?;

    page.frame.set_u16(PAGE_LAST_INSERT, 0)?;
    let supremum = page.supremum();
    page.frame.set_field(slot, supremum)?;
    page.set_n_owned(supremum, n_owned)?;
    let slots = (page.slot(0)? - slot) / PAGE_DIR_SLOT_BYTES + 1;
    page.frame.set_field(PAGE_N_DIR_SLOTS, slots)?;
    page.set_next(previous, supremum)?;
    free_list(page, first, last, len_bytes)?;
    page.frame.set_field(PAGE_N_RECS, n_recs - n_deleted)
}

/// Apply a LIST_START_DELETE record: delete all before `first_left`.
pub(super) fn delete_start(
    page: &mut IndexPage<'_>,
    layout: &RecordLayout<'_, '_>,
    first_left: usize,
) -> Result<(), Fault> {
    if first_left == page.infimum() {
        return Ok(());
    }
    page.check_heap(page.heap_top()?, page.last_slot()?)?;
    for _ in 0..=page.frame.field(PAGE_N_RECS)? {
        let first = page.next(page.infimum())?;
        if first == first_left {
            return Ok(());
        }
        delete_record(page, layout, first)?;
    }
    Err(Fault::new(first_left, PAST_DIRECTORY))
}
