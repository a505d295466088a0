//! How a group of page images lies in the ring. Pure.
//!
//! A group is one header block of 4096 bytes and the images after it, filled up with zeros to a multiple of 4096.
//! Numbers are little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `RDBTPGG2` |
//! | 8 | 4 | CRC-32C of bytes 12..4096 |
//! | 12 | 4 | number of entries `n`, at most 252 |
//! | 16 | 8 | identity of the page store |
//! | 24 | 8 | epoch: life of the journal in the upper half, attempt within it in the lower |
//! | 32 | 8 | position of this group |
//! | 40 | 8 | position up to which everything was durable before this group was written |
//! | 48 | 8 | bytes of all images |
//! | 56 | 8 | zero |
//! | 64 | 16 n | table: for each entry object, page number, length, CRC-32C of the image, 4 bytes each |
//! | 4096 | | images, back to back |
//!
//! An entry of length 0 is a *forget record*: images of that object further back no longer count.

use crate::{ObjectId, PageWrite};

/// Everything in the ring lies at multiples of this.
pub(in crate::file) const BLOCK: usize = 4096;
const MAGIC: [u8; 8] = *b"RDBTPGG2";
const CRC_AT: usize = 8;
const CRC_FROM: usize = 12;
const TABLE_AT: usize = 64;
const ENTRY_LEN: usize = 16;
/// As many entries as a header block has room for.
pub(in crate::file) const MAX_ENTRIES: usize = (BLOCK - TABLE_AT) / ENTRY_LEN;

/// One row of a group's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::file) struct GroupEntry {
    pub object: ObjectId,
    pub page_no: u32,
    /// Length of the image in bytes; 0 for a forget record.
    pub len: u32,
    pub crc: u32,
}

impl GroupEntry {
    pub fn image(write: &PageWrite<'_>) -> Self {
        let (len, crc) = (write.page.len() as u32, crc32c::crc32c(write.page));
        Self { object: write.object, page_no: write.page_no, len, crc }
    }

    pub fn forget(object: ObjectId) -> Self {
        Self { object, page_no: 0, len: 0, crc: 0 }
    }
}

/// Bytes that a group with `image_bytes` of images has in the ring.
pub(in crate::file) fn group_len(image_bytes: u64) -> u64 {
    BLOCK as u64 + image_bytes.next_multiple_of(BLOCK as u64)
}

/// Fields of a group's header besides its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub identity: u64,
    pub epoch: u64,
    pub at: u64,
    pub synced_until: u64,
}

/// A group as it was found in the ring, or written to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::file) struct Group {
    /// Position in the ring.
    pub at: u64,
    /// Position of the next group.
    pub end: u64,
    entries: Box<[GroupEntry]>,
}

impl Group {
    pub fn new(at: u64, entries: Vec<GroupEntry>) -> Self {
        let image_bytes = entries.iter().map(|entry| u64::from(entry.len)).sum();
        Self { at, end: at + group_len(image_bytes), entries: entries.into() }
    }

    /// The entries, each with the position of its image.
    pub fn entries(&self) -> impl Iterator<Item = (u64, GroupEntry)> {
        let first = self.at + BLOCK as u64;
        self.entries.iter().scan(first, |at, entry| {
            let here = *at;
            *at += u64::from(entry.len);
            Some((here, *entry))
        })
    }
}

/// Appends a header block to `out`.
pub(super) fn encode(header: &Header, entries: &[GroupEntry], out: &mut Vec<u8>) {
    let start = out.len();
    let image_bytes: u64 = entries.iter().map(|entry| u64::from(entry.len)).sum();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[0; CRC_FROM - CRC_AT]);
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    for field in [header.identity, header.epoch, header.at, header.synced_until, image_bytes, 0] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    for entry in entries {
        for field in [entry.object.0, entry.page_no, entry.len, entry.crc] {
            out.extend_from_slice(&field.to_le_bytes());
        }
    }
    out.resize(start + BLOCK, 0);
    let crc = crc32c::crc32c(&out[start + CRC_FROM..]);
    out[start + CRC_AT..start + CRC_FROM].copy_from_slice(&crc.to_le_bytes());
}

/// Reads a header block. `None`: it is not one, or not whole.
pub(super) fn decode(block: &[u8]) -> Option<(Header, Group)> {
    if block.first_chunk() != Some(&MAGIC) || u32_at(block, CRC_AT)? != crc32c::crc32c(block.get(CRC_FROM..)?)
    {
        return None;
    }
    let header = Header {
        identity: u64_at(block, 16)?,
        epoch: u64_at(block, 24)?,
        at: u64_at(block, 32)?,
        synced_until: u64_at(block, 40)?,
    };
    let table_len = (u32_at(block, 12)? as usize).checked_mul(ENTRY_LEN)?;
    let table = block.get(TABLE_AT..TABLE_AT.checked_add(table_len)?)?;
    let mut entries = Vec::with_capacity(table_len / ENTRY_LEN);
    for row in table.chunks_exact(ENTRY_LEN) {
        entries.push(GroupEntry {
            object: ObjectId(u32_at(row, 0)?),
            page_no: u32_at(row, 4)?,
            len: u32_at(row, 8)?,
            crc: u32_at(row, 12)?,
        });
    }
    let image_bytes: u64 = entries.iter().map(|entry| u64::from(entry.len)).sum();
    header.at.checked_add(group_len(image_bytes))?;
    (u64_at(block, 48)? == image_bytes).then(|| (header, Group::new(header.at, entries)))
}

pub(in crate::file) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

pub(in crate::file) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}
