//! Command line of `redoubt group`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum GroupCommand {
    /// Make a group of servers on this host, break it on purpose, and show what its clients noticed.
    ///
    /// Starts stock servers in a temporary directory, with clients on all of them that write down outside the database
    /// which commits were acknowledged; kills one, stops one, kills all at once and starts all again; then holds every
    /// server against what was acknowledged, and against the others. Takes about a minute and touches nothing but what
    /// it has started. The exit status is 1 if a commit is lost or the servers differ.
    Drill(DrillArguments),
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
    /// The group's library; by default the one beside this command or in /usr/lib/redoubt.
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
