//! Plain files of a volume (`.frm`, Aria, binary log, ...): their contents and the queue of changes to them.
//!
//! Contents are in `plain/<file id, 8 hex>`. The parser queues changes in stream order. One thread executes a change
//! once it is durable in the log, without syncing. [`PlainStore::sync`] makes everything executed so far durable; it
//! runs before A moves. After a crash the changes after A are executed again. That gives the same contents, because
//! they are writes at offsets, truncations and removals in the same order.
//!
//! A file is opened when it is changed, and stays open until it is synced. Closing it with changes that no sync has
//! covered could lose the report of a failed write. (It keeps its descriptor only while the node's budget of open files
//! has room for it, see [`redoubt_storage::FileBudget`].) When [`MAX_OPEN_FILES`] are open, the least recently changed one is
//! closed, after a sync if it needs one.
//!
//! Lock order: queue, then open files.

use crate::error::NodeError;
use crate::home::Folder;
use crate::log_buffer::Chunk;
use crate::mark::WaitEnd;
use redoubt_storage::StorageFile;
use redoubt_sync::{Condvar, Mutex};
use redoubt_wire::Seq;
use redoubt_wire::page::FileId;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

mod checksums;
mod lost;
mod walk;

pub use checksums::Checksum;
use checksums::Checksums;
pub use lost::Loss;
use lost::LostFiles;
pub use walk::{FileWalk, Walked};

const MAX_OPEN_FILES: usize = 256;

/// A change of a plain file.
pub enum Change {
    /// It exists and is empty.
    Create(FileId),
    /// `payload[from..]` of the chunk is written at the offset.
    Write {
        /// The file.
        file: FileId,
        /// Offset in the file.
        offset_bytes: u64,
        /// The frame that carries the bytes.
        chunk: Arc<Chunk>,
        /// Start of the bytes in its payload.
        from: usize,
    },
    /// It has this length.
    SetLen(FileId, u64),
    /// It is gone.
    Remove(FileId),
}

impl Change {
    /// The file that it changes.
    pub fn file(&self) -> FileId {
        match self {
            Self::Create(file) | Self::SetLen(file, _) | Self::Remove(file) => *file,
            Self::Write { file, .. } => *file,
        }
    }

    /// The bytes that it writes.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Write { chunk, from, .. } => chunk.payload().get(*from..).unwrap_or(&[]),
            Self::Create(_) | Self::SetLen(..) | Self::Remove(_) => &[],
        }
    }

    /// How many bytes it writes.
    pub fn len_bytes(&self) -> u64 {
        self.bytes().len() as u64
    }
}

struct Queue {
    changes: VecDeque<(Seq, Change)>,
    /// Start of the change being executed.
    executing: Option<Seq>,
    closed: bool,
}

/// A file that was changed.
struct OpenFile {
    file: Arc<dyn StorageFile>,
    /// It has changes that no sync has covered.
    is_dirty: bool,
    last_changed: u64,
}

#[derive(Default)]
struct OpenFiles {
    files: FxHashMap<FileId, OpenFile>,
    /// Rises with each use, for [`OpenFile::last_changed`].
    clock: u64,
    /// A name may be new since the directory was synced last.
    has_new_names: bool,
}

/// Plain files of a volume (`.frm`, Aria, binary log, ...): their contents and the queue of changes to them.
pub struct PlainStore {
    directory: Folder,
    queue: Mutex<Queue>,
    moved: Condvar,
    open: Mutex<OpenFiles>,
    checksums: Checksums,
    lost: LostFiles,
}

impl PlainStore {
    /// The store in `directory`.
    pub fn new(directory: Folder) -> Self {
        Self {
            directory,
            queue: Mutex::new(Queue { changes: VecDeque::new(), executing: None, closed: false }),
            moved: Condvar::new(),
            open: Mutex::default(),
            checksums: Checksums::default(),
            lost: LostFiles::default(),
        }
    }

    /// Path of a file's contents, for messages.
    pub fn path(&self, file: FileId) -> PathBuf {
        self.directory.path().join(name_of(file))
    }

    /// Queues a change that starts at `seq` in the stream.
    pub fn queue(&self, seq: Seq, change: Change) {
        self.queue.lock().changes.push_back((seq, change));
        self.moved.notify_all();
    }

    /// The next change, with its stream position; waits for one. `None`: closed.
    pub fn next(&self) -> Option<(Seq, Change)> {
        let mut queue = self.queue.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some((seq, change)) = queue.changes.pop_front() {
                queue.executing = Some(seq);
                return Some((seq, change));
            }
            self.moved.wait(&mut queue);
        }
    }

    /// The change returned last by [`PlainStore::next`] is executed.
    pub fn done(&self) {
        self.queue.lock().executing = None;
        self.moved.notify_all();
    }

    /// Waits until no change that starts before `seq` is left.
    pub fn wait_executed(&self, seq: Seq, deadline: Option<Instant>) -> WaitEnd {
        let mut queue = self.queue.lock();
        loop {
            let executing = queue.executing.is_some_and(|at| at < seq);
            let queued = queue.changes.front().is_some_and(|(at, _)| *at < seq);
            if !executing && !queued {
                return WaitEnd::Reached;
            }
            if queue.closed {
                return WaitEnd::Closed;
            }
            match deadline {
                None => self.moved.wait(&mut queue),
                Some(deadline) => {
                    if self.moved.wait_until(&mut queue, deadline).timed_out() {
                        return WaitEnd::TimedOut;
                    }
                }
            }
        }
    }

    /// Ends all waits.
    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.moved.notify_all();
    }

    fn file(&self, id: FileId) -> Result<Arc<dyn StorageFile>, NodeError> {
        let mut open = self.open.lock();
        open.clock += 1;
        let clock = open.clock;
        if let Some(known) = open.files.get_mut(&id) {
            known.last_changed = clock;
            return Ok(Arc::clone(&known.file));
        }
        if open.files.len() >= MAX_OPEN_FILES {
            self.close_one(&mut open)?;
        }
        let file = self
            .directory
            .open_or_create(&name_of(id))
            .map_err(|error| NodeError::io("open", self.path(id), error))?;
        open.has_new_names = true;
        open.files.insert(id, OpenFile { file: Arc::clone(&file), is_dirty: false, last_changed: clock });
        Ok(file)
    }

    /// Changes a file from `from_bytes` on.
    fn change(
        &self,
        id: FileId,
        from_bytes: u64,
        make: impl FnOnce(&dyn StorageFile) -> std::io::Result<()>,
    ) -> Result<(), NodeError> {
        let file = self.file(id)?;
        self.checksums.touched(id, from_bytes);
        let made = make(&*file);
        self.checksums.touched(id, from_bytes);
        // After the change, because a sync may have begun before it. Also if it failed, because a part may have been
        // done.
        let mut open = self.open.lock();
        let last_changed = open.clock;
        let known = open.files.entry(id).or_insert(OpenFile { file, is_dirty: true, last_changed });
        known.is_dirty = true;
        made.map_err(|error| NodeError::io("write", self.path(id), error))
    }

    /// Closes the least recently changed file, preferably one that needs no sync.
    fn close_one(&self, open: &mut OpenFiles) -> Result<(), NodeError> {
        let oldest = open.files.iter().min_by_key(|(_, open)| (open.is_dirty, open.last_changed));
        let Some((id, oldest)) = oldest.map(|(id, open)| (*id, open)) else { return Ok(()) };
        if oldest.is_dirty {
            self.sync_file(id, &*oldest.file)?;
        }
        open.files.remove(&id);
        Ok(())
    }

    /// A retry is useless: the kernel reports a failed write once, and has dropped the unwritten data. So a full disk
    /// is no reason to wait here.
    fn sync_file(&self, id: FileId, file: &dyn StorageFile) -> Result<(), NodeError> {
        file.sync_data().map_err(|error| NodeError::Unsynced { path: self.path(id), source: error })
    }

    /// Executes a change. May be repeated after an error.
    ///
    /// # Errors
    /// [`NodeError::Io`]; retryable if the disk is full.
    pub fn execute(&self, change: &Change) -> Result<(), NodeError> {
        let executed = self.make(change);
        if executed.is_ok() {
            self.lost.changed(change);
        }
        executed
    }

    fn make(&self, change: &Change) -> Result<(), NodeError> {
        match change {
            Change::Create(id) => self.change(*id, 0, |file| file.set_len(0)),
            Change::Write { file, offset_bytes, .. } => {
                self.change(*file, *offset_bytes, |file| file.write_at(*offset_bytes, change.bytes()))
            }
            Change::SetLen(id, len_bytes) => self.change(*id, *len_bytes, |file| file.set_len(*len_bytes)),
            Change::Remove(id) => self.remove(*id),
        }
    }

    fn remove(&self, id: FileId) -> Result<(), NodeError> {
        self.open.lock().files.remove(&id);
        self.checksums.touched(id, 0);
        let removed = self.directory.remove(&name_of(id));
        self.checksums.touched(id, 0);
        removed
    }

    /// Writes to a file outside of the queue (an import).
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn write(&self, id: FileId, offset_bytes: u64, bytes: &[u8]) -> Result<(), NodeError> {
        self.change(id, offset_bytes, |file| file.write_at(offset_bytes, bytes))
    }

    /// Makes everything executed so far durable.
    ///
    /// # Errors
    /// [`NodeError::Unsynced`], [`NodeError::Io`]; the volume must stop, because the kernel may have dropped unwritten
    /// data.
    pub fn sync(&self) -> Result<(), NodeError> {
        let mut dirty = Vec::new();
        let has_new_names = {
            let mut open = self.open.lock();
            for (id, open) in open.files.iter_mut().filter(|(_, open)| open.is_dirty) {
                // Changes from now on are for the next sync. The file stays open here, even if it is closed there.
                open.is_dirty = false;
                dirty.push((*id, Arc::clone(&open.file)));
            }
            std::mem::take(&mut open.has_new_names)
        };
        for (id, file) in dirty {
            self.sync_file(id, &*file)?;
        }
        if has_new_names && let Err(error) = self.directory.sync() {
            self.open.lock().has_new_names = true;
            return Err(match error {
                // Nothing was synced, and nothing was lost.
                error if error.is_out_of_descriptors() => error,
                NodeError::Io { path, source, .. } => NodeError::Unsynced { path, source },
                error => error,
            });
        }
        self.checksums.forget(&self.directory)
    }

    /// Length and checksum of a file as it is now ([`checksums`]). `None`: it is being changed all the time.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn checksum(&self, id: FileId) -> Result<Option<Checksum>, NodeError> {
        self.checksums.of(self, id)
    }

    /// Keeps checksums of long files for the next start.
    pub fn save_checksums(&self) {
        self.checksums.save(&self.directory);
    }

    /// Loads the checksums of an earlier process. Before any change is made. `finds_losses`: of a build that removes
    /// outdated entries.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn load_checksums(&self, finds_losses: bool) -> Result<(), NodeError> {
        let losses = self.checksums.load(self, &self.directory, finds_losses)?;
        for (id, loss) in losses.into_iter().filter(|_| finds_losses) {
            self.lost.add(id, loss);
        }
        Ok(())
    }

    /// Why the contents of a file are lost, if they are.
    pub fn lost(&self, id: FileId) -> Option<String> {
        self.lost.find(id)
    }

    /// All files whose contents are lost.
    pub fn all_lost(&self) -> Vec<(FileId, Loss)> {
        self.lost.all()
    }

    /// All files whose contents are lost, once the changes after A are made again.
    pub fn reported_losses(&self) -> Vec<(FileId, Loss)> {
        self.lost.reported()
    }

    /// The changes after A are made again.
    pub fn set_losses_final(&self) {
        self.lost.set_final();
    }

    /// These files are lost, with these losses and no former ones. Of all of them, those count for which `exists` is true. Before any change is made.
    pub fn add_lost(
        &self,
        losses: impl IntoIterator<Item = (FileId, Loss)>,
        exists: impl Fn(FileId) -> bool,
    ) {
        losses.into_iter().filter(|(id, _)| exists(*id)).for_each(|(id, loss)| self.lost.add(id, loss));
        self.lost.retain(exists);
    }

    /// Lost files are other ones than at the last call.
    pub fn take_lost_changed(&self) -> bool {
        self.lost.take_changed()
    }

    /// The next call of [`PlainStore::take_lost_changed`] returns true.
    pub fn set_lost_changed(&self) {
        self.lost.set_changed();
    }

    /// Path for a copy of a lost file, which [`PlainStore::restore`] puts in its place.
    pub fn restored_path(&self, file: FileId) -> PathBuf {
        self.directory.path().join(restored_name_of(file))
    }

    /// The copy of a lost file, if there is one.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn find_restored(&self, file: FileId) -> Result<Option<Arc<dyn StorageFile>>, NodeError> {
        self.directory.find(&restored_name_of(file))
    }

    /// Replaces the contents of a lost file by its copy, durably. It is not lost any more. No other change of the file is
    /// made meanwhile.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn restore(&self, file: FileId, copy: &dyn StorageFile) -> Result<(), NodeError> {
        let failed = |error| NodeError::io("restore from", self.restored_path(file), error);
        copy.sync_data().map_err(failed)?;
        self.open.lock().files.remove(&file);
        self.checksums.touched(file, 0);
        let renamed = self.directory.dir().rename(&restored_name_of(file), &name_of(file));
        self.checksums.touched(file, 0);
        renamed.map_err(failed)?;
        self.directory.sync()?;
        self.lost.changed(&Change::Create(file));
        Ok(())
    }

    /// Files that have contents, perhaps empty ones.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn stored(&self) -> Result<Vec<FileId>, NodeError> {
        let names = self.directory.dir().list();
        let names = names.map_err(|error| NodeError::io("list", self.directory.path(), error))?;
        Ok(names.iter().filter_map(|name| u32::from_str_radix(name, 16).ok()).map(FileId).collect())
    }

    /// Length of a file's contents in bytes; 0 if it has none.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn len_bytes(&self, id: FileId) -> Result<u64, NodeError> {
        let Some(file) = self.open_for_reading(id)? else { return Ok(0) };
        file.len_bytes().map_err(|error| NodeError::io("read the length of", self.path(id), error))
    }

    /// Reads until `out` is full or the file ends; the rest of `out` stays as it was.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn read(&self, id: FileId, offset_bytes: u64, out: &mut [u8]) -> Result<(), NodeError> {
        let Some(file) = self.open_for_reading(id)? else { return Ok(()) };
        file.read_at(offset_bytes, out).map(drop).map_err(|error| NodeError::io("read", self.path(id), error))
    }

    /// Takes a file's contents out of the store for a reader that still needs them; `None` if it has none. The next
    /// change of the file finds it empty.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn detach(&self, id: FileId) -> Result<Option<Arc<dyn StorageFile>>, NodeError> {
        let former = self.open_for_reading(id)?;
        if former.is_some() {
            self.remove(id)?;
        }
        Ok(former)
    }

    /// Opens a file's contents for reading; `None` if it has none.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn open_for_reading(&self, id: FileId) -> Result<Option<Arc<dyn StorageFile>>, NodeError> {
        if let Some(open) = self.open.lock().files.get(&id) {
            return Ok(Some(Arc::clone(&open.file)));
        }
        self.directory.find(&name_of(id))
    }

    /// Removes contents of files that are not in `keep` (left over from changes that will be executed again).
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn remove_others(&self, keep: impl Fn(FileId) -> bool) -> Result<(), NodeError> {
        self.stored()?.into_iter().filter(|id| !keep(*id)).try_for_each(|id| self.remove(id))
    }
}

fn name_of(file: FileId) -> String {
    format!("{:08x}", file.0)
}

fn restored_name_of(file: FileId) -> String {
    format!("{}.restored", name_of(file))
}

/// Makes names in a directory durable.
///
/// # Errors
/// [`NodeError::Io`].
pub fn sync_directory(directory: &Path) -> Result<(), NodeError> {
    File::open(directory)
        .and_then(|handle| handle.sync_all())
        .map_err(|error| NodeError::io("sync", directory, error))
}

#[cfg(test)]
#[path = "plain_tests.rs"]
mod tests;
