//! File systems for tests: a small one to fill, and a read-only one.
//!
//! A mount needs root and, for the small file system, a loop device. Without these, the caller gets an error with the
//! reason, and skips its test. The drop unmounts.

use std::fs::File;
use std::io::{Error, Result, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system, mounted in a temporary directory of its own.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    // Dropped after the unmount, so that the removal affects no mounted file.
    _temporary: tempfile::TempDir,
}

impl Mount {
    /// An ext4 file system of `len_bytes` on a loop device, without blocks reserved for root.
    ///
    /// # Errors
    /// If this machine does not allow it.
    pub fn small_disk(len_bytes: u64) -> Result<Self> {
        Self::disk(len_bytes, &[])
    }

    /// [`Mount::small_disk`] that can encrypt files.
    ///
    /// # Errors
    /// If this machine or its kernel does not allow it.
    pub fn encrypting_disk(len_bytes: u64) -> Result<Self> {
        Self::disk(len_bytes, &["-O", "encrypt"])
    }

    fn disk(len_bytes: u64, options: &[&str]) -> Result<Self> {
        let (temporary, point) = mount_point()?;
        let image = temporary.path().join("image");
        File::create(&image)?.set_len(len_bytes)?;
        run(Command::new("mkfs.ext4").args(["-q", "-m0"]).args(options).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&point))?;
        Ok(Self { point, _temporary: temporary })
    }

    /// Mounts the file system in an image, and changes the image.
    ///
    /// # Errors
    /// If this machine does not allow it.
    pub fn of_image(image: &Path) -> Result<Self> {
        let (temporary, point) = mount_point()?;
        std::os::unix::fs::symlink(image.canonicalize()?, temporary.path().join("image"))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(&point))?;
        Ok(Self { point, _temporary: temporary })
    }

    /// Path of the disk's image, which is complete after all data is written out.
    pub fn image(&self) -> PathBuf {
        self._temporary.path().join("image")
    }

    /// Unmounts and mounts a disk again, so that all data is on the disk and none is cached.
    ///
    /// # Errors
    /// If a file on the disk is open.
    pub fn remount(&self) -> Result<()> {
        run(Command::new("umount").arg(&self.point))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(&self.point)).map(drop)
    }

    /// A read-only view of `directory`.
    ///
    /// # Errors
    /// If this machine does not allow it.
    pub fn read_only(directory: &Path) -> Result<Self> {
        let (temporary, point) = mount_point()?;
        run(Command::new("mount").arg("--bind").arg(directory).arg(&point))?;
        let mount = Self { point, _temporary: temporary };
        run(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&mount.point))?;
        Ok(mount)
    }

    /// Path of the mount point.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// Fills the disk with one file, and returns its path.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn fill(&self) -> Result<PathBuf> {
        let path = self.point.join("filler");
        let mut file = File::options().append(true).create(true).open(&path)?;
        for len_bytes in [1 << 20, 4096, 1] {
            let piece = vec![1; len_bytes];
            while file.write_all(&piece).is_ok() {}
        }
        // The blocks are allocated; they need not reach the disk.
        let _ = file.sync_all();
        Ok(path)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.point).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            // A process still uses it: the unmount completes when that ends.
            let _ = Command::new("umount").arg("--lazy").arg(&self.point).status();
        }
    }
}

fn mount_point() -> Result<(tempfile::TempDir, PathBuf)> {
    let temporary = tempfile::Builder::new().prefix("rdtm-").tempdir()?;
    let point = temporary.path().join("disk");
    std::fs::create_dir(&point)?;
    Ok((temporary, point))
}

/// Runs `command`, and returns its output, also in its error.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| Error::new(error.kind(), format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::other(format!("{program}: {}", String::from_utf8_lossy(&output.stderr))))
}
