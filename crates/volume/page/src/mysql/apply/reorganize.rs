//! Applying PAGE_REORGANIZE: the page is rebuilt, with its records in key order and nothing between them.
//!
//! Source: `btr_page_reorganize_low` in `btr/btr0btr.cc`. The server copies the page aside, creates it, and inserts the
//! records one after the other at the end; so the page directory becomes what inserts in ascending order make of it.

use super::INDEX_TYPES;
use super::fields::RecordLayout;
use super::insert::append_copy;
use crate::apply::frame::{Fault, ensure};
use crate::apply::index_page::IndexPage;
use crate::apply::init::init_index_page;
use crate::layout::{FIL_PAGE_TYPE, PAGE_LEVEL, PAGE_N_RECS};

/// Page header: the newest transaction that changed the page, in leaves of secondary indexes.
const PAGE_MAX_TRX_ID: usize = 56;

/// Reorganize `page`. `old` is where the page is kept meanwhile. `is_secondary`: the page has a PAGE_MAX_TRX_ID, if it
/// is a leaf.
pub(super) fn reorganize(
    page: &mut [u8],
    old: &mut Vec<u8>,
    page_no: u32,
    layout: &RecordLayout<'_, '_>,
    is_compact: bool,
    is_secondary: bool,
) -> Result<(), Fault> {
    old.clear();
    old.extend_from_slice(page);
    let source = IndexPage::open_of(old, page_no, is_compact, INDEX_TYPES)?;
    let heap_top = source.heap_top()?;
    source.check_heap(heap_top, source.last_slot()?)?;
    let page_type = source.frame.u16(FIL_PAGE_TYPE)?;
    let n_recs = source.frame.field(PAGE_N_RECS)?;
    init_index_page(page, is_compact, page_type)?;
    let mut target = IndexPage::open_of(page, page_no, is_compact, INDEX_TYPES)?;
    let mut last = target.infimum();
    let mut record = source.next(source.infimum())?;
    let mut n_copied = 0;
    while record != source.supremum() {
        ensure(n_copied < n_recs, record, "the list of records is longer than it says, or cyclic")?;
        super::delete::check_user_record(&source, record, heap_top)?;
        let size = layout.size(source.frame.0, record)?;
        let bytes = source.frame.bytes(record - size.extra_bytes, size.total_bytes())?;
        last = append_copy(&mut target, last, bytes, size.extra_bytes)?;
        n_copied += 1;
        record = source.next(record)?;
    }
    ensure(n_copied == n_recs, PAGE_N_RECS, "the list of records is shorter than it says")?;
    if is_secondary && target.frame.u16(PAGE_LEVEL)? == 0 {
        let max_trx_id = source.frame.bytes(PAGE_MAX_TRX_ID, 8)?;
        target.frame.write(PAGE_MAX_TRX_ID, max_trx_id)?;
    }
    Ok(())
}
