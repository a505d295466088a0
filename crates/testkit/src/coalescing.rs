//! What a node writes to its page store for each byte of redo, against the length of a batch.
//!
//! A page that many records of a batch change is built and written once, so longer batches write fewer page bytes;
//! the page journal then keeps those pages from going home that the next batches write again. Each length gets a node
//! and a server of its own with the same load, the TPC-C-like mix ([`crate::tpcc`]), until some batches have been
//! applied. All figures are counts of bytes, ratios to the bytes of redo applied; the speed of the machine is not in
//! them, except that the mix is random.

use std::fmt::Write;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::launcher::{Verify, find_redoubt};
use crate::node::Node;
use crate::server::{Server, ServerConfig};
use crate::tpcc::{Scale, Tpcc};

const VOLUME: &str = "bench";
const CLIENTS: u32 = 8;
/// A ring holds some batches, so that the server need not wait for the one being applied.
const RING_PER_BATCH: u64 = 4;
const MIN_RING_BYTES: u64 = 64 << 20;

/// What to run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Lengths of a batch, MiB
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16, 64])]
    pub batches: Vec<u64>,
    /// Protection of the pages: journal, doublewrite or atomic (pretended)
    #[arg(long, default_value = "journal", value_parser = ["journal", "doublewrite", "atomic"])]
    pub protection: String,
    /// Length of the page journal, MiB
    #[arg(long, default_value_t = 128)]
    pub journal_mib: u64,
    /// Batches to apply before counting ends
    #[arg(long, default_value_t = 3)]
    pub applied: u64,
    /// Seconds after which a length is given up
    #[arg(long, default_value_t = 600)]
    pub seconds: u64,
    /// Warehouses of the mix
    #[arg(long, default_value_t = 4)]
    pub warehouses: u32,
    /// Buffer pool of the server, MiB
    #[arg(long, default_value_t = 128)]
    pub pool: u32,
}

/// Figures of one length of a batch.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// Protection of the pages.
    pub protection: String,
    /// Length of a batch in MiB.
    pub batch_mib: u64,
    /// Length of the page journal in MiB.
    pub journal_mib: u64,
    /// Batches applied while counting.
    pub batches_applied: u64,
    /// Redo bytes applied while counting.
    pub redo_bytes_applied: u64,
    /// Transactions of the load.
    pub transactions: u64,
    /// Record runs (records of one mini-transaction for one page) per page built.
    pub runs_per_page: f64,
    /// Bytes of pages built, per byte of redo.
    pub built_per_redo_byte: f64,
    /// Bytes written to the page journal, per byte of redo.
    pub journal_per_redo_byte: f64,
    /// Bytes written to page files, per byte of redo.
    pub home_per_redo_byte: f64,
    /// Images that never went home, of those that left the journal.
    pub superseded_share: f64,
}

/// Counters of a node that matter here.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    tables: u64,
    redo: u64,
    runs: u64,
    pages: u64,
    built: u64,
    journal: u64,
    home: u64,
    pages_home: u64,
    superseded: u64,
}

/// Runs all lengths, one after the other.
///
/// # Errors
/// Whatever keeps a server or the load from running.
pub fn run(options: &Options) -> Result<Vec<Cell>> {
    options.batches.iter().map(|batch_mib| one(*batch_mib, options)).collect()
}

fn one(batch_mib: u64, options: &Options) -> Result<Cell> {
    let ring = (RING_PER_BATCH * (batch_mib << 20)).max(MIN_RING_BYTES);
    let (ring, batch) = (ring.to_string(), (batch_mib << 20).to_string());
    let journal = (options.journal_mib << 20).to_string();
    let mut arguments = vec!["--ring", &ring, "--batch", &batch, "--journal", &journal];
    arguments.extend(["--page-protection", &options.protection, "--apply-interval", "3600"]);
    if options.protection == "atomic" {
        arguments.push("--pretend-atomic");
    }
    let node = Node::create(&find_redoubt()?, &arguments)?;
    node.create_volume(VOLUME)?;
    let mut config = ServerConfig::new(node.launcher(VOLUME, Verify::Off));
    config.buffer_pool_mib = options.pool;
    let server = Server::create(config)?;
    let socket = server.socket();
    let scale = Scale { warehouses: options.warehouses, ..Scale::default() };
    let tpcc = Tpcc { socket: &socket, scale, seed: 1 };
    tpcc.prepare()?;
    let (mut transactions, deadline) = (0, Instant::now() + Duration::from_secs(options.seconds));
    let mut run_until = |wanted: &dyn Fn(&Counted) -> bool| loop {
        transactions += tpcc.run(CLIENTS, Duration::from_secs(2))?.transactions;
        let counted = count(&node.status(VOLUME)?)?;
        if wanted(&counted) || Instant::now() > deadline {
            return Ok::<_, Error>((counted, transactions));
        }
    };
    // Loading the tables is not counted, nor the batch that it ends in.
    let loaded = count(&node.status(VOLUME)?)?;
    let (before, not_counted) = run_until(&|now| now.tables > loaded.tables)?;
    let (after, all) = run_until(&|now| now.tables >= before.tables + options.applied)?;
    cell(&before, &after, all - not_counted, batch_mib, options)
}

fn cell(
    before: &Counted,
    after: &Counted,
    transactions: u64,
    batch_mib: u64,
    options: &Options,
) -> Result<Cell> {
    let redo = after.redo - before.redo;
    if redo == 0 {
        return Err(Error::State(format!(
            "no batch of {batch_mib} MiB was full within {} s; give it more --seconds",
            options.seconds
        )));
    }
    let ratio = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let superseded = after.superseded - before.superseded;
    Ok(Cell {
        protection: options.protection.clone(),
        batch_mib,
        journal_mib: options.journal_mib,
        batches_applied: after.tables - before.tables,
        redo_bytes_applied: redo,
        transactions,
        runs_per_page: ratio(after.runs - before.runs, after.pages - before.pages),
        built_per_redo_byte: ratio(after.built - before.built, redo),
        journal_per_redo_byte: ratio(after.journal - before.journal, redo),
        home_per_redo_byte: ratio(after.home - before.home, redo),
        superseded_share: ratio(superseded, superseded + after.pages_home - before.pages_home),
    })
}

fn count(status: &Value) -> Result<Counted> {
    let number = |name: &str| {
        status.pointer(&format!("/volumes/0/counters/{name}")).and_then(Value::as_u64).ok_or_else(|| {
            Error::Parse { what: "redoubt status --json".into(), detail: format!("no counter {name}") }
        })
    };
    Ok(Counted {
        tables: number("tables_applied")?,
        redo: number("redo_bytes_applied")?,
        runs: number("runs")?,
        pages: number("pages_applied")?,
        built: number("page_applied_bytes")?,
        journal: number("page_journal_written_bytes")?,
        home: number("page_home_written_bytes")?,
        pages_home: number("pages_written_home")?,
        superseded: number("page_images_superseded")?,
    })
}

/// The cells as a Markdown table.
pub fn table(cells: &[Cell]) -> String {
    let mut out = String::from(
        "| protection | batch MiB | batches | redo MiB | record runs per page | built per redo byte | journal per redo byte | home per redo byte | both | never went home |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for cell in cells {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {:.0} | {:.1} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} % |",
            cell.protection,
            cell.batch_mib,
            cell.batches_applied,
            cell.redo_bytes_applied as f64 / f64::from(1 << 20),
            cell.runs_per_page,
            cell.built_per_redo_byte,
            cell.journal_per_redo_byte,
            cell.home_per_redo_byte,
            cell.journal_per_redo_byte + cell.home_per_redo_byte,
            cell.superseded_share * 100.0
        );
    }
    out
}
