//! Plain files of a volume (`.frm`, Aria, binary log, ...): their contents and the queue of changes to them.
//!
//! Contents lie in `plain/<file id, 8 hex>`. The parser queues changes in stream order; one thread executes a
//! change once it is durable in the log, without syncing. [`PlainStore::sync`] makes everything executed so far
//! durable; it runs before A moves. After a crash the changes after A are executed again; that gives the same
//! contents, because they are writes at offsets, truncations and removals in the same order.
//!
//! Lock order: queue, then open files.

use crate::error::NodeError;
use crate::home::Folder;
use crate::log_buffer::Chunk;
use crate::mark::WaitEnd;
use redoubt_logdev::storage::StorageFile;
use redoubt_sync::{Condvar, Mutex};
use redoubt_wire::Seq;
use redoubt_wire::page::FileId;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const MAX_OPEN_FILES: usize = 256;

/// A change of a plain file.
pub enum Change {
    /// It exists and is empty.
    Create(FileId),
    /// `payload[from..]` of the chunk is written at the offset.
    Write {
        /// The file.
        file: FileId,
        /// Where in the file.
        offset_bytes: u64,
        /// The frame that carries the bytes.
        chunk: Arc<Chunk>,
        /// Where in its payload the bytes begin.
        from: usize,
    },
    /// It has this length.
    SetLen(FileId, u64),
    /// It is gone.
    Remove(FileId),
}

struct Queue {
    changes: VecDeque<(Seq, Change)>,
    /// Start of the change being executed.
    executing: Option<Seq>,
    closed: bool,
}

/// See the module.
pub struct PlainStore {
    directory: Folder,
    queue: Mutex<Queue>,
    moved: Condvar,
    open: Mutex<FxHashMap<FileId, Arc<dyn StorageFile>>>,
    dirty: Mutex<FxHashSet<FileId>>,
}

impl PlainStore {
    /// The store in `directory`.
    pub fn new(directory: Folder) -> Self {
        Self {
            directory,
            queue: Mutex::new(Queue { changes: VecDeque::new(), executing: None, closed: false }),
            moved: Condvar::new(),
            open: Mutex::default(),
            dirty: Mutex::default(),
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
        if let Some(file) = open.get(&id) {
            return Ok(Arc::clone(file));
        }
        if open.len() >= MAX_OPEN_FILES {
            open.clear();
        }
        let file = self
            .directory
            .open_or_create(&name_of(id))
            .map_err(|error| NodeError::io("open", self.path(id), error))?;
        open.insert(id, Arc::clone(&file));
        Ok(file)
    }

    /// Executes a change. May be repeated after an error.
    ///
    /// # Errors
    /// [`NodeError::Io`]; retryable if the disk is full.
    pub fn execute(&self, change: &Change) -> Result<(), NodeError> {
        let (id, result) = match change {
            Change::Create(id) => (*id, self.file(*id)?.set_len(0)),
            Change::Write { file, offset_bytes, chunk, from } => {
                let bytes = chunk.payload().get(*from..).ok_or_else(|| NodeError::Damaged {
                    path: self.path(*file),
                    reason: "a write to it has no bytes; this is a defect of the node, the log is whole: report it".to_owned(),
                })?;
                (*file, self.file(*file)?.write_at(*offset_bytes, bytes))
            }
            Change::SetLen(id, len_bytes) => (*id, self.file(*id)?.set_len(*len_bytes)),
            Change::Remove(id) => return self.remove(*id),
        };
        result.map_err(|error| NodeError::io("write", self.path(id), error))?;
        self.dirty.lock().insert(id);
        Ok(())
    }

    fn remove(&self, id: FileId) -> Result<(), NodeError> {
        self.open.lock().remove(&id);
        self.dirty.lock().remove(&id);
        self.directory.remove(&name_of(id))
    }

    /// Writes to a file outside of the queue (an import).
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn write(&self, id: FileId, offset_bytes: u64, bytes: &[u8]) -> Result<(), NodeError> {
        let written = self.file(id)?.write_at(offset_bytes, bytes);
        written.map_err(|error| NodeError::io("write", self.path(id), error))?;
        self.dirty.lock().insert(id);
        Ok(())
    }

    /// Makes everything executed so far durable.
    ///
    /// # Errors
    /// [`NodeError::Io`]; the volume must stop, because the kernel may have dropped what it could not write.
    pub fn sync(&self) -> Result<(), NodeError> {
        let dirty: Vec<_> = self.dirty.lock().drain().collect();
        for id in &dirty {
            // A file removed since then needs no sync, and must not be created again.
            let Some(file) = self.open_for_reading(*id)? else { continue };
            file.sync_data().map_err(|error| NodeError::io("sync", self.path(*id), error))?;
        }
        if !dirty.is_empty() {
            self.directory.sync()?;
        }
        Ok(())
    }

    /// Length of a file's contents in bytes; 0 if it has none.
    pub fn len_bytes(&self, id: FileId) -> u64 {
        let file = self.open_for_reading(id).ok().flatten();
        file.and_then(|file| file.len_bytes().ok()).unwrap_or_default()
    }

    /// Opens a file's contents for reading; `None` if it has none.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn open_for_reading(&self, id: FileId) -> Result<Option<Arc<dyn StorageFile>>, NodeError> {
        if let Some(file) = self.open.lock().get(&id) {
            return Ok(Some(Arc::clone(file)));
        }
        self.directory.find(&name_of(id))
    }

    /// Removes contents of files that are not in `keep` (left over from changes that will be executed again).
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn remove_others(&self, keep: impl Fn(FileId) -> bool) -> Result<(), NodeError> {
        let names = self.directory.dir().list();
        for name in names.map_err(|error| NodeError::io("list", self.directory.path(), error))? {
            let id = u32::from_str_radix(&name, 16).ok();
            if let Some(id) = id.map(FileId)
                && !keep(id)
            {
                self.remove(id)?;
            }
        }
        Ok(())
    }
}

fn name_of(file: FileId) -> String {
    format!("{:08x}", file.0)
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
