//! A simulated disk for tests: it loses, tears and fails data as a real disk may.
//!
//! A [`SimDisk`] is one directory in memory. It separates the state that the process sees (the cache) from the state
//! that survives a power cut (the durable state). All choices follow a seed:
//!
//! * A power cut retains, for each sector with unsynced writes, the durable version or any later one. For a file with
//!   a changed length, it retains the durable length or the current one. It retains any number of the name changes
//!   since the last directory sync, from the first on. Sectors have 512 bytes, or 4096 if configured.
//! * An untorn write, where [`SimDisk::set_untorn_limits`] offers it, is retained completely or not at all, in power
//!   cuts, failed writes and failed syncs.
//! * A failed sync makes some of the dirty sectors durable and marks all as clean, as Linux does. A later sync
//!   succeeds without the lost ones, while reads still return them until
//!   [`StorageFile::drop_cache`](crate::StorageFile::drop_cache).
//! * A failed write may have been done in part.
//! * Sectors that the drive has lost ([`SimDisk::lose`]) fail to be read until they are written again.
//! * Durable writes in progress ([`SimIo`]) are with the disk: a power cut retains any of their sectors. The physical
//!   sectors may be longer than a sector ([`SimDisk::set_physical_sector_len_bytes`], a *512e* drive). To change a
//!   part of a physical sector, such a disk writes the whole, and a power cut may leave arbitrary bytes in it. Writes
//!   through the cache consist of whole pages, so they never write parts.
//!
//! Every changing call counts as one operation, so a test can cut the power at each of them. [`SimDisk::subdirectory`]
//! is a second directory on the same disk, for separate files that lose power together.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use fastrand::Rng;
use redoubt_sync::Mutex;

use crate::{Stream, UntornLimits};

mod directory;
mod durable_io;
mod file;

pub use directory::SimDir;
pub use durable_io::SimIo;
use file::File;

const DEFAULT_SECTOR_LEN: usize = 512;

/// A kind of operation that can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// [`StorageFile::read_at`](crate::StorageFile::read_at). It changes nothing, so it is not counted.
    Read,
    /// [`StorageFile::write_at`](crate::StorageFile::write_at)
    Write,
    /// [`StorageFile::allocate`](crate::StorageFile::allocate)
    Allocate,
    /// [`StorageFile::set_len`](crate::StorageFile::set_len)
    SetLen,
    /// [`StorageFile::sync_data`](crate::StorageFile::sync_data) and
    /// [`StorageFile::sync_all`](crate::StorageFile::sync_all)
    Sync,
    /// [`StorageDir::create`](crate::StorageDir::create)
    Create,
    /// [`StorageDir::rename`](crate::StorageDir::rename)
    Rename,
    /// [`StorageDir::remove`](crate::StorageDir::remove)
    Remove,
    /// [`StorageDir::sync`](crate::StorageDir::sync)
    SyncNames,
    /// [`DurableFile::start`](crate::durable_io::DurableFile::start)
    StartWrite,
    /// [`DurableIo::finish`](crate::durable_io::DurableIo::finish)
    FinishWrite,
}

/// Makes one operation fail: the first of its kind, after `skip` others, on a file whose name contains `name`.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The kind of operation.
    pub kind: OpKind,
    /// Part of the file's name. Empty for any file.
    pub name: String,
    /// Number of such operations that succeed first.
    pub skip: u64,
    /// The error that the operation returns.
    pub error: io::ErrorKind,
}

/// A simulated disk with one directory. Clones share the disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<DiskState>>,
}

struct DiskState {
    rng: Rng,
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    name_changes: Vec<NameChange>,
    ops_done: u64,
    cut_at: Option<u64>,
    is_off: bool,
    faults: Vec<Fault>,
    capacity_bytes: Option<u64>,
    sector_len: usize,
    physical_sector_len: usize,
    untorn_limits: Option<UntornLimits>,
    bytes_written: BTreeMap<Stream, u64>,
    bytes_read: u64,
}

#[derive(Clone)]
enum NameChange {
    Create(String, usize),
    Rename(String, String),
    Remove(String),
}

/// Result of a changing call.
#[derive(PartialEq, Eq)]
enum Outcome {
    Done,
    /// Done in part: the power is off or the call fails.
    Partly(io::ErrorKind),
}

impl Outcome {
    fn result(self) -> io::Result<()> {
        match self {
            Self::Done => Ok(()),
            Self::Partly(io::ErrorKind::Other) => Err(off()),
            Self::Partly(kind) => Err(kind.into()),
        }
    }
}

fn off() -> io::Error {
    io::Error::other("the power is off")
}

impl SimDisk {
    /// Creates an empty disk whose choices follow `seed`.
    pub fn new(seed: u64) -> Self {
        let state = DiskState {
            rng: Rng::with_seed(seed),
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            ops_done: 0,
            cut_at: None,
            is_off: false,
            faults: Vec::new(),
            capacity_bytes: None,
            sector_len: DEFAULT_SECTOR_LEN,
            physical_sector_len: DEFAULT_SECTOR_LEN,
            untorn_limits: None,
            bytes_written: BTreeMap::new(),
            bytes_read: 0,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Sets the length of the unit of torn writes: 512 (the default) or 4096 bytes. Before the first file is created.
    pub fn set_sector_len_bytes(&self, sector_len_bytes: usize) {
        let mut state = self.state.lock();
        assert!(state.files.is_empty(), "a disk with files keeps its sector length");
        state.sector_len = sector_len_bytes;
    }

    /// Sets the length of the disk's physical writes: a multiple of the sector. The default is 512 bytes.
    pub fn set_physical_sector_len_bytes(&self, physical_sector_len_bytes: usize) {
        self.state.lock().physical_sector_len = physical_sector_len_bytes;
    }

    /// Offers untorn writes within these limits, or none.
    pub fn set_untorn_limits(&self, limits: Option<UntornLimits>) {
        self.state.lock().untorn_limits = limits;
    }

    /// Number of bytes in successful writes to a stream, since this disk was created or copied.
    pub fn bytes_written(&self, stream: Stream) -> u64 {
        self.state.lock().bytes_written.get(&stream).copied().unwrap_or_default()
    }

    /// Number of bytes in successful reads, since this disk was created or copied.
    pub fn bytes_read(&self) -> u64 {
        self.state.lock().bytes_read
    }

    /// Another directory on the same disk. Its files have names that begin with `name/` for [`Fault::name`],
    /// [`SimDisk::damage`] and [`SimDisk::content`].
    pub fn subdirectory(&self, name: &str) -> SimDir {
        SimDir::new(self, name)
    }

    /// Number of changing operations so far.
    pub fn ops_done(&self) -> u64 {
        self.state.lock().ops_done
    }

    /// Cuts the power during operation number `op` (from 0). This operation and all later calls fail.
    pub fn cut_power_at(&self, op: u64) {
        self.state.lock().cut_at = Some(op);
    }

    /// Whether the power was cut.
    pub fn is_off(&self) -> bool {
        self.state.lock().is_off
    }

    /// Makes one operation fail.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Removes the faults that have not occurred, and returns their number.
    pub fn clear_faults(&self) -> usize {
        std::mem::take(&mut self.state.lock().faults).len()
    }

    /// Limits the sum of all file lengths. Operations that would exceed it fail with `StorageFull`.
    pub fn set_capacity_bytes(&self, capacity_bytes: Option<u64>) {
        self.state.lock().capacity_bytes = capacity_bytes;
    }

    /// Sum of all file lengths.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes()
    }

    /// The disk at the next start of the machine, if the power is cut now (or was cut before).
    pub fn after_power_cut(&self) -> Self {
        let mut state = self.state.lock();
        let (sector_len, untorn_limits) = (state.sector_len, state.untorn_limits);
        let physical_sector_len = state.physical_sector_len;
        let DiskState { rng, files, durable_names, name_changes, .. } = &mut *state;
        let mut rng = rng.fork();
        let mut names = durable_names.clone();
        let kept = rng.usize(..=name_changes.len());
        for change in &name_changes[..kept] {
            match change {
                NameChange::Create(name, file) => {
                    names.insert(name.clone(), *file);
                }
                NameChange::Rename(from, to) => {
                    if let Some(file) = names.remove(from) {
                        names.insert(to.clone(), file);
                    }
                }
                NameChange::Remove(name) => {
                    names.remove(name);
                }
            }
        }
        let files = files.iter().map(|file| file.after_power_cut(physical_sector_len, &mut rng)).collect();
        let next = Self::new(rng.u64(..));
        {
            let mut state = next.state.lock();
            state.files = files;
            state.names = names.clone();
            state.durable_names = names;
            state.sector_len = sector_len;
            state.physical_sector_len = physical_sector_len;
            state.untorn_limits = untorn_limits;
        }
        next
    }

    /// Changes bytes without the process, like a failing medium. Panics if they do not exist.
    pub fn damage(&self, name: &str, offset_bytes: usize, change: impl FnOnce(&mut [u8])) {
        let mut state = self.state.lock();
        let file = state.names[name];
        state.files[file].damage(offset_bytes, change);
    }

    /// Changes bytes in memory only, until [`StorageFile::drop_cache`](crate::StorageFile::drop_cache). Panics if they do
    /// not exist.
    pub fn damage_memory(&self, name: &str, offset_bytes: usize, change: impl FnOnce(&mut [u8])) {
        let mut state = self.state.lock();
        let file = state.names[name];
        state.files[file].damage_memory(offset_bytes, change);
    }

    /// Reads of these bytes fail with `EIO` until they are written again, as those of sectors that a drive has lost.
    /// Panics if there is no such file.
    pub fn lose(&self, name: &str, range: Range<usize>) {
        let mut state = self.state.lock();
        let file = state.names[name];
        state.files[file].lose(range);
    }

    /// Content of a file, as the process sees it. Panics if there is no such file.
    pub fn content(&self, name: &str) -> Vec<u8> {
        let state = self.state.lock();
        state.files[state.names[name]].content().to_vec()
    }

    /// An independent copy of the disk in its current state, switched on and without faults. Of the durable writes in
    /// progress, some are done and some never reached the disk.
    pub fn copy(&self) -> Self {
        let state = self.state.lock();
        let copy = Self::new(state.rng.clone().u64(..));
        {
            let mut to = copy.state.lock();
            to.files = state.files.clone();
            let DiskState { rng, files, .. } = &mut *to;
            files.iter_mut().for_each(|file| file.finish_without_process(rng));
            to.names = state.names.clone();
            to.durable_names = state.durable_names.clone();
            to.name_changes = state.name_changes.clone();
            to.sector_len = state.sector_len;
            to.physical_sector_len = state.physical_sector_len;
            to.untorn_limits = state.untorn_limits;
        }
        copy
    }
}

impl DiskState {
    fn used_bytes(&self) -> u64 {
        self.names.values().map(|&file| self.files[file].len() as u64).sum()
    }

    /// Counts an operation and determines its result.
    fn begin(&mut self, kind: OpKind, name: &str) -> io::Result<Outcome> {
        if self.is_off {
            return Err(off());
        }
        let op = self.ops_done;
        self.ops_done += 1;
        if self.cut_at == Some(op) {
            self.is_off = true;
            return Ok(Outcome::Partly(io::ErrorKind::Other));
        }
        Ok(self.take_fault(kind, name).map_or(Outcome::Done, Outcome::Partly))
    }

    /// The error that an operation has to return.
    fn take_fault(&mut self, kind: OpKind, name: &str) -> Option<io::ErrorKind> {
        let mut failing = None;
        for (n, fault) in self.faults.iter_mut().enumerate() {
            if fault.kind != kind || !name.contains(&fault.name) {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
            } else {
                failing = Some(n);
                break;
            }
        }
        failing.map(|n| self.faults.remove(n).error)
    }

    fn check_on(&self) -> io::Result<()> {
        if self.is_off { Err(off()) } else { Ok(()) }
    }

    /// Fails if the file must not grow to `len` bytes.
    fn check_capacity(&self, file: usize, len: usize) -> io::Result<()> {
        let old = self.files[file].len();
        let more = len.saturating_sub(old) as u64;
        match self.capacity_bytes {
            Some(capacity) if more > 0 && self.used_bytes() + more > capacity => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.check_on()?;
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests;
