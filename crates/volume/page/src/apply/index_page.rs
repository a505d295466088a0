//! The parts of an index page that inserting and deleting a record share: record links, the page directory
//! and the free list.
//!
//! A record is named by the offset of its origin: header bytes lie below it, data from it on. Records form a
//! list from infimum to supremum by next links (relative modulo 2^16 in COMPACT and DYNAMIC, absolute in
//! REDUNDANT). Slot `k` of the directory is the two bytes at `page_size - 10 - 2k` and holds the last record
//! of its group; that record's `n_owned` counts the group.
//!
//! Invariant: no walk over links takes more steps than the caller's limit, so cyclic links end in a fault.

use super::frame::{Fault, Frame, ensure};
use crate::layout::{
    FIL_PAGE_OFFSET, FIL_PAGE_TYPE, PAGE_DIR, PAGE_DIR_SLOT_BYTES, PAGE_DIRECTION_B, PAGE_FREE, PAGE_GARBAGE,
    PAGE_HEAP_TOP, PAGE_LAST_INSERT, PAGE_N_DIR_SLOTS, PAGE_N_DIRECTION, PAGE_N_HEAP, PAGE_N_RECS,
    TYPE_INDEX, TYPE_INSTANT, TYPE_RTREE, get_u32,
};

/// Most records a directory slot may own; one more and the slot is split.
pub(crate) const SLOT_MAX_OWNED: usize = 8;
/// Fewest records a directory slot (but the first and last) may own.
pub(crate) const SLOT_MIN_OWNED: usize = 4;
const DIRECTION_LEFT: u8 = 1;
const DIRECTION_RIGHT: u8 = 2;
const DIRECTION_NONE: u8 = 5;
const DIRECTION_MASK: u8 = 7;
/// Flag in the heap count of COMPACT and DYNAMIC pages.
const COMP_FLAG: usize = 0x8000;

/// An index page of either record format.
pub(crate) struct IndexPage<'a> {
    pub frame: Frame<'a>,
    /// COMPACT or DYNAMIC, else REDUNDANT.
    pub comp: bool,
}

impl<'a> IndexPage<'a> {
    /// Wrap a page after checking what every insert and delete relies on.
    #[inline]
    pub(crate) fn open(page: &'a mut [u8], page_no: u32, comp: bool) -> Result<Self, Fault> {
        Self::open_of(page, page_no, comp, [TYPE_INDEX, TYPE_RTREE, TYPE_INSTANT])
    }

    /// [`IndexPage::open`] where index pages have these page types.
    #[inline]
    pub(crate) fn open_of(
        page: &'a mut [u8],
        page_no: u32,
        comp: bool,
        page_types: [u16; 3],
    ) -> Result<Self, Fault> {
        let this = Self { frame: Frame(page), comp };
        let kind = this.frame.u16(FIL_PAGE_TYPE)?;
        ensure(page_types.contains(&kind), FIL_PAGE_TYPE, "not an index page")?;
        ensure(
            get_u32(this.frame.0, FIL_PAGE_OFFSET) == Some(page_no),
            FIL_PAGE_OFFSET,
            "the page carries another page number",
        )?;
        ensure(
            (this.frame.field(PAGE_N_HEAP)? & COMP_FLAG != 0) == comp,
            PAGE_N_HEAP,
            "the page is of the other record format",
        )?;
        ensure(
            this.frame.u16(this.supremum() - 2)? == 0,
            this.supremum() - 2,
            "the supremum has a successor",
        )?;
        ensure(this.n_slots()? >= 2, PAGE_N_DIR_SLOTS, "the page directory has fewer than 2 slots")?;
        this.last_slot()?;
        Ok(this)
    }

    pub(crate) const fn infimum(&self) -> usize {
        if self.comp { 99 } else { 101 }
    }

    pub(crate) const fn supremum(&self) -> usize {
        if self.comp { 112 } else { 116 }
    }

    /// First byte of the user records.
    pub(crate) const fn heap_bottom(&self) -> usize {
        if self.comp { 120 } else { 125 }
    }

    /// Fixed header bytes of a record.
    pub(crate) const fn fixed_header_bytes(&self) -> usize {
        if self.comp { 5 } else { 6 }
    }

    pub(crate) fn n_slots(&self) -> Result<usize, Fault> {
        self.frame.field(PAGE_N_DIR_SLOTS)
    }

    /// Offset of directory slot `index`.
    pub(crate) fn slot(&self, index: usize) -> Result<usize, Fault> {
        self.frame
            .len()
            .checked_sub(PAGE_DIR + PAGE_DIR_SLOT_BYTES * (index + 1))
            .filter(|slot| *slot >= self.heap_bottom())
            .ok_or(Fault::new(PAGE_N_DIR_SLOTS, "the page directory is larger than the page"))
    }

    pub(crate) fn last_slot(&self) -> Result<usize, Fault> {
        self.slot(self.n_slots()?.saturating_sub(1))
    }

    pub(crate) fn heap_top(&self) -> Result<usize, Fault> {
        self.frame.field(PAGE_HEAP_TOP)
    }

    pub(crate) fn n_heap(&self) -> Result<usize, Fault> {
        Ok(self.frame.field(PAGE_N_HEAP)? & !COMP_FLAG)
    }

    /// Check what inserts rely on: heap and directory do not overlap, and the directory has both ends.
    pub(crate) fn check_heap(&self, heap_top: usize, last_slot: usize) -> Result<(), Fault> {
        ensure(
            self.heap_bottom() <= heap_top && heap_top <= last_slot,
            PAGE_HEAP_TOP,
            "the record heap runs into the page directory",
        )?;
        let n_heap = self.n_heap()?;
        ensure(
            n_heap >= self.n_slots()? && n_heap < self.frame.len() / self.fixed_header_bytes(),
            PAGE_N_HEAP,
            "the number of records in the heap is impossible",
        )?;
        ensure(
            self.frame.field(last_slot)? == self.supremum(),
            last_slot,
            "the last directory slot is not the supremum",
        )?;
        let first_slot = self.slot(0)?;
        ensure(
            self.frame.field(first_slot)? == self.infimum(),
            first_slot,
            "the first directory slot is not the infimum",
        )
    }

    /// Successor of `record`, unchecked.
    pub(crate) fn next(&self, record: usize) -> Result<usize, Fault> {
        let link = self.frame.field(record.wrapping_sub(2))?;
        Ok(if self.comp { (record + link) & 0xffff } else { link })
    }

    pub(crate) fn set_next(&mut self, record: usize, next: usize) -> Result<(), Fault> {
        let link = if self.comp { next.wrapping_sub(record) } else { next };
        self.frame.set_field(record.wrapping_sub(2), link)
    }

    const fn owned_offset(&self, record: usize) -> usize {
        record.wrapping_sub(self.fixed_header_bytes())
    }

    pub(crate) fn n_owned(&self, record: usize) -> Result<usize, Fault> {
        Ok(usize::from(self.frame.u8(self.owned_offset(record))? & 15))
    }

    pub(crate) fn set_n_owned(&mut self, record: usize, n_owned: usize) -> Result<(), Fault> {
        let offset = self.owned_offset(record);
        let bits = self.frame.u8(offset)? & 0xf0;
        self.frame.set_u8(offset, bits | (n_owned & 15) as u8)
    }

    pub(crate) fn heap_no(&self, record: usize) -> Result<usize, Fault> {
        let offset = record.wrapping_sub(if self.comp { 4 } else { 5 });
        Ok(self.frame.field(offset)? >> 3)
    }

    /// Check that `record` may be the origin of a user record that ends by `end`, or the supremum.
    pub(crate) fn check_link(&self, record: usize, end: usize) -> Result<(), Fault> {
        let lowest = self.heap_bottom() + self.fixed_header_bytes();
        ensure(
            record == self.supremum() || (lowest <= record && record <= end),
            record,
            "a record link leads outside the record heap",
        )
    }

    /// First record from `start` on that owns a slot, and its count. At most `limit` steps.
    pub(crate) fn find_owner(&self, start: usize, limit: usize, end: usize) -> Result<(usize, usize), Fault> {
        let mut record = start;
        for _ in 0..=limit {
            match self.n_owned(record)? {
                0 => {
                    record = self.next(record)?;
                    self.check_link(record, end)?;
                }
                n_owned => return Ok((record, n_owned)),
            }
        }
        Err(Fault::new(start, "no record owns a directory slot; the record list is cyclic or damaged"))
    }

    /// Offset of the directory slot that holds `owner`; never the first slot.
    pub(crate) fn find_slot(&self, owner: usize) -> Result<usize, Fault> {
        let (last, first) = (self.last_slot()?, self.slot(0)?);
        let directory = self.frame.bytes(last, first.saturating_sub(last))?;
        #[allow(clippy::cast_possible_truncation)]
        let wanted = (owner as u16).to_be_bytes();
        position_of(directory.as_chunks().0, wanted)
            .map(|index| last + index * PAGE_DIR_SLOT_BYTES)
            .ok_or(Fault::new(owner, "no directory slot holds the owner record"))
    }

    /// Update direction, insert count and record count after `record` was inserted between `prev` and `next`.
    pub(crate) fn note_insert(&mut self, last_insert: usize, prev: usize, next: usize) -> Result<(), Fault> {
        if self.frame.u8(FIL_PAGE_TYPE + 1)? != (TYPE_RTREE & 0xff) as u8 {
            let byte = self.frame.u8(PAGE_DIRECTION_B)?;
            let old = byte & DIRECTION_MASK;
            let run = self.frame.field(PAGE_N_DIRECTION)?;
            let (direction, run) = if last_insert != 0 && last_insert == prev && old != DIRECTION_LEFT {
                (DIRECTION_RIGHT, run + 1)
            } else if last_insert != 0 && last_insert == next && old != DIRECTION_RIGHT {
                (DIRECTION_LEFT, run + 1)
            } else {
                (DIRECTION_NONE, 0)
            };
            self.frame.set_u8(PAGE_DIRECTION_B, byte & !DIRECTION_MASK | direction)?;
            self.frame.set_field(PAGE_N_DIRECTION, run)?;
        }
        let n_recs = self.frame.field(PAGE_N_RECS)?;
        self.frame.set_field(PAGE_N_RECS, n_recs + 1)
    }

    fn link_in_group(&self, record: usize) -> Result<usize, Fault> {
        let next = self.next(record)?;
        ensure(
            self.supremum() <= next && next <= self.last_slot()?,
            record,
            "a record link leads outside the record heap",
        )?;
        Ok(next)
    }

    /// Split the slot at offset `slot`, whose owner just got its 9th record.
    pub(crate) fn split_slot(&mut self, slot: usize) -> Result<(), Fault> {
        let owned = SLOT_MAX_OWNED + 1;
        let mut middle = self.frame.field(slot + PAGE_DIR_SLOT_BYTES)?;
        for _ in 0..owned / 2 {
            middle = self.link_in_group(middle)?;
        }
        let n_slots = self.n_slots()?;
        let new_last = self.slot(n_slots)?;
        ensure(new_last < slot, slot, "the page directory is damaged")?;
        self.frame.move_within(new_last + PAGE_DIR_SLOT_BYTES, new_last, slot - new_last)?;
        self.frame.set_field(PAGE_N_DIR_SLOTS, n_slots + 1)?;
        self.frame.set_field(slot, middle)?;
        self.set_n_owned(middle, owned / 2)?;
        let upper = self.frame.field(slot - PAGE_DIR_SLOT_BYTES)?;
        self.set_n_owned(upper, owned - owned / 2)
    }

    /// Balance the slot at offset `slot`, whose owner fell below the minimum, with the next one.
    pub(crate) fn balance_slot(&mut self, slot: usize) -> Result<(), Fault> {
        let last = self.last_slot()?;
        if slot <= last {
            return Ok(());
        }
        let upper = self.frame.field(slot - PAGE_DIR_SLOT_BYTES)?;
        let owner = self.frame.field(slot)?;
        let upper_owned = self.n_owned(upper)?;
        if upper_owned <= SLOT_MIN_OWNED {
            self.set_n_owned(owner, 0)?;
            self.set_n_owned(upper, upper_owned + SLOT_MIN_OWNED - 1)?;
            self.frame.move_within(last, last + PAGE_DIR_SLOT_BYTES, slot - last)?;
            self.frame.set_u16(last, 0)?;
            let n_slots = self.n_slots()?;
            return self.frame.set_field(PAGE_N_DIR_SLOTS, n_slots - 1);
        }
        let new_owner = self.link_in_group(owner)?;
        self.set_n_owned(owner, 0)?;
        self.set_n_owned(new_owner, SLOT_MIN_OWNED)?;
        self.set_n_owned(upper, upper_owned - 1)?;
        self.frame.set_field(slot, new_owner)
    }

    /// Give back the space of `record`: shrink the heap if it is its last record, else put it on the free
    /// list; and zero it.
    pub(crate) fn free(&mut self, record: usize, extra_bytes: usize, data_bytes: usize) -> Result<(), Fault> {
        let n_heap = self.frame.u16(PAGE_N_HEAP)?.wrapping_sub(1);
        let garbage = self.frame.field(PAGE_GARBAGE)?;
        let end = record + data_bytes;
        let start;
        if self.heap_no(record)? == usize::from(n_heap) & !COMP_FLAG {
            let slack = self.heap_top()?.wrapping_sub(end);
            start = record.wrapping_sub(extra_bytes);
            self.frame.set_field(PAGE_HEAP_TOP, start)?;
            self.frame.set_u16(PAGE_N_HEAP, n_heap)?;
            self.frame.set_field(PAGE_GARBAGE, garbage.wrapping_sub(slack))?;
        } else {
            start = record;
            let free = self.frame.field(PAGE_FREE)?;
            self.frame.set_field(PAGE_FREE, record)?;
            self.frame.set_field(PAGE_GARBAGE, garbage + extra_bytes + data_bytes)?;
            if free == 0 {
                self.frame.set_u16(record - 2, 0)?;
            } else {
                self.set_next(record, free)?;
            }
        }
        self.frame.set_u16(PAGE_LAST_INSERT, 0)?;
        let n_recs = self.frame.field(PAGE_N_RECS)?;
        self.frame.set_field(PAGE_N_RECS, n_recs.wrapping_sub(1))?;
        self.frame.fill(start, end, 0)
    }

    /// Unlink and free `record`, the successor of `prev`.
    pub(crate) fn delete(
        &mut self,
        prev: usize,
        record: usize,
        extra_bytes: usize,
        data_bytes: usize,
    ) -> Result<(), Fault> {
        let last_slot = self.last_slot()?;
        let next = self.next(record)?;
        self.check_link(next, last_slot)?;
        let n_recs = self.frame.field(PAGE_N_RECS)?;
        ensure(n_recs > 0, PAGE_N_RECS, "the page has no record to delete")?;
        let (mut owner, n_owned) = self.find_owner(record, n_recs, last_slot)?;
        let slot = self.find_slot(owner)?;
        let n_owned = n_owned - 1;
        if owner == record {
            owner = prev;
            self.frame.set_field(slot, prev)?;
        }
        self.set_next(prev, next)?;
        self.set_n_owned(owner, n_owned)?;
        self.free(record, extra_bytes, data_bytes)?;
        if n_owned < SLOT_MIN_OWNED { self.balance_slot(slot) } else { Ok(()) }
    }
}

/// Slots that are compared without a branch for each, so that the compiler compares many at a time. Slots are in the
/// order of their keys, so the search covers all of them. There is one slot for every four to eight records.
const SLOTS_AT_ONCE: usize = 32;

fn position_of(slots: &[[u8; PAGE_DIR_SLOT_BYTES]], wanted: [u8; PAGE_DIR_SLOT_BYTES]) -> Option<usize> {
    let is_in = |block: &[[u8; PAGE_DIR_SLOT_BYTES]]| {
        block.iter().fold(false, |found, slot| found | (*slot == wanted))
    };
    let (number, block) = slots.chunks(SLOTS_AT_ONCE).enumerate().find(|(_, block)| is_in(block))?;
    Some(number * SLOTS_AT_ONCE + block.iter().position(|slot| *slot == wanted)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_found_wherever_it_is() {
        for len in [0, 1, 31, 32, 33, 64, 1000] {
            let slots: Vec<_> = (0..len).map(|slot: u16| (slot * 8 + 3).to_be_bytes()).collect();
            for at in 0..len {
                assert_eq!(position_of(&slots, slots[usize::from(at)]), Some(usize::from(at)));
            }
            // Bytes of two neighbours are no slot.
            assert_eq!(position_of(&slots, [3, 0]), None);
        }
        // The first of several: a damaged page has what it has.
        assert_eq!(position_of(&[[1, 2], [3, 4], [3, 4]], [3, 4]), Some(1));
    }
}
