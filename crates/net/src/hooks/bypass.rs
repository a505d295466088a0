//! What the same-host bypass needs beside accept: connect, listen, and the names of both ends.

use crate::bypass::{self, Address, End, client, server};
use crate::next;
use libc::{c_int, sockaddr, socklen_t};

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let offer = if bypass::is_client() {
        // SAFETY: the caller's arguments.
        unsafe { Address::read(address, len) }.and_then(|to| client::offer(fd, to))
    } else {
        None
    };
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { next::connect(fd, address, len) };
    offer.map_or(result, |offer| offer.settle(fd, result))
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: no pointers.
    let result = unsafe { next::listen(fd, backlog) };
    if result == 0 {
        server::listening(fd);
    }
    result
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    unsafe {
        bypass::name_of(fd, End::Peer, address, len).unwrap_or_else(|| next::getpeername(fd, address, len))
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    unsafe {
        bypass::name_of(fd, End::Own, address, len).unwrap_or_else(|| next::getsockname(fd, address, len))
    }
}
