//! Plugins of the server that tests need and Debian's `mariadb-server-core` does not have.
//!
//! Each is looked for in the directory `REDOUBT_SERVER_PLUGINS`, in the server's own directory of plugins, and in
//! `target/mariadb-server`, where `scripts/setup.sh` unpacks the packages. There is no test without them.

use std::path::{Path, PathBuf};

use redoubt_workload::error::{Error, Result};

const UNPACKED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target/mariadb-server/usr/lib/mysql/plugin");

/// The file of the plugin of this name.
///
/// # Errors
/// [`Error::State`] when there is none here.
pub fn find(name: &str) -> Result<PathBuf> {
    let given = redoubt_test_support::setting_os("REDOUBT_SERVER_PLUGINS").map(PathBuf::from);
    let places =
        [given.unwrap_or_default(), PathBuf::from("/usr/lib/mysql/plugin"), Path::new(UNPACKED).to_owned()];
    let mut files = places.iter().map(|place| place.join(format!("{name}.so")));
    files.find(|file| file.is_file()).ok_or_else(|| {
        Error::State(format!(
            "{name}.so is in none of {places:?}; `bash scripts/setup.sh` fetches it (a Debian package of the server)"
        ))
    })
}

/// Options with which a server loads the plugin of this name, from wherever it is, at every start.
///
/// # Errors
/// As for [`find`].
pub fn load(name: &str) -> Result<Vec<String>> {
    let file = find(name)?;
    let directory = file.parent().unwrap_or(Path::new("/")).canonicalize();
    let directory = directory.map_err(Error::io_at("find the directory of", &file))?;
    Ok(vec![format!("--plugin-dir={}", directory.display()), format!("--plugin-load-add={name}")])
}
