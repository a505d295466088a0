//! Pages kept on the server's side, so that a page that the buffer pool evicted need not come over the network again.
//!
//! The server is the only writer of its volume. Invariants:
//! * An entry is the server's own last write to that page or, if it wrote nothing since, the node's answer to its own
//!   read. A write that redo does not explain, a shorter file and anything unclear remove the entry.
//! * The node's answer is stored only if, since the request, the server has written nothing in the page's shard, and
//!   its file did not become shorter. So a page is added or removed *after* [`super::need`] requires that later reads
//!   see the server's write.
//! * A page with redo in the stream that is newer than its last write is never taken from here
//!   ([`crate::content::dirty`]).
//! * It starts empty with every process, and ends with it: no entry outlives a generation. Its file has no name.
//!
//! A cache for pages read ahead only ([`PageCache::for_read_ahead`]) removes a page at its first read.
//!
//! The bytes are in memory, or in a file on a local disk. A shard's lock is held while its bytes are copied: there are
//! enough shards that two threads seldom meet. It is a leaf.

mod index;

use crate::base::real::{self, Errno};
pub use index::CacheKey;
use index::Index;
use redoubt_locks::IgnorePoison;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

const SHARDS: usize = 256;
/// Files share counters of how often they were cut.
const CUT_COUNTERS: usize = 256;

/// Storage of a shard's bytes.
enum Store {
    Memory(Box<[u8]>),
    File { file: Arc<OwnedFd>, first_byte: u64 },
}

struct Shard {
    index: Index,
    store: Store,
}

/// Cache of pages on the server's host.
pub struct PageCache {
    shards: Vec<Mutex<Shard>>,
    slot_len_bytes: usize,
    /// Not only what was read ahead.
    keeps_all: bool,
    /// Number of times that a file was cut, incremented before its pages are removed.
    cuts: [AtomicU64; CUT_COUNTERS],
    evictions: AtomicU64,
    ahead_used: AtomicU64,
}

/// State of a page's shard and its file at the time of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    changes: u64,
    cuts: u64,
}

impl PageCache {
    /// A cache of at most `capacity_bytes` for pages of up to `page_len_bytes`, in memory, or in a nameless file in
    /// `directory`, whose room is reserved at once.
    ///
    /// # Errors
    /// That of making the file.
    pub fn new(capacity_bytes: u64, page_len_bytes: u32, directory: Option<&[u8]>) -> Result<Self, Errno> {
        let slots_per_shard = (capacity_bytes / u64::from(page_len_bytes) / SHARDS as u64).max(1);
        let shard_len_bytes = slots_per_shard * u64::from(page_len_bytes);
        let file = directory.map(|directory| make_file(directory, shard_len_bytes * SHARDS as u64));
        let file = file.transpose()?.map(Arc::new);
        let shards = (0..SHARDS as u64).map(|number| {
            let store = match &file {
                Some(file) => Store::File { file: Arc::clone(file), first_byte: number * shard_len_bytes },
                // Zeroed memory costs nothing before it is written.
                None => Store::Memory(vec![0; shard_len_bytes as usize].into_boxed_slice()),
            };
            Mutex::new(Shard { index: Index::new(slots_per_shard as usize), store })
        });
        Ok(Self {
            shards: shards.collect(),
            slot_len_bytes: page_len_bytes as usize,
            keeps_all: true,
            cuts: [const { AtomicU64::new(0) }; CUT_COUNTERS],
            evictions: AtomicU64::new(0),
            ahead_used: AtomicU64::new(0),
        })
    }

    /// A cache in memory for pages between their being read ahead and their being read.
    ///
    /// # Errors
    /// A cache in memory for pages read ahead only.
    pub fn for_read_ahead(capacity_bytes: u64, page_len_bytes: u32) -> Result<Self, Errno> {
        Ok(Self { keeps_all: false, ..Self::new(capacity_bytes, page_len_bytes, None)? })
    }

    /// It is more than room for pages read ahead.
    pub const fn keeps_all(&self) -> bool {
        self.keeps_all
    }

    fn shard(&self, key: CacheKey) -> MutexGuard<'_, Shard> {
        // Neighbours are in different shards.
        let mixed = u64::from(key.page_no).wrapping_add(key.file.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.shards[mixed as usize % SHARDS].lock().ignore_poison()
    }

    /// Fills `out`, if the page is here with this length.
    pub fn get(&self, key: CacheKey, out: &mut [u8]) -> bool {
        let mut shard = self.shard(key);
        let Some((slot, was_ahead)) = shard.index.find(key, out.len() as u32) else { return false };
        let is_read = shard.store.read(slot, self.slot_len_bytes, out);
        if !is_read || !self.keeps_all {
            shard.index.remove(key);
        }
        self.ahead_used.fetch_add(u64::from(is_read && was_ahead), Ordering::Relaxed);
        is_read
    }

    /// Whether the page is here.
    pub fn contains(&self, key: CacheKey) -> bool {
        self.shard(key).index.contains(key)
    }

    /// The server wrote the page.
    pub fn put(&self, key: CacheKey, bytes: &[u8]) {
        let mut shard = self.shard(key);
        shard.index.note_change();
        if self.keeps_all {
            self.place(&mut shard, key, bytes, false);
        } else {
            shard.index.remove(key);
        }
    }

    /// State of the shard and the file. Call it before the request for the page.
    pub fn ticket(&self, key: CacheKey) -> Ticket {
        self.ticket_of(&self.shard(key), key)
    }

    fn ticket_of(&self, shard: &Shard, key: CacheKey) -> Ticket {
        Ticket { changes: shard.index.changes(), cuts: self.cuts_of(key.file).load(Ordering::Acquire) }
    }

    const fn cuts_of(&self, file: u64) -> &AtomicU64 {
        &self.cuts[file as usize % CUT_COUNTERS]
    }

    /// The node answered with this page. It is kept unless the server changed something meanwhile.
    pub fn put_answer(&self, key: CacheKey, bytes: &[u8], asked: Ticket) {
        let mut shard = self.shard(key);
        if self.keeps_all && self.ticket_of(&shard, key) == asked {
            self.place(&mut shard, key, bytes, false);
        }
    }

    /// The same for a page that the server has not asked for yet.
    pub fn put_ahead(&self, key: CacheKey, bytes: &[u8], asked: Ticket) {
        let mut shard = self.shard(key);
        if self.ticket_of(&shard, key) == asked {
            self.place(&mut shard, key, bytes, true);
        }
    }

    fn place(&self, shard: &mut Shard, key: CacheKey, bytes: &[u8], is_ahead: bool) {
        if bytes.len() > self.slot_len_bytes {
            shard.index.remove(key);
            return;
        }
        let Some((slot, evicted)) = shard.index.place(key, bytes.len() as u32, is_ahead) else { return };
        self.evictions.fetch_add(u64::from(evicted), Ordering::Relaxed);
        if !shard.store.write(slot, self.slot_len_bytes, bytes) {
            shard.index.remove(key);
        }
    }

    /// The page is no longer what is here.
    pub fn remove(&self, key: CacheKey) {
        let mut shard = self.shard(key);
        shard.index.note_change();
        shard.index.remove(key);
    }

    /// Nor are those of a file from `first_page_no` on. Returns how many there were.
    pub fn remove_file(&self, file: u64, first_page_no: u32) -> usize {
        // First: an answer that is put into a shard after this loop has passed it is detected as too late.
        self.cuts_of(file).fetch_add(1, Ordering::AcqRel);
        let shards = self.shards.iter().map(|shard| shard.lock().ignore_poison());
        shards.map(|mut shard| shard.index.remove_file(file, first_page_no)).sum()
    }

    /// Capacity in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        let pages = self.shards.first().map_or(0, |shard| shard.lock().ignore_poison().index.capacity());
        (pages * SHARDS * self.slot_len_bytes) as u64
    }

    /// Pages in it.
    #[cfg(test)]
    pub fn page_count(&self) -> u64 {
        let lens = self.shards.iter().map(|shard| shard.lock().ignore_poison().index.len() as u64);
        lens.sum()
    }

    /// Pages read ahead that were read then, so far.
    pub fn ahead_used(&self) -> u64 {
        self.ahead_used.load(Ordering::Relaxed)
    }

    /// Pages that had to go for others, so far.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }
}

impl Store {
    /// False: the bytes cannot be had.
    fn read(&self, slot: u32, slot_len_bytes: usize, out: &mut [u8]) -> bool {
        let at = slot as usize * slot_len_bytes;
        match self {
            Self::Memory(bytes) => bytes.get(at..at + out.len()).is_some_and(|from| {
                out.copy_from_slice(from);
                true
            }),
            Self::File { file, first_byte } => {
                real::read_at(file.as_raw_fd(), out, first_byte + at as u64) == Ok(out.len())
            }
        }
    }

    /// False: they may not be there.
    fn write(&mut self, slot: u32, slot_len_bytes: usize, bytes: &[u8]) -> bool {
        let at = slot as usize * slot_len_bytes;
        match self {
            Self::Memory(all) => all.get_mut(at..at + bytes.len()).is_some_and(|to| {
                to.copy_from_slice(bytes);
                true
            }),
            Self::File { file, first_byte } => {
                real::write_at(file.as_raw_fd(), bytes, *first_byte + at as u64) == Ok(bytes.len())
            }
        }
    }
}

fn make_file(directory: &[u8], len_bytes: u64) -> Result<OwnedFd, Errno> {
    let path = real::c_path(directory)?;
    let fd = real::open_file(&path, libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC, 0o600)?;
    // SAFETY: the descriptor was just opened and has no other owner.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    real::reserve_blocks(&file, len_bytes)?;
    Ok(file)
}

#[cfg(test)]
mod tests;
