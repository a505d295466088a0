//! Page versions after the last mini-transaction: the map behind "redo explains this page write".
//!
//! Fed only with mini-transactions with a valid checksum whose bytes went into the stream. Invariant: an entry holds
//! the end LSN of the last mini-transaction in the stream that changed the page, so a page write with exactly this
//! LSN contains nothing the node does not have. An entry is removed when that version is written and when its
//! tablespace goes away; a missing entry means "not explained". Of a freed page only the fact that it is free is
//! stored, until it is used again: nothing explains it, and a cached version of it is too old.
//!
//! MySQL differs in two things. A mini-transaction gives its end LSN to every page that it holds exclusively, also to
//! those that it does not change. So a page may have a later LSN than its last change in the redo, as long as the
//! redo has reached that LSN. A page without redo since its last write or read is explained if its content is the
//! same ([`super::unchanged`]). And MySQL fills pages without redo, which the content shows ([`super::new_page`]).
//!
//! A tablespace goes away under the redo log's lock, so its pages are stored together: the cost does not grow with
//! their number, nor with that of other tablespaces' pages. Free pages take one bit each, in words of 64 neighbours.
//! Each word has the newest LSN at which one of them was freed: all pages whose bit is set were free then.

use super::fresh_indexes::FreshIndexes;
use super::new_page::NewPage;
use super::unchanged::{ContentHash, Generations, Ticket, Unchanged};
use redoubt_locks::IgnorePoison;
use redoubt_page::layout::get_u64;
use redoubt_redo::{Family, FileRecord, Lsn, Mtr, PageId, PageNo, RunContent, RunRef, SpaceId};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

const SHARDS: usize = 64;
/// Neighbours whose free pages are in one word.
const WORD_PAGES: u32 = 64;

/// The page with MySQL's newest ids of tables and indexes.
const MYSQL_DICTIONARY_HEADER: PageId = PageId::new(0, 7);
/// Offset of the newest id of an index on it.
const NEWEST_INDEX_ID: usize = 54;

/// The pages of a tablespace that are in one shard.
#[derive(Debug, Default)]
struct SpacePages {
    changed: FxHashMap<u32, Lsn>,
    /// Pages that began again and were not written since (MySQL).
    new: FxHashMap<u32, NewPage>,
    /// Free pages by page number divided by [`WORD_PAGES`]. No word is empty.
    free: FxHashMap<u32, FreeWord>,
}

/// Neighbours that are free, a bit each.
#[derive(Clone, Copy, Debug, Default)]
struct FreeWord {
    bits: u64,
    /// End of the last mini-transaction that freed one of them.
    newest: Lsn,
}

/// State of a page that is overwritten with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// It is free, and was at this LSN.
    At(Lsn),
    /// It has redo that is newer than its last write.
    InUse,
    /// Its last write was explained, or the page was not seen in this process.
    Unknown,
}

impl SpacePages {
    const fn bit(page_no: u32) -> u64 {
        1 << (page_no % WORD_PAGES)
    }

    fn change(&mut self, page_no: u32, lsn: Lsn) {
        self.changed.insert(page_no, lsn);
        // Most tablespaces have no free pages.
        if let Some(word) = self.free.get_mut(&(page_no / WORD_PAGES)) {
            word.bits &= !Self::bit(page_no);
            if word.bits == 0 {
                self.free.remove(&(page_no / WORD_PAGES));
            }
        }
    }

    fn free(&mut self, page_no: u32, lsn: Lsn) {
        self.changed.remove(&page_no);
        let word = self.free.entry(page_no / WORD_PAGES).or_default();
        word.bits |= Self::bit(page_no);
        word.newest = word.newest.max(lsn);
    }

    fn freed(&self, page_no: u32) -> Freed {
        if self.changed.contains_key(&page_no) {
            return Freed::InUse;
        }
        let word = self.free.get(&(page_no / WORD_PAGES));
        word.filter(|word| word.bits & Self::bit(page_no) != 0)
            .map_or(Freed::Unknown, |word| Freed::At(word.newest))
    }

    /// Takes as long as there are pages of the tablespace: it is done to the system tablespace alone, when it shrinks.
    fn forget_from(&mut self, first: u32) {
        self.changed.retain(|page_no, _| *page_no < first);
        self.new.retain(|page_no, _| *page_no < first);
        self.free.retain(|word_no, word| {
            let start = word_no * WORD_PAGES;
            if start + (WORD_PAGES - 1) >= first {
                let kept = first.saturating_sub(start);
                word.bits &= (1_u64 << kept) - 1;
            }
            word.bits != 0
        });
    }

    fn note_content(&mut self, run: &RunRef, content: &RunContent, fresh: &FreshIndexes) {
        let page_no = run.page.page_no.0;
        let begins = run.last_init_offset.is_some();
        let before = self.new.get(&page_no).copied();
        let Some(page) = NewPage::after(before, content, begins) else { return };
        match content.index_id {
            Some(id) if page.is_empty_root() => fresh.created(run.page, id),
            _ if before.is_some_and(NewPage::is_empty_root) && !page.is_empty_root() => fresh.used(run.page),
            _ => {}
        }
        self.new.insert(page_no, page);
    }

    /// The newest version of the page was written, or sent as it is.
    fn written(&mut self, page_no: u32, is_sent: bool) {
        self.changed.remove(&page_no);
        if is_sent || !self.new.get(&page_no).is_some_and(|page| page.is_empty_index()) {
            self.new.remove(&page_no);
        }
    }

    fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.free.is_empty() && self.new.is_empty()
    }
}

#[derive(Default)]
struct Shard {
    spaces: FxHashMap<SpaceId, SpacePages>,
    unchanged: Unchanged,
}

/// Page to LSN, in shards.
pub struct DirtyPages {
    family: Family,
    shards: [Mutex<Shard>; SHARDS],
    /// End of the newest mini-transaction that was taken in.
    observed: AtomicU64,
    fresh: FreshIndexes,
    generations: Generations,
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().ignore_poison()
}

impl DirtyPages {
    /// An empty map for a server of this family.
    pub fn new(family: Family) -> Self {
        Self {
            family,
            shards: std::array::from_fn(|_| Mutex::default()),
            observed: AtomicU64::new(0),
            fresh: FreshIndexes::default(),
            generations: Generations::default(),
        }
    }

    /// Pages of one word are in one shard.
    fn shard(&self, page: PageId) -> MutexGuard<'_, Shard> {
        let word = page.page_no.0 / WORD_PAGES;
        let mixed = word.wrapping_mul(0x9e37_79b9) ^ page.space.0.wrapping_mul(0x85eb_ca6b);
        // The upper six bits.
        lock(&self.shards[(mixed >> 26) as usize])
    }

    /// Takes in a mini-transaction.
    pub fn observe(&self, mtr: &Mtr<'_, '_>) {
        for note in mtr.files {
            if matches!(note.record, FileRecord::Delete { .. }) {
                self.forget(note.space);
            }
        }
        for (at, run) in mtr.runs.iter().enumerate() {
            if let Some(first) = run.trims_from() {
                self.forget_from(run.page.space, first);
            } else if run.ends_with_free {
                self.free(run.page, mtr.end_lsn);
            } else {
                let mut shard = self.shard(run.page);
                shard.unchanged.remove(run.page);
                let pages = shard.spaces.entry(run.page.space).or_default();
                pages.change(run.page.page_no.0, mtr.end_lsn);
                if let Some(content) = mtr.contents.get(at) {
                    pages.note_content(run, content, &self.fresh);
                }
            }
        }
        for load in mtr.index_loads {
            self.fresh.loaded(load.root.space, load.index_id, mtr.end_lsn);
        }
        self.observed.fetch_max(mtr.end_lsn.0, Ordering::AcqRel);
    }

    /// A mini-transaction was taken in.
    pub fn has_observed(&self) -> bool {
        self.observed.load(Ordering::Acquire) != 0
    }

    /// An image of the page with other content is about to be sent: what was sent or dropped before is not the page any
    /// more.
    pub fn forget_hash(&self, page: PageId) {
        self.shard(page).unchanged.remove(page);
    }

    #[cfg(test)]
    fn change(&self, page: PageId, lsn: Lsn) {
        self.shard(page).spaces.entry(page.space).or_default().change(page.page_no.0, lsn);
    }

    fn free(&self, page: PageId, lsn: Lsn) {
        let mut shard = self.shard(page);
        shard.unchanged.remove(page);
        shard.spaces.entry(page.space).or_default().free(page.page_no.0, lsn);
    }

    /// Whether the page is free.
    pub fn freed(&self, page: PageId) -> Freed {
        self.shard(page).spaces.get(&page.space).map_or(Freed::Unknown, |pages| pages.freed(page.page_no.0))
    }

    /// Whether this version of the page, of which `image` is to be written, is the newest in the stream. If so, the
    /// entry is removed. `hash` is what counts of the image, if the page may be known by it (MySQL).
    pub fn take_if_explained(&self, page: PageId, lsn: Lsn, image: &[u8], hash: Option<ContentHash>) -> bool {
        let mut shard = self.shard(page);
        let Shard { spaces, unchanged } = &mut *shard;
        let pages = spaces.get_mut(&page.space);
        let Some((pages, changed)) = pages
            .and_then(|pages| pages.changed.get(&page.page_no.0).copied().map(|changed| (pages, changed)))
        else {
            // Pages that a recovery writes before any redo has come are identified on the node by their LSN.
            return self.has_observed()
                && hash.is_some_and(|hash| unchanged.is(page, hash, &self.generations));
        };
        let is_explained = match self.family {
            Family::MariaDb => changed == lsn,
            // Ids of temporary tables are taken from it without redo.
            Family::MySql if page == MYSQL_DICTIONARY_HEADER => false,
            Family::MySql => {
                let new = pages.new.get(&page.page_no.0).copied();
                (changed..=Lsn(self.observed.load(Ordering::Acquire))).contains(&lsn)
                    && new.is_none_or(|new| new.agrees(image))
                    && self.fresh.allow(page, image, new.is_some_and(NewPage::is_changed), changed)
            }
        };
        if is_explained {
            pages.written(page.page_no.0, false);
            if pages.is_empty() {
                spaces.remove(&page.space);
            }
            if let Some(hash) = hash {
                unchanged.note(page, hash, &self.generations);
            }
        }
        is_explained
    }

    /// Whether the content with this hash is that of the page at the end of the stream (MySQL).
    pub fn is_unchanged(&self, page: PageId, hash: ContentHash) -> bool {
        let shard = self.shard(page);
        let pages = shard.spaces.get(&page.space);
        pages.is_none_or(|pages| pages.freed(page.page_no.0) == Freed::Unknown)
            && shard.unchanged.is(page, hash, &self.generations)
    }

    /// A read of the page begins (MySQL).
    pub fn ticket(&self, page: PageId) -> Ticket {
        self.shard(page).unchanged.ticket(page, &self.generations)
    }

    /// The server has read a page: at its start the page that lists the indexes.
    pub fn note_read(&self, page: PageId, image: &[u8], hash: Option<(ContentHash, Ticket)>) {
        if let Some((hash, ticket)) = hash {
            let mut shard = self.shard(page);
            let is_dirty = shard
                .spaces
                .get(&page.space)
                .is_some_and(|pages| pages.changed.contains_key(&page.page_no.0));
            if !is_dirty {
                shard.unchanged.note_read(page, hash, ticket, &self.generations);
            }
        }
        if self.family == Family::MySql
            && page == MYSQL_DICTIONARY_HEADER
            && let Some(id) = get_u64(image, NEWEST_INDEX_ID)
        {
            self.fresh.start_from(id);
        }
    }

    /// The server has written all pages that were changed before `lsn` (MySQL).
    pub fn checkpointed(&self, lsn: Lsn) {
        self.fresh.checkpointed(lsn);
    }

    /// The page was sent as it is, with this LSN (MySQL).
    pub fn sent(&self, page: PageId, lsn: Lsn, hash: Option<ContentHash>) {
        let mut shard = self.shard(page);
        let Shard { spaces, unchanged } = &mut *shard;
        unchanged.remove(page);
        if let Some(pages) = spaces.get_mut(&page.space) {
            if pages.changed.get(&page.page_no.0).is_some_and(|changed| *changed > lsn) {
                return;
            }
            pages.written(page.page_no.0, true);
            if pages.is_empty() {
                spaces.remove(&page.space);
            }
        }
        if let Some(hash) = hash {
            unchanged.note(page, hash, &self.generations);
        }
    }

    /// The file of the tablespace was cut.
    pub fn forget_content(&self, space: SpaceId) {
        self.generations.forget(space);
    }

    /// Whether there is redo of the page that is newer than its last write, or the page is free.
    pub fn contains(&self, page: PageId) -> bool {
        self.freed(page) != Freed::Unknown
    }

    /// Forgets the pages of a tablespace from this one on.
    fn forget_from(&self, space: SpaceId, first: PageNo) {
        if first == PageNo(0) {
            return self.forget(space);
        }
        self.forget_content(space);
        for shard in &self.shards {
            let mut shard = lock(shard);
            let Some(pages) = shard.spaces.get_mut(&space) else { continue };
            pages.forget_from(first.0);
            if pages.is_empty() {
                shard.spaces.remove(&space);
            }
        }
    }

    /// Forgets the pages of a tablespace.
    pub fn forget(&self, space: SpaceId) {
        self.fresh.forget(space);
        self.forget_content(space);
        for shard in &self.shards {
            let gone = lock(shard).spaces.remove(&space);
            // Their memory is given back without the lock.
            drop(gone);
        }
    }

    /// Changed pages, and words of free ones.
    #[cfg(test)]
    fn sizes(&self) -> (usize, usize) {
        let shards: Vec<_> = self.shards.iter().map(lock).collect();
        let spaces = || shards.iter().flat_map(|shard| shard.spaces.values());
        (spaces().map(|pages| pages.changed.len()).sum(), spaces().map(|pages| pages.free.len()).sum())
    }
}

#[cfg(test)]
#[path = "dirty_tests.rs"]
mod tests;
