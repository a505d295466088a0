//! Indexes that the redo has created and left empty: MySQL may be filling them without redo.
//!
//! An index that is built by sorting is filled after its root was created, and before anything of it is logged. Its pages
//! need not begin anew in the redo: one that another index had before, and that was freed while it was dirty, keeps its
//! LSN, so its last redo seems to explain it. When all pages were written, INDEX_LOAD says so, and from then on every
//! change is logged (`btr/btr0load.cc`, `ddl/ddl0builder.cc`). An index that is created for a new table is empty until
//! redo puts the first record on its root.
//!
//! So between those two points no image of a page of the index is explained, except that of the empty root. A page may be
//! written before the redo that created its index is: it need not have waited for that. Ids of indexes only grow, so one
//! above the highest that is known is of an index that is still to be heard of.
//!
//! Parts of large values do not say which index they belong to. None is explained unless the page began anew in the redo:
//! it may be one of a table that is rebuilt in a shared tablespace.
//!
//! Invariant: an index is here from the mini-transaction that creates its root to INDEX_LOAD, to the first record on its
//! root, or to the end of its tablespace.

use super::new_page::is_index_page;
use redoubt_page::layout::{PAGE_N_RECS, get_u16, get_u64, page_type};
use redoubt_redo::{PageId, PageNo, SpaceId};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Index page header: id of the index.
const PAGE_INDEX_ID: usize = 66;
/// Ids from here on are of the change buffer and of the dictionary's own descriptions of tablespaces, of which there are
/// always the same (`DICT_IBUF_ID_MIN`, `dict_sdi_get_index_id`). Neither is built by sorting.
const FIRST_SPECIAL_ID: u64 = 0xffff_ffff_0000_0000;
/// Page types of parts of large values: of older formats, and from LOB_INDEX to ZLOB_FRAG_ENTRY.
const LARGE_VALUE_TYPES: [std::ops::RangeInclusive<u16>; 2] = [10..=12, 22..=29];

#[derive(Clone, Copy, Debug)]
struct FreshIndex {
    id: u64,
    root: PageNo,
}

type BySpace = FxHashMap<SpaceId, Vec<FreshIndex>>;

/// See the module.
#[derive(Debug, Default)]
pub struct FreshIndexes {
    by_space: Mutex<BySpace>,
    /// How many there are: nearly always none, and then nobody takes the lock.
    count: AtomicUsize,
    /// Highest id of an index that was created up to where the redo was seen; 0: not known.
    known_to: AtomicU64,
}

impl FreshIndexes {
    fn change(&self, change: impl FnOnce(&mut BySpace)) {
        let mut by_space: MutexGuard<'_, _> = self.by_space.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut by_space);
        by_space.retain(|_, indexes| !indexes.is_empty());
        self.count.store(by_space.values().map(Vec::len).sum(), Ordering::Release);
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The server has read the dictionary header at its start: this is the highest id of an index up to then.
    pub fn start_from(&self, id: u64) {
        self.known_to.fetch_max(id, Ordering::AcqRel);
    }

    /// The root of an index was created.
    pub fn created(&self, root: PageId, id: u64) {
        if id < FIRST_SPECIAL_ID && self.known_to.load(Ordering::Acquire) != 0 {
            self.known_to.fetch_max(id, Ordering::AcqRel);
        }
        self.change(|by_space| {
            let indexes = by_space.entry(root.space).or_default();
            indexes.retain(|index| index.root != root.page_no);
            indexes.push(FreshIndex { id, root: root.page_no });
        });
    }

    /// Redo has put a record on this root.
    pub fn used(&self, root: PageId) {
        self.remove(root.space, |index| index.root == root.page_no);
    }

    /// INDEX_LOAD.
    pub fn loaded(&self, space: SpaceId, id: u64) {
        self.remove(space, |index| index.id == id);
    }

    fn remove(&self, space: SpaceId, is_it: impl Fn(&FreshIndex) -> bool) {
        if !self.is_empty() {
            self.change(|by_space| {
                if let Some(indexes) = by_space.get_mut(&space) {
                    indexes.retain(|index| !is_it(index));
                }
            });
        }
    }

    /// The tablespace is gone.
    pub fn forget(&self, space: SpaceId) {
        self.remove(space, |_| true);
    }

    /// Redo may explain this image. `is_new`: the page began anew in the redo, and was changed since.
    pub fn allow(&self, page: PageId, image: &[u8], is_new: bool) -> bool {
        if !is_index_page(image) {
            let is_of = |kind: u16| LARGE_VALUE_TYPES.iter().any(|types| types.contains(&kind));
            return is_new || !page_type(image).is_some_and(is_of);
        }
        let Some(id) = get_u64(image, PAGE_INDEX_ID) else { return false };
        if id < FIRST_SPECIAL_ID && id > self.known_to.load(Ordering::Acquire) {
            return false;
        }
        if self.is_empty() {
            return true;
        }
        let by_space = self.by_space.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = by_space.get(&page.space).into_iter().flatten().find(|index| index.id == id);
        fresh.is_none_or(|index| index.root == page.page_no && get_u16(image, PAGE_N_RECS) == Some(0))
    }
}

#[cfg(test)]
#[path = "fresh_indexes_tests.rs"]
mod tests;
