//! Command line of `redoubt net`.

use clap::{Args, Subcommand};
use redoubt_wire::net::Mode;
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum NetCommand {
    /// Start a server that makes fewer system calls for what its clients send, or a client of one on this host.
    ///
    /// Replaces itself by the command, with the library preloaded. Any command that starts a server will do, `redoubt run`
    /// included: the library works in mariadbd and mysqld, and with --bypass in clients; in no other program.
    Run(NetRunArguments),
    /// Show what the library does in servers on this host.
    Status(NetStatusArguments),
    /// Switch a layer of the library in a running server.
    ///
    /// Takes effect with the next statement of each connection.
    Set(NetSetArguments),
}

#[derive(Args)]
pub struct NetRunArguments {
    /// What the collapser does: off; read-ahead: three system calls for a statement instead of five; on: two; auto:
    /// what is best as far as is known.
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = parse_mode)]
    pub collapser: Mode,
    /// For servers and for their clients: connections over the loopback interface become unix sockets where both were
    /// started so.
    #[arg(long)]
    pub bypass: bool,
    /// The preloaded library [default: libredoubt_net.so beside this command or in ../lib/redoubt].
    #[arg(long, value_name = "FILE", env = "REDOUBT_NET_LIBRARY")]
    pub library: Option<PathBuf>,
    /// Server command with its options, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Which server is meant.
#[derive(Args)]
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
}

/// What can be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Layer {
    /// Fewer system calls for a statement.
    Collapser,
}

#[derive(Args)]
pub struct NetSetArguments {
    /// The layer.
    pub layer: Layer,
    /// off, read-ahead, on or auto, as for `redoubt net run`.
    #[arg(value_parser = parse_mode)]
    pub mode: Mode,
    #[command(flatten)]
    pub selection: Selection,
}

fn parse_mode(text: &str) -> std::result::Result<Mode, String> {
    Mode::from_name(text).ok_or_else(|| "expected off, read-ahead, on or auto".to_owned())
}
