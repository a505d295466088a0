//! Messages between the kernel and a file system in user space on `/dev/fuse`: bytes only.
//!
//! Numbers are in the byte order of the machine. A request is a header of 40 bytes and the data of its operation; a
//! reply is a header of 16 bytes and a body. Layouts are those of `linux/fuse.h`, version 7.31, which every kernel
//! since 5.5 supports; the reply to a newer kernel names 7.31 as the newest version.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Number of the root directory.
pub const ROOT: u64 = 1;
/// Maximum number of bytes of a file in one request or reply.
pub const MAX_TRANSFER_BYTES: u32 = 1 << 20;
/// Room that any request needs.
pub const REQUEST_ROOM_BYTES: usize = MAX_TRANSFER_BYTES as usize + 8192;

const MAJOR: u32 = 7;
const MINOR: u32 = 31;
const REQUEST_HEADER_BYTES: usize = 40;
const REPLY_HEADER_BYTES: usize = 16;

/// Reads at once, bigger writes, cutting at open, parallel directories, longer transfers.
const WANTED_FLAGS: u32 = 1 | 1 << 3 | 1 << 5 | 1 << 18 | 1 << 22;
const PAGE_BYTES: u32 = 4096;

/// The kernel keeps nothing of the file.
pub const OPEN_DIRECT: u32 = 1;
/// The kernel may keep its cached pages of the file.
pub const OPEN_KEEP_CACHE: u32 = 2;

/// Flags of the attributes that a [`Operation::SetAttributes`] changes.
const SET_MODE: u32 = 1;
const SET_SIZE: u32 = 1 << 3;

/// A request of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its number, for the reply.
    pub unique: u64,
    /// The file or directory it is about.
    pub node: u64,
    /// The operation.
    pub operation: Operation<'a>,
}

/// Operation of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Start of the session; the kernel's version and flags.
    Begin {
        major: u32,
        minor: u32,
        flags: u32,
        max_readahead_bytes: u32,
    },
    Lookup(&'a OsStr),
    /// No reply.
    Forget,
    GetAttributes,
    ReadLink,
    SetAttributes {
        mode: Option<u32>,
        len_bytes: Option<u64>,
    },
    Open {
        flags: i32,
    },
    Read {
        handle: u64,
        offset_bytes: u64,
        len_bytes: u32,
    },
    Write {
        handle: u64,
        offset_bytes: u64,
        bytes: &'a [u8],
    },
    Release {
        handle: u64,
    },
    Sync,
    OpenDirectory,
    ReadDirectory {
        handle: u64,
        position: u64,
        len_bytes: u32,
    },
    ReleaseDirectory {
        handle: u64,
    },
    Create {
        name: &'a OsStr,
        flags: i32,
        mode: u32,
    },
    MakeNode {
        name: &'a OsStr,
        mode: u32,
    },
    MakeDirectory {
        name: &'a OsStr,
        mode: u32,
    },
    Unlink(&'a OsStr),
    RemoveDirectory(&'a OsStr),
    Rename {
        from: &'a OsStr,
        to_directory: u64,
        to: &'a OsStr,
        flags: u32,
    },
    Link,
    StatFs,
    /// The file system is unmounted.
    End,
    /// Stop waiting; no reply.
    Interrupt,
    /// Anything else.
    Other,
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*bytes))
    }

    fn skip(&mut self, len: usize) -> Option<()> {
        self.0 = self.0.get(len..)?;
        Some(())
    }

    fn name(&mut self) -> Option<&'a OsStr> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let (name, rest) = (self.0.get(..end)?, self.0.get(end + 1..)?);
        self.0 = rest;
        Some(OsStr::from_bytes(name))
    }
}

/// Decodes a request; `None`: it is cut, or no request.
pub fn decode(bytes: &[u8]) -> Option<Request<'_>> {
    let mut header = Fields(bytes);
    let len = header.u32()?;
    let code = header.u32()?;
    let unique = header.u64()?;
    let node = header.u64()?;
    let body = bytes.get(REQUEST_HEADER_BYTES..usize::try_from(len).ok()?)?;
    Some(Request { unique, node, operation: operation(code, Fields(body))? })
}

fn operation(code: u32, mut fields: Fields<'_>) -> Option<Operation<'_>> {
    Some(match code {
        1 => Operation::Lookup(fields.name()?),
        2 | 42 => Operation::Forget,
        3 => Operation::GetAttributes,
        4 => set_attributes(fields)?,
        5 => Operation::ReadLink,
        8 => {
            let mode = fields.u32()?;
            fields.skip(12)?;
            Operation::MakeNode { name: fields.name()?, mode }
        }
        9 => {
            let mode = fields.u32()?;
            fields.skip(4)?;
            Operation::MakeDirectory { name: fields.name()?, mode }
        }
        10 => Operation::Unlink(fields.name()?),
        11 => Operation::RemoveDirectory(fields.name()?),
        12 => rename(fields, false)?,
        45 => rename(fields, true)?,
        6 | 13 | 21 | 24 => Operation::Link,
        14 => Operation::Open { flags: fields.u32()?.cast_signed() },
        15 => {
            let (handle, offset_bytes, len_bytes) = (fields.u64()?, fields.u64()?, fields.u32()?);
            Operation::Read { handle, offset_bytes, len_bytes }
        }
        16 => {
            let (handle, offset_bytes, len_bytes) = (fields.u64()?, fields.u64()?, fields.u32()?);
            fields.skip(20)?;
            Operation::Write {
                handle,
                offset_bytes,
                bytes: fields.0.get(..usize::try_from(len_bytes).ok()?)?,
            }
        }
        17 => Operation::StatFs,
        18 => Operation::Release { handle: fields.u64()? },
        20 | 30 => Operation::Sync,
        26 => {
            let (major, minor) = (fields.u32()?, fields.u32()?);
            let (max_readahead_bytes, flags) = (fields.u32()?, fields.u32()?);
            Operation::Begin { major, minor, flags, max_readahead_bytes }
        }
        27 => Operation::OpenDirectory,
        28 => {
            let (handle, position, len_bytes) = (fields.u64()?, fields.u64()?, fields.u32()?);
            Operation::ReadDirectory { handle, position, len_bytes }
        }
        29 => Operation::ReleaseDirectory { handle: fields.u64()? },
        35 => {
            let (flags, mode) = (fields.u32()?.cast_signed(), fields.u32()?);
            fields.skip(8)?;
            Operation::Create { name: fields.name()?, flags, mode }
        }
        36 => Operation::Interrupt,
        38 => Operation::End,
        _ => Operation::Other,
    })
}

fn set_attributes(mut fields: Fields<'_>) -> Option<Operation<'_>> {
    let valid = fields.u32()?;
    fields.skip(12)?;
    let len_bytes = fields.u64()?;
    // Lock owner, three times, their nanoseconds.
    fields.skip(8 + 24 + 12)?;
    let mode = fields.u32()?;
    Some(Operation::SetAttributes {
        mode: (valid & SET_MODE != 0).then_some(mode),
        len_bytes: (valid & SET_SIZE != 0).then_some(len_bytes),
    })
}

fn rename(mut fields: Fields<'_>, has_flags: bool) -> Option<Operation<'_>> {
    let to_directory = fields.u64()?;
    let mut flags = 0;
    if has_flags {
        flags = fields.u32()?;
        fields.skip(4)?;
    }
    Some(Operation::Rename { from: fields.name()?, to_directory, to: fields.name()?, flags })
}

/// Attributes of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Number.
    pub node: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// All times, in seconds since 1970.
    pub time_seconds: u64,
    /// Time for which the kernel may cache them.
    pub valid: Duration,
}

/// A reply that is being put together.
pub struct Answer(Vec<u8>);

impl Answer {
    /// Reply to the request of this number: success, without a body so far.
    pub fn new(unique: u64) -> Self {
        Self::with_status(unique, 0)
    }

    /// It failed.
    pub fn error(unique: u64, errno: i32) -> Self {
        Self::with_status(unique, -errno)
    }

    fn with_status(unique: u64, status: i32) -> Self {
        let mut answer = Self(vec![0; 4]);
        answer.0.extend_from_slice(&status.to_ne_bytes());
        answer.u64(unique);
        answer
    }

    fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    /// The whole, with its length in front.
    pub fn finish(mut self) -> Vec<u8> {
        let len = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        if let Some(place) = self.0.first_chunk_mut() {
            *place = len.to_ne_bytes();
        }
        self.0
    }

    /// Reply to [`Operation::Begin`].
    pub fn begun(mut self, flags: u32, max_readahead_bytes: u32) -> Self {
        self.u32(MAJOR);
        self.u32(MINOR);
        self.u32(max_readahead_bytes);
        self.u32(flags & WANTED_FLAGS);
        self.u16(64);
        self.u16(48);
        self.u32(MAX_TRANSFER_BYTES);
        // Times have whole seconds.
        self.u32(1_000_000_000);
        self.u16(u16::try_from(MAX_TRANSFER_BYTES / PAGE_BYTES).unwrap_or(32));
        self.u16(0);
        self.0.extend_from_slice(&[0; 32]);
        self
    }

    fn attributes_only(&mut self, attributes: &Attributes) {
        self.u64(attributes.node);
        self.u64(attributes.len_bytes);
        self.u64(attributes.len_bytes.div_ceil(512));
        for _ in 0..3 {
            self.u64(attributes.time_seconds);
        }
        for _ in 0..3 {
            self.u32(0);
        }
        self.u32(attributes.mode);
        self.u32(if attributes.mode & libc::S_IFMT == libc::S_IFDIR { 2 } else { 1 });
        self.u32(attributes.owner.0);
        self.u32(attributes.owner.1);
        self.u32(0);
        self.u32(PAGE_BYTES);
        self.u32(0);
    }

    /// Reply to [`Operation::GetAttributes`] and [`Operation::SetAttributes`].
    pub fn attributes(mut self, attributes: &Attributes) -> Self {
        self.u64(attributes.valid.as_secs());
        self.u32(attributes.valid.subsec_nanos());
        self.u32(0);
        self.attributes_only(attributes);
        self
    }

    /// Reply to a lookup, or to the creation of a file. The kernel looks the name up again after `name_valid`.
    pub fn entry(mut self, attributes: &Attributes, name_valid: Duration) -> Self {
        self.u64(attributes.node);
        self.u64(0);
        self.u64(name_valid.as_secs());
        self.u64(attributes.valid.as_secs());
        self.u32(name_valid.subsec_nanos());
        self.u32(attributes.valid.subsec_nanos());
        self.attributes_only(attributes);
        self
    }

    /// Reply to an open; for [`Operation::Create`] after the entry.
    pub fn opened(mut self, handle: u64, flags: u32) -> Self {
        self.u64(handle);
        self.u32(flags);
        self.u32(0);
        self
    }

    /// Contents.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Reply to [`Operation::Write`].
    pub fn written(mut self, len_bytes: u32) -> Self {
        self.u32(len_bytes);
        self.u32(0);
        self
    }

    /// Reply to [`Operation::StatFs`]: sizes of blocks and names only; `free_bytes` is for programs that check the
    /// free space before they write.
    pub fn file_system(mut self, total_bytes: u64, free_bytes: u64) -> Self {
        let blocks = |bytes: u64| bytes / u64::from(PAGE_BYTES);
        for value in [blocks(total_bytes), blocks(free_bytes), blocks(free_bytes), 1 << 20, 1 << 20] {
            self.u64(value);
        }
        for value in [PAGE_BYTES, 255, PAGE_BYTES] {
            self.u32(value);
        }
        self.0.extend_from_slice(&[0; 28]);
        self
    }

    /// Appends a name of a directory if all of it fits into `limit_bytes` of body. `next` is the position of the next
    /// name.
    pub fn name(&mut self, limit_bytes: u32, node: u64, next: u64, mode: u32, name: &[u8]) -> bool {
        let len = (24 + name.len()).next_multiple_of(8);
        let used = self.0.len() - REPLY_HEADER_BYTES;
        if used + len > usize::try_from(limit_bytes).unwrap_or(usize::MAX) {
            return false;
        }
        self.u64(node);
        self.u64(next);
        self.u32(u32::try_from(name.len()).unwrap_or(0));
        self.u32((mode & libc::S_IFMT) >> 12);
        self.0.extend_from_slice(name);
        self.0.resize(REPLY_HEADER_BYTES + used + len, 0);
        true
    }
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
