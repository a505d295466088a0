//! `redoubt-testkit`: the harness's parts for shell scripts such as `./demo`.
//!
//! Every sub-command prints one line of JSON on standard output (`flash-trace`: one per recording; `server-suite`,
//! `net-bench`: Markdown). Exit status: 0 all is well, 1 a broken promise or a failure, 2 wrong
//! arguments, 77 this machine lacks what the work needs.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use redoubt_testkit::sysbench::Sysbench;
use redoubt_testkit::{
    apply_backlog, fault_rounds, flash_trace, isolation, killed_imports, net_bench, net_layer, oracle, scale,
    server_suite,
};
use redoubt_workload::check;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::ledger::{self, Entries, Options, Run};
use redoubt_workload::load::Until;
use redoubt_workload::oltp::Mix;
use redoubt_workload::process::poll_until;
use redoubt_workload::sql::{connect, connect_within, query_text, status_number, try_connect};
use serde_json::{Value, json};

#[derive(Debug, Parser)]
#[command(
    name = "redoubt-testkit",
    version,
    about = "Ledger, checks, load and counters against a running server"
)]
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
        /// Give up at once when this process has ended
        #[arg(long)]
        pid: Option<u32>,
    },
    /// Commit transactions and write down which commits were acknowledged
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
    /// CHECK TABLE ... EXTENDED on every InnoDB table
    CheckTables {
        #[command(flatten)]
        server: ServerArguments,
    },
    /// Bytes that the server has written since it started
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
    /// Record every block write of servers under load, tagged by its origin (needs root): JSON lines
    FlashTrace {
        #[command(flatten)]
        options: flash_trace::Options,
    },
    /// How long a node takes to apply a backlog of redo over cold tables, and a stock server to recover from it;
    /// progress and a table go to standard error
    ApplyBacklog {
        #[command(flatten)]
        options: apply_backlog::Options,
    },
    /// Rounds of the ledger under faults of the C library, of the network, and kills (docs/dev/faults.md); progress
    /// goes to standard error
    FaultRounds {
        #[command(flatten)]
        options: fault_rounds::Options,
    },
    /// Import data directories of servers killed under load, and compare the volumes with stock recovery; progress goes
    /// to standard error
    ImportKilled {
        #[command(flatten)]
        options: killed_imports::Options,
    },
    /// Cost of starts and takeovers with many tables, and with a tenth of them; progress and a table go to
    /// standard error
    Scale {
        #[command(flatten)]
        options: scale::Options,
    },
    /// Gain of each layer of the network library on this machine, as Markdown; progress goes to standard error
    NetBench {
        #[command(flatten)]
        options: net_bench::Options,
    },
    /// Histories of transactions on a stock server and on Redoubt under kills, and the anomalies of both; progress
    /// and a table go to standard error
    Isolation {
        #[command(flatten)]
        options: isolation::compare::Options,
    },
    /// Compare two runs of MariaDB's own test suite (see scripts/server-suite): Markdown
    ServerSuite {
        #[command(flatten)]
        options: server_suite::Options,
    },
    /// Run a command that starts servers with the network library, and say what a layer of it did in them; fails if it
    /// was not used
    NetLayer {
        #[command(flatten)]
        options: net_layer::Options,
    },
    /// Hold our replay of redo against a stock server's recovery of it
    Oracle {
        #[command(subcommand)]
        command: oracle::commands::Command,
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
        Ok(answer) => {
            println!("{}", answer.0);
            if answer.1 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error @ Error::Unavailable(_)) => {
            eprintln!("redoubt-testkit: {error}");
            ExitCode::from(SKIPPED)
        }
        Err(error) => {
            eprintln!("redoubt-testkit: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Exit status where this machine lacks what the work needs, as other test tools have it.
const SKIPPED: u8 = 77;

/// What to print, and whether all is well.
struct Answer(String, bool);

impl From<(String, bool)> for Answer {
    fn from((text, is_well): (String, bool)) -> Self {
        Self(text, is_well)
    }
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
        Command::FlashTrace { options } => {
            let mut lines = Vec::new();
            flash_trace::run(&options, |recording| {
                eprintln!("{}: {}", recording.name, recording.line());
                lines.push(answer(&recording.summary())?.0);
                Ok(())
            })?;
            Ok(Answer(lines.join("\n"), true))
        }
        Command::ApplyBacklog { options } => {
            let summary = apply_backlog::run(&options, |line| eprintln!("{line}"))?;
            eprintln!("\n{}", summary.table());
            answer(&summary)
        }
        Command::FaultRounds { options } => fault_rounds(&options),
        Command::ImportKilled { options } => import_killed(&options),
        Command::Scale { options } => measure_scale(&options),
        Command::NetBench { options } => {
            Ok(Answer(net_bench::run(&options, &mut |line| eprintln!("{line}"))?, true))
        }
        Command::Isolation { options } => compare_isolation(&options),
        Command::ServerSuite { options } => server_suite::report(&options).map(Answer::from),
        Command::NetLayer { options } => watch_layer(&options),
        Command::Oracle { command } => oracle(&command),
        Command::Field { path } => field(&path),
    }
}

fn fault_rounds(options: &fault_rounds::Options) -> Result<Answer> {
    let summary = fault_rounds::run(options, |line| eprintln!("{line}"))?;
    if summary.pages_verified == 0 {
        eprintln!("error: no page was compared with the server's");
    }
    Ok(Answer(answer(&summary)?.0, summary.pages_verified > 0))
}

fn import_killed(options: &killed_imports::Options) -> Result<Answer> {
    let summary = killed_imports::run(options, |line| eprintln!("{line}"))?;
    Ok(Answer(answer(&summary)?.0, summary.failures.is_empty()))
}

fn watch_layer(options: &net_layer::Options) -> Result<Answer> {
    let summary = net_layer::run(options)?;
    if let Err(why) = &summary.verdict {
        eprintln!("error: {why}");
    }
    Ok(Answer(answer(&summary)?.0, summary.verdict.is_ok()))
}

fn measure_scale(options: &scale::Options) -> Result<Answer> {
    let sizes = scale::run(options, |line| eprintln!("{line}"))?;
    sizes.iter().for_each(|part| eprintln!("\n{}", scale::table(part)));
    answer(&sizes)
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

fn compare_isolation(options: &isolation::compare::Options) -> Result<Answer> {
    let comparison = isolation::compare::run(options, |line| eprintln!("{line}"))?;
    eprintln!("{}", comparison.table());
    comparison.require_no_new()?;
    answer(&comparison.summary())
}

fn ledger_verify(server: &ServerArguments, file: &Path) -> Result<Answer> {
    let report = ledger::verify(&mut connect(&server.socket)?, &Entries::read(file)?)?;
    let sound = report.faults_total == 0;
    answer(&report).map(|Answer(text, _)| Answer(text, sound))
}

fn oracle(command: &oracle::commands::Command) -> Result<Answer> {
    let (value, sound) = oracle::commands::run(command)?;
    answer(&value).map(|Answer(text, _)| Answer(text, sound))
}

fn answer(value: &impl serde::Serialize) -> Result<Answer> {
    let text = serde_json::to_string(value)
        .map_err(|error| Error::Parse { what: "the answer".into(), detail: error.to_string() })?;
    Ok(Answer(text, true))
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
    Ok(Answer(text, true))
}
