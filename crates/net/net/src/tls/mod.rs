//! Plaintext of a server with OpenSSL: admission receives the bytes inside TLS.
//!
//! The functions here replace those that the server's program imports ([`imports`]); calls of other modules do not come
//! here, and nothing here is called in clients. Without a limit of admission they cost a load. OpenSSL's own reads and
//! writes of the socket pass the other hooks, as bytes without meaning.
//!
//! Invariants: after the call of the real function no function of OpenSSL is called, and the thread's error number is
//! left as it is: the server examines both for the result. No lock is held while the real function runs.

mod imports;

use crate::connection::Connection;
use crate::{admission, next, table};
use imports::Import;
use libc::{c_int, c_void, size_t};
use std::ffi::CStr;
use std::sync::OnceLock;

/// OpenSSL's `SSL`.
pub type Ssl = c_void;

/// SSL_get_error: nothing more can be read at present.
const WANT_READ: c_int = 2;

type Read = unsafe extern "C" fn(*mut Ssl, *mut c_void, c_int) -> c_int;
type Write = unsafe extern "C" fn(*mut Ssl, *const c_void, c_int) -> c_int;
type ReadEx = unsafe extern "C" fn(*mut Ssl, *mut c_void, size_t, *mut size_t) -> c_int;
type WriteEx = unsafe extern "C" fn(*mut Ssl, *const c_void, size_t, *mut size_t) -> c_int;
type Ask = unsafe extern "C" fn(*mut Ssl) -> c_int;
type AskWith = unsafe extern "C" fn(*mut Ssl, c_int) -> c_int;

/// The functions of the server's OpenSSL.
struct Functions {
    accept: Ask,
    read: Read,
    write: Write,
    read_ex: ReadEx,
    write_ex: WriteEx,
    peek: Read,
    get_rfd: Ask,
    pending: Ask,
    get_error: AskWith,
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

fn find<T: Copy>(name: &CStr) -> Option<T> {
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
    // SAFETY: a NUL-terminated string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: as large as an address, and the function of this name has this type.
    (!address.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, T>(&address) })
}

fn find_all() -> Option<Functions> {
    Some(Functions {
        accept: find(c"SSL_accept")?,
        read: find(c"SSL_read")?,
        write: find(c"SSL_write")?,
        read_ex: find(c"SSL_read_ex")?,
        write_ex: find(c"SSL_write_ex")?,
        peek: find(c"SSL_peek")?,
        get_rfd: find(c"SSL_get_rfd")?,
        pending: find(c"SSL_pending")?,
        get_error: find(c"SSL_get_error")?,
    })
}

/// In a server, before `main`. Without OpenSSL as a shared library, nothing happens.
pub fn activate() {
    let Some(functions) = find_all() else { return };
    FUNCTIONS.get_or_init(|| functions);
    let import = |name, replacement| Import { name, replacement };
    imports::replace(&[
        import(c"SSL_accept", accept as Ask as *mut c_void),
        import(c"SSL_read", read as Read as *mut c_void),
        import(c"SSL_write", write as Write as *mut c_void),
        import(c"SSL_read_ex", read_ex as ReadEx as *mut c_void),
        import(c"SSL_write_ex", write_ex as WriteEx as *mut c_void),
    ]);
}

/// The real functions. They are set before any of the others is called.
fn real() -> &'static Functions {
    match FUNCTIONS.get() {
        Some(functions) => functions,
        None => std::process::abort(),
    }
}

/// The connection, if admission follows it.
///
/// # Safety
/// The caller's `ssl` is valid.
unsafe fn followed(ssl: *mut Ssl) -> Option<&'static Connection> {
    if !admission::is_on() || ssl.is_null() {
        return None;
    }
    // SAFETY: by the caller's contract.
    let connection = table::get(unsafe { (real().get_rfd)(ssl) })?;
    admission::tls::begins(connection);
    Some(connection)
}

unsafe extern "C" fn accept(ssl: *mut Ssl) -> c_int {
    // SAFETY: the caller's argument.
    unsafe {
        followed(ssl);
        (real().accept)(ssl)
    }
}

/// Performs a read; `call` returns the function's result, and the number of bytes read.
///
/// # Safety
/// The caller's arguments; `call` is the real function with them.
unsafe fn read_with(
    ssl: *mut Ssl,
    buffer: *mut c_void,
    len: usize,
    call: impl FnOnce() -> (c_int, Option<usize>),
) -> c_int {
    // SAFETY: by the caller's contract.
    let Some(connection) = (unsafe { followed(ssl) }) else { return call().0 };
    // SAFETY: as before.
    let is_empty = unsafe { (real().pending)(ssl) } == 0;
    admission::tls::before_read(connection, len, is_empty);
    let (result, read) = call();
    let errno = next::errno();
    // SAFETY: that many bytes were just written there.
    let bytes = read.map(|len| unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), len) });
    admission::tls::after_read(connection, ssl, bytes);
    next::set_errno(errno);
    result
}

unsafe extern "C" fn read(ssl: *mut Ssl, buffer: *mut c_void, len: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        read_with(ssl, buffer, usize::try_from(len).unwrap_or(0), || {
            let result = (real().read)(ssl, buffer, len);
            (result, usize::try_from(result).ok().filter(|len| *len > 0))
        })
    }
}

unsafe extern "C" fn read_ex(ssl: *mut Ssl, buffer: *mut c_void, len: size_t, done: *mut size_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        read_with(ssl, buffer, len, || {
            let result = (real().read_ex)(ssl, buffer, len, done);
            (result, done.as_ref().copied().filter(|_| result == 1))
        })
    }
}

/// # Safety
/// As [`read_with`].
unsafe fn write_with(
    ssl: *mut Ssl,
    buffer: *const c_void,
    call: impl FnOnce() -> (c_int, Option<usize>),
) -> c_int {
    // SAFETY: by the caller's contract.
    let Some(connection) = (unsafe { followed(ssl) }) else { return call().0 };
    let (result, written) = call();
    if let Some(len) = written {
        let errno = next::errno();
        // SAFETY: the real function has just read that many bytes there.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), len) };
        admission::tls::sent(connection, bytes);
        next::set_errno(errno);
    }
    result
}

unsafe extern "C" fn write(ssl: *mut Ssl, buffer: *const c_void, len: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        write_with(ssl, buffer, || {
            let result = (real().write)(ssl, buffer, len);
            (result, usize::try_from(result).ok().filter(|len| *len > 0))
        })
    }
}

unsafe extern "C" fn write_ex(ssl: *mut Ssl, buffer: *const c_void, len: size_t, done: *mut size_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        write_with(ssl, buffer, || {
            let result = (real().write_ex)(ssl, buffer, len, done);
            (result, done.as_ref().copied().filter(|_| result == 1))
        })
    }
}

/// Peeks at the next plaintext of a connection whose thread waits after a read that would have blocked; 0: the
/// connection has ended. `None`: the received bytes are not enough for any plaintext.
///
/// # Safety
/// It is valid, and this thread's.
pub unsafe fn peek(ssl: *mut Ssl, space: &mut [u8]) -> Option<usize> {
    // SAFETY: a buffer of this length; the connection by the caller's contract.
    let result = unsafe { (real().peek)(ssl, space.as_mut_ptr().cast(), space.len() as c_int) };
    match usize::try_from(result) {
        Ok(len @ 1..) => Some(len),
        // SAFETY: as before, right after the call that is asked about.
        _ if unsafe { (real().get_error)(ssl, result) } == WANT_READ => None,
        _ => Some(0),
    }
}
