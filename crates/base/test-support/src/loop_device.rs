//! A file as a block device, for tests; needs root and a loop device.

use std::io::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::mount::run;

/// A block device, which is detached on drop.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    /// Its own image file, which is removed on drop.
    image: Option<tempfile::NamedTempFile>,
}

impl LoopDevice {
    /// Creates a device on a sparse file of its own, of `len_bytes`.
    ///
    /// # Errors
    /// If this machine does not allow it.
    pub fn create(len_bytes: u64) -> Result<Self> {
        let image = tempfile::Builder::new().prefix("rdtl-").tempfile()?;
        image.as_file().set_len(len_bytes)?;
        let mut device = Self::on(image.path())?;
        device.image = Some(image);
        Ok(device)
    }

    /// Creates a device on an existing image.
    ///
    /// # Errors
    /// If this machine does not allow it.
    pub fn on(image: &Path) -> Result<Self> {
        let path = run(Command::new("losetup").args(["--find", "--show"]).arg(image))?;
        Ok(Self { path: PathBuf::from(path.trim()), image: None })
    }

    /// Path of the device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Fails only if the device is gone already.
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.path));
    }
}
