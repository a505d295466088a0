//! Statements beside the ledger that make, fill, rename, alter and drop tables: files come and go. Besides InnoDB's usual
//! ones they are of Aria or, of MySQL, whose MyISAM survives no kill, compressed ones of InnoDB.
//!
//! Any of them may fail; the check afterwards compares both sides.
//!
//! A table's name begins with its engine's letter, since the server does not say the engine of one that it cannot open.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use mysql::Conn;
use redoubt_redo::Family;
use redoubt_workload::check::damaged_tables;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::process::POLL_INTERVAL;
use redoubt_workload::sql::{connect, execute};

/// Database of these tables.
pub const DATABASE: &str = "redoubt_churn";
const TABLES: u32 = 6;

/// The running thread.
#[derive(Debug)]
pub struct Churn {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Churned>,
}

/// How its statements ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Churned {
    /// Succeeded.
    pub done: u64,
    /// Failed, also those about a table that is not there.
    pub failed: u64,
}

impl Churn {
    /// Starts.
    pub fn start(socket: &Path, family: Family, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (of_thread, socket) = (Arc::clone(&stop), socket.to_owned());
        Self { stop, thread: std::thread::spawn(move || run(&socket, family, seed, &of_thread)) }
    }

    /// Stops after the statement that runs.
    pub fn stop(self) -> Churned {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

fn run(socket: &Path, family: Family, seed: u64, stop: &AtomicBool) -> Churned {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut conn: Option<Conn> = None;
    let mut churned = Churned::default();
    while !stop.load(Ordering::Relaxed) {
        let Some(open) = conn.as_mut() else {
            conn = connect(socket).ok();
            match conn.as_mut() {
                // Tables that exist are used again; a failure shows with the next statement.
                Some(open) => drop(execute(open, &format!("CREATE DATABASE IF NOT EXISTS {DATABASE}"))),
                None => std::thread::sleep(POLL_INTERVAL),
            }
            continue;
        };
        match execute(open, &statement(family, &mut random)) {
            Ok(()) => churned.done += 1,
            Err(error) => {
                churned.failed += 1;
                if error.is_connection_loss() {
                    conn = None;
                }
            }
        }
    }
    churned
}

/// An engine of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    InnoDb,
    /// MySQL: pages that InnoDB compresses.
    InnoDbCompressed,
    Aria,
}

impl Engine {
    /// The first letter of its tables.
    const fn letter(self) -> char {
        match self {
            Self::InnoDb => 't',
            Self::InnoDbCompressed => 'c',
            Self::Aria => ARIA_LETTER,
        }
    }

    const fn options(self) -> &'static str {
        match self {
            Self::InnoDb => "InnoDB",
            Self::InnoDbCompressed => "InnoDB ROW_FORMAT=COMPRESSED",
            Self::Aria => "Aria",
        }
    }
}

const ARIA_LETTER: char = 'a';

fn statement(family: Family, random: &mut fastrand::Rng) -> String {
    let engine = match family {
        _ if random.bool() => Engine::InnoDb,
        Family::MariaDb => Engine::Aria,
        Family::MySql => Engine::InnoDbCompressed,
    };
    let name = |random: &mut fastrand::Rng| format!("{DATABASE}.{}{}", engine.letter(), random.u32(..TABLES));
    let table = name(random);
    match random.u32(..12) {
        0..=2 => format!(
            "CREATE TABLE IF NOT EXISTS {table} (a INT AUTO_INCREMENT PRIMARY KEY, b BLOB, c INT, KEY(c)) ENGINE={}",
            engine.options()
        ),
        3..=6 => format!(
            "INSERT INTO {table} (b, c) WITH RECURSIVE s (seq) AS \
             (SELECT 1 UNION ALL SELECT seq + 1 FROM s WHERE seq < {}) SELECT RANDOM_BYTES({}), seq FROM s",
            random.u32(1..60),
            random.u32(1..800)
        ),
        7 => format!("DELETE FROM {table} WHERE c < {}", random.u32(..60)),
        8 => format!("RENAME TABLE {table} TO {}", name(random)),
        9 => format!("TRUNCATE TABLE {table}"),
        10 => format!("ALTER TABLE {table} FORCE"),
        _ => format!("DROP TABLE IF EXISTS {table}"),
    }
}

/// Checks the tables; returns how many of Aria are damaged.
///
/// An Aria table that is being made or written does not always survive a kill. Of 120 kills of the stock server on a
/// local disk under these statements, two left a damaged one ("Size of indexfile is: 524, Expected: 8192", "File too
/// short"). Damaged tables are removed where possible. `was_killed`: so far, some server was.
///
/// # Errors
/// [`Error::Violation`] that names every table that is damaged and must not be.
pub fn check(conn: &mut Conn, was_killed: bool) -> Result<u64> {
    let (aria, other): (Vec<_>, Vec<_>) = damaged_tables(conn, DATABASE)?
        .into_iter()
        .partition(|(table, _)| was_killed && table.table.starts_with(ARIA_LETTER));
    if !other.is_empty() {
        let what: Vec<_> = other.into_iter().map(|(_, what)| what).collect();
        return Err(Error::Violation(what.join("; ")));
    }
    for (table, _) in &aria {
        let _ = execute(conn, &format!("DROP TABLE IF EXISTS {DATABASE}.{}", table.table));
    }
    Ok(aria.len() as u64)
}

/// Removes the tables, as far as they can be removed.
pub fn clear(conn: &mut Conn) {
    // The remains of a failed statement may block the next one, on a stock server too; the next round continues with
    // them. Purge holds the table for ever if it finds another table's file under its name.
    let _ = execute(conn, "SET SESSION lock_wait_timeout = 5");
    for engine in [Engine::InnoDb, Engine::InnoDbCompressed, Engine::Aria] {
        for table in 0..TABLES {
            let _ = execute(conn, &format!("DROP TABLE IF EXISTS {DATABASE}.{}{table}", engine.letter()));
        }
    }
}
