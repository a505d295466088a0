//! Persistent memory: file ranges that are made durable by processor stores, without a system call.
//!
//! [`Mapping`] owns one mapped range of a file. A store into it is durable once [`Mapping::fence`] returned,
//! in the thread that stored, if the mapping is [`Persistence::MapSync`]. That is so only where the kernel
//! granted `MAP_SYNC`: the file is on a file system that was mounted with DAX on persistent memory, and the
//! file's own metadata is durable before a page of it can be written. A [`Persistence::Pretended`] mapping runs
//! the same code on any file; nothing in it survives a power cut.
//!
//! * [`memory`] has the one copy routine that decides which bytes go by which kind of store and which lines are
//!   flushed. It is generic over the few primitive steps, so that it runs on `model` (feature `model`), the
//!   store-order simulator, just as it runs on real memory.
//! * `stores` has those steps for the processor, chosen at run time.
//! * `poison` turns a SIGBUS in a mapping into an error.
//!
//! The crate depends on no log device and no storage, so that a library which is preloaded into a server can use it.
//!
//! Invariants:
//! * No code forms a Rust reference to mapped bytes. They are touched by raw pointers, with stores and loads that
//!   the compiler may not change, so that threads which touch the same bytes get an order of stores and never
//!   undefined behaviour.
//! * Once a mapping met poison every call on it fails, in all threads, for good.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;

pub mod memory;
#[cfg(any(test, feature = "model"))]
pub mod model;
mod poison;
mod stores;

use memory::Memory;
use poison::Registration;
use stores::Stores;

/// Pages are this many bytes on the processors that have durable stores.
const PAGE_ALIGN: u64 = 4096;

/// Why persistent memory cannot be used.
#[derive(thiserror::Error, Debug)]
pub enum PmemError {
    /// The kernel does not promise durable stores for this file. `scripts/install` and `scripts/deb/build` recognise
    /// programs with experimental device code by the beginning of the message.
    #[error(
        "cannot map the file for durable stores: MAP_SYNC: {source}; mount its file system with DAX on a \
         persistent-memory device (for example `mount -o dax=always /dev/pmem0`), use the file or block \
         device instead, or allow pretended persistence for a test"
    )]
    NotPersistent {
        /// The system's error.
        source: io::Error,
    },
    /// This build knows no durable stores.
    #[error(
        "durable stores need an x86-64 CPU; use the file or block device instead, or allow pretended \
         persistence for a test"
    )]
    UnsupportedProcessor,
    /// A system call failed.
    #[error("persistent memory: cannot {action}: {source}")]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The file is shorter than the range to map, or the length is zero or too large.
    #[error("persistent memory: cannot map {len_bytes} bytes of a file of {file_len_bytes}: write it first")]
    BadLength {
        /// The length to map in bytes.
        len_bytes: u64,
        /// The length of the file in bytes.
        file_len_bytes: u64,
    },
    /// More mappings than the table of the fault handler holds.
    #[error("persistent memory: more than {limit} mappings in this process: use larger segments")]
    TooManyMappings {
        /// The number of mappings that one process may have.
        limit: usize,
    },
    /// The range is not inside the mapping.
    #[error(
        "persistent memory: {range_len_bytes} bytes at {offset_bytes} are outside the mapping of {len_bytes}"
    )]
    OutOfRange {
        /// Start of the range in the mapping, in bytes.
        offset_bytes: u64,
        /// Length of the range in bytes.
        range_len_bytes: u64,
        /// Length of the mapping in bytes.
        len_bytes: u64,
    },
    /// The memory could not be reached (SIGBUS): a failed module, or a file that was cut.
    #[error(
        "persistent memory failed under a mapped file (memory error, or the file was cut): the content of the \
         file is no longer reliable; check the device (`ndctl list --media-errors`) and restart"
    )]
    Poisoned,
}

/// The basis of durability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persistence {
    /// The kernel granted `MAP_SYNC`: fenced stores survive a power cut.
    MapSync,
    /// A plain shared mapping, for tests: fenced stores survive the process and nothing more.
    Pretended,
}

/// A file range, from the file's start on, mapped for durable stores. See the module's documentation.
pub struct Mapping {
    base: NonNull<u8>,
    len_bytes: u64,
    persistence: Persistence,
    stores: Stores,
    // Dropped by hand before the range is unmapped.
    registration: Registration,
}

// SAFETY: the mapping is plain memory without thread affinity, and is unmapped only when the value is dropped.
unsafe impl Send for Mapping {}
// SAFETY: all access through `&Mapping` is by stores and loads that are opaque to the compiler or atomic, so
// concurrent calls, also on the same bytes, are defined.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len_bytes` of `file`, which must be open for reading and writing and at least that long.
    ///
    /// Installs the SIGBUS handler of this module if this is the process's first mapping. A handler that the
    /// process installs later must pass on signals that are not its own, or poison ends the process.
    ///
    /// # Errors
    /// [`PmemError::NotPersistent`] if the kernel refuses `MAP_SYNC` and `pretend` is false. With `pretend` the
    /// file is then mapped without it, and [`Mapping::persistence`] reports that.
    pub fn map(file: impl AsFd, len_bytes: u64, pretend: bool) -> Result<Self, PmemError> {
        let file = file.as_fd();
        let file_len_bytes = rustix::fs::fstat(file)
            .map_err(|error| io_error("get the length of the file", error.into()))?
            .st_size as u64;
        if len_bytes == 0 || len_bytes > file_len_bytes || len_bytes > poison::MAX_LEN_BYTES {
            return Err(PmemError::BadLength { len_bytes, file_len_bytes });
        }
        // The limit above is far below the address space of any 64-bit target.
        let len =
            usize::try_from(len_bytes).map_err(|_| PmemError::BadLength { len_bytes, file_len_bytes })?;
        poison::install()?;
        let (base, persistence) = match map_sync(file, len) {
            Ok(base) => (base, Persistence::MapSync),
            Err(PmemError::NotPersistent { .. } | PmemError::UnsupportedProcessor) if pretend => {
                let base = map_shared(file, len, libc::MAP_SHARED)
                    .map_err(|error| io_error("map the file", error))?;
                (base, Persistence::Pretended)
            }
            Err(error) => return Err(error),
        };
        match Registration::new(base.as_ptr() as usize, len) {
            Ok(registration) => {
                Ok(Self { base, len_bytes, persistence, stores: Stores::detect(), registration })
            }
            Err(error) => {
                unmap(base, len);
                Err(error)
            }
        }
    }

    /// The basis of durability.
    pub fn persistence(&self) -> Persistence {
        self.persistence
    }

    /// The length of the mapping in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The instructions that write to this mapping, for display.
    pub fn instructions(&self) -> String {
        self.stores.to_string()
    }

    /// Makes the kernel set up the whole mapping for writing now, so that no later store waits for that. A hint:
    /// what cannot be set up now is set up by the first store.
    pub fn prefault(&self) {
        self.prefault_range(0, self.len_bytes);
    }

    /// Like [`Mapping::prefault`], for the pages of a range. Parts outside the mapping are left out.
    pub fn prefault_range(&self, offset_bytes: u64, len_bytes: u64) {
        let start = offset_bytes.min(self.len_bytes) / PAGE_ALIGN * PAGE_ALIGN;
        let len = offset_bytes.saturating_add(len_bytes).min(self.len_bytes) - start;
        // SAFETY: the range is mapped by this value; the call changes no content. A start that is not at a page of
        // the system is refused.
        unsafe {
            let start = self.base.as_ptr().add(start as usize);
            libc::madvise(start.cast(), len as usize, libc::MADV_POPULATE_WRITE);
        }
    }

    /// Stores `bytes` at `offset_bytes`. They are durable once [`Mapping::fence`] returned in this thread.
    ///
    /// # Errors
    /// [`PmemError::OutOfRange`], with nothing stored; [`PmemError::Poisoned`].
    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), PmemError> {
        let at = self.check_range(offset_bytes, bytes.len())?;
        self.check_poison()?;
        memory::store_durably(&Mapped(self), at, bytes);
        self.check_poison()
    }

    /// Waits until everything that this thread stored before is durable.
    ///
    /// # Errors
    /// [`PmemError::Poisoned`] if the mapping met poison: then nothing is known about what was stored.
    pub fn fence(&self) -> Result<(), PmemError> {
        Mapped(self).fence();
        self.check_poison()
    }

    /// Reads at `offset_bytes` until `buf` is full.
    ///
    /// # Errors
    /// [`PmemError::OutOfRange`] and [`PmemError::Poisoned`]; the content of `buf` is then of no use.
    pub fn read(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), PmemError> {
        let at = self.check_range(offset_bytes, buf.len())?;
        self.check_poison()?;
        // SAFETY: the range was checked to lie inside the mapping.
        unsafe { self.stores.load(self.base.as_ptr().add(at), buf) };
        self.check_poison()
    }

    /// Fails if the mapping met poison.
    ///
    /// # Errors
    /// [`PmemError::Poisoned`]
    pub fn check_poison(&self) -> Result<(), PmemError> {
        if self.registration.is_poisoned() { Err(PmemError::Poisoned) } else { Ok(()) }
    }

    fn check_range(&self, offset_bytes: u64, len: usize) -> Result<usize, PmemError> {
        let range_len_bytes = len as u64;
        let end = offset_bytes.checked_add(range_len_bytes).filter(|&end| end <= self.len_bytes);
        match (end, usize::try_from(offset_bytes)) {
            (Some(_), Ok(at)) => Ok(at),
            _ => Err(PmemError::OutOfRange { offset_bytes, range_len_bytes, len_bytes: self.len_bytes }),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // First, since the addresses may belong to another mapping as soon as they are free.
        self.registration.release();
        unmap(self.base, self.len_bytes as usize);
    }
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mapping")
            .field("len_bytes", &self.len_bytes)
            .field("persistence", &self.persistence)
            .finish_non_exhaustive()
    }
}

/// The bytes of a mapping, for the copy routine. The creator ensures that the ranges lie inside.
struct Mapped<'a>(&'a Mapping);

impl Memory for Mapped<'_> {
    #[inline]
    fn store_nt(&self, offset_bytes: usize, lines: &[u8]) {
        debug_assert!(offset_bytes + lines.len() <= self.0.len_bytes as usize);
        // SAFETY: `write` checked the range; the base is page aligned, so the target is line aligned.
        unsafe { self.0.stores.store_nt(self.0.base.as_ptr().add(offset_bytes), lines) };
    }

    #[inline]
    fn store_cached(&self, offset_bytes: usize, bytes: &[u8]) {
        debug_assert!(offset_bytes + bytes.len() <= self.0.len_bytes as usize);
        // SAFETY: `write` checked the range.
        unsafe { self.0.stores.store_cached(self.0.base.as_ptr().add(offset_bytes), bytes) };
    }

    #[inline]
    fn flush_line(&self, line_offset_bytes: usize) {
        // SAFETY: the line holds a byte that was stored, so it lies on a mapped page.
        unsafe { self.0.stores.flush_line(self.0.base.as_ptr().add(line_offset_bytes)) };
    }

    #[inline]
    fn fence(&self) {
        self.0.stores.fence();
    }
}

fn io_error(action: &'static str, source: io::Error) -> PmemError {
    PmemError::Io { action, source }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn map_sync(file: BorrowedFd<'_>, len: usize) -> Result<NonNull<u8>, PmemError> {
    map_shared(file, len, libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC).map_err(|source| {
        match source.raw_os_error() {
            // A kernel without the flag returns EINVAL.
            Some(libc::EOPNOTSUPP | libc::EINVAL) => PmemError::NotPersistent { source },
            _ => io_error("map the file with MAP_SYNC", source),
        }
    })
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn map_sync(_file: BorrowedFd<'_>, _len: usize) -> Result<NonNull<u8>, PmemError> {
    Err(PmemError::UnsupportedProcessor)
}

fn map_shared(file: BorrowedFd<'_>, len: usize, flags: i32) -> Result<NonNull<u8>, io::Error> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("the kernel mapped the file at address 0"))
}

fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: the range was mapped by `map_shared`, and its owner is being dropped.
    unsafe { libc::munmap(base.as_ptr().cast(), len) };
}

#[cfg(test)]
mod tests;
