//! The files of MySQL's redo log: their names, lengths and headers, and the server's newest checkpoint.
//!
//! The rest of their contents is composed from the stream ([`crate::volume::server_log`]). They are no files of the
//! [`Namespace`](super::Namespace) otherwise: the server makes and removes them all the time.

use crate::error::NodeError;
use redoubt_redo::Lsn;
use redoubt_redo::mysql::log_file::{FrontBlock, LogFileHeader};
use redoubt_redo::mysql::position::from_server_lsn;
use redoubt_wire::stream::LOG_HEADER_LEN_BYTES;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The files of MySQL's redo log: their names, lengths and headers, and the server's newest checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSetEntry {
    /// By relative path.
    pub files: BTreeMap<String, LogSetFile>,
    /// The checkpoint that the server has written last, as a server LSN; 0: there is none.
    pub checkpoint_server_lsn: u64,
}

/// One of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSetFile {
    /// Permission bits.
    pub mode: u32,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Its first block as last written; empty: zeros.
    pub header: Vec<u8>,
}

impl LogSetFile {
    /// Its header; `None`: missing, or not in use.
    pub fn parsed_header(&self) -> Option<LogFileHeader> {
        LogFileHeader::parse(self.header.first_chunk()?).ok()
    }
}

impl LogSetEntry {
    /// The server's newest checkpoint.
    pub fn checkpoint(&self) -> Option<Lsn> {
        (self.checkpoint_server_lsn != 0).then(|| from_server_lsn(self.checkpoint_server_lsn))
    }

    /// Some file has a header: the server can start.
    pub fn is_usable(&self) -> bool {
        self.files.values().any(|file| file.parsed_header().is_some())
    }

    /// A first block of a file was written. Returns the new checkpoint, if the block holds one.
    ///
    /// # Errors
    /// The reason why the block cannot be followed, for people.
    pub fn write_front(
        &mut self,
        path: &str,
        offset_bytes: u32,
        block: &[u8; LOG_HEADER_LEN_BYTES],
    ) -> Result<Front, String> {
        let file = self.files.get_mut(path).ok_or_else(|| "the file was not created before".to_owned())?;
        match FrontBlock::parse(u64::from(offset_bytes), block).map_err(|error| error.to_string())? {
            Some(FrontBlock::Header(parsed)) => {
                let header = parsed.map_or_else(Vec::new, |_| block.to_vec());
                let is_new = file.header != header;
                file.header = header;
                Ok(if is_new { Front::File } else { Front::Unchanged })
            }
            Some(FrontBlock::Encryption(true)) => Err("the redo log is encrypted".to_owned()),
            // A file that becomes part of the log has no checkpoint in its slots, which is 0 or damaged on purpose. The
            // server takes the newest valid one of all files.
            Some(FrontBlock::Encryption(false) | FrontBlock::Checkpoint(_, None | Some(0))) => {
                Ok(Front::Unchanged)
            }
            Some(FrontBlock::Checkpoint(_, Some(server_lsn))) => {
                self.checkpoint_server_lsn = server_lsn;
                Ok(Front::Checkpoint)
            }
            None => Err(format!("no first block of a file is at byte {offset_bytes}")),
        }
    }
}

/// Effect of a write of a first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// Nothing.
    Unchanged,
    /// A file.
    File,
    /// The checkpoint.
    Checkpoint,
}

/// As the error of a stream that cannot be followed.
pub(super) fn wrong_front(path: &str, lsn: Lsn, why: &str) -> NodeError {
    NodeError::Redo {
        lsn,
        reason: format!(
            "a block of {path} that the server wrote cannot be followed: {why}. Run the volume with a supported server and \
             without innodb_redo_log_encrypt and ALTER INSTANCE DISABLE INNODB REDO_LOG"
        ),
    }
}
