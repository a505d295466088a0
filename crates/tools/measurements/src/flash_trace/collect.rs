//! From requests to a trace: the part that counts, with the origin of every sector.
//!
//! A write is attributed when the next snapshot of the files is there. Its origin is the file that owns its sectors
//! then, else the file that owned them in the previous snapshot (and was removed meanwhile), else the file system. So a
//! growing file is already in the snapshot when the owner of its new blocks is looked up.
//!
//! Invariant: each sector of each request ends up in the trace once, with one origin. A request across a border of
//! owners is cut there.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use redoubt_flash::trace::{Op, Origin, Record, TraceWriter};
use redoubt_workload::error::{Error, Result};
use serde::Serialize;

use super::disk::SECTOR_LEN_BYTES;
use super::extents::OwnerMap;
use super::recorder::{Event, Mark, Sink};

/// Snapshots that were taken and not used yet. One is put in before its mark is written.
pub(super) type Snapshots = Arc<Mutex<VecDeque<Arc<OwnerMap>>>>;

/// Writes of one origin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct OriginSum {
    /// Requests, or parts of requests.
    pub writes: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Figures of the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Window {
    /// Transactions committed in it.
    pub transactions: u64,
    /// How long it was, in seconds.
    pub seconds: f64,
    /// Flushes of the drive's write cache.
    pub flushes: u64,
    /// Writes by origin.
    pub by_origin: BTreeMap<&'static str, OriginSum>,
}

impl Window {
    /// Bytes written of an origin.
    pub fn bytes(&self, origin: Origin) -> u64 {
        self.by_origin.get(origin.name()).map_or(0, |sum| sum.bytes)
    }

    /// All bytes written.
    pub fn total_bytes(&self) -> u64 {
        self.by_origin.values().map(|sum| sum.bytes).sum()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WindowPhase {
    Before,
    Inside,
    After,
}

/// Takes the events of a recording and writes the trace.
pub(super) struct Collector {
    out: TraceWriter<BufWriter<File>>,
    snapshots: Snapshots,
    previous: Arc<OwnerMap>,
    pending: Vec<Record>,
    state: WindowPhase,
    began_us: u64,
    marked: u64,
    window: Window,
}

impl Collector {
    /// Writes to `path`. `first` is how the files are at the beginning.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be made.
    pub(super) fn create(path: &Path, first: OwnerMap, snapshots: Snapshots) -> Result<Self> {
        Ok(Self {
            out: TraceWriter::create(path).map_err(trace_error)?,
            snapshots,
            previous: Arc::new(first),
            pending: Vec::new(),
            state: WindowPhase::Before,
            began_us: 0,
            marked: 0,
            window: Window::default(),
        })
    }

    /// Ends the file.
    ///
    /// # Errors
    /// [`Error::State`] when the part that counts has not ended, [`Error::Io`] when the file cannot be written.
    pub(super) fn finish(self) -> Result<Window> {
        if self.state != WindowPhase::After || !self.pending.is_empty() {
            return Err(Error::State("the recording ended before the load did".into()));
        }
        self.out.finish().map_err(trace_error)?;
        Ok(self.window)
    }

    fn mark(&mut self, time_us: u64, mark: Mark) -> Result<()> {
        match mark {
            Mark::Begin(count) => {
                (self.state, self.began_us, self.marked) = (WindowPhase::Inside, time_us, count);
            }
            // Clients make marks side by side: one with a smaller number may come later.
            Mark::Commits(count) if self.state == WindowPhase::Inside => self.commits(time_us, count),
            Mark::End(count) => {
                self.commits(time_us, count);
                self.state = WindowPhase::After;
                self.window.seconds = self.time_us(time_us) as f64 / 1e6;
            }
            Mark::Snapshot => {
                let next = self
                    .snapshots
                    .lock()
                    .ok()
                    .and_then(|mut all| all.pop_front())
                    .ok_or_else(|| Error::State("a snapshot's mark came without the snapshot".into()))?;
                self.resolve(&next)?;
                self.previous = next;
            }
            Mark::Commits(_) | Mark::Stop => {}
        }
        Ok(())
    }

    /// Time since the part that counts began. Processors' clocks may differ a little.
    fn time_us(&self, time_us: u64) -> u64 {
        time_us.saturating_sub(self.began_us)
    }

    fn commits(&mut self, time_us: u64, count: u64) {
        let more = count.saturating_sub(self.marked);
        if let Some(sectors) = u32::try_from(more).ok().filter(|more| *more > 0) {
            self.marked = count;
            self.window.transactions += more;
            let time_us = self.time_us(time_us);
            let record = Record { time_us, sector: 0, sectors, op: Op::Mark, origin: Origin::Other };
            self.pending.push(record);
        }
    }

    fn resolve(&mut self, next: &OwnerMap) -> Result<()> {
        for record in std::mem::take(&mut self.pending) {
            if !matches!(record.op, Op::Write | Op::Trim) {
                self.out.write(&record).map_err(trace_error)?;
                continue;
            }
            let sectors = record.sector..record.sector + u64::from(record.sectors);
            for (range, origin) in attribute(next, &self.previous, sectors) {
                if record.op == Op::Write {
                    let sum = self.window.by_origin.entry(origin.name()).or_default();
                    sum.writes += 1;
                    sum.bytes += (range.end - range.start) * SECTOR_LEN_BYTES;
                }
                // No longer than the request, whose length is 32 bits.
                let sectors = u32::try_from(range.end - range.start).unwrap_or(record.sectors);
                let part = Record { sector: range.start, sectors, origin, ..record };
                self.out.write(&part).map_err(trace_error)?;
            }
        }
        Ok(())
    }
}

impl Sink for Collector {
    fn take(&mut self, event: &Event) -> Result<()> {
        match *event {
            Event::Mark { time_us, mark } => self.mark(time_us, mark),
            Event::Request { time_us, op, sector, sectors } => {
                if self.state == WindowPhase::Inside {
                    self.window.flushes += u64::from(op == Op::Flush);
                    let time_us = self.time_us(time_us);
                    self.pending.push(Record { time_us, sector, sectors, op, origin: Origin::Metadata });
                }
                Ok(())
            }
        }
    }
}

/// Cuts `sectors` by owner; neighbours of the same origin stay together.
pub(super) fn attribute(
    next: &OwnerMap,
    previous: &OwnerMap,
    sectors: Range<u64>,
) -> Vec<(Range<u64>, Origin)> {
    let mut parts: Vec<(Range<u64>, Origin)> = Vec::new();
    let mut push = |range: Range<u64>, origin: Option<Origin>| {
        let origin = origin.unwrap_or(Origin::Metadata);
        match parts.last_mut().filter(|(_, last)| *last == origin) {
            Some((last, _)) => last.end = range.end,
            None => parts.push((range, origin)),
        }
    };
    for (range, origin) in next.pieces(sectors) {
        if origin.is_some() {
            push(range, origin);
        } else {
            for (range, origin) in previous.pieces(range) {
                push(range, origin);
            }
        }
    }
    parts
}

fn trace_error(error: impl std::fmt::Display) -> Error {
    Error::Io { what: "write the trace".into(), source: std::io::Error::other(error.to_string()) }
}
