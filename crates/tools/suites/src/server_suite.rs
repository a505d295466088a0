//! MariaDB's own test suite on Redoubt, beside the same run on the plain server: what the two runs say together.
//!
//! `scripts/server-suite/run` makes the runs. This module reads the logs of the test driver (`mariadb-test-run`),
//! because they grow during a run and an interrupted run has one too.
//!
//! * [`Log`](log::Log): one run, as *case → outcome*. A case is a test with one combination of settings. Logs are
//!   read in the order of their names and a later outcome of a case replaces an earlier one, so a test that is run
//!   again counts once, as it ended last.
//! * [`Comparison`](compare::Comparison): the two runs case by case. A case is compared with the other run only if both
//!   ran it; a case of one run alone is counted by itself, never as a pass.
//! * [`Causes`](causes::Causes): why a test fails or is skipped on Redoubt, written down by hand after it was looked
//!   into. A failure without one is shown as open, and so is a cause that nothing needs any more.
//! * [`Open`](open::Open): what keeps a comparison from being a good one. A run that was cut short, a case that one
//!   of the servers did not run, and no case at all are among it: silence is no success.

pub mod causes;
pub mod compare;
pub mod log;
pub mod open;
mod table;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use redoubt_workload::error::Result;

/// What to report on.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Directory with the logs (`*.log`) of the run on the plain server
    #[arg(long)]
    pub plain: PathBuf,
    /// Directory with the logs (`*.log`) of the run on Redoubt
    #[arg(long)]
    pub redoubt: PathBuf,
    /// File with the known causes of failures
    #[arg(long)]
    pub causes: Option<PathBuf>,
    /// Name of the other run's target in the report
    #[arg(long, default_value = "the plain server")]
    pub beside: String,
}

/// The report as Markdown, and whether nothing in it is open ([`open::Open`]).
///
/// # Errors
/// [`redoubt_workload::Error`] if a file cannot be read or is not what it should be.
pub fn report(options: &Options) -> Result<(String, bool)> {
    let causes = match &options.causes {
        Some(path) => causes::Causes::read(path)?,
        None => causes::Causes::default(),
    };
    let plain = log::Log::read_directory(&options.plain)?;
    let redoubt = log::Log::read_directory(&options.redoubt)?;
    let comparison = compare::Comparison::new(&plain, &redoubt);
    let open = open::Open::new(&comparison, &causes, [&plain, &redoubt]);
    let text = format!("{}{}", table::markdown(&comparison, &causes, &options.beside), open.markdown());
    Ok((text, open.is_empty()))
}
