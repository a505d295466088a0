//! The objects of a store, their files, and which of the files are open.
//!
//! Files are opened when they are used. When more than the limit are open, the one not used for longest is closed;
//! a file with bytes that no sync has covered stays open, since closing it could lose the report of a failed write.
//!
//! Lock order: `table`, then one object's `handle`; other objects' handles are only tried.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use redoubt_logdev::storage::{StorageDir, StorageFile};
use redoubt_sync::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::ObjectId;
use crate::error::PageStoreError;

const SUFFIX: &str = ".pages";

/// One object.
pub(super) struct Object {
    pub id: ObjectId,
    pub name: String,
    /// Held for reading by who reads pages, for writing by who writes them, so that no read sees half a write.
    pub io: RwLock<()>,
    /// Bytes were written that no sync has covered.
    pub has_unsynced: AtomicBool,
    handle: Mutex<Option<Arc<dyn StorageFile>>>,
    last_used: AtomicU64,
}

impl Object {
    fn new(id: ObjectId) -> Arc<Self> {
        Arc::new(Self {
            id,
            name: file_name(id),
            io: RwLock::new(()),
            has_unsynced: AtomicBool::new(false),
            handle: Mutex::new(None),
            last_used: AtomicU64::new(0),
        })
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
}

impl Objects {
    pub fn new(ids: impl IntoIterator<Item = ObjectId>, max_open_files: usize) -> Self {
        let table = ids.into_iter().map(|id| (id, Object::new(id))).collect();
        let (open_files, clock) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { table: RwLock::new(table), max_open_files, open_files, clock }
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
        if let Some(object) = self.table.write().remove(&id)
            && object.handle.lock().take().is_some()
        {
            self.open_files.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The object's file, opened if it is not open.
    pub fn file(
        &self,
        dir: &dyn StorageDir,
        object: &Object,
    ) -> Result<Arc<dyn StorageFile>, PageStoreError> {
        object.last_used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut handle = object.handle.lock();
        if let Some(file) = &*handle {
            return Ok(file.clone());
        }
        let file = dir.open(&object.name).map_err(PageStoreError::read(&object.name, 0))?;
        *handle = Some(file.clone());
        drop(handle);
        if self.open_files.fetch_add(1, Ordering::Relaxed) >= self.max_open_files {
            self.close_one();
        }
        Ok(file)
    }

    /// Closes the file that was not used for longest. Who uses it at this moment keeps it open until done.
    fn close_one(&self) {
        let table = self.table.read();
        let mut candidates: Vec<_> =
            table.values().map(|object| (object.last_used.load(Ordering::Relaxed), object)).collect();
        candidates.sort_unstable_by_key(|(last_used, _)| *last_used);
        for (_, object) in candidates {
            if let Some(mut handle) = object.handle.try_lock()
                && !object.has_unsynced.load(Ordering::Acquire)
                && handle.take().is_some()
            {
                self.open_files.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        }
    }

    #[cfg(test)]
    pub fn open_files(&self) -> usize {
        self.open_files.load(Ordering::Relaxed)
    }
}
