//! Parts of preloaded libraries: the next definition of a function that a library hooks, found with `dlsym(RTLD_NEXT)`,
//! a table by descriptor ([`Descriptors`]), and socket addresses of callers ([`Address`]).
//!
//! A preloaded library defines functions of the C library and calls the next definition of each. That is the one of
//! another preloaded library, or of the C library.
//!
//! [`next_definitions!`] and [`optional_next_definitions!`] make one Rust function for each symbol. [`Next`] is the
//! address they keep.
//!
//! Each symbol is looked up on first use, so that a hook works even when it is called before the constructor of its
//! library. The look-up takes no lock and does not allocate. A missing required symbol ends the process with a message: the
//! library has nothing right to return.

mod address;
mod descriptors;

pub use address::Address;
pub use descriptors::Descriptors;

use libc::{c_int, c_void};
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The calling thread's error number.
#[inline]
pub fn errno() -> c_int {
    // SAFETY: glibc's errno location is valid for the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's error number.
#[inline]
pub fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// Address of the next definition of one symbol, kept once it is found.
#[derive(Debug)]
pub struct Next(AtomicPtr<c_void>);

impl Next {
    /// Not looked up yet.
    #[allow(clippy::new_without_default, reason = "it is for statics only")]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The address of the next definition of `symbol`. Every call on one value must name the same symbol. A symbol that
    /// the process does not have is looked up again by every call.
    #[inline]
    pub fn find(&self, symbol: &CStr) -> Option<NonNull<c_void>> {
        NonNull::new(self.0.load(Ordering::Acquire)).or_else(|| self.look_up(symbol))
    }

    /// As [`Next::find`]. Aborts with a message on standard error if the process does not have the symbol.
    #[inline]
    pub fn require(&self, symbol: &CStr) -> NonNull<c_void> {
        match self.find(symbol) {
            Some(address) => address,
            None => abort_without(symbol),
        }
    }

    #[cold]
    fn look_up(&self, symbol: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: `symbol` is a NUL-terminated string; dlsym has no other requirement.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, symbol.as_ptr()) };
        self.0.store(found, Ordering::Release);
        NonNull::new(found)
    }
}

#[cold]
fn abort_without(symbol: &CStr) -> ! {
    report_missing(libc::STDERR_FILENO, symbol);
    // SAFETY: abort has no requirement.
    unsafe { libc::abort() }
}

/// Writes by system call: the C library's `write` may be the symbol that is missing, or hooked.
fn report_missing(fd: c_int, symbol: &CStr) {
    let parts: [&[u8]; 3] =
        [b"[redoubt] the C library has no function ", symbol.to_bytes(), b"; this system is not supported\n"];
    for part in parts {
        // SAFETY: the slice is valid for its length.
        unsafe { libc::syscall(libc::SYS_write, fd, part.as_ptr(), part.len()) };
    }
}

/// Defines a function for each next definition that the process must have:
/// `name c"symbol" (argument: type, ...) -> type;`.
///
/// The signature must be that of the C function. A trailing variadic argument is passed like a named one, which is the
/// same on the supported platforms.
#[macro_export]
macro_rules! next_definitions {
    ($($name:ident $symbol:literal ($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {$(
        /// The next definition of this function.
        ///
        /// # Safety
        /// As the C function of this name.
        pub unsafe fn $name($($arg: $ty),*) -> $ret {
            static NEXT: $crate::Next = $crate::Next::new();
            let address = NEXT.require($symbol);
            // SAFETY: the address is that of the C function, which has this signature.
            let function: unsafe extern "C" fn($($ty),*) -> $ret = unsafe { ::std::mem::transmute(address) };
            // SAFETY: the caller keeps the C function's contract.
            unsafe { function($($arg),*) }
        }
    )*};
}

/// As [`next_definitions!`], for functions that the process may not have: they return `None` then.
#[macro_export]
macro_rules! optional_next_definitions {
    ($($name:ident $symbol:literal ($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {$(
        /// The next definition of this function, if the process has one.
        ///
        /// # Safety
        /// As the C function of this name.
        pub unsafe fn $name($($arg: $ty),*) -> Option<$ret> {
            static NEXT: $crate::Next = $crate::Next::new();
            let address = NEXT.find($symbol)?;
            // SAFETY: the address is that of the C function, which has this signature.
            let function: unsafe extern "C" fn($($ty),*) -> $ret = unsafe { ::std::mem::transmute(address) };
            // SAFETY: the caller keeps the C function's contract.
            Some(unsafe { function($($arg),*) })
        }
    )*};
}

#[cfg(test)]
mod tests;
