//! Finds the new redo in a running server's writes to its log files.
//!
//! The server writes whole blocks of 512 bytes, one file after the other. It writes the block in which its log ends
//! again whenever there is more of it. Where it enters a new region of `innodb_log_write_ahead_size` bytes it fills the
//! rest of it with zeros (`log/log0write.cc`). The observer turns this into the stream: each payload byte once, in
//! order, whole mini-transactions only. A mini-transaction that fills a block is whole when the next block was written,
//! even without payload. The server's start does not accept it before that (`recv_multi_rec` in `log/log0recv.cc`), and
//! no commit is acknowledged before that. The length in a block is reliable: the server copies a block that is not full
//! before it writes it, and never counts bytes that some thread is still filling in.
//!
//! Invariants: `next` is the start of a mini-transaction; every byte before it was handed out exactly once. Bytes from
//! `next` on that were seen wait in `pending`. A block that is written again must hold what was seen of it. Where
//! blocks say that a mini-transaction starts, one starts: records have no checksum, and this is the only other
//! evidence that they were read as the server meant them.
//!
//! A write that cannot be parsed is an error, never ignored: skipped redo would be acknowledged to the server without
//! being stored.

use std::collections::{BTreeMap, VecDeque};

use super::block::{BLOCK_BYTES, Block, BlockError, PAYLOAD_BYTES};
use super::log_file::{
    CheckpointSlot, FILE_HEADER_BYTES, FrontBlock, LogFileError, LogFileHeader, LogFileName, LogFlags,
};
use super::position::{block_start, from_server_lsn};
use super::walk::{MtrEnd, mtr_end, walk_mtrs};
use crate::error::StreamError;
use crate::mtr::{Mtr, MtrVisitor};
use crate::types::Lsn;

/// Kind of a write to a log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed<'a> {
    /// The main header: the file is about to become part of the log, is full, or has another flag.
    Header(LogFileHeader),
    /// A checkpoint block.
    Checkpoint {
        /// Which one.
        slot: CheckpointSlot,
        /// Its content; `None`: the slot was made empty.
        checkpoint: Option<Lsn>,
    },
    /// The encryption header, without a key.
    Encryption,
    /// Zeros in a file that is not part of the log yet, or ahead of the log.
    Filler,
    /// Redo, of which these bytes are new. May be empty.
    Redo(NewRedo<'a>),
}

/// Whole mini-transactions that were not handed out before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewRedo<'a> {
    /// Position of the first byte.
    pub start_lsn: Lsn,
    /// Position after the last byte.
    pub end_lsn: Lsn,
    /// Position after the last byte that was seen, of a mini-transaction that is not complete if it is not `end_lsn`.
    pub seen_lsn: Lsn,
    /// The bytes, as many as from start to end.
    pub bytes: &'a [u8],
}

/// A write that does not fit what was observed so far. The stream is broken for this observer: nothing the server wrote
/// from `next_lsn` on may be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObserveError {
    /// The new bytes are not valid redo.
    #[error("the server wrote unexpected bytes to its redo log: {0}")]
    Stream(#[from] StreamError),
    /// A block is not what must be at its place.
    #[error("the server wrote an unexpected block to its redo log: {0}")]
    Block(#[from] BlockError),
    /// A file header is none.
    #[error("the server wrote an unexpected header to redo log file {file}: {error}")]
    Header {
        /// The file.
        file: LogFileName,
        /// The defect.
        error: LogFileError,
    },
    /// Redo logging is off.
    #[error(
        "redo logging was disabled (ALTER INSTANCE DISABLE INNODB REDO_LOG), but a volume needs the redo log; \
         restart the server, and keep redo logging enabled"
    )]
    LoggingDisabled,
    /// The log is to be encrypted.
    #[error(
        "redo log encryption was enabled (innodb_redo_log_encrypt=ON), but a volume cannot read an encrypted \
         log; restart the server with it disabled (SET PERSIST stores it in mysqld-auto.cnf)"
    )]
    Encrypted,
    /// Redo was written to a file whose first LSN is not known.
    #[error("redo was written to redo log file {file}, whose header was not observed")]
    UnknownFile {
        /// The file.
        file: LogFileName,
    },
    /// The write is not made of whole blocks, or crosses the end of its area.
    #[error(
        "redo log write at byte {offset} ({len_bytes} bytes) of file {file} does not write whole blocks of one \
         area"
    )]
    NotBlocks {
        /// The file.
        file: LogFileName,
        /// Where the write starts in the file.
        offset: u64,
        /// How long it is.
        len_bytes: usize,
    },
    /// The write leaves out bytes, or goes back further than the server ever does.
    #[error(
        "redo log write for the block at server LSN {lsn}, but the redo seen so far ends in the block at {expected_lsn}; \
         a write in between was not observed"
    )]
    Gap {
        /// Server LSN of the block.
        lsn: u64,
        /// Server LSN of the block that must be written next.
        expected_lsn: u64,
    },
    /// A block was written again with fewer or other bytes.
    #[error(
        "the redo log block at server LSN {lsn} was written again with other bytes before position {seen_lsn}"
    )]
    Changed {
        /// Server LSN of the block.
        lsn: u64,
        /// End of the observed redo.
        seen_lsn: Lsn,
    },
    /// Bytes follow a block that is not full.
    #[error("bytes follow the redo log block at server LSN {lsn}, which is not full")]
    AfterEnd {
        /// Server LSN of the block.
        lsn: u64,
    },
    /// A block records the start of a mini-transaction where none starts.
    #[error(
        "no mini-transaction starts at position {first_group}, although the redo log block header gives that \
         position; the previous records were misread (see the supported versions)"
    )]
    FirstGroup {
        /// Where one should start.
        first_group: Lsn,
    },
}

/// Follows the writes to the files of one log.
#[derive(Clone, Debug)]
pub struct LogObserver {
    /// Server LSN of the first block of each file that redo can still be written to.
    files: BTreeMap<u64, u64>,
    /// Number of the file that redo was last written to; 0: of none.
    current: u64,
    next: Lsn,
    /// First `drained` bytes: handed out with the last write. Then: bytes from `next` on.
    pending: Vec<u8>,
    drained: usize,
    /// How many bytes from `next` on are whole records of a mini-transaction that is not complete.
    known: usize,
    /// Observed part of the block in which the redo seen so far ends.
    tail: Tail,
    /// Start of the last block that was seen.
    newest_block: Lsn,
    /// Starts of mini-transactions according to the blocks, at or after `next`.
    first_groups: VecDeque<Lsn>,
}

/// The last bytes seen, all of one block.
#[derive(Clone, Debug)]
struct Tail {
    /// Position of the first; the start of the block, unless the observer began later.
    start: Lsn,
    bytes: Vec<u8>,
}

impl LogObserver {
    /// Observe a log in which everything before `next`, the start of a mini-transaction, is known. `files` are its
    /// files by number, with the server LSN of the first block of each.
    pub fn new(next: Lsn, files: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self {
            files: files.into_iter().collect(),
            current: 0,
            next,
            pending: Vec::new(),
            drained: 0,
            known: 0,
            tail: Tail { start: next, bytes: Vec::with_capacity(PAYLOAD_BYTES) },
            newest_block: next,
            first_groups: VecDeque::new(),
        }
    }

    /// End of the redo handed out so far.
    pub const fn next_lsn(&self) -> Lsn {
        self.next
    }

    /// End of the redo seen so far. Beyond `next_lsn` it is a part of a mini-transaction.
    pub const fn seen_lsn(&self) -> Lsn {
        self.next.advance((self.pending.len() - self.drained) as u64)
    }

    /// The server wrote `buf` at `offset` of a file. `visitor` gets each mini-transaction that is complete with this
    /// write.
    ///
    /// # Errors
    /// [`ObserveError`]; the observer must not be used further then.
    pub fn on_write<'s>(
        &'s mut self,
        file: LogFileName,
        offset: u64,
        buf: &[u8],
        visitor: &mut impl MtrVisitor,
    ) -> Result<Observed<'s>, ObserveError> {
        let len_bytes = buf.len();
        let (blocks, rest) = buf.as_chunks::<BLOCK_BYTES>();
        let end = offset.saturating_add(len_bytes as u64);
        if matches!(file, LogFileName::Spare(_)) && buf.iter().all(|&byte| byte == 0) {
            return Ok(Observed::Filler);
        }
        let is_aligned = rest.is_empty() && offset.is_multiple_of(BLOCK_BYTES as u64);
        if !is_aligned || (offset < FILE_HEADER_BYTES && len_bytes != BLOCK_BYTES) || end == u64::MAX {
            return Err(ObserveError::NotBlocks { file, offset, len_bytes });
        }
        if offset >= FILE_HEADER_BYTES {
            // The first file of a new log gets its first block before it gets its name.
            let (LogFileName::Log(number) | LogFileName::Spare(number)) = file;
            let Some(&start_lsn) = self.files.get(&number) else {
                return Err(ObserveError::UnknownFile { file });
            };
            if number > self.current {
                self.current = number;
                self.files = self.files.split_off(&number);
            }
            return self.on_redo(start_lsn + (offset - FILE_HEADER_BYTES), blocks, visitor);
        }
        let Some(block) = blocks.first() else { return Ok(Observed::Filler) };
        match FrontBlock::parse(offset, block).map_err(|error| ObserveError::Header { file, error })? {
            Some(FrontBlock::Header(Some(header))) => self.on_header(file, header),
            // A file that is part of the log is never taken out of use.
            Some(FrontBlock::Header(None)) => {
                let error = LogFileError::Checksum { stored: 0, computed: crc32c::crc32c(block) };
                Err(ObserveError::Header { file, error })
            }
            // With a key in it the next redo is encrypted.
            Some(FrontBlock::Encryption(true)) => Err(ObserveError::Encrypted),
            Some(FrontBlock::Encryption(false)) => Ok(Observed::Encryption),
            Some(FrontBlock::Checkpoint(slot, server_lsn)) => {
                Ok(Observed::Checkpoint { slot, checkpoint: server_lsn.map(from_server_lsn) })
            }
            None => Err(ObserveError::NotBlocks { file, offset, len_bytes }),
        }
    }

    fn on_header(
        &mut self,
        file: LogFileName,
        header: LogFileHeader,
    ) -> Result<Observed<'static>, ObserveError> {
        if header.flags.contains(LogFlags::NO_LOGGING) {
            return Err(ObserveError::LoggingDisabled);
        }
        let (LogFileName::Log(number) | LogFileName::Spare(number)) = file;
        if number >= self.current {
            self.files.insert(number, header.start_lsn);
        }
        Ok(Observed::Header(header))
    }

    fn on_redo<'s>(
        &'s mut self,
        start_lsn: u64,
        blocks: &[[u8; BLOCK_BYTES]],
        visitor: &mut impl MtrVisitor,
    ) -> Result<Observed<'s>, ObserveError> {
        self.pending.drain(..self.drained.min(self.pending.len()));
        self.drained = 0;
        let mut lsn = start_lsn;
        let mut is_ended = false;
        for bytes in blocks {
            match Block::parse(bytes, lsn) {
                Ok(_) if is_ended => return Err(ObserveError::AfterEnd { lsn: lsn - BLOCK_BYTES as u64 }),
                Ok(block) => {
                    self.take_block(lsn, &block)?;
                    is_ended = !block.is_full();
                }
                // Written ahead of the log.
                Err(BlockError::Empty { .. }) => is_ended = true,
                Err(error) => return Err(error.into()),
            }
            lsn += BLOCK_BYTES as u64;
        }
        self.hand_out(visitor).map(Observed::Redo)
    }

    /// Adds the new payload of a block.
    fn take_block(&mut self, lsn: u64, block: &Block<'_>) -> Result<(), ObserveError> {
        let seen_lsn = self.seen_lsn();
        let expected_lsn = block_start(seen_lsn);
        // The last block may be written once more when it is full already.
        let is_tail = from_server_lsn(lsn) == self.tail_block() && !self.tail.bytes.is_empty();
        if lsn != expected_lsn && !is_tail {
            return Err(ObserveError::Gap { lsn, expected_lsn });
        }
        let seen = seen_lsn.0.saturating_sub(block.start.0) as usize;
        let before = self.tail.start.0.saturating_sub(block.start.0) as usize;
        if block.start > self.tail_block() {
            self.tail.start = block.start.max(seen_lsn);
            self.tail.bytes.clear();
        } else if block.payload.get(before..seen) != Some(self.tail.bytes.as_slice()) {
            return Err(ObserveError::Changed { lsn, seen_lsn });
        }
        let fresh = block.payload.get(seen..).unwrap_or_default();
        self.newest_block = self.newest_block.max(block.start);
        self.pending.extend_from_slice(fresh);
        self.tail.bytes.extend_from_slice(fresh);
        if let Some(first) = block.first_group
            && first >= self.next
            && self.first_groups.back().is_none_or(|&last| last < first)
        {
            self.first_groups.push_back(first);
        }
        Ok(())
    }

    /// Start of the block that the tail is of.
    const fn tail_block(&self) -> Lsn {
        from_server_lsn(block_start(self.tail.start))
    }

    /// Passes complete mini-transactions to the visitor.
    fn hand_out(&mut self, visitor: &mut impl MtrVisitor) -> Result<NewRedo<'_>, ObserveError> {
        let start_lsn = self.next;
        let seen_lsn = self.seen_lsn();
        let complete = complete_part(&self.pending, seen_lsn, self.newest_block == seen_lsn);
        let end = mtr_end(complete, self.known)
            .map_err(|error| ObserveError::Stream(StreamError { mtr_lsn: start_lsn, error }))?;
        if let MtrEnd::After(known) = end {
            self.known = known;
            return Ok(NewRedo { start_lsn, end_lsn: start_lsn, seen_lsn, bytes: &[] });
        }
        self.known = 0;
        let first_groups = &mut self.first_groups;
        let mut wrong = None;
        let mut checking = |mtr: &Mtr<'_, '_>| {
            while let Some(&first) = first_groups.front()
                && first < mtr.end_lsn
                && wrong.is_none()
            {
                if first == mtr.start_lsn {
                    first_groups.pop_front();
                } else {
                    wrong = Some(first);
                }
            }
            if wrong.is_none() {
                visitor.visit_mtr(mtr);
            }
        };
        let walked = walk_mtrs(complete, start_lsn, &mut checking)?;
        if let Some(first_group) = wrong {
            return Err(ObserveError::FirstGroup { first_group });
        }
        self.drained = walked.len_bytes;
        self.next = walked.end_lsn;
        let bytes = self.pending.get(..walked.len_bytes).unwrap_or_default();
        Ok(NewRedo { start_lsn, end_lsn: self.next, seen_lsn, bytes })
    }
}

/// The bytes up to `end` without the last one if the mini-transaction that ends with it is not complete: where a block
/// ends and the next one is not there.
pub(super) fn complete_part(bytes: &[u8], end: Lsn, has_next_block: bool) -> &[u8] {
    match bytes.split_last() {
        Some((_, rest)) if !has_next_block && end.0.is_multiple_of(PAYLOAD_BYTES as u64) => rest,
        _ => bytes,
    }
}

#[cfg(test)]
mod tests;
