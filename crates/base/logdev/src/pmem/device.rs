//! [`PmemLogDevice`]: the log device on persistent memory, as the outside sees it.
//!
//! Owns the choice of what a directory is good for, the mapping of its segments, and the pinning of threads that
//! append. The way of a record is in [`log`](super::log).

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redoubt_persistent_memory::{Mapping, Persistence};
use redoubt_storage::StorageFile;

use super::log::PmemLog;
use super::numa::{NearCpus, NumaNode, Sysfs};
use crate::error::LogDeviceError;
use crate::segments::{Media, SegmentOptions, open_dir};
use crate::{DeviceInfo, DeviceKind, LogDevice, LogDeviceStats, Seq};

/// The write units that a device may have, in bytes.
const WRITE_UNITS: [usize; 3] = [64, 256, 512];
/// Not a segment's name, so that one left by a crash does no harm.
const PROBE_NAME: &str = "mapping.probe";
const PROBE_LEN_BYTES: u64 = 4096;
/// What is set up at once of a segment.
const PREFAULT_STEP_BYTES: u64 = 1 << 20;

/// How a [`PmemLogDevice`] is set up.
#[derive(Clone, Debug)]
pub struct PmemLogOptions {
    /// The segment files.
    pub segments: SegmentOptions,
    /// Records start at multiples of this many bytes and are padded to one: 64, a cache line; 256, the unit of
    /// some media, which otherwise read and write again what is beside a record; or 512.
    pub write_unit_bytes: usize,
    /// Go on where the kernel does not grant durable stores. For tests: nothing survives a power cut then.
    pub pretend: bool,
    /// Keep threads that append on the device's NUMA node, on machines with several.
    pub pin_writers: bool,
}

impl Default for PmemLogOptions {
    fn default() -> Self {
        Self { segments: SegmentOptions::default(), write_unit_bytes: 64, pretend: false, pin_writers: true }
    }
}

/// A log device on persistent memory. Appends are durable when they return, and run beside each other.
pub struct PmemLogDevice {
    log: PmemLog<MappedSegments>,
    write_unit_bytes: usize,
    persistence: Persistence,
    instructions: String,
    node: Option<NumaNode>,
    near: Option<NearCpus>,
}

/// Maps the segments of a directory.
struct MappedSegments {
    dir: PathBuf,
    pretend: bool,
}

impl MappedSegments {
    fn map(&self, name: &str, len_bytes: u64) -> Result<Mapping, LogDeviceError> {
        let file = File::options().read(true).write(true).open(self.dir.join(name));
        let file = file.map_err(LogDeviceError::io("open", name))?;
        Mapping::map(&file, len_bytes, self.pretend).map_err(|source| LogDeviceError::NotMappable {
            file: self.dir.join(name).display().to_string(),
            source,
        })
    }

    /// Tries a mapping before anything is changed in the directory.
    fn probe(&self) -> Result<(Persistence, String), LogDeviceError> {
        let path = self.dir.join(PROBE_NAME);
        let file = File::options().write(true).create(true).truncate(true).open(&path);
        file.and_then(|file| file.set_len(PROBE_LEN_BYTES))
            .map_err(LogDeviceError::io("create", PROBE_NAME))?;
        let mapped = self.map(PROBE_NAME, PROBE_LEN_BYTES);
        std::fs::remove_file(&path).map_err(LogDeviceError::io("remove", PROBE_NAME))?;
        mapped.map(|mapping| (mapping.persistence(), mapping.instructions()))
    }
}

impl Media for MappedSegments {
    type Handle = Arc<Mapping>;
    // A mapping has no descriptor, and shows what the segment's header is.
    const OPENS_SPARES: bool = false;

    fn open(&self, _file: &Arc<dyn StorageFile>, name: &str, len_bytes: u64) -> io::Result<Arc<Mapping>> {
        let mapping = Arc::new(self.map(name, len_bytes).map_err(io::Error::other)?);
        prefault(&mapping);
        Ok(mapping)
    }
}

/// Sets up the first pages of a segment now, and the others beside the appends that wait for the segment: all of
/// them take some milliseconds.
fn prefault(mapping: &Arc<Mapping>) {
    mapping.prefault_range(0, PREFAULT_STEP_BYTES);
    if mapping.len_bytes() <= PREFAULT_STEP_BYTES {
        return;
    }
    let mapping = mapping.clone();
    let rest = move || {
        let mut at = PREFAULT_STEP_BYTES;
        // Once nobody else has it there is nothing to set up for.
        while at < mapping.len_bytes() && Arc::strong_count(&mapping) > 1 {
            mapping.prefault_range(at, PREFAULT_STEP_BYTES);
            at += PREFAULT_STEP_BYTES;
        }
    };
    // Without a thread the first store to each page sets it up.
    let _ = redoubt_sync::thread::Builder::new().name("log-prefault".into()).spawn(rest);
}

impl PmemLogDevice {
    /// Opens the log in `dir`, or creates one there, and finds its end.
    ///
    /// Reads and checks the records at the end; those before are checked when somebody reads them. When it returns, all
    /// of them are durable.
    ///
    /// # Errors
    /// [`LogDeviceError::NotMappable`] if the kernel does not grant durable stores in `dir` and `pretend` is not
    /// set; otherwise as [`crate::FileLogDevice::open`].
    pub fn open(dir: &Path, options: PmemLogOptions) -> Result<Self, LogDeviceError> {
        let PmemLogOptions { segments, write_unit_bytes, pretend, pin_writers } = options;
        if !WRITE_UNITS.contains(&write_unit_bytes) {
            return Err(LogDeviceError::InvalidOption {
                option: "write_unit_bytes",
                reason: format!("{write_unit_bytes} is none of 64, 256 and 512"),
            });
        }
        let storage = open_dir(dir)?;
        let shown = dir.display().to_string();
        let dir = std::fs::canonicalize(dir).map_err(LogDeviceError::io("look up", &shown))?;
        let sysfs = Sysfs::default();
        // Not knowing where the device is costs speed and nothing else.
        let node = sysfs.path_node(&dir).unwrap_or(None);
        let near = node.filter(|_| pin_writers).and_then(|node| NearCpus::of(node, &sysfs.nodes().ok()?));
        let media = MappedSegments { dir, pretend };
        let (persistence, instructions) = media.probe()?;
        let log = PmemLog::open(storage, segments, write_unit_bytes, media)?;
        Ok(Self { log, write_unit_bytes, persistence, instructions, node, near })
    }

    /// The basis of durability.
    pub fn persistence(&self) -> Persistence {
        self.persistence
    }

    /// Makes spare segments until there are as many as the options ask for; returns how many were made.
    /// May run beside appends.
    ///
    /// # Errors
    /// [`LogDeviceError::NoSpace`] or an I/O failure. Neither poisons the device, since no record is touched.
    pub fn prepare_spare_segments(&self) -> Result<usize, LogDeviceError> {
        self.log.segments.prepare_spare_segments()
    }

    /// Keeps the calling thread near the device, once.
    fn pin_writer(&self) {
        let Some(near) = &self.near else { return };
        thread_local! {
            static PINNED: Cell<Option<NumaNode>> = const { Cell::new(None) };
        }
        if PINNED.get() != Some(near.node()) {
            PINNED.set(Some(near.node()));
            // A thread that cannot be pinned writes from where it is.
            let _ = near.pin_current_thread();
        }
    }
}

impl Drop for PmemLogDevice {
    /// Leaves a mark, so that damage to the last record is noticed. Best effort.
    fn drop(&mut self) {
        self.log.segments.close();
    }
}

impl LogDevice for PmemLogDevice {
    fn append(&self, record: &[u8]) -> Result<Seq, LogDeviceError> {
        self.pin_writer();
        self.log.append(record).map(Seq)
    }

    fn sync(&self) -> Result<Seq, LogDeviceError> {
        self.log.segments.poison.check()?;
        self.log.wait(self.log.segments.end_seq()).map(Seq)
    }

    fn durable_end(&self) -> Seq {
        Seq(self.log.segments.durable_seq())
    }

    fn wait_durable(&self, seq: Seq) -> Result<Seq, LogDeviceError> {
        self.log.segments.poison.check()?;
        if seq.0 > self.log.segments.end_seq() {
            return Err(self.out_of_range(seq, 0));
        }
        self.log.wait(seq.0).map(Seq)
    }

    fn is_pipelined(&self) -> bool {
        true
    }

    fn info(&self) -> DeviceInfo {
        let persistence = match self.persistence {
            Persistence::MapSync => "MAP_SYNC",
            Persistence::Pretended => "pretended persistence: NOTHING SURVIVES A POWER CUT",
        };
        let node = self.node.map_or(String::new(), |node| format!(", NUMA node {node}"));
        DeviceInfo {
            kind: DeviceKind::Pmem,
            write_unit_bytes: self.write_unit_bytes,
            // Each thread that appends writes for itself.
            max_in_flight: std::thread::available_parallelism().map_or(1, usize::from),
            detail: format!("{persistence}, {}{node}", self.instructions),
        }
    }

    fn start(&self) -> Seq {
        Seq(self.log.segments.start_seq())
    }

    /// The end of what is durable: what is after it belongs to appends that have not returned.
    fn end(&self) -> Seq {
        self.durable_end()
    }

    fn read_at(&self, seq: Seq, buf: &mut [u8]) -> Result<(), LogDeviceError> {
        self.check_durable(seq, buf.len())?;
        self.log.segments.read_at(seq, buf)
    }

    /// What is after the durable end may still be written, so it cannot be given up.
    fn discard_before(&self, seq: Seq) -> Result<(), LogDeviceError> {
        self.check_durable(seq, 0)?;
        self.log.segments.discard_before(seq)
    }

    fn stats(&self) -> LogDeviceStats {
        self.log.segments.stats()
    }
}

impl PmemLogDevice {
    fn check_durable(&self, seq: Seq, len: usize) -> Result<(), LogDeviceError> {
        let end = seq.0.checked_add(len as u64);
        if end.is_some_and(|end| end <= self.durable_end().0) {
            return Ok(());
        }
        self.log.segments.poison.check()?;
        Err(self.out_of_range(seq, len))
    }

    fn out_of_range(&self, seq: Seq, len_bytes: usize) -> LogDeviceError {
        LogDeviceError::OutOfRange { seq, len_bytes, start: self.start(), end: self.end() }
    }
}

#[cfg(test)]
mod tests;
