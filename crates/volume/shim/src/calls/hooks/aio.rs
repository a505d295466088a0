//! Native asynchronous I/O: refused, so that the server uses calls that can be followed.
//!
//! The server tries io_uring, then libaio, then continues without; both libraries enter the kernel directly, so
//! they can only be stopped where they are set up. These functions return the negative error number.

use crate::base::message;
use crate::base::real;
use crate::calls::process::active;
use crate::kinds::local_log;
use libc::{c_int, c_long, c_uint, c_void};

/// # Safety
/// As the function of liburing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
    if active().is_some() {
        return -libc::ENOSYS;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::io_uring_queue_init(entries, ring, flags) }.unwrap_or(-libc::ENOSYS)
}

/// # Safety
/// As the function of liburing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_uring_queue_init_params(
    entries: c_uint,
    ring: *mut c_void,
    parameters: *mut c_void,
) -> c_int {
    if active().is_some() {
        return -libc::ENOSYS;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::io_uring_queue_init_params(entries, ring, parameters) }.unwrap_or(-libc::ENOSYS)
}

/// # Safety
/// As the function of libaio.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_setup(entries: c_int, context: *mut c_void) -> c_int {
    if active().is_some() {
        return -libc::ENOSYS;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::io_setup(entries, context) }.unwrap_or(-libc::ENOSYS)
}

/// The descriptors of control blocks; the kernel's layout has them after 20 bytes.
///
/// # Safety
/// `blocks` is valid for `count` pointers to control blocks.
unsafe fn descriptors(count: c_long, blocks: *mut *mut c_void) -> impl Iterator<Item = c_int> {
    const DESCRIPTOR_AT: usize = 20;
    let count = if blocks.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) };
    (0..count).filter_map(move |at| {
        // SAFETY: `at` is below `count`; a block has 64 bytes.
        unsafe {
            let block = *blocks.add(at);
            (!block.is_null()).then(|| block.cast::<u8>().add(DESCRIPTOR_AT).cast::<c_int>().read_unaligned())
        }
    })
}

/// # Safety
/// As the function of libaio.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_submit(context: *mut c_void, count: c_long, blocks: *mut *mut c_void) -> c_int {
    if active().is_some() {
        message::error(
            "native asynchronous I/O is used although it was refused; set innodb_use_native_aio=OFF",
        );
        return -libc::EIO;
    }
    if local_log::active().is_some() {
        // SAFETY: the caller passes `count` control blocks.
        let fds = unsafe { descriptors(count, blocks) };
        if let Err(errno) = local_log::refuse_asynchronous(fds) {
            return -errno.0;
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::io_submit(context, count, blocks) }.unwrap_or(-libc::ENOSYS)
}
