//! Options of `redoubt run`.

use crate::args::{OptionalNode, parse_size, parse_switch};
use clap::Args;
use redoubt_redo::Family;
use std::path::PathBuf;

/// Data that is compressed on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Compress {
    /// Everything.
    On,
    /// Nothing.
    Off,
    /// Data that compresses well, while the network is short and CPUs are idle.
    Auto,
}

impl Compress {
    /// Value of `REDOUBT_COMPRESS`, by which the library gets the choice.
    pub const fn variable(self) -> &'static str {
        match self {
            Self::On => "1",
            Self::Off => "0",
            Self::Auto => "auto",
        }
    }
}

/// Action on a page of the node that differs from the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OnDifference {
    /// The server's page replaces it.
    Heal,
    /// The volume stops.
    Stop,
}

impl OnDifference {
    /// Value of `REDOUBT_ON_DIFFERENCE`, by which the library gets the choice.
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Heal => "heal",
            Self::Stop => "stop",
        }
    }
}

#[derive(Args)]
#[command(
    after_help = "Options set for the server: datadir, innodb_use_native_aio=0, symbolic-links=0, innodb_log_file_mmap=0, \
                  innodb_log_write_ahead_size=4096, and innodb_doublewrite=0 unless it is given on this command \
                  line (the node protects pages against torn writes). A member of a group of servers runs twice: the \
                  first run finds the position of its data for wsrep_start_position.
With --local-log: datadir if it is given here, and for MySQL innodb_log_write_ahead_size=512 unless it is set."
)]
pub struct RunArguments {
    #[command(flatten)]
    pub address: OptionalNode,
    /// The volume.
    #[arg(long, value_name = "NAME", required_unless_present = "local_log")]
    pub volume: Option<String>,
    /// Local data directory; created if missing. With --local-log: the server's own data directory, found from its
    /// options.
    #[arg(long, value_name = "DIR", required_unless_present = "local_log")]
    pub datadir: Option<PathBuf>,
    /// Take nothing over and start no server: mount the volume on the directory, which must be empty, for as long as
    /// the program after `--` runs. It sees the data directory of the volume as it is now, and cannot change it.
    #[arg(long, conflicts_with_all = ["local_log", "verify", "on_difference", "compress", "page_cache", "no_takeover", "timeout"])]
    pub reader: bool,
    /// With --reader: show one crash-consistent snapshot for as long as the program runs. Writes of the program stay on
    /// this host and are discarded when it ends. Servers always read a snapshot.
    #[arg(long, requires = "reader")]
    pub at_once: bool,
    /// Before anything else, write the volume as it is into this directory, new or empty, as `redoubt volume export`
    /// does: before a start that may do harm, such as one with innodb_force_recovery.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["local_log", "reader"])]
    pub export_first: Option<PathBuf>,
    /// No storage node: make the redo log durable by stores into its files (persistent memory, DAX). Experimental:
    /// tried on an emulated NVDIMM, needs the package redoubt-experimental.
    #[arg(long, conflicts_with_all = ["node", "volume", "verify", "on_difference", "compress", "timeout"])]
    pub local_log: bool,
    /// For tests: treat files on tmpfs, which is ordinary memory, as persistent memory. A power cut loses commits.
    #[arg(long, requires = "local_log", conflicts_with_all = ["node", "volume", "verify", "on_difference", "compress", "timeout"])]
    pub pretend_pmem: bool,
    /// Fail (exit status 3) if a server has the volume now, or the volume was attached elsewhere since this data
    /// directory had it: an automatic restart then takes the volume over from no other server.
    #[arg(long, conflicts_with = "local_log")]
    pub no_takeover: bool,
    /// Start although the node has an older copy of the volume than this data directory knows (exit status 4 otherwise):
    /// transactions that were acknowledged after that copy are lost.
    #[arg(long, conflicts_with_all = ["local_log", "reader"])]
    pub accept_older: bool,
    /// Files of the volume (not of InnoDB) that are missing in the data directory were removed there on purpose: remove them
    /// from the volume, too. Without this option they come back, except binary logs that their index no longer names.
    #[arg(long, conflicts_with_all = ["local_log", "reader"])]
    pub accept_removed: bool,
    /// Compare dropped page writes with the node's pages: all, 1/N of them, or off [default: all for MySQL, off for MariaDB].
    #[arg(long, value_name = "all|1/N|off", value_parser = parse_verify)]
    pub verify: Option<String>,
    /// When --verify finds a page that differs: heal sets the node's page aside until the server sends its own, which
    /// replaces it; stop stops the volume. Many differences stop it in any case [default: heal for MySQL, stop for
    /// MariaDB].
    #[arg(long, value_name = "heal|stop")]
    pub on_difference: Option<OnDifference>,
    /// Compress redo and pages on the wire (Zstandard): fewer bytes, more CPU time. auto: only while the network is short
    /// and CPUs are idle. Without a value: on.
    #[arg(long, value_name = "on|off|auto", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "on", default_value = "auto")]
    pub compress: Compress,
    /// Reach the node over its unix socket instead of TCP if it runs on this host and accepts this user (redoubt node
    /// --local-users). Otherwise TCP is used, without a message.
    #[arg(long, value_name = "on|off", default_value = "on", action = clap::ArgAction::Set, value_parser = parse_switch)]
    #[arg(conflicts_with_all = ["local_log", "reader"])]
    pub local_socket: bool,
    /// Allow encrypted tables (key management plugins, innodb_encrypt_tables): the node, its views and exports hold
    /// their pages in clear, protected only by what protects the node's disks. The redo log must not be encrypted.
    /// Pages of encrypted tables are not compared by --verify.
    #[arg(long, conflicts_with_all = ["local_log", "reader"])]
    pub clear_pages: bool,
    /// Size of a page cache on the server's host, of pages read and written: fewer reads over the network.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "local_log")]
    pub page_cache: Option<u64>,
    /// Keep the page cache in a file in this directory on a local disk, instead of in memory.
    #[arg(long, value_name = "DIR", requires = "page_cache")]
    pub page_cache_directory: Option<PathBuf>,
    /// Request up to this much at once ahead of scans, which then wait less for the network; 0: never.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "512KiB", conflicts_with = "local_log")]
    pub read_ahead: u64,
    /// Seconds the server waits for a lost node, or for a page, before the library ends it.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub timeout: u64,
    /// The preloaded library [default: libredoubt.so beside this command or in ../lib/redoubt].
    #[arg(long, value_name = "FILE", env = "REDOUBT_LIBRARY")]
    pub library: Option<PathBuf>,
    /// Server command with its options, after `--`: mariadbd, or mariadb-install-db for a new volume; with
    /// --local-log mysqld or mariadbd, or any program that starts one.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl RunArguments {
    /// Dropped page writes of a server of this family that are compared. Which page writes of MySQL may be dropped is a list of
    /// cases, so all of them are checked.
    pub fn verify(&self, family: Family) -> &str {
        let default = match family {
            Family::MariaDb => "off",
            Family::MySql => "all",
        };
        self.verify.as_deref().unwrap_or(default)
    }

    /// Action on a difference.
    pub fn on_difference(&self, family: Family) -> OnDifference {
        self.on_difference.unwrap_or(match family {
            Family::MariaDb => OnDifference::Stop,
            Family::MySql => OnDifference::Heal,
        })
    }
}

fn parse_verify(text: &str) -> std::result::Result<String, String> {
    let sampled = text.strip_prefix("1/").and_then(|n| n.parse::<u32>().ok()).is_some_and(|n| n > 0);
    if text == "all" || text == "off" || sampled {
        return Ok(text.to_owned());
    }
    Err("expected all, off, or 1/N with N above 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        run: RunArguments,
    }

    #[test]
    fn compression_without_a_value_is_on_and_without_the_option_auto() {
        let parsed = |option: &[&str]| {
            let all = [&["run", "--volume", "v", "--datadir", "d"], option, &["--", "mariadbd"]].concat();
            <Command as clap::Parser>::try_parse_from(all).map(|command| command.run)
        };
        for (option, expected) in [
            (&[][..], Compress::Auto),
            (&["--compress"], Compress::On),
            (&["--compress=on"], Compress::On),
            (&["--compress=off"], Compress::Off),
            (&["--compress=auto"], Compress::Auto),
        ] {
            let run = parsed(option).map_err(|error| error.to_string()).unwrap();
            assert_eq!((run.compress, run.command), (expected, vec!["mariadbd".to_owned()]));
        }
        assert!(parsed(&["--compress=some"]).is_err());
        assert!(parsed(&["--local-log", "--compress"]).is_err());
    }

    #[test]
    fn comparison_of_pages_depends_on_the_family_and_the_options() {
        let parsed = |options: &[&str]| {
            let all = [&["run", "--volume", "v", "--datadir", "d"], options, &["--", "mysqld"]].concat();
            let command = <Command as clap::Parser>::try_parse_from(all);
            command.map(|command| command.run).map_err(|error| error.to_string())
        };
        let chosen = |options: &[&str], family| {
            let run = parsed(options).unwrap();
            (run.verify(family).to_owned(), run.on_difference(family).variable())
        };
        for (options, family, expected) in [
            (&[][..], Family::MySql, ("all", "heal")),
            (&[], Family::MariaDb, ("off", "stop")),
            (&["--verify=off"], Family::MySql, ("off", "heal")),
            (&["--verify=1/8", "--on-difference=stop"], Family::MySql, ("1/8", "stop")),
            (&["--verify=all", "--on-difference", "heal"], Family::MariaDb, ("all", "heal")),
        ] {
            let (verify, on_difference) = chosen(options, family);
            assert_eq!((verify.as_str(), on_difference), expected, "{options:?} {family}");
        }
        assert!(parsed(&["--on-difference=mend"]).is_err());
        assert!(parsed(&["--reader", "--on-difference=stop"]).is_err());
    }

    #[test]
    fn samples() {
        for text in ["all", "off", "1/1", "1/100"] {
            assert_eq!(parse_verify(text).as_deref(), Ok(text));
        }
        for text in ["1/0", "some", "1/", ""] {
            assert!(parse_verify(text).is_err(), "{text}");
        }
    }
}
