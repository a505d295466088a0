//! A volume: all InnoDB files of one server and the plain files beside them.
//!
//! Directory layout:
//!
//! | name | what |
//! |---|---|
//! | `volume` | identity and generation ([`identity`]) |
//! | `checkpoint`, `names-*` | how far it is applied, and the names as of that point ([`crate::checkpoint`]) |
//! | `log/` | the log device: every logged frame since the oldest needed one ([`crate::log_device`]); a link if it is elsewhere ([`crate::place`]) |
//! | `pages/` | the page store: one file per tablespace incarnation, plus the page journal ([`crate::page_store`]); or a link |
//! | `journal` | a link to the page journal, if that is elsewhere |
//! | `plain/` | contents of plain files |
//! | `frozen` | position up to which the log is understood, if the parser refused a frame ([`frozen`]) |
//! | `quarantine*` | pages that are set aside, and evidence ([`quarantine`]); none while there are no such pages |
//! | `scrub` | position and findings of the scrub ([`scrub`]) |
//! | `stored-files` | files that page store and plain store must have ([`stored_files`]) |
//! | `mismatch-*` | reports of the self-verification, at most [`verify::REPORTS_MAX`] |
//! | `stopped` | a mismatch stopped the volume; the node does not open it while this is there |
//!
//! A [`Volume`] holds parts and no data of theirs. Each part owns its state and its locks:
//!
//! | part | owns | moves |
//! |---|---|---|
//! | [`context`] | whether the volume works; counters; [`notices`], the way to the server | |
//! | [`session`] | generation, and which server process is connected | |
//! | [`receiving`] | log buffer, log device, which connection may append; [`retention`] of the log | W, D |
//! | [`indexing`] | log index, names, dying objects | P |
//! | [`crate::plain`] | contents of plain files and the queue of their changes | X |
//! | [`applying`] | page store, checkpoint, [`cover`] of the page journal, list of [`stored_files`] | A |
//! | [`repairing`] | stored pages to be written again | |
//! | [`quarantine`] | pages that cannot be built | |
//! | [`scrub`] | how far everything that is stored was read | |
//! | [`export`] | the state that is being exported ([`crate::snapshot`]) | |
//! | [`verify`] | differences that were found; [`healing`] of their pages | |
//! | [`view`] | the moment that readers read | |
//!
//! Flows across parts are in modules without state: [`attach`] (servers come and go), [`clean_end`], [`frozen`], [`reads`],
//! [`server_log`], [`import`], [`plain_files`], [`restored_files`], [`rescue`], [`missing_pages`], [`lost_journal`],
//! [`outdated`], [`trace`], [`status`].
//!
//! Threads: device and durable ([`receiving`]), parser and chains ([`indexing`]), plain files, apply ([`applying`]), scrub.
//!
//! Invariants: `A <= P <= W`, `D <= W`, `A <= D`. Nothing above D is ever written to pages or plain files, or returned
//! by a read. The generation on disk is never older than one that was given out.
//!
//! Lock order: session, then receiving, then indexing, then the rest. No part calls another with a lock of its own
//! held, with two exceptions: a session takes its place in `receiving`; the log is pinned while the checkpoint is read.

mod applying;
mod attach;
mod clean_end;
mod context;
mod cover;
mod export;
mod frozen;
mod healing;
mod identity;
mod import;
mod imported_server;
mod indexing;
mod lost_journal;
mod missing_pages;
mod notices;
mod outdated;
mod plain_files;
mod quarantine;
mod reads;
mod receiving;
mod repairing;
mod rescue;
mod restored_files;
mod retention;
mod scrub;
mod server_log;
mod session;
mod status;
mod stored_files;
mod trace;
mod verify;
mod view;
mod written;

pub use attach::Accepted;
pub use export::{DamagedPages, Export};
pub use identity::{Identity, SERVER_NOT_SAID};
pub use import::{Import, LogShape};
pub use receiving::{Received, decode_chunk};
pub use scrub::{Check, add_closed_time};
pub use verify::{DIFFERENCES_MAX, REPORTS_MAX};
pub use view::{Follower, NextRedo};

use crate::at_rest::{AtRestError, Unlocked};
use crate::checkpoint::CheckpointFiles;
use crate::construct::{Builder, StoredPages, VerifyCase};
use crate::counters::Counters;
use crate::error::NodeError;
use crate::home::{DirectoryHome, Home};
use crate::index::PageKey;
use crate::mark::{Point, WaitEnd};
use crate::namespace::Namespace;
use crate::options::NodeOptions;
use crate::page_store;
use crate::plain::PlainStore;
use applying::{Applying, Sources};
use context::{Context, Waiter};
use export::Exports;
use frozen::{Frozen, LogExtent};
use indexing::{Described, Indexing, close_table_at};
use lost_journal::Opened;
use quarantine::QuarantineFile;
use receiving::{Receiving, Recovered};
use redoubt_logdev::Held;
use redoubt_pagestore::PageStore;
use redoubt_redo::Lsn;
use redoubt_sync::planted::{Bug, is_planted};
use redoubt_sync::thread::JoinHandle;
use redoubt_sync::{Mutex, time};
use redoubt_transport::Packing;
use redoubt_wire::Seq;
use rescue::Rebuilding;
use scrub::Scrub;
use session::Session;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use verify::Verification;

/// A volume: all InnoDB files of one server and the plain files beside them.
pub struct Volume {
    context: Arc<Context>,
    session: Session,
    receiving: Receiving,
    indexing: Indexing,
    plain: PlainStore,
    applying: Applying,
    quarantine: QuarantineFile,
    scrub: Scrub,
    exports: Exports,
    verification: Verification,
    /// The moment that readers read.
    moment: view::CurrentMoment,
    /// The redo log file that a starting server reads.
    server_log: Mutex<Option<server_log::ServerLog>>,
    /// End of the log when the volume was opened.
    recovered_seq: AtomicU64,
    /// Its log when it was opened.
    log_extent: LogExtent,
    /// It stops to be opened again as a frozen volume.
    freezes: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Its key, if it is encrypted. The last field: it is dropped after the volume's files are closed.
    unlocked: Option<Arc<Unlocked>>,
}

/// Body of a thread of a volume.
type Loop = fn(&Volume) -> Result<(), NodeError>;

/// Positions of a volume's marks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// W; `None`: just being moved.
    pub received: Option<Point>,
    /// P.
    pub parsed: Seq,
    /// D.
    pub durable: Seq,
    /// Newest LSN that readers may see; `None`: just being moved.
    pub durable_lsn: Option<Lsn>,
    /// A.
    pub applied: Seq,
}

impl Volume {
    /// Creates an empty volume on a disk that has none.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn create_on(home: &dyn Home) -> Result<(), NodeError> {
        let own = home.own()?;
        CheckpointFiles::create(&own, &Namespace::default())?;
        Identity::at(home).write(&own)
    }

    /// Opens a volume: recovers the frames in its log and starts its threads. Reads are served at once; each waits only
    /// until the parser has reached its required position.
    ///
    /// # Errors
    /// Any [`NodeError`]; nothing was changed that a second try would miss.
    pub fn open(name: &str, directory: &Path, options: &NodeOptions) -> Result<Arc<Self>, NodeError> {
        Self::open_on(name, &DirectoryHome::open(name, directory, options)?, options)
    }

    /// [`Volume::open`], on any disk.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_on(name: &str, home: &dyn Home, options: &NodeOptions) -> Result<Arc<Self>, NodeError> {
        let own = home.own()?;
        verify::check_not_stopped(&own)?;
        let identity = Identity::read(&own)?;
        if identity.is_encrypted && home.unlocked().is_none() {
            return Err(AtRestError::InClear { path: own.path().to_owned() }.into());
        }
        let (files, mut checkpoint) = CheckpointFiles::open(&own)?;
        if let Some(family) = identity.family_with_log(&own, checkpoint.names.family_of_log())? {
            Arc::make_mut(&mut checkpoint.names).set_family(family);
        }
        // Before anything is changed: opening the log may cut off its end, and opening the pages writes pages.
        home.check_pages(&identity.volume_id, options)?;
        let noted = Frozen::read(&own, &identity)?;
        let from = checkpoint.applied.seq;
        let held = Held { from, to: noted.as_ref().map_or(from, |noted| noted.log_durable_end().max(from)) };
        let log = home.log(&identity.volume_id, options, held)?;
        say_log_opened(name, &log);
        let log_extent = LogExtent::of(&log, identity.frozen_changes_end);
        let context = Arc::new(Context::new(name, own, options));
        let (applied, log_start) = (checkpoint.applied, checkpoint.log_start);
        let receiving = Receiving::new(&context, log, applied);
        // An older build may have given up the log before that.
        checkpoint.cover = checkpoint.cover.filter(|cover| cover.seq >= receiving.device_start());
        let Opened { store, description, lost } =
            lost_journal::open_pages(home, &identity.volume_id, options, (&receiving, &checkpoint))?;
        identity.raise_format(&context.own)?;
        files.renew()?;
        say_pages_opened(name, &*store, &description);
        receiving.retention.begin(checkpoint.kept_from());
        let names = (*checkpoint.names).clone();
        let lists_files = files.lists_files();
        let quarantine = QuarantineFile::open(&context, identity.has_quarantine, &names)?;
        let scrub = Scrub::open(&context)?;
        scrub.list_found(&quarantine, &names);
        let volume = Arc::new(Self {
            session: Session::new(&context, identity),
            receiving,
            indexing: Indexing::new(&context, applied, names),
            plain: PlainStore::new(home.plain()?),
            applying: Applying::new(&context, store, description, (files, checkpoint)),
            quarantine,
            scrub,
            exports: Exports::new(&context),
            verification: Verification::new(&context),
            moment: view::CurrentMoment::default(),
            server_log: Mutex::default(),
            recovered_seq: AtomicU64::new(applied.seq.0),
            log_extent,
            freezes: AtomicBool::new(false),
            threads: Mutex::default(),
            context,
            unlocked: home.unlocked().cloned(),
        });
        // Before anything is changed.
        volume.plain.load_checksums(lists_files)?;
        volume.remove_leftovers()?;
        volume.check_stored_files(lists_files)?;
        if let Some(lost) = &lost {
            volume.rebuild_lost_pages(lost)?;
        }
        if noted.is_none() {
            Self::begin_unfrozen(&volume.session)?;
        }
        let started = Self::recover_and_start(&volume, log_start, applied, noted.as_ref());
        if started.is_err() {
            volume.shut_down();
        }
        started.map(|()| volume)
    }

    fn recover_and_start(
        volume: &Arc<Self>,
        log_start: Point,
        applied: Point,
        noted: Option<&Frozen>,
    ) -> Result<(), NodeError> {
        // The parser indexes the frames while they are read back. Nothing else uses the volume before all are read.
        Self::start_thread(volume, "parser", |volume| {
            let rebuilding = Rebuilding(volume);
            let pages = StoredPages { rescue: Some(&rebuilding), ..volume.stored_pages() };
            let parsed = volume.indexing.run_parser(&volume.receiving.buffer, &volume.plain, pages);
            parsed.map_err(|error| volume.freeze(error))
        })?;
        let limit = noted.map(|noted| noted.point().seq);
        let Recovered { end: recovered, refusal } = volume.receiving.recover(log_start, applied, limit)?;
        volume.freeze_at_start(recovered, noted, refusal.as_ref())?;
        volume.recovered_seq.store(recovered.seq.0, Ordering::Release);
        // The recovered frames are complete and are applied together.
        volume.receiving.buffer.push_recovered(close_table_at(recovered));
        let loops: [(&str, Loop); 5] = [
            ("device", |volume| volume.receiving.run_device()),
            ("durable", |volume| volume.receiving.run_durable()),
            ("plain", Self::run_plain),
            ("apply", Self::run_apply),
            ("chains", Self::run_chains),
        ];
        loops.into_iter().try_for_each(|(what, run)| Self::start_thread(volume, what, run))?;
        if volume.context.options.scrub.period.is_some() {
            Self::start_thread(volume, "scrub", Self::run_scrub)?;
        }
        Ok(())
    }

    /// Removes objects and plain files that are not in the checkpoint: frames after it made them, and will make them
    /// again.
    fn remove_leftovers(&self) -> Result<(), NodeError> {
        let names = self.indexing.names.read();
        self.applying.remove_leftovers(&names)?;
        self.plain.remove_others(|file| names.file(file).is_some())
    }

    fn start_thread(volume: &Arc<Self>, what: &'static str, run: Loop) -> Result<(), NodeError> {
        let of = Arc::clone(volume);
        let thread = redoubt_sync::thread::Builder::new()
            .name(format!("{what}-{}", volume.context.name))
            .spawn(move || {
                // A thread that ended silently would block every thread that waits for it.
                match std::panic::catch_unwind(AssertUnwindSafe(|| run(&of))) {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => of.stop(&error.to_string()),
                    Err(_) => of.stop(&format!(
                        "its {what} thread met a defect of the node; see the node's error output"
                    )),
                }
            })
            .map_err(|error| NodeError::io("start thread for", volume.directory(), error))?;
        volume.threads.lock().push(thread);
        Ok(())
    }

    /// Executes changes of plain files once they are durable.
    fn run_plain(&self) -> Result<(), NodeError> {
        while let Some((seq, change)) = self.plain.next() {
            // The change is durable when D is past its first byte: frames become durable whole.
            let is_durable = is_planted(Bug::PlainChangeBeforeDurable)
                || self.receiving.durable().wait_for(Seq(seq.0 + 1), None) == WaitEnd::Reached;
            if !is_durable {
                return Ok(());
            }
            self.exports.before_change(seq, &change, &self.plain);
            self.context.with_retry(Waiter::PlainFiles, || self.plain.execute(&change))?;
            self.plain.done();
        }
        Ok(())
    }

    fn run_apply(&self) -> Result<(), NodeError> {
        let recovered = Seq(self.recovered_seq.load(Ordering::Acquire));
        let is_closed = || (self.indexing.index.open_table().start().seq >= recovered).then_some(());
        if !self.wait_recovered() || self.context.wait_for_work(is_closed).is_none() {
            return Ok(());
        }
        if self.plain.wait_executed(recovered, None) == WaitEnd::Reached {
            self.report_lost_files();
        }
        let describe = |key: PageKey| self.describe(key);
        let on_verify =
            |builder: &Builder, key: PageKey, case: VerifyCase<'_>| self.verify(builder, key, &case);
        self.applying.run(&Sources {
            receiving: &self.receiving,
            indexing: &self.indexing,
            plain: &self.plain,
            exports: &self.exports,
            quarantine: &self.quarantine,
            set_quarantine_flag: &|has_quarantine| self.session.set_quarantine(has_quarantine),
            pages: StoredPages { rescue: Some(&Rebuilding(self)), ..self.stored_pages() },
            describe: &describe,
            examine: &|keys| self.examine(keys),
            on_verify: &on_verify,
        })
    }

    fn run_chains(&self) -> Result<(), NodeError> {
        if !self.wait_recovered() {
            return Ok(());
        }
        self.indexing.run_chains(
            StoredPages { rescue: Some(&Rebuilding(self)), ..self.stored_pages() },
            &|key| self.describe(key),
            &|| self.build_limit(),
            &|builder, key, case| self.verify_early(builder, key, &case),
        )
    }

    /// Waits until the parser has seen all that was in the log at the start. Records of a tablespace whose end was
    /// durable were left out of the page store. Until the parser reaches that end again, the tablespace seems alive,
    /// and its pages cannot be built. False: the volume is closed.
    fn wait_recovered(&self) -> bool {
        let recovered = Seq(self.recovered_seq.load(Ordering::Acquire));
        self.indexing.parsed().wait_for(recovered, None) == WaitEnd::Reached
    }

    /// Whether [`Volume::wait_recovered`] would not wait.
    fn has_parsed_recovered(&self) -> bool {
        self.indexing.parsed().get().seq >= Seq(self.recovered_seq.load(Ordering::Acquire))
    }

    /// All changes of plain files that the log had at the start are made again.
    fn has_executed_recovered(&self) -> bool {
        let recovered = Seq(self.recovered_seq.load(Ordering::Acquire));
        self.has_parsed_recovered()
            && self.plain.wait_executed(recovered, Some(time::now())) == WaitEnd::Reached
    }

    /// Waits until everything before `point` is in pages and plain files.
    fn wait_applied(&self, point: Point) -> Result<(), NodeError> {
        let is_executed = self.plain.wait_executed(point.seq, None) == WaitEnd::Reached;
        if is_executed && self.applying.applied().wait_for(point.seq, None) == WaitEnd::Reached {
            return Ok(());
        }
        Err(self.context.stopped_error())
    }

    /// The stored pages, damaged ones rebuilt.
    fn stored_pages(&self) -> StoredPages<'_> {
        StoredPages {
            store: &*self.applying.store,
            rescue: Some(self),
            quarantine: Some(&self.quarantine.list),
        }
    }

    /// The names get the family that the identity has, before the first frame that needs it.
    fn note_family(&self) {
        let Some(family) = self.session.identity().family() else { return };
        if self.indexing.names.read().family() != family {
            self.indexing.names.write().set_family(family);
            self.applying.set_family(family);
        }
    }

    /// Identity and format of a page; `None` if its object is dead for good.
    fn describe(&self, key: PageKey) -> Option<Described> {
        let exported = self.exports.unapplied_point();
        // Until its end is durable the object could still come back: a crash would undo the end. In the state of an
        // export it may still be alive.
        let is_over = |died_at| {
            self.receiving.durable().get().seq >= died_at && exported.is_none_or(|at| at >= died_at)
        };
        self.indexing.describe(key, is_over)
    }

    /// Point that pages may be built to: durable, and indexed to the end of each mini-transaction.
    fn build_limit(&self) -> Point {
        let parsed = self.indexing.parsed().get();
        if is_planted(Bug::ReadAboveDurable) {
            return parsed;
        }
        let durable = self.receiving.durable().get();
        Point { seq: durable.seq.min(parsed.seq), lsn: durable.lsn.min(parsed.lsn) }
    }

    /// Name of the volume.
    pub fn name(&self) -> &str {
        &self.context.name
    }

    /// Its identity.
    pub fn identity(&self) -> Identity {
        self.session.identity()
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        self.context.own.path()
    }

    /// Its marks, without waiting: for checks at every step.
    pub fn positions(&self) -> Positions {
        let durable = self.receiving.durable();
        Positions {
            received: self.receiving.buffer.try_received(),
            parsed: self.indexing.parsed().seq(),
            durable: durable.seq(),
            durable_lsn: durable.try_get().map(|durable| durable.lsn),
            applied: self.applying.applied().seq(),
        }
    }

    /// D, with its LSN.
    pub fn durable(&self) -> Point {
        self.receiving.durable().get()
    }

    /// Number of pages and of whole objects that are set aside or that a read has found damaged, and of plain files that are
    /// lost.
    pub fn quarantined(&self) -> u64 {
        self.quarantine.count() + self.lost_files().len() as u64
    }

    /// Counters of the volume.
    pub fn counters(&self) -> &Counters {
        &self.context.counters
    }

    /// Whether replies on page connections are compressed, where the server leaves that to the node.
    pub fn page_packing(&self) -> &Packing {
        &self.context.page_packing
    }

    /// Why the volume does not run, if so.
    pub fn stopped(&self) -> Option<String> {
        self.context.stopped()
    }

    /// It has stopped only because the node ends. A request that fails for this reason is not answered: the server
    /// retries after a lost connection, but an answer is final.
    pub fn is_shutting_down(&self) -> bool {
        self.context.is_shutting_down()
    }

    /// Stops the volume for good and sends the reason to the server. Only the first reason counts.
    pub fn stop(&self, reason: &str) {
        if self.context.stop(reason) {
            self.close();
        }
    }

    /// Number of its threads. Each has a reference to the volume.
    pub fn thread_count(&self) -> usize {
        self.threads.lock().len()
    }

    fn close(&self) {
        self.receiving.close();
        self.plain.close();
        self.indexing.close();
        self.applying.close();
        self.scrub.close();
        self.context.close();
    }

    /// Ends the volume's threads. The unapplied part of the stream is recovered from the log at the next start.
    pub fn shut_down(&self) {
        self.context.begin_shutdown();
        self.close();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!(
                    event = "volume_thread_panicked",
                    volume = self.context.name,
                    "a thread of the volume panicked"
                );
            }
        }
    }
}

/// Logs the log device of a volume.
fn say_log_opened(name: &str, log: &crate::log_device::Opened) {
    let info = log.device.info();
    tracing::info!(
        event = "log_device_opened",
        volume = name,
        device = info.kind.name(),
        reason = log.reason,
        "log device opened"
    );
    for warning in &log.warnings {
        tracing::warn!(event = "log_device_warning", volume = name, warning, "log device");
    }
}

/// Logs the page store of a volume.
fn say_pages_opened(name: &str, store: &dyn PageStore, description: &page_store::Description) {
    let info = store.info();
    tracing::info!(
        event = "page_store_opened",
        volume = name,
        protection = info.protection.name(),
        reason = info.reason,
        "page store opened"
    );
    for warning in description.warnings() {
        tracing::warn!(event = "page_store_warning", volume = name, warning, "page store");
    }
}
