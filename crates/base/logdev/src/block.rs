//! [`BlockLogDevice`]: a log device on a disk, past the page cache, with several durable writes under way.
//!
//! Owns the way of a record to a segment file: it gathers in a group ([`pipeline`]), the group is one durable write
//! ([`DurableIo`], on real disks [`UringIo`]), and becomes durable in the order of positions. The segments are
//! those of `segments`.
//!
//! When a write starts (group commit that adapts to the load):
//! * While few writes are under way ([`BlockLogOptions::eager_in_flight`]), at once.
//! * While more are under way and a slot is free, as soon as header and padding are a small part of the group
//!   ([`BlockLogOptions::max_padding_percent`]): with that many clients more bytes are about to come, and a small
//!   record need not take a unit of its own.
//! * Otherwise with the completion of a write. A group that is full waits for a free slot.
//!
//! There is no thread: [`LogDevice::append`] hands the write to the kernel, and whoever waits for the bytes awaits
//! the write's completion. If several do, one awaits it and the others sleep, each in a slot of its own, until
//! their bytes are durable.
//!
//! Invariants:
//! * A write covers whole units and starts on one; no unit that holds durable bytes is written again, except with
//!   the same bytes by the page cache when the log is opened or closed, while nothing is under way.
//! * The durable end is where the first write begins that is not done, whatever is done after it. Recovery ends there,
//!   too, if the power is cut.
//! * A room for the group's bytes is there before the append returns: a full disk fails the append and not
//!   a write that others wait for.
//! * After a failed write no further one is started, and the durable end does not move.
//!
//! Lock order: `pipeline`, then those of the segments. No lock is held while a write is started or awaited.

use std::io;
use std::path::Path;
use std::sync::Arc;

use redoubt_storage::durable_io::{DurableFile, DurableIo, UringIo};
use redoubt_storage::{StorageDir, StorageFile, is_out_of_descriptors};
use redoubt_sync::{Mutex, MutexGuard};

use crate::error::LogDeviceError;
use crate::format::{MAX_UNIT, RECORD_HEADER_LEN};
use crate::segments::{Media, SegmentLog, SegmentOptions, add, open_dir};
use crate::{DeviceInfo, DeviceKind, LogDevice, LogDeviceStats, MAX_RECORD_LEN_BYTES, Seq};

mod follower;
mod pipeline;

use pipeline::{Pipeline, Start};

const MIN_UNIT: usize = 512;
const MAX_IN_FLIGHT: usize = 64;

/// How a [`BlockLogDevice`] is set up.
#[derive(Clone, Debug)]
pub struct BlockLogOptions {
    /// The segment files.
    pub segments: SegmentOptions,
    /// Length of what the device writes at least, and of what it writes multiples of: 512, 1024, 2048 or 4096.
    /// [`write_unit_len`](crate::choice::write_unit_len) says what fits a path.
    pub write_unit_bytes: usize,
    /// Durable writes that may be under way at once, 1 to 64.
    pub max_in_flight: usize,
    /// Length of the largest group in bytes, 4096 to 16 MiB. A longer record is a group of its own.
    pub group_len_bytes: usize,
    /// While fewer writes than this are under way, a group starts at once. At least 1.
    pub eager_in_flight: usize,
    /// While more are under way, a group starts only if header and padding are at most this share of its payload.
    pub max_padding_percent: usize,
}

impl Default for BlockLogOptions {
    fn default() -> Self {
        Self {
            segments: SegmentOptions::default(),
            write_unit_bytes: 512,
            max_in_flight: 4,
            group_len_bytes: 256 << 10,
            eager_in_flight: 3,
            max_padding_percent: 4,
        }
    }
}

impl BlockLogOptions {
    fn check(&self) -> Result<(), LogDeviceError> {
        let invalid = |option, reason| Err(LogDeviceError::InvalidOption { option, reason });
        let unit = self.write_unit_bytes;
        if !unit.is_power_of_two() || !(MIN_UNIT..=MAX_UNIT).contains(&unit) {
            return invalid("write_unit_bytes", format!("{unit} is not 512, 1024, 2048 or 4096"));
        }
        if !(1..=MAX_IN_FLIGHT).contains(&self.max_in_flight) {
            let reason = format!("{} is not from 1 to {MAX_IN_FLIGHT}", self.max_in_flight);
            return invalid("max_in_flight", reason);
        }
        if !(MAX_UNIT..=16 << 20).contains(&self.group_len_bytes) {
            return invalid(
                "group_len_bytes",
                format!("{} is not from 4096 to 16777216", self.group_len_bytes),
            );
        }
        Ok(())
    }
}

/// A log device on a disk, past the page cache. See the module's documentation.
pub struct BlockLogDevice {
    log: SegmentLog<Direct>,
    io: Arc<dyn DurableIo>,
    options: BlockLogOptions,
    pipeline: Mutex<Pipeline>,
}

/// Opens each segment for durable writes.
struct Direct {
    io: Arc<dyn DurableIo>,
}

impl Media for Direct {
    type Handle = Arc<dyn DurableFile>;

    fn open(&self, _: &Arc<dyn StorageFile>, name: &str, _: u64) -> io::Result<Self::Handle> {
        self.io.open(name)
    }
}

impl BlockLogDevice {
    /// Opens the log in `dir`, or creates one there, and finds its end.
    ///
    /// Reads and checks the records at the end; those before are checked when somebody reads them. When it returns, all
    /// of them are durable.
    ///
    /// # Errors
    /// [`LogDeviceError::Unsupported`] if this process may not use io_uring,
    /// [`LogDeviceError::NoDescriptors`], [`LogDeviceError::Damaged`] if bytes that were durable cannot be read,
    /// [`LogDeviceError::Locked`] if the directory is in use, and I/O failures.
    pub fn open(dir: &Path, options: BlockLogOptions) -> Result<Self, LogDeviceError> {
        options.check()?;
        Self::open_in(open_dir(dir)?, dir, options)
    }

    /// Like [`BlockLogDevice::open`], with files that `storage` opens in `dir`. The caller ensures that `storage` is the
    /// only user of the directory.
    ///
    /// # Errors
    /// As [`BlockLogDevice::open`].
    pub fn open_in(
        storage: Arc<dyn StorageDir>,
        dir: &Path,
        options: BlockLogOptions,
    ) -> Result<Self, LogDeviceError> {
        let mut io = None;
        let made = storage.with_descriptor(&mut || {
            io = Some(UringIo::new(dir, options.max_in_flight)?);
            Ok(())
        });
        match (made, io) {
            (Ok(()), Some(io)) => Self::open_on(storage, Arc::new(io), options),
            (Err(source), _) if is_out_of_descriptors(&source) => {
                let file = dir.display().to_string();
                Err(LogDeviceError::NoDescriptors { action: "make the write rings for", file, source })
            }
            (made, _) => {
                let reason = made.map_or_else(|error| error.to_string(), |()| "it was not set up".to_owned());
                Err(LogDeviceError::Unsupported { what: "io_uring", reason })
            }
        }
    }

    /// Like [`BlockLogDevice::open`], on any implementation of the seams: `io` writes the files of `dir`. The
    /// caller sees to it that nobody else uses the directory.
    ///
    /// # Errors
    /// As [`BlockLogDevice::open`].
    pub fn open_on(
        dir: Arc<dyn StorageDir>,
        io: Arc<dyn DurableIo>,
        options: BlockLogOptions,
    ) -> Result<Self, LogDeviceError> {
        options.check()?;
        let unit = options.write_unit_bytes;
        let media = Direct { io: Arc::clone(&io) };
        let log = SegmentLog::open(dir, options.segments.clone(), unit, media)?;
        let slots = io.slots().min(options.max_in_flight);
        let group_len_bytes = options.group_len_bytes.next_multiple_of(MAX_UNIT);
        let pipeline = Mutex::new(Pipeline::new(slots, unit, group_len_bytes, log.end_seq()));
        Ok(Self { log, io, options, pipeline })
    }

    /// Makes spare segments until there are as many as the options ask for; returns how many were made.
    /// May run beside appends.
    ///
    /// # Errors
    /// [`LogDeviceError::NoSpace`] or an I/O failure. Neither poisons the device, since no record is touched.
    pub fn prepare_spare_segments(&self) -> Result<usize, LogDeviceError> {
        self.log.prepare_spare_segments()
    }

    /// The lock, if the device is not poisoned.
    fn lock(&self) -> Result<MutexGuard<'_, Pipeline>, LogDeviceError> {
        let pipeline = self.pipeline.lock();
        // Under the lock, so that nobody goes to sleep after the failure woke all.
        self.log.poison.check()?;
        Ok(pipeline)
    }

    fn fail(&self, error: LogDeviceError) -> LogDeviceError {
        let error = self.log.poison.set(error);
        let followers = self.pipeline.lock().take_all();
        followers.iter().for_each(|follower| follower.wake());
        error
    }

    /// Whether the group should be started rather than gather more.
    fn is_due(&self, pipeline: &Pipeline) -> bool {
        let len = pipeline.group_len();
        if len == 0 || !pipeline.has_free_slot() {
            return false;
        }
        let on_disk = pipeline.group_len_on_disk();
        pipeline.under_way() < self.options.eager_in_flight.max(1)
            || (on_disk - len) * 100 <= len * self.options.max_padding_percent
    }

    /// Turns the group into writes.
    fn close_group(&self, pipeline: &mut Pipeline) -> Result<(), LogDeviceError> {
        let parts = self.log.reserve(pipeline.group_len())?;
        pipeline.close_group(parts);
        Ok(())
    }

    /// Hands writes to the disk, not under the lock. If the caller `wants_to_await` one, returns the number and
    /// slot of one that is now the caller's to await, or `None` if an older one is left to it.
    fn start_writes(
        &self,
        starts: Vec<Start>,
        wants_to_await: bool,
    ) -> Result<Option<(u64, usize)>, LogDeviceError> {
        let mut to_await = None;
        for Start { id, slot, pending } in starts {
            let pipeline::Pending { part, mut buffer } = pending;
            let payload = buffer.bytes().get(RECORD_HEADER_LEN..).unwrap_or_default();
            let header = part.encode_header(payload, self.log.durable_seq());
            if let Some(place) = buffer.bytes_mut().first_chunk_mut() {
                *place = header;
            }
            buffer.pad_to(self.options.write_unit_bytes);
            let segment = &part.segment;
            add(&self.log.counters().syncs, 1);
            let started = segment.handle.start(slot, part.at as u64, buffer);
            started
                .map_err(LogDeviceError::io("start a write to", &segment.name))
                .map_err(|error| self.fail(error))?;
            let mut woken = Vec::new();
            let mut pipeline = self.pipeline.lock();
            if pipeline.set_started(id, wants_to_await && to_await.is_none()) {
                to_await = Some((id, slot));
            }
            pipeline.offer_writes(&mut woken);
            drop(pipeline);
            woken.iter().for_each(|follower| follower.wake());
        }
        Ok(to_await)
    }

    /// Awaits a write, publishes what became durable with it, and starts the next one. Returns one to await next,
    /// if the caller wants the bytes before `seq` and is to await it.
    fn finish(&self, (id, slot): (u64, usize), seq: u64) -> Result<Option<(u64, usize)>, LogDeviceError> {
        let buffer = self.io.finish(slot);
        let buffer = buffer
            .map_err(LogDeviceError::io("write", "the active log segment"))
            .map_err(|error| self.fail(error))?;
        let mut woken = Vec::new();
        let mut pipeline = self.lock()?;
        let durable = pipeline.set_done(id, buffer);
        if let Some(durable) = durable {
            self.log.set_durable(durable);
        }
        let goes_on = self.log.durable_seq() < seq;
        let is_left = self.is_due(&pipeline) && (goes_on || !pipeline.offer_group(&mut woken));
        let closed = if is_left { self.close_group(&mut pipeline) } else { Ok(()) };
        let starts = pipeline.take_startable();
        if let Some(durable) = durable {
            pipeline.take_reached(durable, &mut woken);
        }
        drop(pipeline);
        let started =
            closed.map_err(|error| self.fail(error)).and_then(|()| self.start_writes(starts, goes_on));
        woken.iter().for_each(|follower| follower.wake());
        started
    }

    /// Starts the group, and what else waits for a slot.
    fn start_group(
        &self,
        mut pipeline: MutexGuard<'_, Pipeline>,
        wants_to_await: bool,
    ) -> Result<Option<(u64, usize)>, LogDeviceError> {
        let closed = self.close_group(&mut pipeline);
        let starts = pipeline.take_startable();
        drop(pipeline);
        closed.map_err(|error| self.fail(error))?;
        self.start_writes(starts, wants_to_await)
    }

    /// Waits until everything before `seq`, which was appended, is durable.
    fn wait(&self, seq: u64) -> Result<u64, LogDeviceError> {
        let mut to_await = None;
        let mut offered = None;
        loop {
            if let Some(write) = to_await.take() {
                to_await = self.finish(write, seq)?;
                continue;
            }
            let mut pipeline = self.lock()?;
            let durable = self.log.durable_seq();
            if durable >= seq {
                return Ok(durable);
            }
            if self.is_due(&pipeline) {
                to_await = self.start_group(pipeline, true)?;
                continue;
            }
            to_await = pipeline.take_to_await(seq, offered.take());
            if to_await.is_none() {
                let follower = pipeline.follow(seq);
                drop(pipeline);
                offered = follower.sleep();
            }
        }
    }

    /// Adds a record to the group, once there is room for it. Returns the lock.
    fn gather(&self, record: &[u8]) -> Result<MutexGuard<'_, Pipeline>, LogDeviceError> {
        loop {
            let mut pipeline = self.lock()?;
            self.log.make_room(pipeline.group_len() + record.len())?;
            if pipeline.gather(record) {
                return Ok(pipeline);
            }
            if pipeline.has_free_slot() {
                self.start_group(pipeline, false)?;
            } else {
                let first_end = pipeline.first_end().unwrap_or_default();
                drop(pipeline);
                self.wait(first_end)?;
            }
        }
    }

    fn check_range(&self, seq: Seq, len: usize) -> Result<(), LogDeviceError> {
        let (start, end) = (self.start(), self.end());
        match seq.0.checked_add(len as u64) {
            Some(range_end) if seq >= start && range_end <= end.0 => Ok(()),
            _ => Err(LogDeviceError::OutOfRange { seq, len_bytes: len, start, end }),
        }
    }
}

impl Drop for BlockLogDevice {
    /// Makes durable what was appended, and leaves a mark, so that damage to the last record is noticed. Best
    /// effort.
    fn drop(&mut self) {
        let _ = self.sync();
        self.log.close();
    }
}

impl LogDevice for BlockLogDevice {
    fn append(&self, record: &[u8]) -> Result<Seq, LogDeviceError> {
        if record.len() > MAX_RECORD_LEN_BYTES {
            return Err(LogDeviceError::RecordTooLarge {
                len_bytes: record.len(),
                limit_bytes: MAX_RECORD_LEN_BYTES,
            });
        }
        if record.is_empty() {
            return Ok(Seq(self.lock()?.end_seq()));
        }
        let pipeline = self.gather(record)?;
        let end = pipeline.end_seq();
        if self.is_due(&pipeline) {
            self.start_group(pipeline, false)?;
        }
        Ok(Seq(end))
    }

    fn sync(&self) -> Result<Seq, LogDeviceError> {
        let end = self.lock()?.end_seq();
        self.wait(end).map(Seq)
    }

    fn durable_end(&self) -> Seq {
        Seq(self.log.durable_seq())
    }

    fn wait_durable(&self, seq: Seq) -> Result<Seq, LogDeviceError> {
        let end = self.end();
        if seq > end {
            return Err(LogDeviceError::OutOfRange { seq, len_bytes: 0, start: self.start(), end });
        }
        self.wait(seq.0).map(Seq)
    }

    fn is_pipelined(&self) -> bool {
        true
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            kind: DeviceKind::Block,
            write_unit_bytes: self.options.write_unit_bytes,
            max_in_flight: self.options.max_in_flight,
            detail: "io_uring, O_DIRECT, RWF_DSYNC".to_owned(),
        }
    }

    fn start(&self) -> Seq {
        Seq(self.log.start_seq())
    }

    fn end(&self) -> Seq {
        Seq(self.pipeline.lock().end_seq())
    }

    fn read_at(&self, seq: Seq, buf: &mut [u8]) -> Result<(), LogDeviceError> {
        self.check_range(seq, buf.len())?;
        self.wait(seq.0 + buf.len() as u64)?;
        self.log.read_at(seq, buf)
    }

    fn drop_cache(&self, seq: Seq, len_bytes: usize) {
        self.log.drop_cache(seq, len_bytes);
    }

    fn discard_before(&self, seq: Seq) -> Result<(), LogDeviceError> {
        let end = self.end();
        if seq > end {
            return Err(LogDeviceError::OutOfRange { seq, len_bytes: 0, start: self.start(), end });
        }
        // A segment that is given up must have no write under way.
        self.wait(seq.0)?;
        self.log.discard_before(seq)
    }

    fn stats(&self) -> LogDeviceStats {
        self.log.stats()
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod crash_tests;
