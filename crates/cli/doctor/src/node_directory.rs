//! A node's data directory: lock, owner, modes, and the state of its volumes as seen from outside.

use super::limits::own_user;
use super::locks;
use super::report::Check;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum number of entries whose owner is checked.
const OWNERS_LIMIT: usize = 20_000;
const PARTS: [&str; 3] = ["log", "pages", "journal"];

/// Names of the volumes, as far as the directory can be read.
pub fn volumes(data: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(data.join("volumes")) else { return Vec::new() };
    let is_volume = |path: &PathBuf| ["volume", "volume.copy"].iter().any(|name| path.join(name).exists());
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_volume).collect();
    paths.sort();
    paths
}

/// Directories and block devices of the volumes' logs, journals and pages, without duplicates.
pub fn places(data: &Path, volumes: &[PathBuf]) -> Vec<PathBuf> {
    let mut places = vec![data.to_owned()];
    for volume in volumes {
        for part in PARTS {
            // Parts without a link are in the data directory.
            if let Ok(target) = std::fs::read_link(volume.join(part)) {
                let place = target.parent().map_or_else(|| target.clone(), Path::to_owned);
                let place = if redoubt_node::place::is_block_device(&target) { target } else { place };
                if !places.contains(&place) {
                    places.push(place);
                }
            }
        }
    }
    places
}

/// Directory and volumes.
pub fn check(data: &Path, volumes: &[PathBuf]) -> Vec<Check> {
    const NAME: &str = "data_directory";
    let metadata = match std::fs::metadata(data) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => {
            let found = format!("{} is not a directory", data.display());
            return vec![Check::problem(NAME, found, "name a directory with --data")];
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return vec![Check::ok(NAME, format!("{} is still to be made", data.display()))];
        }
        Err(error) => {
            let found = format!("cannot look at {}: {error}", data.display());
            return vec![Check::problem(
                NAME,
                found,
                "check the permissions, or run this as the node's user",
            )];
        }
    };
    let facts = Directory { owner: metadata.uid(), mode: metadata.mode() & 0o7777, user: own_user() };
    let mut checks = vec![judge_directory(data, facts), judge_lock(locks::holder(&data.join("node.lock")))];
    let strangers = strangers(data, metadata.uid());
    checks.push(judge_owners(metadata.uid(), strangers.0, strangers.1.as_deref()));
    checks.extend(volumes.iter().flat_map(|volume| check_volume(volume)));
    if checks.iter().all(|check| check.name != VOLUME) && !volumes.is_empty() {
        checks.push(Check::ok(VOLUME, format!("{}: no leftover files that need attention", volumes.len())));
    }
    checks
}

#[derive(Clone, Copy)]
struct Directory {
    owner: u32,
    mode: u32,
    user: u32,
}

fn judge_directory(data: &Path, facts: Directory) -> Check {
    const NAME: &str = "data_directory";
    let Directory { owner, mode, user } = facts;
    let shown = data.display();
    let found = format!("{shown}, user {owner}, mode {mode:04o}");
    if mode & 0o002 != 0 {
        return Check::problem(
            NAME,
            found,
            format!("chmod 700 {shown}: every user of this host may change what is in it"),
        );
    }
    if owner != user && user != 0 {
        return Check::problem(
            NAME,
            found,
            format!("chown -R {user} {shown}, or run the node as user {owner}: this is user {user}"),
        );
    }
    if mode & 0o055 != 0 {
        return Check::warning(
            NAME,
            found,
            format!("chmod 700 {shown}: other users of this host may read all volumes"),
        );
    }
    Check::ok(NAME, found)
}

fn judge_lock(process: Option<u32>) -> Check {
    const NAME: &str = "lock";
    match process {
        Some(process) => Check::ok(NAME, format!("a node runs here (process {process})")),
        None => Check::ok(NAME, "no node runs here"),
    }
}

/// Number of entries that belong to another user, and the first of them.
fn strangers(data: &Path, owner: u32) -> (usize, Option<PathBuf>) {
    let (mut count, mut first, mut seen) = (0, None, 0);
    let mut waiting = vec![data.to_owned()];
    while let Some(directory) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            seen += 1;
            if seen > OWNERS_LIMIT {
                return (count, first);
            }
            // Of the entry itself, links included.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.uid() != owner {
                count += 1;
                first.get_or_insert_with(|| entry.path());
            }
            if metadata.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    (count, first)
}

fn judge_owners(owner: u32, count: usize, first: Option<&Path>) -> Check {
    const NAME: &str = "ownership";
    match first {
        None => Check::ok(NAME, format!("everything belongs to user {owner}")),
        Some(first) => Check::problem(
            NAME,
            format!("{count} files belong to other users, {} for one", first.display()),
            format!(
                "chown -Rh {owner} the directory, with no node running: a node was run as another user once"
            ),
        ),
    }
}

const VOLUME: &str = "volumes";

fn check_volume(volume: &Path) -> Vec<Check> {
    let shown = volume.display();
    let mut checks = Vec::new();
    for part in PARTS {
        let link = volume.join(part);
        if link.is_symlink() && !link.exists() {
            checks.push(Check::problem(
                VOLUME,
                format!("{} leads nowhere", link.display()),
                "mount the file system, or plug in the drive, on which it is: the volume is not opened without it",
            ));
        }
    }
    if let Ok(reason) = std::fs::read_to_string(volume.join("stopped")) {
        checks.push(Check::problem(
            VOLUME,
            format!("{shown} is stopped: {reason}"),
            "keep the mismatch files and report them (CONTRIBUTING.md); remove the file `stopped` to open the volume again",
        ));
    } else if let Some(report) = mismatch(volume) {
        checks.push(Check::warning(
            VOLUME,
            format!("{} is there", report.display()),
            "pages differed once: report it (CONTRIBUTING.md), then move the file away",
        ));
    }
    checks
}

fn mismatch(volume: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(volume).ok()?;
    entries
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with("mismatch-"))
        .map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Level;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_directory_is_the_nodes_alone() {
        let level =
            |owner, mode, user| judge_directory(Path::new("/data"), Directory { owner, mode, user }).level;
        assert_eq!(level(7, 0o700, 7), Level::Ok);
        assert_eq!(level(7, 0o700, 0), Level::Ok);
        assert_eq!(level(7, 0o755, 7), Level::Warning);
        assert_eq!(level(7, 0o700, 8), Level::Problem);
        assert_eq!(level(7, 0o777, 7), Level::Problem);
    }

    #[test]
    fn what_a_node_left_behind_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let volume = data.join("volumes/shop");
        std::fs::create_dir_all(&volume).unwrap();
        std::fs::write(volume.join("volume"), "").unwrap();
        let found = || {
            let checks = check(data, &volumes(data));
            checks
                .into_iter()
                .filter(|check| check.name == VOLUME)
                .map(|check| check.level)
                .collect::<Vec<_>>()
        };
        assert_eq!(found(), [Level::Ok]);
        let elsewhere = data.join("elsewhere/log-1");
        std::fs::create_dir_all(&elsewhere).unwrap();
        symlink(&elsewhere, volume.join("log")).unwrap();
        assert_eq!(found(), [Level::Ok]);
        assert_eq!(places(data, &volumes(data)), [data.to_owned(), data.join("elsewhere")]);
        std::fs::remove_dir(&elsewhere).unwrap();
        assert_eq!(found(), [Level::Problem]);
        std::fs::write(volume.join("mismatch-1-2-3.txt"), "").unwrap();
        assert_eq!(found(), [Level::Problem, Level::Warning]);
        std::fs::write(volume.join("stopped"), "page 2").unwrap();
        assert_eq!(found(), [Level::Problem, Level::Problem]);
    }

    #[test]
    fn files_of_others_are_counted() {
        assert_eq!(judge_owners(7, 0, None).level, Level::Ok);
        assert_eq!(judge_owners(7, 2, Some(Path::new("/data/x"))).level, Level::Problem);
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("a")).unwrap();
        std::fs::write(directory.path().join("a/b"), "").unwrap();
        assert_eq!(strangers(directory.path(), own_user()).0, 0);
        let (count, first) = strangers(directory.path(), own_user() + 1);
        assert_eq!((count, first), (2, Some(directory.path().join("a"))));
    }
}
