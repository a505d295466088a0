//! rename, unlink, directories, links, truncate.

use super::{bytes, checked, status};
use crate::base::real::{self, Errno};
use crate::calls::files::{self, Decision};
use crate::calls::process::active;
use libc::{AT_FDCWD, c_char, c_int, c_uint, mode_t, off64_t};

/// Return value of an intercepted call, or of the real call.
fn decided(decision: Result<Decision<()>, Errno>, local: impl FnOnce() -> c_int) -> c_int {
    match decision {
        Ok(Decision::PassThrough) => local(),
        Ok(Decision::Done(())) => 0,
        Err(errno) => status(Err(errno)),
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    let local = || unsafe { real::rename(from, to) };
    let Some(library) = active() else { return local() };
    // SAFETY: the caller passes NUL-terminated paths.
    let (from_path, to_path) = unsafe { (bytes(from), bytes(to)) };
    decided(files::rename(library, (AT_FDCWD, from_path), (AT_FDCWD, to_path), || checked(local())), local)
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    let local = || unsafe { real::renameat(from_dir, from, to_dir, to) };
    let Some(library) = active() else { return local() };
    // SAFETY: the caller passes NUL-terminated paths.
    let (from_path, to_path) = unsafe { (bytes(from), bytes(to)) };
    decided(files::rename(library, (from_dir, from_path), (to_dir, to_path), || checked(local())), local)
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat2(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    let local = || unsafe { real::renameat2(from_dir, from, to_dir, to, flags) };
    let Some(library) = active() else { return local() };
    // SAFETY: the caller passes NUL-terminated paths.
    let (from_path, to_path) = unsafe { (bytes(from), bytes(to)) };
    if flags & libc::RENAME_EXCHANGE != 0 {
        for (path, name) in [(from_path, "renameat2"), (to_path, "renameat2")] {
            if let Err(errno) = files::refuse_path(library, path, name) {
                return status(Err(errno));
            }
        }
    }
    decided(files::rename(library, (from_dir, from_path), (to_dir, to_path), || checked(local())), local)
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's argument, unchanged.
    let local = || unsafe { real::unlink(path) };
    let Some(library) = active() else { return local() };
    // SAFETY: the caller passes a NUL-terminated path.
    decided(files::unlink(library, AT_FDCWD, unsafe { bytes(path) }, || checked(local())), local)
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    let local = || unsafe { real::unlinkat(dir, path, flags) };
    let Some(library) = active() else { return local() };
    // SAFETY: the caller passes a NUL-terminated path.
    let name = unsafe { bytes(path) };
    let decision = if flags & libc::AT_REMOVEDIR != 0 {
        files::remove_directory(library, dir, name, || checked(local()))
    } else {
        files::unlink(library, dir, name, || checked(local()))
    };
    decided(decision, local)
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    if active().is_none() {
        // SAFETY: the caller's argument, unchanged.
        return unsafe { real::remove(path) };
    }
    // SAFETY: the caller's argument, unchanged.
    let result = unsafe { unlink(path) };
    if result == 0 || Errno::last() != Errno(libc::EISDIR) {
        return result;
    }
    // SAFETY: the caller's argument, unchanged.
    unsafe { rmdir(path) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    let local = || unsafe { real::mkdir(path, mode) };
    let Some(library) = active() else { return local() };
    // SAFETY: the caller passes a NUL-terminated path.
    decided(files::make_directory(library, AT_FDCWD, unsafe { bytes(path) }, || checked(local())), local)
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    let local = || unsafe { real::mkdirat(dir, path, mode) };
    let Some(library) = active() else { return local() };
    // SAFETY: the caller passes a NUL-terminated path.
    decided(files::make_directory(library, dir, unsafe { bytes(path) }, || checked(local())), local)
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the caller's argument, unchanged.
    let local = || unsafe { real::rmdir(path) };
    let Some(library) = active() else { return local() };
    // SAFETY: the caller passes a NUL-terminated path.
    decided(files::remove_directory(library, AT_FDCWD, unsafe { bytes(path) }, || checked(local())), local)
}

/// # Safety
/// `path` is NUL-terminated.
unsafe fn refuse_link(dir: c_int, path: *const c_char) -> Result<(), Errno> {
    let Some(library) = active() else { return Ok(()) };
    // SAFETY: the caller's contract.
    files::refuse_link(library, dir, unsafe { bytes(path) })
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments: NUL-terminated paths, unchanged.
    unsafe {
        match refuse_link(AT_FDCWD, path) {
            Ok(()) => real::symlink(target, path),
            Err(errno) => status(Err(errno)),
        }
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symlinkat(target: *const c_char, dir: c_int, path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments: NUL-terminated paths, unchanged.
    unsafe {
        match refuse_link(dir, path) {
            Ok(()) => real::symlinkat(target, dir, path),
            Err(errno) => status(Err(errno)),
        }
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's arguments: NUL-terminated paths, unchanged.
    unsafe {
        match refuse_link(AT_FDCWD, from).and_then(|()| refuse_link(AT_FDCWD, to)) {
            Ok(()) => real::link(from, to),
            Err(errno) => status(Err(errno)),
        }
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments: NUL-terminated paths, unchanged.
    unsafe {
        match refuse_link(from_dir, from).and_then(|()| refuse_link(to_dir, to)) {
            Ok(()) => real::linkat(from_dir, from, to_dir, to, flags),
            Err(errno) => status(Err(errno)),
        }
    }
}

macro_rules! truncate_hooks {
    ($($name:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, len: off64_t) -> c_int {
            if let Some(library) = active()
                // SAFETY: the caller passes a NUL-terminated path.
                && let Err(errno) = files::refuse_path(library, unsafe { bytes(path) }, "truncate")
            {
                return status(Err(errno));
            }
            // SAFETY: the caller's arguments, unchanged.
            unsafe { real::truncate64(path, len) }
        }
    )*};
}

truncate_hooks!(truncate, truncate64);
