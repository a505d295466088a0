//! Durable append-only log devices.
//!
//! A log device keeps one stream of opaque bytes. Records are appended at the end, made durable by
//! [`LogDevice::sync`], read back by position, and given up from the front by [`LogDevice::discard_before`].
//! The crate does not know what the bytes mean.
//!
//! Positions are [`Seq`]s. They count payload bytes only, from 0, and never go back or repeat in the life of
//! a device; the framing that a device adds is invisible.
//!
//! What every device promises:
//! * Bytes below the value that `sync` returned survive a power cut, whole and unchanged.
//! * After a crash the end is at a record boundary. Records that were appended but not synced may be there or
//!   not, and if one is there, all before it are.
//! * Damage to bytes that the device can prove were durable is never cut off: the device refuses to open, or, where it
//!   does not look before somebody wants to read, to read them. Bytes before the damage stay readable
//!   ([`LogDeviceError::damaged_from`], [`DamagedLog`]).
//! * After a failed write or a failed sync the device answers [`LogDeviceError::Poisoned`] until it is
//!   opened again. Nothing is retried in the hope that it works.
//!
//! All devices keep the stream in the same segment files, so a log that one device wrote can be opened by any other.
//! They differ in how a record gets there: [`FileLogDevice`] through the page cache with `fdatasync`,
//! [`BlockLogDevice`] around it with several durable writes under way, `pmem::PmemLogDevice` (feature
//! `experimental-devices`) by processor stores into mapped segments. [`choice`] says which of them fits a place,
//! [`waiters`] is where threads wait for a position to become durable. Files are those of [`redoubt_storage`]: of a file
//! system, on a raw block device, or simulated; `pmem::model_disk` is a directory in modelled persistent memory, for
//! tests.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod block;
pub mod choice;
mod error;
mod file;
mod format;
mod group_sync;
#[cfg(feature = "experimental-devices")]
pub mod pmem;
mod segments;

#[cfg(test)]
mod descriptor_tests;

pub use block::{BlockLogDevice, BlockLogOptions};
pub use error::LogDeviceError;
pub use file::FileLogDevice;
pub use redoubt_commit_waiters as waiters;
// Under this name for the modules that `tests/*_loom.rs` compile again above the model checker's primitives.
use redoubt_sync::primitives;
pub use redoubt_types::Seq;
pub use segments::{DamagedLog, Held, SegmentOptions};

/// The longest record that [`LogDevice::append`] takes, in bytes.
pub const MAX_RECORD_LEN_BYTES: usize = 64 << 20;

/// What a device has done since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LogDeviceStats {
    /// Payload bytes appended.
    pub bytes_appended: u64,
    /// Bytes written for records: payload, headers and the padding to the device's write unit. The preparation
    /// of new segments is not in it, nor is what the page cache adds on a plain file (whole pages).
    pub bytes_written: u64,
    /// Bytes written to prepare new segments.
    pub bytes_preallocated: u64,
    /// Calls that made data durable (one per file synced on behalf of `sync`).
    pub syncs: u64,
    /// Segments taken from the discarded ones instead of being created.
    pub segments_recycled: u64,
    /// Segments created.
    pub segments_created: u64,
}

/// Which of the devices one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceKind {
    /// Plain files with `fdatasync`.
    File,
    /// A block device, written around the page cache with several durable writes in flight.
    Block,
    /// Persistent memory, written by the processor.
    Pmem,
}

impl DeviceKind {
    /// Its name in options and in status.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Block => "block",
            Self::Pmem => "pmem",
        }
    }
}

/// What a device is, for the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// Which device.
    pub kind: DeviceKind,
    /// Records start at multiples of this many bytes.
    pub write_unit_bytes: usize,
    /// Durable writes that can be on their way at once.
    pub max_in_flight: usize,
    /// How it writes, in a few words.
    pub detail: String,
}

/// A durable append-only stream of bytes. See the crate's documentation for what is promised.
///
/// ```
/// use redoubt_logdev::{FileLogDevice, LogDevice, LogDeviceError, SegmentOptions};
///
/// let place = tempfile::tempdir()?;
/// let log: Box<dyn LogDevice> = Box::new(FileLogDevice::open(place.path(), SegmentOptions::default())?);
/// let start = log.end();
/// log.append(b"first, ")?;
/// let end = log.append(b"second")?;
/// // Here a power cut may still take both, or the second.
/// assert!(log.wait_durable(end)? >= end);
/// drop(log);
///
/// let log = FileLogDevice::open(place.path(), SegmentOptions::default())?;
/// assert_eq!(log.end(), end);
/// let mut bytes = vec![0; (end.0 - start.0) as usize];
/// log.read_at(start, &mut bytes)?;
/// assert_eq!(bytes, b"first, second");
/// assert!(matches!(log.read_at(end, &mut bytes), Err(LogDeviceError::OutOfRange { .. })));
///
/// // Nobody reads it any more: whole segments before this are used again.
/// log.discard_before(end)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait LogDevice: Send + Sync {
    /// Appends one record of at most [`MAX_RECORD_LEN_BYTES`] and returns the position after it.
    ///
    /// The record is not durable before [`LogDevice::sync`] or [`LogDevice::wait_durable`] returns. A device that [is
    /// pipelined](LogDevice::is_pipelined) starts to write it right away. Appends are taken one at a time. An empty
    /// record changes nothing.
    ///
    /// # Errors
    /// [`LogDeviceError::NoSpace`] if no room could be made for the record: nothing was written and the
    /// same append may be tried again. Any other I/O failure poisons the device.
    fn append(&self, record: &[u8]) -> Result<Seq, LogDeviceError>;

    /// Makes everything appended before the call durable and returns the durable end.
    ///
    /// Appends may go on meanwhile. Concurrent callers share one sync where they can.
    ///
    /// # Errors
    /// Any I/O failure poisons the device.
    fn sync(&self) -> Result<Seq, LogDeviceError>;

    /// The end of what is durable.
    fn durable_end(&self) -> Seq;

    /// Waits until everything before `seq` is durable and returns the durable end.
    ///
    /// # Errors
    /// As [`LogDevice::sync`].
    fn wait_durable(&self, seq: Seq) -> Result<Seq, LogDeviceError> {
        let durable = self.durable_end();
        if durable >= seq { Ok(durable) } else { self.sync() }
    }

    /// [`LogDevice::append`] starts the durable write itself, and further appends may be made while it is on its
    /// way. Otherwise nothing becomes durable before somebody waits for it.
    fn is_pipelined(&self) -> bool {
        false
    }

    /// What the device is.
    fn info(&self) -> DeviceInfo;

    /// The position of the first byte still kept.
    fn start(&self) -> Seq;

    /// The position after the last byte appended.
    fn end(&self) -> Seq;

    /// Reads the payload bytes at `[seq, seq + buf.len())`, durable or not.
    ///
    /// # Errors
    /// [`LogDeviceError::OutOfRange`] if the range is not inside `[start, end)`. If a part of it is damaged
    /// ([`LogDeviceError::damaged_from`]), a read that ends there succeeds.
    fn read_at(&self, seq: Seq, buf: &mut [u8]) -> Result<(), LogDeviceError>;

    /// The next read of these payload bytes goes to the drive, as far as its caches can be dropped. A hint.
    fn drop_cache(&self, _seq: Seq, _len_bytes: usize) {}

    /// Promises that bytes before `seq` are never read again. Whole segments are given up and reused, so
    /// [`LogDevice::start`] may stay below `seq`.
    ///
    /// # Errors
    /// [`LogDeviceError::OutOfRange`] if `seq` is past the end. An I/O failure poisons the device.
    fn discard_before(&self, seq: Seq) -> Result<(), LogDeviceError>;

    /// Counters since the device was opened.
    fn stats(&self) -> LogDeviceStats;
}
