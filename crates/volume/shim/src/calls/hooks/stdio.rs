//! stdio streams that are opened for writing: their output is sent when they are flushed or closed
//! ([`crate::kinds::written_stream`]).

use super::{bytes, status};
use crate::base::message::{self, show};
use crate::base::real::{self, Errno};
use crate::calls::files;
use crate::calls::library::Library;
use crate::calls::process::{active, tracked};
use crate::calls::target::{OpenFile, Target};
use crate::kinds::plain;
use crate::kinds::tablespace::export;
use crate::kinds::written_stream::{Growth, WrittenStream};
use libc::{FILE, c_char, c_int, c_long, c_void, off64_t};
use redoubt_locks::IgnorePoison;
use std::sync::Arc;

/// The replicated path of a call and where it will write, if any.
///
/// # Safety
/// Both arguments are null or NUL-terminated.
unsafe fn target(
    library: &'static Library,
    path: *const c_char,
    mode: *const c_char,
) -> Result<Option<(Vec<u8>, Growth)>, Errno> {
    // SAFETY: the caller's contract.
    let (path, mode) = unsafe { (bytes(path), bytes(mode)) };
    let Some(growth) = Growth::of_mode(mode).filter(|_| !path.is_empty()) else { return Ok(None) };
    Ok(files::stdio_target(library, path)?.map(|path| (path, growth)))
}

/// Opens a stream by `local`, and follows it and its descriptor. No name changes meanwhile.
fn open(
    library: &'static Library,
    (path, growth): (Vec<u8>, Growth),
    local: impl FnOnce() -> *mut FILE,
) -> Result<*mut FILE, Errno> {
    let _lock = library.content.names.lock_exclusive();
    let file = local();
    if file.is_null() {
        return Err(Errno::last());
    }
    let plain = plain::known(&library.content, &library.plain, &path);
    // SAFETY: the stream was just opened.
    let fd = unsafe { libc::fileno(file) };
    // A server writes to its standard error from handlers of signals, which must not wait for a lock.
    let is_followed = fd > libc::STDERR_FILENO;
    if is_followed && !files::track_opened(library, fd, Target::Plain(Arc::clone(&plain)), growth.flags()) {
        // SAFETY: the stream has no other user yet.
        unsafe { real::fclose(file) };
        return Err(Errno(libc::EMFILE));
    }
    let stream = Arc::new(WrittenStream::new(plain, growth));
    library.stdio.lock().ignore_poison().push((file as usize, stream));
    Ok(file)
}

/// A stream that is about to be closed, and its descriptor, are followed no more. The result finishes the work afterwards.
fn forget(library: &'static Library, file: *mut FILE) -> Closing {
    // SAFETY: the caller of the hook has an open stream.
    let fd = unsafe { libc::fileno(file) };
    let mut list = library.stdio.lock().ignore_poison();
    let at = list.iter().position(|(address, _)| *address == file as usize);
    let stream = at.map(|at| list.swap_remove(at).1);
    Closing { library, stream, open: library.fds.remove(fd) }
}

/// A stream that is closed.
struct Closing {
    library: &'static Library,
    stream: Option<Arc<WrittenStream>>,
    open: Option<Arc<OpenFile>>,
}

impl Closing {
    /// After the local call. `is_closed`: it succeeded.
    fn finish(self, is_closed: bool) -> Result<(), Errno> {
        let Self { library, stream, open } = self;
        let Some(stream) = stream else {
            if let Some(open) = open {
                files::closed(library, open);
            }
            return Ok(());
        };
        let lock = library.content.names.lock_shared();
        let path = stream.file().name.path(&lock);
        let sent = if is_closed { stream.closed(&library.content, &lock) } else { Ok(()) };
        drop(lock);
        if let Err(errno) = sent {
            report(library, &stream, errno);
        }
        drop(stream);
        if let Some(open) = open {
            files::closed(library, open);
        }
        sent?;
        match path.filter(|_| is_closed) {
            Some(path) => export::metadata_written(&library.content, &library.tablespaces, &path),
            None => Ok(()),
        }
    }
}

fn known(library: &Library, file: *mut FILE) -> Vec<Arc<WrittenStream>> {
    let list = library.stdio.lock().ignore_poison();
    let of_call = list.iter().filter(|(address, _)| file.is_null() || *address == file as usize);
    of_call.map(|(_, stream)| Arc::clone(stream)).collect()
}

fn report(library: &Library, stream: &WrittenStream, errno: Errno) {
    let lock = library.content.names.lock_shared();
    let name = stream.file().name.path(&lock).map_or_else(|| "a removed file".to_owned(), |path| show(&path));
    drop(lock);
    message::error(&format!("{name} cannot be sent to the storage node: {errno}"));
}

fn flushed(library: &Library, stream: &WrittenStream) -> Result<(), Errno> {
    let lock = library.content.names.lock_shared();
    let sent = stream.flushed(&library.content, &lock);
    drop(lock);
    sent.inspect_err(|errno| report(library, stream, *errno))
}

fn opened(result: Result<*mut FILE, Errno>) -> *mut FILE {
    result.unwrap_or_else(|errno| {
        errno.set();
        std::ptr::null_mut()
    })
}

macro_rules! fopen_hooks {
    ($($name:ident $again:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            // SAFETY: the caller's arguments, unchanged.
            let local = || unsafe { real::fopen64(path, mode) };
            let Some(library) = active() else { return local() };
            // SAFETY: the caller passes NUL-terminated strings.
            match unsafe { target(library, path, mode) } {
                Ok(None) => local(),
                Ok(Some(target)) => opened(open(library, target, local)),
                Err(errno) => opened(Err(errno)),
            }
        }

        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $again(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
            // SAFETY: the caller's arguments, unchanged.
            let local = || unsafe { real::freopen64(path, mode, file) };
            let Some(library) = active() else { return local() };
            // SAFETY: the caller passes null or NUL-terminated strings.
            let target = match unsafe { target(library, path, mode) } {
                Ok(target) => target,
                Err(errno) => return opened(Err(errno)),
            };
            let closing = forget(library, file);
            let result = match target {
                None => local(),
                Some(target) => opened(open(library, target, local)),
            };
            // The stream was closed before it was opened again, also if that failed. An error has been reported.
            let errno = Errno::last();
            let _ = closing.finish(true);
            errno.set();
            result
        }
    )*};
}

fopen_hooks!(fopen freopen, fopen64 freopen64);

/// The stream of a followed descriptor; `None`: it writes nothing.
fn stream_of(open: &OpenFile, mode: &[u8], fd: c_int) -> Result<Option<WrittenStream>, Errno> {
    let Some(growth) = Growth::of_mode(mode) else { return Ok(None) };
    let Target::Plain(file) = &open.target else {
        message::error(
            "fdopen on a directory, or on a file of InnoDB, of the data directory is not supported",
        );
        return Err(Errno(libc::EOPNOTSUPP));
    };
    let growth = match growth {
        Growth::AtPosition if open.flags.appends() => Growth::Appends,
        growth => growth,
    };
    WrittenStream::on_descriptor(Arc::clone(file), growth, fd).map(Some)
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's arguments, unchanged.
    let local = || unsafe { real::fdopen(fd, mode) };
    let Some((library, open)) = tracked(fd) else { return local() };
    // SAFETY: the caller passes null or a NUL-terminated string.
    let stream = match stream_of(&open, unsafe { bytes(mode) }, fd) {
        Ok(stream) => stream,
        Err(errno) => return opened(Err(errno)),
    };
    let file = local();
    if !file.is_null()
        && let Some(stream) = stream
    {
        library.stdio.lock().ignore_poison().push((file as usize, Arc::new(stream)));
    }
    file
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(file: *mut FILE) -> c_int {
    let closing = active().map(|library| forget(library, file));
    // SAFETY: the caller's argument, unchanged.
    let result = unsafe { real::fclose(file) };
    let errno = Errno::last();
    let finished = closing.map_or(Ok(()), |closing| closing.finish(result == 0));
    match finished {
        Err(errno) if result == 0 => {
            let _ = status(Err(errno));
            libc::EOF
        }
        _ => {
            errno.set();
            result
        }
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fflush(file: *mut FILE) -> c_int {
    // SAFETY: the caller's argument, unchanged.
    let result = unsafe { real::fflush(file) };
    if result == 0
        && let Some(library) = active()
    {
        for stream in known(library, file) {
            if let Err(errno) = flushed(library, &stream) {
                let _ = status(Err(errno));
                return libc::EOF;
            }
        }
    }
    result
}

/// The program moves the position of a stream. At the end, writes only add to the file.
fn moves(file: *mut FILE, is_to_end: bool) {
    if is_to_end || file.is_null() {
        return;
    }
    if let Some(library) = active() {
        known(library, file).iter().for_each(|stream| stream.moved());
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fseek(file: *mut FILE, offset: c_long, whence: c_int) -> c_int {
    moves(file, (offset, whence) == (0, libc::SEEK_END));
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::fseek(file, offset, whence) }
}

macro_rules! seek_hooks {
    ($($name:ident $set:ident),*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(file: *mut FILE, offset: off64_t, whence: c_int) -> c_int {
            moves(file, (offset, whence) == (0, libc::SEEK_END));
            // SAFETY: the caller's arguments, unchanged.
            unsafe { real::fseeko64(file, offset, whence) }
        }

        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(file: *mut FILE, position: *const c_void) -> c_int {
            moves(file, false);
            // SAFETY: the caller's arguments, unchanged.
            unsafe { real::fsetpos64(file, position) }
        }
    )*};
}

// off_t has 64 bits on the supported platforms.
seek_hooks!(fseeko fsetpos, fseeko64 fsetpos64);

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewind(file: *mut FILE) {
    moves(file, false);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::rewind(file) }
}
