//! The program `redoubt-drill`, which `redoubt group drill` starts: shows a person what [`redoubt_drill::drill`] does,
//! and the outcome.
//!
//! Exit status: 0 done, 1 a failure, a lost commit or servers that differ, 2 invalid options.

#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use(say, complain)]
extern crate redoubt_console;

mod chart;

use clap::{CommandFactory, Parser};
use redoubt_bench::plot::{Line, Plot, Point, draw};
use redoubt_console::installed;
use redoubt_console::manual::Manual;
use redoubt_drill::drill::{self, Note, Outcome, PLACE, Plan};
use redoubt_drill::group::Provider;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::process::catch_signals;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const LIBRARY: &str = "libredoubt_group.so";

const MANUAL: Manual<'_> = Manual {
    exit_status: &[
        ("0", "Done."),
        ("1", "Failed, or a commit is lost, or the servers differ. Lines on standard error have the reason."),
        ("2", "The options are not understood."),
    ],
    environment: &[("TMPDIR", "Directory for the servers' data. Its path must be short.")],
};

/// Make a group of servers on this host, break it on purpose, and show the effect on its clients.
///
/// Starts stock servers in a temporary directory. Clients on all of them record acknowledged commits outside the
/// database. One server is killed, one is stopped, then all are killed at once and started again. At the end every
/// server is compared with the acknowledged commits and with the other servers. Takes about a minute and changes
/// nothing else on the host. The exit status is 1 if a commit is lost or the servers differ.
#[derive(Parser)]
#[command(
    name = "redoubt-drill",
    bin_name = "redoubt group drill",
    display_name = "redoubt-group-drill",
    version
)]
struct Arguments {
    /// Number of servers.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(3..=9))]
    members: u16,
    /// Clients on each of them.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    clients: u32,
    /// How long the load runs before and after each event.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// The group's library [default: the library installed with this command].
    #[arg(long, value_name = "FILE")]
    provider: Option<PathBuf>,
    /// Where the server's scripts for state transfers (wsrep_sst_rsync) are, if they are not installed.
    #[arg(long, value_name = "DIRECTORY")]
    scripts: Option<PathBuf>,
    /// Authenticate members with certificates, and encrypt their traffic.
    #[arg(long)]
    certificates: bool,
    /// Write a plot of commits over time there, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print one JSON object at the end.
    #[arg(long)]
    json: bool,
    /// Keep the servers' directories and logs.
    #[arg(long)]
    keep: bool,
    /// Write the page of the manual into a directory, and run nothing.
    #[arg(long, value_name = "DIRECTORY", hide = true, exclusive = true)]
    manual: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.manual {
        Some(directory) => manual(directory),
        None => run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain!("redoubt-drill: {error}");
            ExitCode::FAILURE
        }
    }
}

fn manual(directory: &Path) -> Result<()> {
    let mut command = Arguments::command();
    command.build();
    let written = MANUAL.write(&command, Some("redoubt-group"), directory);
    written.map_err(|error| Error::State(error.to_string()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let program = std::env::current_exe().ok();
    let library =
        installed::find_library(LIBRARY, arguments.provider.as_deref(), "--provider", program.as_deref());
    let provider = Provider {
        library: library.map_err(|error| Error::State(error.to_string()))?,
        is_encrypted: arguments.certificates,
        scripts: arguments.scripts.clone(),
        ..Provider::default()
    };
    if let Some(plot) = &arguments.plot {
        // Fails now instead of after a minute.
        std::fs::write(plot, "").map_err(Error::io_at("cannot write", plot))?;
    }
    let plan = Plan {
        provider,
        members: usize::from(arguments.members),
        clients: arguments.clients,
        calm: Duration::from_secs(arguments.seconds),
        keep: arguments.keep,
    };
    catch_signals()?;
    let mut number = 0;
    let outcome = drill::run(&plan, &mut |note| match note {
        Note::Step(what, why) => {
            number += 1;
            say!("\n{number}. {what}\n   {why}");
        }
        Note::Result(what) => say!("   -> {what}"),
    })?;
    show(&outcome);
    if let Some(path) = &arguments.plot {
        write_plot(&outcome, path)?;
    }
    for fault in &outcome.faults {
        complain!("{fault}");
    }
    if arguments.json {
        let line =
            serde_json::to_string(&outcome).map_err(|error| Error::io("cannot write JSON")(error.into()))?;
        say!("\n{line}");
    }
    if outcome.is_sound() {
        return Ok(());
    }
    Err(Error::State(format!(
        "{} of {} acknowledged commits were found, and the tables are {}: please report this, with \
         what is kept by --keep",
        outcome.commits_found,
        outcome.commits_acknowledged,
        if outcome.checksums_equal { "the same" } else { "not the same" }
    )))
}

fn show(outcome: &Outcome) {
    let rates = &outcome.rates;
    let places = rates.by_member.iter().map(Vec::len).max().unwrap_or(0);
    let sum = |at| rates.by_member.iter().filter_map(|counts: &Vec<usize>| counts.get(at)).sum::<usize>();
    let per_second: Vec<f64> = (0..places).map(|at| sum(at) as f64 / PLACE.as_secs_f64()).collect();
    say!("\nCommits per second on all servers together, over time");
    chart::show(&per_second, PLACE.as_secs_f64(), &rates.events);
}

/// One line for each server.
fn write_plot(outcome: &Outcome, path: &Path) -> Result<()> {
    let rates = &outcome.rates;
    let line = |(index, counts): (usize, &Vec<usize>)| {
        let points = counts.iter().enumerate().map(|(at, count)| {
            let y = *count as f64 / PLACE.as_secs_f64();
            Point { x: (at as f64 + 0.5) * PLACE.as_secs_f64(), y, low: y, high: y }
        });
        Line { label: format!("server {}", index + 1), style: index, points: points.collect() }
    };
    let plot = Plot {
        title: "Commits per second, by server".to_owned(),
        x_axis: "seconds".to_owned(),
        lines: rates.by_member.iter().enumerate().map(line).collect(),
        marks: rates.events.iter().map(|(at, what)| (*at, (*what).to_owned())).collect(),
        is_wide: true,
        ..Plot::default()
    };
    // A standalone file needs a background.
    let svg = draw(&plot)?.replacen("<svg ", "<svg style=\"background:#fff\" ", 1);
    std::fs::write(path, svg).map_err(Error::io_at("cannot write", path))?;
    say!("plot in {}", path.display());
    Ok(())
}
