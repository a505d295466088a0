//! A log file: its header, where an LSN is in it, and its name.
//!
//! Layout (`include/log0constants.h`, `log/log0files_io.cc`), integers big-endian; each of the four header blocks ends
//! with the CRC-32C of its first 508 bytes:
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | format: 6 |
//! | 4..8 | id of the set of files; the server refuses files of another set |
//! | 8..16 | LSN of the first block, a multiple of 512 |
//! | 16..48 | creator, NUL-terminated, e.g. `MySQL 9.7.4` |
//! | 48..52 | flags |
//! | 512..1024 | checkpoint 1: LSN at byte 8 |
//! | 1024..1536 | encryption: key of encrypted blocks from byte 48 on |
//! | 1536..2048 | checkpoint 2, as 1 |
//! | 2048.. | log blocks |
//!
//! Files are numbered, and each begins at the end of the previous file. A checkpoint is written to the file that holds its
//! LSN; the other slots are zero or older. Names: `#innodb_redo/#ib_redo<N>`, with `_tmp` at the end for a spare file
//! that is no part of the log yet.
//!
//! Invariant: all LSNs here are the server's (see [`position`](super::position)).

use super::block::{BLOCK_BYTES, Block, BlockError};
use std::ops::Range;

/// Bytes before the first log block.
pub const FILE_HEADER_BYTES: u64 = 2048;
/// Where the encryption header is.
pub const ENCRYPTION_OFFSET: u64 = 1024;
/// Smallest file the server makes.
pub const FILE_MIN_BYTES: u64 = 65_536;
/// The directory below the data directory (or `innodb_log_group_home_dir`).
pub const DIRECTORY: &str = "#innodb_redo";
const NAME_PREFIX: &str = "#ib_redo";
const SPARE_SUFFIX: &str = "_tmp";

/// The format that MySQL 8.0.30 to 9.7 write.
pub const FORMAT: u32 = 6;
/// Most bytes of the creator.
pub const CREATOR_MAX_BYTES: usize = 31;
const CREATOR_FIELD_BYTES: usize = 32;
const CHECKED_BYTES: usize = BLOCK_BYTES - 4;

/// Why bytes are no log file header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogFileError {
    /// The CRC is wrong.
    #[error(
        "the header of the redo log file has CRC-32C {stored:#010x}, but its bytes give {computed:#010x}"
    )]
    Checksum {
        /// The stored value.
        stored: u32,
        /// The value computed from the bytes.
        computed: u32,
    },
    /// Another format.
    #[error(
        "the redo log file has format {format}, expected 6 (MySQL 8.0.30 to 9.7); start and stop an older server with \
         this MySQL version first"
    )]
    Format {
        /// The format.
        format: u32,
    },
    /// The first LSN is none.
    #[error("the redo log file starts at server LSN {start_lsn}, which is no multiple of 512")]
    StartLsn {
        /// The LSN.
        start_lsn: u64,
    },
}

/// Fields of a file header about the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LogFlags(pub u32);

impl LogFlags {
    /// `ALTER INSTANCE DISABLE INNODB REDO_LOG`: changes are not logged.
    pub const NO_LOGGING: Self = Self(1);
    /// A crash now leaves a data directory that cannot be used.
    pub const CRASH_UNSAFE: Self = Self(2);
    /// The data directory is being initialised.
    pub const NOT_INITIALISED: Self = Self(4);
    /// The file is full: there is one after it.
    pub const FULL: Self = Self(8);

    /// All flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The main header of a log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFileHeader {
    /// Id of the set of files.
    pub set_id: u32,
    /// Server LSN of its first block.
    pub start_lsn: u64,
    /// Creator of the file; at most 31 bytes without NUL count.
    pub creator: Vec<u8>,
    /// Flags.
    pub flags: LogFlags,
}

impl LogFileHeader {
    /// Read the first block of a file.
    ///
    /// # Errors
    /// When it is damaged, or of another format.
    pub fn parse(block: &[u8; BLOCK_BYTES]) -> Result<Self, LogFileError> {
        check_crc(block)?;
        let [a, b, c, d, e, f, g, h, rest @ ..] = block;
        let format = u32::from_be_bytes([*a, *b, *c, *d]);
        if format != FORMAT {
            return Err(LogFileError::Format { format });
        }
        let set_id = u32::from_be_bytes([*e, *f, *g, *h]);
        let (start, rest) = rest.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        let (creator, rest) = rest.split_first_chunk::<CREATOR_FIELD_BYTES>().unwrap_or((&[0; 32], &[]));
        let flags = rest.first_chunk::<4>().unwrap_or(&[0; 4]);
        let start_lsn = u64::from_be_bytes(*start);
        if !start_lsn.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(LogFileError::StartLsn { start_lsn });
        }
        let creator = creator.split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
        Ok(Self { set_id, start_lsn, creator, flags: LogFlags(u32::from_be_bytes(*flags)) })
    }

    /// The first block of a file.
    pub fn build(&self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        let creator = self.creator.get(..CREATOR_MAX_BYTES).unwrap_or(&self.creator);
        let creator = creator.iter().copied().chain(std::iter::repeat(0)).take(CREATOR_FIELD_BYTES);
        let fields = FORMAT
            .to_be_bytes()
            .into_iter()
            .chain(self.set_id.to_be_bytes())
            .chain(self.start_lsn.to_be_bytes())
            .chain(creator)
            .chain(self.flags.0.to_be_bytes());
        for (to, from) in block.iter_mut().zip(fields) {
            *to = from;
        }
        seal(block)
    }
}

/// Which checkpoint block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointSlot {
    /// The one at byte 512.
    First,
    /// The one at byte 1536.
    Second,
}

impl CheckpointSlot {
    /// Both.
    pub const ALL: [Self; 2] = [Self::First, Self::Second];

    /// Where it is in the file.
    pub const fn offset(self) -> u64 {
        match self {
            Self::First => 512,
            Self::Second => 1536,
        }
    }
}

/// Content of one of the first blocks of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrontBlock {
    /// The main header; `None`: zeros, the file is not in use.
    Header(Option<LogFileHeader>),
    /// The encryption header, and whether there is something in it: then what follows is encrypted.
    Encryption(bool),
    /// A checkpoint block and its server LSN; `None`: it is damaged, or empty.
    Checkpoint(CheckpointSlot, Option<u64>),
}

impl FrontBlock {
    /// The block at this offset; `None`: none of the first blocks is there.
    ///
    /// # Errors
    /// When it is a header that is damaged, or of another format.
    pub fn parse(offset: u64, block: &[u8; BLOCK_BYTES]) -> Result<Option<Self>, LogFileError> {
        let is_zero = block.iter().all(|&byte| byte == 0);
        let slot = CheckpointSlot::ALL.into_iter().find(|slot| slot.offset() == offset);
        Ok(match (offset, slot) {
            (0, _) if is_zero => Some(Self::Header(None)),
            (0, _) => Some(Self::Header(Some(LogFileHeader::parse(block)?))),
            (ENCRYPTION_OFFSET, _) => Some(Self::Encryption(!is_zero)),
            (_, Some(slot)) => Some(Self::Checkpoint(slot, parse_checkpoint(block))),
            (_, None) => None,
        })
    }
}

/// The checkpoint LSN in a checkpoint block. `None`: it is damaged, or zero, which is how a file begins.
pub fn parse_checkpoint(block: &[u8; BLOCK_BYTES]) -> Option<u64> {
    check_crc(block).ok()?;
    let [_, _, _, _, _, _, _, _, a, b, c, d, e, f, g, h, ..] = *block;
    let lsn = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    (lsn != 0).then_some(lsn)
}

/// The checkpoint block for this server LSN.
pub fn build_checkpoint(lsn: u64) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    for (to, from) in block.iter_mut().skip(8).zip(lsn.to_be_bytes()) {
        *to = from;
    }
    seal(block)
}

fn check_crc(block: &[u8; BLOCK_BYTES]) -> Result<(), LogFileError> {
    let (checked, stored) = block.split_last_chunk().unwrap_or((&[], &[0; 4]));
    let stored = u32::from_be_bytes(*stored);
    let computed = crc32c::crc32c(checked);
    if stored == computed { Ok(()) } else { Err(LogFileError::Checksum { stored, computed }) }
}

fn seal(mut block: [u8; BLOCK_BYTES]) -> [u8; BLOCK_BYTES] {
    if let Some((checked, crc)) = block.split_last_chunk_mut() {
        debug_assert_eq!(checked.len(), CHECKED_BYTES);
        *crc = crc32c::crc32c(checked).to_be_bytes();
    }
    block
}

/// Kind of a file in `#innodb_redo`, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogFileName {
    /// Part of the log.
    Log(u64),
    /// To become part of the log.
    Spare(u64),
}

impl LogFileName {
    /// By the file's name without directories. `None`: no log file.
    pub fn parse(name: &[u8]) -> Option<Self> {
        let number = std::str::from_utf8(name).ok()?.strip_prefix(NAME_PREFIX)?;
        let (number, is_spare) = match number.strip_suffix(SPARE_SUFFIX) {
            Some(number) => (number, true),
            None => (number, false),
        };
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let number = number.parse().ok()?;
        Some(if is_spare { Self::Spare(number) } else { Self::Log(number) })
    }
}

impl std::fmt::Display for LogFileName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Log(number) => write!(out, "{NAME_PREFIX}{number}"),
            Self::Spare(number) => write!(out, "{NAME_PREFIX}{number}{SPARE_SUFFIX}"),
        }
    }
}

/// Which part of the log a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// Server LSN of its first block.
    pub start_lsn: u64,
    /// Size of the file, header included.
    pub size_bytes: u64,
}

impl FileRange {
    /// Server LSN after its last block; the next file starts there.
    pub const fn end_lsn(&self) -> u64 {
        let blocks = self.size_bytes.saturating_sub(FILE_HEADER_BYTES) / BLOCK_BYTES as u64;
        self.start_lsn.saturating_add(blocks * BLOCK_BYTES as u64)
    }

    /// The file holds this server LSN.
    pub const fn contains(&self, lsn: u64) -> bool {
        self.start_lsn <= lsn && lsn < self.end_lsn()
    }

    /// Where this server LSN is in the file.
    pub const fn offset_of(&self, lsn: u64) -> Option<u64> {
        if self.contains(lsn) { Some(FILE_HEADER_BYTES + (lsn - self.start_lsn)) } else { None }
    }

    /// Where the blocks are that hold the log up to `end`, a server LSN. `None`: no byte of it is in this file.
    pub const fn blocks_until(&self, end: u64) -> Option<Range<u64>> {
        let end = if end < self.end_lsn() { end } else { self.end_lsn() };
        if end <= self.start_lsn {
            return None;
        }
        let len_bytes = (end - self.start_lsn).next_multiple_of(BLOCK_BYTES as u64);
        Some(FILE_HEADER_BYTES..FILE_HEADER_BYTES + len_bytes)
    }

    /// Server LSN of the byte at this offset. `None`: it is in the header or after the end.
    pub const fn lsn_at(&self, offset: u64) -> Option<u64> {
        let Some(in_log) = offset.checked_sub(FILE_HEADER_BYTES) else { return None };
        let lsn = self.start_lsn.saturating_add(in_log);
        if lsn < self.end_lsn() { Some(lsn) } else { None }
    }

    /// All blocks of the log before `end`, a server LSN, are valid that lie in `bytes`, which are those of the file from
    /// this offset on.
    ///
    /// # Errors
    /// Defect of the first invalid one.
    pub fn check_blocks(&self, offset: u64, bytes: &[u8], end: u64) -> Result<(), BlockError> {
        let skipped = FILE_HEADER_BYTES.saturating_sub(offset) as usize;
        let first = offset.max(FILE_HEADER_BYTES);
        let (blocks, _) = bytes.get(skipped..).unwrap_or_default().as_chunks::<BLOCK_BYTES>();
        for (block, at) in blocks.iter().zip((first..).step_by(BLOCK_BYTES)) {
            let Some(lsn) = self.lsn_at(at).filter(|lsn| *lsn < end) else { break };
            Block::parse(block, lsn)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
