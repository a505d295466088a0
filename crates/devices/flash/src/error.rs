//! Errors, with the place and the remedy.

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
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a trace, or a damaged one.
    #[error("{path}: {source}", path = path.display())]
    Trace {
        /// Which file.
        path: PathBuf,
        /// The defect and its location.
        source: crate::trace::TraceError,
    },
    /// The description beside a trace is not what it should be.
    #[error("{path}: not a trace description: {source}; the fields are documented in redoubt_flash::trace", path = path.display())]
    Description {
        /// Which file.
        path: PathBuf,
        /// The defect and its location.
        source: serde_json::Error,
    },
    /// The trace cannot be replayed.
    #[error("{path}: {what}", path = path.display())]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// Why not.
        what: String,
    },
    /// There is no such drive.
    #[error("invalid drive: {0}")]
    Geometry(#[from] crate::ftl::GeometryError),
    /// The load does not fit on the drive.
    #[error(
        "the load alone uses {used_percent:.1} % of the drive ({used_blocks} of {logical_blocks} blocks of 4 KiB), \
         more than the {utilisation_percent} % asked for: raise the utilisation or make the drive larger"
    )]
    TooFull {
        /// Blocks that the load uses, in percent of the drive.
        used_percent: f64,
        /// Blocks of 4 KiB that the load uses.
        used_blocks: u32,
        /// Blocks of 4 KiB that the drive has.
        logical_blocks: u32,
        /// Share of the drive that was to be in use, in percent.
        utilisation_percent: f64,
    },
    /// A setting that makes no sense.
    #[error("{0}")]
    Setting(String),
    /// A plot could not be drawn.
    #[error("{path}: cannot draw the plot: {what}", path = path.display())]
    Plot {
        /// Which file.
        path: PathBuf,
        /// The failed action.
        what: String,
    },
}

impl Error {
    /// An error of the system on a file.
    pub(crate) fn file(path: &Path, source: io::Error) -> Error {
        Error::File { path: path.to_owned(), source }
    }
}
