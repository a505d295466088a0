//! The stream and the page requests, with the state of pages and names that they need.
//!
//! [`Content`] is passed to each kind of file. The modules below it take the parts that they need one by one, and are
//! independent of each other as far as possible.

pub mod deleted;
pub mod dirty;
pub mod fresh_indexes;
pub mod names;
pub mod need;
pub mod new_page;
pub mod page_cache;
pub mod read_ahead;
pub mod removed_files;
pub mod unchanged;
pub mod verify;

use crate::base::config::Config;
use crate::base::counters::Counters;
use crate::base::message;
use crate::base::real::{self, Errno};
use crate::connections::pool::PagePool;
use crate::connections::stream::Stream;
use deleted::DeletedFiles;
use dirty::DirtyPages;
use names::Names;
use need::NeedTable;
use page_cache::PageCache;
use read_ahead::{ReadAhead, Sources};
use redoubt_redo::Family;
use redoubt_wire::stream::Counter;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use verify::DroppedImages;

/// Stream, page requests, and the state of pages and names.
pub struct Content {
    /// Absolute path of the data directory.
    pub datadir: Vec<u8>,
    /// Family of the server.
    pub family: Family,
    /// `innodb_page_size`.
    pub page_size_bytes: u32,
    /// Whether the node may hold the pages of encrypted tablespaces in clear.
    pub takes_clear_pages: bool,
    /// Whether the server has loaded a plugin that manages keys.
    pub has_key_plugin: AtomicBool,
    /// The counted events.
    pub counters: Arc<Counters>,
    /// The log connection.
    pub stream: Arc<Stream>,
    /// The page connections.
    pub pool: PagePool,
    /// The lock on names of files.
    pub names: Names,
    /// Required positions of reads.
    pub need: NeedTable,
    /// Tablespace files that are being dropped.
    pub deleted: DeletedFiles,
    /// Page versions that redo explains.
    pub dirty: DirtyPages,
    /// Pages that need not be read from the node.
    pub page_cache: Option<PageCache>,
    /// Pages on their way there.
    pub read_ahead: ReadAhead,
    /// Dropped images that the node may ask for.
    pub dropped_images: DroppedImages,
}

impl Content {
    /// Content over a stream that need not be connected yet.
    ///
    /// # Errors
    /// A description of the missing space for pages, for people.
    pub fn new(config: &Config, stream: Arc<Stream>, counters: Arc<Counters>) -> Result<Self, String> {
        Ok(Self {
            datadir: config.datadir.clone(),
            family: config.family,
            page_size_bytes: config.page_size_bytes,
            takes_clear_pages: config.clear_pages,
            has_key_plugin: AtomicBool::new(false),
            pool: PagePool::new(Arc::clone(&stream), Arc::clone(&counters)),
            counters,
            stream,
            names: Names::default(),
            need: NeedTable::default(),
            deleted: DeletedFiles::default(),
            dirty: DirtyPages::new(config.family),
            page_cache: make_page_cache(config)?,
            read_ahead: ReadAhead::new(config.read_ahead_len_bytes),
            dropped_images: DroppedImages::new(config.verify, config.on_difference),
        })
    }

    /// Waits until everything sent so far is durable.
    ///
    /// # Errors
    /// `EIO` when the stream is dead.
    pub fn sync_all(&self) -> Result<(), Errno> {
        if self.stream.session_start().is_none() {
            return Ok(());
        }
        self.stream.wait_durable(self.stream.end())
    }

    /// Starts the threads that read ahead, if it is on.
    ///
    /// # Errors
    /// That of starting a thread.
    pub fn start_read_ahead(&'static self) -> std::io::Result<()> {
        let Some(cache) = self.page_cache.as_ref().filter(|_| self.read_ahead.is_on()) else { return Ok(()) };
        let Self { pool, counters, need, dirty, .. } = self;
        let sources = Sources { pool, counters, need, dirty, cache };
        (0..read_ahead::THREADS)
            .try_for_each(|_| real::spawn_quiet("redoubt-ahead", move || self.read_ahead.run(&sources)))
    }

    /// Tells the node what was counted.
    pub fn report(&self) {
        if let Some(cache) = &self.page_cache {
            self.counters.raise_to(Counter::ReadAheadUsed, cache.ahead_used());
            if cache.keeps_all() {
                self.counters.raise_to(Counter::CacheEvictions, cache.evictions());
                self.counters.raise_to(Counter::CacheCapacityBytes, cache.capacity_bytes());
            }
        }
        self.stream.send_counters();
    }
}

fn make_page_cache(config: &Config) -> Result<Option<PageCache>, String> {
    let Some(len_bytes) = config.page_cache_len_bytes else {
        let read_ahead = ReadAhead::new(config.read_ahead_len_bytes);
        let buffer = read_ahead
            .is_on()
            .then(|| PageCache::for_read_ahead(read_ahead.buffer_len_bytes(), config.page_size_bytes));
        return buffer.transpose().map_err(|errno| format!("no room for pages read ahead ({errno})"));
    };
    let directory = config.page_cache_directory.as_deref();
    let made = PageCache::new(len_bytes, config.page_size_bytes, directory);
    made.map(Some).map_err(|errno| {
        let directory = directory.map_or_else(|| "memory".to_owned(), message::show);
        format!("a page cache of {len_bytes} bytes cannot be made in {directory} ({errno}); see --page-cache-directory")
    })
}
