//! The names of a volume on its disk: a full list, followed by changes.
//!
//! `names-<number, 8 hex>` is text, one entry a line ([`super::lines`]):
//!
//! | line | JSON |
//! |---|---|
//! | first | `{"format":1,"number":N}` |
//! | up to `base_len_bytes` | lists of changes which together make all names |
//! | each further line | list of the changes up to one checkpoint ([`NameChange`]) |
//!
//! The checkpoint has a [`NamesEnd`]: the number, the end of the names that belong to it, and the checksum there. Bytes
//! after that end are ignored and overwritten. Everything before it was durable before the checkpoint, so any error
//! there is damage.
//!
//! Each file is there twice, the second one as `names-<number>.copy`. If one of them is lost or damaged, the other one is
//! read, and the next checkpoint for which there is room makes new ones.
//!
//! A file that becomes long is followed by one with the next number; the former goes when the checkpoint refers to the
//! new one. After a failed sync nothing more is appended: an unknown part of the file was dropped, so the names go to a
//! new file.

use crate::checkpoint::lines::{Lines, push_line};
use crate::checkpoint::parse;
use crate::checkpoint::twice::{copy_of, is_lost, report_use_of_copy};
use crate::error::NodeError;
use crate::home::Folder;
use crate::namespace::{NameChange, Namespace};
use redoubt_storage::StorageFile;
use redoubt_storage::format_version::unknown_version;
use redoubt_sync::planted::{Bug, is_planted};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const FORMAT: u32 = 1;
const PREFIX: &str = "names-";
/// Changes per line of the full list.
const BASE_LINE_CHANGES: usize = 1000;
/// Bytes written at once, about.
const PIECE_BYTES: usize = 1 << 20;

const WAY_OUT: &str = "restore the volume from an export or another copy";

/// End of a checkpoint's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamesEnd {
    /// Number of the file.
    pub number: u64,
    /// Length of the full list, in bytes.
    pub base_len_bytes: u64,
    /// Length with the changes up to this checkpoint, in bytes.
    pub len_bytes: u64,
    /// Checksum of the last line before that.
    pub crc: u32,
}

#[derive(Serialize, Deserialize)]
struct Head {
    format: u32,
    number: u64,
}

/// A names file that is open for appends.
pub struct NamesFile {
    /// The file and its copy, or the one of them that is whole.
    files: Vec<Arc<dyn StorageFile>>,
    directory: Folder,
    /// End of the names that the checkpoint on disk refers to.
    kept: NamesEnd,
    /// End of the durable names.
    end: NamesEnd,
    /// Nothing may be appended.
    has_failed: bool,
}

fn name_of(number: u64) -> String {
    format!("{PREFIX}{number:08x}")
}

impl NamesFile {
    /// Makes a file with all of `names`, durably. No checkpoint refers to it yet.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn create(directory: &Folder, number: u64, names: &Namespace) -> Result<Self, NodeError> {
        let name = name_of(number);
        let write = || -> std::io::Result<(Vec<Arc<dyn StorageFile>>, NamesEnd)> {
            let files = [&name, &copy_of(&name)].map(|name| directory.open_or_create(name));
            let files = files.into_iter().collect::<Result<Vec<_>, _>>()?;
            // The files may exist from a checkpoint that was never written.
            files.iter().try_for_each(|file| file.set_len(0))?;
            let mut bytes = Vec::new();
            let mut crc = push_line(&mut bytes, 0, &Head { format: FORMAT, number })?;
            let mut len_bytes = 0;
            let mut all = names.all().peekable();
            while all.peek().is_some() {
                let line: Vec<_> = all.by_ref().take(BASE_LINE_CHANGES).collect();
                crc = push_line(&mut bytes, crc, &line)?;
                if bytes.len() >= PIECE_BYTES || all.peek().is_none() {
                    files.iter().try_for_each(|file| file.write_at(len_bytes, &bytes))?;
                    len_bytes += bytes.len() as u64;
                    bytes.clear();
                }
            }
            files.iter().try_for_each(|file| sync(&**file))?;
            let end = NamesEnd { number, base_len_bytes: len_bytes, len_bytes, crc };
            Ok((files, end))
        };
        let written = write().map_err(|error| NodeError::io("write", directory.path().join(&name), error));
        let (files, end) = written.inspect_err(|_| {
            // On a full disk their room is wanted. They do no harm if they stay.
            let _ = (directory.remove(&name), directory.remove(&copy_of(&name)));
        })?;
        directory.sync()?;
        Ok(Self { files, directory: directory.clone(), kept: end, end, has_failed: false })
    }

    /// Reads the names that end at `end`. Changes nothing.
    ///
    /// # Errors
    /// [`NodeError::Io`] or [`NodeError::Damaged`], of the first file.
    pub fn open(directory: &Folder, end: NamesEnd) -> Result<(Self, Namespace), NodeError> {
        let name = name_of(end.number);
        let (first, second) =
            (read_names(directory, &name, end), read_names(directory, &copy_of(&name), end));
        let (files, names) = match (first, second) {
            (Ok((first, names)), Ok((second, _))) => (vec![first, second], names),
            (Ok((file, names)), Err(_)) => (vec![file], names),
            (Err(error), Ok((file, names))) if is_lost(&error) => {
                report_use_of_copy(&error);
                (vec![file], names)
            }
            (Err(error), _) => return Err(error),
        };
        Ok((Self { files, directory: directory.clone(), kept: end, end, has_failed: false }, names))
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.end.number
    }

    /// Its durable end.
    pub fn end(&self) -> NamesEnd {
        self.end
    }

    /// The file should be replaced: its changes are longer than the full list, and than `least_log_bytes`, or nothing
    /// can be appended to it.
    pub fn is_long(&self, least_log_bytes: u64) -> bool {
        let log_bytes = self.kept.len_bytes.saturating_sub(self.kept.base_len_bytes);
        self.has_failed || self.lacks_copy() || log_bytes > self.kept.base_len_bytes.max(least_log_bytes)
    }

    /// One of the two files is lost.
    fn lacks_copy(&self) -> bool {
        self.files.len() < 2
    }

    /// Changes can be appended.
    pub fn can_append(&self) -> bool {
        !self.has_failed
    }

    /// Appends the changes since the last checkpoint, durably. They replace anything that was appended since then.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn append(&mut self, changes: &[NameChange]) -> Result<(), NodeError> {
        self.end = self.kept;
        if changes.is_empty() {
            return Ok(());
        }
        let path = || self.directory.path().join(name_of(self.kept.number));
        let mut line = Vec::new();
        let encoded = push_line(&mut line, self.kept.crc, &changes);
        let crc = encoded.map_err(|error| NodeError::io("encode", path(), error))?;
        let written = self.files.iter().try_for_each(|file| file.write_at(self.kept.len_bytes, &line));
        written.map_err(|error| NodeError::io("write", path(), error))?;
        if let Err(error) = self.files.iter().try_for_each(|file| sync(&**file)) {
            let error = NodeError::io("sync", path(), error);
            self.has_failed = true;
            return Err(error);
        }
        self.end = NamesEnd { len_bytes: self.kept.len_bytes + line.len() as u64, crc, ..self.kept };
        Ok(())
    }

    /// The checkpoint that refers to the end is durable.
    pub fn keep(&mut self) {
        self.kept = self.end;
    }
}

/// One of the two files, and the names in it that end at `end`.
fn read_names(
    directory: &Folder,
    name: &str,
    end: NamesEnd,
) -> Result<(Arc<dyn StorageFile>, Namespace), NodeError> {
    let damaged = |what: String| NodeError::Damaged {
        path: directory.path().join(name),
        reason: format!("{what}; {WAY_OUT}"),
    };
    let file = directory.find(name)?;
    let file = file.ok_or_else(|| damaged("it is missing, and the checkpoint refers to it".to_owned()))?;
    let too_short =
        || damaged(format!("it is shorter than the {} bytes that the checkpoint refers to", end.len_bytes));
    let io = |error| NodeError::io("read", directory.path().join(name), error);
    if file.len_bytes().map_err(io)? < end.len_bytes {
        return Err(too_short());
    }
    let len = usize::try_from(end.len_bytes).map_err(|_| too_short())?;
    let mut bytes = vec![0; len];
    if file.read_at(0, &mut bytes).map_err(io)? < len {
        return Err(too_short());
    }
    let mut lines = Lines::of(&bytes);
    let mut names = Namespace::default();
    let mut is_first = true;
    while let Some(line) = lines.next_line() {
        let json = line.map_err(damaged)?;
        if std::mem::take(&mut is_first) {
            check_head(directory, name, json, end.number)?;
        } else {
            let changes: Vec<NameChange> = parse(directory, name, json)?;
            names.apply(&changes);
        }
    }
    if lines.crc() != end.crc || is_first {
        return Err(damaged("it is not the one that the checkpoint refers to".to_owned()));
    }
    Ok((file, names))
}

fn sync(file: &dyn StorageFile) -> std::io::Result<()> {
    if is_planted(Bug::NamesNotDurable) {
        return Ok(());
    }
    file.sync_data()
}

fn check_head(directory: &Folder, name: &str, json: &[u8], number: u64) -> Result<(), NodeError> {
    let damaged = |reason| NodeError::Damaged { path: directory.path().join(name), reason };
    let head: Head = parse(directory, name, json)?;
    if head.format != FORMAT {
        return Err(damaged(unknown_version(head.format.into(), FORMAT)));
    }
    if head.number != number {
        return Err(damaged(format!("it is the one with number {}: put the right one back", head.number)));
    }
    Ok(())
}

/// Removes names files of other numbers than `kept`.
///
/// # Errors
/// [`NodeError::Io`].
pub fn remove_others(directory: &Folder, kept: Option<u64>) -> Result<(), NodeError> {
    let kept = kept.map(name_of);
    let names = directory.dir().list().map_err(|error| NodeError::io("list", directory.path(), error))?;
    let first_of = |name: &str| name.strip_suffix(".copy").unwrap_or(name).to_owned();
    let is_ours = |name: &str| {
        let number = first_of(name).strip_prefix(PREFIX).map(|number| u64::from_str_radix(number, 16));
        number.is_some_and(|number| number.is_ok())
    };
    let is_other = |name: &&String| is_ours(name) && Some(first_of(name)) != kept;
    let others: Vec<_> = names.iter().filter(is_other).collect();
    if !others.is_empty() {
        // If the process that wrote the checkpoint was killed, its reference to another file may be in memory only.
        directory.sync()?;
    }
    for name in others {
        directory.remove(name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
