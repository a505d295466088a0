//! [`PmemLog`]: how a record gets to a mapped segment and when it is durable.
//!
//! An append takes its place in the stream under a short lock, copies its record there past the cache, fences, and
//! publishes the range. All appends do that beside each other; nobody writes for anybody else, and there is no
//! thread in between.
//!
//! Invariants:
//! * A record starts at a multiple of the write unit, at least a cache line, and is padded to one: no line holds
//!   bytes of two records, so every store is of whole lines and no line that is durable is written again.
//! * The stream is durable up to `Published::durable`, which moves over a range only when its writer has fenced it
//!   and all ranges before are published. A writer who comes too early leaves its range for the one who closes the
//!   gap, and waits, first spinning and then asleep.
//! * After a failure nothing is published, and all who wait get an error.
//!
//! Lock order: the locks of the segments, then `published`. It is a leaf, and held for no system call.

use std::collections::BTreeMap;

use redoubt_persistent_memory::memory::LINE_LEN_BYTES;
use redoubt_persistent_memory::{Mapping, PmemError};
use redoubt_storage::StorageDir;
use redoubt_sync::Mutex;

use crate::error::LogDeviceError;
use crate::format::RECORD_HEADER_LEN;
use crate::segments::{Media, Part, SegmentLog, SegmentOptions, add};
use crate::waiters::{CommitWaiters, WaitEnd};
use std::sync::Arc;

/// Looks at the published end before a waiting thread goes to sleep: about as long as a few copies take.
const SPINS: u32 = 100;

static ZERO_LINE: [u8; LINE_LEN_BYTES] = [0; LINE_LEN_BYTES];

/// A segment file that takes stores.
pub(super) trait MappedFile: Send + Sync + 'static {
    /// As [`Mapping::write`].
    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), PmemError>;
    /// As [`Mapping::fence`].
    fn fence(&self) -> Result<(), PmemError>;
}

impl MappedFile for Arc<Mapping> {
    #[inline]
    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), PmemError> {
        Mapping::write(self, offset_bytes, bytes)
    }

    #[inline]
    fn fence(&self) -> Result<(), PmemError> {
        Mapping::fence(self)
    }
}

/// A place in the stream that one append has taken.
pub(super) struct Reservation<H> {
    parts: Vec<Part<H>>,
    start_seq: u64,
    /// The position after the record.
    pub end_seq: u64,
}

/// The ranges that are fenced.
struct Published {
    /// All before is.
    durable: u64,
    /// Ranges after a gap, by start.
    ahead: BTreeMap<u64, u64>,
}

impl Published {
    /// Adds a range; returns where the stream is durable to then.
    fn add(&mut self, start: u64, end: u64) -> u64 {
        if start != self.durable {
            self.ahead.insert(start, end);
            return self.durable;
        }
        self.durable = end;
        while let Some(end) = self.ahead.remove(&self.durable) {
            self.durable = end;
        }
        self.durable
    }
}

/// A log in mapped segments. See the module.
pub(super) struct PmemLog<M: Media> {
    pub segments: SegmentLog<M>,
    published: Mutex<Published>,
    waiters: CommitWaiters,
    spins: u32,
}

impl<M: Media> PmemLog<M>
where
    M::Handle: MappedFile,
{
    /// Opens the log in `dir`. `unit_bytes` is a multiple of a cache line.
    pub fn open(
        dir: Arc<dyn StorageDir>,
        options: SegmentOptions,
        unit_bytes: usize,
        media: M,
    ) -> Result<Self, LogDeviceError> {
        let segments = SegmentLog::open(dir, options, unit_bytes, media)?;
        let durable = segments.durable_seq();
        // With one processor the thread waited for cannot run meanwhile.
        let has_others = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
        Ok(Self {
            segments,
            published: Mutex::new(Published { durable, ahead: BTreeMap::new() }),
            waiters: CommitWaiters::new(durable),
            spins: if has_others { SPINS } else { 0 },
        })
    }

    /// Appends a record; it is durable when this returns.
    pub fn append(&self, record: &[u8]) -> Result<u64, LogDeviceError> {
        if record.is_empty() {
            self.segments.poison.check()?;
            return Ok(self.segments.durable_seq());
        }
        let reservation = self.reserve(record.len())?;
        self.copy(&reservation, record)?;
        self.fence(&reservation)?;
        self.publish(&reservation);
        self.wait(reservation.end_seq)?;
        Ok(reservation.end_seq)
    }

    /// The first step of an append: takes the place for a record that is not empty.
    pub fn reserve(&self, len: usize) -> Result<Reservation<M::Handle>, LogDeviceError> {
        let reserved = self.segments.reserve(len);
        if reserved.is_err() && self.segments.poison.check().is_err() {
            self.waiters.close();
        }
        let parts = reserved?;
        let start_seq = parts.first().map_or(0, |part| part.seq);
        let end_seq = parts.last().map_or(0, Part::end_seq);
        Ok(Reservation { parts, start_seq, end_seq })
    }

    /// The second step: stores the record.
    pub fn copy(&self, reservation: &Reservation<M::Handle>, record: &[u8]) -> Result<(), LogDeviceError> {
        for part in &reservation.parts {
            let payload = record.get(part.range.clone()).unwrap_or_default();
            let header = part.encode_header(payload, self.segments.durable_seq());
            let written = write_part(&part.segment.handle, part.at, &header, payload, part.len_in_file);
            written.map_err(|error| self.fail("write record to", &part.segment.name, error))?;
        }
        Ok(())
    }

    /// The third step, in the thread that took the second: makes the record itself durable.
    pub fn fence(&self, reservation: &Reservation<M::Handle>) -> Result<(), LogDeviceError> {
        for part in &reservation.parts {
            let fenced = part.segment.handle.fence();
            fenced.map_err(|error| self.fail("make a record durable in", &part.segment.name, error))?;
        }
        add(&self.segments.counters().syncs, 1);
        Ok(())
    }

    /// The last step: the record counts as durable as soon as all before it do.
    pub fn publish(&self, reservation: &Reservation<M::Handle>) {
        let durable = self.published.lock().add(reservation.start_seq, reservation.end_seq);
        self.segments.set_durable(durable);
        self.waiters.advance(durable);
    }

    /// Waits until everything before `seq` is durable, which others have to bring about.
    pub fn wait(&self, seq: u64) -> Result<u64, LogDeviceError> {
        for _ in 0..self.spins {
            if self.waiters.durable() >= seq {
                break;
            }
            std::hint::spin_loop();
        }
        match self.waiters.wait(seq, None) {
            WaitEnd::Reached => Ok(self.segments.durable_seq()),
            WaitEnd::Closed | WaitEnd::TimedOut => Err(self.poisoned()),
        }
    }

    /// Stops the device.
    fn fail(&self, action: &'static str, file: &str, error: PmemError) -> LogDeviceError {
        let cause = LogDeviceError::io(action, file)(std::io::Error::other(error));
        self.segments.poison.set(cause);
        self.waiters.close();
        self.poisoned()
    }

    fn poisoned(&self) -> LogDeviceError {
        let unknown = || LogDeviceError::Poisoned { cause: "the log was closed".to_owned() };
        self.segments.poison.check().err().unwrap_or_else(unknown)
    }
}

/// Stores one part in whole lines: the header with the first payload bytes after it, the lines in the middle
/// straight from the payload, the rest filled up with zeros.
fn write_part(
    file: &impl MappedFile,
    at: usize,
    header: &[u8; RECORD_HEADER_LEN],
    payload: &[u8],
    len_in_file: usize,
) -> Result<(), PmemError> {
    let at = at as u64;
    let (first, rest) = payload.split_at(payload.len().min(LINE_LEN_BYTES - RECORD_HEADER_LEN));
    let mut line = ZERO_LINE;
    line[..RECORD_HEADER_LEN].copy_from_slice(header);
    line[RECORD_HEADER_LEN..RECORD_HEADER_LEN + first.len()].copy_from_slice(first);
    file.write(at, &line)?;
    let mut done = LINE_LEN_BYTES;
    let (lines, tail) = rest.split_at(rest.len() - rest.len() % LINE_LEN_BYTES);
    file.write(at + done as u64, lines)?;
    done += lines.len();
    if !tail.is_empty() {
        let mut line = ZERO_LINE;
        line[..tail.len()].copy_from_slice(tail);
        file.write(at + done as u64, &line)?;
        done += LINE_LEN_BYTES;
    }
    // Units longer than a line: what an earlier use of the file left there must not stay.
    while done < len_in_file {
        file.write(at + done as u64, &ZERO_LINE)?;
        done += LINE_LEN_BYTES;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
