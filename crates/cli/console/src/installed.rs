//! Libraries and tools that were installed, or built, with the running program.
//!
//! A build leaves all of them in one directory. An installation puts the command into `bin`, and libraries and tools
//! into `lib/redoubt` beside it. The command with experimental device code is in the directory `experimental` of either,
//! with a library of its own; it shares the other libraries and the tools.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Path from the directory of the command to that of libraries and tools.
const LIBRARIES: &str = "../lib/redoubt";
/// Path from the directory of libraries and tools to that of the command.
const COMMANDS: &str = "../../bin";
/// The directory of the command with experimental device code, in that of libraries and tools.
const EXPERIMENTAL: &str = "experimental";
/// The command.
const COMMAND: &str = "redoubt";
/// Names the command to a tool that it starts, and to tests.
pub const COMMAND_VARIABLE: &str = "REDOUBT_BIN";
/// A bit of a file's mode for each class of users that may run it.
const MAY_RUN: u32 = 0o111;

/// Something that belongs to an installation was not found.
#[derive(Debug, thiserror::Error)]
pub enum NotInstalled {
    /// A library.
    #[error("the library {name} is not at {}; say where it is with {option}", either(tried))]
    Library {
        /// Its file name.
        name: String,
        /// Searched paths.
        tried: Vec<PathBuf>,
        /// The option that names it.
        option: String,
    },
    /// A tool.
    #[error(
        "the program {name} is not installed: it is neither in PATH nor at {}; install the Debian package {package}",
        either(tried)
    )]
    Tool {
        /// Its file name.
        name: String,
        /// Searched paths, besides PATH.
        tried: Vec<PathBuf>,
        /// The package that contains it.
        package: String,
    },
    /// The command itself.
    #[error(
        "the command redoubt is neither in PATH nor at {}; name it with the environment variable REDOUBT_BIN",
        either(tried)
    )]
    Command {
        /// Searched paths, besides PATH.
        tried: Vec<PathBuf>,
    },
}

fn either(paths: &[PathBuf]) -> String {
    let shown: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    shown.join(" or ")
}

/// A library of this name: the given one, or the one that was installed with `program`.
///
/// # Errors
/// [`NotInstalled::Library`] with the places that were tried, and the option by which a person can name it.
pub fn find_library(
    name: &str,
    given: Option<&Path>,
    option: &str,
    program: Option<&Path>,
) -> Result<PathBuf, NotInstalled> {
    let tried = match given {
        Some(given) => vec![given.to_owned()],
        None => beside(program, &places(program), name),
    };
    if let Some(found) = tried.iter().find_map(|path| path.canonicalize().ok()) {
        return Ok(found);
    }
    Err(NotInstalled::Library { name: name.to_owned(), tried, option: option.to_owned() })
}

/// A tool: beside the command, where packages put it, or in PATH. PATH comes last: with `sudo -E` it is not root's own.
///
/// # Errors
/// [`NotInstalled::Tool`] with the package that contains it.
pub fn find_tool(
    name: &str,
    package: &str,
    program: Option<&Path>,
    path: &OsStr,
) -> Result<PathBuf, NotInstalled> {
    let tried = beside(program, &places(program), name);
    let found = tried.iter().cloned().chain(in_path(path, name)).find(|path| may_run(path));
    found.ok_or(NotInstalled::Tool { name: name.to_owned(), tried, package: package.to_owned() })
}

/// The command that a tool belongs to: the given one, beside the tool, in `bin`, or in PATH.
///
/// # Errors
/// [`NotInstalled::Command`] with the places that were tried.
pub fn find_command(
    given: Option<&Path>,
    program: Option<&Path>,
    path: &OsStr,
) -> Result<PathBuf, NotInstalled> {
    let tried = match given {
        Some(given) => vec![given.to_owned()],
        None => beside(program, &["", COMMANDS], COMMAND),
    };
    let elsewhere = if given.is_some() { Vec::new() } else { in_path(path, COMMAND) };
    let found = tried.iter().chain(&elsewhere).find(|path| may_run(path));
    match found {
        Some(found) => Ok(found.canonicalize().unwrap_or_else(|_| found.clone())),
        None => Err(NotInstalled::Command { tried }),
    }
}

/// Directories, relative to that of `program`, that may hold its libraries and tools.
fn places(program: Option<&Path>) -> [&'static str; 2] {
    let folder = program.and_then(Path::parent).and_then(Path::file_name);
    let is_experimental = folder.is_some_and(|folder| folder == OsStr::new(EXPERIMENTAL));
    ["", if is_experimental { ".." } else { LIBRARIES }]
}

/// `name` in these directories, relative to that of `program`.
fn beside(program: Option<&Path>, directories: &[&str], name: &str) -> Vec<PathBuf> {
    let folder = program.and_then(Path::parent);
    let at = |folder: &Path| directories.iter().map(|directory| folder.join(directory).join(name)).collect();
    folder.map(at).unwrap_or_default()
}

/// `name` in the directories of PATH. An empty entry is left out: it would be the current directory.
fn in_path(path: &OsStr, name: &str) -> Vec<PathBuf> {
    let directories = std::env::split_paths(path).filter(|directory| directory.is_absolute());
    directories.map(|directory| directory.join(name)).collect()
}

fn may_run(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & MAY_RUN != 0)
}

#[cfg(test)]
mod tests;
