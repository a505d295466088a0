//! The objects of a store, their files, and which of the files are open.
//!
//! Files are opened when they are used. When more than the limit are open, the one not used for longest is closed;
//! a file with bytes that no sync has covered stays open, since closing it could lose the report of a failed write.
//!
//! A use of an open file only stores its time. A queue holds the open files by their last use, as of their insertion. A
//! file that was used since then is inserted again with the later use. A file that may not be closed is left out until
//! it may. So the cost of closing a file depends on the earlier uses, not on the number of objects.
//!
//! Lock order: one object's `handle`, then `queue`; with `queue` locked other objects' handles are only tried. `table`
//! is a leaf.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use redoubt_storage::{StorageDir, StorageFile};
use redoubt_sync::{Mutex, MutexGuard, RwLock, RwLockWriteGuard};
use rustc_hash::FxHashMap;

use super::lost::LostPages;
use crate::ObjectId;
use crate::error::PageStoreError;

const SUFFIX: &str = ".pages";

/// One object.
pub(super) struct Object {
    pub id: ObjectId,
    pub name: String,
    /// Locked for reading by readers of pages, for writing by writers ([`Object::begin_write`]), so that no read sees half
    /// a write.
    pub io: RwLock<()>,
    /// Number of writes so far. Changes only with `io` locked.
    pub writes: AtomicU64,
    /// Pages that the drive cannot read.
    pub lost: LostPages,
    /// Bytes were written that no sync has covered.
    pub has_unsynced: AtomicBool,
    /// Memory may show of the file what the disk does not hold: see [`Objects::distrust_memory`].
    is_distrusted: AtomicBool,
    handle: Mutex<Option<Arc<dyn StorageFile>>>,
    last_used: AtomicU64,
    /// Its place in the queue of open files, 0: none. Changes only with the queue locked.
    queued_at: AtomicU64,
}

impl Object {
    fn new(id: ObjectId) -> Arc<Self> {
        Arc::new(Self {
            id,
            name: file_name(id),
            io: RwLock::new(()),
            writes: AtomicU64::new(0),
            lost: LostPages::default(),
            has_unsynced: AtomicBool::new(false),
            is_distrusted: AtomicBool::new(false),
            handle: Mutex::new(None),
            last_used: AtomicU64::new(0),
            queued_at: AtomicU64::new(0),
        })
    }

    /// Keeps readers away while these bytes are written.
    pub fn begin_write(&self, range: Range<u64>) -> RwLockWriteGuard<'_, ()> {
        let no_reader = self.io.write();
        self.writes.fetch_add(1, Ordering::AcqRel);
        self.lost.written(range);
        no_reader
    }

    fn open(&self, dir: &dyn StorageDir) -> Result<Arc<dyn StorageFile>, PageStoreError> {
        let file = dir.open(&self.name).map_err(PageStoreError::read(&self.name, 0))?;
        if self.is_distrusted.load(Ordering::Acquire) {
            file.sync_data().map_err(PageStoreError::io_or_no_descriptors("sync", &self.name))?;
            file.drop_cache()
                .map_err(PageStoreError::io_or_no_descriptors("drop the cache of", &self.name))?;
            self.is_distrusted.store(false, Ordering::Release);
        }
        Ok(file)
    }
}

/// Open files that may be closed, by the last use known here. Times are of [`Objects::clock`], each of one object.
#[derive(Default)]
struct Queue {
    by_use: BTreeMap<u64, Arc<Object>>,
    /// Files examined to close one.
    #[cfg(test)]
    looked_at: u64,
}

impl Queue {
    fn insert(&mut self, object: &Arc<Object>) {
        let at = object.last_used.load(Ordering::Relaxed);
        object.queued_at.store(at, Ordering::Relaxed);
        self.by_use.insert(at, object.clone());
    }

    fn remove(&mut self, object: &Object) {
        self.by_use.remove(&object.queued_at.swap(0, Ordering::Relaxed));
    }

    /// Takes the file out that was not used for longest. `None`: all have to stay open, or that one is being looked at
    /// by another thread.
    fn close_one(&mut self) -> Option<Arc<dyn StorageFile>> {
        while let Some((at, object)) = self.by_use.pop_first() {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            object.queued_at.store(0, Ordering::Relaxed);
            if object.last_used.load(Ordering::Relaxed) > at {
                self.insert(&object);
                continue;
            }
            let Some(mut handle) = object.handle.try_lock() else {
                self.insert(&object);
                return None;
            };
            if object.has_unsynced.load(Ordering::Acquire) {
                continue;
            }
            return handle.take();
        }
        None
    }
}

pub(super) fn file_name(id: ObjectId) -> String {
    format!("{id}{SUFFIX}")
}

/// The object of a file name. `None`: not a page file. `Err`: looks like one, but is not.
pub(super) fn parse_file_name(name: &str) -> Option<Result<ObjectId, PageStoreError>> {
    let stem = name.strip_suffix(SUFFIX)?;
    let id = u32::from_str_radix(stem, 16).ok().map(ObjectId).filter(|&id| file_name(id) == name);
    Some(id.ok_or_else(|| PageStoreError::BadFile {
        file: name.into(),
        reason: "its name is not that of an object: move it out of the page directory".into(),
    }))
}

/// All objects of a store.
pub(super) struct Objects {
    table: RwLock<FxHashMap<ObjectId, Arc<Object>>>,
    max_open_files: usize,
    open_files: AtomicUsize,
    clock: AtomicU64,
    queue: Mutex<Queue>,
}

impl Objects {
    pub fn new(ids: impl IntoIterator<Item = ObjectId>, max_open_files: usize) -> Self {
        Self {
            table: RwLock::new(ids.into_iter().map(|id| (id, Object::new(id))).collect()),
            max_open_files,
            open_files: AtomicUsize::new(0),
            // 0 means never.
            clock: AtomicU64::new(1),
            queue: Mutex::default(),
        }
    }

    pub fn ids(&self) -> Vec<ObjectId> {
        let mut ids: Vec<_> = self.table.read().keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    pub fn contains(&self, id: ObjectId) -> bool {
        self.table.read().contains_key(&id)
    }

    pub fn get(&self, id: ObjectId) -> Result<Arc<Object>, PageStoreError> {
        self.table.read().get(&id).cloned().ok_or(PageStoreError::NoSuchObject { object: id })
    }

    pub fn insert(&self, id: ObjectId) {
        self.table.write().insert(id, Object::new(id));
    }

    pub fn remove(&self, id: ObjectId) {
        let Some(object) = self.table.write().remove(&id) else { return };
        let mut handle = object.handle.lock();
        if handle.take().is_some() {
            self.queue.lock().remove(&object);
            self.open_files.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// From now on each file that is there now is synced and read from the disk again when it is first opened. Before
    /// any is open.
    pub fn distrust_memory(&self) {
        for object in self.table.read().values() {
            object.is_distrusted.store(true, Ordering::Release);
        }
    }

    /// The object's file, opened if it is not open.
    pub fn file(
        &self,
        dir: &dyn StorageDir,
        object: &Arc<Object>,
    ) -> Result<Arc<dyn StorageFile>, PageStoreError> {
        object.last_used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut handle = object.handle.lock();
        if let Some(file) = &*handle {
            return Ok(file.clone());
        }
        let file = object.open(dir)?;
        *handle = Some(file.clone());
        let mut queue = self.queue.lock();
        queue.insert(object);
        self.open_files.fetch_add(1, Ordering::Relaxed);
        drop(handle);
        self.close_some(queue);
        Ok(file)
    }

    /// The object has no more bytes that no sync has covered.
    pub fn may_be_closed(&self, object: &Arc<Object>) {
        let handle = object.handle.lock();
        let mut queue = self.queue.lock();
        if handle.is_some() && object.queued_at.load(Ordering::Relaxed) == 0 {
            queue.insert(object);
        }
        drop(handle);
        self.close_some(queue);
    }

    /// Closes the files that were not used for longest, down to the limit.
    fn close_some(&self, mut queue: MutexGuard<'_, Queue>) {
        let mut closed = Vec::new();
        while self.open_files.load(Ordering::Relaxed) > self.max_open_files {
            let Some(file) = queue.close_one() else { break };
            self.open_files.fetch_sub(1, Ordering::Relaxed);
            closed.push(file);
        }
        // They are closed without the lock.
        drop(queue);
    }

    #[cfg(test)]
    pub fn open_files(&self) -> usize {
        self.open_files.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
