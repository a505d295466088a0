//! Everything in turns: for each repetition, pool and limit all backends, one after the other.
//!
//! The local server has no link, so it runs once for each pool, not for each limit. Only one system exists at a time:
//! nothing idle takes memory or CPU time from the one measured. A run begins with a fresh copy of the data and
//! a cold buffer pool.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redoubt_workload::error::{Error, Result};
use redoubt_workload::load::{self, Progress, Until, Window, Worker};
use redoubt_workload::oltp;
use redoubt_workload::process::{catch_signals, check_interrupt};
use redoubt_workload::sql::connect;
use redoubt_workload::tpcc::{self, Tpcc};

use crate::args::{Bandwidth, Checks, Options, Workload};
use crate::backend::{Candidate, Environment, System};
use crate::dataset::{DataSet, bar, oltp_scale, tpcc_scale};
use crate::measure::Snapshot;
use crate::network::Network;
use crate::processors::Processors;
use crate::report::{Machine, RunReport, html, table};
use crate::server::version;

/// One run of the plan.
struct Turn<'a> {
    candidate: &'a Candidate,
    pool_bytes: u64,
    bandwidth: Bandwidth,
    repetition: u32,
}

/// Runs everything, prints results as they come, and returns them; `redoubt` is the command itself.
///
/// # Errors
/// Options that do not fit, a machine that lacks something, a system that fails, inconsistent data, a signal. Runs that
/// are complete by then are printed and reported.
pub fn run(options: &Options, redoubt: &Path) -> Result<Vec<RunReport>> {
    if let Some(path) = &options.from {
        let runs = read(path)?;
        conclude(options, &runs, &Machine::default())?;
        return Ok(runs);
    }
    options.check()?;
    catch_signals()?;
    version(options)?;
    let mut network = if options.no_namespaces { Network::loopback() } else { Network::create()? };
    let temporary =
        tempfile::Builder::new().prefix("rdb-").tempdir().map_err(Error::io("make a directory"))?;
    let directory = options.directory.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(directory).map_err(Error::io_at("create", directory))?;
    let directory = &directory.canonicalize().map_err(Error::io_at("open", directory))?;
    let data = DataSet::prepare(directory, options)?;
    if options.processors == Processors::Separate {
        network.separate_processors()?;
    }
    let environment = Environment { options, data: &data, network: &network, directory, redoubt };
    let candidates = Candidate::all(options);
    let turns = plan(options, &candidates);
    let mut runs = Vec::new();
    let mut failed = None;
    for (number, turn) in (1..).zip(&turns) {
        eprintln!("run {number} of {}: {}", turns.len(), turn.describe());
        match turn.run(&environment) {
            Ok(run) => {
                if options.json {
                    println!("{}", to_json(&run)?);
                }
                eprintln!("  {:.1} transactions/s, p95 {:.1} ms", run.tps, run.latency.p95_ms);
                runs.push(run);
            }
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    conclude(options, &runs, &Machine::examine(options, data.len_bytes()?)?)?;
    failed.map_or(Ok(runs), Err)
}

fn to_json(run: &RunReport) -> Result<String> {
    serde_json::to_string(run)
        .map_err(|error| Error::Parse { what: "a result".to_owned(), detail: error.to_string() })
}

/// Results of earlier runs, one JSON object in each line.
fn read(path: &Path) -> Result<Vec<RunReport>> {
    let text = std::fs::read_to_string(path).map_err(Error::io_at("read", path))?;
    let run = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| Error::Parse {
            what: format!("{}:{}", path.display(), number + 1),
            detail: error.to_string(),
        })
    };
    let runs: Vec<RunReport> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(run)
        .collect::<Result<_>>()?;
    require_comparable(&runs)?;
    Ok(runs)
}

/// Only what differs in backend, pool, limit and repetition alone fits into one table.
fn require_comparable(runs: &[RunReport]) -> Result<()> {
    let conditions = |run: &RunReport| {
        format!(
            "{} with {} clients, a delay of {} ms, processors {}",
            run.workload, run.clients, run.delay_ms, run.processors
        )
    };
    let mut different = runs.iter().map(conditions);
    let Some(first) = different.next() else { return Ok(()) };
    match different.find(|other| *other != first) {
        None => Ok(()),
        Some(other) => Err(Error::State(format!(
            "these results cannot be compared: {first}; and {other}. Put them into files of their own"
        ))),
    }
}

/// Table and report of what there is.
fn conclude(options: &Options, runs: &[RunReport], machine: &Machine) -> Result<()> {
    if runs.is_empty() {
        return Ok(());
    }
    if options.json {
        eprintln!("{}", table(runs))
    } else {
        println!("{}", table(runs))
    }
    if let Some(path) = &options.report {
        let command: Vec<_> = std::env::args().skip(1).collect();
        let page = html(runs, machine, &command.join(" "))?;
        std::fs::write(path, page).map_err(Error::io_at("write", path))?;
        eprintln!("report in {}", path.display());
    }
    Ok(())
}

fn plan<'a>(options: &Options, candidates: &'a [Candidate]) -> Vec<Turn<'a>> {
    let mut turns = Vec::new();
    for repetition in 1..=options.repetitions {
        for &pool_bytes in &options.pool {
            for (number, &bandwidth) in options.bandwidth.iter().enumerate() {
                for candidate in candidates {
                    let is_local = candidate.backend.is_local();
                    if is_local && number > 0 {
                        continue;
                    }
                    let bandwidth = if is_local { Bandwidth(None) } else { bandwidth };
                    turns.push(Turn { candidate, pool_bytes, bandwidth, repetition });
                }
            }
        }
    }
    turns
}

impl Turn<'_> {
    fn describe(&self) -> String {
        let link = match self.bandwidth.0 {
            _ if self.candidate.backend.is_local() => String::new(),
            None => ", no limit".to_owned(),
            Some(_) => format!(", {}", self.bandwidth),
        };
        format!("{}, pool {} MiB{link}", self.candidate.name, self.pool_bytes >> 20)
    }

    fn run(&self, environment: &Environment<'_>) -> Result<RunReport> {
        check_interrupt()?;
        let (options, network) = (environment.options, environment.network);
        network.limit(Bandwidth(None))?;
        let mut system = System::start(environment, self.candidate, self.pool_bytes)?;
        network.limit(self.bandwidth)?;
        let socket = system.server().socket();
        let load = Load::begin(&socket, options)?;
        let workers = load.workers(&socket, options, self.repetition)?;
        let mut conn = connect(&socket)?;
        let warm_up = options.warm_up(self.pool_bytes);
        let progress = progress_bar(warm_up, options.until());
        let window = load::run(
            workers,
            warm_up,
            options.until(),
            || Snapshot::take(&system, network, &mut conn),
            progress,
        )?;
        network.limit(Bandwidth(None))?;
        let mut report = self.report(options, &window, &load);
        let began = Instant::now();
        report.consistency = load.check(&socket, options)?;
        report.consistency_s = began.elapsed().as_secs_f64();
        system.server().require_running()?;
        report.server_errors = system.server().error_lines();
        if options.linger > 0 {
            std::thread::sleep(Duration::from_secs(options.linger));
        }
        Ok(report)
    }

    fn report(&self, options: &Options, window: &Window<Snapshot>, load: &Load) -> RunReport {
        let mut report = RunReport {
            backend: self.candidate.name.clone(),
            workload: options.workload.name().to_owned(),
            pool_bytes: self.pool_bytes,
            bandwidth_bps: self.bandwidth.0,
            delay_ms: options.delay.as_secs_f64() * 1000.0,
            clients: options.clients,
            processors: options.processors.name().to_owned(),
            repetition: self.repetition,
            warm_up_transactions: options.warm_up(self.pool_bytes),
            ..RunReport::default()
        };
        let kinds: &[&str] = match load {
            Load::Tpcc(tpcc) => {
                (report.rolled_back, report.retries) = (tpcc.tally().rolled_back(), tpcc.tally().retries());
                &tpcc::KINDS
            }
            Load::Oltp { mix, retries } => {
                report.retries = retries.load(Ordering::Relaxed);
                &[mix.name()]
            }
        };
        report.measure(window, kinds);
        report
    }
}

/// A load on one server, with the checks that follow it.
enum Load {
    Tpcc(Tpcc),
    Oltp { mix: oltp::Mix, retries: Arc<AtomicU64> },
}

impl Load {
    fn begin(socket: &Path, options: &Options) -> Result<Self> {
        match options.workload {
            Workload::Tpcc => {
                Tpcc::begin(socket, tpcc_scale(options), options.seed, options.think).map(Self::Tpcc)
            }
            Workload::Oltp(mix) => Ok(Self::Oltp { mix, retries: Arc::default() }),
        }
    }

    /// Clients; all backends get the same ones, another repetition gets others.
    fn workers(&self, socket: &Path, options: &Options, repetition: u32) -> Result<Vec<Box<dyn Worker>>> {
        let worker = |number: u32| -> Result<Box<dyn Worker>> {
            Ok(match self {
                Self::Tpcc(tpcc) => Box::new(tpcc.client(socket, number, repetition)?),
                Self::Oltp { mix, retries } => {
                    let seed = options.seed ^ (u64::from(repetition) << 32);
                    let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(number);
                    let retries = Arc::clone(retries);
                    Box::new(oltp::Client::new(socket, *mix, oltp_scale(options), seed, retries)?)
                }
            })
        };
        (0..options.clients).map(worker).collect()
    }

    /// How many conditions hold.
    fn check(&self, socket: &Path, options: &Options) -> Result<u32> {
        match (self, options.check) {
            (_, Checks::None) => Ok(0),
            (Self::Tpcc(tpcc), Checks::All) => tpcc.check(socket, u32::MAX),
            (Self::Tpcc(tpcc), Checks::Required) => tpcc.check(socket, tpcc::check::REQUIRED),
            (Self::Oltp { .. }, _) => oltp::check(socket, oltp_scale(options)),
        }
    }
}

/// Shows how far a run is, on a terminal.
fn progress_bar(warm_up: u64, until: Until) -> impl FnMut(Progress) {
    let warming = bar("  warm-up");
    warming.set_length(warm_up);
    let window = bar("  window");
    window.set_length(match until {
        Until::Elapsed(length) => length.as_millis() as u64,
        Until::Transactions(count) => count,
    });
    move |progress| {
        if !progress.in_window {
            warming.set_position(progress.transactions.min(warm_up));
            return;
        }
        if !warming.is_finished() {
            warming.finish_and_clear();
        }
        window.set_position(match until {
            Until::Elapsed(_) => progress.elapsed.as_millis() as u64,
            Until::Transactions(_) => progress.transactions,
        });
    }
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
