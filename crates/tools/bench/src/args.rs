//! The options of `redoubt bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::load::Until;
use redoubt_workload::oltp::Mix;

use crate::processors::{Processors, Share};

/// Storage of a server's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// The plain server on a local disk
    Local,
    /// The plain server with all its files on network storage (see --peer)
    Remote,
    /// The same server on a volume of a storage node
    Redoubt,
    /// The same over TLS, with certificates made for the run
    RedoubtTls,
    /// The plain server on a local disk, its redo log in memory (see --memory)
    MemoryLog,
    /// The same through `redoubt run --local-log --pretend-pmem`
    LocalLog,
}

impl Backend {
    /// Nothing of it goes over the network.
    pub fn is_local(self) -> bool {
        matches!(self, Self::Local | Self::MemoryLog | Self::LocalLog)
    }

    fn needs_library(self) -> bool {
        matches!(self, Self::Redoubt | Self::RedoubtTls | Self::LocalLog)
    }
}

/// Network storage of [`Backend::Remote`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// A block device over the network: nbdkit and nbdfuse, ext4 on it
    Nbd,
    /// A file system over the network: sshfs and sftp-server, without encryption
    Sshfs,
}

impl Peer {
    /// As it stands in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nbd => "nbd",
            Self::Sshfs => "sshfs",
        }
    }
}

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// The five transactions of TPC-C.
    Tpcc,
    /// One of sysbench's OLTP mixes.
    Oltp(Mix),
}

impl Workload {
    /// As it stands on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tpcc => "tpcc",
            Self::Oltp(mix) => mix.name(),
        }
    }
}

impl ValueEnum for Workload {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Workload; 7] = [
            Workload::Tpcc,
            Workload::Oltp(Mix::ReadWrite),
            Workload::Oltp(Mix::WriteOnly),
            Workload::Oltp(Mix::ReadOnly),
            Workload::Oltp(Mix::PointSelect),
            Workload::Oltp(Mix::UpdateIndex),
            Workload::Oltp(Mix::UpdateNonIndex),
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.name()))
    }
}

/// Consistency conditions that are checked after each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Checks {
    /// All: the twelve of TPC-C, and that every acknowledged commit is there
    All,
    /// The four that TPC-C requires, and that everything acknowledged is there
    Required,
    /// None
    None,
}

/// Limit of the network in bits per second; `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bandwidth(pub Option<u64>);

impl std::fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            None => f.write_str("none"),
            Some(bits) if bits.is_multiple_of(1_000_000_000) => write!(f, "{}gbit", bits / 1_000_000_000),
            Some(bits) if bits.is_multiple_of(1_000_000) => write!(f, "{}mbit", bits / 1_000_000),
            Some(bits) => write!(f, "{}kbit", bits / 1000),
        }
    }
}

/// Options of the benchmark.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Backends to measure
    #[arg(long, value_enum, value_delimiter = ',', value_name = "BACKEND", default_values_t = [Backend::Local, Backend::Remote, Backend::Redoubt])]
    pub backend: Vec<Backend>,
    /// One more Redoubt backend with further options of `redoubt run`: --variant "compressed=--compress"
    #[arg(long, value_name = "NAME=OPTIONS", value_parser = parse_variant)]
    pub variant: Vec<Variant>,
    /// One more Redoubt backend with further options of `redoubt node`: --node-variant "block=--log-device block".
    /// `{memory}` in them is a directory of its own below --memory
    #[arg(long, value_name = "NAME=OPTIONS", value_parser = parse_variant)]
    pub node_variant: Vec<Variant>,
    /// Directory on tmpfs, for files in memory
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub memory: PathBuf,
    /// Network storage under the plain server
    #[arg(long, value_enum, default_value = "nbd")]
    pub peer: Peer,
    /// Workload of the clients
    #[arg(long, value_enum, default_value = "tpcc")]
    pub workload: Workload,
    /// Warehouses of TPC-C (about 100 MB each)
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub warehouses: u32,
    /// Leave out the foreign keys of TPC-C and their indexes
    #[arg(long)]
    pub no_foreign_keys: bool,
    /// Customers per district and items, instead of TPC-C's 3000 and 100000: a small database that is loaded in seconds
    #[arg(long, value_name = "CUSTOMERS,ITEMS", value_parser = parse_scale)]
    pub scale: Option<(u32, u32)>,
    /// Let clients wait as TPC-C's terminals do (keying and think times): about 12 transactions per minute and client
    #[arg(long)]
    pub think: bool,
    /// Tables of the sysbench mixes
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub tables: u32,
    /// Rows of each of these tables
    #[arg(long, value_name = "N", default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000_000))]
    pub rows: u32,
    /// Clients, each with a connection of its own
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub clients: u32,
    /// Seconds that count in each run [default: 30]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
    /// Transactions that count in each run, instead of --seconds
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    pub transactions: Option<u64>,
    /// Transactions before those that count [default: one for every four pages of the buffer pool]
    #[arg(long, value_name = "N")]
    pub warm_up: Option<u64>,
    /// Sizes of the buffer pool
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "128M", value_parser = parse_size)]
    pub pool: Vec<u64>,
    /// Limits of the network, each way: none, 200mbit, 1gbit
    #[arg(long, value_name = "RATE", value_delimiter = ',', default_value = "1gbit", value_parser = parse_bandwidth)]
    pub bandwidth: Vec<Bandwidth>,
    /// Milliseconds that everything takes longer on its way, each way
    #[arg(long, value_name = "MS", default_value = "0", value_parser = parse_delay)]
    pub delay: Duration,
    /// How often to run everything; the backends take turns
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// Conditions that the data must satisfy after each run
    #[arg(long, value_enum, default_value = "all")]
    pub check: Checks,
    /// Print one JSON object per run on standard output; the table goes to standard error then
    #[arg(long)]
    pub json: bool,
    /// Write a report with plots
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Run nothing: table and report of what an earlier --json printed into this file
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Run without network namespaces: needs no root, but then there is no limit, and no bytes are counted
    #[arg(long)]
    pub no_namespaces: bool,
    /// Processors of server and storage
    #[arg(long, value_enum, default_value = "shared")]
    pub processors: Processors,
    /// Directory for data, on the disk to measure; loaded data sets stay there for the next time. Its path must be
    /// short, because server sockets lie in it [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// The server: a program, or a folder that scripts/fetch-server made, such as target/mysql-9.7
    #[arg(long, value_name = "FILE|FOLDER", default_value = "mariadbd")]
    pub server: PathBuf,
    /// Further option of all servers; may be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub server_option: Vec<String>,
    /// Redo log of all servers
    #[arg(long, value_name = "SIZE", default_value = "96M", value_parser = parse_size)]
    pub log_size: u64,
    /// Further option of `redoubt node`; may be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub redoubt_node_option: Vec<String>,
    /// Further option of `redoubt run` for all Redoubt backends; may be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub redoubt_run_option: Vec<String>,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Seconds to keep each system running after its run, for a look at it
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    pub linger: u64,
}

/// A Redoubt backend with options of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// Its name in results.
    pub name: String,
    /// Options of `redoubt run` or `redoubt node`.
    pub options: Vec<String>,
}

impl Options {
    /// When a run ends.
    pub fn until(&self) -> Until {
        match (self.transactions, self.seconds) {
            (Some(count), _) => Until::Transactions(count),
            (None, seconds) => Until::Elapsed(Duration::from_secs(seconds.unwrap_or(30))),
        }
    }

    /// Transactions before those that count.
    pub fn warm_up(&self, pool_bytes: u64) -> u64 {
        const PAGE_LEN_BYTES: u64 = 16 << 10;
        self.warm_up.unwrap_or(pool_bytes / PAGE_LEN_BYTES / 4)
    }

    /// Whether a run will preload the library from its usual place.
    pub fn needs_library(&self) -> bool {
        let is_given = |option: &String| option.starts_with("--library");
        self.from.is_none()
            && (self.backend.iter().any(|backend| backend.needs_library())
                || !self.variant.is_empty()
                || !self.node_variant.is_empty())
            && !self.redoubt_run_option.iter().any(is_given)
            && !self.variant.iter().any(|variant| variant.options.iter().any(is_given))
    }

    /// Refuses what does not fit together.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn check(&self) -> Result<()> {
        let limited = self.bandwidth.iter().any(|bandwidth| bandwidth.0.is_some());
        if self.no_namespaces && limited {
            return Err(Error::State(
                "without network namespaces the network has no limit: add --bandwidth none".to_owned(),
            ));
        }
        if self.think && self.workload != Workload::Tpcc {
            return Err(Error::State("--think is for --workload tpcc".to_owned()));
        }
        if self.processors == Processors::Separate {
            Share::halves()?;
        }
        let names = self.variant.iter().chain(&self.node_variant).map(|variant| &variant.name);
        if names.clone().any(|name| names.clone().filter(|other| *other == name).count() > 1) {
            return Err(Error::State("each --variant and --node-variant needs a name of its own".to_owned()));
        }
        Ok(())
    }
}

/// The size of a pool or table set: 4M or more.
fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let size = redoubt_codec::parse_size(text).map_err(|error| error.to_string())?;
    if (4 << 20..=1 << 50).contains(&size) {
        Ok(size)
    } else {
        Err(format!("{text} is out of range: 4M or more"))
    }
}

/// `none`, `200mbit`, `1gbit`.
fn parse_bandwidth(text: &str) -> std::result::Result<Bandwidth, String> {
    let text = text.to_ascii_lowercase();
    if text == "none" {
        return Ok(Bandwidth(None));
    }
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match text.get(digits.len()..).unwrap_or_default() {
        "kbit" => 1000,
        "mbit" => 1_000_000,
        "gbit" => 1_000_000_000,
        other => return Err(format!("unit {other:?} is not known; use kbit, mbit, gbit, or `none`")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{digits:?} is not a whole number"))?;
    match number.checked_mul(unit) {
        Some(bits) if (100_000..=400_000_000_000).contains(&bits) => Ok(Bandwidth(Some(bits))),
        _ => Err(format!("{text} is out of range: from 100kbit to 400gbit")),
    }
}

fn parse_delay(text: &str) -> std::result::Result<Duration, String> {
    let milliseconds: f64 = text
        .trim_end_matches("ms")
        .parse()
        .map_err(|_| format!("{text:?} is not a number of milliseconds"))?;
    if (0.0..=10_000.0).contains(&milliseconds) {
        return Ok(Duration::from_secs_f64(milliseconds / 1000.0));
    }
    Err("from 0 to 10000 milliseconds".to_owned())
}

fn parse_variant(text: &str) -> std::result::Result<Variant, String> {
    let (name, options) = text.split_once('=').ok_or("write NAME=OPTIONS")?;
    let fine = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    if name.is_empty() || !name.chars().all(fine) {
        return Err(format!("{name:?} is no name: letters, digits, '-' and '_'"));
    }
    let options = options.split_whitespace().map(str::to_owned).collect();
    Ok(Variant { name: name.to_owned(), options })
}

fn parse_scale(text: &str) -> std::result::Result<(u32, u32), String> {
    let parts = text
        .split_once(',')
        .and_then(|(customers, items)| Some((customers.parse().ok()?, items.parse().ok()?)));
    match parts {
        Some((customers, items)) if (30..=3000).contains(&customers) && (100..=100_000).contains(&items) => {
            Ok((customers, items))
        }
        _ => Err("two numbers: 30 to 3000 customers, 100 to 100000 items".to_owned()),
    }
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
