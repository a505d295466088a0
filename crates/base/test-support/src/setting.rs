//! Settings of tests, from the environment: lengths and seeds of long runs, devices, servers.
//!
//! Invariant: a misspelt setting ends the test that reads one. A long run that is silently a short one proves nothing.
//! So all tests read `REDOUBT_*` through this module, and each read refuses every variable with this beginning that is
//! neither a setting nor a variable of the product or of the scripts. A test compares both lists with the source tree.

use std::ffi::OsString;
use std::ops::Range;

/// The prefix of every variable of this project.
const BEGINNING: &str = "REDOUBT_";

/// The variables that tests read.
const SETTINGS: [&str; 37] = [
    "REDOUBT_CHECKED",
    "REDOUBT_CONSENSUS_BUG",
    "REDOUBT_CONSENSUS_NOTES",
    "REDOUBT_CONSENSUS_SEEDS",
    "REDOUBT_CRASH_ROUNDS",
    "REDOUBT_DAX_DIR",
    "REDOUBT_FAULTS_LIBRARY",
    "REDOUBT_FAULT_ROUNDS",
    "REDOUBT_FULL_DISK_MINUTES",
    "REDOUBT_FUZZ_MUTATIONS",
    "REDOUBT_FUZZ_SEED",
    "REDOUBT_FUZZ_SEEDS",
    "REDOUBT_GALERA",
    "REDOUBT_GROUP_ROUNDS",
    "REDOUBT_GROUP_SEED",
    "REDOUBT_ISOLATION_TRANSACTIONS",
    "REDOUBT_KILLED_IMPORTS",
    "REDOUBT_MANY_TABLES",
    "REDOUBT_MANY_VOLUMES",
    "REDOUBT_MARIADB_11_4",
    "REDOUBT_MARIADB_11_8",
    "REDOUBT_MYSQL_9_7",
    "REDOUBT_MYSQL_STREAM_TO",
    "REDOUBT_NET_ROUNDS",
    "REDOUBT_NET_SEED",
    "REDOUBT_PROMETHEUS",
    "REDOUBT_RAW_DEVICE",
    "REDOUBT_SEED",
    "REDOUBT_SERVER_PLUGINS",
    "REDOUBT_SIMULATION_BUG",
    "REDOUBT_SIMULATION_NOTES",
    "REDOUBT_SIMULATION_SECONDS",
    "REDOUBT_SIMULATION_SEED",
    "REDOUBT_SIMULATION_SEEDS",
    "REDOUBT_SOAK_ROUNDS",
    "REDOUBT_TCP_SEEDS",
    "REDOUBT_UNTORN_DIR",
];

/// The variables that the product, its packages and the scripts read, or write for each other.
const OTHERS: [&str; 66] = [
    "REDOUBT_ALLOWED_SKIPS",
    "REDOUBT_BIN",
    "REDOUBT_BUILD_NEEDS",
    "REDOUBT_CLEAR_PAGES",
    "REDOUBT_COMMITS",
    "REDOUBT_COMPRESS",
    "REDOUBT_DATADIR",
    "REDOUBT_DEBIAN_MIRROR",
    "REDOUBT_DEB_BOOT_LIMIT_S",
    "REDOUBT_ECHO_ROLE",
    "REDOUBT_SERVER_VERSION",
    "REDOUBT_FAMILY",
    "REDOUBT_FAULTS",
    "REDOUBT_FAULTS_LOG",
    "REDOUBT_FAULTS_PROGRAM",
    "REDOUBT_FDP_BOOT_LIMIT_S",
    "REDOUBT_FDP_KERNEL_SUITE",
    "REDOUBT_GENERATION",
    "REDOUBT_GROUP_POSITION",
    "REDOUBT_GROUP_RECOVERING",
    "REDOUBT_LIBRARY",
    "REDOUBT_LOCAL_FILES",
    "REDOUBT_LOCAL_LOG",
    "REDOUBT_LOCAL_SOCKET",
    "REDOUBT_LOG",
    "REDOUBT_LOG_FORMAT",
    "REDOUBT_MARIADB_11_4_MISSING",
    "REDOUBT_MARIADB_11_8_MISSING",
    "REDOUBT_MARIADB_VOLUME",
    "REDOUBT_MYSQL_9_7_MISSING",
    "REDOUBT_MYSQL_STREAM",
    "REDOUBT_NET",
    "REDOUBT_NET_BYPASS",
    "REDOUBT_NET_LIBRARY",
    "REDOUBT_NFS_BOOT_LIMIT_S",
    "REDOUBT_NFS_KERNEL_SUITE",
    "REDOUBT_NODE",
    "REDOUBT_NODE_OPTIONS",
    "REDOUBT_NVDIMM_BOOT_LIMIT_S",
    "REDOUBT_NVDIMM_COMMITS",
    "REDOUBT_NVDIMM_KERNEL_SUITE",
    "REDOUBT_ON_DIFFERENCE",
    "REDOUBT_PAGE_CACHE_BYTES",
    "REDOUBT_PAGE_CACHE_DIRECTORY",
    "REDOUBT_PAGE_SIZE",
    "REDOUBT_PID",
    "REDOUBT_PLUGINS",
    "REDOUBT_RATE",
    "REDOUBT_READ_AHEAD_BYTES",
    "REDOUBT_RUN_OPTIONS",
    "REDOUBT_SERVER_NEEDS",
    "REDOUBT_SKIPPED",
    "REDOUBT_SOCKET",
    "REDOUBT_SYSTEM_FILES",
    "REDOUBT_TAKEOVER",
    "REDOUBT_TEST_NEEDS",
    "REDOUBT_TIMEOUT_S",
    "REDOUBT_TLS",
    "REDOUBT_TLS_AUTHORITY",
    "REDOUBT_TLS_CERTIFICATE",
    "REDOUBT_TLS_KEY",
    "REDOUBT_TRANSACTIONS",
    "REDOUBT_UBUNTU_MIRROR",
    "REDOUBT_VERIFY",
    "REDOUBT_VOLUME",
    "REDOUBT_WAIT_SECONDS",
];

/// The number in the variable `name`, or `default` if it is not set.
///
/// # Panics
/// If it is not a number, if `name` is no setting, or if any variable looks like one of this project and is none.
pub fn setting(name: &str, default: u64) -> u64 {
    let Some(text) = setting_text(name) else { return default };
    number(name, &text).unwrap_or_else(|why| panic!("{why}"))
}

/// The range `FROM..TO` in the variable `name`, or `default` if it is not set.
///
/// # Panics
/// As [`setting`].
pub fn setting_range(name: &str, default: Range<u64>) -> Range<u64> {
    let Some(text) = setting_text(name) else { return default };
    range(name, &text).unwrap_or_else(|why| panic!("{why}"))
}

/// The text in the variable `name`, if it is set: one of many words, or any value at all.
///
/// # Panics
/// As [`setting`], or if it is not UTF-8.
pub fn setting_text(name: &str) -> Option<String> {
    setting_os(name)
        .map(|text| text.into_string().unwrap_or_else(|text| panic!("{name} is {text:?}, not UTF-8")))
}

/// The path in the variable `name`, if it is set.
///
/// # Panics
/// As [`setting`].
pub fn setting_os(name: &str) -> Option<OsString> {
    from(std::env::vars_os(), name).unwrap_or_else(|why| panic!("{why}"))
}

fn number(name: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|error| format!("{name} is {text:?}, not a number: {error}"))
}

fn range(name: &str, text: &str) -> Result<Range<u64>, String> {
    let ends = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    ends.filter(|range| !range.is_empty())
        .ok_or_else(|| format!("{name} is {text:?}, not FROM..TO with FROM < TO"))
}

fn is_known(variable: &str) -> bool {
    SETTINGS.contains(&variable) || OTHERS.contains(&variable)
}

fn from(
    variables: impl Iterator<Item = (OsString, OsString)>,
    name: &str,
) -> Result<Option<OsString>, String> {
    if !SETTINGS.contains(&name) {
        return Err(format!("{name} is not a setting; add it to the list in test-support"));
    }
    let mut found = None;
    for (variable, value) in variables {
        let variable = variable.to_string_lossy();
        if variable.starts_with(BEGINNING) && !is_known(&variable) {
            return Err(format!("{variable} is not known; settings are {}", SETTINGS.join(", ")));
        }
        if variable == name {
            found = Some(value);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
