//! The redo log of a server without a storage node, on persistent memory (`redoubt run --local-log`).
//!
//! The redo files stay where they are and in the server's own format, so the server starts on them without this
//! library as well. Only calls on redo files are intercepted ([`is_redo_file`], opened for writing); all other calls
//! pass straight through, native asynchronous I/O included. (A write to a redo file through io_uring would be missed;
//! no supported server makes one.)
//!
//! * A write inside a file becomes stores into a mapping and a fence, in the caller's thread: it is durable when
//!   the call returns ([`redo_file`]).
//! * fsync and fdatasync then have nothing to do, unless the file has grown, shrunk or is new: that part is the
//!   kernel's, and so is the call.
//! * The server's own writable mapping of a redo file is refused, so that it writes with `pwrite`. MariaDB would
//!   map the file itself, and its way of flushing leaves out the last cache line of some ranges.
//! * A file that cannot be mapped for durable stores is not opened: the server does not start.
//!
//! Lock order: the table of files, then a file's own lock. The counters have no lock.

pub mod counters;
pub mod redo_file;

use crate::base::classify::{file_name, is_mysql_redo_file};
use crate::base::config::{ConfigError, DATADIR_VARIABLE, LOCAL_LOG_VARIABLE};
use crate::base::fds::FdTable;
use crate::base::message;
use crate::base::real::{self, Errno};
use counters::Counters;
use redo_file::RedoFile;
use redoubt_locks::IgnorePoison;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// A descriptor of a redo file.
pub struct OpenRedo {
    file: Arc<RedoFile>,
    flags: i32,
}

/// The mode, active in this process.
pub struct LocalLog {
    pretend: bool,
    datadir: Vec<u8>,
    fds: FdTable<OpenRedo>,
    // By device and inode: a server may have a file open more than once.
    files: Mutex<HashMap<(u64, u64), Weak<RedoFile>>>,
    counters: OnceLock<Arc<Counters>>,
}

static LOCAL_LOG: OnceLock<LocalLog> = OnceLock::new();
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// The mode, if it is active in this process.
pub fn active() -> Option<&'static LocalLog> {
    if ACTIVE.load(Ordering::Acquire) { LOCAL_LOG.get() } else { None }
}

/// The redo file behind a descriptor.
pub fn tracked(fd: RawFd) -> Option<Arc<OpenRedo>> {
    active()?.fds.get(fd)
}

/// Switches the mode on if the environment selects it.
///
/// # Errors
/// [`ConfigError`] for a variable that is missing or invalid.
pub fn activate(lookup: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), ConfigError> {
    let wrong = |name, why: &str| ConfigError { name, why: why.to_owned() };
    let pretend = match lookup(LOCAL_LOG_VARIABLE).as_deref() {
        Some(b"map-sync") => false,
        Some(b"pretend") => true,
        _ => return Err(wrong(LOCAL_LOG_VARIABLE, "is neither map-sync nor pretend")),
    };
    let datadir = lookup(DATADIR_VARIABLE).ok_or_else(|| wrong(DATADIR_VARIABLE, "is not set"))?;
    if !datadir.starts_with(b"/") {
        return Err(wrong(DATADIR_VARIABLE, "is not an absolute path"));
    }
    let local = LocalLog {
        pretend,
        datadir,
        fds: FdTable::default(),
        files: Mutex::default(),
        counters: OnceLock::new(),
    };
    if LOCAL_LOG.set(local).is_ok() {
        ACTIVE.store(true, Ordering::Release);
    }
    Ok(())
}

/// Called in a forked child. A server that daemonises forks before it opens its log, and stays a server; later
/// children are inactive.
pub fn forked() {
    let opened = active().is_some_and(|local| local.counters.get().is_some());
    if opened {
        ACTIVE.store(false, Ordering::Release);
    }
}

/// True for a file whose writes are intercepted: MariaDB's `ib_logfile0` and `ib_logfile101`, MySQL's `#ib_redoN` and
/// its spares.
pub fn is_redo_file(path: &[u8]) -> bool {
    let name = file_name(path);
    let number = name.strip_prefix(b"ib_logfile");
    let is_mariadbs = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    number.is_some_and(is_mariadbs) || is_mysql_redo_file(name)
}

/// Follows a descriptor that was just opened; to be closed on an error.
///
/// # Errors
/// `EIO` if the file cannot be mapped for durable stores, `ENOSPC` if there is no room for it.
pub fn opened(fd: RawFd, path: &[u8], flags: i32) -> Result<(), Errno> {
    let Some(local) = active() else { return Ok(()) };
    if flags & libc::O_ACCMODE == libc::O_RDONLY || !is_redo_file(path) {
        return Ok(());
    }
    let key = real::identity(fd)?;
    let file = {
        let mut files = local.files.lock().ignore_poison();
        files.retain(|_, file| file.strong_count() > 0);
        if let Some(file) = files.get(&key).and_then(Weak::upgrade) {
            file
        } else {
            let file = Arc::new(RedoFile::open(fd, path, local.pretend, local.counters())?);
            files.insert(key, Arc::downgrade(&file));
            file
        }
    };
    if local.fds.insert(fd, Arc::new(OpenRedo { file, flags })) {
        return Ok(());
    }
    message::error(&format!("descriptor {fd} is too large to be followed; lower the limit of open files"));
    Err(Errno(libc::EMFILE))
}

/// A second descriptor for the same file.
pub fn duplicated(from: RawFd, to: RawFd) {
    if let Some(local) = active()
        && let Some(open) = local.fds.get(from)
    {
        let _ = local.fds.insert(to, open);
    }
}

/// The descriptor is about to be closed or replaced.
pub fn closing(fd: RawFd) {
    if let Some(local) = active() {
        drop(local.fds.remove(fd));
    }
}

impl LocalLog {
    /// The counters; made when the first redo file is opened, by when the server has changed to its user.
    fn counters(&self) -> Arc<Counters> {
        Arc::clone(self.counters.get_or_init(|| Arc::new(Counters::create(&self.datadir))))
    }
}

impl OpenRedo {
    /// write and pwrite; without `at` at the file position, which then moves.
    ///
    /// # Errors
    /// That of the kernel for a write beyond the end; `EIO` after a failure of the device.
    pub fn write(&self, fd: RawFd, bytes: &[u8], at: Option<u64>) -> Result<usize, Errno> {
        let from = match at {
            Some(at) => at,
            None if self.flags & libc::O_APPEND != 0 => real::status(fd)?.len_bytes,
            None => real::seek(fd, 0, libc::SEEK_CUR)?,
        };
        let len = self.file.write(fd, bytes, from)?;
        if at.is_none() {
            let to = i64::try_from(from + len as u64).map_err(|_| Errno(libc::EOVERFLOW))?;
            real::seek(fd, to, libc::SEEK_SET)?;
        }
        Ok(len)
    }

    /// fsync and its relatives; `local` is the call itself.
    ///
    /// # Errors
    /// That of the call, when it is still needed; `EIO` after a failure of the device.
    pub fn sync(&self, local: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        self.file.sync(local)
    }

    /// ftruncate, fallocate: every call that changes the file's size or its blocks. `local` is the call itself.
    ///
    /// # Errors
    /// That of the call; `EIO` after a failure of the device.
    pub fn change_size<T>(&self, local: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        self.file.change_size(local)
    }
}

/// The server's own mapping of a redo file for writing is refused. True if this is one.
pub fn refuses_map(fd: RawFd, protection: i32, flags: i32) -> bool {
    let is_shared = matches!(flags & libc::MAP_TYPE, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE);
    if flags & libc::MAP_ANONYMOUS != 0 || !is_shared || protection & libc::PROT_WRITE == 0 {
        return false;
    }
    let Some(open) = tracked(fd) else { return false };
    open.file.map_refused();
    true
}

/// Asynchronous writes cannot be followed; no server writes its redo log with them.
///
/// # Errors
/// `EIO`, with a message.
pub fn refuse_asynchronous(fds: impl Iterator<Item = RawFd>) -> Result<(), Errno> {
    let mut fds = fds;
    if active().is_some() && fds.any(|fd| tracked(fd).is_some()) {
        message::error("asynchronous I/O on a redo file is not supported with --local-log");
        return Err(Errno::EIO);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_redo_file;

    #[test]
    fn redo_files_are_known_by_name() {
        for name in [
            "ib_logfile0",
            "/var/lib/mysql/ib_logfile101",
            "./#innodb_redo/#ib_redo0",
            "./#innodb_redo/#ib_redo123_tmp",
        ] {
            assert!(is_redo_file(name.as_bytes()), "{name}");
        }
        for name in [
            "ib_logfile",
            "ib_logfile0.bak",
            "#ib_redo",
            "#ib_redo_tmp",
            "#ib_redo1_tmp2",
            "#innodb_redo",
            "ibdata1",
            "#ib_16384_0.dblwr",
            "undo_001",
            "",
        ] {
            assert!(!is_redo_file(name.as_bytes()), "{name}");
        }
    }
}
