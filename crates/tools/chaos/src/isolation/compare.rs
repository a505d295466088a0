//! The same workload on a stock server and on Redoubt, with kills, and the anomalies of each at each level.
//!
//! Invariant: a class of anomaly that Redoubt shows at a level more than twice as often as the stock server
//! ([`is_as_often`]) fails the comparison. A class that only the stock server shows does not: what shows is a matter of
//! chance. A lost append and an incompatible order always fail: no level and no kill allows them. An early read takes
//! a kill of the server at the right moment, on the stock server too (docs/dev/faults.md), so it is not compared with the
//! other's. But a kill can take back no more than what the clients were committing then ([`early_reads_max`]).

use std::collections::BTreeMap;
use std::time::Duration;

use redoubt_harness::node::Node;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::server::{Server, ServerConfig};

use super::check::{Anomaly, Findings, check};
use super::workload::{Level, Options as WorkloadOptions, STEPS_MAX, Workload};
use crate::proxy::{Event, Proxy, Weather};

const VOLUME: &str = "isolation";
const PATIENCE: Duration = Duration::from_secs(120);
/// So many anomalies more are chance, where the stock server shows the class at all: few are needed for one kill.
const BY_CHANCE: u64 = 20;

/// Faults that end a server, by which alone a commit that others have seen can be taken back.
const SERVER_KILLS: &str = "server kills";
const KILLS_OF_BOTH: &str = "kills of both";

/// How much.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Seed of the first pair of histories; the following count on
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Pairs of histories, for each level
    #[arg(long, default_value_t = 3)]
    pub runs: u32,
    /// Transactions in each history
    #[arg(long, default_value_t = 5000)]
    pub transactions: usize,
    /// Kills in each history (of the server; with Redoubt also of the node, and cuts)
    #[arg(long, default_value_t = 4)]
    pub kills: usize,
    /// Clients
    #[arg(long, default_value_t = 8)]
    pub clients: u32,
}

/// Of one server and level.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Findings in the histories.
    pub findings: Findings,
    /// Kills and cuts.
    pub faults: BTreeMap<&'static str, u64>,
    /// Clients of each history.
    pub clients: u32,
}

/// Both servers, by level.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// The stock server.
    pub stock: BTreeMap<Level, Outcome>,
    /// Redoubt.
    pub redoubt: BTreeMap<Level, Outcome>,
}

/// Runs both.
///
/// # Errors
/// [`Error`] of a server or client; anomalies are in the comparison, see [`Comparison::require_no_new`].
pub fn run(options: &Options, mut progress: impl FnMut(&str)) -> Result<Comparison> {
    let mut comparison = Comparison::default();
    let mut stock = Subject::stock()?;
    let mut redoubt = Subject::redoubt(options.seed)?;
    for run in 0..u64::from(options.runs) {
        let seed = options.seed + run;
        for level in Level::ALL {
            let outcome = stock.history(level, seed, options)?;
            progress(&format!("seed {seed}, stock, {}: {}", level.name(), outcome.line()));
            comparison.stock.entry(level).or_default().add(&outcome);
            let outcome = redoubt.history(level, seed, options)?;
            progress(&format!("seed {seed}, Redoubt, {}: {}", level.name(), outcome.line()));
            comparison.redoubt.entry(level).or_default().add(&outcome);
        }
    }
    Ok(comparison)
}

impl Outcome {
    fn line(&self) -> String {
        let findings = &self.findings;
        let anomalies: Vec<_> = findings
            .anomalies
            .iter()
            .map(|(class, (count, _))| format!("{} {count}", class.name()))
            .collect();
        format!(
            "{} committed ({} without an answer), {} aborted, {:?}: {}",
            findings.committed,
            findings.recovered,
            findings.aborted,
            self.faults,
            if anomalies.is_empty() { "no anomaly".to_owned() } else { anomalies.join(", ") }
        )
    }
}

impl Comparison {
    /// Counts for a program.
    pub fn summary(&self) -> serde_json::Value {
        let side = |outcomes: &BTreeMap<Level, Outcome>| {
            let levels = outcomes.iter().map(|(level, outcome)| {
                let findings = &outcome.findings;
                let anomalies = findings.anomalies.iter().map(|(class, (count, _))| (class.name(), *count));
                let value = serde_json::json!({
                    "committed": findings.committed,
                    "recovered": findings.recovered,
                    "aborted": findings.aborted,
                    "faults": outcome.faults,
                    "anomalies": anomalies.collect::<BTreeMap<_, _>>(),
                });
                (level.name(), value)
            });
            levels.collect::<BTreeMap<_, _>>()
        };
        serde_json::json!({ "stock": side(&self.stock), "redoubt": side(&self.redoubt) })
    }

    /// No class of anomaly that the stock server does not show at that level, or shows far less often.
    ///
    /// # Errors
    /// [`Error::Violation`] with the first of them in words.
    pub fn require_no_new(&self) -> Result<()> {
        for (level, outcome) in &self.redoubt {
            let stock = self.stock.get(level).cloned().unwrap_or_default();
            for (anomaly, (count, words)) in &outcome.findings.anomalies {
                let is_known = match anomaly {
                    Anomaly::EarlyRead => *count <= early_reads_max(outcome),
                    Anomaly::LostAppend | Anomaly::IncompatibleOrder => false,
                    _ => {
                        let (ours, theirs) = (&outcome.findings, &stock.findings);
                        is_as_often((*count, ours.committed), (theirs.count(*anomaly), theirs.committed))
                    }
                };
                if !is_known {
                    let (level, class) = (level.name(), anomaly.name());
                    return Err(Error::Violation(format!(
                        "{level}: {count} times {class}, on the stock server {} times: {words}",
                        stock.findings.count(*anomaly)
                    )));
                }
            }
        }
        Ok(())
    }

    /// The table for the documentation.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| level | server | committed | without an answer | aborted | faults | anomalies |\n|---|---|---:|---:|---:|---|---|\n",
        );
        for level in Level::ALL {
            for (name, outcomes) in [("stock", &self.stock), ("Redoubt", &self.redoubt)] {
                let Some(outcome) = outcomes.get(&level) else { continue };
                let findings = &outcome.findings;
                let list =
                    |parts: Vec<String>| if parts.is_empty() { "none".to_owned() } else { parts.join(", ") };
                let faults = outcome.faults.iter().map(|(name, count)| format!("{count} {name}")).collect();
                let seen = Anomaly::ALL.iter().filter(|class| findings.count(**class) > 0);
                let seen = seen.map(|class| format!("{} {}", class.name(), findings.count(*class))).collect();
                text += &format!(
                    "| {} | {name} | {} | {} | {} | {} | {} |\n",
                    level.name(),
                    findings.committed,
                    findings.recovered,
                    findings.aborted,
                    list(faults),
                    list(seen)
                );
            }
        }
        text
    }
}

impl Outcome {
    fn add(&mut self, other: &Self) {
        self.clients = self.clients.max(other.clients);
        let (mine, others) = (&mut self.findings, &other.findings);
        mine.committed += others.committed;
        mine.recovered += others.recovered;
        mine.aborted += others.aborted;
        for (class, (count, words)) in &others.anomalies {
            mine.anomalies.entry(*class).or_insert_with(|| (0, words.clone())).0 += count;
        }
        for (name, count) in &other.faults {
            *self.faults.entry(*name).or_default() += count;
        }
    }
}

/// A server, with a node behind a proxy when it is not the stock one. Dropped in this order.
struct Subject {
    server: Server,
    redoubt: Option<(Proxy, Node)>,
}

impl Subject {
    fn config(launcher: Launcher) -> ServerConfig {
        let mut config = ServerConfig::new(launcher);
        config.log_file_size_bytes = 16 << 20;
        config.buffer_pool_bytes = 16 << 20;
        config
    }

    fn stock() -> Result<Self> {
        Ok(Self { server: Server::create(Self::config(Launcher::Stock))?, redoubt: None })
    }

    fn redoubt(seed: u64) -> Result<Self> {
        let redoubt_bin = find_redoubt()?;
        let node =
            Node::create(&redoubt_bin, &["--ring", "16MiB", "--batch", "1MiB", "--apply-interval", "1"])?;
        node.create_volume(VOLUME)?;
        let proxy = Proxy::start(node.address(), seed)?;
        let launcher = Launcher::Redoubt {
            node_addr: proxy.address(),
            volume: VOLUME.to_owned(),
            redoubt_bin,
            verify: Verify::All,
            options: Vec::new(),
        };
        Ok(Self { server: Server::create(Self::config(launcher))?, redoubt: Some((proxy, node)) })
    }

    fn history(&mut self, level: Level, seed: u64, options: &Options) -> Result<Outcome> {
        let mut random = fastrand::Rng::with_seed(seed ^ ((level as u64) << 56));
        let workload = Workload::start(
            vec![self.server.socket()],
            WorkloadOptions {
                level,
                clients: options.clients,
                seed: options.seed,
                reconnect_timeout: PATIENCE,
                is_causal: false,
            },
        )?;
        let mut faults = BTreeMap::new();
        let part = options.transactions / (options.kills + 1);
        for _ in 0..options.kills {
            workload.wait_for_more(part.max(1), PATIENCE)?;
            *faults.entry(self.trouble(&mut random, &workload)?).or_default() += 1;
        }
        workload.wait_for_more(part.max(1), PATIENCE)?;
        let findings = check(&workload.finish()?);
        Ok(Outcome { findings, faults, clients: options.clients })
    }

    fn trouble(&mut self, random: &mut fastrand::Rng, workload: &Workload) -> Result<&'static str> {
        let Some((proxy, node)) = &mut self.redoubt else {
            self.server.kill9()?;
            self.server.start()?;
            return Ok(SERVER_KILLS);
        };
        match random.u32(..4) {
            0 => {
                self.server.kill9()?;
                self.server.start()?;
                Ok(SERVER_KILLS)
            }
            1 => {
                node.crash_and_restart()?;
                Ok("node kills")
            }
            2 => {
                self.server.kill9()?;
                node.crash_and_restart()?;
                self.server.start()?;
                Ok(KILLS_OF_BOTH)
            }
            _ => {
                proxy.cut_all();
                let events = vec![Event::Delay, Event::Delay, Event::Cut];
                proxy.set(Weather {
                    events,
                    mean_bytes: 30_000,
                    spared_bytes: 512,
                    delay_ms: 10,
                    stall_ms: 0,
                });
                workload.wait_for_more(random.usize(30..150), PATIENCE)?;
                proxy.calm();
                Ok("bad networks")
            }
        }
    }
}

/// Whether `ours`, anomalies and committed transactions, is about as often as `theirs`: at most twice.
fn is_as_often(ours: (u64, u64), theirs: (u64, u64)) -> bool {
    let expected = u128::from(theirs.0) * u128::from(ours.1) / u128::from(theirs.1.max(1));
    theirs.0 > 0 && u128::from(ours.0) <= 2 * expected + u128::from(BY_CHANCE)
}

/// How many early reads there can be: of each client, all appends of the one transaction that it was committing when
/// the server was killed.
fn early_reads_max(outcome: &Outcome) -> u64 {
    let kills: u64 = [SERVER_KILLS, KILLS_OF_BOTH].iter().filter_map(|kind| outcome.faults.get(kind)).sum();
    kills * u64::from(outcome.clients) * u64::from(STEPS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both servers at one level, with kills: so many committed transactions and anomalies of a class.
    fn comparison(class: Anomaly, redoubt: u64, stock: u64, kills: &[(&'static str, u64)]) -> Comparison {
        let outcome = |count| {
            let mut findings = Findings { committed: 1000, ..Findings::default() };
            if count > 0 {
                findings.anomalies.insert(class, (count, "in words".to_owned()));
            }
            let outcome = Outcome { findings, faults: kills.iter().copied().collect(), clients: 4 };
            BTreeMap::from([(Level::Serializable, outcome)])
        };
        Comparison { stock: outcome(stock), redoubt: outcome(redoubt) }
    }

    #[test]
    fn what_no_kill_allows_is_never_excused() {
        for class in [Anomaly::LostAppend, Anomaly::IncompatibleOrder] {
            let error = comparison(class, 1, 1000, &[(SERVER_KILLS, 9)]).require_no_new().unwrap_err();
            assert!(error.to_string().contains(class.name()), "{error}");
        }
    }

    #[test]
    fn a_class_that_the_stock_server_shows_excuses_about_as_many() {
        for class in Anomaly::ALL {
            if matches!(class, Anomaly::LostAppend | Anomaly::IncompatibleOrder | Anomaly::EarlyRead) {
                continue;
            }
            assert!(comparison(class, 1, 0, &[]).require_no_new().is_err(), "{class:?}");
            assert!(comparison(class, 500, 1, &[]).require_no_new().is_err(), "{class:?}");
            assert!(comparison(class, 500, 400, &[]).require_no_new().is_ok(), "{class:?}");
            assert!(comparison(class, 0, 400, &[]).require_no_new().is_ok(), "{class:?}");
        }
    }

    #[test]
    fn early_reads_need_kills_of_the_server_enough_for_them() {
        let check = |count, kills: &[_]| comparison(Anomaly::EarlyRead, count, 1000, kills).require_no_new();
        assert!(check(1, &[]).is_err());
        assert!(check(1, &[("node kills", 5), ("bad networks", 5)]).is_err());
        // Four clients with at most five appends each.
        assert!(check(20, &[(SERVER_KILLS, 1)]).is_ok());
        assert!(check(21, &[(SERVER_KILLS, 1)]).is_err());
        assert!(check(40, &[(SERVER_KILLS, 1), (KILLS_OF_BOTH, 1)]).is_ok());
        assert!(check(41, &[(SERVER_KILLS, 1), (KILLS_OF_BOTH, 1)]).is_err());
    }

    #[test]
    fn what_is_added_up_keeps_its_bound() {
        let of_kills = |kills| Outcome {
            faults: BTreeMap::from([(SERVER_KILLS, kills)]),
            clients: 4,
            ..Outcome::default()
        };
        let mut sum = Outcome::default();
        sum.add(&of_kills(1));
        sum.add(&of_kills(2));
        assert_eq!(early_reads_max(&sum), 60);
    }

    #[test]
    fn one_anomaly_of_the_stock_server_does_not_excuse_any_number() {
        assert!(is_as_often((12_242, 17_806), (9543, 17_074)));
        assert!(is_as_often((20, 1000), (1, 1000)));
        assert!(!is_as_often((30, 1000), (1, 1000)));
        assert!(!is_as_often((1, 1000), (0, 1000)));
        assert!(!is_as_often((5000, 1000), (900, 1000)));
        assert!(is_as_often((900, 1000), (4500, 5000)));
    }
}
