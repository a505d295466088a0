//! Changes of the names, so that other names can follow without a copy of all of them.
//!
//! A [`NameChange`] is the new value of an entry, not an operation. So of many changes of one entry only the last is
//! kept, and the frequent ones (the server's checkpoints, lengths of files) are short.
//!
//! Invariant: names to which the changes were applied equal the names from which they were taken.
//!
//! They are stored, as JSON, in the names of a volume ([`crate::checkpoint::names_file`]).

use super::tables::Tables;
use super::{FileEntry, LogFileEntry, LogSetEntry, ObjectEntry};
use redoubt_redo::Lsn;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// New value of one entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NameChange {
    /// The numbers of the next file and the next object.
    Next {
        /// Of the next file.
        file: u32,
        /// Of the next object.
        object: u32,
    },
    /// A file.
    File(u32, FileEntry),
    /// A file that is otherwise as it was has this length in bytes.
    FileLen(u32, u64),
    /// There is no such file.
    FileGone(u32),
    /// A tablespace incarnation.
    Object(u32, ObjectEntry),
    /// It is dead.
    ObjectGone(u32),
    /// A directory, with its permission bits.
    Directory(String, u32),
    /// There is no such directory.
    DirectoryGone(String),
    /// The files of the system tablespace with their lengths in bytes.
    SystemFiles(Vec<(String, u64)>),
    /// The redo log file.
    LogFile(LogFileEntry),
    /// A checkpoint block of the log, which is otherwise unchanged.
    Checkpoint(u8, Vec<u8>),
    /// The files of MySQL's redo log.
    LogSet(LogSetEntry),
    /// The server's checkpoint in them, which are otherwise as they were.
    LogSetCheckpoint(u64),
}

/// Changes that belong together, shared because they are only read.
pub type NameChanges = Arc<Vec<NameChange>>;

/// Keys of the changed entries. Their values are looked up on request.
#[derive(Clone, Debug, Default)]
pub(super) struct Changed {
    pub next: bool,
    pub system_files: bool,
    pub log_file: bool,
    /// True: more than its length.
    files: BTreeMap<u32, bool>,
    objects: BTreeSet<u32>,
    directories: BTreeSet<String>,
    checkpoints: BTreeSet<u8>,
    pub log_set: bool,
    pub log_set_checkpoint: bool,
}

impl Changed {
    pub fn file(&mut self, id: u32) {
        self.files.insert(id, true);
    }

    pub fn file_len(&mut self, id: u32) {
        self.files.entry(id).or_default();
    }

    pub fn object(&mut self, id: u32) {
        self.objects.insert(id);
    }

    pub fn directory(&mut self, path: &str) {
        self.directories.insert(path.to_owned());
    }

    pub fn checkpoint(&mut self, slot: u8) {
        self.checkpoints.insert(slot);
    }

    /// Current values of all changed entries.
    pub fn describe(self, tables: &Tables) -> Vec<NameChange> {
        let mut changes = Vec::new();
        if self.next {
            changes.push(tables.next());
        }
        changes.extend(self.directories.into_iter().map(|path| match tables.directories().get(&path) {
            Some(mode) => NameChange::Directory(path, *mode),
            None => NameChange::DirectoryGone(path),
        }));
        changes.extend(self.objects.into_iter().map(|id| match tables.objects().get(&id) {
            Some(entry) => NameChange::Object(id, entry.clone()),
            None => NameChange::ObjectGone(id),
        }));
        changes.extend(self.files.into_iter().map(|(id, is_whole)| match tables.files().get(&id) {
            Some(entry) if is_whole => NameChange::File(id, entry.clone()),
            Some(entry) => NameChange::FileLen(id, entry.len_bytes),
            None => NameChange::FileGone(id),
        }));
        if self.system_files {
            changes.push(NameChange::SystemFiles(tables.system_files().to_vec()));
        }
        if let Some(log_file) = tables.log_file() {
            if self.log_file {
                changes.push(NameChange::LogFile(log_file.clone()));
            } else {
                let block = |slot: u8| Some((slot, log_file.checkpoints.get(usize::from(slot))?.clone()));
                let blocks = self.checkpoints.into_iter().filter_map(block);
                changes.extend(blocks.map(|(slot, block)| NameChange::Checkpoint(slot, block)));
            }
        }
        if let Some(log_set) = tables.log_set() {
            if self.log_set {
                changes.push(NameChange::LogSet(log_set.clone()));
            } else if self.log_set_checkpoint {
                changes.push(NameChange::LogSetCheckpoint(log_set.checkpoint_server_lsn));
            }
        }
        changes
    }
}

/// Everything, as changes of nothing.
pub(super) fn all(tables: &Tables) -> impl Iterator<Item = NameChange> {
    let directories = tables.directories().iter();
    let objects = tables.objects().iter();
    let files = tables.files().iter();
    let system_files =
        (!tables.system_files().is_empty()).then(|| NameChange::SystemFiles(tables.system_files().to_vec()));
    std::iter::once(tables.next())
        .chain(directories.map(|(path, mode)| NameChange::Directory(path.clone(), *mode)))
        .chain(objects.map(|(id, entry)| NameChange::Object(*id, entry.clone())))
        .chain(files.map(|(id, entry)| NameChange::File(*id, entry.clone())))
        .chain(system_files)
        .chain(tables.log_file().cloned().map(NameChange::LogFile))
        .chain(tables.log_set().cloned().map(NameChange::LogSet))
}

/// The server's checkpoint in MySQL's redo log after these changes; `before` is the former log.
pub(super) fn log_set_checkpoint_after(before: Option<&LogSetEntry>, changes: &[NameChange]) -> Option<Lsn> {
    let after = |change: &NameChange| match change {
        NameChange::LogSet(log_set) => Some(log_set.checkpoint_server_lsn),
        NameChange::LogSetCheckpoint(lsn) => Some(*lsn),
        _ => None,
    };
    let lsn = changes.iter().rev().find_map(after).or_else(|| Some(before?.checkpoint_server_lsn))?;
    LogSetEntry { checkpoint_server_lsn: lsn, ..LogSetEntry::default() }.checkpoint()
}

/// The redo log file after these changes; `before` is the former one.
pub(super) fn log_file_after(before: Option<&LogFileEntry>, changes: &[NameChange]) -> Option<LogFileEntry> {
    let mut log_file = before.cloned();
    for change in changes {
        match (change, &mut log_file) {
            (NameChange::LogFile(entry), log_file) => *log_file = Some(entry.clone()),
            (NameChange::Checkpoint(slot, block), Some(log_file)) => {
                log_file.set_checkpoint(*slot, block);
            }
            _ => {}
        }
    }
    log_file
}
