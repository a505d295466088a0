//! Hooks of the same-host bypass beside accept: connect, listen, and the names of both ends.

use crate::bypass::{self, End, client, server};
use crate::{next, process};
use libc::{c_int, sockaddr, socklen_t};
use redoubt_interpose::Address;
use redoubt_user_tcp as user_tcp;

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller's arguments.
    let to = if bypass::is_client() { unsafe { Address::read(address, len) } } else { None };
    if to.and_then(|to| to.tcp()).is_some() && bypass::is_exchanged(fd) {
        // Non-blocking programs may check in this way whether they are connected.
        next::set_errno(libc::EISCONN);
        return -1;
    }
    let offer = to.and_then(|to| client::offer(fd, to));
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { next::connect(fd, address, len) };
    offer.map_or(result, |offer| offer.settle(fd, result))
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    process::listening();
    // Before: then the kernel gets no connections there, which would have to be distinguished.
    if process::is_active() {
        user_tcp::listening(fd, backlog);
    }
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
    if let Some(socket) = user_tcp::get(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { name_of(socket, End::Peer, address, len) };
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe {
        bypass::name_of(fd, End::Peer, address, len).unwrap_or_else(|| next::getpeername(fd, address, len))
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    if let Some(socket) = user_tcp::get(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { name_of(socket, End::Own, address, len) };
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe {
        bypass::name_of(fd, End::Own, address, len).unwrap_or_else(|| next::getsockname(fd, address, len))
    }
}

/// The address of one end of a stack's connection.
///
/// # Safety
/// As getpeername.
unsafe fn name_of(
    socket: &'static user_tcp::socket::Socket,
    end: End,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let Some([own, peer]) = user_tcp::calls::ends(socket) else {
        next::set_errno(libc::ENOTCONN);
        return -1;
    };
    // SAFETY: the caller's pointers.
    unsafe { user_tcp::write_address(if end == End::Peer { peer } else { own }, address, len) };
    0
}
