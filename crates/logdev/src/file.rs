//! [`FileLogDevice`]: a log device in segment files.
//!
//! Owns a directory with `log-<first position, 20 digits>.seg`, the segments that hold the stream, and
//! `spare-<number>.seg`, files that are ready to become the next segment. The layout inside a segment is in
//! `format`, finding the end after a crash in [`recovery`], what is where in [`index`], spares in [`spares`].
//!
//! Invariants:
//! * A file has a `log-` name only while its segment header for that position is durable: the header of a spare
//!   is written and synced before the rename, and the rename is synced before the first record.
//! * Segments are given up from the front, one durable rename at a time, so there is never a gap.
//! * Segments are preallocated and written once before use: growing a file makes each `fdatasync` slower.
//! * Every write is padded with zeros to the end of its page-cache page, so that appending to a reused file
//!   does not read the old page first. It never reaches past the end of the segment.
//! * A record says how far the stream was durable when it was written; see `format` for why.
//!
//! The device relies on the disk for this: a 512-byte sector is written whole or not at all, and `fdatasync`
//! tells the truth. Damage to the last synced records of a log that was neither closed nor appended to
//! afterwards cannot be told from a torn write.
//!
//! Lock order: `sync_lock`, `appender`, `spares`, `index`; `discard_lock`, then `index` or `spares`. No lock but
//! `sync_lock` is held during an `fdatasync` of records, so appends go on during a sync. Opening a new segment
//! happens under `appender`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

use crate::error::LogDeviceError;
use crate::format::{MIN_ROOM, RECORD_ALIGN, RECORD_HEADER_LEN, RecordHeader, SEGMENT_HEADER_LEN};
use crate::storage::{RealDir, StorageDir, StorageFile};
use crate::{LogDevice, LogDeviceStats, MAX_RECORD_LEN_BYTES, Seq};

mod index;
mod recovery;
mod spares;

use index::{Index, SegmentIndex};
use spares::{Preparer, Spares};

const PAGE_LEN: usize = 4096;
/// Payload up to this length is copied behind its header and written in one call.
const COPY_LIMIT: usize = 1 << 20;
const MIN_SEGMENT_LEN: u64 = 2 * SEGMENT_HEADER_LEN as u64;
const MAX_SEGMENT_LEN: u64 = 1 << 30;

/// How a [`FileLogDevice`] is set up.
#[derive(Clone, Debug)]
pub struct FileLogOptions {
    /// Length of each new segment file: a multiple of 4096, from 8 KiB to 1 GiB.
    pub segment_len_bytes: u64,
    /// Unused segments to keep ready. A discarded segment beyond that is removed.
    pub spare_segments: usize,
    /// Prepare spares in a thread of its own. Otherwise they are made when needed, in
    /// [`LogDevice::append`], or by [`FileLogDevice::prepare_spare_segments`].
    pub prepare_in_background: bool,
}

impl Default for FileLogOptions {
    fn default() -> Self {
        Self { segment_len_bytes: 64 << 20, spare_segments: 2, prepare_in_background: true }
    }
}

impl FileLogOptions {
    fn check(&self) -> Result<(), LogDeviceError> {
        let len = self.segment_len_bytes;
        if !(MIN_SEGMENT_LEN..=MAX_SEGMENT_LEN).contains(&len) || !len.is_multiple_of(PAGE_LEN as u64) {
            return Err(LogDeviceError::InvalidOption {
                option: "segment_len_bytes",
                reason: format!(
                    "{len} is not a multiple of {PAGE_LEN} from {MIN_SEGMENT_LEN} to {MAX_SEGMENT_LEN}"
                ),
            });
        }
        Ok(())
    }
}

/// A log device in segment files of one directory. See the module's documentation.
pub struct FileLogDevice {
    device: Arc<Device>,
    preparer: Option<Preparer>,
}

/// What the device and its background thread share.
struct Device {
    dir: Arc<dyn StorageDir>,
    options: FileLogOptions,
    poison: Poison,
    sync_lock: Mutex<()>,
    discard_lock: Mutex<()>,
    appender: Mutex<Appender>,
    spares: Mutex<Spares>,
    index: RwLock<Index>,
    durable_seq: AtomicU64,
    counters: Counters,
}

/// The end of the stream, where the next record goes.
struct Appender {
    active: Active,
    /// Files with records that no sync has covered.
    dirty: Vec<(Arc<dyn StorageFile>, String)>,
    end_seq: u64,
    buffer: Vec<u8>,
}

/// The segment that takes records.
struct Active {
    file: Arc<dyn StorageFile>,
    name: String,
    epoch: u64,
    len: usize,
    /// Offset in the file for the next record.
    at: usize,
    is_dirty: bool,
}

impl Active {
    fn room(&self) -> usize {
        self.len.saturating_sub(self.at)
    }
}

#[derive(Default)]
struct Counters {
    bytes_appended: AtomicU64,
    bytes_written: AtomicU64,
    bytes_preallocated: AtomicU64,
    syncs: AtomicU64,
    segments_recycled: AtomicU64,
    segments_created: AtomicU64,
}

/// Set once by the first failure that leaves the disk's state unknown.
#[derive(Default)]
struct Poison {
    is_set: AtomicBool,
    cause: OnceLock<String>,
}

impl Poison {
    fn check(&self) -> Result<(), LogDeviceError> {
        if !self.is_set.load(Ordering::Acquire) {
            return Ok(());
        }
        let cause = self.cause.get().cloned().unwrap_or_default();
        Err(LogDeviceError::Poisoned { cause })
    }

    fn set(&self, error: LogDeviceError) -> LogDeviceError {
        let _ = self.cause.set(error.to_string());
        self.is_set.store(true, Ordering::Release);
        error
    }
}

fn segment_name(first_seq: u64) -> String {
    format!("log-{first_seq:020}.seg")
}

fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

impl FileLogDevice {
    /// Opens the log in `dir`, or creates one there, and finds its end.
    ///
    /// Reads and checks every record that is kept. When it returns, all of them are durable.
    ///
    /// # Errors
    /// [`LogDeviceError::Damaged`] if bytes that were durable cannot be read,
    /// [`LogDeviceError::Locked`] if the directory is in use, and I/O failures.
    pub fn open(dir: &Path, options: FileLogOptions) -> Result<Self, LogDeviceError> {
        let shown = dir.display().to_string();
        let dir = RealDir::open(dir).map_err(|source| match source.kind() {
            std::io::ErrorKind::WouldBlock => LogDeviceError::Locked { dir: shown },
            _ => LogDeviceError::Io { action: "open directory", file: shown, source },
        })?;
        Self::open_on(Arc::new(dir), options)
    }

    /// Like [`FileLogDevice::open`], on any implementation of the file system seam. The caller sees to it
    /// that nobody else uses the directory.
    ///
    /// # Errors
    /// As [`FileLogDevice::open`].
    pub fn open_on(dir: Arc<dyn StorageDir>, options: FileLogOptions) -> Result<Self, LogDeviceError> {
        options.check()?;
        let recovered = recovery::recover(&*dir, &options)?;
        let counters = Counters::default();
        let mut spares = recovered.spares;
        let (active, index, is_proven) = match recovered.log {
            Some(log) => (log.active, log.index, log.proven_seq == log.end_seq),
            None => {
                let spare = spares.make(&*dir, options.segment_len_bytes, &counters)?;
                let (active, segment) = spare.activate(&*dir, 0, 0)?;
                (active, Index::new(segment), true)
            }
        };
        let end_seq = index.end_seq;
        let device = Arc::new(Device {
            dir,
            poison: Poison::default(),
            sync_lock: Mutex::new(()),
            discard_lock: Mutex::new(()),
            appender: Mutex::new(Appender { active, dirty: Vec::new(), end_seq, buffer: Vec::new() }),
            spares: Mutex::new(spares),
            index: RwLock::new(index),
            durable_seq: AtomicU64::new(end_seq),
            counters,
            options,
        });
        if !is_proven {
            device.write_mark()?;
        }
        let preparer = if device.options.prepare_in_background && device.options.spare_segments > 0 {
            Some(Preparer::start(&device)?)
        } else {
            None
        };
        Ok(Self { device, preparer })
    }

    /// The end of what is durable.
    pub fn durable_end(&self) -> Seq {
        Seq(self.device.durable_seq.load(Ordering::Acquire))
    }

    /// Makes spare segments until there are as many as the options ask for; returns how many were made.
    /// May run beside appends.
    ///
    /// # Errors
    /// [`LogDeviceError::NoSpace`] or an I/O failure. Neither poisons the device, since no record is touched.
    pub fn prepare_spare_segments(&self) -> Result<usize, LogDeviceError> {
        self.device.poison.check()?;
        self.device.prepare_spares()
    }
}

impl Drop for FileLogDevice {
    /// Leaves a mark after the last durable record, so that damage to it is noticed. Best effort.
    fn drop(&mut self) {
        if let Some(preparer) = self.preparer.take() {
            preparer.stop();
        }
        let device = &self.device;
        let is_clean = device.appender.lock().end_seq == device.durable_seq.load(Ordering::Acquire);
        if is_clean
            && device.poison.check().is_ok()
            && device.counters.bytes_appended.load(Ordering::Relaxed) > 0
        {
            let _ = device.write_mark();
        }
    }
}

impl LogDevice for FileLogDevice {
    fn append(&self, record: &[u8]) -> Result<Seq, LogDeviceError> {
        let device = &*self.device;
        device.poison.check()?;
        if record.len() > MAX_RECORD_LEN_BYTES {
            return Err(LogDeviceError::RecordTooLarge {
                len_bytes: record.len(),
                limit_bytes: MAX_RECORD_LEN_BYTES,
            });
        }
        let mut appender = device.appender.lock();
        let needed = device.segments_needed(&appender, record.len());
        if needed > 0 {
            device.ensure_spares(needed)?;
        }
        let result = device.append_parts(&mut appender, record);
        if needed > 0
            && let Some(preparer) = &self.preparer
        {
            preparer.wake();
        }
        let end_seq = result.map_err(|error| device.poison.set(error))?;
        add(&device.counters.bytes_appended, record.len());
        Ok(Seq(end_seq))
    }

    fn sync(&self) -> Result<Seq, LogDeviceError> {
        self.device.sync()
    }

    fn start(&self) -> Seq {
        Seq(self.device.index.read().start_seq())
    }

    fn end(&self) -> Seq {
        Seq(self.device.index.read().end_seq)
    }

    fn read_at(&self, seq: Seq, buf: &mut [u8]) -> Result<(), LogDeviceError> {
        self.device.poison.check()?;
        let pieces = self.device.index.read().locate(seq, buf.len())?;
        let mut rest = buf;
        for piece in pieces {
            let Some((part, tail)) = rest.split_at_mut_checked(piece.len) else { break };
            rest = tail;
            let read = piece.file.read_at(piece.at, part).and_then(|n| {
                if n == part.len() { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
            });
            read.map_err(|source| LogDeviceError::Read {
                file: piece.name.to_string(),
                offset_bytes: piece.at,
                source,
            })?;
        }
        Ok(())
    }

    fn discard_before(&self, seq: Seq) -> Result<(), LogDeviceError> {
        let device = &*self.device;
        device.poison.check()?;
        let _one_at_a_time = device.discard_lock.lock();
        {
            let index = device.index.read();
            if seq.0 > index.end_seq {
                let (start, end) = (Seq(index.start_seq()), Seq(index.end_seq));
                return Err(LogDeviceError::OutOfRange { seq, len_bytes: 0, start, end });
            }
        }
        loop {
            let front = device.index.write().pop_front_before(seq.0);
            let Some(segment) = front else { return Ok(()) };
            device.give_up(segment).map_err(|error| device.poison.set(error))?;
        }
    }

    fn stats(&self) -> LogDeviceStats {
        let counters = &self.device.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogDeviceStats {
            bytes_appended: get(&counters.bytes_appended),
            bytes_written: get(&counters.bytes_written),
            bytes_preallocated: get(&counters.bytes_preallocated),
            syncs: get(&counters.syncs),
            segments_recycled: get(&counters.segments_recycled),
            segments_created: get(&counters.segments_created),
        }
    }
}

impl Device {
    /// How many segments after the active one a record of `len` bytes reaches into.
    fn segments_needed(&self, appender: &Appender, len: usize) -> usize {
        let room = appender.active.room();
        let in_active = if room < MIN_ROOM { 0 } else { room - RECORD_HEADER_LEN };
        let in_each = self.options.segment_len_bytes as usize - SEGMENT_HEADER_LEN - RECORD_HEADER_LEN;
        len.saturating_sub(in_active).div_ceil(in_each)
    }

    /// Writes a record, in as many parts as segments it reaches into. Spares for it are there.
    fn append_parts(&self, appender: &mut Appender, record: &[u8]) -> Result<u64, LogDeviceError> {
        let mut rest = record;
        let mut seq = appender.end_seq;
        let mut parts = 0_usize;
        while !rest.is_empty() {
            if appender.active.room() < MIN_ROOM {
                self.open_next_segment(appender, seq)?;
            }
            let len = rest.len().min(appender.active.room() - RECORD_HEADER_LEN);
            let (part, tail) = rest.split_at(len);
            let at = appender.active.at;
            self.write_record(appender, seq, part, !tail.is_empty())?;
            self.index.write().push(seq, at + RECORD_HEADER_LEN);
            seq += len as u64;
            rest = tail;
            parts += 1;
        }
        appender.end_seq = seq;
        if parts > 0 {
            self.index.write().end_seq = seq;
        }
        Ok(seq)
    }

    /// Writes one record at the end of the active segment. Without payload it is a mark.
    fn write_record(
        &self,
        appender: &mut Appender,
        seq: u64,
        payload: &[u8],
        continues: bool,
    ) -> Result<(), LogDeviceError> {
        let Appender { active, dirty, buffer, .. } = appender;
        let header = RecordHeader {
            epoch: active.epoch,
            seq,
            durable_seq: self.durable_seq.load(Ordering::Acquire),
            len_bytes: payload.len() as u32,
            continues,
            mark: payload.is_empty(),
        };
        let (copied, direct) = payload.split_at(payload.len().min(COPY_LIMIT));
        buffer.clear();
        buffer.extend_from_slice(&header.encode(payload));
        buffer.extend_from_slice(copied);
        let end = active.at + RECORD_HEADER_LEN + payload.len();
        let padding = end.next_multiple_of(PAGE_LEN).min(active.len) - end;
        if !active.is_dirty {
            active.is_dirty = true;
            dirty.push((active.file.clone(), active.name.clone()));
        }
        let write = |at: usize, bytes: &[u8]| {
            active
                .file
                .write_at(at as u64, bytes)
                .map_err(LogDeviceError::io("write record to", &active.name))
        };
        if direct.is_empty() {
            buffer.resize(buffer.len() + padding, 0);
            write(active.at, buffer)?;
        } else {
            write(active.at, buffer)?;
            write(active.at + buffer.len(), direct)?;
            write(end, &[0; PAGE_LEN][..padding])?;
        }
        add(&self.counters.bytes_written, RECORD_HEADER_LEN + payload.len());
        active.at = end.next_multiple_of(RECORD_ALIGN);
        Ok(())
    }

    /// Makes a spare the active segment.
    fn open_next_segment(&self, appender: &mut Appender, first_seq: u64) -> Result<(), LogDeviceError> {
        let spare = self.spares.lock().take();
        let spare = match spare {
            Some(spare) => spare,
            None => self.make_spare()?,
        };
        let durable_seq = self.durable_seq.load(Ordering::Acquire);
        if spare.is_recycled {
            add(&self.counters.segments_recycled, 1);
        }
        let (active, segment) = spare.activate(&*self.dir, first_seq, durable_seq)?;
        add(&self.counters.bytes_written, SEGMENT_HEADER_LEN);
        self.index.write().push_segment(segment);
        appender.active = active;
        Ok(())
    }

    fn sync(&self) -> Result<Seq, LogDeviceError> {
        self.poison.check()?;
        let wanted = self.appender.lock().end_seq;
        let _one_at_a_time = self.sync_lock.lock();
        // The sync that we waited for may have failed, or may have covered us.
        self.poison.check()?;
        let durable = self.durable_seq.load(Ordering::Acquire);
        if durable >= wanted {
            return Ok(Seq(durable));
        }
        let (end_seq, dirty) = {
            let mut appender = self.appender.lock();
            appender.active.is_dirty = false;
            (appender.end_seq, std::mem::take(&mut appender.dirty))
        };
        for (file, name) in dirty {
            add(&self.counters.syncs, 1);
            file.sync_data()
                .map_err(LogDeviceError::io("sync", &name))
                .map_err(|error| self.poison.set(error))?;
        }
        self.durable_seq.store(end_seq, Ordering::Release);
        Ok(Seq(end_seq))
    }

    /// Writes and syncs a mark that says that everything is durable. A full segment gets none: the header of
    /// the next one says the same.
    fn write_mark(&self) -> Result<(), LogDeviceError> {
        let _one_at_a_time = self.sync_lock.lock();
        let mut appender = self.appender.lock();
        if appender.active.room() < MIN_ROOM {
            return Ok(());
        }
        let seq = appender.end_seq;
        let written = self.write_record(&mut appender, seq, &[], false);
        let file = &appender.active.file;
        let name = &appender.active.name;
        let synced = written.and_then(|()| file.sync_data().map_err(LogDeviceError::io("sync", name)));
        synced.map_err(|error| self.poison.set(error))?;
        add(&self.counters.syncs, 1);
        Ok(())
    }

    /// Turns a segment that is no longer needed into a spare, or removes it.
    fn give_up(&self, segment: SegmentIndex) -> Result<(), LogDeviceError> {
        let SegmentIndex { file, name, len_bytes, .. } = segment;
        let new_name = {
            let mut spares = self.spares.lock();
            let is_wanted =
                spares.count() < self.options.spare_segments && len_bytes == self.options.segment_len_bytes;
            is_wanted.then(|| spares.next_name())
        };
        match &new_name {
            Some(to) => self.dir.rename(&name, to).map_err(LogDeviceError::io("rename", &name))?,
            None => self.dir.remove(&name).map_err(LogDeviceError::io("remove", &name))?,
        }
        self.dir.sync().map_err(LogDeviceError::io("sync the directory of", &name))?;
        if let Some(name) = new_name {
            self.spares.lock().put_recycled(file, name, len_bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod crash_tests;
