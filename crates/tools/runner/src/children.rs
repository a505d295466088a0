//! System calls on children that neither std nor rustix has: the end of one with its status and CPU time, and the end of
//! one with its parent.

#![allow(unsafe_code, reason = "std has neither wait4 nor a parent-death signal")]

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// A process that has ended, and is reaped.
#[derive(Debug)]
pub struct Ended {
    /// Its id, free for reuse.
    pub id: u32,
    /// How it ended.
    pub status: ExitStatus,
    /// CPU time of it and of the descendants it has waited for.
    pub processor: Duration,
}

/// Reaps a child that has ended, if there is one. Orphans are children of a subreaper, too.
pub fn reap() -> Option<Ended> {
    let mut status = 0;
    // SAFETY: zeros are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to variables of this function, of the types that the call writes.
    let id = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage) };
    let id = u32::try_from(id).ok().filter(|id| *id != 0)?;
    let time = |value: libc::timeval| {
        let whole = Duration::from_secs(value.tv_sec.try_into().unwrap_or_default());
        whole + Duration::from_micros(value.tv_usec.try_into().unwrap_or_default())
    };
    let processor = time(usage.ru_utime) + time(usage.ru_stime);
    Some(Ended { id, status: ExitStatus::from_raw(status), processor })
}

/// Lets the kernel kill the process of `command` when this one ends, however it ends. The kernel looks at the thread
/// that starts it, so that has to be the main thread.
pub fn end_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let set = move || {
        // SAFETY: takes numbers only.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // The parent may have ended before the call.
        if std::os::unix::process::parent_id() == parent {
            Ok(())
        } else {
            Err(std::io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: between fork and exec the closure makes two system calls, and neither allocates nor takes a lock.
    unsafe { command.pre_exec(set) };
}
