//! Log files composed from the stream: any byte range of any of them, on demand.
//!
//! Requirements of the server's start (`log/log0files_finder.cc`, `log/log0recv.cc`, `log/log0log.cc`):
//! - headers with one set id, numbers and LSNs without a gap; all files but the newest are full, the newest is not;
//! - a checkpoint slot in the file that holds the checkpoint, with an LSN from 8192 on;
//! - the file that holds the end of the log, even if the log ends exactly where the file before it does;
//! - blocks that are valid from the one with the checkpoint to the one in which the log ends;
//! - the first mini-transaction of the block with the checkpoint: from the first block that has one, the server walks;
//! - the first mini-transaction of the block in which the log ends: the server continues in that block. It would put
//!   right a wrong one that it can tell, and warn.
//!
//! The first mini-transactions of all other blocks are not read by this start. They are by the next one if a checkpoint
//! comes to lie there, and that one gets files that were composed again. So [`FirstGroups`] need only know the
//! mini-transactions around the checkpoint and the end; it may know all.
//!
//! Invariant: where the stream is known, what is composed is what the server wrote, except that the encryption header
//! is zero, and that blocks whose first mini-transaction is not known say that they have none.

use super::block::{BLOCK_BYTES, PAYLOAD_BYTES, compose};
use super::log_file::{
    CheckpointSlot, FILE_HEADER_BYTES, FileRange, LogFileHeader, LogFlags, build_checkpoint,
};
use super::position::{block_start, from_server_lsn, server_lsn};
use crate::mtr::{Mtr, MtrVisitor};
use crate::types::Lsn;

/// The first mini-transaction that starts in each block, for the blocks of a part of the stream: 2 bytes a block.
///
/// Filled by walking; mini-transactions may be given in any order and more than once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstGroups {
    /// The block that `offsets` begins with.
    first_block: u64,
    /// By block: offset of the start in the block's payload, [`Self::NONE`] if not known.
    offsets: std::collections::VecDeque<u16>,
}

impl FirstGroups {
    const NONE: u16 = u16::MAX;

    /// A mini-transaction starts at this position, or would where the log ends.
    pub fn insert(&mut self, start: Lsn) {
        let block = start.0 / PAYLOAD_BYTES as u64;
        let offset = (start.0 % PAYLOAD_BYTES as u64) as u16;
        if self.offsets.is_empty() {
            self.first_block = block;
        }
        while block < self.first_block {
            self.offsets.push_front(Self::NONE);
            self.first_block -= 1;
        }
        let index = (block - self.first_block) as usize;
        if self.offsets.len() <= index {
            self.offsets.resize(index + 1, Self::NONE);
        }
        if let Some(known) = self.offsets.get_mut(index) {
            *known = (*known).min(offset);
        }
    }

    /// Removes starts before the block that holds this position.
    pub fn forget_before(&mut self, position: Lsn) {
        let block = position.0 / PAYLOAD_BYTES as u64;
        let count = block.saturating_sub(self.first_block).min(self.offsets.len() as u64);
        self.offsets.drain(..count as usize);
        self.first_block += count;
    }

    /// The first one that starts in the block that holds this position.
    pub fn of_block(&self, position: Lsn) -> Option<Lsn> {
        let block = position.0 / PAYLOAD_BYTES as u64;
        let index = block.checked_sub(self.first_block)?;
        let offset = *self.offsets.get(usize::try_from(index).ok()?)?;
        (offset != Self::NONE).then(|| Lsn(block * PAYLOAD_BYTES as u64 + u64::from(offset)))
    }
}

impl MtrVisitor for FirstGroups {
    fn visit_mtr(&mut self, mtr: &Mtr<'_, '_>) {
        self.insert(mtr.start_lsn);
        self.insert(mtr.end_lsn);
    }
}

/// Parts of composed log files, apart from the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogImage {
    /// Id of the set of files.
    pub set_id: u32,
    /// Creator of the files, e.g. `MySQL 9.7.4`. The server shows it when it recovers; `MySQL Clone` and names of
    /// backup tools mean that other rules apply.
    pub creator: Vec<u8>,
    /// Number of the first file.
    pub first_number: u64,
    /// Server LSN of the first block of the first file.
    pub start_lsn: u64,
    /// Size of each file: a multiple of the server's page size, 64 KiB at least.
    pub file_size_bytes: u64,
    /// Where the server is to begin: `oldest` or later. In its file it is in both slots. For the log of an import whose
    /// checkpoint lies before the first mini-transaction that can be read, the start of that one: what started before
    /// the checkpoint is in the data files.
    pub checkpoint: Lsn,
    /// Oldest position that `fetch` can give. Blocks before the one that holds it are zero, and bytes before it in its
    /// block.
    pub oldest: Lsn,
    /// End of the log.
    pub end: Lsn,
}

impl LogImage {
    /// Part of the log that one file is.
    pub fn range(&self, number: u64) -> Option<FileRange> {
        let index = number.checked_sub(self.first_number)?;
        let capacity =
            self.file_size_bytes.checked_sub(FILE_HEADER_BYTES)? / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let start_lsn = self.start_lsn.checked_add(index.checked_mul(capacity)?)?;
        Some(FileRange { start_lsn, size_bytes: self.file_size_bytes })
    }

    /// Number of the newest file: the one in which the log ends.
    pub fn newest_number(&self) -> u64 {
        let capacity = self.range(self.first_number).map_or(0, |range| range.end_lsn() - range.start_lsn);
        let in_log = server_lsn(self.end).saturating_sub(self.start_lsn);
        self.first_number.saturating_add(in_log.checked_div(capacity).unwrap_or(0))
    }

    /// Numbers of all files.
    pub fn numbers(&self) -> std::ops::RangeInclusive<u64> {
        self.first_number..=self.newest_number()
    }

    /// Fill `buf` with bytes of file `number` from `offset` on. `fetch(position, part)` must fill `part` with the
    /// stream from `position` on; it is called for positions from `oldest` to `end` only. Bytes beyond the file, and
    /// of files that are none of [`Self::numbers`], are zero.
    ///
    /// # Errors
    /// Those of `fetch`.
    pub fn compose<E>(
        &self,
        number: u64,
        offset: u64,
        buf: &mut [u8],
        first_groups: &FirstGroups,
        fetch: impl FnMut(Lsn, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        buf.fill(0);
        let range = self.range(number).filter(|_| self.numbers().contains(&number));
        let Some(range) = range else { return Ok(()) };
        let header = self.header(number, range).build();
        let Self { checkpoint, oldest, end, .. } = *self;
        ComposedFile { header: &header, range, checkpoint, oldest, end }.compose(
            offset,
            buf,
            first_groups,
            fetch,
        )
    }

    fn header(&self, number: u64, range: FileRange) -> LogFileHeader {
        LogFileHeader {
            set_id: self.set_id,
            start_lsn: range.start_lsn,
            creator: self.creator.clone(),
            flags: if number < self.newest_number() { LogFlags::FULL } else { LogFlags::default() },
        }
    }
}

/// One log file of any size, to be composed from the stream.
#[derive(Clone, Copy, Debug)]
pub struct ComposedFile<'h> {
    /// Its first block.
    pub header: &'h [u8; BLOCK_BYTES],
    /// Which part of the log it is.
    pub range: FileRange,
    /// Where the server is to begin.
    pub checkpoint: Lsn,
    /// Oldest position that `fetch` can give. Blocks before the one that holds it are zero, and bytes before it in its
    /// block.
    pub oldest: Lsn,
    /// End of the log.
    pub end: Lsn,
}

impl ComposedFile<'_> {
    /// Fill `buf` with bytes of the file from `offset` on. `fetch` as for [`LogImage::compose`].
    ///
    /// # Errors
    /// Those of `fetch`.
    pub fn compose<E>(
        &self,
        offset: u64,
        buf: &mut [u8],
        first_groups: &FirstGroups,
        mut fetch: impl FnMut(Lsn, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        buf.fill(0);
        copy_overlap(offset, buf, 0, self.header);
        let checkpoint = server_lsn(self.checkpoint);
        let block = build_checkpoint(if self.range.contains(checkpoint) { checkpoint } else { 0 });
        CheckpointSlot::ALL.into_iter().for_each(|slot| copy_overlap(offset, buf, slot.offset(), &block));
        self.compose_blocks(offset, buf, first_groups, &mut fetch)
    }

    fn compose_blocks<E>(
        &self,
        offset: u64,
        buf: &mut [u8],
        first_groups: &FirstGroups,
        fetch: &mut impl FnMut(Lsn, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let end_offset = offset.saturating_add(buf.len() as u64);
        let Some(first_lsn) = self.range.lsn_at(offset.max(FILE_HEADER_BYTES)) else { return Ok(()) };
        let mut lsn = (first_lsn / BLOCK_BYTES as u64 * BLOCK_BYTES as u64).max(block_start(self.oldest));
        let mut payload = [0; PAYLOAD_BYTES];
        while let Some(block_offset) = self.range.offset_of(lsn)
            && block_offset < end_offset
        {
            let start = from_server_lsn(lsn);
            // Also the block with nothing in it, where the log ends at the end of a full one.
            if start > self.end {
                break;
            }
            let len = (self.end.0 - start.0).min(PAYLOAD_BYTES as u64) as usize;
            let skip = (self.oldest.0.saturating_sub(start.0) as usize).min(len);
            payload.fill(0);
            if let Some(part) = payload.get_mut(skip..len)
                && !part.is_empty()
            {
                fetch(start.advance(skip as u64), part)?;
            }
            let block = compose(start, payload.get(..len).unwrap_or_default(), first_groups.of_block(start));
            copy_overlap(offset, buf, block_offset, &block);
            lsn += BLOCK_BYTES as u64;
        }
        Ok(())
    }
}

/// Copy the part of `block`, which lies at `block_offset` in the file, that falls into `buf` at `offset`.
fn copy_overlap(offset: u64, buf: &mut [u8], block_offset: u64, block: &[u8]) {
    let start = offset.max(block_offset);
    let end = offset.saturating_add(buf.len() as u64).min(block_offset + block.len() as u64);
    if start >= end {
        return;
    }
    let target = buf.get_mut((start - offset) as usize..(end - offset) as usize);
    let source = block.get((start - block_offset) as usize..(end - block_offset) as usize);
    if let (Some(target), Some(source)) = (target, source) {
        target.copy_from_slice(source);
    }
}

#[cfg(test)]
mod tests;
