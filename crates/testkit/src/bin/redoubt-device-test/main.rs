//! Tests that need a real mount under them: what a machine with persistent memory, or a guest that emulates one,
//! is given to run. `make nvdimm` runs it in a guest.

mod cell;
mod log_device;
mod map_sync;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use log_device::LogDeviceTest;

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
    /// Append records to a log device, and print `ACK DEVICE END .` whenever everything before END is durable
    Append {
        /// Which device
        #[arg(long, value_enum)]
        device: Device,
        /// End after about this many bytes; otherwise only the end of the machine ends it
        #[arg(long, value_name = "BYTES")]
        bytes: Option<u64>,
        /// The log's directory
        dir: PathBuf,
    },
    /// Compare everything that a log device has kept with what was appended, and print START and END
    Verify {
        /// Which device
        #[arg(long, value_enum)]
        device: Device,
        /// The log's directory
        dir: PathBuf,
    },
}

/// A log device.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Device {
    /// Persistent memory; fails where the kernel grants no MAP_SYNC
    Pmem,
    /// Direct I/O with several durable writes in flight
    Block,
    /// Plain files and fdatasync
    File,
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
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redoubt-device-test: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Box<dyn Error>> {
    match command {
        Command::MapSync { expect, dir } => map_sync::run(&dir, expect)?,
        Command::Append { device, bytes, dir } => {
            let test = LogDeviceTest::open(&dir, device)?;
            test.append(bytes)?;
            test.print_stats();
        }
        Command::Verify { device, dir } => LogDeviceTest::open(&dir, device)?.verify()?,
    }
    Ok(())
}
