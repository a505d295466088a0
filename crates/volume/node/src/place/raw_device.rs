//! Parts of volumes on raw block devices.

use super::Part;
use crate::error::NodeError;
use redoubt_storage::raw_device::RawDevice;
use redoubt_storage::{StorageDir, StorageError, Stream};
use redoubt_sync::Mutex;
use redoubt_sync::time;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long to wait for a device that is in use, and how long between two tries.
const IN_USE_TIMEOUT: Duration = Duration::from_secs(5);
const IN_USE_PAUSE: Duration = Duration::from_millis(50);

/// A directory on a raw block device.
#[derive(Clone)]
pub struct RawDirectory {
    device: Arc<RawDevice>,
    name: String,
    part: Part,
}

impl RawDirectory {
    /// Opens it for the storage crates; creates it if it is missing.
    ///
    /// # Errors
    /// [`NodeError::Refused`] saying why it cannot be used.
    pub fn open(&self) -> Result<Arc<dyn StorageDir>, NodeError> {
        self.device
            .dir_in(&self.name, default_stream(self.part))
            .map_err(|error| NodeError::Refused(format!("{self}: {error}")))
    }
}

impl fmt::Display for RawDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device.info().path.display(), self.name)
    }
}

/// Default write stream of the files of a part.
const fn default_stream(part: Part) -> Stream {
    match part {
        Part::Log => Stream::Redo,
        Part::Journal => Stream::Journal,
        Part::Pages => Stream::ColdPages,
    }
}

/// The raw devices that a node has open, by path. Volumes share them.
#[derive(Default)]
pub struct RawDevices {
    open: Mutex<BTreeMap<PathBuf, Weak<RawDevice>>>,
}

impl RawDevices {
    /// Accepts every device: this build supports them.
    ///
    /// # Errors
    /// None.
    pub const fn check_supported(&self, _: &Path) -> Result<(), NodeError> {
        Ok(())
    }

    /// An existing directory on the device at `path`.
    ///
    /// # Errors
    /// [`NodeError::Refused`] saying why the device cannot be used; `None` if it has no such directory.
    pub fn find(&self, path: &Path, name: String, part: Part) -> Result<Option<RawDirectory>, NodeError> {
        let device = self.get(path)?;
        Ok(device.dirs().contains(&name).then_some(RawDirectory { device, name, part }))
    }

    /// A directory on the device at `path`, durable when this returns.
    ///
    /// # Errors
    /// As [`Self::find`], and failed calls.
    pub fn create(&self, path: &Path, name: String, part: Part) -> Result<RawDirectory, NodeError> {
        let directory = RawDirectory { device: self.get(path)?, name, part };
        directory.open()?.sync().map_err(|error| NodeError::io("write to", path, error))?;
        Ok(directory)
    }

    /// Removes a directory from the device at `path`.
    ///
    /// # Errors
    /// As [`Self::find`], and failed calls.
    pub fn remove(&self, path: &Path, name: &str) -> Result<(), NodeError> {
        let removed = self.get(path)?.remove_dir(name);
        removed.map_err(|error| NodeError::io("remove a directory from", path, error))
    }

    /// The device at `path`, opened unless it is open already.
    fn get(&self, path: &Path) -> Result<Arc<RawDevice>, NodeError> {
        let known = std::fs::canonicalize(path).map_err(|error| NodeError::io("find", path, error))?;
        let mut open = self.open.lock();
        if let Some(device) = open.get(&known).and_then(Weak::upgrade) {
            return Ok(device);
        }
        let device = open_device(path)?;
        open.insert(known, Arc::downgrade(&device));
        Ok(device)
    }
}

/// Opens a device. Writes that a killed process handed to the kernel may keep it in use for a moment.
fn open_device(path: &Path) -> Result<Arc<RawDevice>, NodeError> {
    let deadline = time::now() + IN_USE_TIMEOUT;
    loop {
        match RawDevice::open(path) {
            Ok(device) => return Ok(device),
            Err(StorageError::InUse { .. }) if time::now() < deadline => {
                redoubt_sync::thread::sleep(IN_USE_PAUSE);
            }
            Err(error) => return Err(NodeError::Refused(error.to_string())),
        }
    }
}

impl fmt::Debug for RawDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.open.lock().keys()).finish()
    }
}
