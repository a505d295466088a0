//! One redo file: its mapped part, and the changes that the kernel still has to make durable.
//!
//! Invariants:
//! * A write that returned has either been stored into the mapping and fenced, or was made by the kernel and then
//!   counted in `changes` before it returned. So `sync` needs the kernel exactly while `changes` is above `synced`,
//!   and `synced` never runs ahead of a call that has succeeded.
//! * Nothing but the file's end lies beyond the mapping: the file is never shorter than what is mapped, because
//!   it is unmapped before it may get shorter.
//! * All blocks of a mapped file are allocated, so a store cannot fail for lack of space.
//! * After a failure of the memory, or a failed sync, every call fails with `EIO` until the server is restarted:
//!   earlier writes may be lost, and must not be answered as durable later.

use super::counters::Counters;
use crate::base::message::{self, show};
use crate::base::real::{self, Errno};
use redoubt_locks::IgnorePoison;
use redoubt_persistent_memory::{Mapping, Persistence, PmemError};
use redoubt_shm_control::local_log::{Counter, Persistence as Shown};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Instant;

/// Maximum length of a file whose pages are set up when it is mapped, not at the first write.
const PREFAULT_LIMIT_BYTES: u64 = 1 << 30;

/// One redo file, with its mapped part and the changes that the kernel still has to make durable.
pub struct RedoFile {
    path: Vec<u8>,
    pretend: bool,
    counters: Arc<Counters>,
    mapping: RwLock<Option<Mapping>>,
    // Changes that only the kernel makes durable: made, and known to be durable.
    changes: AtomicU64,
    synced: AtomicU64,
    failed: AtomicBool,
}

impl RedoFile {
    /// Maps an open file. An empty one is mapped when it has a length.
    ///
    /// # Errors
    /// `EIO` if it cannot be mapped for durable stores; `ENOSPC`. A message says why.
    pub fn open(fd: RawFd, path: &[u8], pretend: bool, counters: Arc<Counters>) -> Result<Self, Errno> {
        let file = Self {
            path: path.to_vec(),
            pretend,
            counters,
            mapping: RwLock::new(None),
            // An earlier process may have left changes that are not durable.
            changes: AtomicU64::new(1),
            synced: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        };
        let len_bytes = real::status(fd)?.len_bytes;
        if len_bytes > 0 {
            *file.mapping.write().ignore_poison() = Some(file.map(fd, len_bytes)?);
        }
        Ok(file)
    }

    /// Writes at a position: into the mapping, or beyond the end of the file through the kernel.
    ///
    /// # Errors
    /// That of the kernel, for what goes through it; `EIO` after a failure.
    pub fn write(&self, fd: RawFd, bytes: &[u8], offset_bytes: u64) -> Result<usize, Errno> {
        self.check()?;
        let end = offset_bytes.checked_add(bytes.len() as u64).ok_or(Errno(libc::EFBIG))?;
        let start = Instant::now();
        {
            let mapping = self.mapping.read().ignore_poison();
            if let Some(mapping) = mapping.as_ref().filter(|mapping| end <= mapping.len_bytes()) {
                return self.store(mapping, bytes, offset_bytes, start);
            }
        }
        let mut mapping = self.mapping.write().ignore_poison();
        let len_bytes = real::status(fd)?.len_bytes;
        if end <= len_bytes {
            // The file has grown since it was mapped.
            if mapping.as_ref().is_none_or(|mapping| mapping.len_bytes() < end) {
                *mapping = None;
                *mapping = Some(self.map(fd, len_bytes)?);
            }
            return mapping
                .as_ref()
                .map_or(Err(Errno::EIO), |mapping| self.store(mapping, bytes, offset_bytes, start));
        }
        let written = real::write_at(fd, bytes, offset_bytes);
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.counters.add(Counter::PassedWrites, 1);
        self.counters.add(Counter::PassedBytes, *written.as_ref().unwrap_or(&0) as u64);
        self.counters.add_time(Counter::PassedWriteNanos, start.elapsed());
        written
    }

    fn store(
        &self,
        mapping: &Mapping,
        bytes: &[u8],
        offset_bytes: u64,
        start: Instant,
    ) -> Result<usize, Errno> {
        mapping
            .write(offset_bytes, bytes)
            .and_then(|()| mapping.fence())
            .map_err(|error| self.fail(&error.to_string()))?;
        self.counters.add(Counter::MappedWrites, 1);
        self.counters.add(Counter::MappedBytes, bytes.len() as u64);
        self.counters.add(Counter::Fences, 1);
        self.counters.add_time(Counter::MappedWriteNanos, start.elapsed());
        Ok(bytes.len())
    }

    /// fsync or fdatasync; `local` is the call itself.
    ///
    /// # Errors
    /// That of the call; `EIO` after a failure.
    pub fn sync(&self, local: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        self.check()?;
        let start = Instant::now();
        if let Some(mapping) = self.mapping.read().ignore_poison().as_ref() {
            // Each write has fenced its own stores already; this finds poison that came since.
            mapping.fence().map_err(|error| self.fail(&error.to_string()))?;
            self.counters.add(Counter::Fences, 1);
        }
        // Changes after this load belong to a later sync.
        let changes = self.changes.load(Ordering::Acquire);
        if self.synced.load(Ordering::Acquire) >= changes {
            self.counters.add(Counter::SyncsAvoided, 1);
            self.counters.add_time(Counter::SyncsAvoidedNanos, start.elapsed());
            return Ok(());
        }
        local().map_err(|errno| self.fail(&format!("sync failed: {errno}")))?;
        self.synced.fetch_max(changes, Ordering::AcqRel);
        self.counters.add(Counter::SyncsPassed, 1);
        self.counters.add_time(Counter::SyncsPassedNanos, start.elapsed());
        Ok(())
    }

    /// Makes a call that changes the file's length or its blocks. The file is not mapped meanwhile.
    ///
    /// # Errors
    /// That of the call; `EIO` after a failure.
    pub fn change_size<T>(&self, local: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        self.check()?;
        let mut mapping = self.mapping.write().ignore_poison();
        *mapping = None;
        let result = local();
        self.changes.fetch_add(1, Ordering::AcqRel);
        result
    }

    /// Counts a refused mapping of the server's own.
    pub fn map_refused(&self) {
        self.counters.add(Counter::MapsRefused, 1);
    }

    fn check(&self) -> Result<(), Errno> {
        if self.failed.load(Ordering::Acquire) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// Makes every later call fail.
    #[cold]
    fn fail(&self, why: &str) -> Errno {
        self.counters.add(Counter::Failures, 1);
        if !self.failed.swap(true, Ordering::AcqRel) {
            message::error(&format!(
                "redo file {}: {why}; the last writes to it may be lost, so it is no longer used. Repair the \
                 device, then restart the server",
                show(&self.path)
            ));
        }
        Errno::EIO
    }

    fn map(&self, fd: RawFd, len_bytes: u64) -> Result<Mapping, Errno> {
        // Bytes on a disk would be lost if durability was only pretended, and that was not requested.
        let pretend = self.pretend && real::is_memory_file_system(fd)?;
        // The server may have opened it for writing only, and a descriptor that is followed cannot be mapped.
        let own = real::reopen(fd).map_err(|errno| self.refuse(&errno.to_string()))?;
        match real::reserve_blocks(&own, len_bytes) {
            Ok(()) | Err(Errno(libc::EOPNOTSUPP)) => {}
            Err(errno) => {
                message::error(&format!(
                    "redo file {}: no room for {len_bytes} bytes: {errno}",
                    show(&self.path)
                ));
                return Err(errno);
            }
        }
        self.changes.fetch_add(1, Ordering::AcqRel);
        let mapping = Mapping::map(&own, len_bytes, pretend).map_err(|error| match error {
            PmemError::NotPersistent { source } => self.refuse(&format!(
                "the kernel does not map it for durable stores ({source}); put the redo log on a file system mounted \
                 with DAX on persistent memory{}",
                if self.pretend { ", or for a test on tmpfs" } else { "" }
            )),
            other => self.refuse(&other.to_string()),
        })?;
        if len_bytes <= PREFAULT_LIMIT_BYTES {
            mapping.prefault();
        }
        self.counters.add(Counter::Mappings, 1);
        self.counters.set_persistence(match mapping.persistence() {
            Persistence::MapSync => Shown::MapSync,
            Persistence::Pretended => Shown::Pretended,
        });
        Ok(mapping)
    }

    #[cold]
    fn refuse(&self, why: &str) -> Errno {
        self.counters.add(Counter::Failures, 1);
        message::error(&format!(
            "redo file {}: {why}; or start the server without --local-log",
            show(&self.path)
        ));
        Errno::EIO
    }
}

#[cfg(test)]
mod tests;
