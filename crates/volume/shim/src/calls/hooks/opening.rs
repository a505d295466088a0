//! open, openat, creat, and mkstemp with its family.

use super::{bytes, descriptor};
use crate::base::real;
use crate::calls::files::{self, Decision};
use crate::calls::process;
use crate::kinds::local_log;
use libc::{c_char, c_int, mode_t};

/// # Safety
/// As openat.
unsafe fn open_at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    if let Some(library) = process::active()
        && !path.is_null()
    {
        // SAFETY: the caller passes a NUL-terminated path.
        match files::open(library, dir, unsafe { bytes(path) }, flags, mode) {
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

/// # Safety
/// As mkostemps, of which the others of its family are cases.
unsafe fn make_temporary(template: *mut c_char, suffix_len: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller keeps the C function's contract.
    let fd = unsafe { real::mkostemps64(template, suffix_len, flags) };
    if fd >= 0
        && let Some(library) = process::active()
        && let Err(errno) = files::opened_by_library(library, fd, libc::O_RDWR | flags)
    {
        let _ = real::close_file(fd);
        return descriptor(Err(errno));
    }
    fd
}

macro_rules! mkstemp_hooks {
    ($($name:ident ($($argument:ident),*) $suffix_len:expr, $flags:expr;)*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(template: *mut c_char, $($argument: c_int),*) -> c_int {
            // SAFETY: the caller keeps the C function's contract.
            unsafe { make_temporary(template, $suffix_len, $flags) }
        }
    )*};
}

mkstemp_hooks! {
    mkstemp() 0, 0;
    mkstemp64() 0, 0;
    mkostemp(flags) 0, flags;
    mkostemp64(flags) 0, flags;
    mkstemps(suffix_len) suffix_len, 0;
    mkstemps64(suffix_len) suffix_len, 0;
    mkostemps(suffix_len, flags) suffix_len, flags;
    mkostemps64(suffix_len, flags) suffix_len, flags;
}
