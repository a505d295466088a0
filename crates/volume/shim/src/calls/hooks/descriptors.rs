//! close, dup and fcntl, sync, length.

use super::{checked, descriptor, status};
use crate::base::real::{self, Errno};
use crate::calls::process::{active, tracked};
use crate::calls::{files, io};
use crate::kinds::local_log;
use libc::{c_int, c_uint, off64_t};
use std::ops::Range;

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    let open = active().and_then(|library| Some((library, library.fds.remove(fd)?)));
    local_log::closing(fd);
    // SAFETY: the caller's argument. The entry is gone already: the number may be used again at once.
    let result = unsafe { real::close(fd) };
    if let Some((library, open)) = open {
        let errno = Errno::last();
        files::closed(library, open);
        errno.set();
    }
    result
}

/// `copy` is the result of a call that makes a second descriptor for the same file.
fn duplicated(from: c_int, copy: c_int) -> c_int {
    if copy < 0 {
        return copy;
    }
    if let Some(library) = active()
        && let Err(errno) = files::duplicated(library, from, copy)
    {
        let _ = real::close_file(copy);
        return descriptor(Err(errno));
    }
    local_log::duplicated(from, copy);
    copy
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: no pointers.
    duplicated(fd, unsafe { real::dup(fd) })
}

macro_rules! fcntl_hooks {
    ($($name:ident),*) => {$(
        /// The argument that is variadic in C is passed like a named one on the supported platforms.
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, command: c_int, argument: usize) -> c_int {
            if command == libc::F_SETFL
                && let Some((_, open)) = tracked(fd)
                // An int in the lower half.
                && let Err(errno) = io::set_flags(&open, argument as c_int)
            {
                return status(Err(errno));
            }
            // SAFETY: the caller's arguments, unchanged.
            let result = unsafe { real::fcntl(fd, command, argument) };
            match command {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, result),
                _ => result,
            }
        }
    )*};
}

fcntl_hooks!(fcntl, fcntl64);

/// The number `to` is about to be replaced.
fn replaced(from: c_int, to: c_int) {
    if from != to
        && let Some(library) = active()
        && let Some(open) = library.fds.remove(to)
    {
        files::closed(library, open);
    }
    if from != to {
        local_log::closing(to);
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    replaced(from, to);
    // SAFETY: no pointers.
    let copy = unsafe { real::dup2(from, to) };
    if from == to { copy } else { duplicated(from, copy) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    replaced(from, to);
    // SAFETY: no pointers.
    duplicated(from, unsafe { real::dup3(from, to, flags) })
}

/// A sync of a file that no storage node has.
fn sync_locally(fd: c_int, local: impl FnOnce() -> c_int) -> c_int {
    match local_log::tracked(fd) {
        Some(open) => status(open.sync(|| checked(local()))),
        None => local(),
    }
}

/// A change of the length or the blocks of a file that no storage node has; -1 is failure.
fn resize_locally(fd: c_int, local: impl FnOnce() -> c_int) -> c_int {
    match local_log::tracked(fd) {
        Some(open) => status(open.change_size(|| checked(local()))),
        None => local(),
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    match tracked(fd) {
        Some((library, open)) => status(io::sync(library, &open)),
        // SAFETY: no pointers.
        None => sync_locally(fd, || unsafe { real::fsync(fd) }),
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    match tracked(fd) {
        Some((library, open)) => status(io::sync(library, &open)),
        // SAFETY: no pointers.
        None => sync_locally(fd, || unsafe { real::fdatasync(fd) }),
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sync_file_range(fd: c_int, offset: off64_t, len: off64_t, flags: c_uint) -> c_int {
    match tracked(fd) {
        Some((library, open)) => status(io::sync(library, &open)),
        // SAFETY: no pointers.
        None => sync_locally(fd, || unsafe { real::sync_file_range(fd, offset, len, flags) }),
    }
}

fn unsigned(value: off64_t) -> Result<u64, Errno> {
    u64::try_from(value).map_err(|_| Errno(libc::EINVAL))
}

macro_rules! ftruncate_hooks {
    ($($name:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, len: off64_t) -> c_int {
            match tracked(fd) {
                Some((library, open)) => {
                    status(unsigned(len).and_then(|len| io::set_len(library, &open, fd, len)))
                }
                // SAFETY: no pointers.
                None => resize_locally(fd, || unsafe { real::ftruncate64(fd, len) }),
            }
        }
    )*};
}

ftruncate_hooks!(ftruncate, ftruncate64);

fn range_of(offset: off64_t, len: off64_t) -> Result<Range<u64>, Errno> {
    let start = unsigned(offset)?;
    let end = start.checked_add(unsigned(len)?);
    if len == 0 { Err(Errno(libc::EINVAL)) } else { end.map(|end| start..end).ok_or(Errno(libc::EFBIG)) }
}

macro_rules! fallocate_hooks {
    ($($name:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, mode: c_int, offset: off64_t, len: off64_t) -> c_int {
            let Some((library, open)) = tracked(fd) else {
                // SAFETY: no pointers.
                return resize_locally(fd, || unsafe { real::fallocate64(fd, mode, offset, len) });
            };
            status(range_of(offset, len).and_then(|range| {
                io::allocate(library, &open, fd, mode, range, || {
                    // SAFETY: no pointers.
                    checked(unsafe { real::fallocate64(fd, mode, offset, len) })
                })
            }))
        }
    )*};
}

fallocate_hooks!(fallocate, fallocate64);

macro_rules! posix_fallocate_hooks {
    ($($name:ident),*) => {$(
        /// Returns the error number itself.
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, offset: off64_t, len: off64_t) -> c_int {
            // SAFETY: no pointers.
            let local = || unsafe { real::posix_fallocate64(fd, offset, len) };
            let Some((library, open)) = tracked(fd) else {
                return match local_log::tracked(fd) {
                    Some(open) => open.change_size(|| Ok(local())).unwrap_or_else(|errno| errno.0),
                    None => local(),
                };
            };
            let result = range_of(offset, len).and_then(|range| {
                io::allocate(library, &open, fd, 0, range, || match local() {
                    0 => Ok(()),
                    errno => Err(Errno(errno)),
                })
            });
            result.map_or_else(|errno| errno.0, |()| 0)
        }
    )*};
}

posix_fallocate_hooks!(posix_fallocate, posix_fallocate64);
