//! Descriptors of the node's process, and their shares.
//!
//! | share of the limit | for |
//! |---|---|
//! | a half | admitted connections, at most [`MOST_CONNECTIONS`] |
//! | a quarter | files of all volumes, at most [`MOST_OPEN_FILES`] |
//! | a sixteenth | connections without a valid Hello, at most [`MOST_GREETING`] |
//! | the rest | listeners, files and directories that are open for a moment, files without a name, write rings of logs on block devices |
//!
//! All descriptors of a volume count for the budget of all volumes ([`FileBudget`]). While it is open, a volume holds its
//! directories of pages, log and journal, which are locked, and the active segment of its log: no sync and no commit
//! waits for a descriptor. A parked volume has none.

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
/// Idle volumes that stay open. Each has eight threads or nine.
const MOST_IDLE_VOLUMES: usize = 64;
/// Files of the budget for each idle volume that stays open. It holds three to nine of them.
const FILES_PER_IDLE_VOLUME: usize = 8;
const _: () = assert!(FILES_PER_IDLE_VOLUME < SMALLEST_SHARE, "one idle volume at least stays open");

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

/// Idle volumes that stay open, with a budget of so many open files.
pub fn idle_volumes(open_files: usize) -> usize {
    (open_files / FILES_PER_IDLE_VOLUME).min(MOST_IDLE_VOLUMES)
}

#[cfg(test)]
#[path = "descriptors_tests.rs"]
mod tests;
