//! Errors of the node, grouped by the caller's reaction.

use crate::at_rest::AtRestError;
use redoubt_logdev::LogDeviceError;
use redoubt_pagestore::PageStoreError;
use redoubt_redo::{Lsn, PageId};
use redoubt_storage::{ErrorKind, is_out_of_descriptors};
use redoubt_wire::WireError;
use std::path::PathBuf;

/// Reaction that an error requires from the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The same call may succeed later (for example when there is room on the disk again).
    Retry,
    /// The volume must stop: going on could lose or damage data.
    Fatal,
    /// The request was wrong; nothing happened.
    Caller,
}

/// An error of the node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A file operation failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Changes of a file could not be made durable, and the system may have dropped them.
    #[error("sync {}: {source}", path.display())]
    Unsynced {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The log device failed.
    #[error("log device: {0}")]
    LogDevice(#[from] LogDeviceError),
    /// The page store failed.
    #[error("page store: {0}")]
    PageStore(#[from] PageStoreError),
    /// Bytes from a peer or from the log device are not valid frames.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// The redo stream cannot be understood.
    #[error("redo at LSN {lsn}: {reason}")]
    Redo {
        /// Position of the redo.
        lsn: Lsn,
        /// The defect.
        reason: String,
    },
    /// A record cannot be applied to its page.
    #[error("page {page} of {file}: {reason}")]
    Page {
        /// Which page.
        page: PageId,
        /// File it belongs to, or `?`.
        file: String,
        /// The defect.
        reason: String,
    },
    /// Stored state is damaged.
    #[error("{}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// The page journal is missing or of no use.
    #[error("{}: {reason}", path.display())]
    LostJournal {
        /// The file.
        path: PathBuf,
        /// The defect, and the remedy.
        reason: String,
    },
    /// The encryption of a volume's files is not as it must be.
    #[error("{0}")]
    AtRest(#[from] AtRestError),
    /// The request cannot be served as it is.
    #[error("{0}")]
    Refused(String),
    /// The request cannot be served now.
    #[error("{0}")]
    NotNow(String),
    /// The volume stopped.
    #[error("the volume has stopped: {0}")]
    Stopped(String),
}

impl NodeError {
    /// Required reaction of the caller.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Io { source, .. } if is_no_space(source) || is_out_of_descriptors(source) => Kind::Retry,
            Self::LogDevice(error) if error.kind() == ErrorKind::Retry => Kind::Retry,
            Self::PageStore(error) if error.kind() == ErrorKind::Retry => Kind::Retry,
            Self::NotNow(_) => Kind::Retry,
            Self::Refused(_) | Self::AtRest(_) | Self::Wire(_) => Kind::Caller,
            _ => Kind::Fatal,
        }
    }

    /// Stored bytes are lost: the drive cannot read them, or their file is gone. Other bytes may be whole.
    pub fn is_lost_content(&self) -> bool {
        match self {
            Self::Io { source, .. } => redoubt_storage::is_lost_content(source),
            Self::PageStore(error) => error.is_lost_content(),
            _ => false,
        }
    }

    /// The process has too many open files. The call may succeed later.
    pub fn is_out_of_descriptors(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_out_of_descriptors(source),
            Self::PageStore(
                PageStoreError::NoDescriptors { source, .. }
                | PageStoreError::Io { source, .. }
                | PageStoreError::Read { source, .. },
            )
            | Self::LogDevice(
                LogDeviceError::NoDescriptors { source, .. }
                | LogDeviceError::Io { source, .. }
                | LogDeviceError::Read { source, .. },
            ) => is_out_of_descriptors(source),
            _ => false,
        }
    }

    /// A stored file is of no use: it is damaged, or the drive cannot read it.
    pub fn is_unusable_file(&self) -> bool {
        matches!(self, Self::Damaged { .. }) || self.is_lost_content()
    }

    /// An I/O error with the attempted action.
    pub fn io(action: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { action, path: path.into(), source }
    }
}

fn is_no_space(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_the_drive_has_lost_are_lost_content() {
        for (code, is_lost) in [
            (libc::EIO, true),
            (libc::EUCLEAN, true),
            (libc::ENODATA, true),
            (libc::EMFILE, false),
            (libc::ENFILE, false),
            (libc::ENOMEM, false),
            (libc::EACCES, false),
        ] {
            let source = || std::io::Error::from_raw_os_error(code);
            let read = PageStoreError::Read { file: "1.pages".to_owned(), offset_bytes: 0, source: source() };
            assert_eq!(NodeError::from(read).is_lost_content(), is_lost, "{code}");
            assert_eq!(NodeError::io("read", "plain", source()).is_lost_content(), is_lost, "{code}");
        }
        let write = PageStoreError::Io {
            action: "write",
            file: "1.pages".to_owned(),
            source: std::io::Error::from_raw_os_error(libc::EIO),
        };
        assert!(!NodeError::from(write).is_lost_content(), "a failed write leaves the disk unknown");
    }
}
