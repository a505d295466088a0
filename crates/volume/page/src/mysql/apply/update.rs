//! Changes of a record that keep its length: fields, system columns, delete mark, smallest-record mark.
//!
//! Sources: `btr_cur_parse_update_in_place` and `btr_cur_parse_del_mark_set_*` in `btr/btr0cur.cc`,
//! `row_upd_rec_in_place` in `row/row0upd.cc`, `rec_set_nth_field_low` in `include/rem0lrec.h`.

use redoubt_redo::mysql::record::{FieldUpdate, FieldUpdates, SystemColumns};

use super::delete::check_user_record;
use super::fields::{FieldPlace, INFO_OLD_INSTANT, INFO_VERSION, RecordLayout, set_null};
use crate::apply::frame::{Fault, ensure};
use crate::apply::index_page::IndexPage;

const INFO_MIN_RECORD: u8 = 0x10;
const INFO_DELETED: u8 = 0x20;
const INFO_BITS: u8 = 0xf0;
const TRX_ID_BYTES: usize = 6;
const ROLL_POINTER_BYTES: usize = 7;

fn info_offset(page: &IndexPage<'_>, record: usize) -> usize {
    record.wrapping_sub(page.fixed_header_bytes())
}

fn check(page: &IndexPage<'_>, record: usize) -> Result<(), Fault> {
    check_user_record(page, record, page.heap_top()?)
}

/// Apply a REC_UPDATE_IN_PLACE record.
pub(super) fn update_in_place(
    page: &mut IndexPage<'_>,
    layout: &RecordLayout<'_, '_>,
    record: usize,
    system: Option<&SystemColumns>,
    info_bits: u8,
    fields: FieldUpdates<'_>,
) -> Result<(), Fault> {
    check(page, record)?;
    layout.size(page.frame.0, record)?;
    if let Some(system) = system {
        write_system_columns(page, layout, record, system)?;
    }
    let at = info_offset(page, record);
    let old = page.frame.u8(at)?;
    // That a row version or a number of fields is there stays. REDUNDANT records have the former only.
    let kept = if page.comp { INFO_VERSION | INFO_OLD_INSTANT } else { INFO_VERSION };
    page.frame.set_u8(at, old & !INFO_BITS | old & kept | info_bits & INFO_BITS & !kept)?;
    for FieldUpdate { field, data } in fields {
        let place = layout.field(page.frame.0, record, field)?;
        match data {
            Some(data) => write_field(page, record, place, data)?,
            None => write_null(page, record, place)?,
        }
    }
    Ok(())
}

fn write_field(page: &mut IndexPage<'_>, record: usize, place: FieldPlace, data: &[u8]) -> Result<(), Fault> {
    ensure(place.len_bytes == data.len(), record, "the field is not as long as its new value")?;
    if place.is_null {
        let info = place
            .end_info
            .ok_or(Fault::new(record, "a NULL of a compact record cannot get a value in place"))?;
        set_null(&mut page.frame, info, false)?;
    }
    page.frame.write(place.offset, data)
}

fn write_null(page: &mut IndexPage<'_>, record: usize, place: FieldPlace) -> Result<(), Fault> {
    if place.is_null {
        return Ok(());
    }
    let info = place
        .end_info
        .ok_or(Fault::new(record, "a field of a compact record cannot become NULL in place"))?;
    page.frame.fill(place.offset, place.offset + place.len_bytes, 0)?;
    set_null(&mut page.frame, info, true)
}

fn write_system_columns(
    page: &mut IndexPage<'_>,
    layout: &RecordLayout<'_, '_>,
    record: usize,
    system: &SystemColumns,
) -> Result<(), Fault> {
    // The server takes the position for one in the record; instant changes never move these two columns.
    let place = layout.field_at(page.frame.0, record, usize::from(system.trx_id_position))?;
    ensure(place.len_bytes == TRX_ID_BYTES && !place.is_null, record, "the field is no DB_TRX_ID")?;
    let [_, _, trx_id @ ..] = system.trx_id.to_be_bytes();
    let [_, roll_pointer @ ..] = system.roll_pointer.to_be_bytes();
    page.frame.bytes(place.offset, TRX_ID_BYTES + ROLL_POINTER_BYTES)?;
    page.frame.write(place.offset, &trx_id)?;
    page.frame.write(place.offset + TRX_ID_BYTES, &roll_pointer)
}

/// Apply a REC_SEC_DELETE_MARK record.
pub(super) fn mark_deleted(page: &mut IndexPage<'_>, record: usize, is_deleted: bool) -> Result<(), Fault> {
    check(page, record)?;
    let at = info_offset(page, record);
    let info = page.frame.u8(at)? & !INFO_DELETED;
    page.frame.set_u8(at, if is_deleted { info | INFO_DELETED } else { info })
}

/// Apply a REC_CLUST_DELETE_MARK record.
pub(super) fn mark_clustered_deleted(
    page: &mut IndexPage<'_>,
    layout: &RecordLayout<'_, '_>,
    record: usize,
    is_deleted: bool,
    system: Option<&SystemColumns>,
) -> Result<(), Fault> {
    mark_deleted(page, record, is_deleted)?;
    match system {
        Some(system) => write_system_columns(page, layout, record, system),
        None => Ok(()),
    }
}

/// Apply a REC_MIN_MARK or COMP_REC_MIN_MARK record.
pub(super) fn mark_smallest(page: &mut IndexPage<'_>, record: usize) -> Result<(), Fault> {
    check(page, record)?;
    let at = info_offset(page, record);
    let info = page.frame.u8(at)?;
    page.frame.set_u8(at, info | INFO_MIN_RECORD)
}
