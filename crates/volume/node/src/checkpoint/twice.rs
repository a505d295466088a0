//! Small files that a volume cannot do without, each on the disk twice: `NAME` and `NAME.copy`.
//!
//! One block of either may be lost. The first one counts if it is whole. The copy is written before it, so it is older
//! only if an earlier build wrote the first one; a start writes it again ([`renew`]).

use super::{read_checked, write_file};
use crate::error::NodeError;
use crate::home::Folder;
use std::io::ErrorKind;

/// Name of the copy of a file.
pub fn copy_of(name: &str) -> String {
    format!("{name}.copy")
}

/// The file is missing or damaged, as opposed to unreadable for now.
pub fn is_lost(error: &NodeError) -> bool {
    let is_missing = matches!(error, NodeError::Io { source, .. } if source.kind() == ErrorKind::NotFound);
    is_missing || error.is_unusable_file()
}

/// Replaces both files, durably. [`super::write_checked`] has the form of each.
///
/// # Errors
/// [`NodeError::Io`]; each file may be the old one or the new one.
pub fn write_twice(directory: &Folder, name: &str, body: &[u8]) -> Result<(), NodeError> {
    write_file(directory, &copy_of(name), body)?;
    write_file(directory, name, body)?;
    directory.sync()
}

/// Reads the first file, or its copy if that is lost. Changes nothing.
///
/// # Errors
/// [`NodeError::Io`] or [`NodeError::Damaged`], of the first file.
pub fn read_twice(directory: &Folder, name: &str) -> Result<Vec<u8>, NodeError> {
    let error = match read_checked(directory, name) {
        Err(error) if is_lost(&error) => error,
        read => return read,
    };
    let Ok(body) = read_checked(directory, &copy_of(name)) else { return Err(error) };
    report_use_of_copy(&error);
    Ok(body)
}

/// The first file is lost, and the copy is used.
pub fn report_use_of_copy(error: &NodeError) {
    tracing::warn!(event = "file_read_from_its_copy", %error, "a file of the volume is lost; its copy is used");
}

/// Writes both files again if they are not the same. Without room that is put off: the volume works without.
///
/// # Errors
/// [`NodeError::Io`], also if both are lost.
pub fn renew(directory: &Folder, name: &str) -> Result<(), NodeError> {
    let [first, second] = [name.to_owned(), copy_of(name)].map(|name| read_checked(directory, &name));
    if matches!((&first, &second), (Ok(first), Ok(second)) if first == second) {
        return Ok(());
    }
    match write_twice(directory, name, &read_twice(directory, name)?) {
        Err(error) if error.kind() == crate::error::Kind::Retry => {
            tracing::warn!(event = "copy_not_renewed", %error, "a file of the volume has no copy for now");
            Ok(())
        }
        renewed => renewed,
    }
}
