//! Properties of the device behind a directory.
//!
//! [`probe`] tries operations in the directory (with a file that is gone when it returns), and reads the kernel's
//! attributes of the block device behind it. It changes nothing else.
//!
//! Unknown here: whether a drive retains its volatile cache in a power cut (power-loss protection). Linux does not
//! report that. A drive with power-loss protection normally reports its cache as `write through`.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{StorageError, UntornLimits};

mod device;
mod path;

pub use device::{BlockDevice, DeviceLayer, WriteCache};

/// Support of direct I/O on files in the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DirectIo {
    /// Direct I/O is supported.
    Supported {
        /// Required alignment of a buffer's address, in bytes.
        memory_align_bytes: u32,
        /// Required alignment of offset and length, in bytes.
        offset_align_bytes: u32,
    },
    /// Direct I/O is not supported.
    Unsupported {
        /// Reason.
        reason: String,
    },
}

/// Result of a probe of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathProbe {
    /// The directory.
    pub path: PathBuf,
    /// Type of the file system, as in `/proc/self/mountinfo`.
    pub file_system: String,
    /// Whether a file could be mapped with `MAP_SYNC`: stores reach persistent memory without a system call.
    pub map_sync: bool,
    /// Direct I/O on files of the directory.
    pub direct_io: DirectIo,
    /// Alignment of a file's blocks on the device, in bytes: the block length of the file system.
    pub file_block_len_bytes: u64,
    /// Limits of untorn writes to files of the directory, as reported by the kernel and confirmed by a trial; `None`
    /// if unsupported.
    pub untorn: Option<UntornLimits>,
    /// The block device under the file system, if this process can see one.
    pub block_device: Option<BlockDevice>,
    /// Reason why io_uring is unusable; `None` if it is usable.
    pub io_uring_refused: Option<String>,
}

/// Probes the device behind `dir`, which must be a writable directory.
///
/// # Errors
/// [`StorageError::Probe`] if a call fails that works on any directory with files. An unsupported operation is a
/// result and not an error.
pub fn probe(dir: &Path) -> Result<PathProbe, StorageError> {
    path::probe_with(dir, Path::new("/sys"), Path::new("/proc/self/mountinfo"))
}

impl fmt::Display for PathProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file_system)?;
        if self.map_sync {
            f.write_str(", DAX")?;
        }
        match &self.block_device {
            Some(device) => write!(f, " on {device}")?,
            None => f.write_str(", no block device seen")?,
        }
        match &self.direct_io {
            DirectIo::Supported { offset_align_bytes, .. } => {
                write!(f, ", direct I/O from {offset_align_bytes} bytes")?;
            }
            DirectIo::Unsupported { .. } => f.write_str(", no direct I/O")?,
        }
        match self.untorn {
            Some(UntornLimits { min_len_bytes, max_len_bytes }) => {
                write!(f, ", untorn writes of {min_len_bytes} to {max_len_bytes} bytes")
            }
            None => f.write_str(", no untorn writes"),
        }
    }
}

#[cfg(test)]
mod tests;
