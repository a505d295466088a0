//! `redoubt-testkit oracle ...`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Subcommand;
use redoubt_harness::fetched;
use redoubt_redo::Lsn;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::product::FetchedServer;
use serde_json::{Value, json};

use super::base::Base;
use super::campaign::{self, Kind, Plan, Summary};
use super::check::{Cut, Limits, check_cuts, crash_at, every_cut};
use super::compare;
use super::history::{Recorded, Setup, Workshop};
use super::mysql;
use super::recovery::{self, Crash, Outcome};
use super::redo::Redo;
use super::replay::replay;
use super::shrink;
use crate::generator::Config;

/// Without a progress bar, a line for this many cuts.
const LINE_EVERY_CUTS: u64 = 500;

/// The subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Compare stock recovery and our replay of a redo stream on a data directory that was shut down cleanly
    Compare {
        /// The data directory; it is only read
        #[arg(long)]
        data: PathBuf,
        /// Log files with the redo from the directory's checkpoint on; several if the log was replaced on the way
        #[arg(long, required = true, num_args = 1..)]
        redo: Vec<PathBuf>,
        /// Cut the redo at this LSN
        #[arg(long)]
        cut: Option<u64>,
        /// Page size of the server in bytes
        #[arg(long, default_value_t = 16384)]
        page_size: u32,
        /// The server's innodb_data_file_path, if it was set
        #[arg(long)]
        innodb_data_file_path: Option<String>,
        /// The server's innodb_undo_tablespaces
        #[arg(long, default_value_t = 3)]
        innodb_undo_tablespaces: u32,
    },
    /// Histories of random statements, sysbench or TPC-C, and random cuts of their redo
    Run {
        /// Kind and number of histories
        #[command(flatten)]
        options: RunOptions,
    },
    /// Cut a short random history at the end of every mini-transaction, and once inside each
    Cuts {
        /// Seed of the history
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Statements of the history
        #[arg(long, default_value_t = 60)]
        statements: usize,
        /// Page size in bytes, else that of the seed
        #[arg(long)]
        page_size: Option<u32>,
        /// A server that scripts/fetch-server has fetched (mariadb-11.8), else the system's
        #[arg(long, value_parser = fetched::named)]
        server: Option<FetchedServer>,
        /// How
        #[command(flatten)]
        options: CutOptions,
    },
    /// Check the data directory of a MySQL 9.7 that was killed, as `run --server mysql-9.7` keeps it where one differs
    Crash {
        /// The data directory; it is only read
        #[arg(long)]
        data: PathBuf,
        /// Page size of the server in bytes
        #[arg(long, default_value_t = 16384)]
        page_size: u32,
    },
    /// Run a script that failed again
    Replay {
        /// The script
        script: PathBuf,
    },
    /// Make a failing script small
    Shrink {
        /// The script
        script: PathBuf,
        /// Where the small one goes
        #[arg(long)]
        out: PathBuf,
        /// Run it at most so often
        #[arg(long, default_value_t = 100)]
        runs: usize,
    },
}

/// Options of `cuts`.
#[derive(Debug, Clone, clap::Args)]
pub struct CutOptions {
    /// Only every this many cuts
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Leave out so many at the start
    #[arg(long, default_value_t = 0)]
    skip: usize,
    /// Where data directories of cuts that differ go, as the server finds them
    #[arg(long, default_value = "target/oracle")]
    failures: PathBuf,
    /// Cuts at the same time
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Begin no cut after this many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// Where to work: in memory if there is a file system in it
    #[arg(long)]
    scratch: Option<PathBuf>,
}

/// Options of `run`.
#[derive(Debug, Clone, clap::Args)]
pub struct RunOptions {
    /// Source of the redo
    #[arg(long, value_enum, default_value_t = Kind::Random)]
    kind: Kind,
    /// Seed of the first history
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Statements in all
    #[arg(long, default_value_t = 100_000)]
    statements: u64,
    /// Statements of a history
    #[arg(long, default_value_t = 4000)]
    each: u64,
    /// Random cuts of each history
    #[arg(long, default_value_t = 20)]
    cuts: usize,
    /// The server encrypts all tablespaces
    #[arg(long)]
    encrypted: bool,
    /// Page size in bytes, else by seed
    #[arg(long)]
    page_size: Option<u32>,
    /// A server that scripts/fetch-server has fetched, else the system's
    #[arg(long, value_parser = fetched::named)]
    server: Option<FetchedServer>,
    /// Every this many histories one goes through a node, too; 0: none
    #[arg(long, default_value_t = 4)]
    node_every: u64,
    /// Histories at the same time
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Begin no history after this many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// Where to work: in memory if there is a file system in it
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// Where scripts of failing histories go
    #[arg(long, default_value = "target/oracle")]
    failures: PathBuf,
}

impl RunOptions {
    fn plan(&self) -> Plan {
        Plan {
            seed: self.seed,
            kind: self.kind,
            statements: self.statements,
            statements_each: self.each,
            cuts_each: self.cuts,
            encrypted: self.encrypted,
            page_size_bytes: self.page_size,
            server: self.server,
            node_every: self.node_every,
            threads: self.threads,
            budget: self.seconds.map(Duration::from_secs),
            scratch: self.scratch.clone(),
            failures: self.failures.clone(),
            defect: None,
            progress: true,
        }
    }
}

impl RunOptions {
    /// MySQL has no such history of sysbench or TPC-C, and none that is encrypted; all go through a node.
    fn mysql_plan(&self) -> Result<mysql::Plan> {
        if self.kind != Kind::Random || self.encrypted {
            let what = "the oracle of MySQL has random histories only, and none that is encrypted";
            return Err(Error::State(what.into()));
        }
        Ok(mysql::Plan {
            seed: self.seed,
            statements: self.statements,
            statements_each: self.each,
            crashes_each: self.cuts,
            page_size_bytes: self.page_size,
            threads: self.threads,
            budget: self.seconds.map(Duration::from_secs),
            scratch: self.scratch.clone(),
            failures: self.failures.clone(),
        })
    }
}

/// Runs a command: what to print, and whether all is well.
///
/// # Errors
/// Any error that prevents a result.
pub fn run(command: &Command) -> Result<(Value, bool)> {
    match command {
        Command::Compare { data, redo, cut, page_size, innodb_data_file_path, innodb_undo_tablespaces } => {
            let mut innodb_args = vec![
                format!("--innodb-page-size={page_size}"),
                format!("--innodb-undo-tablespaces={innodb_undo_tablespaces}"),
            ];
            if let Some(path) = innodb_data_file_path {
                innodb_args.push(format!("--innodb-data-file-path={path}"));
            }
            let server = redoubt_workload::product::Product::MariaDb.program()?;
            let options = recovery::Options { server, buffer_pool_mib: 128, innodb_args, keys: None };
            compare_directory(data, redo, *cut, &options)
        }
        Command::Run { options } if options.server == Some(FetchedServer::MySql97) => {
            let summary = mysql::run(&options.mysql_plan()?, &|line| eprintln!("{line}"))?;
            Ok((summary.json(), summary.is_sound()))
        }
        Command::Run { options } => {
            let summary = campaign::run(&options.plan())?;
            Ok((summary.json(), summary.is_sound()))
        }
        Command::Cuts { seed, statements, page_size, server, options } => {
            let mut setup = Setup { server: *server, ..Setup::of_seed(*seed) };
            setup.page_size_bytes = page_size.unwrap_or(setup.page_size_bytes);
            let workshop = Workshop::new(options.scratch.as_deref())?;
            cuts(&workshop, setup, *seed, *statements, options)
        }
        Command::Crash { data, page_size } => Ok((json!(mysql::check_one(data, *page_size)?), true)),
        Command::Replay { script } => {
            let workshop = Workshop::new(None)?;
            let recorded = workshop.run(&shrink::read(script)?)?;
            let mut summary = Summary { histories: 1, tally: recorded.tally.clone(), ..Summary::default() };
            summary.contents.count(&recorded)?;
            summary.node = super::node_path::pass(&workshop, &recorded)?;
            summary.checked = super::check::check_whole(&workshop, &recorded, None)?;
            Ok((summary.json(), summary.is_sound()))
        }
        Command::Shrink { script, out, runs } => {
            let workshop = Workshop::new(None)?;
            let script = shrink::read(script)?;
            if !shrink::fails(&workshop, &script, None)? {
                return Err(Error::State("the script does not fail".into()));
            }
            let small = shrink::shrink(&workshop, &script, None, *runs)?;
            shrink::write(&small, out)?;
            Ok((json!({ "statements": small.statements.len(), "before": small.preparation.len() }), true))
        }
    }
}

fn compare_directory(
    data: &std::path::Path,
    redo: &[PathBuf],
    cut: Option<u64>,
    options: &recovery::Options,
) -> Result<(Value, bool)> {
    let base = Base::read(data)?;
    let paths: Vec<_> = redo.iter().map(PathBuf::as_path).collect();
    let redo = Redo::from_files(&paths, base.start_lsn())?;
    let until = cut.map_or(redo.end_lsn, Lsn);
    let workshop = Workshop::new(None)?;
    let ours = replay(&base, &redo, until, None)?;
    let directory = recovery::next_directory(workshop.path());
    match recovery::recover(&Crash::new(&base, &redo, &ours, until, true), &directory, options)? {
        Outcome::Refused(log) => Err(Error::State(format!("the server does not recover this:\n{log}"))),
        Outcome::Recovered(theirs) => {
            let mut report = compare::compare(&base, &redo, &ours, &theirs.files)?;
            compare::compare_ends(ours.end_lsn, theirs.end_lsn, &mut report);
            let sound = report.differing == 0;
            Ok((json!({ "end_lsn": ours.end_lsn.0, "comparison": report }), sound))
        }
    }
}

/// Every cut of a short history.
///
/// # Errors
/// Those of the checks.
pub fn cuts(
    workshop: &Workshop,
    setup: Setup,
    seed: u64,
    statements: usize,
    options: &CutOptions,
) -> Result<(Value, bool)> {
    let config = Config { seed, page_size_bytes: setup.page_size_bytes, large_undo: false };
    let (recorded, _) = workshop.random(setup, config, statements)?;
    let cuts = every_cut(&recorded, seed).into_iter().step_by(options.every.max(1));
    let cuts: Vec<_> = cuts.skip(options.skip).collect();
    let bar = indicatif::ProgressBar::new(cuts.len() as u64);
    if let Ok(style) = indicatif::ProgressStyle::with_template("{bar:30} {pos}/{len} cuts, ETA {eta}; {msg}")
    {
        bar.set_style(style);
    }
    let started = Instant::now();
    let limits = Limits {
        threads: options.threads,
        deadline: options.seconds.map(|seconds| started + Duration::from_secs(seconds)),
    };
    let (checked, left) = check_cuts(workshop, &recorded, &cuts, &limits, &|cut, one, all| {
        bar.inc(1);
        bar.set_message(format!("{} differences", all.report.differing));
        if bar.is_hidden() && bar.position().is_multiple_of(LINE_EVERY_CUTS) {
            eprintln!("{}/{} cuts, {} differences", bar.position(), cuts.len(), all.report.differing);
        }
        if let Some(first) = one.report.differences.first() {
            let kept = keep_cut(&recorded, cut, &options.failures, seed);
            bar.suspend(|| eprintln!("{cut:?}: {first:?}; {kept}"));
        }
    })?;
    bar.finish_and_clear();
    let sound = checked.is_sound();
    let redo = json!({ "bytes": recorded.redo.bytes.len(), "mtrs": recorded.redo.mtrs.len() });
    let answer = json!({
        "seed": seed,
        "page_size_bytes": setup.page_size_bytes,
        "statements": recorded.tally.tried(),
        "redo": redo,
        "recoveries": checked,
        "cuts_left": left,
        "took_s": started.elapsed().as_secs(),
    });
    Ok((answer, sound))
}

/// Keeps the data directory of a cut for an investigation, and returns where.
fn keep_cut(recorded: &Recorded, cut: Cut, failures: &Path, seed: u64) -> String {
    let path = failures.join(format!("oracle-{seed}-cut-{}", cut.lsn));
    let laid_out = replay(&recorded.base, &recorded.redo, cut.lsn, None)
        .and_then(|sound| crash_at(recorded, cut, &sound).lay_out(&path));
    match laid_out {
        Ok(()) => format!("the data directory as the server finds it is in {}", path.display()),
        Err(error) => format!("its data directory could not be kept: {error}"),
    }
}
