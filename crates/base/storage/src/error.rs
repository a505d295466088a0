//! Errors before files are usable, and the reaction of a storage crate's caller to an error.
//!
//! The calls of the interface return [`std::io::Error`], like those of the operating system.

use std::io;

/// Possible reaction of the caller to an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// No change was made. The caller may retry when the cause is gone.
    Retry,
    /// The called object has failed permanently. The caller stops using it; an operator has to check it.
    Fatal,
    /// The call itself was wrong; a retry fails again.
    CallerBug,
}

/// Reason why a raw device cannot be formatted or opened, or a path cannot be probed.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum StorageError {
    /// A call failed.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The device.
        path: String,
        /// The attempted action.
        action: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Another process uses the device.
    #[error("{path} is in use: it, or a partition of it, is mounted, or another process has it open")]
    InUse {
        /// The device.
        path: String,
    },
    /// The device is unsuitable as a raw device.
    #[error("{path} cannot be used: {reason}")]
    Unsuitable {
        /// The device.
        path: String,
        /// Reason.
        reason: String,
    },
    /// The device was not formatted.
    #[error("{path} is not formatted as a raw device, but holds {found}")]
    NotFormatted {
        /// The device.
        path: String,
        /// Apparent content of the device.
        found: &'static str,
    },
    /// A format would destroy data.
    #[error("{path} holds {found}; format it with force to overwrite that")]
    Occupied {
        /// The device.
        path: String,
        /// Apparent content of the device.
        found: String,
    },
    /// The content of the device is damaged.
    #[error("{path} is damaged: {reason}; format it again, and restore its contents from a copy")]
    Damaged {
        /// The device.
        path: String,
        /// Description of the damage.
        reason: String,
    },
    /// A probe failed.
    #[error("cannot find the device of {path}: cannot {action}: {source}")]
    Probe {
        /// Path of the failed call.
        path: String,
        /// The attempted action.
        action: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}
