//! The next definitions of the functions this library hooks, found with `dlsym(RTLD_NEXT)` on first use, so that a hook
//! works even before this library's constructor; and the calling thread's error number.
//!
//! Nothing here takes a lock of this crate.

use libc::{
    c_char, c_int, c_uint, c_ulong, c_void, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off64_t,
    pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The calling thread's error number.
pub fn errno() -> c_int {
    // SAFETY: glibc's errno location is valid for the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's error number.
pub fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

fn next(slot: &AtomicPtr<c_void>, symbol: &CStr) -> *mut c_void {
    let known = slot.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: `symbol` is a NUL-terminated string; dlsym has no other requirement.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, symbol.as_ptr()) };
    slot.store(found, Ordering::Release);
    found
}

#[cold]
fn missing() -> ! {
    let text = b"[redoubt] the C library lacks a function of sockets; libredoubt_net.so does not work on this system\n";
    // SAFETY: a buffer of this length; abort has no requirement.
    unsafe {
        libc::syscall(libc::SYS_write, 2, text.as_ptr(), text.len());
        libc::abort()
    }
}

macro_rules! next {
    ($($name:ident $symbol:literal ($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {$(
        /// The next definition of this function.
        ///
        /// # Safety
        /// As the C function of this name.
        pub unsafe fn $name($($arg: $ty),*) -> $ret {
            static SLOT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let address = next(&SLOT, $symbol);
            if address.is_null() {
                missing();
            }
            // SAFETY: the address is that of the C function, which has this signature (a trailing variadic argument
            // is passed like a named one on the supported platforms).
            let function: unsafe extern "C" fn($($ty),*) -> $ret = unsafe { std::mem::transmute(address) };
            // SAFETY: the caller keeps the C function's contract.
            unsafe { function($($arg),*) }
        }
    )*};
}

next! {
    accept4 c"accept4" (fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    connect c"connect" (fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    listen c"listen" (fd: c_int, backlog: c_int) -> c_int;
    getpeername c"getpeername" (fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getsockname c"getsockname" (fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    close c"close" (fd: c_int) -> c_int;
    dup c"dup" (fd: c_int) -> c_int;
    dup2 c"dup2" (from: c_int, to: c_int) -> c_int;
    dup3 c"dup3" (from: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl c"fcntl" (fd: c_int, command: c_int, argument: usize) -> c_int;
    ioctl c"ioctl" (fd: c_int, request: c_ulong, argument: usize) -> c_int;
    fdopen c"fdopen" (fd: c_int, mode: *const c_char) -> *mut libc::FILE;
    recv c"recv" (fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    recvfrom c"recvfrom"
        (fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, address: *mut sockaddr, address_len: *mut socklen_t)
        -> ssize_t;
    recvmsg c"recvmsg" (fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    recvmmsg c"recvmmsg"
        (fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    read c"read" (fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t;
    readv c"readv" (fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    send c"send" (fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    sendto c"sendto"
        (fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, address: *const sockaddr, address_len: socklen_t)
        -> ssize_t;
    sendmsg c"sendmsg" (fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg c"sendmmsg" (fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    write c"write" (fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t;
    writev c"writev" (fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    sendfile c"sendfile64" (to: c_int, from: c_int, offset: *mut off64_t, len: size_t) -> ssize_t;
    splice c"splice"
        (from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: size_t, flags: c_uint) -> ssize_t;
    poll c"poll" (list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll c"ppoll"
        (list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    select c"select"
        (count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect c"pselect"
        (count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec,
         mask: *const sigset_t) -> c_int;
    epoll_ctl c"epoll_ctl" (set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    epoll_wait c"epoll_wait" (set: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int;
    epoll_pwait c"epoll_pwait"
        (set: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    epoll_pwait2 c"epoll_pwait2"
        (set: c_int, events: *mut epoll_event, count: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    shutdown c"shutdown" (fd: c_int, how: c_int) -> c_int;
    getsockopt c"getsockopt"
        (fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    setsockopt c"setsockopt"
        (fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    close_range c"close_range" (first: c_uint, last: c_uint, flags: c_int) -> c_int;
    closefrom c"closefrom" (first: c_int) -> ();
}
