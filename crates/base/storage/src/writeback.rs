//! Requests to the kernel to write out cached data of a file.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Begins to write this range to the drive. Waits only for space in the drive's queue. The data is not durable before
/// a sync, which then has less work. After a failure, the sync does all of it.
pub(super) fn begin(file: &File, offset_bytes: u64, len_bytes: u64) {
    let (Ok(offset), Ok(len)) = (offset_bytes.try_into(), len_bytes.try_into()) else { return };
    // SAFETY: the descriptor is open for the whole call, and no memory is passed.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
}
