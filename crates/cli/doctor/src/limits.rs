//! Limit of open files of a process.
//!
//! The limits are those of this process. A server or node that is started from the same shell inherits them; a
//! service has its own.

use super::report::Check;
use std::path::Path;

const NAME: &str = "open_files";
const CAP_SYS_RESOURCE: u32 = 24;
/// The server continues with as few tables in its cache as this.
const LEAST_TABLE_CACHE: u64 = 400;
/// Files that a busy volume uses all the time: log, journal, names, and its hot tables. The files of all volumes share a
/// quarter of a node's descriptors, and are closed and opened again beyond that.
const FILES_PER_VOLUME: u64 = 32;
const SHARE_OF_FILES: u64 = 4;
/// A node with fewer descriptors serves too few connections.
const LEAST_OF_NODE: u64 = 256;
/// More volumes are seldom busy at the same time: idle ones have no files open.
const BUSY_VOLUMES: u64 = 512;

/// Limit of open files of a process.
#[derive(Clone, Copy)]
struct Limit {
    hard: u64,
    /// The process may raise the hard limit.
    may_raise: bool,
}

impl Limit {
    fn own() -> Self {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is to a live value of the right type.
        let hard = match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
            0 => limit.rlim_max,
            _ => 1024,
        };
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self { hard, may_raise: has_capability(&status, CAP_SYS_RESOURCE) }
    }

    fn shown(self) -> String {
        format!("limit {} (of this shell; a service has LimitNOFILE)", self.hard)
    }
}

/// Whether the text of `/proc/self/status` lists the capability as effective.
fn has_capability(status: &str, capability: u32) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|value| u64::from_str_radix(value.trim(), 16).ok())
        .is_some_and(|set| set >> capability & 1 == 1)
}

/// Checks the limit for a server with these settings.
pub fn server(max_connections: u64, table_open_cache: u64) -> Check {
    judge_server(Limit::own(), max_connections, table_open_cache)
}

fn judge_server(limit: Limit, max_connections: u64, table_open_cache: u64) -> Check {
    let wanted = (10 + max_connections + 2 * table_open_cache).max(5 * max_connections);
    let least = 10 + max_connections + 2 * LEAST_TABLE_CACHE.min(table_open_cache);
    let found = format!(
        "{}; max_connections={max_connections} and table_open_cache={table_open_cache} want {wanted}",
        limit.shown()
    );
    let change =
        |why: &str| format!("LimitNOFILE={} or more in the unit, or ulimit -n: {why}", wanted.max(32_768));
    if limit.hard >= wanted {
        Check::ok(NAME, found)
    } else if limit.may_raise {
        Check::ok(NAME, format!("{found}; a server that root starts raises it itself"))
    } else if limit.hard >= least {
        Check::warning(
            NAME,
            found,
            change("the server lowers table_open_cache and opens tables again and again"),
        )
    } else {
        Check::problem(NAME, found, change("the server lowers max_connections below what is set"))
    }
}

/// Checks the limit for a node with this number of volumes.
pub fn node(volumes: u64) -> Check {
    judge_node(Limit::own(), volumes)
}

/// A node raises its soft limit, never the hard one.
fn judge_node(limit: Limit, volumes: u64) -> Check {
    let wanted = (SHARE_OF_FILES * FILES_PER_VOLUME * volumes.clamp(1, BUSY_VOLUMES)).max(1024);
    let found = format!("{}; {volumes} volumes want {wanted}", limit.shown());
    let change =
        |why: &str| format!("LimitNOFILE={} or more in the unit, or ulimit -n: {why}", wanted.max(65_536));
    if limit.hard >= wanted {
        Check::ok(NAME, found)
    } else if limit.hard >= LEAST_OF_NODE {
        Check::warning(NAME, found, change("files of volumes are closed and opened again and again"))
    } else {
        Check::problem(
            NAME,
            found,
            change("volumes wait when a file cannot be opened, and connections are refused"),
        )
    }
}

/// User of this process, who owns the files that it makes.
pub fn own_user() -> u32 {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// Number of a user in the text of a passwd file.
pub fn user_number(name: &str) -> Option<u32> {
    let passwd = std::fs::read_to_string(Path::new("/etc/passwd")).ok()?;
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Level;

    #[test]
    fn a_server_gets_what_its_settings_want() {
        let level = |hard, may_raise| judge_server(Limit { hard, may_raise }, 151, 2000).level;
        assert_eq!(level(32_768, false), Level::Ok);
        assert_eq!(level(4161, false), Level::Ok);
        assert_eq!(level(4160, false), Level::Warning);
        assert_eq!(level(1024, false), Level::Warning);
        assert_eq!(level(960, false), Level::Problem);
        assert_eq!(level(64, true), Level::Ok);
        let change = judge_server(Limit { hard: 64, may_raise: false }, 20_000, 10).change;
        assert!(change.is_some_and(|change| change.contains("LimitNOFILE=100000")));
    }

    #[test]
    fn a_node_wants_files_for_each_busy_volume() {
        let level = |hard, volumes| judge_node(Limit { hard, may_raise: true }, volumes).level;
        assert_eq!(level(1024, 0), Level::Ok);
        assert_eq!(level(1024, 8), Level::Ok);
        assert_eq!(level(1024, 9), Level::Warning);
        assert_eq!(level(1024, 1000), Level::Warning);
        assert_eq!(level(65_536, 100_000), Level::Ok);
        assert_eq!(level(64, 0), Level::Problem);
        assert_eq!(level(255, 1000), Level::Problem);
    }

    #[test]
    fn capabilities_and_users_are_read() {
        assert!(has_capability("Name:\tx\nCapEff:\t0000000001000000\n", CAP_SYS_RESOURCE));
        assert!(!has_capability("CapEff:\t000001fffeffffff\n", CAP_SYS_RESOURCE));
        assert!(!has_capability("", CAP_SYS_RESOURCE));
        assert_eq!(user_number("root"), Some(0));
        assert_eq!(user_number("no such user"), None);
    }
}
