//! Calls on a tracked descriptor, by kind of file.

use super::library::Library;
use crate::base::message;
use crate::base::open_flags::OpenFlags;
use crate::base::real::{self, Errno};
use crate::calls::target::{OpenFile, Target};
use std::ops::Range;
use std::os::fd::RawFd;

/// Position of a read or write.
fn position(fd: RawFd, at: Option<u64>) -> Result<u64, Errno> {
    at.map_or_else(|| real::seek(fd, 0, libc::SEEK_CUR), Ok)
}

fn advance(fd: RawFd, at: Option<u64>, from: u64, len: usize) -> Result<(), Errno> {
    if at.is_none() {
        let to = i64::try_from(from + len as u64).map_err(|_| Errno(libc::EOVERFLOW))?;
        real::seek(fd, to, libc::SEEK_SET)?;
    }
    Ok(())
}

/// Reads of this file are made locally.
pub const fn reads_locally(open: &OpenFile) -> bool {
    matches!(open.target, Target::Plain(_) | Target::Directory)
}

/// read and pread of a file whose bytes the node has.
///
/// # Errors
/// `EIO` when the node cannot answer.
pub fn read(
    library: &Library,
    open: &OpenFile,
    fd: RawFd,
    buffer: &mut [u8],
    at: Option<u64>,
) -> Result<usize, Errno> {
    let from = position(fd, at)?;
    let len = match &open.target {
        Target::Log(_) => library.log.read(&library.content, fd, buffer, from)?,
        Target::RedoFile(file) => library.redo_files.read(&library.content, file, fd, buffer, from)?,
        Target::Tablespace(file) => file.read(&library.content, fd, buffer, from)?,
        Target::Plain(_) | Target::Directory => real::read_at(fd, buffer, from)?,
    };
    advance(fd, at, from, len)?;
    Ok(len)
}

/// write and pwrite.
///
/// # Errors
/// That of the local call, or `EIO`.
pub fn write(
    library: &Library,
    open: &OpenFile,
    fd: RawFd,
    bytes: &[u8],
    at: Option<u64>,
) -> Result<usize, Errno> {
    if open.flags.is_read_only() {
        return Err(Errno(libc::EBADF));
    }
    if let Target::Plain(file) = &open.target {
        let is_mapped = !library.mappings.is_empty();
        return file.write(&library.content, open.flags, is_mapped, fd, bytes, at);
    }
    let from = position(fd, at)?;
    match &open.target {
        Target::Log(file) => library.log.write(&library.content, file, fd, bytes, from)?,
        Target::RedoFile(file) => library.redo_files.write(&library.content, file, fd, bytes, from)?,
        Target::Tablespace(file) => file.write(&library.content, fd, bytes, from)?,
        Target::Plain(_) | Target::Directory => return Err(Errno(libc::EBADF)),
    }
    advance(fd, at, from, bytes.len())?;
    if open.flags.is_synchronous() {
        sync(library, open)?;
    }
    Ok(bytes.len())
}

/// fsync and fdatasync.
///
/// # Errors
/// `EIO` when the stream is dead.
pub fn sync(library: &Library, open: &OpenFile) -> Result<(), Errno> {
    match &open.target {
        Target::Log(_) => library.log.sync(&library.content),
        // Everything that was written before, as on a disk: the redo, and the names of the files.
        Target::Directory | Target::RedoFile(_) => library.content.sync_all(),
        Target::Tablespace(file) => file.sync(&library.content),
        Target::Plain(file) => file.sync(&library.content),
    }
}

/// fcntl with `F_SETFL`: whether writes go to the end of the file must stay as it was when it was opened.
///
/// # Errors
/// `EOPNOTSUPP` for another `O_APPEND`.
pub fn set_flags(open: &OpenFile, flags: i32) -> Result<(), Errno> {
    if OpenFlags(flags).appends() == open.flags.appends() {
        return Ok(());
    }
    message::error("changing O_APPEND of an open file of the data directory is not supported");
    Err(Errno(libc::EOPNOTSUPP))
}

/// ftruncate.
///
/// # Errors
/// That of the local call, or `EIO`.
pub fn set_len(library: &Library, open: &OpenFile, fd: RawFd, len_bytes: u64) -> Result<(), Errno> {
    match &open.target {
        // The node learns the size of the log with its header.
        Target::Log(_) => real::set_len(fd, len_bytes),
        Target::RedoFile(file) => library.redo_files.set_len(&library.content, file, fd, len_bytes),
        Target::Tablespace(file) => file.set_len(&library.content, fd, len_bytes),
        Target::Plain(file) => file.set_len(&library.content, fd, len_bytes),
        Target::Directory => Err(Errno(libc::EINVAL)),
    }
}

/// fallocate and posix_fallocate. `local` makes the real call, for plain files.
///
/// # Errors
/// That of the local call; `EOPNOTSUPP` for a mode that cannot be followed; `EIO`.
pub fn allocate(
    library: &Library,
    open: &OpenFile,
    fd: RawFd,
    mode: i32,
    range_bytes: Range<u64>,
    local: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let is_punch = mode & libc::FALLOC_FL_PUNCH_HOLE != 0;
    let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    // The zeroed range lies after the end of the file: MySQL extends its files so.
    let extends = mode == libc::FALLOC_FL_ZERO_RANGE && real::status(fd)?.len_bytes <= range_bytes.start;
    let is_known = extends || mode & !(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) == 0;
    match &open.target {
        // MySQL gives a spare file of another size zeros: it writes them then.
        Target::RedoFile(_) if mode == libc::FALLOC_FL_ZERO_RANGE && !extends => {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        Target::Log(_) | Target::RedoFile(_) | Target::Tablespace(_) if !is_known => {}
        // Freed pages, or the rest of a page-compressed page: the node stores whole pages.
        Target::Tablespace(file) if is_punch => {
            return file.punch(&library.content, range_bytes.start, range_bytes.end - range_bytes.start);
        }
        Target::Log(_) | Target::RedoFile(_) | Target::Tablespace(_) if is_punch || keeps_size => {
            return Ok(());
        }
        Target::RedoFile(file) => {
            return library.redo_files.allocate(&library.content, file, fd, range_bytes.end);
        }
        Target::Log(_) => {
            if real::status(fd)?.len_bytes < range_bytes.end {
                real::set_len(fd, range_bytes.end)?;
            }
            return Ok(());
        }
        Target::Tablespace(file) => return file.allocate(&library.content, fd, range_bytes.end),
        Target::Plain(_) if keeps_size && !is_punch => return local(),
        Target::Plain(file) if mode == 0 => return file.change_len(&library.content, fd, local),
        Target::Plain(_) | Target::Directory => {}
    }
    message::error(&format!("fallocate with mode {mode:#x} on a replicated file is not supported"));
    Err(Errno(libc::EOPNOTSUPP))
}
