//! Child processes with a deadline on everything: their readiness, their end, their signals.
//!
//! Invariants: signals go only to a child that has not been waited for, so its process id cannot have been reused;
//! dropping kills and reaps the child. From [`catch_signals`] on children are in process groups of their own: Ctrl-C
//! reaches only this program, which then ends them in order. Before, they are in this program's, so that what ends it
//! as a group ends them, too.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Error, Result};

/// Pause between two looks at something that offers no way to be waited for.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Lines of a log or an output that go into a message.
const TAIL_LINES: usize = 40;

/// A running child process, killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: Option<PathBuf>,
    /// How long the log was before this process.
    log_start_bytes: u64,
}

impl Process {
    /// Starts `command`.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be started.
    pub fn spawn(name: &str, command: &mut Command) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = in_group(command).spawn().map_err(Error::io(format!("start {name} ({program})")))?;
        Ok(Self { name: name.to_owned(), child, log: None, log_start_bytes: 0 })
    }

    /// [`Process::spawn`] with an empty standard input; the output is appended to the file `log`.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be started.
    pub fn spawn_logged(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let open =
            || OpenOptions::new().create(true).append(true).open(log).map_err(Error::io_at("open", log));
        let (stdout, stderr) = (open()?, open()?);
        let log_start_bytes = stdout.metadata().map_err(Error::io_at("look at", log))?.len();
        let mut process = Self::spawn(name, command.stdin(Stdio::null()).stdout(stdout).stderr(stderr))?;
        (process.log, process.log_start_bytes) = (Some(log.to_owned()), log_start_bytes);
        Ok(process)
    }

    /// Waits until the process has written a line to its log that begins with `prefix`, and returns the rest of it.
    ///
    /// # Errors
    /// [`Error::Exited`] or [`Error::Deadline`] with the end of the log, [`Error::State`] if it has none,
    /// [`Error::Interrupted`].
    pub fn wait_until_logged(&mut self, prefix: &str, timeout: Duration) -> Result<String> {
        let Some(log) = self.log.clone() else {
            return Err(Error::State(format!("{} has no log", self.name)));
        };
        let mut file = File::open(&log).map_err(Error::io_at("open", &log))?;
        file.seek(SeekFrom::Start(self.log_start_bytes)).map_err(Error::io_at("read", &log))?;
        let mut written = Vec::new();
        let what = format!("{:?} in the log of {}", prefix.trim(), self.name);
        let found = poll_until(&what, timeout, || {
            // Before the log is read, so that what it wrote at its end is there.
            let running = self.require_running();
            file.read_to_end(&mut written).map_err(Error::io_at("read", &log))?;
            let text = String::from_utf8_lossy(&written);
            let whole_lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
            let rest = whole_lines.lines().find_map(|line| line.strip_prefix(prefix));
            rest.map_or_else(|| running.map(|()| None), |rest| Ok(Some(rest.trim().to_owned())))
        });
        found.map_err(|error| self.explain(error))
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

    /// Fails if the process has ended.
    ///
    /// # Errors
    /// [`Error::Exited`] with the end of its log.
    pub fn require_running(&mut self) -> Result<()> {
        match self.try_wait()? {
            None => Ok(()),
            Some(status) => Err(self.exited(status)),
        }
    }

    /// [`Error::Exited`] with the end of its log.
    pub fn exited(&self, status: ExitStatus) -> Error {
        Error::Exited { name: self.name.clone(), status: status.to_string(), log_tail: self.log_tail() }
    }

    fn log_tail(&self) -> String {
        self.log.as_deref().map(|log| tail(log, TAIL_LINES)).unwrap_or_default()
    }

    /// Waits for the end of the process, signals or not.
    ///
    /// # Errors
    /// [`Error::Deadline`] when it still runs after `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let what = format!("the end of {}", self.name);
        poll_every(POLL_INTERVAL, &what, timeout, || self.try_wait()).map_err(|error| self.explain(error))
    }

    /// The error with the end of the log as its detail, if it is a deadline.
    pub fn explain(&self, error: Error) -> Error {
        match error {
            Error::Deadline { what, after, .. } => Error::Deadline { what, after, detail: self.log_tail() },
            other => other,
        }
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
        self.signal(Signal::TERM)?;
        self.wait(timeout)
    }

    /// Stops the process (SIGSTOP): it does nothing, and its kernel continues taking bytes for it, until it is
    /// killed or continues ([`Process::resume`]).
    ///
    /// # Errors
    /// [`Error::Exited`] when it has ended, [`Error::Io`] from the operating system.
    pub fn halt(&mut self) -> Result<()> {
        self.require_running()?;
        self.signal(Signal::STOP)
    }

    /// Lets a stopped process go on (SIGCONT).
    ///
    /// # Errors
    /// [`Error::Exited`] when it has ended, [`Error::Io`] from the operating system.
    pub fn resume(&mut self) -> Result<()> {
        self.require_running()?;
        self.signal(Signal::CONT)
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|error| Error::io(format!("signal {}", self.name))(error.into()))
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
    let process = Pid::from_raw(id).filter(|_| id > 0);
    let process = process.ok_or_else(|| Error::State(format!("{id} is the id of no process")))?;
    kill_process(process, Signal::KILL).map_err(|error| Error::io(format!("kill process {id}"))(error.into()))
}

/// Looks again and again until `look` answers `Some`, or returns its error.
///
/// # Errors
/// [`Error::Deadline`] after `timeout`, [`Error::Interrupted`], or the error of `look`.
pub fn poll_until<T>(
    what: &str,
    timeout: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    poll_every(POLL_INTERVAL, what, timeout, || {
        let found = look()?;
        if found.is_none() {
            check_interrupt()?;
        }
        Ok(found)
    })
}

/// [`poll_until`] with another pause between two looks, signals or not.
///
/// # Errors
/// [`Error::Deadline`] after `timeout`, or the error of `look`.
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
pub fn run_to_end(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}").replace('"', "");
    let output = in_group(command).output().map_err(Error::io(format!("start {shown}")))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Error::Command {
        program: shown,
        status: output.status.to_string(),
        output_tail: tail_of(&format!("{stdout}\n{stderr}"), TAIL_LINES),
    })
}

/// A program in PATH or the system directories; `package` is the Debian package that has it.
///
/// # Errors
/// [`Error::ProgramMissing`].
pub fn find_program(program: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin", "/usr/bin", "/usr/lib/openssh"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| Error::missing(program, format!("on Debian: apt-get install {package}")))
}

/// The last `lines` lines of a text file; empty when it cannot be read, because this only feeds messages.
pub fn tail(path: &Path, lines: usize) -> String {
    tail_of(&String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()), lines)
}

/// The last `lines` lines of `text`.
pub fn tail_of(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
}

/// Time one call took, with its result.
///
/// # Errors
/// Those of the call.
pub fn timed<T>(call: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = Instant::now();
    call().map(|value| (value, start.elapsed()))
}

/// Set by SIGINT, SIGTERM and SIGHUP, once they are caught.
static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on signals that ask for the end are noticed by [`check_interrupt`] instead of ending the program at once.
///
/// # Errors
/// [`Error::Io`] from the operating system.
pub fn catch_signals() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let flag = INTERRUPTED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag)).map_err(Error::io("catch signals"))?;
    }
    Ok(())
}

/// Fails once a signal has asked for the end.
///
/// # Errors
/// [`Error::Interrupted`].
pub fn check_interrupt() -> Result<()> {
    match INTERRUPTED.get() {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(Error::Interrupted),
        _ => Ok(()),
    }
}

/// CPU time of a process (a number, or `self`) and its threads, in milliseconds; the kernel's for it, too.
///
/// # Errors
/// [`Error::Io`], [`Error::Parse`].
pub fn processor_ms(process: &str) -> Result<u64> {
    let path = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&path).map_err(Error::io(format!("read {path}")))?;
    let ticks = parse_ticks(&text).ok_or(Error::Parse { what: path, detail: text })?;
    Ok(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1))
}

/// User and system time: the 14th and 15th field. The second one, the name in parentheses, may hold anything.
fn parse_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

/// The group of a child, as the module says.
fn in_group(command: &mut Command) -> &mut Command {
    if INTERRUPTED.get().is_some() { command.process_group(0) } else { command }
}

#[cfg(test)]
mod tests;
