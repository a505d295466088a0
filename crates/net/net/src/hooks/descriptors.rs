//! Creation and end of connections: accept, close, copies of descriptors, and calls that pass them to others.

use crate::connection::{CLOSE_ON_EXEC, Connection, NONBLOCK};
use crate::{admission, control, next, process, sets, table};
use libc::{c_char, c_int, c_uint, c_void, sockaddr, socklen_t};
use redoubt_shm_control::net::Counter;
use redoubt_user_tcp as user_tcp;

fn is_stream(fd: c_int) -> bool {
    let mut kind: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: an int and its length.
    let result = unsafe {
        next::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast::<c_void>(), &raw mut len)
    };
    result == 0 && kind == libc::SOCK_STREAM
}

/// Intercepts a descriptor that was accepted from a listener.
fn accepted(listener: c_int, fd: c_int, flags: c_int) -> c_int {
    if fd < 0 || !process::is_active() {
        return fd;
    }
    // An entry of a descriptor that was closed without a hook.
    closed(fd);
    crate::bypass::server::accepted(listener, fd, flags);
    if is_stream(fd)
        && let Some(connection) = table::insert(fd)
    {
        let states = [(libc::SOCK_NONBLOCK, NONBLOCK), (libc::SOCK_CLOEXEC, CLOSE_ON_EXEC)]
            .map(|(flag, state)| if flags & flag == 0 { 0 } else { state });
        connection.set(states.into_iter().fold(0, |all, state| all | state));
        admission::opened(connection);
        control::count(connection.shard(), Counter::Connections, 1);
    }
    fd
}

/// A descriptor is about to be closed.
fn closed(fd: c_int) {
    crate::bypass::client::closed(fd);
    user_tcp::closed(fd);
    if process::is_child() {
        // The pool's lock may have been held by a thread that does not exist in the child.
        table::forget(fd);
        return;
    }
    sets::closed(fd);
    if let Some(connection) = table::get(fd) {
        admission::closed(connection);
    }
    if table::remove(fd) {
        control::count(fd.unsigned_abs() as usize, Counter::Closed, 1);
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { accept_any(fd, address, len, flags) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the caller's arguments. Without flags both are one call.
    unsafe { accept_any(fd, address, len, 0) }
}

/// A waiting connection of a stack, or the kernel's.
///
/// # Safety
/// As accept4.
unsafe fn accept_any(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    if user_tcp::waits::is_shadowed(fd) {
        user_tcp::waits::before_accept(fd);
        // SAFETY: the caller's pointers.
        match unsafe { user_tcp::accept(fd, address, len, flags) } {
            Some(Ok(fd)) => return fd,
            Some(Err(error)) => {
                next::set_errno(error);
                return -1;
            }
            None => {}
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    let mut new = unsafe { next::accept4(fd, address, len, flags) };
    if new < 0 && matches!(next::errno(), libc::EMFILE | libc::ENFILE) && process::is_active() {
        let errno = next::errno();
        if crate::bypass::server::give_way() {
            // SAFETY: as before.
            new = unsafe { next::accept4(fd, address, len, flags) };
        } else {
            next::set_errno(errno);
        }
    }
    accepted(fd, new, flags)
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    // Before: the number may be used again at once.
    closed(fd);
    // SAFETY: the caller's argument.
    unsafe { next::close(fd) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if let Some(socket) = user_tcp::get(fd) {
        return super::nothing(user_tcp::calls::shutdown(socket, how));
    }
    // SAFETY: no pointers.
    let result = unsafe { next::shutdown(fd, how) };
    if let Some(connection) = table::get(fd).filter(|_| !process::is_child()) {
        let errno = next::errno();
        admission::shut_down(connection);
        next::set_errno(errno);
    }
    result
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOSE_RANGE_CLOEXEC: c_int = 4;
    if flags & CLOSE_RANGE_CLOEXEC == 0 {
        let range = first as usize..=last as usize;
        user_tcp::in_range(range.clone()).for_each(closed);
        table::in_range(range).for_each(closed);
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { next::close_range(first, last, flags) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    let range = usize::try_from(first).unwrap_or(0)..=usize::MAX;
    user_tcp::in_range(range.clone()).for_each(closed);
    table::in_range(range).for_each(closed);
    // SAFETY: the caller's argument.
    unsafe { next::closefrom(first) }
}

/// A stream of the C library reads and closes without the hooks.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE {
    if let Some(connection) = table::get(fd) {
        connection.give_up(fd);
        admission::lose(connection);
        if !connection.has_pending() {
            closed(fd);
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { next::fdopen(fd, mode) }
}

/// Both are the same connection, left to the kernel.
fn duplicated(connection: Option<&'static Connection>, from: c_int, copy: c_int) -> c_int {
    crate::bypass::duplicated(from, copy);
    if copy >= 0 && copy != from {
        user_tcp::sets::leave(from);
    }
    if let Some(socket) = user_tcp::get(from).filter(|_| copy != from) {
        user_tcp::duplicated(socket, copy);
    }
    if let Some(connection) = connection.filter(|_| copy >= 0 && copy != from) {
        connection.give_up(from);
        admission::lose(connection);
        table::share(copy, connection);
    }
    copy
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: no pointers.
    duplicated(table::get(fd), fd, unsafe { next::dup(fd) })
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    let connection = table::get(from);
    if from != to && is_open(from) {
        closed(to);
    }
    // SAFETY: no pointers.
    duplicated(connection, from, unsafe { next::dup2(from, to) })
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    let connection = table::get(from);
    if from != to && is_open(from) {
        closed(to);
    }
    // SAFETY: no pointers.
    duplicated(connection, from, unsafe { next::dup3(from, to, flags) })
}

/// A copy of a descriptor that is not open fails and leaves the other as it is.
fn is_open(fd: c_int) -> bool {
    // SAFETY: no pointers.
    unsafe { next::fcntl(fd, libc::F_GETFD, 0) >= 0 }
}

macro_rules! fcntl_hooks {
    ($($name:ident),*) => {$(
        /// The argument that is variadic in C is passed like a named one on the supported platforms.
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, command: c_int, argument: usize) -> c_int {
            match table::get(fd) {
                // SAFETY: the caller's arguments.
                Some(connection) => unsafe { super::options::fcntl_of(connection, fd, command, argument) },
                // SAFETY: the caller's arguments, unchanged.
                None => unsafe { super::options::fcntl_of_others(fd, command, argument) },
            }
        }
    )*};
}

fcntl_hooks!(fcntl, fcntl64);

/// A copy made by fcntl.
pub fn copied(connection: &'static Connection, fd: c_int, copy: c_int) -> c_int {
    duplicated(Some(connection), fd, copy)
}
