//! The library that is preloaded into the server: a check that the dynamic loader loads it.
//!
//! The loader leaves a library that it cannot preload out, with a message only. The server would then run without it,
//! on files without content; so this is checked first, with the loader's own list of what it would load.

use crate::error::{ClientError, Result};
use std::path::Path;

/// `LD_PRELOAD` for the server: the library, then what was there.
pub fn value(library: &Path) -> std::ffi::OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    value
}

/// Checks that the loader loads the library into `binary`. Nothing is run: the loader only lists what it would load.
///
/// # Errors
/// [`ClientError::Usage`] with the loader's reason; [`ClientError::Io`].
pub fn check(binary: &Path, library: &Path) -> Result<()> {
    let output = crate::server::asking(binary)
        // A statically linked binary would run: then it prints its version.
        .arg("--version")
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .env("LD_PRELOAD", value(library))
        .output()
        .map_err(|error| ClientError::io("run", binary, error))?;
    let listed = String::from_utf8_lossy(&output.stdout);
    if is_listed(&listed, library) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(ClientError::Usage(refusal(binary, library, &said)))
}

/// `\t/path/of/libredoubt.so (0x00007ff7ea6ac000)`
fn is_listed(listed: &str, library: &Path) -> bool {
    let library = library.to_string_lossy();
    listed
        .lines()
        .any(|line| line.trim_start().strip_prefix(&*library).is_some_and(|rest| rest.starts_with(" (")))
}

fn refusal(binary: &Path, library: &Path, said: &str) -> String {
    let reason = said.lines().find(|line| line.contains("preload")).map_or_else(
        || "it is not loaded, and the loader does not say why".to_owned(),
        |line| line.trim_start_matches("ERROR: ld.so: ").trim_end_matches(": ignored.").trim().to_owned(),
    );
    format!(
        "{} would run without the library {}: {reason}; the library must be readable, on a file system without `noexec`, its path \
         without blanks and colons, and the server neither setuid, nor with capabilities of its own (getcap), nor static",
        binary.display(),
        library.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "\tlinux-vdso.so.1 (0x00007ff7ea6b9000)\n\t/usr/lib/redoubt/libredoubt.so (0x00007ff7ea6ac000)\n\tlibz.so.1 => /lib/libz.so.1 (0x00007ff7ea609000)\n";

    #[test]
    fn the_library_is_found_among_what_is_loaded() {
        assert!(is_listed(LISTED, Path::new("/usr/lib/redoubt/libredoubt.so")));
        assert!(!is_listed(LISTED, Path::new("/usr/lib/redoubt/libredoubt")));
        assert!(!is_listed(LISTED, Path::new("/lib/libz.so.1")));
        assert!(!is_listed("mariadbd  Ver 10.11.19", Path::new("/usr/lib/redoubt/libredoubt.so")));
    }

    #[test]
    fn a_file_that_is_no_library_is_refused_with_the_loaders_reason() {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("libredoubt.so");
        std::fs::write(&library, "no library").unwrap();
        let error = check(Path::new("/bin/true"), &library).unwrap_err().to_string();
        assert!(error.contains("/bin/true") && error.contains("cannot be preloaded"), "{error}");
        let blank = directory.path().join("with blank.so");
        std::fs::write(&blank, "").unwrap();
        assert!(check(Path::new("/bin/true"), &blank).unwrap_err().to_string().contains("blanks"));
    }
}
