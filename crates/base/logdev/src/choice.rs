//! Which log device fits a place, and what an operator should know about a log there.
//!
//! Pure functions of what [`redoubt_storage::probe`] found.

use redoubt_storage::probe::{DeviceLayer, DirectIo, PathProbe, WriteCache};
use redoubt_types::EXPERIMENTAL_PACKAGE;

use crate::DeviceKind;

/// File systems that write a preallocated, already written range in place.
const OVERWRITES_IN_PLACE: [&str; 4] = ["ext2", "ext3", "ext4", "xfs"];
/// The longest write unit that a block device log is made with, in bytes.
const MAX_WRITE_UNIT_LEN: u32 = 4096;
const SECTOR_LEN: u32 = 512;

/// Whether this build has the log device on persistent memory.
pub const HAS_PMEM: bool = cfg!(feature = "experimental-devices");

/// Which device fits a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The device.
    pub kind: DeviceKind,
    /// Why, in one sentence.
    pub reason: String,
}

/// The device to use. `pretend_pmem`: the operator wants the directory treated as persistent memory, even if
/// it is not; for tests. Without [`HAS_PMEM`] the choice is never persistent memory.
pub fn choose(found: &PathProbe, pretend_pmem: bool) -> Choice {
    let choice = |kind, reason| Choice { kind, reason };
    if found.map_sync && HAS_PMEM {
        return choice(DeviceKind::Pmem, format!("{} on DAX: MAP_SYNC works", found.file_system));
    }
    if pretend_pmem && HAS_PMEM {
        let reason = format!(
            "{} is not persistent memory, but --pretend-pmem was given: nothing written is durable",
            found.file_system
        );
        return choice(DeviceKind::Pmem, reason);
    }
    match why_not_block(found) {
        Some(reason) => choice(DeviceKind::File, reason),
        None => {
            let device = found.block_device.as_ref().map_or("?", |device| &device.disk);
            let unit = write_unit_len(found);
            let reason = format!("{} on {device}, direct I/O in units of {unit} bytes", found.file_system);
            choice(DeviceKind::Block, reason)
        }
    }
}

/// Length of the unit that a block device log writes, in bytes: what the device and the file system take, what the
/// drive writes at once, and at least 512. With a shorter one, the drive would read and write again what was
/// acknowledged in the same physical block, and a power cut could take that. Where nobody says what the drive
/// writes, 4096.
pub fn write_unit_len(found: &PathProbe) -> u32 {
    let device = found.block_device.as_ref();
    let logical = device.and_then(|device| device.logical_block_len).unwrap_or(SECTOR_LEN);
    let physical = device.and_then(|device| device.physical_block_len).unwrap_or(MAX_WRITE_UNIT_LEN);
    let offset = match found.direct_io {
        DirectIo::Supported { offset_align_bytes, .. } => offset_align_bytes,
        DirectIo::Unsupported { .. } => SECTOR_LEN,
    };
    SECTOR_LEN.max(logical).max(physical).max(offset)
}

/// Why a write of a whole unit does not cover whole physical blocks of the drive.
fn why_not_aligned(found: &PathProbe) -> Option<String> {
    let device = found.block_device.as_ref()?;
    if let Some(offset @ (i64::MIN..=-1 | 1..)) = device.alignment_offset_bytes {
        return Some(format!(
            "{} does not begin at a physical block of {} (alignment_offset {offset})",
            device.name, device.disk
        ));
    }
    let physical = device
        .physical_block_len
        .filter(|len| !found.file_block_len_bytes.is_multiple_of(u64::from(*len)))?;
    Some(format!(
        "the blocks of {} have {} bytes, and {} writes {physical}",
        found.file_system, found.file_block_len_bytes, device.disk
    ))
}

fn why_not_block(found: &PathProbe) -> Option<String> {
    if !OVERWRITES_IN_PLACE.contains(&found.file_system.as_str()) {
        return Some(format!("{} is not known to write files in place", found.file_system));
    }
    let Some(device) = &found.block_device else {
        return Some(format!("the block device under {} cannot be seen", found.file_system));
    };
    if let DirectIo::Unsupported { reason } = &found.direct_io {
        return Some(format!("no direct I/O on {}: {reason}", found.file_system));
    }
    if write_unit_len(found) > MAX_WRITE_UNIT_LEN {
        return Some(format!("the device requires writes of {} bytes", write_unit_len(found)));
    }
    if let Some(reason) = why_not_aligned(found) {
        return Some(reason);
    }
    if let Some(reason) = &found.io_uring_refused {
        return Some(format!("no io_uring: {reason}"));
    }
    // Several durable writes at once pay where each is durable by itself. Where each flushes the whole cache of
    // the drive, whole servers commit no faster than with one fdatasync for all that has come.
    let flushes = device.write_cache == WriteCache::Back && device.has_fua != Some(true);
    flushes.then(|| format!("each durable write on {} flushes its whole write cache", device.disk))
}

/// What an operator should know about this place for a log, one sentence each.
pub fn warnings(found: &PathProbe) -> Vec<String> {
    let mut warnings = Vec::new();
    if found.map_sync && HAS_PMEM {
        return warnings;
    }
    if found.map_sync {
        warnings.push(format!(
            "{} is on persistent memory, and this build writes the log there as on a disk; install the package \
             {EXPERIMENTAL_PACKAGE} for the log device of persistent memory",
            found.file_system
        ));
    }
    let Some(device) = &found.block_device else {
        warnings.push(format!(
            "the log is on {} without a block device of this machine behind it: what survives a power cut \
             is up to that file system",
            found.file_system
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
    if let Some(reason) = why_not_aligned(found) {
        warnings.push(format!(
            "{reason}: {disk} writes again what shares a block with a write, and a power cut may take \
             acknowledged commits with it; align the partition, and make the file system with blocks of at least that length"
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
    if let Some(reason) = &found.io_uring_refused {
        warnings.push(format!("the log device for block devices cannot be used without io_uring: {reason}"));
    }
    warnings
}

#[cfg(test)]
pub(crate) mod tests;
