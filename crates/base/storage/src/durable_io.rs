//! [`DurableIo`]: writes past the page cache that are durable when they are done, several under way at a time. With
//! io_uring ([`UringIo`]), or on the simulated disk in tests (`sim::SimIo`).
//!
//! Writes are under way in slots, one in each. Whoever starts a write in a slot need not be the one who waits
//! for it, but only one thread waits for a slot at a time.
//!
//! Rules for implementations:
//! * When [`DurableIo::finish`] returns success, the write is durable, whole. After a failure nothing is known
//!   about the range written.
//! * Writes under way at the same time reach the disk in any order, and a power cut may tear each of them between
//!   any two sectors of 512 bytes.
//! * Dropping the implementation waits for what is under way.

use std::io;
use std::sync::Arc;

use crate::AlignedBuffer;

mod uring;

pub use uring::UringIo;

/// Durable writes, several of them under way at a time.
pub trait DurableIo: Send + Sync {
    /// How many slots there are. They have the numbers from 0 on.
    fn slots(&self) -> usize;

    /// Opens the file `name` of the directory. It is there, and stays usable under a new name.
    ///
    /// # Errors
    /// The file cannot be opened for direct I/O.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DurableFile>>;

    /// Waits for the write in `slot` and frees it.
    ///
    /// # Errors
    /// The write failed, or was done in part only. `InvalidInput`: nothing is under way there.
    fn finish(&self, slot: usize) -> io::Result<AlignedBuffer>;
}

/// A file open for durable writes.
pub trait DurableFile: Send + Sync {
    /// Starts to write all of `buffer` at `offset_bytes`, both whole units of the device and inside the file's
    /// present length.
    ///
    /// # Errors
    /// The write could not be started. `InvalidInput`: the slot is taken, or there is none of that number.
    fn start(&self, slot: usize, offset_bytes: u64, buffer: AlignedBuffer) -> io::Result<()>;
}
