//! What all users of io_uring share: whether this process may use it, and when a request is made again.

use std::io;

use io_uring::IoUring;
use rustix::io::Errno;

/// How often a request is submitted again that the kernel did not start.
pub(crate) const MAX_RESUBMISSIONS: u32 = 1000;

/// The kernel did not start the request, or the call, and will when asked again.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::INTR | Errno::AGAIN | Errno::CANCELED | Errno::BUSY)
    )
}

/// Why this process may not use io_uring, in words.
pub(crate) fn refusal() -> Option<String> {
    IoUring::new(2).err().map(|error| explain(&error))
}

/// What to do about an io_uring that cannot be set up.
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
