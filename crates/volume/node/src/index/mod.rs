//! The log index: which records wait for which page.
//!
//! Two levels (after the log push-down paper). Level 1 is a queue of hash tables, oldest first: page key to the
//! records of that page in LSN order. One table is open for the parser; it is closed when it holds a batch of
//! bytes, and applied as a whole. Level 0 maps a page key to the tables that hold records of it, so that a read
//! probes one map, not every table.
//!
//! Invariants: a page's records are in stream order inside a table, and tables are in stream order. A table leaves
//! level 0 only after its pages are in the page store. So a reader that reads level 0 first and the page store second
//! misses nothing.
//!
//! **Void redo.** A page of a live server starts empty, and each stored page is its state at some point of the stream,
//! so every record fits. Not so the pages of an import: files as a kill left them lack changes that the server never
//! wrote because the page was freed meanwhile (see [`LastResets`]). Tables are applied one by one, so a record that
//! fits nothing may be due long before the parser comes to the FREE_PAGE that makes it void. Therefore an import, which
//! has the whole redo of its source, declares the void redo before the first frame ([`LogIndex::leave_out`]), and that
//! redo never gets into the index. An import ends only when all its redo is applied, so a later start of the node,
//! which lacks the declaration, does not read it again.
//!
//! Lock order: level 0 shard, then table bucket. The queue lock is a leaf.

pub mod table;

pub use table::{Body, CHAIN_CLASSES, Entry, Table, TableEnd, TableState};

use crate::mark::Point;
use crate::memory::VolumeMemory;
use redoubt_pagestore::ObjectId;
use redoubt_redo::{LastResets, Lsn, PageId, SpaceId};
use redoubt_sync::Mutex;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const SHARDS: usize = 256;

/// Object and page number combined, the key of both levels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PageKey(u64);

impl PageKey {
    /// Page `page_no` of `object`.
    pub const fn new(object: ObjectId, page_no: u32) -> Self {
        Self((object.0 as u64) << 32 | page_no as u64)
    }

    /// The object.
    pub const fn object(self) -> ObjectId {
        ObjectId((self.0 >> 32) as u32)
    }

    /// The page number.
    pub const fn page_no(self) -> u32 {
        self.0 as u32
    }

    /// A well-mixed hash, for shards, buckets and latches.
    pub const fn mix(self) -> u64 {
        // Fibonacci hashing, folded so that low bits depend on the page number and the object.
        let mixed = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    }
}

type Shard = Mutex<FxHashMap<PageKey, Vec<Arc<Table>>>>;

/// The log index: which records wait for which page.
pub struct LogIndex {
    level0: Vec<Shard>,
    queue: Mutex<VecDeque<Arc<Table>>>,
    next_table: AtomicU64,
    memory: Arc<VolumeMemory>,
    /// Redo that an import has found to be void.
    resets: OnceLock<LastResets>,
}

impl LogIndex {
    /// An index with one open, empty table that starts at `start`.
    pub fn new(start: Point) -> Self {
        Self::counted(start, &Arc::new(VolumeMemory::unbounded()))
    }

    /// The same; `memory` counts its memory.
    pub fn counted(start: Point, memory: &Arc<VolumeMemory>) -> Self {
        let index = Self {
            memory: Arc::clone(memory),
            level0: (0..SHARDS).map(|_| Mutex::default()).collect(),
            queue: Mutex::default(),
            next_table: AtomicU64::new(1),
            resets: OnceLock::new(),
        };
        index.push_table(start);
        index
    }

    fn push_table(&self, start: Point) -> Arc<Table> {
        let id = self.next_table.fetch_add(1, Ordering::Relaxed);
        let table = Arc::new(Table::new(id, start, &self.memory));
        self.queue.lock().push_back(Arc::clone(&table));
        table
    }

    fn shard(&self, key: PageKey) -> &Shard {
        &self.level0[(key.mix() >> 8) as usize % SHARDS]
    }

    /// Keeps the redo that these resets make void out of the index. To be called once, before the first frame.
    pub fn leave_out(&self, resets: LastResets) {
        let is_first = self.resets.set(resets).is_ok();
        debug_assert!(is_first, "an import has one redo log");
    }

    /// Resets in an import's redo, up to its end.
    pub fn resets(&self) -> Option<&LastResets> {
        self.resets.get()
    }

    /// Redo of mini-transactions that start at `start_lsn` is void for the whole tablespace.
    pub fn is_void_for_space(&self, space: SpaceId, start_lsn: Lsn) -> bool {
        self.resets.get().is_some_and(|resets| resets.void_space(space, start_lsn))
    }

    /// Redo of mini-transactions that start at `start_lsn` is void for the page.
    pub fn is_void_for_page(&self, page: PageId, start_lsn: Lsn) -> bool {
        self.resets.get().is_some_and(|resets| resets.void_page(page, start_lsn))
    }

    /// The table the parser fills.
    pub fn open_table(&self) -> Arc<Table> {
        let last = self.queue.lock().back().cloned();
        last.unwrap_or_else(|| self.push_table(Point::default()))
    }

    /// The oldest table.
    pub fn head(&self) -> Option<Arc<Table>> {
        self.queue.lock().front().cloned()
    }

    /// The oldest tables that are closed, oldest first.
    pub fn closed_tables(&self) -> Vec<Arc<Table>> {
        let queue = self.queue.lock();
        queue.iter().take_while(|table| table.state() != TableState::Open).cloned().collect()
    }

    /// Adds an entry to `table`, which must be the open one. Returns the length of the page's chain in it.
    pub fn insert(&self, table: &Arc<Table>, key: PageKey, entry: Entry) -> usize {
        let (len, first) = table.push(key, entry);
        if first {
            self.shard(key).lock().entry(key).or_default().push(Arc::clone(table));
        }
        len
    }

    /// Closes the open table at `end` and opens the next one.
    pub fn close_table(&self, end: TableEnd) {
        let open = self.open_table();
        let start = end.point;
        self.push_table(start);
        open.close(end);
    }

    /// The tables that hold entries of this page, oldest first.
    pub fn tables_of(&self, key: PageKey) -> Vec<Arc<Table>> {
        self.shard(key).lock().get(&key).cloned().unwrap_or_default()
    }

    /// Removes an applied table, the oldest one, from both levels.
    pub fn remove_applied(&self, table: &Arc<Table>) {
        for key in table.keys() {
            let mut shard = self.shard(key).lock();
            if let Some(tables) = shard.get_mut(&key) {
                tables.retain(|other| other.id() != table.id());
                if tables.is_empty() {
                    shard.remove(&key);
                }
            }
        }
        let mut queue = self.queue.lock();
        if queue.front().is_some_and(|front| front.id() == table.id()) {
            queue.pop_front();
        }
    }

    /// How long the chains are: pages per class, the class of 1 first, then 2 to 3, 4 to 7 and so on.
    pub fn chain_classes(&self) -> [u64; CHAIN_CLASSES] {
        let mut classes = [0; CHAIN_CLASSES];
        for table in self.queue.lock().iter() {
            for (class, pages) in classes.iter_mut().zip(table.chain_classes()) {
                *class += pages;
            }
        }
        classes
    }

    /// Pages, runs and tables in the index.
    pub fn sizes(&self) -> (u64, u64, u64) {
        let queue = self.queue.lock();
        let pages = queue.iter().map(|table| table.pages()).sum();
        let runs = queue.iter().map(|table| table.runs()).sum();
        (pages, runs, queue.len() as u64)
    }
}

#[cfg(test)]
mod tests;
