//! File systems for tests: a small one that can be filled, and one that cannot be written.
//!
//! Mounting needs root and, for the small one, a loop device. Where that is missing the caller is told why and skips
//! its test. Dropping unmounts.

use std::fs::File;
use std::io::{Error, Result, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something mounted in a temporary directory of its own.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    // After the mount point is free, so that nothing mounted is removed with it.
    _temporary: tempfile::TempDir,
}

impl Mount {
    /// An ext4 file system of `len_bytes` on a loop device, without blocks reserved for root.
    ///
    /// # Errors
    /// Where this machine does not allow it.
    pub fn small_disk(len_bytes: u64) -> Result<Self> {
        Self::disk(len_bytes, &[])
    }

    /// [`Mount::small_disk`] that can encrypt files.
    ///
    /// # Errors
    /// Where this machine, or its kernel, does not allow it.
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

    /// The file system in an image, which is changed.
    ///
    /// # Errors
    /// Where this machine does not allow it.
    pub fn of_image(image: &Path) -> Result<Self> {
        let (temporary, point) = mount_point()?;
        std::os::unix::fs::symlink(image.canonicalize()?, temporary.path().join("image"))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(&point))?;
        Ok(Self { point, _temporary: temporary })
    }

    /// The bytes of a disk, as they are on it once everything is written out.
    pub fn image(&self) -> PathBuf {
        self._temporary.path().join("image")
    }

    /// Has everything written to a disk, and nothing of it kept in memory, by unmounting and mounting it again.
    ///
    /// # Errors
    /// While something on it is open.
    pub fn remount(&self) -> Result<()> {
        run(Command::new("umount").arg(&self.point))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(&self.point)).map(drop)
    }

    /// A read-only view of `directory`.
    ///
    /// # Errors
    /// Where this machine does not allow it.
    pub fn read_only(directory: &Path) -> Result<Self> {
        let (temporary, point) = mount_point()?;
        run(Command::new("mount").arg("--bind").arg(directory).arg(&point))?;
        let mount = Self { point, _temporary: temporary };
        run(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&mount.point))?;
        Ok(mount)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// Takes all the room there is with one file; returns its path.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn fill(&self) -> Result<PathBuf> {
        let path = self.point.join("filler");
        let mut file = File::options().append(true).create(true).open(&path)?;
        for len_bytes in [1 << 20, 4096, 1] {
            let piece = vec![1; len_bytes];
            while file.write_all(&piece).is_ok() {}
        }
        // The blocks are taken; whether they reach the disk does not matter.
        let _ = file.sync_all();
        Ok(path)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.point).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            // Something still uses it: it goes when that ends.
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

/// Runs `command`, and has what it says in its error.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| Error::new(error.kind(), format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::other(format!("{program}: {}", String::from_utf8_lossy(&output.stderr))))
}
