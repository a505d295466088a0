//! Requests pages before the server does, where a file is read in sequence: a scan then waits for the network once
//! for many pages instead of once for each.
//!
//! Pages are put into the page cache ([`crate::content::page_cache`]), whose rules decide when one may be used;
//! without a page cache there is a small one for them alone. A read waits for a page that is on its way, and does not
//! request it again.
//!
//! Invariants: nothing here makes a read fail, or wait longer than [`PATIENCE`] more than it would have; requested
//! pages lie in the file and are never page 0. Lock order: `state` is a leaf.

mod detector;

use super::dirty::DirtyPages;
use super::need::NeedTable;
use super::page_cache::{CacheKey, PageCache};
use crate::base::counters::Counters;
use crate::connections::pool::PagePool;
pub use detector::Detector;
use redoubt_locks::IgnorePoison;
use redoubt_redo::PageId;
use redoubt_wire::page::{FileId, MAX_READ_LEN_BYTES, PageReply, PageRequest};
use redoubt_wire::stream::Counter;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Requests on their way at the same time: one is answered while the next one is built.
pub const THREADS: usize = 2;
/// Requests that wait for a thread; more are not made.
const WAITING_MAX: usize = 8;
/// Timeout of a wait for a page on its way.
const PATIENCE: Duration = Duration::from_secs(1);
/// The cache for pages read ahead alone holds this many windows: one on its way and one being read for some scans at
/// once.
const BUFFER_WINDOWS: u64 = 32;

/// Pages to ask for.
#[derive(Clone, Debug)]
pub struct Job {
    /// Number of the file in this process.
    pub number: u64,
    /// The node's number of the file.
    pub file: FileId,
    /// First page of the job.
    pub first: PageId,
    /// Page numbers inside the file.
    pub pages: Range<u32>,
    /// Length of a page in bytes.
    pub page_len_bytes: usize,
}

impl Job {
    fn covers(&self, key: CacheKey) -> bool {
        self.number == key.file && self.pages.contains(&key.page_no)
    }

    const fn key(&self, page_no: u32) -> CacheKey {
        CacheKey { file: self.number, page_no }
    }

    const fn id(&self, page_no: u32) -> PageId {
        PageId::new(self.first.space.0, self.first.page_no.0.wrapping_add(page_no))
    }
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    running: Vec<Job>,
}

/// Source and destination of pages.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The node.
    pub pool: &'a PagePool,
    /// The counted events.
    pub counters: &'a Counters,
    /// Required positions of the pages.
    pub need: &'a NeedTable,
    /// Page versions, to detect outdated pages.
    pub dirty: &'a DirtyPages,
    /// Destination of the pages.
    pub cache: &'a PageCache,
}

/// Reads pages ahead of the server.
pub struct ReadAhead {
    window_len_bytes: u64,
    state: Mutex<Jobs>,
    /// Waiting and running jobs.
    job_count: AtomicUsize,
    work: Condvar,
    done: Condvar,
}

impl ReadAhead {
    /// Asks for at most this much at once; 0: for nothing.
    pub fn new(window_len_bytes: u64) -> Self {
        Self {
            window_len_bytes: window_len_bytes.min(MAX_READ_LEN_BYTES.into()),
            state: Mutex::default(),
            job_count: AtomicUsize::new(0),
            work: Condvar::new(),
            done: Condvar::new(),
        }
    }

    /// Whether anything is ever asked for.
    pub const fn is_on(&self) -> bool {
        self.window_len_bytes > 0
    }

    /// Size of a cache that is only for what this asks for.
    pub const fn buffer_len_bytes(&self) -> u64 {
        self.window_len_bytes * BUFFER_WINDOWS
    }

    /// Maximum number of pages of this length to request at once.
    pub const fn window_pages(&self, page_len_bytes: usize) -> u32 {
        (self.window_len_bytes / page_len_bytes as u64) as u32
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.state.lock().ignore_poison()
    }

    /// Asks for these pages soon, unless too much is waiting already.
    pub fn ask(&self, job: Job) {
        let mut state = self.lock();
        if state.waiting.len() < WAITING_MAX {
            state.waiting.push_back(job);
            self.job_count.fetch_add(1, Ordering::AcqRel);
            self.work.notify_one();
        }
    }

    /// Waits for the page if it has been asked for. True: it is worth looking into the cache again.
    pub fn wait_for(&self, key: CacheKey) -> bool {
        if self.job_count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let is_coming = |state: &Jobs| state.waiting.iter().chain(&state.running).any(|job| job.covers(key));
        let mut state = self.lock();
        if !is_coming(&state) {
            return false;
        }
        let deadline = Instant::now() + PATIENCE;
        while is_coming(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.done.wait_timeout(state, left).ignore_poison().0;
        }
        true
    }

    /// Body of each of the [`THREADS`].
    pub fn run(&self, sources: &Sources<'_>) {
        let mut state = self.lock();
        loop {
            let Some(job) = state.waiting.pop_front() else {
                state = self.work.wait(state).ignore_poison();
                continue;
            };
            state.running.push(job.clone());
            drop(state);
            fetch(sources, &job);
            state = self.lock();
            state.running.retain(|other| other.number != job.number || other.pages != job.pages);
            self.job_count.fetch_sub(1, Ordering::AcqRel);
            self.done.notify_all();
        }
    }
}

/// Requests the pages and puts them into the cache. After a failure, the server's own reads request these pages
/// again.
fn fetch(sources: &Sources<'_>, job: &Job) {
    let Sources { pool, counters, need, dirty, cache } = *sources;
    // Before the request, so that whatever the server changes from now on is noticed.
    let tickets: Vec<_> = job.pages.clone().map(|page_no| cache.ticket(job.key(page_no))).collect();
    let Some(need) = job.pages.clone().map(|page_no| need.get(job.number, page_no)).max() else {
        return;
    };
    let page_len_bytes = job.page_len_bytes;
    let request = PageRequest::Read {
        need,
        file: job.file,
        offset_bytes: u64::from(job.pages.start) * page_len_bytes as u64,
        len_bytes: (job.pages.len() * page_len_bytes) as u32,
    };
    pool.try_once(&request, |reply| {
        let PageReply::Bytes(bytes) = reply else { return };
        if bytes.len() != job.pages.len() * page_len_bytes {
            return;
        }
        counters.add(Counter::PageReads, 1);
        counters.add(Counter::PageBytesRead, bytes.len() as u64);
        counters.add(Counter::ReadAheadPages, job.pages.len() as u64);
        for ((page_no, page), ticket) in
            job.pages.clone().zip(bytes.chunks_exact(page_len_bytes)).zip(tickets)
        {
            if !dirty.contains(job.id(page_no)) {
                cache.put_ahead(job.key(page_no), page, ticket);
            }
        }
    });
}
