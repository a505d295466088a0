//! Rounds of damage to the files of a node's volume, under a real server and load.
//!
//! Each round makes a volume and puts load on tables whose acknowledged changes are known ([`load`]). It damages one file of
//! the volume ([`blow`]) while the node runs, has stopped or was killed. The seed decides what is restarted. Then the round
//! requires three things ([`verdict`]):
//!
//! 1. No acknowledged row of an undamaged table is missing, on the server if it runs, or in an export.
//! 2. The damage is named: the file, or the table of it.
//! 3. The way out that the message gives works: the table is dropped, the volume is exported, or a copy of the file is put
//!    back.
//!
//! A round follows from its seed. Where the damage hits depends on threads and time, so a seed gives the same kind of round
//! again and mostly the same failure.

pub mod blow;
pub mod load;
pub mod verdict;

use blow::{Blow, Place};
use load::Load;
use redoubt_harness::fetched;
use redoubt_harness::node::Node;
use redoubt_sync::Mutex;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::product::{FetchedServer, Product};
use redoubt_workload::server::{Server, ServerConfig};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use verdict::Verdict;

pub(crate) const VOLUME: &str = "damage";
pub(crate) const PATIENCE: Duration = Duration::from_secs(150);
/// A server that neither ends nor changes each table in this time is judged as it is.
const PROGRESS_WITHIN: Duration = Duration::from_secs(50);
/// Small, so that the log has many segments, and pages go home through the journal within seconds.
const NODE_ARGS: [&str; 8] =
    ["--ring", "16MiB", "--batch", "1MiB", "--apply-interval", "1", "--journal", "4MiB"];

/// The command to run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Seed of the first round; each further round has the next
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of rounds
    #[arg(long, default_value_t = 500)]
    pub rounds: u64,
    /// Rounds at a time
    #[arg(long, default_value_t = 1)]
    pub jobs: usize,
    /// Begin no further round after this many seconds
    #[arg(long)]
    pub seconds: Option<u64>,
    /// A server that scripts/fetch-server has fetched, if not mariadbd in PATH
    #[arg(long, value_name = "NAME", value_parser = fetched_server)]
    pub server: Option<FetchedServer>,
    /// Only damage in these places
    #[arg(long, value_delimiter = ',')]
    pub places: Vec<Place>,
    /// Changes of each table to see before the damage, and again after it
    #[arg(long, default_value_t = 400)]
    pub changes: u64,
    /// End with the first round that breaks a promise
    #[arg(long)]
    pub stop: bool,
    /// Keep the directories of rounds that break a promise below this one
    #[arg(long, value_name = "DIRECTORY")]
    pub keep: Option<PathBuf>,
}

fn fetched_server(name: &str) -> std::result::Result<FetchedServer, String> {
    FetchedServer::named(name).ok_or_else(|| "scripts/fetch-server has no server of this name".to_owned())
}

/// The result.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Summary {
    /// Rounds by place, kind of damage, and effect.
    pub rounds: BTreeMap<String, BTreeMap<String, u64>>,
    /// Rounds that broke a promise: seed, damage, and message.
    pub broken: Vec<String>,
    /// Acknowledged changes of all rounds.
    pub acknowledged: u64,
}

impl Summary {
    /// A row for each kind of damage, as Markdown.
    pub fn table(&self) -> String {
        let mut text = "| damage | rounds | led to |\n|---|---|---|\n".to_owned();
        for (damage, outcomes) in &self.rounds {
            let all: u64 = outcomes.values().sum();
            let led: Vec<_> = outcomes.iter().map(|(what, count)| format!("{what}: {count}")).collect();
            text += &format!("| {damage} | {all} | {} |\n", led.join("; "));
        }
        text
    }
}

/// State of the node when its file is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeState {
    Running,
    Stopped,
    Killed,
}

/// Restarts after the damage.
#[derive(Debug, Clone, Copy)]
struct Restarts {
    server_is_killed: bool,
    node_is_killed: bool,
}

/// Runs the rounds; `progress` gets a line per round.
///
/// # Errors
/// A round cannot be run. A broken promise is in the summary.
pub fn run(options: &Options, progress: impl FnMut(&str) + Send) -> Result<Summary> {
    let rounds = Rounds {
        options,
        start: Instant::now(),
        state: Mutex::new(State { next_seed: Some(options.seed), ..State::default() }),
        progress: Mutex::new(progress),
    };
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| rounds.run());
        }
    });
    let State { summary, error, .. } = rounds.state.into_inner();
    error.map_or(Ok(summary), Err)
}

#[derive(Default)]
struct State {
    /// `None`: no further round begins.
    next_seed: Option<u64>,
    summary: Summary,
    error: Option<Error>,
}

/// Rounds that several threads take in turn.
struct Rounds<'o, P> {
    options: &'o Options,
    start: Instant,
    state: Mutex<State>,
    progress: Mutex<P>,
}

impl<P: FnMut(&str)> Rounds<'_, P> {
    fn run(&self) {
        while let Some(seed) = self.take_seed() {
            if let Err(error) = self.run_one(seed) {
                let mut state = self.state.lock();
                state.next_seed = None;
                state.error.get_or_insert(error);
            }
        }
    }

    fn take_seed(&self) -> Option<u64> {
        let options = self.options;
        let is_over = options.seconds.is_some_and(|limit| self.start.elapsed().as_secs() >= limit);
        let mut state = self.state.lock();
        let seed = state.next_seed.filter(|seed| !is_over && *seed - options.seed < options.rounds)?;
        state.next_seed = seed.checked_add(1);
        Some(seed)
    }

    fn run_one(&self, seed: u64) -> Result<()> {
        let options = self.options;
        let began = Instant::now();
        let mut round = Round::new(seed, options)?;
        let outcome = round.run(options.changes);
        let damage = round.damage();
        let (led_to, broken) = match outcome {
            Ok(verdict) => (verdict.to_string(), None),
            Err(error @ Error::Interrupted) => return Err(error),
            Err(error) => {
                let kept = round.keep(options.keep.as_deref())?;
                ("BROKEN".to_owned(), Some(format!("seed {seed}: {}: {error}{kept}", round.story())))
            }
        };
        let seconds = began.elapsed().as_secs_f64();
        (self.progress.lock())(&format!("seed {seed}: {}: {led_to} ({seconds:.1} s)", round.story()));
        if let Some(broken) = &broken {
            (self.progress.lock())(broken);
        }
        let mut state = self.state.lock();
        state.summary.acknowledged += round.acknowledged;
        *state.summary.rounds.entry(damage).or_default().entry(led_to).or_default() += 1;
        if let Some(broken) = broken {
            state.summary.broken.push(broken);
            if options.stop {
                state.next_seed = None;
            }
        }
        Ok(())
    }
}

/// Server and node of a round. The server ends before its node.
pub(crate) struct Round {
    pub(crate) server: Server,
    pub(crate) product: Product,
    pub(crate) node: Node,
    seed: u64,
    random: fastrand::Rng,
    places: Vec<Place>,
    blow: Option<Blow>,
    state: NodeState,
    restarts: Restarts,
    acknowledged: u64,
}

/// Of the server of a round, and of the one on its export: prepared transactions are recovered with the binary log.
fn server_config(launcher: Launcher, product: &Product) -> ServerConfig {
    let mut config = ServerConfig::new(launcher).product(product.clone()).server_arg("--log-bin");
    config.server_args.push("--max-binlog-size=64K".to_owned());
    config.log_file_size_bytes = 16 << 20;
    config
}

impl Round {
    fn new(seed: u64, options: &Options) -> Result<Self> {
        let mut random = fastrand::Rng::with_seed(seed);
        let node = Node::create(&find_redoubt()?, &NODE_ARGS)?;
        node.create_volume(VOLUME)?;
        let product = options.server.map_or(Ok(Product::MariaDb), fetched::find)?;
        let mut config = server_config(node.launcher(VOLUME, Verify::All), &product);
        // Smaller than the tables, or larger.
        config.buffer_pool_bytes = if random.bool() { 8 << 20 } else { 64 << 20 };
        config.ready_timeout = PATIENCE;
        let server = Server::create(config)?;
        let state = [NodeState::Running, NodeState::Stopped, NodeState::Killed][random.usize(..3)];
        let restarts = Restarts { server_is_killed: random.bool(), node_is_killed: random.bool() };
        let places = if options.places.is_empty() { Place::ALL.to_vec() } else { options.places.clone() };
        let (blow, acknowledged) = (None, 0);
        Ok(Self { server, product, node, seed, random, places, blow, state, restarts, acknowledged })
    }

    /// Directory of the volume.
    pub(crate) fn volume_directory(&self) -> PathBuf {
        self.node.data().join("volumes").join(VOLUME)
    }

    fn run(&mut self, changes: u64) -> Result<Verdict> {
        let load = Load::start(&self.server)?;
        load.wait_for_more(changes, PATIENCE)?;
        let directory = self.volume_directory();
        let old = tempfile::tempdir().map_err(Error::io("make a temporary directory"))?;
        redoubt_harness::sparse_files::copy_directory(&directory, old.path())?;
        load.wait_for_more(changes, PATIENCE)?;
        let struck = self.strike(&directory, old.path());
        self.restart()?;
        struck?;
        // Progress, or the end of the server: both may be right. A table that cannot be changed any more is judged, too.
        let is_alive =
            load.wait_for_more_or(changes, PROGRESS_WITHIN, || self.server.wait_exit(Duration::ZERO).is_ok());
        let histories = load.stop();
        self.acknowledged = histories.iter().map(load::History::acknowledged).sum();
        let blow = self.blow.take().ok_or_else(|| Error::State("nothing was damaged".into()))?;
        let verdict = verdict::of(self, &blow, &histories, is_alive);
        self.blow = Some(blow);
        verdict
    }

    /// Damages one file, while the node is in the state of the round.
    fn strike(&mut self, directory: &Path, old: &Path) -> Result<()> {
        match self.state {
            NodeState::Running => {}
            NodeState::Stopped => self.node.stop()?,
            NodeState::Killed => self.node.kill9()?,
        }
        self.blow = Some(Blow::strike(directory, old, &self.places, &mut self.random)?);
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        if self.restarts.server_is_killed && self.server.process_id().is_some() {
            let _ = self.server.kill9();
        }
        if self.node.process_id().is_some() && self.restarts.node_is_killed {
            self.node.kill9()?;
        }
        if self.node.process_id().is_none() {
            self.node.start()?;
        }
        if self.restarts.server_is_killed {
            // A refusal is judged later.
            let _ = self.server.start();
        }
        Ok(())
    }

    fn damage(&self) -> String {
        self.blow.as_ref().map_or_else(|| "none".to_owned(), Blow::kind)
    }

    fn story(&self) -> String {
        let blow = self.blow.as_ref().map_or_else(|| "nothing damaged".to_owned(), Blow::to_string);
        let Restarts { server_is_killed, node_is_killed } = self.restarts;
        let killed = match (server_is_killed, node_is_killed) {
            (true, true) => "both killed after it",
            (true, false) => "server killed after it",
            (false, true) => "node killed after it",
            (false, false) => "none killed after it",
        };
        format!("{blow}, node {:?}, {killed}", self.state)
    }

    /// Keeps both directories below `keep`; returns where, and the ends of the logs.
    fn keep(&mut self, keep: Option<&Path>) -> Result<String> {
        let mut text =
            format!("\nserver: {}\nnode: {}", self.server.error_log_tail(25), self.node.log_tail(25));
        let Some(keep) = keep else { return Ok(text) };
        let _ = self.server.kill9();
        let _ = self.node.kill9();
        let kept = keep.join(format!("seed-{}", self.seed));
        std::fs::create_dir_all(&kept).map_err(Error::io_at("create", &kept))?;
        redoubt_harness::sparse_files::copy_directory(self.server.directory(), &kept.join("server"))?;
        redoubt_harness::sparse_files::copy_directory(self.node.directory(), &kept.join("node"))?;
        text += &format!("\nkept: {}", kept.display());
        Ok(text)
    }
}
