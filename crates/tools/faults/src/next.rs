//! System calls made without the C library's hooks, and the calling thread's error number.

use libc::{c_int, c_long};
pub use redoubt_interpose::{errno, set_errno};
use std::ffi::CStr;

/// Opens without any hook; `None` when it fails.
pub fn open_raw(path: &CStr, flags: c_int) -> Option<c_int> {
    // SAFETY: `path` is NUL-terminated.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600) };
    c_int::try_from(fd).ok().filter(|fd| *fd >= 0)
}

/// Writes without any hook; bytes that cannot be written are lost.
pub fn write_raw(fd: c_int, bytes: &[u8]) {
    // SAFETY: the slice is valid for its length.
    unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
}

/// The target of a symbolic link, cut to the buffer's length.
pub fn read_link<'a>(path: &CStr, buffer: &'a mut [u8]) -> &'a [u8] {
    // SAFETY: `path` is NUL-terminated and the buffer is valid for its length.
    let len = unsafe {
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, path.as_ptr(), buffer.as_mut_ptr(), buffer.len())
    };
    usize::try_from(len).ok().and_then(|len| buffer.get(..len)).unwrap_or_default()
}

/// The file type bits of a descriptor.
pub fn file_type(fd: c_int) -> Option<libc::mode_t> {
    // SAFETY: all zero bytes are a valid stat.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for writing.
    let result = unsafe { libc::syscall(libc::SYS_fstat, fd, &raw mut stat) };
    (result == 0).then_some(stat.st_mode & libc::S_IFMT)
}

/// A flag of an open descriptor is set.
pub fn has_flag(fd: c_int, flag: c_int) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) };
    flags >= 0 && flags & c_long::from(flag) != 0
}

/// An integer option of a socket.
pub fn socket_option(fd: c_int, option: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut len: libc::socklen_t = 4;
    // SAFETY: value and length are valid for the call.
    let result = unsafe {
        libc::syscall(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, option, &raw mut value, &raw mut len)
    };
    (result == 0).then_some(value)
}

/// Waits.
pub fn sleep_us(duration_us: u64) {
    let time = libc::timespec {
        tv_sec: (duration_us / 1_000_000) as libc::time_t,
        tv_nsec: ((duration_us % 1_000_000) * 1000) as c_long,
    };
    // SAFETY: `time` is valid; a wait that a signal cuts short is as good.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, std::ptr::null_mut::<libc::timespec>()) };
}
