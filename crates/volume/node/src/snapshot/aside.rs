//! The file of a snapshot's copies: ranges of any length, reused when they are given back.
//!
//! Invariant: a range that was handed out holds its bytes until it is given back. The file has no name, so nothing of
//! it is left when it is closed.

use crate::error::NodeError;
use crate::home::Folder;
use redoubt_storage::StorageFile;
use redoubt_sync::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A range of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsideRange {
    offset_bytes: u64,
    len_bytes: u32,
}

#[derive(Default)]
struct Room {
    end_bytes: u64,
    /// Ranges given back, by length.
    free: BTreeMap<u32, Vec<u64>>,
}

/// The file of a snapshot's copies: ranges of any length, reused when they are given back.
pub struct Aside {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    room: Mutex<Room>,
}

impl Aside {
    /// An empty file. `name` is in the folder only for a moment.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn create(folder: &Folder, name: &str) -> Result<Self, NodeError> {
        let path = folder.path().join(name);
        let file = folder.open_or_create(name).and_then(|file| {
            file.set_len(0)?;
            folder.dir().remove(name)?;
            Ok(file)
        });
        let file = file.map_err(|error| NodeError::io("create", &path, error))?;
        Ok(Self { file, path, room: Mutex::default() })
    }

    /// Stores a copy of bytes.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn put(&self, bytes: &[u8]) -> Result<AsideRange, NodeError> {
        let len_bytes = bytes.len() as u32;
        let offset_bytes = {
            let mut room = self.room.lock();
            match room.free.get_mut(&len_bytes).and_then(Vec::pop) {
                Some(offset_bytes) => offset_bytes,
                None => {
                    let offset_bytes = room.end_bytes;
                    room.end_bytes += u64::from(len_bytes);
                    offset_bytes
                }
            }
        };
        let range = AsideRange { offset_bytes, len_bytes };
        match self.file.write_at(offset_bytes, bytes) {
            Ok(()) => Ok(range),
            Err(error) => {
                self.give_back(range);
                Err(NodeError::io("write", &self.path, error))
            }
        }
    }

    /// The copy in a range.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn get(&self, range: AsideRange) -> Result<Vec<u8>, NodeError> {
        let mut bytes = vec![0; range.len_bytes as usize];
        let io = |error| NodeError::io("read", &self.path, error);
        let len = self.file.read_at(range.offset_bytes, &mut bytes).map_err(io)?;
        if len == bytes.len() { Ok(bytes) } else { Err(io(std::io::ErrorKind::UnexpectedEof.into())) }
    }

    /// The copy is no longer needed.
    pub fn give_back(&self, range: AsideRange) {
        self.room.lock().free.entry(range.len_bytes).or_default().push(range.offset_bytes);
    }

    /// Length of the file in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.room.lock().end_bytes
    }
}
