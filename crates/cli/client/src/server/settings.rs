//! Settings of a server: values, refusals of settings that a node cannot follow, and overrides.
//!
//! A setting that would take data past the library, or that a node cannot follow, is refused by name. A missing
//! setting is an error, not a default ([`check_complete`]).

use crate::error::{ClientError, Result};
use crate::server::series::Use;
use redoubt_redo::Family;
use std::collections::HashMap;
use std::path::Path;

/// Settings by name, as the server prints them: `innodb-page-size`.
pub type Settings = HashMap<String, String>;

/// The settings that are judged below. A server that does not print them all cannot be judged.
const JUDGED: [&str; 8] = [
    "innodb-page-size",
    "innodb-data-file-path",
    "innodb-log-group-home-dir",
    "innodb-data-home-dir",
    "innodb-undo-directory",
    "innodb-read-only",
    "innodb-force-recovery",
    "log-bin",
];
const JUDGED_OF_MARIADB: [&str; 4] =
    ["innodb-encrypt-log", "innodb-encrypt-tables", "aria-log-dir-path", "log-bin-index"];
const JUDGED_OF_MYSQL: [&str; 4] =
    ["innodb-redo-log-encrypt", "innodb-undo-log-encrypt", "default-table-encryption", "innodb-directories"];

fn judged(family: Family) -> impl Iterator<Item = &'static str> {
    let own: &[&str] = match family {
        Family::MariaDb => &JUDGED_OF_MARIADB,
        Family::MySql => &JUDGED_OF_MYSQL,
    };
    JUDGED.iter().chain(own).copied()
}

/// The table that a server prints with `--verbose --help`.
pub fn parse_settings(text: &str) -> Settings {
    let table = text.lines().skip_while(|line| !line.starts_with("-----")).skip(1);
    table
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.trim().to_owned()))
        })
        .collect()
}

/// A missing setting is an error, not a default.
pub fn check_complete(family: Family, settings: &Settings, binary: &Path) -> Result<()> {
    match judged(family).find(|name| !settings.contains_key(*name)) {
        None => Ok(()),
        Some(name) => Err(ClientError::Usage(format!(
            "{} does not say its setting {}, on which it depends whether a node can follow it; give {}",
            binary.display(),
            name.replace('-', "_"),
            Use::Volume.names()
        ))),
    }
}

/// The first setting that is refused, as an error.
pub fn check_settings(family: Family, settings: &Settings, clear_pages: bool) -> Result<()> {
    match refused_settings(family, settings, clear_pages).into_iter().next() {
        Some(refused) => Err(ClientError::Usage(refused)),
        None => Ok(()),
    }
}

/// Settings that a node cannot follow, each with what to do.
pub fn refused_settings(family: Family, settings: &Settings, clear_pages: bool) -> Vec<String> {
    let get = |name: &str| settings.get(name).map_or("", String::as_str);
    let mut refused = match family {
        Family::MariaDb => refused_of_mariadb(settings, clear_pages),
        Family::MySql => refused_of_mysql(settings),
    };
    if get("log-bin").ends_with('/') {
        refused.push(format!("log_bin={} is a directory. Give the name of a file", get("log-bin")));
    }
    if is_on(get("innodb-read-only")) {
        refused.push(
            "innodb_read_only=ON is not supported: the server would not write redo. Remove the option"
                .to_owned(),
        );
    }
    refused.extend(refused_recovery(get("innodb-force-recovery")));
    refused
}

fn refused_of_mariadb(settings: &Settings, clear_pages: bool) -> Vec<String> {
    let get = |name: &str| settings.get(name).map_or("", String::as_str);
    let mut refused = Vec::new();
    if is_on(get("innodb-encrypt-log")) {
        refused.push("innodb_encrypt_log=ON is not supported: a node cannot replay encrypted redo. Set innodb_encrypt_log=OFF".to_owned());
    }
    let tables = get("innodb-encrypt-tables");
    if (is_on(tables) || tables == "FORCE") && !clear_pages {
        refused.push(format!(
            "innodb_encrypt_tables={tables}: the node would hold the pages in clear. Set innodb_encrypt_tables=OFF, or allow \
             that with --clear-pages"
        ));
    }
    if get("binlog-storage-engine").eq_ignore_ascii_case("innodb") {
        refused.push("binlog_storage_engine=innodb is not supported: a node does not know its files. Remove the option".to_owned());
    }
    if !matches!(get("log-tc"), "" | "tc.log") {
        refused.push(format!(
            "log_tc={} is not supported: the library knows the server's log of transactions by the name tc.log. Remove the option",
            get("log-tc")
        ));
    }
    if is_on(get("innodb-log-archive")) {
        refused.push(
            "innodb_log_archive=ON is not supported: a node follows ib_logfile0 only. Set innodb_log_archive=OFF".to_owned(),
        );
    }
    if !matches!(get("innodb-log-recovery-target"), "" | "0") {
        refused.push(
            "innodb_log_recovery_target is not supported: the node has applied later redo. Remove the option"
                .to_owned(),
        );
    }
    refused
}

fn refused_of_mysql(settings: &Settings) -> Vec<String> {
    let get = |name: &str| settings.get(name).map_or("", String::as_str);
    let mut refused = Vec::new();
    for name in ["innodb-redo-log-encrypt", "innodb-undo-log-encrypt", "default-table-encryption"] {
        if is_on(get(name)) {
            let setting = name.replace('-', "_");
            refused.push(format!(
                "{setting}=ON is not supported: a node cannot read what is encrypted. Set {setting}=OFF, and encrypt the volume \
                 on the node and the connection to it (docs/volume/how-to/encryption.md)"
            ));
        }
    }
    if is_on(get("daemonize")) {
        refused.push(
            "daemonize=ON is not supported: the library would not be in the process that remains. Remove the option, and start \
             the server in the background with a service manager, or with `&` in a shell"
                .to_owned(),
        );
    }
    let directories = get("innodb-directories");
    if !is_unset(directories) {
        refused.push(format!(
            "innodb_directories={directories}: tablespaces outside the data directory are not supported. Remove the option"
        ));
    }
    refused
}

fn is_unset(value: &str) -> bool {
    value.is_empty() || value.starts_with('(')
}

/// Unknown levels of forced recovery are refused; for the others see [`ForcedRecovery`].
fn refused_recovery(level: &str) -> Option<String> {
    match level {
        "" | "0" | "1" | "2" | "3" | "4" | "5" | "6" => None,
        _ => Some(format!("innodb_force_recovery={level} is not a level. Use 0 to 6")),
    }
}

/// Options that are set for a server on a volume, after its own. `settings`: its settings.
pub fn set_for(family: Family, settings: &Settings) -> Vec<String> {
    let mut arguments = vec!["--innodb-use-native-aio=0".to_owned()];
    if family == Family::MariaDb {
        // Otherwise DATA DIRECTORY would put a tablespace where the node cannot follow: the server logs the path before
        // it makes the file, so the library would refuse too late. Now it is ignored, with a warning. (MySQL makes the
        // file first.)
        arguments.push("--skip-symbolic-links".to_owned());
        // The library follows the log in blocks of this size (see `log_memory` there).
        arguments.push("--innodb-log-write-ahead-size=4096".to_owned());
        if settings.contains_key("innodb-log-file-mmap") {
            arguments.push("--innodb-log-file-mmap=0".to_owned());
        }
    }
    arguments
}

/// Effect of a level of innodb_force_recovery on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForcedRecovery {
    /// 0.
    None,
    /// 1 (go on after a damaged page), 2 (no background threads), 3 (no rollback at the start): the server reads and
    /// writes redo and pages as ever.
    OnVolume,
    /// 4 can leave secondary indexes wrong for good. 5 takes transactions that were not committed for committed. 6
    /// leaves out redo, which the node has in its pages already. None of that may get into the volume.
    OnView(u8),
}

impl ForcedRecovery {
    /// The start that these settings ask for.
    pub fn of(settings: &Settings) -> Self {
        match settings.get("innodb-force-recovery").and_then(|level| level.parse().ok()) {
            Some(1..=3) => Self::OnVolume,
            Some(level @ 4..) => Self::OnView(level),
            _ => Self::None,
        }
    }
}

/// Whether the value of a switch is on.
pub fn is_on(value: &str) -> bool {
    matches!(value, "TRUE" | "ON" | "1")
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
