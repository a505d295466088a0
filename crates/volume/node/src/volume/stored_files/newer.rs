//! Lengths of page files that are newer than the list of stored files, in the file `stored-files.newer`.
//!
//! The list has all files of the volume, so it is not written with each checkpoint. The lengths that are new with a
//! checkpoint are appended here ([`crate::checkpoint::lines`]):
//!
//! | line | JSON |
//! |---|---|
//! | first | `{"format":1,"list":N}`: the number of the list that this continues |
//! | each further line | `[[object, length in bytes], ...]`, in order |
//!
//! If the list on disk has another number, the file is out of date. A line that is not whole ends the file.

use crate::checkpoint::lines::{Lines, push_line};
use crate::checkpoint::{check_format, parse};
use crate::error::NodeError;
use crate::home::Folder;
use redoubt_storage::StorageFile;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub(super) const FILE_NAME: &str = "stored-files.newer";
const FORMAT: u32 = 1;
/// With more bytes, the list is written instead.
const LONG_BYTES: u64 = 4 << 20;

/// Objects, and the length that their files have at least, in bytes.
pub(super) type Entries = Vec<(u32, u64)>;

#[derive(Serialize, Deserialize)]
struct Head {
    format: u32,
    list: u64,
}

/// The file, open for appends.
pub(super) struct NewerLens {
    list: u64,
    /// `None`: nothing was appended yet.
    file: Option<Arc<dyn StorageFile>>,
    /// Length of what is durable.
    len_bytes: u64,
    crc: u32,
}

impl NewerLens {
    /// Continues the list with this number, which is durable.
    pub fn after(list: u64) -> Self {
        Self { list, file: None, len_bytes: 0, crc: 0 }
    }

    pub fn is_long(&self) -> bool {
        self.len_bytes > LONG_BYTES
    }

    /// Appends, durably.
    ///
    /// # Errors
    /// [`NodeError::Io`]; earlier entries in the file stay valid. A list must be written next.
    pub fn append(&mut self, own: &Folder, entries: &Entries) -> Result<(), NodeError> {
        let (mut bytes, mut crc) = (Vec::new(), self.crc);
        let mut write = || -> std::io::Result<Arc<dyn StorageFile>> {
            let file = match &self.file {
                Some(file) => Arc::clone(file),
                None => {
                    let file = own.open_or_create(FILE_NAME)?;
                    file.set_len(0)?;
                    crc = push_line(&mut bytes, 0, &Head { format: FORMAT, list: self.list })?;
                    file
                }
            };
            crc = push_line(&mut bytes, crc, entries)?;
            file.write_at(self.len_bytes, &bytes)?;
            file.sync_data()?;
            Ok(file)
        };
        let file = write().map_err(|error| NodeError::io("write", own.path().join(FILE_NAME), error))?;
        if self.file.is_none() {
            own.sync()?;
        }
        self.file = Some(file);
        (self.len_bytes, self.crc) = (self.len_bytes + bytes.len() as u64, crc);
        Ok(())
    }
}

/// The entries that continue the list with this number.
///
/// # Errors
/// [`NodeError::Io`], [`NodeError::Damaged`].
pub(super) fn read(own: &Folder, list: u64) -> Result<Entries, NodeError> {
    let bytes = own.read(FILE_NAME)?.unwrap_or_default();
    let mut lines = Lines::of(&bytes);
    let Some(Ok(head)) = lines.next_line() else { return Ok(Entries::new()) };
    check_format(own, FILE_NAME, head, FORMAT..=FORMAT)?;
    let Head { list: continued, .. } = parse(own, FILE_NAME, head)?;
    let mut entries = Entries::new();
    if continued == list {
        while let Some(Ok(line)) = lines.next_line() {
            entries.extend(parse::<Entries>(own, FILE_NAME, line)?);
        }
    }
    Ok(entries)
}

/// Removes the file, durably.
///
/// # Errors
/// [`NodeError::Io`].
pub(super) fn remove(own: &Folder) -> Result<(), NodeError> {
    if own.find(FILE_NAME)?.is_some() {
        own.remove(FILE_NAME)?;
        own.sync()?;
    }
    Ok(())
}
