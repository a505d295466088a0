//! The next definitions of the functions this library hooks (see [`redoubt_interpose`]), and the calling thread's error
//! number.

use libc::{
    c_char, c_int, c_uint, c_ulong, c_void, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off64_t,
    pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};
pub use redoubt_interpose::{errno, set_errno};

redoubt_interpose::next_definitions! {
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
