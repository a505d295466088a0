//! [`SegmentLog`]: the stream in segment files, shared by all devices.
//!
//! Owns a directory with `log-<first position, 20 digits>.seg`, the segments that hold the stream, and
//! `spare-<number>.seg`, files that are ready to become the next segment. The layout inside a segment is in
//! `format`, finding the end after a crash in [`recovery`], what is where in [`index`], spares in [`spares`].
//!
//! It says *where* a record goes ([`SegmentLog::reserve`]); *how* it gets there, and when it is durable, is the
//! device's part. A device keeps what it needs for that with each segment: its [`Media::Handle`].
//!
//! Invariants:
//! * A file has a `log-` name only while its segment header for that position is durable: the header of a spare
//!   is written and synced before the rename, and the rename is synced before the first record.
//! * Segments are given up from the front, one durable rename at a time, so there is never a gap.
//! * Segments are preallocated and written once before use: growing a file makes each durable write slower.
//! * All records of a segment start at multiples of its write unit, which its header names. A device with
//!   another unit closes the segment that it finds and continues in the next one.
//! * A record says how far the stream was durable when it was written; see `format` for why. A device may have
//!   records in flight out of order: recovery ends at the first one that is missing.
//!
//! All devices rely on this: a 512-byte sector is written whole or not at all, and what the system says to be
//! durable is. Damage to the last durable records of a log that was neither closed nor appended to afterwards
//! cannot be told from a torn write.
//!
//! Lock order: `appender`, `spares`, `index`; `discard_lock`, then `index` or `spares`. Opening a new segment
//! happens under `appender`.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use redoubt_storage::{RealDir, StorageDir, StorageFile};
use redoubt_sync::{Mutex, RwLock};

use crate::error::LogDeviceError;
use crate::format::{MIN_ROOM, RECORD_HEADER_LEN, RecordHeader, SEGMENT_HEADER_LEN};
use crate::{LogDeviceStats, MAX_RECORD_LEN_BYTES, Seq};

mod content;
mod damaged;
mod files;
mod index;
mod options;
mod recovery;
mod spares;

pub use damaged::DamagedLog;
use index::{Index, NotLocated, Piece, SegmentIndex};
pub use options::{Held, SegmentOptions};
use options::{MAX_SEGMENT_LEN, MIN_SEGMENT_LEN};
use spares::{OpenSpare, Preparer, Spares};

/// What a device does with a segment file beyond [`StorageFile`].
pub(crate) trait Media: Send + Sync + 'static {
    /// What it keeps with each open segment: nothing, a descriptor of its own, a mapping.
    type Handle: Send + Sync + 'static;

    /// A handle needs a descriptor, and may be opened before the file has a segment's header and name.
    const OPENS_SPARES: bool = true;

    /// Prepares a segment for records. `name` is the file's name in the log directory right now.
    fn open(&self, file: &Arc<dyn StorageFile>, name: &str, len_bytes: u64) -> io::Result<Self::Handle>;
}

/// A segment that takes records, or took some that may still be on their way.
pub(crate) struct Segment<H> {
    pub file: Arc<dyn StorageFile>,
    pub name: String,
    pub epoch: u64,
    /// Length of the file in bytes.
    pub len: usize,
    pub handle: H,
}

/// Where a record, or a part of one, goes.
pub(crate) struct Part<H> {
    pub segment: Arc<Segment<H>>,
    /// Offset in the file of the record header.
    pub at: usize,
    /// Stream position of the first payload byte.
    pub seq: u64,
    /// Which bytes of the appended record.
    pub range: Range<usize>,
    /// The appended record continues in the next segment.
    pub continues: bool,
    /// Bytes from `at` to where the next record starts: header, payload and padding.
    #[cfg_attr(
        not(feature = "experimental-devices"),
        expect(dead_code, reason = "only the log on persistent memory reads it")
    )]
    pub len_in_file: usize,
}

impl<H> Part<H> {
    /// Stream position after the part.
    pub fn end_seq(&self) -> u64 {
        self.seq + self.range.len() as u64
    }

    /// The header's bytes, for the part's payload. `durable_seq` is how far the stream is durable, at most.
    pub fn encode_header(&self, payload: &[u8], durable_seq: u64) -> [u8; RECORD_HEADER_LEN] {
        let header = RecordHeader {
            epoch: self.segment.epoch,
            seq: self.seq,
            durable_seq: durable_seq.min(self.seq),
            len_bytes: payload.len() as u32,
            continues: self.continues,
            mark: payload.is_empty(),
            closes: false,
        };
        header.encode(payload)
    }
}

/// The segments of a log. See the module.
pub(crate) struct SegmentLog<M: Media> {
    shared: Arc<Shared<M>>,
    preparer: Option<Preparer>,
}

/// What the log and its background thread share.
pub(crate) struct Shared<M: Media> {
    pub media: M,
    pub poison: Poison,
    dir: Arc<dyn StorageDir>,
    options: SegmentOptions,
    /// Records start at multiples of this many bytes.
    unit: usize,
    discard_lock: Mutex<()>,
    appender: Mutex<Appender<M::Handle>>,
    spares: Mutex<Spares>,
    index: RwLock<Index>,
    durable_seq: AtomicU64,
    counters: Counters,
}

/// The end of the stream, where the next record goes.
struct Appender<H> {
    active: Arc<Segment<H>>,
    /// Offset in the file for the next record.
    at: usize,
    end_seq: u64,
    /// Spares for the next segments, the first one first.
    next: VecDeque<OpenSpare<H>>,
}

impl<H> Appender<H> {
    fn room(&self) -> usize {
        self.active.len.saturating_sub(self.at)
    }
}

/// Counters of a device; what they count is in [`LogDeviceStats`].
#[derive(Default)]
pub(crate) struct Counters {
    pub bytes_appended: AtomicU64,
    pub bytes_written: AtomicU64,
    pub bytes_preallocated: AtomicU64,
    pub syncs: AtomicU64,
    pub segments_recycled: AtomicU64,
    pub segments_created: AtomicU64,
}

/// Set once by the first failure that leaves the disk's state unknown.
#[derive(Default)]
pub(crate) struct Poison {
    is_set: AtomicBool,
    cause: OnceLock<String>,
}

impl Poison {
    pub fn check(&self) -> Result<(), LogDeviceError> {
        if !self.is_set.load(Ordering::Acquire) {
            return Ok(());
        }
        let cause = self.cause.get().cloned().unwrap_or_default();
        Err(LogDeviceError::Poisoned { cause })
    }

    pub fn set(&self, error: LogDeviceError) -> LogDeviceError {
        let _ = self.cause.set(error.to_string());
        self.is_set.store(true, Ordering::Release);
        error
    }
}

/// Reads the payload bytes at `[seq, seq + buf.len())`.
fn read_at(index: &RwLock<Index>, seq: Seq, buf: &mut [u8]) -> Result<(), LogDeviceError> {
    let pieces = locate(index, seq, buf.len())?;
    let mut rest = buf;
    for piece in pieces {
        let Some((part, tail)) = rest.split_at_mut_checked(piece.len) else { break };
        rest = tail;
        let read = piece
            .file
            .read_at(piece.at, part)
            .and_then(|n| if n == part.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) });
        read.map_err(LogDeviceError::read(&piece.name, piece.at))?;
    }
    Ok(())
}

/// Where it is; reads the segments for it that nobody has read since the log was opened.
fn locate(index: &RwLock<Index>, seq: Seq, len: usize) -> Result<Vec<Piece>, LogDeviceError> {
    loop {
        let unread = {
            let index = index.read();
            match index.locate(seq, len) {
                Ok(pieces) => return Ok(pieces),
                Err(NotLocated::OutOfRange) => return Err(index.out_of_range(seq, len)),
                Err(NotLocated::Damaged(sealed)) => return Err(sealed.damage_error()),
                Err(NotLocated::Unread(sealed)) => sealed,
            }
        };
        unread.read()?;
    }
}

fn segment_name(first_seq: u64) -> String {
    format!("log-{first_seq:020}.seg")
}

pub(crate) fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

/// Opens and locks the directory of a log.
pub(crate) fn open_dir(dir: &Path) -> Result<Arc<dyn StorageDir>, LogDeviceError> {
    let shown = dir.display().to_string();
    match RealDir::open(dir) {
        Ok(dir) => Ok(Arc::new(dir)),
        Err(source) if source.kind() == io::ErrorKind::WouldBlock => {
            Err(LogDeviceError::Locked { dir: shown })
        }
        Err(source) => Err(LogDeviceError::Io { action: "open directory", file: shown, source }),
    }
}

impl<M: Media> std::ops::Deref for SegmentLog<M> {
    type Target = Shared<M>;

    fn deref(&self) -> &Shared<M> {
        &self.shared
    }
}

impl<M: Media> SegmentLog<M> {
    /// Opens the log in `dir`, or creates one there, and finds its end. Records are to start at multiples of
    /// `unit` bytes.
    ///
    /// Reads and checks the records at the end; those before, of which later ones say that they were durable, are
    /// read and checked when somebody reads them. When it returns, all of them are durable.
    pub fn open(
        dir: Arc<dyn StorageDir>,
        options: SegmentOptions,
        unit: usize,
        media: M,
    ) -> Result<Self, LogDeviceError> {
        options.check()?;
        let recovered = recovery::recover(&*dir, &options)?;
        let counters = Counters::default();
        let mut spares = recovered.spares;
        let (open, at, found_unit, index, is_proven) = match recovered.log {
            Some(log) => (log.open, log.at, log.unit, log.index, log.is_proven),
            None => {
                let spare = spares.make(&*dir, options.segment_len_bytes, &counters)?;
                let (open, segment) = spare.activate(&*dir, 0, 0, unit)?;
                (open, SEGMENT_HEADER_LEN, unit, Index::new(segment), true)
            }
        };
        let active = open.with_handle(&media)?;
        let end_seq = index.end_seq;
        let shared = Arc::new(Shared {
            media,
            poison: Poison::default(),
            dir,
            unit,
            discard_lock: Mutex::new(()),
            appender: Mutex::new(Appender { active: Arc::new(active), at, end_seq, next: VecDeque::new() }),
            spares: Mutex::new(spares),
            index: RwLock::new(index),
            durable_seq: AtomicU64::new(end_seq),
            counters,
            options,
        });
        if found_unit != unit {
            shared.write_mark(found_unit, true)?;
        } else if !is_proven {
            shared.write_mark(unit, false)?;
        }
        let preparer = if shared.options.prepare_in_background && shared.options.spare_segments > 0 {
            Some(Preparer::start(&shared)?)
        } else {
            None
        };
        Ok(Self { shared, preparer })
    }

    /// Makes sure that reserving `len` bytes next does not fail for lack of space or descriptors.
    ///
    /// # Errors
    /// [`LogDeviceError::NoSpace`] or [`LogDeviceError::NoDescriptors`] if no room could be made: nothing has changed.
    pub fn make_room(&self, len: usize) -> Result<(), LogDeviceError> {
        self.shared.open_spares(&mut self.shared.appender.lock(), len).map(drop)
    }

    /// Takes the place for a record of `len` bytes at the end of the stream, in as many parts as segments it
    /// reaches into. The caller writes it; nobody else may, and nothing else makes up for it.
    ///
    /// # Errors
    /// As [`SegmentLog::make_room`]. Any other failure poisons.
    pub fn reserve(&self, len: usize) -> Result<Vec<Part<M::Handle>>, LogDeviceError> {
        self.poison.check()?;
        if len > MAX_RECORD_LEN_BYTES {
            return Err(LogDeviceError::RecordTooLarge { len_bytes: len, limit_bytes: MAX_RECORD_LEN_BYTES });
        }
        let mut appender = self.shared.appender.lock();
        let needed = self.shared.open_spares(&mut appender, len)?;
        let parts = self.shared.reserve_parts(&mut appender, len);
        drop(appender);
        if needed > 0
            && let Some(preparer) = &self.preparer
        {
            preparer.wake();
        }
        let parts = parts.map_err(|error| self.poison.set(error))?;
        add(&self.counters.bytes_appended, len);
        Ok(parts)
    }

    /// Leaves a mark after the last durable record, so that damage to it is noticed, and ends the thread. Best
    /// effort; for the device's `Drop`, when nothing is in flight.
    pub fn close(&mut self) {
        if let Some(preparer) = self.preparer.take() {
            preparer.stop();
        }
        let is_clean = self.shared.appender.lock().end_seq == self.durable_seq();
        if is_clean && self.poison.check().is_ok() && self.counters.bytes_appended.load(Ordering::Relaxed) > 0
        {
            let _ = self.shared.write_mark(self.unit, false);
        }
    }
}

impl<M: Media> Shared<M> {
    /// Where the stream is durable to.
    pub fn durable_seq(&self) -> u64 {
        self.durable_seq.load(Ordering::Acquire)
    }

    /// Says that the stream is durable up to `seq`. Never goes back.
    pub fn set_durable(&self, seq: u64) {
        self.durable_seq.fetch_max(seq, Ordering::AcqRel);
    }

    /// What has been counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The position of the first byte still kept.
    pub fn start_seq(&self) -> u64 {
        self.index.read().start_seq()
    }

    /// The position after the last byte reserved.
    pub fn end_seq(&self) -> u64 {
        self.index.read().end_seq
    }

    /// As [`crate::LogDevice::read_at`].
    pub fn read_at(&self, seq: Seq, buf: &mut [u8]) -> Result<(), LogDeviceError> {
        self.poison.check()?;
        read_at(&self.index, seq, buf)
    }

    /// As [`crate::LogDevice::drop_cache`].
    pub fn drop_cache(&self, seq: Seq, len_bytes: usize) {
        let Ok(pieces) = self.index.read().locate(seq, len_bytes) else { return };
        for of_file in pieces.chunk_by(|a, b| a.name == b.name) {
            if let (Some(first), Some(last)) = (of_file.first(), of_file.last()) {
                // Without effect, the bytes are read from memory.
                let _ = first.file.drop_cache_of(first.at, last.at + last.len as u64 - first.at);
            }
        }
    }

    /// As [`crate::LogDevice::discard_before`].
    pub fn discard_before(&self, seq: Seq) -> Result<(), LogDeviceError> {
        self.poison.check()?;
        let _one_at_a_time = self.discard_lock.lock();
        {
            let index = self.index.read();
            if seq.0 > index.end_seq {
                return Err(index.out_of_range(seq, 0));
            }
        }
        loop {
            let front =
                self.index.read().front_before(seq.0).map(|front| (front.file.clone(), front.name.clone()));
            let Some((file, name)) = front else { return Ok(()) };
            // Readers may have it when it is removed, which must not fail for lack of a descriptor.
            let _open = file.hold_open().map_err(LogDeviceError::io_or_no_space("open", &name))?;
            let front = self.index.write().pop_front_before(seq.0);
            let Some(segment) = front else { return Ok(()) };
            self.give_up(segment).map_err(|error| self.poison.set(error))?;
        }
    }

    /// Makes spare segments until there are as many as the options ask for; returns how many were made.
    pub fn prepare_spare_segments(&self) -> Result<usize, LogDeviceError> {
        self.poison.check()?;
        self.prepare_spares()
    }

    /// As [`crate::LogDevice::stats`].
    pub fn stats(&self) -> LogDeviceStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogDeviceStats {
            bytes_appended: get(&self.counters.bytes_appended),
            bytes_written: get(&self.counters.bytes_written),
            bytes_preallocated: get(&self.counters.bytes_preallocated),
            syncs: get(&self.counters.syncs),
            segments_recycled: get(&self.counters.segments_recycled),
            segments_created: get(&self.counters.segments_created),
        }
    }

    /// How many segments after the active one a record of `len` bytes reaches into.
    fn segments_needed(&self, appender: &Appender<M::Handle>, len: usize) -> usize {
        let room = appender.room();
        let in_active = if room < MIN_ROOM { 0 } else { room - RECORD_HEADER_LEN };
        let in_each = self.options.segment_len_bytes as usize - SEGMENT_HEADER_LEN - RECORD_HEADER_LEN;
        len.saturating_sub(in_active).div_ceil(in_each)
    }

    /// Opens spares for all segments after the active one that a record of `len` bytes reaches into. Returns the number
    /// of these segments.
    fn open_spares(&self, appender: &mut Appender<M::Handle>, len: usize) -> Result<usize, LogDeviceError> {
        let needed = self.segments_needed(appender, len);
        while appender.next.len() < needed {
            appender.next.push_back(self.open_spare()?);
        }
        Ok(needed)
    }

    /// Spares for it are open.
    fn reserve_parts(
        &self,
        appender: &mut Appender<M::Handle>,
        len: usize,
    ) -> Result<Vec<Part<M::Handle>>, LogDeviceError> {
        let mut parts = Vec::with_capacity(1);
        let mut done = 0;
        while done < len {
            if appender.room() < MIN_ROOM {
                self.open_next_segment(appender)?;
            }
            let part_len = (len - done).min(appender.room() - RECORD_HEADER_LEN);
            let len_in_file = (RECORD_HEADER_LEN + part_len).next_multiple_of(self.unit);
            parts.push(Part {
                segment: appender.active.clone(),
                at: appender.at,
                seq: appender.end_seq,
                range: done..done + part_len,
                continues: done + part_len < len,
                len_in_file,
            });
            self.index.write().push(appender.end_seq, appender.at + RECORD_HEADER_LEN);
            add(&self.counters.bytes_written, len_in_file);
            appender.at += len_in_file;
            appender.end_seq += part_len as u64;
            done += part_len;
        }
        self.index.write().end_seq = appender.end_seq;
        Ok(parts)
    }

    /// Makes a spare the active segment.
    fn open_next_segment(&self, appender: &mut Appender<M::Handle>) -> Result<(), LogDeviceError> {
        let spare = match appender.next.pop_front() {
            Some(spare) => spare,
            None => self.open_spare()?,
        };
        let OpenSpare { spare, open: _open, handle } = spare;
        if spare.is_recycled {
            add(&self.counters.segments_recycled, 1);
        }
        let (open, segment) = spare.activate(&*self.dir, appender.end_seq, self.durable_seq(), self.unit)?;
        add(&self.counters.bytes_written, SEGMENT_HEADER_LEN);
        appender.active = Arc::new(match handle {
            Some(handle) => open.with(handle),
            None => open.with_handle(&self.media)?,
        });
        appender.at = SEGMENT_HEADER_LEN;
        self.index.write().push_segment(segment);
        Ok(())
    }

    /// Writes and syncs a mark that says that everything is durable, and with `closes`, that the segment ends
    /// here. A full segment gets none: the header of the next one says the same. Nothing may be in flight.
    fn write_mark(&self, unit: usize, closes: bool) -> Result<(), LogDeviceError> {
        let mut appender = self.appender.lock();
        if appender.room() < MIN_ROOM {
            return Ok(());
        }
        let Appender { active, at, end_seq, .. } = &mut *appender;
        let header = RecordHeader {
            epoch: active.epoch,
            seq: *end_seq,
            durable_seq: *end_seq,
            len_bytes: 0,
            continues: false,
            mark: true,
            closes,
        };
        let mut bytes = header.encode(&[]).to_vec();
        bytes.resize(RECORD_HEADER_LEN.next_multiple_of(unit), 0);
        let written = active.file.write_at(*at as u64, &bytes).and_then(|()| active.file.sync_data());
        written.map_err(LogDeviceError::io("write mark to", &active.name)).map_err(|e| self.poison.set(e))?;
        add(&self.counters.bytes_written, bytes.len());
        add(&self.counters.syncs, 1);
        *at = if closes { active.len } else { *at + bytes.len() };
        Ok(())
    }

    /// Turns a segment that is no longer needed into a spare, or removes it.
    fn give_up(&self, segment: SegmentIndex) -> Result<(), LogDeviceError> {
        let SegmentIndex { file, name, len_bytes, .. } = segment;
        let new_name = {
            let mut spares = self.spares.lock();
            let is_wanted =
                spares.count() < self.options.kept_spares() && len_bytes == self.options.segment_len_bytes;
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
