//! The process that serves the view: how it is forked from the process that becomes the program, and how it detects
//! the end of the program.

use crate::error::{CliError, Result};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Role of a process after [`split`].
pub enum Side {
    /// It has the number it had before.
    Program,
    /// A new one, of which the other is not the parent: no program is surprised by a child that it did not start.
    View,
}

fn failed(what: &'static str) -> CliError {
    CliError::io("start", what, std::io::Error::last_os_error())
}

/// Makes a second process. The calling one must have one thread.
///
/// # Errors
/// Errors of the system.
pub fn split() -> Result<Side> {
    const WHAT: &str = "the process that serves the view";
    // The parent of this command may ignore SIGCHLD, and then a child leaves no status to wait for.
    // SAFETY: the default action is no function of this process.
    let inherited = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    // SAFETY: there is one thread, so no lock is held by another that is missing in the new process.
    match unsafe { libc::fork() } {
        -1 => Err(failed(WHAT)),
        0 => {
            // SAFETY: as before. The process between ends at once, without anything of the first one's.
            match unsafe { libc::fork() } {
                0 => Ok(Side::View),
                // SAFETY: ends this process.
                other => unsafe { libc::_exit(i32::from(other < 0)) },
            }
        }
        between => {
            let mut status = 0;
            // SAFETY: `status` lives until it returns.
            let ended = until_not_interrupted(|| unsafe { libc::waitpid(between, &raw mut status, 0) });
            // SAFETY: what was there before; nothing in this process has set it to a function.
            unsafe { libc::signal(libc::SIGCHLD, inherited) };
            if ended == between && status == 0 { Ok(Side::Program) } else { Err(failed(WHAT)) }
        }
    }
}

/// A descriptor that can be read once this process has ended, whatever program it is by then.
///
/// # Errors
/// Errors of the system.
pub fn watch_self() -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let number = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    match i32::try_from(number) {
        // SAFETY: the descriptor was just opened and has no other owner.
        Ok(number) if number >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
        _ => Err(CliError::io("watch", "the program", std::io::Error::last_os_error())),
    }
}

/// Waits until it can be read.
pub fn wait_for_end(program: &OwnedFd) {
    let mut wanted = libc::pollfd { fd: program.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives until it returns.
    until_not_interrupted(|| unsafe { libc::poll(&raw mut wanted, 1, -1) });
}

/// Result of a system call, which is repeated while signals interrupt it.
fn until_not_interrupted(mut call: impl FnMut() -> libc::c_int) -> libc::c_int {
    loop {
        let returned = call();
        if returned >= 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return returned;
        }
    }
}

/// A signal that ends the program must not take its files away before it has ended. A reader of the program's output
/// must not wait for this process.
///
/// # Errors
/// Errors of the system.
pub fn step_back() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: the process ignores the signal from now on; no handler is involved.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let nothing = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|error| CliError::io("open", "/dev/null", error))?;
    for standard in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
        // SAFETY: descriptors that are open; no pointers.
        if unsafe { libc::dup2(nothing.as_raw_fd(), standard) } < 0 {
            return Err(failed("the process that serves the view"));
        }
    }
    Ok(())
}

/// Gives up what this process may do in a user namespace, which the program has given up by then: only equals may
/// follow a link to what a process has open.
pub fn drop_capabilities() {
    // `linux/capability.h`: version 3 and this process; three sets of 64 bits, empty.
    let header: [u32; 2] = [0x2008_0522, 0];
    let sets = [0u32; 6];
    // SAFETY: both live until it returns, and have the layouts of that version.
    unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
}
