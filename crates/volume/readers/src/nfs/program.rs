//! The NFS program, version 3 (RFC 1813), as far as reading needs it.
//!
//! Invariant: every procedure that would change something is answered with `NFS3ERR_ROFS`, whatever its arguments.

use crate::nfs::exports::{Exports, Found, join};
use crate::nfs::handle::{Handle, LIMIT_BYTES, PathNumber};
use crate::nfs::rpc::Taken;
use crate::nfs::xdr::{Garbage, Reader, Writer};
use crate::{Called, Errno, Meta};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Program number.
pub const PROGRAM: u32 = 100_003;
/// Program version.
pub const VERSION: u32 = 3;

/// Limit of bytes in the answer to one read.
pub const READ_LIMIT_BYTES: u32 = 256 << 10;
/// Limit of bytes per write that clients are offered.
pub const WRITE_LIMIT_BYTES: u32 = 64 << 10;
/// Limit of bytes of names in one answer.
const LIST_LIMIT_BYTES: u32 = 64 << 10;
const NAME_LIMIT_BYTES: usize = 255;
/// Longest accepted name.
const NAME_ROOM_BYTES: usize = 4096;
/// Reported size of the file system.
const SHOWN_BYTES: u64 = 1 << 50;

const PROCEDURE_COUNT: u32 = 22;
/// Bytes at the beginning of a list, for attributes.
const LIST_HEAD_BYTES: usize = 160;
/// Bytes of a name in a list: marks, numbers, length.
const NAME_BYTES: usize = 32;
/// Additional bytes of an entry with attributes.
const NAME_ATTRIBUTES_BYTES: usize = 96;

/// Positions of `.` and `..`: before any number of a path.
const SELF_COOKIE: u64 = 1;
const PARENT_COOKIE: u64 = 2;

mod status {
    pub const OK: u32 = 0;
    pub const PERM: u32 = 1;
    pub const NOENT: u32 = 2;
    pub const IO: u32 = 5;
    pub const NOTDIR: u32 = 20;
    pub const ISDIR: u32 = 21;
    pub const INVAL: u32 = 22;
    pub const ROFS: u32 = 30;
    pub const NAMETOOLONG: u32 = 63;
    pub const STALE: u32 = 70;
    pub const BADHANDLE: u32 = 10_001;
    pub const NOT_SYNC: u32 = 10_002;
    pub const TOOSMALL: u32 = 10_005;
    pub const JUKEBOX: u32 = 10_008;
}

const fn status_of(Errno(errno): Errno) -> u32 {
    match errno {
        libc::EPERM => status::PERM,
        libc::ENOENT => status::NOENT,
        libc::ENOTDIR => status::NOTDIR,
        libc::EISDIR => status::ISDIR,
        libc::EINVAL => status::INVAL,
        libc::EROFS => status::ROFS,
        libc::ENAMETOOLONG => status::NAMETOOLONG,
        libc::ESTALE => status::STALE,
        libc::EAGAIN => status::JUKEBOX,
        libc::EBADF => status::BADHANDLE,
        libc::EBADMSG => status::NOT_SYNC,
        libc::ENOSPC => status::TOOSMALL,
        _ => status::IO,
    }
}

/// The exports, and the owner of the files as clients see it.
pub struct Program {
    /// The exports.
    pub exports: Arc<Exports>,
    /// User and group of the files.
    pub owner: (u32, u32),
}

/// Number of words after a failed procedure's status; each reports absent attributes.
const fn words_after_failure(procedure: u32) -> usize {
    match procedure {
        1 => 0,
        3..=6 | 16..=20 => 1,
        // Two directories, before and after the change.
        14 => 4,
        // A file, and a directory before and after the change.
        15 => 3,
        _ => 2,
    }
}

impl Program {
    /// Executes a procedure and appends its result.
    ///
    /// # Errors
    /// [`Garbage`].
    pub fn call(&self, procedure: u32, arguments: Reader<'_>, out: &mut Writer) -> Result<Taken, Garbage> {
        if procedure >= PROCEDURE_COUNT {
            return Ok(Taken::NoProcedure);
        }
        if procedure == 0 {
            return Ok(Taken::Success);
        }
        let mut result = Writer::default();
        match self.answer(procedure, arguments, &mut result)? {
            Ok(()) => {
                out.u32(status::OK).fixed(&result.finish());
            }
            Err(errno) => {
                out.u32(status_of(errno));
                for _ in 0..words_after_failure(procedure) {
                    out.bool(false);
                }
            }
        }
        Ok(Taken::Success)
    }

    fn answer(&self, procedure: u32, mut arguments: Reader<'_>, out: &mut Writer) -> Answered {
        match procedure {
            1 => {
                let found = found(self, &mut arguments)?;
                Ok(found.map(|found| self.attributes(out, &found)))
            }
            3 => self.lookup(arguments, out),
            4 => self.access(arguments, out),
            // No links exist.
            5 => Ok(found(self, &mut arguments)?.and(Err(Errno(libc::EINVAL)))),
            6 => self.read(arguments, out),
            16 => self.read_directory(arguments, false, out),
            17 => self.read_directory(arguments, true, out),
            18 => {
                let found = found(self, &mut arguments)?;
                Ok(found.map(|found| {
                    self.optional_attributes(out, &found);
                    out.u64(SHOWN_BYTES).u64(0).u64(0).u64(SHOWN_BYTES).u64(0).u64(0).u32(0);
                }))
            }
            19 => {
                let found = found(self, &mut arguments)?;
                Ok(found.map(|found| self.file_system(out, &found)))
            }
            20 => {
                let found = found(self, &mut arguments)?;
                Ok(found.map(|found| {
                    self.optional_attributes(out, &found);
                    let name_limit = u32::try_from(NAME_LIMIT_BYTES).unwrap_or(0);
                    out.u32(1).u32(name_limit).bool(true).bool(true).bool(false).bool(true);
                }))
            }
            _ => Ok(Err(Errno(libc::EROFS))),
        }
    }

    fn attributes(&self, out: &mut Writer, found: &Found) {
        let number = PathNumber::of(&found.path);
        self.attributes_of(out, found, number, found.meta());
    }

    /// `fattr3`, of a file or directory of an export.
    fn attributes_of(&self, out: &mut Writer, of: &Found, number: PathNumber, meta: Meta) {
        let is_directory = meta.mode & libc::S_IFMT == libc::S_IFDIR;
        let (kind, links) = if is_directory { (2, 2) } else { (1, 1) };
        out.u32(kind).u32(meta.mode & 0o7777).u32(links).u32(self.owner.0).u32(self.owner.1);
        // No device numbers; the file system's number distinguishes exports.
        let key = of.export.key;
        let [.., a, b, c, d, e, f, g, h] = key.volume_id.to_be_bytes();
        let file_system = u64::from_be_bytes([a, b, c, d, e, f, g, h]) ^ key.moment;
        out.u64(meta.len_bytes).u64(meta.len_bytes).u64(0).u64(file_system).u64(number.0);
        let changed = of.export.changed();
        for _ in 0..3 {
            time(out, changed);
        }
    }

    fn optional_attributes(&self, out: &mut Writer, found: &Found) {
        out.bool(true);
        self.attributes(out, found);
    }

    fn file_system(&self, out: &mut Writer, found: &Found) {
        self.optional_attributes(out, found);
        out.u32(READ_LIMIT_BYTES).u32(READ_LIMIT_BYTES).u32(4096);
        out.u32(WRITE_LIMIT_BYTES).u32(WRITE_LIMIT_BYTES).u32(4096);
        out.u32(LIST_LIMIT_BYTES).u64(i64::MAX.unsigned_abs());
        // Times have a resolution of about a millisecond. Properties: the same for all files.
        out.u32(0).u32(1_000_000).u32(0x8);
    }

    fn lookup(&self, mut arguments: Reader<'_>, out: &mut Writer) -> Answered {
        let directory = found(self, &mut arguments)?;
        let name = arguments.opaque(NAME_ROOM_BYTES)?;
        Ok(directory.and_then(|directory| {
            let found = lookup(&directory, name)?;
            out.opaque(&found.handle().encode());
            self.optional_attributes(out, &found);
            out.bool(false);
            Ok(())
        }))
    }

    fn access(&self, mut arguments: Reader<'_>, out: &mut Writer) -> Answered {
        const READ: u32 = 1;
        const LOOKUP: u32 = 2;
        let found = found(self, &mut arguments)?;
        let wanted = arguments.u32()?;
        Ok(found.map(|found| {
            self.optional_attributes(out, &found);
            let allowed = if found.is_directory() { READ | LOOKUP } else { READ };
            out.u32(wanted & allowed);
        }))
    }

    fn read(&self, mut arguments: Reader<'_>, out: &mut Writer) -> Answered {
        let handle = Handle::decode(arguments.opaque(LIMIT_BYTES)?);
        let (offset_bytes, len_bytes) = (arguments.u64()?, arguments.u32()?.min(READ_LIMIT_BYTES));
        let Ok(handle) = handle else { return Ok(Err(Errno(libc::EBADF))) };
        let read = || {
            let file = self.exports.open(&handle)?;
            if offset_bytes > i64::MAX.unsigned_abs() - u64::from(READ_LIMIT_BYTES) {
                return Err(Errno(libc::EINVAL));
            }
            let bytes = file.read(offset_bytes, len_bytes)?;
            Ok((bytes, file.meta()?.len_bytes))
        };
        Ok(read().map(|(bytes, file_len_bytes): (Vec<u8>, u64)| {
            let end = offset_bytes.saturating_add(bytes.len() as u64);
            // Without attributes: a client must request them, instead of deriving from them whether its cache is stale.
            out.bool(false).u32(u32::try_from(bytes.len()).unwrap_or(0)).bool(end >= file_len_bytes);
            out.opaque(&bytes);
        }))
    }

    fn read_directory(&self, mut arguments: Reader<'_>, with_attributes: bool, out: &mut Writer) -> Answered {
        let directory = found(self, &mut arguments)?;
        let (cookie, _verifier) = (arguments.u64()?, arguments.u64()?);
        if with_attributes {
            let _names_bytes = arguments.u32()?;
        }
        let room = usize::try_from(arguments.u32()?.min(LIST_LIMIT_BYTES)).unwrap_or(0);
        Ok(directory.and_then(|directory| {
            if !directory.is_directory() {
                return Err(Errno(libc::ENOTDIR));
            }
            let list = directory.export.list(&directory.path, cookie != 0)?;
            self.optional_attributes(out, &directory);
            out.u64(0);
            let start = out.len_bytes();
            let room = room.checked_sub(LIST_HEAD_BYTES).ok_or(Errno(libc::ENOSPC))?;
            let own = (PathNumber::of(&directory.path), SELF_COOKIE, ".");
            let parent = (PathNumber::of(parent(&directory.path)), PARENT_COOKIE, "..");
            let links = [own, parent].into_iter().map(|(number, cookie, name)| (number, cookie, name, None));
            let names = list.iter().map(|(number, name, meta)| (*number, number.0, &**name, Some(*meta)));
            let (mut is_full, mut is_empty) = (false, true);
            for (number, at, name, meta) in links.chain(names).filter(|(_, at, ..)| *at > cookie) {
                let attributes_bytes = if with_attributes { NAME_ATTRIBUTES_BYTES } else { 0 };
                if out.len_bytes() - start + NAME_BYTES + name.len() + attributes_bytes > room {
                    is_full = true;
                    break;
                }
                is_empty = false;
                out.bool(true).u64(number.0).opaque(name.as_bytes()).u64(at);
                if with_attributes {
                    out.bool(meta.is_some());
                    if let Some(meta) = meta {
                        self.attributes_of(out, &directory, number, meta);
                    }
                    // Without a handle: a lookup returns it.
                    out.bool(false);
                }
            }
            if is_full && is_empty {
                return Err(Errno(libc::ENOSPC));
            }
            out.bool(false).bool(!is_full);
            Ok(())
        }))
    }
}

/// The outer error is for invalid arguments.
type Answered = Result<Called<()>, Garbage>;

/// Resolves the handle at the front of the arguments.
fn found(program: &Program, arguments: &mut Reader<'_>) -> Result<Called<Found>, Garbage> {
    let handle = Handle::decode(arguments.opaque(LIMIT_BYTES)?);
    Ok(match handle {
        Ok(handle) => program.exports.find(&handle),
        Err(Garbage) => Err(Errno(libc::EBADF)),
    })
}

fn lookup(directory: &Found, name: &[u8]) -> Called<Found> {
    if !directory.is_directory() {
        return Err(Errno(libc::ENOTDIR));
    }
    if name.len() > NAME_LIMIT_BYTES {
        return Err(Errno(libc::ENAMETOOLONG));
    }
    // A volume has UTF-8 names.
    let name = std::str::from_utf8(name).map_err(|_| Errno(libc::ENOENT))?;
    let path = match name {
        "." => directory.path.clone(),
        ".." => parent(&directory.path).to_owned(),
        name if name.is_empty() || name.contains(['/', '\0']) => return Err(Errno(libc::ENOENT)),
        name => join(&directory.path, name),
    };
    directory.export.at(path)
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn time(out: &mut Writer, time: SystemTime) {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    out.u32(u32::try_from(since.as_secs()).unwrap_or(u32::MAX)).u32(since.subsec_nanos());
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
