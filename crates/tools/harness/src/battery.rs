//! Runs feature steps on one server, with a restart after each or after all, and compares.
//!
//! Invariants: the snapshot before a restart is taken when the step's statements are committed; a server
//! that comes back must show the same snapshot and sound tables before anything else is done with it.

use std::time::{Duration, Instant};

use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::Launcher;
use redoubt_workload::server::{Server, ServerConfig};

use crate::features::{Feature, INNODB_ARGS, SERVER_ARGS};
use redoubt_workload::check::{Probe, Snapshot, check_all, check_database};

/// How a server is brought down and up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// SIGKILL, then start.
    Kill,
    /// Orderly shutdown, then start.
    Clean,
    /// SIGKILL, then start in an empty data directory; only for a server on a volume.
    KillAndAttach,
}

impl Restart {
    /// Brings the server down and up.
    ///
    /// # Errors
    /// Those of the server's start, with the end of its error log.
    pub fn apply(self, server: &mut Server) -> Result<()> {
        match self {
            Self::Kill => server.kill9()?,
            Self::Clean => server.shutdown()?,
            Self::KillAndAttach => {
                server.kill9()?;
                server.empty_data_directory()?;
            }
        }
        server.start()
    }
}

/// When the server is restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// After each step, by the given kinds in turn.
    AfterEach(&'static [Restart]),
    /// Once after all steps, by each of the given kinds, one after the other.
    AtEnd(&'static [Restart]),
}

/// Effect of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Steps with the time each took without its restart.
    pub steps: Vec<(&'static str, Duration)>,
    /// Number of restarts.
    pub restarts: usize,
    /// Tables checked at the end.
    pub tables_checked: usize,
    /// Tables compared at the end.
    pub tables_compared: usize,
}

/// The configuration the battery's servers share; page size, pool and further arguments are set by the caller.
pub fn config(launcher: Launcher) -> ServerConfig {
    let mut config = ServerConfig::new(launcher);
    config.buffer_pool_bytes = 64 << 20;
    config.log_file_size_bytes = 16 << 20;
    config.innodb_args = INNODB_ARGS.map(str::to_owned).to_vec();
    config.server_args = SERVER_ARGS.map(str::to_owned).to_vec();
    config
}

/// Runs `features` on a started server.
///
/// # Errors
/// The first failure, with the feature's name and the end of the error log.
pub fn run(server: &mut Server, features: &[Feature], schedule: Schedule) -> Result<Report> {
    let mut report = Report::default();
    let mut all_probes = Vec::new();
    let mut pending: Vec<&Feature> = Vec::new();
    let mut held = Vec::new();
    for (index, feature) in features.iter().enumerate() {
        let start = Instant::now();
        let (probes, connections) =
            feature.run(server).map_err(|error| explain(feature.name, error, server))?;
        held.extend(connections);
        report.steps.push((feature.name, start.elapsed()));
        match schedule {
            Schedule::AfterEach(kinds) => {
                let kind = kinds.get(index % kinds.len().max(1)).copied().unwrap_or(Restart::Kill);
                restart_and_compare(server, feature, &probes, kind)
                    .map_err(|error| explain(feature.name, error, server))?;
                held.clear();
                report.restarts += 1;
            }
            Schedule::AtEnd(_) => {
                all_probes.extend(probes);
                pending.push(feature);
            }
        }
    }
    if let Schedule::AtEnd(kinds) = schedule {
        for kind in kinds {
            restart_and_compare_all(server, &all_probes, *kind)
                .map_err(|error| explain("all features", error, server))?;
            held.clear();
            report.restarts += 1;
        }
        for feature in pending {
            finish(server, feature).map_err(|error| explain(feature.name, error, server))?;
        }
    }
    let mut conn = server.connect()?;
    report.tables_checked = check_all(&mut conn)?;
    report.tables_compared = Snapshot::take(&mut conn, None, &[])?.checksums.len();
    Ok(report)
}

fn restart_and_compare(
    server: &mut Server,
    feature: &Feature,
    probes: &[Probe],
    kind: Restart,
) -> Result<()> {
    let database = feature.database();
    let before = Snapshot::take(&mut server.connect()?, Some(&database), probes)?;
    kind.apply(server)?;
    let mut conn = server.connect()?;
    let after = Snapshot::take(&mut conn, Some(&database), probes)?;
    before.require_same(&after, &format!("after {kind:?}"))?;
    check_database(&mut conn, &database)?;
    finish(server, feature)
}

fn restart_and_compare_all(server: &mut Server, probes: &[Probe], kind: Restart) -> Result<()> {
    let before = Snapshot::take(&mut server.connect()?, None, probes)?;
    kind.apply(server)?;
    let mut conn = server.connect()?;
    let after = Snapshot::take(&mut conn, None, probes)?;
    before.require_same(&after, &format!("after {kind:?}"))?;
    check_all(&mut conn).map(drop)
}

fn finish(server: &Server, feature: &Feature) -> Result<()> {
    match feature.after_restart {
        Some(after_restart) => after_restart(&mut server.connect()?),
        None => Ok(()),
    }
}

fn explain(feature: &str, error: Error, server: &Server) -> Error {
    let log = server.error_log_tail(80);
    match error {
        Error::Exited { .. } | Error::Deadline { .. } => error,
        other => Error::Violation(format!("feature {feature}: {other}\nend of the error log:\n{log}")),
    }
}
