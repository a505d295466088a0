//! Plain files: real local files whose changes are also sent, in the same order.
//!
//! The local change comes first; the frame follows under the same lock, so that the frames of a file are in the order
//! of its local changes. The local file is a cache: durability is that of the node's copy, so fsync waits for the
//! node and not for the local disk.

use crate::base::message;
use crate::base::open_flags::OpenFlags;
use crate::base::paths::absolute;
use crate::base::real::{self, Errno};
use crate::content::Content;
use crate::content::names::{FilesByPath, Name, Named, NamesLock};
use redoubt_locks::IgnorePoison;
use redoubt_wire::Seq;
use redoubt_wire::stream::{Counter, FileKind, StreamFrame};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const PIECE_BYTES: usize = 4 << 20;
/// Old and new contents are compared in steps of this.
const COMPARED_BYTES: usize = 32;
/// Equal bytes between two changes that are worth a frame of their own.
const GAP_BYTES: usize = 128;

/// A plain file.
#[derive(Debug)]
pub struct PlainFile {
    /// Path of the file.
    pub name: Name,
    /// Held from a local change until its frame is in the stream.
    order: Mutex<()>,
    unsynced: AtomicU64,
    /// Changes through descriptors and mappings so far.
    changes: AtomicU64,
}

/// All known plain files.
pub type PlainFiles = FilesByPath<PlainFile>;

impl Named for PlainFile {
    fn name(&self) -> &Name {
        &self.name
    }
}

impl PlainFile {
    /// The file at `path`. `before`: the end of the stream; a sync also waits for writes to the file through an
    /// earlier descriptor.
    pub fn new(path: &[u8], before: Seq) -> Self {
        Self {
            name: Name::new(path),
            order: Mutex::default(),
            unsynced: AtomicU64::new(before.0),
            changes: AtomicU64::new(0),
        }
    }

    /// Changes through descriptors and mappings so far: a stdio stream on the file does not see them.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    fn sent(&self, end: Seq) {
        self.unsynced.fetch_max(end.0, Ordering::AcqRel);
    }

    /// Sends bytes that are in the local file already.
    fn send(
        &self,
        content: &Content,
        lock: &NamesLock<'_>,
        bytes: &[u8],
        offset_bytes: u64,
    ) -> Result<(), Errno> {
        let Some(path) = self.name.path(lock) else { return Ok(()) };
        let mut at = offset_bytes;
        for data in bytes.chunks(PIECE_BYTES) {
            self.sent(content.stream.append(&StreamFrame::Write { path: &path, offset_bytes: at, data })?);
            at += data.len() as u64;
        }
        content.counters.add(Counter::PlainBytes, bytes.len() as u64);
        Ok(())
    }

    /// Sends the local file as it is. `sent_before`, given descriptor and length, returns the beginning that the node has
    /// already; with `None` the file begins empty there. Returns what the node has now; `None` if the file has no name any
    /// more.
    ///
    /// # Errors
    /// That of the local calls, or `EIO`.
    pub fn send_content(
        &self,
        content: &Content,
        lock: &NamesLock<'_>,
        sent_before: impl FnOnce(RawFd, u64) -> Result<Option<Prefix>, Errno>,
    ) -> Result<Option<Prefix>, Errno> {
        let Some(path) = self.name.path(lock) else { return Ok(None) };
        let local = absolute(&content.datadir, &path)?;
        let fd = real::open_file(&local, libc::O_RDONLY | libc::O_CLOEXEC, 0)?;
        let result = self.send_open_file(content, lock, fd, &path, sent_before);
        let _ = real::close_file(fd);
        result.map(Some)
    }

    fn send_open_file(
        &self,
        content: &Content,
        lock: &NamesLock<'_>,
        fd: RawFd,
        path: &[u8],
        sent_before: impl FnOnce(RawFd, u64) -> Result<Option<Prefix>, Errno>,
    ) -> Result<Prefix, Errno> {
        let status = real::status(fd)?;
        if !status.is_regular {
            message::error(&format!(
                "{} is not a regular file and cannot be replicated",
                message::show(path)
            ));
            return Err(Errno(libc::EPERM));
        }
        let _order = self.order.lock().ignore_poison();
        let mut prefix = match sent_before(fd, status.len_bytes)? {
            Some(prefix) => prefix,
            None => {
                let create = StreamFrame::Create { path, kind: FileKind::Plain, mode: status.mode };
                self.sent(content.stream.append(&create)?);
                Prefix::default()
            }
        };
        read_from(fd, &mut prefix, status.len_bytes, |at, bytes| self.send(content, lock, bytes, at))?;
        Ok(prefix)
    }

    /// Writes at `at`, or at the file position. `is_mapped`: some file may have changed through a mapping.
    ///
    /// # Errors
    /// That of the local call, or `EIO`.
    pub fn write(
        &self,
        content: &Content,
        flags: OpenFlags,
        is_mapped: bool,
        fd: RawFd,
        bytes: &[u8],
        at: Option<u64>,
    ) -> Result<usize, Errno> {
        let lock = content.names.lock_shared();
        let _order = self.order.lock().ignore_poison();
        self.changed();
        let before = match at {
            Some(at) if !flags.appends() && !is_mapped => old_bytes(fd, bytes.len(), at),
            _ => Vec::new(),
        };
        let written = match at {
            Some(at) => real::write_at(fd, bytes, at)?,
            None => real::write_bytes(fd, bytes)?,
        };
        let offset_bytes = match at {
            // Linux appends even then.
            Some(_) if flags.appends() => real::status(fd)?.len_bytes.saturating_sub(written as u64),
            Some(at) => at,
            None => real::seek(fd, 0, libc::SEEK_CUR)?.saturating_sub(written as u64),
        };
        for (start, changed) in changed_parts(&before, bytes.get(..written).ok_or(Errno::EIO)?) {
            self.send(content, &lock, changed, offset_bytes + start as u64)?;
        }
        if flags.is_synchronous() {
            self.sync(content)?;
        }
        Ok(written)
    }

    /// ftruncate.
    ///
    /// # Errors
    /// That of the local call, or `EIO`.
    pub fn set_len(&self, content: &Content, fd: RawFd, len_bytes: u64) -> Result<(), Errno> {
        self.change_len(content, fd, || real::set_len(fd, len_bytes))
    }

    /// A local call that may change the length.
    ///
    /// # Errors
    /// That of the local call, or `EIO`.
    pub fn change_len(
        &self,
        content: &Content,
        fd: RawFd,
        local: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let lock = content.names.lock_shared();
        let _order = self.order.lock().ignore_poison();
        self.changed();
        local()?;
        let Some(path) = self.name.path(&lock) else { return Ok(()) };
        let len_bytes = real::status(fd)?.len_bytes;
        self.sent(content.stream.append(&StreamFrame::SetLen { path: &path, len_bytes })?);
        Ok(())
    }

    /// Its length; 0 when it was unlinked.
    ///
    /// # Errors
    /// That of the local call.
    pub fn len_bytes(&self, content: &Content) -> Result<u64, Errno> {
        match self.name.path(&content.names.lock_shared()) {
            Some(path) => Ok(real::status_of(&absolute(&content.datadir, &path)?)?.len_bytes),
            None => Ok(0),
        }
    }

    /// Sends bytes that the server changed through a mapping.
    ///
    /// # Errors
    /// `EIO` when the stream is dead.
    pub fn mapped_bytes(&self, content: &Content, bytes: &[u8], offset_bytes: u64) -> Result<(), Errno> {
        let lock = content.names.lock_shared();
        let _order = self.order.lock().ignore_poison();
        self.changed();
        self.send(content, &lock, bytes, offset_bytes)
    }

    /// fsync and fdatasync.
    ///
    /// # Errors
    /// `EIO` when the stream is dead.
    pub fn sync(&self, content: &Content) -> Result<(), Errno> {
        content.stream.wait_durable(Seq(self.unsynced.load(Ordering::Acquire)))
    }
}

/// The bytes of the file where a write will go. Aria writes its log buffer again and again from the beginning: nearly
/// all of those bytes are there already, here and on the node.
fn old_bytes(fd: RawFd, len: usize, at: u64) -> Vec<u8> {
    let mut old = vec![0; len];
    // A descriptor that cannot be read, or a short read: what is not known counts as changed.
    let known = real::read_at(fd, &mut old, at).unwrap_or(0);
    old.truncate(known);
    old
}

/// The parts of `new` that differ from `old`, and where they start. Bytes beyond the end of `old` differ. Parts
/// that are close together are one: each costs a frame.
fn changed_parts<'a>(old: &[u8], new: &'a [u8]) -> Vec<(usize, &'a [u8])> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    let common = old.len().min(new.len());
    let mut at = 0;
    for (old, new) in old.chunks(COMPARED_BYTES).zip(new.split_at(common).0.chunks(COMPARED_BYTES)) {
        if old.get(..new.len()) != Some(new) {
            join(&mut ranges, at, at + new.len());
        }
        at += new.len();
    }
    if new.len() > common {
        join(&mut ranges, common, new.len());
    }
    ranges.into_iter().filter_map(|(start, end)| Some((start, new.get(start..end)?))).collect()
}

fn join(ranges: &mut Vec<(usize, usize)>, start: usize, end: usize) {
    match ranges.last_mut() {
        Some((_, last_end)) if start - *last_end < GAP_BYTES => *last_end = end,
        _ => ranges.push((start, end)),
    }
}

/// The plain file at `path`, made known if it is not.
pub fn known(content: &Content, files: &PlainFiles, path: &[u8]) -> Arc<PlainFile> {
    files.at(path, || PlainFile::new(path, content.stream.end()))
}

/// Opens a plain file for writing.
///
/// # Errors
/// That of the local call, or `EIO`.
pub fn open(
    content: &Content,
    files: &PlainFiles,
    path: &[u8],
    flags: i32,
    mode: libc::mode_t,
) -> Result<(RawFd, Arc<PlainFile>), Errno> {
    let local = absolute(&content.datadir, path)?;
    let may_create = flags & (libc::O_CREAT | libc::O_TRUNC) != 0;
    let _lock = if may_create { content.names.lock_exclusive() } else { content.names.lock_shared() };
    let existed = real::status_of(&local).is_ok();
    let fd = real::open_file(&local, flags, mode)?;
    let is_new = !existed || flags & libc::O_TRUNC != 0;
    if !existed {
        files.forget(path);
    }
    let file = known(content, files, path);
    if may_create && is_new {
        let sent = real::status(fd).and_then(|status| {
            content.stream.append(&StreamFrame::Create { path, kind: FileKind::Plain, mode: status.mode })
        });
        match sent {
            Ok(end) => file.sent(end),
            Err(errno) => {
                let _ = real::close_file(fd);
                return Err(errno);
            }
        }
    }
    Ok((fd, file))
}

/// Beginning of a file as it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Its length.
    pub len_bytes: u64,
    /// CRC-32C of it.
    pub crc: u32,
}

impl Prefix {
    fn add(&mut self, bytes: &[u8]) {
        self.len_bytes += bytes.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, bytes);
    }
}

/// Sends the current content of a local file. The file was written by calls that are not intercepted (stdio), or got
/// a replicated name.
///
/// # Errors
/// That of the local calls, or `EIO`.
pub fn send_whole(
    content: &Content,
    files: &PlainFiles,
    lock: &NamesLock<'_>,
    path: &[u8],
) -> Result<(), Errno> {
    known(content, files, path).send_content(content, lock, |_, _| Ok(None)).map(drop)
}

/// Bytes of a local file from `prefix` to its end, which was at `len_bytes`, in pieces.
fn read_from(
    fd: RawFd,
    prefix: &mut Prefix,
    len_bytes: u64,
    mut piece: impl FnMut(u64, &[u8]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let rest = len_bytes.saturating_sub(prefix.len_bytes);
    let mut buffer = vec![0; PIECE_BYTES.min(rest as usize + 1)];
    loop {
        let len = real::read_at(fd, &mut buffer, prefix.len_bytes)?;
        if len == 0 {
            return Ok(());
        }
        let bytes = buffer.get(..len).ok_or(Errno::EIO)?;
        piece(prefix.len_bytes, bytes)?;
        prefix.add(bytes);
    }
}

/// The first `len_bytes` bytes of a local file.
pub fn prefix_of(fd: RawFd, len_bytes: u64) -> Result<Prefix, Errno> {
    let mut prefix = Prefix::default();
    let mut buffer = vec![0; PIECE_BYTES.min(len_bytes as usize)];
    while prefix.len_bytes < len_bytes {
        let wanted = PIECE_BYTES.min((len_bytes - prefix.len_bytes) as usize);
        let buffer = buffer.get_mut(..wanted).ok_or(Errno::EIO)?;
        match real::read_at(fd, buffer, prefix.len_bytes)? {
            0 => break,
            len => prefix.add(buffer.get(..len).ok_or(Errno::EIO)?),
        }
    }
    Ok(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Content on the node after the parts were written over `old`.
    fn patched(old: &[u8], new: &[u8]) -> Vec<u8> {
        let mut out = old.to_vec();
        for (start, part) in changed_parts(old, new) {
            out.resize(out.len().max(start + part.len()), 0);
            out[start..start + part.len()].copy_from_slice(part);
        }
        out
    }

    #[test]
    fn sent_parts_make_the_old_bytes_the_new_ones() {
        fastrand::seed(7);
        for _ in 0..2000 {
            let old: Vec<u8> = (0..fastrand::usize(0..2000)).map(|_| fastrand::u8(..)).collect();
            let mut new = old.clone();
            for _ in 0..fastrand::usize(0..4) {
                if let Some(byte) = (!new.is_empty()).then(|| fastrand::usize(..new.len())) {
                    new[byte] ^= 1;
                }
            }
            new.resize(old.len() + fastrand::usize(0..100), 9);
            assert_eq!(patched(&old, &new), new);
        }
    }

    #[test]
    fn only_what_changed_is_sent() {
        let old = vec![1u8; 8192];
        assert!(changed_parts(&old, &old).is_empty());
        assert!(changed_parts(&old, &old[..100]).is_empty());
        let mut new = old.clone();
        (new[3], new[4000], new[8191]) = (2, 2, 2);
        let parts = changed_parts(&old, &new);
        assert_eq!(
            parts.iter().map(|(start, part)| (*start, part.len())).collect::<Vec<_>>(),
            [(0, 32), (4000, 32), (8160, 32)]
        );
    }
}
