//! A seeded simulation of the storage node: see docs/dev/simulation.md.
//!
//! `REDOUBT_SIMULATION_SEED` and `REDOUBT_SIMULATION_SEEDS` choose other worlds, `REDOUBT_SIMULATION_NOTES` shows
//! what happened before a failure, `REDOUBT_SIMULATION_SECONDS` is how long the soak runs.
//!
//! With the feature `planted-bugs` every planted bug must be found (scripts/planted); `REDOUBT_SIMULATION_BUG` turns on
//! only one, by its name in [`redoubt_sync::planted::Bug`].

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]

#[path = "../../../redo/tests/support/encoder.rs"]
mod encoder;
#[allow(dead_code, unreachable_pub, reason = "the model uses a part of it")]
mod queue;

mod disk;
mod facts;
mod history;
mod network;
#[cfg(feature = "planted-bugs")]
mod planted;
mod server;
mod world;

use facts::Counts;
use redoubt_sync::simulation::{Failure, Options, Report};
use redoubt_test_support::{child, setting, setting_os};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Steps of the storm; healing takes about as many again.
const STORM_STEPS: u64 = 60_000;
/// A world with more steps has failed. Two minutes of a server that writes on while it is taken over take some
/// millions.
const MAX_STEPS: u64 = 10_000_000;
/// Worlds that a usual run visits.
const SEEDS: u64 = 60;
/// Worlds of one process of a soak.
const WORLDS_PER_PROCESS: u64 = 10;
/// How a line with a count begins.
const COUNT: &str = "count ";

fn options(seed: u64) -> Options {
    let keep_notes = setting_os("REDOUBT_SIMULATION_NOTES").is_some();
    Options { keep_notes, max_steps: MAX_STEPS, ..Options::new(seed) }
}

fn run(seed: u64) -> Result<(Counts, Report), Failure> {
    world::run(&options(seed), STORM_STEPS)
}

fn commit() -> String {
    let output = std::process::Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

fn describe(failure: &Failure) -> String {
    format!(
        "commit {}: {failure}\nagain: REDOUBT_SIMULATION_NOTES=1 REDOUBT_SIMULATION_SEED={} REDOUBT_SIMULATION_SEEDS=1 \
         cargo test --release -p redoubt-node --test simulation worlds -- --nocapture",
        commit(),
        failure.seed
    )
}

/// Sums over many worlds.
#[derive(Default, Debug)]
struct Sum {
    worlds: u64,
    steps: u64,
    time: Duration,
    counts: Counts,
}

impl Sum {
    fn add(&mut self, counts: &Counts, report: &Report) {
        self.worlds += 1;
        self.steps += report.steps;
        self.time += report.time;
        self.counts.add(counts);
    }
}

#[test]
fn worlds_stay_sound_and_heal() {
    let first = setting("REDOUBT_SIMULATION_SEED", 1);
    let seeds = setting("REDOUBT_SIMULATION_SEEDS", SEEDS);
    let mut sum = Sum::default();
    let mut failures = Vec::new();
    for seed in first..first + seeds {
        match run(seed) {
            Ok((counts, report)) => sum.add(&counts, &report),
            Err(failure) => failures.push(describe(&failure)),
        }
    }
    println!("seeds {first} to {}: {sum:?}", first + seeds - 1);
    assert!(failures.is_empty(), "{} of {seeds} worlds failed:\n{}", failures.len(), failures.join("\n"));
    if seeds >= SEEDS {
        let counts = &sum.counts;
        // A simulation in which nothing happens proves nothing.
        assert!(counts.reads > 1000 && counts.tables_applied > 100 && counts.holds > 10, "{sum:?}");
        assert!(counts.journals_lost > 2, "{sum:?}");
        assert!(counts.power_cuts > 50 && counts.kills > 20 && counts.attaches > 100, "{sum:?}");
        // Each stray read ends its connection, and a fenced server gets no other.
        assert!(counts.strays > 10 && counts.stray_reads > 10 && counts.races > 10, "{sum:?}");
        assert!(counts.faults.len() > 5 && counts.examined > 50, "{sum:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_world() {
    let outcome = |seed| run(seed).map_err(|failure| (failure.message, failure.report));
    let mut traces = Vec::new();
    for seed in 1..=4 {
        let first = outcome(seed);
        assert_eq!(first, outcome(seed), "seed {seed}");
        traces.push(first.map_or_else(|(_, report)| report.trace, |(_, report)| report.trace));
    }
    traces.dedup();
    assert_eq!(traces.len(), 4);
}

/// Fresh worlds for a time, on all cores. Each batch of them is a process of its own: memory of killed threads is never
/// given back.
#[test]
#[ignore = "for make soak"]
fn soak() {
    let seconds = setting("REDOUBT_SIMULATION_SECONDS", 60);
    let first = setting("REDOUBT_SIMULATION_SEED", fastrand::u64(..) >> 16);
    println!("commit {}, seeds from {first} on, {seconds} s", commit());
    let until = Instant::now() + Duration::from_secs(seconds);
    let (next, totals) = (AtomicU64::new(first), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while Instant::now() < until {
                    run_batch(next.fetch_add(WORLDS_PER_PROCESS, Ordering::Relaxed), &totals);
                }
            });
        }
    });
    let totals = totals.into_inner().unwrap();
    print_totals(&totals);
    assert!(!totals.contains_key("failed"), "worlds fail, see above");
}

/// Runs the worlds from `first` on in a separate process and adds their sums.
fn run_batch(first: u64, totals: &Mutex<BTreeMap<String, u64>>) {
    let output = child::command("batch").arg(first.to_string()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut totals = totals.lock().unwrap();
    let mut is_whole = false;
    for line in text.lines() {
        if let Some(count) = line.strip_prefix(COUNT) {
            let (name, value) = count.split_once('=').unwrap();
            is_whole |= name == "worlds";
            *totals.entry(name.to_owned()).or_default() += value.parse::<u64>().unwrap();
        } else if line.starts_with("FAILED") || line.starts_with("again:") {
            println!("{line}");
        }
    }
    if !is_whole {
        println!("FAILED: the process of seeds {first} on ended with {}", output.status);
        *totals.entry("failed".to_owned()).or_default() += 1;
    }
    if totals.get("worlds").is_some_and(|worlds| worlds.is_multiple_of(10 * WORLDS_PER_PROCESS)) {
        print_totals(&totals);
    }
}

fn print_totals(totals: &BTreeMap<String, u64>) {
    let hours = totals.get("milliseconds").copied().unwrap_or_default() as f64 / 3_600_000.0;
    println!("so far {hours:.2} simulated hours, {totals:?}");
}

redoubt_test_support::children!(batch);

/// A child process of [`soak`]: the worlds of one batch.
fn batch() {
    let first: u64 = child::argument(0);
    let mut totals = BTreeMap::new();
    let mut sum = Sum::default();
    for seed in first..first + WORLDS_PER_PROCESS {
        match run(seed) {
            Ok((counts, report)) => sum.add(&counts, &report),
            Err(failure) => {
                println!("FAILED {}", describe(&failure));
                *totals.entry("failed".to_owned()).or_default() += 1;
            }
        }
    }
    totals.insert("worlds".to_owned(), WORLDS_PER_PROCESS);
    totals.insert("steps".to_owned(), sum.steps);
    totals.insert("milliseconds".to_owned(), sum.time.as_millis() as u64);
    totals.extend(sum.counts.by_name());
    println!();
    for (name, value) in totals {
        println!("{COUNT}{name}={value}");
    }
}
