//! Clients that make a history against a running server, or against several that hold the same.
//!
//! Each client draws its transactions from its own random numbers: two to five steps ([`STEPS_MAX`]) over a few
//! registers, reads and appends. A lost connection before COMMIT means that the transaction is aborted, during COMMIT
//! that its end is unknown. A client continues with a new connection; a value is never used twice. When all have ended,
//! one more transaction for each server reads everything.

use redoubt_locks::IgnorePoison;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mysql::Conn;
use mysql::prelude::Queryable;
use redoubt_workload::error::{Error, Result, is_connection_loss, is_outside_group, is_retryable};
use redoubt_workload::process::POLL_INTERVAL;
use redoubt_workload::sql::{connect, connect_within, execute, query_text};

use super::history::{History, Key, Operation, Status, Transaction, Value};

const TABLE: &str = "redoubt_isolation.register";
const CAUSAL: &str = "SET SESSION wsrep_sync_wait = 1";
/// Registers at any time, and after how many transactions of all clients one is replaced by a fresh one: lists stay
/// short.
const LIVE_KEYS: u32 = 6;
const TRANSACTIONS_PER_KEY: u64 = 40;
/// Steps of a transaction, each a read or an append.
const STEPS: std::ops::RangeInclusive<u32> = 2..=STEPS_MAX;
/// The most of them.
pub const STEPS_MAX: u32 = 5;

/// Level of all transactions of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[expect(missing_docs, reason = "names of the SQL standard")]
pub enum Level {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Level {
    /// The levels that are compared.
    pub const ALL: [Self; 3] = [Self::ReadCommitted, Self::RepeatableRead, Self::Serializable];

    /// As in SQL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadCommitted => "READ COMMITTED",
            Self::RepeatableRead => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}

/// How a history is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// Level.
    pub level: Level,
    /// Number of clients.
    pub clients: u32,
    /// Seed of what they do.
    pub seed: u64,
    /// How long a client may go without a connection.
    pub reconnect_timeout: Duration,
    /// A member of a group answers a read when it has all that was committed anywhere before (`wsrep_sync_wait`).
    pub is_causal: bool,
}

/// Running clients.
#[derive(Debug)]
pub struct Workload {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<()>>>,
}

#[derive(Debug)]
struct Shared {
    /// Of the servers; each client keeps to one.
    sockets: Vec<PathBuf>,
    options: Options,
    started: Instant,
    stop: AtomicBool,
    /// Why a client has ended by itself.
    failure: OnceLock<String>,
    next_value: AtomicU64,
    begun: AtomicU64,
    done: Mutex<Vec<Transaction>>,
    changed: Condvar,
}

impl Shared {
    fn done(&self) -> MutexGuard<'_, Vec<Transaction>> {
        self.done.lock().ignore_poison()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Reads everything from a server; from a member of a group all that was committed before.
    fn read_all(&self, socket: &Path) -> Result<Transaction> {
        let mut conn = connect_within(socket, self.options.reconnect_timeout)?;
        execute(&mut conn, CAUSAL)?;
        let began = self.now();
        let statement = format!("SELECT id, list FROM {TABLE}");
        let rows: Vec<(Key, String)> = conn.query(&statement).map_err(Error::sql(&statement))?;
        let mut operations = Vec::new();
        for (key, list) in rows {
            operations.push(Operation::Read(key, parse(&list)?));
        }
        Ok(Transaction { operations, status: Status::Committed, began, ended: self.now() })
    }
}

impl Workload {
    /// Makes an empty table and starts the clients.
    ///
    /// # Errors
    /// [`Error::Sql`], [`Error::Deadline`].
    pub fn start(sockets: Vec<PathBuf>, options: Options) -> Result<Self> {
        let first = sockets.first().ok_or_else(|| Error::State("a history needs a server".into()))?;
        let mut conn = connect_within(first, options.reconnect_timeout)?;
        execute(&mut conn, "CREATE DATABASE IF NOT EXISTS redoubt_isolation")?;
        execute(
            &mut conn,
            &format!(
                "CREATE OR REPLACE TABLE {TABLE} (id INT UNSIGNED PRIMARY KEY, list MEDIUMTEXT NOT NULL) ENGINE=InnoDB"
            ),
        )?;
        for socket in sockets.iter().skip(1) {
            // A member of a group has the table a moment later.
            let mut conn = connect_within(socket, options.reconnect_timeout)?;
            execute(&mut conn, CAUSAL)?;
            query_text(&mut conn, &format!("SELECT COUNT(*) FROM {TABLE}"))?;
        }
        let clients = options.clients;
        let shared = Arc::new(Shared {
            sockets,
            options,
            started: Instant::now(),
            stop: AtomicBool::new(false),
            failure: OnceLock::new(),
            next_value: AtomicU64::new(1),
            begun: AtomicU64::new(0),
            done: Mutex::default(),
            changed: Condvar::new(),
        });
        let threads = (0..clients)
            .map(|client| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    run(&shared, client).inspect_err(|error| {
                        let _ = shared.failure.set(error.to_string());
                        shared.stop.store(true, Ordering::Relaxed);
                    })
                })
            })
            .collect();
        Ok(Self { shared, threads })
    }

    /// Waits until `count` more transactions than now have ended.
    ///
    /// # Errors
    /// [`Error::Deadline`]; [`Error::State`] when a client has failed.
    pub fn wait_for_more(&self, count: usize, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        let mut done = self.shared.done();
        let target = done.len() + count;
        while done.len() < target {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(failure) = self.shared.failure.get() {
                return Err(Error::State(format!("a client has failed: {failure}")));
            }
            if left.is_zero() {
                let detail = format!("{} have ended", done.len());
                return Err(Error::Deadline {
                    what: format!("{target} transactions"),
                    after: timeout,
                    detail,
                });
            }
            let slice = left.min(Duration::from_millis(200));
            done = self.shared.changed.wait_timeout(done, slice).ignore_poison().0;
        }
        Ok(())
    }

    /// Stops the clients, reads everything once more, and returns the history.
    ///
    /// # Errors
    /// The first error of a client, or of the last reads.
    pub fn finish(self) -> Result<History> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap_or_else(|_| Err(Error::State("a client panicked".into())))?;
        }
        let mut last = Vec::new();
        for socket in &self.shared.sockets {
            last.push(self.shared.read_all(socket)?);
        }
        let mut transactions = std::mem::take(&mut *self.shared.done());
        transactions.extend(last);
        Ok(History { transactions })
    }
}

fn run(shared: &Shared, client: u32) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(shared.options.seed ^ (u64::from(client) << 32));
    let mut conn = None;
    while !shared.stopping() {
        let Some(open) = conn.as_mut() else {
            conn = Some(open_connection(shared, client)?);
            continue;
        };
        let (transaction, usable) = one(shared, open, &mut random)?;
        if !usable {
            conn = None;
        }
        shared.done().push(transaction);
        shared.changed.notify_all();
    }
    Ok(())
}

fn open_connection(shared: &Shared, client: u32) -> Result<Conn> {
    let start = Instant::now();
    let sockets = &shared.sockets;
    let socket =
        sockets.get(client as usize % sockets.len()).ok_or_else(|| Error::State("no server".into()))?;
    loop {
        let opened = connect(socket).and_then(|mut conn| {
            let level = shared.options.level.name();
            execute(&mut conn, &format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"))?;
            execute(&mut conn, "SET SESSION innodb_lock_wait_timeout = 2")?;
            if shared.options.is_causal {
                execute(&mut conn, CAUSAL)?;
            }
            Ok(conn)
        });
        match opened {
            Err(error)
                if (error.is_connection_loss() || error.is_outside_group())
                    && start.elapsed() < shared.options.reconnect_timeout =>
            {
                std::thread::sleep(POLL_INTERVAL);
            }
            other => return other,
        }
    }
}

/// One transaction, and whether the connection can be used on.
fn one(shared: &Shared, conn: &mut Conn, random: &mut fastrand::Rng) -> Result<(Transaction, bool)> {
    let began = shared.now();
    let mut operations = Vec::new();
    let ended = steps(shared, conn, random, &mut operations);
    let (status, usable) = match ended {
        Ok(()) => match conn.query_drop("COMMIT") {
            Ok(()) => (Status::Committed, true),
            // Rolled back for certain; anything else leaves it open.
            Err(error) if is_retryable(&error) => (Status::Aborted, conn.query_drop("ROLLBACK").is_ok()),
            Err(error) if is_connection_loss(&error) || is_outside_group(&error) => (Status::Unknown, false),
            Err(error) => return Err(Error::sql("COMMIT")(error)),
        },
        Err(error) if is_retryable(&error) => (Status::Aborted, conn.query_drop("ROLLBACK").is_ok()),
        Err(error) if is_connection_loss(&error) || is_outside_group(&error) => (Status::Aborted, false),
        Err(error) => return Err(Error::sql("a step of a transaction")(error)),
    };
    Ok((Transaction { operations, status, began, ended: shared.now() }, usable))
}

fn steps(
    shared: &Shared,
    conn: &mut Conn,
    random: &mut fastrand::Rng,
    operations: &mut Vec<Operation>,
) -> std::result::Result<(), mysql::Error> {
    conn.query_drop("START TRANSACTION")?;
    let oldest = (shared.begun.fetch_add(1, Ordering::Relaxed) / TRANSACTIONS_PER_KEY) as Key;
    for _ in 0..random.u32(STEPS) {
        let key = oldest + random.u32(..LIVE_KEYS);
        if random.bool() {
            // All of the answer: where a member of a group gives up the transaction, its error may come after the row, and
            // the next statement would begin another transaction.
            let rows: Vec<String> = conn.query(format!("SELECT list FROM {TABLE} WHERE id = {key}"))?;
            let list = rows.first().map_or(Ok(Vec::new()), |list| parse(list));
            // Text that is no list cannot be the work of these clients; it shows as a value without a writer.
            operations.push(Operation::Read(key, list.unwrap_or_else(|_| vec![0])));
        } else {
            let value: Value = shared.next_value.fetch_add(1, Ordering::Relaxed);
            // Noted before it is sent: a value that shows up must have an author, also if the answer is lost.
            operations.push(Operation::Append(key, value));
            conn.query_drop(format!(
                "INSERT INTO {TABLE} VALUES ({key}, '{value}') \
                 ON DUPLICATE KEY UPDATE list = CONCAT(list, ',{value}')"
            ))?;
        }
    }
    Ok(())
}

fn parse(list: &str) -> Result<Vec<Value>> {
    list.split(',')
        .filter(|word| !word.is_empty())
        .map(|word| word.parse().map_err(|_| Error::Parse { what: "a list".into(), detail: list.into() }))
        .collect()
}
