//! The OLTP mixes of sysbench, with its tables, statements and defaults (sysbench 1.0), by clients of our own.
//!
//! Own clients, so that one load driver measures everything: warm-up, window, all percentiles. Tables are `sbtest1`
//! and on: `id`, `k` with an index, `c` and `pad` made of groups of digits. Ids are drawn with sysbench's default
//! distribution: three quarters of the draws fall evenly into the middle hundredth of the table, the others are the
//! mean of twelve even draws.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::load::Worker;
use crate::process::check_interrupt;
use crate::sql::{Inserter, all, change, connect, connect_to, execute, one};
use fastrand::Rng;
use indicatif::ProgressBar;
use mysql::Conn;

/// Database of the tables.
pub const DATABASE: &str = "sbtest";
/// Rows of a range.
const RANGE_ROWS: u32 = 100;
const POINT_SELECTS: u32 = 10;

/// Which mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Ten point selects, four ranges, two updates, a delete and an insert.
    ReadWrite,
    /// The writes of [`Mix::ReadWrite`].
    WriteOnly,
    /// The reads of [`Mix::ReadWrite`].
    ReadOnly,
    /// One point select, without a transaction around it.
    PointSelect,
    /// One update of an indexed column, likewise.
    UpdateIndex,
    /// One update of a column without an index, likewise.
    UpdateNonIndex,
}

impl Mix {
    /// As sysbench calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadWrite => "oltp_read_write",
            Self::WriteOnly => "oltp_write_only",
            Self::ReadOnly => "oltp_read_only",
            Self::PointSelect => "oltp_point_select",
            Self::UpdateIndex => "oltp_update_index",
            Self::UpdateNonIndex => "oltp_update_non_index",
        }
    }

    fn has_transactions(self) -> bool {
        matches!(self, Self::ReadWrite | Self::WriteOnly | Self::ReadOnly)
    }
}

/// Size of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Tables.
    pub tables: u32,
    /// Rows of each.
    pub rows: u32,
}

/// Makes the database and fills it; the bar gets one step per table.
///
/// # Errors
/// [`Error::Sql`], [`Error::Interrupted`].
pub fn load(socket: &Path, scale: Scale, seed: u64, threads: u32, bar: &ProgressBar) -> Result<()> {
    bar.set_length(u64::from(scale.tables));
    execute(&mut connect(socket)?, &format!("CREATE DATABASE {DATABASE}"))?;
    let next = AtomicU32::new(1);
    let work = || -> Result<()> {
        let mut conn = connect_to(socket, DATABASE)?;
        loop {
            let table = next.fetch_add(1, Ordering::Relaxed);
            if table > scale.tables {
                return Ok(());
            }
            load_table(&mut conn, table, scale.rows, &mut Rng::with_seed(seed ^ (u64::from(table) << 20)))?;
            bar.inc(1);
        }
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads.clamp(1, scale.tables)).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| Error::State("a loader panicked".to_owned()))?)
    })
}

fn load_table(conn: &mut Conn, table: u32, rows: u32, random: &mut Rng) -> Result<()> {
    execute(
        conn,
        &format!(
            "CREATE TABLE sbtest{table} (id INTEGER NOT NULL AUTO_INCREMENT, k INTEGER DEFAULT '0' NOT NULL, \
             c CHAR(120) DEFAULT '' NOT NULL, pad CHAR(60) DEFAULT '' NOT NULL, PRIMARY KEY (id)) ENGINE=InnoDB"
        ),
    )?;
    let name = format!("sbtest{table} (k, c, pad)");
    let mut inserter = Inserter::new(conn, &name);
    for row in 0..rows {
        if row % 10_000 == 0 {
            check_interrupt()?;
        }
        let k = special(random, rows);
        inserter.row(format_args!("{k},'{}','{}'", groups(random, 10), groups(random, 5)))?;
    }
    inserter.flush()?;
    execute(conn, &format!("CREATE INDEX k_{table} ON sbtest{table} (k)"))?;
    execute(conn, &format!("ANALYZE TABLE sbtest{table}"))
}

/// sysbench's distribution "special" with its default parameters, of `1..=rows`.
pub fn special(random: &mut Rng, rows: u32) -> u32 {
    const HOT_SHARE: f64 = 0.75;
    const HOT_PART: f64 = 0.01;
    const MEAN_OF: u32 = 12;
    let rows_f = f64::from(rows);
    let place = if random.f64() < HOT_SHARE {
        0.5 + (random.f64() - 0.5) * HOT_PART
    } else {
        (0..MEAN_OF).map(|_| random.f64()).sum::<f64>() / f64::from(MEAN_OF)
    };
    ((place * rows_f) as u32).min(rows - 1) + 1
}

/// Groups of eleven digits.
fn groups(random: &mut Rng, count: usize) -> String {
    let group = |random: &mut Rng| (0..11).map(|_| random.digit(10)).collect::<String>();
    (0..count).map(|_| group(random)).collect::<Vec<_>>().join("-")
}

/// A client with a connection of its own.
pub struct Client {
    conn: Conn,
    mix: Mix,
    scale: Scale,
    random: Rng,
    retries: Arc<AtomicU64>,
}

impl Client {
    /// See the type; `retries` counts transactions that had to be tried again.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn new(socket: &Path, mix: Mix, scale: Scale, seed: u64, retries: Arc<AtomicU64>) -> Result<Self> {
        Ok(Self { conn: connect_to(socket, DATABASE)?, mix, scale, random: Rng::with_seed(seed), retries })
    }

    fn attempt(&mut self) -> Result<()> {
        if !self.mix.has_transactions() {
            return match self.mix {
                Mix::PointSelect => self.point_select(),
                Mix::UpdateIndex => self.update_index(),
                _ => self.update_non_index(),
            };
        }
        execute(&mut self.conn, "BEGIN")?;
        if self.mix != Mix::WriteOnly {
            for _ in 0..POINT_SELECTS {
                self.point_select()?;
            }
            self.ranges()?;
        }
        if self.mix != Mix::ReadOnly {
            self.update_index()?;
            self.update_non_index()?;
            self.delete_and_insert()?;
        }
        execute(&mut self.conn, "COMMIT")
    }

    fn table(&mut self) -> u32 {
        self.random.u32(1..=self.scale.tables)
    }

    fn id(&mut self) -> u32 {
        special(&mut self.random, self.scale.rows)
    }

    fn point_select(&mut self) -> Result<()> {
        let (table, id) = (self.table(), self.id());
        let _: Vec<String> =
            all(&mut self.conn, &format!("SELECT c FROM sbtest{table} WHERE id = ?"), (id,))?;
        Ok(())
    }

    fn ranges(&mut self) -> Result<()> {
        for (what, order) in [("c", ""), ("SUM(k)", ""), ("c", "ORDER BY c"), ("DISTINCT c", "ORDER BY c")] {
            let (table, id) = (self.table(), self.id());
            let query = format!("SELECT {what} FROM sbtest{table} WHERE id BETWEEN ? AND ? {order}");
            let _: Vec<mysql::Row> = all(&mut self.conn, &query, (id, id + RANGE_ROWS - 1))?;
        }
        Ok(())
    }

    fn update_index(&mut self) -> Result<()> {
        let (table, id) = (self.table(), self.id());
        change(&mut self.conn, &format!("UPDATE sbtest{table} SET k = k + 1 WHERE id = ?"), (id,))
    }

    fn update_non_index(&mut self) -> Result<()> {
        let (table, id, c) = (self.table(), self.id(), groups(&mut self.random, 10));
        change(&mut self.conn, &format!("UPDATE sbtest{table} SET c = ? WHERE id = ?"), (c, id))
    }

    fn delete_and_insert(&mut self) -> Result<()> {
        let (table, id, k) = (self.table(), self.id(), self.id());
        let (c, pad) = (groups(&mut self.random, 10), groups(&mut self.random, 5));
        change(&mut self.conn, &format!("DELETE FROM sbtest{table} WHERE id = ?"), (id,))?;
        let insert = format!("INSERT INTO sbtest{table} (id, k, c, pad) VALUES (?, ?, ?, ?)");
        change(&mut self.conn, &insert, (id, k, c, pad))
    }
}

impl Worker for Client {
    fn run(&mut self) -> Result<u8> {
        loop {
            match self.attempt() {
                Ok(()) => return Ok(0),
                // Two clients that delete and insert the same row: the second insert meets the first one's row (1062).
                Err(error) if error.is_retryable() || error.is_duplicate_key() => {
                    self.retries.fetch_add(1, Ordering::Relaxed);
                    execute(&mut self.conn, "ROLLBACK")?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Each table still has its rows: a transaction that deletes one inserts it again. And each index has what its table
/// has.
///
/// # Errors
/// [`Error::Violation`].
pub fn check(socket: &Path, scale: Scale) -> Result<u32> {
    let mut conn = connect_to(socket, DATABASE)?;
    for table in 1..=scale.tables {
        check_interrupt()?;
        let count = |index: &str, what: &str| {
            format!("SELECT COUNT(*), SUM(k) {what} FROM sbtest{table} FORCE INDEX ({index})")
        };
        let by_key: (u64, Option<String>) = one(&mut conn, &count("PRIMARY", ""), ())?;
        let by_index: (u64, Option<String>) = one(&mut conn, &count(&format!("k_{table}"), ""), ())?;
        if by_key != by_index || by_key.0 != u64::from(scale.rows) {
            return Err(Error::Violation(format!(
                "sbtest{table} was loaded with {} rows; by its primary key it has {by_key:?}, by its index \
                 {by_index:?} rows and sum of k",
                scale.rows
            )));
        }
    }
    Ok(2)
}

#[cfg(test)]
#[path = "oltp_tests.rs"]
mod tests;
