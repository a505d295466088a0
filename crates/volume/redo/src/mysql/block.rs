//! The log block: 512 bytes, of which 496 are payload.
//!
//! Layout (`include/log0constants.h`, `include/log0files_io.h`), integers big-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | block number in its epoch: 1 + LSN / 512 mod 2^30 |
//! | 4..6 | how many bytes count, these 12 included: 512 for a full block; bit 15: encrypted |
//! | 6..8 | first group: offset of the first mini-transaction that starts in the block, 0 if none. Equal to the length before it: none yet, but one would start here |
//! | 8..12 | epoch: 1 + LSN / 512 / 2^30 |
//! | 12..508 | payload |
//! | 508..512 | CRC-32C of the rest; 0xdeadbeef with `innodb_log_checksums=OFF` |
//!
//! Invariant of a [`Block`]: length and first group are in range, and the CRC was right.

use super::position::{from_server_lsn, server_lsn};
use crate::types::Lsn;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 512;
/// Bytes before the payload.
pub const HEADER_BYTES: usize = 12;
/// Bytes of payload.
pub const PAYLOAD_BYTES: usize = 496;
/// Bytes of everything but the CRC.
const CHECKED_BYTES: usize = HEADER_BYTES + PAYLOAD_BYTES;

/// Blocks of an epoch.
const EPOCH_BLOCKS: u64 = 1 << 30;
const ENCRYPTED: u16 = 0x8000;
/// Where the CRC would be, if checksums are disabled in the server.
const NO_CHECKSUM: u32 = 0xdead_beef;

/// Why bytes are not the block of an LSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// All zero: nothing was written here. The server writes such blocks ahead of its log.
    #[error("nothing was written to the log block of server LSN {lsn}")]
    Empty {
        /// LSN of the block.
        lsn: u64,
    },
    /// Block number or epoch are those of another LSN.
    #[error("the log block of server LSN {lsn} has number {number} of epoch {epoch}, which is another LSN's")]
    Number {
        /// LSN of the block.
        lsn: u64,
        /// The number it has.
        number: u32,
        /// The epoch it has.
        epoch: u32,
    },
    /// The CRC is wrong.
    #[error(
        "the log block of server LSN {lsn} has CRC-32C {stored:#010x}, but its bytes give {computed:#010x}"
    )]
    Checksum {
        /// LSN of the block.
        lsn: u64,
        /// The stored value.
        stored: u32,
        /// The value computed from the bytes.
        computed: u32,
    },
    /// Checksums are disabled in the server.
    #[error("the log block of server LSN {lsn} has no checksum; set innodb_log_checksums=ON")]
    NoChecksum {
        /// LSN of the block.
        lsn: u64,
    },
    /// The block is encrypted.
    #[error("the log block of server LSN {lsn} is encrypted; set innodb_redo_log_encrypt=OFF")]
    Encrypted {
        /// LSN of the block.
        lsn: u64,
    },
    /// Length or first group are none.
    #[error("the log block of server LSN {lsn} has length {len_bytes} and first group {first_group}")]
    Header {
        /// LSN of the block.
        lsn: u64,
        /// The length.
        len_bytes: u16,
        /// The first group.
        first_group: u16,
    },
}

/// A valid block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// Position of its first payload byte.
    pub start: Lsn,
    /// The payload that counts: all 496 bytes, or fewer in the block where the log ends.
    pub payload: &'a [u8],
    /// Position of the first mini-transaction that starts in it. Can be the end of the payload.
    pub first_group: Option<Lsn>,
}

impl<'a> Block<'a> {
    /// The block that starts at server LSN `lsn`, a multiple of 512.
    ///
    /// # Errors
    /// When the bytes are not that block.
    #[inline]
    pub fn parse(bytes: &'a [u8; BLOCK_BYTES], lsn: u64) -> Result<Self, BlockError> {
        let [n0, n1, n2, n3, l0, l1, g0, g1, e0, e1, e2, e3, rest @ ..] = bytes;
        let number = u32::from_be_bytes([*n0, *n1, *n2, *n3]);
        let len_bytes = u16::from_be_bytes([*l0, *l1]);
        let first_group = u16::from_be_bytes([*g0, *g1]);
        let epoch = u32::from_be_bytes([*e0, *e1, *e2, *e3]);
        if (number, epoch) != number_and_epoch(lsn) {
            return Err(not_the_block(bytes, lsn, number, epoch));
        }
        if len_bytes & ENCRYPTED != 0 {
            return Err(BlockError::Encrypted { lsn });
        }
        check_crc(bytes, lsn)?;
        // A length of 508 to 511 is in the trailer.
        let payload_len = match usize::from(len_bytes) {
            BLOCK_BYTES => Some(PAYLOAD_BYTES),
            len @ HEADER_BYTES..CHECKED_BYTES => Some(len - HEADER_BYTES),
            _ => None,
        };
        let (Some(payload_len), group) = (payload_len, usize::from(first_group)) else {
            return Err(BlockError::Header { lsn, len_bytes, first_group });
        };
        if group != 0 && !(HEADER_BYTES..=HEADER_BYTES + payload_len).contains(&group) {
            return Err(BlockError::Header { lsn, len_bytes, first_group });
        }
        let first_group = (group != 0).then(|| from_server_lsn(lsn + group as u64));
        Ok(Self {
            start: from_server_lsn(lsn),
            payload: rest.get(..payload_len).unwrap_or_default(),
            first_group,
        })
    }

    /// All of it is used.
    pub const fn is_full(&self) -> bool {
        self.payload.len() == PAYLOAD_BYTES
    }

    /// Position after its payload.
    pub const fn end(&self) -> Lsn {
        self.start.advance(self.payload.len() as u64)
    }
}

#[inline(always)]
const fn number_and_epoch(lsn: u64) -> (u32, u32) {
    let block = lsn / BLOCK_BYTES as u64;
    (1 + (block % EPOCH_BLOCKS) as u32, 1 + (block / EPOCH_BLOCKS) as u32)
}

#[cold]
fn not_the_block(bytes: &[u8; BLOCK_BYTES], lsn: u64, number: u32, epoch: u32) -> BlockError {
    if bytes.iter().all(|&byte| byte == 0) {
        BlockError::Empty { lsn }
    } else {
        BlockError::Number { lsn, number, epoch }
    }
}

fn check_crc(bytes: &[u8; BLOCK_BYTES], lsn: u64) -> Result<(), BlockError> {
    let (Some((checked, _)), Some(stored)) = (bytes.split_at_checked(CHECKED_BYTES), bytes.last_chunk())
    else {
        return Ok(());
    };
    let stored = u32::from_be_bytes(*stored);
    let computed = crc32c::crc32c(checked);
    match stored {
        _ if stored == computed => Ok(()),
        NO_CHECKSUM => Err(BlockError::NoChecksum { lsn }),
        _ => Err(BlockError::Checksum { lsn, stored, computed }),
    }
}

/// How many bytes of whole blocks at the start of `bytes` were never written; all of them: `None`.
pub fn unwritten_len(bytes: &[u8]) -> Option<usize> {
    let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
    blocks.iter().position(|block| block.iter().any(|&byte| byte != 0)).map(|count| count * BLOCK_BYTES)
}

/// The block with `payload` (at most 496 bytes) from `start`, which is the first payload byte of a block. `first_group`
/// is the position of the first mini-transaction that starts in it, or would where the log ends.
pub fn compose(start: Lsn, payload: &[u8], first_group: Option<Lsn>) -> [u8; BLOCK_BYTES] {
    let mut bytes = [0; BLOCK_BYTES];
    let payload = payload.get(..PAYLOAD_BYTES).unwrap_or(payload);
    let lsn = server_lsn(start) - HEADER_BYTES as u64;
    let (number, epoch) = number_and_epoch(lsn);
    let len_bytes = if payload.len() == PAYLOAD_BYTES { BLOCK_BYTES } else { HEADER_BYTES + payload.len() };
    let in_block =
        |position: Lsn| server_lsn(position).checked_sub(lsn).filter(|&offset| offset <= len_bytes as u64);
    let first_group = first_group.and_then(in_block).unwrap_or(0);
    let fields = number
        .to_be_bytes()
        .into_iter()
        .chain((len_bytes as u16).to_be_bytes())
        .chain((first_group as u16).to_be_bytes())
        .chain(epoch.to_be_bytes())
        .chain(payload.iter().copied());
    for (to, from) in bytes.iter_mut().zip(fields) {
        *to = from;
    }
    if let Some((checked, crc)) = bytes.split_last_chunk_mut() {
        *crc = crc32c::crc32c(checked).to_be_bytes();
    }
    bytes
}

#[cfg(test)]
mod tests;
