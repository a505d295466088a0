//! `redoubt bench`: the crate `redoubt-bench` with this command as the one that is measured.

use crate::error::{CliError, Result};
use crate::run::preload;
use std::path::PathBuf;

/// Runs the benchmark.
///
/// # Errors
/// [`CliError::Bench`].
pub fn run(options: &redoubt_bench::Options) -> Result<()> {
    let redoubt =
        std::env::current_exe().map_err(|error| CliError::io("find", "the running command", error))?;
    if options.needs_library() {
        // Now, instead of after the first runs.
        let given = std::env::var_os("REDOUBT_LIBRARY").map(PathBuf::from);
        preload::find_library(given.as_deref())?;
    }
    redoubt_bench::run(options, &redoubt)?;
    Ok(())
}
