//! Rounds of: a stock server is killed under load, and its data directory becomes a volume.
//!
//! What a kill leaves is more than a copy of some moment: pages of any age, torn ones aside, and pages that the server
//! never wrote because they were freed while they were dirty, with records in the redo log that fit nothing in the
//! file. Each round draws page size, buffer pool, redo log, flushing, and the node's batch by seed, loads the server
//! with statements that free pages (deletes, truncates, drops, indexes, large columns), kills it after a random time,
//! and requires: the import succeeds; a server on the volume shows what a stock server shows after its own recovery of
//! a copy (`CHECKSUM TABLE`, definitions); `CHECK TABLE` finds nothing; more load runs, also over a kill of the server;
//! the volume never stops and no page differs (`--verify=all`).
//!
//! Settings and statements follow from the seed; where the kill meets the server depends on time, so a seed gives the
//! same kind of round again, not the same bytes. The directory of a round that failed is kept, and that of its node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mysql::Conn;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{connect, execute};

use crate::check::{Snapshot, check_database, finish_purge};
use crate::command::{Outcome, PATIENCE};
use crate::node::Node;
use crate::oracle::history::{PAGE_SIZES, copy_directory};

/// Database of the tables.
const DATABASE: &str = "killed";
const TABLES: u32 = 4;
const CLIENTS: u32 = 4;
const VOLUME: &str = "killed";

/// What to run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Seed of the first round; each further one takes the next
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of rounds
    #[arg(long, default_value_t = 3)]
    pub rounds: u32,
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

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Rounds that were done and sound.
    pub sound: u32,
    /// Those that were not: seed, and why.
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

/// What a round is like.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
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
    fn of_seed(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        // The common size half the time.
        let page_size_bytes =
            if seed % 2 == 1 { 16384 } else { PAGE_SIZES[(seed / 2) as usize % PAGE_SIZES.len()] };
        let pools: &[u32] = if page_size_bytes > 16384 { &[32, 64] } else { &[8, 16, 32, 64] };
        let dirty_pct = pick(&mut random, &[0, 10, 90]);
        let server_args = vec![
            format!("--innodb-max-dirty-pages-pct={dirty_pct}"),
            format!("--innodb-io-capacity={}", pick(&mut random, &[100, 400, 4000])),
            format!("--innodb-purge-threads={}", pick(&mut random, &[1, 4])),
            format!("--innodb-flush-log-at-trx-commit={}", pick(&mut random, &[0, 1, 2])),
            format!("--innodb-change-buffering={}", pick(&mut random, &["none", "all"])),
            "--innodb-undo-log-truncate=ON".to_owned(),
            "--innodb-max-undo-log-size=10485760".to_owned(),
            "--innodb-lock-wait-timeout=1".to_owned(),
            "--lock-wait-timeout=1".to_owned(),
            "--skip-log-bin".to_owned(),
        ];
        Self {
            seed,
            page_size_bytes,
            pool_mib: pick(&mut random, pools),
            // A stock server with 10 MiB may overwrite its own log under this load, and then does not start again.
            log_mib: pick(&mut random, &[16, 32, 96]),
            server_args,
            batch: pick(&mut random, &["1MiB", "4MiB", "16MiB"]),
            rows: random.u32(1_000..15_000),
            load_ms: random.u64(300..2_500),
        }
    }

    fn config(&self) -> ServerConfig {
        let mut config = ServerConfig::new(Launcher::Stock).innodb_arg("--innodb-undo-tablespaces=3");
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
/// The first broken promise, with its seed and plan, unless the rounds go on after one; what is no finding (a server
/// that cannot be installed) in any case.
pub fn run(options: &Options, mut progress: impl FnMut(&str)) -> Result<Summary> {
    let templates =
        tempfile::Builder::new().prefix("rdt-").tempdir().map_err(Error::io("make a temporary directory"))?;
    let mut summary = Summary::default();
    for seed in options.seed..options.seed + u64::from(options.rounds) {
        let began = Instant::now();
        let plan = Plan::of_seed(seed);
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

fn round(plan: &Plan, stock: &mut Server, failures: &Path, summary: &mut Summary) -> Result<()> {
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
    plan: &Plan,
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
fn load_and_kill(plan: &Plan, stock: &mut Server, summary: &mut Summary) -> Result<()> {
    stock.start()?;
    prepare(stock, plan)?;
    let load = Load::start(&stock.socket(), plan.seed, plan.rows);
    load.run_for(Duration::from_millis(plan.load_ms));
    stock.kill9()?;
    summary.statements += load.stop()?;
    Ok(())
}

/// The same two loads and kills on one stock server.
fn stock_round(plan: &Plan, stock: &mut Server, summary: &mut Summary) -> Result<()> {
    load_and_kill(plan, stock, summary)?;
    stock.start()?;
    let result = stand_load_and_kill(plan, stock);
    result.map_err(|error| Error::Violation(format!("stock: {error}\nserver: {}", stock.error_log_tail(60))))
}

fn prepare(server: &Server, plan: &Plan) -> Result<()> {
    let mut conn = server.connect()?;
    execute(&mut conn, &format!("CREATE DATABASE {DATABASE}"))?;
    execute(&mut conn, &format!("USE {DATABASE}"))?;
    for table in 0..TABLES {
        execute(&mut conn, &create_table(table, plan.seed))?;
        execute(&mut conn, &fill(table, 1, plan.rows))?;
    }
    Ok(())
}

/// Row formats in turn.
fn create_table(table: u32, seed: u64) -> String {
    let formats = ["DYNAMIC", "REDUNDANT", "COMPACT", "DYNAMIC PAGE_COMPRESSED=1", "DYNAMIC"];
    let format = formats[(seed as usize / 3 + table as usize) % formats.len()];
    format!(
        "CREATE TABLE t{table} (id INT PRIMARY KEY, k INT NOT NULL, c VARCHAR(160) NOT NULL, b LONGBLOB, KEY k (k), \
         KEY c (c)) ENGINE=InnoDB CHARSET=latin1 ROW_FORMAT={format}"
    )
}

fn fill(table: u32, from: u32, to: u32) -> String {
    format!(
        "REPLACE INTO t{table} SELECT seq, seq * 7919 % 10007, REPEAT(MD5(seq), 4), NULL FROM seq_{from}_to_{to}"
    )
}

/// Clients that change tables and free pages until the server is gone.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(socket: &Path, seed: u64, rows: u32) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let client = |number: u32| {
            let (stop, done, socket) = (Arc::clone(&stop), Arc::clone(&done), socket.to_owned());
            let mut random =
                fastrand::Rng::with_seed(seed.wrapping_mul(1009).wrapping_add(u64::from(number)));
            std::thread::spawn(move || {
                let Ok(mut conn) = connect(&socket) else { return };
                let mut use_it = execute(&mut conn, &format!("USE {DATABASE}"));
                while use_it.is_ok() && !stop.load(Ordering::Relaxed) {
                    match step(&mut conn, &mut random, seed, rows, number == 0) {
                        Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        // Deadlocks, lock waits, tables and indexes that are not there: part of the load.
                        Err(error) if !error.is_connection_loss() => {}
                        Err(error) => use_it = Err(error),
                    }
                }
            })
        };
        let threads = (0..CLIENTS).map(client).collect();
        Self { stop, done, threads }
    }

    /// Lets it run for so long: the time of a kill, which is to be any.
    fn run_for(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Ends it after the statements that run, and says how many were done.
    fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| Error::State("a client of the load panicked".into()))?;
        }
        Ok(self.done.load(Ordering::Relaxed))
    }
}

/// One statement or small transaction. Only one client defines and empties tables, so that the others go on.
fn step(conn: &mut Conn, random: &mut fastrand::Rng, seed: u64, rows: u32, defines: bool) -> Result<()> {
    let table = random.u32(..TABLES);
    let id = random.u32(1..=rows);
    let last = id + random.u32(100..2_000);
    let some_c = random.u32(..);
    match random.u32(..if defines { 100 } else { 80 }) {
        0..=34 => {
            execute(conn, "BEGIN")?;
            for _ in 0..4 {
                let id = random.u32(1..=rows);
                execute(conn, &format!("UPDATE t{table} SET k = k + 1 WHERE id = {id}"))?;
                execute(conn, &format!("UPDATE t{table} SET c = REPEAT(MD5({some_c}), 3) WHERE id = {id}"))?;
                execute(conn, &format!("DELETE FROM t{table} WHERE id = {id}"))?;
                execute(conn, &fill(table, id, id))?;
            }
            execute(conn, if random.u8(..8) == 0 { "ROLLBACK" } else { "COMMIT" })
        }
        35..=49 => execute(conn, &format!("DELETE FROM t{table} WHERE id BETWEEN {id} AND {last}")),
        50..=64 => execute(conn, &fill(table, id, last)),
        65..=69 => execute(conn, &format!("UPDATE t{table} SET c = MD5(c) WHERE id BETWEEN {id} AND {last}")),
        70..=74 => {
            let length = random.u32(1_000..60_000);
            execute(
                conn,
                &format!("UPDATE t{table} SET b = REPEAT('b', {length}) WHERE id BETWEEN {id} AND {id} + 20"),
            )
        }
        75..=79 => execute(conn, &format!("UPDATE t{table} SET b = NULL WHERE b IS NOT NULL LIMIT 50")),
        80..=83 => execute(conn, &format!("TRUNCATE TABLE t{table}")),
        84..=87 => {
            execute(conn, &format!("DROP TABLE t{table}"))?;
            execute(conn, &create_table(table, seed + u64::from(id)))?;
            execute(conn, &fill(table, 1, rows))
        }
        88..=91 => execute(conn, &format!("ALTER TABLE t{table} ADD INDEX more (c, k)")),
        92..=95 => execute(conn, &format!("ALTER TABLE t{table} DROP INDEX more")),
        _ => execute(conn, &format!("ALTER TABLE t{table} FORCE")),
    }
}

/// What a stock server shows of a copy of the directory.
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
fn require_same_on_volume(plan: &Plan, node: &Node, expected: &Snapshot) -> Result<()> {
    let mut config = plan.config();
    config.launcher = node.launcher(VOLUME, Verify::All);
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
fn stand_load_and_kill(plan: &Plan, server: &mut Server) -> Result<()> {
    let load = Load::start(&server.socket(), plan.seed + 1_000_000, plan.rows);
    load.run_for(Duration::from_millis(600));
    server.kill9()?;
    load.stop()?;
    server.start()?;
    finish_purge(&mut server.connect()?)?;
    if let Err(error) = check_database(&mut server.connect()?, DATABASE) {
        // Whether it passes says where to look: at what is stored, or at what the server has not done yet.
        server.shutdown()?;
        server.start()?;
        let again = check_database(&mut server.connect()?, DATABASE);
        return Err(Error::Violation(format!("{error}; after another start: {again:?}")));
    }
    server.shutdown()
}
