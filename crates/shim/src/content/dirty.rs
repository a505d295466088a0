//! Which page version the last mini-transaction left behind: the map behind "redo explains this page write".
//!
//! Fed only with mini-transactions whose checksum was found right and whose bytes went into the stream.
//! Invariant: an entry holds the end LSN of the last mini-transaction in the stream that changed the page, so
//! a page write with exactly this LSN contains nothing the node does not have. An entry is removed when that
//! version is written and when its tablespace goes away; a missing entry means "not explained". A freed page has an
//! entry that no page has the LSN of, until it is used again: nothing explains it, and a cached version of it is too
//! old.

use redoubt_redo::mariadb::Mtr;
use redoubt_redo::mariadb::record::FileRecord;
use redoubt_redo::{Lsn, PageId, SpaceId};
use rustc_hash::FxHashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 64;
/// No page has this LSN.
const FREED: Lsn = Lsn(u64::MAX);

/// Page to LSN, in shards.
pub struct DirtyPages {
    shards: [Mutex<FxHashMap<PageId, Lsn>>; SHARDS],
}

impl Default for DirtyPages {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl DirtyPages {
    fn shard(&self, page: PageId) -> MutexGuard<'_, FxHashMap<PageId, Lsn>> {
        let mixed = page.page_no.0.wrapping_mul(0x9e37_79b9) ^ page.space.0.wrapping_mul(0x85eb_ca6b);
        // The upper six bits.
        self.shards[(mixed >> 26) as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a mini-transaction.
    pub fn observe(&self, mtr: &Mtr<'_, '_>) {
        for note in mtr.files {
            if matches!(note.record, FileRecord::Delete { .. }) {
                self.forget(note.space, 0);
            }
        }
        for run in mtr.runs {
            if run.trim_pages.is_some() {
                self.forget(run.page.space, 0);
                continue;
            }
            self.shard(run.page).insert(run.page, if run.ends_with_free { FREED } else { mtr.end_lsn });
        }
    }

    /// Whether this version of the page is the newest in the stream. If so, the entry is removed.
    pub fn take_if_explained(&self, page: PageId, lsn: Lsn) -> bool {
        let mut shard = self.shard(page);
        if lsn != FREED && shard.get(&page) == Some(&lsn) {
            shard.remove(&page);
            return true;
        }
        false
    }

    /// Whether there is redo of the page that is newer than its last write, or the page is free.
    pub fn contains(&self, page: PageId) -> bool {
        self.shard(page).contains_key(&page)
    }

    /// Forgets the pages of a tablespace from `first_page_no` on.
    pub fn forget(&self, space: SpaceId, first_page_no: u32) {
        for shard in &self.shards {
            shard
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .retain(|page, _| page.space != space || page.page_no.0 < first_page_no);
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    /// There is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
