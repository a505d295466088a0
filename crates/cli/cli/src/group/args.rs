//! Command line of `redoubt group`.

use crate::tool::ToolArguments;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args)]
pub struct GroupArguments {
    #[command(subcommand)]
    pub command: GroupCommand,
}

#[derive(Subcommand)]
pub enum GroupCommand {
    /// Write a configuration file and a certificate for each server of a new group.
    ///
    /// Starts nothing and changes no server: copy the files to the servers. The next steps are printed.
    Create(GroupCreateArguments),
    /// Write the files of a further server, and add it to the files of the others.
    Join(GroupJoinArguments),
    /// Make a group of servers on this host, break it on purpose, and show the effect on its clients.
    ///
    /// A separate program does it: redoubt-drill of the Debian package redoubt-tools. It receives all arguments;
    /// `redoubt group drill --help` shows its options.
    Drill(ToolArguments),
    /// Show the members of a group: membership, votes, slots, and the position of each member.
    ///
    /// Queries servers with SQL (SHOW STATUS), so an account is all that it needs. Figures of the other members are
    /// those that the queried servers received from them.
    Status(GroupStatusArguments),
    /// Let one server continue alone after the logs of a majority are lost for good.
    ///
    /// A group needs a majority of its members and waits for it without a limit. Use this only if there will never be a
    /// majority again, because disks are gone. It makes one stopped server the only member. That server keeps all its
    /// data; commits that only the lost members had are lost. The command fails while another member answers.
    Rescue(GroupRescueArguments),
}

#[derive(Args)]
pub struct GroupRescueArguments {
    /// Data directory of the server.
    #[arg(long, value_name = "DIRECTORY")]
    pub datadir: PathBuf,
    /// Only show its position, to compare it with the other remaining servers.
    #[arg(long, conflicts_with = "yes")]
    pub show: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
}

#[derive(Args)]
pub struct GroupStatusArguments {
    #[command(flatten)]
    pub login: Login,
    /// Refresh until interrupted, with rates: in place on a terminal, else one line per member each time.
    #[arg(long)]
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
    /// Exit status 1 unless all is well: for scripts.
    #[arg(long, conflicts_with_all = ["watch", "listen"])]
    pub check: bool,
    /// Wait at most this long until all is well. Exit status 1 if it is not.
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["watch", "listen"])]
    pub wait: Option<u64>,
    /// Serve a web page on this address, such as 127.0.0.1:7072, until SIGTERM or SIGINT. It shows names, addresses and
    /// figures, and changes nothing.
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["watch", "json"])]
    pub listen: Option<String>,
    /// Let other hosts read the page, too.
    #[arg(long, requires = "listen")]
    pub allow_remote: bool,
    /// A name, besides `localhost` and addresses, under which browsers reach the page; may be repeated.
    #[arg(long, value_name = "NAME", requires = "listen")]
    pub host_name: Vec<String>,
}

/// Servers to query, and the account for it.
#[derive(Args, Clone)]
pub struct Login {
    /// A server: HOST, HOST:PORT, or the path of its socket; may be repeated [default: the socket
    /// /run/mysqld/mysqld.sock]. Each server reports all members; naming all of them also shows each server's own
    /// report.
    #[arg(long, value_name = "SERVER")]
    pub server: Vec<String>,
    /// The account; it needs no privileges.
    #[arg(long, value_name = "NAME", default_value = "root")]
    pub user: String,
    /// A file with the account's password in its first line. Without it, the environment variable MYSQL_PWD.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
}

#[derive(Args)]
pub struct GroupCreateArguments {
    /// Name of the group (wsrep_cluster_name): letters, digits, '-', '_', '.'.
    pub group: String,
    /// A server: its name, and the host (name or IPv4 address) and port by which the others reach it [default port:
    /// 4567]; may be repeated. A group should have three or five servers.
    #[arg(long, required = true, value_name = "NAME=HOST[:PORT]", value_parser = super::plan::parse_member)]
    pub member: Vec<super::plan::PlannedMember>,
    /// A new directory for the files. It holds the key of the group's authority: keep it, and keep it secret.
    #[arg(long, value_name = "DIRECTORY")]
    pub directory: PathBuf,
    /// Directory on each server to which you copy the files of that server.
    #[arg(long, value_name = "DIRECTORY", default_value = "/etc/mysql/redoubt")]
    pub server_directory: PathBuf,
    /// The library on the servers.
    #[arg(long, value_name = "FILE", default_value = "/usr/lib/redoubt/libredoubt_group.so")]
    pub provider: PathBuf,
    /// Use neither authentication nor encryption between members. Only for a trusted network: every host that reaches the
    /// members' ports can join, read and change the traffic.
    #[arg(long)]
    pub no_certificates: bool,
    /// Days for which the certificates are valid.
    #[arg(long, value_name = "DAYS", default_value_t = 825, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub days: u32,
}

#[derive(Args)]
pub struct GroupJoinArguments {
    /// The directory that `redoubt group create` wrote.
    #[arg(long, value_name = "DIRECTORY")]
    pub directory: PathBuf,
    /// The new server, as for `create`; may be repeated.
    #[arg(long, required = true, value_name = "NAME=HOST[:PORT]", value_parser = super::plan::parse_member)]
    pub member: Vec<super::plan::PlannedMember>,
    /// Days for which the certificates are valid.
    #[arg(long, value_name = "DAYS", default_value_t = 825, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub days: u32,
}
