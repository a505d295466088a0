//! The segment files of a log: their names, headers and lengths.

use std::sync::Arc;

use redoubt_storage::{StorageDir, StorageFile, is_lost_content};

use super::content::{Content, read, read_content};
use super::{MAX_SEGMENT_LEN, MIN_SEGMENT_LEN, segment_name};
use crate::Seq;
use crate::error::LogDeviceError;
use crate::format::{HeaderFault, SEGMENT_HEADER_LEN, SegmentHeader};

/// Reads of a damaged segment before it counts as damaged.
pub(super) const READS_OF_DAMAGE: usize = 3;

/// Files by the number in their name, in order.
pub(super) type NumberedNames = Vec<(u64, String)>;

/// A segment file and its header.
pub(super) struct Segment {
    pub file: Arc<dyn StorageFile>,
    pub name: String,
    pub header: SegmentHeader,
}

/// A segment file that is not whole.
struct NotWhole {
    error: LogDeviceError,
    /// Its beginning, if its header is valid.
    part: Option<Segment>,
}

impl Segment {
    /// The next read is one of the drive, if that can be had.
    pub fn drop_cache(&self) {
        let _ = self.file.drop_cache();
    }

    pub fn content(&self) -> Result<Content, LogDeviceError> {
        read_content(&*self.file, &self.name, self.header.len_bytes as usize)
    }
}

/// The segments in stream order, and the spares.
pub(super) fn classify(dir: &dyn StorageDir) -> Result<(NumberedNames, NumberedNames), LogDeviceError> {
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
            return Err(LogDeviceError::BadSegment { file: name, reason, seq: None });
        };
        list.push((number, name));
    }
    logs.sort_unstable();
    spares.sort_unstable();
    Ok((logs, spares))
}

/// The segments up to the first that is not whole.
pub(super) struct Prefix {
    /// The beginning of one that is not whole is the last here.
    pub segments: Vec<Segment>,
    /// Of the first that is not whole; true: its beginning can be read, and no other is damaged.
    pub fault: Option<(LogDeviceError, bool)>,
    /// Whole ones after it.
    pub later: Vec<Segment>,
}

pub(super) fn open_segments(dir: &dyn StorageDir, names: NumberedNames) -> Result<Prefix, LogDeviceError> {
    let mut prefix = Prefix { segments: Vec::with_capacity(names.len()), fault: None, later: Vec::new() };
    for (first_seq, name) in names {
        match (open_segment(dir, first_seq, name)?, &mut prefix.fault) {
            (Ok(segment), None) => prefix.segments.push(segment),
            (Ok(segment), Some(_)) => prefix.later.push(segment),
            (Err(NotWhole { error, part }), None) => {
                prefix.fault = Some((error, part.is_some()));
                prefix.segments.extend(part);
            }
            // The file may be there after the end of the log: nothing can be said of that.
            (Err(_), Some((_, is_last))) => *is_last = false,
        }
    }
    Ok(prefix)
}

/// Opens a segment. A header that is damaged is read several times before it counts.
fn open_segment(
    dir: &dyn StorageDir,
    first_seq: u64,
    name: String,
) -> Result<Result<Segment, NotWhole>, LogDeviceError> {
    let file = dir.open(&name).map_err(LogDeviceError::io("open", &name))?;
    file.sync_data().map_err(LogDeviceError::io("sync", &name))?;
    let len_bytes = file.len_bytes().map_err(LogDeviceError::io("get the length of", &name))?;
    let mut reads = 1;
    let header = loop {
        file.drop_cache().map_err(LogDeviceError::io("drop the cache of", &name))?;
        match read_header(&*file, &name, len_bytes)? {
            Err(HeaderFault::Damaged(_)) if reads < READS_OF_DAMAGE => reads += 1,
            header => break header,
        }
    };
    // Header and length were durable before the file got its name, so this is never the mark of a crash.
    let bad = |reason, seq| LogDeviceError::BadSegment { file: name.clone(), reason, seq };
    let header = match header {
        Ok(header) => header,
        Err(HeaderFault::Unknown(reason)) => return Err(bad(reason, None)),
        Err(HeaderFault::Damaged(reason)) => {
            return Ok(Err(NotWhole { error: bad(reason, Some(Seq(first_seq))), part: None }));
        }
    };
    let reason = if header.first_seq != first_seq {
        format!("its header is that of {}: restore the file from a copy", segment_name(header.first_seq))
    } else if !(MIN_SEGMENT_LEN..=MAX_SEGMENT_LEN).contains(&header.len_bytes)
        || !header.len_bytes.is_multiple_of(4096)
    {
        format!("{} bytes is no length of a segment: restore the file from a copy", header.len_bytes)
    } else if header.len_bytes != len_bytes {
        let error = bad(
            format!(
                "it is {len_bytes} bytes long, but was made with {}: restore the file from a copy",
                header.len_bytes
            ),
            Some(Seq(first_seq)),
        );
        return Ok(Err(NotWhole { error, part: Some(Segment { file, name, header }) }));
    } else {
        return Ok(Ok(Segment { file, name, header }));
    };
    Ok(Err(NotWhole { error: bad(reason, Some(Seq(first_seq))), part: None }))
}

/// The header of a file of this length.
fn read_header(
    file: &dyn StorageFile,
    name: &str,
    len_bytes: u64,
) -> Result<Result<SegmentHeader, HeaderFault>, LogDeviceError> {
    match read(file, name, len_bytes.min(SEGMENT_HEADER_LEN as u64) as usize) {
        Ok(bytes) => Ok(SegmentHeader::decode(&bytes)),
        Err(LogDeviceError::Io { source, .. }) if is_lost_content(&source) => {
            // An error if the drive reads nothing of the file.
            let content = read_content(file, name, len_bytes.min(MAX_SEGMENT_LEN) as usize)?;
            Ok(SegmentHeader::decode(&content.bytes))
        }
        Err(error) => Err(error),
    }
}
