//! Descriptors of the node's process, and their shares.
//!
//! | share of the limit | for |
//! |---|---|
//! | a half | admitted connections, at most [`MOST_CONNECTIONS`] |
//! | a quarter | files of all volumes, at most [`MOST_OPEN_FILES`] |
//! | a sixteenth | connections without a valid Hello, at most [`MOST_GREETING`] |
//! | the rest | listeners, files and directories that are open for a moment, files without a name, write rings of logs on block devices |
//!
//! A volume has no descriptors of its own: its files count for the budget of all volumes ([`FileBudget`]), and its
//! directories are open only while they are synced. The lock of the data directory covers those below it.

use redoubt_storage::FileBudget;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::{Arc, OnceLock};

/// Parts of the limit.
const PARTS: usize = 16;
const CONNECTION_PARTS: usize = 8;
const FILE_PARTS: usize = 4;
const GREETING_PARTS: usize = 1;
const _: () = assert!(CONNECTION_PARTS + FILE_PARTS + GREETING_PARTS < PARTS, "some are left for the rest");

/// Admitted connections.
const MOST_CONNECTIONS: usize = 4096;
/// Open files of all volumes. More would only be idle.
const MOST_OPEN_FILES: usize = 16_384;
/// Connections without a valid Hello.
const MOST_GREETING: usize = 256;
/// Smallest share of a purpose, however low the limit is.
const SMALLEST_SHARE: usize = 16;

/// Descriptors that this process may have open. The first call raises the limit as far as the system allows.
pub fn limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let found = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: found.maximum, maximum: found.maximum };
        let is_raised = found.current != found.maximum && setrlimit(Resource::Nofile, raised).is_ok();
        let limit = if is_raised { found.maximum } else { found.current };
        limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
    })
}

fn share(limit: usize, parts: usize, most: usize) -> usize {
    (limit / PARTS).saturating_mul(parts).clamp(SMALLEST_SHARE, most)
}

/// Admitted connections.
pub fn connections() -> usize {
    share(limit(), CONNECTION_PARTS, MOST_CONNECTIONS)
}

/// Connections without a valid Hello.
pub fn greeting() -> usize {
    share(limit(), GREETING_PARTS, MOST_GREETING)
}

/// A budget for the open files of all volumes.
pub fn open_files() -> Arc<FileBudget> {
    FileBudget::new(share(limit(), FILE_PARTS, MOST_OPEN_FILES))
}

#[cfg(test)]
#[path = "descriptors_tests.rs"]
mod tests;
