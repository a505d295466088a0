//! Layout of a raw device, and the encoding of its fixed blocks. The table of the parent module has the same
//! information; all numbers are little-endian.

use super::table::Table;
use crate::format_version::unknown_version;

/// Unit of all reads and writes of the device, in bytes: the largest supported logical block.
pub(super) const BLOCK_LEN: usize = 4096;
/// Part of a block that contains a header: no drive tears it.
const SECTOR_LEN: usize = 512;
/// Length of the start of the device that is checked before a format.
pub(super) const INSPECTED_LEN: usize = 128 << 10;

pub(super) const MARK_OFFSET: u64 = 4 << 10;
/// Location for trials of untorn writes.
pub(super) const TRIAL_OFFSET: u64 = 64 << 10;
pub(super) const TRIAL_ROOM: u64 = 64 << 10;
const FIRST_AREA_OFFSET: u64 = TRIAL_OFFSET + TRIAL_ROOM;
/// Space in a snapshot area beside the lists of chunks.
const AREA_SLACK: u64 = 256 << 10;

pub(super) const MIN_CHUNK_LEN: u64 = 64 << 10;
pub(super) const MAX_CHUNK_LEN: u64 = 1 << 30;

const SUPERBLOCK_MAGIC: [u8; 8] = *b"REDOUBTB";
const MARK_MAGIC: [u8; 8] = *b"REDOUBTM";
const SNAPSHOT_MAGIC: [u8; 8] = *b"REDOUBTS";
const VERSION: u32 = 1;
const CRC_AT: usize = 12;

/// Offsets on the device. They follow from its length and the chunk length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    /// Random number of each format; older snapshots have another one.
    pub format_id: u64,
    /// Length of the device when it was formatted, in bytes.
    pub size_bytes: u64,
    pub chunk_len: u64,
    pub chunk_count: u32,
    pub area_len: u64,
    pub data_offset: u64,
}

impl Layout {
    /// The layout for a device of `size_bytes`, or the reason why there is none.
    pub fn new(format_id: u64, size_bytes: u64, chunk_len: u64) -> Result<Self, String> {
        if !chunk_len.is_power_of_two() || !(MIN_CHUNK_LEN..=MAX_CHUNK_LEN).contains(&chunk_len) {
            return Err(format!(
                "invalid chunk length {chunk_len}: it must be a power of two from {MIN_CHUNK_LEN} to \
                 {MAX_CHUNK_LEN}"
            ));
        }
        let at_most = size_bytes / chunk_len;
        let area_len = (BLOCK_LEN as u64 + AREA_SLACK + at_most * 8).next_multiple_of(BLOCK_LEN as u64);
        let data_offset = (FIRST_AREA_OFFSET + 2 * area_len).next_multiple_of(chunk_len);
        let chunk_count = size_bytes.saturating_sub(data_offset) / chunk_len;
        match u32::try_from(chunk_count) {
            Ok(0) => Err(format!(
                "{size_bytes} bytes are too few for a chunk of {chunk_len} bytes after the {data_offset} at the start"
            )),
            // One number is reserved for holes.
            Ok(chunk_count) if chunk_count < u32::MAX => {
                Ok(Self { format_id, size_bytes, chunk_len, chunk_count, area_len, data_offset })
            }
            _ => Err(format!(
                "chunks of {chunk_len} bytes are too short for {size_bytes} bytes: take longer ones"
            )),
        }
    }

    /// Offset of snapshot area 0 or 1, in bytes.
    pub fn area_offset(&self, area: usize) -> u64 {
        FIRST_AREA_OFFSET + if area == 0 { 0 } else { self.area_len }
    }

    /// Maximum length of a table in an area, in bytes.
    pub fn max_table_len(&self) -> usize {
        self.area_len as usize - BLOCK_LEN
    }

    /// Offset of a chunk on the device, in bytes.
    pub fn chunk_offset(&self, chunk: u32) -> u64 {
        self.data_offset + u64::from(chunk) * self.chunk_len
    }

    pub fn encode(&self) -> [u8; SECTOR_LEN] {
        let numbers = [
            self.format_id,
            self.size_bytes,
            self.chunk_len,
            self.area_len,
            self.data_offset,
            u64::from(self.chunk_count),
        ];
        encode_sector(&SUPERBLOCK_MAGIC, &numbers)
    }

    /// Decodes the first block of a device. `Ok(None)` if it belongs to another format.
    pub fn decode(block: &[u8]) -> Result<Option<Self>, BadSuperblock> {
        if !is_ours(block) {
            return Ok(None);
        }
        let version = number_u32(block, 8).unwrap_or_default();
        if version != VERSION {
            return Err(BadSuperblock::Version(unknown_version(u64::from(version), VERSION)));
        }
        let damaged = || BadSuperblock::Damaged("its first sector is damaged".to_owned());
        let [format_id, size_bytes, chunk_len, area_len, data_offset, chunk_count] =
            decode_sector(block, &SUPERBLOCK_MAGIC).ok_or_else(damaged)?;
        let layout = Self::new(format_id, size_bytes, chunk_len).map_err(BadSuperblock::Damaged)?;
        let is_same = layout.area_len == area_len
            && layout.data_offset == data_offset
            && u64::from(layout.chunk_count) == chunk_count;
        if is_same { Ok(Some(layout)) } else { Err(damaged()) }
    }

    /// Encodes the block that marks the snapshot `counter` as durable.
    pub fn encode_mark(&self, counter: u64) -> [u8; SECTOR_LEN] {
        encode_sector(&MARK_MAGIC, &[self.format_id, counter])
    }

    /// The counter of a mark; 0 if there is none.
    pub fn decode_mark(&self, block: &[u8]) -> u64 {
        match decode_sector(block, &MARK_MAGIC) {
            Some([format_id, counter]) if format_id == self.format_id => counter,
            _ => 0,
        }
    }

    /// Encodes a whole snapshot: the header block and `table`, an encoded table.
    pub fn encode_snapshot(&self, counter: u64, table: &[u8]) -> Vec<u8> {
        let crc = u64::from(crc32c::crc32c(table));
        let header = encode_sector(&SNAPSHOT_MAGIC, &[self.format_id, counter, table.len() as u64, crc]);
        let mut bytes = header.to_vec();
        bytes.resize(BLOCK_LEN, 0);
        bytes.extend_from_slice(table);
        bytes
    }

    /// Decodes the header block of an area. `None` if there is none.
    pub fn decode_snapshot(&self, block: &[u8]) -> Option<SnapshotHeader> {
        let [format_id, counter, table_len, crc] = decode_sector(block, &SNAPSHOT_MAGIC)?;
        let table_len = usize::try_from(table_len).ok().filter(|&len| len <= self.max_table_len())?;
        let crc = u32::try_from(crc).ok()?;
        (format_id == self.format_id).then_some(SnapshotHeader { counter, table_len, crc })
    }
}

/// Reason why the first block of a device is unusable.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum BadSuperblock {
    Version(String),
    Damaged(String),
}

/// The header of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SnapshotHeader {
    pub counter: u64,
    pub table_len: usize,
    crc: u32,
}

impl SnapshotHeader {
    /// Decodes the table after the header. `None` if the bytes differ from those written with the header.
    pub fn decode_table(&self, layout: &Layout, table: &[u8]) -> Option<Result<Table, String>> {
        (crc32c::crc32c(table) == self.crc).then(|| Table::decode(table, layout))
    }
}

/// Whether a device starts like a raw device of Redoubt.
pub(super) fn is_ours(block: &[u8]) -> bool {
    block.starts_with(&SUPERBLOCK_MAGIC)
}

/// Encodes magic (8 bytes), version (4), CRC-32C of the sector with this field zero (4), numbers (8 each), zeros.
fn encode_sector(magic: &[u8; 8], numbers: &[u64]) -> [u8; SECTOR_LEN] {
    let mut bytes = Vec::with_capacity(SECTOR_LEN);
    bytes.extend_from_slice(magic);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    let mut sector = [0; SECTOR_LEN];
    sector.iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
    let crc = crc32c::crc32c(&sector).to_le_bytes();
    sector.iter_mut().skip(CRC_AT).zip(crc).for_each(|(to, from)| *to = from);
    sector
}

fn decode_sector<const N: usize>(block: &[u8], magic: &[u8; 8]) -> Option<[u64; N]> {
    let sector = block.get(..SECTOR_LEN)?;
    let mut without_crc = sector.to_vec();
    without_crc.get_mut(CRC_AT..CRC_AT + 4)?.fill(0);
    let is_whole = sector.starts_with(magic)
        && number_u32(sector, 8)? == VERSION
        && number_u32(sector, CRC_AT)? == crc32c::crc32c(&without_crc);
    if !is_whole {
        return None;
    }
    let mut numbers = [0; N];
    for (n, number) in numbers.iter_mut().enumerate() {
        let at = CRC_AT + 4 + n * 8;
        *number = u64::from_le_bytes(sector.get(at..at + 8)?.try_into().ok()?);
    }
    Some(numbers)
}

fn number_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Apparent content of a device's start. `None`: zeros.
pub(super) fn find_content(start: &[u8]) -> Option<&'static str> {
    const SIGNATURES: [(usize, &[u8], &str); 11] = [
        (0, b"XFSB", "an XFS file system"),
        (0, b"LUKS\xba\xbe", "a LUKS volume"),
        (512, b"EFI PART", "a partition table (GPT)"),
        (4096, b"EFI PART", "a partition table (GPT)"),
        (512, b"LABELONE", "an LVM physical volume"),
        (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
        (1024 + 56, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
        (4096, b"\xfc\x4e\x2b\xa9", "a member of a Linux RAID"),
        (4086, b"SWAPSPACE2", "swap space"),
        (65_536 + 64, b"_BHRfS_M", "a btrfs file system"),
        (510, b"\x55\xaa", "a partition table (MBR) or a boot sector"),
    ];
    let known =
        SIGNATURES.iter().find(|(at, bytes, _)| start.get(*at..).is_some_and(|s| s.starts_with(bytes)));
    match known {
        Some((_, _, name)) => Some(name),
        None if start.iter().all(|&byte| byte == 0) => None,
        None => Some("something else"),
    }
}

#[cfg(test)]
mod tests;
