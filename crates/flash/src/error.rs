//! What can go wrong, in words that say what, where, and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Every failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not a trace, or a damaged one.
    #[error("{path}: {source}", path = path.display())]
    Trace {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and where.
        source: crate::trace::TraceError,
    },
    /// The description beside a trace is not what it should be.
    #[error("{path}: not a trace description: {source}; the fields are documented in redoubt_flash::trace", path = path.display())]
    Description {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
}

impl Error {
    /// An error of the system on a file.
    pub(crate) fn file(path: &Path, source: io::Error) -> Error {
        Error::File { path: path.to_owned(), source }
    }
}
