//! Calls that name files: open, create, rename, unlink, directories.
//!
//! Each classifies its path first. What is outside the data directory or local passes through; a name change
//! inside is done locally and then sent, under the lock that keeps names and frames in step.

use crate::classify::{Class, is_local_directory, refusal_outside};
use crate::message::{self, show};
use crate::paths::{Place, absolute, resolve};
use crate::plain;
use crate::real::{self, Errno};
use crate::runtime::Runtime;
use crate::tablespace;
use crate::target::{OpenFile, Target};
use redoubt_wire::Seq;
use redoubt_wire::stream::StreamFrame;
use std::os::fd::RawFd;
use std::sync::Arc;

/// What is to be done with a call.
pub enum Decision<T> {
    /// The call is none of ours: make it as it is.
    PassThrough,
    /// It was made; this is its result.
    Done(T),
}

use Decision::{Done, PassThrough};

/// open and openat.
///
/// # Errors
/// That of the local call; `EACCES` for an InnoDB file outside the data directory; `EIO` without a node.
pub fn open(
    runtime: &'static Runtime,
    dir: RawFd,
    path: &[u8],
    flags: i32,
    mode: libc::mode_t,
) -> Result<Decision<RawFd>, Errno> {
    let path = match resolve(runtime, dir, path)? {
        Place::Inside(path) => path,
        Place::Outside(path) => {
            if let Some(reason) = refusal_outside(&runtime.rules, &path) {
                message::error(&format!("{}: {reason}", show(&path)));
                return Err(Errno(libc::EACCES));
            }
            return Ok(PassThrough);
        }
    };
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return Ok(PassThrough);
    }
    let class = if path.is_empty() { Class::Plain } else { runtime.classify(&path) };
    let (fd, target) = match class {
        Class::Local => return Ok(PassThrough),
        Class::Plain => match open_plain(runtime, &path, flags, mode)? {
            Some(opened) => opened,
            None => return Ok(PassThrough),
        },
        Class::Tablespace => {
            runtime.start()?;
            if flags & (libc::O_CREAT | libc::O_TRUNC) != 0 {
                let (fd, file) = tablespace::create(runtime, &path, flags, mode)?;
                (fd, Target::Tablespace(file))
            } else {
                match tablespace::open_existing(runtime, &path, flags)? {
                    (fd, Some(file)) => (fd, Target::Tablespace(file)),
                    (fd, None) => return Ok(Done(fd)),
                }
            }
        }
        Class::RedoLog | Class::RedoLogResize => {
            runtime.start()?;
            open_log(runtime, &path, class, flags, mode)?
        }
    };
    track(runtime, fd, target, flags).map(Done)
}

fn track(runtime: &Runtime, fd: RawFd, target: Target, flags: i32) -> Result<RawFd, Errno> {
    if track_opened(runtime, fd, target, flags) {
        return Ok(fd);
    }
    let _ = real::close_file(fd);
    Err(Errno(libc::EMFILE))
}

/// False: the number is too large.
fn track_opened(runtime: &Runtime, fd: RawFd, target: Target, flags: i32) -> bool {
    let is_tracked = runtime.fds.insert(fd, Arc::new(OpenFile::new(target, flags)));
    if !is_tracked {
        too_large(fd);
    }
    is_tracked
}

fn too_large(fd: RawFd) {
    message::error(&format!(
        "descriptor {fd} is too large to be followed; lower open_files_limit below 1048576"
    ));
}

/// `to` is a second descriptor for the file behind `from`.
///
/// # Errors
/// `EMFILE` if its number is too large; the caller closes it.
pub fn duplicated(runtime: &Runtime, from: RawFd, to: RawFd) -> Result<(), Errno> {
    let Some(open) = runtime.fds.get(from) else { return Ok(()) };
    if runtime.fds.insert(to, open) {
        return Ok(());
    }
    too_large(to);
    Err(Errno(libc::EMFILE))
}

/// A directory, or a plain file opened for writing. `None`: nothing to follow.
fn open_plain(
    runtime: &'static Runtime,
    path: &[u8],
    flags: i32,
    mode: libc::mode_t,
) -> Result<Option<(RawFd, Target)>, Errno> {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & (libc::O_CREAT | libc::O_TRUNC) != 0;
    if writes && !path.is_empty() {
        runtime.start()?;
        let (fd, file) = plain::open(runtime, path, flags, mode)?;
        return Ok(Some((fd, Target::Plain(file))));
    }
    let local = absolute(runtime, path)?;
    if !real::status_of(&local).is_ok_and(|status| status.is_directory) {
        return Ok(None);
    }
    Ok(Some((real::open_file(&local, flags, mode)?, Target::Directory)))
}

fn open_log(
    runtime: &Runtime,
    path: &[u8],
    class: Class,
    flags: i32,
    mode: libc::mode_t,
) -> Result<(RawFd, Target), Errno> {
    let local = absolute(runtime, path)?;
    let existed = real::status_of(&local).is_ok();
    if class == Class::RedoLog && !existed && flags & libc::O_CREAT != 0 {
        message::error(
            "the server tries to create ib_logfile0 directly; this server version is not supported",
        );
        return Err(Errno::EIO);
    }
    let fd = real::open_file(&local, flags & !libc::O_DIRECT, mode)?;
    let file = match class {
        Class::RedoLog => runtime.log.open_main(runtime),
        _ => Ok(runtime.log.open_prepared(!existed)),
    };
    match file {
        Ok(file) => Ok((fd, Target::Log(file))),
        Err(errno) => {
            let _ = real::close_file(fd);
            Err(errno)
        }
    }
}

/// After a descriptor was opened in a way that is not hooked inside the C library (mkstemp and its family). On an error
/// the caller closes it.
///
/// # Errors
/// `EIO` when the stream is dead.
pub fn opened_by_library(runtime: &'static Runtime, fd: RawFd, flags: i32) -> Result<(), Errno> {
    let path = real::link_target(&real::c_path(format!("/proc/self/fd/{fd}").as_bytes())?)?;
    let Place::Inside(path) = resolve(runtime, libc::AT_FDCWD, &path)? else { return Ok(()) };
    if runtime.classify(&path) != Class::Plain {
        return Ok(());
    }
    runtime.start()?;
    let hold = runtime.names.change();
    runtime.names.forget(&path);
    plain::send_whole(runtime, &hold, &path)?;
    let target = Target::Plain(runtime.names.plain(&path, runtime.stream.end()));
    if track_opened(runtime, fd, target, flags) { Ok(()) } else { Err(Errno(libc::EMFILE)) }
}

/// After close: a plain file that nobody has open is forgotten, and an import may be done.
pub fn closed(runtime: &Runtime, open: Arc<OpenFile>) {
    let Ok(open) = Arc::try_unwrap(open) else { return };
    match &open.target {
        Target::Plain(file) => {
            let file = Arc::clone(file);
            drop(open);
            runtime.names.closed_plain(file);
        }
        Target::Tablespace(file) => file.closed(runtime),
        Target::Log(_) | Target::Directory => {}
    }
}

/// Two paths, if at least one is inside the data directory.
fn resolve_pair(
    runtime: &Runtime,
    from: (RawFd, &[u8]),
    to: (RawFd, &[u8]),
) -> Result<Option<(Place, Place)>, Errno> {
    let (from, to) = (resolve(runtime, from.0, from.1)?, resolve(runtime, to.0, to.1)?);
    match (&from, &to) {
        (Place::Outside(_), Place::Outside(_)) => Ok(None),
        _ => Ok(Some((from, to))),
    }
}

/// rename and its relatives. `local` makes the real call.
///
/// # Errors
/// That of the local call; `EPERM` for a rename that cannot be followed; `EIO`.
pub fn rename(
    runtime: &'static Runtime,
    from: (RawFd, &[u8]),
    to: (RawFd, &[u8]),
    local: impl FnOnce() -> Result<(), Errno>,
) -> Result<Decision<()>, Errno> {
    let Some((from, to)) = resolve_pair(runtime, from, to)? else { return Ok(PassThrough) };
    let class_of = |place: &Place| match place {
        Place::Inside(path) => (runtime.classify(path), path.clone()),
        Place::Outside(path) => (Class::Local, path.clone()),
    };
    let ((from_class, from), (to_class, to)) = (class_of(&from), class_of(&to));
    if (from_class, to_class) == (Class::Local, Class::Local) {
        return Ok(PassThrough);
    }
    runtime.start()?;
    let hold = runtime.names.change();
    let stream = &runtime.stream;
    if from == to {
        return local().map(Done);
    }
    match (from_class, to_class) {
        (Class::Tablespace, Class::Tablespace) | (Class::Plain, Class::Plain) => {
            local()?;
            runtime.names.renamed(&from, &to);
            stream.append(&StreamFrame::Rename { from: &from, to: &to })?;
        }
        (Class::RedoLogResize, Class::RedoLog) => {
            local()?;
            runtime.log.prepared_renamed(runtime)?;
        }
        (Class::Local, Class::Plain) => {
            local()?;
            runtime.names.forget(&to);
            plain::send_whole(runtime, &hold, &to)?;
        }
        (Class::Plain, Class::Local) => {
            local()?;
            runtime.names.forget(&from);
            stream.append(&StreamFrame::Unlink { path: &from })?;
        }
        // Put there from outside: the node gets it when the server opens it for writing.
        (Class::Local, Class::Tablespace) => local()?,
        _ => {
            message::error(&format!(
                "renaming {} to {} would change what kind of file it is; refused",
                show(&from),
                show(&to)
            ));
            return Err(Errno(libc::EPERM));
        }
    }
    Ok(Done(()))
}

/// unlink and unlinkat of a file.
///
/// # Errors
/// That of the local call; `EPERM` for the redo log; `EIO`.
pub fn unlink(
    runtime: &'static Runtime,
    dir: RawFd,
    path: &[u8],
    local: impl FnOnce() -> Result<(), Errno>,
) -> Result<Decision<()>, Errno> {
    let Place::Inside(path) = resolve(runtime, dir, path)? else { return Ok(PassThrough) };
    match runtime.classify(&path) {
        Class::Local => return Ok(PassThrough),
        Class::RedoLog => {
            message::error("the server tries to delete ib_logfile0; refused");
            return Err(Errno(libc::EPERM));
        }
        Class::RedoLogResize => {
            local()?;
            runtime.log.prepared_unlinked();
        }
        Class::Tablespace | Class::Plain => {
            // Many servers try to delete files that are not there; that needs no node.
            if let Err(errno) = real::status_of(&absolute(runtime, &path)?) {
                forget_missing(runtime, &path, errno)?;
                return Err(errno);
            }
            runtime.start()?;
            let _hold = runtime.names.change();
            local()?;
            runtime.names.forget(&path);
            runtime.stream.append(&StreamFrame::Unlink { path: &path })?;
            tablespace::export::metadata_removed(runtime, &path);
        }
    }
    Ok(Done(()))
}

/// The server deletes a tablespace file that somebody else deleted. To the node it is still there, and would be taken
/// for the next one of this name.
fn forget_missing(runtime: &Runtime, path: &[u8], errno: Errno) -> Result<(), Errno> {
    if errno == Errno(libc::ENOENT) && runtime.names.known_tablespace(path).is_some() {
        let _hold = runtime.names.change();
        runtime.names.forget(path);
        runtime.stream.append(&StreamFrame::Unlink { path })?;
    }
    Ok(())
}

/// mkdir and mkdirat.
///
/// # Errors
/// That of the local call, or `EIO`.
pub fn make_directory(
    runtime: &'static Runtime,
    dir: RawFd,
    path: &[u8],
    local: impl FnOnce() -> Result<(), Errno>,
) -> Result<Decision<()>, Errno> {
    let Place::Inside(path) = resolve(runtime, dir, path)? else { return Ok(PassThrough) };
    if path.is_empty() || is_local_directory(&runtime.rules, &path) {
        return Ok(PassThrough);
    }
    runtime.start()?;
    let _hold = runtime.names.change();
    local()?;
    let mode = real::status_of(&absolute(runtime, &path)?)?.mode;
    runtime.stream.append(&StreamFrame::Mkdir { path: &path, mode })?;
    Ok(Done(()))
}

/// rmdir.
///
/// # Errors
/// That of the local call, or `EIO`.
pub fn remove_directory(
    runtime: &'static Runtime,
    dir: RawFd,
    path: &[u8],
    local: impl FnOnce() -> Result<(), Errno>,
) -> Result<Decision<()>, Errno> {
    let Place::Inside(path) = resolve(runtime, dir, path)? else { return Ok(PassThrough) };
    if path.is_empty() || is_local_directory(&runtime.rules, &path) {
        return Ok(PassThrough);
    }
    runtime.start()?;
    let _hold = runtime.names.change();
    local()?;
    runtime.stream.append(&StreamFrame::Rmdir { path: &path })?;
    Ok(Done(()))
}

/// symlink, link and those that name a directory: nothing inside the data directory may be one.
///
/// # Errors
/// `EPERM` inside the data directory.
pub fn refuse_link(runtime: &Runtime, dir: RawFd, path: &[u8]) -> Result<(), Errno> {
    let Place::Inside(path) = resolve(runtime, dir, path)? else { return Ok(()) };
    if runtime.classify(&path) == Class::Local {
        return Ok(());
    }
    message::error(&format!(
        "{}: links inside the data directory cannot be replicated; \
         do not use DATA DIRECTORY or INDEX DIRECTORY (symbolic-links=OFF)",
        show(&path)
    ));
    Err(Errno(libc::EPERM))
}

/// A stdio stream was opened for writing: which replicated file it is, if any.
///
/// # Errors
/// `EIO` without a node; `EPERM` for an InnoDB file.
pub fn stdio_target(runtime: &'static Runtime, path: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let Place::Inside(path) = resolve(runtime, libc::AT_FDCWD, path)? else { return Ok(None) };
    match runtime.classify(&path) {
        Class::Local => Ok(None),
        Class::Plain => {
            runtime.start()?;
            Ok(Some(path))
        }
        _ => {
            message::error(&format!("{} is opened with fopen for writing; refused", show(&path)));
            Err(Errno(libc::EPERM))
        }
    }
}

/// A call that would write to a file in a way that is not followed.
///
/// # Errors
/// `EOPNOTSUPP` for a replicated file.
pub fn refuse_path(runtime: &Runtime, path: &[u8], call: &str) -> Result<(), Errno> {
    let Place::Inside(path) = resolve(runtime, libc::AT_FDCWD, path)? else { return Ok(()) };
    if runtime.classify(&path) == Class::Local {
        return Ok(());
    }
    message::error(&format!("{call} on {} is not supported", show(&path)));
    Err(Errno(libc::EOPNOTSUPP))
}

/// Waits until everything sent so far is durable (fsync of a directory).
///
/// # Errors
/// `EIO` when the stream is dead.
pub fn sync_all(runtime: &Runtime) -> Result<(), Errno> {
    if runtime.stream.session_start().is_none() {
        return Ok(());
    }
    let end: Seq = runtime.stream.end();
    runtime.stream.wait_durable(end)
}
