//! The node's own checkpoint of a volume: how far it is applied, and the names as of that point.
//!
//! | file | what |
//! |---|---|
//! | `checkpoint` | A, the start of the required log, and the names that belong to A; replaced atomically |
//! | `names-*` | the names: all of them at one checkpoint, then the changes up to each later one ([`names_file`]) |
//!
//! Each has a copy, `checkpoint.copy` and `names-*.copy`: without them a volume is of no use ([`twice`]).
//!
//! `checkpoint` has the CRC-32C (8 hex) of the rest in its first line, then JSON. It is written when the pages and
//! plain files up to A, and the names that it refers to, are durable, and before anything older is given up. The part
//! of a names file past the end in the checkpoint is left over from a checkpoint that was not written, and is ignored.
//!
//! So a checkpoint costs the changes since the last one, however many files there are. The names file is replaced when
//! its changes are longer than the full list.
//!
//! Builds before 0.1.0 wrote format 1, which had all the names in `checkpoint`, and no names file. It is refused.

pub mod lines;
pub mod names_file;
pub mod twice;

use crate::error::{Kind, NodeError};
use crate::home::Folder;
use crate::mark::Point;
use crate::namespace::{NameChange, Namespace};
use names_file::{NamesEnd, NamesFile};
use redoubt_redo::Lsn;
use redoubt_storage::format_version::{unknown_version, version_before_0_1_0};
use redoubt_sync::planted::{Bug, is_planted};
use redoubt_sync::thread;
use redoubt_wire::Seq;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use twice::{read_twice, write_twice};

const FORMAT: u32 = 2;
const FILE_NAME: &str = "checkpoint";

/// The node's own checkpoint of a volume: how far it is applied, and the names as of that point.
#[derive(Clone, Debug)]
pub struct NodeCheckpoint {
    /// A: pages and plain files hold everything before it, and nothing of the names after it.
    pub applied: Point,
    /// First byte of the log that is still needed, with the LSN there (the server's own checkpoint may be
    /// older than A).
    pub log_start: Point,
    /// The log covers the page journal from there on (`volume/cover.rs`). `None`: not known.
    pub cover: Option<Point>,
    /// Names as of A.
    pub names: Arc<Namespace>,
}

impl NodeCheckpoint {
    /// First byte of the log that is still needed for anything.
    pub fn kept_from(&self) -> Point {
        self.cover.filter(|cover| cover.seq < self.log_start.seq).unwrap_or(self.log_start)
    }
}

/// Positions of a [`NodeCheckpoint`].
#[derive(Clone, Copy, Debug)]
pub struct Positions {
    /// A.
    pub applied: Point,
    /// See [`NodeCheckpoint::log_start`].
    pub log_start: Point,
    /// See [`NodeCheckpoint::cover`].
    pub cover: Option<Point>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    applied_seq: u64,
    applied_lsn: u64,
    log_start_seq: u64,
    log_start_lsn: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cover: Option<(u64, u64)>,
    names: NamesEnd,
    /// See [`CheckpointFiles::lists_files`].
    #[serde(default)]
    lists_files: bool,
}

fn point(seq: u64, lsn: u64) -> Point {
    Point { seq: Seq(seq), lsn: Lsn(lsn) }
}

/// The checkpoint of one volume on its disk. There is one at a time; it is the only writer of these files.
pub struct CheckpointFiles {
    directory: Folder,
    /// `None`: the first checkpoint is being made.
    names: Option<NamesFile>,
    /// Number of the next names file. No number is used twice: a checkpoint whose write failed may be on disk all the
    /// same, and the file that it may refer to must stay.
    next_number: u64,
    lists_files: bool,
}

impl CheckpointFiles {
    /// Makes the first checkpoint of a volume, at the start of the stream.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn create(directory: &Folder, names: &Namespace) -> Result<(), NodeError> {
        let mut files = Self { directory: directory.clone(), names: None, next_number: 1, lists_files: true };
        let begin = Positions { applied: Point::default(), log_start: Point::default(), cover: None };
        files.write(begin, &[], 0, || Arc::new(names.clone()))
    }

    /// Reads the checkpoint in `directory`. Changes nothing.
    ///
    /// # Errors
    /// [`NodeError::Io`] or [`NodeError::Damaged`].
    pub fn open(directory: &Folder) -> Result<(Self, NodeCheckpoint), NodeError> {
        let body = read_twice(directory, FILE_NAME)?;
        check_format(directory, FILE_NAME, &body, FORMAT..=FORMAT)?;
        let stored: Stored = parse(directory, FILE_NAME, &body)?;
        let (names_file, names) = NamesFile::open(directory, stored.names)?;
        let checkpoint = NodeCheckpoint {
            applied: point(stored.applied_seq, stored.applied_lsn),
            log_start: point(stored.log_start_seq, stored.log_start_lsn),
            cover: stored.cover.map(|(seq, lsn)| point(seq, lsn)),
            names: Arc::new(names),
        };
        let next_number = names_file.number() + 1;
        let lists_files = stored.lists_files;
        let files = Self { directory: directory.clone(), names: Some(names_file), next_number, lists_files };
        Ok((files, checkpoint))
    }

    /// Writes a lost copy of the checkpoint again. One of the names comes with the next checkpoint.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn renew(&self) -> Result<(), NodeError> {
        twice::renew(&self.directory, FILE_NAME)
    }

    /// The checkpoint that was read is of a build that keeps the list of stored files. Any other changes files without it.
    pub fn lists_files(&self) -> bool {
        self.lists_files
    }

    /// Replaces the checkpoint. `changes` are those of the names since the last one, `all` returns the names with them.
    /// The names file is replaced when its changes are longer than all names were, and than `least_log_bytes`.
    ///
    /// # Errors
    /// [`NodeError::Io`]; retryable if the disk is full. The last checkpoint is untouched then.
    pub fn write(
        &mut self,
        Positions { applied, log_start, cover }: Positions,
        changes: &[NameChange],
        least_log_bytes: u64,
        all: impl FnOnce() -> Arc<Namespace>,
    ) -> Result<(), NodeError> {
        let renewed = match &mut self.names {
            Some(names) if !names.is_long(least_log_bytes) => {
                names.append(changes)?;
                None
            }
            names => {
                let number = self.next_number;
                self.next_number += 1;
                match (NamesFile::create(&self.directory, number, &all()), names) {
                    (Err(error), Some(names)) if error.kind() == Kind::Retry && names.can_append() => {
                        names.append(changes)?;
                        None
                    }
                    (created, _) => Some(created?),
                }
            }
        };
        if let Some(renewed) = &renewed
            && is_planted(Bug::NamesRemovedEarly)
        {
            remove_names_but(&self.directory, Some(renewed.number()));
            thread::sleep(Duration::from_millis(50));
        }
        let Some(end) = renewed.as_ref().or(self.names.as_ref()).map(NamesFile::end) else { return Ok(()) };
        let stored = Stored {
            format: FORMAT,
            applied_seq: applied.seq.0,
            applied_lsn: applied.lsn.0,
            log_start_seq: log_start.seq.0,
            log_start_lsn: log_start.lsn.0,
            cover: cover.map(|cover| (cover.seq.0, cover.lsn.0)),
            names: end,
            lists_files: true,
        };
        let body = serde_json::to_vec(&stored)
            .map_err(|error| NodeError::io("encode", self.directory.path().join(FILE_NAME), error.into()))?;
        write_twice(&self.directory, FILE_NAME, &body)?;
        if renewed.is_some() {
            self.names = renewed;
            self.remove_leftovers();
        } else if let Some(names) = &mut self.names {
            names.keep();
        }
        Ok(())
    }

    /// Removes names files that the checkpoint does not refer to. They do no harm, so a failure is only logged.
    pub fn remove_leftovers(&self) {
        remove_names_but(&self.directory, self.names.as_ref().map(NamesFile::number));
    }
}

fn remove_names_but(directory: &Folder, kept: Option<u64>) {
    if let Err(error) = names_file::remove_others(directory, kept) {
        tracing::warn!(event = "names_file_not_removed", %error, "a names file that is no longer used cannot be removed");
    }
}

/// Rejects a file of a format that is not in `known` before any other field is read: a later format may have other
/// fields. Builds before 0.1.0 wrote the formats below `known`. Returns the format.
///
/// # Errors
/// [`NodeError::Damaged`] with the version found, the newest supported one, and the remedy.
pub fn check_format(
    directory: &Folder,
    name: &str,
    body: &[u8],
    known: std::ops::RangeInclusive<u32>,
) -> Result<u32, NodeError> {
    #[derive(Deserialize)]
    struct Head {
        format: u64,
    }
    let Head { format } = parse(directory, name, body)?;
    if let Some(format) = u32::try_from(format).ok().filter(|format| known.contains(format)) {
        return Ok(format);
    }
    let reason = match u32::try_from(format) {
        Ok(format) if (1..*known.start()).contains(&format) => version_before_0_1_0(format, *known.end()),
        _ => unknown_version(format, *known.end()),
    };
    Err(NodeError::Damaged { path: directory.path().join(name), reason })
}

/// Parses JSON of one of the node's own files.
///
/// # Errors
/// [`NodeError::Damaged`].
pub fn parse<'a, T: Deserialize<'a>>(directory: &Folder, name: &str, body: &'a [u8]) -> Result<T, NodeError> {
    serde_json::from_slice(body)
        .map_err(|error| NodeError::Damaged { path: directory.path().join(name), reason: error.to_string() })
}

/// Atomically replaces `directory/name` by a checksum line and `body`, durably.
///
/// # Errors
/// [`NodeError::Io`].
pub fn write_checked(directory: &Folder, name: &str, body: &[u8]) -> Result<(), NodeError> {
    write_file(directory, name, body)?;
    directory.sync()
}

/// The same, but the name is durable only with the next sync of the directory.
fn write_file(directory: &Folder, name: &str, body: &[u8]) -> Result<(), NodeError> {
    let temporary = format!("{name}.new");
    let mut bytes = format!("{:08x}\n", crc32c::crc32c(body)).into_bytes();
    bytes.extend_from_slice(body);
    let write = || -> std::io::Result<()> {
        let file = directory.open_or_create(&temporary)?;
        file.set_len(0)?;
        file.write_at(0, &bytes)?;
        file.sync_data()?;
        directory.dir().rename(&temporary, name)
    };
    write().map_err(|error| NodeError::io("write", directory.path().join(name), error))
}

/// Reads what [`write_checked`] wrote.
///
/// # Errors
/// [`NodeError::Io`], or [`NodeError::Damaged`] if the checksum does not match.
pub fn read_checked(directory: &Folder, name: &str) -> Result<Vec<u8>, NodeError> {
    let path = directory.path().join(name);
    let Some(bytes) = directory.read(name)? else {
        return Err(NodeError::io("read", path, std::io::ErrorKind::NotFound.into()));
    };
    let stored = bytes.get(..8).and_then(|hex| std::str::from_utf8(hex).ok());
    let stored = stored.and_then(|hex| u32::from_str_radix(hex, 16).ok());
    match (stored, bytes.get(9..)) {
        (Some(crc), Some(body)) if crc == crc32c::crc32c(body) => Ok(body.to_vec()),
        _ => Err(NodeError::Damaged {
            path,
            reason: "checksum does not match; restore the volume from an export or another copy".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests;
