//! Errors of a page store, and the possible reactions of the caller.

use std::io;

use redoubt_storage::{ErrorKind, is_lost_content, is_out_of_descriptors};

use crate::ObjectId;

/// An error of a page store.
#[derive(thiserror::Error, Debug)]
pub enum PageStoreError {
    /// The disk is full. Nothing is lost; the same call may be tried again when there is space.
    #[error("no space for pages ({action} {file}): free some space and try again: {source}")]
    NoSpace {
        /// The attempted action.
        action: &'static str,
        /// The file concerned.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// The process has no descriptor left for a file. Nothing is lost; the same call may be tried again.
    #[error("page store: cannot {action} {file}: {source}")]
    NoDescriptors {
        /// The attempted action.
        action: &'static str,
        /// The file concerned.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// An input or output call failed.
    #[error(
        "page store: cannot {action} {file}: {source}; the store takes no more writes, check the disk and restart"
    )]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file concerned.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// Reading failed. The store itself stays usable.
    #[error("page store: cannot read {file} at byte {offset_bytes}: {source}")]
    Read {
        /// The file concerned.
        file: String,
        /// Where in the file, in bytes.
        offset_bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The journal has the newest version of a page, and the image is damaged.
    #[error(
        "page journal: the image of page {page_no} of object {object} at byte {offset_bytes} is damaged: \
         write the page again, or check the disk and restore the directory from a copy"
    )]
    DamagedImage {
        /// The object concerned.
        object: ObjectId,
        /// The page concerned.
        page_no: u32,
        /// Where in the journal file, in bytes.
        offset_bytes: u64,
    },
    /// The drive cannot read a page, in several tries. It reads other bytes of the store.
    #[error(
        "page store: the drive has lost page {page_no} of object {object} ({file} at byte {offset_bytes}, {source}), and reads \
         other pages: write the page again, or check the drive and restore the directory from a copy"
    )]
    LostPage {
        /// The object concerned.
        object: ObjectId,
        /// The page concerned.
        page_no: u32,
        /// The file concerned.
        file: String,
        /// Where in the file, in bytes.
        offset_bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// After an earlier failure, the content of the disk is unknown.
    #[error("page store takes no writes after an earlier failure ({cause}): check the disk and restart")]
    Poisoned {
        /// The message of the first failure.
        cause: String,
    },
    /// There is no such object.
    #[error("page store has no object {object}")]
    NoSuchObject {
        /// The object asked for.
        object: ObjectId,
    },
    /// A batch that cannot be written.
    #[error("batch of pages refused: page {page_no} of object {object}: {reason}")]
    InvalidBatch {
        /// The object concerned.
        object: ObjectId,
        /// The page concerned.
        page_no: u32,
        /// The defect.
        reason: String,
    },
    /// A file of the store is invalid.
    #[error("page store file {file} is not usable: {reason}")]
    BadFile {
        /// The file concerned.
        file: String,
        /// The defect, and the remedy.
        reason: String,
    },
    /// The journal is missing or not usable. Only the caller can rebuild the pages that were in the journal only.
    #[error("page store file {file} is not usable: {reason}")]
    LostJournal {
        /// The file.
        file: String,
        /// The defect, and the remedy.
        reason: String,
    },
    /// Another process has the directory open.
    #[error("page directory {dir} is in use by another process: stop that process first")]
    Locked {
        /// The directory.
        dir: String,
    },
    /// The options make no sense.
    #[error("page store option {option}: {reason}")]
    InvalidOption {
        /// Name of the option.
        option: &'static str,
        /// The defect.
        reason: String,
    },
}

impl PageStoreError {
    /// Possible reactions of the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSpace { .. } | Self::NoDescriptors { .. } => ErrorKind::Retry,
            Self::Io { .. }
            | Self::Read { .. }
            | Self::DamagedImage { .. }
            | Self::LostPage { .. }
            | Self::Poisoned { .. }
            | Self::BadFile { .. }
            | Self::LostJournal { .. }
            | Self::Locked { .. } => ErrorKind::Fatal,
            Self::NoSuchObject { .. } | Self::InvalidBatch { .. } | Self::InvalidOption { .. } => {
                ErrorKind::CallerBug
            }
        }
    }

    /// Stored bytes are lost; other bytes may be whole.
    pub fn is_lost_content(&self) -> bool {
        match self {
            Self::LostPage { .. } | Self::DamagedImage { .. } => true,
            Self::Read { source, .. } => is_lost_content(source),
            _ => false,
        }
    }

    /// An I/O error that happened while doing `action` to `file`.
    pub(crate) fn io(action: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self::Io { action, file, source }
    }

    /// Like [`Self::io`], but a lack of descriptors is [`Self::NoDescriptors`]. For calls that have done nothing then.
    pub(crate) fn io_or_no_descriptors(action: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| match is_out_of_descriptors(&source) {
            true => Self::NoDescriptors { action, file, source },
            false => Self::Io { action, file, source },
        }
    }

    /// Like [`Self::io`], but a full disk is [`Self::NoSpace`], and a lack of descriptors [`Self::NoDescriptors`].
    pub(crate) fn io_or_no_space(action: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::NoSpace { action, file, source }
            }
            _ if is_out_of_descriptors(&source) => Self::NoDescriptors { action, file, source },
            _ => Self::Io { action, file, source },
        }
    }

    /// A failed read. The store stays usable.
    pub(crate) fn read(file: &str, offset_bytes: u64) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| match is_out_of_descriptors(&source) {
            true => Self::NoDescriptors { action: "open", file, source },
            false => Self::Read { file, offset_bytes, source },
        }
    }
}
