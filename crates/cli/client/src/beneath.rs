//! Files inside one directory, by names that come from elsewhere.
//!
//! The names come from a storage node, and the user of a server may have put files into the directory, while this
//! command may be run by root. So neither may lead out of the directory. Invariant: every file is reached component
//! by component from an open directory, without following a symbolic link and without `..`, and everything is done on
//! the descriptor that this gives.

use crate::error::{ClientError, Result};
use redoubt_wire::control::check_path;
use rustix::fs::{AtFlags, Mode, OFlags, fchown, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use std::cell::RefCell;
use std::fs::{File, Permissions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Names that belong to this command.
const OWN_PREFIX: &str = ".redoubt";
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// `NONBLOCK`: opening a FIFO or device must not block the command.
const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// A directory, with access to the files inside it only.
pub struct Beneath {
    path: PathBuf,
    directory: OwnedFd,
    /// The directory of the last file, and its name: files come directory by directory.
    last: RefCell<Option<(String, Rc<OwnedFd>)>>,
    /// Owner of new files and directories; `None`: the user of this process.
    owner: Option<(u32, u32)>,
}

impl Beneath {
    /// Makes all written files durable, and with them everything else on that file system: a sync of each of many
    /// thousand files would make the drive flush its cache as often.
    ///
    /// # Errors
    /// [`ClientError::Io`]; written files may be missing after a power failure.
    pub fn sync(&self) -> Result<()> {
        rustix::fs::syncfs(&self.directory).map_err(|errno| ClientError::io("sync", &self.path, errno.into()))
    }

    /// Opens the directory.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn open(path: &Path, owner: Option<(u32, u32)>) -> Result<Self> {
        let directory = File::open(path).map_err(|error| ClientError::io("open", path, error))?;
        Ok(Self { path: path.to_owned(), directory: directory.into(), last: RefCell::default(), owner })
    }

    /// The directory at `relative`, made if it is missing, with its parents.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for a name that must not be used; [`ClientError::Io`].
    pub fn directory(&self, relative: &str) -> Result<File> {
        check_name(relative)?;
        let mut at = self.directory.try_clone().map_err(|error| self.failed("open", relative, error))?;
        for part in relative.split('/') {
            at = self.step(&at, part).map_err(|error| self.failed("create", relative, error.into()))?;
        }
        Ok(at.into())
    }

    /// A file for writing, made if it is missing.
    ///
    /// # Errors
    /// As [`Beneath::directory`].
    pub fn write(&self, relative: &str) -> Result<File> {
        self.file(relative, OFlags::RDWR | OFlags::CREATE)
    }

    /// A file that must not have been there.
    ///
    /// # Errors
    /// As [`Beneath::directory`].
    pub fn create_new(&self, relative: &str) -> Result<File> {
        self.file(relative, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// As [`Beneath::directory`].
    pub fn remove(&self, relative: &str) -> Result<()> {
        check_name(relative)?;
        let failed = |error: std::io::Error| self.failed("remove", relative, error);
        let (parents, name) = relative.rsplit_once('/').unwrap_or(("", relative));
        let at = self.parent(parents).map_err(failed)?;
        unlinkat(&at, name, AtFlags::empty()).map_err(|error| failed(error.into()))
    }

    /// Sets the owner, and the permission bits without setuid, setgid and write access for others.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn finish(&self, relative: &str, file: &File, mode: u32, default_mode: u32) -> Result<()> {
        let mode = if mode & 0o777 == 0 { default_mode } else { mode & 0o775 };
        let failed = |error| self.failed("set permissions of", relative, error);
        if file.metadata().map_err(failed)?.permissions().mode() & 0o7777 != mode {
            file.set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
        }
        self.give(file.as_fd()).map_err(|error| self.failed("change the owner of", relative, error.into()))
    }

    fn file(&self, relative: &str, flags: OFlags) -> Result<File> {
        check_name(relative)?;
        let failed = |error: std::io::Error| self.failed("create", relative, error);
        let (parents, name) = relative.rsplit_once('/').unwrap_or(("", relative));
        let at = self.parent(parents).map_err(failed)?;
        let mode = Mode::from_raw_mode(0o600);
        let file: File = openat(&at, name, FILE | flags, mode).map_err(|error| failed(error.into()))?.into();
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(ClientError::Usage(format!(
                "{} is not a regular file; remove it",
                self.path.join(relative).display()
            )));
        }
        Ok(file)
    }

    fn parent(&self, relative: &str) -> std::io::Result<Rc<OwnedFd>> {
        if let Some((path, directory)) = &*self.last.borrow()
            && path == relative
        {
            return Ok(Rc::clone(directory));
        }
        let mut at = self.directory.try_clone()?;
        for part in relative.split('/').filter(|part| !part.is_empty()) {
            at = self.step(&at, part)?;
        }
        let at = Rc::new(at);
        *self.last.borrow_mut() = Some((relative.to_owned(), Rc::clone(&at)));
        Ok(at)
    }

    fn step(&self, at: &OwnedFd, part: &str) -> std::result::Result<OwnedFd, Errno> {
        match openat(at, part, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => {
                mkdirat(at, part, Mode::from_raw_mode(0o700))?;
                let made = openat(at, part, DIRECTORY, Mode::empty())?;
                self.give(made.as_fd())?;
                Ok(made)
            }
            result => result,
        }
    }

    fn give(&self, file: std::os::fd::BorrowedFd<'_>) -> std::result::Result<(), Errno> {
        let Some((user, group)) = self.owner else { return Ok(()) };
        let (user, group) = (rustix::fs::Uid::from_raw(user), rustix::fs::Gid::from_raw(group));
        fchown(file, Some(user), Some(group))
    }

    fn failed(&self, action: &'static str, relative: &str, error: std::io::Error) -> ClientError {
        let path = self.path.join(relative);
        match Errno::from_io_error(&error) {
            Some(Errno::LOOP | Errno::NOTDIR) => ClientError::Usage(format!(
                "{} is, or is reached through, a symbolic link or something else that is no directory; nothing is \
                 written through those. Remove it",
                path.display()
            )),
            _ => ClientError::io(action, path, error),
        }
    }
}

/// A name that a node may give to a file.
///
/// # Errors
/// [`ClientError::Usage`].
pub fn check_name(relative: &str) -> Result<()> {
    let refused = |why: &str| {
        Err(ClientError::Usage(format!(
            "the storage node names a file {relative:?}: {why}. Nothing was written there; do not trust this node"
        )))
    };
    if let Err(error) = check_path(relative.as_bytes()) {
        return refused(&error.to_string());
    }
    if relative.split('/').any(|part| part.starts_with(OWN_PREFIX)) {
        return refused("such names belong to this command");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
