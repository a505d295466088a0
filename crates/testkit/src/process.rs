//! A child process with a deadline on everything: its end, its readiness, its signals.
//!
//! Invariants: signals go only to a child that has not been waited for, so its process id cannot have been
//! reused; dropping kills and reaps the child.
//!
//! Has `unsafe` because the standard library cannot send SIGTERM.

use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Pause between two looks at something that offers no way to be waited for.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running child process, killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts `command`.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be started.
    pub fn spawn(name: &str, command: &mut Command) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(Error::io(format!("start {name} ({program})")))?;
        Ok(Self { name: name.to_owned(), child })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child, to take its pipes.
    pub fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The exit status if the process has ended.
    ///
    /// # Errors
    /// [`Error::Io`] from the operating system.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(Error::io(format!("look at {}", self.name)))
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    /// [`Error::Deadline`] when it still runs after `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let what = format!("the end of {}", self.name);
        poll_until(&what, timeout, || self.try_wait())
    }

    /// Kills the process (SIGKILL) and waits for its end.
    ///
    /// # Errors
    /// [`Error::Io`] from the operating system.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().map_err(Error::io(format!("kill {}", self.name)))?;
        self.child.wait().map_err(Error::io(format!("wait for {}", self.name)))?;
        Ok(())
    }

    /// Asks the process to end (SIGTERM) and waits.
    ///
    /// # Errors
    /// [`Error::Deadline`] when it still runs after `timeout`.
    pub fn terminate(&mut self, timeout: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.try_wait()? {
            return Ok(status);
        }
        self.signal(libc::SIGTERM)?;
        self.wait(timeout)
    }

    /// Stops the process (SIGSTOP): it does nothing, and its kernel goes on taking bytes for it, until it is
    /// killed.
    ///
    /// # Errors
    /// [`Error::Io`] from the operating system.
    pub fn halt(&mut self) -> Result<()> {
        self.signal(libc::SIGSTOP)
    }

    fn signal(&mut self, signal: libc::c_int) -> Result<()> {
        let id = libc::pid_t::try_from(self.child.id())
            .map_err(|_| Error::State(format!("{} has an impossible process id", self.name)))?;
        // SAFETY: kill(2) takes two integers and touches no memory of ours. The child has not been reaped
        // (`try_wait` above returned None and nothing else waits), so the id still names it.
        if unsafe { libc::kill(id, signal) } != 0 {
            return Err(Error::io(format!("signal {}", self.name))(std::io::Error::last_os_error()));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when the child is gone already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills a process (SIGKILL) that is no child of this one.
///
/// # Errors
/// [`Error::Io`] when there is none of this id.
pub fn kill9(id: i32) -> Result<()> {
    if id <= 0 {
        return Err(Error::State(format!("{id} is the id of no process")));
    }
    // SAFETY: kill(2) takes two integers and touches no memory of ours.
    if unsafe { libc::kill(id, libc::SIGKILL) } != 0 {
        return Err(Error::io(format!("kill process {id}"))(std::io::Error::last_os_error()));
    }
    Ok(())
}

/// Looks again and again until `look` answers `Some`, or returns its error.
///
/// # Errors
/// [`Error::Deadline`] after `timeout`, or the error of `look`.
pub fn poll_until<T>(what: &str, timeout: Duration, look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    poll_every(POLL_INTERVAL, what, timeout, look)
}

/// [`poll_until`] with another pause between two looks.
///
/// # Errors
/// As [`poll_until`].
pub fn poll_every<T>(
    interval: Duration,
    what: &str,
    timeout: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if start.elapsed() >= timeout {
            return Err(Error::Deadline { what: what.to_owned(), after: timeout, detail: String::new() });
        }
        std::thread::sleep(interval);
    }
}

/// Runs a command to its end and returns what it wrote to standard output.
///
/// # Errors
/// [`Error::Command`] with the end of its output when it fails.
pub fn run_to_end(name: &str, command: &mut Command) -> Result<String> {
    let output = command.output().map_err(Error::io(format!("start {name}")))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Error::Command {
        program: format!("{name}: {command:?}"),
        status: output.status.to_string(),
        output_tail: crate::error::tail_of(&format!("{stdout}\n{stderr}"), 40),
    })
}
