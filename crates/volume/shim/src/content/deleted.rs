//! Tablespace files that the redo has deleted and that the server is about to unlink.
//!
//! The server logs FILE_DELETE, waits until that is durable, and then unlinks the file. Its page cleaner may write
//! pages in between, when the node has already let go of the tablespace.
//!
//! Invariant: a path is here before the node can see its FILE_DELETE, and until the name is created, renamed or
//! unlinked. The number of paths is that of the files that are being dropped.

use redoubt_locks::IgnorePoison;
use redoubt_redo::{FileRecord, Mtr};
use rustc_hash::FxHashSet;
use std::sync::{Mutex, MutexGuard};

/// See the module. Paths are relative to the data directory.
#[derive(Debug, Default)]
pub struct DeletedFiles(Mutex<FxHashSet<Vec<u8>>>);

/// Redo has the path as the server opened it.
fn relative(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"./").unwrap_or(path)
}

impl DeletedFiles {
    fn lock(&self) -> MutexGuard<'_, FxHashSet<Vec<u8>>> {
        self.0.lock().ignore_poison()
    }

    /// Takes in a mini-transaction that is not in the stream yet.
    pub fn observe(&self, mtr: &Mtr<'_, '_>) {
        for note in mtr.files {
            match note.record {
                FileRecord::Delete { path } => {
                    self.lock().insert(relative(path).to_vec());
                }
                FileRecord::Create { path } => self.forget(relative(path)),
                _ => {}
            }
        }
    }

    /// Whether the redo has deleted the file at `path`, and nothing was done to that name since.
    pub fn contains(&self, path: &[u8]) -> bool {
        self.lock().contains(path)
    }

    /// The file was unlinked or renamed, or another one took its name.
    pub fn forget(&self, path: &[u8]) {
        self.lock().remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redoubt_redo::FileNote;
    use redoubt_redo::{Lsn, SpaceId};

    fn observe(files: &DeletedFiles, record: FileRecord<'_>) {
        let notes = [FileNote { space: SpaceId(7), record }];
        files.observe(&Mtr {
            start_lsn: Lsn(1),
            end_lsn: Lsn(2),
            bytes: &[],
            records: &[],
            offset_in_bytes: 0,
            runs: &[],
            contents: &[],
            files: &notes,
            index_loads: &[],
        });
    }

    #[test]
    fn a_file_is_deleted_from_its_record_until_its_name_is_free_or_anothers() {
        let files = DeletedFiles::default();
        observe(&files, FileRecord::Delete { path: b"./d/t.ibd" });
        assert!(files.contains(b"d/t.ibd") && !files.contains(b"d/u.ibd"));
        files.forget(b"d/t.ibd");
        assert!(!files.contains(b"d/t.ibd"));
        observe(&files, FileRecord::Delete { path: b"./d/t.ibd" });
        observe(&files, FileRecord::Create { path: b"./d/t.ibd" });
        assert!(!files.contains(b"d/t.ibd"));
    }
}
