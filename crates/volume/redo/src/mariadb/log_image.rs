//! An `ib_logfile0` composed from stream bytes: any byte range of the file, on demand.
//!
//! Invariant: what is composed is what the server wrote, except that bytes it left over from earlier laps or
//! blocks are zero. The byte after the end of the log is always zero, so the log ends there.

use super::log_file::{CHECKPOINT_LEN_BYTES, CHECKPOINT_OFFSETS, DATA_OFFSET, HEADER_LEN_BYTES, LogGeometry};
use super::walk::{MtrStep, next_mtr};
use crate::error::StreamError;
use crate::types::Lsn;

/// Parts of a composed log file, apart from the stream.
#[derive(Clone, Debug)]
pub struct LogImage {
    /// Where LSNs lie; also gives the file size.
    pub geometry: LogGeometry,
    /// Bytes 0..512.
    pub header: [u8; HEADER_LEN_BYTES],
    /// The checkpoint blocks at 4096 and 8192; zeros for an unused one.
    pub checkpoints: [[u8; CHECKPOINT_LEN_BYTES]; 2],
    /// Oldest LSN that `fetch` can give. Everything before it is zero in the file.
    pub oldest_lsn: Lsn,
    /// End of the log. Everything from it on is zero in the file.
    pub end_lsn: Lsn,
}

impl LogImage {
    /// Fill `buf` with the file's bytes from `offset` on. `fetch(lsn, part)` must fill `part` with the stream
    /// bytes from `lsn` on; it is called for LSNs from `oldest_lsn` to `end_lsn` only. The stream must have
    /// this file's sequence bits, see [`rewrite_sequence_bits`]. Bytes beyond the file are zero.
    ///
    /// # Errors
    /// Those of `fetch`.
    pub fn compose<E>(
        &self,
        offset: u64,
        buf: &mut [u8],
        mut fetch: impl FnMut(Lsn, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        buf.fill(0);
        copy_overlap(offset, buf, 0, &self.header);
        for (block_offset, block) in CHECKPOINT_OFFSETS.into_iter().zip(&self.checkpoints) {
            copy_overlap(offset, buf, block_offset, block);
        }
        let (low, high) = self.kept_lsns();
        let capacity = self.geometry.capacity_bytes();
        let mut at = low;
        // At most two turns: up to the end of the file, and from its start.
        while at < high {
            let place = self.geometry.offset_of(at);
            let len_bytes = (high.0 - at.0).min(DATA_OFFSET + capacity - place);
            let start = place.max(offset);
            let end = (place + len_bytes).min(offset.saturating_add(buf.len() as u64));
            if start < end
                && let Some(part) = buf.get_mut((start - offset) as usize..(end - offset) as usize)
            {
                fetch(at.advance(start - place), part)?;
            }
            at = at.advance(len_bytes);
        }
        Ok(())
    }

    /// The LSNs that are in the file: less than one lap, so that the byte at the end LSN stays zero.
    fn kept_lsns(&self) -> (Lsn, Lsn) {
        let lap_start = self.end_lsn.0.saturating_add(1).saturating_sub(self.geometry.capacity_bytes());
        let low = self.oldest_lsn.0.max(self.geometry.first_lsn().0).max(lap_start);
        (Lsn(low), self.end_lsn)
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

/// Give every mini-transaction in `bytes` the end byte it has in a file with this geometry. `bytes[0]` must
/// be the first byte of one, with `start_lsn`. The checksum does not cover the end byte and stays. Returns
/// the length of the whole mini-transactions; bytes after them are unchanged.
///
/// # Errors
/// When a mini-transaction is invalid; those before it have been rewritten.
pub fn rewrite_sequence_bits(
    bytes: &mut [u8],
    start_lsn: Lsn,
    geometry: &LogGeometry,
) -> Result<usize, StreamError> {
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let lsn = start_lsn.advance(at as u64);
        match next_mtr(rest).map_err(|error| StreamError { mtr_lsn: lsn, error: error.shifted(at) })? {
            MtrStep::Mtr { records, total_len_bytes, .. } => {
                let end_byte_at = at + records.len();
                let bit = geometry.sequence_bit(start_lsn.advance(end_byte_at as u64));
                if let Some(end_byte) = bytes.get_mut(end_byte_at) {
                    *end_byte = bit;
                }
                at += total_len_bytes;
            }
            MtrStep::Incomplete | MtrStep::EndOfLog => return Ok(at),
        }
    }
}

#[cfg(test)]
mod tests;
