//! Command line of `redoubt net`.

use clap::{Args, Subcommand, ValueEnum};
use redoubt_shm_control::net::{Limit, Mode, UserTcp};
use std::path::PathBuf;

#[derive(Args)]
pub struct NetArguments {
    #[command(subcommand)]
    pub command: NetCommand,
}

#[derive(Subcommand)]
pub enum NetCommand {
    /// Start a server, or a client of a server on this host, with the network library.
    ///
    /// Replaces itself by the command, with the library preloaded. Any command that starts a server will do, including
    /// `redoubt run`. The library is active in mariadbd and mysqld, and with --bypass in clients; in no other program.
    Run(NetRunArguments),
    /// Show what the library does in servers on this host.
    Status(NetStatusArguments),
    /// Change what the library does in a running server.
    ///
    /// Takes effect with the next statement of each connection.
    Set(NetSetArguments),
}

#[derive(Args)]
pub struct NetRunArguments {
    /// Mode of the collapser. off; read-ahead: three system calls per statement instead of five; on: two; auto: as on
    /// where two are possible, else off.
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = parse_mode)]
    pub collapser: Mode,
    /// Admission: how many connections may be inside a transaction at once, others wait before they begin one. A number,
    /// or off.
    #[arg(long, value_name = "COUNT", default_value = "off", value_parser = parse_limit)]
    pub admission: Limit,
    /// Seconds for which a client may leave a transaction idle before another is admitted in its place.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = parse_seconds())]
    pub admission_lease: u64,
    /// Timeout of waiting in seconds; then the connection is admitted over the limit.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = parse_seconds())]
    pub admission_longest_wait: u64,
    /// A user that never waits; may be repeated. An empty name: no user is exempt.
    #[arg(long, value_name = "USER", default_value = "root", value_parser = parse_user)]
    pub admission_administrator: Vec<String>,
    /// For servers and for their clients: connections between addresses of this host become unix sockets if both sides
    /// were started with this option.
    #[arg(long)]
    pub bypass: bool,
    /// TCP in user space for clients elsewhere: connections that come through this network interface do not go through
    /// the kernel's TCP. Several with commas; INTERFACE:zero-copy tries that its driver makes no copy. Needs
    /// CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF; without them the kernel's TCP is used.
    #[arg(long, value_name = "INTERFACE", value_delimiter = ',', value_parser = parse_user_tcp)]
    pub user_tcp: Vec<UserTcp>,
    /// The preloaded library [default: libredoubt_net.so beside this command or in ../lib/redoubt].
    #[arg(long, value_name = "FILE", env = "REDOUBT_NET_LIBRARY")]
    pub library: Option<PathBuf>,
    /// Server command with its options, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Which server is meant.
#[derive(Args, Clone)]
pub struct Selection {
    /// The server with this process id.
    #[arg(long, value_name = "PID", conflicts_with = "datadir")]
    pub pid: Option<u32>,
    /// The server on this data directory.
    #[arg(long, value_name = "DIR")]
    pub datadir: Option<PathBuf>,
}

#[derive(Args)]
pub struct NetStatusArguments {
    #[command(flatten)]
    pub selection: Selection,
    /// Print a JSON array with one object for each server.
    #[arg(long)]
    pub json: bool,
    /// Print metrics in the text format of Prometheus, for example for a textfile collector.
    #[arg(long, conflicts_with_all = ["json", "listen"])]
    pub prometheus: bool,
    /// Serve metrics at http://HOST:PORT/metrics and JSON at /status.json until SIGTERM or SIGINT.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "json")]
    pub listen: Option<String>,
    /// Let other hosts read them, too.
    #[arg(long, requires = "listen")]
    pub allow_remote: bool,
    /// A name, besides `localhost` and addresses, under which they are read; may be repeated.
    #[arg(long, value_name = "NAME", requires = "listen")]
    pub host_name: Vec<String>,
}

/// Settings that can change at run time.
#[derive(Subcommand)]
pub enum Change {
    /// Fewer system calls for a statement.
    Collapser {
        /// off, read-ahead, on or auto, as for `redoubt net run`.
        #[arg(value_parser = parse_mode)]
        mode: Mode,
        #[command(flatten)]
        selection: Selection,
    },
    /// How many connections may be inside a transaction at once.
    Admission {
        /// A number, or off.
        #[arg(value_parser = parse_limit)]
        limit: Limit,
        #[command(flatten)]
        selection: Selection,
    },
    /// Whether new connections of clients on this host that were started with --bypass go past TCP. Others stay as they
    /// are.
    Bypass {
        /// on or off.
        state: Switch,
        #[command(flatten)]
        selection: Selection,
    },
    /// Whether new connections through the interfaces of --user-tcp go past the kernel's TCP. Others stay as they are.
    UserTcp {
        /// on or off.
        state: Switch,
        #[command(flatten)]
        selection: Selection,
    },
    /// Time for which a client may leave a transaction idle before another is admitted in its place.
    AdmissionLease {
        /// Seconds.
        #[arg(value_parser = parse_seconds())]
        seconds: u64,
        #[command(flatten)]
        selection: Selection,
    },
    /// Timeout of waiting; then the connection is admitted over the limit.
    AdmissionLongestWait {
        /// Seconds.
        #[arg(value_parser = parse_seconds())]
        seconds: u64,
        #[command(flatten)]
        selection: Selection,
    },
}

/// On or off.
#[derive(Clone, Copy, ValueEnum)]
pub enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

#[derive(Args)]
pub struct NetSetArguments {
    #[command(subcommand)]
    pub change: Change,
}

/// A year at most.
fn parse_seconds() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=86_400 * 365)
}

fn parse_limit(text: &str) -> std::result::Result<Limit, String> {
    Limit::parse(text).ok_or_else(|| "expected a number of connections, or off".to_owned())
}

/// As it can be handed to the library in its environment.
fn parse_user(text: &str) -> std::result::Result<String, String> {
    if text.contains([',', '+']) || text.trim() != text {
        return Err("a name with a comma, a plus, or blanks around it cannot be given".to_owned());
    }
    Ok(text.to_owned())
}

fn parse_user_tcp(text: &str) -> std::result::Result<UserTcp, String> {
    UserTcp::parse(text)
        .ok_or_else(|| "expected the name of a network interface, or NAME:zero-copy".to_owned())
}

fn parse_mode(text: &str) -> std::result::Result<Mode, String> {
    Mode::from_name(text).ok_or_else(|| "expected off, read-ahead, on or auto".to_owned())
}
