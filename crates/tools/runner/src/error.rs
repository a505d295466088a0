//! Errors of the runner: all of them end the run before the first test, or mean that its own files cannot be written.

use std::path::{Path, PathBuf};

/// Result of the runner.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the runner.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written, or a program not started.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// A verb.
        what: &'static str,
        /// Its object.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A line of a file of the runner is malformed.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// The plan does not cover the tests.
    #[error("{0}")]
    Plan(String),
    /// Another run uses the directory of logs.
    #[error("another run uses {}; wait for its end, or give this one another --out", .0.display())]
    Busy(PathBuf),
    /// The command line is wrong.
    #[error("{0} (try ./test --help)")]
    Usage(String),
}

impl Error {
    /// For `map_err`.
    pub fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}
