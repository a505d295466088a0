//! A whole `ib_logfile0`, read from its newest checkpoint to the end of the log.
//!
//! Owns: finding header and checkpoint, and where the log ends. The file is read through [`LogRead`], in
//! pieces, around the end of the file where needed.
//!
//! The end of a circular log is not marked: it is where no valid mini-transaction follows. [`ScanEnd`] says
//! what was found there, so that a caller can tell a clean end from damage.

use super::log_file::{
    CHECKPOINT_LEN_BYTES, CHECKPOINT_OFFSETS, CheckpointBlock, DATA_OFFSET, HEADER_LEN_BYTES, LogFileError,
    LogGeometry, LogHeader,
};
use super::walk::{MTR_SIZE_MAX_BYTES, MTR_TRAILER_BYTES, SequenceRule, walk_mtrs};
use crate::error::{RedoError, StreamError};
use crate::mtr::{MtrVisitor, WalkStop};
use crate::types::Lsn;

/// How much is read at once; at least two of the largest mini-transactions.
const PIECE_BYTES: usize = 4 * (MTR_SIZE_MAX_BYTES + MTR_TRAILER_BYTES);

/// Random access to the bytes of a log file.
pub trait LogRead {
    /// Why a read failed.
    type Error: std::error::Error + 'static;

    /// Size of the file in bytes.
    fn size_bytes(&self) -> u64;

    /// Fill `buf` from `offset` on.
    ///
    /// # Errors
    /// When not all of it could be read.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Self::Error>;
}

/// A read outside of the bytes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read of {len_bytes} bytes at {offset} is outside of the log file image of {size_bytes} bytes")]
pub struct OutsideImage {
    offset: u64,
    len_bytes: usize,
    size_bytes: usize,
}

impl LogRead for [u8] {
    type Error = OutsideImage;

    fn size_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), OutsideImage> {
        let place = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..start.checked_add(buf.len())?))
            .ok_or(OutsideImage { offset, len_bytes: buf.len(), size_bytes: self.len() })?;
        buf.copy_from_slice(place);
        Ok(())
    }
}

/// Why a log file could not be scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError<File, Read> {
    /// It is not a usable log file.
    #[error(transparent)]
    File(File),
    /// It could not be read.
    #[error("cannot read the redo log file: {0}")]
    Read(Read),
    /// It holds a mini-transaction with a right checksum that is not understood.
    #[error(transparent)]
    Stream(StreamError),
    /// The start of the scan is not in the file.
    #[error("LSN {lsn} is not in the redo log file, whose first LSN is {first_lsn}")]
    NotInFile {
        /// Where the scan should start.
        lsn: Lsn,
        /// First LSN of the file.
        first_lsn: Lsn,
    },
}

type Failure<R> = ScanError<LogFileError, <R as LogRead>::Error>;

/// What follows the last valid mini-transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStop {
    /// A byte that is no record: nothing was written here on this lap.
    EndOfLog,
    /// A mini-transaction of an earlier lap.
    OlderLap,
    /// Bytes that are no mini-transaction: left-overs, or a write that was cut off by a crash.
    NoMtr(RedoError),
    /// The scan came around the whole file.
    WholeFile,
}

/// Where the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanEnd {
    /// LSN after the last valid mini-transaction.
    pub end_lsn: Lsn,
    /// What follows there.
    pub stop: ScanStop,
}

/// A log file whose frame was found valid.
pub struct LogScan<'r, R: ?Sized> {
    reader: &'r R,
    header: LogHeader,
    geometry: LogGeometry,
    checkpoint: CheckpointBlock,
}

impl<'r, R: LogRead + ?Sized> LogScan<'r, R> {
    /// Read header and checkpoint blocks.
    ///
    /// # Errors
    /// When they cannot be read or the file cannot be used.
    pub fn open(reader: &'r R) -> Result<Self, Failure<R>> {
        let size_bytes = reader.size_bytes();
        if size_bytes <= DATA_OFFSET {
            return Err(ScanError::File(LogFileError::FileTooSmall { file_size_bytes: size_bytes }));
        }
        let mut block = [0; HEADER_LEN_BYTES];
        reader.read_at(0, &mut block).map_err(ScanError::Read)?;
        let header = LogHeader::parse(&block).map_err(ScanError::File)?;
        let geometry = LogGeometry::new(header.first_lsn, size_bytes).map_err(ScanError::File)?;
        let mut newest = None;
        for offset in CHECKPOINT_OFFSETS {
            let mut block = [0; CHECKPOINT_LEN_BYTES];
            reader.read_at(offset, &mut block).map_err(ScanError::Read)?;
            let found =
                CheckpointBlock::parse(&block).filter(|found| found.checkpoint_lsn >= header.first_lsn);
            newest = CheckpointBlock::newest(newest, found);
        }
        let checkpoint = newest.ok_or(ScanError::File(LogFileError::NoCheckpoint))?;
        Ok(Self { reader, header, geometry, checkpoint })
    }

    /// The header.
    pub const fn header(&self) -> &LogHeader {
        &self.header
    }

    /// Where LSNs lie.
    pub const fn geometry(&self) -> &LogGeometry {
        &self.geometry
    }

    /// The checkpoint that counts.
    pub const fn checkpoint(&self) -> &CheckpointBlock {
        &self.checkpoint
    }

    /// Report every mini-transaction from `start_lsn`, the start of one, to the end of the log.
    ///
    /// # Errors
    /// When the file cannot be read, or a mini-transaction with a right checksum is not understood. Those
    /// before have been reported.
    pub fn walk(&self, start_lsn: Lsn, visitor: &mut impl MtrVisitor) -> Result<ScanEnd, Failure<R>> {
        let first_lsn = self.geometry.first_lsn();
        if start_lsn < first_lsn {
            return Err(ScanError::NotInFile { lsn: start_lsn, first_lsn });
        }
        let limit = start_lsn.advance(self.geometry.capacity_bytes());
        let mut piece = Vec::new();
        let mut at = start_lsn;
        loop {
            let len_bytes = (limit.0 - at.0).min(PIECE_BYTES as u64);
            piece.resize(len_bytes as usize, 0);
            self.read_stream(at, &mut piece)?;
            let walked = match walk_mtrs(&piece, at, SequenceRule::Geometry(&self.geometry), visitor) {
                Ok(walked) => walked,
                Err(StreamError { mtr_lsn, error }) if error.is_unframed() => {
                    return Ok(ScanEnd { end_lsn: mtr_lsn, stop: ScanStop::NoMtr(error) });
                }
                Err(error) => return Err(ScanError::Stream(error)),
            };
            at = walked.end_lsn;
            let stop = match walked.stop {
                WalkStop::EndOfLog => ScanStop::EndOfLog,
                WalkStop::WrongSequenceBit => ScanStop::OlderLap,
                // A piece holds any mini-transaction, so that without progress the file is exhausted.
                WalkStop::AllConsumed | WalkStop::Incomplete if at == limit || walked.len_bytes == 0 => {
                    ScanStop::WholeFile
                }
                WalkStop::AllConsumed | WalkStop::Incomplete => continue,
            };
            return Ok(ScanEnd { end_lsn: at, stop });
        }
    }

    /// Fill `buf` with the bytes from `lsn` on, around the end of the file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read_stream(&self, lsn: Lsn, buf: &mut [u8]) -> Result<(), Failure<R>> {
        let (mut lsn, mut buf) = (lsn, buf);
        while !buf.is_empty() {
            let offset = self.geometry.offset_of(lsn);
            let to_file_end = self.geometry.file_size_bytes() - offset;
            let len = buf.len().min(usize::try_from(to_file_end).unwrap_or(usize::MAX));
            let (now, later) = buf.split_at_mut(len);
            self.reader.read_at(offset, now).map_err(ScanError::Read)?;
            lsn = lsn.advance(len as u64);
            buf = later;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
