//! Rounds of: a stock server is killed under load, and its data directory becomes a volume.
//!
//! A kill leaves more than a copy of some moment. It leaves pages of any age, even torn ones, and pages that the server
//! never wrote because they were freed while they were dirty, with records in the redo log that fit nothing in the
//! file. Each round draws page size, buffer pool, redo log, flushing, and the node's batch by seed. It loads the server
//! with statements that free pages (deletes, truncates, drops, indexes, large columns), and kills it after a random
//! time. The import must succeed, a server on the volume must show the same as a stock server after its own recovery of
//! a copy (`CHECKSUM TABLE`, definitions), and `CHECK TABLE` must find nothing. Then more load runs, also over a kill
//! of the server; the volume must never stop, and no page may differ (`--verify=all`).
//!
//! Settings and statements follow from the seed; where the kill meets the server depends on time, so a seed gives the
//! same kind of round again, not the same bytes. The directory of a round that failed is kept, and that of its node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::fetched;
use redoubt_harness::node::Node;
use redoubt_harness::sparse_files::copy_directory;
use redoubt_redo::Family;
use redoubt_workload::check::{Snapshot, check_database, finish_purge};
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::product::{FetchedServer, Product};
use redoubt_workload::server::{Server, ServerConfig};

use crate::history::PAGE_SIZES;

mod load;

use load::{Load, prepare};

/// Statements of a round before the kill, at least.
pub const LEAST_STATEMENTS: u64 = 50;
/// Database of the tables.
const DATABASE: &str = "killed";
const VOLUME: &str = "killed";

/// The command to run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Seed of the first round; each further one takes the next
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of rounds
    #[arg(long, default_value_t = 3)]
    pub rounds: u32,
    /// The server, if not mariadbd in PATH: the name of one that scripts/fetch-server has fetched
    #[arg(long, value_parser = fetched::named)]
    pub server: Option<FetchedServer>,
    /// Where the data directory of a round that failed goes, as the kill left it
    #[arg(long, default_value = "target/import-killed")]
    pub failures: PathBuf,
    /// Go on after a round that failed
    #[arg(long)]
    pub go_on: bool,
    /// Without a node: the second load and kill on the stock server, to see what is the server's own doing
    #[arg(long)]
    pub stock: bool,
}

/// The result.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Rounds that were done and sound.
    pub sound: u32,
    /// Failed rounds: seed and reason.
    pub failures: Vec<(u64, String)>,
    /// Sound rounds by page size.
    pub page_sizes: BTreeMap<u32, u32>,
    /// Statements that the stock servers took before they were killed.
    pub statements: u64,
    /// Redo that the imports fed, in bytes.
    pub redo_bytes: u64,
    /// Tables whose checksums were compared.
    pub tables_compared: u64,
    /// Pages compared with what the server would have written.
    pub pages_verified: u64,
}

/// Settings of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    product: Product,
    family: Family,
    seed: u64,
    page_size_bytes: u32,
    pool_mib: u32,
    log_mib: u32,
    server_args: Vec<String>,
    batch: &'static str,
    rows: u32,
    load_ms: u64,
}

impl Plan {
    fn of_seed(seed: u64, product: &Product) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        // The common size half the time.
        let page_size_bytes =
            if seed % 2 == 1 { 16384 } else { PAGE_SIZES[(seed / 2) as usize % PAGE_SIZES.len()] };
        let pools: &[u32] = if page_size_bytes > 16384 { &[32, 64] } else { &[8, 16, 32, 64] };
        let mut server_args = vec![
            format!("--innodb-max-dirty-pages-pct={}", pick(&mut random, &[0, 10, 90])),
            format!("--innodb-io-capacity={}", pick(&mut random, &[100, 400, 4000])),
            format!("--innodb-purge-threads={}", pick(&mut random, &[1, 4])),
            format!("--innodb-flush-log-at-trx-commit={}", pick(&mut random, &[0, 1, 2])),
            format!("--innodb-change-buffering={}", pick(&mut random, &["none", "all"])),
        ];
        let rest = [
            "--innodb-undo-log-truncate=ON",
            "--innodb-max-undo-log-size=10485760",
            "--innodb-lock-wait-timeout=1",
            "--lock-wait-timeout=1",
            "--skip-log-bin",
        ];
        server_args.extend(rest.map(str::to_owned));
        Self {
            product: product.clone(),
            family: if product.is_mysql() { Family::MySql } else { Family::MariaDb },
            seed,
            page_size_bytes,
            pool_mib: pick(&mut random, pools),
            // A stock MariaDB with 10 MiB may overwrite its own log under this load, and then does not start again.
            log_mib: pick(&mut random, &[16, 32, 96]),
            server_args,
            batch: pick(&mut random, &["1MiB", "4MiB", "16MiB"]),
            rows: random.u32(1_000..15_000),
            load_ms: random.u64(300..2_500),
        }
    }

    fn config(&self) -> ServerConfig {
        let mut config = ServerConfig::new(Launcher::Stock).product(self.product.clone());
        if self.family == Family::MariaDb {
            config = config.innodb_arg("--innodb-undo-tablespaces=3");
        }
        config.page_size_bytes = self.page_size_bytes;
        config.buffer_pool_bytes = u64::from(self.pool_mib) << 20;
        config.log_file_size_bytes = u64::from(self.log_mib) << 20;
        config.server_args.clone_from(&self.server_args);
        config
    }
}

fn pick<T: Copy>(random: &mut fastrand::Rng, choices: &[T]) -> T {
    choices[random.usize(..choices.len())]
}

/// Runs the rounds; `progress` gets a line per round.
///
/// # Errors
/// The first broken promise, with its seed and plan, unless the rounds continue after one. Errors that are no finding
/// (a server that cannot be installed) in any case.
pub fn run(options: &Options, mut progress: impl FnMut(&str)) -> Result<Summary> {
    let templates =
        tempfile::Builder::new().prefix("rdt-").tempdir().map_err(Error::io("make a temporary directory"))?;
    let product = options.server.map_or(Ok(Product::MariaDb), fetched::find)?;
    let mut summary = Summary::default();
    for seed in options.seed..options.seed + u64::from(options.rounds) {
        let began = Instant::now();
        let plan = Arc::new(Plan::of_seed(seed, &product));
        let template = template(&plan, templates.path())?;
        let mut stock = Server::new(plan.config())?;
        copy_directory(&template, &stock.datadir())?;
        let result = if options.stock {
            stock_round(&plan, &mut stock, &mut summary)
        } else {
            round(&plan, &mut stock, &options.failures, &mut summary)
        };
        match result {
            Ok(()) => {
                summary.sound += 1;
                *summary.page_sizes.entry(plan.page_size_bytes).or_default() += 1;
                let (took, page_size, pool) =
                    (began.elapsed().as_secs_f64(), plan.page_size_bytes, plan.pool_mib);
                progress(&format!("seed {seed}: pages of {page_size}, pool {pool} MiB: sound, {took:.1} s"));
            }
            Err(error) => {
                let kept = keep(&stock, &options.failures, seed)?;
                let what = format!("{error}\n{plan:?}\nits directory: {}", kept.display());
                progress(&format!("seed {seed}: {what}"));
                if !options.go_on {
                    return Err(Error::Violation(format!("seed {seed}: {what}")));
                }
                summary.failures.push((seed, what));
            }
        }
    }
    Ok(summary)
}

/// The data directory of an installed server with the plan's page size, made on first use.
fn template(plan: &Plan, directory: &Path) -> Result<PathBuf> {
    let directory = directory.join(plan.page_size_bytes.to_string());
    let mut server = Server::in_directory(plan.config(), &directory)?;
    if !server.datadir().join("ibdata1").exists() {
        // Logs of all lengths can follow one that was shut down cleanly.
        server.install_db()?;
    }
    Ok(server.datadir())
}

fn keep(stock: &Server, failures: &Path, seed: u64) -> Result<PathBuf> {
    let target = failures.join(seed.to_string());
    keep_directory(&stock.datadir(), &target)?;
    Ok(target)
}

fn keep_directory(from: &Path, target: &Path) -> Result<()> {
    if target.exists() {
        std::fs::remove_dir_all(target).map_err(Error::io_at("remove", target))?;
    }
    copy_directory(from, target)
}

fn round(plan: &Arc<Plan>, stock: &mut Server, failures: &Path, summary: &mut Summary) -> Result<()> {
    load_and_kill(plan, stock, summary)?;
    let expected = recovered_by_stock(plan, &stock.datadir())?;
    summary.tables_compared += expected.checksums.len() as u64;

    let ring = ["--ring", "64MiB", "--batch", plan.batch, "--apply-interval", "1"];
    let mut node = Node::create(&find_redoubt()?, &ring)?;
    let result = round_on_node(plan, &node, &stock.datadir(), &expected, summary);
    if result.is_err() {
        node.kill9()?;
        keep_directory(&node.data(), &failures.join(format!("{}-node", plan.seed)))?;
    }
    result
}

fn round_on_node(
    plan: &Arc<Plan>,
    node: &Node,
    killed: &Path,
    expected: &Snapshot,
    summary: &mut Summary,
) -> Result<()> {
    let imported = import(node, killed)?;
    let on_volume = require_same_on_volume(plan, node, expected);
    on_volume.map_err(|error| Error::Violation(format!("{error}\nnode: {}", node.log_tail(60))))?;
    let status = node.status(VOLUME)?;
    let volume = &status["volumes"][0];
    let counter = |name: &str| volume["counters"][name].as_u64();
    if volume["state"] == "stopped" || counter("page_mismatches") != Some(0) {
        return Err(Error::Violation(format!("the volume stopped or a page differs: {status}")));
    }
    summary.pages_verified += counter("pages_verified").unwrap_or(0);
    summary.redo_bytes += imported;
    Ok(())
}

/// Starts the server, and kills it after the plan's time of load.
fn load_and_kill(plan: &Arc<Plan>, stock: &mut Server, summary: &mut Summary) -> Result<()> {
    stock.start()?;
    prepare(stock, plan)?;
    let load = Load::start(&stock.socket(), plan, 0);
    load.run_for(Duration::from_millis(plan.load_ms), LEAST_STATEMENTS)?;
    stock.kill9()?;
    summary.statements += load.stop()?;
    Ok(())
}

/// The same two loads and kills on one stock server.
fn stock_round(plan: &Arc<Plan>, stock: &mut Server, summary: &mut Summary) -> Result<()> {
    load_and_kill(plan, stock, summary)?;
    stock.start()?;
    let result = stand_load_and_kill(plan, stock);
    result.map_err(|error| Error::Violation(format!("stock: {error}\nserver: {}", stock.error_log_tail(60))))
}

/// A stock server's snapshot of a copy of the directory, after its own recovery.
fn recovered_by_stock(plan: &Plan, killed: &Path) -> Result<Snapshot> {
    let mut server = Server::new(plan.config())?;
    copy_directory(killed, &server.datadir())?;
    server.start()?;
    let expected = Snapshot::take(&mut server.connect()?, Some(DATABASE), &[])?;
    server.kill9()?;
    Ok(expected)
}

/// Imports the directory; the bytes of redo that it said.
fn import(node: &Node, killed: &Path) -> Result<u64> {
    let (address, killed) = (node.address().to_string(), killed.display().to_string());
    let args = ["volume", "import", VOLUME, "--from", &killed, "--node", &address];
    Outcome::of(node.redoubt_bin(), args, PATIENCE)?
        .require_success()
        .map_err(|error| Error::Violation(format!("import: {error}\nnode: {}", node.log_tail(15))))?;
    let status = node.status(VOLUME)?;
    let counter = status["volumes"][0]["w_lsn"].as_u64();
    counter.ok_or_else(|| Error::Parse { what: "redoubt status".into(), detail: status.to_string() })
}

/// A server on the volume shows the same, and stands more load and a kill.
fn require_same_on_volume(plan: &Arc<Plan>, node: &Node, expected: &Snapshot) -> Result<()> {
    let mut config = plan.config();
    config.launcher = node.launcher_with(VOLUME, Verify::All, &["--on-difference=stop"]);
    let mut server = Server::new(config)?;
    let result = (|| {
        server.start()?;
        let shown = Snapshot::take(&mut server.connect()?, Some(DATABASE), &[])?;
        expected.require_same(&shown, "on the imported volume")?;
        stand_load_and_kill(plan, &mut server)
    })();
    result.map_err(|error: Error| {
        Error::Violation(format!("on the volume: {error}\nserver: {}", server.error_log_tail(400)))
    })
}

/// More load, a kill, and a check of what the server shows after it.
fn stand_load_and_kill(plan: &Arc<Plan>, server: &mut Server) -> Result<()> {
    let load = Load::start(&server.socket(), plan, 1_000_000);
    load.run_for(Duration::from_millis(600), 0)?;
    server.kill9()?;
    load.stop()?;
    server.start()?;
    if plan.family == Family::MariaDb {
        finish_purge(&mut server.connect()?)?;
    }
    if let Err(error) = check_database(&mut server.connect()?, DATABASE) {
        // Whether it passes says where to look: at what is stored, or at what the server has not done yet.
        server.shutdown()?;
        server.start()?;
        let again = check_database(&mut server.connect()?, DATABASE);
        return Err(Error::Violation(format!("{error}; after another start: {again:?}")));
    }
    server.shutdown()
}
