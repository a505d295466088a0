//! Calls that name files: open, create, rename, unlink, directories.
//!
//! Each classifies its path first. A call on a path that is local or outside the data directory passes through; a
//! name change inside is done locally and then sent, under the lock that keeps names and frames in step.

use super::library::Library;
use crate::base::classify::{CLONE_REFUSAL, Class, is_clone_directory, is_local_directory, refusal_outside};
use crate::base::message::{self, show};
use crate::base::paths::{Resolved, absolute, resolve};
use crate::base::real::{self, Errno};
use crate::calls::target::{OpenFile, Target};
use crate::kinds::plain;
use crate::kinds::tablespace;
use redoubt_wire::stream::StreamFrame;
use std::os::fd::RawFd;
use std::sync::Arc;

/// The decision about a call.
pub enum Decision<T> {
    /// The call is not intercepted: make the real call.
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
    library: &'static Library,
    dir: RawFd,
    path: &[u8],
    flags: i32,
    mode: libc::mode_t,
) -> Result<Decision<RawFd>, Errno> {
    let path = match resolve(&library.content.datadir, dir, path)? {
        Resolved::Inside(path) => path,
        Resolved::Outside(path) => {
            let has_begun = || library.redo_files.has_begun();
            if let Some(reason) = refusal_outside(&library.rules, &path, has_begun) {
                message::error(&format!("{}: {reason}", show(&path)));
                return Err(Errno(libc::EACCES));
            }
            return Ok(PassThrough);
        }
    };
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return Ok(PassThrough);
    }
    let class = if path.is_empty() { Class::Plain } else { library.classify(&path) };
    let (fd, target) = match class {
        Class::Local => return Ok(PassThrough),
        Class::Plain => match open_plain(library, &path, flags, mode)? {
            Some(opened) => opened,
            None => return Ok(PassThrough),
        },
        Class::Tablespace => {
            library.start()?;
            if flags & (libc::O_CREAT | libc::O_TRUNC) != 0 {
                let (fd, file) =
                    tablespace::create(&library.content, &library.tablespaces, &path, flags, mode)?;
                (fd, Target::Tablespace(file))
            } else {
                match tablespace::open_existing(&library.content, &library.tablespaces, &path, flags)? {
                    (fd, Some(file)) => (fd, Target::Tablespace(file)),
                    (fd, None) => return Ok(Done(fd)),
                }
            }
        }
        Class::RedoFile => {
            library.start()?;
            let (fd, file) = library.redo_files.open(&library.content, &path, flags, mode)?;
            (fd, Target::RedoFile(file))
        }
        Class::RedoLog | Class::RedoLogResize => {
            library.start()?;
            open_log(library, &path, class, flags, mode)?
        }
    };
    track(library, fd, target, flags).map(Done)
}

fn track(library: &Library, fd: RawFd, target: Target, flags: i32) -> Result<RawFd, Errno> {
    if track_opened(library, fd, target, flags) {
        return Ok(fd);
    }
    let _ = real::close_file(fd);
    Err(Errno(libc::EMFILE))
}

/// False: the number is too large.
pub fn track_opened(library: &Library, fd: RawFd, target: Target, flags: i32) -> bool {
    let is_tracked = library.fds.insert(fd, Arc::new(OpenFile::new(target, flags)));
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
pub fn duplicated(library: &Library, from: RawFd, to: RawFd) -> Result<(), Errno> {
    let Some(open) = library.fds.get(from) else { return Ok(()) };
    if library.fds.insert(to, open) {
        return Ok(());
    }
    too_large(to);
    Err(Errno(libc::EMFILE))
}

/// A directory, or a plain file opened for writing. `None`: nothing to follow.
fn open_plain(
    library: &'static Library,
    path: &[u8],
    flags: i32,
    mode: libc::mode_t,
) -> Result<Option<(RawFd, Target)>, Errno> {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & (libc::O_CREAT | libc::O_TRUNC) != 0;
    if writes && !path.is_empty() {
        library.start()?;
        let (fd, file) = plain::open(&library.content, &library.plain, path, flags, mode)?;
        return Ok(Some((fd, Target::Plain(file))));
    }
    let local = absolute(&library.content.datadir, path)?;
    if !real::status_of(&local).is_ok_and(|status| status.is_directory) {
        return Ok(None);
    }
    Ok(Some((real::open_file(&local, flags, mode)?, Target::Directory)))
}

fn open_log(
    library: &Library,
    path: &[u8],
    class: Class,
    flags: i32,
    mode: libc::mode_t,
) -> Result<(RawFd, Target), Errno> {
    let local = absolute(&library.content.datadir, path)?;
    let existed = real::status_of(&local).is_ok();
    if class == Class::RedoLog && !existed && flags & libc::O_CREAT != 0 {
        message::error(
            "the server tries to create ib_logfile0 directly; this server version is not supported",
        );
        return Err(Errno::EIO);
    }
    let fd = real::open_file(&local, flags & !libc::O_DIRECT, mode)?;
    let file = match class {
        Class::RedoLog => library.log.open_main(&library.content),
        _ => Ok(library.log.open_prepared(!existed)),
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
pub fn opened_by_library(library: &'static Library, fd: RawFd, flags: i32) -> Result<(), Errno> {
    let path = real::link_target(&real::c_path(format!("/proc/self/fd/{fd}").as_bytes())?)?;
    let Resolved::Inside(path) = resolve(&library.content.datadir, libc::AT_FDCWD, &path)? else {
        return Ok(());
    };
    if library.classify(&path) != Class::Plain {
        return Ok(());
    }
    library.start()?;
    let lock = library.content.names.lock_exclusive();
    library.forget(&path);
    plain::send_whole(&library.content, &library.plain, &lock, &path)?;
    let target = Target::Plain(plain::known(&library.content, &library.plain, &path));
    if track_opened(library, fd, target, flags) { Ok(()) } else { Err(Errno(libc::EMFILE)) }
}

/// After close: removes the entry of a plain file without further descriptors, and may complete an import.
pub fn closed(library: &Library, open: Arc<OpenFile>) {
    let Ok(open) = Arc::try_unwrap(open) else { return };
    match &open.target {
        Target::Plain(file) => {
            let file = Arc::clone(file);
            drop(open);
            library.plain.closed(file);
        }
        Target::Tablespace(file) => file.closed(&library.content),
        Target::Log(_) | Target::RedoFile(_) | Target::Directory => {}
    }
}

/// Two paths, if at least one is inside the data directory.
fn resolve_pair(
    library: &Library,
    from: (RawFd, &[u8]),
    to: (RawFd, &[u8]),
) -> Result<Option<(Resolved, Resolved)>, Errno> {
    let (from, to) =
        (resolve(&library.content.datadir, from.0, from.1)?, resolve(&library.content.datadir, to.0, to.1)?);
    match (&from, &to) {
        (Resolved::Outside(_), Resolved::Outside(_)) => Ok(None),
        _ => Ok(Some((from, to))),
    }
}

/// rename and its relatives. `local` makes the real call.
///
/// # Errors
/// That of the local call; `EPERM` for a rename that cannot be followed; `EIO`.
pub fn rename(
    library: &'static Library,
    from: (RawFd, &[u8]),
    to: (RawFd, &[u8]),
    local: impl FnOnce() -> Result<(), Errno>,
) -> Result<Decision<()>, Errno> {
    let Some((from, to)) = resolve_pair(library, from, to)? else { return Ok(PassThrough) };
    let class_of = |place: &Resolved| match place {
        Resolved::Inside(path) => (library.classify(path), path.clone()),
        Resolved::Outside(path) => (Class::Local, path.clone()),
    };
    let ((from_class, from), (to_class, to)) = (class_of(&from), class_of(&to));
    if (from_class, to_class) == (Class::Local, Class::Local) {
        return Ok(PassThrough);
    }
    library.start()?;
    let lock = library.content.names.lock_exclusive();
    let stream = &library.content.stream;
    if from == to {
        return local().map(Done);
    }
    match (from_class, to_class) {
        (Class::Tablespace, Class::Tablespace)
        | (Class::Plain, Class::Plain)
        | (Class::RedoFile, Class::RedoFile) => {
            if from_class == Class::Tablespace && tablespace::adopt::is_marked(&library.content, &from)? {
                message::error(&format!("{} is not imported yet; renaming it is refused", show(&from)));
                return Err(Errno(libc::EPERM));
            }
            local()?;
            library.renamed(&from, &to);
            stream.append(&StreamFrame::Rename { from: &from, to: &to })?;
        }
        (Class::RedoLogResize, Class::RedoLog) => {
            local()?;
            library.log.prepared_renamed(&library.content)?;
        }
        (Class::Local, Class::Plain) => {
            local()?;
            library.forget(&to);
            plain::send_whole(&library.content, &library.plain, &lock, &to)?;
        }
        (Class::Plain, Class::Local) => {
            local()?;
            library.forget(&from);
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
    library: &'static Library,
    dir: RawFd,
    path: &[u8],
    local: impl FnOnce() -> Result<(), Errno>,
) -> Result<Decision<()>, Errno> {
    let Resolved::Inside(path) = resolve(&library.content.datadir, dir, path)? else {
        return Ok(PassThrough);
    };
    let class = library.classify(&path);
    match class {
        Class::Local => return Ok(PassThrough),
        Class::RedoLog => {
            message::error("the server tries to delete ib_logfile0; refused");
            return Err(Errno(libc::EPERM));
        }
        Class::RedoLogResize => {
            local()?;
            library.log.prepared_unlinked();
        }
        Class::Tablespace | Class::Plain | Class::RedoFile => {
            // Many servers try to delete files that are not there; that needs no node.
            if let Err(errno) = real::status_of(&absolute(&library.content.datadir, &path)?) {
                forget_missing(library, &path, errno)?;
                return Err(errno);
            }
            library.start()?;
            let _lock = library.content.names.lock_exclusive();
            local()?;
            library.forget(&path);
            library.content.stream.append(&StreamFrame::Unlink { path: &path })?;
            if class == Class::Tablespace {
                tablespace::adopt::remove_marker(&library.content, &path)?;
            }
            tablespace::export::metadata_removed(&library.tablespaces, &path);
        }
    }
    Ok(Done(()))
}

/// The server deletes a tablespace file that another process has deleted. The node still has that file, and would use
/// it for the next file of this name.
fn forget_missing(library: &Library, path: &[u8], errno: Errno) -> Result<(), Errno> {
    if errno != Errno(libc::ENOENT) {
        return Ok(());
    }
    // Its name is free, as after any unlink.
    library.content.deleted.forget(path);
    library.content.stream.wanted_pages().forget(path);
    if library.tablespaces.files.known(path).is_some() {
        let _lock = library.content.names.lock_exclusive();
        library.forget(path);
        library.content.stream.append(&StreamFrame::Unlink { path })?;
    }
    Ok(())
}

/// mkdir and mkdirat.
///
/// # Errors
/// That of the local call, or `EIO`.
pub fn make_directory(
    library: &'static Library,
    dir: RawFd,
    path: &[u8],
    local: impl FnOnce() -> Result<(), Errno>,
) -> Result<Decision<()>, Errno> {
    let Resolved::Inside(path) = resolve(&library.content.datadir, dir, path)? else {
        return Ok(PassThrough);
    };
    if path.is_empty() || is_local_directory(&library.rules, &path) {
        return Ok(PassThrough);
    }
    if is_clone_directory(&library.rules, &path) {
        message::error(CLONE_REFUSAL);
        return Err(Errno(libc::EPERM));
    }
    library.start()?;
    let _lock = library.content.names.lock_exclusive();
    local()?;
    let mode = real::status_of(&absolute(&library.content.datadir, &path)?)?.mode;
    library.content.stream.append(&StreamFrame::Mkdir { path: &path, mode })?;
    Ok(Done(()))
}

/// rmdir.
///
/// # Errors
/// That of the local call, or `EIO`.
pub fn remove_directory(
    library: &'static Library,
    dir: RawFd,
    path: &[u8],
    local: impl FnOnce() -> Result<(), Errno>,
) -> Result<Decision<()>, Errno> {
    let Resolved::Inside(path) = resolve(&library.content.datadir, dir, path)? else {
        return Ok(PassThrough);
    };
    if path.is_empty() || is_local_directory(&library.rules, &path) {
        return Ok(PassThrough);
    }
    library.start()?;
    let _lock = library.content.names.lock_exclusive();
    local()?;
    library.content.stream.append(&StreamFrame::Rmdir { path: &path })?;
    Ok(Done(()))
}

/// symlink, link and similar calls on a directory: nothing inside the data directory may be a link.
///
/// # Errors
/// `EPERM` inside the data directory.
pub fn refuse_link(library: &Library, dir: RawFd, path: &[u8]) -> Result<(), Errno> {
    let Resolved::Inside(path) = resolve(&library.content.datadir, dir, path)? else { return Ok(()) };
    if library.classify(&path) == Class::Local {
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
pub fn stdio_target(library: &'static Library, path: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let Resolved::Inside(path) = resolve(&library.content.datadir, libc::AT_FDCWD, path)? else {
        return Ok(None);
    };
    match library.classify(&path) {
        Class::Local => Ok(None),
        Class::Plain => {
            library.start()?;
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
pub fn refuse_path(library: &Library, path: &[u8], call: &str) -> Result<(), Errno> {
    let Resolved::Inside(path) = resolve(&library.content.datadir, libc::AT_FDCWD, path)? else {
        return Ok(());
    };
    if library.classify(&path) == Class::Local {
        return Ok(());
    }
    message::error(&format!("{call} on {} is not supported", show(&path)));
    Err(Errno(libc::EOPNOTSUPP))
}
