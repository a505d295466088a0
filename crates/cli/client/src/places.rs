//! Settings that put a server's files outside its data directory, and where those files are on a volume.
//!
//! A volume is one data directory. Which disk a file is on is the node's business there, so these settings have no
//! effect any more: `redoubt run` overrides each of them on the server's command line. The files lie in the data
//! directory itself, under the names they have everywhere (`undo001`, `ib_logfile0`, `ibdata1`, `aria_log_control`,
//! `mysql-bin.000001`). So a takeover needs no directory but one, an export is one plain data directory, and changing
//! such a setting changes nothing. Redo names no file of these (FILE records are about tables only), so none of it
//! moves anything in a log. [`crate::import`] lays a stopped server's files out in the same way.
//!
//! Pure, except for checks which directories exist.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// A directory setting of InnoDB: its files are always in the data directory itself.
pub const DATA_HOME: &str = "innodb-data-home-dir";
/// As [`DATA_HOME`].
pub const LOG_HOME: &str = "innodb-log-group-home-dir";
/// As [`DATA_HOME`].
pub const UNDO: &str = "innodb-undo-directory";
/// Directory of MySQL's doublewrite files, which are not in a volume.
pub const DOUBLEWRITE: &str = "innodb-doublewrite-dir";
/// Aria's log. In a directory inside the data directory it may stay.
pub const ARIA: &str = "aria-log-dir-path";
/// Base name of the binary log. In a directory inside the data directory it may stay.
pub const BINARY_LOG: &str = "log-bin";
/// Its index.
pub const BINARY_LOG_INDEX: &str = "log-bin-index";

/// Every file of Aria's log has a name that starts so.
pub const ARIA_LOG_PREFIX: &str = "aria_log";
const ARIA_CONTROL: &str = "aria_log_control";

/// A setting that does not count on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The setting, as an option is written.
    pub option: &'static str,
    /// Its value.
    pub value: String,
    becomes: String,
}

impl Moved {
    /// Name of the setting.
    pub fn setting(&self) -> String {
        self.option.replace('-', "_")
    }

    /// Overrides it.
    pub fn argument(&self) -> String {
        format!("--{}={}", self.option, self.becomes)
    }
}

/// The settings that do not count, in a fixed order. `datadir` is absolute.
pub fn moved(settings: &HashMap<String, String>, datadir: &Path) -> Vec<Moved> {
    let mut moved = Vec::new();
    let mut add = |option, value: &str, becomes: String| {
        moved.push(Moved { option, value: value.to_owned(), becomes });
    };
    for option in [DATA_HOME, LOG_HOME, UNDO] {
        if let Some((value, directory)) = directory_of(settings, option, datadir)
            && directory != resolve(datadir, "")
        {
            add(option, value, "./".to_owned());
        }
    }
    if let Some((value, directory)) = directory_of(settings, ARIA, datadir)
        && !stays(&directory, OsStr::new(ARIA_CONTROL), datadir)
    {
        add(ARIA, value, "./".to_owned());
    }
    if let Some((value, file)) = file_of(settings, BINARY_LOG, datadir)
        && let (Some(directory), Some(name)) = (file.parent(), file.file_name())
        && !stays(directory, with_ending(&file, "index").file_name().unwrap_or(name), datadir)
    {
        add(BINARY_LOG, value, in_data_directory(name));
    }
    if let Some((value, file)) = file_of(settings, BINARY_LOG_INDEX, datadir)
        && let (Some(directory), Some(name)) = (file.parent(), file.file_name())
        && !stays(directory, name, datadir)
    {
        add(BINARY_LOG_INDEX, value, in_data_directory(name));
    }
    moved
}

/// A path relative to the data directory, as the server writes it.
pub fn in_data_directory(name: &OsStr) -> String {
    format!("./{}", name.to_string_lossy())
}

/// Files that lie inside the data directory stay where a volume has them already, which `marker` shows. Without it,
/// the directory is not in the volume either, and could not be made there.
fn stays(directory: &Path, marker: &OsStr, datadir: &Path) -> bool {
    let datadir = resolve(datadir, "");
    directory == datadir || (directory.starts_with(&datadir) && directory.join(marker).exists())
}

/// A directory that is set, and where it is.
pub fn directory_of<'s>(
    settings: &'s HashMap<String, String>,
    option: &str,
    datadir: &Path,
) -> Option<(&'s str, PathBuf)> {
    let value = value_of(settings, option)?;
    Some((value, resolve(datadir, value)))
}

/// Path of the file that an option names. A value that ends in a slash names none; nor does a switch.
pub fn file_of<'s>(
    settings: &'s HashMap<String, String>,
    option: &str,
    datadir: &Path,
) -> Option<(&'s str, PathBuf)> {
    let value = value_of(settings, option)?;
    if value.ends_with('/') || matches!(value, "0" | "1" | "ON" | "OFF") {
        return None;
    }
    let path = Path::new(value);
    let name = path.file_name()?;
    let directory = path.parent().map_or(String::new(), |parent| parent.to_string_lossy().into_owned());
    Some((value, resolve(datadir, &directory).join(name)))
}

/// An absolute path to something in a directory below the data directory.
pub fn is_absolute_below(settings: &HashMap<String, String>, option: &str, datadir: &Path) -> bool {
    let Some(value) = value_of(settings, option).filter(|value| value.starts_with('/')) else { return false };
    let directory = match option {
        ARIA => Some(resolve(datadir, value)),
        _ => file_of(settings, option, datadir).and_then(|(_, file)| file.parent().map(Path::to_owned)),
    };
    let datadir = resolve(datadir, "");
    directory.is_some_and(|directory| directory != datadir && directory.starts_with(datadir))
}

/// Name of a file that belongs to the binary log of this base name.
pub fn with_ending(base: &Path, ending: &str) -> PathBuf {
    let name = base.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.split('.').next().unwrap_or_default();
    base.with_file_name(format!("{stem}.{ending}"))
}

fn value_of<'s>(settings: &'s HashMap<String, String>, option: &str) -> Option<&'s str> {
    settings
        .get(option)
        .map(String::as_str)
        .filter(|value| !value.is_empty() && *value != "(No default value)")
}

/// The directory that `value` names, without symbolic links as far as it exists, else without `.` and `..`.
pub fn resolve(datadir: &Path, value: &str) -> PathBuf {
    let joined = datadir.join(value);
    if let Ok(found) = joined.canonicalize() {
        return found;
    }
    let mut path = PathBuf::new();
    for part in joined.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                path.pop();
            }
            _ => path.push(part),
        }
    }
    // The existing part of it, without links.
    let there = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let resolved = there.and_then(|(above, found)| Some(found.join(path.strip_prefix(above).ok()?)));
    resolved.unwrap_or(path)
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;
