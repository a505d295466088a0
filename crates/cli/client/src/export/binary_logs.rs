//! The index of a binary log in an export that is not exactly the state at its end: it may name logs that are not there, and
//! a server with a binary log does not start then.

use redoubt_wire::control::{EntryKind, VolumeEntry};
use std::path::Path;

/// An index of hundred thousands of logs. A longer file is no index.
const INDEX_LEN_MAX_BYTES: u64 = 8 << 20;

/// Logs that an index names and the export does not have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MissingLogs {
    /// Path of the index in the export.
    pub index: String,
    /// Names as in the index.
    pub logs: Vec<String>,
}

/// Looks into every index in the export's directory. An index that cannot be read is left out: it is no reason to fail.
pub(super) fn missing_logs(directory: &Path, entries: &[VolumeEntry]) -> Vec<MissingLogs> {
    let is_index = |entry: &&VolumeEntry| {
        entry.kind == EntryKind::Plain
            && entry.len_bytes <= INDEX_LEN_MAX_BYTES
            && entry.path.ends_with(".index")
    };
    let missing = entries.iter().filter(is_index).filter_map(|entry| {
        let text = std::fs::read_to_string(directory.join(&entry.path)).ok()?;
        let logs = missing_in(&text, |name| directory.join(name).exists());
        (!logs.is_empty()).then(|| MissingLogs { index: entry.path.clone(), logs })
    });
    missing.collect()
}

/// Names are relative to the data directory. One with a path from the root is on a file system of the server.
fn missing_in(index: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let names = index.lines().map(|line| line.trim_start_matches("./"));
    let logs = names.filter(|name| !name.is_empty() && !name.starts_with('/') && !exists(name));
    logs.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: EntryKind, len_bytes: u64) -> VolumeEntry {
        VolumeEntry { path: path.to_owned(), kind, mode: 0o660, len_bytes, checksum: None }
    }

    #[test]
    fn logs_of_an_index_that_are_not_there_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write("bin.000001", "");
        write("bin.index", "./bin.000001\n./bin.000002\n/var/log/bin.000009\n\n");
        write("relay.index", "./bin.000001\n");
        std::fs::write(directory.path().join("odd.index"), [0xff, 0xfe, b'\n']).unwrap();
        let entries = [
            entry("bin.index", EntryKind::Plain, 1),
            entry("relay.index", EntryKind::Plain, 1),
            entry("odd.index", EntryKind::Plain, 3),
            entry("gone.index", EntryKind::Plain, 1),
            entry("long.index", EntryKind::Plain, INDEX_LEN_MAX_BYTES + 1),
        ];
        let missing = missing_logs(directory.path(), &entries);
        let expected = MissingLogs { index: "bin.index".into(), logs: vec!["bin.000002".into()] };
        assert_eq!(missing, [expected]);
    }
}
