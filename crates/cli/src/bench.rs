//! `redoubt bench`: the crate `redoubt-bench` with this command as the one that is measured.

use crate::error::{CliError, Result};

/// Runs the benchmark.
///
/// # Errors
/// [`CliError::Bench`].
pub fn run(options: &redoubt_bench::Options) -> Result<()> {
    let redoubt =
        std::env::current_exe().map_err(|error| CliError::io("find", "the running command", error))?;
    redoubt_bench::run(options, &redoubt)?;
    Ok(())
}
