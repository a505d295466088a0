//! read, write and their relatives.

use super::length;
use crate::base::message;
use crate::base::real::{self, Errno};
use crate::calls::io;
use crate::calls::library::Library;
use crate::calls::process::tracked;
use crate::calls::target::OpenFile;
use crate::kinds::local_log::{self, OpenRedo};
use libc::{c_int, c_uint, c_void, off64_t, size_t, ssize_t};
use std::sync::Arc;

fn position(offset: off64_t) -> Result<u64, Errno> {
    u64::try_from(offset).map_err(|_| Errno(libc::EINVAL))
}

/// # Safety
/// `buffer` is valid for writing `len` bytes.
unsafe fn read_tracked(
    library: &Library,
    open: &OpenFile,
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    at: Option<off64_t>,
) -> ssize_t {
    if buffer.is_null() || len > isize::MAX as usize {
        return length(Err(Errno(libc::EFAULT)));
    }
    // SAFETY: not null, valid for `len` bytes by the caller's contract, and only written to by this call.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), len) };
    length(at.map(position).transpose().and_then(|at| io::read(library, open, fd, buffer, at)))
}

/// A file whose writes the library handles instead of the kernel.
enum Followed {
    Node(&'static Library, Arc<OpenFile>),
    Redo(Arc<OpenRedo>),
}

fn followed(fd: c_int) -> Option<Followed> {
    match tracked(fd) {
        Some((library, open)) => Some(Followed::Node(library, open)),
        None => local_log::tracked(fd).map(Followed::Redo),
    }
}

impl Followed {
    fn write(&self, fd: c_int, bytes: &[u8], at: Option<u64>) -> Result<usize, Errno> {
        match self {
            Self::Node(library, open) => io::write(library, open, fd, bytes, at),
            Self::Redo(open) => open.write(fd, bytes, at),
        }
    }
}

/// # Safety
/// `buffer` is valid for reading `len` bytes.
unsafe fn write_followed(
    file: &Followed,
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    at: Option<off64_t>,
) -> ssize_t {
    if (buffer.is_null() && len > 0) || len > isize::MAX as usize {
        return length(Err(Errno(libc::EFAULT)));
    }
    let bytes = if len == 0 {
        &[]
    } else {
        // SAFETY: not null and valid for `len` bytes by the caller's contract.
        unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), len) }
    };
    length(at.map(position).transpose().and_then(|at| file.write(fd, bytes, at)))
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    match tracked(fd) {
        // SAFETY: the caller's buffer.
        Some((library, open)) if !io::reads_locally(&open) => unsafe {
            read_tracked(library, &open, fd, buffer, len, None)
        },
        // SAFETY: the caller's arguments, unchanged.
        _ => unsafe { real::read(fd, buffer, len) },
    }
}

/// # Safety
/// As the C library's checked form of read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    buffer_len: size_t,
) -> ssize_t {
    if len > buffer_len {
        message::raw("a read is longer than its buffer");
        real::abort();
    }
    // SAFETY: the caller's buffer.
    unsafe { read(fd, buffer, len) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    match followed(fd) {
        // SAFETY: the caller's buffer.
        Some(file) => unsafe { write_followed(&file, fd, buffer, len, None) },
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { real::write(fd, buffer, len) },
    }
}

macro_rules! pread_hooks {
    ($($name:ident $checked:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, buffer: *mut c_void, len: size_t, offset: off64_t) -> ssize_t {
            match tracked(fd) {
                // SAFETY: the caller's buffer.
                Some((library, open)) if !io::reads_locally(&open) => unsafe {
                    read_tracked(library, &open, fd, buffer, len, Some(offset))
                },
                // SAFETY: the caller's arguments, unchanged.
                _ => unsafe { real::pread64(fd, buffer, len, offset) },
            }
        }

        /// # Safety
        /// As the C library's checked form of pread.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $checked(
            fd: c_int,
            buffer: *mut c_void,
            len: size_t,
            offset: off64_t,
            buffer_len: size_t,
        ) -> ssize_t {
            if len > buffer_len {
                message::raw("a read is longer than its buffer");
                real::abort();
            }
            // SAFETY: the caller's buffer.
            unsafe { $name(fd, buffer, len, offset) }
        }
    )*};
}

pread_hooks!(pread __pread_chk, pread64 __pread64_chk);

macro_rules! pwrite_hooks {
    ($($name:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, buffer: *const c_void, len: size_t, offset: off64_t) -> ssize_t {
            match followed(fd) {
                // SAFETY: the caller's buffer.
                Some(file) => unsafe { write_followed(&file, fd, buffer, len, Some(offset)) },
                // SAFETY: the caller's arguments, unchanged.
                None => unsafe { real::pwrite64(fd, buffer, len, offset) },
            }
        }
    )*};
}

pwrite_hooks!(pwrite, pwrite64);

/// # Safety
/// `parts` is valid for `count` entries, or `count` is not positive.
unsafe fn parts<'a>(parts: *const libc::iovec, count: c_int) -> Result<&'a [libc::iovec], Errno> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if count <= 1024 && !parts.is_null() => {
            // SAFETY: valid for `count` entries by the caller's contract.
            Ok(unsafe { std::slice::from_raw_parts(parts, count) })
        }
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// Reads part by part; stops at a short one.
///
/// # Safety
/// Each part is valid for writing.
unsafe fn read_parts(
    library: &Library,
    open: &OpenFile,
    fd: c_int,
    list: &[libc::iovec],
    offset: Option<off64_t>,
) -> ssize_t {
    let mut done: ssize_t = 0;
    for part in list {
        let at = offset.map(|offset| offset + done as off64_t);
        // SAFETY: the part is valid for writing by the caller's contract.
        let len = unsafe { read_tracked(library, open, fd, part.iov_base, part.iov_len, at) };
        if len < 0 {
            return if done > 0 { done } else { len };
        }
        done += len;
        if (len as usize) < part.iov_len {
            break;
        }
    }
    done
}

/// Writes all parts as one write: an observer must not see a block in pieces.
///
/// # Safety
/// Each part is valid for reading.
unsafe fn write_parts(file: &Followed, fd: c_int, list: &[libc::iovec], offset: Option<off64_t>) -> ssize_t {
    let mut all = Vec::new();
    for part in list.iter().filter(|part| part.iov_len > 0) {
        // SAFETY: the part is valid for reading by the caller's contract.
        all.extend_from_slice(unsafe {
            std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len)
        });
    }
    // SAFETY: `all` is valid for its length.
    unsafe { write_followed(file, fd, all.as_ptr().cast(), all.len(), offset) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, list: *const libc::iovec, count: c_int) -> ssize_t {
    match tracked(fd) {
        // SAFETY: the caller's list.
        Some((library, open)) if !io::reads_locally(&open) => match unsafe { parts(list, count) } {
            // SAFETY: the caller's buffers.
            Ok(list) => unsafe { read_parts(library, &open, fd, list, None) },
            Err(errno) => length(Err(errno)),
        },
        // SAFETY: the caller's arguments, unchanged.
        _ => unsafe { real::readv(fd, list, count) },
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, list: *const libc::iovec, count: c_int) -> ssize_t {
    match followed(fd) {
        // SAFETY: the caller's list.
        Some(file) => match unsafe { parts(list, count) } {
            // SAFETY: the caller's buffers.
            Ok(list) => unsafe { write_parts(&file, fd, list, None) },
            Err(errno) => length(Err(errno)),
        },
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { real::writev(fd, list, count) },
    }
}

macro_rules! vector_hooks {
    ($($read:ident $write:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $read(
            fd: c_int,
            list: *const libc::iovec,
            count: c_int,
            offset: off64_t,
        ) -> ssize_t {
            match tracked(fd) {
                // SAFETY: the caller's list.
                Some((library, open)) if !io::reads_locally(&open) => match unsafe { parts(list, count) } {
                    // SAFETY: the caller's buffers.
                    Ok(list) => unsafe { read_parts(library, &open, fd, list, Some(offset)) },
                    Err(errno) => length(Err(errno)),
                },
                // SAFETY: the caller's arguments, unchanged.
                _ => unsafe { real::preadv64(fd, list, count, offset) },
            }
        }

        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $write(
            fd: c_int,
            list: *const libc::iovec,
            count: c_int,
            offset: off64_t,
        ) -> ssize_t {
            match followed(fd) {
                // SAFETY: the caller's list.
                Some(file) => match unsafe { parts(list, count) } {
                    // SAFETY: the caller's buffers.
                    Ok(list) => unsafe { write_parts(&file, fd, list, Some(offset)) },
                    Err(errno) => length(Err(errno)),
                },
                // SAFETY: the caller's arguments, unchanged.
                None => unsafe { real::pwritev64(fd, list, count, offset) },
            }
        }
    )*};
}

vector_hooks!(preadv pwritev, preadv64 pwritev64);

/// Offset of the second vector calls: -1 means the file position.
const fn optional(offset: off64_t) -> Option<off64_t> {
    if offset == -1 { None } else { Some(offset) }
}

macro_rules! vector2_hooks {
    ($($read:ident $write:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $read(
            fd: c_int,
            list: *const libc::iovec,
            count: c_int,
            offset: off64_t,
            flags: c_int,
        ) -> ssize_t {
            match tracked(fd) {
                // SAFETY: the caller's list.
                Some((library, open)) if !io::reads_locally(&open) => match unsafe { parts(list, count) } {
                    // SAFETY: the caller's buffers.
                    Ok(list) => unsafe { read_parts(library, &open, fd, list, optional(offset)) },
                    Err(errno) => length(Err(errno)),
                },
                // SAFETY: the caller's arguments, unchanged.
                _ => unsafe { real::preadv64v2(fd, list, count, offset, flags) },
            }
        }

        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $write(
            fd: c_int,
            list: *const libc::iovec,
            count: c_int,
            offset: off64_t,
            flags: c_int,
        ) -> ssize_t {
            match followed(fd) {
                // Flags such as RWF_DSYNC change what the call promises.
                Some(_) if flags != 0 => length(refused("pwritev2 with flags")),
                // SAFETY: the caller's list.
                Some(file) => match unsafe { parts(list, count) } {
                    // SAFETY: the caller's buffers.
                    Ok(list) => unsafe { write_parts(&file, fd, list, optional(offset)) },
                    Err(errno) => length(Err(errno)),
                },
                // SAFETY: the caller's arguments, unchanged.
                None => unsafe { real::pwritev64v2(fd, list, count, offset, flags) },
            }
        }
    )*};
}

vector2_hooks!(preadv2 pwritev2, preadv64v2 pwritev64v2);

#[cold]
fn refused(call: &str) -> Result<usize, Errno> {
    message::error(&format!("{call} on a file that is followed is not supported"));
    Err(Errno(libc::EOPNOTSUPP))
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off64_t,
    to: c_int,
    to_at: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    if tracked(from).is_some() || followed(to).is_some() {
        return length(refused("copy_file_range"));
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::copy_file_range(from, from_at, to, to_at, len, flags) }
}

/// Maximum number of bytes that one call of sendfile copies.
const SENDFILE_BYTES: usize = 256 << 10;

macro_rules! sendfile_hooks {
    ($($name:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(to: c_int, from: c_int, offset: *mut off64_t, len: size_t) -> ssize_t {
            if tracked(from).is_some() || followed(to).is_some() {
                // SAFETY: null, or the caller's offset.
                return unsafe { copy_followed(to, from, offset.as_mut(), len) };
            }
            // SAFETY: the caller's arguments, unchanged.
            unsafe { real::sendfile64(to, from, offset, len) }
        }
    )*};
}

/// sendfile with a file whose bytes are not those of the local file. It may copy less than requested.
fn copy_followed(to: c_int, from: c_int, offset: Option<&mut off64_t>, len: usize) -> ssize_t {
    let mut buffer = vec![0; len.min(SENDFILE_BYTES)];
    // SAFETY: a buffer of this length.
    let got = unsafe {
        match &offset {
            Some(at) => pread64(from, buffer.as_mut_ptr().cast(), buffer.len(), **at),
            None => read(from, buffer.as_mut_ptr().cast(), buffer.len()),
        }
    };
    let Ok(got_len) = usize::try_from(got) else { return got };
    // SAFETY: as many bytes of the buffer as were read.
    let put = unsafe { write(to, buffer.as_ptr().cast(), got_len) };
    match offset {
        Some(at) => *at += put.max(0) as off64_t,
        None if put.max(0) < got => {
            // Nothing was sent of the rest.
            let rest = put.max(0) - got;
            if let Err(errno) = real::seek(from, rest as i64, libc::SEEK_CUR) {
                errno.set();
                return -1;
            }
        }
        None => {}
    }
    put
}

sendfile_hooks!(sendfile, sendfile64);

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut off64_t,
    to: c_int,
    to_at: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    if tracked(from).is_some() || followed(to).is_some() {
        return length(refused("splice"));
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::splice(from, from_at, to, to_at, len, flags) }
}
