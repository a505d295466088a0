//! The exported C functions.
//!
//! Each finds out whether its descriptor is a connection that is looked after, turns raw pointers into what the other
//! modules take, and a result into a return value and errno. A panic cannot leave these functions: `extern "C"` aborts.

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

// SAFETY: a list of function pointers is what this section holds; the function takes no arguments that it uses.
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;
