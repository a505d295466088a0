//! Finds the new redo in a running server's writes to `ib_logfile0`.
//!
//! The server rewrites its last, partly filled block with every write, and writes a mini-transaction that
//! crosses the end of the file in two pieces. The observer turns this into the stream: each byte once, in
//! LSN order, whole mini-transactions only.
//!
//! Invariants: `next_lsn` is the start of a mini-transaction; every byte before it was handed out exactly
//! once. Bytes of an unfinished mini-transaction (between the two pieces, or after a short write) wait in
//! `pending`, which starts at `next_lsn`. Nothing is copied unless bytes wait.
//!
//! A write that cannot be understood is an error, never ignored: redo that is not handed out would be
//! acknowledged to the server without being stored.

use super::log_file::{CHECKPOINT_OFFSETS, CheckpointBlock, DATA_OFFSET, LogGeometry};
use super::walk::{SequenceRule, walk_mtrs};
use crate::error::StreamError;
use crate::mtr::{Mtr, MtrVisitor, WalkStop, Walked};
use crate::types::Lsn;

/// How far before `next_lsn` a write may start. The server starts at the beginning of the block that holds
/// `next_lsn`; its blocks have at most 4096 bytes.
const REWRITE_MAX_BYTES: u64 = 65_536;
/// A write of one block goes out of the buffer that the server keeps filling: other threads may be appending
/// after the redo that the write is about, so its tail may hold half-copied mini-transactions. They are
/// written again, whole, with the same block. Longer writes go out of a buffer that no longer changes.
const BLOCK_MAX_BYTES: usize = 4096;

/// Which checkpoint block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointSlot {
    /// The one at byte 4096.
    First,
    /// The one at byte 8192.
    Second,
}

/// Kind of a write to the log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed<'a> {
    /// The header: the file is new, or was resized.
    Header,
    /// A checkpoint block.
    Checkpoint {
        /// Which one.
        slot: CheckpointSlot,
        /// Its content; `None` if it is invalid (a write of zeros).
        checkpoint: Option<CheckpointBlock>,
    },
    /// Redo, of which these bytes are new. May be empty.
    Redo(NewRedo<'a>),
}

/// Whole mini-transactions that were not handed out before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewRedo<'a> {
    /// LSN of the first byte.
    pub start_lsn: Lsn,
    /// LSN after the last byte.
    pub end_lsn: Lsn,
    /// The bytes, as many as from start to end LSN.
    pub bytes: &'a [u8],
}

/// A write that does not fit what was observed so far. The stream is broken for this observer: nothing the
/// server wrote from `next_lsn` on may be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObserveError {
    /// The new bytes are not valid redo.
    #[error("the server wrote unexpected bytes to its redo log: {0}")]
    Stream(#[from] StreamError),
    /// The new bytes have the sequence bit of another lap.
    #[error(
        "the redo the server wrote at LSN {lsn} does not have the sequence bit of its place in the file; \
         first LSN ({first_lsn}) and size ({file_size_bytes}) of the log file are not the ones observed"
    )]
    SequenceBit {
        /// Start of the mini-transaction.
        lsn: Lsn,
        /// First LSN of the geometry.
        first_lsn: Lsn,
        /// File size of the geometry.
        file_size_bytes: u64,
    },
    /// The write leaves out bytes, or goes back further than the server ever does.
    #[error(
        "redo log write at byte {offset} ({len_bytes} bytes), but the redo seen so far ends \
         at LSN {next_lsn}, byte {expected_offset}; a write in between was not observed"
    )]
    Gap {
        /// Where the write starts in the file.
        offset: u64,
        /// How long it is.
        len_bytes: usize,
        /// End of what was observed.
        next_lsn: Lsn,
        /// Where that is in the file.
        expected_offset: u64,
    },
    /// The write crosses the border of header, checkpoint blocks or file.
    #[error(
        "redo log write at byte {offset} ({len_bytes} bytes) crosses the end of its area at byte {area_end}"
    )]
    CrossesArea {
        /// Where the write starts in the file.
        offset: u64,
        /// How long it is.
        len_bytes: usize,
        /// Where the area ends.
        area_end: u64,
    },
    /// More was found than was seen.
    #[error(
        "{final_len} bytes of redo at LSN {lsn} were found among {pending_bytes}; this is a defect of Redoubt: report it"
    )]
    NotSeen {
        /// Where they start.
        lsn: Lsn,
        /// How many were found.
        final_len: usize,
        /// How many were seen.
        pending_bytes: usize,
    },
    /// The log file was exchanged in the middle of a mini-transaction.
    #[error(
        "the redo log file was exchanged while {pending_bytes} bytes of the mini-transaction \
         at LSN {next_lsn} were written"
    )]
    UnfinishedAtSwitch {
        /// Start of the mini-transaction.
        next_lsn: Lsn,
        /// How many of its bytes were seen.
        pending_bytes: usize,
    },
}

/// Follows the writes to one log file.
#[derive(Clone, Debug)]
pub struct LogObserver {
    geometry: LogGeometry,
    next_lsn: Lsn,
    /// First `drained` bytes: handed out with the last write. Then: bytes from `next_lsn` on.
    pending: Vec<u8>,
    drained: usize,
    /// The bytes in `pending` are from the tail of a live block.
    is_pending_live: bool,
    /// Writes without anything new that the server may still make: it may have to catch up with what was found
    /// past its own end in a live block, and each of its writes is about one more mini-transaction at least.
    catch_up_writes: usize,
}

impl LogObserver {
    /// Observe a file in which everything before `next_lsn`, the start of a mini-transaction, is known.
    pub const fn new(geometry: LogGeometry, next_lsn: Lsn) -> Self {
        Self {
            geometry,
            next_lsn,
            pending: Vec::new(),
            drained: 0,
            is_pending_live: false,
            catch_up_writes: 0,
        }
    }

    /// End of the redo handed out so far.
    pub const fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// The file's mapping.
    pub const fn geometry(&self) -> &LogGeometry {
        &self.geometry
    }

    /// How many bytes of a write at this offset lie before the end of the redo handed out so far.
    pub const fn known_in_write(&self, offset: u64, len_bytes: usize) -> usize {
        let end = self.geometry.offset_of(self.next_lsn);
        let write_end = offset + len_bytes as u64;
        if end == DATA_OFFSET && write_end == self.geometry.file_size_bytes() && offset != DATA_OFFSET {
            return len_bytes;
        }
        match end.checked_sub(offset) {
            Some(known) if known <= len_bytes as u64 => known as usize,
            _ => 0,
        }
    }

    /// The server exchanged the log file (online resize): the stream continues in a file with this mapping. Bytes in
    /// the tail of a live block that only looked unfinished are written again to the new file.
    ///
    /// # Errors
    /// When a mini-transaction is only partly written.
    pub fn switch_geometry(&mut self, geometry: LogGeometry) -> Result<(), ObserveError> {
        self.forget_drained();
        if self.is_pending_live {
            self.pending.clear();
        }
        if !self.pending.is_empty() {
            return Err(ObserveError::UnfinishedAtSwitch {
                next_lsn: self.next_lsn,
                pending_bytes: self.pending.len(),
            });
        }
        self.geometry = geometry;
        Ok(())
    }

    /// The server wrote `buf` at file offset `offset` (only the bytes that the system call took). `visitor`
    /// gets each mini-transaction that is complete with this write.
    ///
    /// # Errors
    /// [`ObserveError`]; the observer must not be used further then.
    pub fn on_write<'s>(
        &'s mut self,
        offset: u64,
        buf: &'s [u8],
        visitor: &mut impl MtrVisitor,
    ) -> Result<Observed<'s>, ObserveError> {
        let area_end = self.area_end(offset);
        if offset > area_end || buf.len() as u64 > area_end - offset {
            return Err(ObserveError::CrossesArea { offset, len_bytes: buf.len(), area_end });
        }
        if offset >= DATA_OFFSET {
            return self.on_redo(offset, buf, visitor).map(Observed::Redo);
        }
        let [first, second] = CHECKPOINT_OFFSETS;
        if offset < first {
            return Ok(Observed::Header);
        }
        let slot = if offset < second { CheckpointSlot::First } else { CheckpointSlot::Second };
        let checkpoint =
            if CHECKPOINT_OFFSETS.contains(&offset) { CheckpointBlock::parse(buf) } else { None };
        Ok(Observed::Checkpoint { slot, checkpoint })
    }

    /// Where the part of the file that `offset` is in ends.
    fn area_end(&self, offset: u64) -> u64 {
        let [first, second] = CHECKPOINT_OFFSETS;
        [first, second, DATA_OFFSET]
            .into_iter()
            .find(|&end| offset < end)
            .unwrap_or(self.geometry.file_size_bytes())
    }

    fn forget_drained(&mut self) {
        self.pending.drain(..self.drained.min(self.pending.len()));
        self.drained = 0;
    }

    fn on_redo<'s>(
        &'s mut self,
        offset: u64,
        buf: &'s [u8],
        visitor: &mut impl MtrVisitor,
    ) -> Result<NewRedo<'s>, ObserveError> {
        self.forget_drained();
        let capacity = self.geometry.capacity_bytes();
        let expected_offset = self.geometry.offset_of(self.next_lsn);
        // How far after it, going forward around the file, the write starts.
        let ahead = (offset + capacity - expected_offset) % capacity;
        if ahead > 0 && ahead <= self.pending.len() as u64 {
            self.pending.truncate(ahead as usize);
            self.pending.extend_from_slice(buf);
            return self.take_pending(buf.len() <= BLOCK_MAX_BYTES, visitor);
        }
        let known_bytes = if ahead == 0 { 0 } else { capacity - ahead };
        let lowest_lsn = self.geometry.first_lsn().0 + known_bytes;
        if known_bytes > REWRITE_MAX_BYTES || self.next_lsn.0 < lowest_lsn {
            let (len_bytes, next_lsn) = (buf.len(), self.next_lsn);
            return Err(ObserveError::Gap { offset, len_bytes, next_lsn, expected_offset });
        }
        match buf.get(known_bytes as usize..) {
            Some(fresh) if !fresh.is_empty() => self.take_fresh(fresh, buf.len() <= BLOCK_MAX_BYTES, visitor),
            _ => Ok(NewRedo { start_lsn: self.next_lsn, end_lsn: self.next_lsn, bytes: &[] }),
        }
    }

    /// The bytes from `next_lsn` on are `fresh`.
    fn take_fresh<'s>(
        &'s mut self,
        fresh: &'s [u8],
        is_live_block: bool,
        visitor: &mut impl MtrVisitor,
    ) -> Result<NewRedo<'s>, ObserveError> {
        self.pending.clear();
        let start_lsn = self.next_lsn;
        let Step { final_len, unfinished, catch_up_writes } = self.walk(fresh, is_live_block, visitor)?;
        self.catch_up_writes = catch_up_writes;
        self.is_pending_live = is_live_block;
        let (bytes, rest) = fresh.split_at_checked(final_len).unwrap_or((fresh, &[]));
        if unfinished {
            self.pending.extend_from_slice(rest);
        }
        self.next_lsn = start_lsn.advance(final_len as u64);
        Ok(NewRedo { start_lsn, end_lsn: self.next_lsn, bytes })
    }

    /// The bytes from `next_lsn` on are those in `pending`.
    fn take_pending(
        &mut self,
        is_live_block: bool,
        visitor: &mut impl MtrVisitor,
    ) -> Result<NewRedo<'_>, ObserveError> {
        let start_lsn = self.next_lsn;
        let Step { final_len, unfinished, catch_up_writes } =
            self.walk(&self.pending, is_live_block, visitor)?;
        self.catch_up_writes = catch_up_writes;
        self.is_pending_live = is_live_block;
        if !unfinished {
            self.pending.truncate(final_len);
        }
        let pending_bytes = self.pending.len();
        let bytes = self.pending.get(..final_len).ok_or(ObserveError::NotSeen {
            lsn: start_lsn,
            final_len,
            pending_bytes,
        })?;
        self.drained = final_len;
        self.next_lsn = start_lsn.advance(final_len as u64);
        Ok(NewRedo { start_lsn, end_lsn: self.next_lsn, bytes })
    }

    /// How many bytes are final, and whether a mini-transaction that is not complete follows them. The tail of
    /// a live block may be anything, but the server means at least one mini-transaction with each write.
    fn walk(
        &self,
        bytes: &[u8],
        is_live_block: bool,
        visitor: &mut impl MtrVisitor,
    ) -> Result<Step, ObserveError> {
        let rule = SequenceRule::Geometry(&self.geometry);
        let mut mtrs = 0;
        let mut counting = |mtr: &Mtr<'_, '_>| {
            mtrs += 1;
            visitor.visit_mtr(mtr);
        };
        let walked = walk_mtrs(bytes, self.next_lsn, rule, &mut counting);
        let believed = is_live_block && (mtrs > 0 || self.catch_up_writes > 0);
        let (final_len, unfinished) = match walked {
            Ok(Walked { len_bytes, stop: WalkStop::AllConsumed | WalkStop::EndOfLog, .. }) => {
                (len_bytes, false)
            }
            Ok(Walked { len_bytes, stop: WalkStop::Incomplete, .. }) => (len_bytes, true),
            Ok(Walked { len_bytes, stop: WalkStop::WrongSequenceBit, .. }) if believed => (len_bytes, false),
            Ok(Walked { end_lsn, stop: WalkStop::WrongSequenceBit, .. }) => {
                return Err(ObserveError::SequenceBit {
                    lsn: end_lsn,
                    first_lsn: self.geometry.first_lsn(),
                    file_size_bytes: self.geometry.file_size_bytes(),
                });
            }
            Err(error) if believed => ((error.mtr_lsn.0 - self.next_lsn.0) as usize, false),
            Err(error) => return Err(error.into()),
        };
        let catch_up_writes = match (is_live_block, mtrs) {
            (false, _) => 0,
            (true, 0) => self.catch_up_writes.saturating_sub(1),
            (true, mtrs) => mtrs - 1,
        };
        Ok(Step { final_len, unfinished, catch_up_writes })
    }
}

/// Result of a write.
struct Step {
    /// Bytes that are final.
    final_len: usize,
    /// A mini-transaction that is not complete follows them.
    unfinished: bool,
    /// See [`LogObserver`].
    catch_up_writes: usize,
}

#[cfg(test)]
mod tests;
