//! A backlog of redo over cold tables: how long a node takes to apply it, and a stock server to recover from it.
//!
//! A stock server makes tables, is shut down cleanly, and becomes a volume by import. Then it updates random rows until
//! its log is long enough, without writing pages, and is killed. Its log now holds all of that as changes of pages that
//! are all on disk and none in memory, for both sides:
//!
//! * stock: a copy of the killed directory, from the start of the server until it answers, for each size of the buffer
//!   pool; and until its clean shutdown, when its pages are on disk, too;
//! * node: the same redo is fed to the volume, which makes it durable and applies nothing; then, from the start of the
//!   node until all of it is applied, which is when its pages are on disk.
//!
//! The kernel's page cache is emptied before each. Needs root for that, and a disk of its own to mean much.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use redoubt_harness::node::Node;
use redoubt_harness::sparse_files::copy_directory;
use redoubt_node::memory::MemoryBudget;
use redoubt_node::volume::{Received, SERVER_NOT_SAID, Volume};
use redoubt_node::{NodeError, NodeOptions};
use redoubt_redo::mariadb::LogScan;
use redoubt_redo::{Lsn, Mtr};
use redoubt_redo_oracle::base::{LogFile, parse};
use redoubt_wire::Seq;
use redoubt_wire::frame::append_frame;
use redoubt_wire::hello::{Compression, Hello, Role};
use redoubt_wire::stream::StreamFrame;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::{Launcher, find_redoubt};
use redoubt_workload::process::{poll_every, poll_until};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{connect, execute, status_number};
use serde::Serialize;

const DATABASE: &str = "cold";
const VOLUME: &str = "cold";
const CLIENTS: u64 = 4;
/// Approximate size of a row in the tables.
const ROW_BYTES: u64 = 240;
/// Rows that a statement updates.
const ROWS_PER_UPDATE: u64 = 50;
/// Redo that goes in one frame: about what a busy server sends at once.
const FRAME_BYTES: usize = 64 << 10;
/// How exact the end of applying is known.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Time for anything here.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The command to run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Size of the tables, MiB
    #[arg(long, default_value_t = 1024)]
    pub tables_mib: u64,
    /// Number of tables
    #[arg(long, default_value_t = 8)]
    pub tables: u64,
    /// Length of the redo, MiB
    #[arg(long, default_value_t = 512)]
    pub redo_mib: u64,
    /// Buffer pools of the stock server, MiB
    #[arg(long, value_delimiter = ',', default_values_t = [512])]
    pub pools: Vec<u32>,
    /// Further arguments of the node, in one word
    #[arg(long, default_value = "--apply-interval 1", allow_hyphen_values = true)]
    pub node_options: String,
    /// Where the directories are made
    #[arg(long)]
    pub directory: Option<PathBuf>,
    /// Make the backlog once and keep it here; use it if it is there
    #[arg(long)]
    pub keep: Option<PathBuf>,
    /// Leave the stock server out
    #[arg(long)]
    pub node_only: bool,
}

/// A stock server's recovery.
#[derive(Debug, Clone, Serialize)]
pub struct Stock {
    /// Its buffer pool.
    pub pool_mib: u32,
    /// Until it answers.
    pub ready_s: f64,
    /// Time until its clean shutdown.
    pub written_s: f64,
}

/// The result.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Redo from the stock server's checkpoint to the end.
    pub stock_redo_bytes: u64,
    /// Redo that the node had not applied.
    pub node_redo_bytes: u64,
    /// Recoveries.
    pub stock: Vec<Stock>,
    /// Until the node has opened the volume: it has read its log.
    pub node_opened_s: f64,
    /// Until everything is applied.
    pub node_applied_s: f64,
    /// Most memory that the node's process had.
    pub node_peak_mib: u64,
    /// Pages that it wrote.
    pub pages_applied: u64,
}

impl Summary {
    /// A table for people.
    pub fn table(&self) -> String {
        let mut text = format!(
            "| {} MiB of redo, {} pages | until it answers, s | until all pages are written, s | node, times as fast |\n\
             |---|---|---|---|\n",
            self.node_redo_bytes >> 20,
            self.pages_applied
        );
        for Stock { pool_mib, ready_s, written_s } in &self.stock {
            let ratio = ready_s / self.node_applied_s;
            text += &format!(
                "| stock server, pool of {pool_mib} MiB | {ready_s:.1} | {written_s:.1} | {ratio:.2} |\n"
            );
        }
        text += &format!(
            "| node (its process took {} MiB; the volume is open after {:.1} s) | | {:.1} | |\n",
            self.node_peak_mib, self.node_opened_s, self.node_applied_s
        );
        text
    }
}

/// Runs it; `progress` gets a line per step.
///
/// # Errors
/// The first that fails.
pub fn run(options: &Options, mut progress: impl FnMut(&str)) -> Result<Summary> {
    let parent = options.directory.clone().unwrap_or_else(std::env::temp_dir);
    let temporary = tempfile::Builder::new()
        .prefix("rdab-")
        .tempdir_in(&parent)
        .map_err(Error::io_at("make a temporary directory in", &parent))?;
    let made = options.keep.clone().unwrap_or_else(|| temporary.path().join("made"));
    if !made.join("done").exists() {
        make(options, &made, &mut progress)?;
    }
    let (stock_redo_bytes, end_lsn) = log_of(&made.join("server/data"))?;
    let mut stock = Vec::new();
    for pool_mib in options.pools.iter().copied().filter(|_| !options.node_only) {
        let recovery = recover_stock(&made, &temporary.path().join("stock"), options, pool_mib)?;
        progress(&format!(
            "stock, pool {pool_mib} MiB: {:.1} s, {:.1} s",
            recovery.ready_s, recovery.written_s
        ));
        stock.push(recovery);
    }
    let directory = temporary.path().join("node");
    copy_directory(&made.join("node"), &directory)?;
    let summary = apply(&directory, options, end_lsn, stock, stock_redo_bytes)?;
    progress(&format!("node: {:.1} s", summary.node_applied_s));
    Ok(summary)
}

fn config(options: &Options, pool_mib: u64) -> ServerConfig {
    let mut config = ServerConfig::new(Launcher::Stock);
    config.buffer_pool_bytes = pool_mib << 20;
    // Long enough that the age of the checkpoint forces no page writes.
    config.log_file_size_bytes = (options.redo_mib * 2) << 20;
    config.ready_timeout = PATIENCE;
    config.server_arg("--skip-log-bin").server_arg("--innodb-flush-log-at-trx-commit=0")
}

/// Makes the killed server's directory, and a node's with the same redo as a backlog.
fn make(options: &Options, made: &Path, progress: &mut impl FnMut(&str)) -> Result<()> {
    let began = Instant::now();
    let mut server =
        Server::in_directory(config(options, options.tables_mib * 3 / 2 + 512), &made.join("server"))?;
    server.install_db()?;
    server.start()?;
    let rows = (options.tables_mib << 20) / options.tables / ROW_BYTES;
    fill(&server, options.tables, rows)?;
    server.shutdown()?;
    progress(&format!("{} tables of {rows} rows: {:.1} s", options.tables, began.elapsed().as_secs_f64()));

    let node_directory = made.join("node");
    std::fs::create_dir_all(&node_directory).map_err(Error::io_at("create", &node_directory))?;
    let mut node = Node::in_directory(&find_redoubt()?, &node_directory, &[])?;
    let from = server.datadir().display().to_string();
    let address = node.address().to_string();
    node.redoubt(&["volume", "import", VOLUME, "--node", &address, "--from", &from])?;
    node.stop()?;

    server.start_with(&[
        "--innodb-max-dirty-pages-pct=99.999",
        "--innodb-max-dirty-pages-pct-lwm=0",
        "--innodb-adaptive-flushing=OFF",
        "--innodb-fast-shutdown=0",
    ])?;
    update(&server, options, rows)?;
    server.kill9()?;
    let (redo_bytes, _) = log_of(&server.datadir())?;
    progress(&format!("{} MiB of redo: {:.1} s", redo_bytes >> 20, began.elapsed().as_secs_f64()));
    feed(&made.join("node/node"), &server.datadir())?;
    progress(&format!("fed: {:.1} s", began.elapsed().as_secs_f64()));
    let done = made.join("done");
    std::fs::write(&done, "").map_err(Error::io_at("write", &done))
}

fn fill(server: &Server, tables: u64, rows: u64) -> Result<()> {
    let mut conn = server.connect()?;
    execute(&mut conn, &format!("CREATE DATABASE {DATABASE}"))?;
    execute(&mut conn, &format!("USE {DATABASE}"))?;
    for table in 0..tables {
        execute(
            &mut conn,
            &format!(
                "CREATE TABLE t{table} (id INT PRIMARY KEY, k INT NOT NULL, c CHAR(120) CHARACTER SET latin1 NOT NULL, \
                 pad CHAR(60) CHARACTER SET latin1 NOT NULL, KEY k (k)) ENGINE=InnoDB"
            ),
        )?;
        execute(
            &mut conn,
            &format!(
                "INSERT INTO t{table} SELECT seq, seq, LEFT(REPEAT(MD5(seq), 4), 120), LEFT(REPEAT(MD5(seq + 1), 2), 60) \
                 FROM seq_1_to_{rows}"
            ),
        )?;
    }
    Ok(())
}

/// Random updates by several clients until there is enough redo.
fn update(server: &Server, options: &Options, rows: u64) -> Result<()> {
    let mut control = server.connect()?;
    let start = status_number(&mut control, "Innodb_lsn_current")?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (socket, is_over) = (server.socket(), &is_over);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(client);
                    let mut conn = connect(&socket)?;
                    execute(&mut conn, &format!("USE {DATABASE}"))?;
                    while !is_over.load(Ordering::Relaxed) {
                        let mut ids: Vec<_> = (0..ROWS_PER_UPDATE).map(|_| random.u64(1..=rows)).collect();
                        ids.sort_unstable();
                        let ids = ids.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
                        let change = if random.u8(..4) == 0 {
                            "k = k + 1".to_owned()
                        } else {
                            format!("c = LEFT(REPEAT(MD5({}), 4), 120)", random.u32(..))
                        };
                        let table = random.u64(..options.tables);
                        let statement = format!("UPDATE t{table} SET {change} WHERE id IN ({ids})");
                        match conn.query_drop(&statement) {
                            // Two clients may meet in other orders than that of the ids.
                            Err(mysql::Error::MySqlError(error)) if error.code == 1213 => {}
                            done => done.map_err(Error::sql("UPDATE"))?,
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let reached = poll_until("enough redo", PATIENCE, || {
            let lsn = status_number(&mut control, "Innodb_lsn_current")?;
            Ok((lsn - start >= options.redo_mib << 20).then_some(()))
        });
        is_over.store(true, Ordering::Relaxed);
        let ended: Result<Vec<()>> = clients
            .into_iter()
            .map(|client| client.join().unwrap_or_else(|_| Err(Error::State("a client panicked".into()))))
            .collect();
        reached.and(ended.map(drop))
    })
}

/// Length of the redo after the checkpoint, and where it ends.
fn log_of(datadir: &Path) -> Result<(u64, Lsn)> {
    let path = datadir.join("ib_logfile0");
    let what = path.display().to_string();
    let log = LogFile::open(&path)?;
    let scan = LogScan::open(&log).map_err(parse(&what))?;
    let start = scan.checkpoint().checkpoint_lsn;
    let end = scan.walk(start, &mut |_: &Mtr<'_, '_>| ()).map_err(parse(&what))?.end_lsn;
    Ok((end.0 - start.0, end))
}

fn of_node(error: NodeError) -> Error {
    Error::Violation(format!("the node: {error}"))
}

/// Sends the redo that the volume does not have, as a server does; it applies none of it.
fn feed(node_data: &Path, datadir: &Path) -> Result<()> {
    let options = NodeOptions {
        ring_len_bytes: 64 << 30,
        batch_len_bytes: 64 << 30,
        apply_interval: PATIENCE * 24,
        memory: Arc::new(MemoryBudget::new(1 << 40)),
        ..NodeOptions::new(node_data.to_owned(), "127.0.0.1:0".to_owned())
    };
    let volume = Volume::open(VOLUME, &node_data.join("volumes").join(VOLUME), &options).map_err(of_node)?;
    let fed = feed_volume(&volume, datadir);
    volume.shut_down();
    fed
}

fn feed_volume(volume: &Volume, datadir: &Path) -> Result<()> {
    // The server that made the redo.
    let server = volume.status().newest_server.unwrap_or(SERVER_NOT_SAID);
    let attachment = volume.attach("the backlog", server, None).map_err(of_node)?;
    let hello = Hello {
        role: Role::Log,
        compression: Compression::Off,
        generation: attachment.generation,
        session: 1,
        resume: Seq(0),
        volume: VOLUME.to_owned(),
    };
    let accepted = volume
        .accept_log(&hello)
        .map_err(|refusal| Error::Violation(format!("the node refuses: {}", refusal.message)))?;
    let mut seq = accepted.welcome.next_seq;
    let mut redo = Vec::with_capacity(2 * FRAME_BYTES);
    let mut send = |redo: &mut Vec<u8>| -> Result<()> {
        let (mut payload, mut wire) = (Vec::new(), Vec::new());
        let frame = StreamFrame::Redo(redo);
        frame.encode_payload(&mut payload);
        append_frame(&mut wire, frame.kind(), seq.0, &payload)
            .map_err(|error| Error::State(format!("make a frame: {error}")))?;
        seq = Seq(seq.0 + wire.len() as u64);
        redo.clear();
        match volume.receive(accepted.connection, wire).map_err(of_node)? {
            Received::Yes => volume.write_received().map_err(of_node),
            Received::NotCurrent => Err(Error::Violation("the node fenced the backlog".into())),
        }
    };
    let path = datadir.join("ib_logfile0");
    let what = path.display().to_string();
    let log = LogFile::open(&path)?;
    let scan = LogScan::open(&log).map_err(parse(&what))?;
    let mut sent = Ok(());
    let mut take = |mtr: &Mtr<'_, '_>| {
        redo.extend_from_slice(mtr.bytes);
        if redo.len() >= FRAME_BYTES && sent.is_ok() {
            sent = send(&mut redo);
        }
    };
    scan.walk(accepted.welcome.next_lsn, &mut take).map_err(parse(&what))?;
    sent?;
    if redo.is_empty() { Ok(()) } else { send(&mut redo) }
}

/// Writes out and empties the kernel's page cache.
fn drop_caches() -> Result<()> {
    // SAFETY: no arguments, no result.
    unsafe { libc::sync() };
    let path = Path::new("/proc/sys/vm/drop_caches");
    std::fs::write(path, "3").map_err(Error::io_at("write", path))
}

fn recover_stock(made: &Path, directory: &Path, options: &Options, pool_mib: u32) -> Result<Stock> {
    copy_directory(&made.join("server/data"), &directory.join("data"))?;
    let mut server = Server::in_directory(config(options, pool_mib.into()), directory)?;
    drop_caches()?;
    let began = Instant::now();
    server.start()?;
    let ready_s = began.elapsed().as_secs_f64();
    server.shutdown()?;
    let written_s = began.elapsed().as_secs_f64();
    std::fs::remove_dir_all(directory).map_err(Error::io_at("remove", directory))?;
    Ok(Stock { pool_mib, ready_s, written_s })
}

fn apply(
    directory: &Path,
    options: &Options,
    end_lsn: Lsn,
    stock: Vec<Stock>,
    stock_redo_bytes: u64,
) -> Result<Summary> {
    let args: Vec<_> = options.node_options.split_whitespace().collect();
    drop_caches()?;
    let began = Instant::now();
    let mut node = Node::in_directory(&find_redoubt()?, directory, &args)?;
    let node_opened_s = began.elapsed().as_secs_f64();
    let mut node_redo_bytes = 0;
    // Each look is a process and takes CPU time from the node.
    let status = poll_every(LOOK_INTERVAL, "all redo to be applied", PATIENCE, || {
        let status = node.status(VOLUME)?;
        let volume = &status["volumes"][0];
        let applied = volume["a_lsn"].as_u64().unwrap_or(0);
        if node_redo_bytes == 0 {
            node_redo_bytes = end_lsn.0.saturating_sub(applied);
        }
        if volume["state"] == "stopped" || volume["state"] == "unusable" {
            return Err(Error::Violation(format!("the volume stopped: {status}")));
        }
        Ok((applied >= end_lsn.0).then(|| status.clone()))
    })?;
    let node_applied_s = began.elapsed().as_secs_f64();
    let node_peak_mib = node.process_id().and_then(peak_mib).unwrap_or(0);
    node.stop()?;
    Ok(Summary {
        stock_redo_bytes,
        node_redo_bytes,
        stock,
        node_opened_s,
        node_applied_s,
        node_peak_mib,
        pages_applied: status["volumes"][0]["counters"]["pages_applied"].as_u64().unwrap_or(0),
    })
}

fn peak_mib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? >> 10)
}
