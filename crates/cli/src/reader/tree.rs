//! What a file system shows: names and files, whatever is behind them.

use std::sync::Arc;

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
    /// What it is now.
    ///
    /// # Errors
    /// `EIO`.
    fn meta(&self) -> Called<Meta>;

    /// Bytes from an offset on; fewer than asked for only at the end.
    ///
    /// # Errors
    /// `EIO`.
    fn read(&self, offset_bytes: u64, len_bytes: u32) -> Called<Vec<u8>>;

    /// # Errors
    /// `EROFS`, `ENOSPC`, `EIO`.
    fn write(&self, _offset_bytes: u64, _bytes: &[u8]) -> Called<()> {
        Err(Errno(libc::EROFS))
    }

    /// # Errors
    /// As [`OpenFile::write`].
    fn set_len(&self, _len_bytes: u64) -> Called<()> {
        Err(Errno(libc::EROFS))
    }
}

/// A change of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// A file, socket or pipe; a file that is there is left as it is.
    Create {
        mode: u32,
    },
    MakeDirectory {
        mode: u32,
    },
    Unlink,
    RemoveDirectory,
    Rename {
        to: &'a str,
    },
    SetMode(u32),
}

/// Files and directories, by paths relative to the root, which is the empty path.
pub trait Tree: Send + Sync {
    /// What is at a path; `None`: nothing.
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
    /// `ENOENT`; `EROFS` if it is to be written and cannot be; `EIO`.
    fn open(&self, path: &str, to_write: bool) -> Called<Arc<dyn OpenFile>>;

    /// # Errors
    /// `EROFS`, or why the change cannot be made.
    fn change(&self, path: &str, change: Change<'_>) -> Called<()>;

    /// Nothing changes but through the kernel, which may keep what it was told.
    fn is_fixed(&self) -> bool;
}

/// Complains, once for each text.
#[derive(Default)]
pub struct Complaints(std::sync::Mutex<std::collections::HashSet<String>>);

impl Complaints {
    /// Most different ones.
    const LIMIT: usize = 100;

    /// Says it on standard error, unless it was said before.
    pub fn say(&self, text: String) {
        let mut said = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if said.len() < Self::LIMIT && !said.contains(&text) {
            eprintln!("redoubt: {text}");
            said.insert(text);
        }
    }
}
