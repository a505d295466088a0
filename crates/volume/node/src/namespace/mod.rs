//! The names of a volume: directories, files, which file holds which tablespace, and the redo log file's shape.
//!
//! A pure state machine: the parser feeds it stream frames and FILE_ records in stream order, and the same
//! frames always give the same state, numbers included. So a snapshot taken at A plus the frames after A give
//! the state at W again. It does no I/O. An operation takes time that grows with the files it concerns, and only with
//! the logarithm of how many there are.
//!
//! The operations change the entries through [`tables`]; [`changes`] lists the changes since a point, for names that
//! follow without a copy of all entries.
//!
//! Three kinds of numbers:
//! * a *file* ([`FileId`]) is a file that the server opened; it survives a rename;
//! * an *object* ([`ObjectId`]) is one incarnation of a tablespace in the page store. Dropping a tablespace, or
//!   truncating an undo tablespace, ends the object, and every record indexed for it becomes void;
//! * a *space* is the server's tablespace id. Only FILE_ records and observed page writes bind it to a file. Names
//!   follow the server's system calls, not the FILE_ records, because its own directory would look like that at the
//!   same point of the stream.

mod changes;
mod log_set;
mod operations;
mod tables;

pub use changes::{NameChange, NameChanges};
pub use log_set::{LogSetEntry, LogSetFile};

use crate::error::NodeError;
use crate::index::PageKey;
use redoubt_page::Format;
use redoubt_pagestore::ObjectId;
use redoubt_redo::mariadb::log_file::CheckpointBlock;
use redoubt_redo::{Family, FileRecord, Lsn, SpaceId};
use redoubt_wire::control::{EntryKind, VolumeEntry};
use redoubt_wire::page::FileId;
use redoubt_wire::stream::{FileKind, SystemFile};
use serde::{Deserialize, Serialize};
use tables::Tables;

/// Path of MariaDB's redo log file.
pub const LOG_FILE_PATH: &str = "ib_logfile0";

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<u32>,
    /// Offset of its first byte inside the tablespace (second and later files of the system tablespace).
    pub first_byte: u64,
    /// Redo has deleted it, and its unlink has not arrived. The server completes the writes that are under way then, so
    /// pages may still come for it; they belong to nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_deleted: bool,
}

/// An incarnation of a tablespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectEntry {
    /// The server's tablespace id; `None` for pages written before any redo names the space (IMPORT).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<u32>,
    /// FSP_SPACE_FLAGS, once page 0 was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flags: Option<u32>,
    /// Name in the last FILE_ record, to link a file created later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// LSN of the last record that creates, renames, deletes or cuts a tablespace file; 0: there was none. Volumes of
    /// nodes that did not note it have the highest number, until the next such record.
    #[serde(default = "unknown_lsn")]
    pub last_file_operation_lsn: u64,
}

fn unknown_lsn() -> u64 {
    u64::MAX
}

impl LogFileEntry {
    /// The server's newest checkpoint.
    pub fn checkpoint(&self) -> Option<Lsn> {
        let [first, second] = self.checkpoints.each_ref().map(|block| CheckpointBlock::parse(block));
        CheckpointBlock::newest(first, second).map(|block| block.checkpoint_lsn)
    }

    /// A checkpoint block was written. False: nothing is different.
    fn set_checkpoint(&mut self, slot: u8, block: &[u8]) -> bool {
        match self.checkpoints.get_mut(usize::from(slot)) {
            Some(place) if place != block => {
                block.clone_into(place);
                true
            }
            _ => false,
        }
    }
}

/// The names of a volume.
#[derive(Clone, Debug, Default)]
pub struct Namespace {
    tables: Tables,
    /// Family of the servers, as the volume's identity has it. Not a name: it is in no change.
    family: Option<Family>,
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        self.tables == other.tables
    }
}

/// Work in the page store or plain store that a change of names leaves to the caller.
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
        let id = self.tables.file_at(path)?;
        Some((FileId(id), self.tables.files().get(&id)?))
    }

    /// A file with this name, of redo at `lsn`, exists and may be the tablespace's: it belongs to no other tablespace.
    pub fn may_have_file_at(&self, space: SpaceId, path: &[u8], lsn: Lsn) -> bool {
        let path = redo_path(path, lsn).ok();
        let file = path.as_deref().and_then(|path| self.file_at(path));
        file.is_some_and(|(_, entry)| {
            let object = entry.object.and_then(|object| self.object(ObjectId(object)));
            object.and_then(|object| object.space).is_none_or(|of| of == space.0)
        })
    }

    /// A file by its number.
    pub fn file(&self, id: FileId) -> Option<&FileEntry> {
        self.tables.files().get(&id.0)
    }

    /// All files.
    pub fn files(&self) -> impl ExactSizeIterator<Item = (FileId, &FileEntry)> {
        self.tables.files().iter().map(|(id, entry)| (FileId(*id), entry))
    }

    /// All directories with their permission bits, parents first.
    pub fn directories(&self) -> impl Iterator<Item = (&str, u32)> {
        self.tables.directories().iter().map(|(path, mode)| (path.as_str(), *mode))
    }

    /// Permission bits of a directory.
    pub fn directory(&self, path: &str) -> Option<u32> {
        self.tables.directories().get(path).copied()
    }

    /// A live object.
    pub fn object(&self, id: ObjectId) -> Option<&ObjectEntry> {
        self.tables.objects().get(&id.0)
    }

    /// All live objects.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.tables.objects().keys().map(|id| ObjectId(*id))
    }

    /// The first live object from this number on.
    pub fn object_from(&self, first: ObjectId) -> Option<ObjectId> {
        self.tables.objects().range(first.0..).next().map(|(id, _)| ObjectId(*id))
    }

    /// The first file from this number on.
    pub fn file_from(&self, first: FileId) -> Option<(FileId, &FileEntry)> {
        self.tables.files().range(first.0..).next().map(|(id, entry)| (FileId(*id), entry))
    }

    /// The page at this place of a tablespace file.
    pub fn page_at(&self, path: &[u8], page_no: u32) -> Option<PageKey> {
        let (_, entry) = self.file_at(std::str::from_utf8(path).ok()?)?;
        let object = ObjectId(entry.object.filter(|_| entry.tablespace)?);
        let format = Format { family: self.family(), flags: self.object(object)?.flags? };
        let first_page = entry.first_byte.checked_div(format.physical_page_size_bytes() as u64)?;
        let page_no = first_page.checked_add(u64::from(page_no))?;
        Some(PageKey::new(object, u32::try_from(page_no).ok()?))
    }

    /// Path of the oldest file of an object.
    pub fn path_of_object(&self, object: ObjectId) -> Option<&str> {
        let file = self.tables.holders_of(object.0).next()?;
        Some(&self.tables.files().get(&file)?.path)
    }

    /// The file of an object that has this byte of it, and the byte's offset in the file.
    pub fn file_of_byte(&self, object: ObjectId, at: u64) -> Option<(&FileEntry, u64)> {
        let files = self.tables.holders_of(object.0).filter_map(|file| self.tables.files().get(&file));
        let before = files.filter(|entry| entry.first_byte <= at);
        // The oldest of those that begin at the same byte.
        let file =
            before.reduce(|best, entry| if entry.first_byte > best.first_byte { entry } else { best })?;
        Some((file, at - file.first_byte))
    }

    /// Length in bytes of all files of an object together.
    pub fn len_bytes_of_object(&self, object: ObjectId) -> u64 {
        let files = self.tables.holders_of(object.0).filter_map(|file| self.tables.files().get(&file));
        files.map(|entry| entry.first_byte.saturating_add(entry.len_bytes)).max().unwrap_or(0)
    }

    /// Tracks changes from now on, for [`Namespace::take_changes`].
    pub fn track(&mut self) {
        self.tables.track();
    }

    /// Changes since the last call, or since [`Namespace::track`].
    pub fn take_changes(&mut self) -> NameChanges {
        self.tables.take_changes()
    }

    /// Everything, as changes of empty names.
    pub fn all(&self) -> impl Iterator<Item = NameChange> {
        changes::all(&self.tables)
    }

    /// Follows the names that these changes were taken of.
    pub fn apply<'c>(&mut self, changes: impl IntoIterator<Item = &'c NameChange>) {
        changes.into_iter().for_each(|change| self.tables.apply(change));
    }

    /// The server's newest checkpoint, which its redo log names, as it would be after [`Namespace::apply`].
    pub fn server_checkpoint_after(&self, changes: &[NameChange]) -> Option<Lsn> {
        let log_file = changes::log_file_after(self.tables.log_file(), changes);
        let log_set_checkpoint = changes::log_set_checkpoint_after(self.tables.log_set(), changes);
        log_file.and_then(|log_file| log_file.checkpoint()).or(log_set_checkpoint)
    }

    /// The server's newest checkpoint, which its redo log names.
    pub fn server_checkpoint(&self) -> Option<Lsn> {
        self.server_checkpoint_after(&[])
    }

    /// Whose server writes the volume. MariaDB's until the identity has one.
    pub fn family(&self) -> Family {
        self.family.or_else(|| self.family_of_log()).unwrap_or(Family::MariaDb)
    }

    /// Whose redo log it has; `None`: it has none.
    pub fn family_of_log(&self) -> Option<Family> {
        let of_set = self.tables.log_set().map(|_| Family::MySql);
        of_set.or_else(|| self.tables.log_file().map(|_| Family::MariaDb))
    }

    /// The family that the volume's identity has.
    pub fn set_family(&mut self, family: Family) {
        self.family = Some(family);
    }

    /// There is a redo log that a server can start from.
    pub fn has_log(&self) -> bool {
        self.log_file().is_some() || self.log_set().is_some_and(LogSetEntry::is_usable)
    }

    /// Directories and files, parents first, then the redo log. `plain_len` gives the length of a plain file in bytes.
    ///
    /// # Errors
    /// Those of `plain_len`.
    pub fn entries(
        &self,
        plain_len: impl Fn(FileId) -> Result<u64, NodeError>,
    ) -> Result<Vec<VolumeEntry>, NodeError> {
        let directory = |(path, mode): (&str, u32)| VolumeEntry {
            path: path.to_owned(),
            kind: EntryKind::Directory,
            mode,
            len_bytes: 0,
            checksum: None,
        };
        let mut entries: Vec<_> = self.directories().map(directory).collect();
        for (id, entry) in self.files() {
            entries.push(VolumeEntry {
                path: entry.path.clone(),
                kind: if entry.tablespace { EntryKind::Tablespace } else { EntryKind::Plain },
                mode: entry.mode,
                len_bytes: if entry.tablespace { entry.len_bytes } else { plain_len(id)? },
                checksum: None,
            });
        }
        for (path, file) in self.log_set().into_iter().flat_map(|log_set| &log_set.files) {
            entries.push(VolumeEntry {
                path: path.clone(),
                kind: EntryKind::RedoLog,
                mode: file.mode,
                len_bytes: file.len_bytes,
                checksum: None,
            });
        }
        if let Some(log_file) = self.log_file() {
            entries.push(VolumeEntry {
                path: LOG_FILE_PATH.to_owned(),
                kind: EntryKind::RedoLog,
                mode: 0o660,
                len_bytes: log_file.file_size_bytes,
                checksum: None,
            });
        }
        Ok(entries)
    }

    /// The files of MySQL's redo log; `None`: the volume is not MySQL's, or new.
    pub fn log_set(&self) -> Option<&LogSetEntry> {
        self.tables.log_set()
    }

    /// MariaDB's redo log file, if there is one yet.
    pub fn log_file(&self) -> Option<&LogFileEntry> {
        self.tables.log_file()
    }
}

/// A path of the stream as text.
///
/// # Errors
/// If it is not UTF-8. The server encodes identifiers in ASCII; such a file is not its own.
pub fn text_path(path: &[u8]) -> Result<String, NodeError> {
    match std::str::from_utf8(path) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(NodeError::Refused(format!(
            "file name {:?} in the data directory is not UTF-8; rename or remove that file",
            String::from_utf8_lossy(path)
        ))),
    }
}

/// A path in a FILE_ record. It may be longer than any file's ([`is_no_file`]).
fn redo_path(path: &[u8], lsn: Lsn) -> Result<String, NodeError> {
    let stripped = path.strip_prefix(b"./").unwrap_or(path);
    redoubt_wire::control::check_path_inside(stripped).map_err(|error| NodeError::Redo {
        lsn,
        reason: format!(
            "tablespace path {:?}: {error}. Tablespaces outside the data directory (DATA DIRECTORY) are not supported",
            String::from_utf8_lossy(path)
        ),
    })?;
    text_path(stripped)
}

/// A path that stays in the volume and that no file can have: it is too long.
fn is_no_file(path: &str) -> bool {
    redoubt_wire::control::check_path(path.as_bytes()).is_err()
}

#[cfg(test)]
mod tests;
