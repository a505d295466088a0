//! The program `redoubt-bench`, which `redoubt bench` starts. It measures the command that has started it.
//!
//! Exit status: 0 done, 1 failed, 2 options that are not understood.

use clap::{CommandFactory, Parser};
use redoubt_bench::Options;
use redoubt_console::complain;
use redoubt_console::installed::{COMMAND_VARIABLE, find_command, find_library};
use redoubt_console::manual::Manual;
use redoubt_workload::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const MANUAL: Manual<'_> = Manual {
    exit_status: &[
        ("0", "Done."),
        ("1", "Failed. Lines on standard error have the reason."),
        ("2", "The options are not understood."),
    ],
    environment: &[
        (COMMAND_VARIABLE, "The command to measure. `redoubt bench` sets it to itself."),
        ("REDOUBT_LIBRARY", "The preloaded library, as --library of `redoubt run`."),
        ("TMPDIR", "Directory for data, unless --directory names one."),
    ],
};

/// Measure a server with a local disk, with network storage, and with Redoubt.
///
/// Loads TPC-C's or sysbench's tables once, then runs the same clients against the plain server on a local disk, the
/// plain server with all its files on network storage, and the server on a volume. Server and storage sit in network
/// namespaces of their own, joined by a link that is limited as asked for and whose bytes are counted. Needs root for
/// that.
#[derive(Parser)]
#[command(name = "redoubt-bench", bin_name = "redoubt bench", display_name = "redoubt-bench", version)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Write the page of the manual into a directory, and run nothing.
    #[arg(long, value_name = "DIRECTORY", hide = true, exclusive = true)]
    manual: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.manual {
        Some(directory) => manual(directory),
        None => run(&arguments.options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain!("redoubt-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn manual(directory: &Path) -> Result<()> {
    let mut command = Arguments::command();
    command.build();
    let written = MANUAL.write(&command, Some("redoubt"), directory);
    written.map_err(|error| Error::State(error.to_string()))
}

fn run(options: &Options) -> Result<()> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = std::env::current_exe().ok();
    let redoubt = find_command(variable(COMMAND_VARIABLE).as_deref(), program.as_deref(), &path)
        .map_err(|error| Error::State(error.to_string()))?;
    if options.needs_library() {
        // Now, instead of after the first runs.
        let given = variable("REDOUBT_LIBRARY");
        find_library("libredoubt.so", given.as_deref(), "--library", Some(&redoubt))
            .map_err(|error| Error::State(error.to_string()))?;
    }
    redoubt_bench::run(options, &redoubt)?;
    Ok(())
}
