//! Where the preloaded library is.

use crate::error::{CliError, Result};
use redoubt_console::installed;
use std::path::{Path, PathBuf};

/// The library to preload: the given one, or the one that was installed with this command.
///
/// # Errors
/// [`CliError::Usage`] saying where it was looked for.
pub fn find_library(given: Option<&Path>) -> Result<PathBuf> {
    find("libredoubt.so", given, "--library")
}

/// A library of this name: the given one, or the one that was installed with this command.
///
/// # Errors
/// [`CliError::Usage`] saying where it was looked for, and by which option it can be named.
pub fn find(name: &str, given: Option<&Path>, option: &str) -> Result<PathBuf> {
    let command = std::env::current_exe().ok();
    installed::find_library(name, given, option, command.as_deref())
        .map_err(|error| CliError::Usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_is_named_with_its_option() {
        let directory = tempfile::tempdir().unwrap();
        let error = find_library(Some(&directory.path().join("none.so"))).unwrap_err().to_string();
        assert!(error.contains("none.so") && error.contains("--library"), "{error}");
        assert_eq!(
            find_library(Some(Path::new("/bin/true"))).unwrap(),
            Path::new("/bin/true").canonicalize().unwrap()
        );
    }
}
