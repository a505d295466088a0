//! The server command: its word for the server, and the directories of the server's data and redo log.
//!
//! A command may start with any program (a loader, `env`, `numactl`). If one of its words names a server, that is
//! asked for its settings by the same command with `--verbose --help`, so option files count. A command without such
//! a word (a script) is never run to be asked: then the directories must be among its options, or given to
//! `redoubt run`.

use crate::error::{ClientError, Result};
use crate::server::series::{self, Use};
use crate::server::settings::parse_settings;
use crate::server::{self, SERVER_NAMES, find_program, is_leading};
use redoubt_redo::Family;
use redoubt_redo::mysql::log_file::DIRECTORY;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const LOG_DIRECTORY: &str = "innodb-log-group-home-dir";
const WRITE_AHEAD: &str = "innodb-log-write-ahead-size";
/// Options that make a server do something at once, or that do not go with `--help`.
const NOT_ASKED: [&str; 5] =
    ["initialize", "initialize-insecure", "bootstrap", "daemonize", "print-defaults"];

/// The command of a server, with its directories.
#[derive(Debug)]
pub struct ServerCommand {
    /// Program to execute.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Data directory, absolute.
    pub datadir: PathBuf,
    log_directory: PathBuf,
}

impl ServerCommand {
    /// Collects the facts that are needed before the server starts.
    ///
    /// # Errors
    /// [`ClientError::Usage`] naming what is wrong or missing.
    pub fn examine(command: &[String], datadir: Option<&Path>) -> Result<Self> {
        let Some((name, arguments)) = command.split_first() else {
            return Err(ClientError::Usage("no server command after `--`".to_owned()));
        };
        let program = find_program(name)?;
        let mut arguments = arguments.to_vec();
        let given = option(&arguments, "datadir").map(PathBuf::from);
        match (datadir, given) {
            (Some(ours), Some(theirs)) if absolute(ours)? != absolute(&theirs)? => {
                return Err(ClientError::Usage(format!(
                    "--datadir is {} for `redoubt run` and {} for the server; give it once",
                    ours.display(),
                    theirs.display()
                )));
            }
            (Some(ours), None) => {
                arguments.push(format!("--datadir={}", absolute(ours)?.display()));
            }
            _ => {}
        }
        let place = command.iter().position(|word| is_server_name(word));
        match place {
            Some(place) => Self::ask(program, arguments, place),
            None => Self::from_options(program, arguments),
        }
    }

    /// Builds it from the server's own settings. `place` is that of the server in the whole command.
    fn ask(program: PathBuf, mut arguments: Vec<String>, place: usize) -> Result<Self> {
        let (before, options) = arguments.split_at(place.min(arguments.len()));
        let leading = options.iter().take_while(|argument| is_leading(argument)).count();
        let (leading, options) = options.split_at(leading);
        let mut command = asking(&program, before);
        command.args(leading.iter().filter(|argument| *argument != "--print-defaults"));
        command.args(options.iter().filter(|argument| !is_one_of(argument, &NOT_ASKED)));
        let output = command
            .args(["--verbose", "--help"])
            .output()
            .map_err(|error| ClientError::io("run", &program, error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().find(|line| line.contains("  Ver ")).unwrap_or_default().to_owned();
        let settings = parse_settings(&text);
        // After an unknown option MariaDB still prints its settings, and then fails.
        let datadir = setting(&settings, "datadir").filter(|_| output.status.success());
        let Some(datadir) = datadir else {
            let errors = String::from_utf8_lossy(&output.stderr);
            let errors: Vec<_> =
                errors.lines().filter(|line| line.to_ascii_lowercase().contains("error")).collect();
            return Err(ClientError::Usage(format!(
                "{} was asked for its settings (--verbose --help) and does not tell them: {}",
                program.display(),
                if errors.is_empty() { output.status.to_string() } else { errors.join("; ") }
            )));
        };
        let version = series::version_of(&version, &program, Use::LocalLog)?;
        let datadir = absolute(Path::new(datadir))?;
        let log_directory = setting(&settings, LOG_DIRECTORY).map_or_else(
            || datadir.clone(),
            // Relative to the data directory, which is the server's current directory.
            |directory| datadir.join(directory),
        );
        if version.family == Family::MySql && !sets_write_ahead(&program, before, leading, options)? {
            // Larger units only fill up the rest of a page of a disk.
            arguments.push(format!("--{WRITE_AHEAD}=512"));
        }
        Ok(Self { program, arguments, datadir, log_directory })
    }

    /// Builds it from the options of a command whose server cannot be asked.
    fn from_options(program: PathBuf, arguments: Vec<String>) -> Result<Self> {
        let Some(datadir) = option(&arguments, "datadir") else {
            return Err(ClientError::Usage(format!(
                "no word of the command is mysqld or mariadbd, so it is not known where {} has its redo log; say \
                 which data directory it uses with --datadir",
                program.display()
            )));
        };
        let datadir = absolute(Path::new(datadir))?;
        let log_directory = option(&arguments, LOG_DIRECTORY)
            .map_or_else(|| datadir.clone(), |directory| datadir.join(directory));
        Ok(Self { program, arguments, datadir, log_directory })
    }

    /// Directories of existing or future redo files. MySQL has a directory of its own below, which may be on another
    /// device.
    pub fn log_directories(&self) -> Vec<PathBuf> {
        let below = self.log_directory.join(DIRECTORY);
        if below.exists() { vec![below] } else { vec![self.log_directory.clone()] }
    }
}

fn is_server_name(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    // A data directory may be called like a server.
    SERVER_NAMES.contains(&name) && find_program(word).is_ok()
}

/// The command up to the server, to be asked something.
fn asking(program: &Path, before: &[String]) -> Command {
    let mut command = server::asking(program);
    command.args(before);
    command
}

/// The write unit is set by an option or in an option file.
fn sets_write_ahead(
    program: &Path,
    before: &[String],
    leading: &[String],
    options: &[String],
) -> Result<bool> {
    if option(options, WRITE_AHEAD).is_some() {
        return Ok(true);
    }
    let output = asking(program, before)
        .args(leading)
        .arg("--print-defaults")
        .output()
        .map_err(|error| ClientError::io("run", program, error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
    Ok(option(&words, WRITE_AHEAD).is_some())
}

/// An option's name as the server compares it: `--loose_innodb_x=1` is `innodb-x`.
fn option_name(argument: &str) -> Option<String> {
    let name = argument.strip_prefix("--")?.split('=').next()?.replace('_', "-");
    Some(name.strip_prefix("loose-").map_or_else(|| name.clone(), str::to_owned))
}

fn is_one_of(argument: &str, names: &[&str]) -> bool {
    option_name(argument).is_some_and(|name| names.contains(&name.as_str()))
}

/// The last value of an option, written with `=` or as the next word.
fn option<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let short = if name == "datadir" { "-h" } else { "" };
    let mut found = None;
    for (at, argument) in arguments.iter().enumerate() {
        let next = arguments.get(at + 1).map(String::as_str);
        if option_name(argument).as_deref() == Some(name) {
            found = argument.split_once('=').map(|(_, value)| value).or(next);
        } else if argument == short {
            found = next;
        }
    }
    found
}

/// A setting with a value.
fn setting<'a>(settings: &'a HashMap<String, String>, name: &str) -> Option<&'a str> {
    settings.get(name).map(String::as_str).filter(|value| !value.is_empty() && *value != "(No default value)")
}

/// An absolute path without symbolic links as far as it exists.
fn absolute(path: &Path) -> Result<PathBuf> {
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    let path = std::path::absolute(path).map_err(|error| ClientError::io("find", path, error))?;
    // `absolute` keeps a trailing slash, which would count as a difference.
    Ok(path.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn options_are_found_in_every_spelling() {
        for text in
            ["--datadir=/d", "--no-defaults --datadir /d --x", "-h /d", "--datadir=/x --loose-datadir=/d"]
        {
            assert_eq!(option(&words(text), "datadir"), Some("/d"), "{text}");
        }
        assert_eq!(option(&words("--innodb_log-group_home_dir=l"), "innodb-log-group-home-dir"), Some("l"));
        assert_eq!(option(&words("--datadirectory=/d -x"), "datadir"), None);
        assert!(is_one_of("--initialize_insecure", &NOT_ASKED) && !is_one_of("--initialized", &NOT_ASKED));
    }

    #[test]
    fn a_script_is_not_run_to_be_asked() {
        let command = words("/bin/false --datadir=/nowhere/data/ --innodb-log-group-home-dir=log");
        let server = ServerCommand::examine(&command, None).unwrap();
        assert_eq!(server.datadir, Path::new("/nowhere/data"));
        assert_eq!(server.log_directories(), [Path::new("/nowhere/data/log")]);
        let error = ServerCommand::examine(&words("/bin/false"), None).unwrap_err().to_string();
        assert!(error.contains("--datadir") && error.contains("/bin/false"), "{error}");
        let error = ServerCommand::examine(&command, Some(Path::new("/other"))).unwrap_err().to_string();
        assert!(error.contains("/other") && error.contains("/nowhere/data"), "{error}");
        let server = ServerCommand::examine(&words("/bin/false --x"), Some(Path::new("/nowhere/d"))).unwrap();
        assert_eq!(server.arguments, ["--x", "--datadir=/nowhere/d"]);
    }
}
