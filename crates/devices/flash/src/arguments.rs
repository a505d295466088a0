//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use redoubt_flash::ftl::{BLOCK_LEN_BYTES, GcDestination};
use redoubt_flash::load::LogicalSize;
use redoubt_flash::placement::Policy;
use redoubt_flash::table::Options;

#[derive(Debug, Parser)]
#[command(
    name = "redoubt-flash",
    version,
    about = "Model of a flash drive: what it programs for what a host writes",
    long_about = "Model of a flash drive: what it programs for what a host writes.\n\n\
        A page-mapped drive with superblocks, greedy garbage collection, over-provisioning, TRIM and write streams \
        is fed with block traces whose writes are tagged by origin. It has no clock: it says how many bytes are \
        programmed, not how fast. See docs/devices/flash-model.md."
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compare the model with the closed form for uniform random writes
    ///
    /// Exit status 1 if an over-provisioning is more than 3 % away from it.
    Validate(ValidateArguments),
    /// Show the contents of a trace
    Show {
        /// Trace file
        trace: PathBuf,
    },
    /// Replay traces in a loop on a drive
    Run(RunArguments),
    /// Replay every trace of a directory that has a row, and write table, JSON and plots
    ///
    /// The description beside each trace (NAME.json) says what to run: row, streams, journal_mb. Traces come in the
    /// order of their names; ratios are to the first.
    Table(TableArguments),
    /// Run made-up loads and compare with the figures of an earlier prototype
    Synthetic(SyntheticArguments),
}

#[derive(Debug, Args)]
pub struct ValidateArguments {
    /// Smaller drive: seconds instead of a minute, less exact
    #[arg(long)]
    pub quick: bool,
    /// Collect this superblock; random ones are a wrong model, to see that the validation fails
    #[arg(long, value_enum, default_value = "greedy")]
    pub victims: VictimsArgument,
    /// Seed of the writes
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the rows to this file as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum VictimsArgument {
    Greedy,
    Random,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum GcArgument {
    /// One destination for all streams (NVMe: initially isolated)
    Shared,
    /// One destination per stream (NVMe: persistently isolated)
    PerStream,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

#[derive(Debug, Args)]
pub struct RunArguments {
    /// Trace file; give several to run them all on a drive of the same size
    #[arg(long = "trace", required = true, num_args = 1..)]
    pub traces: Vec<PathBuf>,
    /// Stream policies: one, journal, journal+redo, doublewrite, all
    #[arg(long, value_delimiter = ',', default_value = "one")]
    pub streams: Vec<Policy>,
    #[command(flatten)]
    pub drive: DriveArguments,
    /// Write everything that was measured to this file as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Write plots (SVG) to this directory
    #[arg(long)]
    pub plots: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct TableArguments {
    /// Directory with traces and their descriptions
    #[arg(long)]
    pub traces: PathBuf,
    /// Directory for table.md, table.json and the plots; made if it does not exist
    #[arg(long)]
    pub out: PathBuf,
    #[command(flatten)]
    pub drive: DriveArguments,
}

#[derive(Debug, Args)]
pub struct DriveArguments {
    /// Physical space beyond the logical, in percent; a list
    #[arg(long, value_delimiter = ',', default_value = "7,28")]
    pub over_provisioning: Vec<f64>,
    /// Logical size in MiB; or device: as large as the recorded device; or fit: as small as the utilisation allows
    #[arg(long, default_value = "device")]
    pub logical_size: LogicalSize,
    /// Share of the drive that holds something, in percent: data that lies still fills up what the trace leaves
    #[arg(long, default_value_t = 90.0)]
    pub utilisation: f64,
    /// Superblock (reclaim unit) in KiB, a power of two; halved for drives of fewer than 512 of them
    #[arg(long, default_value_t = 16384)]
    pub superblock_kib: u32,
    /// Where garbage collection puts what it saves
    #[arg(long, value_enum, default_value = "shared")]
    pub gc: GcArgument,
    /// Writes of less than 4 KiB to a block come together in the drive's protected RAM; off: each programs a block
    #[arg(long, value_enum, default_value = "on")]
    pub coalesce_small: Switch,
    /// Least warm-up, in drive writes; it continues until write amplification is stable
    #[arg(long, default_value_t = 2.0)]
    pub warm_up: f64,
    /// Least measurement, in drive writes; whole loops of the trace
    #[arg(long, default_value_t = 3.0)]
    pub measured: f64,
    /// Runs at the same time [default: one per processor]
    #[arg(long)]
    pub jobs: Option<usize>,
}

impl DriveArguments {
    pub fn options(&self) -> Options {
        let processors = || std::thread::available_parallelism().map_or(1, |number| number.get());
        Options {
            logical_size: self.logical_size,
            over_provisioning_percent: self.over_provisioning.clone(),
            utilisation_percent: self.utilisation,
            superblock_blocks: (u64::from(self.superblock_kib) * 1024 / BLOCK_LEN_BYTES) as u32,
            gc: match self.gc {
                GcArgument::Shared => GcDestination::Shared,
                GcArgument::PerStream => GcDestination::PerStream,
            },
            coalesce_small: self.coalesce_small == Switch::On,
            warm_up_drive_writes: self.warm_up,
            measured_drive_writes: self.measured,
            jobs: self.jobs.unwrap_or_else(processors),
        }
    }
}

#[derive(Debug, Args)]
pub struct SyntheticArguments {
    /// Drive in MiB; the reference is of 8192, and rings and superblocks shrink with it
    #[arg(long, default_value_t = 8192)]
    pub logical_mib: u32,
    /// Seed of the load
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Directory for synthetic.json and the plots; made if it does not exist
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Write each load as a trace of one drive write with its description to this directory instead of running it
    #[arg(long, conflicts_with = "out")]
    pub write_traces: Option<PathBuf>,
}
