//! The disk under test: an image file as a loop device with an ext4 file system.
//!
//! The device has sectors of 4096 bytes: that is the physical block of common drives, by which servers choose the unit
//! of their log writes. It does direct I/O on the image where the file system below offers that.
//!
//! Invariant: nothing but what the caller starts writes to the device. The file system's tables are initialised when it
//! is made, not later in the background.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use redoubt_workload::error::{Error, Result};
use redoubt_workload::process::{poll_until, run_to_end};

use super::guard::Guard;

/// Length of a sector as the kernel counts them, in bytes.
pub const SECTOR_LEN_BYTES: u64 = 512;
/// Length of a block of the file system, in bytes.
const BLOCK_LEN_BYTES: u64 = 4096;
/// How long requests may be in flight after everything has been synced.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How the file system protects file contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalMode {
    /// Metadata only; contents before the metadata that names them. The default.
    Ordered,
    /// Contents too.
    Data,
}

impl JournalMode {
    /// The mount option.
    pub fn mount_option(self) -> &'static str {
        match self {
            Self::Ordered => "data=ordered",
            Self::Data => "data=journal",
        }
    }
}

/// Counters of the device since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Sectors of 512 bytes written.
    pub written_sectors: u64,
    /// Sectors of 512 bytes discarded.
    pub discarded_sectors: u64,
}

/// A mounted disk. Dropping unmounts it and removes it.
#[derive(Debug)]
pub struct Disk {
    point: PathBuf,
    device: PathBuf,
    len_sectors: u64,
    mode: JournalMode,
    journal: Vec<Range<u64>>,
    // In this order: unmounted and detached, then the mount point and the image are removed.
    guard: Guard,
    _point_directory: tempfile::TempDir,
    _image_directory: tempfile::TempDir,
}

impl Disk {
    /// Makes a disk of `len_mib` with a journal of `journal_mib` inside it, its image in a directory inside `below`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where there are no loop devices, [`Error::Command`] when a step fails.
    pub fn create(below: &Path, len_mib: u64, journal_mib: u64, mode: JournalMode) -> Result<Self> {
        let directory = |below: &Path| {
            tempfile::Builder::new()
                .prefix("rdtf-")
                .tempdir_in(below)
                .map_err(Error::io_at("make a directory in", below))
        };
        let image_directory = directory(below)?;
        // A socket is made on the disk, and its path must be short.
        let point_directory = directory(&std::env::temp_dir())?;
        let image = image_directory.path().join("image");
        let len_bytes = len_mib << 20;
        File::create(&image)
            .and_then(|file| file.set_len(len_bytes))
            .map_err(Error::io_at("create", &image))?;
        let point = point_directory.path().join("disk");
        std::fs::create_dir(&point).map_err(Error::io_at("create", &point))?;
        let device = attach(&image)?;
        let guard = Guard::disk(&point, &device, image_directory.path())?;
        prepare(&device, journal_mib)?;
        let journal = journal_sectors(&device)?;
        run_to_end(Command::new("mount").args(["-o", mode.mount_option()]).arg(&device).arg(&point))?;
        Ok(Self {
            point,
            device,
            len_sectors: len_bytes / SECTOR_LEN_BYTES,
            mode,
            journal,
            guard,
            _point_directory: point_directory,
            _image_directory: image_directory,
        })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// Its length in sectors of 512 bytes.
    pub fn len_sectors(&self) -> u64 {
        self.len_sectors
    }

    /// The journal mode of its file system.
    pub fn mode(&self) -> JournalMode {
        self.mode
    }

    /// The sectors of the file system's journal.
    pub fn journal(&self) -> &[Range<u64>] {
        &self.journal
    }

    /// The device's number as the kernel's trace events have it: major << 20 | minor.
    ///
    /// # Errors
    /// [`Error::Parse`] when the kernel describes it in an unknown way.
    pub fn device_number(&self) -> Result<u64> {
        let text = self.read_attribute("dev")?;
        let numbers = text.trim().split_once(':').and_then(|(major, minor)| {
            let (major, minor): (u64, u64) = (major.parse().ok()?, minor.parse().ok()?);
            Some(major << 20 | minor)
        });
        numbers.ok_or_else(|| Error::Parse { what: "a device number".into(), detail: text })
    }

    /// Processes that use the disk, to be ended if this process is killed. Drop the answer before they are stopped.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn users(&self, process_ids: &[u32]) -> Result<Users<'_>> {
        self.guard.set_processes(process_ids)?;
        Ok(Users { guard: &self.guard })
    }

    /// Brings everything that is written so far to the device and waits until it is idle.
    ///
    /// # Errors
    /// [`Error::Command`] or [`Error::Deadline`].
    pub fn settle(&self) -> Result<DeviceCounters> {
        run_to_end(Command::new("sync").arg("--file-system").arg(&self.point))?;
        self.idle_counters()
    }

    /// Unmounts it, and returns what the device had done when it was idle again.
    ///
    /// # Errors
    /// [`Error::Command`] when something still uses it, or [`Error::Deadline`].
    pub fn unmount(&self) -> Result<DeviceCounters> {
        run_to_end(Command::new("umount").arg(&self.point))?;
        self.idle_counters()
    }

    fn idle_counters(&self) -> Result<DeviceCounters> {
        poll_until("the end of all requests to the loop device", IDLE_TIMEOUT, || {
            let text = self.read_attribute("stat")?;
            let (counters, in_flight) = parse_stat(&text)?;
            Ok((in_flight == 0).then_some(counters))
        })
    }

    fn read_attribute(&self, name: &str) -> Result<String> {
        let path = attributes(&self.device).join(name);
        std::fs::read_to_string(&path).map_err(Error::io_at("read", &path))
    }
}

/// Processes that must not outlive this one.
pub(super) struct Users<'a> {
    guard: &'a Guard,
}

impl Drop for Users<'_> {
    fn drop(&mut self) {
        // Fails only when the shell is gone, and then nothing is ended.
        let _ = self.guard.set_processes(&[]);
    }
}

/// The directory of a block device in sysfs.
fn attributes(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}

/// A loop device on the image, with direct I/O where that is possible.
fn attach(image: &Path) -> Result<PathBuf> {
    let mut last = None;
    for direct_io in ["on", "off"] {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", "--sector-size", "4096"]).arg(format!("--direct-io={direct_io}"));
        match run_to_end(command.arg(image)) {
            Ok(device) => return Ok(PathBuf::from(device.trim())),
            Err(error) => last = Some(error),
        }
    }
    Err(Error::Unavailable(format!(
        "no loop device can be made: {}",
        last.map(|error| error.to_string()).unwrap_or_default()
    )))
}

fn prepare(device: &Path, journal_mib: u64) -> Result<()> {
    // Servers ask whether a disk rotates; drives whose wear matters do not.
    let rotational = attributes(device).join("queue/rotational");
    std::fs::write(&rotational, "0").map_err(Error::io_at("write", &rotational))?;
    let mut command = Command::new("mkfs.ext4");
    command.args(["-q", "-F", "-m0", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]);
    command.arg("-J").arg(format!("size={journal_mib}")).arg(device);
    run_to_end(&mut command).map(drop)
}

/// Where the journal is: the extents of inode 8, in sectors.
fn journal_sectors(device: &Path) -> Result<Vec<Range<u64>>> {
    let text = run_to_end(Command::new("debugfs").args(["-R", "stat <8>"]).arg(device))?;
    parse_extents(&text)
}

/// The extents in what `debugfs` says of an inode: after `EXTENTS:`, `(first-last):first-last` in blocks.
pub(super) fn parse_extents(text: &str) -> Result<Vec<Range<u64>>> {
    let fault = |detail: &str| Error::Parse {
        what: "the extents of the file system's journal (debugfs)".into(),
        detail: format!("{detail} in {text:?}"),
    };
    let (_, list) = text.split_once("EXTENTS:").ok_or_else(|| fault("no EXTENTS"))?;
    let mut extents = Vec::new();
    for extent in list.split(',').map(str::trim).filter(|extent| !extent.is_empty()) {
        let (logical, physical) = extent.split_once("):").ok_or_else(|| fault(extent))?;
        if logical.contains("ETB") {
            // A block of the extent tree: metadata.
            continue;
        }
        let (first, last) = physical.split_once('-').unwrap_or((physical, physical));
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| fault(extent));
        let sectors_per_block = BLOCK_LEN_BYTES / SECTOR_LEN_BYTES;
        extents.push(number(first)? * sectors_per_block..(number(last)? + 1) * sectors_per_block);
    }
    if extents.is_empty() {
        return Err(fault("no extent"));
    }
    Ok(extents)
}

/// Counters, and requests in flight, in the `stat` of a block device.
pub(super) fn parse_stat(text: &str) -> Result<(DeviceCounters, u64)> {
    let fields: Vec<u64> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    match (fields.get(6), fields.get(8), fields.get(13)) {
        (Some(written), Some(in_flight), Some(discarded)) => {
            Ok((DeviceCounters { written_sectors: *written, discarded_sectors: *discarded }, *in_flight))
        }
        _ => Err(Error::Parse { what: "stat of a block device".into(), detail: text.to_owned() }),
    }
}
