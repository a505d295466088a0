//! An eventfd that is readable after it was rung.

use crate::next;
use libc::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An eventfd that is readable after it was rung.
pub struct Doorbell(OwnedFd);

/// Creates an eventfd with these flags.
///
/// # Errors
/// Those of the kernel.
pub fn create(flags: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; a new descriptor is ours.
    unsafe {
        let fd = libc::eventfd(0, flags);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Makes it readable.
pub fn ring(fd: RawFd) {
    let one = 1u64;
    // SAFETY: eight bytes.
    unsafe { next::write(fd, (&raw const one).cast(), 8) };
}

/// Makes it unreadable. It must be readable or non-blocking.
pub fn clear(fd: RawFd) {
    let mut count = 0u64;
    // SAFETY: room for eight bytes.
    unsafe { next::read(fd, (&raw mut count).cast(), 8) };
}

impl Doorbell {
    /// A doorbell that was not rung yet.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn new() -> io::Result<Self> {
        create(libc::EFD_CLOEXEC | libc::EFD_NONBLOCK).map(Self)
    }

    /// Makes it readable.
    pub fn ring(&self) {
        ring(self.as_raw_fd());
    }

    /// Makes it unreadable.
    pub fn clear(&self) {
        clear(self.as_raw_fd());
    }
}

impl AsRawFd for Doorbell {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
