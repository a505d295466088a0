//! send, write and their relatives: they block only where the server's flags allow it, and they record the server's
//! answers.

use crate::admission;
use crate::connection::{BLOCKING, Connection};
use crate::reading::{Target, honest, receive};
use crate::{next, table};
use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off64_t, size_t, sockaddr, socklen_t, ssize_t};
use redoubt_user_tcp as user_tcp;
use redoubt_user_tcp::socket::Socket;

/// Passes the sent bytes to admission, if that is on.
///
/// # Safety
/// The buffer has as many bytes as were sent.
unsafe fn sent(connection: Option<&'static Connection>, buffer: *const c_void, result: ssize_t) -> ssize_t {
    if let Some(connection) = connection.filter(|_| admission::is_on())
        && let Ok(len @ 1..) = usize::try_from(result)
    {
        let errno = next::errno();
        // SAFETY: by the caller's contract.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), len) };
        admission::sent(connection, bytes);
        next::set_errno(errno);
    }
    result
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    if let Some(socket) = user_tcp::get(fd) {
        // SAFETY: the caller's buffer.
        return super::length(unsafe { user_tcp::calls::send(socket, bytes(buffer, len), flags) });
    }
    let mut flags = flags;
    let connection = table::get(fd);
    if let Some(connection) = connection {
        flags = honest(connection, flags);
        connection.answered();
    }
    // SAFETY: the caller's buffer.
    unsafe { sent(connection, buffer, next::send(fd, buffer, len, flags)) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    if user_tcp::get(fd).is_some() {
        // SAFETY: the caller's buffer.
        return unsafe { send(fd, buffer, len, 0) };
    }
    let connection = table::get(fd);
    if let Some(connection) = connection {
        connection.answered();
        if connection.has(BLOCKING) {
            // SAFETY: the caller's buffer. On a socket this is write, but for the flag.
            return unsafe {
                sent(Some(connection), buffer, next::send(fd, buffer, len, libc::MSG_DONTWAIT))
            };
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { sent(connection, buffer, next::write(fd, buffer, len)) }
}

/// The bytes of a call's buffer.
///
/// # Safety
/// The buffer is the caller's until the slice is gone.
unsafe fn bytes<'call>(buffer: *const c_void, len: size_t) -> &'call [u8] {
    if buffer.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: by the caller's contract.
    unsafe { std::slice::from_raw_parts(buffer.cast(), len) }
}

/// Sends one part after the other while there is room.
///
/// # Safety
/// The list is valid for this many parts, and each part for reading.
unsafe fn send_parts(
    socket: &'static Socket,
    parts: *const iovec,
    count: usize,
    flags: c_int,
) -> Result<usize, c_int> {
    let mut done = 0;
    for index in 0..count {
        // SAFETY: by the caller's contract.
        let part = unsafe {
            let part = &*parts.add(index);
            bytes(part.iov_base, part.iov_len)
        };
        match user_tcp::calls::send(socket, part, flags) {
            Ok(len) => {
                done += len;
                if len < part.len() {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Leaves a connection to the kernel, for calls that no known server makes on one.
fn leave_alone(fd: c_int) {
    if let Some(connection) = table::get(fd) {
        connection.answered();
        connection.give_up(fd);
        admission::lose(connection);
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_len: socklen_t,
) -> ssize_t {
    if user_tcp::get(fd).is_some() {
        // SAFETY: the caller's buffer. A connected socket ignores the address.
        return unsafe { send(fd, buffer, len, flags) };
    }
    let mut flags = flags;
    let connection = table::get(fd);
    if let Some(connection) = connection {
        flags = honest(connection, flags);
        connection.answered();
    }
    // SAFETY: the caller's arguments.
    unsafe { sent(connection, buffer, next::sendto(fd, buffer, len, flags, address, address_len)) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if let Some(socket) = user_tcp::get(fd) {
        // SAFETY: null, or the caller's message.
        let Some(message) = (unsafe { message.as_ref() }) else { return super::length(Err(libc::EFAULT)) };
        // SAFETY: the caller's list.
        return super::length(unsafe { send_parts(socket, message.msg_iov, message.msg_iovlen, flags) });
    }
    let mut flags = flags;
    if let Some(connection) = table::get(fd) {
        flags = honest(connection, flags);
        connection.answered();
        admission::lose(connection);
    }
    // SAFETY: the caller's arguments.
    unsafe { next::sendmsg(fd, message, flags) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    leave_alone(fd);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { next::sendmmsg(fd, messages, count, flags) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if let Some(socket) = user_tcp::get(fd) {
        let Ok(count @ 0..=1024) = usize::try_from(count) else { return super::length(Err(libc::EINVAL)) };
        // SAFETY: the caller's list.
        return super::length(unsafe { send_parts(socket, parts, count, 0) });
    }
    leave_alone(fd);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { next::writev(fd, parts, count) }
}

macro_rules! sendfile_hooks {
    ($($name:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(to: c_int, from: c_int, offset: *mut off64_t, len: size_t) -> ssize_t {
            leave_alone(to);
            // SAFETY: the caller's arguments, unchanged.
            unsafe { next::sendfile(to, from, offset, len) }
        }
    )*};
}

sendfile_hooks!(sendfile, sendfile64);

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut off64_t,
    to: c_int,
    to_at: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    leave_alone(to);
    if let Some(connection) = table::get(from) {
        connection.give_up(from);
        if connection.has_pending() && !crate::process::is_child() && from_at.is_null() {
            let mut bytes = [0u8; 1];
            let target = Target { address: bytes.as_mut_ptr(), len_bytes: bytes.len().min(len) };
            // One byte at a time, each only when its predecessor is in the pipe: nothing is lost when that is full.
            // SAFETY: a buffer of this length.
            return match unsafe { receive(connection, from, target, libc::MSG_PEEK) } {
                // SAFETY: the byte, and the byte again.
                Ok(1) => unsafe {
                    let written = next::write(to, bytes.as_ptr().cast(), 1);
                    if written == 1 { super::length(receive(connection, from, target, 0)) } else { written }
                },
                other => super::length(other),
            };
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { next::splice(from, from_at, to, to_at, len, flags) }
}
