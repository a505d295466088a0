//! The system call that returns an ended child with its status and the CPU time of it and its children.

#![allow(unsafe_code, reason = "neither std nor rustix has wait4")]

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
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
