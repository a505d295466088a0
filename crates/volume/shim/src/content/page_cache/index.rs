//! Pages by slot, and the choice of the slot to replace. Pure: without the bytes of pages.
//!
//! Slots are reused in turn (CLOCK). A page that was read since the hand passed it is spared, up to three times, so
//! that pages read often outlive a scan. The pages of a file are together and in order: the cost of removing its end
//! depends on the removed pages only.
//!
//! Invariants: a page is in at most one slot, and a slot holds at most one page; `changes` grows with every page that
//! a write of the server adds or removes.

use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Rounds of the hand that a page survives without being read, at most.
const USES_MAX: u8 = 3;

/// A page of a file that this process has open, or had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// Number of the file in this process; never used again.
    pub file: u64,
    /// Page number inside the file.
    pub page_no: u32,
}

#[derive(Clone, Copy, Debug)]
struct CachedPage {
    key: CacheKey,
    len_bytes: u32,
    uses: u8,
    /// It was read ahead, and has not been looked up since.
    is_ahead: bool,
}

/// The pages of one shard.
#[derive(Debug)]
pub struct Index {
    /// Slots by page, of each file that has any.
    files: FxHashMap<u64, BTreeMap<u32, u32>>,
    slots: Vec<Option<CachedPage>>,
    free: Vec<u32>,
    hand: usize,
    capacity: usize,
    changes: u64,
}

impl Index {
    /// Room for `capacity` pages.
    pub fn new(capacity: usize) -> Self {
        Self {
            files: FxHashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            hand: 0,
            capacity,
            changes: 0,
        }
    }

    /// Pages there is room for.
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Pages in it.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.files.values().map(BTreeMap::len).sum()
    }

    /// Number of changes by the server to pages that are, or could be, in it.
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// The server wrote or gave up pages of this shard.
    pub fn note_change(&mut self) {
        self.changes += 1;
    }

    fn slot_of(&self, key: CacheKey) -> Option<u32> {
        self.files.get(&key.file)?.get(&key.page_no).copied()
    }

    /// Takes a page out of its file; returns its slot.
    fn unlink(&mut self, key: CacheKey) -> Option<u32> {
        let pages = self.files.get_mut(&key.file)?;
        let at = pages.remove(&key.page_no);
        if pages.is_empty() {
            self.files.remove(&key.file);
        }
        at
    }

    /// Slot of a page with this length, which counts as a use; and whether it was read ahead for this one.
    pub fn find(&mut self, key: CacheKey, len_bytes: u32) -> Option<(u32, bool)> {
        let at = self.slot_of(key)?;
        let slot = self.slots.get_mut(at as usize)?.as_mut()?;
        if slot.len_bytes != len_bytes {
            return None;
        }
        slot.uses = (slot.uses + 1).min(USES_MAX);
        Some((at, std::mem::take(&mut slot.is_ahead)))
    }

    /// Whether it contains a page. This does not count as a use of the page.
    pub fn contains(&self, key: CacheKey) -> bool {
        self.slot_of(key).is_some()
    }

    /// Gives the page a slot: its own, a free one, or that of another page, which is out then (true). `None`: there is
    /// no room at all.
    pub fn place(&mut self, key: CacheKey, len_bytes: u32, is_ahead: bool) -> Option<(u32, bool)> {
        let new = Some(CachedPage { key, len_bytes, uses: 0, is_ahead });
        if let Some(at) = self.slot_of(key) {
            if let Some(Some(slot)) = self.slots.get_mut(at as usize) {
                (slot.len_bytes, slot.is_ahead) = (len_bytes, is_ahead);
            }
            return Some((at, false));
        }
        let (at, evicted) = match self.free.pop() {
            Some(at) => (at, false),
            None if self.slots.len() < self.capacity => {
                self.slots.push(None);
                (self.slots.len() as u32 - 1, false)
            }
            None => (self.evict()?, true),
        };
        *self.slots.get_mut(at as usize)? = new;
        self.files.entry(key.file).or_default().insert(key.page_no, at);
        Some((at, evicted))
    }

    fn evict(&mut self) -> Option<u32> {
        // Each round takes one use from every page, so it ends.
        for _ in 0..=self.slots.len() * (usize::from(USES_MAX) + 1) {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.slots.len().max(1);
            match self.slots.get_mut(at)? {
                Some(slot) if slot.uses > 0 => slot.uses -= 1,
                Some(slot) => {
                    let key = slot.key;
                    return self.unlink(key);
                }
                // On the list of free ones, which is empty when this is called.
                None => {}
            }
        }
        None
    }

    /// Takes a page out.
    pub fn remove(&mut self, key: CacheKey) {
        if let Some(at) = self.unlink(key) {
            self.give_up(at);
        }
    }

    /// Takes all pages of a file out, from `first_page_no` on. Returns how many there were.
    pub fn remove_file(&mut self, file: u64, first_page_no: u32) -> usize {
        let Some(pages) = self.files.get_mut(&file) else { return 0 };
        let gone = pages.split_off(&first_page_no);
        if pages.is_empty() {
            self.files.remove(&file);
        }
        gone.values().for_each(|at| self.give_up(*at));
        gone.len()
    }

    fn give_up(&mut self, at: u32) {
        if let Some(slot) = self.slots.get_mut(at as usize) {
            *slot = None;
        }
        self.free.push(at);
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
