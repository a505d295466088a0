//! From the path a call names to a path relative to the data directory.

use crate::base::classify::{normalise, parent, relative};
use crate::base::message::{self, show};
use crate::base::real::{self, Errno, c_path};
use std::os::fd::RawFd;

/// Target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// Into the data directory: the relative path. Empty for the directory itself.
    Inside(Vec<u8>),
    /// Elsewhere: the absolute path.
    Outside(Vec<u8>),
}

/// Resolves `path` as a system call with the directory descriptor `dir` would.
///
/// # Errors
/// When the current directory or `dir` has no name any more; `EILSEQ` for a path inside that is not UTF-8.
pub fn resolve(datadir: &[u8], dir: RawFd, path: &[u8]) -> Result<Resolved, Errno> {
    let base = if path.starts_with(b"/") {
        Vec::new()
    } else if dir == libc::AT_FDCWD {
        real::current_directory()?
    } else {
        real::link_target(&c_path(format!("/proc/self/fd/{dir}").as_bytes())?)?
    };
    let absolute = normalise(&base, path);
    if let Some(path) = relative(datadir, &absolute) {
        return inside(path);
    }
    // The data directory may have been named through a symbolic link.
    if let Ok(directory) = real::canonical(&c_path(parent(&absolute))?) {
        let canonical = normalise(&directory, crate::base::classify::file_name(&absolute));
        if let Some(path) = relative(datadir, &canonical) {
            return inside(path);
        }
    }
    Ok(Resolved::Outside(absolute))
}

/// A volume has UTF-8 names only. The server's own always are; `SELECT ... INTO OUTFILE` takes any bytes.
fn inside(path: &[u8]) -> Result<Resolved, Errno> {
    if std::str::from_utf8(path).is_err() {
        message::error(&format!("{} is not UTF-8, and cannot be the name of a file here", show(path)));
        return Err(Errno(libc::EILSEQ));
    }
    Ok(Resolved::Inside(path.to_vec()))
}

/// Absolute path of a relative one.
///
/// # Errors
/// `EINVAL` for a path with a NUL byte.
pub fn absolute(datadir: &[u8], path: &[u8]) -> Result<std::ffi::CString, Errno> {
    c_path(&[datadir, b"/", path].concat())
}
