//! Child processes: started in a network namespace if wanted, with a deadline on everything, gone when dropped.
//!
//! Invariants: signals go only to a child that has not been waited for, so that its process id cannot have been
//! reused. Children are in process groups of their own: Ctrl-C reaches only this program, which then ends them in
//! order.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::network::Side;

/// Pause between two looks at something that offers no way to be waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running child, killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` in the namespace of `side`; what it writes is appended to the file `log`.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be started.
    pub fn spawn(name: &str, command: &mut Command, side: &Side, log: &Path) -> Result<Self> {
        let open =
            || OpenOptions::new().create(true).append(true).open(log).map_err(Error::io_at("open", log));
        command.stdin(Stdio::null()).stdout(open()?).stderr(open()?);
        Self::spawn_with_pipes(name, command, side, log)
    }

    /// [`Process::spawn`] with the standard streams that `command` has.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be started.
    pub fn spawn_with_pipes(name: &str, command: &mut Command, side: &Side, log: &Path) -> Result<Self> {
        command.process_group(0);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = side.enter(|| command.spawn().map_err(Error::io(format!("start {name} ({program})"))))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the process has ended.
    ///
    /// # Errors
    /// [`Error::Exited`] with the end of its log.
    pub fn require_running(&mut self) -> Result<()> {
        match self.child.try_wait().map_err(Error::io(format!("look at {}", self.name)))? {
            None => Ok(()),
            Some(status) => Err(Error::Exited {
                name: self.name.clone(),
                status: status.to_string(),
                log_tail: tail(&self.log, 20),
            }),
        }
    }

    /// Asks the process to end (SIGTERM) and waits.
    ///
    /// # Errors
    /// [`Error::Deadline`] when it still runs after `timeout`.
    pub fn terminate(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let look = |child: &mut Child| child.try_wait().map_err(Error::io("look at a child"));
        if let Some(status) = look(&mut self.child)? {
            return Ok(status);
        }
        if let Some(id) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            rustix::process::kill_process(id, rustix::process::Signal::TERM)
                .map_err(|error| Error::io(format!("signal {}", self.name))(error.into()))?;
        }
        let began = Instant::now();
        loop {
            if let Some(status) = look(&mut self.child)? {
                return Ok(status);
            }
            if began.elapsed() > timeout {
                return Err(Error::Deadline {
                    what: format!("the end of {}", self.name),
                    after: timeout,
                    detail: tail(&self.log, 20),
                });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when the child is gone already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
    let began = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        check_interrupt()?;
        if began.elapsed() >= timeout {
            return Err(Error::Deadline { what: what.to_owned(), after: timeout, detail: String::new() });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Runs a command to its end and returns what it wrote to standard output.
///
/// # Errors
/// [`Error::Command`] with the end of its output when it fails.
pub fn run_to_end(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}").replace('"', "");
    let output = command
        .process_group(0)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::io(format!("start {shown}")))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Error::Command {
        program: shown,
        status: output.status.to_string(),
        output_tail: tail_of(&format!("{stdout}\n{stderr}"), 20),
    })
}

/// A program in PATH or the system directories.
///
/// # Errors
/// [`Error::ProgramMissing`] with the Debian package.
pub fn find_program(program: &'static str, package: &'static str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin", "/usr/bin", "/usr/lib/openssh"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
        .ok_or(Error::ProgramMissing { program, package })
}

/// The last `lines` lines of a text file; empty when it cannot be read, because this only feeds messages.
pub fn tail(path: &Path, lines: usize) -> String {
    tail_of(&String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()), lines)
}

fn tail_of(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
}

/// Set by SIGINT, SIGTERM and SIGHUP.
fn interrupt_flag() -> &'static Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    FLAG.get_or_init(Arc::default)
}

/// From now on signals that ask for the end are noticed by [`check_interrupt`] instead of ending the program at once.
///
/// # Errors
/// [`Error::Io`] from the operating system.
pub fn catch_signals() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(interrupt_flag()))
            .map_err(Error::io("catch signals"))?;
    }
    Ok(())
}

/// True once a signal has asked for the end.
pub fn is_interrupted() -> bool {
    interrupt_flag().load(Ordering::Relaxed)
}

/// Fails once a signal has asked for the end.
///
/// # Errors
/// [`Error::Interrupted`].
pub fn check_interrupt() -> Result<()> {
    if is_interrupted() { Err(Error::Interrupted) } else { Ok(()) }
}
