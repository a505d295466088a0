//! Content of a file system: names and files, from any source.

use redoubt_locks::IgnorePoison;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Number of an error of the system, as in `errno.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Result of a call.
pub type Called<T> = Result<T, Errno>;

/// A file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Type and permission bits.
    pub mode: u32,
    /// Length in bytes.
    pub len_bytes: u64,
}

/// An open file.
pub trait OpenFile: Send + Sync {
    /// Its current attributes.
    ///
    /// # Errors
    /// `EIO`.
    fn meta(&self) -> Called<Meta>;

    /// Bytes from an offset on; fewer than asked for only at the end.
    ///
    /// # Errors
    /// `EIO`.
    fn read(&self, offset_bytes: u64, len_bytes: u32) -> Called<Vec<u8>>;

    /// Writes all of it.
    ///
    /// # Errors
    /// `EROFS`, `ENOSPC`, `EIO`.
    fn write(&self, _offset_bytes: u64, _bytes: &[u8]) -> Called<()> {
        Err(Errno(libc::EROFS))
    }

    /// Makes the file shorter or longer.
    ///
    /// # Errors
    /// As [`OpenFile::write`].
    fn set_len(&self, _len_bytes: u64) -> Called<()> {
        Err(Errno(libc::EROFS))
    }
}

/// A change to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Creates a file, socket or pipe; an existing file is left as it is.
    Create {
        /// Type and permission bits.
        mode: u32,
    },
    /// Creates a directory.
    MakeDirectory {
        /// Permission bits.
        mode: u32,
    },
    /// Removes a file.
    Unlink,
    /// Removes an empty directory.
    RemoveDirectory,
    /// Renames an entry.
    Rename {
        /// The new path.
        to: &'a str,
    },
    /// Sets the permission bits.
    SetMode(u32),
}

/// Files and directories, by paths relative to the root, which is the empty path.
pub trait Tree: Send + Sync {
    /// Looks up a path; `None`: it does not exist.
    ///
    /// # Errors
    /// `EIO`.
    fn stat(&self, path: &str) -> Called<Option<Meta>>;

    /// Names in a directory.
    ///
    /// # Errors
    /// `EIO`.
    fn list(&self, path: &str) -> Called<Vec<(String, Meta)>>;

    /// Opens a file.
    ///
    /// # Errors
    /// `ENOENT`; `EROFS` if it cannot be written but must be; `EIO`.
    fn open(&self, path: &str, to_write: bool) -> Called<Arc<dyn OpenFile>>;

    /// Makes a change.
    ///
    /// # Errors
    /// `EROFS`, or the error of the change.
    fn change(&self, path: &str, change: Change<'_>) -> Called<()>;

    /// Whether all changes come through the kernel, so that it may cache replies.
    fn is_fixed(&self) -> bool;
}

/// Log of complaints, once an hour for each text.
pub struct Complaints {
    said: Mutex<(Instant, HashSet<String>)>,
    say: fn(&str),
}

impl Complaints {
    /// Limit of different messages within [`Self::MEMORY`].
    const LIMIT: usize = 100;
    /// Time for which a message is remembered.
    const MEMORY: Duration = Duration::from_secs(3600);

    /// A log without messages; `say` writes one.
    pub fn new(say: fn(&str)) -> Self {
        Self { said: Mutex::new((Instant::now(), HashSet::new())), say }
    }

    /// Logs a message, unless it was logged recently.
    pub fn say(&self, text: String) {
        let mut guard = self.said.lock().ignore_poison();
        let (since, said) = &mut *guard;
        if since.elapsed() > Self::MEMORY {
            said.clear();
            *since = Instant::now();
        }
        if said.len() < Self::LIMIT && !said.contains(&text) {
            (self.say)(&text);
            said.insert(text);
        }
    }
}
