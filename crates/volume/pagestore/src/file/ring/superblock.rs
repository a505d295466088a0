//! The two superblocks at the start of the journal, written in turn.
//!
//! Each is a block of 4096 bytes, of which the first 68 count; numbers are little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `RDBTPGJ2` |
//! | 8 | 4 | format version, 2 |
//! | 12 | 4 | mode of protection: 1 atomic, 2 journal, 3 doublewrite |
//! | 16 | 8 | counter; superblock `counter % 2` is this one |
//! | 24 | 8 | identity of the page store |
//! | 32 | 8 | life: grows with every opening |
//! | 40 | 8 | length of the ring in bytes |
//! | 48 | 8 | tail: position of the oldest group that counts |
//! | 56 | 8 | no group from the tail on with an epoch below this counts |
//! | 64 | 4 | CRC-32C of bytes 0..64 |
//!
//! The valid fields are in one sector, so that a crash leaves either the old or the new one. The valid one with the greater
//! counter is in force.

use redoubt_storage::format_version::unknown_version;
use redoubt_storage::{StorageFile, Stream, WriteOptions};

use super::JOURNAL_NAME;
use super::format::{BLOCK, u32_at, u64_at};
use crate::error::PageStoreError;
use crate::file::protection::PageProtection;

pub(in crate::file) const MAGIC: [u8; 8] = *b"RDBTPGJ2";
pub(in crate::file) const VERSION: u32 = 2;
const CRC_AT: usize = 64;
/// The ring begins after the superblocks.
pub(in crate::file) const RING_AT: u64 = 2 * BLOCK as u64;

/// The state of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::file) struct Superblock {
    pub protection: PageProtection,
    pub counter: u64,
    pub identity: u64,
    pub life: u64,
    pub ring_len_bytes: u64,
    pub tail: u64,
    pub epoch_floor: u64,
}

impl Superblock {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.protection.code().to_le_bytes());
        let Self { counter, identity, life, ring_len_bytes, tail, epoch_floor, .. } = *self;
        for field in [counter, identity, life, ring_len_bytes, tail, epoch_floor] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out.resize(BLOCK, 0);
        out
    }

    fn decode(block: &[u8]) -> Option<Self> {
        let is_whole = block.first_chunk() == Some(&MAGIC)
            && u32_at(block, 8)? == VERSION
            && u32_at(block, CRC_AT)? == crc32c::crc32c(block.get(..CRC_AT)?);
        let superblock = Self {
            protection: PageProtection::from_code(u32_at(block, 12)?)?,
            counter: u64_at(block, 16)?,
            identity: u64_at(block, 24)?,
            life: u64_at(block, 32)?,
            ring_len_bytes: u64_at(block, 40)?,
            tail: u64_at(block, 48)?,
            epoch_floor: u64_at(block, 56)?,
        };
        // A length that is no multiple of a block, or beyond all sense, would make nonsense of every position.
        let len = superblock.ring_len_bytes;
        (is_whole && len > 0 && len.is_multiple_of(BLOCK as u64) && superblock.tail < u64::MAX / 4)
            .then_some(superblock)
    }

    /// The superblock in force, if one of the two is valid.
    pub fn read(file: &dyn StorageFile) -> Result<Option<Self>, PageStoreError> {
        let mut blocks = vec![0; RING_AT as usize];
        let n = file.read_at(0, &mut blocks).map_err(PageStoreError::read(JOURNAL_NAME, 0))?;
        blocks.truncate(n);
        Ok(blocks.chunks_exact(BLOCK).filter_map(Self::decode).max_by_key(|superblock| superblock.counter))
    }

    /// What to say of a superblock of a version that this program does not know, if there is one. Beside a valid one
    /// it counts only if its checksum is right: otherwise it is damaged.
    pub fn unknown_version(file: &dyn StorageFile) -> Result<Option<String>, PageStoreError> {
        let mut blocks = vec![0; RING_AT as usize];
        let n = file.read_at(0, &mut blocks).map_err(PageStoreError::read(JOURNAL_NAME, 0))?;
        blocks.truncate(n);
        let has_known = blocks.chunks_exact(BLOCK).any(|block| Self::decode(block).is_some());
        let versions = blocks.chunks_exact(BLOCK).filter_map(|block| {
            let version = match block.first_chunk()? {
                &MAGIC => u32_at(block, 8).filter(|&version| version != VERSION && version != 0)?,
                [magic @ .., digit @ b'3'..=b'9'] if *magic == MAGIC[..7] => u32::from(digit - b'0'),
                _ => return None,
            };
            let is_whole = u32_at(block, CRC_AT)? == crc32c::crc32c(block.get(..CRC_AT)?);
            (is_whole || !has_known).then_some(version)
        });
        Ok(versions.max().map(|version| unknown_version(u64::from(version), VERSION)))
    }

    /// Writes it to its place. Not durable before a sync.
    pub fn write(&self, file: &dyn StorageFile) -> Result<(), PageStoreError> {
        let at = (self.counter % 2) * BLOCK as u64;
        file.write_with(at, &self.encode(), WriteOptions { stream: Stream::Journal, untorn: false })
            .map_err(PageStoreError::io_or_no_space("write the superblock of", JOURNAL_NAME))
    }
}
