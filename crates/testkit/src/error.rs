//! The one error type of the harness: what failed, where, and what the failed program said.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the harness could not go on, or which promise of the server was broken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or process call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, with the path.
        what: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// A program was not found where programs are looked for.
    #[error(
        "program `{0}` was not found in PATH, /usr/sbin or /usr/local/sbin; install it (./scripts/setup.sh)"
    )]
    ProgramMissing(String),
    /// A helper program ended with a failure.
    #[error("{program} failed ({status}):\n{output_tail}")]
    Command {
        /// The command as started.
        program: String,
        /// Its exit status.
        status: String,
        /// The last lines it wrote.
        output_tail: String,
    },
    /// A process ended while it was expected to run.
    #[error("{name} ended ({status}) before it was ready; the end of its log:\n{log_tail}")]
    Exited {
        /// Which process.
        name: String,
        /// Its exit status.
        status: String,
        /// The last lines of its log.
        log_tail: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {} ms; {detail}", .after.as_millis())]
    Deadline {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
        /// Last state seen, or the end of a log.
        detail: String,
    },
    /// The process is not running, or runs already.
    #[error("{0}")]
    State(String),
    /// This machine lacks what the work needs; nothing is wrong with the product.
    #[error("not possible here: {0}")]
    Unavailable(String),
    /// The server or the connection refused a statement.
    #[error("{what}: {source}")]
    Sql {
        /// The statement, shortened, or the step.
        what: String,
        /// The client library's error.
        source: Box<mysql::Error>,
    },
    /// Output of a program, or a file, that the harness does not understand.
    #[error("cannot understand {what}: {detail}")]
    Parse {
        /// What was read.
        what: String,
        /// What was wrong with it.
        detail: String,
    },
    /// A promise was broken: lost, partial or changed data, a damaged table.
    #[error("broken promise: {0}")]
    Violation(String),
}

impl Error {
    /// Wraps an I/O error with what was being done.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Wraps an I/O error with a verb and a path.
    pub fn io_at(verb: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        Self::io(format!("{verb} {}", path.display()))
    }

    /// Wraps an error of the client library with the (shortened) statement.
    pub fn sql(statement: &str) -> impl FnOnce(mysql::Error) -> Self {
        let what = shorten(statement);
        move |source| Self::Sql { what, source: Box::new(source) }
    }

    /// True when the connection broke or the server is going away, so a client should reconnect.
    pub fn is_connection_loss(&self) -> bool {
        match self {
            Self::Sql { source, .. } => is_connection_loss(source),
            _ => false,
        }
    }
}

/// True for errors that say nothing about the statement, only that the connection is gone.
///
/// Server codes: 1053 shutdown in progress, 1927 connection killed, 4031 disconnected by inactivity,
/// 1152/1158..1161 network trouble seen by the server.
pub fn is_connection_loss(error: &mysql::Error) -> bool {
    match error {
        mysql::Error::MySqlError(server) => {
            matches!(server.code, 1053 | 1152 | 1158..=1161 | 1927 | 4031)
        }
        other => other.is_connectivity_error(),
    }
}

/// True for a deadlock (1213) or a lock wait time-out (1205): the transaction may be tried again.
pub fn is_retryable(error: &mysql::Error) -> bool {
    matches!(error, mysql::Error::MySqlError(server) if matches!(server.code, 1205 | 1213))
}

fn shorten(statement: &str) -> String {
    const MAX_CHARS: usize = 160;
    let flat = statement.split_whitespace().collect::<Vec<_>>().join(" ");
    if flat.chars().count() <= MAX_CHARS {
        return flat;
    }
    let mut short: String = flat.chars().take(MAX_CHARS).collect();
    short.push_str(" ...");
    short
}

/// The last `lines` lines of a text file; empty when it cannot be read, because this only feeds messages.
pub fn tail(path: &Path, lines: usize) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    tail_of(&String::from_utf8_lossy(&bytes), lines)
}

/// The last `lines` lines of `text`.
pub fn tail_of(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
}

/// Finds a program the way the server's own scripts do: PATH first, then the system directories.
///
/// # Errors
/// [`Error::ProgramMissing`] when there is none.
pub fn find_program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/usr/bin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| Error::ProgramMissing(name.to_owned()))
}
