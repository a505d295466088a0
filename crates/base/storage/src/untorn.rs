//! Untorn writes of the kernel: `pwritev2` with `RWF_ATOMIC` on a file opened for direct I/O.
//!
//! `statx` reports their support for a file (`STATX_WRITE_ATOMIC`): file systems (ext4 with bigalloc, XFS) from Linux
//! 6.13, block devices from 6.11. No version or name is trusted: the limits come from `statx`, and [`find_limits`]
//! also tries such a write.
//!
//! Invariant: an untorn write is one system call. If the kernel writes only a part, that is an error, and a second
//! call must not complete it.

use std::fs::File;
use std::io::{self, IoSlice};

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::{AlignedBuffer, UntornLimits};

/// `STATX_WRITE_ATOMIC`
const WRITE_ATOMIC: StatxFlags = StatxFlags::from_bits_retain(0x1_0000);
/// `RWF_ATOMIC`
pub(crate) const RWF_ATOMIC: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x40);

/// Length of the trial write, where the limits allow it: a page of InnoDB.
const TRIAL_LEN: u64 = 16 << 10;
/// Maximum length of a write, regardless of the drive.
const MAX_LEN: u64 = 1 << 20;
/// Limits of pretended untorn writes.
const PRETENDED: UntornLimits = UntornLimits { min_len_bytes: 4 << 10, max_len_bytes: 64 << 10 };

/// Whether a write that is requested as untorn may be torn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tearing {
    /// The kernel performs an untorn write, or rejects it.
    Refused,
    /// A plain direct write, for measurements.
    Possible,
}

/// Finds the limits of untorn writes to `direct`, an empty file opened for direct I/O, and tries such a write.
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

/// Limits that the kernel reports for an open file or block device.
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

/// Whether the kernel reports that writes use the page cache regardless of the open flags, as ext4 does for encrypted
/// files. Then any write may be torn.
fn takes_no_direct_io(mask: u32, offset_align_bytes: u32) -> bool {
    mask & StatxFlags::DIOALIGN.bits() != 0 && offset_align_bytes == 0
}

fn usable(min_len_bytes: u64, max_len_bytes: u64) -> Option<UntornLimits> {
    let max_len_bytes = max_len_bytes.min(MAX_LEN);
    let is_usable = min_len_bytes > 0 && min_len_bytes <= max_len_bytes;
    is_usable.then_some(UntornLimits { min_len_bytes, max_len_bytes })
}

/// Fails if no location could perform this write untorn.
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

/// Writes all of `bytes` to `direct`, a file opened for direct I/O: untorn, or as a plain write if so requested.
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

/// Performs one `pwritev2` of the whole buffer.
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

/// The error for a partial write that should have been atomic.
pub(crate) fn short(written: usize, len: usize) -> io::Error {
    io::Error::new(io::ErrorKind::WriteZero, format!("{written} of {len} bytes were written"))
}

/// The error for a write that the kernel rejected.
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

/// Whether the location does not support the attempted operation.
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
        // A kernel without that information: the trial write decides.
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
