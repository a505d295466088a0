//! A file as a block device, for tests; needs root and a loop device.

use std::io::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::mount::run;

/// A block device, gone when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    /// Its own, which goes with it.
    image: Option<tempfile::NamedTempFile>,
}

impl LoopDevice {
    /// On a sparse file of its own, of `len_bytes`.
    ///
    /// # Errors
    /// Where this machine does not allow it.
    pub fn create(len_bytes: u64) -> Result<Self> {
        let image = tempfile::Builder::new().prefix("rdtl-").tempfile()?;
        image.as_file().set_len(len_bytes)?;
        let mut device = Self::on(image.path())?;
        device.image = Some(image);
        Ok(device)
    }

    /// On an image that is there.
    ///
    /// # Errors
    /// Where this machine does not allow it.
    pub fn on(image: &Path) -> Result<Self> {
        let path = run(Command::new("losetup").args(["--find", "--show"]).arg(image))?;
        Ok(Self { path: PathBuf::from(path.trim()), image: None })
    }

    /// The device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Fails only where it is gone already.
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.path));
    }
}
