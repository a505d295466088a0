//! open, openat, creat, mkstemp.

use super::{bytes, descriptor};
use crate::files::{self, Decision};
use crate::local_log;
use crate::real::{self, Errno};
use crate::runtime;
use libc::{c_char, c_int, mode_t};

/// # Safety
/// As openat.
unsafe fn open_at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    if let Some(runtime) = runtime::active()
        && !path.is_null()
    {
        // SAFETY: the caller passes a NUL-terminated path.
        match files::open(runtime, dir, unsafe { bytes(path) }, flags, mode) {
            Ok(Decision::PassThrough) => {}
            Ok(Decision::Done(fd)) => return fd,
            Err(errno) => return descriptor(Err(errno)),
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    let fd = unsafe {
        if dir == libc::AT_FDCWD {
            real::open64(path, flags, mode)
        } else {
            real::openat64(dir, path, flags, mode)
        }
    };
    if fd >= 0
        // SAFETY: the call succeeded, so the path is NUL-terminated.
        && let Err(errno) = local_log::opened(fd, unsafe { bytes(path) }, flags)
    {
        let _ = real::close_file(fd);
        return descriptor(Err(errno));
    }
    fd
}

macro_rules! open_hooks {
    ($($name:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: the caller keeps the C function's contract.
            unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
        }
    )*};
}

open_hooks!(open, open64);

macro_rules! openat_hooks {
    ($($name:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: the caller keeps the C function's contract.
            unsafe { open_at(dir, path, flags, mode) }
        }
    )*};
}

openat_hooks!(openat, openat64);

macro_rules! checked_open_hooks {
    ($($name:ident),*) => {$(
        /// # Safety
        /// As the C library's checked form of open (no mode).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: the caller keeps the C function's contract.
            unsafe { open_at(libc::AT_FDCWD, path, flags, 0) }
        }
    )*};
}

checked_open_hooks!(__open_2, __open64_2);

macro_rules! checked_openat_hooks {
    ($($name:ident),*) => {$(
        /// # Safety
        /// As the C library's checked form of openat (no mode).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: the caller keeps the C function's contract.
            unsafe { open_at(dir, path, flags, 0) }
        }
    )*};
}

checked_openat_hooks!(__openat_2, __openat64_2);

macro_rules! creat_hooks {
    ($($name:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: mode_t) -> c_int {
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
            // SAFETY: the caller keeps the C function's contract.
            unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
        }
    )*};
}

creat_hooks!(creat, creat64);

macro_rules! mkstemp_hooks {
    ($($name:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(template: *mut c_char) -> c_int {
            // SAFETY: the caller keeps the C function's contract.
            let fd = unsafe { real::mkstemp64(template) };
            if fd >= 0
                && let Some(runtime) = runtime::active()
                && let Err(errno) = files::opened_by_library(runtime, fd)
            {
                let _ = real::close_file(fd);
                return descriptor(Err::<c_int, Errno>(errno));
            }
            fd
        }
    )*};
}

mkstemp_hooks!(mkstemp, mkstemp64);
