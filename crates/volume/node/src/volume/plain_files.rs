//! Plain files of a volume by their current paths, for a starting server.

use super::Volume;
use crate::error::NodeError;
use crate::plain::Checksum;
use redoubt_wire::control::{Attachment, EntryKind};
use redoubt_wire::page::FileId;
use rustc_hash::FxHashMap;

impl Volume {
    /// A plain file by its current path, with its length in bytes.
    ///
    /// # Errors
    /// [`NodeError::Refused`] if there is none; [`NodeError::Damaged`] if its contents are lost; [`NodeError::NotNow`] if
    /// that is not certain yet; [`NodeError::Stopped`], [`NodeError::Io`].
    pub fn plain_file(&self, path: &str) -> Result<(FileId, u64), NodeError> {
        let file = {
            let names = self.indexing.names.read();
            names.file_at(path).filter(|(_, entry)| !entry.tablespace).map(|(file, _)| file)
        };
        match file {
            Some(file) => {
                self.check_not_lost(file)?;
                Ok((file, self.plain.len_bytes(file)?))
            }
            None => Err(NodeError::Refused(format!("volume {} has no plain file {path}", self.context.name))),
        }
    }

    /// Refuses a plain file whose contents are lost: the rest would pass for the file. A change that ends the loss may not
    /// be executed yet, as after a start.
    ///
    /// # Errors
    /// [`NodeError::Damaged`]; those of waiting for the changes.
    pub(super) fn check_not_lost(&self, file: FileId) -> Result<(), NodeError> {
        if self.plain.lost(file).is_none() {
            return Ok(());
        }
        self.settle()?;
        let error = |reason| NodeError::Damaged { path: self.plain.path(file), reason };
        self.plain.lost(file).map_or(Ok(()), |reason| Err(error(reason)))
    }

    /// Bytes of a plain file as it is now; bytes after its end are zero.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn read_plain_file(&self, file: FileId, offset_bytes: u64, out: &mut [u8]) -> Result<(), NodeError> {
        out.fill(0);
        self.plain.read(file, offset_bytes, out)
    }

    /// Names, and checksums of plain files, of everything received so far: for a server that is to start. No server is
    /// fenced, and no lock of the names is held while files are read.
    ///
    /// # Errors
    /// [`NodeError::Refused`] if plain files are lost ([`super::restored_files`]); [`NodeError::NotNow`] if the received frames do not become durable; [`NodeError::Stopped`], [`NodeError::Io`].
    pub fn list(&self) -> Result<Attachment, NodeError> {
        self.context.check_running()?;
        self.drain()?;
        self.restore_lost_files()?;
        let (mut attachment, files) = {
            let names = self.indexing.names.read();
            let plain = names.files().filter(|(_, entry)| !entry.tablespace);
            let files: FxHashMap<_, _> = plain.map(|(file, entry)| (entry.path.clone(), file)).collect();
            (self.attachment(&names, self.session.identity().generation)?, files)
        };
        for entry in attachment.entries.iter_mut().filter(|entry| entry.kind == EntryKind::Plain) {
            if let Some(file) = files.get(&entry.path)
                && let Some(Checksum { len_bytes, crc }) = self.plain.checksum(*file)?
            {
                (entry.len_bytes, entry.checksum) = (len_bytes, Some(crc));
            }
        }
        self.plain.save_checksums();
        Ok(attachment)
    }
}
