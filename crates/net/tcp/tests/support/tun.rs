//! A namespace with a network device whose packets a test reads and writes: the kernel is at its other end.
#![allow(unsafe_code, reason = "a device's ioctl, a thread's namespace")]

use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

/// Of the engine.
pub const SERVER: &str = "10.66.0.2";

/// Moves this thread and its future child threads into a new network namespace, and creates the device.
///
/// # Errors
/// Where this machine does not allow it.
pub fn enter() -> Result<File> {
    // SAFETY: no memory is involved.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(Error::last_os_error());
    }
    let device =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    // SAFETY: all zeros is a request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..4].copy_from_slice(&b"tcp0".map(|byte| byte as libc::c_char));
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    // SAFETY: the request outlives the call.
    if unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } != 0 {
        return Err(Error::last_os_error());
    }
    for words in [
        &["address", "add", "10.66.0.1/24", "dev", "tcp0"][..],
        &["link", "set", "tcp0", "txqueuelen", "10000", "up"],
        &["link", "set", "lo", "up"],
    ] {
        let output = Command::new("ip").args(words).output()?;
        if !output.status.success() {
            return Err(Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
    }
    Ok(device)
}

/// Sleeps until there is a packet, or so long.
pub fn wait(device: &File, timeout: std::time::Duration) {
    let mut entry = libc::pollfd { fd: device.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
    // SAFETY: both outlive the call.
    unsafe { libc::ppoll(&raw mut entry, 1, &raw const timeout, std::ptr::null()) };
}
