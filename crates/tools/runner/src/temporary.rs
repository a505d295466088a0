//! The temporary directory of a run, and the removal of directories that killed runs have left.
//!
//! Layout: `rdtXXXX/redoubt-runner.owner`, and `rdtXXXX/N` for job N. The runner locks the first for as long as it lives, and
//! writes the process ids of its jobs into it. It gets its name when it is locked already.
//!
//! Invariant: a directory is removed only if it is this user's and its owner file has no lock, so that its run has ended.

use std::fs::{File, Metadata};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::cleanup;
use crate::error::{Error, Result};
use crate::print;
use crate::processes;

/// First letters of the directory's name; short, for the sockets in it.
const PREFIX: &str = "rdt";
/// The file that the run locks. Other programs have directories with such a prefix, but no such file.
const OWNER: &str = "redoubt-runner.owner";

/// A directory that is removed in the end, but not through mounts that strays of tests have left.
pub struct Temporary {
    path: PathBuf,
    owner: File,
}

impl Temporary {
    /// Makes a directory, and removes those of runs that were killed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn new(parent: &Path) -> Result<Self> {
        remove_stale(parent);
        let directory = tempfile::Builder::new().prefix(PREFIX).rand_bytes(4).tempdir_in(parent);
        let directory = directory.map_err(Error::io("make a directory in", parent))?;
        let (new, named) = (directory.path().join("new"), directory.path().join(OWNER));
        let owner = File::create(&new).map_err(Error::io("create", &new))?;
        owner.lock().map_err(Error::io("lock", &new))?;
        std::fs::rename(&new, &named).map_err(Error::io("rename", &new))?;
        open_to_all(directory.path(), 0o755)?;
        Ok(Self { path: directory.keep(), owner })
    }

    /// Makes the directory of job `number`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn directory_of_job(&self, number: usize) -> Result<PathBuf> {
        let directory = self.path.join(number.to_string());
        std::fs::create_dir(&directory).map_err(Error::io("create", &directory))?;
        // Some tests start processes of other users.
        open_to_all(&directory, 0o1777)?;
        Ok(directory)
    }

    /// Takes note of a job's process id, by which its network namespaces are found.
    pub fn note_job(&self, id: u32) {
        // Without it only such a namespace would be left, and only after a kill.
        let _ = writeln!(&self.owner, "{id}");
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        cleanup::remove(&self.path);
    }
}

fn open_to_all(directory: &Path, mode: u32) -> Result<()> {
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(mode))
        .map_err(Error::io("change the permissions of", directory))
}

/// Removes directories of runs that were killed, and ends the processes that use them.
fn remove_stale(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && let Some(owner) = stale(&path)
        {
            remove_left(&path, &owner);
        }
    }
}

/// The lock of a run's directory whose run has ended.
fn stale(path: &Path) -> Option<File> {
    let user = rustix::process::geteuid().as_raw();
    let is_ours = |metadata: &Metadata| metadata.uid() == user;
    path.symlink_metadata().ok().filter(|metadata| metadata.is_dir() && is_ours(metadata))?;
    let named = path.join(OWNER);
    named.symlink_metadata().ok().filter(|metadata| metadata.is_file() && is_ours(metadata))?;
    let owner = File::open(&named).ok()?;
    owner.try_lock().is_ok().then_some(owner)
}

fn remove_left(path: &Path, owner: &File) {
    print::note(&format!("{} is of a run that was killed, and is removed", path.display()));
    for (id, command) in processes::kill_all(|| processes::of_directory(path), || ()) {
        print::note(&format!("process {id} was left behind, and is killed: {command}"));
    }
    let ids = std::io::read_to_string(owner).unwrap_or_default();
    // An id that is in use is another process's by now, or of a job that could not be killed.
    let is_free = |id: &u32| !Path::new(&format!("/proc/{id}")).exists();
    for id in ids.lines().filter_map(|line| line.parse().ok()).filter(is_free) {
        cleanup::remove_namespaces(id);
    }
    cleanup::detach_loop_devices(path);
    cleanup::remove(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_with_a_lock_or_without_owner_stays() {
        let parent = tempfile::tempdir().unwrap();
        let mine = Temporary::new(parent.path()).unwrap();
        let other = parent.path().join("rdtx");
        std::fs::create_dir(&other).unwrap();
        let second = Temporary::new(parent.path()).unwrap();
        assert!(mine.path.exists() && other.exists() && second.path.exists());
        assert!(stale(&mine.path).is_none() && stale(&other).is_none());
    }

    #[test]
    fn directory_whose_lock_is_gone_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join("rdty");
        std::fs::create_dir_all(left.join("1")).unwrap();
        std::fs::write(left.join(OWNER), "").unwrap();
        let other = parent.path().join("other");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join(OWNER), "").unwrap();
        let mine = Temporary::new(parent.path()).unwrap();
        assert!(!left.exists() && other.exists() && mine.path.exists());
        drop(mine);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 1);
    }
}
