//! A ledger of commits kept outside the database: what was acknowledged must be there, whole.
//!
//! Each client runs transactions of five statements over three tables. All contents follow from (seed,
//! client, sequence), so verification needs nothing but the ledger file and the tables. Per client the
//! sequence numbers grow by one and are never used twice.
//!
//! Ledger file: text lines, each written with one append.
//!
//! | line | meaning |
//! |---|---|
//! | `redoubt-ledger 1 SEED` | header |
//! | `I CLIENT SEQUENCE` | the COMMIT of this transaction is about to be sent |
//! | `A CLIENT SEQUENCE` | the server acknowledged the commit |
//!
//! So a transaction with `A` must be present and whole; one with `I` alone is unknown, and must be whole or
//! absent; one without a line was never committed and must be absent. A torn last line (the client was
//! killed) is ignored, which only makes its transaction weaker by one step.
//!
//! Lock order: the state mutex is held for a file append and never while the server is asked.

mod client;
mod verify;

use redoubt_locks::IgnorePoison;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

pub use verify::{Report, compare_rows, verify};

/// Database the ledger's tables live in.
pub const DATABASE: &str = "redoubt_ledger";
/// Rows of the detail table per transaction.
pub(crate) const DETAILS: u32 = 2;

/// Number of a client, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// Number of a transaction within its client, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

/// The outcome of a transaction, as seen by the client that sent its COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The answer was lost: all or nothing.
    Unknown,
    /// The server answered: all.
    Acknowledged,
}

/// Transactions with their outcomes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries {
    /// Seed of all contents.
    pub seed: u64,
    /// Fate by transaction.
    pub fates: BTreeMap<(ClientId, Sequence), Fate>,
}

impl Entries {
    /// Reads a ledger file.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Parse`] for a file that is not a ledger.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::io_at("read", path))?;
        Self::parse(&text).map_err(|detail| Error::Parse { what: path.display().to_string(), detail })
    }

    /// Reads the files of several ledgers of one seed, with different clients, as one.
    ///
    /// # Errors
    /// As for [`Entries::read`], and [`Error::State`] for files that do not fit together.
    pub fn read_all<P: AsRef<Path>>(paths: &[P]) -> Result<Self> {
        let mut all: Option<Self> = None;
        for path in paths {
            let entries = Self::read(path.as_ref())?;
            let Some(all) = all.as_mut() else {
                all = Some(entries);
                continue;
            };
            let known = entries.fates.keys().find(|key| all.fates.contains_key(*key));
            if entries.seed != all.seed || known.is_some() {
                let path = path.as_ref().display();
                return Err(Error::State(format!("{path} has another seed, or a client of another ledger")));
            }
            all.fates.extend(entries.fates);
        }
        Ok(all.unwrap_or_default())
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        // Without its newline the last line may be cut anywhere, even inside a number.
        let complete = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or(""));
        let mut lines = complete.lines();
        let header = lines.next().unwrap_or_default();
        let seed = header
            .strip_prefix("redoubt-ledger 1 ")
            .and_then(|seed| seed.parse().ok())
            .ok_or_else(|| format!("line 1 is not a ledger header: {header:?}"))?;
        let mut entries = Self { seed, fates: BTreeMap::new() };
        for (index, line) in lines.enumerate() {
            let (fate, key) =
                parse_line(line).ok_or_else(|| format!("line {} is not an entry: {line:?}", index + 2))?;
            entries.fates.insert(key, fate);
        }
        Ok(entries)
    }

    /// Number of acknowledged transactions.
    pub fn acknowledged(&self) -> u64 {
        self.fates.values().filter(|fate| **fate == Fate::Acknowledged).count() as u64
    }

    fn last_sequence(&self, client: ClientId) -> Sequence {
        let range = (client, Sequence(0))..=(client, Sequence(u64::MAX));
        self.fates.range(range).next_back().map_or(Sequence(0), |((_, sequence), _)| *sequence)
    }
}

fn parse_line(line: &str) -> Option<(Fate, (ClientId, Sequence))> {
    let mut words = line.split(' ');
    let fate = match words.next()? {
        "I" => Fate::Unknown,
        "A" => Fate::Acknowledged,
        _ => return None,
    };
    let client = ClientId(words.next()?.parse().ok()?);
    let sequence = Sequence(words.next()?.parse().ok()?);
    words.next().is_none().then_some((fate, (client, sequence)))
}

/// How a ledger is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of clients, each with a thread and a connection.
    pub clients: u32,
    /// Number of the first; ledgers that share a database have clients of their own.
    pub first_client: u32,
    /// Seed of all contents; that of the file counts when there is one.
    pub seed: u64,
    /// How long a client may go without a connection before the run fails.
    pub reconnect_timeout: Duration,
    /// A statement may fail with any error, as on a failing disk: its transaction counts as absent, or as unknown when
    /// it was the COMMIT that failed.
    pub tolerates_errors: bool,
    /// The acknowledged commits are durable by other means than the server's own log: the log of a group. Otherwise the
    /// server has to sync its commits.
    pub is_durable_elsewhere: bool,
    /// Stop by itself after this many acknowledged commits of this run.
    pub stop_after: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clients: 4,
            first_client: 0,
            seed: 1,
            reconnect_timeout: Duration::from_secs(120),
            tolerates_errors: false,
            is_durable_elsewhere: false,
            stop_after: None,
        }
    }
}

/// State shared by the clients.
#[derive(Debug)]
struct Shared {
    seed: u64,
    socket: PathBuf,
    options: Options,
    stop: AtomicBool,
    state: Mutex<LedgerState>,
    changed: Condvar,
}

#[derive(Debug)]
struct LedgerState {
    file: File,
    entries: Entries,
    acknowledged_in_run: u64,
    /// When the commits of this run were acknowledged, and whose they were.
    times: Vec<(ClientId, Instant)>,
    connections_lost: u64,
    failed: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, LedgerState> {
        // A client that panicked has failed the run already; the state itself is always consistent.
        self.state.lock().ignore_poison()
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn record(&self, client: ClientId, sequence: Sequence, fate: Fate) -> Result<()> {
        let mut state = self.state();
        let mark = if fate == Fate::Acknowledged { 'A' } else { 'I' };
        let line = format!("{mark} {} {}\n", client.0, sequence.0);
        state.file.write_all(line.as_bytes()).map_err(Error::io("append to the ledger"))?;
        state.entries.fates.insert((client, sequence), fate);
        if fate == Fate::Acknowledged {
            state.acknowledged_in_run += 1;
            state.times.push((client, Instant::now()));
            if self.options.stop_after.is_some_and(|limit| state.acknowledged_in_run >= limit) {
                self.stop.store(true, Ordering::Relaxed);
            }
            self.changed.notify_all();
        }
        Ok(())
    }
}

/// A running ledger. Dropping it asks the clients to stop and does not wait for them.
#[derive(Debug)]
pub struct Run {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<()>>>,
}

/// Effect of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Commits acknowledged in this run.
    pub acknowledged: u64,
    /// Transactions in the file whose answer was lost.
    pub unknown: u64,
    /// How often a client lost its connection in this run.
    pub connections_lost: u64,
}

impl Run {
    /// Opens or creates the ledger file and its tables, and starts the clients.
    ///
    /// # Errors
    /// [`Error::Violation`] when the server does not make commits durable, since the ledger would prove
    /// nothing; [`Error::Io`], [`Error::Parse`], [`Error::Sql`].
    pub fn start(socket: &Path, file: &Path, options: Options) -> Result<Self> {
        let (file, entries) = open(file, options.seed)?;
        client::create_tables(socket, &options)?;
        let state = LedgerState {
            file,
            entries,
            acknowledged_in_run: 0,
            times: Vec::new(),
            connections_lost: 0,
            failed: false,
        };
        let clients = options.first_client..options.first_client + options.clients;
        let shared = Arc::new(Shared {
            seed: state.entries.seed,
            socket: socket.to_owned(),
            options,
            stop: AtomicBool::new(false),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let threads = clients
            .map(|client| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || client::run(&shared, ClientId(client)))
            })
            .collect();
        Ok(Self { shared, threads })
    }

    /// Commits acknowledged in this run so far.
    pub fn acknowledged(&self) -> u64 {
        self.shared.state().acknowledged_in_run
    }

    /// When each commit of this run was acknowledged, and whose it was, in this order.
    pub fn times(&self) -> Vec<(ClientId, Instant)> {
        self.shared.state().times.clone()
    }

    /// Waits until `count` more commits than now are acknowledged.
    ///
    /// # Errors
    /// [`Error::Deadline`], or [`Error::State`] when a client failed (its error comes from [`Run::stop`]).
    pub fn wait_for_more(&self, count: u64, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.state();
        let target = state.acknowledged_in_run + count;
        while state.acknowledged_in_run < target {
            if state.failed {
                return Err(Error::State("a ledger client failed; stop the run to see why".into()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Deadline {
                    what: format!("{target} acknowledged commits"),
                    after: timeout,
                    detail: format!("{} are acknowledged", state.acknowledged_in_run),
                });
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.ignore_poison().0;
        }
        Ok(())
    }

    /// Returns after `duration`, or earlier when a client failed.
    pub fn run_for(&self, duration: Duration) {
        let deadline = Instant::now() + duration;
        let mut state = self.shared.state();
        while !state.failed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.ignore_poison().0;
        }
    }

    /// Stops the clients after their current transactions and waits for them.
    ///
    /// # Errors
    /// The first error of a client.
    pub fn stop(self) -> Result<Summary> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    /// Waits until the clients end by themselves (`stop_after`) or fail.
    ///
    /// # Errors
    /// The first error of a client.
    pub fn join(mut self) -> Result<Summary> {
        let mut first_error = None;
        for thread in std::mem::take(&mut self.threads) {
            let ended =
                thread.join().unwrap_or_else(|_| Err(Error::State("a ledger client panicked".into())));
            if let Err(error) = ended {
                first_error.get_or_insert(error);
            }
        }
        if let Some(error) = first_error {
            return Err(error);
        }
        let state = self.shared.state();
        let entries = &state.entries;
        Ok(Summary {
            acknowledged: state.acknowledged_in_run,
            unknown: entries.fates.len() as u64 - entries.acknowledged(),
            connections_lost: state.connections_lost,
        })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// Opens the ledger for appending; a new file gets its header, a torn last line is cut off.
fn open(path: &Path, seed: u64) -> Result<(File, Entries)> {
    let known = path.metadata().is_ok_and(|metadata| metadata.len() > 0);
    let entries = if known { Entries::read(path)? } else { Entries { seed, ..Entries::default() } };
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .open(path)
        .map_err(Error::io_at("open", path))?;
    if known {
        let text = std::fs::read(path).map_err(Error::io_at("read", path))?;
        let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(complete as u64).map_err(Error::io_at("cut the torn last line of", path))?;
    } else {
        let header = format!("redoubt-ledger 1 {seed}\n");
        file.write_all(header.as_bytes()).map_err(Error::io_at("write", path))?;
    }
    Ok((file, entries))
}

#[cfg(test)]
mod tests;
