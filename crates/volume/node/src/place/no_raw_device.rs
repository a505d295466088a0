//! In place of `raw_device.rs` in a build without the feature `experimental-devices`: every device is refused.

use super::Part;
use crate::error::NodeError;
use redoubt_storage::StorageDir;
use redoubt_types::needs_experimental;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A directory on a raw block device: there is none in this build.
#[derive(Clone)]
pub enum RawDirectory {}

impl RawDirectory {
    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn open(&self) -> Result<Arc<dyn StorageDir>, NodeError> {
        match *self {}
    }
}

impl fmt::Display for RawDirectory {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// The raw devices that a node has open: none.
#[derive(Default, Debug)]
pub struct RawDevices {}

impl RawDevices {
    /// Refuses the device at `path`.
    ///
    /// # Errors
    /// [`NodeError::Refused`], always.
    pub fn check_supported(&self, path: &Path) -> Result<(), NodeError> {
        Err(refused(path))
    }

    /// Refuses the device at `path`.
    ///
    /// # Errors
    /// [`NodeError::Refused`], always.
    pub fn find(&self, path: &Path, _: String, _: Part) -> Result<Option<RawDirectory>, NodeError> {
        Err(refused(path))
    }

    /// Refuses the device at `path`.
    ///
    /// # Errors
    /// [`NodeError::Refused`], always.
    pub fn create(&self, path: &Path, _: String, _: Part) -> Result<RawDirectory, NodeError> {
        Err(refused(path))
    }

    /// Refuses the device at `path`.
    ///
    /// # Errors
    /// [`NodeError::Refused`], always.
    pub fn remove(&self, path: &Path, _: &str) -> Result<(), NodeError> {
        Err(refused(path))
    }
}

fn refused(path: &Path) -> NodeError {
    NodeError::Refused(needs_experimental(&format!("the raw block device {}", path.display())))
}
