//! A simulated disk for tests: loses, tears and fails what a real one may.
//!
//! A [`SimDisk`] is one directory in memory. It keeps what the process sees (the cache) apart from what would
//! survive a power cut (the durable state), and all choices follow a seed:
//!
//! * A power cut keeps, of each 512-byte sector with unsynced writes, the durable version or any later one;
//!   of a file whose length changed, the durable length or the present one; and of the name changes since the
//!   last directory sync, any number from the first on.
//! * A failed sync makes some of the dirty sectors durable and marks all of them clean, as Linux does: a later
//!   sync succeeds without them, while reads still show them until [`StorageFile::drop_cache`].
//! * A failed write may have been done in part.
//! * Durable writes that are under way ([`SimIo`]) are with the disk: a power cut keeps any of their sectors.
//!
//! Every changing call counts as one operation, so a test can cut the power at each of them in turn.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;

use crate::storage::{StorageDir, StorageFile};

mod durable_io;

pub use durable_io::SimIo;

const SECTOR_LEN: usize = 512;
type Sector = [u8; SECTOR_LEN];

/// A kind of operation that can be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// [`StorageFile::write_at`]
    Write,
    /// [`StorageFile::allocate`]
    Allocate,
    /// [`StorageFile::set_len`]
    SetLen,
    /// [`StorageFile::sync_data`] and [`StorageFile::sync_all`]
    Sync,
    /// [`StorageDir::create`]
    Create,
    /// [`StorageDir::rename`]
    Rename,
    /// [`StorageDir::remove`]
    Remove,
    /// [`StorageDir::sync`]
    SyncNames,
    /// [`DurableFile::start`](crate::block::DurableFile::start)
    StartWrite,
    /// [`DurableIo::finish`](crate::block::DurableIo::finish)
    FinishWrite,
}

/// Makes one operation fail: the first of its kind, after `skip` others, on a file whose name contains `name`.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The kind of operation.
    pub kind: OpKind,
    /// Part of the file's name. Empty for any file.
    pub name: String,
    /// How many such operations succeed first.
    pub skip: u64,
    /// The error that the operation returns.
    pub error: io::ErrorKind,
}

/// A simulated disk with one directory. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

struct State {
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
}

#[derive(Clone)]
enum NameChange {
    Create(String, usize),
    Rename(String, String),
    Remove(String),
}

#[derive(Clone, Default)]
struct File {
    cache: Vec<u8>,
    durable: Vec<u8>,
    /// For each sector written since the last sync, what it held after each write.
    dirty: BTreeMap<usize, Vec<Sector>>,
    /// Durable writes that the disk has, by number.
    under_way: BTreeMap<u64, durable_io::UnderWay>,
}

/// What a call that changes something goes on to do.
#[derive(PartialEq, Eq)]
enum Outcome {
    Done,
    /// Done in part; the power is off or the call fails.
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
    /// An empty disk whose choices follow `seed`.
    pub fn new(seed: u64) -> Self {
        let state = State {
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
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// How many changing operations were done.
    pub fn ops_done(&self) -> u64 {
        self.state.lock().ops_done
    }

    /// Cuts the power in the middle of operation number `op` (from 0). It and all later calls fail.
    pub fn cut_power_at(&self, op: u64) {
        self.state.lock().cut_at = Some(op);
    }

    /// True once the power was cut.
    pub fn is_off(&self) -> bool {
        self.state.lock().is_off
    }

    /// Makes one operation fail.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Limits the sum of all file lengths; what would exceed it fails with `StorageFull`.
    pub fn set_capacity_bytes(&self, capacity_bytes: Option<u64>) {
        self.state.lock().capacity_bytes = capacity_bytes;
    }

    /// Sum of all file lengths.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes()
    }

    /// The disk as the next start of the machine finds it, if the power is cut now (or was).
    pub fn after_power_cut(&self) -> Self {
        let mut state = self.state.lock();
        let State { rng, files, durable_names, name_changes, .. } = &mut *state;
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
        let files = files.iter().map(|file| file.after_power_cut(&mut rng)).collect();
        let next = Self::new(rng.u64(..));
        {
            let mut state = next.state.lock();
            state.files = files;
            state.names = names.clone();
            state.durable_names = names;
        }
        next
    }

    /// Changes bytes behind the process's back, as a failing medium would. Panics if they are not there.
    pub fn damage(&self, name: &str, offset_bytes: usize, change: impl FnOnce(&mut [u8])) {
        let mut state = self.state.lock();
        let file = state.names[name];
        let file = &mut state.files[file];
        change(&mut file.cache[offset_bytes..]);
        file.durable.clone_from(&file.cache);
    }

    /// What a file holds, as the process sees it. Panics if there is no such file.
    pub fn content(&self, name: &str) -> Vec<u8> {
        let state = self.state.lock();
        state.files[state.names[name]].cache.clone()
    }

    /// An independent copy of the disk in its present state, switched on and without faults. Of the durable writes
    /// that were under way, some are done and some never came to the disk.
    pub fn copy(&self) -> Self {
        let state = self.state.lock();
        let copy = Self::new(state.rng.clone().u64(..));
        {
            let mut to = copy.state.lock();
            to.files = state.files.clone();
            let State { rng, files, .. } = &mut *to;
            files.iter_mut().for_each(|file| file.finish_without_process(rng));
            to.names = state.names.clone();
            to.durable_names = state.durable_names.clone();
            to.name_changes = state.name_changes.clone();
        }
        copy
    }
}

impl State {
    fn used_bytes(&self) -> u64 {
        self.names.values().map(|&file| self.files[file].cache.len() as u64).sum()
    }

    /// Counts an operation and says how it goes.
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
        Ok(failing.map_or(Outcome::Done, |n| Outcome::Partly(self.faults.remove(n).error)))
    }

    fn check_on(&self) -> io::Result<()> {
        if self.is_off { Err(off()) } else { Ok(()) }
    }

    /// Fails if a file may not grow to `len` bytes.
    fn check_capacity(&self, file: usize, len: usize) -> io::Result<()> {
        let old = self.files[file].cache.len();
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

impl File {
    fn write(&mut self, at: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = at + bytes.len();
        if self.cache.len() < end {
            self.cache.resize(end, 0);
        }
        self.cache[at..end].copy_from_slice(bytes);
        for sector in at / SECTOR_LEN..end.div_ceil(SECTOR_LEN) {
            let now = sector_of(&self.cache, sector);
            self.dirty.entry(sector).or_default().push(now);
        }
    }

    fn set_len(&mut self, len: usize) {
        self.cache.resize(len, 0);
        // The sectors behind the end are gone; what the last one holds behind the end reads as zero.
        self.dirty.retain(|&sector, _| sector * SECTOR_LEN < len);
    }

    fn sync(&mut self) {
        self.durable.resize(self.cache.len(), 0);
        for (sector, versions) in std::mem::take(&mut self.dirty) {
            if let Some(last) = versions.last() {
                put_sector(&mut self.durable, sector, last);
            }
        }
    }

    /// Some sectors become durable, all become clean.
    fn fail_sync(&mut self, rng: &mut Rng) {
        self.durable.resize(self.cache.len(), 0);
        for (sector, versions) in std::mem::take(&mut self.dirty) {
            if let Some(last) = versions.last().filter(|_| rng.bool()) {
                put_sector(&mut self.durable, sector, last);
            }
        }
    }

    fn drop_cache(&mut self) {
        for sector in 0..self.cache.len().div_ceil(SECTOR_LEN) {
            if !self.dirty.contains_key(&sector) {
                let durable = sector_of(&self.durable, sector);
                put_sector(&mut self.cache, sector, &durable);
            }
        }
    }

    fn after_power_cut(&self, rng: &mut Rng) -> Self {
        let mut after = self.durable.clone();
        if rng.bool() {
            after.resize(self.cache.len(), 0);
        }
        // All kinds of outcome should be common: nothing kept, all kept, a mixture.
        let odds = [0, 1, 50, 99, 100][rng.usize(..5)];
        for (&sector, versions) in &self.dirty {
            if rng.u8(..100) < odds {
                let version = if rng.bool() { versions.len() - 1 } else { rng.usize(..versions.len()) };
                put_sector(&mut after, sector, &versions[version]);
            }
        }
        for write in self.under_way.values() {
            write.put_some_sectors(&mut after, rng);
        }
        Self { cache: after.clone(), durable: after, ..Self::default() }
    }
}

fn sector_of(bytes: &[u8], sector: usize) -> Sector {
    let mut out = [0; SECTOR_LEN];
    let at = sector * SECTOR_LEN;
    if let Some(bytes) = bytes.get(at..bytes.len().min(at + SECTOR_LEN)) {
        out[..bytes.len()].copy_from_slice(bytes);
    }
    out
}

/// Writes the part of a sector that lies inside the file.
fn put_sector(bytes: &mut [u8], sector: usize, content: &Sector) {
    let at = sector * SECTOR_LEN;
    let end = bytes.len().min(at + SECTOR_LEN);
    if let Some(bytes) = bytes.get_mut(at..end) {
        bytes.copy_from_slice(&content[..bytes.len()]);
    }
}

impl StorageDir for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        state.check_on()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = self.state.lock().find(name)?;
        Ok(Arc::new(SimFile { disk: self.clone(), file, name: name.into() }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut state = self.state.lock();
        state.begin(OpKind::Create, name)?.result()?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = state.files.len();
        state.files.push(File::default());
        state.names.insert(name.into(), file);
        state.name_changes.push(NameChange::Create(name.into(), file));
        Ok(Arc::new(SimFile { disk: self.clone(), file, name: name.into() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let outcome = state.begin(OpKind::Rename, from)?;
        let file = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.into(), file);
        state.name_changes.push(NameChange::Rename(from.into(), to.into()));
        outcome.result()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let outcome = state.begin(OpKind::Remove, name)?;
        state.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        state.name_changes.push(NameChange::Remove(name.into()));
        outcome.result()
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(OpKind::SyncNames, "")?.result()?;
        state.durable_names = state.names.clone();
        state.name_changes.clear();
        Ok(())
    }
}

struct SimFile {
    disk: SimDisk,
    file: usize,
    name: String,
}

impl StorageFile for SimFile {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.state.lock();
        state.check_on()?;
        let bytes = state.files[self.file].cache.get(offset_bytes as usize..).unwrap_or_default();
        let n = bytes.len().min(buf.len());
        buf[..n].copy_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let at = offset_bytes as usize;
        let outcome = state.begin(OpKind::Write, &self.name)?;
        // A full disk takes what fits.
        let full = state.check_capacity(self.file, at + bytes.len());
        let len = match (&outcome, &full) {
            (Outcome::Partly(io::ErrorKind::Other), _) | (Outcome::Done, Ok(())) => bytes.len(),
            _ => state.rng.usize(..bytes.len().max(1)),
        };
        let inside = state.files[self.file].cache.len().saturating_sub(at);
        let len = if full.is_err() { len.min(inside) } else { len };
        state.files[self.file].write(at, &bytes[..len]);
        outcome.result()?;
        full
    }

    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let end = (offset_bytes + len_bytes) as usize;
        state.begin(OpKind::Allocate, &self.name)?.result()?;
        state.check_capacity(self.file, end)?;
        let file = &mut state.files[self.file];
        let end = end.max(file.cache.len());
        file.cache.resize(end, 0);
        Ok(())
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.begin(OpKind::SetLen, &self.name)?.result()?;
        state.files[self.file].set_len(len_bytes as usize);
        Ok(())
    }

    fn len_bytes(&self) -> io::Result<u64> {
        let state = self.disk.state.lock();
        state.check_on()?;
        Ok(state.files[self.file].cache.len() as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        match state.begin(OpKind::Sync, &self.name)? {
            Outcome::Done => {
                state.files[self.file].sync();
                Ok(())
            }
            // Power cuts leave the dirty sectors to `after_power_cut`.
            Outcome::Partly(io::ErrorKind::Other) => Err(off()),
            outcome => {
                let State { files, rng, .. } = &mut *state;
                files[self.file].fail_sync(rng);
                outcome.result()
            }
        }
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn drop_cache(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.check_on()?;
        state.files[self.file].drop_cache();
        Ok(())
    }
}
