//! The program sysbench with a fixed seed, and its report as numbers.
//!
//! The tables live in the database `sbtest`. With the same seed, options and number of events two servers
//! get the same load, up to the interleaving of the threads.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::load::Until;
use crate::oltp::{DATABASE, Mix};
use crate::process::{Process, find_program, run_to_end};
use crate::sql::{connect, execute};

/// Size and seed of a load.
#[derive(Debug, Clone)]
pub struct Sysbench {
    /// Socket of the server.
    pub socket: PathBuf,
    /// Number of tables.
    pub tables: u32,
    /// Rows per table after preparation.
    pub rows: u32,
    /// Number of client threads.
    pub threads: u32,
    /// Seed of the random numbers, not 0 (which would mean the clock).
    pub seed: u32,
}

/// Results that sysbench reports of a run.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Report {
    /// Transactions done.
    pub transactions: u64,
    /// Transactions per second.
    pub transactions_per_second: f64,
    /// Statements done.
    pub queries: u64,
    /// Errors sysbench ignored (deadlocks, lock waits).
    pub ignored_errors: u64,
    /// Connections lost and made again.
    pub reconnects: u64,
    /// Mean latency of a transaction in milliseconds.
    pub latency_mean_ms: f64,
    /// 95th percentile of the latency in milliseconds.
    pub latency_p95_ms: f64,
    /// Longest latency in milliseconds.
    pub latency_max_ms: f64,
}

impl Sysbench {
    /// A small load for tests: 2 tables of 5,000 rows, 4 threads.
    pub fn small(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), tables: 2, rows: 5_000, threads: 4, seed: 1 }
    }

    /// Creates the database and its tables.
    ///
    /// # Errors
    /// [`Error::Command`] with sysbench's output.
    pub fn prepare(&self) -> Result<()> {
        execute(&mut connect(&self.socket)?, &format!("CREATE DATABASE IF NOT EXISTS {DATABASE}"))?;
        let mut command = self.command(Mix::ReadWrite, self.threads.min(self.tables))?;
        run_to_end(command.arg("prepare")).map(drop)
    }

    /// Runs a load to its end.
    ///
    /// # Errors
    /// [`Error::Command`] when sysbench fails, [`Error::Parse`] when its report is not understood.
    pub fn run(&self, mix: Mix, until: Until) -> Result<Report> {
        let text = run_to_end(&mut self.run_command(mix, until)?)?;
        parse_report(&text)
    }

    /// Starts a load and does not wait; for runs that a crash of the server cuts short.
    ///
    /// # Errors
    /// [`Error::Io`] when sysbench cannot be started.
    pub fn spawn(&self, mix: Mix, until: Until) -> Result<Process> {
        let mut command = self.run_command(mix, until)?;
        Process::spawn("sysbench", command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
    }

    fn run_command(&self, mix: Mix, until: Until) -> Result<Command> {
        let mut command = self.command(mix, self.threads)?;
        match until {
            Until::Elapsed(time) => command.arg(format!("--time={}", time.as_secs())).arg("--events=0"),
            Until::Transactions(count) => command.arg("--time=0").arg(format!("--events={count}")),
        };
        command.arg("run");
        Ok(command)
    }

    fn command(&self, mix: Mix, threads: u32) -> Result<Command> {
        let mut command = Command::new(find_program("sysbench", "sysbench")?);
        command
            .arg(mix.name())
            .arg("--db-driver=mysql")
            .arg(format!("--mysql-socket={}", self.socket.display()))
            .arg("--mysql-user=root")
            .arg(format!("--mysql-db={DATABASE}"))
            .arg(format!("--tables={}", self.tables))
            .arg(format!("--table-size={}", self.rows))
            .arg(format!("--threads={threads}"))
            .arg(format!("--rand-seed={}", self.seed));
        Ok(command)
    }
}

/// How long a caller should at most wait for a load cut short by a crash.
pub const ABORT_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads sysbench's final report.
///
/// # Errors
/// [`Error::Parse`] that names the missing line.
pub fn parse_report(text: &str) -> Result<Report> {
    let value = |label: &str| -> Result<&str> {
        text.lines()
            .find_map(|line| line.trim().strip_prefix(label)?.strip_prefix(':'))
            .map(str::trim)
            .ok_or_else(|| Error::Parse {
                what: "sysbench's report".into(),
                detail: format!("no `{label}:`"),
            })
    };
    let number = |label: &str| -> Result<f64> { first_number(label, value(label)?) };
    // "transactions:  1234   (123.40 per sec.)"
    let rate = value("transactions")?.split_once('(').map_or("", |(_, rest)| rest);
    Ok(Report {
        transactions: number("transactions")? as u64,
        transactions_per_second: first_number("transactions per second", rate)?,
        queries: number("queries")? as u64,
        ignored_errors: number("ignored errors")? as u64,
        reconnects: number("reconnects")? as u64,
        latency_mean_ms: number("avg")?,
        latency_p95_ms: number("95th percentile")?,
        latency_max_ms: number("max")?,
    })
}

fn first_number(label: &str, text: &str) -> Result<f64> {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.parse().map_err(|_| Error::Parse {
        what: "sysbench's report".into(),
        detail: format!("`{label}` is not a number: {text:?}"),
    })
}

#[cfg(test)]
mod tests;
