//! Tests that need a real mount or drive under them: what a machine with persistent memory or with a drive that places
//! data, or a guest that emulates one, is given to run. `make nvdimm` and `make fdp` run it in a guest.

mod cell;
mod fdp;
mod fdp_moved;
mod log_device;
mod map_sync;
mod nvme;
mod torn_pages;
mod write_streams;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use fdp::GroupState;
use fdp_moved::AtLeast;
use log_device::LogDeviceTest;

/// Tests of a mount or a drive.
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
        /// Expected outcome
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
    /// Print as JSON what a drive with Flexible Data Placement reports about itself and some of its namespaces
    FdpStats {
        /// Block devices of namespaces of one endurance group
        #[arg(required = true)]
        devices: Vec<PathBuf>,
    },
    /// Print what each reclaim unit handle received between two outputs of fdp-stats; fails if the counts of drive and
    /// kernel do not agree, or if a handle received what it should not
    FdpMoved {
        /// The first output
        #[arg(long, value_name = "FILE")]
        before: PathBuf,
        /// The second
        #[arg(long, value_name = "FILE")]
        after: PathBuf,
        /// Minimum that a handle must have received; with this option, all other handles must have received nothing
        #[arg(long, value_name = "HANDLE=BYTES")]
        at_least: Vec<AtLeast>,
    },
    /// Write to a block device in each of its write streams, and read the placement from the drive. Overwrites the device
    WriteStreams {
        /// Expected outcome
        #[arg(long, value_enum, default_value = "placed")]
        expect: StreamExpectation,
        /// The block device
        device: PathBuf,
    },
    /// Overwrite pages of 16 KiB in place, and print `ACK NAME N .` after each of many syncs beside it; ends with the
    /// machine
    OverwritePages {
        /// The name in the lines
        #[arg(long)]
        name: String,
        /// A directory on the file system
        dir: PathBuf,
    },
    /// Look for torn pages after overwrite-pages
    FindTornPages {
        /// Expected outcome
        #[arg(long, value_enum)]
        expect: TornExpectation,
        /// The directory
        dir: PathBuf,
    },
}

/// Expected torn pages after a reset.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TornExpectation {
    /// No page is torn
    None,
    /// At least one is
    Some,
}

/// Expected outcome of writes in streams.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StreamExpectation {
    /// Each stream reaches a reclaim unit handle of its own
    Placed,
    /// The kernel refuses streams on this device
    Refused,
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

/// Expected outcome of a mapping with MAP_SYNC.
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
        Command::FdpStats { devices } => {
            println!("{}", serde_json::to_string_pretty(&GroupState::read(&devices)?)?);
        }
        Command::FdpMoved { before, after, at_least } => {
            let moved = fdp_moved::moved(&read_state(&before)?, &read_state(&after)?)?;
            print_moved(&moved);
            if !at_least.is_empty() {
                fdp_moved::check(&moved, &at_least)?;
            }
        }
        Command::WriteStreams { expect: StreamExpectation::Placed, device } => {
            print_moved(&write_streams::check_placement(&device)?);
        }
        Command::WriteStreams { expect: StreamExpectation::Refused, device } => {
            write_streams::check_refused(&device)?;
        }
        Command::OverwritePages { name, dir } => torn_pages::write(&dir, &name)?,
        Command::FindTornPages { expect, dir } => find_torn_pages(&dir, expect)?,
    }
    Ok(())
}

fn find_torn_pages(dir: &Path, expect: TornExpectation) -> Result<(), Box<dyn Error>> {
    let found = torn_pages::find(dir)?;
    println!("{} of {} pages are torn ({} were overwritten)", found.torn, found.pages, found.overwritten);
    if found.overwritten == 0 {
        return Err("no page was overwritten: this says nothing".into());
    }
    match expect {
        TornExpectation::None if found.torn > 0 => Err("no page may be torn".into()),
        TornExpectation::Some if found.torn == 0 => {
            Err("no page is torn, although the file system does not promise that: this test proves nothing"
                .into())
        }
        _ => Ok(()),
    }
}

fn read_state(file: &Path) -> Result<GroupState, Box<dyn Error>> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()).into())
}

/// One line per handle.
fn print_moved(moved: &[fdp_moved::Moved]) {
    for one in moved {
        println!("{one}");
    }
}
