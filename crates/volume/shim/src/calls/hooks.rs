//! The exported C functions.
//!
//! Each does three things: find out whether the call concerns a file of the data directory, turn raw pointers
//! into slices, turn a result into a return value and errno. The plain and the `64` names are the same function,
//! as they are in the C library on 64-bit Linux.
//!
//! A panic cannot leave these functions: `extern "C"` aborts, after the panic hook wrote a message.

mod aio;
mod descriptors;
mod lifecycle;
mod maps;
mod opening;
mod paths;
mod plugins;
mod stdio;
mod transfer;

use crate::base::real::Errno;
use libc::{c_char, c_int, ssize_t};
use std::ffi::CStr;

/// Result of a C function that returns 0 or -1.
fn status(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

/// Result of a C function that returns a length or -1.
fn length(result: Result<usize, Errno>) -> ssize_t {
    match result {
        Ok(len) => len as ssize_t,
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

/// Result of a C function that returns a descriptor or -1.
fn descriptor(result: Result<c_int, Errno>) -> c_int {
    match result {
        Ok(fd) => fd,
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

/// Result of a C function that returns 0 or -1.
fn checked(result: c_int) -> Result<(), Errno> {
    if result < 0 { Err(Errno::last()) } else { Ok(()) }
}

/// Bytes of a C string; empty for a null pointer.
///
/// # Safety
/// `text` is null or NUL-terminated, and stays so while the result is used.
unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: not null, and NUL-terminated by the caller's contract.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}
