//! The log device of a volume: where its log is and which device fits there.
//!
//! A volume's log is the directory `log` in its own directory, or, when the node was told another place for logs
//! as the volume was made, a link to one there. The link makes the volume find its log whatever the node is told
//! later.

use crate::error::NodeError;
use redoubt_logdev::block::{BlockLogDevice, BlockLogOptions};
use redoubt_logdev::pmem::{PmemLogDevice, PmemLogOptions};
use redoubt_logdev::probe::{PathProbe, probe};
use redoubt_logdev::{DeviceKind, FileLogDevice, LogDevice, SegmentOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Name of the log, or of the link to it, in a volume's directory.
const LOG: &str = "log";

/// Which log device, and how it writes.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The device; `None`: whatever fits the place best.
    pub device: Option<DeviceKind>,
    /// Directory for the logs of volumes that are made from now on. `None`: in the volume's directory.
    pub place: Option<PathBuf>,
    /// Write unit in bytes; `None`: the device's own.
    pub write_unit_bytes: Option<usize>,
    /// Durable writes under way at once on a block device.
    pub max_in_flight: usize,
    /// Treat any place as persistent memory, even if the kernel does not. For tests: a power cut loses commits.
    pub pretend_pmem: bool,
    /// Length of a segment. Default 64 MiB.
    pub segment_len_bytes: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            device: None,
            place: None,
            write_unit_bytes: None,
            max_in_flight: BlockLogOptions::default().max_in_flight,
            pretend_pmem: false,
            segment_len_bytes: 64 << 20,
        }
    }
}

/// An open log device, and what an operator should know about it.
pub struct Opened {
    /// The device.
    pub device: Box<dyn LogDevice>,
    /// Why this one.
    pub reason: String,
    /// One sentence each.
    pub warnings: Vec<String>,
}

/// Makes the place for the log of a volume that has none yet.
fn create_place(log: &Path, volume_id: &str, options: &LogOptions) -> Result<(), NodeError> {
    let Some(place) = &options.place else {
        return std::fs::create_dir_all(log).map_err(|error| NodeError::io("create", log, error));
    };
    let target = place.join(format!("log-{volume_id}"));
    std::fs::create_dir_all(&target).map_err(|error| NodeError::io("create", &target, error))?;
    let target = std::fs::canonicalize(&target).map_err(|error| NodeError::io("look up", target, error))?;
    std::os::unix::fs::symlink(&target, log).map_err(|error| NodeError::io("create link", log, error))
}

/// Removes a volume's directory, and its log where that is elsewhere. It is no error if there is none.
///
/// # Errors
/// [`NodeError::Io`].
pub fn remove_volume_directory(volume_directory: &Path) -> Result<(), NodeError> {
    let remove = |directory: &Path| match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(NodeError::io("remove", directory, error)),
        _ => Ok(()),
    };
    if let Ok(log) = std::fs::read_link(volume_directory.join(LOG)) {
        remove(&log)?;
    }
    remove(volume_directory)
}

/// Opens the log of the volume in `volume_directory`.
///
/// # Errors
/// [`NodeError::Refused`] if the device asked for does not fit the place; [`NodeError::LogDevice`].
pub fn open(volume_directory: &Path, volume_id: &str, options: &LogOptions) -> Result<Opened, NodeError> {
    let link = volume_directory.join(LOG);
    if link.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        create_place(&link, volume_id, options)?;
    }
    let directory = std::fs::canonicalize(&link).map_err(|error| {
        NodeError::io("find the log directory (is the file system for logs mounted?)", &link, error)
    })?;
    let probe = probe(&directory).map_err(|error| NodeError::Refused(error.to_string()))?;
    let (kind, reason) = match options.device {
        Some(kind) => (kind, "as told".to_owned()),
        None => {
            let choice = probe.choose(options.pretend_pmem);
            (choice.kind, choice.reason)
        }
    };
    let device = open_kind(&directory, kind, &probe, options)?;
    let mut warnings = if kind == DeviceKind::Pmem { Vec::new() } else { probe.warnings() };
    if kind == DeviceKind::Pmem && !probe.map_sync {
        warnings.push(format!(
            "{} only pretends to be persistent memory (--pretend-pmem): a power cut loses acknowledged commits",
            directory.display()
        ));
    }
    Ok(Opened { device, reason, warnings })
}

fn open_kind(
    directory: &Path,
    kind: DeviceKind,
    probe: &PathProbe,
    options: &LogOptions,
) -> Result<Box<dyn LogDevice>, NodeError> {
    let segments =
        SegmentOptions { segment_len_bytes: options.segment_len_bytes, ..SegmentOptions::default() };
    Ok(match kind {
        DeviceKind::File => Box::new(FileLogDevice::open(directory, segments)?),
        DeviceKind::Block => {
            let least = probe.write_unit_len() as usize;
            let write_unit_bytes = options.write_unit_bytes.unwrap_or(least);
            if write_unit_bytes < least {
                return Err(NodeError::Refused(format!(
                    "a write unit of {write_unit_bytes} bytes is too small for {}: the device writes {least}",
                    directory.display()
                )));
            }
            let block = BlockLogOptions {
                segments,
                write_unit_bytes,
                max_in_flight: options.max_in_flight,
                ..BlockLogOptions::default()
            };
            Box::new(BlockLogDevice::open(directory, block)?)
        }
        DeviceKind::Pmem => {
            let defaults = PmemLogOptions::default();
            let pmem = PmemLogOptions {
                segments,
                write_unit_bytes: options.write_unit_bytes.unwrap_or(defaults.write_unit_bytes),
                pretend: options.pretend_pmem,
                ..defaults
            };
            Box::new(PmemLogDevice::open(directory, pmem)?)
        }
    })
}
