//! The log device of a volume: where its log is and which device fits there.
//!
//! On a raw device ([`crate::place`]) the log is always a file device: its segments are files of the device's own
//! directory, durable by a flush of the device.
//!
//! A log with a damaged end is opened for reading, up to the damage ([`LogDamage`]).

use crate::error::NodeError;
use crate::options::NodeOptions;
use crate::place::{Part, Place, Site, find_or_create};
use redoubt_logdev::choice::{choose, warnings, write_unit_len};
use redoubt_logdev::{
    BlockLogDevice, BlockLogOptions, DamagedLog, DeviceKind, FileLogDevice, Held, LogDevice, LogDeviceError,
    SegmentOptions,
};
use redoubt_storage::probe::{DirectIo, PathProbe, probe};
use redoubt_storage::{HeldDescriptors, StorageError, is_out_of_descriptors};
use redoubt_wire::Seq;
use std::path::{Path, PathBuf};

/// Segments that a log on a block device has open for writing, the active one and the next. Each of its writes has a
/// ring of its own, too.
const ACTIVE_SEGMENTS: usize = 2;
/// Longest write unit of a log on a block device.
const MAX_WRITE_UNIT_BYTES: usize = 4096;

/// Which log device, and how it writes.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The device; `None`: the best that the location supports.
    pub device: Option<DeviceKind>,
    /// Directory or raw block device for the logs of new volumes. `None`: in the volume's directory.
    pub place: Option<PathBuf>,
    /// Write unit in bytes; `None`: the device's own.
    pub write_unit_bytes: Option<usize>,
    /// Durable writes under way at once on a block device.
    pub max_in_flight: usize,
    /// Treat any location as persistent memory, even if the kernel does not. For tests: a power cut loses commits.
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

/// An open log device, with warnings for the operator.
pub struct Opened {
    /// The device.
    pub device: Box<dyn LogDevice>,
    /// Location of the log.
    pub place: String,
    /// Reason for the choice of the device.
    pub reason: String,
    /// One sentence each.
    pub warnings: Vec<String>,
    /// Descriptors of the device beside its files.
    pub held: Option<HeldDescriptors>,
    /// The device can only be read, and not to its end.
    pub damage: Option<LogDamage>,
}

/// Damage at the end of a log.
pub struct LogDamage {
    /// Where, and why it is known to be damage.
    pub reason: String,
    /// The log was durable at least up to there.
    pub durable_end: Seq,
}

/// Opens the log of a volume; makes one if there is none. `had`: what it had when it was used last.
///
/// # Errors
/// [`NodeError::Refused`] if the requested device does not fit the location; [`NodeError::LogDevice`].
pub fn open(site: Site<'_>, options: &NodeOptions, had: Held) -> Result<Opened, NodeError> {
    let place = find_or_create(site, Part::Log, options.log.place.as_deref())?;
    let opened = match &place {
        Place::Directory(directory) => open_in_directory(&place, directory, options, had),
        Place::Device(_) => open_on_device(&place, options, had),
    };
    match opened {
        Err(NodeError::LogDevice(error)) if error.damaged_from().is_some() => {
            open_damaged(&place, options, error, had)
        }
        opened => opened,
    }
}

/// Opens a log for reading that a device has refused with `refusal`.
fn open_damaged(
    place: &Place,
    options: &NodeOptions,
    refusal: LogDeviceError,
    had: Held,
) -> Result<Opened, NodeError> {
    let Ok(device) = DamagedLog::open_on(&place.open(options, false)?) else { return Err(refusal.into()) };
    Ok(Opened {
        place: place.to_string(),
        reason: "its end is damaged".to_owned(),
        warnings: vec![format!("{refusal}; the log is read up to {} only", device.end())],
        held: None,
        damage: Some(LogDamage { reason: refusal.to_string(), durable_end: device.proven_end().max(had.to) }),
        device: Box::new(device),
    })
}

fn open_on_device(place: &Place, options: &NodeOptions, had: Held) -> Result<Opened, NodeError> {
    if options.log.device.is_some_and(|kind| kind != DeviceKind::File) {
        return Err(NodeError::Refused(format!("the log on {place} can only be of the kind `file`")));
    }
    let device = FileLogDevice::open_on(place.open(options, false)?, segments(&options.log, had))?;
    Ok(Opened {
        device: Box::new(device),
        place: place.to_string(),
        reason: "it is on a raw device".to_owned(),
        warnings: Vec::new(),
        held: None,
        damage: None,
    })
}

fn segments(options: &LogOptions, had: Held) -> SegmentOptions {
    SegmentOptions { segment_len_bytes: options.segment_len_bytes, held: had, ..SegmentOptions::default() }
}

/// Probes a directory. A lack of descriptors stays one.
fn probe_place(directory: &Path, node: &NodeOptions) -> Result<PathProbe, NodeError> {
    let probed = node.open_files.with_descriptor(|| {
        probe(directory).map_err(|error| match error {
            StorageError::Probe { source, .. } if is_out_of_descriptors(&source) => source,
            error => std::io::Error::other(error),
        })
    });
    probed.map_err(|error| match is_out_of_descriptors(&error) {
        true => NodeError::io("probe", directory, error),
        false => NodeError::Refused(error.to_string()),
    })
}

fn open_in_directory(
    place: &Place,
    directory: &Path,
    node: &NodeOptions,
    had: Held,
) -> Result<Opened, NodeError> {
    let options = &node.log;
    let directory = std::fs::canonicalize(directory)
        .map_err(|error| NodeError::io("find the log directory", directory, error))?;
    let probe = probe_place(&directory, node)?;
    let (kind, reason) = match options.device {
        Some(kind) => (kind, "as told".to_owned()),
        None => {
            let choice = choose(&probe, options.pretend_pmem);
            (choice.kind, choice.reason)
        }
    };
    let device = match kind {
        DeviceKind::File => {
            Box::new(FileLogDevice::open_on(place.open(node, false)?, segments(options, had))?)
        }
        DeviceKind::Block => open_block(place, &directory, &probe, node, had)?,
        DeviceKind::Pmem => open_pmem(&directory, segments(options, had), options)?,
    };
    let mut warnings = if kind == DeviceKind::Pmem { Vec::new() } else { warnings(&probe) };
    if kind == DeviceKind::Pmem && !probe.map_sync {
        warnings.push(format!(
            "{} only pretends to be persistent memory (--pretend-pmem): a power cut loses acknowledged commits",
            directory.display()
        ));
    }
    let held =
        (kind == DeviceKind::Block).then(|| node.open_files.hold(options.max_in_flight + ACTIVE_SEGMENTS));
    let place = directory.display().to_string();
    Ok(Opened { device, place, reason, warnings, held, damage: None })
}

fn open_block(
    place: &Place,
    directory: &Path,
    probe: &PathProbe,
    node: &NodeOptions,
    had: Held,
) -> Result<Box<dyn LogDevice>, NodeError> {
    let options = &node.log;
    if let DirectIo::Unsupported { reason } = &probe.direct_io {
        return Err(NodeError::Refused(format!(
            "a log on a block device is written past the page cache, and {} does not take that: {reason}; start the \
             node with --log-device auto",
            directory.display()
        )));
    }
    let least = write_unit_len(probe) as usize;
    if least > MAX_WRITE_UNIT_BYTES {
        return Err(NodeError::Refused(format!(
            "{} is on a drive that writes {least} bytes at once, and a log on a block device writes at most \
             {MAX_WRITE_UNIT_BYTES}: start the node with --log-device file",
            directory.display()
        )));
    }
    let write_unit_bytes = options.write_unit_bytes.unwrap_or(least);
    if write_unit_bytes < least {
        return Err(NodeError::Refused(format!(
            "a write unit of {write_unit_bytes} bytes is too small for {}: the drive writes {least} at once, and a power \
             cut could take what was acknowledged beside it; leave --log-write-unit away",
            directory.display()
        )));
    }
    let block = BlockLogOptions {
        segments: segments(options, had),
        write_unit_bytes,
        max_in_flight: options.max_in_flight,
        ..BlockLogOptions::default()
    };
    Ok(Box::new(BlockLogDevice::open_in(place.open(node, false)?, directory, block)?))
}

#[cfg(feature = "experimental-devices")]
fn open_pmem(
    directory: &Path,
    segments: SegmentOptions,
    options: &LogOptions,
) -> Result<Box<dyn LogDevice>, NodeError> {
    use redoubt_logdev::pmem::{PmemLogDevice, PmemLogOptions};
    let defaults = PmemLogOptions::default();
    let pmem = PmemLogOptions {
        segments,
        write_unit_bytes: options.write_unit_bytes.unwrap_or(defaults.write_unit_bytes),
        pretend: options.pretend_pmem,
        ..defaults
    };
    Ok(Box::new(PmemLogDevice::open(directory, pmem)?))
}

#[cfg(not(feature = "experimental-devices"))]
fn open_pmem(_: &Path, _: SegmentOptions, _: &LogOptions) -> Result<Box<dyn LogDevice>, NodeError> {
    Err(NodeError::Refused(redoubt_types::needs_experimental("a log device of the kind `pmem`")))
}
