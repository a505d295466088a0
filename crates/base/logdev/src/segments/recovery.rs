//! Opening a log: finds the end, and clears away what lies after it.
//!
//! The end is at the first place without a valid record of the right position and epoch. If nothing after it
//! says that the stream was durable further on, what is there was never synced, and the log ends at the last
//! whole record: later segments are removed, and the rest of the last one is overwritten with zeros. If
//! something does say so, durable data is damaged and opening fails.
//!
//! Segments that end before what a later header says to have been durable are [`Sealed`]: the end cannot be there.
//! They are not read now, but when somebody wants to read from them, and checked in the same way; so opening takes no
//! longer for a longer log. The last of them is read: it says where whole records end.
//!
//! The directory and the files are synced before they are read: after a crash of the process alone, names and
//! records may be in memory only. Then they are read from the disk and not from memory, where that can be had:
//! after a failed sync, memory may hold what the disk does not.
//!
//! Every step may be cut off by a crash and done again.

use std::sync::{Arc, OnceLock};

use redoubt_storage::{StorageDir, StorageFile};

use super::index::{Index, RecordStart, SegmentIndex};
use super::spares::{OpenSegment, Spare, Spares};
use super::{MAX_SEGMENT_LEN, MIN_SEGMENT_LEN, SegmentOptions, segment_name};
use crate::Seq;
use crate::error::LogDeviceError;
use crate::format::{
    MIN_ROOM, RECORD_HEADER_LEN, RecordHeader, SEGMENT_HEADER_LEN, SegmentHeader, candidates,
};

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Files by the number in their name, in order.
type NumberedNames = Vec<(u64, String)>;

/// What was found in the directory.
pub(super) struct Recovered {
    /// `None` if there is no log yet.
    pub log: Option<RecoveredLog>,
    pub spares: Spares,
}

/// A log that was found, ready for appends.
pub(super) struct RecoveredLog {
    /// The segment for the next record, and the record's place and alignment there.
    pub open: OpenSegment,
    pub at: usize,
    pub unit: usize,
    pub index: Index,
    /// A record or header says that the whole stream is durable.
    pub is_proven: bool,
}

/// A segment file and its header.
struct Segment {
    file: Arc<dyn StorageFile>,
    name: String,
    header: SegmentHeader,
}

/// A place between two appended records.
#[derive(Clone, Copy)]
struct Boundary {
    segment: usize,
    at: usize,
    seq: u64,
}

/// A segment of which all was durable when the log was opened.
pub(super) struct Sealed {
    segment: Segment,
    /// Stream position of the segment after it.
    end_seq: u64,
    /// That one's file, which is likely to be read next.
    next: Arc<dyn StorageFile>,
    entries: OnceLock<Vec<RecordStart>>,
}

impl Sealed {
    pub fn header(&self) -> &SegmentHeader {
        &self.segment.header
    }

    pub fn file(&self) -> &Arc<dyn StorageFile> {
        &self.segment.file
    }

    pub fn name(&self) -> &str {
        &self.segment.name
    }

    /// Where its records are, once somebody has read it.
    pub fn entries(&self) -> Option<&[RecordStart]> {
        self.entries.get().map(Vec::as_slice)
    }

    /// Reads and checks all of it.
    ///
    /// # Errors
    /// [`LogDeviceError::Damaged`]; [`LogDeviceError::BadSegment`] if a segment is missing after it;
    /// [`LogDeviceError::Io`].
    pub fn read(&self) -> Result<(), LogDeviceError> {
        let mut walk = Walk::from(std::slice::from_ref(&self.segment));
        let is_full = walk.enter(0, &self.segment)?;
        self.next.will_read(0, self.segment.header.len_bytes);
        if walk.stopped_seq != self.end_seq || !is_full {
            if is_full {
                return Err(missing_after(&self.segment.name, walk.stopped_seq, self.end_seq));
            }
            let evidence = format!("a later segment says that the log was durable up to {}", self.end_seq);
            return Err(walk.damaged(&self.segment, evidence));
        }
        let entries = walk.indexes.pop().map(SegmentIndex::into_entries).unwrap_or_default();
        // Somebody else may have been faster, with the same result.
        let _ = self.entries.set(entries);
        Ok(())
    }
}

fn missing_after(name: &str, end_seq: u64, next_seq: u64) -> LogDeviceError {
    let reason = format!(
        "it ends at stream position {end_seq}, and the next one begins at {next_seq}: a segment between is \
         missing, restore it from a copy"
    );
    LogDeviceError::BadSegment { file: name.to_owned(), reason }
}

/// The first place without a valid record, and what was found before it.
struct Walk {
    indexes: Vec<SegmentIndex>,
    /// Where the last whole record ends; not known if it began before the first segment walked.
    boundary: Option<Boundary>,
    stopped_segment: usize,
    stopped_at: usize,
    stopped_seq: u64,
    proven_seq: u64,
    /// Content of the segment where the walk stopped.
    content: Vec<u8>,
}

pub(super) fn recover(dir: &dyn StorageDir, options: &SegmentOptions) -> Result<Recovered, LogDeviceError> {
    // A name that a killed process changed may be so in memory only.
    dir.sync().map_err(LogDeviceError::io("sync", "the log directory"))?;
    let (log_names, spare_names) = classify(dir)?;
    if log_names.is_empty() {
        return Ok(Recovered { log: None, spares: open_spares(dir, options, spare_names)? });
    }
    let mut segments = Vec::with_capacity(log_names.len());
    for (first_seq, name) in log_names {
        segments.push(open_segment(dir, first_seq, name)?);
    }
    let mut sealed = count_sealed(&segments).saturating_sub(1);
    let mut walk = walk_segments(segments.get(sealed..).unwrap_or_default())?;
    if walk.boundary.is_none() && sealed > 0 {
        // One record fills all that was walked.
        sealed = 0;
        walk = walk_segments(&segments)?;
    }
    let mut walked = segments.split_off(sealed);
    check_tail(&walked, &walk)?;
    // From here on the directory is changed.
    let spares = open_spares(dir, options, spare_names)?;
    clear_tail(dir, &mut walked, &mut walk)?;
    let end = walk.boundary();
    if let Some(last) = walk.indexes.last_mut() {
        last.truncate(end.seq);
    }
    let mut indexes = seal(segments, walked.first());
    indexes.append(&mut walk.indexes);
    let Some(Segment { file, name, header }) = walked.pop() else {
        return Ok(Recovered { log: None, spares });
    };
    let open = OpenSegment { file, name, epoch: header.epoch, len_bytes: header.len_bytes };
    let index = Index::from_segments(indexes, end.seq);
    let is_proven = walk.proven_seq == end.seq;
    let log = RecoveredLog { open, at: end.at, unit: header.unit as usize, index, is_proven };
    Ok(Recovered { log: Some(log), spares })
}

/// How many segments, from the first, end before a point that was durable.
fn count_sealed(segments: &[Segment]) -> usize {
    let proven_seq = segments.iter().map(|segment| segment.header.durable_seq).max().unwrap_or(0);
    segments.iter().skip(1).take_while(|next| next.header.first_seq <= proven_seq).count()
}

/// The indexes of sealed segments, which nobody has read. `after` is the segment after the last one.
fn seal(segments: Vec<Segment>, after: Option<&Segment>) -> Vec<SegmentIndex> {
    let nexts: Vec<_> = segments
        .iter()
        .chain(after)
        .skip(1)
        .map(|next| (next.header.first_seq, Arc::clone(&next.file)))
        .collect();
    let sealed = segments.into_iter().zip(nexts).map(|(segment, (end_seq, next))| {
        SegmentIndex::of_sealed(Sealed { segment, end_seq, next, entries: OnceLock::new() })
    });
    sealed.collect()
}

/// The segments in stream order, and the spares.
fn classify(dir: &dyn StorageDir) -> Result<(NumberedNames, NumberedNames), LogDeviceError> {
    let names = dir.list().map_err(LogDeviceError::io("list", "the log directory"))?;
    let (mut logs, mut spares) = (Vec::new(), Vec::new());
    for name in names {
        let Some(stem) = name.strip_suffix(".seg") else { continue };
        let (list, digits) = match (stem.strip_prefix("log-"), stem.strip_prefix("spare-")) {
            (Some(digits), _) => (&mut logs, digits),
            (_, Some(digits)) => (&mut spares, digits),
            _ => continue,
        };
        let number = digits.parse::<u64>().ok().filter(|_| digits.len() == 20);
        let Some(number) = number else {
            let reason = "its name is not that of a segment: move it out of the log directory".into();
            return Err(LogDeviceError::BadSegment { file: name, reason });
        };
        list.push((number, name));
    }
    logs.sort_unstable();
    spares.sort_unstable();
    Ok((logs, spares))
}

/// Opens the spares that fit the options, and removes the others.
fn open_spares(
    dir: &dyn StorageDir,
    options: &SegmentOptions,
    names: NumberedNames,
) -> Result<Spares, LogDeviceError> {
    let next_number = names.last().map_or(0, |(number, _)| *number);
    let mut ready = Vec::new();
    for (_, name) in names {
        let file = dir.open(&name).map_err(LogDeviceError::io("open", &name))?;
        let len_bytes = file.len_bytes().map_err(LogDeviceError::io("get the length of", &name))?;
        if len_bytes == options.segment_len_bytes && ready.len() < options.kept_spares() {
            ready.push(Spare { file, name, len_bytes, is_recycled: true });
        } else {
            dir.remove(&name).map_err(LogDeviceError::io("remove", &name))?;
        }
    }
    Ok(Spares::new(ready, next_number))
}

fn open_segment(dir: &dyn StorageDir, first_seq: u64, name: String) -> Result<Segment, LogDeviceError> {
    let file = dir.open(&name).map_err(LogDeviceError::io("open", &name))?;
    file.sync_data().map_err(LogDeviceError::io("sync", &name))?;
    file.drop_cache().map_err(LogDeviceError::io("drop the cache of", &name))?;
    let len_bytes = file.len_bytes().map_err(LogDeviceError::io("get the length of", &name))?;
    let bytes = read(&*file, &name, len_bytes.min(SEGMENT_HEADER_LEN as u64) as usize)?;
    let header = SegmentHeader::decode(&bytes).and_then(|header| {
        if header.first_seq != first_seq {
            Err(format!(
                "its header is that of {}: restore the file from a copy",
                segment_name(header.first_seq)
            ))
        } else if header.len_bytes != len_bytes
            || !(MIN_SEGMENT_LEN..=MAX_SEGMENT_LEN).contains(&len_bytes)
            || !len_bytes.is_multiple_of(4096)
        {
            Err(format!(
                "it is {len_bytes} bytes long, but was made with {}: restore the file from a copy",
                header.len_bytes
            ))
        } else {
            Ok(header)
        }
    });
    // The header was durable before the file got its name, so this is never the mark of a crash.
    let header = header.map_err(|reason| LogDeviceError::BadSegment { file: name.clone(), reason })?;
    Ok(Segment { file, name, header })
}

fn read(file: &dyn StorageFile, name: &str, len: usize) -> Result<Vec<u8>, LogDeviceError> {
    let mut bytes = vec![0; len];
    let error = LogDeviceError::io("read", name);
    let n = file.read_at(0, &mut bytes).map_err(error)?;
    bytes.truncate(n);
    Ok(bytes)
}

impl Walk {
    /// At the beginning of the first of `segments`.
    fn from(segments: &[Segment]) -> Self {
        let first_seq = segments.first().map_or(0, |segment| segment.header.first_seq);
        Self {
            indexes: Vec::with_capacity(segments.len()),
            boundary: None,
            stopped_segment: 0,
            stopped_at: SEGMENT_HEADER_LEN,
            stopped_seq: first_seq,
            proven_seq: 0,
            content: Vec::new(),
        }
    }

    /// Where the log ends.
    fn boundary(&self) -> Boundary {
        let first_seq = self.indexes.first().map_or(0, |index| index.first_seq);
        self.boundary.unwrap_or(Boundary { segment: 0, at: SEGMENT_HEADER_LEN, seq: first_seq })
    }

    /// Follows the records of the next segment. True if they fill it, or the last one closes it.
    fn enter(&mut self, number: usize, segment: &Segment) -> Result<bool, LogDeviceError> {
        let header = &segment.header;
        self.stopped_segment = number;
        self.stopped_at = SEGMENT_HEADER_LEN;
        self.proven_seq = self.proven_seq.max(header.durable_seq);
        self.content = read(&*segment.file, &segment.name, header.len_bytes as usize)?;
        let mut index =
            SegmentIndex::new(header.first_seq, header.len_bytes, segment.file.clone(), &segment.name);
        let is_full = self.follow(header, &mut index);
        self.indexes.push(index);
        Ok(is_full)
    }

    fn follow(&mut self, header: &SegmentHeader, index: &mut SegmentIndex) -> bool {
        while self.content.len().saturating_sub(self.stopped_at) >= MIN_ROOM {
            let at = self.stopped_at;
            let record = RecordHeader::decode(&self.content, at, header.epoch);
            let Some(record) = record.filter(|record| record.seq == self.stopped_seq) else { return false };
            if !record.mark {
                index.push(record.seq, at + RECORD_HEADER_LEN);
            }
            self.stopped_at =
                if record.closes { self.content.len() } else { record.next_at(at, header.unit) };
            self.stopped_seq += u64::from(record.len_bytes);
            self.proven_seq = self.proven_seq.max(record.durable_seq);
            if !record.continues {
                self.boundary = Some(Boundary {
                    segment: self.stopped_segment,
                    at: self.stopped_at,
                    seq: self.stopped_seq,
                });
            }
        }
        true
    }

    /// What is durable is damaged where the walk stopped.
    fn damaged(&self, stopped: &Segment, evidence: String) -> LogDeviceError {
        LogDeviceError::Damaged {
            file: stopped.name.clone(),
            offset_bytes: self.stopped_at as u64,
            seq: Seq(self.stopped_seq),
            evidence,
        }
    }
}

/// Follows the records from the start until one is missing.
fn walk_segments(segments: &[Segment]) -> Result<Walk, LogDeviceError> {
    let mut walk = Walk::from(segments);
    let mut before: Option<&Segment> = None;
    for (number, segment) in segments.iter().enumerate() {
        let first_seq = segment.header.first_seq;
        if let Some(before) = before
            && first_seq != walk.stopped_seq
        {
            // The segment before this one is full, and this one's header was written after it was filled.
            return Err(missing_after(&before.name, walk.stopped_seq, first_seq));
        }
        if walk.boundary.is_some_and(|boundary| boundary.seq == walk.stopped_seq) {
            walk.boundary = Some(Boundary { segment: number, at: SEGMENT_HEADER_LEN, seq: first_seq });
        }
        if !walk.enter(number, segment)? {
            break;
        }
        before = Some(segment);
    }
    Ok(walk)
}

/// Fails if anything shows that the stream was durable past where the walk stopped, or past the last whole
/// record.
fn check_tail(segments: &[Segment], walk: &Walk) -> Result<(), LogDeviceError> {
    let Some(stopped) = segments.get(walk.stopped_segment) else { return Ok(()) };
    let damaged = |evidence: String| walk.damaged(stopped, evidence);
    let limit = walk.boundary().seq;
    if walk.proven_seq > limit {
        return Err(damaged(format!(
            "an earlier record says that the log was durable up to {}",
            walk.proven_seq
        )));
    }
    let check = |content: &[u8], from: usize, segment: &Segment| {
        for at in candidates(content, from, &segment.header) {
            if let Some(record) = RecordHeader::decode(content, at, segment.header.epoch)
                && record.durable_seq > limit
            {
                return Err(damaged(format!(
                    "the valid record at byte {at} of {} says that the log was durable up to {}",
                    segment.name, record.durable_seq
                )));
            }
        }
        Ok(())
    };
    check(&walk.content, walk.stopped_at, stopped)?;
    for segment in segments.iter().skip(walk.stopped_segment + 1) {
        if segment.header.durable_seq > limit {
            return Err(damaged(format!(
                "the header of {} says that the log was durable up to {}",
                segment.name, segment.header.durable_seq
            )));
        }
        let content = read(&*segment.file, &segment.name, segment.header.len_bytes as usize)?;
        check(&content, SEGMENT_HEADER_LEN, segment)?;
    }
    Ok(())
}

/// Makes what is after the last whole record unreadable for ever.
fn clear_tail(
    dir: &dyn StorageDir,
    segments: &mut Vec<Segment>,
    walk: &mut Walk,
) -> Result<(), LogDeviceError> {
    let boundary = walk.boundary();
    // From the last to the first, each durable, so that a crash here leaves no gap.
    while segments.len() > boundary.segment + 1 {
        let Some(segment) = segments.pop() else { break };
        dir.remove(&segment.name).map_err(LogDeviceError::io("remove", &segment.name))?;
        dir.sync().map_err(LogDeviceError::io("sync the directory of", &segment.name))?;
    }
    walk.indexes.truncate(boundary.segment + 1);
    let Some(last) = segments.last() else { return Ok(()) };
    if boundary.segment != walk.stopped_segment {
        walk.content = read(&*last.file, &last.name, last.header.len_bytes as usize)?;
    }
    // Whatever is there, not only what looks like a record: a header may span two sectors, and half of one that
    // was lost would fit the half of a new one at the same place.
    if walk.content.iter().skip(boundary.at).all(|&byte| byte == 0) {
        return Ok(());
    }
    let mut at = boundary.at;
    while at < walk.content.len() {
        let len = ZEROS.len().min(walk.content.len() - at);
        last.file.write_at(at as u64, &ZEROS[..len]).map_err(LogDeviceError::io("clear", &last.name))?;
        at += len;
    }
    last.file.sync_data().map_err(LogDeviceError::io("sync", &last.name))
}
