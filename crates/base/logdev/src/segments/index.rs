//! Where in which file each stream position is. In memory only; rebuilt from the files.
//!
//! One entry of eight bytes for each record. Entries of a segment are in stream order, as are the segments. Those of
//! a segment that was found sealed ([`super::recovery`]) are looked up when somebody wants to read there. If it is damaged,
//! it is readable up to the damage.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use redoubt_storage::StorageFile;

use super::recovery::Sealed;
use crate::Seq;
use crate::error::LogDeviceError;

/// Where a record's payload starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordStart {
    /// Stream position relative to the segment's first.
    relative_seq: u32,
    /// Offset of the payload in the file.
    at: u32,
}

/// What one segment holds.
pub(super) struct SegmentIndex {
    pub first_seq: u64,
    pub len_bytes: u64,
    pub file: Arc<dyn StorageFile>,
    pub name: Arc<str>,
    entries: Entries,
}

enum Entries {
    Known(Vec<RecordStart>),
    /// In the file; known when somebody has read it.
    Sealed(Arc<Sealed>),
}

impl SegmentIndex {
    pub fn new(first_seq: u64, len_bytes: u64, file: Arc<dyn StorageFile>, name: &str) -> Self {
        Self { first_seq, len_bytes, file, name: name.into(), entries: Entries::Known(Vec::new()) }
    }

    /// Of a segment that nobody has read yet.
    pub fn of_sealed(sealed: Sealed) -> Self {
        let header = sealed.header();
        let (first_seq, len_bytes) = (header.first_seq, header.len_bytes);
        let (file, name) = (Arc::clone(sealed.file()), sealed.name().into());
        Self { first_seq, len_bytes, file, name, entries: Entries::Sealed(Arc::new(sealed)) }
    }

    /// Adds the payload that starts at stream position `seq` and file offset `at`. Segments are at most 1 GiB
    /// long, so both fit. Nothing is added to a sealed one.
    pub fn push(&mut self, seq: u64, at: usize) {
        if let Entries::Known(entries) = &mut self.entries {
            entries.push(RecordStart { relative_seq: (seq - self.first_seq) as u32, at: at as u32 });
        }
    }

    /// Forgets what is at or after `seq`.
    pub fn truncate(&mut self, seq: u64) {
        if let Entries::Known(entries) = &mut self.entries {
            let keep = entries.partition_point(|entry| self.first_seq + u64::from(entry.relative_seq) < seq);
            entries.truncate(keep);
        }
    }

    /// Its entries, if they are known; none are added any more.
    pub fn into_entries(self) -> Vec<RecordStart> {
        match self.entries {
            Entries::Known(entries) => entries,
            Entries::Sealed(_) => Vec::new(),
        }
    }

    /// Its entries, and the end of its readable bytes if the segment is damaged.
    fn entries(&self) -> Result<(&[RecordStart], Option<u64>), NotLocated> {
        match &self.entries {
            Entries::Known(entries) => Ok((entries, None)),
            Entries::Sealed(sealed) => match sealed.contents() {
                Some(contents) => Ok((&contents.entries, contents.damaged_from())),
                None => Err(NotLocated::Unread(Arc::clone(sealed))),
            },
        }
    }

    fn damage(&self) -> NotLocated {
        match &self.entries {
            Entries::Known(_) => NotLocated::OutOfRange,
            Entries::Sealed(sealed) => NotLocated::Damaged(Arc::clone(sealed)),
        }
    }
}

/// Why it cannot be said where something is.
pub(super) enum NotLocated {
    /// This segment must be read first.
    Unread(Arc<Sealed>),
    /// This segment is damaged there.
    Damaged(Arc<Sealed>),
    /// The log does not have it.
    OutOfRange,
}

/// A part of a read: `len` bytes at `at` in `file`.
pub(super) struct Piece {
    pub file: Arc<dyn StorageFile>,
    pub name: Arc<str>,
    pub at: u64,
    pub len: usize,
}

/// All segments of the log.
pub(super) struct Index {
    segments: VecDeque<SegmentIndex>,
    pub end_seq: u64,
}

impl Index {
    /// An index of one segment that holds nothing.
    pub fn new(segment: SegmentIndex) -> Self {
        Self { end_seq: segment.first_seq, segments: VecDeque::from([segment]) }
    }

    pub fn from_segments(segments: Vec<SegmentIndex>, end_seq: u64) -> Self {
        Self { segments: segments.into(), end_seq }
    }

    pub fn start_seq(&self) -> u64 {
        self.segments.front().map_or(self.end_seq, |segment| segment.first_seq)
    }

    /// Adds a segment at the end. One that was closed before it held anything starts at the same position: the new
    /// one has taken its name, and takes its place here.
    pub fn push_segment(&mut self, segment: SegmentIndex) {
        if self.segments.back().is_some_and(|last| last.first_seq == segment.first_seq) {
            self.segments.pop_back();
        }
        self.segments.push_back(segment);
    }

    /// Adds a payload to the last segment.
    pub fn push(&mut self, seq: u64, at: usize) {
        if let Some(segment) = self.segments.back_mut() {
            segment.push(seq, at);
        }
    }

    /// The first segment, if all of it is before `seq` and it is not the last one.
    pub fn front_before(&self, seq: u64) -> Option<&SegmentIndex> {
        let second = self.segments.get(1)?;
        self.segments.front().filter(|_| second.first_seq <= seq)
    }

    /// Takes out [`Index::front_before`].
    pub fn pop_front_before(&mut self, seq: u64) -> Option<SegmentIndex> {
        if self.front_before(seq).is_some() { self.segments.pop_front() } else { None }
    }

    /// The pieces of the files that hold `len` bytes at `seq`.
    pub fn locate(&self, seq: Seq, len: usize) -> Result<Vec<Piece>, NotLocated> {
        let end = seq.0.checked_add(len as u64).ok_or(NotLocated::OutOfRange)?;
        if seq.0 < self.start_seq() || end > self.end_seq {
            return Err(NotLocated::OutOfRange);
        }
        let mut pieces = Vec::new();
        let mut at = seq.0;
        while at < end {
            let piece = self.locate_one(at, end)?;
            at += piece.len as u64;
            pieces.push(piece);
        }
        Ok(pieces)
    }

    /// `len` bytes at `seq` are not in the log.
    pub fn out_of_range(&self, seq: Seq, len: usize) -> LogDeviceError {
        let (start, end) = (Seq(self.start_seq()), Seq(self.end_seq));
        LogDeviceError::OutOfRange { seq, len_bytes: len, start, end }
    }

    /// The piece that starts at `seq` and ends at `end` or with its record.
    fn locate_one(&self, seq: u64, end: u64) -> Result<Piece, NotLocated> {
        let number = self.segments.partition_point(|segment| segment.first_seq <= seq).checked_sub(1);
        let segment = number.and_then(|number| self.segments.get(number)).ok_or(NotLocated::OutOfRange)?;
        let next = number.and_then(|number| self.segments.get(number + 1));
        let segment_end = next.map_or(self.end_seq, |next| next.first_seq);
        let (entries, damaged_from) = segment.entries()?;
        if damaged_from.is_some_and(|damaged_from| seq >= damaged_from) {
            return Err(segment.damage());
        }
        let readable_end = damaged_from.map_or(segment_end, |damaged_from| segment_end.min(damaged_from));
        piece(segment, entries, readable_end, seq..end).ok_or(NotLocated::OutOfRange)
    }
}

/// The piece of one segment that starts with `wanted` and ends with it, or with its record.
fn piece(
    segment: &SegmentIndex,
    entries: &[RecordStart],
    segment_end: u64,
    wanted: Range<u64>,
) -> Option<Piece> {
    let relative = wanted.start - segment.first_seq;
    let after = entries.partition_point(|entry| u64::from(entry.relative_seq) <= relative);
    let entry = entries.get(after.checked_sub(1)?)?;
    let record_end =
        entries.get(after).map_or(segment_end, |next| segment.first_seq + u64::from(next.relative_seq));
    let len = record_end.min(wanted.end).checked_sub(wanted.start).filter(|&len| len > 0)?;
    Some(Piece {
        file: segment.file.clone(),
        name: segment.name.clone(),
        at: u64::from(entry.at) + relative - u64::from(entry.relative_seq),
        len: len as usize,
    })
}
