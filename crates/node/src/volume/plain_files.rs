//! Plain files of a volume by their current paths, for a starting server.

use super::Volume;
use crate::error::NodeError;
use redoubt_wire::page::FileId;
use std::collections::BTreeMap;

impl Volume {
    /// A plain file by its current path, with its length in bytes.
    ///
    /// # Errors
    /// [`NodeError::Refused`] if there is none; [`NodeError::Io`].
    pub fn plain_file(&self, path: &str) -> Result<(FileId, u64), NodeError> {
        let file = {
            let names = self.indexing.names.read();
            names.file_at(path).filter(|(_, entry)| !entry.tablespace).map(|(file, _)| file)
        };
        match file {
            Some(file) => Ok((file, self.plain.len_bytes(file)?)),
            None => Err(NodeError::Refused(format!("volume {} has no plain file {path}", self.context.name))),
        }
    }

    /// Bytes of a plain file as it is now; bytes after its end are left as they were.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn read_plain_file(&self, file: FileId, offset_bytes: u64, out: &mut [u8]) -> Result<(), NodeError> {
        self.plain.read(file, offset_bytes, out)
    }

    /// CRC-32C of every plain file.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn plain_checksums(&self) -> Result<BTreeMap<String, u32>, NodeError> {
        let files: Vec<_> = {
            let names = self.indexing.names.read();
            let plain = names.files().filter(|(_, entry)| !entry.tablespace);
            plain.map(|(id, entry)| (id, entry.path.clone())).collect()
        };
        let mut checksums = BTreeMap::new();
        for (file, path) in files {
            let mut contents = vec![0; self.plain.len_bytes(file)? as usize];
            self.plain.read(file, 0, &mut contents)?;
            checksums.insert(path, crc32c::crc32c(&contents));
        }
        Ok(checksums)
    }
}
