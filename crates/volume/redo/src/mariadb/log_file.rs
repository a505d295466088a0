//! The frame of `ib_logfile0`: header, checkpoint blocks, and where an LSN lies in the file.
//!
//! Layout: header in bytes 0..512; checkpoint blocks at 4096 and 8192, 64 bytes each; from 12288 to the end
//! of the file one circular area without any block structure. All numbers are big-endian.
//!
//! Header: format at 0 (4 bytes), zero at 4 (4), first LSN at 8 (8), creator at 16 (32, NUL padded), zero,
//! CRC-32C of bytes 0..508 at 508. Checkpoint block: checkpoint LSN at 0 (8), LSN of the checkpoint's own
//! records at 8 (8), zero, CRC-32C of bytes 0..60 at 60.

use super::log_scan::LogRead;
use crate::types::Lsn;

/// Where the circular area starts, in bytes.
pub const DATA_OFFSET: u64 = 12_288;
/// Lowest LSN of any log.
pub const FIRST_LSN: Lsn = Lsn(12_288);
/// Highest LSN that is believed. A server that writes 10 GB/s gets there in 14 years; arithmetic on LSNs up to
/// here cannot overflow.
pub const LSN_MAX: Lsn = Lsn(1 << 62);
/// Where the checkpoint blocks are, in bytes.
pub const CHECKPOINT_OFFSETS: [u64; 2] = [4096, 8192];
/// Length of the header in bytes.
pub const HEADER_LEN_BYTES: usize = 512;
/// Length of a checkpoint block in bytes.
pub const CHECKPOINT_LEN_BYTES: usize = 64;

const FORMAT_PHYSICAL: u32 = 0x5068_7973;
const FORMAT_ENCRYPTED: u32 = 0xf09f_979d;
const FORMAT_10_5: u32 = 0x5048_5953;
const FORMAT_ENCRYPTED_FLAG: u32 = 1 << 31;
const CREATOR_START: usize = 16;
const CREATOR_END: usize = 48;
const HEADER_CRC_OFFSET: usize = 508;
const CHECKPOINT_CRC_OFFSET: usize = 60;
/// Type and length of a FILE_CHECKPOINT record: tablespace 0, page 0, 8 bytes of LSN.
const FILE_CHECKPOINT_OF_10_BYTES: u8 = 0xfa;

/// Why a log file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogFileError {
    /// The log is encrypted.
    #[error(
        "the redo log is encrypted and cannot be replayed: set innodb_encrypt_log=OFF \
         and restart the server cleanly, which writes a new log"
    )]
    Encrypted,
    /// The log was written before MariaDB 10.8.
    #[error(
        "redo log format {format:#010x} is from before MariaDB 10.8: \
         shut the old server down cleanly and start MariaDB 10.11 once on the data directory"
    )]
    OldFormat {
        /// The format number.
        format: u32,
    },
    /// Not a redo log of a known format.
    #[error("{format:#010x} is not a known redo log format (MariaDB 10.8 to 11 has 0x50687973)")]
    UnknownFormat {
        /// The number at the format's place.
        format: u32,
    },
    /// The header is damaged.
    #[error("redo log header: CRC-32C is {stored:#010x}, but the header has {computed:#010x}")]
    HeaderChecksum {
        /// The stored value.
        stored: u32,
        /// The value computed from the header.
        computed: u32,
    },
    /// A field of the header is invalid.
    #[error("redo log header: {field} is {value}, expected {expected}")]
    HeaderField {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The valid values.
        expected: &'static str,
    },
    /// Header or checkpoint block is cut off.
    #[error("{what} has {actual_bytes} bytes, expected {expected_bytes}")]
    Short {
        /// Header or checkpoint block.
        what: &'static str,
        /// How long it is.
        actual_bytes: usize,
        /// How long it must be.
        expected_bytes: usize,
    },
    /// The file has no room for records.
    #[error("a redo log file of {file_size_bytes} bytes has no room for records; it needs more than 12288")]
    FileTooSmall {
        /// The size of the file.
        file_size_bytes: u64,
    },
    /// Neither checkpoint block is valid.
    #[error("no valid checkpoint in the redo log: both checkpoint blocks (at 4096 and 8192) are invalid")]
    NoCheckpoint,
}

/// Where the stream lies in one log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogGeometry {
    first_lsn: Lsn,
    capacity_bytes: u64,
}

impl LogGeometry {
    /// A file of `file_size_bytes` bytes whose byte 12288 first had `first_lsn`.
    ///
    /// # Errors
    /// When the file has no room for records or `first_lsn` is out of range.
    pub const fn new(first_lsn: Lsn, file_size_bytes: u64) -> Result<Self, LogFileError> {
        if file_size_bytes <= DATA_OFFSET {
            return Err(LogFileError::FileTooSmall { file_size_bytes });
        }
        if first_lsn.0 < FIRST_LSN.0 || first_lsn.0 > LSN_MAX.0 {
            return Err(bad_first_lsn(first_lsn.0));
        }
        Ok(Self { first_lsn, capacity_bytes: file_size_bytes - DATA_OFFSET })
    }

    /// LSN of byte 12288 on the first lap.
    pub const fn first_lsn(&self) -> Lsn {
        self.first_lsn
    }

    /// Bytes of the circular area.
    pub const fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Size of the file in bytes.
    pub const fn file_size_bytes(&self) -> u64 {
        self.capacity_bytes + DATA_OFFSET
    }

    /// The circular area begins at this offset of the file.
    pub const fn is_start(offset: u64) -> bool {
        offset == DATA_OFFSET
    }

    /// All of this range of the file is in the circular area.
    pub const fn holds(&self, offset: u64, len_bytes: u64) -> bool {
        offset >= DATA_OFFSET && offset.saturating_add(len_bytes) <= self.file_size_bytes()
    }

    /// Bytes from `first_lsn` to `lsn`. An LSN before the file's first counts as the first.
    const fn distance(&self, lsn: Lsn) -> u64 {
        lsn.0.saturating_sub(self.first_lsn.0)
    }

    /// File offset of the byte with this LSN.
    pub const fn offset_of(&self, lsn: Lsn) -> u64 {
        DATA_OFFSET + self.distance(lsn) % self.capacity_bytes
    }

    /// The end byte a mini-transaction has if that byte is at `lsn`: 1 on the first lap, then alternating.
    pub const fn sequence_bit(&self, lsn: Lsn) -> u8 {
        let distance = self.distance(lsn);
        if distance < self.capacity_bytes {
            return 1;
        }
        ((distance / self.capacity_bytes) & 1 == 0) as u8
    }

    /// The LSN at file offset `offset`, on the lap of `end_lsn` or on the previous one: the highest below `end_lsn`.
    /// `None` when the offset is outside the circular area, or nothing was written there yet.
    pub const fn lsn_at(&self, offset: u64, end_lsn: Lsn) -> Option<Lsn> {
        if offset < DATA_OFFSET || offset >= self.file_size_bytes() {
            return None;
        }
        let end = self.distance(end_lsn);
        let place = offset - DATA_OFFSET;
        if end <= place {
            return None;
        }
        let back = (end - 1 - place) % self.capacity_bytes;
        Some(Lsn(self.first_lsn.0 + end - 1 - back))
    }
}

const fn bad_first_lsn(value: u64) -> LogFileError {
    LogFileError::HeaderField { field: "first LSN", value, expected: "12288 to 2^62" }
}

/// The header, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHeader {
    /// LSN of byte 12288 on the first lap.
    pub first_lsn: Lsn,
    /// Server that wrote the file, e.g. `MariaDB 10.11.19`; at most 32 bytes, NUL padding removed.
    pub creator: Vec<u8>,
}

impl LogHeader {
    /// Decode the first 512 bytes of a log file.
    ///
    /// # Errors
    /// When the format is not the one of MariaDB 10.8 and later without encryption, or the header is damaged.
    pub fn parse(bytes: &[u8]) -> Result<Self, LogFileError> {
        let Some(block) = bytes.first_chunk::<HEADER_LEN_BYTES>() else {
            return Err(short("the redo log header", bytes.len(), HEADER_LEN_BYTES));
        };
        let format = be_u32(block, 0);
        match format {
            FORMAT_PHYSICAL | FORMAT_ENCRYPTED => {}
            0 | 1 | 103 | 104 | FORMAT_10_5 => return Err(LogFileError::OldFormat { format }),
            _ => {
                let plain = format & !FORMAT_ENCRYPTED_FLAG;
                if matches!(plain, 1 | 103 | 104 | FORMAT_10_5) {
                    return Err(LogFileError::OldFormat { format });
                }
                return Err(LogFileError::UnknownFormat { format });
            }
        }
        let stored = be_u32(block, HEADER_CRC_OFFSET);
        let computed = crc32c::crc32c(block.get(..HEADER_CRC_OFFSET).unwrap_or_default());
        if stored != computed {
            return Err(LogFileError::HeaderChecksum { stored, computed });
        }
        if format == FORMAT_ENCRYPTED || be_u32(block, CREATOR_END) != 0 {
            return Err(LogFileError::Encrypted);
        }
        let reserved = be_u32(block, 4);
        if reserved != 0 {
            let (field, value) = ("the field after the format", u64::from(reserved));
            return Err(LogFileError::HeaderField { field, value, expected: "0" });
        }
        let first_lsn = Lsn(be_u64(block, 8));
        if first_lsn < FIRST_LSN || first_lsn > LSN_MAX {
            return Err(bad_first_lsn(first_lsn.0));
        }
        let creator = block.get(CREATOR_START..CREATOR_END).unwrap_or_default();
        let creator = creator.split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
        Ok(Self { first_lsn, creator })
    }

    /// The 512 bytes of this header. A creator longer than 32 bytes is cut.
    pub fn build(&self) -> [u8; HEADER_LEN_BYTES] {
        let mut block = [0; HEADER_LEN_BYTES];
        put(&mut block, 0, &FORMAT_PHYSICAL.to_be_bytes());
        put(&mut block, 8, &self.first_lsn.0.to_be_bytes());
        put(&mut block, CREATOR_START, self.creator.get(..32).unwrap_or(&self.creator));
        let crc = crc32c::crc32c(block.get(..HEADER_CRC_OFFSET).unwrap_or_default());
        put(&mut block, HEADER_CRC_OFFSET, &crc.to_be_bytes());
        block
    }
}

/// A checkpoint block, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointBlock {
    /// Recovery starts to apply here.
    pub checkpoint_lsn: Lsn,
    /// Where the FILE_MODIFY and FILE_CHECKPOINT records of this checkpoint start.
    pub end_lsn: Lsn,
}

impl CheckpointBlock {
    /// Decode the 64 bytes of a checkpoint block. `None` when it is invalid, as an unused one is.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let block = bytes.first_chunk::<CHECKPOINT_LEN_BYTES>()?;
        let covered = block.get(..CHECKPOINT_CRC_OFFSET)?;
        let zero = block.get(16..CHECKPOINT_CRC_OFFSET)?.iter().all(|&byte| byte == 0);
        let checkpoint = Self { checkpoint_lsn: Lsn(be_u64(block, 0)), end_lsn: Lsn(be_u64(block, 8)) };
        let valid = zero
            && checkpoint.end_lsn >= checkpoint.checkpoint_lsn
            && checkpoint.checkpoint_lsn >= FIRST_LSN
            && checkpoint.end_lsn <= LSN_MAX
            && be_u32(block, CHECKPOINT_CRC_OFFSET) == crc32c::crc32c(covered);
        valid.then_some(checkpoint)
    }

    /// The 64 bytes of this block.
    pub fn build(&self) -> [u8; CHECKPOINT_LEN_BYTES] {
        let mut block = [0; CHECKPOINT_LEN_BYTES];
        put(&mut block, 0, &self.checkpoint_lsn.0.to_be_bytes());
        put(&mut block, 8, &self.end_lsn.0.to_be_bytes());
        let crc = crc32c::crc32c(block.get(..CHECKPOINT_CRC_OFFSET).unwrap_or_default());
        put(&mut block, CHECKPOINT_CRC_OFFSET, &crc.to_be_bytes());
        block
    }

    /// The one that counts: the higher checkpoint LSN, the second block on a tie.
    pub fn newest(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(second)) if first.checkpoint_lsn > second.checkpoint_lsn => Some(first),
            (_, Some(second)) => Some(second),
            (first, None) => first,
        }
    }
}

/// The last write of a clean shutdown: a mini-transaction of FILE_CHECKPOINT of the LSN at which it starts,
/// and a checkpoint block of that LSN. Recovery has nothing to do then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanEnd {
    /// The mini-transaction: records, end byte and checksum.
    pub redo: [u8; Self::LEN_BYTES as usize],
    /// The checkpoint block.
    pub checkpoint: [u8; CHECKPOINT_LEN_BYTES],
}

impl CleanEnd {
    /// Length of the mini-transaction in bytes.
    pub const LEN_BYTES: u64 = 16;
    /// Length in bytes of a log file that has room for nothing else, as `mariadb-backup --prepare` leaves it.
    pub const SMALLEST_FILE_BYTES: u64 = DATA_OFFSET + Self::LEN_BYTES;

    /// That of a log that ends at `lsn`.
    pub fn at(lsn: Lsn, geometry: &LogGeometry) -> Self {
        let mut redo = [0; Self::LEN_BYTES as usize];
        put(&mut redo, 0, &[FILE_CHECKPOINT_OF_10_BYTES]);
        put(&mut redo, 3, &lsn.0.to_be_bytes());
        put(&mut redo, 11, &[geometry.sequence_bit(lsn.advance(11))]);
        let crc = crc32c::crc32c(redo.get(..11).unwrap_or_default());
        put(&mut redo, 12, &crc.to_be_bytes());
        Self { redo, checkpoint: CheckpointBlock { checkpoint_lsn: lsn, end_lsn: lsn }.build() }
    }

    /// There is nothing to recover of a log with this newest checkpoint that ends at `end`.
    pub fn is_reached(newest: &CheckpointBlock, end: Lsn) -> bool {
        let with_redo = newest.end_lsn.advance(Self::LEN_BYTES);
        newest.checkpoint_lsn == newest.end_lsn && [newest.end_lsn, with_redo].contains(&end)
    }

    /// So much redo since the checkpoint is no more than what such an end has.
    pub const fn has_room_for(len_bytes: u64) -> bool {
        len_bytes <= Self::LEN_BYTES
    }
}

/// Content before the records: the header, and both checkpoint blocks, as last written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFront {
    /// See [`LogHeader`].
    pub header: [u8; HEADER_LEN_BYTES],
    /// See [`CheckpointBlock`].
    pub checkpoints: [[u8; CHECKPOINT_LEN_BYTES]; 2],
}

/// Which part of the file begins at an offset, or holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogArea {
    /// Header, and unused ranges.
    Header,
    /// The checkpoint block with this index.
    Checkpoint(u8),
    /// The circular area.
    Records,
}

impl LogArea {
    /// See [`LogArea`].
    pub const fn of(offset: u64) -> Self {
        let [first, second] = CHECKPOINT_OFFSETS;
        match offset {
            DATA_OFFSET.. => Self::Records,
            at if at == first => Self::Checkpoint(0),
            at if at == second => Self::Checkpoint(1),
            _ => Self::Header,
        }
    }
}

impl Default for LogFront {
    fn default() -> Self {
        Self { header: [0; HEADER_LEN_BYTES], checkpoints: [[0; CHECKPOINT_LEN_BYTES]; 2] }
    }
}

impl LogFront {
    /// Read it.
    ///
    /// # Errors
    /// Those of `reader`.
    pub fn read<R: LogRead + ?Sized>(reader: &R) -> Result<Self, R::Error> {
        let mut front = Self::default();
        reader.read_at(0, &mut front.header)?;
        for (block, offset) in front.checkpoints.iter_mut().zip(CHECKPOINT_OFFSETS) {
            reader.read_at(offset, block)?;
        }
        Ok(front)
    }

    /// The server wrote `bytes` at this offset. Parts that are incomplete, or elsewhere, are ignored.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        match LogArea::of(offset) {
            LogArea::Header if offset == 0 => {
                if let Some(header) = bytes.first_chunk() {
                    self.header = *header;
                }
            }
            LogArea::Checkpoint(slot) => {
                let place = self.checkpoints.get_mut(usize::from(slot));
                if let (Some(place), Some(block)) = (place, bytes.first_chunk()) {
                    *place = *block;
                }
            }
            LogArea::Header | LogArea::Records => {}
        }
    }
}

#[cold]
const fn short(what: &'static str, actual_bytes: usize, expected_bytes: usize) -> LogFileError {
    LogFileError::Short { what, actual_bytes, expected_bytes }
}

fn be_u32(block: &[u8], at: usize) -> u32 {
    block.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn be_u64(block: &[u8], at: usize) -> u64 {
    block.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = block.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests;
