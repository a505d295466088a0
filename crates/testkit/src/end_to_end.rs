//! Whole servers with different logs under the same loads, in turns, in one run.
//!
//! Three comparisons:
//! * [`Part::Node`]: a MariaDB server on a volume, the node's log on a file, a block device or pretended persistent
//!   memory;
//! * [`Part::LocalLog`]: a MySQL server as it comes, against the same with its redo log in pretended persistent memory
//!   through `redoubt run --local-log`, and, as a control, on the same memory without the library: what the
//!   library adds is the difference between the last two. With its binary log, which is the default and has an
//!   `fsync` of its own per commit, and without.
//! * [`Part::Tls`]: a MariaDB server on a volume, connected in plain text or with TLS.
//!
//! Pretended persistent memory is tmpfs, that is DRAM: an upper bound. Loads: the TPC-C-like mix
//! ([`crate::tpcc`]) and sysbench `oltp_write_only`.
//!
//! Machines differ and are noisy, so only ratios count. Each round visits all candidates, in an order that
//! changes from round to round; a ratio is taken within a round, against the first candidate. All servers
//! live all the time, the ones not measured are idle. Beside each figure stand redo per transaction and how much of
//! the clients' time went by waiting for the log: that share bounds what a better log can give.

mod candidate;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use crate::error::Result;
use crate::tpcc::{Scale, Tpcc};
use crate::workload::{Load as SysbenchLoad, Sysbench, Until};
use candidate::Candidate;
pub use report::{Cell, table};

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// A server on a storage node: log devices of the node.
    Node,
    /// A server without a storage node.
    LocalLog,
    /// A server on a storage node: in plain text, and with TLS.
    Tls,
}

impl Part {
    /// Name of the first comparison.
    fn group(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::LocalLog => "defaults",
            Self::Tls => "connection",
        }
    }
}

/// What to run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// What is compared
    #[arg(value_enum)]
    pub part: Part,
    /// Rounds per cell
    #[arg(long, default_value_t = 2)]
    pub rounds: u32,
    /// Seconds per run
    #[arg(long, default_value_t = 4)]
    pub seconds: u64,
    /// Numbers of clients
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 32])]
    pub clients: Vec<u32>,
    /// Warehouses of the TPC-C-like mix
    #[arg(long, default_value_t = 4)]
    pub warehouses: u32,
    /// Tables of sysbench, of 10,000 rows
    #[arg(long, default_value_t = 4)]
    pub tables: u32,
    /// Buffer pool of each server, MiB
    #[arg(long, default_value_t = 128)]
    pub pool: u32,
    /// Directory on tmpfs
    #[arg(long, default_value = "/dev/shm")]
    pub memory: PathBuf,
    /// Only these candidates (file, block, pmem; disk, memory, local-log; plain, tls); the first is what ratios refer
    /// to
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
}

/// A load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    TpccLike,
    OltpWriteOnly,
}

impl Load {
    const ALL: [Self; 2] = [Self::TpccLike, Self::OltpWriteOnly];

    fn name(self) -> &'static str {
        match self {
            Self::TpccLike => "TPC-C-like",
            Self::OltpWriteOnly => "sysbench oltp_write_only",
        }
    }
}

/// What one run of a load gave.
struct Figures {
    transactions: u64,
    per_second: f64,
    seconds: f64,
    latency_p95_ms: f64,
    /// Share of client time in COMMIT, where the load can tell.
    commit_share: Option<f64>,
}

/// Runs everything and returns one cell per candidate, load and number of clients.
///
/// # Errors
/// Whatever keeps a server or a load from running, and a broken consistency condition.
pub fn run(options: &Options) -> Result<Vec<Cell>> {
    let mut candidates = match options.part {
        Part::Node => candidate::on_nodes(options)?,
        Part::LocalLog => candidate::local(options)?,
        Part::Tls => candidate::connections(options)?,
    };
    for candidate in &candidates {
        prepare(candidate, options)?;
    }
    let mut cells = compare_all(&candidates, options.part.group(), options)?;
    if options.part == Part::LocalLog {
        for candidate in &mut candidates {
            candidate.restart_without_binary_log()?;
        }
        cells.extend(compare_all(&candidates, "no binary log", options)?);
    }
    Ok(cells)
}

/// All loads with all numbers of clients.
fn compare_all(candidates: &[Candidate], group: &str, options: &Options) -> Result<Vec<Cell>> {
    for candidate in candidates {
        // Not counted: caches fill, and what loading or starting has left dirty is written.
        tpcc(candidate, options).run(4, Duration::from_secs(options.seconds.min(2)))?;
    }
    let mut cells = Vec::new();
    for load in Load::ALL {
        for clients in &options.clients {
            cells.extend(compare(candidates, load, *clients, group, options)?);
        }
    }
    Ok(cells)
}

fn tpcc<'a>(candidate: &'a Candidate, options: &Options) -> Tpcc<'a> {
    let scale = Scale { warehouses: options.warehouses, ..Scale::default() };
    Tpcc { socket: &candidate.socket, scale, seed: 1 }
}

fn sysbench(candidate: &Candidate, threads: u32, options: &Options) -> Sysbench {
    Sysbench { tables: options.tables, rows: 10_000, threads, ..Sysbench::small(&candidate.socket) }
}

fn prepare(candidate: &Candidate, options: &Options) -> Result<()> {
    tpcc(candidate, options).prepare()?;
    sysbench(candidate, 1, options).prepare()
}

fn run_load(candidate: &Candidate, load: Load, clients: u32, options: &Options) -> Result<Figures> {
    match load {
        Load::TpccLike => {
            let report = tpcc(candidate, options).run(clients, Duration::from_secs(options.seconds))?;
            Ok(Figures {
                transactions: report.transactions,
                per_second: report.transactions_per_second,
                seconds: report.seconds,
                latency_p95_ms: report.latency_p95_ms,
                commit_share: Some(report.commit_share),
            })
        }
        Load::OltpWriteOnly => {
            let sysbench = sysbench(candidate, clients, options);
            let report = sysbench.run(SysbenchLoad::WriteOnly, Until::Seconds(options.seconds))?;
            Ok(Figures {
                transactions: report.transactions,
                per_second: report.transactions_per_second,
                seconds: report.transactions as f64 / report.transactions_per_second,
                latency_p95_ms: report.latency_p95_ms,
                commit_share: None,
            })
        }
    }
}

/// All candidates with one load and one number of clients.
fn compare(
    candidates: &[Candidate],
    load: Load,
    clients: u32,
    group: &str,
    options: &Options,
) -> Result<Vec<Cell>> {
    let mut cells: Vec<_> =
        candidates.iter().map(|candidate| Cell::new(candidate, load, clients, group)).collect();
    for round in 0..options.rounds as usize {
        for turn in 0..candidates.len() {
            let at = (round + turn) % candidates.len();
            let (Some(candidate), Some(cell)) = (candidates.get(at), cells.get_mut(at)) else { continue };
            let before = candidate.log_counters()?;
            let figures = run_load(candidate, load, clients, options)?;
            cell.push(&figures, candidate.log_counters()?.since(&before));
        }
    }
    report::finish(&mut cells);
    Ok(cells)
}
