//! Where in which file each stream position is. In memory only; rebuilt when the log is opened.
//!
//! One entry of eight bytes for each record. Entries of a segment are in stream order, as are the segments.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Seq;
use crate::error::LogDeviceError;
use crate::storage::StorageFile;

/// Where a record's payload starts.
#[derive(Clone, Copy, Debug)]
struct Entry {
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
    entries: Vec<Entry>,
}

impl SegmentIndex {
    pub fn new(first_seq: u64, len_bytes: u64, file: Arc<dyn StorageFile>, name: &str) -> Self {
        Self { first_seq, len_bytes, file, name: name.into(), entries: Vec::new() }
    }

    /// Adds the payload that starts at stream position `seq` and file offset `at`. Segments are at most 1 GiB
    /// long, so both fit.
    pub fn push(&mut self, seq: u64, at: usize) {
        self.entries.push(Entry { relative_seq: (seq - self.first_seq) as u32, at: at as u32 });
    }

    /// Forgets what is at or after `seq`.
    pub fn truncate(&mut self, seq: u64) {
        let keep = self.entries.partition_point(|entry| self.first_seq + u64::from(entry.relative_seq) < seq);
        self.entries.truncate(keep);
    }
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

    /// Takes out the first segment if all of it is before `seq`. The last one stays.
    pub fn pop_front_before(&mut self, seq: u64) -> Option<SegmentIndex> {
        let second = self.segments.get(1)?;
        if second.first_seq <= seq { self.segments.pop_front() } else { None }
    }

    /// The pieces of the files that hold `len` bytes at `seq`.
    pub fn locate(&self, seq: Seq, len: usize) -> Result<Vec<Piece>, LogDeviceError> {
        let out_of_range = || LogDeviceError::OutOfRange {
            seq,
            len_bytes: len,
            start: Seq(self.start_seq()),
            end: Seq(self.end_seq),
        };
        let end = seq.0.checked_add(len as u64).ok_or_else(out_of_range)?;
        if seq.0 < self.start_seq() || end > self.end_seq {
            return Err(out_of_range());
        }
        let mut pieces = Vec::new();
        let mut at = seq.0;
        while at < end {
            let piece = self.locate_one(at, end).ok_or_else(out_of_range)?;
            at += piece.len as u64;
            pieces.push(piece);
        }
        Ok(pieces)
    }

    /// The piece that starts at `seq` and ends at `end` or with its record.
    fn locate_one(&self, seq: u64, end: u64) -> Option<Piece> {
        let number = self.segments.partition_point(|segment| segment.first_seq <= seq).checked_sub(1)?;
        let segment = self.segments.get(number)?;
        let segment_end = self.segments.get(number + 1).map_or(self.end_seq, |next| next.first_seq);
        let relative = seq - segment.first_seq;
        let entries = &segment.entries;
        let after = entries.partition_point(|entry| u64::from(entry.relative_seq) <= relative);
        let entry = entries.get(after.checked_sub(1)?)?;
        let record_end =
            entries.get(after).map_or(segment_end, |next| segment.first_seq + u64::from(next.relative_seq));
        let len = record_end.min(end).checked_sub(seq).filter(|&len| len > 0)?;
        Some(Piece {
            file: segment.file.clone(),
            name: segment.name.clone(),
            at: u64::from(entry.at) + relative - u64::from(entry.relative_seq),
            len: len as usize,
        })
    }
}
