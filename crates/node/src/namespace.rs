//! The names of a volume: directories, files, which file holds which tablespace, and the redo log file's shape.
//!
//! A pure state machine: the parser feeds it stream frames and FILE_ records in stream order, and the same
//! frames always give the same state, numbers included. So a snapshot taken at A plus the frames after A give
//! the state at W again. It does no I/O.
//!
//! Three kinds of numbers:
//! * a *file* ([`FileId`]) is what the server opened; it survives a rename;
//! * an *object* ([`ObjectId`]) is one incarnation of a tablespace in the page store. Dropping a tablespace, or
//!   truncating an undo tablespace, ends the object, and every record indexed for it becomes void;
//! * a *space* is the server's tablespace id. FILE_ records and observed page writes say which file holds it;
//!   nothing else does. Names follow the server's system calls, not the FILE_ records, because that is what its
//!   own directory would look like at the same point of the stream.

use crate::error::NodeError;
use redoubt_pagestore::ObjectId;
use redoubt_redo::mariadb::record::FileRecord;
use redoubt_redo::{Lsn, SpaceId};
use redoubt_wire::control::{Entry, EntryKind};
use redoubt_wire::page::FileId;
use redoubt_wire::stream::{FileKind, SystemFile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A file of the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Relative path.
    pub path: String,
    /// InnoDB pages (else a plain file).
    pub tablespace: bool,
    /// Permission bits.
    pub mode: u32,
    /// Length in bytes (tablespaces: of the server's stub; plain files: see the plain store).
    pub len_bytes: u64,
    /// The tablespace incarnation it holds, once known.
    pub object: Option<u32>,
    /// Offset of its first byte inside the tablespace (second and later files of the system tablespace).
    pub first_byte: u64,
    /// The redo says that it is deleted, and its unlink has not been seen. The server lets writes end that are under way
    /// then, so pages may still come for it; they are of nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_deleted: bool,
}

/// An incarnation of a tablespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectEntry {
    /// The server's tablespace id; `None` for pages written before any redo names the space (IMPORT).
    pub space: Option<u32>,
    /// FSP_SPACE_FLAGS, once page 0 was seen.
    pub flags: Option<u32>,
    /// Name in the last FILE_ record, to link a file created later.
    pub name: Option<String>,
}

/// The server's redo log file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFileEntry {
    /// Size in bytes.
    pub file_size_bytes: u64,
    /// First 512 bytes.
    pub header: Vec<u8>,
    /// Used bytes of the checkpoint blocks.
    pub checkpoints: [Vec<u8>; 2],
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    next_file: u32,
    next_object: u32,
    directories: BTreeMap<String, u32>,
    files: BTreeMap<u32, FileEntry>,
    paths: BTreeMap<String, u32>,
    objects: BTreeMap<u32, ObjectEntry>,
    spaces: BTreeMap<u32, u32>,
    system_files: Vec<(String, u64)>,
    log_file: Option<LogFileEntry>,
}

/// What the caller has to do in the page store or plain store after a change of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The object is dead. Once that is durable its index entries are void; once this point is checkpointed its
    /// pages can go.
    ObjectDead(ObjectId, ObjectEntry),
    /// The plain file is gone.
    PlainGone(FileId),
}

impl Namespace {
    /// The file at `path`.
    pub fn file_at(&self, path: &str) -> Option<(FileId, &FileEntry)> {
        let id = *self.paths.get(path)?;
        Some((FileId(id), self.files.get(&id)?))
    }

    /// A file by its number.
    pub fn file(&self, id: FileId) -> Option<&FileEntry> {
        self.files.get(&id.0)
    }

    /// All files.
    pub fn files(&self) -> impl Iterator<Item = (FileId, &FileEntry)> {
        self.files.iter().map(|(id, entry)| (FileId(*id), entry))
    }

    /// All directories with their permission bits, parents first.
    pub fn directories(&self) -> impl Iterator<Item = (&str, u32)> {
        self.directories.iter().map(|(path, mode)| (path.as_str(), *mode))
    }

    /// A live object.
    pub fn object(&self, id: ObjectId) -> Option<&ObjectEntry> {
        self.objects.get(&id.0)
    }

    /// All live objects, with what is known of them.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.objects.keys().map(|id| ObjectId(*id))
    }

    /// Directories and files, parents first, then the redo log. `plain_len` gives the length of a plain file in bytes.
    ///
    /// # Errors
    /// Those of `plain_len`.
    pub fn entries(
        &self,
        plain_len: impl Fn(FileId) -> Result<u64, NodeError>,
    ) -> Result<Vec<Entry>, NodeError> {
        let directory = |(path, mode): (&str, u32)| Entry {
            path: path.to_owned(),
            kind: EntryKind::Directory,
            mode,
            len_bytes: 0,
            checksum: None,
        };
        let mut entries: Vec<_> = self.directories().map(directory).collect();
        for (id, entry) in self.files() {
            entries.push(Entry {
                path: entry.path.clone(),
                kind: if entry.tablespace { EntryKind::Tablespace } else { EntryKind::Plain },
                mode: entry.mode,
                len_bytes: if entry.tablespace { entry.len_bytes } else { plain_len(id)? },
                checksum: None,
            });
        }
        if let Some(log_file) = self.log_file() {
            entries.push(Entry {
                path: "ib_logfile0".to_owned(),
                kind: EntryKind::RedoLog,
                mode: 0o660,
                len_bytes: log_file.file_size_bytes,
                checksum: None,
            });
        }
        Ok(entries)
    }

    /// The redo log file, if there is one yet.
    pub fn log_file(&self) -> Option<&LogFileEntry> {
        self.log_file.as_ref()
    }

    /// The live object of a space; a new one if redo names the space for the first time.
    pub fn object_of_space(&mut self, space: SpaceId) -> ObjectId {
        if let Some(object) = self.spaces.get(&space.0) {
            return ObjectId(*object);
        }
        let object = self.new_object(ObjectEntry { space: Some(space.0), ..ObjectEntry::default() });
        self.spaces.insert(space.0, object.0);
        if space.0 == 0 {
            self.link_system_files(object);
        }
        object
    }

    /// The live object of a space, without creating one.
    pub fn known_object_of_space(&self, space: SpaceId) -> Option<ObjectId> {
        self.spaces.get(&space.0).map(|object| ObjectId(*object))
    }

    /// The object behind a file; a new one, without a space, if pages are written before redo names it. `None` for a
    /// file that is gone or about to go.
    pub fn object_of_file(&mut self, id: FileId) -> Option<ObjectId> {
        let entry = self.files.get(&id.0).filter(|entry| !entry.is_deleted)?;
        if let Some(object) = entry.object {
            return Some(ObjectId(object));
        }
        let object = self.new_object(ObjectEntry::default());
        if let Some(entry) = self.files.get_mut(&id.0) {
            entry.object = Some(object.0);
        }
        Some(object)
    }

    /// The flags of an object are known now.
    pub fn set_flags(&mut self, object: ObjectId, flags: u32) {
        if let Some(entry) = self.objects.get_mut(&object.0) {
            entry.flags = Some(flags);
        }
    }

    fn new_object(&mut self, entry: ObjectEntry) -> ObjectId {
        let id = self.next_object;
        self.next_object += 1;
        self.objects.insert(id, entry);
        ObjectId(id)
    }

    fn kill_object(&mut self, object: u32, effects: &mut Vec<Effect>) {
        let Some(entry) = self.objects.remove(&object) else { return };
        if let Some(space) = entry.space
            && self.spaces.get(&space) == Some(&object)
        {
            self.spaces.remove(&space);
        }
        for file in self.files.values_mut().filter(|file| file.object == Some(object)) {
            file.object = None;
        }
        effects.push(Effect::ObjectDead(ObjectId(object), entry));
    }

    /// A FILE_ record.
    ///
    /// # Errors
    /// If a path is not UTF-8 or leaves the volume: the redo cannot be followed.
    pub fn file_record(
        &mut self,
        space: SpaceId,
        record: &FileRecord<'_>,
        lsn: Lsn,
    ) -> Result<Vec<Effect>, NodeError> {
        let mut effects = Vec::new();
        match record {
            FileRecord::Create { path } | FileRecord::Modify { path } => {
                let path = redo_path(path, lsn)?;
                self.bind_by_name(space, &path, &mut effects);
            }
            FileRecord::Rename { new_path, .. } => {
                let path = redo_path(new_path, lsn)?;
                let object = self.object_of_space(space);
                if let Some(entry) = self.objects.get_mut(&object.0) {
                    entry.name = Some(path);
                }
            }
            FileRecord::Delete { .. } => {
                if let Some(object) = self.spaces.get(&space.0).copied() {
                    for file in self.files.values_mut().filter(|file| file.object == Some(object)) {
                        file.is_deleted = true;
                    }
                    self.kill_object(object, &mut effects);
                }
            }
            FileRecord::Checkpoint { .. } => {}
        }
        Ok(effects)
    }

    fn bind_by_name(&mut self, space: SpaceId, path: &str, effects: &mut Vec<Effect>) {
        if let Some(file) = self.paths.get(path).copied() {
            self.bind(space, file, effects);
        }
        let object = self.object_of_space(space);
        if let Some(entry) = self.objects.get_mut(&object.0) {
            entry.name = Some(path.to_owned());
        }
    }

    /// The server was seen to write pages of `space` to the file at `path`.
    pub fn bind_space(&mut self, path: &str, space: SpaceId) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some(file) = self.paths.get(path).copied() {
            self.bind(space, file, &mut effects);
        }
        effects
    }

    fn bind(&mut self, space: SpaceId, file: u32, effects: &mut Vec<Effect>) {
        let of_file = self.files.get(&file).and_then(|entry| entry.object);
        let of_space = self.spaces.get(&space.0).copied();
        match (of_file, of_space) {
            // Pages came before the first redo of the space: that object becomes the space's.
            (Some(object), None) if self.objects.get(&object).is_some_and(|entry| entry.space.is_none()) => {
                self.spaces.insert(space.0, object);
                if let Some(entry) = self.objects.get_mut(&object) {
                    entry.space = Some(space.0);
                }
            }
            (Some(object), Some(known)) if object == known => {}
            // The file holds another live tablespace: its own rename has not been seen yet. Names follow
            // system calls, so nothing changes here.
            (Some(object), _) if self.objects.get(&object).is_some_and(|entry| entry.space.is_some()) => {}
            (placeholder, _) => {
                let object = self.object_of_space(space);
                if let Some(entry) = self.files.get_mut(&file) {
                    entry.object = Some(object.0);
                    entry.is_deleted = false;
                }
                if let Some(placeholder) = placeholder {
                    self.kill_object(placeholder, effects);
                }
            }
        }
    }

    /// TRIM_PAGES: the space starts anew. Returns its new object.
    pub fn trim(&mut self, space: SpaceId) -> (ObjectId, Vec<Effect>) {
        let mut effects = Vec::new();
        let Some(old) = self.spaces.get(&space.0).copied() else {
            return (self.object_of_space(space), effects);
        };
        let unknown = || ObjectEntry { space: Some(space.0), ..ObjectEntry::default() };
        let entry = self.objects.get(&old).cloned().unwrap_or_else(unknown);
        let new = self.new_object(entry);
        for file in self.files.values_mut().filter(|file| file.object == Some(old)) {
            file.object = Some(new.0);
        }
        self.kill_object(old, &mut effects);
        self.spaces.insert(space.0, new.0);
        (new, effects)
    }

    /// A file was created, or emptied if it existed.
    pub fn create(&mut self, path: &str, kind: FileKind, mode: u32) -> (FileId, Vec<Effect>) {
        let mut effects = Vec::new();
        let tablespace = kind == FileKind::Tablespace;
        if let Some(id) = self.paths.get(path).copied() {
            if self.files.get(&id).is_some_and(|entry| !entry.tablespace && !tablespace) {
                return (FileId(id), effects);
            }
            self.remove_file(id, &mut effects);
        }
        let id = self.next_file;
        self.next_file += 1;
        let object = tablespace.then(|| self.unlinked_object_named(path)).flatten();
        self.files.insert(
            id,
            FileEntry {
                path: path.to_owned(),
                tablespace,
                mode,
                len_bytes: 0,
                object,
                first_byte: 0,
                is_deleted: false,
            },
        );
        self.paths.insert(path.to_owned(), id);
        if tablespace && self.system_files.iter().any(|(name, _)| name == path) {
            let object = self.object_of_space(SpaceId(0));
            self.link_system_files(object);
        }
        (FileId(id), effects)
    }

    fn unlinked_object_named(&self, path: &str) -> Option<u32> {
        let (id, _) = self.objects.iter().rev().find(|(_, object)| object.name.as_deref() == Some(path))?;
        let linked = self.files.values().any(|file| file.object == Some(*id));
        (!linked).then_some(*id)
    }

    /// The files of the system tablespace, in order.
    pub fn set_system_files(&mut self, files: &[SystemFile]) -> Result<(), NodeError> {
        let mut named = Vec::with_capacity(files.len());
        for file in files {
            named.push((text_path(&file.path)?, file.len_bytes));
        }
        self.system_files = named;
        if let Some(object) = self.known_object_of_space(SpaceId(0)) {
            self.link_system_files(object);
        }
        Ok(())
    }

    fn link_system_files(&mut self, object: ObjectId) {
        let mut first_byte = 0;
        for (path, len_bytes) in &self.system_files {
            if let Some(entry) = self.paths.get(path).and_then(|id| self.files.get_mut(id)) {
                entry.object = Some(object.0);
                entry.first_byte = first_byte;
            }
            first_byte = first_byte.saturating_add(*len_bytes);
        }
    }

    /// The file at `path` has this length now.
    pub fn set_len(&mut self, path: &str, len_bytes: u64) -> Option<FileId> {
        let id = *self.paths.get(path)?;
        self.files.get_mut(&id)?.len_bytes = len_bytes;
        Some(FileId(id))
    }

    /// A file or directory was renamed.
    pub fn rename(&mut self, from: &str, to: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some(id) = self.paths.remove(from) {
            if let Some(target) = self.paths.get(to).copied() {
                self.remove_file(target, &mut effects);
            }
            self.paths.insert(to.to_owned(), id);
            if let Some(entry) = self.files.get_mut(&id) {
                to.clone_into(&mut entry.path);
            }
        } else if let Some(mode) = self.directories.remove(from) {
            self.directories.insert(to.to_owned(), mode);
            self.move_children(from, to);
        }
        effects
    }

    fn move_children(&mut self, from: &str, to: &str) {
        let prefix = format!("{from}/");
        let moved = |path: &str| path.strip_prefix(&prefix).map(|rest| format!("{to}/{rest}"));
        let paths: Vec<_> = self.paths.keys().filter_map(|path| Some((path.clone(), moved(path)?))).collect();
        for (old, new) in paths {
            if let Some(id) = self.paths.remove(&old) {
                if let Some(entry) = self.files.get_mut(&id) {
                    new.clone_into(&mut entry.path);
                }
                self.paths.insert(new, id);
            }
        }
        let directories: Vec<_> =
            self.directories.keys().filter_map(|path| Some((path.clone(), moved(path)?))).collect();
        for (old, new) in directories {
            if let Some(mode) = self.directories.remove(&old) {
                self.directories.insert(new, mode);
            }
        }
    }

    /// A file was unlinked.
    pub fn unlink(&mut self, path: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some(id) = self.paths.get(path).copied() {
            self.remove_file(id, &mut effects);
        }
        effects
    }

    fn remove_file(&mut self, id: u32, effects: &mut Vec<Effect>) {
        let Some(entry) = self.files.remove(&id) else { return };
        if self.paths.get(&entry.path) == Some(&id) {
            self.paths.remove(&entry.path);
        }
        match entry.object {
            Some(object) => self.kill_object(object, effects),
            None if !entry.tablespace => effects.push(Effect::PlainGone(FileId(id))),
            None => {}
        }
    }

    /// A directory was created.
    pub fn mkdir(&mut self, path: &str, mode: u32) {
        self.directories.insert(path.to_owned(), mode);
    }

    /// A directory was removed.
    pub fn rmdir(&mut self, path: &str) {
        self.directories.remove(path);
    }

    /// The redo log file has this shape now.
    pub fn set_log_file(&mut self, entry: LogFileEntry) {
        self.log_file = Some(entry);
    }

    /// A checkpoint block was written.
    pub fn set_checkpoint(&mut self, slot: u8, block: &[u8]) {
        if let Some(log_file) = &mut self.log_file
            && let Some(place) = log_file.checkpoints.get_mut(slot as usize)
        {
            *place = block.to_vec();
        }
    }
}

/// A path of the stream as text.
///
/// # Errors
/// If it is not UTF-8. The server encodes identifiers in ASCII; such a file is none of its own.
pub fn text_path(path: &[u8]) -> Result<String, NodeError> {
    match std::str::from_utf8(path) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(NodeError::Refused(format!(
            "file name {:?} in the data directory is not UTF-8; rename or remove that file",
            String::from_utf8_lossy(path)
        ))),
    }
}

fn redo_path(path: &[u8], lsn: Lsn) -> Result<String, NodeError> {
    let stripped = path.strip_prefix(b"./").unwrap_or(path);
    redoubt_wire::control::check_path(stripped).map_err(|error| NodeError::Redo {
        lsn,
        reason: format!(
            "tablespace path {:?}: {error}. Tablespaces outside the data directory (DATA DIRECTORY) are not supported",
            String::from_utf8_lossy(path)
        ),
    })?;
    text_path(stripped)
}

#[cfg(test)]
#[path = "namespace_tests.rs"]
mod tests;
