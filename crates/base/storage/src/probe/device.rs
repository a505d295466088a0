//! Attributes of a block device in sysfs.
//!
//! `<sys>/dev/block/<major>:<minor>` is a link to the device's directory. A partition's directory has a file
//! `partition`, and its parent is the directory of its disk. Only a disk has `queue/`, `device/`, `dm/` or `loop/`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Write cache of the device, as reported by the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum WriteCache {
    /// Volatile: a completed write is durable only after a flush.
    Back,
    /// No cache, or a cache that survives a power cut: a completed write is durable.
    Through,
    /// Not reported by the kernel.
    #[default]
    Unknown,
}

/// Kind of the device.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum DeviceLayer {
    /// A disk, physical or of a hypervisor.
    #[default]
    Disk,
    /// A device of the device mapper or of the RAID driver. The devices below are ignored, because the kernel passes
    /// the strictest settings up.
    Mapped {
        /// Name of the mapping, or of the device itself.
        name: String,
    },
    /// A file as a block device.
    Loop {
        /// Path of the file.
        backing_file: Option<String>,
    },
    /// Memory as a block device.
    Ram,
}

/// A block device as described by the kernel. `None` for unreported attributes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BlockDevice {
    /// Kernel name of the device under the file system, such as `nvme0n1p2`.
    pub name: String,
    /// Kernel name of the whole disk, such as `nvme0n1`.
    pub disk: String,
    /// Kind: disk, mapping, loop or memory.
    pub layer: DeviceLayer,
    /// Model name of the drive.
    pub model: Option<String>,
    /// Minimum length of a write, in bytes.
    pub logical_block_len: Option<u32>,
    /// Length of the drive's physical writes, in bytes. For a shorter write, it reads the rest and writes that again,
    /// with all data that was acknowledged there (a *512e* drive: logical blocks of 512 bytes, physical ones of 4096).
    pub physical_block_len: Option<u32>,
    /// Distance of the device's beginning from a physical block of its drive, in bytes. Not 0 for a misaligned
    /// partition; -1 if the kernel knows only that it is misaligned.
    pub alignment_offset_bytes: Option<i64>,
    /// The write cache.
    pub write_cache: WriteCache,
    /// Whether the device makes single writes durable by itself (Force Unit Access).
    pub has_fua: Option<bool>,
    /// Whether the disk rotates. Hypervisors often report that for their disks.
    pub is_rotational: Option<bool>,
    /// Number of write streams of the disk (NVMe FDP), or 0. Only the whole disk supports streams, no partition.
    pub max_write_streams: Option<u32>,
    /// Length of a stream's contiguous data on the disk, in bytes: that of an erase unit; 0 if unknown.
    pub write_stream_granularity_bytes: Option<u64>,
    /// Maximum length of an untorn write on the disk, in bytes; 0 if unsupported.
    pub atomic_write_unit_max_bytes: Option<u64>,
}

impl BlockDevice {
    /// Reads the attributes of device `major:minor` below `sys`, normally `/sys`. Returns `None` if there is no such
    /// device.
    pub(crate) fn read(sys: &Path, major: u32, minor: u32) -> io::Result<Option<Self>> {
        let link = sys.join(format!("dev/block/{major}:{minor}"));
        let dir = match link.canonicalize() {
            Ok(dir) => dir,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let disk_dir = match dir.parent() {
            Some(parent) if dir.join("partition").exists() => parent.to_owned(),
            _ => dir.clone(),
        };
        let text = |file: &str| attribute(&disk_dir.join(file));
        let flag = |file: &str| match text(file).as_deref() {
            Some("0") => Some(false),
            Some("1") => Some(true),
            _ => None,
        };
        let number = |file: &str| text(file).and_then(|text| text.parse::<u64>().ok());
        let disk = file_name(&disk_dir);
        Ok(Some(Self {
            name: file_name(&dir),
            layer: layer(&disk_dir, &disk),
            model: text("device/model"),
            logical_block_len: text("queue/logical_block_size").and_then(|text| text.parse().ok()),
            physical_block_len: text("queue/physical_block_size").and_then(|text| text.parse().ok()),
            alignment_offset_bytes: attribute(&dir.join("alignment_offset"))
                .and_then(|text| text.parse().ok()),
            write_cache: match text("queue/write_cache").as_deref() {
                Some("write back") => WriteCache::Back,
                Some("write through") => WriteCache::Through,
                _ => WriteCache::Unknown,
            },
            has_fua: flag("queue/fua"),
            is_rotational: flag("queue/rotational"),
            max_write_streams: number("queue/max_write_streams").and_then(|n| u32::try_from(n).ok()),
            write_stream_granularity_bytes: number("queue/write_stream_granularity"),
            atomic_write_unit_max_bytes: number("queue/atomic_write_unit_max_bytes"),
            disk,
        }))
    }
}

fn layer(disk_dir: &Path, disk: &str) -> DeviceLayer {
    if disk_dir.join("dm").is_dir() {
        let name = attribute(&disk_dir.join("dm/name")).unwrap_or_else(|| disk.to_owned());
        DeviceLayer::Mapped { name }
    } else if disk_dir.join("md").is_dir() {
        DeviceLayer::Mapped { name: disk.to_owned() }
    } else if disk_dir.join("loop").is_dir() || disk.starts_with("loop") {
        DeviceLayer::Loop { backing_file: attribute(&disk_dir.join("loop/backing_file")) }
    } else if disk.starts_with("zram") || disk.starts_with("ram") {
        DeviceLayer::Ram
    } else {
        DeviceLayer::Disk
    }
}

/// A line of text, without blanks around it. `None` if the file is missing or empty.
fn attribute(path: &PathBuf) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

impl fmt::Display for BlockDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.disk)?;
        match &self.layer {
            DeviceLayer::Mapped { name } if *name != self.disk => write!(f, " ({name})")?,
            DeviceLayer::Loop { .. } => f.write_str(" (loop)")?,
            _ => {}
        }
        if let Some(model) = &self.model {
            write!(f, " {model}")?;
        }
        f.write_str(match self.write_cache {
            WriteCache::Back => ", volatile write cache",
            WriteCache::Through => ", no volatile write cache",
            WriteCache::Unknown => ", write cache unknown",
        })?;
        match self.has_fua {
            Some(true) => f.write_str(", FUA")?,
            Some(false) if self.write_cache == WriteCache::Back => f.write_str(", no FUA")?,
            _ => {}
        }
        if let Some(streams @ 1..) = self.max_write_streams {
            write!(f, ", {streams} write streams")?;
            if let Some(granularity @ 1..) = self.write_stream_granularity_bytes {
                write!(f, " of units of {granularity} bytes")?;
            }
        }
        if let (Some(logical), Some(physical)) = (self.logical_block_len, self.physical_block_len)
            && physical > logical
        {
            write!(f, ", sectors of {physical} bytes shown as {logical}")?;
        }
        match self.atomic_write_unit_max_bytes {
            Some(max @ 1..) => write!(f, ", atomic writes of up to {max} bytes"),
            _ => Ok(()),
        }
    }
}
