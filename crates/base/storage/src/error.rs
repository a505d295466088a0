//! What can go wrong before files can be used, and what the caller of a storage crate may do after an error.
//!
//! The calls of the seam answer with [`std::io::Error`], as those of the operating system do.

use std::io;

/// What the caller may do after an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// Nothing was changed; the same call may be tried again once the cause is gone.
    Retry,
    /// What was called cannot go on. Stop using it; an operator has to look.
    Fatal,
    /// The call itself was wrong; trying it again fails again.
    CallerBug,
}

/// Why a raw device cannot be formatted or opened, or a place not be looked at.
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
    /// Somebody else has it.
    #[error("{path} is in use: it, or a partition of it, is mounted, or another process has it open")]
    InUse {
        /// The device.
        path: String,
    },
    /// It cannot be a raw device.
    #[error("{path} cannot be used: {reason}")]
    Unsuitable {
        /// The device.
        path: String,
        /// Why.
        reason: String,
    },
    /// It was not formatted.
    #[error("{path} is not formatted as a raw device, but holds {found}")]
    NotFormatted {
        /// The device.
        path: String,
        /// What seems to be on it.
        found: &'static str,
    },
    /// Formatting it would destroy something.
    #[error("{path} holds {found}; format it with force to overwrite that")]
    Occupied {
        /// The device.
        path: String,
        /// What seems to be on it.
        found: String,
    },
    /// What is on it cannot be trusted.
    #[error("{path} is damaged: {reason}; format it again, and restore its contents from a copy")]
    Damaged {
        /// The device.
        path: String,
        /// The result.
        reason: String,
    },
    /// What stopped a probe.
    #[error("cannot find the device of {path}: cannot {action}: {source}")]
    Probe {
        /// The path concerned.
        path: String,
        /// The attempted action.
        action: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}
