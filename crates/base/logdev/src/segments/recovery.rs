//! Opening a log: finds the end, and clears away what lies after it.
//!
//! The end is at the first place without a valid record of the right position and epoch. If nothing after it
//! says that the stream was durable further on, what is there was never synced, and the log ends at the last
//! whole record: later segments are removed, and the rest of the last one is overwritten with zeros. If
//! something does say so, durable data is damaged and opening fails. Records before the damage can still be read
//! ([`super::damaged`]).
//!
//! Segments that end before what a later header says to have been durable are [`Sealed`]: the end cannot be there.
//! They are not read now, but when somebody wants to read from them, and checked in the same way; so opening takes no
//! longer for a longer log. The last of them is read: it says where whole records end.
//!
//! The directory and the files are synced before they are read: after a crash of the process alone, names and
//! records may be in memory only. Then they are read from the disk and not from memory, where that can be had:
//! after a failed sync, memory may hold what the disk does not.
//!
//! Damage is read several times before it counts: the fault may have been one of the transfer. Blocks that the drive has
//! lost are read as zeros ([`super::content`]), so they are damage of the records in them.
//!
//! A segment whose header is damaged, or whose file was cut, is damage from its first position on, or from the cut on. The
//! last one may have been cut behind its records: then nothing is lost, and the file gets its length back. A segment of
//! another format version is not damaged; the log is not opened.
//!
//! Every step may be cut off by a crash and done again.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use redoubt_storage::{StorageDir, StorageFile};

use super::content::Content;
use super::files::{NumberedNames, Prefix, READS_OF_DAMAGE, Segment, classify, open_segments};
use super::index::{Index, RecordStart, SegmentIndex};
use super::spares::{OpenSegment, Spare, Spares};
use super::{Held, SegmentOptions};
use crate::Seq;
use crate::error::LogDeviceError;
use crate::format::{
    MIN_ROOM, RECORD_HEADER_LEN, RecordHeader, SEGMENT_HEADER_LEN, SegmentHeader, candidates,
};

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

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
    contents: OnceLock<Contents>,
}

/// The readable part of a segment.
pub(super) struct Contents {
    /// Its records.
    pub entries: Vec<RecordStart>,
    /// First unreadable position, and why.
    damage: Option<(u64, SealedDamage)>,
}

impl Contents {
    /// Position of its first unreadable byte, if it is damaged.
    pub fn damaged_from(&self) -> Option<u64> {
        self.damage.as_ref().map(|(seq, _)| *seq)
    }
}

/// Why not all of a segment can be read.
enum SealedDamage {
    /// There is no valid record at this byte.
    Record(u64),
    /// The next segment begins later than this one ends.
    Gap,
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

    /// Its readable part, after [`Sealed::read`].
    pub fn contents(&self) -> Option<&Contents> {
        self.contents.get()
    }

    /// Reads and checks it up to the first damage.
    ///
    /// # Errors
    /// [`LogDeviceError::Io`].
    pub fn read(&self) -> Result<(), LogDeviceError> {
        let mut reads = 1;
        let contents = loop {
            let contents = self.walk()?;
            if contents.damage.is_none() || reads == READS_OF_DAMAGE {
                break contents;
            }
            self.segment.drop_cache();
            reads += 1;
        };
        // Another thread may have set them first, to the same.
        let _ = self.contents.set(contents);
        Ok(())
    }

    fn walk(&self) -> Result<Contents, LogDeviceError> {
        let mut walk = Walk::from(std::slice::from_ref(&self.segment));
        let is_full = walk.enter(0, &self.segment)?;
        self.next.will_read(0, self.segment.header.len_bytes);
        let damage = match (is_full, walk.stopped_seq == self.end_seq) {
            (_, true) => None,
            // It overlaps the next one, so nothing of it can be relied on.
            _ if walk.stopped_seq > self.end_seq => {
                Some((self.segment.header.first_seq, SealedDamage::Record(walk.stopped_at as u64)))
            }
            (true, false) => Some((walk.stopped_seq, SealedDamage::Gap)),
            (false, false) => Some((walk.stopped_seq, SealedDamage::Record(walk.stopped_at as u64))),
        };
        let entries = walk.indexes.pop().map(SegmentIndex::into_entries).unwrap_or_default();
        Ok(Contents { entries, damage })
    }

    /// Error of a read that reaches its damage.
    pub fn damage_error(&self) -> LogDeviceError {
        let name = &self.segment.name;
        match self.contents().and_then(|contents| contents.damage.as_ref()) {
            Some((seq, SealedDamage::Record(offset_bytes))) => LogDeviceError::Damaged {
                file: name.clone(),
                offset_bytes: *offset_bytes,
                seq: Seq(*seq),
                evidence: format!("a later segment says that the log was durable up to {}", self.end_seq),
            },
            Some((seq, SealedDamage::Gap)) => missing_after(name, *seq, self.end_seq),
            None => missing_after(name, self.segment.header.first_seq, self.end_seq),
        }
    }
}

fn missing_after(name: &str, end_seq: u64, next_seq: u64) -> LogDeviceError {
    let reason = format!(
        "it ends at stream position {end_seq}, and the next one begins at {next_seq}: a segment between is \
         missing, restore it from a copy"
    );
    LogDeviceError::BadSegment { file: name.to_owned(), reason, seq: Some(Seq(end_seq)) }
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
    content: Content,
}

pub(super) fn recover(dir: &dyn StorageDir, options: &SegmentOptions) -> Result<Recovered, LogDeviceError> {
    // A name that a killed process changed may be so in memory only.
    dir.sync().map_err(LogDeviceError::io("sync", "the log directory"))?;
    let (log_names, spare_names) = classify(dir)?;
    if log_names.is_empty() {
        check_held(options, Seq(0)..Seq(0))?;
        return Ok(Recovered { log: None, spares: open_spares(dir, options, spare_names)? });
    }
    let Prefix { mut segments, fault, later } = open_segments(dir, log_names)?;
    let fault = match fault {
        // It may have been cut behind its records.
        Some((error, true)) if later.is_empty() => Some(error),
        Some((error, _)) => return Err(error),
        None => None,
    };
    let (sealed, mut walk) = walk_until_certain(&segments)?;
    let mut walked = segments.split_off(sealed);
    let start = segments.first().or(walked.first()).map_or(0, |segment| segment.header.first_seq);
    if let Err(incomplete) = check_held(options, Seq(start)..Seq(walk.boundary().seq)) {
        return Err(fault.unwrap_or(incomplete));
    }
    // From here on the directory is changed.
    if let Some(fault) = fault {
        restore_len(&walked, &walk, fault)?;
    }
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

/// Fails if a log of this extent lacks what it is known to have held.
fn check_held(options: &SegmentOptions, extent: Range<Seq>) -> Result<(), LogDeviceError> {
    let held = options.held;
    if held == Held::default() || (extent.start <= held.from && held.to <= extent.end) {
        return Ok(());
    }
    Err(LogDeviceError::Incomplete { start: extent.start, end: extent.end, from: held.from, to: held.to })
}

/// How many segments stay sealed, and the walk through the others.
fn walk_checked(segments: &[Segment]) -> Result<(usize, Walk), LogDeviceError> {
    let mut sealed = count_sealed(segments).saturating_sub(1);
    let mut walk = walk_segments(segments.get(sealed..).unwrap_or_default())?;
    if walk.boundary.is_none() && sealed > 0 {
        // One record fills all that was walked.
        sealed = 0;
        walk = walk_segments(segments)?;
    }
    check_tail(segments.get(sealed..).unwrap_or_default(), &walk)?;
    Ok((sealed, walk))
}

/// The same. Damage is read several times.
fn walk_until_certain(segments: &[Segment]) -> Result<(usize, Walk), LogDeviceError> {
    let mut reads = 1;
    loop {
        match walk_checked(segments) {
            Err(error) if error.damaged_from().is_some() && reads < READS_OF_DAMAGE => {
                segments.iter().for_each(Segment::drop_cache);
                reads += 1;
            }
            walked => return walked,
        }
    }
}

/// A log up to its first damage.
pub(super) struct BeforeDamage {
    pub index: Index,
    /// How far the log shows that it was durable.
    pub proven_seq: u64,
}

/// Finds the whole records before the first damage, in a log that [`recover`] refuses. Changes nothing.
///
/// # Errors
/// [`LogDeviceError::Io`].
pub(super) fn before_damage(dir: &dyn StorageDir) -> Result<BeforeDamage, LogDeviceError> {
    let (log_names, _) = classify(dir)?;
    let first_seq = log_names.first().map_or(0, |(first_seq, _)| *first_seq);
    let Prefix { mut segments, later, .. } = open_segments(dir, log_names)?;
    let mut proven_seq = first_seq;
    for segment in &later {
        let content = segment.content()?;
        proven_seq = proven_seq.max(segment.header.durable_seq);
        proven_seq = proven_seq.max(proven_by(&content.bytes, SEGMENT_HEADER_LEN, &segment.header));
    }
    if segments.is_empty() {
        return Ok(BeforeDamage { index: Index::from_segments(Vec::new(), first_seq), proven_seq });
    }
    let headers = segments.iter().map(|segment| segment.header.durable_seq);
    proven_seq = proven_seq.max(headers.max().unwrap_or(0));
    let mut sealed = count_sealed(&segments).saturating_sub(1);
    let (mut walk, _) = walk_to_gap(segments.get(sealed..).unwrap_or_default())?;
    if walk.boundary.is_none() && sealed > 0 {
        sealed = 0;
        (walk, _) = walk_to_gap(&segments)?;
    }
    let walked = segments.split_off(sealed);
    let end = walk.boundary();
    proven_seq = proven_seq.max(proven_after(&walked, &walk)?);
    walk.indexes.truncate(end.segment + 1);
    if let Some(last) = walk.indexes.last_mut() {
        last.truncate(end.seq);
    }
    let mut indexes = seal(segments, walked.first());
    indexes.append(&mut walk.indexes);
    proven_seq = proven_seq.max(walk.proven_seq).max(end.seq);
    Ok(BeforeDamage { index: Index::from_segments(indexes, end.seq), proven_seq })
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
        SegmentIndex::of_sealed(Sealed { segment, end_seq, next, contents: OnceLock::new() })
    });
    sealed.collect()
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

/// Gives the last segment its length back if it was cut behind its records. `fault`: its length is not that of its header.
///
/// Records follow one another without gaps. So none was behind the cut if none begins where the walk stopped, and the
/// bytes there can be read.
fn restore_len(segments: &[Segment], walk: &Walk, fault: LogDeviceError) -> Result<(), LogDeviceError> {
    let Some((number, last)) = segments.iter().enumerate().next_back() else { return Err(fault) };
    let rest = walk.content.bytes.get(walk.stopped_at..).unwrap_or_default();
    let is_cut = (walk.content.bytes.len() as u64) < last.header.len_bytes;
    let begins_one = rest.starts_with(&last.header.epoch.to_le_bytes());
    if walk.stopped_segment != number || !is_cut || rest.len() < RECORD_HEADER_LEN || begins_one {
        return Err(fault);
    }
    let len_bytes = last.header.len_bytes;
    // Some file systems allocate nothing.
    let restored = last.file.allocate(0, len_bytes).and_then(|()| last.file.set_len(len_bytes));
    let restored = restored.and_then(|()| last.file.sync_all());
    restored.map_err(LogDeviceError::io_or_no_space("restore the length of", &last.name))
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
            content: Content::default(),
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
        self.content = segment.content()?;
        let mut index =
            SegmentIndex::new(header.first_seq, header.len_bytes, segment.file.clone(), &segment.name);
        let is_full = self.follow(header, &mut index);
        self.indexes.push(index);
        Ok(is_full)
    }

    fn follow(&mut self, header: &SegmentHeader, index: &mut SegmentIndex) -> bool {
        while self.content.bytes.len().saturating_sub(self.stopped_at) >= MIN_ROOM {
            let at = self.stopped_at;
            let record = RecordHeader::decode(&self.content.bytes, at, header.epoch);
            let Some(record) = record.filter(|record| record.seq == self.stopped_seq) else { return false };
            if !record.mark {
                index.push(record.seq, at + RECORD_HEADER_LEN);
            }
            self.stopped_at =
                if record.closes { self.content.bytes.len() } else { record.next_at(at, header.unit) };
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
    match walk_to_gap(segments)? {
        (walk, None) => Ok(walk),
        (_, Some(gap)) => Err(gap),
    }
}

/// The same; the second result is the error if a segment is missing there.
fn walk_to_gap(segments: &[Segment]) -> Result<(Walk, Option<LogDeviceError>), LogDeviceError> {
    let mut walk = Walk::from(segments);
    let mut before: Option<&Segment> = None;
    for (number, segment) in segments.iter().enumerate() {
        let first_seq = segment.header.first_seq;
        if let Some(before) = before
            && first_seq != walk.stopped_seq
        {
            // The segment before this one is full, and this one's header was written after it was filled.
            let gap = missing_after(&before.name, walk.stopped_seq, first_seq);
            return Ok((walk, Some(gap)));
        }
        if walk.boundary.is_some_and(|boundary| boundary.seq == walk.stopped_seq) {
            walk.boundary = Some(Boundary { segment: number, at: SEGMENT_HEADER_LEN, seq: first_seq });
        }
        if !walk.enter(number, segment)? {
            break;
        }
        before = Some(segment);
    }
    Ok((walk, None))
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
    let check = |content: &Content, from: usize, segment: &Segment| {
        if let Some(lost) = content.lost_behind(from) {
            return Err(damaged(format!("the drive cannot read byte {lost} of {}", segment.name)));
        }
        let content = &*content.bytes;
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
        let content = segment.content()?;
        check(&content, SEGMENT_HEADER_LEN, segment)?;
    }
    Ok(())
}

/// How far the records after the place where the walk stopped show that the stream was durable.
fn proven_after(segments: &[Segment], walk: &Walk) -> Result<u64, LogDeviceError> {
    let stopped = segments.get(walk.stopped_segment);
    let mut proven_seq =
        stopped.map_or(0, |stopped| proven_by(&walk.content.bytes, walk.stopped_at, &stopped.header));
    for segment in segments.iter().skip(walk.stopped_segment + 1) {
        let content = segment.content()?;
        proven_seq = proven_seq.max(proven_by(&content.bytes, SEGMENT_HEADER_LEN, &segment.header));
    }
    Ok(proven_seq)
}

/// How far the records of a segment from this byte on show that the stream was durable.
fn proven_by(content: &[u8], from: usize, header: &SegmentHeader) -> u64 {
    let records =
        candidates(content, from, header).filter_map(|at| RecordHeader::decode(content, at, header.epoch));
    records.map(|record| record.durable_seq).max().unwrap_or(0)
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
        walk.content = last.content()?;
    }
    // Whatever is there, not only what looks like a record: a header may span two sectors, and half of one that
    // was lost would fit the half of a new one at the same place.
    if walk.content.bytes.iter().skip(boundary.at).all(|&byte| byte == 0) {
        return Ok(());
    }
    let mut at = boundary.at;
    while at < walk.content.bytes.len() {
        let len = ZEROS.len().min(walk.content.bytes.len() - at);
        last.file.write_at(at as u64, &ZEROS[..len]).map_err(LogDeviceError::io("clear", &last.name))?;
        at += len;
    }
    last.file.sync_data().map_err(LogDeviceError::io("sync", &last.name))
}
