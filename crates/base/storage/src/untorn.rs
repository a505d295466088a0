//! Untorn writes of the kernel: `pwritev2` with `RWF_ATOMIC` on a file opened for direct I/O.
//!
//! Where they are offered, `statx` says so for the file (`STATX_WRITE_ATOMIC`): file systems (ext4 with bigalloc, XFS)
//! from Linux 6.13, block devices from 6.11. Nothing is taken for granted because of a version or a name: the limits
//! come from `statx`, and [`find_limits`] also does such a write.
//!
//! Invariant: an untorn write is one system call. If the kernel takes less than all of it, that is an error and not
//! to be made up for by a second call.

use std::fs::File;
use std::io::{self, IoSlice};

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::{AlignedBuffer, UntornLimits};

/// `STATX_WRITE_ATOMIC`
const WRITE_ATOMIC: StatxFlags = StatxFlags::from_bits_retain(0x1_0000);
/// `RWF_ATOMIC`
pub(crate) const RWF_ATOMIC: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x40);

/// The write that a probe tries, where the limits allow it: a page of InnoDB.
const TRIAL_LEN: u64 = 16 << 10;
/// No write is longer, whatever the drive takes.
const MAX_LEN: u64 = 1 << 20;
/// What is offered if it is only pretended.
const PRETENDED: UntornLimits = UntornLimits { min_len_bytes: 4 << 10, max_len_bytes: 64 << 10 };

/// Whether a write that is called untorn may be torn all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tearing {
    /// The kernel is asked for an untorn write, and refuses what it cannot do.
    Refused,
    /// A plain direct write, for measurements.
    Possible,
}

/// Which writes to `direct`, an empty file opened for direct I/O, can be untorn; tries one of them.
pub(crate) fn find_limits(direct: &File, tearing: Tearing) -> io::Result<Option<UntornLimits>> {
    let limits = match tearing {
        Tearing::Refused => stated_limits(direct)?,
        Tearing::Possible => Some(PRETENDED),
    };
    let Some(limits) = limits else { return Ok(None) };
    let zeros = vec![0; TRIAL_LEN.clamp(limits.min_len_bytes, limits.max_len_bytes) as usize];
    match write(direct, 0, &zeros, tearing) {
        Ok(()) => Ok(Some(limits)),
        Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// What the kernel says about an open file or block device.
pub(crate) fn stated_limits(file: &File) -> io::Result<Option<UntornLimits>> {
    let asked = WRITE_ATOMIC | StatxFlags::DIOALIGN;
    let stat = match rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, asked) {
        Err(Errno::NOSYS | Errno::INVAL) => return Ok(None),
        stat => stat?,
    };
    if stat.stx_mask & WRITE_ATOMIC.bits() == 0
        || takes_no_direct_io(stat.stx_mask, stat.stx_dio_offset_align)
    {
        return Ok(None);
    }
    Ok(usable(u64::from(stat.stx_atomic_write_unit_min), u64::from(stat.stx_atomic_write_unit_max)))
}

/// The kernel says that the file is written through the page cache whatever flags it was opened with, as ext4 does with
/// files that it encrypts: a write of any kind may be torn then.
fn takes_no_direct_io(mask: u32, offset_align_bytes: u32) -> bool {
    mask & StatxFlags::DIOALIGN.bits() != 0 && offset_align_bytes == 0
}

fn usable(min_len_bytes: u64, max_len_bytes: u64) -> Option<UntornLimits> {
    let max_len_bytes = max_len_bytes.min(MAX_LEN);
    let is_usable = min_len_bytes > 0 && min_len_bytes <= max_len_bytes;
    is_usable.then_some(UntornLimits { min_len_bytes, max_len_bytes })
}

/// Fails if no place at all could do this write untorn.
pub(crate) fn check_shape(offset_bytes: u64, len_bytes: usize) -> io::Result<()> {
    let len = len_bytes as u64;
    if len.is_power_of_two() && offset_bytes.is_multiple_of(len) {
        return Ok(());
    }
    let reason = format!(
        "an untorn write has a length that is a power of two, at a multiple of its length: {len} bytes at \
         {offset_bytes} cannot be one"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

/// Writes all of `bytes` to `direct`, a file opened for direct I/O, untorn or, if so wanted, just so.
pub(crate) fn write(direct: &File, offset_bytes: u64, bytes: &[u8], tearing: Tearing) -> io::Result<()> {
    if tearing == Tearing::Possible && !PRETENDED.allow(offset_bytes, bytes.len() as u64) {
        return Err(refused(offset_bytes, bytes.len(), io::ErrorKind::InvalidInput));
    }
    let mut buffer = AlignedBuffer::with_capacity(bytes.len());
    if !buffer.extend(bytes) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = match tearing {
        Tearing::Refused => RWF_ATOMIC,
        Tearing::Possible => ReadWriteFlags::empty(),
    };
    write_once(direct, offset_bytes, &buffer, flags)
}

/// One `pwritev2` of the whole buffer.
pub(crate) fn write_once(
    direct: &File,
    offset_bytes: u64,
    buffer: &AlignedBuffer,
    flags: ReadWriteFlags,
) -> io::Result<()> {
    let len = buffer.len();
    loop {
        match rustix::io::pwritev2(direct, &[IoSlice::new(buffer.bytes())], offset_bytes, flags) {
            Ok(written) if written == len => return Ok(()),
            Ok(written) => return Err(short(written, len)),
            Err(Errno::INTR) => {}
            Err(Errno::INVAL) => return Err(refused(offset_bytes, len, io::ErrorKind::InvalidInput)),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                return Err(refused(offset_bytes, len, io::ErrorKind::Unsupported));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The error for a write that should have been one piece.
pub(crate) fn short(written: usize, len: usize) -> io::Error {
    io::Error::new(io::ErrorKind::WriteZero, format!("{written} of {len} bytes were written"))
}

/// The error for a write that the kernel did not take.
pub(crate) fn refused(offset_bytes: u64, len: usize, kind: io::ErrorKind) -> io::Error {
    let reason = match kind {
        io::ErrorKind::Unsupported => "this file system or drive has no untorn writes".to_owned(),
        _ => format!(
            "the kernel does not take an untorn write of {len} bytes at {offset_bytes}: the length must be within \
             the limits of file system and drive (see the untorn limits of the place), the offset a multiple of it"
        ),
    };
    io::Error::new(kind, reason)
}

/// The place does not offer what was tried.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_direct_io_has_no_untorn_writes() {
        let asked = (WRITE_ATOMIC | StatxFlags::DIOALIGN).bits();
        assert!(takes_no_direct_io(asked, 0));
        assert!(!takes_no_direct_io(asked, 512));
        // A kernel that does not say: the trial write tells.
        assert!(!takes_no_direct_io(WRITE_ATOMIC.bits(), 0));
    }

    #[test]
    fn limits_of_zero_are_none() {
        assert_eq!(usable(0, 0), None);
        assert_eq!(usable(4096, 0), None);
        assert_eq!(usable(0, 4096), None);
        let limits = |min_len_bytes, max_len_bytes| Some(UntornLimits { min_len_bytes, max_len_bytes });
        assert_eq!(usable(512, 65_536), limits(512, 65_536));
        assert_eq!(usable(4096, 1 << 30), limits(4096, MAX_LEN));
    }

    #[test]
    fn what_no_drive_can_do_is_refused_before_it_is_tried() {
        check_shape(0, 512).unwrap();
        check_shape(3 << 14, 1 << 14).unwrap();
        for (offset, len) in [(0, 0), (0, 12_288), (8192, 16_384), (1, 1024)] {
            let error = check_shape(offset, len).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
    }
}
