//! One run of the `redoubt` command: its exit code, what it printed, and how long it took.
//!
//! Invariant: a run has a deadline; a command that hangs is killed and reported, it does not hang the test.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use redoubt_workload::error::{Error, Result};
use redoubt_workload::process::Process;

/// How long a command may take unless the caller says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The result of a command.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// How long it took.
    pub took: Duration,
}

impl Outcome {
    /// Runs `program` with nothing on standard input.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be started, [`Error::Deadline`] when it does not end within `patience`.
    pub fn of(
        program: &Path,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        patience: Duration,
    ) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = Instant::now();
        let mut process = Process::spawn("a command", &mut command)?;
        let stdout = process.child_mut().stdout.take();
        let stderr = process.child_mut().stderr.take();
        // Both pipes are read while the process runs, so that it never blocks on a full one.
        let readers = (collect(stdout), collect(stderr));
        let status = process.wait(patience);
        let took = start.elapsed();
        if status.is_err() {
            process.kill()?;
        }
        let text = |reader: std::thread::JoinHandle<String>| {
            reader.join().map_err(|_| Error::State("a reading thread panicked".into()))
        };
        let (stdout, stderr) = (text(readers.0)?, text(readers.1)?);
        match status {
            Ok(status) => Ok(Self { code: status.code(), stdout, stderr, took }),
            Err(_) => Err(Error::Deadline {
                what: format!("the end of {command:?}"),
                after: patience,
                detail: format!("it printed {stdout:?} and {stderr:?}"),
            }),
        }
    }

    /// The command must have failed with `code` and a message that has every part of `parts`.
    ///
    /// # Errors
    /// [`Error::Violation`] with the command's whole output.
    pub fn require_failure(&self, code: i32, parts: &[&str]) -> Result<()> {
        let missing: Vec<_> = parts.iter().filter(|part| !self.stderr.contains(**part)).collect();
        if self.code == Some(code) && missing.is_empty() && !self.stderr.contains("panicked") {
            return Ok(());
        }
        Err(Error::Violation(format!(
            "expected exit code {code} and a message with {missing:?}, got {:?} after {} ms:\n{}\n{}",
            self.code,
            self.took.as_millis(),
            self.stdout,
            self.stderr
        )))
    }

    /// The command must have succeeded; returns its standard output.
    ///
    /// # Errors
    /// [`Error::Violation`] with the command's whole output.
    pub fn require_success(self) -> Result<String> {
        if self.code == Some(0) {
            return Ok(self.stdout);
        }
        Err(Error::Violation(format!(
            "expected success, got {:?} after {} ms:\n{}\n{}",
            self.code,
            self.took.as_millis(),
            self.stdout,
            self.stderr
        )))
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // The bytes read before a failure still help a message.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
