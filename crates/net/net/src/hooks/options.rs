//! Settings of descriptors: fcntl, ioctl, socket options.

use super::descriptors::copied;
use crate::connection::{BLOCKING, CLOSE_ON_EXEC, Connection, NONBLOCK};
use crate::{next, process, table};
use libc::{c_int, c_ulong, c_void, socklen_t};
use redoubt_user_tcp as user_tcp;

fn set_nonblocking(connection: &Connection, fd: c_int, wanted: bool) {
    if wanted {
        connection.set(NONBLOCK);
    } else {
        // The following call gives the kernel's descriptor the requested state.
        connection.make_honest(fd);
        connection.clear(NONBLOCK);
    }
}

/// fcntl of a connection.
///
/// # Safety
/// As the C function.
pub unsafe fn fcntl_of(connection: &'static Connection, fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's arguments.
    let call = |argument: usize| unsafe { next::fcntl(fd, command, argument) };
    match command {
        libc::F_SETFL => {
            let flags = argument as c_int;
            let wanted = flags & libc::O_NONBLOCK != 0;
            if flags & libc::O_ASYNC != 0 {
                connection.give_up(fd);
            }
            set_nonblocking(connection, fd, wanted);
            // The kernel's descriptor stays blocking, if it was.
            let hidden = if wanted && connection.has(BLOCKING) { libc::O_NONBLOCK } else { 0 };
            call((flags & !hidden) as usize)
        }
        libc::F_GETFL => {
            let flags = call(argument);
            if flags >= 0 && connection.has(BLOCKING) { flags | libc::O_NONBLOCK } else { flags }
        }
        libc::F_SETFD => {
            let flags = argument as c_int;
            if flags & libc::FD_CLOEXEC == 0 {
                // Another program may be meant to continue with it.
                connection.give_up(fd);
            }
            let result = call(argument);
            if result == 0 && flags & libc::FD_CLOEXEC != 0 {
                connection.set(CLOSE_ON_EXEC);
            }
            result
        }
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(connection, fd, call(argument)),
        libc::F_SETOWN => {
            connection.give_up(fd);
            call(argument)
        }
        _ => call(argument),
    }
}

/// fcntl of other descriptors: the placeholder of a stack's connection keeps its flags, which are the connection's.
///
/// # Safety
/// As the C function.
pub unsafe fn fcntl_of_others(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { next::fcntl(fd, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        crate::bypass::duplicated(fd, result);
        user_tcp::sets::leave(fd);
    }
    if let Some(socket) = user_tcp::get(fd).filter(|_| result >= 0) {
        match command {
            libc::F_SETFL => socket.set_nonblocking(argument as c_int & libc::O_NONBLOCK != 0),
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => user_tcp::duplicated(socket, result),
            _ => {}
        }
    }
    result
}

/// The argument that is variadic in C is passed like a named one on the supported platforms.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    if let Some(socket) = user_tcp::get(fd) {
        // SAFETY: null, or the caller's int.
        let value = unsafe { (argument as *mut c_int).as_mut() };
        match (request, value) {
            (libc::FIONREAD, Some(len)) => {
                *len = c_int::try_from(user_tcp::calls::unread(socket)).unwrap_or(c_int::MAX);
                return 0;
            }
            (libc::FIONBIO, Some(wanted)) => socket.set_nonblocking(*wanted != 0),
            _ => {}
        }
    }
    let connection = table::get(fd);
    if let Some(connection) = connection
        && request == libc::FIONBIO
    {
        // SAFETY: null, or the caller's int.
        let wanted = unsafe { (argument as *const c_int).as_ref() }.is_some_and(|value| *value != 0);
        set_nonblocking(connection, fd, wanted);
        if wanted && connection.has(BLOCKING) {
            return 0;
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { next::ioctl(fd, request, argument) };
    if let Some(connection) = connection
        && request == libc::FIONREAD
        && result == 0
        && !process::is_child()
        && connection.has_pending()
        // SAFETY: the kernel has just written there.
        && let Some(len) = unsafe { (argument as *mut c_int).as_mut() }
    {
        let unread = connection.lock(fd).map_or(0, |mut locked| locked.reader().unread().len());
        *len = len.saturating_add(unread as c_int);
    }
    result
}

/// Socket options that do not affect reads.
const HARMLESS_OF_SOCKETS: [c_int; 9] = [
    libc::SO_KEEPALIVE,
    libc::SO_SNDBUF,
    libc::SO_RCVBUF,
    libc::SO_LINGER,
    libc::SO_SNDTIMEO,
    libc::SO_REUSEADDR,
    libc::SO_PRIORITY,
    libc::SO_MARK,
    libc::SO_BUSY_POLL,
];
const HARMLESS_OF_TCP: [c_int; 8] = [
    libc::TCP_NODELAY,
    libc::TCP_KEEPIDLE,
    libc::TCP_KEEPINTVL,
    libc::TCP_KEEPCNT,
    libc::TCP_USER_TIMEOUT,
    libc::TCP_QUICKACK,
    libc::TCP_CORK,
    libc::TCP_CONGESTION,
];

fn is_harmless(level: c_int, name: c_int) -> bool {
    match level {
        libc::SOL_SOCKET => HARMLESS_OF_SOCKETS.contains(&name),
        libc::IPPROTO_TCP => HARMLESS_OF_TCP.contains(&name),
        libc::IPPROTO_IP => name == libc::IP_TOS,
        libc::IPPROTO_IPV6 => name == libc::IPV6_TCLASS,
        _ => false,
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    if let Some(socket) = user_tcp::get(fd) {
        // SAFETY: null, or as long as `len`.
        return super::nothing(unsafe { user_tcp::options::set(socket, (level, name), value, len) });
    }
    if let Some(connection) = table::get(fd)
        && !is_harmless(level, name)
    {
        connection.give_up(fd);
        if level == libc::IPPROTO_TCP && name == libc::TCP_ULP && connection.has_pending() {
            // The kernel's TLS would not process the bytes read ahead. Callers work without it.
            next::set_errno(libc::ENOENT);
            return -1;
        }
    }
    let is_of_tcp = [libc::IPPROTO_TCP, libc::IPPROTO_IP, libc::IPPROTO_IPV6].contains(&level);
    if is_of_tcp && crate::bypass::is_exchanged(fd) {
        // The option has no effect on a unix socket.
        return 0;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { next::setsockopt(fd, level, name, value, len) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if let Some(socket) = user_tcp::get(fd) {
        // SAFETY: null, or as long as `len`.
        return super::nothing(unsafe { user_tcp::options::get(socket, (level, name), value, len) });
    }
    if let Some(connection) = table::get(fd)
        && level == libc::SOL_SOCKET
        && !process::is_child()
    {
        if name == libc::SO_RCVTIMEO {
            connection.give_up(fd);
        }
        if name == libc::SO_ERROR
            && connection.has_pending()
            && let Some(error) = connection.lock(fd).and_then(|mut locked| locked.take_error())
            && !value.is_null()
            // SAFETY: null or the caller's.
            && let Some(len) = unsafe { len.as_mut() }
            && *len >= size_of::<c_int>() as socklen_t
        {
            // SAFETY: not null, and the caller guarantees room for an int.
            unsafe { value.cast::<c_int>().write_unaligned(error) };
            *len = size_of::<c_int>() as socklen_t;
            return 0;
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { next::getsockopt(fd, level, name, value, len) }
}
