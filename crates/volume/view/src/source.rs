//! Where a view's names, lengths and contents come from.

use crate::tree::Errno;
use redoubt_wire::control::VolumeEntry;
use redoubt_wire::view::{ViewFile, ViewLog};
use std::fs::File;

/// Contents of a file, as far as they were asked for.
pub struct Contents {
    /// Bytes; shorter than asked for at the file's end.
    pub bytes: Vec<u8>,
    /// Length of the whole file.
    pub len_bytes: u64,
}

/// Why a question cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// It failed.
    #[error("{0}")]
    Failed(String),
    /// The same question may be answered later.
    #[error("{0}")]
    NotNow(String),
    /// The viewed volume is gone for good.
    #[error("{0}")]
    Ended(String),
    /// There is no place for the copy of the redo log.
    #[error("cannot {action} the copy of the redo log: {source}")]
    Scratch {
        /// The attempted action.
        action: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl ViewError {
    /// The error number for a program.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Failed(_) | Self::Scratch { .. } => Errno(libc::EIO),
            Self::NotNow(_) => Errno(libc::EAGAIN),
            Self::Ended(_) => Errno(libc::ESTALE),
        }
    }
}

/// Takes a piece of redo: the answer that it belongs to, its distance in bytes from that answer's start, and the bytes.
pub type LogPiece<'a> = dyn FnMut(&ViewLog, u64, &[u8]) -> Result<(), ViewError> + 'a;

/// A follower of the redo log: the log is retained from its position on.
pub trait LogFollower: Send {
    /// Gives `piece` the redo since `from_lsn`, where this follower stands, or since the server's checkpoint, and says
    /// what it was.
    ///
    /// # Errors
    /// Why there is none.
    fn next(&mut self, from_lsn: Option<u64>, piece: &mut LogPiece<'_>) -> Result<ViewLog, ViewError>;
}

/// A volume as it is now, or a moment of it.
pub trait ViewSource: Send + Sync {
    /// Looks up a path.
    ///
    /// # Errors
    /// Why that cannot be said.
    fn stat(&self, path: &str) -> Result<Option<ViewFile>, ViewError>;

    /// Everything there is.
    ///
    /// # Errors
    /// As [`ViewSource::stat`].
    fn names(&self) -> Result<Vec<VolumeEntry>, ViewError>;

    /// Bytes of a file, by its number; `None`: it is gone.
    ///
    /// # Errors
    /// As [`ViewSource::stat`].
    fn read(&self, file: u32, offset_bytes: u64, len_bytes: u32) -> Result<Option<Contents>, ViewError>;

    /// Begins to follow the redo log.
    ///
    /// # Errors
    /// As [`ViewSource::stat`].
    fn follow(&self) -> Result<Box<dyn LogFollower>, ViewError>;

    /// A file without a name, for as long as it is open.
    ///
    /// # Errors
    /// The system's.
    fn scratch_file(&self) -> std::io::Result<File>;

    /// It is a moment: nothing changes.
    fn is_moment(&self) -> bool {
        false
    }

    /// Another number with each change of any contents; `None`: something is being changed.
    fn position(&self) -> Option<u64> {
        None
    }
}
