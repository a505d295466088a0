//! MySQL's redo log: a set of files, of which only stubs are here.
//!
//! The server makes, renames, recycles and removes them all the time; the node follows that as it follows the names of
//! any file. Writes to their first blocks (header, checkpoints) go into the stream as they are. What is written after
//! those goes through an observer that yields each redo byte once, in whole mini-transactions. At its start the server
//! reads what the node composes from all that.
//!
//! Invariant: every redo byte the server wrote is in the stream, or the stream is dead. The lock is held from
//! observing a write until its frames are in the stream, so redo frames are in LSN order.

use crate::base::classify::file_name;
use crate::base::paths::absolute;
use crate::base::real::{self, Errno};
use crate::connections::stream::FRAME_LIMIT_BYTES;
use crate::content::Content;
use crate::content::names::{FilesByPath, Name, Named, NamesLock};
use crate::kinds::log_read;
use crate::kinds::redo_log::pieces;
use redoubt_page::mysql::Flags;
use redoubt_redo::mysql::{LogFileHeader, LogFileName, LogObserver, NewRedo, Observed, from_server_lsn};
use redoubt_redo::{Lsn, Mtr, RunRef, SpaceFlagsChange, SpaceId};
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::stream::{Counter, FileKind, LOG_HEADER_LEN_BYTES, StreamFrame};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A file of the log.
#[derive(Debug)]
pub struct RedoFile {
    name: Name,
}

impl Named for RedoFile {
    fn name(&self) -> &Name {
        &self.name
    }
}

/// All of them.
#[derive(Default)]
pub struct RedoFiles {
    /// By path.
    pub by_path: FilesByPath<RedoFile>,
    observer: Mutex<Option<LogObserver>>,
}

/// The tablespace that becomes an encrypted one with this mini-transaction.
fn space_to_be_encrypted(mtr: &Mtr<'_, '_>) -> Option<SpaceId> {
    let is_encrypted = |run: &&RunRef| match run.space_flags {
        SpaceFlagsChange::Set(flags) => Flags(flags).is_encrypted(),
        SpaceFlagsChange::Unchanged | SpaceFlagsChange::Unknown => false,
    };
    mtr.runs.iter().find(is_encrypted).map(|run| run.page.space)
}

fn broken(content: &Content, why: &str) -> Errno {
    content.stream.die(&format!("the redo log cannot be followed: {why}"));
    Errno::EIO
}

impl RedoFiles {
    fn lock(&self) -> MutexGuard<'_, Option<LogObserver>> {
        self.observer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a file of the log, or creates it.
    ///
    /// # Errors
    /// That of the local call; `EIO` when the node cannot say where the log stands.
    pub fn open(
        &self,
        content: &Content,
        path: &[u8],
        flags: i32,
        mode: libc::mode_t,
    ) -> Result<(RawFd, Arc<RedoFile>), Errno> {
        let _names = content.names.lock_exclusive();
        let local = absolute(&content.datadir, path)?;
        let existed = real::status_of(&local).is_ok();
        let fd = real::open_file(&local, flags & !libc::O_DIRECT, mode)?;
        let opened = || {
            if !existed || flags & libc::O_TRUNC != 0 {
                self.by_path.forget(path);
                let mode = real::status(fd)?.mode;
                content.stream.append(&StreamFrame::Create { path, kind: FileKind::Redo, mode })?;
            } else if self.by_path.known(path).is_none() {
                self.resume(content, path, fd)?;
            }
            Ok(self.by_path.at(path, || RedoFile { name: Name::new(path) }))
        };
        opened().map(|file| (fd, file)).inspect_err(|_: &Errno| {
            let _ = real::close_file(fd);
        })
    }

    /// A file that was there before this process: the observer learns where it is in the log.
    fn resume(&self, content: &Content, path: &[u8], fd: RawFd) -> Result<(), Errno> {
        let mut observer = self.lock();
        if observer.is_none() {
            let next_lsn = content.pool.request(&PageRequest::LogState, |reply| match reply {
                PageReply::LogState { next_lsn, .. } => Some(next_lsn),
                _ => None,
            })?;
            let next_lsn = next_lsn
                .filter(|lsn| *lsn != Lsn(0))
                .ok_or_else(|| broken(content, "files of it are here, but the volume has no redo log"))?;
            *observer = Some(LogObserver::new(next_lsn, []));
        }
        let (Some(observer), Some(name)) = (&mut *observer, LogFileName::parse(file_name(path))) else {
            return Ok(());
        };
        let mut header = [0; LOG_HEADER_LEN_BYTES];
        read_of_node(content, path, fd, &mut header, 0)?;
        if matches!(name, LogFileName::Spare(_)) || header.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let observed = observer.on_write(name, 0, &header, &mut |_: &Mtr<'_, '_>| ());
        observed.map(drop).map_err(|error| broken(content, &error.to_string()))
    }

    /// The server wrote to a file of the log.
    ///
    /// # Errors
    /// `EIO`; the stream is dead then.
    pub fn write(
        &self,
        content: &Content,
        file: &RedoFile,
        fd: RawFd,
        bytes: &[u8],
        offset_bytes: u64,
    ) -> Result<(), Errno> {
        content.counters.add(Counter::LogWrittenBytes, bytes.len() as u64);
        let names = content.names.lock_shared();
        self.grow(content, &names, file, fd, offset_bytes + bytes.len() as u64)?;
        let Some(path) = file.name.path(&names) else { return Ok(()) };
        let Some(name) = LogFileName::parse(file_name(&path)) else {
            return Err(broken(content, "a file of it has a name that is not known"));
        };
        let mut guard = self.lock();
        let observer = match &mut *guard {
            Some(observer) => observer,
            // Files may be made before the first one of the log has its header.
            None if is_zero(bytes) => return Ok(()),
            empty => empty.insert(begin(bytes, offset_bytes).ok_or_else(|| {
                broken(content, "it was written to before the first of its files had a header")
            })?),
        };
        let next_lsn = observer.next_lsn();
        let (mut ends, mut encrypted) = (Vec::new(), None);
        let observed = observer
            .on_write(name, offset_bytes, bytes, &mut |mtr: &Mtr<'_, '_>| {
                content.deleted.observe(mtr);
                content.dirty.observe(mtr);
                ends.push(mtr.offset_in_bytes + mtr.bytes.len());
                encrypted = encrypted.or_else(|| space_to_be_encrypted(mtr));
            })
            .map_err(|error| broken(content, &error.to_string()))?;
        if let Some(space) = encrypted {
            // Before the node has it: with this redo nobody could start on the volume again.
            let why = format!(
                "tablespace {space} is to be encrypted (innodb_undo_log_encrypt=ON, ALTER TABLESPACE ... ENCRYPTION='Y'), \
                 which a volume cannot have: the node needs pages in clear; start the server again without that (what SET \
                 PERSIST has kept is in mysqld-auto.cnf)"
            );
            return Err(broken(content, &why));
        }
        match observed {
            Observed::Filler => Ok(()),
            Observed::Redo(NewRedo { bytes, .. }) => {
                content.counters.add(Counter::RedoBytes, bytes.len() as u64);
                pieces(bytes, &ends, FRAME_LIMIT_BYTES)
                    .into_iter()
                    .try_for_each(|piece| content.stream.append(&StreamFrame::Redo(piece)).map(drop))
            }
            Observed::Header(_) | Observed::Checkpoint { .. } | Observed::Encryption => {
                if let Observed::Checkpoint { checkpoint: Some(lsn), .. } = observed {
                    content.dirty.checkpointed(lsn);
                }
                let Some(block) = bytes.first_chunk() else { return Ok(()) };
                let offset_bytes = offset_bytes as u32;
                let frame = StreamFrame::LogFront { path: &path, offset_bytes, next_lsn, block };
                content.stream.append(&frame).map(drop)
            }
        }
    }

    fn grow(
        &self,
        content: &Content,
        names: &NamesLock<'_>,
        file: &RedoFile,
        fd: RawFd,
        len_bytes: u64,
    ) -> Result<(), Errno> {
        if real::status(fd)?.len_bytes >= len_bytes {
            return Ok(());
        }
        set_len_locked(content, names, file, fd, len_bytes)
    }

    /// ftruncate. The stub never gets blocks.
    ///
    /// # Errors
    /// That of the local call, or `EIO`.
    pub fn set_len(
        &self,
        content: &Content,
        file: &RedoFile,
        fd: RawFd,
        len_bytes: u64,
    ) -> Result<(), Errno> {
        set_len_locked(content, &content.names.lock_shared(), file, fd, len_bytes)
    }

    /// fallocate without a mode: the file has at least this length.
    ///
    /// # Errors
    /// That of the local call, or `EIO`.
    pub fn allocate(
        &self,
        content: &Content,
        file: &RedoFile,
        fd: RawFd,
        len_bytes: u64,
    ) -> Result<(), Errno> {
        self.grow(content, &content.names.lock_shared(), file, fd, len_bytes)
    }

    /// Bytes of a file as the server expects them at start.
    ///
    /// # Errors
    /// `EIO` when the node cannot answer.
    pub fn read(
        &self,
        content: &Content,
        file: &RedoFile,
        fd: RawFd,
        buffer: &mut [u8],
        offset_bytes: u64,
    ) -> Result<usize, Errno> {
        let path = file.name.path(&content.names.lock_shared()).ok_or(Errno::EIO)?;
        read_of_node(content, &path, fd, buffer, offset_bytes)
    }
}

/// The log of a new volume begins with the header of its first file.
fn begin(bytes: &[u8], offset_bytes: u64) -> Option<LogObserver> {
    let header = bytes.first_chunk().filter(|_| offset_bytes == 0)?;
    let header = LogFileHeader::parse(header).ok()?;
    Some(LogObserver::new(from_server_lsn(header.start_lsn), []))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn set_len_locked(
    content: &Content,
    names: &NamesLock<'_>,
    file: &RedoFile,
    fd: RawFd,
    len_bytes: u64,
) -> Result<(), Errno> {
    real::set_len(fd, len_bytes)?;
    match file.name.path(names) {
        Some(path) => content.stream.append(&StreamFrame::SetLen { path: &path, len_bytes }).map(drop),
        None => Ok(()),
    }
}

fn read_of_node(
    content: &Content,
    path: &[u8],
    fd: RawFd,
    buffer: &mut [u8],
    offset_bytes: u64,
) -> Result<usize, Errno> {
    let request = |offset_bytes, len_bytes| PageRequest::ReadLogFile { path, offset_bytes, len_bytes };
    log_read::read(content, fd, buffer, offset_bytes, request)
}
