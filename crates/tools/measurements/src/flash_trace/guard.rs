//! Clean-up at every end of this process: servers, the mount, the loop device, the trace instance.
//!
//! A shell waits on a pipe that only this process holds. When the pipe closes, by [`Drop`] or because the process was
//! killed, the shell runs the clean-up. It touches only what it was given by name.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use redoubt_workload::error::{Error, Result};

/// Reads process ids up to the end of its input (`none` forgets them) and ends those left; deaf to the signals of a
/// terminal. Then comes what was asked for.
const WAIT: &str = "trap '' INT TERM HUP; pids=; \
    while read -r word; do case $word in none) pids=;; *) pids=\"$pids $word\";; esac; done; \
    if [ -n \"$pids\" ]; then kill -9 $pids; fi; ";

/// Unmounts `$1` if something is mounted there, gives the loop device `$2` back, and removes the directories that held
/// the mount point and the image. A lazy unmount is for the case that something still uses the disk.
const DISK: &str = "n=0; while mountpoint -q \"$1\"; do \
    umount \"$1\" && break; n=$((n+1)); [ $n -ge 50 ] && { umount --lazy \"$1\"; break; }; sleep 0.1; done; \
    losetup --detach \"$2\"; rm -f \"$3/image\"; rmdir \"$3\" \"$1\" \"${1%/*}\"";

/// Removes the trace instance `$1`. It is busy while its pipe is open, which ends with the process that reads it.
const TRACE_INSTANCE: &str = "n=0; echo 0 > \"$1/tracing_on\"; \
    until rmdir \"$1\" || [ $n -ge 50 ]; do n=$((n+1)); sleep 0.1; done";

/// Cleans up when dropped, or when this process is gone.
#[derive(Debug)]
pub(super) struct Guard {
    shell: Child,
}

impl Guard {
    /// For a disk: its mount point, its loop device, the directory of its image.
    ///
    /// # Errors
    /// [`Error::Io`] when no shell can be started.
    pub(super) fn disk(point: &Path, device: &Path, image_directory: &Path) -> Result<Self> {
        Self::start(DISK, &[point, device, image_directory])
    }

    /// For a trace instance.
    ///
    /// # Errors
    /// [`Error::Io`] when no shell can be started.
    pub(super) fn trace_instance(instance: &Path) -> Result<Self> {
        Self::start(TRACE_INSTANCE, &[instance])
    }

    /// Processes to end first. They replace those of an earlier call; a process that has ended must not stay among
    /// them.
    ///
    /// # Errors
    /// [`Error::Io`] when the shell is gone.
    pub(super) fn set_processes(&self, ids: &[u32]) -> Result<()> {
        let mut text = String::from("none\n");
        for id in ids {
            text.push_str(&format!("{id}\n"));
        }
        let Some(mut input) = self.shell.stdin.as_ref() else { return Ok(()) };
        input.write_all(text.as_bytes()).map_err(Error::io("write to the shell that cleans up"))
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
        // An error cannot be reported from here; leftovers have this project's name.
        let _ = self.shell.wait();
    }
}
