//! The next definitions of the functions this library hooks (see [`redoubt_interpose`]).
//!
//! Owns every call to the operating system made by the rest of the crate. The first half is raw (one function
//! per symbol, same arguments); the second half wraps what other modules need in safe functions that report
//! an [`Errno`]. Nothing here takes a lock of this crate.

use libc::{c_char, c_int, c_uint, c_void, mode_t, off64_t, size_t, ssize_t};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;

/// A C error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Input/output error: what a server gets when the node cannot help.
    pub const EIO: Self = Self(libc::EIO);

    /// The calling thread's error number.
    pub fn last() -> Self {
        Self(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// Sets the calling thread's error number.
    pub fn set(self) {
        redoubt_interpose::set_errno(self.0);
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

redoubt_interpose::next_definitions! {
    open64 c"open64" (path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat64 c"openat64" (dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    close c"close" (fd: c_int) -> c_int;
    read c"read" (fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t;
    write c"write" (fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t;
    pread64 c"pread64" (fd: c_int, buffer: *mut c_void, len: size_t, offset: off64_t) -> ssize_t;
    pwrite64 c"pwrite64" (fd: c_int, buffer: *const c_void, len: size_t, offset: off64_t) -> ssize_t;
    readv c"readv" (fd: c_int, parts: *const libc::iovec, count: c_int) -> ssize_t;
    writev c"writev" (fd: c_int, parts: *const libc::iovec, count: c_int) -> ssize_t;
    preadv64 c"preadv64" (fd: c_int, parts: *const libc::iovec, count: c_int, offset: off64_t) -> ssize_t;
    pwritev64 c"pwritev64" (fd: c_int, parts: *const libc::iovec, count: c_int, offset: off64_t) -> ssize_t;
    preadv64v2 c"preadv64v2"
        (fd: c_int, parts: *const libc::iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t;
    pwritev64v2 c"pwritev64v2"
        (fd: c_int, parts: *const libc::iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t;
    fsync c"fsync" (fd: c_int) -> c_int;
    fdatasync c"fdatasync" (fd: c_int) -> c_int;
    sync_file_range c"sync_file_range" (fd: c_int, offset: off64_t, len: off64_t, flags: c_uint) -> c_int;
    ftruncate64 c"ftruncate64" (fd: c_int, len: off64_t) -> c_int;
    truncate64 c"truncate64" (path: *const c_char, len: off64_t) -> c_int;
    fallocate64 c"fallocate64" (fd: c_int, mode: c_int, offset: off64_t, len: off64_t) -> c_int;
    posix_fallocate64 c"posix_fallocate64" (fd: c_int, offset: off64_t, len: off64_t) -> c_int;
    rename c"rename" (from: *const c_char, to: *const c_char) -> c_int;
    renameat c"renameat" (from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int;
    renameat2 c"renameat2"
        (from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint) -> c_int;
    dlopen c"dlopen" (path: *const c_char, flags: c_int) -> *mut c_void;
    unlink c"unlink" (path: *const c_char) -> c_int;
    unlinkat c"unlinkat" (dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    remove c"remove" (path: *const c_char) -> c_int;
    mkdir c"mkdir" (path: *const c_char, mode: mode_t) -> c_int;
    mkdirat c"mkdirat" (dir: c_int, path: *const c_char, mode: mode_t) -> c_int;
    rmdir c"rmdir" (path: *const c_char) -> c_int;
    symlink c"symlink" (target: *const c_char, path: *const c_char) -> c_int;
    symlinkat c"symlinkat" (target: *const c_char, dir: c_int, path: *const c_char) -> c_int;
    link c"link" (from: *const c_char, to: *const c_char) -> c_int;
    linkat c"linkat"
        (from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int) -> c_int;
    fcntl c"fcntl" (fd: c_int, command: c_int, argument: usize) -> c_int;
    dup c"dup" (fd: c_int) -> c_int;
    dup2 c"dup2" (from: c_int, to: c_int) -> c_int;
    dup3 c"dup3" (from: c_int, to: c_int, flags: c_int) -> c_int;
    mmap64 c"mmap64"
        (address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off64_t)
        -> *mut c_void;
    mremap c"mremap"
        (address: *mut c_void, old_len: size_t, new_len: size_t, flags: c_int, new_address: *mut c_void)
        -> *mut c_void;
    munmap c"munmap" (address: *mut c_void, len: size_t) -> c_int;
    msync c"msync" (address: *mut c_void, len: size_t, flags: c_int) -> c_int;
    fopen64 c"fopen64" (path: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    freopen64 c"freopen64" (path: *const c_char, mode: *const c_char, file: *mut libc::FILE) -> *mut libc::FILE;
    fdopen c"fdopen" (fd: c_int, mode: *const c_char) -> *mut libc::FILE;
    fclose c"fclose" (file: *mut libc::FILE) -> c_int;
    fflush c"fflush" (file: *mut libc::FILE) -> c_int;
    fseek c"fseek" (file: *mut libc::FILE, offset: libc::c_long, whence: c_int) -> c_int;
    fseeko64 c"fseeko64" (file: *mut libc::FILE, offset: off64_t, whence: c_int) -> c_int;
    rewind c"rewind" (file: *mut libc::FILE) -> ();
    fsetpos64 c"fsetpos64" (file: *mut libc::FILE, position: *const c_void) -> c_int;
    mkostemps64 c"mkostemps64" (template: *mut c_char, suffix_len: c_int, flags: c_int) -> c_int;
    splice c"splice"
        (from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: size_t, flags: c_uint) -> ssize_t;
    copy_file_range c"copy_file_range"
        (from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: size_t, flags: c_uint) -> ssize_t;
    sendfile64 c"sendfile64" (to: c_int, from: c_int, offset: *mut off64_t, len: size_t) -> ssize_t;
}

redoubt_interpose::optional_next_definitions! {
    io_uring_queue_init c"io_uring_queue_init" (entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int;
    io_uring_queue_init_params c"io_uring_queue_init_params"
        (entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int;
    io_setup c"io_setup" (entries: c_int, context: *mut c_void) -> c_int;
    io_submit c"io_submit" (context: *mut c_void, count: libc::c_long, blocks: *mut *mut c_void) -> c_int;
}

fn check_int(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(Errno::last()) } else { Ok(result) }
}

fn check_len(result: ssize_t) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::last())
}

fn offset(value: u64) -> Result<off64_t, Errno> {
    off64_t::try_from(value).map_err(|_| Errno(libc::EINVAL))
}

/// A path for a C function.
pub fn c_path(path: &[u8]) -> Result<CString, Errno> {
    CString::new(path).map_err(|_| Errno(libc::EINVAL))
}

/// Opens without any tracking.
pub fn open_file(path: &CStr, flags: c_int, mode: mode_t) -> Result<RawFd, Errno> {
    // SAFETY: `path` is NUL-terminated.
    check_int(unsafe { open64(path.as_ptr(), flags, mode) })
}

/// Closes without any tracking.
pub fn close_file(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: closing any number is sound; the caller owns the descriptor.
    check_int(unsafe { close(fd) }).map(|_| ())
}

/// Removes a file.
pub fn remove_file(path: &CStr) -> Result<(), Errno> {
    // SAFETY: `path` is NUL-terminated.
    check_int(unsafe { unlink(path.as_ptr()) }).map(|_| ())
}

/// Whether any part of a file has blocks of its own.
pub fn has_data(fd: RawFd) -> Result<bool, Errno> {
    // SAFETY: no pointers.
    let found = unsafe { libc::lseek64(fd, 0, libc::SEEK_DATA) };
    let has_data = match u64::try_from(found).map_err(|_| Errno::last()) {
        Ok(_) => true,
        Err(Errno(libc::ENXIO)) => false,
        Err(errno) => return Err(errno),
    };
    seek(fd, 0, libc::SEEK_SET)?;
    Ok(has_data)
}

/// Reads at a position.
pub fn read_at(fd: RawFd, buffer: &mut [u8], offset_bytes: u64) -> Result<usize, Errno> {
    // SAFETY: the buffer is valid for its length.
    check_len(unsafe { pread64(fd, buffer.as_mut_ptr().cast(), buffer.len(), offset(offset_bytes)?) })
}

/// Writes at a position.
pub fn write_at(fd: RawFd, bytes: &[u8], offset_bytes: u64) -> Result<usize, Errno> {
    // SAFETY: the slice is valid for its length.
    check_len(unsafe { pwrite64(fd, bytes.as_ptr().cast(), bytes.len(), offset(offset_bytes)?) })
}

/// Writes at the file position.
pub fn write_bytes(fd: RawFd, bytes: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the slice is valid for its length.
    check_len(unsafe { write(fd, bytes.as_ptr().cast(), bytes.len()) })
}

/// Sets the length of a file.
pub fn set_len(fd: RawFd, len_bytes: u64) -> Result<(), Errno> {
    // SAFETY: no pointers.
    check_int(unsafe { ftruncate64(fd, offset(len_bytes)?) }).map(|_| ())
}

/// Moves the file position; returns the new one.
pub fn seek(fd: RawFd, offset_bytes: i64, whence: c_int) -> Result<u64, Errno> {
    // SAFETY: no pointers.
    let result = unsafe { libc::lseek64(fd, offset_bytes, whence) };
    u64::try_from(result).map_err(|_| Errno::last())
}

/// Status of an open file.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Length in bytes.
    pub len_bytes: u64,
    /// Permission bits.
    pub mode: u32,
    /// It is a directory.
    pub is_directory: bool,
    /// It is a regular file.
    pub is_regular: bool,
}

impl Status {
    fn from_raw(raw: &libc::stat64) -> Result<Self, Errno> {
        let kind = raw.st_mode & libc::S_IFMT;
        Ok(Self {
            len_bytes: u64::try_from(raw.st_size).map_err(|_| Errno(libc::EOVERFLOW))?,
            mode: raw.st_mode & 0o7777,
            is_directory: kind == libc::S_IFDIR,
            is_regular: kind == libc::S_IFREG,
        })
    }
}

/// State of an open file.
pub fn status(fd: RawFd) -> Result<Status, Errno> {
    // SAFETY: all zero bytes are a valid stat64.
    let mut raw: libc::stat64 = unsafe { std::mem::zeroed() };
    // SAFETY: `raw` is valid for writing.
    check_int(unsafe { libc::fstat64(fd, &raw mut raw) })?;
    Status::from_raw(&raw)
}

/// State of a path; a symbolic link is not followed.
pub fn status_of(path: &CStr) -> Result<Status, Errno> {
    // SAFETY: all zero bytes are a valid stat64.
    let mut raw: libc::stat64 = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is NUL-terminated and `raw` is valid for writing.
    check_int(unsafe { libc::lstat64(path.as_ptr(), &raw mut raw) })?;
    Status::from_raw(&raw)
}

/// Device and inode number of an open file: two descriptors with the same are the same file.
pub fn identity(fd: RawFd) -> Result<(u64, u64), Errno> {
    // SAFETY: all zero bytes are a valid stat64.
    let mut raw: libc::stat64 = unsafe { std::mem::zeroed() };
    // SAFETY: `raw` is valid for writing.
    check_int(unsafe { libc::fstat64(fd, &raw mut raw) })?;
    Ok((raw.st_dev, raw.st_ino))
}

/// The file is on a file system that is memory and nothing else.
pub fn is_memory_file_system(fd: RawFd) -> Result<bool, Errno> {
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    // SAFETY: all zero bytes are a valid statfs64.
    let mut raw: libc::statfs64 = unsafe { std::mem::zeroed() };
    // SAFETY: `raw` is valid for writing.
    check_int(unsafe { libc::fstatfs64(fd, &raw mut raw) })?;
    Ok(matches!(raw.f_type, libc::TMPFS_MAGIC | RAMFS_MAGIC))
}

/// The same file again, for reading and writing, by a descriptor that is not tracked.
pub fn reopen(fd: RawFd) -> Result<OwnedFd, Errno> {
    let path = c_path(format!("/proc/self/fd/{fd}").as_bytes())?;
    let fd = open_file(&path, libc::O_RDWR | libc::O_CLOEXEC, 0)?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Gives every block of the first `len_bytes` of a file room on its device.
pub fn reserve_blocks(file: &impl AsRawFd, len_bytes: u64) -> Result<(), Errno> {
    // SAFETY: no pointers.
    check_int(unsafe { fallocate64(file.as_raw_fd(), 0, 0, offset(len_bytes)?) }).map(|_| ())
}

/// Gives the blocks of the first `len_bytes` of a file back; its length stays.
pub fn punch_hole(fd: RawFd, len_bytes: u64) -> Result<(), Errno> {
    if len_bytes == 0 {
        return Ok(());
    }
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: no pointers.
    check_int(unsafe { fallocate64(fd, mode, 0, offset(len_bytes)?) }).map(|_| ())
}

/// Locks a file until the process ends or closes it.
///
/// # Errors
/// `EWOULDBLOCK` if another process has it.
pub fn lock_exclusively(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: no pointers.
    check_int(unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) }).map(|_| ())
}

/// Locks a file for this process, not for its children, until it ends or closes the file.
///
/// # Errors
/// `EAGAIN` or `EACCES` if another process has it.
pub fn lock_for_process(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: all zero bytes are a valid flock: the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: `lock` is valid for the call.
    check_int(unsafe { libc::fcntl(fd, libc::F_SETLK, &raw const lock) }).map(|_| ())
}

/// Maps the first `count` words of a file, shared and permanently. The file must be at least that long.
pub fn map_words(fd: RawFd, count: usize) -> Result<&'static [AtomicU64], Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let address = unsafe { mmap64(std::ptr::null_mut(), count * 8, protection, libc::MAP_SHARED, fd, 0) };
    if address == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    // SAFETY: the mapping has that length and the alignment of a page, and is never unmapped. Other processes access
    // it concurrently: all access is atomic.
    Ok(unsafe { std::slice::from_raw_parts(address.cast(), count) })
}

/// The path behind a symbolic link such as `/proc/self/fd/7`.
pub fn link_target(path: &CStr) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: `path` is NUL-terminated and the buffer is valid for its length.
    let len = check_len(unsafe { libc::readlink(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) })?;
    buffer.truncate(len);
    Ok(buffer)
}

/// Absolute path of a directory without symbolic links.
pub fn canonical(path: &CStr) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: `path` is NUL-terminated and the buffer has PATH_MAX bytes, as realpath requires.
    let result = unsafe { libc::realpath(path.as_ptr(), buffer.as_mut_ptr().cast()) };
    if result.is_null() {
        return Err(Errno::last());
    }
    let len = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    buffer.truncate(len);
    Ok(buffer)
}

/// The current directory.
pub fn current_directory() -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: the buffer is valid for its length.
    if unsafe { libc::getcwd(buffer.as_mut_ptr().cast(), buffer.len()) }.is_null() {
        return Err(Errno::last());
    }
    let len = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    buffer.truncate(len);
    Ok(buffer)
}

/// Local time as `year, month, day, hour, minute, second`.
pub fn local_time() -> [i32; 6] {
    // SAFETY: all zero bytes are a valid tm; both pointers are valid.
    unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut parts: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const now, &raw mut parts);
        [parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec]
    }
}

/// Ends the process at once with this status.
pub fn exit_now(status: c_int) -> ! {
    // SAFETY: _exit has no requirement.
    unsafe { libc::_exit(status) }
}

/// Ends the process by SIGABRT.
pub fn abort() -> ! {
    // SAFETY: abort has no requirement.
    unsafe { libc::abort() }
}

/// Starts a thread that no signal is delivered to, so that the server's signal handling stays as it is.
pub fn spawn_quiet(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // SAFETY: both sets are valid for the calls; the old mask is put back.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        let result = std::thread::Builder::new().name(name.to_owned()).stack_size(256 << 10).spawn(body);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut());
        result.map(drop)
    }
}
