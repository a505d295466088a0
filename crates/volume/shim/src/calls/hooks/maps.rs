//! mmap, munmap, mremap, msync.

use super::status;
use crate::base::message;
use crate::base::real::{self, Errno};
use crate::calls::library::Library;
use crate::calls::process::{active, tracked};
use crate::calls::target::Target;
use crate::kinds::local_log;
use crate::kinds::mapping::{self, Mapping};
use libc::{c_int, c_void, off64_t, size_t};
use std::sync::Arc;

macro_rules! mmap_hooks {
    ($($name:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            address: *mut c_void,
            len: size_t,
            protection: c_int,
            flags: c_int,
            fd: c_int,
            offset: off64_t,
        ) -> *mut c_void {
            // SAFETY: the caller's arguments, unchanged.
            unsafe { map(address, len, protection, flags, fd, offset) }
        }
    )*};
}

mmap_hooks!(mmap, mmap64);

/// # Safety
/// As mmap.
unsafe fn map(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    let found = if flags & libc::MAP_ANONYMOUS == 0 { tracked(fd) } else { None };
    match found.as_ref().map(|(_, open)| &open.target) {
        // The server then writes its log with pwrite, which is what it does on ordinary file systems.
        Some(Target::Log(_) | Target::RedoFile(_)) => {
            Errno(libc::EOPNOTSUPP).set();
            return libc::MAP_FAILED;
        }
        Some(Target::Tablespace(_)) => {
            message::error("mapping a tablespace file is not supported");
            Errno(libc::ENODEV).set();
            return libc::MAP_FAILED;
        }
        _ => {}
    }
    if local_log::refuses_map(fd, protection, flags) {
        Errno(libc::EOPNOTSUPP).set();
        return libc::MAP_FAILED;
    }
    let offset_bytes = match u64::try_from(offset) {
        Ok(offset_bytes) => offset_bytes,
        Err(_) if found.is_none() => 0,
        Err(_) => {
            Errno(libc::EINVAL).set();
            return libc::MAP_FAILED;
        }
    };
    let is_shared = matches!(flags & libc::MAP_TYPE, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE);
    let is_written = is_shared && protection & libc::PROT_WRITE != 0;
    if is_written
        && let Some((library, open)) = &found
        && let Target::Plain(file) = &open.target
        && !mapping::is_allowed(&library.content, file)
    {
        Errno(libc::ENODEV).set();
        return libc::MAP_FAILED;
    }
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::mmap64(address, len, protection, flags, fd, offset) };
    if result != libc::MAP_FAILED
        && is_written
        && let Some((library, open)) = &found
        && let Target::Plain(file) = &open.target
    {
        library.mappings.add(Mapping {
            address: result as usize,
            len_bytes: len,
            offset_bytes,
            file: Arc::clone(file),
        });
    }
    result
}

/// Sends what is mapped in this range.
///
/// # Safety
/// The range is mapped as remembered.
unsafe fn send(library: &Library, address: usize, len: size_t, wait: bool) -> Result<(), Errno> {
    for range in library.mappings.inside(address, len) {
        let len_bytes = mapping::present_len_bytes(&library.content, &range)?;
        // SAFETY: the range lies inside a mapping that the server has not ended yet, and the file reaches so far;
        // other threads may write to it at the same time, as they may while the kernel writes it back.
        let bytes = unsafe { std::slice::from_raw_parts(range.address as *const u8, len_bytes) };
        let copy = bytes.to_vec();
        mapping::send(&library.content, &range, &copy, wait)?;
    }
    Ok(())
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msync(address: *mut c_void, len: size_t, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::msync(address, len, flags) };
    if result == 0
        && let Some(library) = active()
    {
        // SAFETY: msync succeeded, so the range is mapped.
        return status(unsafe { send(library, address as usize, len, flags & libc::MS_SYNC != 0) });
    }
    result
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, len: size_t) -> c_int {
    if let Some(library) = active() {
        // SAFETY: the mapping still exists.
        if let Err(errno) = unsafe { send(library, address as usize, len, false) } {
            return status(Err(errno));
        }
        library.mappings.remove(address as usize, len);
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::munmap(address, len) }
}

/// The argument that is variadic in C is passed like a named one on the supported platforms.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    address: *mut c_void,
    old_len: size_t,
    new_len: size_t,
    flags: c_int,
    new_address: *mut c_void,
) -> *mut c_void {
    if let Some(library) = active()
        && !library.mappings.inside(address as usize, old_len.max(1)).is_empty()
    {
        message::error("mremap of a mapped file of the data directory is not supported");
        Errno(libc::EOPNOTSUPP).set();
        return libc::MAP_FAILED;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::mremap(address, old_len, new_len, flags, new_address) }
}
