//! The calls that are hooked: one function per symbol of the C library, with its arguments.
//!
//! A variadic `mode` is passed on like a named argument, which is the same on the supported platforms.

use crate::control;
use crate::inject::{Action, on_descriptor, on_path};
use crate::next::set_errno;
use crate::plan::Call;
use libc::{c_char, c_int, c_uint, c_void, mode_t, off64_t, size_t, sockaddr, socklen_t, ssize_t};
use redoubt_interpose::Next;
use std::ptr::NonNull;

extern "C" fn load() {
    control::activate();
}

// SAFETY: a list of function pointers is what this section holds; the function takes no arguments it uses.
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

/// Defines hooks. `$what` is an [`Action`] made of the arguments; `$pretended` what a call
/// returns that pretends; `$short` the argument that is made smaller.
macro_rules! hooks {
    ($($name:ident $symbol:literal ($($arg:ident: $ty:ty),*) -> $ret:ty,
        $what:expr, $pretended:expr $(, $short:ident)?;)*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            static NEXT: Next = Next::new();
            type Function = unsafe extern "C" fn($($ty),*) -> $ret;
            // SAFETY: the address is that of the C function, which has this signature.
            let function = unsafe { std::mem::transmute::<NonNull<c_void>, Function>(NEXT.require($symbol)) };
            let action = $what;
            match action {
                Action::Fail(errno) => {
                    set_errno(errno);
                    return -1;
                }
                Action::Pretend => return $pretended,
                _ => {}
            }
            $(let $short = match action {
                Action::Shorten(len) => len as _,
                _ => $short,
            };)?
            // SAFETY: the caller's arguments, or a length that is not longer.
            unsafe { function($($arg),*) }
        }
    )*};
}

hooks! {
    read c"read" (fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t,
        on_descriptor(Call::Read, fd, Some(len)), 0, len;
    pread c"pread" (fd: c_int, buffer: *mut c_void, len: size_t, offset: off64_t) -> ssize_t,
        on_descriptor(Call::Read, fd, Some(len)), 0, len;
    pread64 c"pread64" (fd: c_int, buffer: *mut c_void, len: size_t, offset: off64_t) -> ssize_t,
        on_descriptor(Call::Read, fd, Some(len)), 0, len;
    readv c"readv" (fd: c_int, parts: *const libc::iovec, count: c_int) -> ssize_t,
        on_vector(Call::Read, fd, count), 0, count;
    preadv c"preadv" (fd: c_int, parts: *const libc::iovec, count: c_int, offset: off64_t) -> ssize_t,
        on_vector(Call::Read, fd, count), 0, count;
    preadv64 c"preadv64" (fd: c_int, parts: *const libc::iovec, count: c_int, offset: off64_t) -> ssize_t,
        on_vector(Call::Read, fd, count), 0, count;
    preadv2 c"preadv2"
        (fd: c_int, parts: *const libc::iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t,
        on_descriptor(Call::Read, fd, None), 0;
    preadv64v2 c"preadv64v2"
        (fd: c_int, parts: *const libc::iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t,
        on_descriptor(Call::Read, fd, None), 0;
    write c"write" (fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t,
        on_descriptor(Call::Write, fd, Some(len)), len as ssize_t, len;
    pwrite c"pwrite" (fd: c_int, buffer: *const c_void, len: size_t, offset: off64_t) -> ssize_t,
        on_descriptor(Call::Write, fd, Some(len)), len as ssize_t, len;
    pwrite64 c"pwrite64" (fd: c_int, buffer: *const c_void, len: size_t, offset: off64_t) -> ssize_t,
        on_descriptor(Call::Write, fd, Some(len)), len as ssize_t, len;
    fsync c"fsync" (fd: c_int) -> c_int, on_descriptor(Call::Sync, fd, None), 0;
    fdatasync c"fdatasync" (fd: c_int) -> c_int, on_descriptor(Call::Sync, fd, None), 0;
    fallocate c"fallocate" (fd: c_int, mode: c_int, offset: off64_t, len: off64_t) -> c_int,
        on_descriptor(Call::Allocate, fd, None), 0;
    fallocate64 c"fallocate64" (fd: c_int, mode: c_int, offset: off64_t, len: off64_t) -> c_int,
        on_descriptor(Call::Allocate, fd, None), 0;
    ftruncate c"ftruncate" (fd: c_int, len: off64_t) -> c_int, on_descriptor(Call::Truncate, fd, None), 0;
    ftruncate64 c"ftruncate64" (fd: c_int, len: off64_t) -> c_int, on_descriptor(Call::Truncate, fd, None), 0;
    recv c"recv" (fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t,
        on_descriptor(Call::Receive, fd, Some(len)), 0, len;
    recvfrom c"recvfrom"
        (fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, peer: *mut sockaddr, peer_len: *mut socklen_t)
        -> ssize_t,
        on_stream_descriptor(Call::Receive, fd, len), 0, len;
    recvmsg c"recvmsg" (fd: c_int, message: *mut libc::msghdr, flags: c_int) -> ssize_t,
        on_descriptor(Call::Receive, fd, None), 0;
    send c"send" (fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t,
        on_descriptor(Call::Send, fd, Some(len)), len as ssize_t, len;
    sendmsg c"sendmsg" (fd: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t,
        on_descriptor(Call::Send, fd, None), 0;
    connect c"connect" (fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int,
        on_descriptor(Call::Connect, fd, None), 0;
    accept c"accept" (fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int,
        on_descriptor(Call::Accept, fd, None), -1;
    accept4 c"accept4" (fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int,
        on_descriptor(Call::Accept, fd, None), -1;
}

macro_rules! path_hooks {
    ($($call:ident: $name:ident $symbol:literal [$($before:ident: $before_ty:ty),*] path
        [$($after:ident: $after_ty:ty),*];)*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($before: $before_ty,)* path: *const c_char $(, $after: $after_ty)*
        ) -> c_int {
            static NEXT: Next = Next::new();
            type Function = unsafe extern "C" fn($($before_ty,)* *const c_char $(, $after_ty)*) -> c_int;
            // SAFETY: the address is that of the C function, which has this signature.
            let function = unsafe { std::mem::transmute::<NonNull<c_void>, Function>(NEXT.require($symbol)) };
            // SAFETY: the path is the caller's, as the C function wants it.
            if let Action::Fail(errno) = unsafe { on_path(Call::$call, path) } {
                set_errno(errno);
                return -1;
            }
            // SAFETY: the caller's arguments, unchanged.
            unsafe { function($($before,)* path $(, $after)*) }
        }
    )*};
}

path_hooks! {
    Open: open c"open" [] path [flags: c_int, mode: mode_t];
    Open: open64 c"open64" [] path [flags: c_int, mode: mode_t];
    Open: openat c"openat" [dir: c_int] path [flags: c_int, mode: mode_t];
    Open: openat64 c"openat64" [dir: c_int] path [flags: c_int, mode: mode_t];
    Rename: rename c"rename" [] path [to: *const c_char];
    Rename: renameat c"renameat" [dir: c_int] path [to_dir: c_int, to: *const c_char];
    Rename: renameat2 c"renameat2" [dir: c_int] path [to_dir: c_int, to: *const c_char, flags: c_uint];
    Unlink: unlink c"unlink" [] path [];
    Unlink: unlinkat c"unlinkat" [dir: c_int] path [flags: c_int];
    Unlink: remove c"remove" [] path [];
}

macro_rules! vector_write_hooks {
    ($($name:ident $symbol:literal ($($arg:ident: $ty:ty),*);)*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            fd: c_int, parts: *const libc::iovec, count: c_int $(, $arg: $ty)*
        ) -> ssize_t {
            static NEXT: Next = Next::new();
            type Function = unsafe extern "C" fn(c_int, *const libc::iovec, c_int $(, $ty)*) -> ssize_t;
            // SAFETY: the address is that of the C function, which has this signature.
            let function = unsafe { std::mem::transmute::<NonNull<c_void>, Function>(NEXT.require($symbol)) };
            let mut count = count;
            // A write with flags may have to stay in one piece.
            let cut = if stringify!($($arg)*).contains("flags") { -1 } else { count };
            match on_vector(Call::Write, fd, cut) {
                Action::Fail(errno) => {
                    set_errno(errno);
                    return -1;
                }
                // SAFETY: the list is the caller's, as the C function wants it.
                Action::Pretend => return unsafe { total(parts, count) },
                Action::Shorten(len) => count = len as c_int,
                Action::Pass => {}
            }
            // SAFETY: the caller's arguments, and a number of parts that is not larger.
            unsafe { function(fd, parts, count $(, $arg)*) }
        }
    )*};
}

vector_write_hooks! {
    writev c"writev" ();
    pwritev c"pwritev" (offset: off64_t);
    pwritev64 c"pwritev64" (offset: off64_t);
    pwritev2 c"pwritev2" (offset: off64_t, flags: c_int);
    pwritev64v2 c"pwritev64v2" (offset: off64_t, flags: c_int);
}

macro_rules! posix_fallocate_hooks {
    ($($name:ident $symbol:literal),*) => {$(
        /// Returns its error instead of setting the error number.
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, offset: off64_t, len: off64_t) -> c_int {
            static NEXT: Next = Next::new();
            type Function = unsafe extern "C" fn(c_int, off64_t, off64_t) -> c_int;
            // SAFETY: the address is that of the C function, which has this signature.
            let function = unsafe { std::mem::transmute::<NonNull<c_void>, Function>(NEXT.require($symbol)) };
            match on_descriptor(Call::Allocate, fd, None) {
                Action::Fail(errno) => errno,
                // SAFETY: the caller's arguments, unchanged.
                _ => unsafe { function(fd, offset, len) },
            }
        }
    )*};
}

posix_fallocate_hooks!(posix_fallocate c"posix_fallocate", posix_fallocate64 c"posix_fallocate64");

/// A vector is cut between its parts: what is shortened is their number.
fn on_vector(call: Call, fd: c_int, count: c_int) -> Action {
    on_descriptor(call, fd, usize::try_from(count).ok())
}

/// A datagram that is cut is lost; only a stream continues.
fn on_stream_descriptor(call: Call, fd: c_int, len: size_t) -> Action {
    let is_stream = crate::next::socket_option(fd, libc::SO_TYPE) == Some(libc::SOCK_STREAM);
    on_descriptor(call, fd, is_stream.then_some(len))
}

/// Bytes of all parts.
///
/// # Safety
/// `parts` is valid for `count` entries.
unsafe fn total(parts: *const libc::iovec, count: c_int) -> ssize_t {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: valid for `count` entries by the caller's contract.
    (0..count).map(|index| unsafe { (*parts.add(index)).iov_len as ssize_t }).sum()
}
