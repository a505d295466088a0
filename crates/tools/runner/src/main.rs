//! Runs the test programs that cargo has built for `./test`, which is how this is meant to be called.
//!
//! `plan` says which test is in which stage; `job` makes processes of them; `run` starts these, several at a time, and
//! ends those that hang; `report` says how it went. `cargo test` itself would run one program after the other, and an
//! outer time limit could not say which one hung and which were not run.

// See `print`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod children;
mod cleanup;
mod error;
mod job;
mod machine;
mod outcome;
mod plan;
mod print;
mod processes;
mod programs;
mod report;
mod run;
mod skips;
mod temporary;

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::{Error, Result};
use crate::job::{Job, Selection};
use crate::outcome::{Outcome, Verdict};
use crate::plan::{DEFAULT_STAGES, Durations, Plan, STAGES};
use crate::report::Counts;

/// Exit status of wrong use.
const WRONG_USE: u8 = 2;

/// Run test programs: several at a time, by stage, each with a guard against a hang
#[derive(Debug, Parser)]
struct Args {
    /// Only list stages, tests and usual seconds
    #[arg(long)]
    list: bool,
    /// Messages of `cargo test --no-run --message-format json`
    #[arg(long)]
    programs: PathBuf,
    /// The same of `scripts/checked`
    #[arg(long)]
    checked: Option<PathBuf>,
    /// Which test is in which stage
    #[arg(long, default_value = "crates/tools/runner/plan.txt")]
    plan: PathBuf,
    /// Usual durations
    #[arg(long, default_value = "crates/tools/runner/durations.txt")]
    durations: PathBuf,
    /// A stage, several separated by commas, or all; default: lint, unit, volume, smoke; with --filter all
    #[arg(long)]
    stage: Vec<String>,
    /// Run only tests whose program and name contain this
    #[arg(long)]
    filter: Option<String>,
    /// Directory of logs and durations
    #[arg(long, default_value = "target/test")]
    out: PathBuf,
    /// Threads that run tests, over all processes; default: twice the processors, one for each 2 GiB of memory at most
    #[arg(long)]
    at_once: Option<usize>,
    /// End the run after this many seconds
    #[arg(long)]
    limit: Option<u64>,
    /// Seconds after which any test is taken to hang, instead of a multiple of its usual duration
    #[arg(long)]
    guard: Option<u64>,
    /// File with lines "NAME SECONDS" of what came before the tests
    #[arg(long)]
    before: Option<PathBuf>,
    /// File with a line for each step beside the tests that has failed
    #[arg(long)]
    failed_steps: Option<PathBuf>,
    /// File to which tests append what they leave out
    #[arg(long, env = "REDOUBT_SKIPPED")]
    skipped: Option<PathBuf>,
    /// File with what may be left out
    #[arg(long)]
    allowed: Option<PathBuf>,
}

fn main() -> ExitCode {
    match start(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            print::error(&error.to_string());
            ExitCode::from(if matches!(error, Error::Usage(_)) { WRONG_USE } else { 1 })
        }
    }
}

fn start(args: &Args) -> Result<ExitCode> {
    let default = if args.filter.is_some() { vec!["all"] } else { DEFAULT_STAGES.to_vec() };
    let default: Vec<String> = default.into_iter().map(str::to_owned).collect();
    let names = if args.stage.is_empty() { &default } else { &args.stage };
    let selection = Selection::new(names, args.filter.clone())?;
    let (plan, durations) = (Plan::read(&args.plan)?, Durations::read(&args.durations)?);
    let mut programs = programs::read(&args.programs, false)?;
    if let Some(messages) = &args.checked {
        programs.extend(programs::read(messages, true)?);
    }
    let programs: Vec<_> = programs
        .into_iter()
        .map(|program| program.tests().map(|tests| (program, tests)))
        .collect::<Result<_>>()?;
    let jobs = job::jobs(&programs, &plan, &durations, &selection)?;
    if args.list {
        list(&jobs);
        return Ok(ExitCode::SUCCESS);
    }
    if jobs.is_empty() && (args.filter.is_some() || plan::have_tests(&selection.stages)) {
        return Err(Error::Plan("no test was run: none matches".to_owned()));
    }
    let begin = Instant::now();
    let _lock = lock(&args.out)?;
    let settings = settings(args)?;
    let outcomes = run::run(jobs, &settings)?;
    let is_ok = finish(args, &selection, &settings, &outcomes, begin.elapsed());
    Ok(match settings.signal.load(Ordering::Relaxed) {
        0 if is_ok => ExitCode::SUCCESS,
        0 => ExitCode::FAILURE,
        signal => ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)),
    })
}

/// Two runs with one directory would remove each other's logs and verdicts. The lock ends with the file.
fn lock(out: &Path) -> Result<File> {
    std::fs::create_dir_all(out).map_err(Error::io("create", out))?;
    let path = out.join("lock");
    let file = File::create(&path).map_err(Error::io("create", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Busy(out.to_owned())),
        Err(TryLockError::Error(source)) => Err(Error::Io { what: "lock", path, source }),
    }
}

fn settings(args: &Args) -> Result<run::Settings> {
    let logs = args.out.join("logs");
    // Logs of an earlier run would look like this one's.
    let _ = std::fs::remove_dir_all(&logs);
    std::fs::create_dir_all(&logs).map_err(Error::io("create", &logs))?;
    let log = args.out.join("all.log");
    std::fs::write(&log, "").map_err(Error::io("write", &log))?;
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|number| !machine::is_ignored(*number)) {
        let caught = signal_hook::flag::register_usize(number, Arc::clone(&signal), number as usize);
        caught.map_err(Error::io("catch signals of", Path::new("this process")))?;
    }
    let own = i32::try_from(std::process::id()).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::set_child_subreaper(own)
        .map_err(|error| Error::io("adopt the children of", Path::new("tests"))(error.into()))?;
    let at_once = args.at_once.unwrap_or_else(|| machine::slots(processors)).max(1);
    Ok(run::Settings {
        logs,
        log,
        at_once,
        processors: processors.min(at_once),
        limit: args.limit.map(Duration::from_secs),
        guard: args.guard.map(Duration::from_secs),
        signal,
    })
}

/// Stages with their numbers of tests, then all jobs.
fn list(jobs: &[Job]) {
    for (index, stage) in STAGES.iter().enumerate() {
        let of: Vec<&Job> = jobs.iter().filter(|job| job.stage == index).collect();
        let tests: usize = of.iter().map(|job| job.tests.len()).sum();
        let seconds: u64 = of.iter().map(|job| job.usual.as_secs()).sum();
        let processes = of.len();
        print::line(&format!(
            "{stage}: {tests} tests in {processes} processes, usually {seconds} s one after the other"
        ));
        for job in of {
            print::line(&format!(
                "  {:>4} s {:>4} tests  {}",
                job.usual.as_secs(),
                job.tests.len(),
                job.name()
            ));
        }
    }
}

/// Prints the report; whether all is well. Nothing here keeps the rest of it from being printed.
fn finish(
    args: &Args,
    selection: &Selection,
    settings: &run::Settings,
    outcomes: &[Outcome],
    elapsed: Duration,
) -> bool {
    let durations = args.out.join("durations.txt");
    if let Err(error) = std::fs::write(&durations, report::durations(outcomes)) {
        print::note(&Error::io("write", &durations)(error).to_string());
    }
    let output = |outcome: &Outcome| {
        let log = settings.logs.join(outcome.job.log_name());
        String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned()
    };
    print::text(&report::failures(outcomes, output));
    print::text(&report::left_behind(outcomes));
    let before = args.before.as_deref().map_or_else(Vec::new, read_before);
    print::text(&format!("\n{}\n{}\n", report::stages(outcomes, &before), report::slowest(outcomes)));
    print::text(&report::not_passed(outcomes));
    // A list that cannot be read is a failure: it may have named one.
    let failed_steps = args.failed_steps.as_deref().map_or(Ok(Vec::new()), skips::lines);
    let failed_steps = failed_steps.unwrap_or_else(|error| vec![error.to_string()]);
    print::text(&report::failed_steps(&failed_steps));
    let left_out = args.skipped.as_deref().map_or(Ok(Vec::new()), skips::left_out);
    let left_out_is_known =
        left_out.as_ref().map_err(|error| print::line(&format!("error: {error}"))).is_ok();
    let left_out = left_out.unwrap_or_default();
    let has_passed = left_out_is_known && outcomes.iter().all(|outcome| outcome.verdict == Verdict::Passed);
    if !left_out.is_empty() {
        let count = left_out.len();
        print::line(&format!("Left out on this machine, although their tests count as passed: {count}"));
        print::line(&left_out.join("\n"));
    }
    let has_allowed_skips =
        args.allowed.as_deref().filter(|_| selection.filter.is_none()).is_none_or(|path| {
            let differences = match skips::allowed(path, &selection.stages) {
                Ok(allowed) => skips::differences(&left_out, &allowed),
                Err(error) => vec![error.to_string()],
            };
            for line in &differences {
                print::line(&format!("error: {line} ({})", path.display()));
            }
            differences.is_empty()
        });
    let is_ok = has_passed && has_allowed_skips && failed_steps.is_empty();
    print::text(&report::place(&settings.log));
    print::text(&Counts::of(outcomes).result(is_ok, elapsed));
    is_ok
}

fn read_before(path: &Path) -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let words = text.lines().filter_map(|line| line.split_once(' '));
    words.filter_map(|(name, seconds)| Some((name.to_owned(), seconds.parse().ok()?))).collect()
}
