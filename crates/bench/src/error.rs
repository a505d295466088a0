//! Why a benchmark could not go on, in one line that says what to do.

use std::path::Path;
use std::time::Duration;

/// Result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// See the module.
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
    /// A program is not installed.
    #[error("program `{program}` was not found; on Debian: apt-get install {package}")]
    ProgramMissing {
        /// Its name.
        program: &'static str,
        /// Debian package that has it.
        package: &'static str,
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
    #[error("{what} did not happen within {} s; {detail}", .after.as_secs())]
    Deadline {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
        /// The end of a log.
        detail: String,
    },
    /// Options that do not fit together, or a machine that lacks something.
    #[error("{0}")]
    Usage(String),
    /// A statement failed.
    #[error("{what}: {source}")]
    Sql {
        /// The statement, shortened.
        what: String,
        /// The client library's error.
        source: Box<mysql::Error>,
    },
    /// Output that is not understood.
    #[error("cannot understand {what}: {detail}")]
    Parse {
        /// What was read.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The tables do not hold what was acknowledged, or break a rule of the benchmark.
    #[error("inconsistent data: {0}")]
    Inconsistent(String),
    /// A plot could not be drawn.
    #[error("drawing a plot: {0}")]
    Plot(String),
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

    /// True for a deadlock (1213) or a lock wait time-out (1205): the transaction may be tried again.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Sql { source, .. }
            if matches!(&**source, mysql::Error::MySqlError(server) if matches!(server.code, 1205 | 1213)))
    }

    /// True for a row whose key is there already (1062).
    pub fn is_duplicate_key(&self) -> bool {
        matches!(self, Self::Sql { source, .. }
            if matches!(&**source, mysql::Error::MySqlError(server) if server.code == 1062))
    }

    /// True when there is no server behind the connection (any more).
    pub fn is_connection_loss(&self) -> bool {
        matches!(self, Self::Sql { source, .. } if match &**source {
            mysql::Error::MySqlError(server) => server.code == 1053,
            other => other.is_connectivity_error(),
        })
    }
}
