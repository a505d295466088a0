//! Changes of tables, each by one client of its own, and which of them were acknowledged.
//!
//! Every change of a table has a number, 1, 2, 3 and so on; it writes the row that [`row_of`] names, with the number and a
//! content that follows from both. So the rows of a table show after which change they are, and a lost change in the middle
//! shows.

use mysql::Conn;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::process::{POLL_INTERVAL, poll_until};
use redoubt_workload::server::Server;
use redoubt_workload::sql::{all, connect_for, execute};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Tables of the load.
pub const TABLES: u32 = 4;
/// A statement without an answer ends the connection after this time.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The row that a change writes: mostly a new one, each fourth time an earlier one.
fn row_of(change: u64) -> u64 {
    if change.is_multiple_of(4) {
        (change / 2).wrapping_mul(7919) % (change * 3 / 4) + 1
    } else {
        change - change / 4
    }
}

fn content(table: u32, row: u64, change: u64) -> String {
    let word = format!("{table}-{row}-{change};");
    let len = 100 + (row.wrapping_mul(31).wrapping_add(change * 17) % 600) as usize;
    word.chars().cycle().take(len).collect()
}

/// Acknowledged changes of a table.
#[derive(Debug, Clone, Copy)]
pub struct History {
    table: u32,
    acknowledged: u64,
}

impl History {
    /// Changes that were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Name of the table.
    pub fn table(&self) -> String {
        format!("d.t{}", self.table)
    }

    /// Name of its file in the server, without extension.
    pub fn file(&self) -> String {
        format!("d/t{}", self.table)
    }

    /// Compares the table with its changes: returns after which change it is. It is that state exactly.
    ///
    /// # Errors
    /// [`Error::Sql`] if it cannot be read, [`Error::Violation`] if it is not the state after any of its changes.
    pub fn compare(&self, conn: &mut Conn) -> Result<u64> {
        let statement = format!("SELECT id, n, c FROM {} ORDER BY id", self.table());
        let rows: Vec<(u64, u64, String)> = all(conn, &statement, ())?;
        let last = rows.iter().map(|row| row.1).max().unwrap_or_default();
        let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
        for change in 1..=last {
            expected.insert(row_of(change), change);
        }
        let table = self.table();
        if last > self.acknowledged + 1 {
            return Err(Error::Violation(format!("{table} has change {last}, which was never made")));
        }
        for (id, change, text) in &rows {
            if expected.remove(id) != Some(*change) {
                return Err(Error::Violation(format!(
                    "{table}, whose last change is {last}, has row {id} as change {change} wrote it"
                )));
            }
            if *text != content(self.table, *id, *change) {
                return Err(Error::Violation(format!("{table}: the content of row {id} is wrong")));
            }
        }
        if let Some((row, change)) = expected.first_key_value() {
            let count = expected.len();
            return Err(Error::Violation(format!(
                "{table}, whose last change is {last}, lacks {count} rows, the first {row} of change {change}"
            )));
        }
        Ok(last)
    }
}

/// The running clients.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    counts: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Makes the tables and starts a client of each.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn start(server: &Server) -> Result<Self> {
        let mut conn = server.connect()?;
        execute(&mut conn, "CREATE DATABASE d")?;
        let stop = Arc::new(AtomicBool::new(false));
        let (mut counts, mut threads) = (Vec::new(), Vec::new());
        for table in 0..TABLES {
            execute(
                &mut conn,
                &format!(
                    "CREATE TABLE d.t{table} (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, c VARCHAR(800) NOT NULL, KEY (n)) \
                     ENGINE=InnoDB"
                ),
            )?;
            let count = Arc::new(AtomicU64::new(0));
            let (socket, of_thread, stop) = (server.socket(), Arc::clone(&count), Arc::clone(&stop));
            counts.push(count);
            threads.push(std::thread::spawn(move || change_rows(table, &socket, &of_thread, &stop)));
        }
        Ok(Self { stop, counts, threads })
    }

    fn least(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Acquire)).min().unwrap_or_default()
    }

    /// Waits until each table has so many more changes.
    ///
    /// # Errors
    /// [`Error::Deadline`].
    pub fn wait_for_more(&self, count: u64, timeout: Duration) -> Result<()> {
        let wanted = self.least() + count;
        poll_until("changes of the load", timeout, || Ok((self.least() >= wanted).then_some(())))
    }

    /// The same, or until `has_ended`. True: one of them was in time.
    pub fn wait_for_more_or(
        &self,
        count: u64,
        timeout: Duration,
        mut has_ended: impl FnMut() -> bool,
    ) -> bool {
        let (wanted, begin) = (self.least() + count, Instant::now());
        while self.least() < wanted && !has_ended() {
            if begin.elapsed() > timeout {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        true
    }

    /// Ends the clients.
    pub fn stop(mut self) -> Vec<History> {
        self.end();
        let counts = self.counts.iter().zip(0..);
        counts.map(|(count, table)| History { table, acknowledged: count.load(Ordering::Acquire) }).collect()
    }
}

impl Load {
    fn end(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A panicked client has acknowledged what it counted.
            let _ = thread.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

/// Makes changes until the end. A change without an answer is looked up, and made again if it is not there.
fn change_rows(table: u32, socket: &Path, count: &AtomicU64, stop: &AtomicBool) {
    let mut conn: Option<Conn> = None;
    let mut is_open_question = false;
    while !stop.load(Ordering::Acquire) {
        let change = count.load(Ordering::Acquire) + 1;
        let Some(open) = conn.as_mut() else {
            conn = connect_for(socket, ANSWER_WITHIN).ok();
            if conn.is_none() {
                std::thread::sleep(POLL_INTERVAL);
            }
            continue;
        };
        if is_open_question {
            match all::<u64>(open, &format!("SELECT n FROM d.t{table} WHERE n = {change}"), ()) {
                Ok(found) => {
                    is_open_question = false;
                    if !found.is_empty() {
                        count.store(change, Ordering::Release);
                    }
                }
                Err(_) => {
                    conn = None;
                    std::thread::sleep(POLL_INTERVAL);
                }
            }
            continue;
        }
        let row = row_of(change);
        let text = content(table, row, change);
        let statement = format!("REPLACE INTO d.t{table} VALUES ({row}, {change}, '{text}')");
        match execute(open, &statement) {
            Ok(()) => count.store(change, Ordering::Release),
            Err(_) => {
                is_open_question = true;
                conn = None;
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_write_new_rows_in_order_and_earlier_ones() {
        let mut newest = 0;
        for change in 1..10_000 {
            let row = row_of(change);
            if change % 4 == 0 {
                assert!((1..=newest).contains(&row), "change {change} writes row {row} of {newest}");
            } else {
                newest += 1;
                assert_eq!(row, newest, "change {change}");
            }
        }
    }
}
