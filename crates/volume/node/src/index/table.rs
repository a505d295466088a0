//! One table of level 1: the entries of a batch of the stream, by page.
//!
//! Entries refer to the bytes of the stream chunks they came from; the table keeps those chunks alive until it
//! is applied. States go `Open` -> `Closed` -> `Applying`, never back.

use super::PageKey;
use crate::log_buffer::Chunk;
use crate::mark::Point;
use crate::memory::VolumeMemory;
use crate::namespace::NameChanges;
use redoubt_pagestore::ObjectId;
use redoubt_redo::{Lsn, PageReset};
use redoubt_sync::{Mutex, RwLock, RwLockReadGuard};
use redoubt_wire::Seq;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Buckets of a table, each with a lock of its own.
const BUCKETS: usize = 64;

/// Classes of chain lengths: 1, 2 to 3, 4 to 7, up to everything from 32768 on.
pub const CHAIN_CLASSES: usize = 16;

/// Location of an entry's content.
#[derive(Clone, Debug)]
pub enum Body {
    /// Records of one mini-transaction for the page: bytes of a chunk's payload.
    Run {
        /// Number of the chunk in its table.
        chunk: u32,
        /// Offset in the chunk's payload.
        offset: u32,
        /// Length in bytes.
        len: u32,
        /// The run resets the page: earlier entries do not matter, as after INIT_PAGE.
        reset: Option<PageReset>,
    },
    /// A page image sent by the server, in a chunk's payload: replaces the former content.
    Image {
        /// Number of the chunk in its table.
        chunk: u32,
        /// Offset in the chunk's payload.
        offset: u32,
        /// Length in bytes.
        len: u32,
        /// See [`redoubt_wire::stream::StreamFrame::Image`].
        is_recovered: bool,
    },
    /// The page as of this point, built early because its chain had become long.
    Built(Arc<[u8]>),
    /// The server freed the page and overwrote it with zeros: nothing of its content may remain, unless it was changed
    /// after the entry's LSN.
    Scrub,
    /// The server dropped a write of the page: compare. The entry's start is the LSN on that page, its end the LSN of the
    /// stream at the comparison.
    Verify {
        /// Digest of the server's page.
        digest: u32,
        /// A page that differs takes the content of the server's. Otherwise the volume stops.
        heals: bool,
    },
}

/// One thing that happened to a page.
#[derive(Clone, Debug)]
pub struct Entry {
    /// LSN of the first byte of its mini-transaction. Verify: LSN on the server's page.
    pub start_lsn: Lsn,
    /// LSN after its mini-transaction. Images: LSN of the stream at that point. Scrub: LSN at which the page was free.
    pub end_lsn: Lsn,
    /// Its kind.
    pub body: Body,
}

/// The end of a table.
#[derive(Clone)]
pub struct TableEnd {
    /// End of the stream covered by the table and those before it.
    pub point: Point,
    /// Changes of the names since the end of the previous table.
    pub names: NameChanges,
    /// Objects that died in this table.
    pub dead: Vec<ObjectId>,
    /// Objects whose file became shorter: stored pages past its end can go.
    pub cut: Vec<ObjectId>,
}

/// State of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableState {
    /// The parser adds to it.
    Open,
    /// Complete.
    Closed,
    /// Its pages are being written to the page store.
    Applying,
}

type Bucket = FxHashMap<PageKey, Vec<Entry>>;

/// One table of level 1: the entries of a batch of the stream, by page.
pub struct Table {
    id: u64,
    start: Point,
    state: AtomicU8,
    buckets: Vec<Mutex<Bucket>>,
    chunks: RwLock<Vec<Arc<Chunk>>>,
    stream_bytes: AtomicU64,
    pages: AtomicU64,
    runs: AtomicU64,
    chain_classes: [AtomicU64; CHAIN_CLASSES],
    /// Memory of chains and pages; the chunks are counted by the log buffer.
    memory: Arc<VolumeMemory>,
    memory_bytes: AtomicU64,
    end: Mutex<Option<TableEnd>>,
}

impl Drop for Table {
    fn drop(&mut self) {
        self.memory.remove(*self.memory_bytes.get_mut());
    }
}

/// Memory of a page with entries beside the entries, in both levels: map entries with their free room, the list of
/// tables, and the allocator's overhead.
const PAGE_MEMORY_BYTES: u64 = 224;

impl Table {
    /// An open, empty table.
    pub fn new(id: u64, start: Point, memory: &Arc<VolumeMemory>) -> Self {
        Self {
            memory: Arc::clone(memory),
            memory_bytes: AtomicU64::new(0),
            id,
            start,
            state: AtomicU8::new(0),
            buckets: (0..BUCKETS).map(|_| Mutex::default()).collect(),
            chunks: RwLock::default(),
            stream_bytes: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            chain_classes: [const { AtomicU64::new(0) }; CHAIN_CLASSES],
            end: Mutex::default(),
        }
    }

    /// Its number; rises with stream order.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its start.
    pub fn start(&self) -> Point {
        self.start
    }

    /// Its state.
    pub fn state(&self) -> TableState {
        match self.state.load(Ordering::Acquire) {
            0 => TableState::Open,
            1 => TableState::Closed,
            _ => TableState::Applying,
        }
    }

    /// Its end, once closed.
    pub fn end(&self) -> Option<TableEnd> {
        self.end.lock().clone()
    }

    /// Stream bytes it covers so far.
    pub fn stream_bytes(&self) -> u64 {
        self.stream_bytes.load(Ordering::Relaxed)
    }

    /// Pages with entries.
    pub fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    /// Entries.
    pub fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }

    /// Keeps a chunk alive; returns its number for [`Body`].
    pub fn add_chunk(&self, chunk: &Arc<Chunk>) -> u32 {
        self.stream_bytes.fetch_add(chunk.wire.len() as u64, Ordering::Relaxed);
        let mut chunks = self.chunks.write();
        chunks.push(Arc::clone(chunk));
        (chunks.len() - 1) as u32
    }

    fn bucket(&self, key: PageKey) -> &Mutex<Bucket> {
        &self.buckets[key.mix() as usize % BUCKETS]
    }

    /// Adds an entry. Returns the chain's length and whether it is the page's first in this table.
    pub(super) fn push(&self, key: PageKey, entry: Entry) -> (usize, bool) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let mut bucket = self.bucket(key).lock();
        let chain = bucket.entry(key).or_default();
        let capacity = chain.capacity();
        chain.push(entry);
        let grown = chain.capacity() - capacity;
        let len = chain.len();
        if grown > 0 {
            let of_page = if len == 1 { PAGE_MEMORY_BYTES } else { 0 };
            self.count_memory((grown * size_of::<Entry>()) as u64 + of_page);
        }
        if len.is_power_of_two() {
            self.count_chain(len - 1, len);
        }
        if len == 1 {
            self.pages.fetch_add(1, Ordering::Relaxed);
        }
        (len, len == 1)
    }

    fn count_memory(&self, bytes: u64) {
        self.memory_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.memory.add(bytes);
    }

    /// Marks the table complete.
    pub(super) fn close(&self, end: TableEnd) {
        *self.end.lock() = Some(end);
        self.state.store(1, Ordering::Release);
    }

    /// Marks the table as being applied.
    pub fn set_applying(&self) {
        self.state.store(2, Ordering::Release);
    }

    /// A copy of the page's chain.
    pub fn chain(&self, key: PageKey) -> Vec<Entry> {
        self.bucket(key).lock().get(&key).cloned().unwrap_or_default()
    }

    /// Replaces the first `count` entries of the chain by `built`, unless the chain changed at its front.
    pub fn compact(&self, key: PageKey, count: usize, built: Entry) {
        let mut bucket = self.bucket(key).lock();
        if let Some(chain) = bucket.get_mut(&key)
            && chain.len() >= count
        {
            self.runs.fetch_sub(count.saturating_sub(1) as u64, Ordering::Relaxed);
            let len = chain.len();
            if let Body::Built(page) = &built.body {
                self.count_memory(page.len() as u64);
            }
            chain.splice(..count, [built]);
            self.count_chain(len, chain.len());
        }
    }

    /// A chain's length changed; 0: there is none. Under the lock of its bucket, so that a chain's changes come in
    /// order.
    fn count_chain(&self, from: usize, to: usize) {
        let class_of = |len: usize| len.checked_ilog2().map(|class| (class as usize).min(CHAIN_CLASSES - 1));
        let (from, to) = (class_of(from), class_of(to));
        if from == to {
            return;
        }
        if let Some(class) = from.and_then(|class| self.chain_classes.get(class)) {
            class.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(class) = to.and_then(|class| self.chain_classes.get(class)) {
            class.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Pages per class of chain length, the shortest first.
    pub fn chain_classes(&self) -> [u64; CHAIN_CLASSES] {
        std::array::from_fn(|class| self.chain_classes[class].load(Ordering::Relaxed))
    }

    /// All pages with entries.
    pub fn keys(&self) -> Vec<PageKey> {
        let mut keys = Vec::with_capacity(self.pages() as usize);
        for bucket in &self.buckets {
            keys.extend(bucket.lock().keys().copied());
        }
        keys
    }

    /// End of a chunk by its number.
    pub fn end_of_chunk(&self, number: u32) -> Option<Seq> {
        Some(self.chunks.read().get(number as usize)?.end.seq)
    }

    /// The chunks, for resolving [`Body`].
    pub fn chunks(&self) -> RwLockReadGuard<'_, Vec<Arc<Chunk>>> {
        self.chunks.read()
    }
}

/// Bytes `[offset, offset + len)` of a chunk's payload. `None`: there are none, which is a defect of the index.
pub fn resolve(chunks: &[Arc<Chunk>], chunk: u32, offset: u32, len: u32) -> Option<&[u8]> {
    chunks.get(chunk as usize)?.payload().get(offset as usize..)?.get(..len as usize)
}
