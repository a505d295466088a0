//! `redoubt-testkit`: the long tests and measurements that `make` starts.
//!
//! Every sub-command prints one line of JSON on standard output (`flash-trace`: one per recording; `server-suite`,
//! `net-bench`: Markdown). Exit status: 0 all is well, 1 a broken promise or a failure, 2 wrong
//! arguments, 77 this machine lacks what the work needs.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use redoubt_chaos::{damage_rounds, fault_rounds, isolation};
use redoubt_measurements::{apply_backlog, flash_trace, net_bench, scale};
use redoubt_redo_oracle::{commands as oracle, killed_imports};
use redoubt_suites::{net_layer, server_suite};
use redoubt_workload::error::{Error, Result};

#[derive(Debug, Parser)]
#[command(name = "redoubt-testkit", version, about = "Long tests and measurements with real servers")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Record every block write of servers under load, tagged by its origin (needs root): JSON lines
    FlashTrace {
        #[command(flatten)]
        options: flash_trace::Options,
    },
    /// How long a node takes to apply a backlog of redo over cold tables, and a stock server to recover from it;
    /// progress and a table go to standard error
    ApplyBacklog {
        #[command(flatten)]
        options: apply_backlog::Options,
    },
    /// Rounds of the ledger under faults of the C library, of the network, and kills (docs/dev/faults.md); progress
    /// goes to standard error
    FaultRounds {
        #[command(flatten)]
        options: fault_rounds::Options,
    },
    /// Rounds of damage to the files of a volume under load (docs/dev/damage.md); progress and a table go to standard
    /// error
    DamageRounds {
        #[command(flatten)]
        options: damage_rounds::Options,
    },
    /// Import data directories of servers killed under load, and compare the volumes with stock recovery; progress goes
    /// to standard error
    ImportKilled {
        #[command(flatten)]
        options: killed_imports::Options,
    },
    /// Cost of starts and takeovers with many tables, and with a tenth of them; progress and a table go to
    /// standard error
    Scale {
        #[command(flatten)]
        options: scale::Options,
    },
    /// Gain of each layer of the network library on this machine, as Markdown; progress goes to standard error
    NetBench {
        #[command(flatten)]
        options: net_bench::Options,
    },
    /// Histories of transactions on a stock server and on Redoubt under kills, and the anomalies of both; progress
    /// and a table go to standard error
    Isolation {
        #[command(flatten)]
        options: isolation::compare::Options,
    },
    /// Compare two runs of MariaDB's own test suite (see scripts/server-suite): Markdown
    ServerSuite {
        #[command(flatten)]
        options: server_suite::Options,
    },
    /// Run a command that starts servers with the network library, and say what a layer of it did in them; fails if it
    /// was not used
    NetLayer {
        #[command(flatten)]
        options: net_layer::Options,
    },
    /// Hold our replay of redo against a stock server's recovery of it
    Oracle {
        #[command(subcommand)]
        command: oracle::Command,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(answer) => {
            println!("{}", answer.0);
            if answer.1 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error @ Error::Unavailable(_)) => {
            eprintln!("redoubt-testkit: {error}");
            ExitCode::from(SKIPPED)
        }
        Err(error) => {
            eprintln!("redoubt-testkit: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Exit status where this machine lacks what the work needs, as other test tools have it.
const SKIPPED: u8 = 77;

/// What to print, and whether all is well.
struct Answer(String, bool);

impl From<(String, bool)> for Answer {
    fn from((text, is_well): (String, bool)) -> Self {
        Self(text, is_well)
    }
}

fn run(command: Command) -> Result<Answer> {
    match command {
        Command::FlashTrace { options } => {
            let mut lines = Vec::new();
            flash_trace::run(&options, |recording| {
                eprintln!("{}: {}", recording.name, recording.line());
                lines.push(answer(&recording.summary())?.0);
                Ok(())
            })?;
            Ok(Answer(lines.join("\n"), true))
        }
        Command::ApplyBacklog { options } => {
            let summary = apply_backlog::run(&options, |line| eprintln!("{line}"))?;
            eprintln!("\n{}", summary.table());
            answer(&summary)
        }
        Command::FaultRounds { options } => fault_rounds(&options),
        Command::DamageRounds { options } => {
            let summary = damage_rounds::run(&options, |line| eprintln!("{line}"))?;
            eprintln!("\n{}", summary.table());
            Ok(Answer(answer(&summary)?.0, summary.broken.is_empty()))
        }
        Command::ImportKilled { options } => import_killed(&options),
        Command::Scale { options } => measure_scale(&options),
        Command::NetBench { options } => {
            Ok(Answer(net_bench::run(&options, &mut |line| eprintln!("{line}"))?, true))
        }
        Command::Isolation { options } => compare_isolation(&options),
        Command::ServerSuite { options } => server_suite::report(&options).map(Answer::from),
        Command::NetLayer { options } => watch_layer(&options),
        Command::Oracle { command } => oracle(&command),
    }
}

fn fault_rounds(options: &fault_rounds::Options) -> Result<Answer> {
    let summary = fault_rounds::run(options, |line| eprintln!("{line}"))?;
    if summary.pages_verified == 0 {
        eprintln!("error: no page was compared with the server's");
    }
    Ok(Answer(answer(&summary)?.0, summary.pages_verified > 0))
}

fn import_killed(options: &killed_imports::Options) -> Result<Answer> {
    let summary = killed_imports::run(options, |line| eprintln!("{line}"))?;
    Ok(Answer(answer(&summary)?.0, summary.failures.is_empty()))
}

fn watch_layer(options: &net_layer::Options) -> Result<Answer> {
    let summary = net_layer::run(options)?;
    if let Err(why) = &summary.verdict {
        eprintln!("error: {why}");
    }
    Ok(Answer(answer(&summary)?.0, summary.verdict.is_ok()))
}

fn measure_scale(options: &scale::Options) -> Result<Answer> {
    let sizes = scale::run(options, |line| eprintln!("{line}"))?;
    sizes.iter().for_each(|part| eprintln!("\n{}", scale::table(part)));
    answer(&sizes)
}

fn compare_isolation(options: &isolation::compare::Options) -> Result<Answer> {
    let comparison = isolation::compare::run(options, |line| eprintln!("{line}"))?;
    eprintln!("{}", comparison.table());
    comparison.require_no_new()?;
    answer(&comparison.summary())
}

fn oracle(command: &oracle::Command) -> Result<Answer> {
    let (value, sound) = oracle::run(command)?;
    answer(&value).map(|Answer(text, _)| Answer(text, sound))
}

fn answer(value: &impl serde::Serialize) -> Result<Answer> {
    let text = serde_json::to_string(value)
        .map_err(|error| Error::Parse { what: "the answer".into(), detail: error.to_string() })?;
    Ok(Answer(text, true))
}
