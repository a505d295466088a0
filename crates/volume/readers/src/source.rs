//! The source of a view's names, lengths and contents.

use crate::tree::Errno;
use redoubt_wire::control::VolumeEntry;
use redoubt_wire::view::{ViewFile, ViewLog};
use std::fs::File;

/// Contents of a file within a requested range.
pub struct Contents {
    /// Bytes; fewer than requested at the end of the file.
    pub bytes: Vec<u8>,
    /// Length of the whole file.
    pub len_bytes: u64,
}

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The request failed.
    #[error("{0}")]
    Failed(String),
    /// The same request may succeed later.
    #[error("{0}")]
    NotNow(String),
    /// The viewed volume is gone for good.
    #[error("{0}")]
    Ended(String),
    /// The copy of the redo log could not be written.
    #[error("cannot {action} the copy of the redo log: {source}")]
    Scratch {
        /// The attempted action.
        action: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl ViewError {
    /// The error number for an application.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Failed(_) | Self::Scratch { .. } => Errno(libc::EIO),
            Self::NotNow(_) => Errno(libc::EAGAIN),
            Self::Ended(_) => Errno(libc::ESTALE),
        }
    }
}

/// Receiver of redo: takes the answer that a piece belongs to, its distance in bytes from that answer's start, and the
/// bytes.
pub type LogPiece<'a> = dyn FnMut(&ViewLog, u64, &[u8]) -> Result<(), ViewError> + 'a;

/// A follower of the redo log: the log is retained from its position on.
pub trait LogFollower: Send {
    /// Passes the redo since `from_lsn`, this follower's position, or since the server's checkpoint, to `piece`.
    /// Returns the answer.
    ///
    /// # Errors
    /// The error of the source.
    fn next(&mut self, from_lsn: Option<u64>, piece: &mut LogPiece<'_>) -> Result<ViewLog, ViewError>;
}

/// A volume as it is now, or a snapshot of it.
pub trait ViewSource: Send + Sync {
    /// Looks up a path.
    ///
    /// # Errors
    /// The error of the source.
    fn stat(&self, path: &str) -> Result<Option<ViewFile>, ViewError>;

    /// All names.
    ///
    /// # Errors
    /// As [`ViewSource::stat`].
    fn names(&self) -> Result<Vec<VolumeEntry>, ViewError>;

    /// Bytes of a file, by its number; `None`: the file is gone.
    ///
    /// # Errors
    /// As [`ViewSource::stat`].
    fn read(&self, file: u32, offset_bytes: u64, len_bytes: u32) -> Result<Option<Contents>, ViewError>;

    /// Begins to follow the redo log.
    ///
    /// # Errors
    /// As [`ViewSource::stat`].
    fn follow(&self) -> Result<Box<dyn LogFollower>, ViewError>;

    /// Creates an unnamed file, which lasts as long as it is open.
    ///
    /// # Errors
    /// The error of the system.
    fn scratch_file(&self) -> std::io::Result<File>;

    /// Whether it is a snapshot, which never changes.
    fn is_moment(&self) -> bool {
        false
    }

    /// A number that differs after each change of any contents; `None`: a change is in progress.
    fn position(&self) -> Option<u64> {
        None
    }
}
