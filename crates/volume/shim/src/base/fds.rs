//! Table of the file descriptors that refer to intercepted files of the data directory.
//!
//! Invariant: an entry exists exactly while its descriptor is open. It is added after the descriptor was opened and
//! before the server gets the number, and removed before the descriptor is closed. A call in progress keeps its entry
//! alive.
//!
//! A lookup of a descriptor without an entry costs two loads.

use redoubt_locks::IgnorePoison;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

const CHUNK: usize = 1024;
const CHUNKS: usize = 1024;

struct FdEntry<T> {
    used: AtomicBool,
    file: RwLock<Option<Arc<T>>>,
}

impl<T> Default for FdEntry<T> {
    fn default() -> Self {
        Self { used: AtomicBool::new(false), file: RwLock::new(None) }
    }
}

/// The table.
pub struct FdTable<T> {
    chunks: Vec<OnceLock<Box<[FdEntry<T>]>>>,
}

impl<T> Default for FdTable<T> {
    fn default() -> Self {
        Self { chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect() }
    }
}

impl<T> FdTable<T> {
    fn entry(&self, fd: RawFd) -> Option<&FdEntry<T>> {
        let fd = usize::try_from(fd).ok()?;
        self.chunks.get(fd / CHUNK)?.get()?.get(fd % CHUNK)
    }

    /// The tracked file behind `fd`.
    pub fn get(&self, fd: RawFd) -> Option<Arc<T>> {
        let entry = self.entry(fd)?;
        if !entry.used.load(Ordering::Acquire) {
            return None;
        }
        entry.file.read().ignore_poison().clone()
    }

    /// Tracks `fd`. `false` if the number is too large to be tracked.
    #[must_use]
    pub fn insert(&self, fd: RawFd, file: Arc<T>) -> bool {
        let Ok(index) = usize::try_from(fd) else { return false };
        let Some(chunk) = self.chunks.get(index / CHUNK) else { return false };
        let entries = chunk.get_or_init(|| (0..CHUNK).map(|_| FdEntry::default()).collect());
        let Some(entry) = entries.get(index % CHUNK) else { return false };
        *entry.file.write().ignore_poison() = Some(file);
        entry.used.store(true, Ordering::Release);
        true
    }

    /// Stops tracking `fd`.
    pub fn remove(&self, fd: RawFd) -> Option<Arc<T>> {
        let entry = self.entry(fd)?;
        if !entry.used.swap(false, Ordering::AcqRel) {
            return None;
        }
        entry.file.write().ignore_poison().take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_and_go() {
        let table = FdTable::<&str>::default();
        assert!(table.get(5).is_none());
        assert!(table.insert(5, Arc::new("a file")));
        assert!(table.get(5).is_some());
        assert!(table.get(6).is_none());
        assert!(table.get(-1).is_none());
        assert!(table.remove(5).is_some());
        assert!(table.remove(5).is_none());
        assert!(table.get(5).is_none());
    }

    #[test]
    fn numbers_beyond_the_table_are_refused() {
        let table = FdTable::default();
        assert!(!table.insert(i32::MAX, Arc::new("a file")));
        assert!(!table.insert(-1, Arc::new("a file")));
    }

    #[test]
    fn a_call_under_way_keeps_its_file() {
        let table = FdTable::default();
        assert!(table.insert(9, Arc::new("a file")));
        let held = table.get(9).unwrap();
        drop(table.remove(9));
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
