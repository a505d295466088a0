//! The entries of the names: maps both ways, and the recent changes.
//!
//! Every change of a [`super::Namespace`] goes through here, one entry at a time; no other code updates the maps.
//!
//! Invariants: `paths` is the inverse of `files`, `spaces` and `named` are inverses of `objects`, and `holders` lists
//! the files that hold an object. Where two entries claim the same path or space, the one set last has it.
//! So a set of changes gives the same maps in whatever order it is applied, as long as it ends without such a pair.
//! A value that is set to what it was is no change.

use super::changes::{Changed, NameChange, NameChanges};
use super::log_set::Front;
use super::{FileEntry, LogFileEntry, LogSetEntry, ObjectEntry};
use redoubt_redo::Lsn;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Maps of all entries of the names.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    next_file: u32,
    next_object: u32,
    directories: BTreeMap<String, u32>,
    files: BTreeMap<u32, FileEntry>,
    paths: BTreeMap<String, u32>,
    /// Object and file, for each file that holds one.
    holders: BTreeSet<(u32, u32)>,
    objects: BTreeMap<u32, ObjectEntry>,
    spaces: BTreeMap<u32, u32>,
    /// Objects by the name that redo gave them last.
    named: BTreeMap<String, BTreeSet<u32>>,
    system_files: Vec<(String, u64)>,
    log_file: Option<LogFileEntry>,
    log_set: Option<LogSetEntry>,
    /// Changes since the last call of [`Tables::take_changes`]; `None`: changes are not tracked.
    changed: Option<Changed>,
}

/// Compares the names; recent changes do not matter.
impl PartialEq for Tables {
    fn eq(&self, other: &Self) -> bool {
        let numbers = |of: &Self| (of.next_file, of.next_object);
        numbers(self) == numbers(other)
            && self.directories == other.directories
            && self.files == other.files
            && self.paths == other.paths
            && self.holders == other.holders
            && self.objects == other.objects
            && self.spaces == other.spaces
            && self.named == other.named
            && self.system_files == other.system_files
            && self.log_file == other.log_file
            && self.log_set == other.log_set
    }
}

impl Tables {
    pub fn files(&self) -> &BTreeMap<u32, FileEntry> {
        &self.files
    }

    pub fn objects(&self) -> &BTreeMap<u32, ObjectEntry> {
        &self.objects
    }

    pub fn directories(&self) -> &BTreeMap<String, u32> {
        &self.directories
    }

    pub fn system_files(&self) -> &[(String, u64)] {
        &self.system_files
    }

    pub fn log_file(&self) -> Option<&LogFileEntry> {
        self.log_file.as_ref()
    }

    pub fn log_set(&self) -> Option<&LogSetEntry> {
        self.log_set.as_ref()
    }

    pub fn file_at(&self, path: &str) -> Option<u32> {
        self.paths.get(path).copied()
    }

    pub fn object_of_space(&self, space: u32) -> Option<u32> {
        self.spaces.get(&space).copied()
    }

    /// The files that hold an object, the oldest first.
    pub fn holders_of(&self, object: u32) -> impl Iterator<Item = u32> {
        self.holders.range((object, 0)..=(object, u32::MAX)).map(|(_, file)| *file)
    }

    /// The newest object of this name.
    pub fn newest_named(&self, name: &str) -> Option<u32> {
        self.named.get(name)?.last().copied()
    }

    /// Paths of the files below a directory, whose path ends with `/` here.
    pub fn paths_below(&self, prefix: &str) -> Vec<String> {
        below(&self.paths, prefix)
    }

    /// Paths of the directories below a directory, whose path ends with `/` here.
    pub fn directories_below(&self, prefix: &str) -> Vec<String> {
        below(&self.directories, prefix)
    }

    /// A number that no file had before.
    pub fn new_file(&mut self) -> u32 {
        let number = self.next_file;
        self.set_next(number + 1, self.next_object);
        number
    }

    /// A number that no object had before.
    pub fn new_object(&mut self) -> u32 {
        let number = self.next_object;
        self.set_next(self.next_file, number + 1);
        number
    }

    fn set_next(&mut self, file: u32, object: u32) {
        (self.next_file, self.next_object) = (file, object);
        self.note(|changed| changed.next = true);
    }

    fn note(&mut self, note: impl FnOnce(&mut Changed)) {
        if let Some(changed) = &mut self.changed {
            note(changed);
        }
    }

    pub fn set_file(&mut self, id: u32, entry: FileEntry) {
        if self.files.get(&id) == Some(&entry) {
            return;
        }
        self.forget_file(id);
        self.paths.insert(entry.path.clone(), id);
        self.holders.extend(entry.object.map(|object| (object, id)));
        self.files.insert(id, entry);
        self.note(|changed| changed.file(id));
    }

    /// Changes a file, if it is there.
    pub fn change_file(&mut self, id: u32, change: impl FnOnce(&mut FileEntry)) {
        if let Some(mut entry) = self.files.get(&id).cloned() {
            change(&mut entry);
            self.set_file(id, entry);
        }
    }

    /// Length of a file in bytes. False: there is no such file.
    pub fn set_file_len(&mut self, id: u32, len_bytes: u64) -> bool {
        let Some(entry) = self.files.get_mut(&id) else { return false };
        if entry.len_bytes != len_bytes {
            entry.len_bytes = len_bytes;
            self.note(|changed| changed.file_len(id));
        }
        true
    }

    pub fn remove_file(&mut self, id: u32) -> Option<FileEntry> {
        let entry = self.forget_file(id)?;
        self.note(|changed| changed.file(id));
        Some(entry)
    }

    fn forget_file(&mut self, id: u32) -> Option<FileEntry> {
        let entry = self.files.remove(&id)?;
        if self.paths.get(&entry.path) == Some(&id) {
            self.paths.remove(&entry.path);
        }
        if let Some(object) = entry.object {
            self.holders.remove(&(object, id));
        }
        Some(entry)
    }

    pub fn set_object(&mut self, id: u32, entry: ObjectEntry) {
        if self.objects.get(&id) == Some(&entry) {
            return;
        }
        self.forget_object(id);
        if let Some(space) = entry.space {
            self.spaces.insert(space, id);
        }
        if let Some(name) = &entry.name {
            self.named.entry(name.clone()).or_default().insert(id);
        }
        self.objects.insert(id, entry);
        self.note(|changed| changed.object(id));
    }

    /// Changes an object, if it is there.
    pub fn change_object(&mut self, id: u32, change: impl FnOnce(&mut ObjectEntry)) {
        if let Some(mut entry) = self.objects.get(&id).cloned() {
            change(&mut entry);
            self.set_object(id, entry);
        }
    }

    pub fn remove_object(&mut self, id: u32) -> Option<ObjectEntry> {
        let entry = self.forget_object(id)?;
        self.note(|changed| changed.object(id));
        Some(entry)
    }

    fn forget_object(&mut self, id: u32) -> Option<ObjectEntry> {
        let entry = self.objects.remove(&id)?;
        if let Some(space) = entry.space
            && self.spaces.get(&space) == Some(&id)
        {
            self.spaces.remove(&space);
        }
        if let Some(name) = &entry.name
            && let Some(named) = self.named.get_mut(name)
        {
            named.remove(&id);
            if named.is_empty() {
                self.named.remove(name);
            }
        }
        Some(entry)
    }

    /// A directory with its permission bits; `None`: it is gone.
    pub fn set_directory(&mut self, path: &str, mode: Option<u32>) {
        let before = match mode {
            Some(mode) => self.directories.insert(path.to_owned(), mode),
            None => self.directories.remove(path),
        };
        if before != mode {
            self.note(|changed| changed.directory(path));
        }
    }

    pub fn set_system_files(&mut self, files: Vec<(String, u64)>) {
        if self.system_files != files {
            self.system_files = files;
            self.note(|changed| changed.system_files = true);
        }
    }

    /// Sets the redo log file: another file, or another length, for the same tablespaces.
    pub fn set_log_file(&mut self, mut entry: LogFileEntry) {
        if let Some(before) = &self.log_file {
            entry.last_file_operation_lsn = before.last_file_operation_lsn;
        }
        self.replace_log_file(entry);
    }

    /// A tablespace file was created, renamed, deleted or cut.
    pub fn note_file_operation(&mut self, lsn: Lsn) {
        if let Some(log_file) = &mut self.log_file {
            log_file.last_file_operation_lsn = lsn.0;
            self.note(|changed| changed.log_file = true);
        }
    }

    fn replace_log_file(&mut self, entry: LogFileEntry) {
        if self.log_file.as_ref() != Some(&entry) {
            self.log_file = Some(entry);
            self.note(|changed| changed.log_file = true);
        }
    }

    /// A checkpoint block of the redo log file, if there is that file.
    pub fn set_checkpoint(&mut self, slot: u8, block: &[u8]) {
        if self.log_file.as_mut().is_some_and(|log_file| log_file.set_checkpoint(slot, block)) {
            self.note(|changed| changed.checkpoint(slot));
        }
    }

    /// Changes the files of MySQL's redo log, which are there from now on.
    pub fn change_log_set<T>(&mut self, change: impl FnOnce(&mut LogSetEntry) -> T) -> T {
        let changed = change(self.log_set.get_or_insert_default());
        self.note(|changed| changed.log_set = true);
        changed
    }

    /// One of the first blocks of a file of MySQL's redo log was written.
    pub fn write_log_front(
        &mut self,
        path: &str,
        offset_bytes: u32,
        block: &[u8; 512],
    ) -> Result<(), String> {
        let log_set = self.log_set.get_or_insert_default();
        match log_set.write_front(path, offset_bytes, block)? {
            Front::Unchanged => {}
            Front::File => self.note(|changed| changed.log_set = true),
            Front::Checkpoint => self.note(|changed| changed.log_set_checkpoint = true),
        }
        Ok(())
    }

    fn set_log_set(&mut self, log_set: LogSetEntry) {
        if self.log_set.as_ref() != Some(&log_set) {
            self.change_log_set(|before| *before = log_set);
        }
    }

    fn set_log_set_checkpoint(&mut self, server_lsn: u64) {
        if let Some(log_set) = &mut self.log_set {
            log_set.checkpoint_server_lsn = server_lsn;
            self.note(|changed| changed.log_set_checkpoint = true);
        }
    }

    /// Tracks changes from now on.
    pub fn track(&mut self) {
        self.changed.get_or_insert_default();
    }

    /// Changes since the last call.
    pub fn take_changes(&mut self) -> NameChanges {
        let changed = self.changed.as_mut().map(std::mem::take).unwrap_or_default();
        Arc::new(changed.describe(self))
    }

    pub fn next(&self) -> NameChange {
        NameChange::Next { file: self.next_file, object: self.next_object }
    }

    pub fn apply(&mut self, change: &NameChange) {
        match change {
            NameChange::Next { file, object } => self.set_next(*file, *object),
            NameChange::File(id, entry) => self.set_file(*id, entry.clone()),
            NameChange::FileLen(id, len_bytes) => {
                self.set_file_len(*id, *len_bytes);
            }
            NameChange::FileGone(id) => {
                self.remove_file(*id);
            }
            NameChange::Object(id, entry) => self.set_object(*id, entry.clone()),
            NameChange::ObjectGone(id) => {
                self.remove_object(*id);
            }
            NameChange::Directory(path, mode) => self.set_directory(path, Some(*mode)),
            NameChange::DirectoryGone(path) => self.set_directory(path, None),
            NameChange::SystemFiles(files) => self.set_system_files(files.clone()),
            NameChange::LogFile(entry) => self.replace_log_file(entry.clone()),
            NameChange::Checkpoint(slot, block) => self.set_checkpoint(*slot, block),
            NameChange::LogSet(log_set) => self.set_log_set(log_set.clone()),
            NameChange::LogSetCheckpoint(server_lsn) => self.set_log_set_checkpoint(*server_lsn),
        }
    }
}

fn below<T>(paths: &BTreeMap<String, T>, prefix: &str) -> Vec<String> {
    let from = (Bound::Included(prefix), Bound::Unbounded);
    let paths = paths.range::<str, _>(from).map(|(path, _)| path);
    paths.take_while(|path| path.starts_with(prefix)).cloned().collect()
}
