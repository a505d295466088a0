//! What a directory lies on.
//!
//! [`probe`] tries things out in the directory (a file that is gone when it returns) and reads what the kernel
//! says about the block device behind it. It changes nothing else.
//!
//! Not known here: whether a drive keeps its volatile cache through a power cut (power-loss protection). Linux
//! does not say. A drive that does normally reports its cache as `write through`.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{StorageError, UntornLimits};

mod device;
mod path;

pub use device::{BlockDevice, DeviceLayer, WriteCache};

/// Whether files in the directory can be written past the page cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DirectIo {
    /// They can.
    Supported {
        /// What a buffer's address must be a multiple of, in bytes.
        memory_align_bytes: u32,
        /// What offset and length must be multiples of, in bytes.
        offset_align_bytes: u32,
    },
    /// They cannot.
    Unsupported {
        /// Why, in words.
        reason: String,
    },
}

/// What was found out about a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathProbe {
    /// The directory.
    pub path: PathBuf,
    /// Type of the file system, as in `/proc/self/mountinfo`.
    pub file_system: String,
    /// A file could be mapped with `MAP_SYNC`: stores reach persistent memory without a system call.
    pub map_sync: bool,
    /// Direct I/O on files of the directory.
    pub direct_io: DirectIo,
    /// What offsets of a file's blocks on the device are multiples of, in bytes: the block length of the file system.
    pub file_block_len_bytes: u64,
    /// Which writes to files of the directory can be untorn, as the kernel says and a trial confirmed. `None`: none.
    pub untorn: Option<UntornLimits>,
    /// The block device under the file system, if there is one that this process can see.
    pub block_device: Option<BlockDevice>,
    /// Why io_uring cannot be used. `None`: it can.
    pub io_uring_refused: Option<String>,
}

/// Finds out what `dir`, which must be a directory that can be written to, lies on.
///
/// # Errors
/// [`StorageError::Probe`]: a call failed that works on any directory that files can be in. That something is not
/// supported is an answer.
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
