//! Why a server, a load or its runner could not continue, and which promise of a server was broken.

use std::path::Path;
use std::time::Duration;

/// Result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a server, a load or its runner could not continue, and which promise of a server was broken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or process call failed.
    #[error("{what}: {source}")]
    Io {
        /// The failed operation, with the path.
        what: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// A program was not found where programs are looked for.
    #[error("program `{program}` was not found; {remedy}")]
    ProgramMissing {
        /// Its name, or the path at which it should be.
        program: String,
        /// What to do about it.
        remedy: String,
    },
    /// A program ended with a failure.
    #[error("{program} failed ({status}):\n{output_tail}")]
    Command {
        /// The command as started.
        program: String,
        /// Its exit status.
        status: String,
        /// The last lines it wrote.
        output_tail: String,
    },
    /// A process ended while it was needed.
    #[error("{name} ended ({status}); the end of its log:\n{log_tail}")]
    Exited {
        /// Which process.
        name: String,
        /// Its exit status.
        status: String,
        /// The last lines of its log.
        log_tail: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {after:?}; {detail}")]
    Deadline {
        /// The awaited condition.
        what: String,
        /// How long.
        after: Duration,
        /// Last state seen, or the end of a log.
        detail: String,
    },
    /// Options that do not fit together, or something that is not in the state in which it must be.
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
    /// Output of a program, or a file, that is not understood.
    #[error("cannot parse {what}: {detail}")]
    Parse {
        /// The text that was read.
        what: String,
        /// The defect.
        detail: String,
    },
    /// A promise was broken: lost, partial or changed data, a damaged table, a rule of a load that does not hold.
    #[error("broken promise: {0}")]
    Violation(String),
    /// A signal asked to end.
    #[error("interrupted; everything that was started is stopped and removed")]
    Interrupted,
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
        let mut what = statement.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((cut, _)) = what.char_indices().nth(160) {
            what.truncate(cut);
            what.push_str(" ...");
        }
        move |source| Self::Sql { what, source: Box::new(source) }
    }

    /// A program that is not there, and what to do about it.
    pub fn missing(program: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::ProgramMissing { program: program.into(), remedy: remedy.into() }
    }

    /// True when the connection broke or the server is going away, so a client should reconnect.
    pub fn is_connection_loss(&self) -> bool {
        matches!(self, Self::Sql { source, .. } if is_connection_loss(source))
    }

    /// True for a deadlock or a lock wait timeout: the transaction may be tried again.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Sql { source, .. } if is_retryable(source))
    }

    /// True when a member of a group refuses a statement because it is not, or no longer, part of the group (1047).
    pub fn is_outside_group(&self) -> bool {
        matches!(self, Self::Sql { source, .. } if is_outside_group(source))
    }

    /// True for a table whose tablespace is not there, or was discarded (1812, 1814): the server knows the table, and
    /// has no file for it.
    pub fn is_without_tablespace(&self) -> bool {
        matches!(self, Self::Sql { source, .. }
            if matches!(&**source, mysql::Error::MySqlError(server) if matches!(server.code, 1812 | 1814)))
    }

    /// True for a row whose key is there already (1062).
    pub fn is_duplicate_key(&self) -> bool {
        matches!(self, Self::Sql { source, .. }
            if matches!(&**source, mysql::Error::MySqlError(server) if server.code == 1062))
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

/// True when a member of a group refuses a statement because it is not part of the group (1047).
pub fn is_outside_group(error: &mysql::Error) -> bool {
    matches!(error, mysql::Error::MySqlError(server) if server.code == 1047)
}

/// True for a deadlock (1213) or a lock wait timeout (1205): the transaction may be tried again.
pub fn is_retryable(error: &mysql::Error) -> bool {
    matches!(error, mysql::Error::MySqlError(server) if matches!(server.code, 1205 | 1213))
}
