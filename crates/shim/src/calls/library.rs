//! Everything an active library holds, and how it becomes active.
//!
//! Active means: the process is `mariadbd` or `mysqld`, `REDOUBT_NODE` is set, and this is not a forked child.
//! With `REDOUBT_LOCAL_LOG` set instead, [`local_log`] is active and nothing of this.
//! Otherwise every hook passes straight through. The configuration is read before the server does anything;
//! the node is contacted at the first operation that needs it, so that `mariadbd --version` needs no node.

use crate::classify::{self, Class, Rules};
use crate::config::{Config, LOCAL_LOG_VARIABLE, NODE_VARIABLE};
use crate::counters::Counters;
use crate::dirty::DirtyPages;
use crate::fds::FdTable;
use crate::link::{Peer, SILENT_PEER_TIMEOUT};
use crate::local_log;
use crate::mapping::Mappings;
use crate::message;
use crate::names::Names;
use crate::need::NeedTable;
use crate::page_cache::PageCache;
use crate::pool::PagePool;
use crate::read_ahead::{self, ReadAhead};
use crate::real::{self, Errno};
use crate::redo_log::RedoLog;
use crate::stream::{ImageWanted, SessionStart, Stream, StreamConfig};
use crate::target::OpenFile;
use crate::verify::DroppedImages;
use redoubt_transport::{ClientTls, Connector};
use redoubt_wire::stream::Counter;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Between two reports of the counters. Well below a second, because who watches a node looks once a second: with reports as far
/// apart as looks, a look now and then would find nothing new, and the next one twice as much.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// The active library.
pub struct Runtime {
    /// From the environment.
    pub config: Config,
    /// How paths are classified.
    pub rules: Rules,
    /// What is counted.
    pub counters: Arc<Counters>,
    /// The log connection.
    pub stream: Arc<Stream>,
    /// The page connections.
    pub pool: PagePool,
    /// Tracked descriptors.
    pub fds: FdTable,
    /// Names of files.
    pub names: Names,
    /// How new pages must be when read.
    pub need: NeedTable,
    /// Pages that need not be read from the node.
    pub page_cache: Option<PageCache>,
    /// Pages on their way there.
    pub read_ahead: ReadAhead,
    /// Page versions that redo explains.
    pub dirty: DirtyPages,
    /// The redo log file.
    pub log: RedoLog,
    /// Dropped images that the node may ask for.
    pub dropped_images: DroppedImages,
    /// Shared writable mappings of plain files.
    pub mappings: Mappings,
    /// Streams opened for writing with fopen: address, path.
    pub stdio: Mutex<Vec<(usize, Vec<u8>)>>,
    started: OnceLock<()>,
    images_wanted: Mutex<Option<Receiver<ImageWanted>>>,
}

static RUNTIME: OnceLock<Runtime> = OnceLock::new();
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// The active library, if this process has one.
pub fn active() -> Option<&'static Runtime> {
    if ACTIVE.load(Ordering::Acquire) { RUNTIME.get() } else { None }
}

/// The tracked file behind a descriptor.
pub fn tracked(fd: RawFd) -> Option<(&'static Runtime, Arc<OpenFile>)> {
    let runtime = active()?;
    Some((runtime, runtime.fds.get(fd)?))
}

/// Switches the library off in this process; for a forked child.
pub fn deactivate() {
    ACTIVE.store(false, Ordering::Release);
}

/// Reads the environment. Called once, before `main`.
pub fn activate() {
    if !is_server() {
        return;
    }
    let lookup = |name: &str| std::env::var_os(name).map(OsStringExt::into_vec);
    let is_local = lookup(LOCAL_LOG_VARIABLE).is_some();
    if lookup(NODE_VARIABLE).is_none() && !is_local {
        return;
    }
    std::panic::set_hook(Box::new(|info| {
        message::raw(&format!("internal error, the server is stopped: {info}"));
        real::abort();
    }));
    let result = if is_local {
        local_log::activate(&lookup).map_err(|error| error.to_string())
    } else {
        Config::from_variables(&lookup).map_err(|error| error.to_string()).and_then(|config| {
            // Before the hooks do anything, and before the server changes its user.
            let tls =
                config.tls.clone().map(ClientTls::load).transpose().map_err(|error| error.to_string())?;
            let page_cache = page_cache(&config)?;
            let _ = RUNTIME.set(Runtime::new(config, tls.map(Arc::new), page_cache));
            ACTIVE.store(true, Ordering::Release);
            Ok(())
        })
    };
    if let Err(error) = result {
        message::raw(&error);
        real::exit_now(1);
    }
}

fn page_cache(config: &Config) -> Result<Option<PageCache>, String> {
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

/// This process runs a server program, be it started by the dynamic loader as its first argument.
fn is_server() -> bool {
    let is_server_name = |path: &[u8]| matches!(classify::file_name(path), b"mariadbd" | b"mysqld");
    let Ok(executable) = real::link_target(c"/proc/self/exe") else { return false };
    if is_server_name(&executable) {
        return true;
    }
    // The loader takes itself and its options out of the arguments before the program or this library sees them.
    classify::file_name(&executable).starts_with(b"ld-")
        && std::env::args_os().next().is_some_and(|program| is_server_name(program.as_encoded_bytes()))
}

impl Runtime {
    pub(crate) fn new(config: Config, tls: Option<Arc<ClientTls>>, page_cache: Option<PageCache>) -> Self {
        let counters = Arc::new(Counters::default());
        let (images_wanted_sender, images_wanted) = mpsc::channel();
        let peer = Peer {
            connector: Connector {
                address: config.node.clone(),
                tls,
                silence_limit: Some(SILENT_PEER_TIMEOUT),
            },
            volume: config.volume.clone(),
            generation: config.generation,
            session: fastrand::u64(1..),
            compression: config.compress,
        };
        let stream = Stream::new(
            StreamConfig { peer, timeout: config.timeout, system_files: config.system_files.clone() },
            Arc::clone(&counters),
            images_wanted_sender,
        );
        Self {
            rules: Rules {
                system_files: config.system_files.iter().map(|file| file.path.clone()).collect(),
                local_files: config.local_files.clone(),
            },
            pool: PagePool::new(Arc::clone(&stream), Arc::clone(&counters)),
            counters,
            stream,
            fds: FdTable::default(),
            names: Names::default(),
            need: NeedTable::default(),
            page_cache,
            read_ahead: ReadAhead::new(config.read_ahead_len_bytes),
            dirty: DirtyPages::default(),
            log: RedoLog::default(),
            dropped_images: DroppedImages::default(),
            mappings: Mappings::default(),
            stdio: Mutex::default(),
            started: OnceLock::new(),
            images_wanted: Mutex::new(Some(images_wanted)),
            config,
        }
    }

    /// Connects to the node, once, and waits for it.
    ///
    /// # Errors
    /// `EIO` when there is no usable node; a message says why.
    pub fn start(&'static self) -> Result<SessionStart, Errno> {
        self.started.get_or_init(|| {
            let stream = Arc::clone(&self.stream);
            let receiver = self.images_wanted.lock().unwrap_or_else(PoisonError::into_inner).take();
            let connection = real::spawn_quiet("redoubt-log", move || stream.run());
            let stream = Arc::clone(&self.stream);
            let watch = real::spawn_quiet("redoubt-watch", move || stream.watch());
            let helper = real::spawn_quiet("redoubt-help", move || {
                if let Some(receiver) = receiver {
                    self.help(&receiver);
                }
            });
            if let Err(error) = connection.and(watch).and(helper).and(self.start_read_ahead()) {
                self.stream.die(&format!("a thread cannot be started: {error}"));
            }
        });
        let start = self.stream.wait_connected()?;
        self.need.set_floor(start.seq);
        Ok(start)
    }

    fn start_read_ahead(&'static self) -> std::io::Result<()> {
        let Some(cache) = self.page_cache.as_ref().filter(|_| self.read_ahead.is_on()) else { return Ok(()) };
        (0..read_ahead::THREADS)
            .try_for_each(|_| real::spawn_quiet("redoubt-ahead", move || self.read_ahead.run(self, cache)))
    }

    /// Body of the helper thread: sends counters, answers requests for images.
    fn help(&self, images_wanted: &Receiver<ImageWanted>) {
        let mut report_at = Instant::now() + REPORT_INTERVAL;
        while self.stream.death().is_none() {
            match images_wanted.recv_timeout(report_at.saturating_duration_since(Instant::now())) {
                Ok(wanted) => {
                    self.dropped_images.answer(self, &wanted);
                    self.stream.image_answered();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if Instant::now() >= report_at {
                self.report();
                report_at = Instant::now() + REPORT_INTERVAL;
            }
        }
    }

    fn report(&self) {
        if let Some(cache) = &self.page_cache {
            self.counters.raise_to(Counter::ReadAheadUsed, cache.ahead_used());
            if cache.keeps_all() {
                self.counters.raise_to(Counter::CacheEvictions, cache.evictions());
                self.counters.raise_to(Counter::CacheCapacityBytes, cache.capacity_bytes());
            }
        }
        self.stream.send_counters();
    }

    /// At a regular exit of the server: everything it wrote becomes durable, the counters are complete.
    pub fn finish(&self) {
        if self.started.get().is_some() && self.stream.session_start().is_some() {
            for tablespace in self.names.tablespaces() {
                let _ = tablespace.finish_adoption(self);
            }
            // First, because counters are sent only while there is a connection.
            let _ = self.stream.wait_durable(self.stream.end());
            self.report();
        }
    }

    /// Class of a path relative to the data directory.
    pub fn classify(&self, path: &[u8]) -> Class {
        classify::classify(&self.rules, path)
    }
}
