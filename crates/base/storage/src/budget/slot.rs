//! A file of a [`BudgetDir`](super::BudgetDir), open or closed. All handles of one file share it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};

use redoubt_sync::Mutex;

use super::UNSYNCED;
use super::dir::Shared;
use crate::{StorageDir, StorageFile, WriteOptions};

/// Result of an attempt to close a file.
pub(super) enum Closing {
    /// It is closed, and had so many descriptors.
    Closed(usize),
    /// It has writes that no sync has covered.
    Unsynced,
    /// A call uses it, or it has no name.
    InUse,
    /// It was not open.
    NotOpen,
}

/// A failed sync.
#[derive(Debug)]
pub(super) struct SyncFailure {
    message: String,
    /// A call of the file's owner has returned it.
    is_reported: AtomicBool,
}

impl SyncFailure {
    fn new(error: &io::Error, is_reported: bool) -> Self {
        Self { message: error.to_string(), is_reported: AtomicBool::new(is_reported) }
    }

    /// Never an error that says that the disk is full: the lost writes cannot be repeated.
    fn error(&self) -> io::Error {
        self.is_reported.store(true, Ordering::Release);
        io::Error::other(format!("an earlier sync of this file failed: {}", self.message))
    }
}

/// State of a file that the next handle of it inherits.
#[derive(Debug)]
pub(super) enum Left {
    /// It has writes that no sync has covered.
    Unsynced,
    /// A sync failed, and no caller has seen that.
    Failed(String),
}

/// A file, open or closed.
pub(super) struct Slot {
    shared: Arc<Shared>,
    pub last_used: AtomicU64,
    /// Its key in the queue; 0: none. Changes only with the queue locked.
    queued_at: AtomicU64,
    /// Writes that have ended, perhaps with an error. Rises only while the file is in use. A sync covers the writes that
    /// ended before it, and none of the others.
    writes: AtomicU64,
    /// Of these, the writes that a sync covers.
    synced: AtomicU64,
    /// Held during a sync.
    syncing: Mutex<()>,
    failure: OnceLock<SyncFailure>,
    state: Mutex<State>,
}

struct State {
    name: String,
    /// It was removed or replaced, and cannot be opened again.
    is_unlinked: bool,
    /// Each use has a clone. Cloned only with this state locked.
    file: Option<Arc<dyn StorageFile>>,
    /// Descriptors of the open file.
    permits: usize,
}

impl Slot {
    /// A file that is open.
    pub fn new(
        shared: &Arc<Shared>,
        name: &str,
        file: Arc<dyn StorageFile>,
        left: Option<Left>,
    ) -> Arc<Self> {
        let failure = OnceLock::new();
        if let Some(Left::Failed(message)) = &left {
            let _ =
                failure.set(SyncFailure { message: message.clone(), is_reported: AtomicBool::new(false) });
        }
        Arc::new(Self {
            shared: Arc::clone(shared),
            last_used: AtomicU64::new(shared.budget.tick()),
            queued_at: AtomicU64::new(0),
            writes: AtomicU64::new(u64::from(left.is_some())),
            synced: AtomicU64::new(0),
            syncing: Mutex::new(()),
            failure,
            state: Mutex::new(State {
                name: name.to_owned(),
                is_unlinked: false,
                file: Some(file),
                permits: 1,
            }),
        })
    }

    pub fn take_queued_at(&self) -> Option<u64> {
        Some(self.queued_at.swap(0, Ordering::Relaxed)).filter(|key| *key != 0)
    }

    pub fn set_queued_at(&self, key: u64) {
        self.queued_at.store(key, Ordering::Relaxed);
    }

    pub fn is_queued_unsynced(&self) -> bool {
        self.queued_at.load(Ordering::Relaxed) & UNSYNCED != 0
    }

    fn has_unsynced(&self) -> bool {
        self.writes.load(Ordering::Acquire) != self.synced.load(Ordering::Acquire)
    }

    /// It is used now.
    pub fn note_use(&self) {
        self.last_used.store(self.shared.budget.tick(), Ordering::Relaxed);
    }

    /// The open file, for one use.
    pub fn open(self: &Arc<Self>) -> io::Result<Arc<dyn StorageFile>> {
        if let Some(file) = &self.state.lock().file {
            self.note_use();
            return Ok(Arc::clone(file));
        }
        let budget = &self.shared.budget;
        budget.take(1);
        let opened = budget.with_descriptor(|| self.open_now());
        match &opened {
            Ok((_, true)) => budget.insert(self, 0),
            Ok((_, false)) | Err(_) => budget.give_back(1),
        }
        opened.map(|(file, _)| file)
    }

    /// True: this call has opened it.
    fn open_now(&self) -> io::Result<(Arc<dyn StorageFile>, bool)> {
        let mut state = self.state.lock();
        let is_new = state.file.is_none();
        let file = match &state.file {
            Some(file) => Arc::clone(file),
            None if state.is_unlinked => return Err(io::ErrorKind::NotFound.into()),
            // Its handle has the directory.
            None => self.shared.inner.upgrade().ok_or(io::ErrorKind::NotFound)?.reopen(&state.name)?,
        };
        if is_new {
            state.file = Some(Arc::clone(&file));
            state.permits = 1;
        }
        self.note_use();
        Ok((file, is_new))
    }

    /// Fails after a failed sync: it is unknown which earlier writes are lost.
    fn check(&self) -> io::Result<()> {
        self.failure.get().map_or(Ok(()), |failure| Err(failure.error()))
    }

    /// The descriptors of the file may have become more.
    fn note_permits(&self, file: &dyn StorageFile) {
        let permits = file.descriptors();
        let mut state = self.state.lock();
        let more = permits.saturating_sub(state.permits);
        state.permits += more;
        drop(state);
        if more > 0 {
            self.shared.budget.take(more);
        }
    }

    /// Syncs a file that is open. With `syncing` locked.
    fn sync_open(
        self: &Arc<Self>,
        file: &dyn StorageFile,
        is_owner: bool,
        sync: impl FnOnce(&dyn StorageFile) -> io::Result<()>,
    ) -> io::Result<()> {
        // Before the sync: it covers no later write.
        let writes = self.writes.load(Ordering::Acquire);
        match sync(file) {
            Ok(()) => {
                self.synced.fetch_max(writes, Ordering::AcqRel);
                self.shared.budget.note_synced(self);
                Ok(())
            }
            Err(error) => {
                let _ = self.failure.set(SyncFailure::new(&error, is_owner));
                Err(error)
            }
        }
    }

    /// A sync for the owner. `may_skip`: of a file that is closed, because all its writes were synced before.
    fn sync(
        self: &Arc<Self>,
        may_skip: bool,
        sync: impl FnOnce(&dyn StorageFile) -> io::Result<()>,
    ) -> io::Result<()> {
        let _one_at_a_time = self.syncing.lock();
        self.check()?;
        // A file that was never written here may have unsynced writes of an earlier process.
        let was_written = self.writes.load(Ordering::Acquire) > 0;
        if may_skip && was_written && self.state.lock().file.is_none() {
            return Ok(());
        }
        let file = self.open()?;
        self.sync_open(&*file, true, sync)
    }

    /// Closes the file unless it is in use or has unsynced writes. Those are lost anyway after a failed sync.
    pub fn try_close(&self) -> Closing {
        let Some(mut state) = self.state.try_lock() else { return Closing::InUse };
        let Some(file) = &state.file else { return Closing::NotOpen };
        if state.is_unlinked || Arc::strong_count(file) > 1 {
            return Closing::InUse;
        }
        // After the end of the last use.
        fence(Ordering::Acquire);
        if self.has_unsynced() && self.failure.get().is_none() {
            return Closing::Unsynced;
        }
        let file = state.file.take();
        let permits = std::mem::take(&mut state.permits);
        drop(state);
        drop(file);
        Closing::Closed(permits)
    }

    /// Syncs the file for [`Slot::try_close`]. A failure is kept for the owner.
    pub fn sync_and_close(self: &Arc<Self>) -> Closing {
        let Some(_one_at_a_time) = self.syncing.try_lock() else { return Closing::InUse };
        let file = {
            let Some(state) = self.state.try_lock() else { return Closing::InUse };
            let Some(file) = &state.file else { return Closing::NotOpen };
            if state.is_unlinked || Arc::strong_count(file) > 1 {
                return Closing::InUse;
            }
            Arc::clone(file)
        };
        if self.failure.get().is_none() {
            let _kept = self.sync_open(&*file, false, |file| file.sync_all());
        }
        drop(file);
        self.try_close()
    }

    #[cfg(test)]
    pub fn is_open(&self) -> bool {
        self.state.lock().file.is_some()
    }

    /// It is open and has a name, or is being opened, renamed or removed.
    pub fn may_be_closed_later(&self) -> bool {
        self.state.try_lock().is_none_or(|state| state.file.is_some() && !state.is_unlinked)
    }

    /// Changes its name together with `rename`, so that no use opens it in between.
    pub fn rename(&self, to: &str, rename: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state.lock();
        rename()?;
        state.name = to.to_owned();
        Ok(())
    }

    /// Its name is gone. If it is open, it stays open for its handles.
    pub fn unlink(&self) {
        self.state.lock().is_unlinked = true;
        self.shared.budget.remove(self);
    }

    fn left(&self) -> Option<Left> {
        match self.failure.get() {
            Some(failure) if !failure.is_reported.load(Ordering::Acquire) => {
                Some(Left::Failed(failure.message.clone()))
            }
            None if self.has_unsynced() => Some(Left::Unsynced),
            _ => None,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let left = self.left();
        let state = self.state.get_mut();
        let (is_open, permits) = (state.file.take().is_some(), state.permits);
        let (name, is_unlinked) = (std::mem::take(&mut state.name), state.is_unlinked);
        self.shared.budget.remove(self);
        if is_open {
            self.shared.budget.give_back(permits);
        }
        if !is_unlinked {
            self.shared.forget(&name, left);
        }
    }
}

/// A handle of a file.
pub(super) struct BudgetFile {
    pub slot: Arc<Slot>,
    pub _dir: Arc<dyn StorageDir>,
}

impl BudgetFile {
    fn write(&self, write: impl FnOnce(&dyn StorageFile) -> io::Result<()>) -> io::Result<()> {
        self.slot.check()?;
        let file = self.slot.open()?;
        let written = write(&*file);
        // After the write, because a sync may have begun before it. Also if it failed, because a part may have been done.
        self.slot.writes.fetch_add(1, Ordering::AcqRel);
        drop(file);
        written
    }
}

impl StorageFile for BudgetFile {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.slot.open()?.read_at(offset_bytes, buf)
    }

    fn will_read(&self, offset_bytes: u64, len_bytes: u64) {
        // A failure only makes the read slower.
        if let Ok(file) = self.slot.open() {
            file.will_read(offset_bytes, len_bytes);
        }
    }

    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(|file| file.write_at(offset_bytes, bytes))
    }

    fn write_with(&self, offset_bytes: u64, bytes: &[u8], options: WriteOptions) -> io::Result<()> {
        if !options.untorn {
            return self.write(|file| file.write_with(offset_bytes, bytes, options));
        }
        self.write(|file| {
            // The first such write may open the file a second time. If it cannot, it has written nothing.
            let budget = &self.slot.shared.budget;
            let written = budget.with_descriptor(|| file.write_with(offset_bytes, bytes, options));
            self.slot.note_permits(file);
            written
        })
    }

    fn will_sync(&self, offset_bytes: u64, len_bytes: u64) {
        // Of a closed file, all is synced.
        let open = self.slot.state.lock().file.clone();
        if let Some(file) = open {
            file.will_sync(offset_bytes, len_bytes);
        }
    }

    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.write(|file| file.allocate(offset_bytes, len_bytes))
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.write(|file| file.set_len(len_bytes))
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.slot.open()?.len_bytes()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.slot.sync(true, |file| file.sync_data())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.slot.sync(false, |file| file.sync_all())
    }

    fn hold_open(&self) -> io::Result<Option<Arc<dyn StorageFile>>> {
        self.slot.open().map(Some)
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.slot.open()?.drop_cache()
    }

    fn drop_cache_of(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.slot.open()?.drop_cache_of(offset_bytes, len_bytes)
    }
}
