//! stdio streams opened for writing: the file is sent whole when the stream is flushed or closed.

use super::{bytes, status};
use crate::base::message::{self, show};
use crate::base::real::{self, Errno};
use crate::calls::files;
use crate::calls::library::Library;
use crate::calls::process::{active, tracked};
use crate::kinds::plain;
use crate::kinds::tablespace::export;
use libc::{FILE, c_char, c_int};
use redoubt_locks::IgnorePoison;

fn is_for_writing(mode: &[u8]) -> bool {
    mode.iter().any(|byte| matches!(byte, b'w' | b'a' | b'+'))
}

/// The replicated path of a call, if any.
///
/// # Safety
/// Both arguments are null or NUL-terminated.
unsafe fn target(
    library: &'static Library,
    path: *const c_char,
    mode: *const c_char,
) -> Result<Option<Vec<u8>>, Errno> {
    // SAFETY: the caller's contract.
    let (path, mode) = unsafe { (bytes(path), bytes(mode)) };
    if path.is_empty() || !is_for_writing(mode) {
        return Ok(None);
    }
    files::stdio_target(library, path)
}

fn remember(library: &Library, file: *mut FILE, path: Option<Vec<u8>>) {
    if let Some(path) = path
        && !file.is_null()
    {
        library.stdio.lock().ignore_poison().push((file as usize, path));
    }
}

fn forget(library: &Library, file: *mut FILE) -> Option<Vec<u8>> {
    let mut list = library.stdio.lock().ignore_poison();
    let at = list.iter().position(|(address, _)| *address == file as usize)?;
    Some(list.swap_remove(at).1)
}

fn known(library: &Library, file: *mut FILE) -> Vec<Vec<u8>> {
    let list = library.stdio.lock().ignore_poison();
    list.iter()
        .filter(|(address, _)| file.is_null() || *address == file as usize)
        .map(|(_, path)| path.clone())
        .collect()
}

fn send(library: &Library, path: &[u8]) -> Result<(), Errno> {
    let lock = library.content.names.lock_shared();
    plain::send_whole(&library.content, &library.plain, &lock, path).inspect_err(|errno| {
        message::error(&format!("{} cannot be sent to the storage node: {errno}", show(path)));
    })
}

fn closed(library: &Library, path: &[u8]) -> Result<(), Errno> {
    send(library, path)?;
    export::metadata_written(&library.content, &library.tablespaces, path)
}

macro_rules! fopen_hooks {
    ($($name:ident $again:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            let Some(library) = active() else {
                // SAFETY: the caller's arguments, unchanged.
                return unsafe { real::fopen64(path, mode) };
            };
            // SAFETY: the caller passes NUL-terminated strings.
            match unsafe { target(library, path, mode) } {
                Ok(target) => {
                    // SAFETY: the caller's arguments, unchanged.
                    let file = unsafe { real::fopen64(path, mode) };
                    remember(library, file, target);
                    file
                }
                Err(errno) => {
                    errno.set();
                    std::ptr::null_mut()
                }
            }
        }

        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $again(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
            let Some(library) = active() else {
                // SAFETY: the caller's arguments, unchanged.
                return unsafe { real::freopen64(path, mode, file) };
            };
            // SAFETY: the caller passes null or NUL-terminated strings.
            match unsafe { target(library, path, mode) } {
                Ok(target) => {
                    let before = forget(library, file);
                    // SAFETY: the caller's arguments, unchanged.
                    let result = unsafe { real::freopen64(path, mode, file) };
                    if let Some(before) = before {
                        let _ = send(library, &before);
                    }
                    remember(library, result, target);
                    result
                }
                Err(errno) => {
                    errno.set();
                    std::ptr::null_mut()
                }
            }
        }
    )*};
}

fopen_hooks!(fopen freopen, fopen64 freopen64);

/// A descriptor that is followed would be written and closed inside the C library.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if tracked(fd).is_some() {
        message::error("fdopen on a file of the data directory is not supported");
        Errno(libc::EOPNOTSUPP).set();
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::fdopen(fd, mode) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(file: *mut FILE) -> c_int {
    let path = active().and_then(|library| Some((library, forget(library, file)?)));
    // SAFETY: the caller's argument, unchanged.
    let result = unsafe { real::fclose(file) };
    match path {
        Some((library, path)) if result == 0 => match closed(library, &path) {
            Ok(()) => 0,
            Err(errno) => {
                let _ = status(Err(errno));
                libc::EOF
            }
        },
        _ => result,
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fflush(file: *mut FILE) -> c_int {
    // SAFETY: the caller's argument, unchanged.
    let result = unsafe { real::fflush(file) };
    if result == 0
        && let Some(library) = active()
    {
        for path in known(library, file) {
            if let Err(errno) = send(library, &path) {
                let _ = status(Err(errno));
                return libc::EOF;
            }
        }
    }
    result
}
