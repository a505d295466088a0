//! The options of `redoubt doctor`.

use crate::args::{OptionalNode, parse_size};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `redoubt doctor`.
#[derive(Args)]
#[command(after_help = "Before a server is started, with the options of `redoubt run`:

  redoubt doctor --node storage1:7070 --tls /etc/redoubt/tls --volume shop --datadir /var/lib/shop -- mariadbd --user=mysql

Before a node is started, or while it runs:

  redoubt doctor --data /var/lib/redoubt --tls /etc/redoubt/tls

Limits are those of this shell; a service has its own. As another user: runuser -u mysql -- redoubt doctor ...
Field names in JSON are stable: name, level (ok, note, warning, problem), found, change.")]
pub struct DoctorArguments {
    /// Check a node's data directory and its host, instead of a server's.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["node", "volume", "datadir", "local_log", "page_cache", "library", "command"])]
    pub data: Option<PathBuf>,
    /// A further location of the node, as its --log-path, --journal-path or --pages-path. May be repeated.
    #[arg(long, value_name = "DIR", requires = "data")]
    pub place: Vec<PathBuf>,
    /// The node's --ring.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", requires = "data", value_parser = parse_size)]
    pub ring: u64,
    #[command(flatten)]
    pub address: OptionalNode,
    /// The volume of the server.
    #[arg(long, value_name = "NAME", conflicts_with = "local_log")]
    pub volume: Option<String>,
    /// Local data directory of the server.
    #[arg(long, value_name = "DIR")]
    pub datadir: Option<PathBuf>,
    /// Check for `redoubt run --local-log`: no storage node, the redo log in persistent memory. Needs the package
    /// redoubt-experimental.
    #[arg(long, conflicts_with = "node")]
    pub local_log: bool,
    /// As for `redoubt run`, for tests: treat files on tmpfs as persistent memory.
    #[arg(long, requires = "local_log")]
    pub pretend_pmem: bool,
    /// Size of the server's page cache.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "local_log")]
    pub page_cache: Option<u64>,
    /// Directory of the page cache.
    #[arg(long, value_name = "DIR", requires = "page_cache")]
    pub page_cache_directory: Option<PathBuf>,
    /// The preloaded library [default: libredoubt.so beside this command or in ../lib/redoubt].
    #[arg(long, value_name = "FILE", env = "REDOUBT_LIBRARY")]
    pub library: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Server command with its options, after `--` [default: mariadbd].
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
