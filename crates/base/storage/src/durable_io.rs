//! [`DurableIo`]: concurrent writes past the page cache that are durable when they complete. It uses io_uring
//! ([`UringIo`]), or the simulated disk in tests (`sim::SimIo`).
//!
//! Each slot has at most one write in progress. The thread that starts a write in a slot may differ from the thread
//! that waits for it. Only one thread waits for a slot at a time.
//!
//! Rules for implementations:
//! * When [`DurableIo::finish`] returns success, the whole write is durable. After a failure the content of the
//!   written range is unknown.
//! * Concurrent writes reach the disk in any order, and a power cut may tear each of them between any two sectors of
//!   512 bytes.
//! * The drop of the implementation waits for writes in progress.

use std::io;
use std::sync::Arc;

use crate::AlignedBuffer;

mod uring;

pub use uring::UringIo;

/// Concurrent durable writes.
pub trait DurableIo: Send + Sync {
    /// Number of slots, which are numbered from 0.
    fn slots(&self) -> usize;

    /// Opens the existing file `name` of the directory. The file stays usable after a rename.
    ///
    /// # Errors
    /// The file cannot be opened for direct I/O.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DurableFile>>;

    /// Waits for the write in `slot` and frees it.
    ///
    /// # Errors
    /// The write failed, or was done in part only. `InvalidInput`: no write is in progress in the slot.
    fn finish(&self, slot: usize) -> io::Result<AlignedBuffer>;
}

/// A file open for durable writes.
pub trait DurableFile: Send + Sync {
    /// Starts to write all of `buffer` at `offset_bytes`. Both are multiples of the device's unit, and the range is
    /// inside the file's current length.
    ///
    /// # Errors
    /// The write could not be started. `InvalidInput`: the slot is in use, or there is no slot with that number.
    fn start(&self, slot: usize, offset_bytes: u64, buffer: AlignedBuffer) -> io::Result<()>;
}
