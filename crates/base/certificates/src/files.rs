//! Files that are complete or missing, and never readable by unauthorized users.

use crate::{CertificatesError, Result};
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Creates a missing directory for its owner only.
///
/// # Errors
/// [`CertificatesError::Io`].
pub fn make_directory(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| CertificatesError::Io { action: "create", path: path.to_owned(), source })
}

/// Writes a file under a temporary name, and renames it when it is complete and durable.
///
/// # Errors
/// [`CertificatesError::Io`].
pub fn write_file(path: &Path, text: &str, mode: u32) -> Result<()> {
    let failed = |source| CertificatesError::Io { action: "write", path: path.to_owned(), source };
    let temporary = path.with_extension("new");
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let options = OpenOptions::new().write(true).create_new(true).mode(mode).clone();
    let mut file = options.open(&temporary).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&temporary, path).map_err(failed)
}
