//! Command line: sub-commands, options and their help.

use crate::certificates::args::CertificatesArguments;
use crate::doctor::args::DoctorArguments;
use crate::group::args::GroupArguments;
pub use crate::import::args::ImportArguments;
use crate::manual::args::{CompletionsArguments, ManualArguments};
use crate::net::args::NetArguments;
use crate::run::args::RunArguments;
use crate::tls::TlsArguments;
use crate::tool::ToolArguments;
use clap::{Args, Parser, Subcommand};
use redoubt_client::Result;
use redoubt_transport::Connector;
use std::path::PathBuf;

/// Keeps the data of an unmodified MariaDB server on a remote storage node.
///
/// A small library preloaded into the server sends the new bytes of its redo log, and its plain files, to the node. It
/// drops page writes that the redo explains, and sends an image of each other page. The node makes the redo durable,
/// replays it into pages, and returns a page when the server reads one.
#[derive(Parser)]
#[command(
    name = "redoubt",
    version,
    after_help = "First steps:
  redoubt node --data /var/lib/redoubt &
  redoubt volume create --node 127.0.0.1:7070 shop
  redoubt run --node 127.0.0.1:7070 --volume shop --datadir /var/lib/shop -- mariadb-install-db
  redoubt run --node 127.0.0.1:7070 --volume shop --datadir /var/lib/shop -- mariadbd
An existing server: stop it, `redoubt volume import`, then `redoubt run`. Back: `redoubt volume export`."
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

/// Address every client command needs.
#[derive(Args, Clone)]
pub struct NodeAddress {
    /// Address of the storage node, HOST:PORT.
    #[arg(long, value_name = "HOST:PORT", env = "REDOUBT_NODE", default_value = "127.0.0.1:7070")]
    pub node: String,
    #[command(flatten)]
    pub tls: TlsArguments,
}

impl NodeAddress {
    /// How to reach it.
    ///
    /// # Errors
    /// As [`TlsArguments::connector`].
    pub fn connector(&self) -> Result<Connector> {
        self.tls.connector(self.node.clone())
    }
}

/// Address of a storage node for the commands that also work without one: clap counts a value from the environment
/// as given, and an option of the other mode must be refused only if a person gave it.
#[derive(Args, Clone)]
pub struct OptionalNode {
    /// Address of the storage node, HOST:PORT [env: REDOUBT_NODE] [default: 127.0.0.1:7070].
    #[arg(long, value_name = "HOST:PORT")]
    pub node: Option<String>,
    #[command(flatten)]
    pub tls: TlsArguments,
}

impl OptionalNode {
    /// How to reach it.
    ///
    /// # Errors
    /// As [`TlsArguments::connector`].
    pub fn connector(&self) -> Result<Connector> {
        let environment = || std::env::var("REDOUBT_NODE").ok().filter(|value| !value.is_empty());
        let address = self.node.clone().or_else(environment).unwrap_or_else(|| "127.0.0.1:7070".to_owned());
        self.tls.connector(address)
    }
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a storage node until SIGTERM or SIGINT.
    ///
    /// Prints `listening on HOST:PORT` on standard output when it is ready. With `--log-format json` it prints nothing
    /// there; the event `node_listening` has the address. Its log goes to standard error; the environment variable
    /// REDOUBT_LOG sets the level, for example `debug`.
    Node(NodeArguments),
    /// Create, list, show, delete, import or export volumes.
    Volume {
        #[command(subcommand)]
        command: VolumeCommand,
    },
    /// Make, show, renew and remove the certificates for TLS.
    ///
    /// A private authority issues one certificate for each node, each volume and the administrator. A node accepts only
    /// clients with such a certificate, and only for the purpose of that certificate.
    Certificates(CertificatesArguments),
    /// Prepare or show a raw block device for logs, page journals and pages (experimental).
    ///
    /// Experimental: tried on emulated drives, not on real ones, and only in the command of the package
    /// redoubt-experimental. A raw device holds what would otherwise be files, for
    /// any number of volumes of one node. On a drive with data placement (NVMe FDP) the node marks writes that belong
    /// together; file systems do not forward such marks.
    Device {
        #[command(subcommand)]
        command: DeviceCommand,
    },
    /// Start a server on a volume, or with its redo log in persistent memory.
    ///
    /// Takes the volume over (a server that had it stops with an error), fills the data directory with stubs and
    /// the volume's plain files, and replaces itself by the server command with the library preloaded. Signals
    /// and exit code are the server's own.
    ///
    /// The data directory is a cache: it may be empty, or filled by an earlier `redoubt run` for the same volume.
    ///
    /// With --local-log there is no volume and no storage node. The server's files stay where they are; the library
    /// only makes the redo log durable by processor stores into its files, which must be on a file system mounted
    /// with DAX on persistent memory. Without the library the server starts on the same files.
    Run(RunArguments),
    /// Show what a node and its volumes are doing.
    Status(StatusArguments),
    /// Replicate whole servers, and try failures of a group (experimental).
    ///
    /// Experimental: not for data that matters. A group is a number of stock servers that all have all data and all
    /// take writes. See docs/group/tutorial.md.
    Group(GroupArguments),
    /// Reduce the system calls that a server makes per statement (experimental).
    ///
    /// Experimental. Needs no storage node and no group. See docs/net/README.md.
    Net(NetArguments),
    /// Measure a server with a local disk, with network storage, and with Redoubt.
    ///
    /// A separate program does it: redoubt-bench of the Debian package redoubt-tools. It receives all arguments;
    /// `redoubt bench --help` shows its options.
    Bench(ToolArguments),
    /// Measure where the time of commits and page reads goes.
    ///
    /// For some seconds, server and node measure a sample of them: the time of each in every stage. Without a trace,
    /// nothing is measured.
    Trace(TraceArguments),
    /// Check a host and suggest changes: before a server or a node runs there, or when something is wrong.
    ///
    /// For a server, give the options and the command of `redoubt run`. With --data, a node's data directory and its
    /// host are checked instead. Nothing is changed and no volume is taken over. The exit status is 1 if there is a
    /// problem.
    Doctor(DoctorArguments),
    /// Print the completions of a shell.
    ///
    /// Bash: put them into /usr/share/bash-completion/completions/redoubt; zsh: into _redoubt in a directory of
    /// $fpath; fish: into ~/.config/fish/completions/redoubt.fish. `make install` does that for all three.
    Completions(CompletionsArguments),
    /// Write the pages of the manual into a directory.
    #[command(hide = true)]
    Manual(ManualArguments),
}

/// Form of a node's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines of text.
    Text,
    /// One JSON object per line, with the fields `timestamp`, `level`, `event`, `message` and those of the event.
    Json,
}

#[derive(Args)]
pub struct NodeArguments {
    /// Directory for the volumes; created if missing.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Address to listen on; port 0 takes a free one. An address that other hosts reach needs --tls.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7070")]
    pub listen: String,
    /// Form of the log on standard error: lines of text, or one JSON object per line.
    #[arg(long, value_name = "FORMAT", default_value = "text", env = "REDOUBT_LOG_FORMAT")]
    pub log_format: LogFormat,
    /// Listen on a unix socket too, @redoubt-node/ADDRESS in the abstract namespace, which servers on this host use
    /// instead of TCP, as far as --local-users allows. It requires TLS if TCP does.
    #[arg(long, value_name = "on|off", default_value = "on", action = clap::ArgAction::Set, value_parser = parse_switch)]
    pub local_socket: bool,
    /// Users whose servers may use that socket, with commas between them, besides root and the node's own user; all
    /// others use TCP. Users that do not exist on this host, and the user `nobody`, are left out.
    #[arg(long, value_name = "USER,...", default_value = "mysql", value_delimiter = ',')]
    pub local_users: Vec<String>,
    /// Log buffer of each volume: received bytes not yet applied (16MiB or more). More memory, fewer page writes.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_ring)]
    pub ring: u64,
    /// Memory limit of all volumes together, for received redo that is not applied yet and its index (64MiB or more)
    /// [default: a quarter of this host's memory, at least 1GiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub memory: Option<u64>,
    /// Bytes per second that an export reads while a server writes the volume (1MiB or more).
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_export_rate)]
    pub export_rate: u64,
    /// Days between the beginnings of two scrubs, which read everything that is stored of a volume (up to 365; 0: only
    /// `redoubt volume check` does).
    #[arg(long, value_name = "DAYS", default_value_t = 7, value_parser = clap::value_parser!(u16).range(0..=365))]
    pub scrub_days: u16,
    /// Bytes per second that all scrubs and checks of volumes read at most (1MiB or more).
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = parse_export_rate)]
    pub scrub_rate: u64,
    /// Bytes of redo applied together (1MiB or more) [default: a quarter of --ring].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub batch: Option<u64>,
    /// Seconds after which received redo is applied even if the batch is not full. More: fewer page writes.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub apply_interval: u64,
    /// Threads that apply redo [default: number of cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub apply_workers: Option<u16>,
    /// Seconds that stopping may take, for example while a device does not answer; then the node exits without
    /// finishing. No acknowledged write depends on a clean shutdown.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub stop_timeout: u64,
    /// Directory of the keys of encrypted volumes, VOLUME.key of 64 random bytes each, for this node alone; made if
    /// missing. Best not on the disk of the volumes: in a memory file system that a key service fills, or in
    /// systemd's credentials.
    #[arg(long, value_name = "DIR")]
    pub volume_keys: Option<PathBuf>,
    #[command(flatten)]
    pub tls: TlsArguments,
    /// Serve other hosts without TLS: every host that reaches the address may read, change and delete all volumes, and
    /// every host on the path may read and change the traffic.
    #[arg(long, help_heading = "TLS", conflicts_with_all = ["tls", "tls_authority"])]
    pub allow_plain_text: bool,
    #[command(flatten)]
    pub status: StatusPageArguments,
    #[command(flatten)]
    pub nfs: NfsArguments,
    #[command(flatten)]
    pub log: LogArguments,
    #[command(flatten)]
    pub pages: PageArguments,
}

/// Whether and where a node shows its state over HTTP.
#[derive(Args)]
#[command(next_help_heading = "Status page")]
pub struct StatusPageArguments {
    /// Serve a status page, Prometheus metrics (/metrics) and JSON (/status.json) on this address, by HTTP; port 0
    /// takes a free one [default: none is served].
    #[arg(long, value_name = "HOST:PORT")]
    pub status_listen: Option<String>,
    /// Serve the status page to other hosts too: every host that reaches the address may read names, paths and figures
    /// of all volumes.
    #[arg(long, requires = "status_listen")]
    pub status_allow_remote: bool,
    /// Name under which browsers and Prometheus reach the status page, besides localhost and addresses. May be
    /// repeated.
    #[arg(long, value_name = "NAME", requires = "status_listen")]
    pub status_host: Vec<String>,
}

/// Whether and where a node serves volumes over NFS.
#[derive(Args)]
#[command(next_help_heading = "NFS")]
pub struct NfsArguments {
    /// Serve all volumes, read-only, over NFS version 3 on this address; port 0 takes a free one [default: off].
    /// /VOLUME is the current state of the volume, /VOLUME@LABEL the snapshot taken when that label was first mounted.
    /// There is NO authentication: every host that reaches the address, and every user of this host, can read all data
    /// of all volumes, with or without --tls.
    #[arg(long, value_name = "HOST:PORT")]
    pub nfs: Option<String>,
    /// Serve NFS to other hosts too: every host that reaches the address may read all data of all volumes, and every
    /// host on the path may read and change the traffic.
    #[arg(long, requires = "nfs")]
    pub nfs_allow_remote: bool,
    /// Seconds without a request after which a snapshot is released.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, requires = "nfs",
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub nfs_moment_idle: u64,
}

/// Where and how a node keeps the logs.
#[derive(Args)]
#[command(next_help_heading = "Log device")]
pub struct LogArguments {
    /// Directory for the logs of volumes made from now on, for example on persistent memory or on a fast drive of
    /// their own, or a raw block device (experimental, see `redoubt device`) [default: with the volume].
    #[arg(long, value_name = "DIR|DEVICE")]
    pub log_path: Option<PathBuf>,
    /// Method that makes logs durable: `pmem`, CPU stores into a file mounted with DAX (experimental: tried on an emulated
    /// NVDIMM, needs the package redoubt-experimental); `block`, direct I/O with several durable writes in flight; `file`, fdatasync; or `auto`. With `auto` it is
    /// the first of these that the location supports.
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = ["auto", "pmem", "block", "file"])]
    pub log_device: String,
    /// Write unit of the log: 64, 256 or 512 bytes on persistent memory, 512 to 4096 on a block device [default:
    /// 64, or the block size of the device].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(64..=4096))]
    pub log_write_unit: Option<u16>,
    /// Durable writes that may be in flight on a block device.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub log_in_flight: u8,
    /// Treat the location of the logs as persistent memory even if it is not. For tests on tmpfs only: a power cut
    /// loses acknowledged commits. Needs the package redoubt-experimental.
    #[arg(long)]
    pub pretend_pmem: bool,
}

/// Where and how a node keeps pages.
#[derive(Args)]
#[command(next_help_heading = "Page store")]
pub struct PageArguments {
    /// Protection of pages against torn writes. With `atomic`, the drive and its file system write a page whole or not
    /// at all, and no page is written twice (experimental: tried on an emulated drive). With `journal`, page images go to
    /// a journal first; the newest image of each page goes home later, in page order. With `doublewrite`, they go to the
    /// journal, then home at once. `auto` is atomic where the location offers it, else journal.
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = ["auto", "atomic", "journal", "doublewrite"])]
    pub page_protection: String,
    /// Length of a volume's page journal (4MiB to 64GiB). A longer one writes fewer pages home.
    #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = parse_journal)]
    pub journal: u64,
    /// Directory or raw block device for the page journals of volumes made from now on [default: with the pages].
    #[arg(long, value_name = "DIR|DEVICE")]
    pub journal_path: Option<PathBuf>,
    /// Directory or raw block device for the pages of volumes made from now on [default: with the volume]. On a raw
    /// block device with data placement (NVMe FDP), log, journal, hot and cold pages are kept apart.
    #[arg(long, value_name = "DIR|DEVICE")]
    pub pages_path: Option<PathBuf>,
    /// Assume that the location of the pages never tears a page, even if it does not report that. For tests and
    /// measurements only: a power cut may damage pages.
    #[arg(long)]
    pub pretend_atomic: bool,
}

#[derive(Subcommand)]
pub enum DeviceCommand {
    /// Format a raw block device for --log-path, --journal-path and --pages-path. All data on it is lost.
    Format(FormatArguments),
    /// Show a raw block device that no node has open.
    Show(DeviceShowArguments),
}

#[derive(Args)]
pub struct FormatArguments {
    /// The block device, best by a name that stays, such as one in /dev/disk/by-id.
    pub device: PathBuf,
    /// Format it even if it holds data.
    #[arg(long)]
    pub force: bool,
    /// Do not ask.
    #[arg(long, short)]
    pub yes: bool,
}

#[derive(Args)]
pub struct DeviceShowArguments {
    /// The block device.
    pub device: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum VolumeCommand {
    /// Create an empty volume.
    Create(CreateArguments),
    /// List volumes.
    List(ListArguments),
    /// Show one volume.
    Show(ShowArguments),
    /// Delete a volume and everything in it.
    Delete(DeleteArguments),
    /// Make a volume from the data directory of a stopped (or crashed) server.
    Import(ImportArguments),
    /// Write a volume as a data directory that a stock server opens.
    Export(ExportArguments),
    /// Read everything that the node stores of a volume now, and repair or list what is damaged. The server may run.
    Check(CheckArguments),
}

#[derive(Args)]
pub struct VolumeName {
    #[command(flatten)]
    pub address: NodeAddress,
    /// Name of the volume: letters, digits, '-', '_', '.'.
    pub name: String,
}

#[derive(Args)]
pub struct CreateArguments {
    #[command(flatten)]
    pub volume: VolumeName,
    #[command(flatten)]
    pub encryption: EncryptionArguments,
}

/// How the files of a new volume are kept.
#[derive(Args)]
pub struct EncryptionArguments {
    /// Encrypt the volume's files on the node's disks with a key of its own. The node makes that key in its --volume-keys
    /// directory unless it exists. Without the key the volume is lost.
    #[arg(long)]
    pub encrypted: bool,
}

#[derive(Args)]
pub struct ListArguments {
    #[command(flatten)]
    pub address: NodeAddress,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ShowArguments {
    #[command(flatten)]
    pub volume: VolumeName,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct DeleteArguments {
    #[command(flatten)]
    pub volume: VolumeName,
    /// Delete even while a server is attached; that server stops with an error. Also a frozen volume, whose log has commits
    /// that no export has.
    #[arg(long)]
    pub force: bool,
    /// Do not ask.
    #[arg(long, short)]
    pub yes: bool,
}

#[derive(Args)]
pub struct ExportArguments {
    #[command(flatten)]
    pub volume: VolumeName,
    /// Directory to write; must not exist, or be empty.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Write damaged files too, as they are stored, and a frozen volume that is not exact. Without it damaged files are left
    /// out and listed, and the exit status is 2. The system tablespace and undo tablespaces are always written.
    #[arg(long)]
    pub with_damaged: bool,
}

#[derive(Args)]
pub struct CheckArguments {
    #[command(flatten)]
    pub volume: VolumeName,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct StatusArguments {
    #[command(flatten)]
    pub address: OptionalNode,
    /// Only this volume.
    #[arg(long, value_name = "NAME")]
    pub volume: Option<String>,
    /// Show a server that was started with `redoubt run --local-log`. Needs the package redoubt-experimental.
    #[arg(long, requires = "datadir", conflicts_with_all = ["node", "volume"])]
    pub local_log: bool,
    /// Its data directory.
    #[arg(long, value_name = "DIR", requires = "local_log", conflicts_with_all = ["node", "volume"])]
    pub datadir: Option<PathBuf>,
    /// Refresh until interrupted, with rates: in place on a terminal, else one line per volume each time.
    #[arg(long, conflicts_with = "local_log")]
    pub watch: bool,
    /// Seconds between two refreshes of --watch.
    #[arg(long, value_name = "SECONDS", default_value_t = 1, requires = "watch", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
    /// End --watch after this many refreshes [default: never].
    #[arg(long, value_name = "N", requires = "watch")]
    pub count: Option<u32>,
    /// Print one JSON object; with --watch one per line each time.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct TraceArguments {
    #[command(flatten)]
    pub address: NodeAddress,
    /// The volume.
    #[arg(long, value_name = "NAME")]
    pub volume: String,
    /// How long to measure.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Measure one in N commits and page reads.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub one_in: u32,
    /// How many of the slowest to show.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub slowest: usize,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `on` or `off`.
pub fn parse_switch(text: &str) -> std::result::Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("expected on or off".to_owned()),
    }
}

/// A number of bytes, for clap.
pub fn parse_size(text: &str) -> std::result::Result<u64, String> {
    redoubt_codec::parse_size(text).map_err(|error| error.to_string())
}

fn parse_ring(text: &str) -> std::result::Result<u64, String> {
    parse_size(text)
        .and_then(|size| if size >= 16 << 20 { Ok(size) } else { Err("16MiB is the least".to_owned()) })
}

fn parse_export_rate(text: &str) -> std::result::Result<u64, String> {
    parse_size(text)
        .and_then(|size| if size >= 1 << 20 { Ok(size) } else { Err("1MiB is the least".to_owned()) })
}

fn parse_memory(text: &str) -> std::result::Result<u64, String> {
    parse_size(text)
        .and_then(|size| if size >= 64 << 20 { Ok(size) } else { Err("64MiB is the least".to_owned()) })
}

fn parse_journal(text: &str) -> std::result::Result<u64, String> {
    let size = parse_size(text)?;
    if (4 << 20..=64 << 30).contains(&size) && size % 4096 == 0 {
        return Ok(size);
    }
    Err("from 4MiB to 64GiB, in steps of 4KiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("2g"), Ok(2 << 30));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert!(parse_size("12 parsecs").is_err() && parse_size("").is_err());
        assert!(parse_size("99999999999GiB").is_err());
    }
}
