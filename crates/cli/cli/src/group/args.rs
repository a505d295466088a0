//! Command line of `redoubt group`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum GroupCommand {
    /// Write what each server of a new group needs: a configuration file, and a certificate.
    ///
    /// Nothing is started and no server is touched: what is written has to be copied to the servers. What to do then is
    /// printed.
    Create(GroupCreateArguments),
    /// Write what a further server needs, and tell the others' files about it.
    Join(GroupJoinArguments),
    /// Make a group of servers on this host, break it on purpose, and show what its clients noticed.
    ///
    /// Starts stock servers in a temporary directory, with clients on all of them that write down outside the database
    /// which commits were acknowledged; kills one, stops one, kills all at once and starts all again; then holds every
    /// server against what was acknowledged, and against the others. Takes about a minute and touches nothing but what
    /// it has started. The exit status is 1 if a commit is lost or the servers differ.
    Drill(DrillArguments),
    /// Show the members of a group: who is there, who votes, who owns slots, and how far each one is.
    ///
    /// Asks servers with SQL (SHOW STATUS), so it needs an account and nothing else. What it shows of members that it
    /// did not ask is what those that it asked have heard of them.
    Status(GroupStatusArguments),
    /// Have the last server go on alone when the others have lost their logs for good.
    ///
    /// A group needs most of its members, and waits for them as long as it takes. Only if so many are lost that there
    /// will never be a majority again (their disks are gone), this makes one server, which must not run, the only member.
    /// It keeps all that it has; commits that only the lost ones had are lost. It refuses while one of the others
    /// answers.
    Rescue(GroupRescueArguments),
}

#[derive(Args)]
pub struct GroupRescueArguments {
    /// Data directory of the server.
    #[arg(long, value_name = "DIRECTORY")]
    pub datadir: PathBuf,
    /// Only show what it has, to compare it with others that are left.
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
    /// Show it again and again, with rates: in place on a terminal, else a line per member each time.
    #[arg(long)]
    pub watch: bool,
    /// Seconds between two looks of --watch.
    #[arg(long, value_name = "SECONDS", default_value_t = 1, requires = "watch", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
    /// End --watch after so many looks [default: never].
    #[arg(long, value_name = "N", requires = "watch")]
    pub count: Option<u32>,
    /// Print one JSON object; with --watch one per line each time.
    #[arg(long)]
    pub json: bool,
    /// Exit status 1 unless all is well: for scripts.
    #[arg(long, conflicts_with_all = ["watch", "listen"])]
    pub check: bool,
    /// Wait at most so long until all is well. Exit status 1 if it is not.
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["watch", "listen"])]
    pub wait: Option<u64>,
    /// Serve it as a web page there, such as 127.0.0.1:7072, until SIGTERM or SIGINT. It shows names, addresses and
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

/// Which servers are asked, and as whom.
#[derive(Args, Clone)]
pub struct Login {
    /// A server: HOST, HOST:PORT, or the path of its socket; may be repeated [default: the socket
    /// /run/mysqld/mysqld.sock]. One knows all members; naming all of them also shows what each says itself.
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
    /// 4567]; may be repeated. A group should have three or five.
    #[arg(long, required = true, value_name = "NAME=HOST[:PORT]", value_parser = super::plan::parse_member)]
    pub member: Vec<super::plan::PlannedMember>,
    /// A new directory for what is written. It has the key of the group's authority: keep it, and keep it secret.
    #[arg(long, value_name = "DIRECTORY")]
    pub directory: PathBuf,
    /// Where a server has its part, copied there by you.
    #[arg(long, value_name = "DIRECTORY", default_value = "/etc/mysql/redoubt")]
    pub server_directory: PathBuf,
    /// The library on the servers.
    #[arg(long, value_name = "FILE", default_value = "/usr/lib/redoubt/libredoubt_group.so")]
    pub provider: PathBuf,
    /// Whoever reaches the members' ports is believed, and what they send each other can be read: only for a network in
    /// which everybody is trusted.
    #[arg(long)]
    pub no_certificates: bool,
    /// Days for which the certificates are valid.
    #[arg(long, value_name = "DAYS", default_value_t = 825, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub days: u32,
}

#[derive(Args)]
pub struct GroupJoinArguments {
    /// What `redoubt group create` has written.
    #[arg(long, value_name = "DIRECTORY")]
    pub directory: PathBuf,
    /// The new server, as for `create`; may be repeated.
    #[arg(long, required = true, value_name = "NAME=HOST[:PORT]", value_parser = super::plan::parse_member)]
    pub member: Vec<super::plan::PlannedMember>,
    /// Days for which the certificates are valid.
    #[arg(long, value_name = "DAYS", default_value_t = 825, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub days: u32,
}

#[derive(Args)]
pub struct DrillArguments {
    /// Number of servers.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(3..=9))]
    pub members: u16,
    /// Clients on each of them.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub clients: u32,
    /// How long the load runs before and after each event.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// The group's library [default: the one that was installed with this command].
    #[arg(long, value_name = "FILE")]
    pub provider: Option<PathBuf>,
    /// Where the server's scripts for state transfers (wsrep_sst_rsync) are, if they are not installed.
    #[arg(long, value_name = "DIRECTORY")]
    pub scripts: Option<PathBuf>,
    /// Members prove their names with certificates, and what they send each other is encrypted.
    #[arg(long)]
    pub certificates: bool,
    /// Write a plot of commits over time there, as SVG.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Print one JSON object at the end.
    #[arg(long)]
    pub json: bool,
    /// Leave the servers' directories, with their logs, where they are.
    #[arg(long)]
    pub keep: bool,
}
