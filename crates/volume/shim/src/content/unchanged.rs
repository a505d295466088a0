//! Content of pages on the node that no redo has changed since: for writes of unchanged pages (MySQL).
//!
//! A mini-transaction of MySQL gives its end LSN to every page that it holds exclusively, and so makes pages dirty
//! that it only looked at. Nothing in the redo explains such a write, but it adds nothing: the page is as the server
//! last wrote or read it.
//!
//! The table has a 64-bit hash of the significant bytes of each page. Its size is fixed: a newer page replaces an
//! older one. A page that is missing here is sent, which is never wrong.
//!
//! Invariant: the entry of a page is the hash of its content on the node at the end of the stream, except for the
//! bytes that redo does not describe ([`redoubt_page::mysql::compare`]): for those, the server's last write counts.
//! So an entry goes away with the next redo of the page ([`Unchanged::remove`]). All entries of a tablespace go away
//! when its file is cut, scrubbed or removed ([`Generations::forget`], at a cost that does not grow with the tables).
//!
//! The node's answer to a read counts only if the page's entry did not change since the read began ([`Ticket`]).
//!
//! A table belongs to a shard of [`super::dirty::DirtyPages`], and is changed under its lock.

use redoubt_redo::{PageId, SpaceId};
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries of one table: with 64 shards 262,144 pages, in 9 MiB.
const ENTRIES: usize = 4096;
/// Counts of forgotten tablespaces. Two that share one forget each other's pages.
const GENERATIONS: usize = 4096;

/// Hash of the significant bytes of a page, as [`redoubt_page::mysql::content_hash`] gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentHash(pub u64);

/// Number of times that a tablespace was forgotten, for all tables.
pub struct Generations(Box<[AtomicU64]>);

/// State of a page's slot when a read began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    version: u32,
    generation: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    page: PageId,
    generation: u64,
    hash: ContentHash,
}

/// Table of content hashes.
#[derive(Debug, Default)]
pub struct Unchanged {
    /// Empty until the first page is noted or asked for.
    entries: Vec<Option<Entry>>,
    /// Number of changes to pages in each slot.
    versions: Vec<u32>,
}

impl Default for Generations {
    fn default() -> Self {
        Self((0..GENERATIONS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Generations {
    fn of(&self, space: SpaceId) -> &AtomicU64 {
        &self.0[mix(space.0) as usize % GENERATIONS]
    }

    /// Removes all entries of a tablespace.
    pub fn forget(&self, space: SpaceId) {
        self.of(space).fetch_add(1, Ordering::AcqRel);
    }
}

const fn mix(number: u32) -> u32 {
    number.wrapping_mul(0x9e37_79b9) >> 16
}

/// Neighbouring pages are in one shard and get neighbouring places.
const fn place(page: PageId) -> usize {
    let mixed = (page.page_no.0 >> 6).wrapping_mul(0x85eb_ca6b) ^ page.space.0.wrapping_mul(0xc2b2_ae35);
    (((mixed >> 16) << 6) | (page.page_no.0 & 63)) as usize % ENTRIES
}

impl Unchanged {
    fn reserve(&mut self) {
        if self.entries.is_empty() {
            self.entries.resize(ENTRIES, None);
            self.versions.resize(ENTRIES, 0);
        }
    }

    /// A read of the page begins.
    pub fn ticket(&mut self, page: PageId, generations: &Generations) -> Ticket {
        self.reserve();
        let generation = generations.of(page.space).load(Ordering::Acquire);
        Ticket { version: self.versions[place(page)], generation }
    }

    /// The node has this content of the page at the end of the stream.
    pub fn note(&mut self, page: PageId, hash: ContentHash, generations: &Generations) {
        self.reserve();
        let (place, generation) = (place(page), generations.of(page.space).load(Ordering::Acquire));
        self.versions[place] = self.versions[place].wrapping_add(1);
        self.entries[place] = Some(Entry { page, generation, hash });
    }

    /// The node had this content of the page when it was read.
    pub fn note_read(&mut self, page: PageId, hash: ContentHash, ticket: Ticket, generations: &Generations) {
        if self.ticket(page, generations) == ticket {
            let generation = ticket.generation;
            self.entries[place(page)] = Some(Entry { page, generation, hash });
        }
    }

    /// The page is changed.
    pub fn remove(&mut self, page: PageId) {
        if self.entries.is_empty() {
            return;
        }
        let place = place(page);
        self.versions[place] = self.versions[place].wrapping_add(1);
        if self.entries[place].is_some_and(|entry| entry.page == page) {
            self.entries[place] = None;
        }
    }

    /// Whether the node has this content of the page.
    pub fn is(&self, page: PageId, hash: ContentHash, generations: &Generations) -> bool {
        let entry = self.entries.get(place(page)).copied().flatten();
        entry.is_some_and(|entry| {
            entry.page == page
                && entry.hash == hash
                && entry.generation == generations.of(page.space).load(Ordering::Acquire)
        })
    }
}

#[cfg(test)]
#[path = "unchanged_tests.rs"]
mod tests;
