//! Files for the log devices and the page store: the interface to the file system, and its implementations.
//!
//! [`StorageDir`] and [`StorageFile`] contain the few calls that a log device or a page store makes. They depend
//! neither on the meaning of the bytes nor on the caller. The implementations are
//!
//! * [`RealDir`], a directory of the operating system,
//! * a directory on a `raw_device` (feature `experimental-devices`), a block device without a file system, which passes
//!   to the drive which data has the same lifetime ([`Stream`]), and
//! * `sim::SimDisk` (feature `sim`), which in tests loses, tears and fails data as a real disk may.
//!
//! [`BudgetDir`] limits the open files of all directories together ([`FileBudget`]).
//!
//! Other modules:
//!
//! * [`durable_io`]: several concurrent writes past the page cache, for a log on a block device, with buffers for
//!   direct I/O ([`AlignedBuffer`]);
//! * [`probe`]: properties of the device behind a path;
//! * [`format_version`]: the message for a file of another version.
//!
//! # Guarantees of every implementation
//!
//! * A write is durable only after `sync_data` or `sync_all` of the file has returned. A new name, a rename or a
//!   removal is durable only after [`StorageDir::sync`] has returned. Before that, a power cut retains any part of it.
//! * An untorn write ([`WriteOptions::untorn`]) is atomic: after a crash the file has all of it or nothing. If the
//!   location does not support that, the call fails and writes nothing. (But see [`RealDirOptions::pretend_untorn`].)
//! * A call that returns an error may have been done in part. After a failed sync, the durability of the covered data
//!   is unknown. A later successful sync does not cover it, so callers stop.
//! * A directory has one user at a time: a second [`RealDir::open`] or `RawDevice::dir` fails.
//!
//! # Example
//!
//! A file that is replaced atomically: a reader finds the old content or the new content after a power cut at any
//! time.
//!
//! ```
//! use redoubt_storage::{RealDir, StorageDir};
//!
//! fn replace(dir: &dyn StorageDir, name: &str, content: &[u8]) -> std::io::Result<()> {
//!     let file = dir.create("new")?;
//!     file.write_at(0, content)?;
//!     // The content first: a rename may be durable before what was written.
//!     file.sync_all()?;
//!     dir.rename("new", name)?;
//!     dir.sync()
//! }
//!
//! let place = tempfile::tempdir()?;
//! let dir = RealDir::open(place.path())?;
//! replace(&dir, "state", b"one")?;
//! replace(&dir, "state", b"another")?;
//!
//! let mut content = [0; 100];
//! let len = dir.open("state")?.read_at(0, &mut content)?;
//! assert_eq!(&content[..len], b"another");
//! assert_eq!(dir.list()?, ["state"]);
//!
//! // Nobody else has it meanwhile.
//! assert!(RealDir::open(place.path()).is_err());
//! # Ok::<(), std::io::Error>(())
//! ```

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod budget;
mod buffer;
pub mod durable_io;
mod error;
mod kernel_ring;
pub mod probe;
#[cfg(feature = "experimental-devices")]
pub mod raw_device;
mod real;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod untorn;
mod writeback;

use std::io;
use std::sync::Arc;

pub use budget::{BudgetDir, FileBudget, HeldDescriptors, OutOfDescriptors, is_out_of_descriptors};
pub use buffer::AlignedBuffer;
pub use error::{ErrorKind, StorageError};
pub use real::{RealDir, RealDirOptions};
pub use redoubt_types::format_version;

/// Data that is expected to be overwritten or deleted at about the same time. A drive with data placement (NVMe FDP)
/// keeps streams in different erase blocks. On other drives, and for files of a [`RealDir`], a stream has no effect,
/// because file systems do not pass it on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Stream {
    /// Names, lengths, superblocks, and data without a stream of its own.
    #[default]
    Metadata,
    /// The redo log: a ring, overwritten in order.
    Redo,
    /// Page images before their write to the page files: a ring, overwritten in order.
    Journal,
    /// Pages that were written to the page files recently.
    HotPages,
    /// All other pages.
    ColdPages,
}

/// Options of a write.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WriteOptions {
    /// Stream of the data.
    pub stream: Stream,
    /// Whether the write is atomic in a crash. Offset and length must fit [`UntornLimits`]; otherwise the call fails
    /// and writes nothing. Like any other write, it is not durable before a sync.
    pub untorn: bool,
}

/// Limits of untorn writes: their lengths are powers of two within these limits, and their offsets multiples of their
/// length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UntornLimits {
    /// Minimum length, in bytes.
    pub min_len_bytes: u64,
    /// Maximum length, in bytes.
    pub max_len_bytes: u64,
}

impl UntornLimits {
    /// Whether a write of `len_bytes` at `offset_bytes` can be untorn.
    pub fn allow(&self, offset_bytes: u64, len_bytes: u64) -> bool {
        len_bytes.is_power_of_two()
            && (self.min_len_bytes..=self.max_len_bytes).contains(&len_bytes)
            && offset_bytes.is_multiple_of(len_bytes)
    }
}

/// A failed read lost its bytes: the drive cannot read them, or their file is gone or too short. Other bytes may be whole.
pub fn is_lost_content(error: &io::Error) -> bool {
    let by_drive = [libc::EIO, libc::ENODATA, libc::EUCLEAN, libc::EBADMSG, libc::EILSEQ];
    error.raw_os_error().is_some_and(|code| by_drive.contains(&code))
        || matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound)
}

/// An open file.
pub trait StorageFile: Send + Sync {
    /// Reads at `offset_bytes` until `buf` is full or the file ends. Returns the number of bytes read.
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// Hint that this range will be read soon. The read may begin, and this call does not wait for its end.
    fn will_read(&self, _offset_bytes: u64, _len_bytes: u64) {}
    /// Writes all of `bytes` at `offset_bytes`, and extends the file where needed.
    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()>;
    /// [`StorageFile::write_at`] in a stream, or untorn. An untorn write that the location does not support fails with
    /// `Unsupported` or `InvalidInput`. No read of the range may run during an untorn write.
    fn write_with(&self, offset_bytes: u64, bytes: &[u8], options: WriteOptions) -> io::Result<()> {
        if options.untorn {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.write_at(offset_bytes, bytes)
    }
    /// Hint that this range was written and will be synced soon. The write to the drive may begin, and this call does
    /// not wait for its end. The hint makes nothing durable.
    fn will_sync(&self, _offset_bytes: u64, _len_bytes: u64) {}
    /// Reserves disk space for a range, and extends the file where needed. Existing content stays. No effect if the
    /// file system does not support it.
    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()>;
    /// Truncates the file, or extends it with zeros.
    fn set_len(&self, len_bytes: u64) -> io::Result<()>;
    /// Length of the file in bytes.
    fn len_bytes(&self) -> io::Result<u64>;
    /// Makes the content, and the metadata needed to read it, durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Makes content and all metadata durable.
    fn sync_all(&self) -> io::Result<()>;
    /// Hint that the next reads should come from the disk and not from memory. It matters after a failed sync in an
    /// earlier process: the memory may then differ from the disk.
    fn drop_cache(&self) -> io::Result<()>;
    /// [`StorageFile::drop_cache`] for the reads of a range, which may do more.
    fn drop_cache_of(&self, _offset_bytes: u64, _len_bytes: u64) -> io::Result<()> {
        self.drop_cache()
    }
    /// Opens the file if it is closed. Until the result is dropped it stays open, so that no call fails for lack of a
    /// descriptor. `None`: it is open as long as this value lives.
    fn hold_open(&self) -> io::Result<Option<Arc<dyn StorageFile>>> {
        Ok(None)
    }
    /// Number of the system's descriptors that this file has open.
    fn descriptors(&self) -> usize {
        1
    }
}

/// A flat directory of files.
pub trait StorageDir: Send + Sync {
    /// Names of the files in the directory, in no particular order, without subdirectories.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens an existing file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Opens a file again that this value has opened or created before.
    fn reopen(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.open(name)
    }
    /// Length of a file in bytes, without keeping it open where that is possible: for a look at many files.
    fn len_bytes_of(&self, name: &str) -> io::Result<u64> {
        self.open(name)?.len_bytes()
    }
    /// Creates an empty file; fails if the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Renames a file, and replaces `to` if it exists.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names durable.
    fn sync(&self) -> io::Result<()>;
    /// Makes the content of several files of this directory durable, in any order, possibly concurrently. An error
    /// comes with the index of its file. The state of the other files is then unknown.
    fn sync_files(&self, files: &[Arc<dyn StorageFile>]) -> Result<(), (usize, io::Error)> {
        files
            .iter()
            .enumerate()
            .try_for_each(|(number, file)| file.sync_data().map_err(|error| (number, error)))
    }
    /// Limits of untorn writes to files of this directory, from a trial; `None` if they are unsupported.
    fn untorn_limits(&self) -> io::Result<Option<UntornLimits>> {
        Ok(None)
    }
    /// Calls `open`, which opens descriptors outside of this value and may be repeated. Where files can be closed to
    /// make room for them, that is done.
    fn with_descriptor(&self, open: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        open()
    }
    /// Number of the system's descriptors that this directory has open, without its files.
    fn descriptors(&self) -> usize {
        0
    }
}
