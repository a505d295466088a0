//! What a log directory lies on, and which device fits it.
//!
//! [`probe`] tries things out in the directory (a file that is gone when it returns) and reads what the kernel
//! says about the block device behind it. It changes nothing else. [`PathProbe::choose`] and
//! [`PathProbe::warnings`] are pure functions of what was found.
//!
//! Not known here: whether a drive keeps its volatile cache through a power cut (power-loss protection). Linux
//! does not say. A drive that does normally reports its cache as `write through`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::DeviceKind;
use crate::storage::UntornLimits;

mod device;
mod path;

pub use device::{BlockDevice, DeviceLayer, WriteCache};
pub(crate) use path::explain_io_uring;

/// File systems that write a preallocated, already written range in place.
const OVERWRITES_IN_PLACE: [&str; 4] = ["ext2", "ext3", "ext4", "xfs"];
/// The longest write unit that a block device log is made with, in bytes.
const MAX_WRITE_UNIT_LEN: u32 = 4096;
const SECTOR_LEN: u32 = 512;

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

/// Which device fits a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The device.
    pub kind: DeviceKind,
    /// Why, in one sentence.
    pub reason: String,
}

/// What stopped a probe.
#[derive(thiserror::Error, Debug)]
#[error("cannot find out what {path} lies on: cannot {action}: {source}")]
pub struct ProbeError {
    /// The path concerned.
    pub path: String,
    /// What was being done.
    pub action: &'static str,
    /// The system's error.
    #[source]
    pub source: io::Error,
}

/// Finds out what `dir`, which must be a directory that can be written to, lies on.
///
/// # Errors
/// A call failed that works on any directory that a log can be in. That something is not supported is an answer.
pub fn probe(dir: &Path) -> Result<PathProbe, ProbeError> {
    path::probe_with(dir, Path::new("/sys"), Path::new("/proc/self/mountinfo"))
}

impl PathProbe {
    /// The device to use. `pretend_pmem`: the operator wants the directory treated as persistent memory, even if
    /// it is not; for tests.
    pub fn choose(&self, pretend_pmem: bool) -> Choice {
        let choice = |kind, reason| Choice { kind, reason };
        if self.map_sync {
            return choice(DeviceKind::Pmem, format!("{} on DAX: MAP_SYNC works", self.file_system));
        }
        if pretend_pmem {
            let reason = format!(
                "{} is not persistent memory, but --pretend-pmem was given: nothing written is durable",
                self.file_system
            );
            return choice(DeviceKind::Pmem, reason);
        }
        match self.why_not_block() {
            Some(reason) => choice(DeviceKind::File, reason),
            None => {
                let device = self.block_device.as_ref().map_or("?", |device| &device.disk);
                let unit = self.write_unit_len();
                let reason = format!("{} on {device}, direct I/O in units of {unit} bytes", self.file_system);
                choice(DeviceKind::Block, reason)
            }
        }
    }

    /// Length of the unit that a block device log writes, in bytes: what the device and the file system take, what the
    /// drive writes at once, and at least 512. With a shorter one, the drive would read and write again what was
    /// acknowledged in the same physical block, and a power cut could take that. Where nobody says what the drive
    /// writes, 4096.
    pub fn write_unit_len(&self) -> u32 {
        let device = self.block_device.as_ref();
        let logical = device.and_then(|device| device.logical_block_len).unwrap_or(SECTOR_LEN);
        let physical = device.and_then(|device| device.physical_block_len).unwrap_or(MAX_WRITE_UNIT_LEN);
        let offset = match self.direct_io {
            DirectIo::Supported { offset_align_bytes, .. } => offset_align_bytes,
            DirectIo::Unsupported { .. } => SECTOR_LEN,
        };
        SECTOR_LEN.max(logical).max(physical).max(offset)
    }

    /// Why a write of a whole unit does not cover whole physical blocks of the drive.
    fn why_not_aligned(&self) -> Option<String> {
        let device = self.block_device.as_ref()?;
        if let Some(offset @ (i64::MIN..=-1 | 1..)) = device.alignment_offset_bytes {
            return Some(format!(
                "{} does not begin at a physical block of {} (alignment_offset {offset})",
                device.name, device.disk
            ));
        }
        let physical = device
            .physical_block_len
            .filter(|len| !self.file_block_len_bytes.is_multiple_of(u64::from(*len)))?;
        Some(format!(
            "the blocks of {} have {} bytes, and {} writes {physical}",
            self.file_system, self.file_block_len_bytes, device.disk
        ))
    }

    fn why_not_block(&self) -> Option<String> {
        if !OVERWRITES_IN_PLACE.contains(&self.file_system.as_str()) {
            return Some(format!("{} is not known to write files in place", self.file_system));
        }
        let Some(device) = &self.block_device else {
            return Some(format!("the block device under {} cannot be seen", self.file_system));
        };
        if let DirectIo::Unsupported { reason } = &self.direct_io {
            return Some(format!("no direct I/O on {}: {reason}", self.file_system));
        }
        if self.write_unit_len() > MAX_WRITE_UNIT_LEN {
            return Some(format!("the device wants writes of {} bytes", self.write_unit_len()));
        }
        if let Some(reason) = self.why_not_aligned() {
            return Some(reason);
        }
        if let Some(reason) = &self.io_uring_refused {
            return Some(format!("no io_uring: {reason}"));
        }
        // Several durable writes at once pay where each is durable by itself. Where each flushes the whole cache of
        // the drive, whole servers commit no faster than with one fdatasync for all that has come.
        let flushes = device.write_cache == WriteCache::Back && device.has_fua != Some(true);
        flushes.then(|| format!("each durable write on {} flushes its whole write cache", device.disk))
    }

    /// What an operator should know about this place for a log, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.map_sync {
            return warnings;
        }
        let Some(device) = &self.block_device else {
            warnings.push(format!(
                "the log is on {} without a block device of this machine behind it: what survives a power cut \
                 is up to that file system",
                self.file_system
            ));
            return warnings;
        };
        let disk = &device.disk;
        if device.write_cache == WriteCache::Back {
            warnings.push(format!(
                "{disk} has a volatile write cache and no known power-loss protection: each durable write waits \
                 for a flush of that cache; use a drive with power-loss protection, or expect the latency of a \
                 flush for each commit"
            ));
        }
        if device.write_cache == WriteCache::Unknown {
            warnings.push(format!("{disk} does not say whether it has a volatile write cache"));
        }
        if device.is_rotational == Some(true) && device.model.is_some() {
            warnings.push(format!("{disk} is a rotating disk: a durable write may take a turn of it"));
        }
        if let Some(reason) = self.why_not_aligned() {
            warnings.push(format!(
                "{reason}: {disk} writes again what shares a block with a write, and a power cut may take acknowledged commits \
                 with it; align the partition, and make the file system with blocks of at least that length"
            ));
        }
        match &device.layer {
            DeviceLayer::Loop { backing_file } => warnings.push(format!(
                "{disk} is a loop device on {}: the log is as durable as that file",
                backing_file.as_deref().unwrap_or("a file")
            )),
            DeviceLayer::Ram => {
                warnings.push(format!("{disk} is memory: nothing survives a power cut"));
            }
            DeviceLayer::Disk | DeviceLayer::Mapped { .. } => {}
        }
        if let Some(reason) = &self.io_uring_refused {
            warnings
                .push(format!("the log device for block devices cannot be used without io_uring: {reason}"));
        }
        warnings
    }
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
