//! Which sectors belong to which file, and so to which origin: a snapshot of all files of a mounted disk.
//!
//! A snapshot asks for each file's extents (`FIEMAP`) without syncing it, so that it does not change what is
//! recorded. Extents without a place on the disk yet are left out. Sectors that no file has are the file system's.
//!
//! Invariant: the ranges of an [`OwnerMap`] are sorted and do not overlap.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;

use redoubt_flash::trace::Origin;
use redoubt_workload::error::{Error, Result};

use super::disk::SECTOR_LEN_BYTES;

/// A part of a file, in bytes, and the origin of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) bytes: Range<u64>,
    pub(super) origin: Origin,
}

/// Says what a file holds, given its path on the disk: parts in order, without a gap.
pub(super) type Classify<'a> = &'a dyn Fn(&Path) -> Vec<Part>;

/// Owners of sectors at one time.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct OwnerMap {
    ranges: Vec<(Range<u64>, Origin)>,
}

/// A piece of a request, in sectors, and its owner, if there is one.
pub(super) type Piece = (Range<u64>, Option<Origin>);

impl OwnerMap {
    /// From ranges of sectors in any order. Two overlap only when a file took blocks of one that was removed while the
    /// snapshot was taken; the one that begins later has them then.
    pub(super) fn new(mut ranges: Vec<(Range<u64>, Origin)>) -> Self {
        ranges.sort_by_key(|(range, _)| range.start);
        let starts: Vec<u64> = ranges.iter().skip(1).map(|(range, _)| range.start).collect();
        for ((range, _), next) in ranges.iter_mut().zip(starts) {
            range.end = range.end.min(next);
        }
        ranges.retain(|(range, _)| !range.is_empty());
        Self { ranges }
    }

    /// Cuts `sectors` at the borders of owners.
    pub(super) fn pieces(&self, sectors: Range<u64>) -> Vec<Piece> {
        let first = self.ranges.partition_point(|(range, _)| range.end <= sectors.start);
        let mut pieces = Vec::new();
        let mut at = sectors.start;
        for (range, origin) in self.ranges.get(first..).unwrap_or_default() {
            if range.start >= sectors.end {
                break;
            }
            if range.start > at {
                pieces.push((at..range.start, None));
                at = range.start;
            }
            let end = range.end.min(sectors.end);
            pieces.push((at..end, Some(*origin)));
            at = end;
        }
        if at < sectors.end {
            pieces.push((at..sectors.end, None));
        }
        pieces
    }
}

/// Takes a snapshot of the files below `root`; `fixed` are sectors whose owner is known.
///
/// # Errors
/// [`Error::Io`]. A file that goes away meanwhile is no error.
pub(super) fn snapshot(
    root: &Path,
    classify: Classify<'_>,
    fixed: &[(Range<u64>, Origin)],
) -> Result<OwnerMap> {
    let mut ranges = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let Some(entries) = present(std::fs::read_dir(&directory), "list", &directory)? else { continue };
        for entry in entries {
            let entry = entry.map_err(Error::io_at("list", &directory))?;
            let path = entry.path();
            let Some(kind) = present(entry.file_type(), "look at", &path)? else { continue };
            if kind.is_dir() {
                directories.push(path);
            } else if kind.is_file() {
                let Some(file) = present(File::open(&path), "open", &path)? else { continue };
                let extents = file_extents(&file).map_err(Error::io_at("ask for the extents of", &path))?;
                assign(&extents, &classify(path.strip_prefix(root).unwrap_or(&path)), &mut ranges);
            }
        }
    }
    ranges.extend(fixed.iter().cloned());
    Ok(OwnerMap::new(ranges))
}

/// None for something that is gone.
fn present<T>(result: std::io::Result<T>, verb: &str, path: &Path) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io_at(verb, path)(error)),
    }
}

/// A stretch of a file and of the disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) logical: u64,
    pub(super) physical: u64,
    pub(super) len: u64,
}

/// Adds the sectors of a file's parts.
pub(super) fn assign(extents: &[Extent], parts: &[Part], ranges: &mut Vec<(Range<u64>, Origin)>) {
    for extent in extents {
        for part in parts {
            let start = part.bytes.start.max(extent.logical);
            let end = part.bytes.end.min(extent.logical.saturating_add(extent.len));
            if start < end {
                let first = extent.physical + (start - extent.logical);
                let sectors = first / SECTOR_LEN_BYTES..(first + (end - start)).div_ceil(SECTOR_LEN_BYTES);
                ranges.push((sectors, part.origin));
            }
        }
    }
}

/// `struct fiemap_extent` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

const BATCH_EXTENTS: usize = 256;

/// `struct fiemap` of the kernel, with room for a batch.
#[repr(C)]
struct RawRequest {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [RawExtent; BATCH_EXTENTS],
}

/// `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660Bu32 as libc::Ioctl;
const FIEMAP_EXTENT_LAST: u32 = 0x1;
const FIEMAP_EXTENT_UNKNOWN: u32 = 0x2;

/// Where a file lies on its disk.
fn file_extents(file: &File) -> std::io::Result<Vec<Extent>> {
    let mut all = Vec::new();
    let mut start = 0;
    loop {
        let mut request = RawRequest {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped_extents: 0,
            extent_count: BATCH_EXTENTS as u32,
            reserved: 0,
            extents: [RawExtent::default(); BATCH_EXTENTS],
        };
        // SAFETY: `request` is laid out as the kernel's struct fiemap followed by `extent_count` extents, lives until
        // the call returns, and the kernel writes to no more extents than that. The descriptor is open.
        let status = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut request) };
        if status != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let mapped = request.extents.get(..request.mapped_extents as usize).unwrap_or_default();
        let Some(last) = mapped.last() else { return Ok(all) };
        start = last.logical + last.length;
        let is_placed = |extent: &&RawExtent| extent.flags & FIEMAP_EXTENT_UNKNOWN == 0;
        all.extend(mapped.iter().filter(is_placed).map(|extent| Extent {
            logical: extent.logical,
            physical: extent.physical,
            len: extent.length,
        }));
        if last.flags & FIEMAP_EXTENT_LAST != 0 {
            return Ok(all);
        }
    }
}
