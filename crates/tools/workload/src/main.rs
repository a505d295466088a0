//! `redoubt-workload`: loads, checks and counters of one running server, for shell scripts such as `./demo`.
//!
//! Every sub-command prints one line of JSON on standard output. Exit status: 0 success, 1 a failure or a broken
//! promise (a lost commit), 2 wrong arguments.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use redoubt_workload::check;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::ledger::{self, Entries, Options, Run};
use redoubt_workload::load::Until;
use redoubt_workload::oltp::Mix;
use redoubt_workload::process::poll_until;
use redoubt_workload::sql::{connect, connect_within, query_text, status_number, try_connect};
use redoubt_workload::sysbench::Sysbench;
use serde_json::{Value, json};

#[derive(Debug, Parser)]
#[command(name = "redoubt-workload", version, about = "Load, check and measure one running server")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Wait until the server accepts a connection
    WaitReady {
        #[command(flatten)]
        server: ServerArguments,
        /// Give up after this many seconds
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Stop waiting as soon as this process has ended
        #[arg(long)]
        pid: Option<u32>,
    },
    /// Commit transactions and record the acknowledged commits in a file
    LedgerRun {
        #[command(flatten)]
        server: ServerArguments,
        /// Ledger file, continued when it exists
        #[arg(long)]
        file: PathBuf,
        /// Run this long
        #[arg(long, required_unless_present = "transactions")]
        seconds: Option<u64>,
        /// Run until this many commits are acknowledged
        #[arg(long, conflicts_with = "seconds")]
        transactions: Option<u64>,
        /// Number of clients
        #[arg(long, default_value_t = 4)]
        clients: u32,
        /// Seed of the contents of a new ledger
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Compare the tables with the ledger file
    LedgerVerify {
        #[command(flatten)]
        server: ServerArguments,
        /// Ledger file
        #[arg(long)]
        file: PathBuf,
    },
    /// Run CHECK TABLE ... EXTENDED on every InnoDB table
    CheckTables {
        #[command(flatten)]
        server: ServerArguments,
    },
    /// Print the bytes that the server has written since it started
    Counters {
        #[command(flatten)]
        server: ServerArguments,
    },
    /// Create the sysbench tables
    SysbenchPrepare {
        #[command(flatten)]
        server: ServerArguments,
        #[command(flatten)]
        size: SizeArguments,
    },
    /// Run sysbench oltp_read_write
    SysbenchRun {
        #[command(flatten)]
        server: ServerArguments,
        #[command(flatten)]
        size: SizeArguments,
        /// Run this long
        #[arg(long, required_unless_present = "transactions")]
        seconds: Option<u64>,
        /// Run this many transactions
        #[arg(long, conflicts_with = "seconds")]
        transactions: Option<u64>,
        /// Leave out the reads (oltp_write_only)
        #[arg(long)]
        write_only: bool,
    },
    /// Print one field of the JSON on standard input
    Field {
        /// Names on the way to the field, joined by dots
        path: String,
    },
}

#[derive(Debug, clap::Args)]
struct ServerArguments {
    /// Unix socket of the server
    #[arg(long)]
    socket: PathBuf,
}

#[derive(Debug, clap::Args)]
struct SizeArguments {
    /// Number of tables
    #[arg(long, default_value_t = 4)]
    tables: u32,
    /// Rows per table
    #[arg(long, default_value_t = 10_000)]
    rows: u32,
    /// Client threads
    #[arg(long, default_value_t = 4)]
    threads: u32,
    /// Seed, not 0
    #[arg(long, default_value_t = 1)]
    seed: u32,
}

impl SizeArguments {
    fn sysbench(self, server: ServerArguments) -> Sysbench {
        let Self { tables, rows, threads, seed } = self;
        Sysbench { socket: server.socket, tables, rows, threads, seed }
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(Answer { text, is_well }) => {
            println!("{text}");
            if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("redoubt-workload: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Line to print, and whether it reports success.
struct Answer {
    text: String,
    is_well: bool,
}

fn run(command: Command) -> Result<Answer> {
    match command {
        Command::WaitReady { server, seconds, pid } => wait_ready(&server, Duration::from_secs(seconds), pid),
        Command::LedgerRun { server, file, seconds, transactions, clients, seed } => {
            let options = Options { clients, seed, stop_after: transactions, ..Options::default() };
            ledger_run(&server, &file, seconds, options)
        }
        Command::LedgerVerify { server, file } => ledger_verify(&server, &file),
        Command::CheckTables { server } => {
            let tables = check::check_all(&mut connect(&server.socket)?)?;
            answer(&json!({ "tables_checked": tables }))
        }
        Command::Counters { server } => counters(&server),
        Command::SysbenchPrepare { server, size } => {
            size.sysbench(server).prepare().and_then(|()| answer(&json!({ "prepared": true })))
        }
        Command::SysbenchRun { server, size, seconds, transactions, write_only } => {
            let mix = if write_only { Mix::WriteOnly } else { Mix::ReadWrite };
            let until = match (seconds, transactions) {
                (Some(seconds), _) => Until::Elapsed(Duration::from_secs(seconds)),
                (None, count) => Until::Transactions(count.unwrap_or(0)),
            };
            answer(&size.sysbench(server).run(mix, until)?)
        }
        Command::Field { path } => field(&path),
    }
}

fn ledger_run(
    server: &ServerArguments,
    file: &Path,
    seconds: Option<u64>,
    options: Options,
) -> Result<Answer> {
    let run = Run::start(&server.socket, file, options)?;
    let summary = match seconds {
        Some(seconds) => {
            run.run_for(Duration::from_secs(seconds));
            run.stop()?
        }
        None => run.join()?,
    };
    answer(&summary)
}

fn ledger_verify(server: &ServerArguments, file: &Path) -> Result<Answer> {
    let report = ledger::verify(&mut connect(&server.socket)?, &Entries::read(file)?)?;
    let sound = report.faults_total == 0;
    answer(&report).map(|answer| Answer { is_well: sound, ..answer })
}

fn answer(value: &impl serde::Serialize) -> Result<Answer> {
    let text = serde_json::to_string(value)
        .map_err(|error| Error::Parse { what: "the answer".into(), detail: error.to_string() })?;
    Ok(Answer { text, is_well: true })
}

fn wait_ready(server: &ServerArguments, timeout: Duration, pid: Option<u32>) -> Result<Answer> {
    match pid {
        None => drop(connect_within(&server.socket, timeout)?),
        Some(pid) => {
            let alive = PathBuf::from(format!("/proc/{pid}"));
            poll_until("the server's readiness", timeout, || {
                if !alive.exists() {
                    return Err(Error::State(format!("process {pid} ended before the server was ready")));
                }
                try_connect(&server.socket)
            })?;
        }
    }
    answer(&json!({ "ready": true }))
}

/// `Innodb_data_written` is page writes and doublewrite together; redo is counted apart.
fn counters(server: &ServerArguments) -> Result<Answer> {
    let mut conn = connect(&server.socket)?;
    let is_mariadb = query_text(&mut conn, "SELECT VERSION()")?.concat().concat().contains("MariaDB");
    let mut read = |name: &str| status_number(&mut conn, name);
    let redo_bytes = read("Innodb_os_log_written")?;
    let doublewrite_bytes = read("Innodb_dblwr_pages_written")? * read("Innodb_page_size")?;
    // MariaDB counts what it writes to the doublewrite area there too (fil_io in MySQL's fil0fil.cc does not).
    let in_data = if is_mariadb { doublewrite_bytes } else { 0 };
    let page_bytes = read("Innodb_data_written")?.saturating_sub(in_data);
    answer(&json!({
        "redo_bytes": redo_bytes,
        "page_bytes": page_bytes,
        "doublewrite_bytes": doublewrite_bytes,
        "written_bytes": redo_bytes + page_bytes + doublewrite_bytes,
        "dirty_bytes": read("Innodb_buffer_pool_bytes_dirty")?,
    }))
}

fn field(path: &str) -> Result<Answer> {
    let fault = |detail: String| Error::Parse { what: "JSON on standard input".into(), detail };
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(Error::io("read standard input"))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| fault(error.to_string()))?;
    let pointer = format!("/{}", path.replace('.', "/"));
    let found = value.pointer(&pointer).ok_or_else(|| fault(format!("no field `{path}` in {value}")))?;
    let text = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
    Ok(Answer { text, is_well: true })
}
