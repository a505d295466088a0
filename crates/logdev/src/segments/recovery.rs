//! Opening a log: checks every record, finds the end, and clears away what lies behind it.
//!
//! The end is at the first place without a valid record of the right position and epoch. If nothing behind it
//! says that the stream was durable further on, what is there was never synced, and the log ends at the last
//! whole record: later segments are removed, and the rest of the last one is overwritten with zeros. If
//! something does say so, durable data is damaged and opening fails.
//!
//! The directory and the files are synced before they are read: after a crash of the process alone, names and
//! records may be in memory only. Then they are read from the disk and not from memory, where that can be had:
//! after a failed sync, memory may hold what the disk does not.
//!
//! Every step may be cut off by a crash and done again.

use super::index::{Index, SegmentIndex};
use super::spares::{OpenSegment, Spare, Spares};
use super::{MAX_SEGMENT_LEN, MIN_SEGMENT_LEN, SegmentOptions, segment_name};
use crate::Seq;
use crate::error::LogDeviceError;
use crate::format::{
    MIN_ROOM, RECORD_HEADER_LEN, RecordHeader, SEGMENT_HEADER_LEN, SegmentHeader, candidates,
};
use crate::storage::{StorageDir, StorageFile};
use std::sync::Arc;

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

/// The first place without a valid record, and what was found before it.
struct Walk {
    indexes: Vec<SegmentIndex>,
    boundary: Boundary,
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
    let spares = open_spares(dir, options, spare_names)?;
    if log_names.is_empty() {
        return Ok(Recovered { log: None, spares });
    }
    let mut segments = Vec::with_capacity(log_names.len());
    for (first_seq, name) in log_names {
        segments.push(open_segment(dir, first_seq, name)?);
    }
    let mut walk = walk_segments(&segments)?;
    check_tail(&segments, &walk)?;
    clear_tail(dir, &mut segments, &mut walk)?;
    let Boundary { at, seq: end_seq, .. } = walk.boundary;
    if let Some(last) = walk.indexes.last_mut() {
        last.truncate(end_seq);
    }
    let Some(Segment { file, name, header }) = segments.pop() else {
        return Ok(Recovered { log: None, spares });
    };
    let open = OpenSegment { file, name, epoch: header.epoch, len_bytes: header.len_bytes };
    let index = Index::from_segments(walk.indexes, end_seq);
    let is_proven = walk.proven_seq == end_seq;
    let log = RecoveredLog { open, at, unit: header.unit as usize, index, is_proven };
    Ok(Recovered { log: Some(log), spares })
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

/// Follows the records from the start until one is missing.
fn walk_segments(segments: &[Segment]) -> Result<Walk, LogDeviceError> {
    let first_seq = segments.first().map_or(0, |segment| segment.header.first_seq);
    let mut walk = Walk {
        indexes: Vec::with_capacity(segments.len()),
        boundary: Boundary { segment: 0, at: SEGMENT_HEADER_LEN, seq: first_seq },
        stopped_segment: 0,
        stopped_at: SEGMENT_HEADER_LEN,
        stopped_seq: first_seq,
        proven_seq: 0,
        content: Vec::new(),
    };
    for (number, segment) in segments.iter().enumerate() {
        let header = &segment.header;
        if header.first_seq != walk.stopped_seq {
            // The segment before this one is full, and this one's header was written after it was filled.
            return Err(LogDeviceError::BadSegment {
                file: segment.name.clone(),
                reason: format!(
                    "it follows stream position {}: a segment between is missing, restore it from a copy",
                    walk.stopped_seq
                ),
            });
        }
        let is_whole = walk.boundary.seq == walk.stopped_seq;
        walk.stopped_segment = number;
        walk.stopped_at = SEGMENT_HEADER_LEN;
        if is_whole {
            walk.boundary = Boundary { segment: number, at: SEGMENT_HEADER_LEN, seq: walk.stopped_seq };
        }
        walk.proven_seq = walk.proven_seq.max(header.durable_seq);
        walk.content = read(&*segment.file, &segment.name, header.len_bytes as usize)?;
        let mut index =
            SegmentIndex::new(header.first_seq, header.len_bytes, segment.file.clone(), &segment.name);
        let is_full = walk_records(&mut walk, header, &mut index);
        walk.indexes.push(index);
        if !is_full {
            break;
        }
    }
    Ok(walk)
}

/// Follows the records of one segment. True if they fill it, or the last one closes it.
fn walk_records(walk: &mut Walk, header: &SegmentHeader, index: &mut SegmentIndex) -> bool {
    while walk.content.len().saturating_sub(walk.stopped_at) >= MIN_ROOM {
        let at = walk.stopped_at;
        let record = RecordHeader::decode(&walk.content, at, header.epoch);
        let Some(record) = record.filter(|record| record.seq == walk.stopped_seq) else { return false };
        if !record.mark {
            index.push(record.seq, at + RECORD_HEADER_LEN);
        }
        walk.stopped_at = if record.closes { walk.content.len() } else { record.next_at(at, header.unit) };
        walk.stopped_seq += u64::from(record.len_bytes);
        walk.proven_seq = walk.proven_seq.max(record.durable_seq);
        if !record.continues {
            walk.boundary =
                Boundary { segment: walk.stopped_segment, at: walk.stopped_at, seq: walk.stopped_seq };
        }
    }
    true
}

/// Fails if anything shows that the stream was durable past where the walk stopped, or past the last whole
/// record.
fn check_tail(segments: &[Segment], walk: &Walk) -> Result<(), LogDeviceError> {
    let Some(stopped) = segments.get(walk.stopped_segment) else { return Ok(()) };
    let damaged = |evidence: String| LogDeviceError::Damaged {
        file: stopped.name.clone(),
        offset_bytes: walk.stopped_at as u64,
        seq: Seq(walk.stopped_seq),
        evidence,
    };
    let limit = walk.boundary.seq;
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

/// Makes what is behind the last whole record unreadable for ever.
fn clear_tail(
    dir: &dyn StorageDir,
    segments: &mut Vec<Segment>,
    walk: &mut Walk,
) -> Result<(), LogDeviceError> {
    let boundary = walk.boundary;
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
