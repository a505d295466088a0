//! Indexes that the redo has created and left empty: MySQL may be filling them without redo.
//!
//! An index that is built by sorting is filled after its root was created, and before anything of it is logged. Its
//! pages need not start again in the redo: a page that another index had before, and that was freed while it was
//! dirty, keeps its LSN, so its last redo seems to explain it. After all pages were written, INDEX_LOAD is logged,
//! and from then on every change is logged (`btr/btr0load.cc`, `ddl/ddl0builder.cc`). An index that is created for a
//! new table is empty until redo puts the first record on its root.
//!
//! So between those two points no image of a page of the index is explained, except that of the empty root. After
//! INDEX_LOAD it is, if redo of the page has come since. A page that the build has freed again (the last one of a
//! level, copied to the root) may then be written with its content at that time. And a page may be written before the
//! redo that created its index, for which it need not have waited. Ids of indexes only grow, so an id above the
//! highest known one is of an index whose redo is still to come.
//!
//! Parts of large values do not name the index they belong to. None is explained unless the page started again in the
//! redo: it may be part of a table that is rebuilt in a shared tablespace.
//!
//! A checkpoint after INDEX_LOAD shows that all pages that were changed before it are written: the index is then
//! treated like any other.
//!
//! Invariant: an index is here from the mini-transaction that creates its root to the first record that redo puts
//! there. If INDEX_LOAD comes first, it is here until a checkpoint after that. It is removed at the latest with
//! another index with that root, or at the end of its tablespace.

use super::new_page::is_index_page;
use redoubt_locks::IgnorePoison;
use redoubt_page::layout::{PAGE_N_RECS, get_u16, get_u64, page_type};
use redoubt_redo::{Lsn, PageId, PageNo, SpaceId};
use rustc_hash::FxHashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Index page header: id of the index.
const PAGE_INDEX_ID: usize = 66;
/// Ids from here on are of the change buffer and of the dictionary's own descriptions of tablespaces, of which there
/// are always the same (`DICT_IBUF_ID_MIN`, `dict_sdi_get_index_id`). Neither is built by sorting.
const FIRST_SPECIAL_ID: u64 = 0xffff_ffff_0000_0000;
/// Page types of parts of large values: of older formats, and from LOB_INDEX to ZLOB_FRAG_ENTRY.
const LARGE_VALUE_TYPES: [std::ops::RangeInclusive<u16>; 2] = [10..=12, 22..=29];

#[derive(Clone, Copy, Debug)]
struct FreshIndex {
    id: u64,
    root: PageNo,
    /// End of the mini-transaction with its INDEX_LOAD.
    loaded: Option<Lsn>,
}

/// Indexes that the redo has created and left empty: MySQL may be filling them without redo.
#[derive(Debug, Default)]
pub struct FreshIndexes {
    by_space: Mutex<FxHashMap<SpaceId, Vec<FreshIndex>>>,
    /// Number of indexes; while it is 0, no caller takes the lock.
    count: AtomicUsize,
    /// Highest id of an index that was created up to where the redo was seen; 0: not known.
    known_to: AtomicU64,
}

impl FreshIndexes {
    /// Changes the indexes of a tablespace. The cost does not grow with the number of the others.
    fn change(&self, space: SpaceId, change: impl FnOnce(&mut Vec<FreshIndex>)) {
        let mut by_space = self.by_space.lock().ignore_poison();
        let indexes = by_space.entry(space).or_default();
        let before = indexes.len();
        change(indexes);
        let after = indexes.len();
        if after == 0 {
            by_space.remove(&space);
        }
        self.count.fetch_add(after, Ordering::AcqRel);
        self.count.fetch_sub(before, Ordering::AcqRel);
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
        self.change(root.space, |indexes| {
            indexes.retain(|index| index.root != root.page_no);
            indexes.push(FreshIndex { id, root: root.page_no, loaded: None });
        });
    }

    /// Redo has put a record on this root.
    pub fn used(&self, root: PageId) {
        self.change(root.space, |indexes| {
            indexes.retain(|index| index.root != root.page_no || index.loaded.is_some());
        });
    }

    /// INDEX_LOAD, in the mini-transaction that ends at `lsn`.
    pub fn loaded(&self, space: SpaceId, id: u64, lsn: Lsn) {
        self.change(space, |indexes| {
            indexes.iter_mut().filter(|index| index.id == id).for_each(|index| index.loaded = Some(lsn));
        });
    }

    /// The server has written all pages that were changed before `lsn`.
    pub fn checkpointed(&self, lsn: Lsn) {
        if self.is_empty() {
            return;
        }
        let mut by_space = self.by_space.lock().ignore_poison();
        let mut gone = 0;
        by_space.retain(|_, indexes| {
            let before = indexes.len();
            indexes.retain(|index| index.loaded.is_none_or(|loaded| loaded > lsn));
            gone += before - indexes.len();
            !indexes.is_empty()
        });
        self.count.fetch_sub(gone, Ordering::AcqRel);
    }

    /// The tablespace is gone.
    pub fn forget(&self, space: SpaceId) {
        if !self.is_empty() {
            self.change(space, Vec::clear);
        }
    }

    /// Redo may explain this image. `is_new`: the page started again in the redo, and was changed since. `changed`:
    /// end of the last mini-transaction that changed it.
    pub fn allow(&self, page: PageId, image: &[u8], is_new: bool, changed: Lsn) -> bool {
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
        let by_space = self.by_space.lock().ignore_poison();
        let fresh = by_space.get(&page.space).into_iter().flatten().find(|index| index.id == id);
        fresh.is_none_or(|index| match index.loaded {
            Some(loaded) => changed > loaded,
            None => index.root == page.page_no && get_u16(image, PAGE_N_RECS) == Some(0),
        })
    }
}

#[cfg(test)]
#[path = "fresh_indexes_tests.rs"]
mod tests;
