//! A volume: all InnoDB files of one server and the plain files beside them.
//!
//! Directory layout:
//!
//! | name | what |
//! |---|---|
//! | `volume` | identity and generation ([`identity`]) |
//! | `checkpoint` | how far it is applied, and the names as of that point ([`crate::checkpoint`]) |
//! | `log/` | the log device: every logged frame since the oldest needed one ([`crate::log_device`]); a link if it is elsewhere ([`crate::place`]) |
//! | `pages/` | the page store: one file per tablespace incarnation, plus the page journal ([`crate::page_store`]); or a link |
//! | `journal` | a link to the page journal, if that is elsewhere |
//! | `plain/` | contents of plain files |
//! | `mismatch-*` | reports of the self-verification |
//! | `stopped` | a mismatch stopped the volume; the node does not open it while this is there |
//!
//! Threads ([`threads`]): device writer (for what connections do not write themselves) and one that awaits what is
//! being written (W -> D), parser (W -> P), plain files (X), apply (P, D, X -> A), and one
//! that builds long chains early. Connections call [`session`] (the stream) and [`reads`] (pages).
//!
//! Invariants: `A <= P <= W`, `D <= W`, `A <= D`; nothing above D is ever written to pages or plain files, or
//! answered to a read; the generation on disk is never behind one that was given out.
//!
//! Lock order: attaching, receive, device turn, session, dying, names, index locks, marks. No lock but the device turn is held while a
//! device syncs.

mod identity;
mod reads;
mod recovery;
mod rescue;
mod server_log;
mod session;
mod threads;
mod trace;
mod transfer;
mod verify;
mod written;

pub use identity::Identity;
pub use recovery::decode_chunk;
pub use session::{Accepted, Received};
pub use transfer::{Held, Import};

use crate::checkpoint::Checkpoint;
use crate::counters::Counters;
use crate::error::NodeError;
use crate::figures::{Figures, Worker};
use crate::home::{DirectoryHome, Folder, Home};
use crate::index::{CHAIN_CLASSES, LogIndex, PageKey, Table};
use crate::log_buffer::{LogBuffer, Stage};
use crate::mark::{Mark, Point};
use crate::namespace::{Namespace, ObjectEntry};
use crate::options::NodeOptions;
use crate::page_store;
use crate::plain::PlainStore;
use crate::trace::Tracer;
use redoubt_logdev::LogDevice;
use redoubt_pagestore::{ObjectId, PageStore};
use redoubt_redo::Lsn;
use redoubt_sync::thread::JoinHandle;
use redoubt_sync::{Condvar, Mutex, RwLock};
use redoubt_wire::Seq;
use redoubt_wire::control::{LogDeviceStatus, VolumeStatus};
use redoubt_wire::figures::ChainClass;
use redoubt_wire::notice::Notice;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use written::WrittenEnds;

/// Whether a volume works.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RunState {
    Running,
    /// Something must happen outside (room on the disk); the text says what.
    Waiting(String),
    /// For good, until the node is restarted.
    Stopped(String),
}

/// Work for the thread that builds long chains early.
struct LongChain {
    table: Arc<Table>,
    key: PageKey,
}

/// See the module.
pub struct Volume {
    name: String,
    directory: PathBuf,
    /// The same, behind the seam.
    own: Folder,
    options: NodeOptions,
    identity: Mutex<Identity>,
    device: Box<dyn LogDevice>,
    /// What the operator should know about it.
    device_warnings: Vec<String>,
    /// Where the log is.
    log_place: String,
    /// What a pipelined device is writing.
    written_ends: WrittenEnds,
    store: Box<dyn PageStore>,
    store_description: page_store::Description,
    plain: PlainStore,
    buffer: LogBuffer,
    index: LogIndex,
    names: RwLock<Namespace>,
    /// Objects that died in a part of the stream that is not applied yet, with the end of the frame that ended them.
    dying: Mutex<FxHashMap<ObjectId, (Seq, ObjectEntry)>>,
    /// Held while a server attaches.
    attaching: Mutex<()>,
    durable: Mark,
    parsed: Mark,
    applied: Mark,
    /// Where the log ended when the volume was opened.
    recovered_seq: AtomicU64,
    checkpoint: Mutex<Checkpoint>,
    run_state: Mutex<RunState>,
    /// The node ends; whoever is connected comes back to the next one.
    is_shutting_down: AtomicBool,
    /// Signalled when the run state changes, a table is closed, or a hold ends.
    wake: Condvar,
    wake_lock: Mutex<Wake>,
    receive: Mutex<session::Receiver>,
    /// Held by whoever writes to the log device; a buffer for it.
    device_turn: Mutex<Vec<u8>>,
    session: Mutex<Option<session::LogSession>>,
    /// Signalled when a session's connection ends.
    session_ended: Condvar,
    server_log: Mutex<Option<server_log::ServerLog>>,
    /// LSN and Seq of frames with redo, thinned out, oldest first: where to keep the log from.
    redo_positions: Mutex<VecDeque<Point>>,
    long_chains: Mutex<Vec<LongChain>>,
    /// Pages whose stored image was found damaged.
    repairs: Mutex<Vec<PageKey>>,
    mismatches: Mutex<Vec<verify::Mismatch>>,
    counters: Counters,
    figures: Figures,
    tracer: Tracer,
    workers: Vec<Worker>,
    server_counters: Mutex<Vec<(u8, u64)>>,
    connections: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Where the marks of a volume stand at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// W; `None`: just being moved.
    pub received: Option<Seq>,
    /// P.
    pub parsed: Seq,
    /// D.
    pub durable: Seq,
    /// What readers may see of it already; `None`: just being moved.
    pub durable_lsn: Option<Lsn>,
    /// A.
    pub applied: Seq,
}

#[derive(Default)]
struct Wake {
    closed: bool,
    /// Nothing beyond this point may be applied (an export reads the files).
    hold: Option<Seq>,
}

impl Volume {
    /// Creates an empty volume in `directory`, which must not exist.
    ///
    /// # Errors
    /// [`NodeError::Refused`] if it exists; [`NodeError::Io`].
    pub fn create(directory: &Path) -> Result<(), NodeError> {
        if let Err(error) = std::fs::create_dir(directory) {
            if error.kind() == std::io::ErrorKind::AlreadyExists {
                return Err(NodeError::Refused(format!("{} exists already", directory.display())));
            }
            return Err(NodeError::io("create", directory, error));
        }
        Self::create_on(&DirectoryHome::new(directory))
    }

    /// Creates an empty volume on a disk that has none.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn create_on(home: &dyn Home) -> Result<(), NodeError> {
        let own = home.own()?;
        let checkpoint = Checkpoint {
            applied: Point::default(),
            log_start: Point::default(),
            names: Arc::new(Namespace::default()),
        };
        checkpoint.write(&own)?;
        Identity::new().write(&own)
    }

    /// Opens a volume: recovers what is in its log and starts its threads. Reads are served at once; each waits
    /// only until the parser has reached what it needs.
    ///
    /// # Errors
    /// Any [`NodeError`]; nothing was changed that a second try would miss.
    pub fn open(name: &str, directory: &Path, options: &NodeOptions) -> Result<Arc<Self>, NodeError> {
        Self::open_on(name, &DirectoryHome::new(directory), options)
    }

    /// [`Volume::open`], on any disk.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_on(name: &str, home: &dyn Home, options: &NodeOptions) -> Result<Arc<Self>, NodeError> {
        let own = home.own()?;
        Self::check_not_stopped(&own)?;
        let identity = Identity::read(&own)?;
        let checkpoint = Checkpoint::read(&own)?;
        let log = home.log(&identity.volume_id, options)?;
        let (store, store_description) = home.pages(&identity.volume_id, options)?;
        say_opened(name, &log, &*store, &store_description);
        let plain = PlainStore::new(home.plain()?);
        let start = checkpoint.applied;
        let volume = Arc::new(Self {
            name: name.to_owned(),
            directory: own.path().to_owned(),
            own,
            options: options.clone(),
            identity: Mutex::new(identity),
            device: log.device,
            device_warnings: log.warnings,
            log_place: log.place,
            written_ends: WrittenEnds::default(),
            store,
            store_description,
            plain,
            buffer: LogBuffer::new(options.ring_len_bytes, start),
            index: LogIndex::new(start),
            names: RwLock::new((*checkpoint.names).clone()),
            dying: Mutex::default(),
            attaching: Mutex::default(),
            durable: Mark::at(start),
            parsed: Mark::at(start),
            applied: Mark::at(start),
            recovered_seq: AtomicU64::new(start.seq.0),
            checkpoint: Mutex::new(checkpoint),
            run_state: Mutex::new(RunState::Running),
            is_shutting_down: AtomicBool::new(false),
            wake: Condvar::new(),
            wake_lock: Mutex::default(),
            receive: Mutex::default(),
            device_turn: Mutex::default(),
            session: Mutex::new(None),
            session_ended: Condvar::new(),
            server_log: Mutex::new(None),
            redo_positions: Mutex::default(),
            long_chains: Mutex::default(),
            repairs: Mutex::default(),
            mismatches: Mutex::default(),
            counters: Counters::default(),
            figures: Figures::default(),
            tracer: Tracer::default(),
            workers: Worker::several(options.apply_workers),
            server_counters: Mutex::default(),
            connections: AtomicU64::new(0),
            threads: Mutex::default(),
        });
        volume.remove_leftovers()?;
        volume.recover_log()?;
        Self::start_threads(&volume)?;
        Ok(volume)
    }

    /// Name of the volume.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where it stands, without waiting for anybody: for those who watch it at every step.
    pub fn positions(&self) -> Positions {
        Positions {
            received: self.buffer.try_received().map(|received| received.seq),
            parsed: self.parsed.seq(),
            durable: self.durable.seq(),
            durable_lsn: self.durable.try_get().map(|durable| durable.lsn),
            applied: self.applied.seq(),
        }
    }

    /// D, with its LSN.
    pub fn durable(&self) -> Point {
        self.durable.get()
    }

    /// What it counts.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Objects and plain files that the checkpoint does not know were made by frames after it; those frames will
    /// make them again.
    fn remove_leftovers(&self) -> Result<(), NodeError> {
        let names = self.names.read();
        let known: Vec<_> = names.objects().collect();
        for object in self.store.objects()? {
            if !known.contains(&object) {
                self.store.remove(object)?;
            }
        }
        self.plain.remove_others(|file| names.file(file).is_some())
    }

    /// Why the volume does not run, if so.
    pub fn stopped(&self) -> Option<String> {
        match &*self.run_state.lock() {
            RunState::Stopped(reason) => Some(reason.clone()),
            _ => None,
        }
    }

    /// It has stopped only because the node ends. What fails for that is not answered: a lost connection is tried
    /// again, an answer is final.
    pub fn is_shutting_down(&self) -> bool {
        self.is_shutting_down.load(Ordering::Acquire)
    }

    fn check_running(&self) -> Result<(), NodeError> {
        self.stopped().map_or(Ok(()), |reason| Err(NodeError::Stopped(reason)))
    }

    /// Stops the volume for good and tells the server why. Only the first reason counts.
    pub fn stop(&self, reason: &str) {
        {
            let mut state = self.run_state.lock();
            if matches!(*state, RunState::Stopped(_)) {
                return;
            }
            *state = RunState::Stopped(reason.to_owned());
        }
        tracing::error!(volume = self.name, reason, "volume stopped");
        self.notify(&Notice::Stopped { reason: reason.to_owned() });
        self.close();
    }

    fn close(&self) {
        self.buffer.close();
        self.written_ends.close();
        self.plain.close();
        for mark in [&self.durable, &self.parsed, &self.applied] {
            mark.close();
        }
        self.wake_lock.lock().closed = true;
        self.wake.notify_all();
    }

    /// Ends the volume's threads. What is not applied is recovered from the log at the next start.
    pub fn shut_down(&self) {
        {
            let mut state = self.run_state.lock();
            if !matches!(*state, RunState::Stopped(_)) {
                self.is_shutting_down.store(true, Ordering::Release);
                *state = RunState::Stopped("the node is shutting down".to_owned());
            }
        }
        self.close();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!(volume = self.name, "a thread of the volume panicked");
            }
        }
    }

    /// Says why nothing becomes durable for now, to operator and server.
    fn set_waiting(&self, reason: &str) {
        let mut state = self.run_state.lock();
        if *state == RunState::Running {
            *state = RunState::Waiting(reason.to_owned());
            drop(state);
            tracing::warn!(volume = self.name, reason, "volume waits");
            self.notify(&Notice::Waiting { reason: reason.to_owned() });
        }
    }

    fn clear_waiting(&self) {
        let mut state = self.run_state.lock();
        if matches!(*state, RunState::Waiting(_)) {
            *state = RunState::Running;
            drop(state);
            tracing::info!(volume = self.name, "volume goes on");
            self.notify(&Notice::Waiting { reason: String::new() });
        }
    }

    /// The server's own checkpoint, as of the names given.
    fn server_checkpoint(names: &Namespace) -> Option<Lsn> {
        use redoubt_redo::mariadb::log_file::Checkpoint as Block;
        let [first, second] = &names.log_file()?.checkpoints;
        Block::newest(Block::parse(first), Block::parse(second)).map(|block| block.checkpoint_lsn)
    }

    /// State for `redoubt status`.
    pub fn status(&self) -> VolumeStatus {
        let (state, reason) = match &*self.run_state.lock() {
            RunState::Running => ("ready", String::new()),
            RunState::Waiting(reason) => ("waiting", reason.clone()),
            RunState::Stopped(reason) => ("stopped", reason.clone()),
        };
        let attached = self.session.lock().as_ref().is_some_and(session::LogSession::is_connected);
        let held = self.wake_lock.lock().hold.is_some();
        let state = match state {
            "ready" if held => "exporting",
            "ready" if attached => "attached",
            other => other,
        };
        let (index_pages, index_runs, index_tables) = self.index.sizes();
        let identity = self.identity.lock().clone();
        let names = self.names.read();
        let (_, full_wait_times) = self.buffer.full_waits();
        let (info, device) = (self.device.info(), self.device.stats());
        let received = self.buffer.received();
        VolumeStatus {
            name: self.name.clone(),
            volume_id: identity.volume_id,
            state: state.to_owned(),
            reason,
            generation: identity.generation,
            attached_by: identity.attached_by,
            w_lsn: received.lsn.0,
            d_lsn: self.durable.get().lsn.0,
            p_lsn: self.parsed.get().lsn.0,
            a_lsn: self.applied.get().lsn_seen_from(received).0,
            server_checkpoint_lsn: Self::server_checkpoint(&names).map_or(0, |lsn| lsn.0),
            ring_used_bytes: self.buffer.used_bytes(),
            ring_len_bytes: self.buffer.len_bytes(),
            ring_waits_for: self.buffer.waits_for().map_or("", |stage| stage.name()).to_owned(),
            ring_wait_micros: Stage::ALL
                .map(|stage| (stage.name().to_owned(), full_wait_times[stage as usize].as_micros() as u64))
                .into(),
            index_pages,
            index_runs,
            index_tables,
            chain_lengths: chain_lengths(self.index.chain_classes()),
            page_read_times: self.figures.page_read.snapshot(),
            log_write_times: self.figures.log_write.snapshot(),
            apply_workers: self.workers.iter().map(Worker::snapshot).collect(),
            files: names.files().count() as u64,
            log_device: LogDeviceStatus {
                kind: info.kind.name().to_owned(),
                detail: info.detail,
                directory: self.log_place.clone(),
                write_unit_bytes: info.write_unit_bytes as u64,
                max_in_flight: info.max_in_flight as u64,
                written_per_appended_byte: per_byte(device.bytes_written, device.bytes_appended),
                warnings: self.device_warnings.clone(),
            },
            page_store: self
                .store_description
                .status(&*self.store, self.counters.redo_bytes_applied.load(Ordering::Relaxed)),
            counters: self.all_counters(),
            server_counters: session::name_counters(&self.server_counters.lock()),
        }
    }

    /// Everything counted, by itself or by its devices.
    fn all_counters(&self) -> BTreeMap<String, u64> {
        let mut counters = self.counters.snapshot();
        let (device, store) = (self.device.stats(), self.store.stats());
        let (full_waits, full_wait_times) = self.buffer.full_waits();
        counters.extend(
            [
                ("log_device_appended_bytes", device.bytes_appended),
                ("log_device_written_bytes", device.bytes_written),
                ("log_device_writes", device.syncs),
                ("page_home_written_bytes", store.bytes_written_home),
                ("page_journal_written_bytes", store.bytes_written_journal),
                ("page_home_writes", store.home_writes),
                ("pages_written_home", store.pages_written_home),
                ("page_images_superseded", store.images_superseded),
                ("page_store_syncs", store.syncs),
                ("ring_full_waits", full_waits),
                ("ring_full_wait_micros", full_wait_times.iter().sum::<Duration>().as_micros() as u64),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        counters
    }

    fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// What a volume is on, for the node's log.
fn say_opened(
    name: &str,
    log: &crate::log_device::Opened,
    store: &dyn PageStore,
    description: &page_store::Description,
) {
    let info = log.device.info();
    tracing::info!(volume = name, device = info.kind.name(), reason = log.reason, "log device opened");
    for warning in &log.warnings {
        tracing::warn!(volume = name, warning, "log device");
    }
    let info = store.info();
    tracing::info!(
        volume = name,
        protection = info.protection.name(),
        reason = info.reason,
        "page store opened"
    );
    for warning in description.warnings() {
        tracing::warn!(volume = name, warning, "page store");
    }
}

/// 0 if there is nothing yet.
fn per_byte(bytes: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { bytes as f64 / of as f64 }
}

/// The classes up to the last that has pages.
fn chain_lengths(classes: [u64; CHAIN_CLASSES]) -> Vec<ChainClass> {
    let used = classes.iter().rposition(|pages| *pages > 0).map_or(0, |last| last + 1);
    let bound = |class: usize| (class + 1 < CHAIN_CLASSES).then(|| (2u64 << class) - 1);
    let of = |(class, pages): (usize, &u64)| ChainClass { longest: bound(class), pages: *pages };
    classes.iter().take(used).enumerate().map(of).collect()
}
