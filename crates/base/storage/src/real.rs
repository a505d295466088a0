//! [`RealDir`]: a directory of the operating system.
//!
//! Ordinary reads and writes use the page cache. Untorn writes bypass it, with `O_DIRECT` and `RWF_ATOMIC`, through a
//! second handle of the same file that the first such write opens. Before such a write, the kernel writes out cached
//! data of the range, and evicts it afterwards. So a later read returns the written data. A read *during* the write
//! may put the old bytes back into the page cache, where they stay. So callers must not read a range during an untorn
//! write of it.
//!
//! Streams have no effect: ext4 accepts a hint for a file but does not pass it to the drive. Use
//! `crate::raw_device`, or separate devices, to place data by its lifetime.

use std::fs::{self, File};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use redoubt_sync::thread;
use rustix::fs::{Advice, FallocateFlags, FlockOperation, OFlags};

use crate::untorn::{self, Tearing};
use crate::writeback;
use crate::{StorageDir, StorageFile, UntornLimits, WriteOptions, is_out_of_descriptors};

/// Maximum number of concurrent file syncs.
const SYNC_THREADS_MAX: usize = 8;
/// Minimum number of files per additional thread.
const FILES_PER_SYNC_THREAD: usize = 4;
/// Largest page of the kernel's cache on the supported machines.
const CACHE_PAGE_BYTES: u64 = 64 << 10;

/// Options of a [`RealDir`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RealDirOptions {
    /// **Not safe: a power cut may tear an "untorn" write.** Offers untorn writes of 4 to 64 KiB on any drive, and
    /// does them as plain direct writes of the same length. Only for measurements of the cost of atomic writes on
    /// drives without support.
    pub pretend_untorn: bool,
}

/// A directory of the operating system, with an exclusive lock while this value lives (but see
/// [`RealDir::open_shared`]).
pub struct RealDir {
    path: PathBuf,
    /// The directory, locked against all other users; `None`: see [`RealDir::open_shared`].
    locked: Option<File>,
    options: RealDirOptions,
}

impl RealDir {
    /// Opens `path`, creates it if needed, and locks it against other processes.
    ///
    /// # Errors
    /// `WouldBlock` if this process or another one has it open.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, RealDirOptions::default())
    }

    /// Like [`RealDir::open`], with options.
    ///
    /// # Errors
    /// As [`RealDir::open`].
    pub fn open_with(path: &Path, options: RealDirOptions) -> io::Result<Self> {
        make(path)?;
        let dir = File::open(path)?;
        rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { path: path.to_owned(), locked: Some(dir), options })
    }

    /// Opens `path`, which must exist, without a lock. For a directory whose single use is ensured in another way. Has
    /// no descriptor, so that its syncs need one.
    ///
    /// # Errors
    /// If the open fails.
    pub fn open_shared(path: &Path) -> io::Result<Self> {
        File::open(path)?;
        Ok(Self { path: path.to_owned(), locked: None, options: RealDirOptions::default() })
    }

    fn open_file(&self, name: &str, create: bool) -> io::Result<Arc<dyn StorageFile>> {
        let file = File::options().read(true).write(true).create_new(create).open(self.path.join(name))?;
        Ok(Arc::new(RealFile { file, direct: OnceLock::new(), tearing: self.tearing() }))
    }

    fn tearing(&self) -> Tearing {
        if self.options.pretend_untorn { Tearing::Possible } else { Tearing::Refused }
    }
}

/// Creates a directory, durably, unless it exists.
fn make(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path)?;
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

impl Drop for RealDir {
    /// Releases the lock at once. A close of the descriptor would release it only without copies of the descriptor. A
    /// child that another thread is starting has a copy until it executes its program.
    fn drop(&mut self) {
        if let Some(dir) = &self.locked {
            // After a failure, the close remains.
            let _ = rustix::fs::flock(dir, FlockOperation::Unlock);
        }
    }
}

impl StorageDir for RealDir {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            // A name that is not UTF-8 belongs to another program.
            if let (true, Ok(name)) = (entry.file_type()?.is_file(), entry.file_name().into_string()) {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = self.open_file(name, false)?;
        wait_for_writes_under_way(&self.path.join(name))?;
        Ok(file)
    }

    /// Waits for no writes: those of this process may be under way through another descriptor.
    fn reopen(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.open_file(name, false)
    }

    fn len_bytes_of(&self, name: &str) -> io::Result<u64> {
        Ok(fs::metadata(self.path.join(name))?.len())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.open_file(name, true)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        match &self.locked {
            Some(dir) => dir.sync_all(),
            None => File::open(&self.path)?.sync_all(),
        }
    }

    /// Syncs several files at a time: for concurrent syncs, a file system makes one commit, and one flush of the
    /// drive's cache.
    fn sync_files(&self, files: &[Arc<dyn StorageFile>]) -> Result<(), (usize, io::Error)> {
        let next = AtomicUsize::new(0);
        let failure = OnceLock::new();
        let sync_some = || {
            while let (number, None) = (next.fetch_add(1, Ordering::Relaxed), failure.get()) {
                let Some(file) = files.get(number) else { return };
                if let Err(error) = file.sync_data() {
                    let _ = failure.set((number, error));
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..(files.len() / FILES_PER_SYNC_THREAD).min(SYNC_THREADS_MAX - 1) {
                scope.spawn(sync_some);
            }
            sync_some();
        });
        failure.into_inner().map_or(Ok(()), Err)
    }

    fn untorn_limits(&self) -> io::Result<Option<UntornLimits>> {
        let path = self.path.join(format!(".untorn-{}-{:016x}", std::process::id(), fastrand::u64(..)));
        let flags = OFlags::DIRECT.bits() as i32;
        let created = File::options().read(true).write(true).create_new(true).custom_flags(flags).open(&path);
        // A file system that rejects the flag may have created the file nevertheless.
        let removed = fs::remove_file(&path);
        let file = match created {
            Err(error) if untorn::is_refusal(&error) => return Ok(None),
            created => created?,
        };
        removed?;
        untorn::find_limits(&file, self.tearing())
    }

    fn descriptors(&self) -> usize {
        usize::from(self.locked.is_some())
    }
}

/// Waits for writes of an ended process that the kernel still performs (see [`crate::durable_io::UringIo`]). That
/// process held a shared lock on the file, and the kernel keeps it until the last of them completes.
fn wait_for_writes_under_way(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    loop {
        match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            // Not only by a close of the file: see the drop of a [`RealDir`].
            Ok(()) => return Ok(rustix::fs::flock(&file, FlockOperation::Unlock)?),
        }
    }
}

struct RealFile {
    file: File,
    /// The same file, for writes past the page cache. The first such write opens it.
    direct: OnceLock<File>,
    tearing: Tearing,
}

impl RealFile {
    fn direct(&self) -> io::Result<&File> {
        if let Some(direct) = self.direct.get() {
            return Ok(direct);
        }
        // By descriptor: the file may have been renamed or unlinked.
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::DIRECT.bits() as i32;
        let opened = File::options().read(true).write(true).custom_flags(flags).open(&path);
        let direct = opened.map_err(|error| {
            if is_out_of_descriptors(&error) {
                return error;
            }
            let reason =
                format!("cannot open the file a second time for direct I/O, through {path}: {error}");
            let kind = if untorn::is_refusal(&error) { io::ErrorKind::Unsupported } else { error.kind() };
            io::Error::new(kind, reason)
        })?;
        Ok(self.direct.get_or_init(|| direct))
    }
}

impl StorageFile for RealFile {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset_bytes + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn will_read(&self, offset_bytes: u64, len_bytes: u64) {
        // A failure only makes the read slower.
        let _ = rustix::fs::fadvise(&self.file, offset_bytes, NonZeroU64::new(len_bytes), Advice::WillNeed);
    }

    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset_bytes)
    }

    fn write_with(&self, offset_bytes: u64, bytes: &[u8], options: WriteOptions) -> io::Result<()> {
        if !options.untorn {
            return self.write_at(offset_bytes, bytes);
        }
        untorn::check_shape(offset_bytes, bytes.len())?;
        untorn::write(self.direct()?, offset_bytes, bytes, self.tearing)
    }

    fn will_sync(&self, offset_bytes: u64, len_bytes: u64) {
        writeback::begin(&self.file, offset_bytes, len_bytes);
    }

    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset_bytes, len_bytes) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.file.set_len(len_bytes)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn drop_cache(&self) -> io::Result<()> {
        rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed)?;
        Ok(())
    }

    fn drop_cache_of(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        // The kernel keeps a page of its cache that is only partly in the range.
        let start = offset_bytes - offset_bytes % CACHE_PAGE_BYTES;
        let end = offset_bytes.saturating_add(len_bytes).next_multiple_of(CACHE_PAGE_BYTES);
        rustix::fs::fadvise(&self.file, start, NonZeroU64::new(end - start), Advice::DontNeed)?;
        Ok(())
    }

    fn descriptors(&self) -> usize {
        1 + usize::from(self.direct.get().is_some())
    }
}

#[cfg(test)]
mod tests;
