//! Reads what sysfs says about a block device.
//!
//! `<sys>/dev/block/<major>:<minor>` is a link to the device's directory. A partition's directory has a file
//! `partition` and lies in that of its disk; only a disk has `queue/`, `device/`, `dm/` or `loop/`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What the kernel takes the device's write cache for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum WriteCache {
    /// Volatile: a completed write is durable only after a flush.
    Back,
    /// None, or one that survives a power cut: a completed write is durable.
    Through,
    /// The kernel does not say.
    #[default]
    Unknown,
}

/// What the device is made of.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum DeviceLayer {
    /// A disk, physical or of the hypervisor.
    #[default]
    Disk,
    /// A device of the device mapper or of the RAID driver. What is below is not looked at: the kernel passes
    /// the strictest settings up.
    Mapped {
        /// Name of the mapping, or the device's own.
        name: String,
    },
    /// A file as a device.
    Loop {
        /// The file.
        backing_file: Option<String>,
    },
    /// Memory as a device.
    Ram,
}

/// A block device as the kernel describes it. `None` where it says nothing.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BlockDevice {
    /// Kernel name of the device under the file system, such as `nvme0n1p2`.
    pub name: String,
    /// Kernel name of the whole disk, such as `nvme0n1`.
    pub disk: String,
    /// Disk, mapping, loop or memory.
    pub layer: DeviceLayer,
    /// The maker's name of the drive.
    pub model: Option<String>,
    /// Smallest write that the device takes, in bytes.
    pub logical_block_len: Option<u32>,
    /// What the drive writes at once, in bytes. Of a shorter write it reads the rest and writes that again, with all
    /// that was acknowledged there (a *512e* drive: logical blocks of 512 bytes, physical ones of 4096).
    pub physical_block_len: Option<u32>,
    /// How far the device begins from a physical block of its drive, in bytes; not 0: a partition that is not aligned.
    /// -1: the kernel knows only that it is not.
    pub alignment_offset_bytes: Option<i64>,
    /// The write cache.
    pub write_cache: WriteCache,
    /// The device makes single writes durable by itself (Force Unit Access).
    pub has_fua: Option<bool>,
    /// A rotating disk. Hypervisors often say yes for theirs.
    pub is_rotational: Option<bool>,
    /// Write streams that the disk has (NVMe FDP). 0: it has none. Only the whole disk takes streams, no partition.
    pub max_write_streams: Option<u32>,
    /// How much of a stream's data the disk keeps together, in bytes: the length of an erase unit. 0: not known.
    pub write_stream_granularity_bytes: Option<u64>,
    /// Longest untorn write that the disk takes, in bytes. 0: it takes none.
    pub atomic_write_unit_max_bytes: Option<u64>,
}

impl BlockDevice {
    /// Reads about device `major:minor` below `sys`, normally `/sys`. `None` if there is no such device there.
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

/// One line of text, without blanks around it. `None` if it is not there or empty.
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
