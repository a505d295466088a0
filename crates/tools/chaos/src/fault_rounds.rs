//! Rounds of the ledger on a real server and a real node, under faults.
//!
//! ```text
//! ledger, churn -> mariadbd + libredoubt.so + libredoubt_faults.so -> proxy -> redoubt node + libredoubt_faults.so
//! ```
//!
//! Each round puts one [`Kind`] of trouble in force, kills the victims of the kind, ends all faults, restarts what has
//! ended, and then requires: commits flow again; every acknowledged commit is there and whole and nothing else is
//! ([`redoubt_workload::ledger::verify`]). `CHECK TABLE` must find nothing but the damage that a kill does to Aria; no
//! page may differ from the server's own version (`--verify=all`); the node's plain files must be the server's. The
//! effects that a kind must not have, such as an end of the server, are checked too (`docs/dev/faults.md` has the
//! table). A round without any fault fails. The state carries over from round to round.
//!
//! * [`kinds`]: kinds of trouble and the faults of each, drawn by seed.
//! * [`churn`]: statements beside the ledger that make, rename and drop files.
//! * [`lie`]: planted faults that no storage may survive, to show that the rounds can fail.
//!
//! A round's faults follow from the seed and its number. The calls that they hit depend on threads and time, so a seed
//! gives the same kind of round again and mostly the same failure.

pub mod churn;
pub mod kinds;
pub mod lie;
mod setup;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use redoubt_harness::plain_files;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::ledger::{self, Entries, Run};
use redoubt_workload::process::{poll_every, poll_until};

use crate::faults::Counts;
use churn::Churn;
use kinds::{Kind, Trouble};
use setup::{PATIENCE, Setup, VOLUME};

/// Clients of the ledger.
const CLIENTS: u32 = 4;
/// Small: a fault may come while the server switches to its next binary log.
const BINLOG_SIZE: &str = "16K";
/// Between two looks at the node's state, each of them a process.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The command to run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Seed of everything
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of rounds; the kinds come in turn, in an order that the seed decides
    #[arg(long, default_value_t = 24)]
    pub rounds: u32,
    /// Begin no further round after this many seconds
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Only these kinds
    #[arg(long, value_delimiter = ',')]
    pub kinds: Vec<Kind>,
    /// Commits to see under the faults of a round
    #[arg(long, default_value_t = 400)]
    pub commits: u64,
    /// The server, if not mariadbd in PATH: the name of one that scripts/fetch-server has fetched, or a program, whose
    /// volume is made with mariadbd all the same
    #[arg(long, value_name = "NAME|PROGRAM")]
    pub server: Option<PathBuf>,
    /// Keep the directories here if a round fails: server and node as they are then, and the server as it was before
    /// its last restart after an error of the node
    #[arg(long, value_name = "DIRECTORY")]
    pub keep: Option<PathBuf>,
}

/// The result.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Seed of everything.
    pub seed: u64,
    /// Rounds by kind.
    pub rounds: BTreeMap<String, u64>,
    /// Faults by place and kind.
    pub faults: Counts,
    /// Commits that were acknowledged, and are there.
    pub acknowledged: u64,
    /// Commits without an answer that are present.
    pub unknown_present: u64,
    /// Commits without an answer that are absent.
    pub unknown_absent: u64,
    /// Statements of the churn that succeeded.
    pub churn_done: u64,
    /// Statements of the churn that failed.
    pub churn_failed: u64,
    /// Aria tables that were damaged after a kill, as the stock server leaves some ([`churn::check`]).
    pub aria_damaged: u64,
    /// How often the server ended by itself, as it may on an error.
    pub server_ended: u64,
    /// How often the node's volume stopped, as it must on an error.
    pub volume_stopped: u64,
    /// Plain files compared in the last round.
    pub plain_files: u64,
    /// Pages compared with what the server would have written, by the node process that compared most.
    pub pages_verified: u64,
}

/// Runs the rounds; `progress` gets a line per round.
///
/// # Errors
/// The first broken promise, with seed, round and kind, and the ends of the logs.
pub fn run(options: &Options, mut progress: impl FnMut(&str)) -> Result<Summary> {
    let start = Instant::now();
    let mut setup =
        Setup::new(options.seed, options.server.as_deref(), options.keep.as_deref(), BINLOG_SIZE)?;
    let mut summary = Summary { seed: options.seed, ..Summary::default() };
    let kinds = order(options);
    for round in 0..options.rounds {
        if options.seconds.is_some_and(|limit| start.elapsed().as_secs() >= limit) {
            break;
        }
        let Some(kind) = kinds.get(round as usize % kinds.len().max(1)).copied() else { break };
        let began = Instant::now();
        let seed = options.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(round));
        let trouble = Trouble::draw(kind, setup.family, seed);
        setup.round(&trouble, options.commits, &mut summary).map_err(|error| {
            let kept = match setup.keep_all() {
                Ok(None) => String::new(),
                Ok(Some(kept)) => format!("\ndirectories are kept in {}", kept.display()),
                Err(error) => format!("\ndirectories are not kept: {error}"),
            };
            Error::Violation(format!(
                "seed {}, round {round} ({kind:?}): {error}\n{trouble:#?}\nserver: {}\nnode: {}{kept}",
                options.seed,
                setup.server.error_log_tail(25),
                setup.node.log_tail(15)
            ))
        })?;
        *summary.rounds.entry(format!("{kind:?}")).or_default() += 1;
        summary.faults = setup.faults()?;
        progress(&format!(
            "round {round} {kind:?}: {} commits so far, {} faults, {:.1} s",
            summary.acknowledged,
            summary.faults.values().sum::<u64>(),
            began.elapsed().as_secs_f64()
        ));
    }
    setup.server.shutdown()?;
    Ok(summary)
}

fn order(options: &Options) -> Vec<Kind> {
    let mut kinds = if options.kinds.is_empty() { Kind::ALL.to_vec() } else { options.kinds.clone() };
    fastrand::Rng::with_seed(options.seed).shuffle(&mut kinds);
    kinds
}

/// State of the server at the end of the trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Outcome {
    connections_lost: u64,
}

impl Setup {
    fn round(&mut self, trouble: &Trouble, commits: u64, summary: &mut Summary) -> Result<()> {
        let ledger =
            ledger::Options { clients: CLIENTS, tolerates_errors: true, ..ledger::Options::default() };
        let run = Run::start(&self.server.socket(), &self.ledger, ledger)?;
        let churn = Churn::start(&self.server.socket(), self.family, trouble.seed);
        run.wait_for_more(20, PATIENCE)?;
        self.begin(trouble)?;
        let under = self.under(trouble, &run, commits, summary).and_then(|()| self.wait_for_fault());
        self.calm()?;
        let healed = under.and_then(|()| self.heal(trouble, &run));
        if healed.is_err() {
            // Clients may wait for an answer that never comes.
            let _ = self.server.kill9();
        }
        let churned = churn.stop();
        let ended = run.stop();
        healed?;
        let outcome = Outcome { connections_lost: ended?.connections_lost };
        summary.churn_done += churned.done;
        summary.churn_failed += churned.failed;
        self.require_unnoticed(trouble, outcome)?;
        self.require_sound(trouble, summary)
    }

    /// The time under faults: until enough commits were seen, or what must end has ended.
    fn under(&mut self, trouble: &Trouble, run: &Run, commits: u64, summary: &mut Summary) -> Result<()> {
        match trouble.kind {
            Kind::Benign | Kind::Network => run.wait_for_more(commits, PATIENCE),
            Kind::Kills => {
                run.wait_for_more(commits / 2, PATIENCE)?;
                self.kill(trouble)?;
                self.restart_under_faults()?;
                run.wait_for_more(commits / 2, PATIENCE)
            }
            Kind::NodeFull => {
                run.run_for(Duration::from_millis(trouble.time_ms));
                Ok(())
            }
            Kind::NodeLogError | Kind::NodeError => self.under_node_error(trouble, run, summary),
            Kind::ServerError => {
                run.run_for(Duration::from_millis(trouble.time_ms));
                self.wait_for_fault()?;
                if self.server.wait_exit(Duration::ZERO).is_ok() {
                    summary.server_ended += 1;
                }
                Ok(())
            }
        }
    }

    /// A round whose faults all stay away would show nothing.
    fn wait_for_fault(&self) -> Result<()> {
        poll_until("a fault of this round", PATIENCE, || {
            Ok((self.faults()?.values().sum::<u64>() > self.faults_at_begin).then_some(()))
        })
    }

    /// A failed write or sync of the log stops the volume: nothing may be acknowledged after it. Another call that
    /// fails may be one that is done again, or that does not matter.
    fn under_node_error(&mut self, trouble: &Trouble, run: &Run, summary: &mut Summary) -> Result<()> {
        poll_every(LOOK_INTERVAL, "an error of the node's disk", PATIENCE, || {
            Ok((self.node_errors()? > self.node_errors_at_begin).then_some(()))
        })?;
        let is_stopped = || Ok((self.node.status(VOLUME)?["volumes"][0]["state"] == "stopped").then_some(()));
        if trouble.kind == Kind::NodeLogError {
            poll_every(LOOK_INTERVAL, "the end of a volume whose log failed", PATIENCE, is_stopped)?;
        } else {
            let time = Duration::from_millis(trouble.time_ms);
            match poll_every(LOOK_INTERVAL, "the end of a volume whose disk failed", time, is_stopped) {
                Err(Error::Deadline { .. }) => return Ok(()),
                ended => ended?,
            }
        }
        summary.volume_stopped += 1;
        self.require_no_commit_until_exit(run)?;
        summary.server_ended += 1;
        Ok(())
    }

    /// The volume has stopped.
    fn require_no_commit_until_exit(&mut self, run: &Run) -> Result<()> {
        // Each client may have an answer on its way that it has not written down yet.
        let most = run.acknowledged() + u64::from(CLIENTS);
        poll_until("the end of a server whose volume has stopped", PATIENCE, || {
            // Looked at first: what is acknowledged before the end is seen afterwards.
            let has_ended = self.server.wait_exit(Duration::ZERO).is_ok();
            if run.acknowledged() > most {
                return Err(Error::Violation(
                    "commits were acknowledged by a volume that had stopped".into(),
                ));
            }
            Ok(has_ended.then_some(()))
        })
    }

    /// Restarts what has ended and sees commits again.
    fn heal(&mut self, trouble: &Trouble, run: &Run) -> Result<()> {
        match trouble.kind {
            Kind::NodeLogError | Kind::NodeError => {
                if self.server.process_id().is_some() {
                    self.server.kill9()?;
                }
                self.keep_server_before_restart()?;
                self.node.crash_and_restart()?;
                self.server.start()?;
            }
            Kind::ServerError => {
                // A server that had errors on its own disk is restarted, as an operator would.
                if self.server.process_id().is_some() {
                    self.server.kill9()?;
                }
                self.server.start()?;
            }
            Kind::Benign | Kind::Network | Kind::NodeFull | Kind::Kills => {}
        }
        run.wait_for_more(30, PATIENCE)
    }

    /// Requires that invisible faults had no effect on clients.
    fn require_unnoticed(&mut self, trouble: &Trouble, outcome: Outcome) -> Result<()> {
        let keeps_server = matches!(trouble.kind, Kind::Benign | Kind::Network | Kind::NodeFull);
        if keeps_server && self.server.process_id() != Some(self.server_at_begin) {
            return Err(Error::Violation("the server is another process than before".into()));
        }
        if keeps_server && outcome.connections_lost > 0 {
            let lost = outcome.connections_lost;
            return Err(Error::Violation(format!("clients met {lost} errors, and should have met none")));
        }
        Ok(())
    }

    fn require_sound(&mut self, trouble: &Trouble, summary: &mut Summary) -> Result<()> {
        let mut conn = self.server.connect()?;
        let entries = Entries::read(&self.ledger)?;
        let report = ledger::verify(&mut conn, &entries)?.require_sound()?;
        summary.acknowledged = report.rows_found;
        (summary.unknown_present, summary.unknown_absent) = (report.unknown_present, report.unknown_absent);
        if trouble.kind == Kind::ServerError {
            // A statement that failed half-way on the server's own disk may leave its table behind, as on any server.
            churn::clear(&mut conn);
        } else {
            summary.aria_damaged += churn::check(&mut conn, self.server_was_killed())?;
        }
        // Page verification continues after the rows are read: each dropped page is compared when it is applied.
        let status = self.node.status(VOLUME)?;
        let counters = &status["volumes"][0]["counters"];
        if counters["page_mismatches"].as_u64() != Some(0) {
            return Err(Error::Violation(format!("pages differ: {status}")));
        }
        let verified = counters["pages_verified"].as_u64().unwrap_or_default();
        summary.pages_verified = summary.pages_verified.max(verified);
        let folder = tempfile::tempdir().map_err(Error::io("make a temporary directory"))?;
        let compared = plain_files::require_same(&self.node, VOLUME, &self.server, folder.path())?;
        summary.plain_files = compared.plain_files as u64;
        Ok(())
    }

    /// Starts again what a round has killed, while its faults go on; when a start fails for them, after they ended.
    fn restart_under_faults(&mut self) -> Result<()> {
        if self.node.process_id().is_none() && self.node.start().is_err() {
            self.calm()?;
            self.node.start()?;
        }
        if self.server.process_id().is_none() && self.server.start().is_err() {
            self.calm()?;
            // A process of an attempt that was given up may still be there.
            let _ = self.server.kill9();
            self.server.start()?;
        }
        poll_until("a server that answers", PATIENCE, || Ok(self.server.connect().ok())).map(drop)
    }
}
