//! Copies of the server's writes to its redo log files, for a reader of them while it runs.
//!
//! MySQL's clone plugin has InnoDB copy the redo of the time that a clone takes out of the log files
//! (`arch/arch0log.cc`), soon after it was written. The node cannot provide that. It gets whole mini-transactions
//! only, drops redo before the server's checkpoint, and may not have received the latest writes yet.
//!
//! A copy is a file without a name in the data directory, as long as the log file at most, and gone with it or with
//! the process. It begins with the first block that was written after the copies were switched on; earlier blocks are
//! read from the node.

use crate::base::paths::absolute;
use crate::base::real::{self, Errno};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Only for as long as it takes to unlink it.
const NAME: &[u8] = b".redoubt-log-copy";

/// State of one file of the log.
#[derive(Debug, Default)]
pub struct Kept {
    /// Server LSN of its first block, from its header.
    start_lsn: u64,
    copy: Option<Copy>,
}

#[derive(Debug)]
struct Copy {
    file: OwnedFd,
    /// Part of the log file that the copy has, at the same offsets.
    range_bytes: Range<u64>,
}

impl Kept {
    /// The file has this header. With another start LSN it is another part of the log, and still unwritten.
    pub fn on_header(&mut self, start_lsn: u64) {
        if self.start_lsn != start_lsn {
            *self = Self { start_lsn, copy: None };
        }
    }

    /// Server LSN of its first block.
    pub const fn start_lsn(&self) -> u64 {
        self.start_lsn
    }

    /// The server wrote blocks.
    ///
    /// # Errors
    /// That of the local disk; there is no copy then.
    pub fn on_write(&mut self, datadir: &[u8], bytes: &[u8], offset_bytes: u64) -> Result<(), Errno> {
        let end = offset_bytes + bytes.len() as u64;
        let copy = match self.copy.take().filter(|copy| copy.adjoins(offset_bytes)) {
            Some(copy) => copy,
            None => Copy { file: without_name(datadir)?, range_bytes: offset_bytes..offset_bytes },
        };
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match real::write_at(copy.file.as_raw_fd(), rest, offset_bytes + written as u64)? {
                0 => return Err(Errno(libc::ENOSPC)),
                len => written += len,
            }
        }
        let range_bytes = copy.range_bytes.start..copy.range_bytes.end.max(end);
        self.copy = Some(Copy { range_bytes, ..copy });
        Ok(())
    }

    /// Fills the end of `buffer`, which is for bytes of the log file from an offset on, and gives the length of what is
    /// left at its start: the copy begins after that.
    ///
    /// # Errors
    /// That of the local disk.
    pub fn read(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize, Errno> {
        let Some(copy) = &self.copy else { return Ok(buffer.len()) };
        let before = copy.range_bytes.start.saturating_sub(offset_bytes).min(buffer.len() as u64) as usize;
        let (_, mut rest) = buffer.split_at_mut(before);
        let mut at = offset_bytes + before as u64;
        // A file is zero where it was never written.
        while !rest.is_empty() {
            let len = real::read_at(copy.file.as_raw_fd(), rest, at)?;
            if len == 0 {
                rest.fill(0);
                break;
            }
            at += len as u64;
            rest = rest.get_mut(len..).unwrap_or_default();
        }
        Ok(before)
    }
}

impl Copy {
    /// A write at this offset continues the copy, or repeats a part of it.
    fn adjoins(&self, offset_bytes: u64) -> bool {
        (self.range_bytes.start..=self.range_bytes.end).contains(&offset_bytes)
    }
}

fn without_name(datadir: &[u8]) -> Result<OwnedFd, Errno> {
    let path = absolute(datadir, NAME)?;
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    let fd = real::open_file(&path, flags, 0o600)?;
    // SAFETY: the descriptor was just opened and has no other owner.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    real::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests;
