//! `redoubt group drill`: shows a person what [`redoubt_drill::drill`] does, and what came out.

use super::args::DrillArguments;
use super::chart;
use crate::error::{CliError, Result};
use crate::run::preload::find;
use redoubt_bench::plot::{Line, Plot, Point, draw};
use redoubt_drill::drill::{self, Note, Outcome, PLACE, Plan};
use redoubt_drill::group::Provider;
use redoubt_workload::process::catch_signals;
use std::path::Path;
use std::time::Duration;

const LIBRARY: &str = "libredoubt_group.so";

/// Runs a drill.
///
/// # Errors
/// [`CliError::Usage`] without the library or when a commit is lost, [`CliError::Bench`].
pub fn run(arguments: &DrillArguments) -> Result<()> {
    let provider = Provider {
        library: find(LIBRARY, arguments.provider.as_deref(), "--provider")?,
        is_encrypted: arguments.certificates,
        scripts: arguments.scripts.clone(),
        ..Provider::default()
    };
    if let Some(plot) = &arguments.plot {
        // Now, instead of after a minute.
        std::fs::write(plot, "").map_err(|error| CliError::io("write", plot, error))?;
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
            serde_json::to_string(&outcome).map_err(|error| CliError::io("write", "JSON", error.into()))?;
        say!("\n{line}");
    }
    if outcome.is_sound() {
        return Ok(());
    }
    Err(CliError::Usage(format!(
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
    // As a file of its own it needs a background.
    let svg = draw(&plot)?.replacen("<svg ", "<svg style=\"background:#fff\" ", 1);
    std::fs::write(path, svg).map_err(|error| CliError::io("write", path, error))?;
    say!("plot in {}", path.display());
    Ok(())
}
