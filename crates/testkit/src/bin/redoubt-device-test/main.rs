//! Tests that need a real mount under them: what a machine with persistent memory, or a guest that emulates one,
//! is given to run. `make nvdimm` runs it in a guest.

mod map_sync;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// Tests of a mount for the log device.
#[derive(Parser)]
#[command(name = "redoubt-device-test", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Try a mapping with MAP_SYNC in a directory; fails if the outcome is not the expected one
    MapSync {
        /// What must happen
        #[arg(long, value_enum)]
        expect: Expectation,
        /// A directory on the mount; a file is made in it and removed
        dir: PathBuf,
    },
}

/// What a mapping with MAP_SYNC must do.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Expectation {
    /// The kernel grants it, and bytes stored through it are in the file
    Allowed,
    /// The kernel refuses it as not supported, and grants the same mapping without MAP_SYNC
    Refused,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Command::MapSync { expect, dir } => map_sync::run(&dir, expect),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redoubt-device-test: {error}");
            ExitCode::FAILURE
        }
    }
}
