//! What can go wrong with a log device, and what the caller may do about it.

use std::io;

#[cfg(feature = "experimental-devices")]
use redoubt_persistent_memory::PmemError;
use redoubt_storage::{ErrorKind, is_out_of_descriptors};

use crate::Seq;

/// An error of a log device.
#[derive(thiserror::Error, Debug)]
pub enum LogDeviceError {
    /// No room for another segment. Nothing was written.
    #[error("no space for another log segment ({action} {file}): free some space and try again: {source}")]
    NoSpace {
        /// The attempted action.
        action: &'static str,
        /// The file concerned.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// The process has no descriptor left for a segment. Nothing was written or read.
    #[error("log device: cannot {action} {file}: {source}")]
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
        "log device: cannot {action} {file}: {source}; the device rejects all further calls, check the disk \
         and restart"
    )]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file concerned.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// Reading failed. The device itself goes on.
    #[error("log device: cannot read {file} at byte {offset_bytes}: {source}")]
    Read {
        /// The file concerned.
        file: String,
        /// Where in the file, in bytes.
        offset_bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// An earlier failure left it unknown what is on the disk.
    #[error("log device stopped after an earlier failure ({cause}): check the disk and restart")]
    Poisoned {
        /// The message of the first failure.
        cause: String,
    },
    /// Bytes that were durable are no longer readable.
    #[error(
        "log damaged: {file} has no valid record at byte {offset_bytes} (stream position {seq}), but {evidence}; \
         refusing to cut off durable data: restore the file from a copy"
    )]
    Damaged {
        /// The file concerned.
        file: String,
        /// Where in the file, in bytes.
        offset_bytes: u64,
        /// The stream position of the first unreadable byte.
        seq: Seq,
        /// What shows that the bytes were durable.
        evidence: String,
    },
    /// A file of the device is not what it should be.
    #[error("log segment {file} is not usable: {reason}")]
    BadSegment {
        /// The file concerned.
        file: String,
        /// The defect.
        reason: String,
        /// The stream position of the first unreadable byte, if it is known.
        seq: Option<Seq>,
    },
    /// Files of the log are missing.
    #[error(
        "files of the log are missing: it has the stream positions {start} to {end}, and had {from} to {to}; put the files \
         back, or mount their file system"
    )]
    Incomplete {
        /// First position of the log.
        start: Seq,
        /// Position after its last byte.
        end: Seq,
        /// First position that is needed.
        from: Seq,
        /// Position to which it was durable.
        to: Seq,
    },
    /// Another process has the directory open.
    #[error("log directory {dir} is in use by another process: stop that process first")]
    Locked {
        /// The directory.
        dir: String,
    },
    /// The record is longer than a device takes.
    #[error("log record of {len_bytes} bytes is longer than the limit of {limit_bytes}")]
    RecordTooLarge {
        /// Length of the record in bytes.
        len_bytes: usize,
        /// The limit in bytes.
        limit_bytes: usize,
    },
    /// A range that the device does not hold.
    #[error("log range of {len_bytes} bytes at {seq} is outside the retained range {start}..{end}")]
    OutOfRange {
        /// First position asked for.
        seq: Seq,
        /// Bytes asked for.
        len_bytes: usize,
        /// First position kept.
        start: Seq,
        /// Position after the last byte kept.
        end: Seq,
    },
    /// A file cannot be mapped as the device needs it.
    #[cfg(feature = "experimental-devices")]
    #[error("log file {file} cannot be used as persistent memory: {source}")]
    NotMappable {
        /// The file.
        file: String,
        /// Why.
        source: PmemError,
    },
    /// The system does not let this process use something that the device needs.
    #[error("log device: cannot use {what}: {reason}; use the file device instead")]
    Unsupported {
        /// What is needed.
        what: &'static str,
        /// Why it cannot be used, in words.
        reason: String,
    },
    /// The options make no sense.
    #[error("log device option {option}: {reason}")]
    InvalidOption {
        /// Name of the option.
        option: &'static str,
        /// The defect.
        reason: String,
    },
}

impl LogDeviceError {
    /// What the caller may do about the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSpace { .. } | Self::NoDescriptors { .. } => ErrorKind::Retry,
            Self::Io { .. }
            | Self::Read { .. }
            | Self::Poisoned { .. }
            | Self::Damaged { .. }
            | Self::BadSegment { .. }
            | Self::Incomplete { .. }
            | Self::Unsupported { .. }
            | Self::Locked { .. } => ErrorKind::Fatal,
            #[cfg(feature = "experimental-devices")]
            Self::NotMappable { .. } => ErrorKind::Fatal,
            Self::RecordTooLarge { .. } | Self::OutOfRange { .. } | Self::InvalidOption { .. } => {
                ErrorKind::CallerBug
            }
        }
    }

    /// Bytes that were durable are no longer readable from this stream position on. Those before it are.
    pub fn damaged_from(&self) -> Option<Seq> {
        match self {
            Self::Damaged { seq, .. } => Some(*seq),
            Self::BadSegment { seq, .. } => *seq,
            Self::Incomplete { start, end, from, .. } => Some(if from < start { *from } else { *end }),
            _ => None,
        }
    }

    /// A failed read of `file`.
    pub(crate) fn read(file: &str, offset_bytes: u64) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| match is_out_of_descriptors(&source) {
            true => Self::NoDescriptors { action: "read", file, source },
            false => Self::Read { file, offset_bytes, source },
        }
    }

    /// An I/O error that happened while doing `action` to `file`.
    pub(crate) fn io(action: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self::Io { action, file, source }
    }

    /// Like [`Self::io`], but a lack of descriptors is [`Self::NoDescriptors`].
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
}
