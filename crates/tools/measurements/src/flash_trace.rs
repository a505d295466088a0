//! Block traces of real servers: every write to the disk under them, tagged by what it was for.
//!
//! Each [`Layout`] gets a disk of its own ([`disk`]) with the same loaded database ([`seed`]). Clients of TPC-C
//! ([`redoubt_workload::tpcc`]) do a warm-up and then a fixed number of transactions, so that layouts are compared by
//! their writes for the same work. The kernel's trace events record the requests to the disk ([`recorder`]); the
//! extents of the files give the purpose of each ([`extents`], [`origin`]). [`collect`] joins the two into a trace of
//! `redoubt-flash`.
//!
//! Invariant: a recording counts only if it is complete. The sectors of all recorded writes must be, exactly, what
//! the device itself counted between two moments at which it was idle; a lost trace event is an error.
//!
//! Needs root, loop devices and tracefs; [`Error::Unavailable`] says what is missing. Everything made is removed
//! again, even when this process is killed ([`guard`]).

mod collect;
pub mod disk;
mod extents;
mod guard;
mod origin;
mod recorder;
mod report;
mod seed;
mod system;
#[cfg(test)]
mod tests;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use redoubt_flash::trace::Origin;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::load::{self, Until, Worker};
use redoubt_workload::tpcc::{Client, Scale, Tpcc};

use collect::{Collector, Snapshots};
pub use collect::{OriginSum, Window};
use disk::{DeviceCounters, Disk, JournalMode};
pub use recorder::Totals;
use recorder::{Mark, Recorder};
pub use report::Recording;
use seed::Seed;
use system::{Counters, System};

/// Pause between two snapshots of the files.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);
/// A mark for every so many transactions.
const MARK_EVERY: u64 = 50;
/// Transactions that fill so much of a node's ring, rather more than fewer: each gives it 28 KiB of page images or
/// more.
const FILL_TRANSACTIONS_PER_MIB: u64 = 40;
/// Size of the journal of file systems that journal only metadata; the default of ext4 on a disk of this order.
const METADATA_JOURNAL_MIB: u64 = 64;

/// Protection of pages, and the process that writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Layout {
    /// A server as it comes: doublewrite on, ext4 `data=ordered`.
    StockDoublewrite,
    /// The same with doublewrite off: a power cut can tear its pages.
    Stock,
    /// Doublewrite off, ext4 `data=journal`: pages go through the file system's journal.
    DataJournal,
    /// A storage node that protects pages with a ring of page images.
    RedoubtJournal,
    /// A storage node that protects pages with a doublewrite area.
    RedoubtDoublewrite,
    /// A storage node that writes pages in place only, told that its disk does not tear them.
    RedoubtAtomic,
}

impl Layout {
    /// Name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::StockDoublewrite => "stock-doublewrite",
            Self::Stock => "stock",
            Self::DataJournal => "data-journal",
            Self::RedoubtJournal => "redoubt-journal",
            Self::RedoubtDoublewrite => "redoubt-doublewrite",
            Self::RedoubtAtomic => "redoubt-atomic",
        }
    }

    /// Its place in the table: traces are read in the order of their names, and the first is what ratios refer to.
    fn number(self) -> u32 {
        match self {
            Self::StockDoublewrite => 1,
            Self::Stock => 2,
            Self::DataJournal => 3,
            Self::RedoubtDoublewrite => 4,
            Self::RedoubtJournal => 5,
            Self::RedoubtAtomic => 6,
        }
    }

    /// True when the size of the journal of pages is a parameter.
    fn has_page_journal(self) -> bool {
        matches!(self, Self::DataJournal | Self::RedoubtJournal)
    }
}

/// What to record.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Layouts to record
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [
        Layout::StockDoublewrite, Layout::Stock, Layout::DataJournal,
        Layout::RedoubtJournal, Layout::RedoubtDoublewrite, Layout::RedoubtAtomic,
    ])]
    pub layout: Vec<Layout>,
    /// Directory for the traces, the disk images and the loaded database
    #[arg(long, value_name = "DIR", default_value = "target/flash")]
    pub out: PathBuf,
    /// Transactions committed in each recording
    #[arg(long, value_name = "N", default_value_t = 40_000)]
    pub transactions: u64,
    /// Transactions committed before each recording [default: half as many, and more where a large journal must fill]
    #[arg(long, value_name = "N")]
    pub warm_up: Option<u64>,
    /// Warehouses
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub warehouses: u32,
    /// Customers of a district
    #[arg(long, value_name = "N", default_value_t = 3000)]
    pub customers: u32,
    /// Items
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub items: u32,
    /// Clients
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub clients: u32,
    /// Buffer pool of each server, MiB
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    pub pool: u32,
    /// Redo log of each server, MiB
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    pub log_mib: u32,
    /// Size of the disk, MiB
    #[arg(long, value_name = "MIB", default_value_t = 3072)]
    pub image_mib: u64,
    /// Sizes of the journal of pages, in units of 2^20 bytes, where there is one: the file system's or the node's
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [128, 1280])]
    pub journal_mb: Vec<u64>,
    /// Added to the names of the traces and to their rows of the table, for a recording with other sizes
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub suffix: String,
    /// Further options of the storage node, separated by blanks
    #[arg(long, value_name = "OPTIONS", default_value = "", allow_hyphen_values = true)]
    pub node_options: String,
}

impl Options {
    fn scale(&self) -> Scale {
        // Without foreign keys, as recordings always were.
        let (customers, items) = (self.customers, self.items);
        Scale { customers, items, foreign_keys: false, ..Scale::new(self.warehouses) }
    }

    /// A ring of page images writes pages home only when it has come round.
    fn warm_up(&self, layout: Layout, journal_mib: u64) -> u64 {
        let fill = if layout == Layout::RedoubtJournal { journal_mib * FILL_TRANSACTIONS_PER_MIB } else { 0 };
        self.warm_up.unwrap_or(fill.max(self.transactions / 2)).max(1)
    }

    fn node_arguments(&self) -> impl Iterator<Item = &str> {
        self.node_options.split_whitespace()
    }
}

/// Records all layouts, and hands each recording over when it is done.
///
/// # Errors
/// [`Error::Unavailable`] where this machine cannot record; any error of a server or of the load; an incomplete
/// recording.
pub fn run(options: &Options, mut done: impl FnMut(&Recording) -> Result<()>) -> Result<()> {
    check()?;
    if options.transactions == 0 {
        return Err(Error::State("--transactions 0: there must be one at least".into()));
    }
    std::fs::create_dir_all(&options.out).map_err(Error::io_at("create", &options.out))?;
    let seed = Seed::prepare(options)?;
    for layout in &options.layout {
        let sizes: &[u64] =
            if layout.has_page_journal() { &options.journal_mb } else { &[METADATA_JOURNAL_MIB] };
        for journal_mib in sizes {
            done(&record(*layout, *journal_mib, &seed, options)?)?;
        }
    }
    Ok(())
}

/// Says whether this machine can record.
///
/// # Errors
/// [`Error::Unavailable`] with what is missing.
pub fn check() -> Result<()> {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
    if !is_root {
        return Err(Error::Unavailable("recording what a disk is asked to do needs root".into()));
    }
    if !Path::new("/dev/loop-control").exists() {
        return Err(Error::Unavailable("there are no loop devices (/dev/loop-control)".into()));
    }
    recorder::check()
}

/// Records one layout.
fn record(layout: Layout, journal_mib: u64, seed: &Seed, options: &Options) -> Result<Recording> {
    let mut name = format!("{}-{}", layout.number(), layout.name());
    if layout.has_page_journal() {
        // Zeroes in front, so that names are in the order of sizes.
        name = format!("{name}-{journal_mib:04}");
    }
    if !options.suffix.is_empty() {
        // Sorted after the name alone, which ends in a dot.
        name = format!("{name}_{}", options.suffix.replace(' ', "-"));
    }
    eprintln!("{name}: preparing");
    let file_system_journal = if layout == Layout::DataJournal { journal_mib } else { METADATA_JOURNAL_MIB };
    let disk = Disk::create(&options.out, options.image_mib, file_system_journal, layout.journal_mode())?;
    let mut system = System::install(layout, journal_mib, &disk, seed, options)?;
    let before = disk.settle()?;
    let trace = options.out.join(format!("{name}.trace"));
    let part = options.out.join(format!("{name}.{}.part", std::process::id()));
    let snapshots = Snapshots::default();
    let first = take_snapshot(&system, &disk)?;
    let collector = Collector::create(&part, first, Arc::clone(&snapshots))?;
    let recorder = Recorder::start(disk.device_number()?, collector)?;
    system.start()?;
    let users = disk.users(&system.process_ids())?;
    eprintln!("{name}: running");
    let warm_up = options.warm_up(layout, journal_mib);
    let run = match run_load(&system, &disk, (&recorder, &snapshots), warm_up, options) {
        // A recording that failed is why the load did.
        Err(error) if recorder.has_ended() => return Err(recorder.stop().err().unwrap_or(error)),
        run => run?,
    };
    drop(users);
    system.stop()?;
    let after = disk.unmount()?;
    let (collector, totals) = recorder.stop()?;
    require_complete(&totals, before, after)?;
    let window = collector.finish()?;
    let recording = Recording { name, layout, journal_mib, window, totals, run };
    recording.require_batches()?;
    recording.save(&part, &trace, &disk, seed, options)?;
    Ok(recording)
}

/// Results of the load, and the counters at both ends of the window.
struct LoadRun {
    warm_up: u64,
    retries: u64,
    begin: Counters,
    end: Counters,
}

/// Runs the load with a snapshot of the files every second, and one after its end.
fn run_load(
    system: &System,
    disk: &Disk,
    (recorder, snapshots): (&Recorder<Collector>, &Snapshots),
    warm_up: u64,
    options: &Options,
) -> Result<LoadRun> {
    let source = system.counter_source();
    let (begin, end) = (Mutex::new(None), Mutex::new(None));
    let last = warm_up + options.transactions;
    let ended = AtomicU64::new(0);
    let committed = || {
        let count = ended.fetch_add(1, Ordering::Relaxed) + 1;
        if recorder.has_ended() {
            return Err(Error::State("the recording has ended before the load".into()));
        }
        // Marks first: reading the counters takes longer than a transaction.
        if count == warm_up {
            recorder.mark(Mark::Begin(count))?;
            keep(&begin, source.read()?);
        } else if count == last {
            recorder.mark(Mark::End(count))?;
            keep(&end, source.read()?);
        } else if count < last && count.is_multiple_of(MARK_EVERY) {
            recorder.mark(Mark::Commits(count))?;
        }
        Ok(())
    };
    let socket = system.socket();
    let tpcc = Tpcc::begin(&socket, options.scale(), seed::SEED, false)?;
    let client = |number| -> Result<Box<dyn Worker + '_>> {
        Ok(Box::new(Marking { client: tpcc.client(&socket, number, 0)?, ended: &committed }))
    };
    let clients: Vec<_> = (0..options.clients).map(client).collect::<Result<_>>()?;
    std::thread::scope(|scope| {
        let (sender, finished) = mpsc::channel();
        scope.spawn(move || {
            let until = Until::Transactions(last);
            // The receiver goes away only with an error of its own.
            let _ = sender.send(load::run(clients, 0, until, || Ok(()), |_| {}));
        });
        loop {
            let window = match finished.recv_timeout(SNAPSHOT_INTERVAL) {
                Ok(window) => Some(window?),
                Err(mpsc::RecvTimeoutError::Timeout) => None,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(Error::State("the load panicked".into()));
                }
            };
            // Without a reader the snapshots would pile up; stopping says what it met.
            if !recorder.has_ended() {
                let snapshot = take_snapshot(system, disk)?;
                if let Ok(mut all) = snapshots.lock() {
                    all.push_back(Arc::new(snapshot));
                }
                recorder.mark(Mark::Snapshot)?;
            }
            if window.is_some() {
                return Ok(());
            }
        }
    })?;
    let counters = |slot: Mutex<Option<Counters>>| {
        slot.into_inner().ok().flatten().ok_or_else(|| Error::State("the load ended too early".into()))
    };
    // The consistency conditions would take longer than the run.
    tpcc.check_growth(&socket)?;
    tpcc.check_counts(&socket)?;
    let retries = tpcc.tally().retries();
    Ok(LoadRun { retries, warm_up, begin: counters(begin)?, end: counters(end)? })
}

/// A client that says of each transaction that it has ended.
struct Marking<'a> {
    client: Client,
    ended: &'a (dyn Fn() -> Result<()> + Sync),
}

impl Worker for Marking<'_> {
    fn choose(&mut self) -> Duration {
        self.client.choose()
    }

    fn run(&mut self) -> Result<u8> {
        let kind = self.client.run()?;
        (self.ended)().map(|()| kind)
    }
}

fn keep(slot: &Mutex<Option<Counters>>, counters: Counters) {
    if let Ok(mut slot) = slot.lock() {
        *slot = Some(counters);
    }
}

fn take_snapshot(system: &System, disk: &Disk) -> Result<extents::OwnerMap> {
    // With metadata only in it, the file system's journal is metadata.
    let origin = if disk.mode() == JournalMode::Data { Origin::Journal } else { Origin::Metadata };
    let journal: Vec<_> = disk.journal().iter().map(|sectors| (sectors.clone(), origin)).collect();
    extents::snapshot(disk.path(), &|path| system.classify(path), &journal)
}

/// Every sector that the device has written was recorded, and no other.
fn require_complete(totals: &Totals, before: DeviceCounters, after: DeviceCounters) -> Result<()> {
    let counted = after.written_sectors.saturating_sub(before.written_sectors);
    let discarded = after.discarded_sectors.saturating_sub(before.discarded_sectors);
    if (totals.written_sectors, totals.discarded_sectors) == (counted, discarded) {
        return Ok(());
    }
    Err(Error::State(format!(
        "the recording is not complete: it has {} sectors written and {} discarded, the device counted {counted} and \
         {discarded}",
        totals.written_sectors, totals.discarded_sectors
    )))
}
