//! Statements beside the ledger that make, fill, rename, alter and drop tables: files come and go. Besides InnoDB's usual
//! ones they are of Aria or, of MySQL, whose MyISAM survives no kill, compressed ones of InnoDB.
//!
//! Any of them may fail; what matters is what is found on both sides afterwards.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use mysql::Conn;
use redoubt_redo::Family;
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

fn statement(family: Family, random: &mut fastrand::Rng) -> String {
    let name = |random: &mut fastrand::Rng| format!("{DATABASE}.t{}", random.u32(..TABLES));
    let table = name(random);
    match random.u32(..12) {
        0..=2 => {
            let engine = match family {
                _ if random.bool() => "InnoDB",
                Family::MariaDb => "Aria",
                Family::MySql => "InnoDB ROW_FORMAT=COMPRESSED",
            };
            format!(
                "CREATE TABLE IF NOT EXISTS {table} (a INT AUTO_INCREMENT PRIMARY KEY, b BLOB, c INT, KEY(c)) \
                 ENGINE={engine}"
            )
        }
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

/// Removes the tables, as far as they can be removed.
pub fn clear(conn: &mut Conn) {
    // What a failed statement left behind may stand in the way, on a stock server too; the next round goes on with it.
    for table in 0..TABLES {
        let _ = execute(conn, &format!("DROP TABLE IF EXISTS {DATABASE}.t{table}"));
    }
}
