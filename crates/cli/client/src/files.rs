//! Directories that a person names.

use crate::error::{ClientError, Result};
use std::path::Path;

/// Makes a directory that a person named, with its parents, unless it is there.
///
/// # Errors
/// [`ClientError::Usage`] if something else is there; [`ClientError::Io`].
pub fn make_directory(path: &Path) -> Result<()> {
    if path.exists() && !path.is_dir() {
        return Err(ClientError::Usage(format!("{} is not a directory; name another place", path.display())));
    }
    std::fs::create_dir_all(path).map_err(|error| ClientError::io("create", path, error))
}
