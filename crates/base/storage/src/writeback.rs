//! Asks the kernel to write out what it keeps in memory of a file.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Writing of this range to the drive begins. Nothing is waited for but a place in the drive's queue, and nothing is
/// durable before a sync, which then has less to do; if it cannot be done, the sync does it all.
pub(super) fn begin(file: &File, offset_bytes: u64, len_bytes: u64) {
    let (Ok(offset), Ok(len)) = (offset_bytes.try_into(), len_bytes.try_into()) else { return };
    // SAFETY: the descriptor is open for the whole call, and no memory is passed.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
}
