//! The oracle of MySQL: crashes of a server under random statements, recovered by the stock server and by a node.
//!
//! MySQL's redo does not contain the contents of an index that is built in place, and recovery does not create a file
//! that redo refers to. So redo cannot be applied to an old base, as the oracle of MariaDB does. Instead, the oracle
//! takes the server's files at one moment, with pages of any age ([`frozen`]), and compares them with the stock
//! server's own recovery ([`check`]); [`files`] reads tablespaces. The statements are the generator's, in MySQL's
//! dialect ([`crate::generator::mysql`]); they continue between two crashes on the same server.
//!
//! A seed fixes statements and settings, not the moments of the crashes. The data directory of a crash that differs is
//! kept.

use redoubt_harness::fetched;
use redoubt_harness::node::Node;
use redoubt_harness::sparse_files::copy_directory;
use redoubt_locks::IgnorePoison;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::{Launcher, find_redoubt};
use redoubt_workload::product::{FetchedServer, Product};
use redoubt_workload::server::{Server, ServerConfig};
use serde_json::{Value, json};

use super::history::{PAGE_SIZES, Sessions, Tally, import};
use crate::generator::mysql::{MISSING, statements};
use crate::generator::{Class, Config, Generator, Statement, load_files};

pub mod check;
pub mod files;
pub mod frozen;

use check::Checked;

/// How much is done.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Seed of the first history; each further one takes the next.
    pub seed: u64,
    /// Statements in all.
    pub statements: u64,
    /// Statements of a history.
    pub statements_each: u64,
    /// Crashes of each history.
    pub crashes_each: usize,
    /// Every page size is the same, if given.
    pub page_size_bytes: Option<u32>,
    /// Histories at the same time.
    pub threads: usize,
    /// Begin no history after this time.
    pub budget: Option<Duration>,
    /// Where it works; memory if there is a file system in it.
    pub scratch: Option<PathBuf>,
    /// Where data directories of crashes that differ go.
    pub failures: PathBuf,
}

/// Results of a campaign.
#[derive(Debug, Default)]
pub struct Summary {
    /// Histories.
    pub histories: u64,
    /// Histories by page size.
    pub page_sizes: BTreeMap<u32, u64>,
    /// Statements.
    pub tally: Tally,
    /// Comparisons.
    pub checked: Checked,
    /// Servers that ended by themselves: seeds and the end of their logs.
    pub server_ends: Vec<(u64, String)>,
    /// Differences: seed, description, and the data directory.
    pub failures: Vec<(u64, String, PathBuf)>,
    /// How long it took.
    pub took: Duration,
}

impl Summary {
    /// Nothing differs, and the stock server recovered from nearly all crashes.
    pub fn is_sound(&self) -> bool {
        self.failures.is_empty() && self.checked.refused * 20 <= self.checked.crashes
    }

    /// Classes of MySQL that never succeeded, with why the last try failed.
    pub fn never(&self) -> Vec<(Class, String)> {
        self.tally.never().into_iter().filter(|(class, _)| !MISSING.contains(class)).collect()
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let never: BTreeMap<_, _> =
            self.never().into_iter().map(|(class, why)| (class.name(), why)).collect();
        json!({
            "histories": self.histories,
            "page_sizes": self.page_sizes,
            "statements": self.tally.tried(),
            "succeeded": self.tally.succeeded(),
            "classes": self.tally.json(),
            "classes_never_successful": never,
            "recoveries": self.checked,
            "server_ends": self.server_ends.iter().map(|(seed, _)| seed).collect::<Vec<_>>(),
            "failures": self.failures.iter().map(|(seed, what, kept)| json!({
                "seed": seed, "what": what, "directory": kept,
            })).collect::<Vec<_>>(),
            "took_s": self.took.as_secs(),
        })
    }

    fn add(&mut self, part: Self) {
        self.histories += part.histories;
        for (size, count) in part.page_sizes {
            *self.page_sizes.entry(size).or_default() += count;
        }
        self.tally.add(&part.tally);
        self.checked.add(&part.checked);
        self.server_ends.extend(part.server_ends);
        self.failures.extend(part.failures);
    }
}

/// Runs a plan; `progress` gets a line for each history.
///
/// # Errors
/// The first thing that is no finding: a server that does not start at all, a full disk.
pub fn run(plan: &Plan, progress: &(dyn Fn(&str) + Sync)) -> Result<Summary> {
    let began = Instant::now();
    let product = fetched::find(FetchedServer::MySql97)?;
    let memory = Path::new("/dev/shm");
    let parent = plan.scratch.clone().unwrap_or_else(|| match memory.is_dir() {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    });
    let root = tempfile::Builder::new()
        .prefix("rdt-")
        .tempdir_in(&parent)
        .map_err(Error::io_at("make a temporary directory in", &parent))?;
    let templates = Mutex::new(());
    let (next, total) = (AtomicU64::new(0), plan.statements.div_ceil(plan.statements_each.max(1)));
    let summary = Mutex::new(Summary::default());
    let panicked = || Error::State("a thread of the oracle panicked".into());
    let worker = || -> Result<()> {
        let node = Node::create(&find_redoubt()?, &NODE_OPTIONS)?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= total || plan.budget.is_some_and(|budget| began.elapsed() >= budget) {
                return Ok(());
            }
            let history = History::of_seed(plan, plan.seed + number, &product);
            {
                let _one = templates.lock().map_err(|_| panicked())?;
                history.install(root.path())?;
            }
            let part = history.run(plan, root.path(), &node)?;
            progress(&format!(
                "seed {}: pages of {}, {} of {} statements, {} crashes, {} pages touched, {} differ",
                history.seed,
                history.config.page_size_bytes,
                part.tally.succeeded(),
                part.tally.tried(),
                part.checked.crashes,
                part.checked.touched,
                part.failures.len()
            ));
            summary.lock().map_err(|_| panicked())?.add(part);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads.max(1)).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| panicked())?)
    })?;
    let mut summary = summary.into_inner().map_err(|_| panicked())?;
    summary.took = began.elapsed();
    Ok(summary)
}

/// Checks one crash again: the data directory of a MySQL that was killed, which is only read.
///
/// # Errors
/// As for [`check::check`].
pub fn check_one(data: &Path, page_size_bytes: u32) -> Result<Checked> {
    let mut config = ServerConfig::new(Launcher::Stock).product(fetched::find(FetchedServer::MySql97)?);
    config.page_size_bytes = page_size_bytes;
    config.server_args = vec!["--skip-log-bin".to_owned()];
    let node = Node::create(&find_redoubt()?, &NODE_OPTIONS)?;
    let work =
        tempfile::Builder::new().prefix("rdt-").tempdir().map_err(Error::io("make a temporary directory"))?;
    check::check(&node, VOLUME, data, &config, work.path())
}

/// Small tables, so that many are applied.
const NODE_OPTIONS: [&str; 6] = ["--ring", "64MiB", "--batch", "4MiB", "--apply-interval", "1"];

/// One server and its statements.
struct History {
    seed: u64,
    config: ServerConfig,
    /// Its undo tablespaces are truncated, of which no redo tells: the log is not cut then.
    truncates_undo: bool,
}

impl History {
    fn of_seed(plan: &Plan, seed: u64, product: &Product) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        // The common size half the time.
        let by_seed = if seed % 2 == 1 { 16384 } else { PAGE_SIZES[(seed / 2) as usize % PAGE_SIZES.len()] };
        let mut config = ServerConfig::new(Launcher::Stock).product(product.clone());
        config.page_size_bytes = plan.page_size_bytes.unwrap_or(by_seed);
        let pools: &[u64] = if config.page_size_bytes > 16384 { &[32, 64] } else { &[8, 16, 64] };
        config.buffer_pool_bytes = pools[random.usize(..pools.len())] << 20;
        config.log_file_size_bytes = 96 << 20;
        let truncates_undo = seed.is_multiple_of(3);
        let pick =
            |random: &mut fastrand::Rng, choices: &[&'static str]| choices[random.usize(..choices.len())];
        config.server_args = vec![
            format!("--innodb-max-dirty-pages-pct={}", pick(&mut random, &["0", "10", "90", "90"])),
            format!("--innodb-io-capacity={}", pick(&mut random, &["100", "1000"])),
            format!("--innodb-change-buffering={}", pick(&mut random, &["none", "all"])),
            format!("--innodb-max-undo-log-size={}", if truncates_undo { 10_485_760 } else { 1 << 30 }),
        ];
        let rest = [
            "--innodb-purge-rseg-truncate-frequency=1",
            "--innodb-lock-wait-timeout=1",
            "--lock-wait-timeout=1",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-autoextend-increment=1",
            "--innodb-online-alter-log-max-size=1048576",
            "--innodb-buffer-pool-dump-at-shutdown=OFF",
            "--skip-log-bin",
            "--max-connections=20",
            "--sql-mode=",
            "--performance-schema=OFF",
            "--table-open-cache=200",
        ];
        config.server_args.extend(rest.map(str::to_owned));
        Self { seed, config, truncates_undo }
    }

    fn template(&self, root: &Path) -> PathBuf {
        root.join(format!("template-{}", self.config.page_size_bytes))
    }

    /// Makes the data directory that histories of this page size begin with.
    fn install(&self, root: &Path) -> Result<()> {
        let mut server = Server::in_directory(self.config.clone(), &self.template(root))?;
        if server.datadir().join("ibdata1").exists() { Ok(()) } else { server.install_db() }
    }

    fn run(&self, plan: &Plan, root: &Path, node: &Node) -> Result<Summary> {
        let directory = tempfile::Builder::new()
            .prefix("h-")
            .tempdir_in(root)
            .map_err(Error::io_at("make a temporary directory in", root))?;
        let directory = directory.path();
        let files = directory.join("files");
        fs::create_dir(&files).map_err(Error::io_at("create", &files))?;
        for (name, text) in load_files() {
            fs::write(files.join(name), text).map_err(Error::io_at("write to", &files))?;
        }
        let config = self.config.clone().server_arg(format!("--secure-file-priv={}", files.display()));
        let mut server = Server::in_directory(config, directory)?;
        copy_directory(&self.template(root).join("data"), &server.datadir())?;
        server.start()?;
        let mut summary = Summary { histories: 1, ..Summary::default() };
        summary.page_sizes.insert(self.config.page_size_bytes, 1);
        let generator_config = Config {
            seed: self.seed,
            page_size_bytes: self.config.page_size_bytes,
            large_undo: self.truncates_undo,
        };
        let mut generator = Generator::new(generator_config);
        let before = statements(generator.preparation(), true);
        let work = statements(generator.take(plan.statements_each as usize).collect(), false);
        let gate = Gate::default();
        let ended = std::thread::scope(|scope| {
            let server = &server;
            let (before, work, gate) = (&before, &work, &gate);
            let client = scope.spawn(move || {
                let tally = client(server, before, work, gate);
                gate.end();
                tally
            });
            let crashed = self.crashes(plan, server, work.len(), gate, directory, node, &mut summary);
            gate.open();
            let tally = client.join().map_err(|_| Error::State("the client of a history panicked".into()))?;
            crashed?;
            let (tally, lost) = tally?;
            summary.tally.add(&tally);
            Ok::<_, Error>(lost)
        })?;
        if let Some(lost) = ended {
            summary.server_ends.push((self.seed, format!("{lost}\n{}", server.error_log_tail(60))));
        }
        server.kill9()?;
        Ok(summary)
    }

    /// Takes crashes at moments spread over the statements, and checks each.
    #[expect(clippy::too_many_arguments, reason = "one loop over the parts of a history")]
    fn crashes(
        &self,
        plan: &Plan,
        server: &Server,
        statements: usize,
        gate: &Gate,
        directory: &Path,
        node: &Node,
        summary: &mut Summary,
    ) -> Result<()> {
        let mut random = fastrand::Rng::with_seed(self.seed ^ 0x6372_6173);
        let stride = statements / plan.crashes_each.max(1);
        for number in 0..plan.crashes_each {
            let from = number * stride;
            gate.allow(from + stride);
            if !gate.wait_done(from + random.usize(0..stride.max(1))) {
                return Ok(());
            }
            // Somewhere in the next statement, not where the last one ended.
            std::thread::sleep(Duration::from_micros(random.u64(0..20_000)));
            let crash = directory.join("crash");
            let Some(process_id) = server.process_id() else { return Ok(()) };
            frozen::copy_at_once(process_id, &server.datadir(), &crash)?;
            if frozen::has_no_undo(&crash) {
                // Between two system calls of a truncation. An import is refused, and says what to do.
                summary.checked.without_undo += 1;
                fs::remove_dir_all(&crash).map_err(Error::io_at("remove", &crash))?;
                continue;
            }
            let found = self.check_crash(&crash, directory, node, &mut random);
            match found {
                Ok(checked) => summary.checked.add(&checked),
                Err(error @ (Error::Violation(_) | Error::Parse { .. })) => {
                    eprintln!("seed {}, crash {number}: {error}", self.seed);
                    summary.checked.crashes += 1;
                    let kept = plan.failures.join(format!("mysql-{}-{number}", self.seed));
                    if kept.exists() {
                        fs::remove_dir_all(&kept).map_err(Error::io_at("remove", &kept))?;
                    }
                    copy_directory(&crash, &kept)?;
                    summary.failures.push((self.seed, error.to_string(), kept));
                    redoubt_force_delete(node);
                }
                Err(error) => return Err(error),
            }
            for used in [crash, directory.join("check")] {
                if used.exists() {
                    fs::remove_dir_all(&used).map_err(Error::io_at("remove", &used))?;
                }
            }
        }
        Ok(())
    }

    fn check_crash(
        &self,
        crash: &Path,
        directory: &Path,
        node: &Node,
        random: &mut fastrand::Rng,
    ) -> Result<Checked> {
        let cut =
            if self.truncates_undo || random.u8(..4) == 0 { None } else { frozen::cut_log(crash, random)? };
        let work = directory.join("check");
        fs::create_dir(&work).map_err(Error::io_at("create", &work))?;
        let mut checked = check::check(node, VOLUME, crash, &self.config, &work)?;
        checked.cuts += u64::from(cut.is_some());
        checked.cuts_inside += u64::from(cut.is_some_and(|cut| cut.is_inside));
        Ok(checked)
    }
}

/// Name of the volume on each node.
const VOLUME: &str = "oracle";

/// After a failure the volume may or may not be there.
fn redoubt_force_delete(node: &Node) {
    let _ = check::redoubt(node, &["volume", "delete", VOLUME, "--force", "--yes"]);
}

/// Runs the statements, as far as the gate allows. A lost connection ends them: the server has ended.
fn client(
    server: &Server,
    before: &[Statement],
    work: &[Statement],
    gate: &Gate,
) -> Result<(Tally, Option<String>)> {
    let mut sessions = Sessions::new(server);
    let mut lost = None;
    for statement in before {
        sessions.run(statement)?;
    }
    let refusal = import(server, crate::generator::mysql::text).err().map(|error| error.to_string());
    sessions.tally.count(Class::Import, refusal);
    for (number, statement) in work.iter().enumerate() {
        gate.wait_allowed(number);
        match sessions.run(statement) {
            Ok(()) => gate.done(number),
            Err(error) if error.is_connection_loss() => {
                lost = Some(error.to_string());
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok((sessions.tally, lost))
}

/// How far the statements may run, and how far they are.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    /// Statements that may be run.
    allowed: usize,
    /// Statements that were.
    done: usize,
    /// No more will be.
    is_ended: bool,
}

impl Gate {
    fn change(&self, change: impl FnOnce(&mut GateState)) {
        let mut state = self.state.lock().ignore_poison();
        change(&mut state);
        self.changed.notify_all();
    }

    fn wait(&self, until: impl Fn(&GateState) -> bool) -> bool {
        let state = self.state.lock().ignore_poison();
        let waited = self.changed.wait_while(state, |state| !until(state));
        !waited.ignore_poison().is_ended
    }

    fn allow(&self, statements: usize) {
        self.change(|state| state.allowed = state.allowed.max(statements));
    }

    fn open(&self) {
        self.allow(usize::MAX);
    }

    fn wait_allowed(&self, number: usize) {
        self.wait(|state| state.allowed > number);
    }

    fn done(&self, number: usize) {
        self.change(|state| state.done = number + 1);
    }

    fn end(&self) {
        self.change(|state| state.is_ended = true);
    }

    /// False: there will not be so many.
    fn wait_done(&self, statements: usize) -> bool {
        self.wait(|state| state.is_ended || state.done > statements)
    }
}
