//! [`FileLogDevice`]: a log device on plain files, with `fdatasync`.
//!
//! Owns the way of a record to a segment file through the page cache; the segments are those of
//! `segments`.
//!
//! Invariants:
//! * Records are written in the order of their places, under `writer`.
//! * Every write is padded with zeros to the end of its page-cache page, so that appending to a reused file
//!   does not read the old page first. It never reaches past the end of the segment.
//! * At most two threads are about a sync: one that does it, and one that does the next. Everyone else sleeps in a
//!   slot of [`crate::waiters`] until its records are durable. Whoever finds the next one taken is covered by it:
//!   the next one looks for the end only after it has given that place back.
//!
//! Lock order: the lock of `group`, `writer`, then those of the segments. No lock but the first is held during an
//! `fdatasync` of records, so appends go on during a sync.

use std::path::Path;
use std::sync::Arc;

use redoubt_storage::{StorageDir, StorageFile};
use redoubt_sync::Mutex;
use redoubt_sync::planted::{Bug, is_planted};

use crate::error::LogDeviceError;
use crate::format::{RECORD_ALIGN, RECORD_HEADER_LEN};
use crate::group_sync::GroupSync;
use crate::segments::{Media, Part, Segment, SegmentLog, SegmentOptions, add, open_dir};
use crate::{DeviceInfo, DeviceKind, LogDevice, LogDeviceStats, Seq};

const PAGE_LEN: usize = 4096;
/// Payload up to this length is copied after its header and written in one call.
const COPY_LIMIT: usize = 1 << 20;

/// A log device on plain files. See the module's documentation.
pub struct FileLogDevice {
    log: SegmentLog<HeldOpen>,
    group: GroupSync,
    writer: Mutex<Writer>,
}

/// Keeps the active segment open, and segments with unsynced records. So no append and no sync fails for lack of a
/// descriptor.
struct HeldOpen;

/// A use of a segment's file.
type Held = Option<Arc<dyn StorageFile>>;

impl Media for HeldOpen {
    type Handle = Held;

    fn open(&self, file: &Arc<dyn StorageFile>, _: &str, _: u64) -> std::io::Result<Held> {
        file.hold_open()
    }
}

struct Writer {
    /// Segments with records that no sync has covered.
    dirty: Vec<Arc<Segment<Held>>>,
    buffer: Vec<u8>,
}

impl FileLogDevice {
    /// Opens the log in `dir`, or creates one there, and finds its end.
    ///
    /// Reads and checks the records at the end; those before are checked when somebody reads them. When it returns, all
    /// of them are durable.
    ///
    /// # Errors
    /// [`LogDeviceError::Damaged`] if bytes that were durable cannot be read,
    /// [`LogDeviceError::Locked`] if the directory is in use, and I/O failures.
    pub fn open(dir: &Path, options: SegmentOptions) -> Result<Self, LogDeviceError> {
        Self::open_on(open_dir(dir)?, options)
    }

    /// Like [`FileLogDevice::open`], on any implementation of the file system seam. The caller sees to it
    /// that nobody else uses the directory.
    ///
    /// # Errors
    /// As [`FileLogDevice::open`].
    pub fn open_on(dir: Arc<dyn StorageDir>, options: SegmentOptions) -> Result<Self, LogDeviceError> {
        let log = SegmentLog::open(dir, options, RECORD_ALIGN, HeldOpen)?;
        Ok(Self {
            group: GroupSync::new(log.durable_seq()),
            log,
            writer: Mutex::new(Writer { dirty: Vec::new(), buffer: Vec::new() }),
        })
    }

    /// Makes spare segments until there are as many as the options ask for; returns how many were made.
    /// May run beside appends.
    ///
    /// # Errors
    /// [`LogDeviceError::NoSpace`] or an I/O failure. Neither poisons the device, since no record is touched.
    pub fn prepare_spare_segments(&self) -> Result<usize, LogDeviceError> {
        self.log.prepare_spare_segments()
    }

    /// Returns when everything before `wanted` is durable, after one sync, or none, of this thread. Something is
    /// written up to `wanted`.
    fn sync_to(&self, wanted: u64) -> Result<Seq, LogDeviceError> {
        self.log.poison.check()?;
        self.group.sync(wanted, || self.log.poison.check(), || self.sync_all().map(|end| end.0)).map(Seq)
    }

    /// One sync of all that is written; only one at a time.
    fn sync_all(&self) -> Result<Seq, LogDeviceError> {
        // The sync that we waited for may have failed, or may have covered everything.
        self.log.poison.check()?;
        let (end_seq, dirty) = {
            let mut writer = self.writer.lock();
            (self.log.end_seq(), std::mem::take(&mut writer.dirty))
        };
        for segment in dirty {
            add(&self.log.counters().syncs, 1);
            let synced = segment.file.sync_data();
            if synced.is_err() && is_planted(Bug::FailedSyncIgnored) {
                continue;
            }
            synced
                .map_err(LogDeviceError::io("sync", &segment.name))
                .map_err(|error| self.log.poison.set(error))?;
        }
        self.log.set_durable(end_seq);
        Ok(Seq(end_seq))
    }

    fn write_part(
        &self,
        writer: &mut Writer,
        part: &Part<Held>,
        payload: &[u8],
    ) -> Result<(), LogDeviceError> {
        let Writer { dirty, buffer } = writer;
        let segment = &part.segment;
        let (copied, direct) = payload.split_at(payload.len().min(COPY_LIMIT));
        buffer.clear();
        buffer.extend_from_slice(&part.encode_header(payload, self.log.durable_seq()));
        buffer.extend_from_slice(copied);
        let end = part.at + RECORD_HEADER_LEN + payload.len();
        let padding = end.next_multiple_of(PAGE_LEN).min(segment.len) - end;
        if !dirty.iter().any(|dirty| Arc::ptr_eq(dirty, segment)) {
            dirty.push(Arc::clone(segment));
        }
        let write = |at: usize, bytes: &[u8]| {
            segment
                .file
                .write_at(at as u64, bytes)
                .map_err(LogDeviceError::io("write record to", &segment.name))
        };
        if direct.is_empty() {
            buffer.resize(buffer.len() + padding, 0);
            write(part.at, buffer)
        } else {
            write(part.at, buffer)?;
            write(part.at + buffer.len(), direct)?;
            write(end, &[0; PAGE_LEN][..padding])
        }
    }
}

impl Drop for FileLogDevice {
    /// Leaves a mark, so that damage to the last record is noticed. Best effort.
    fn drop(&mut self) {
        self.log.close();
    }
}

impl LogDevice for FileLogDevice {
    fn append(&self, record: &[u8]) -> Result<Seq, LogDeviceError> {
        let mut writer = self.writer.lock();
        let parts = self.log.reserve(record.len())?;
        for part in &parts {
            let payload = record.get(part.range.clone()).unwrap_or_default();
            self.write_part(&mut writer, part, payload).map_err(|error| self.log.poison.set(error))?;
        }
        Ok(parts.last().map_or_else(|| self.end(), |part| Seq(part.end_seq())))
    }

    fn sync(&self) -> Result<Seq, LogDeviceError> {
        let wanted = {
            let _all_written = self.writer.lock();
            self.log.end_seq()
        };
        self.sync_to(wanted)
    }

    fn wait_durable(&self, seq: Seq) -> Result<Seq, LogDeviceError> {
        self.sync_to(seq.0.min(self.log.end_seq()))
    }

    fn durable_end(&self) -> Seq {
        Seq(self.log.durable_seq())
    }

    fn start(&self) -> Seq {
        Seq(self.log.start_seq())
    }

    fn end(&self) -> Seq {
        Seq(self.log.end_seq())
    }

    fn read_at(&self, seq: Seq, buf: &mut [u8]) -> Result<(), LogDeviceError> {
        self.log.read_at(seq, buf)
    }

    fn drop_cache(&self, seq: Seq, len_bytes: usize) {
        self.log.drop_cache(seq, len_bytes);
    }

    fn discard_before(&self, seq: Seq) -> Result<(), LogDeviceError> {
        self.log.discard_before(seq)
    }

    fn stats(&self) -> LogDeviceStats {
        self.log.stats()
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            kind: DeviceKind::File,
            write_unit_bytes: RECORD_ALIGN,
            max_in_flight: 1,
            detail: "fdatasync".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod crash_tests;

#[cfg(test)]
#[cfg(feature = "experimental-devices")]
mod raw_device_tests;
