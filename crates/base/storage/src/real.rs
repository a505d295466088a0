//! [`RealDir`]: a directory of the operating system.
//!
//! Ordinary reads and writes go through the page cache. Untorn writes go around it, with `O_DIRECT` and `RWF_ATOMIC`,
//! through a second handle of the same file that is opened with the first of them. The kernel writes out what the
//! page cache holds of the range before such a write and throws it out afterwards, so that a read that starts later
//! sees what was written. A read *during* the write may put the old bytes back into the page cache, where they stay:
//! callers keep reads and untorn writes of the same range apart.
//!
//! Streams are not passed on: ext4 takes a hint for a file and does not hand it to the drive, so nothing is sent.
//! Use [`crate::raw_device`], or separate devices, to place data by its lifetime.

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
use crate::{StorageDir, StorageFile, UntornLimits, WriteOptions};

/// Files that are synced at the same time, at most.
const SYNC_THREADS_MAX: usize = 8;
/// For fewer files than this another thread is not worth its start.
const FILES_PER_SYNC_THREAD: usize = 4;

/// How a [`RealDir`] is opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RealDirOptions {
    /// **Not safe: a power cut may tear what is written "untorn".** Offers untorn writes of 4 to 64 KiB whatever the
    /// drive says, and does them as plain direct writes of the same length. For measurements of what atomic writes
    /// would cost on drives that have none, and for nothing else.
    pub pretend_untorn: bool,
}

/// A directory of the operating system, held by an exclusive lock while this value lives (but see
/// [`RealDir::open_shared`]).
pub struct RealDir {
    path: PathBuf,
    dir: File,
    options: RealDirOptions,
}

impl RealDir {
    /// Opens `path`, creating it if needed, and locks it against other processes.
    ///
    /// # Errors
    /// `WouldBlock` if someone else, in this process or another, has it open.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, RealDirOptions::default())
    }

    /// Like [`RealDir::open`], with options.
    ///
    /// # Errors
    /// As [`RealDir::open`].
    pub fn open_with(path: &Path, options: RealDirOptions) -> io::Result<Self> {
        if !path.is_dir() {
            fs::create_dir_all(path)?;
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
        }
        let dir = File::open(path)?;
        rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { path: path.to_owned(), dir, options })
    }

    /// Opens `path`, which must exist, without a lock. For a directory of which somebody else sees to it that only
    /// one process at a time uses it.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_shared(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), dir: File::open(path)?, options: RealDirOptions::default() })
    }

    fn open_file(&self, name: &str, create: bool) -> io::Result<Arc<dyn StorageFile>> {
        let file = File::options().read(true).write(true).create_new(create).open(self.path.join(name))?;
        Ok(Arc::new(RealFile { file, direct: OnceLock::new(), tearing: self.tearing() }))
    }

    fn tearing(&self) -> Tearing {
        if self.options.pretend_untorn { Tearing::Possible } else { Tearing::Refused }
    }
}

impl Drop for RealDir {
    /// Gives the lock back at once. Closing the descriptor would do so only when nobody has a copy of it, and a child
    /// that another thread is just starting has one until it begins its program.
    fn drop(&mut self) {
        // If that fails, closing it is what is left.
        let _ = rustix::fs::flock(&self.dir, FlockOperation::Unlock);
    }
}

impl StorageDir for RealDir {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            // A name that is not UTF-8 cannot be one of ours.
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
        self.dir.sync_all()
    }

    /// Some at a time: a file system makes one commit, and one flush of the drive's cache, of syncs that come together.
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
        // A file system that does not take the flag may have made the file all the same.
        let removed = fs::remove_file(&path);
        let file = match created {
            Err(error) if untorn::is_refusal(&error) => return Ok(None),
            created => created?,
        };
        removed?;
        untorn::find_limits(&file, self.tearing())
    }
}

/// Waits for writes that a process which is gone had handed to the kernel (see [`crate::durable_io::UringIo`]): it held
/// a shared lock on the file, and the kernel keeps that until the last of them is done.
fn wait_for_writes_under_way(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    loop {
        match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            // Not only by closing the file: see the drop of a [`RealDir`].
            Ok(()) => return Ok(rustix::fs::flock(&file, FlockOperation::Unlock)?),
        }
    }
}

struct RealFile {
    file: File,
    /// The same file, for writes past the page cache. Opened with the first of them.
    direct: OnceLock<File>,
    tearing: Tearing,
}

impl RealFile {
    fn direct(&self) -> io::Result<&File> {
        if let Some(direct) = self.direct.get() {
            return Ok(direct);
        }
        // By descriptor: the file may have got another name, or have lost its own.
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::DIRECT.bits() as i32;
        let opened = File::options().read(true).write(true).custom_flags(flags).open(&path);
        let direct = opened.map_err(|error| {
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
        // Without it the read takes longer.
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
}

#[cfg(test)]
mod tests;
