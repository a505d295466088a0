//! The log as frames: length (4 bytes, without itself), kind (1 byte), CRC-32C of kind and content (4 bytes), content.
//!
//! The device checks the log when it is opened. Frames that are read later, for other members or the server, are
//! verified here against their own checksum. Kinds 1 to 3 are from an earlier version, without checksums.

use super::StoreError;
use crate::bytes::Reader;
use redoubt_consensus::codec::decode_record;
use redoubt_consensus::record::Record;
use redoubt_consensus::types::Slot;
use redoubt_logdev::{LogDevice, LogDeviceError, Seq};
use std::sync::Arc;

/// Length of one read when the log is read to its end.
pub(super) const RUN_LEN_BYTES: u64 = 1 << 20;
/// Length of one read for a few records.
pub(super) const PIECE_LEN_BYTES: u64 = 64 << 10;
const HEAD_LEN_BYTES: usize = 4 + 1 + 4;
const OLD_HEAD_LEN_BYTES: usize = 4 + 1;

/// Kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Record,
    Checkpoint,
    State,
    Index,
}

impl Kind {
    const fn number(self) -> u8 {
        match self {
            Self::Record => 4,
            Self::Checkpoint => 5,
            Self::State => 6,
            Self::Index => 7,
        }
    }

    /// The kind, and whether the frame has a checksum.
    const fn of(number: u8) -> Option<(Self, bool)> {
        Some(match number {
            1 => (Self::Record, false),
            2 => (Self::Checkpoint, false),
            3 => (Self::State, false),
            4 => (Self::Record, true),
            5 => (Self::Checkpoint, true),
            6 => (Self::State, true),
            7 => (Self::Index, true),
            _ => return None,
        })
    }
}

/// Appends a frame. Returns its position.
pub(super) fn put(device: &dyn LogDevice, kind: Kind, parts: &[&[u8]]) -> Result<Seq, LogDeviceError> {
    let len = HEAD_LEN_BYTES - 4 + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut frame = Vec::with_capacity(4 + len);
    frame.extend_from_slice(&(len as u32).to_le_bytes());
    frame.push(kind.number());
    let crc =
        parts.iter().fold(crc32c::crc32c(&[kind.number()]), |crc, part| crc32c::crc32c_append(crc, part));
    frame.extend_from_slice(&crc.to_le_bytes());
    parts.iter().for_each(|part| frame.extend_from_slice(part));
    let end = device.append(&frame)?;
    Ok(Seq(end.0 - frame.len() as u64))
}

/// A frame of the log.
pub(super) struct Frame {
    pub position: u64,
    pub kind: Kind,
    pub content: Vec<u8>,
}

impl Frame {
    pub(super) fn wrong(&self, reason: impl Into<String>) -> StoreError {
        StoreError::Frame { position: self.position, reason: reason.into() }
    }

    /// The records of a frame: one, or those of a checkpoint.
    pub(super) fn records(&self) -> Result<Vec<Record>, StoreError> {
        match self.kind {
            Kind::Record => {
                decode_record(&self.content).map(|record| vec![record]).map_err(|e| self.wrong(e.to_string()))
            }
            Kind::Checkpoint => {
                checkpoint(&self.content).map_err(|reason| self.wrong(reason)).map(|(_, of)| of)
            }
            Kind::State | Kind::Index => Err(self.wrong("it is no record")),
        }
    }

    /// The slot of a checkpoint or state, and the rest of the content.
    pub(super) fn slot(&self) -> Result<(Slot, &[u8]), StoreError> {
        let (slot, rest) = self.content.split_first_chunk().ok_or_else(|| self.wrong("it has no slot"))?;
        Ok((Slot(u64::from_le_bytes(*slot)), rest))
    }
}

fn checkpoint(content: &[u8]) -> Result<(Slot, Vec<Record>), String> {
    let mut reader = Reader::new(content);
    let text = |error: crate::bytes::BytesError| format!("a checkpoint {error}");
    let slot = Slot(reader.u64().map_err(text)?);
    let count = reader.u32().map_err(text)?;
    let mut records = Vec::new();
    for _ in 0..count {
        let bytes = reader.bytes().map_err(text)?;
        records.push(decode_record(bytes).map_err(|error| error.to_string())?);
    }
    reader.end().map_err(text)?;
    Ok((slot, records))
}

/// Reads the frames of the log in order. Memory holds one read, or one frame if that is longer.
pub(super) struct Frames {
    device: Arc<dyn LogDevice>,
    /// Position of the first byte of the buffer.
    begin: u64,
    buffer: Vec<u8>,
    used: usize,
    at_a_time: u64,
}

impl Frames {
    /// Frames from a position on, with reads of `at_a_time` bytes.
    pub(super) fn new(device: Arc<dyn LogDevice>, from: Seq, at_a_time: u64) -> Self {
        Self { device, begin: from.0, buffer: Vec::new(), used: 0, at_a_time }
    }

    /// Continues at another position.
    pub(super) fn seek(&mut self, position: u64) {
        match position.checked_sub(self.begin) {
            Some(used) if used <= self.buffer.len() as u64 => self.used = used as usize,
            _ => {
                (self.begin, self.used) = (position, 0);
                self.buffer.clear();
            }
        }
    }

    const fn position(&self) -> u64 {
        self.begin + self.used as u64
    }

    /// The next frame. The content of unwanted kinds is skipped and not read.
    pub(super) fn next(&mut self, is_wanted: impl Fn(Kind) -> bool) -> Result<Option<Frame>, StoreError> {
        let position = self.position();
        if position == self.device.end().0 {
            return Ok(None);
        }
        let wrong = |reason: &str| StoreError::Frame { position, reason: reason.into() };
        let short = || wrong("a frame ends with the log");
        let head = self.take(OLD_HEAD_LEN_BYTES)?.ok_or_else(short)?;
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let number = head[4];
        let (kind, has_crc) =
            Kind::of(number).ok_or_else(|| wrong(&format!("a frame of unknown kind {number}")))?;
        let head_len = if has_crc { HEAD_LEN_BYTES } else { OLD_HEAD_LEN_BYTES };
        let content_len =
            (len + 4).checked_sub(head_len).ok_or_else(|| wrong("a frame that is too short"))?;
        let crc = if has_crc { Some(self.take(4)?.ok_or_else(short)?.to_vec()) } else { None };
        if !is_wanted(kind) {
            self.skip(content_len as u64).ok_or_else(short)?;
            return Ok(Some(Frame { position, kind, content: Vec::new() }));
        }
        let content = self.take(content_len)?.ok_or_else(short)?.to_vec();
        let found = crc32c::crc32c_append(crc32c::crc32c(&[number]), &content).to_le_bytes();
        if crc.is_some_and(|crc| crc != found) {
            return Err(wrong("a frame with another checksum"));
        }
        Ok(Some(Frame { position, kind, content }))
    }

    fn skip(&mut self, count: u64) -> Option<()> {
        let to = self.position() + count;
        (to <= self.device.end().0).then(|| self.seek(to))
    }

    fn take(&mut self, count: usize) -> Result<Option<&[u8]>, StoreError> {
        if self.buffer.len() - self.used < count {
            let end = self.device.end().0;
            if end - self.position() < count as u64 {
                return Ok(None);
            }
            self.buffer.drain(..self.used);
            (self.begin, self.used) = (self.position(), 0);
            let have = self.buffer.len();
            let wanted = self.at_a_time.max(count as u64).min(end - self.begin) as usize;
            self.buffer.resize(wanted.max(have), 0);
            let read = self.device.read_at(Seq(self.begin + have as u64), &mut self.buffer[have..]);
            if read.is_err() {
                self.buffer.truncate(have);
            }
            read?;
            // Memory of a long frame is released afterwards.
            self.buffer.shrink_to(2 * self.at_a_time as usize);
        }
        self.used += count;
        Ok(self.buffer.get(self.used - count..self.used))
    }
}
