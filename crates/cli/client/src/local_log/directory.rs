//! Whether redo files in a directory can be made durable by stores.
//!
//! It is tried out: a nameless file in the directory, and every redo file that is there, is mapped as the library
//! will map it. Nothing is written.

use crate::error::{ClientError, Result};
use redoubt_persistent_memory::{Mapping, PmemError};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};

/// One page: enough to be mapped.
const TRIAL_LEN_BYTES: u64 = 4096;

/// Basis of the log's durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Persistent memory.
    MapSync,
    /// The operator's word.
    Pretended,
}

/// Tries a log directory, or the nearest one above it if it is still to be made.
///
/// # Errors
/// [`ClientError::Usage`] saying why the files cannot be mapped and what to do; [`ClientError::Io`].
pub fn check(directory: &Path, pretend: bool) -> Result<Durability> {
    let mut existing = directory;
    while !existing.is_dir() {
        existing = existing.parent().ok_or_else(|| {
            ClientError::Usage(format!("the redo log directory {} is no directory", directory.display()))
        })?;
    }
    let file_system = FileSystem::of(existing)?;
    if file_system.is_memory {
        if pretend {
            return Ok(Durability::Pretended);
        }
        return Err(ClientError::Usage(format!(
            "the redo log directory {} is on {}, which is ordinary memory: a power cut loses it. Put the log on a \
             file system mounted with DAX on persistent memory (--innodb-log-group-home-dir), or give --pretend-pmem \
             for a test",
            directory.display(),
            file_system.name
        )));
    }
    match trial_file(existing) {
        Ok(trial) => try_file(&trial, TRIAL_LEN_BYTES, directory, pretend, &file_system)?,
        // No file system with DAX is without files without a name.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            return Err(refusal("it is no such file system", directory, pretend, &file_system));
        }
        Err(error) => return Err(ClientError::io("make a file in", existing, error.into())),
    }
    if existing == directory {
        for path in redo_files(directory)? {
            let file = File::options()
                .read(true)
                .write(true)
                .open(&path)
                .map_err(|error| ClientError::io("open", &path, error))?;
            let len_bytes = file.metadata().map_err(|error| ClientError::io("look at", &path, error))?.len();
            if len_bytes > 0 {
                try_file(&file, len_bytes, &path, pretend, &file_system)?;
            }
        }
    }
    Ok(Durability::MapSync)
}

fn try_file(file: &File, len_bytes: u64, path: &Path, pretend: bool, on: &FileSystem) -> Result<()> {
    let Err(error) = Mapping::map(file, len_bytes, false) else { return Ok(()) };
    let PmemError::NotPersistent { source } = error else {
        return Err(ClientError::Usage(format!("{}: {error}", path.display())));
    };
    Err(refusal(&format!("MAP_SYNC: {source}"), path, pretend, on))
}

fn refusal(why: &str, path: &Path, pretend: bool, on: &FileSystem) -> ClientError {
    let pretended = if pretend {
        " (--pretend-pmem is for tests on tmpfs: it would promise here what a disk cannot keep)"
    } else {
        ""
    };
    ClientError::Usage(format!(
        "the redo log at {} is on {}, which gives no durable stores ({why}){pretended}. Mount a file \
         system with DAX on persistent memory (mount -o dax=always /dev/pmem0 DIR) and put the log there \
         (--innodb-log-group-home-dir=DIR), or start the server without --local-log",
        path.display(),
        on.name
    ))
}

/// A file in the directory without a name: nothing is left whatever happens.
fn trial_file(directory: &Path) -> std::result::Result<File, Errno> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let fd = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::ftruncate(&fd, TRIAL_LEN_BYTES)?;
    Ok(File::from(fd))
}

fn redo_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| ClientError::io("list", directory, error);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("ib_logfile") || name.starts_with("#ib_redo") {
            paths.push(entry.path());
        }
    }
    Ok(paths)
}

/// File system of a directory.
struct FileSystem {
    /// Type and device, for people.
    name: String,
    is_memory: bool,
}

impl FileSystem {
    fn of(directory: &Path) -> Result<Self> {
        const TMPFS_MAGIC: i64 = 0x0102_1994;
        const RAMFS_MAGIC: i64 = 0x8584_58f6;
        let info = rustix::fs::statfs(directory)
            .map_err(|error| ClientError::io("look at the file system of", directory, error.into()))?;
        let path = directory.canonicalize().map_err(|error| ClientError::io("open", directory, error))?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Ok(Self {
            name: mounted_as(&mounts, &path).unwrap_or_else(|| "its file system".to_owned()),
            is_memory: matches!(info.f_type as i64, TMPFS_MAGIC | RAMFS_MAGIC),
        })
    }
}

/// Type and device of the mount that has `path`; the last of the deepest, which covers the others.
fn mounted_as(mounts: &str, path: &Path) -> Option<String> {
    let mut found: Option<(usize, String)> = None;
    for line in mounts.lines() {
        let (mount, device) = line.split_once(" - ")?;
        let point = Path::new(mount.split(' ').nth(4)?);
        let mut device = device.split(' ');
        let (kind, source) = (device.next()?, device.next()?);
        let depth = point.components().count();
        if path.starts_with(point) && found.as_ref().is_none_or(|(deepest, _)| *deepest <= depth) {
            found = Some((depth, format!("{kind} ({source} at {})", point.display())));
        }
    }
    found.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw
31 22 259:0 / /var/lib/mysql rw - xfs /dev/nvme0n1 rw
32 31 259:1 / /var/lib/mysql rw - ext4 /dev/pmem0 rw,dax=always";

    #[test]
    fn the_deepest_and_last_mount_counts() {
        let name = |path: &str| mounted_as(MOUNTS, Path::new(path)).unwrap();
        assert_eq!(name("/var/lib/mysqlx"), "ext4 (/dev/vda at /)");
        assert_eq!(name("/dev/shm/a/b"), "tmpfs (tmpfs at /dev/shm)");
        assert_eq!(name("/var/lib/mysql/#innodb_redo"), "ext4 (/dev/pmem0 at /var/lib/mysql)");
    }

    #[test]
    fn memory_needs_the_operators_word() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let missing = directory.path().join("a/b");
        assert_eq!(check(&missing, true).unwrap(), Durability::Pretended);
        let error = check(directory.path(), false).unwrap_err().to_string();
        assert!(error.contains("tmpfs") && error.contains("--pretend-pmem"), "{error}");
    }
}
