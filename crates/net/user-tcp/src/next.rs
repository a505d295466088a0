//! The next definitions of the functions that are hooked and called here (see [`redoubt_interpose`]), and the calling
//! thread's error number.

use libc::{
    c_int, c_ulong, c_void, epoll_event, nfds_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t,
    timespec,
};
pub use redoubt_interpose::{errno, set_errno};

redoubt_interpose::next_definitions! {
    getsockname c"getsockname" (fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    close c"close" (fd: c_int) -> c_int;
    fcntl c"fcntl" (fd: c_int, command: c_int, argument: usize) -> c_int;
    ioctl c"ioctl" (fd: c_int, request: c_ulong, argument: usize) -> c_int;
    read c"read" (fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t;
    sendto c"sendto"
        (fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, address: *const sockaddr, address_len: socklen_t)
        -> ssize_t;
    write c"write" (fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t;
    poll c"poll" (list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll c"ppoll"
        (list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    epoll_ctl c"epoll_ctl" (set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    getsockopt c"getsockopt"
        (fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    setsockopt c"setsockopt"
        (fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
}
