//! read, recv and their relatives.

use super::length;
use crate::connection::Connection;
use crate::reading::{Target, receive};
use crate::{admission, next, process, table};
use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};
use redoubt_user_tcp as user_tcp;

/// The C library's reaction to a buffer that is shorter than the read.
fn overflow() -> ! {
    // SAFETY: abort has no requirement.
    unsafe { libc::abort() }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    if let Some(socket) = user_tcp::get(fd) {
        let target = Target { address: buffer.cast(), len_bytes: len };
        // SAFETY: the caller's buffer.
        return length(unsafe { user_tcp::calls::receive(socket, target.bytes(), flags) });
    }
    let Some(connection) = table::get(fd) else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { next::recv(fd, buffer, len, flags) };
    };
    let target = Target { address: buffer.cast(), len_bytes: len };
    // SAFETY: the caller's buffer.
    length(unsafe { receive(connection, fd, target, flags) })
}

/// # Safety
/// As the C library's checked form of recv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    buffer_len: size_t,
    flags: c_int,
) -> ssize_t {
    if len > buffer_len {
        overflow();
    }
    // SAFETY: the caller's buffer.
    unsafe { recv(fd, buffer, len, flags) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    if user_tcp::get(fd).is_some() {
        // SAFETY: the caller's buffer.
        return unsafe { recv(fd, buffer, len, 0) };
    }
    let Some(connection) = table::get(fd).filter(|_| len > 0) else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { next::read(fd, buffer, len) };
    };
    let target = Target { address: buffer.cast(), len_bytes: len };
    // SAFETY: the caller's buffer.
    length(unsafe { receive(connection, fd, target, 0) })
}

/// # Safety
/// As the C library's checked form of read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    buffer_len: size_t,
) -> ssize_t {
    if len > buffer_len {
        overflow();
    }
    // SAFETY: the caller's buffer.
    unsafe { read(fd, buffer, len) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> ssize_t {
    if user_tcp::get(fd).is_some() {
        // SAFETY: null or the caller's. A connected socket has no address to report.
        if let Some(address_len) = unsafe { address_len.as_mut() }.filter(|_| !address.is_null()) {
            *address_len = 0;
        }
        // SAFETY: the caller's buffer.
        return unsafe { recv(fd, buffer, len, flags) };
    }
    let Some(connection) = table::get(fd) else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { next::recvfrom(fd, buffer, len, flags, address, address_len) };
    };
    if address.is_null() {
        // SAFETY: the caller's buffer.
        return unsafe { recv(fd, buffer, len, flags) };
    }
    connection.give_up(fd);
    admission::lose(connection);
    if !pending(connection) {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { next::recvfrom(fd, buffer, len, flags, address, address_len) };
    }
    // SAFETY: null or the caller's. A connected socket has no address to report.
    if let Some(address_len) = unsafe { address_len.as_mut() } {
        *address_len = 0;
    }
    // SAFETY: the caller's buffer.
    unsafe { recv(fd, buffer, len, flags) }
}

/// # Safety
/// As the C library's checked form of recvfrom.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    buffer_len: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> ssize_t {
    if len > buffer_len {
        overflow();
    }
    // SAFETY: the caller's arguments.
    unsafe { recvfrom(fd, buffer, len, flags, address, address_len) }
}

fn pending(connection: &Connection) -> bool {
    connection.has_pending() && !process::is_child()
}

/// Reads into one part after the other while there are bytes.
///
/// # Safety
/// The list is valid for this many parts, and each part for writing; `receive` takes one with flags.
unsafe fn receive_parts(
    parts: *const iovec,
    count: usize,
    flags: c_int,
    receive: impl Fn(Target, c_int) -> Result<usize, c_int>,
) -> Result<usize, c_int> {
    let mut done = 0;
    for index in 0..count {
        // SAFETY: within the list by the caller's contract.
        let part = unsafe { &*parts.add(index) };
        if part.iov_len == 0 {
            continue;
        }
        let flags = if done == 0 { flags } else { flags | libc::MSG_DONTWAIT };
        let target = Target { address: part.iov_base.cast(), len_bytes: part.iov_len };
        match receive(target, flags) {
            Ok(len) => {
                done += len;
                if len < part.iov_len {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if let Some(socket) = user_tcp::get(fd) {
        let Ok(count @ 0..=1024) = usize::try_from(count) else { return length(Err(libc::EINVAL)) };
        // SAFETY: the caller's list, and its parts.
        return length(unsafe {
            receive_parts(parts, count, 0, |target, flags| {
                user_tcp::calls::receive(socket, target.bytes(), flags)
            })
        });
    }
    if let Some(connection) = table::get(fd) {
        connection.give_up(fd);
        admission::lose(connection);
        if let Ok(count @ 1..=1024) = usize::try_from(count)
            && pending(connection)
        {
            // SAFETY: the caller's list.
            return length(unsafe {
                receive_parts(parts, count, 0, |target, flags| receive(connection, fd, target, flags))
            });
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { next::readv(fd, parts, count) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if let Some(socket) = user_tcp::get(fd) {
        // SAFETY: null, or the caller's message.
        let Some(message) = (unsafe { message.as_mut() }) else { return length(Err(libc::EFAULT)) };
        // SAFETY: the caller's list, and its parts.
        let result = unsafe {
            receive_parts(message.msg_iov, message.msg_iovlen, flags, |target, flags| {
                user_tcp::calls::receive(socket, target.bytes(), flags)
            })
        };
        if result.is_ok() {
            (message.msg_namelen, message.msg_controllen, message.msg_flags) = (0, 0, 0);
        }
        return length(result);
    }
    if let Some(connection) = table::get(fd) {
        connection.give_up(fd);
        admission::lose(connection);
        // SAFETY: null, or the caller's message.
        if let Some(message) = unsafe { message.as_mut() }
            && pending(connection)
            && flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) == 0
        {
            // SAFETY: the caller's list.
            let result = unsafe {
                receive_parts(message.msg_iov, message.msg_iovlen, flags, |target, flags| {
                    receive(connection, fd, target, flags)
                })
            };
            if result.is_ok() {
                message.msg_namelen = 0;
                message.msg_controllen = 0;
                message.msg_flags = 0;
            }
            return length(result);
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { next::recvmsg(fd, message, flags) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if user_tcp::get(fd).is_some() {
        next::set_errno(libc::EOPNOTSUPP);
        return -1;
    }
    if let Some(connection) = table::get(fd) {
        connection.give_up(fd);
        admission::lose(connection);
        if pending(connection) && count > 0 && !messages.is_null() {
            // SAFETY: the first message, which the caller guarantees. One message is a valid answer, too.
            let first = unsafe { &mut *messages };
            // SAFETY: the caller's message.
            let len = unsafe { recvmsg(fd, &raw mut first.msg_hdr, flags) };
            first.msg_len = len.max(0) as c_uint;
            return if len < 0 { -1 } else { 1 };
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { next::recvmmsg(fd, messages, count, flags, timeout) }
}
