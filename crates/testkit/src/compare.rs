//! The same load on the same server with and without Redoubt, in turns, in one run.
//!
//! Machines differ and are noisy, so only the ratio counts: each round runs both, the order changes from round to
//! round, and the ratio is taken per round. Both servers live all the time; the one not measured is idle.

use crate::error::{Error, Result};
use crate::launcher::{Launcher, Verify, find_redoubt};
use crate::node::Node;
use crate::server::{Server, ServerConfig};
use crate::workload::{Load, Sysbench, Until};
use serde::Serialize;

/// What to run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Rounds per load
    #[arg(long, default_value_t = 3)]
    pub rounds: u32,
    /// Seconds per run
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
    /// Client threads
    #[arg(long, default_value_t = 8)]
    pub threads: u32,
    /// Tables
    #[arg(long, default_value_t = 4)]
    pub tables: u32,
    /// Rows per table
    #[arg(long, default_value_t = 100_000)]
    pub rows: u32,
    /// Buffer pool of both servers, MiB
    #[arg(long, default_value_t = 128)]
    pub pool: u32,
}

/// Transactions per second of one round.
#[derive(Debug, Clone, Serialize)]
pub struct Round {
    /// Without Redoubt.
    pub stock: f64,
    /// With Redoubt.
    pub redoubt: f64,
    /// Redoubt divided by stock.
    pub ratio: f64,
}

/// Result of one load.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The load.
    pub load: &'static str,
    /// Each round.
    pub rounds: Vec<Round>,
    /// Median of the ratios.
    pub ratio_median: f64,
    /// Bytes the shim sent on all connections per redo byte of the server, since it started.
    pub sent_per_redo_byte: f64,
}

/// Runs both loads.
///
/// # Errors
/// Whatever keeps a server or a load from running.
pub fn run(options: &Options) -> Result<Vec<Comparison>> {
    let node = Node::create(&find_redoubt()?, &[])?;
    node.create_volume("compare")?;
    let stock = server(Launcher::Stock, options)?;
    let redoubt = server(node.launcher("compare", Verify::Off), options)?;
    let sysbench = |server: &Server| Sysbench {
        tables: options.tables,
        rows: options.rows,
        threads: options.threads,
        ..Sysbench::small(&server.socket())
    };
    let (stock, redoubt) = (sysbench(&stock), sysbench(&redoubt));
    stock.prepare()?;
    redoubt.prepare()?;
    let mut comparisons = Vec::new();
    for (name, load) in [("oltp_read_write", Load::ReadWrite), ("oltp_write_only", Load::WriteOnly)] {
        let mut rounds = Vec::new();
        for round in 0..options.rounds {
            let run = |sysbench: &Sysbench| {
                sysbench
                    .run(load, Until::Seconds(options.seconds))
                    .map(|report| report.transactions_per_second)
            };
            let (stock, redoubt) = if round % 2 == 0 {
                let stock = run(&stock)?;
                (stock, run(&redoubt)?)
            } else {
                let redoubt = run(&redoubt)?;
                (run(&stock)?, redoubt)
            };
            rounds.push(Round { stock, redoubt, ratio: redoubt / stock });
        }
        let mut ratios: Vec<_> = rounds.iter().map(|round| round.ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let ratio_median = ratios.get(ratios.len() / 2).copied().unwrap_or(0.0);
        comparisons.push(Comparison {
            load: name,
            rounds,
            ratio_median,
            sent_per_redo_byte: sent_ratio(&node)?,
        });
    }
    Ok(comparisons)
}

fn server(launcher: Launcher, options: &Options) -> Result<Server> {
    let mut config = ServerConfig::new(launcher);
    config.buffer_pool_mib = options.pool;
    config.log_file_size_mib = 96;
    Server::create(config)
}

fn sent_ratio(node: &Node) -> Result<f64> {
    let status = node.status("compare")?;
    let counters = &status["volumes"][0]["server_counters"];
    let read = |name: &str| {
        counters[name].as_f64().ok_or_else(|| Error::Parse {
            what: "redoubt status --json".into(),
            detail: format!("no {name}"),
        })
    };
    Ok(read("sent_bytes")? / read("redo_bytes")?)
}
