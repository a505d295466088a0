//! Files as the log devices and the page store need them: the seam to the file system, and what stands behind it.
//!
//! [`StorageDir`] and [`StorageFile`] are the few calls that a log device or a page store makes. They know neither what
//! the bytes mean nor who asks. Behind them are
//!
//! * [`RealDir`], a directory of the operating system,
//! * a directory on a [`raw_device`], a block device without a file system, from where the drive is told which data
//!   live equally long ([`Stream`]), and
//! * `sim::SimDisk` (feature `sim`), which loses, tears and fails in tests what a real disk may.
//!
//! Beside the seam: [`durable_io`], writes past the page cache with several under way, for a log on a block device,
//! with buffers that direct I/O takes ([`AlignedBuffer`]); [`probe`], what a path lies on; and [`format_version`], the
//! sentence for a file from another version.
//!
//! # What every implementation of the seam promises
//!
//! * A write is durable only after `sync_data` or `sync_all` of the file returned; a new name, a rename or a removal
//!   only after [`StorageDir::sync`] returned. Until then a power cut keeps any part of it.
//! * An untorn write ([`WriteOptions::untorn`]) is one piece: a crash leaves all of it or nothing. Where the place does
//!   not offer that, the call fails and nothing is written. (But see [`RealDirOptions::pretend_untorn`].)
//! * A call that returns an error may have been done in part. After a failed sync nothing is known about what it was to
//!   make durable, and a later one that succeeds does not cover it: callers stop.
//! * A directory has one user at a time: a second [`RealDir::open`] or [`raw_device::RawDevice::dir`] fails.
//!
//! # Example
//!
//! A file that is replaced whole: a reader finds the old content or the new one, whenever the power is cut.
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

mod buffer;
pub mod durable_io;
mod error;
mod kernel_ring;
pub mod probe;
pub mod raw_device;
mod real;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod untorn;
mod writeback;

use std::io;
use std::sync::Arc;

pub use buffer::AlignedBuffer;
pub use error::{ErrorKind, StorageError};
pub use real::{RealDir, RealDirOptions};
pub use redoubt_types::format_version;

/// Data that is expected to be overwritten or deleted at about the same time. A drive with data placement (NVMe FDP)
/// keeps streams in different erase blocks; elsewhere a stream has no effect. File systems do not pass it on, so it has
/// none for files of a [`RealDir`] either.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Stream {
    /// Names, lengths, superblocks, and whatever has no better place.
    #[default]
    Metadata,
    /// The redo log: a ring, overwritten in order.
    Redo,
    /// Page images on their way home: a ring, overwritten in order.
    Journal,
    /// Pages that were written home not long ago.
    HotPages,
    /// All other pages.
    ColdPages,
}

/// How a write is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WriteOptions {
    /// Where it belongs.
    pub stream: Stream,
    /// A crash leaves all of it or nothing. Offset and length must fit [`UntornLimits`]; otherwise the call fails
    /// and nothing is written. It is no more durable than any other write before a sync.
    pub untorn: bool,
}

/// Which writes can be untorn: lengths that are powers of two within these limits, at multiples of their length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UntornLimits {
    /// Shortest, in bytes.
    pub min_len_bytes: u64,
    /// Longest, in bytes.
    pub max_len_bytes: u64,
}

impl UntornLimits {
    /// Can a write of `len_bytes` at `offset_bytes` be untorn?
    pub fn allow(&self, offset_bytes: u64, len_bytes: u64) -> bool {
        len_bytes.is_power_of_two()
            && (self.min_len_bytes..=self.max_len_bytes).contains(&len_bytes)
            && offset_bytes.is_multiple_of(len_bytes)
    }
}

/// An open file.
pub trait StorageFile: Send + Sync {
    /// Reads at `offset_bytes` until `buf` is full or the file ends; returns how many bytes were read.
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// This range will be read soon: reading may begin, and this call does not wait for its end. A hint.
    fn will_read(&self, _offset_bytes: u64, _len_bytes: u64) {}
    /// Writes all of `bytes` at `offset_bytes`, extending the file where needed.
    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()>;
    /// [`StorageFile::write_at`] in a stream, or untorn. An untorn write that the place does not offer fails with
    /// `Unsupported` or `InvalidInput`. No read of the range may be under way beside an untorn write.
    fn write_with(&self, offset_bytes: u64, bytes: &[u8], options: WriteOptions) -> io::Result<()> {
        if options.untorn {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.write_at(offset_bytes, bytes)
    }
    /// This range was written and will be synced before long: writing it to the drive may begin, and this call does not
    /// wait for its end. A hint; nothing is durable by it.
    fn will_sync(&self, _offset_bytes: u64, _len_bytes: u64) {}
    /// Reserves disk space for a range, extending the file where needed; what is there stays. Does nothing
    /// where the file system cannot do it.
    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()>;
    /// Cuts the file or extends it with zeros.
    fn set_len(&self, len_bytes: u64) -> io::Result<()>;
    /// Length of the file in bytes.
    fn len_bytes(&self) -> io::Result<u64>;
    /// Makes the content, and the metadata needed to read it, durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Makes content and all metadata durable.
    fn sync_all(&self) -> io::Result<()>;
    /// Asks that the next reads come from the disk rather than from memory. Matters after a failed sync in
    /// an earlier process: memory may then hold what the disk does not. A hint.
    fn drop_cache(&self) -> io::Result<()>;
}

/// A flat directory of files.
pub trait StorageDir: Send + Sync {
    /// Names of the files in the directory, in no order. Subdirectories are left out.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens a file that is there.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Creates an empty file; fails if the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Renames a file, replacing `to` if it is there.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names durable.
    fn sync(&self) -> io::Result<()>;
    /// Makes the content of several files of this directory durable, in any order, perhaps some at a time. An error
    /// comes with the number of its file; what became of the others is then unknown.
    fn sync_files(&self, files: &[Arc<dyn StorageFile>]) -> Result<(), (usize, io::Error)> {
        files
            .iter()
            .enumerate()
            .try_for_each(|(number, file)| file.sync_data().map_err(|error| (number, error)))
    }
    /// Which writes to files of this directory can be untorn, found out by trying; `None`: none can.
    fn untorn_limits(&self) -> io::Result<Option<UntornLimits>> {
        Ok(None)
    }
}
