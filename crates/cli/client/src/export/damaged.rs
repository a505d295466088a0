//! Missing and damaged parts of an export.

use super::binary_logs::{MissingLogs, missing_logs};
use crate::control::printable;
use crate::events::{Events, bytes};
use redoubt_wire::control::{EntryKind, FrozenEnd, Reply, VolumeEntry, is_needed_to_start};
use std::path::Path;

/// Files that one message names.
const NAMED_FILES: usize = 20;

/// Files with damaged pages, and the end of a volume that is frozen.
#[derive(Default)]
pub struct DamagedFiles {
    left_out: Vec<String>,
    /// Those of `left_out` without which a server may not start.
    needed: Vec<String>,
    written: Vec<String>,
    missing_logs: Vec<MissingLogs>,
    frozen: Option<FrozenEnd>,
}

impl DamagedFiles {
    /// None yet.
    pub(super) fn of(frozen: Option<FrozenEnd>) -> Self {
        Self { frozen, ..Self::default() }
    }

    /// Looks for binary logs that an index names and the export in `to` does not have: the index may be newer than the list
    /// of files, if the volume is not exactly the state at its end.
    pub(super) fn note_missing_binary_logs(&mut self, to: &Path, entries: &[VolumeEntry]) {
        if self.frozen.as_ref().is_some_and(|frozen| frozen.changes_end.is_some()) {
            self.missing_logs = missing_logs(to, entries);
        }
    }

    /// Number of files that are not in the export.
    pub fn left_out(&self) -> usize {
        self.left_out.len()
    }

    /// Decides about a file by the node's last reply about it. Reports the damage, and remembers it.
    pub(super) fn leaves_out(
        &mut self,
        entry: &VolumeEntry,
        reply: &Reply,
        with_damaged: bool,
        events: &dyn Events,
    ) -> bool {
        let Reply::Damaged { pages, first } = reply else { return false };
        let path = &entry.path;
        // The log of another export does not fit, and this one has no redo but is whole.
        let is_needed = match entry.kind {
            EntryKind::Tablespace => is_needed_to_start(path),
            kind => kind == EntryKind::RedoLog,
        };
        let is_written = with_damaged || is_needed;
        let fate = if is_written { "written as stored" } else { "left out" };
        let defects: Vec<_> = first.iter().map(|defect| printable(defect)).collect();
        events.note(&format!("{path}: {pages} damaged pages or pieces; {fate}. {}", defects.join(". ")));
        if is_written {
            self.written.push(path.clone());
        } else {
            self.left_out.push(path.clone());
            if entry.kind != EntryKind::Tablespace && is_plain_file_needed_to_start(path) {
                self.needed.push(path.clone());
            }
        }
        !is_written
    }

    /// The missing and damaged parts, and the way on; `None`: there are none.
    pub fn summary(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(frozen) = &self.frozen {
            parts.push(of_frozen(frozen));
        }
        if !self.left_out.is_empty() {
            parts.push(format!(
                "the export is whole except for {} damaged files, which were left out: {}. --with-damaged writes them, too",
                self.left_out.len(),
                listed(&self.left_out)
            ));
            parts.push(if self.needed.is_empty() {
                "A server starts without them, if need be with innodb_force_recovery=1, and their tables can be dropped"
                    .to_owned()
            } else {
                format!(
                    "A server may not start on this copy without {}. Put the files of an earlier export or of a backup \
                     there, or those of a new data directory",
                    listed(&self.needed)
                )
            });
        }
        if !self.written.is_empty() {
            parts.push(format!(
                "{} damaged files were written as they are stored: {}",
                self.written.len(),
                listed(&self.written)
            ));
        }
        parts.extend(self.missing_logs.iter().map(|missing| {
            format!(
                "{} names binary logs that are not in the export: {}. A server with a binary log starts when the lines of \
                 files that are not there are removed from it. If it reports prepared transactions then, start it once with \
                 --tc-heuristic-recover=COMMIT, which keeps those that may have been acknowledged",
                missing.index,
                listed(&missing.logs)
            )
        }));
        (!parts.is_empty()).then(|| parts.join(". "))
    }
}

fn of_frozen(frozen: &FrozenEnd) -> String {
    let exactness = match frozen.changes_end {
        None => "it is the state at that point".to_owned(),
        Some(_) => "it is not exactly the state at that point: plain files and pages may have later changes"
            .to_owned(),
    };
    let missing = match frozen.bytes_after {
        0 if frozen.changes_end == Some(u64::MAX) => {
            "it is not known whether commits after that were acknowledged".to_owned()
        }
        0 => "the log has nothing acknowledged after that".to_owned(),
        bytes_after => format!(
            "acknowledged commits after that are missing (at least {} of the log)",
            bytes(bytes_after)
        ),
    };
    format!("the volume is frozen: the export ends at LSN {}, and {missing}; {exactness}", frozen.lsn)
}

/// A server may not start without this plain file: the system tables, Aria's log, the binary log and its index.
fn is_plain_file_needed_to_start(path: &str) -> bool {
    path.starts_with("mysql/") || !(path.contains('/') || path == "ib_buffer_pool")
}

fn listed(files: &[String]) -> String {
    let named = files.get(..NAMED_FILES.min(files.len())).unwrap_or_default().join(", ");
    let more = files.len().saturating_sub(NAMED_FILES);
    if more > 0 { format!("{named} and {more} more") } else { named }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Ignored;

    fn entry(path: &str, kind: EntryKind) -> VolumeEntry {
        VolumeEntry { path: path.to_owned(), kind, mode: 0o660, len_bytes: 1, checksum: None }
    }

    fn summary(frozen: Option<FrozenEnd>, entries: &[VolumeEntry], with_damaged: bool) -> Option<String> {
        let mut files = DamagedFiles::of(frozen);
        let reply = Reply::Damaged { pages: 1, first: Vec::new() };
        for entry in entries {
            files.leaves_out(entry, &reply, with_damaged, &Ignored);
        }
        files.summary()
    }

    #[test]
    fn summary_names_the_files_that_a_server_needs() {
        for (path, is_needed) in [
            ("mysql/global_priv.MAD", true),
            ("aria_log_control", true),
            ("binlog.index", true),
            ("ib_buffer_pool", false),
            ("d/t.frm", false),
            ("d/t.MYD", false),
        ] {
            let text = summary(None, &[entry(path, EntryKind::Plain)], false).unwrap();
            assert_eq!(text.contains("may not start on this copy"), is_needed, "{text}");
            assert!(text.contains(path), "{text}");
            let text = summary(None, &[entry(path, EntryKind::Plain)], true).unwrap();
            assert!(text.contains("written as they are stored") && !text.contains("left out"), "{text}");
        }
        let text = summary(None, &[entry("ibdata1", EntryKind::Tablespace)], false).unwrap();
        assert!(text.contains("written as they are stored: ibdata1"), "{text}");
        let text = summary(None, &[entry("ib_logfile0", EntryKind::RedoLog)], false).unwrap();
        assert!(text.contains("written as they are stored: ib_logfile0"), "{text}");
        assert_eq!(summary(None, &[], false), None);
    }

    #[test]
    fn summary_of_a_frozen_volume_names_the_missing_commits() {
        let exact = FrozenEnd { lsn: 77, bytes_after: 2048, changes_end: None };
        let text = summary(Some(exact.clone()), &[], false).unwrap();
        assert!(text.contains("LSN 77") && text.contains("2.0 KiB") && text.contains("commits"), "{text}");
        assert!(!text.contains("not exactly"), "{text}");
        let inexact = FrozenEnd { changes_end: Some(99), ..exact };
        assert!(summary(Some(inexact), &[], true).unwrap().contains("not exactly"));
        let unknown = FrozenEnd { lsn: 77, bytes_after: 0, changes_end: Some(u64::MAX) };
        let text = summary(Some(unknown), &[], true).unwrap();
        assert!(text.contains("not known") && !text.contains("nothing acknowledged"), "{text}");
    }
}
