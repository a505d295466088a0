//! Layout of a segment file: one segment header, then records, back to back. Pure: bytes in, values out.
//!
//! All numbers are little-endian.
//!
//! Segment header, [`SEGMENT_HEADER_LEN`] bytes, zero after the checksum:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `RDBTLOG1` |
//! | 8 | 4 | format version, 2 |
//! | 12 | 4 | write unit: records start at multiples of it (version 1: zero, for 8) |
//! | 16 | 8 | stream position of the segment's first payload byte |
//! | 24 | 8 | epoch: a random number for this use of the file |
//! | 32 | 8 | length of the file |
//! | 40 | 8 | durable end of the stream when the header was written |
//! | 48 | 4 | CRC-32C of bytes 0..48 |
//!
//! Record, at a multiple of the segment's write unit, zero padded to one:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | epoch of the segment: tells the record from what an earlier use of the file left |
//! | 8 | 8 | stream position of the record's first payload byte |
//! | 16 | 8 | durable end of the stream when the record was written |
//! | 24 | 4 | payload length; bit 31: the appended record goes on in the next segment; bit 30: mark; bit 29: the segment ends here |
//! | 28 | 4 | CRC-32C of bytes 0..28 and the payload |
//! | 32 | | payload |
//!
//! The durable end is what tells damage from a torn end. Records written since the last sync may reach the disk
//! in any order, so a valid record after an invalid one proves nothing by itself; a valid record that says the
//! stream was durable *past* the invalid one proves that durable data is lost.
//!
//! A mark is a record without payload, written to leave such a proof for data that no later record vouches for, or
//! to close a segment before it is full.
//!
//! No unit holds bytes of two records, so what is durable is never written again.

use redoubt_storage::format_version::unknown_version;

/// Length of a segment header in bytes; the first record starts here.
pub(crate) const SEGMENT_HEADER_LEN: usize = 4096;
/// Length of a record header in bytes.
pub(crate) const RECORD_HEADER_LEN: usize = 32;
/// The smallest write unit.
pub(crate) const RECORD_ALIGN: usize = 8;
/// The largest write unit: segments are a multiple of it, so that a segment's room always is, too.
pub(crate) const MAX_UNIT: usize = 4096;
/// A segment with less room than this is full.
pub(crate) const MIN_ROOM: usize = RECORD_HEADER_LEN + RECORD_ALIGN;

const MAGIC: [u8; 8] = *b"RDBTLOG1";
const VERSION: u32 = 2;
/// Builds before 0.1.0 wrote it, before there were write units. It stays: 0.1.0 appends to such a segment when it finds
/// one, so the segment may hold redo of 0.1.0.
const VERSION_WITHOUT_UNIT: u32 = 1;
const HEADER_CRC_AT: usize = 48;
const RECORD_CRC_AT: usize = 28;
const CONTINUES: u32 = 1 << 31;
const MARK: u32 = 1 << 30;
const CLOSES: u32 = 1 << 29;
const LEN_MASK: u32 = (1 << 28) - 1;

/// Why a segment header cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// It is not what was written; the text says what is wrong, and what to do.
    Damaged(String),
    /// It is of a format version that this program does not know.
    Unknown(String),
}

/// What a segment header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub first_seq: u64,
    pub epoch: u64,
    pub len_bytes: u64,
    pub durable_seq: u64,
    /// Records start at multiples of this many bytes: a power of two, from 8 to 4096.
    pub unit: u32,
}

impl SegmentHeader {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_LEN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.unit.to_le_bytes());
        for field in [self.first_seq, self.epoch, self.len_bytes, self.durable_seq] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out.resize(SEGMENT_HEADER_LEN, 0);
        out
    }

    /// Reads a header; the error says what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let damaged =
            |reason: &str| Err(HeaderFault::Damaged(format!("{reason}: restore the file from a copy")));
        if bytes.get(..8) != Some(&MAGIC) {
            return damaged("it does not begin with a segment header");
        }
        let (Some(version), Some(unit), Some(crc)) =
            (u32_at(bytes, 8), u32_at(bytes, 12), u32_at(bytes, HEADER_CRC_AT))
        else {
            return damaged("its header is cut short");
        };
        // Before the checksum, which may be elsewhere in another version.
        if !(VERSION_WITHOUT_UNIT..=VERSION).contains(&version) {
            return Err(HeaderFault::Unknown(unknown_version(u64::from(version), VERSION)));
        }
        if bytes.get(..HEADER_CRC_AT).map(crc32c::crc32c) != Some(crc) {
            return damaged("the checksum of its header does not match");
        }
        let unit = match (version, unit) {
            (VERSION_WITHOUT_UNIT, 0) => RECORD_ALIGN as u32,
            (VERSION, unit)
                if unit.is_power_of_two() && (RECORD_ALIGN..=MAX_UNIT).contains(&(unit as usize)) =>
            {
                unit
            }
            _ => {
                return damaged(&format!("invalid write unit {unit} in format version {version}"));
            }
        };
        match (u64_at(bytes, 16), u64_at(bytes, 24), u64_at(bytes, 32), u64_at(bytes, 40)) {
            (Some(first_seq), Some(epoch), Some(len_bytes), Some(durable_seq)) => {
                Ok(Self { first_seq, epoch, len_bytes, durable_seq, unit })
            }
            _ => damaged("its header is cut short"),
        }
    }
}

/// What a record header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordHeader {
    pub epoch: u64,
    pub seq: u64,
    pub durable_seq: u64,
    pub len_bytes: u32,
    /// The appended record goes on in the next segment.
    pub continues: bool,
    pub mark: bool,
    /// Nothing follows in this segment. Only a mark does that.
    pub closes: bool,
}

impl RecordHeader {
    /// The header's bytes for this payload.
    pub fn encode(&self, payload: &[u8]) -> [u8; RECORD_HEADER_LEN] {
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags = flag(self.continues, CONTINUES) | flag(self.mark, MARK) | flag(self.closes, CLOSES);
        let mut out = [0; RECORD_HEADER_LEN];
        out[..8].copy_from_slice(&self.epoch.to_le_bytes());
        out[8..16].copy_from_slice(&self.seq.to_le_bytes());
        out[16..24].copy_from_slice(&self.durable_seq.to_le_bytes());
        out[24..28].copy_from_slice(&((self.len_bytes & LEN_MASK) | flags).to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&out[..RECORD_CRC_AT]), payload);
        out[28..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The valid record at `at` in a segment, if there is one that carries `epoch`.
    pub fn decode(segment: &[u8], at: usize, epoch: u64) -> Option<Self> {
        let bytes = segment.get(at..)?;
        if u64_at(bytes, 0)? != epoch {
            return None;
        }
        let length = u32_at(bytes, 24)?;
        let header = Self {
            epoch,
            seq: u64_at(bytes, 8)?,
            durable_seq: u64_at(bytes, 16)?,
            len_bytes: length & LEN_MASK,
            continues: length & CONTINUES != 0,
            mark: length & MARK != 0,
            closes: length & CLOSES != 0,
        };
        let known = LEN_MASK | CONTINUES | MARK | CLOSES;
        if length & !known != 0
            || header.mark != (header.len_bytes == 0)
            || header.durable_seq > header.seq
            || (header.mark && header.continues)
            || (header.closes && !header.mark)
        {
            return None;
        }
        let payload = bytes.get(RECORD_HEADER_LEN..)?.get(..header.len_bytes as usize)?;
        let crc = crc32c::crc32c_append(crc32c::crc32c(bytes.get(..RECORD_CRC_AT)?), payload);
        (crc == u32_at(bytes, RECORD_CRC_AT)?).then_some(header)
    }

    /// Where the record after one at `at` starts.
    pub fn next_at(&self, at: usize, unit: u32) -> usize {
        (at + RECORD_HEADER_LEN + self.len_bytes as usize).next_multiple_of(unit as usize)
    }
}

/// Offsets at or after `from` where a record of the segment could start: where the epoch's bytes stand.
pub(crate) fn candidates(segment: &[u8], from: usize, header: &SegmentHeader) -> impl Iterator<Item = usize> {
    let unit = header.unit as usize;
    let from = from.next_multiple_of(unit).min(segment.len());
    let pattern = header.epoch.to_le_bytes();
    let units = segment.get(from..).unwrap_or_default().chunks_exact(unit).enumerate();
    units.filter(move |(_, bytes)| bytes.starts_with(&pattern)).map(move |(n, _)| from + n * unit)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests;
