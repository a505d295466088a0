//! [`ModelDisk`]: a directory of files in a modelled persistent memory, as a DAX file system shows them.
//!
//! Files can be written through the file system seam and through mappings; both see the same bytes. What the file
//! system writes is persisted by a sync of the file, what a mapping stores by its fences, and neither makes up for
//! the other. Name changes since the last directory sync survive a power cut up to some point in their order, as
//! on `redoubt_storage::sim::SimDisk`.
//!
//! Each call of the seam that changes something is one step; a write that the power cut meets may be there in any
//! part, like every write that was not synced.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fastrand::Rng;
use redoubt_storage::{StorageDir, StorageFile};
use redoubt_sync::Mutex;

use redoubt_persistent_memory::PmemError;
use redoubt_persistent_memory::memory::{Memory, store_durably};
use redoubt_persistent_memory::model::{Keep, PowerSwitch, StoreModel, ThreadMemory};

/// A disk with one directory. Clones are the same disk.
#[derive(Clone)]
pub struct ModelDisk {
    switch: Arc<PowerSwitch>,
    thread: Arc<AtomicU32>,
    state: Arc<Mutex<Names>>,
}

#[derive(Default)]
struct Names {
    files: Vec<StoreModel>,
    names: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
    changes: Vec<NameChange>,
}

enum NameChange {
    Create(String, usize),
    Rename(String, String),
    Remove(String),
}

fn off() -> io::Error {
    io::Error::other("the power is off")
}

impl Default for ModelDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self { switch: Arc::default(), thread: Arc::default(), state: Arc::default() }
    }

    /// The switch that counts the steps of this disk.
    pub fn switch(&self) -> &PowerSwitch {
        &self.switch
    }

    /// Says which simulated thread runs from now on.
    pub fn set_thread(&self, thread: u32) {
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// Maps a file. The mapping's stores and fences are those of the thread that runs.
    ///
    /// # Errors
    /// `NotFound`
    pub fn map(&self, name: &str) -> io::Result<ModelMapping> {
        let state = self.state.lock();
        let file = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(ModelMapping {
            model: state.files[file].clone(),
            thread: self.thread.clone(),
            without_fence: false,
        })
    }

    /// The disk as the next start of the machine finds it, if the power is cut now (or was).
    pub fn after_power_cut(&self, keep: Keep) -> Self {
        let state = self.state.lock();
        let kept_changes = match keep {
            Keep::Nothing => 0,
            Keep::Everything => state.changes.len(),
            Keep::Some(seed) => Rng::with_seed(!seed).usize(..=state.changes.len()),
        };
        let mut names = state.durable.clone();
        for change in &state.changes[..kept_changes] {
            change.apply(&mut names);
        }
        let mut number = 0_u64;
        let images = state.files.iter().map(|file| {
            number += 1;
            match keep {
                Keep::Some(seed) => file.after_power_cut(Keep::Some(seed.wrapping_add(number))),
                keep => file.after_power_cut(keep),
            }
        });
        Self::from_images(images.collect(), names)
    }

    /// The disk as the next process finds it, if this one ends now and the machine continues: every store is seen,
    /// and nothing more is persisted.
    pub fn after_process_end(&self) -> Self {
        let state = self.state.lock();
        let next = Self::new();
        {
            let mut to = next.state.lock();
            to.names = state.names.clone();
            to.durable = state.durable.clone();
            to.changes = state.changes.iter().map(NameChange::copy).collect();
            to.files = state.files.iter().map(|file| file.after_process_end(next.switch.clone())).collect();
        }
        next
    }

    fn from_images(images: Vec<Vec<u8>>, names: BTreeMap<String, usize>) -> Self {
        let disk = Self::new();
        {
            let mut state = disk.state.lock();
            state.files =
                images.into_iter().map(|image| StoreModel::new(image, disk.switch.clone())).collect();
            state.names = names.clone();
            state.durable = names;
        }
        disk
    }

    fn step(&self) -> io::Result<()> {
        if self.switch.step() { Ok(()) } else { Err(off()) }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Create(name, file) => {
                names.insert(name.clone(), *file);
            }
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }

    fn copy(&self) -> Self {
        match self {
            Self::Create(name, file) => Self::Create(name.clone(), *file),
            Self::Rename(from, to) => Self::Rename(from.clone(), to.clone()),
            Self::Remove(name) => Self::Remove(name.clone()),
        }
    }
}

impl Names {
    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }
}

impl StorageDir for ModelDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state.lock().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let state = self.state.lock();
        let file = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(ModelFile { disk: self.clone(), model: state.files[file].clone() }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.step()?;
        let mut state = self.state.lock();
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let model = StoreModel::new(Vec::new(), self.switch.clone());
        let file = state.files.len();
        state.files.push(model.clone());
        state.change(NameChange::Create(name.into(), file));
        Ok(Arc::new(ModelFile { disk: self.clone(), model }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.step()?;
        self.state.lock().change(NameChange::Rename(from.into(), to.into()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.step()?;
        self.state.lock().change(NameChange::Remove(name.into()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.step()?;
        let mut state = self.state.lock();
        state.durable = state.names.clone();
        state.changes.clear();
        Ok(())
    }
}

struct ModelFile {
    disk: ModelDisk,
    model: StoreModel,
}

impl StorageFile for ModelFile {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.model.read_at(offset_bytes as usize, buf))
    }

    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        if self.disk.switch.is_off() {
            return Err(off());
        }
        self.model.write_by_kernel(offset_bytes as usize, bytes);
        // The cut comes after it: what a cut in the middle leaves is among what it leaves here.
        self.disk.step()
    }

    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.disk.step()?;
        self.model.grow((offset_bytes + len_bytes) as usize);
        Ok(())
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.disk.step()?;
        self.model.resize(len_bytes as usize);
        Ok(())
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.model.len_bytes() as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.step()?;
        self.model.sync_by_kernel();
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A mapped file of a [`ModelDisk`].
pub struct ModelMapping {
    model: StoreModel,
    thread: Arc<AtomicU32>,
    without_fence: bool,
}

impl ModelMapping {
    /// Makes its fences do nothing: a fault that tests must find.
    pub fn without_fence(mut self) -> Self {
        self.without_fence = true;
        self
    }

    fn memory(&self) -> ThreadMemory {
        self.model.as_thread(self.thread.load(Ordering::Relaxed))
    }

    fn check_on(&self) -> Result<(), PmemError> {
        if self.model.switch().is_off() { Err(PmemError::Poisoned) } else { Ok(()) }
    }

    /// As [`redoubt_persistent_memory::Mapping::write`]; fails once the power is off.
    ///
    /// # Errors
    /// [`PmemError::Poisoned`]
    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), PmemError> {
        store_durably(&self.memory(), offset_bytes as usize, bytes);
        self.check_on()
    }

    /// As [`redoubt_persistent_memory::Mapping::fence`]; fails once the power is off.
    ///
    /// # Errors
    /// [`PmemError::Poisoned`]
    pub fn fence(&self) -> Result<(), PmemError> {
        if !self.without_fence {
            self.memory().fence();
        }
        self.check_on()
    }
}
