//! From the path a call names to a path relative to the data directory.

use crate::classify::{normalise, parent, relative};
use crate::real::{self, Errno, c_path};
use crate::runtime::Runtime;
use std::os::fd::RawFd;

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Into the data directory: the relative path. Empty for the directory itself.
    Inside(Vec<u8>),
    /// Elsewhere: the absolute path.
    Outside(Vec<u8>),
}

/// Resolves `path` as a system call with the directory descriptor `dir` would.
///
/// # Errors
/// When the current directory or `dir` has no name any more.
pub fn resolve(runtime: &Runtime, dir: RawFd, path: &[u8]) -> Result<Place, Errno> {
    let base = if path.starts_with(b"/") {
        Vec::new()
    } else if dir == libc::AT_FDCWD {
        real::current_directory()?
    } else {
        real::link_target(&c_path(format!("/proc/self/fd/{dir}").as_bytes())?)?
    };
    let absolute = normalise(&base, path);
    let datadir = &runtime.config.datadir;
    if let Some(inside) = relative(datadir, &absolute) {
        return Ok(Place::Inside(inside.to_vec()));
    }
    // The data directory may have been named through a symbolic link.
    if let Ok(directory) = real::canonical(&c_path(parent(&absolute))?) {
        let canonical = normalise(&directory, crate::classify::file_name(&absolute));
        if let Some(inside) = relative(datadir, &canonical) {
            return Ok(Place::Inside(inside.to_vec()));
        }
    }
    Ok(Place::Outside(absolute))
}

/// Absolute path of a relative one.
///
/// # Errors
/// `EINVAL` for a path with a NUL byte.
pub fn absolute(runtime: &Runtime, path: &[u8]) -> Result<std::ffi::CString, Errno> {
    c_path(&[&runtime.config.datadir, &b"/"[..], path].concat())
}
