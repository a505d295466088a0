//! All files of a log, read from the newest checkpoint to the end of the log.
//!
//! Owns: which files belong together, where the checkpoint is, where the first mini-transaction at or before it starts,
//! and where the log ends. The rules are those of the server's start (`log/log0files_finder.cc`, `log/log0recv.cc`).
//! All files have the same set id, their numbers follow each other, and each begins at the end of the previous file.
//! The checkpoint is the highest in any slot of the file that holds it.
//!
//! A checkpoint can be anywhere, even inside a record. Reading starts at the first mini-transaction of its block or, if
//! none starts there, of the next block in which one does; redo before the checkpoint is in the data files
//! already. Nothing that starts after the checkpoint is left out: a mini-transaction that starts in the block before
//! the first one is the first one.
//!
//! The log ends where no valid block follows, or after one that is not full. [`LogSetEnd`] says which. A
//! mini-transaction that fills a block is part of it only if the next block is there.

use super::block::{BLOCK_BYTES, Block, BlockError, PAYLOAD_BYTES};
use super::log_file::{
    CheckpointSlot, FILE_HEADER_BYTES, FileRange, LogFileError, LogFileHeader, LogFlags, build_checkpoint,
    parse_checkpoint,
};
use super::log_image::LogImage;
use super::observer::complete_part;
use super::position::{block_start, from_server_lsn};
use super::walk::walk_mtrs;
use crate::error::StreamError;
use crate::mtr::MtrVisitor;
use crate::types::Lsn;

/// How much is read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Random access to the files of a log by their numbers.
pub trait LogSetRead {
    /// Why a read failed.
    type Error: std::error::Error + 'static;

    /// Fill `buf` from `offset` of file `number` on.
    ///
    /// # Errors
    /// When not all of it could be read.
    fn read_at(&self, number: u64, offset: u64, buf: &mut [u8]) -> Result<(), Self::Error>;
}

/// One file of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// Its number.
    pub number: u64,
    /// Which part of the log it is.
    pub range: FileRange,
    /// Its header.
    pub header: LogFileHeader,
}

impl LogFile {
    /// Its first blocks with their offsets, in a log whose newest checkpoint is at this server LSN.
    pub fn front_blocks(&self, checkpoint_server_lsn: u64) -> Vec<(u32, [u8; BLOCK_BYTES])> {
        let checkpoint = self
            .range
            .contains(checkpoint_server_lsn)
            .then(|| (CheckpointSlot::First.offset() as u32, build_checkpoint(checkpoint_server_lsn)));
        [(0, self.header.build())].into_iter().chain(checkpoint).collect()
    }
}

/// Why a log could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogSetError<Read> {
    /// There is none.
    #[error("there is no redo log file (#innodb_redo/#ib_redo<N>)")]
    NoFiles,
    /// A file cannot be used.
    #[error("redo log file #ib_redo{number}: {error}")]
    File {
        /// Its number.
        number: u64,
        /// Why.
        error: LogFileError,
    },
    /// A file could not be read.
    #[error("cannot read redo log file #ib_redo{number}: {error}")]
    Read {
        /// Its number.
        number: u64,
        /// Why.
        error: Read,
    },
    /// A file does not begin at the end of the previous file.
    #[error(
        "redo log file #ib_redo{number} does not follow the previous file; files are missing or of another server"
    )]
    NoChain {
        /// Its number.
        number: u64,
    },
    /// Redo logging is off, or the data directory was never finished.
    #[error(
        "the redo log has flags {flags:#x}: redo logging is disabled, or the data directory is not initialised; \
         run ALTER INSTANCE ENABLE INNODB REDO_LOG and stop the server cleanly first"
    )]
    Flags {
        /// The flags of the newest file.
        flags: u32,
    },
    /// The newest file is full: there must be one after it.
    #[error("redo log file #ib_redo{number} is full, but no file follows it")]
    NewestMissing {
        /// Number of the newest file.
        number: u64,
    },
    /// No slot holds a checkpoint.
    #[error("no redo log file holds a checkpoint")]
    NoCheckpoint,
    /// A block is encrypted, or has no checksum.
    #[error(transparent)]
    Block(BlockError),
    /// A mini-transaction is not understood.
    #[error(transparent)]
    Stream(StreamError),
    /// The stream has no byte at this place.
    #[error("position {lsn} is not in the redo log, which has positions {start_lsn} to {end_lsn}")]
    NotInLog {
        /// Where reading should start.
        lsn: Lsn,
        /// First position of the files.
        start_lsn: Lsn,
        /// End of the files.
        end_lsn: Lsn,
    },
}

/// What follows the last whole mini-transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSetStop {
    /// The last block is not full: how a log ends.
    NotFull,
    /// A block that is not that of its place: never written, old, or cut off by a crash.
    NoBlock(BlockError),
    /// The newest file is full to its end. The server was killed before it made the next.
    WholeSet,
}

/// Where the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSetEnd {
    /// Position after the last whole mini-transaction.
    pub end_lsn: Lsn,
    /// Position after the last byte. Bytes from `end_lsn` on are a part of a mini-transaction.
    pub payload_end: Lsn,
    /// What follows there.
    pub stop: LogSetStop,
}

/// The files of a log that were found to belong together.
pub struct LogSet<'r, R: ?Sized> {
    reader: &'r R,
    files: Vec<LogFile>,
    checkpoint: Lsn,
}

impl<'r, R: LogSetRead + ?Sized> LogSet<'r, R> {
    /// Read headers and checkpoints of the files with these numbers and sizes.
    ///
    /// # Errors
    /// When they cannot be read or are not the files of one usable log.
    pub fn open(reader: &'r R, files: &[(u64, u64)]) -> Result<Self, LogSetError<R::Error>> {
        let mut numbers = files.to_vec();
        numbers.sort_unstable();
        let mut files: Vec<LogFile> = Vec::with_capacity(numbers.len());
        let mut checkpoint = None;
        for (number, size_bytes) in numbers {
            let block = read_block(reader, number, 0)?;
            let header = LogFileHeader::parse(&block).map_err(|error| LogSetError::File { number, error })?;
            let file =
                LogFile { number, range: FileRange { start_lsn: header.start_lsn, size_bytes }, header };
            if files.last().is_some_and(|last| !follows(last, &file)) {
                return Err(LogSetError::NoChain { number });
            }
            for slot in CheckpointSlot::ALL {
                let found = parse_checkpoint(&read_block(reader, number, slot.offset())?);
                // The server reports this and continues with the other checkpoints.
                checkpoint = checkpoint.max(found.filter(|&lsn| file.range.contains(lsn)));
            }
            files.push(file);
        }
        let newest = files.last().ok_or(LogSetError::NoFiles)?;
        let flags = newest.header.flags;
        if flags.contains(LogFlags::CRASH_UNSAFE) || flags.contains(LogFlags::NOT_INITIALISED) {
            return Err(LogSetError::Flags { flags: flags.0 });
        }
        if flags.contains(LogFlags::FULL) {
            return Err(LogSetError::NewestMissing { number: newest.number });
        }
        let checkpoint = from_server_lsn(checkpoint.ok_or(LogSetError::NoCheckpoint)?);
        Ok(Self { reader, files, checkpoint })
    }

    /// The files in order.
    pub fn files(&self) -> &[LogFile] {
        &self.files
    }

    /// The log from `oldest` to `end`, with the set's own headers and checkpoint; `None` without files.
    pub fn image(&self, oldest: Lsn, end: Lsn) -> Option<LogImage> {
        let first = self.files.first()?;
        Some(LogImage {
            set_id: first.header.set_id,
            creator: first.header.creator.clone(),
            first_number: first.number,
            start_lsn: first.range.start_lsn,
            file_size_bytes: first.range.size_bytes,
            checkpoint: self.checkpoint,
            oldest,
            end,
        })
    }

    /// The newest checkpoint.
    pub const fn checkpoint(&self) -> Lsn {
        self.checkpoint
    }

    /// Where recovery starts to read: the first mini-transaction that starts in the checkpoint's block, or in the next
    /// one in which any does. `None`: there is none up to the end of the log.
    ///
    /// # Errors
    /// When the log cannot be read, or is encrypted.
    pub fn first_mtr(&self) -> Result<Option<Lsn>, LogSetError<R::Error>> {
        self.first_mtr_from(self.checkpoint)
    }

    /// As [`Self::first_mtr`], from the block that holds `position`.
    ///
    /// # Errors
    /// When the log cannot be read, or is encrypted.
    pub fn first_mtr_from(&self, position: Lsn) -> Result<Option<Lsn>, LogSetError<R::Error>> {
        let mut first = None;
        self.blocks(block_start(position), |block| {
            first = block.first_group;
            Ok(first.is_none())
        })?;
        Ok(first)
    }

    /// Report every whole mini-transaction from `start`, where one starts, to the end of the log.
    ///
    /// # Errors
    /// When the log cannot be read, is encrypted, or has invalid or unsupported content.
    pub fn walk(
        &self,
        start: Lsn,
        visitor: &mut impl MtrVisitor,
    ) -> Result<LogSetEnd, LogSetError<R::Error>> {
        let mut pending: Vec<u8> = Vec::new();
        let mut next = start;
        // Walking a large mini-transaction for each block of it would take too long.
        let mut walk_at = PIECE_BYTES as usize;
        let (payload_end, stop) = self.blocks(block_start(start), |block| {
            let known = start.0.saturating_sub(block.start.0) as usize;
            pending.extend_from_slice(block.payload.get(known..).unwrap_or_default());
            if pending.len() >= walk_at {
                let complete = complete_part(&pending, block.end(), false);
                let walked = walk_mtrs(complete, next, visitor).map_err(LogSetError::Stream)?;
                next = walked.end_lsn;
                pending.drain(..walked.len_bytes);
                walk_at = pending.len() * 2 + PIECE_BYTES as usize;
            }
            Ok(true)
        })?;
        let complete = complete_part(&pending, payload_end, stop == LogSetStop::NotFull);
        let walked = walk_mtrs(complete, next, visitor).map_err(LogSetError::Stream)?;
        Ok(LogSetEnd { end_lsn: walked.end_lsn, payload_end: payload_end.max(start), stop })
    }

    /// Gives each block from the one at server LSN `lsn` on to `take`, until that says false or the log ends. Returns
    /// where, and why.
    fn blocks(
        &self,
        lsn: u64,
        mut take: impl FnMut(&Block<'_>) -> Result<bool, LogSetError<R::Error>>,
    ) -> Result<(Lsn, LogSetStop), LogSetError<R::Error>> {
        let mut at = lsn;
        let mut buf = Vec::new();
        let first = self.files.iter().position(|file| file.range.contains(lsn));
        let Some(files) = first.and_then(|first| self.files.get(first..)) else {
            return Err(self.not_in_log(from_server_lsn(lsn)));
        };
        for file in files {
            let end = file.range.end_lsn();
            while let Some(offset) = file.range.offset_of(at) {
                let len = (end - at).min(PIECE_BYTES);
                buf.resize(len as usize, 0);
                let number = file.number;
                self.reader
                    .read_at(number, offset, &mut buf)
                    .map_err(|error| LogSetError::Read { number, error })?;
                for bytes in buf.as_chunks::<BLOCK_BYTES>().0 {
                    let block = match Block::parse(bytes, at) {
                        Ok(block) => block,
                        Err(error @ (BlockError::Encrypted { .. } | BlockError::NoChecksum { .. })) => {
                            return Err(LogSetError::Block(error));
                        }
                        Err(error) => return Ok((from_server_lsn(at), LogSetStop::NoBlock(error))),
                    };
                    if !take(&block)? || !block.is_full() {
                        return Ok((block.end(), LogSetStop::NotFull));
                    }
                    at += BLOCK_BYTES as u64;
                }
            }
        }
        Ok((from_server_lsn(at), LogSetStop::WholeSet))
    }

    /// Fill `buf` with payload from `position` on. The blocks must be valid, full up to the end of `buf`.
    ///
    /// # Errors
    /// When the log cannot be read, or does not have all of it.
    pub fn read_payload(&self, position: Lsn, buf: &mut [u8]) -> Result<(), LogSetError<R::Error>> {
        let mut at = position;
        let mut rest: &mut [u8] = buf;
        if rest.is_empty() {
            return Ok(());
        }
        self.blocks(block_start(position), |block| {
            let skip = (at.0.saturating_sub(block.start.0) as usize).min(PAYLOAD_BYTES);
            let from = block.payload.get(skip..).unwrap_or_default();
            let len = from.len().min(rest.len());
            let (now, later) = std::mem::take(&mut rest).split_at_mut(len);
            now.copy_from_slice(from.get(..len).unwrap_or_default());
            at = at.advance(len as u64);
            rest = later;
            Ok(!rest.is_empty())
        })?;
        if rest.is_empty() { Ok(()) } else { Err(self.not_in_log(at)) }
    }

    fn not_in_log(&self, lsn: Lsn) -> LogSetError<R::Error> {
        let start_lsn = self.files.first().map_or(Lsn(0), |file| from_server_lsn(file.range.start_lsn));
        let end_lsn = self.files.last().map_or(Lsn(0), |file| from_server_lsn(file.range.end_lsn()));
        LogSetError::NotInLog { lsn, start_lsn, end_lsn }
    }
}

/// The file continues at the end of `last`, and is of the same log.
fn follows(last: &LogFile, file: &LogFile) -> bool {
    last.number.checked_add(1) == Some(file.number)
        && last.header.set_id == file.header.set_id
        && last.range.size_bytes > FILE_HEADER_BYTES
        && last.range.end_lsn() == file.range.start_lsn
}

fn read_block<R: LogSetRead + ?Sized>(
    reader: &R,
    number: u64,
    offset: u64,
) -> Result<[u8; BLOCK_BYTES], LogSetError<R::Error>> {
    let mut block = [0; BLOCK_BYTES];
    reader.read_at(number, offset, &mut block).map_err(|error| LogSetError::Read { number, error })?;
    Ok(block)
}

#[cfg(test)]
mod tests;
