//! [`FileBudget`]: a bound on the open files of a process, shared by all directories that take part.
//!
//! A file of a [`BudgetDir`] is open while it is used, and as long as there is room afterwards. Beyond the limit, the least
//! recently used idle file of any directory is closed. Its next use opens it again. So stores may hold any number of
//! files.
//!
//! Invariants:
//! * A file is in use during each of its calls, and while it has no name. A file in use is never closed.
//! * A file with unsynced writes is closed only after a sync of its own open file, and only if no write ended meanwhile.
//!   Files without such writes are closed first.
//! * Syncs of one file run one after the other, because the system reports a failed write-back to one sync only. After a
//!   failed one, every later write and sync of the file fails, also if the budget has called the failed one.
//! * If all open files are in use, the limit is exceeded: the caller never waits for another one. The excess is at most
//!   the number of threads that use files, and of files without a name. The next open, or [`FileBudget::trim`], closes it.
//! * If all idle files have unsynced writes, a thread of the budget syncs and closes some, and the limit is exceeded by
//!   its [`EXCESS_PART`] until then: the caller does not wait for the disk of another directory. Only beyond that it does.
//! * If the system has no descriptor left, idle files are closed, and the call is repeated for a bounded time.
//!
//! Lock order: `changing` of one directory, `syncing` of one file, `state` of one file; then, as leaves, the queue and
//! `names` of a directory. While files are closed, locks of other files are only tried.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{fmt, io};

use redoubt_sync::{Mutex, thread, time};
use rustix::process::{Resource, getrlimit};

mod dir;
mod slot;

pub use dir::BudgetDir;
use slot::{Closing, Slot};

/// Files that one call closes at most. More than one only after the limit was exceeded.
const CLOSED_AT_ONCE: usize = 16;
/// Files that one call syncs to close one.
const SYNCED_AT_ONCE: u64 = 4;
/// How long an open is repeated while the system has no descriptor left, and the pause between two attempts.
const OPEN_PATIENCE: Duration = Duration::from_secs(3);
const OPEN_PAUSE: Duration = Duration::from_millis(100);
/// Part of the limit that opens may exceed it by while files are synced, and that is closed at once then.
const EXCESS_PART: usize = 16;
/// Of a key in the queue: the file had unsynced writes. Such keys come after all others.
const UNSYNCED: u64 = 1 << 63;

const _: () = assert!(SYNCED_AT_ONCE <= CLOSED_AT_ONCE as u64 && CLOSED_AT_ONCE > 1);
const _: () = assert!(OPEN_PAUSE.as_millis() * 2 <= OPEN_PATIENCE.as_millis());

/// A bound on open files. See the module's documentation.
pub struct FileBudget {
    limit: usize,
    /// Descriptors of open files.
    open: AtomicUsize,
    /// Rises with each use of a file.
    clock: AtomicU64,
    /// Idle and used files by their last use, as of their insertion.
    queue: Mutex<BTreeMap<u64, Weak<Slot>>>,
    /// Closed files so far.
    closed: AtomicU64,
    /// Syncs of files that were closed.
    synced: AtomicU64,
    /// A thread syncs and closes files.
    is_syncing: AtomicBool,
}

impl fmt::Debug for FileBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileBudget({} of {})", self.open_files(), self.limit)
    }
}

impl FileBudget {
    /// A budget of `limit` descriptors.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            open: AtomicUsize::new(0),
            // 0 is never a key.
            clock: AtomicU64::new(1),
            queue: Mutex::default(),
            closed: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            is_syncing: AtomicBool::new(false),
        })
    }

    /// The limit.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Descriptors of open files.
    pub fn open_files(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Number of files that were closed to keep the limit.
    pub fn closed_files(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }

    /// Number of syncs of files that were closed.
    pub fn syncs(&self) -> u64 {
        self.synced.load(Ordering::Relaxed)
    }

    /// Counts `count` descriptors that are open outside of the budget's directories, until the result is dropped.
    pub fn hold(self: &Arc<Self>, count: usize) -> HeldDescriptors {
        self.take(count);
        HeldDescriptors { budget: Arc::clone(self), count }
    }

    /// Closes files if more are open than the limit says: files that were in use have exceeded it. Waits for no disk.
    pub fn trim(self: &Arc<Self>) {
        for _ in 0..CLOSED_AT_ONCE {
            if self.open_files() <= self.limit {
                return;
            }
            if !self.close_synced() {
                let _is_started = self.has_files_to_sync() && self.begin_syncing();
                return;
            }
        }
    }

    /// Idle files have unsynced writes, as far as is known. Others are in use.
    fn has_files_to_sync(&self) -> bool {
        self.queue.lock().last_key_value().is_some_and(|(key, _)| key & UNSYNCED != 0)
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Another `count` descriptors are going to be open.
    fn take(self: &Arc<Self>, count: usize) {
        self.open.fetch_add(count, Ordering::Relaxed);
        for _ in 0..CLOSED_AT_ONCE {
            let open = self.open_files();
            if open <= self.limit {
                return;
            }
            if self.close_synced() {
                continue;
            }
            if !self.has_files_to_sync() {
                return;
            }
            if open <= self.limit + self.limit / EXCESS_PART && self.begin_syncing() {
                return;
            }
            if !self.close_unsynced() {
                return;
            }
        }
    }

    /// Files are synced and closed in a thread. False: it cannot be started.
    fn begin_syncing(self: &Arc<Self>) -> bool {
        if self.is_syncing.swap(true, Ordering::AcqRel) {
            return true;
        }
        let budget = Arc::clone(self);
        let sync = move || {
            let wanted = budget.limit - budget.limit / EXCESS_PART;
            while budget.open_files() > wanted && budget.close_one() {}
            budget.is_syncing.store(false, Ordering::Release);
        };
        let is_started = thread::Builder::new().name("file-budget".to_owned()).spawn(sync).is_ok();
        if !is_started {
            self.is_syncing.store(false, Ordering::Release);
        }
        is_started
    }

    /// `count` descriptors are closed.
    fn give_back(&self, count: usize) {
        self.open.fetch_sub(count, Ordering::Relaxed);
    }

    /// Puts a file into the queue, by its last use.
    fn insert(&self, slot: &Arc<Slot>, unsynced: u64) {
        let mut queue = self.queue.lock();
        let key = slot.last_used.load(Ordering::Relaxed) | unsynced;
        if let Some(former) = slot.take_queued_at() {
            queue.remove(&former);
        }
        slot.set_queued_at(key);
        queue.insert(key, Arc::downgrade(slot));
    }

    /// Takes a file out of the queue.
    fn remove(&self, slot: &Slot) {
        let mut queue = self.queue.lock();
        if let Some(key) = slot.take_queued_at() {
            queue.remove(&key);
        }
    }

    /// The file has no unsynced writes any more.
    fn note_synced(&self, slot: &Arc<Slot>) {
        if slot.is_queued_unsynced() {
            self.insert(slot, 0);
        }
    }

    /// Takes the least recently used file out of a part of the queue.
    fn take_oldest(&self, unsynced: u64) -> Option<Arc<Slot>> {
        // Dropped after the lock, because the drop of a file takes it.
        let mut used_since = Vec::new();
        let mut queue = self.queue.lock();
        loop {
            let (&key, _) = queue.range(unsynced..).next().filter(|(key, _)| **key & UNSYNCED == unsynced)?;
            let Some(slot) = queue.remove(&key).and_then(|slot| slot.upgrade()) else { continue };
            slot.take_queued_at();
            let newest = slot.last_used.load(Ordering::Relaxed) | unsynced;
            if newest == key {
                return Some(slot);
            }
            slot.set_queued_at(newest);
            queue.insert(newest, Arc::downgrade(&slot));
            used_since.push(slot);
        }
    }

    /// Closes an idle file. False: all are in use, or cannot be synced now.
    fn close_one(&self) -> bool {
        self.close_synced() || self.close_unsynced()
    }

    fn close_synced(&self) -> bool {
        let mut in_use = Vec::new();
        let mut is_closed = false;
        while !is_closed && let Some(slot) = self.take_oldest(0) {
            match slot.try_close() {
                Closing::Closed(permits) => {
                    self.note_closed(permits);
                    is_closed = true;
                }
                Closing::Unsynced => self.insert(&slot, UNSYNCED),
                // The next call begins with other files.
                Closing::InUse => {
                    slot.note_use();
                    in_use.push(slot);
                }
                Closing::NotOpen => {}
            }
        }
        in_use.iter().for_each(|slot| self.insert_if_open(slot, 0));
        is_closed
    }

    fn close_unsynced(&self) -> bool {
        let (mut left_open, mut syncs) = (Vec::new(), 0);
        let mut is_closed = false;
        while !is_closed
            && syncs < SYNCED_AT_ONCE
            && let Some(slot) = self.take_oldest(UNSYNCED)
        {
            match slot.sync_and_close() {
                Closing::Closed(permits) => {
                    syncs += 1;
                    self.note_closed(permits);
                    is_closed = true;
                }
                Closing::Unsynced => {
                    syncs += 1;
                    left_open.push(slot);
                }
                // Costs no sync: files whose disk hangs must not hide those of other disks.
                Closing::InUse => {
                    slot.note_use();
                    left_open.push(slot);
                }
                Closing::NotOpen => {}
            }
        }
        self.synced.fetch_add(syncs, Ordering::Relaxed);
        left_open.iter().for_each(|slot| self.insert_if_open(slot, UNSYNCED));
        is_closed
    }

    fn insert_if_open(&self, slot: &Arc<Slot>, unsynced: u64) {
        if slot.may_be_closed_later() {
            self.insert(slot, unsynced);
        }
    }

    fn note_closed(&self, permits: usize) {
        self.give_back(permits);
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// Repeats a call that opens a file while the system has no descriptor left. The first time, closed files make room
    /// at once. Later ones are paused, because other threads may take the descriptors.
    ///
    /// # Errors
    /// Those of the call; [`OutOfDescriptors`].
    pub fn with_descriptor<T>(&self, mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut deadline = None;
        loop {
            let error = match open() {
                Err(error) if is_out_of_descriptors(&error) => error,
                opened => return opened,
            };
            let is_first = deadline.is_none();
            if time::now() >= *deadline.get_or_insert_with(|| time::now() + OPEN_PATIENCE) {
                return Err(OutOfDescriptors::error(error));
            }
            let closed = (0..CLOSED_AT_ONCE).take_while(|_| self.close_one()).count();
            if closed == 0 || !is_first {
                thread::sleep(OPEN_PAUSE);
            }
        }
    }
}

/// Descriptors that count for a [`FileBudget`].
#[derive(Debug)]
pub struct HeldDescriptors {
    budget: Arc<FileBudget>,
    count: usize,
}

impl Drop for HeldDescriptors {
    fn drop(&mut self) {
        self.budget.give_back(self.count);
    }
}

/// The system has no descriptor left for this process. Nothing was done.
#[derive(thiserror::Error, Debug)]
#[error(
    "{source}: this process may have {limit} files and connections open; raise the limit (LimitNOFILE= of the service, \
     or `ulimit -n`) or close connections"
)]
pub struct OutOfDescriptors {
    limit: String,
    source: io::Error,
}

impl OutOfDescriptors {
    fn error(source: io::Error) -> io::Error {
        let limit = getrlimit(Resource::Nofile).current;
        let limit = limit.map_or_else(|| "any number of".to_owned(), |limit| limit.to_string());
        io::Error::other(Self { limit, source })
    }
}

/// A call failed because this process, or the system, has too many open files. The call may succeed later.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
        || error.get_ref().is_some_and(|source| source.is::<OutOfDescriptors>())
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod crash_tests;
