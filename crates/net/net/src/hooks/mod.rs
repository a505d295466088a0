//! The exported C functions.
//!
//! Each checks whether its descriptor is an intercepted connection, converts raw pointers for the other modules, and
//! converts a result to a return value and errno. A panic cannot leave these functions: `extern "C"` aborts.

mod bypass;
mod descriptors;
mod options;
mod reads;
mod waits;
mod writes;

use crate::{next, process};
use libc::ssize_t;

/// Result of a C function that returns a length or -1.
fn length(result: Result<usize, libc::c_int>) -> ssize_t {
    match result {
        Ok(len) => len as ssize_t,
        Err(error) => {
            next::set_errno(error);
            -1
        }
    }
}

/// Result of a C function that returns 0 or -1.
fn nothing(result: Result<(), libc::c_int>) -> libc::c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            next::set_errno(error);
            -1
        }
    }
}

extern "C" fn load() {
    process::activate();
}

// SAFETY: this section holds a list of function pointers; the function uses no arguments.
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;
