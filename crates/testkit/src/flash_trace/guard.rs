//! What must go when this process ends, however it ends: the mount, the loop device, the trace instance.
//!
//! A shell waits on a pipe that only this process holds. When the pipe closes, by [`Drop`] or because the process was
//! killed, the shell runs the clean-up. It touches only what it was given by name.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::error::{Error, Result};

/// Waits for the end of its input, then runs what was asked for; deaf to the signals of a terminal.
const WAIT: &str = "trap '' INT TERM HUP; cat >/dev/null; ";

/// Cleans up when dropped, or when this process is gone.
#[derive(Debug)]
pub(super) struct Guard {
    shell: Child,
}

impl Guard {
    /// Unmounts `point`, if something is mounted there, and gives the loop device back.
    ///
    /// # Errors
    /// [`Error::Io`] when no shell can be started.
    pub(super) fn disk(point: &Path, device: &Path) -> Result<Self> {
        // A lazy unmount is for the case that a server still runs: the rest goes when it ends.
        let script =
            "mountpoint -q \"$1\" && { umount \"$1\" || umount --lazy \"$1\"; }; losetup --detach \"$2\"";
        Self::start(script, &[point, device])
    }

    /// Removes a trace instance.
    ///
    /// # Errors
    /// [`Error::Io`] when no shell can be started.
    pub(super) fn trace_instance(instance: &Path) -> Result<Self> {
        // It is busy while its pipe is open, which ends with the process that reads it.
        let script = "echo 0 > \"$1/tracing_on\"; n=0; until rmdir \"$1\" || [ $n -ge 50 ]; do n=$((n+1)); sleep 0.1; done";
        Self::start(script, &[instance])
    }

    fn start(script: &str, arguments: &[&Path]) -> Result<Self> {
        let shell = Command::new("sh")
            .arg("-c")
            .arg(format!("{WAIT}{script}"))
            .arg("redoubt-testkit-guard")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::io("start the shell that cleans up"))?;
        Ok(Self { shell })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // There is nobody to tell; what is left over is named after this project.
        let _ = self.shell.wait();
    }
}
