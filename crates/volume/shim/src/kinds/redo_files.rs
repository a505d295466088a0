//! MySQL's redo log: a set of files, of which only stubs are here.
//!
//! The server makes, renames, recycles and removes them all the time; the node follows that as it follows the names
//! of any file. Writes to their first blocks (header, checkpoints) go into the stream as they are. Later writes go
//! through an observer that yields each redo byte once, in whole mini-transactions. At its start the server reads the
//! node's composition of all that. While it runs it reads its own writes, if it has a plugin that makes it read
//! ([`kept`]).
//!
//! Invariant: every redo byte the server wrote is in the stream, or the stream is dead. The lock is held from
//! observing a write until its frames are in the stream, so redo frames are in LSN order.

mod kept;

use crate::base::classify::file_name;
use crate::base::message;
use crate::base::paths::absolute;
use crate::base::real::{self, Errno};
use crate::connections::stream::FRAME_LIMIT_BYTES;
use crate::content::Content;
use crate::content::names::{FilesByPath, Name, Named, NamesLock};
use crate::kinds::log_read;
use crate::kinds::redo_log::pieces;
use kept::Kept;
use redoubt_locks::IgnorePoison;
use redoubt_page::mysql::Flags;
use redoubt_redo::mysql::block::unwritten_len;
use redoubt_redo::mysql::log_file::FileRange;
use redoubt_redo::mysql::position::server_lsn;
use redoubt_redo::mysql::{LogFileHeader, LogFileName, LogObserver, NewRedo, Observed, from_server_lsn};
use redoubt_redo::{Lsn, Mtr, RunRef, SpaceFlagsChange, SpaceId};
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::stream::{Counter, FileKind, LOG_HEADER_LEN_BYTES, StreamFrame};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// A file of the log.
#[derive(Debug)]
pub struct RedoFile {
    name: Name,
    /// Locked after the observer, or alone.
    kept: Mutex<Kept>,
}

impl RedoFile {
    fn new(path: &[u8]) -> Self {
        Self { name: Name::new(path), kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().ignore_poison()
    }
}

impl Named for RedoFile {
    fn name(&self) -> &Name {
        &self.name
    }
}

/// All of them.
#[derive(Default)]
pub struct RedoFiles {
    /// Files by path.
    pub by_path: FilesByPath<RedoFile>,
    observer: Mutex<Option<LogObserver>>,
    /// Signalled when the observer has yielded redo.
    handed_out: Condvar,
    /// Writes are copied for readers.
    keeps: AtomicBool,
    /// The copies also include the writes before `keeps` was set, since the last checkpoint.
    is_filled: AtomicBool,
    /// A copy could not be written: none is written or read any more. Set before the observer is unlocked.
    has_failed: AtomicBool,
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
        self.observer.lock().ignore_poison()
    }

    /// The log is known: the server has opened it.
    pub fn has_begun(&self) -> bool {
        self.lock().is_some()
    }

    /// Starts to keep copies of the server's writes, because the server reads them while it runs. They include the
    /// redo since its last checkpoint. No redo is written while that is fetched from the node. A failure is logged in
    /// the server's log.
    pub fn keep(&self, content: &Content) {
        loop {
            let names = content.names.lock_shared();
            let observer = self.lock();
            match &*observer {
                // The node has no part of a mini-transaction. The thread that completes it may need the names.
                Some(log) if log.next_lsn() < log.seen_lsn() => {
                    drop((names, observer));
                    self.wait_handed_out();
                }
                // Content from before the first write is fetched with that write.
                log => {
                    self.keeps.store(true, Ordering::Release);
                    if let Some(log) = log
                        && let Err(error) = self.fill_copies(content, &names, log.next_lsn())
                    {
                        self.fail(error);
                    }
                    return;
                }
            }
        }
    }

    /// The node has all redo before `end`, and gets none during this call: the observer is locked.
    fn fill_copies(&self, content: &Content, names: &NamesLock<'_>, end: Lsn) -> Result<(), Errno> {
        if self.is_filled.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        content.sync_all()?;
        let end = server_lsn(end);
        for file in self.by_path.all() {
            let (mut kept, Some(path)) = (file.kept(), file.name.path(names)) else { continue };
            let size_bytes = real::status_of(&absolute(&content.datadir, &path)?)?.len_bytes;
            let range = FileRange { start_lsn: kept.start_lsn(), size_bytes };
            let Some(written) = range.blocks_until(end).filter(|_| range.start_lsn != 0) else { continue };
            let mut bytes = vec![0; (written.end - written.start) as usize];
            read_of_node(content, &path, size_bytes, &mut bytes, written.start)?;
            // Redo before the checkpoint is gone.
            if let Some((dropped, known)) = unwritten_len(&bytes).and_then(|len| bytes.split_at_checked(len))
            {
                kept.on_write(&content.datadir, known, written.start + dropped.len() as u64)?;
            }
        }
        Ok(())
    }

    /// Opens a file of the log, or creates it.
    ///
    /// # Errors
    /// That of the local call; `EIO` when the node cannot report the position of the log.
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
                let start_lsn = self.resume(content, path, fd)?;
                let file = self.by_path.at(path, || RedoFile::new(path));
                file.kept().on_header(start_lsn.unwrap_or_default());
                return Ok(file);
            }
            Ok(self.by_path.at(path, || RedoFile::new(path)))
        };
        opened().map(|file| (fd, file)).inspect_err(|_: &Errno| {
            let _ = real::close_file(fd);
        })
    }

    /// A file that was there before this process: the observer learns where it is in the log. Gives the server LSN of
    /// its first block, if it has one.
    fn resume(&self, content: &Content, path: &[u8], fd: RawFd) -> Result<Option<u64>, Errno> {
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
            return Ok(None);
        };
        let mut header = [0; LOG_HEADER_LEN_BYTES];
        read_of_node(content, path, real::status(fd)?.len_bytes, &mut header, 0)?;
        if matches!(name, LogFileName::Spare(_)) || header.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        match observer.on_write(name, 0, &header, &mut |_: &Mtr<'_, '_>| ()) {
            Ok(Observed::Header(header)) => Ok(Some(header.start_lsn)),
            Ok(_) => Ok(None),
            Err(error) => Err(broken(content, &error.to_string())),
        }
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
        if self.keeps.load(Ordering::Acquire)
            && let Err(error) = self.fill_copies(content, &names, next_lsn)
        {
            self.fail(error);
        }
        let (mut ends, mut encrypted) = (Vec::new(), None);
        let observed = observer
            .on_write(name, offset_bytes, bytes, &mut |mtr: &Mtr<'_, '_>| {
                content.deleted.observe(mtr);
                content.dirty.observe(mtr);
                ends.push(mtr.end_in_bytes());
                encrypted = encrypted.or_else(|| space_to_be_encrypted(mtr));
            })
            .map_err(|error| broken(content, &error.to_string()))?;
        if let Some(space) = encrypted {
            // Before the node has it: with this redo no server could start on the volume again.
            let why = format!(
                "tablespace {space} is to be encrypted (innodb_undo_log_encrypt=ON, ALTER TABLESPACE ... ENCRYPTION='Y'), \
                 which a volume cannot have: the node needs pages in clear; start the server again without that (what SET \
                 PERSIST has kept is in mysqld-auto.cnf)"
            );
            return Err(broken(content, &why));
        }
        match observed {
            Observed::Filler => Ok(()),
            Observed::Redo(NewRedo { bytes: redo, .. }) => {
                content.counters.add(Counter::RedoBytes, redo.len() as u64);
                for piece in pieces(redo, &ends, FRAME_LIMIT_BYTES) {
                    content.stream.append(&StreamFrame::Redo(piece))?;
                }
                self.handed_out.notify_all();
                self.keep_written(content, file, bytes, offset_bytes);
                Ok(())
            }
            Observed::Header(_) | Observed::Checkpoint { .. } | Observed::Encryption => {
                match &observed {
                    Observed::Checkpoint { checkpoint: Some(lsn), .. } => content.dirty.checkpointed(*lsn),
                    Observed::Header(header) => file.kept().on_header(header.start_lsn),
                    _ => {}
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
        let file_len = real::status(fd)?.len_bytes;
        if !self.keeps.load(Ordering::Acquire) {
            return read_of_node(content, &path, file_len, buffer, offset_bytes);
        }
        let wanted = (buffer.len() as u64).min(file_len.saturating_sub(offset_bytes)) as usize;
        let buffer = buffer.get_mut(..wanted).ok_or(Errno::EIO)?;
        // After a failure no copy is known to have all that was written.
        let left = match self.has_failed.load(Ordering::Relaxed) {
            true => buffer.len(),
            false => file.kept().read(buffer, offset_bytes)?,
        };
        if let Some(older) = buffer.get_mut(..left).filter(|older| !older.is_empty()) {
            let start_lsn = file.kept().start_lsn();
            let written = self.wait_handed_out();
            content.sync_all()?;
            read_of_node(content, &path, file_len, older, offset_bytes)?;
            require_all(&path, older, offset_bytes, FileRange { start_lsn, size_bytes: file_len }, written)?;
        }
        Ok(wanted)
    }

    /// Keeps a copy, if there are any.
    fn keep_written(&self, content: &Content, file: &RedoFile, bytes: &[u8], offset_bytes: u64) {
        if !self.keeps.load(Ordering::Acquire) || self.has_failed.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = file.kept().on_write(&content.datadir, bytes, offset_bytes) {
            self.fail(error);
        }
    }

    /// Marks the copies as failed, so that a clone of this server fails.
    #[cold]
    fn fail(&self, error: Errno) {
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            message::warning(&format!(
                "redo cannot be kept in the data directory, which clones of this server need: {error}; free space there, \
                 and start this server again before it is cloned"
            ));
        }
    }

    /// Waits until an incomplete mini-transaction in the log is complete, if there is one. Returns the end of the log
    /// at the time of the call. The thread of the mini-transaction has space in the log for all of it.
    fn wait_handed_out(&self) -> Lsn {
        let is_behind = |observer: &mut Option<LogObserver>, until: Lsn| {
            observer.as_ref().is_some_and(|log| log.next_lsn() < until)
        };
        let observer = self.lock();
        let until = observer.as_ref().map_or(Lsn(0), LogObserver::seen_lsn);
        drop(self.handed_out.wait_while(observer, |observer| is_behind(observer, until)));
        until
    }
}

/// The node returns zeros for redo that it no longer has. A reader would treat them as the end of the log, and miss
/// the rest.
fn require_all(
    path: &[u8],
    bytes: &[u8],
    offset_bytes: u64,
    range: FileRange,
    written: Lsn,
) -> Result<(), Errno> {
    range.check_blocks(offset_bytes, bytes, server_lsn(written)).map_err(|error| {
        message::error(&format!(
            "{}: redo that is to be read is older than what the storage node has ({error}); if this is for a clone, \
             make it again: what is written since the clone plugin was loaded is here",
            message::show(path)
        ));
        Errno::EIO
    })
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
    file_len: u64,
    buffer: &mut [u8],
    offset_bytes: u64,
) -> Result<usize, Errno> {
    let request = |offset_bytes, len_bytes| PageRequest::ReadLogFile { path, offset_bytes, len_bytes };
    log_read::read(content, file_len, buffer, offset_bytes, request)
}
