//! Processes below this one: which there are, and their end.
//!
//! A test starts servers, and these start more processes. This process adopts orphans (it is a subreaper), so that the
//! tree below it holds all processes of the run.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long killed processes may take to disappear.
const KILL_TIME: Duration = Duration::from_secs(10);

/// Facts on a process from `/proc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Process id.
    pub id: u32,
    /// Process id of its parent.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// It has ended, and nothing has reaped it.
    pub is_zombie: bool,
}

/// The processes of this machine.
fn all() -> Vec<Entry> {
    let Ok(directory) = std::fs::read_dir("/proc") else { return Vec::new() };
    let ids = directory.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(|id: u32| parse(id, &std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)).collect()
}

/// A line of `/proc/ID/stat`: the name is in parentheses and may have any character.
fn parse(id: u32, stat: &str) -> Option<Entry> {
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let is_zombie = words.next()? == "Z";
    Some(Entry { id, parent: words.next()?.parse().ok()?, group: words.next()?.parse().ok()?, is_zombie })
}

/// Those below `root`, without it.
pub fn descendants(root: u32) -> Vec<Entry> {
    below(root, all())
}

fn below(root: u32, all: Vec<Entry>) -> Vec<Entry> {
    let mut children: BTreeMap<u32, Vec<Entry>> = BTreeMap::new();
    for entry in all {
        children.entry(entry.parent).or_default().push(entry);
    }
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for entry in children.remove(&parent).unwrap_or_default() {
            next.push(entry.id);
            found.push(entry);
        }
    }
    found
}

/// The processes of a job: its process group, and any other process of the run whose `TMPDIR` is the job's temporary
/// directory.
pub fn of_job(group: u32, directory: &Path) -> Vec<Entry> {
    let mut setting = b"TMPDIR=".to_vec();
    setting.extend(directory.as_os_str().as_bytes());
    let mut found = descendants(std::process::id());
    found.retain(|entry| entry.group == group || (!entry.is_zombie && has_setting(entry.id, &setting)));
    found
}

/// The processes of this machine whose `TMPDIR` is in a directory.
pub fn of_directory(directory: &Path) -> Vec<Entry> {
    let mut setting = b"TMPDIR=".to_vec();
    setting.extend(directory.as_os_str().as_bytes());
    setting.push(b'/');
    let own = std::process::id();
    let mut found = all();
    found.retain(|entry| {
        entry.id != own
            && !entry.is_zombie
            && settings(entry.id).split(|byte| *byte == 0).any(|one| one.starts_with(&setting))
    });
    found
}

/// Whether a process began with this `NAME=VALUE` in its environment.
fn has_setting(id: u32, setting: &[u8]) -> bool {
    settings(id).split(|byte| *byte == 0).any(|one| one == setting)
}

/// The environment with which a process began.
fn settings(id: u32) -> Vec<u8> {
    std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default()
}

/// Command line of a process, in short.
pub fn command_line(id: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    text.chars().take(150).collect()
}

/// Kills all processes that `victims` finds, until it finds none; `after` runs between two looks. Returns those killed.
pub fn kill_all(mut victims: impl FnMut() -> Vec<Entry>, mut after: impl FnMut()) -> Vec<(u32, String)> {
    let start = Instant::now();
    let mut killed: BTreeMap<u32, String> = BTreeMap::new();
    while start.elapsed() < KILL_TIME {
        let found: Vec<Entry> = victims().into_iter().filter(|entry| !entry.is_zombie).collect();
        if found.is_empty() {
            break;
        }
        for entry in &found {
            killed.entry(entry.id).or_insert_with(|| command_line(entry.id));
            if let Some(id) = i32::try_from(entry.id).ok().and_then(Pid::from_raw) {
                // Fails only if it has just ended.
                let _ = kill_process(id, Signal::KILL);
            }
        }
        std::thread::sleep(Duration::from_millis(10));
        after();
    }
    after();
    killed.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_are_read_whatever_the_name() {
        let entry = parse(7, "7 (a) b) S 3 5 5 0 -1 4194304").unwrap();
        assert_eq!(entry, Entry { id: 7, parent: 3, group: 5, is_zombie: false });
        assert!(parse(7, "7 (x) Z 3 5 5").unwrap().is_zombie);
        assert_eq!(parse(7, "7 (x"), None);
    }

    #[test]
    fn descendants_are_those_below_in_any_depth() {
        let entry = |id, parent| Entry { id, parent, group: 1, is_zombie: false };
        let all = vec![entry(2, 1), entry(3, 2), entry(4, 3), entry(5, 1), entry(6, 5)];
        let mut found: Vec<u32> = below(2, all).into_iter().map(|entry| entry.id).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 4]);
    }
}
