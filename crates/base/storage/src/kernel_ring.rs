//! Common parts of all users of io_uring: permission to use it, and retries of requests.

use std::io;

use io_uring::IoUring;
use rustix::io::Errno;

use crate::is_out_of_descriptors;

/// Maximum number of resubmissions of a request that the kernel did not start.
pub(crate) const MAX_RESUBMISSIONS: u32 = 1000;

/// Whether the kernel did not start the request or call, and a retry may succeed.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::INTR | Errno::AGAIN | Errno::CANCELED | Errno::BUSY)
    )
}

/// Reason why this process may not use io_uring.
///
/// # Errors
/// It has no descriptor left to try that.
pub(crate) fn refusal() -> io::Result<Option<String>> {
    match IoUring::new(2) {
        Ok(_) => Ok(None),
        Err(error) if is_out_of_descriptors(&error) => Err(error),
        Err(error) => Ok(Some(explain(&error))),
    }
}

/// Explains an error in the setup of io_uring, with the fix.
pub(crate) fn explain(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSYS) => "this kernel, or a filter of system calls, does not offer it".into(),
        Some(Errno::PERM | Errno::ACCESS) => {
            "it is not permitted here (the sysctl kernel.io_uring_disabled, or the container's seccomp profile)".into()
        }
        Some(Errno::NOMEM) => "the limit of locked memory (ulimit -l) is too low".into(),
        _ => error.to_string(),
    }
}
