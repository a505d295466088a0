//! Free space of a directory, and the kind of its file system.

use super::report::Check;
use redoubt_client::events::bytes;
use std::path::{Path, PathBuf};

const TMPFS_MAGIC: i64 = 0x0102_1994;
const RAMFS_MAGIC: i64 = 0x8584_58f6;

/// The file system of a directory.
#[derive(Clone, Copy, Debug)]
pub struct FileSystem {
    /// Size, in bytes.
    pub total: u64,
    /// Room for users other than root, in bytes.
    pub free: u64,
    /// tmpfs or ramfs.
    pub is_memory: bool,
}

/// The directory, or the nearest one above it if it is still to be made.
pub fn existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/")).to_owned()
}

impl FileSystem {
    /// File system of the directory, or of the nearest existing one above it.
    ///
    /// # Errors
    /// The system's.
    pub fn of(path: &Path) -> std::io::Result<Self> {
        let path = existing(path);
        let space = rustix::fs::statvfs(&path)?;
        let kind = rustix::fs::statfs(&path)?.f_type as i64;
        Ok(Self {
            total: space.f_blocks.saturating_mul(space.f_frsize),
            free: space.f_bavail.saturating_mul(space.f_frsize),
            is_memory: matches!(kind, TMPFS_MAGIC | RAMFS_MAGIC),
        })
    }
}

/// Checks the free space. At least `least` bytes must be free; `purpose` describes their use.
pub fn check(name: &'static str, path: &Path, least: u64, purpose: &str) -> Check {
    match FileSystem::of(path) {
        Ok(space) => judge(name, space, path, least, purpose),
        Err(error) => Check::problem(
            name,
            format!("cannot look at {}: {error}", path.display()),
            "check the path and its permissions",
        ),
    }
}

fn judge(name: &'static str, space: FileSystem, path: &Path, least: u64, purpose: &str) -> Check {
    let found = format!("{} of {} free at {}", bytes(space.free), bytes(space.total), path.display());
    if space.free < least {
        let change = format!("make room, or use another place: {purpose} needs {} at least", bytes(least));
        return Check::problem(name, found, change);
    }
    if space.free < space.total / 20 || space.free < least.saturating_mul(2) {
        return Check::warning(name, found, format!("make room before it is full: {purpose} will need more"));
    }
    Check::ok(name, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Level;

    #[test]
    fn little_room_is_a_warning_and_too_little_a_problem() {
        const GIB: u64 = 1 << 30;
        let level = |free, total| {
            let space = FileSystem { total, free, is_memory: false };
            judge("free_space", space, Path::new("/data"), GIB, "a node").level
        };
        assert_eq!(level(500 * GIB, 1000 * GIB), Level::Ok);
        assert_eq!(level(51 * GIB, 1000 * GIB), Level::Ok);
        assert_eq!(level(49 * GIB, 1000 * GIB), Level::Warning);
        assert_eq!(level(GIB + 1, 10 * GIB), Level::Warning);
        assert_eq!(level(GIB - 1, 10 * GIB), Level::Problem);
        assert_eq!(level(0, 0), Level::Problem);
    }

    #[test]
    fn a_directory_to_be_made_has_the_room_of_the_one_above() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("a/b");
        assert_eq!(existing(&missing), directory.path());
        assert!(FileSystem::of(&missing).unwrap().total > 0);
        assert!(FileSystem::of(Path::new("/dev/shm/x")).unwrap().is_memory);
    }
}
