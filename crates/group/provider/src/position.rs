//! Position of the server's data, which the server itself reports before it opens that data.
//!
//! The library is loaded before InnoDB, and only InnoDB has its position, after crash recovery. So the server's program
//! is run once more with `--wsrep-recover`: it recovers, writes its position to the error log and ends. Packages do the
//! same with a script around the server (`galera_recovery`); a position that is given by `--wsrep-start-position` saves
//! the time.
//!
//! This is impossible for a server on a Redoubt volume, since programs that it starts have no volume. There
//! `redoubt run` asks before it becomes the server, and passes the position on in [`KNOWN`].

use crate::replica::GroupId;
use crate::write_set::Seqno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Set for the server that is run for its position, so that it loads no provider again.
pub const RECOVERING: &str = "REDOUBT_GROUP_RECOVERING";
/// The position from a process that has already asked: in the servers' format, also for data that was never in a group.
pub const KNOWN: &str = "REDOUBT_GROUP_POSITION";
const MARK: &str = "Recovered position: ";

/// Reason why the position is unknown.
#[derive(Debug, thiserror::Error)]
pub enum PositionError {
    /// The program did not start.
    #[error("cannot run the server with --wsrep-recover for its position: {0}")]
    Run(#[from] std::io::Error),
    /// No process has asked for the position.
    #[error(
        "no position given, and the server's data is on volume {0}; start it with this version's `redoubt run`"
    )]
    OnVolume(String),
    /// The server did not report it.
    #[error(
        "the server did not report its position with --wsrep-recover ({status}); the end of its messages:\n{tail}"
    )]
    Nothing {
        /// Exit status of the server.
        status: String,
        /// End of its messages.
        tail: String,
    },
}

/// Name of the volume with this server's data, which no program that the server starts can read.
pub fn volume() -> Option<String> {
    std::env::var("REDOUBT_VOLUME").ok().filter(|volume| !volume.is_empty())
}

/// Position of this server's data. `None`: the data was never part of a group.
///
/// # Errors
/// [`PositionError`].
pub fn recover(data_directory: &Path) -> Result<Option<(GroupId, Seqno)>, PositionError> {
    if let Some(known) = std::env::var(KNOWN).ok().and_then(|text| gtid(&text)) {
        return Ok(known);
    }
    if let Some(volume) = volume() {
        return Err(PositionError::OnVolume(volume));
    }
    let arguments = std::fs::read("/proc/self/cmdline")?;
    let arguments = arguments.split(|byte| *byte == 0).skip(1).filter(|argument| !argument.is_empty());
    let arguments = arguments.map(|argument| std::ffi::OsString::from_vec(argument.to_vec()));
    let mut server = Command::new("/proc/self/exe");
    server.args(arguments.filter(|argument| !begins_group(argument)));
    ask(server, data_directory)
}

/// Whether the argument is the option that begins a group.
pub fn begins_group(argument: &OsStr) -> bool {
    argument == "--wsrep-new-cluster" || argument == "--wsrep_new_cluster"
}

/// Runs `server`, which has all its arguments but [`begins_group`], until it has reported its position.
///
/// # Errors
/// [`PositionError`].
pub fn ask(mut server: Command, data_directory: &Path) -> Result<Option<(GroupId, Seqno)>, PositionError> {
    let log = data_directory.join("redoubt_group.recovery.log");
    remove(&log)?;
    let pid_file = data_directory.join("redoubt_group.recovery.pid");
    let socket = data_directory.join("redoubt_group.recovery.sock");
    let status = server
        .arg("--wsrep-recover")
        .arg(option("--log-error=", &log))
        .arg(option("--pid-file=", &pid_file))
        .arg(option("--socket=", &socket))
        .arg("--skip-networking")
        .env(RECOVERING, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    let text = String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
    [&log, &pid_file, &socket].into_iter().try_for_each(|path| remove(path))?;
    parse(&text).ok_or_else(|| {
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(10)..].join("\n");
        PositionError::Nothing { status: status.to_string(), tail }
    })
}

fn option(name: &str, value: &Path) -> std::ffi::OsString {
    let mut option = std::ffi::OsString::from(name);
    option.push(value);
    option
}

fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The last position in the server's messages: `Some(None)` if the data has none.
fn parse(text: &str) -> Option<Option<(GroupId, Seqno)>> {
    let (_, after) = text.rsplit_once(MARK)?;
    gtid(after.split([',', '\n', ' ', '\r']).next()?)
}

/// Parses a position in the servers' format: `Some(None)` for data that was never in a group.
fn gtid(text: &str) -> Option<Option<(GroupId, Seqno)>> {
    let (uuid, seqno) = text.rsplit_once(':')?;
    let seqno: i64 = seqno.parse().ok()?;
    let digits: String = uuid.chars().filter(|digit| *digit != '-').collect();
    if digits.len() != 32 {
        return None;
    }
    let mut group = GroupId::default();
    for (index, byte) in group.0.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some((seqno >= 0 && group != GroupId::default()).then_some((group, Seqno(seqno))))
}

/// A position in the servers' format.
pub fn text_of(position: Option<(GroupId, Seqno)>) -> String {
    let (group, seqno) = position.unwrap_or((GroupId::default(), Seqno(-1)));
    format!("{group}:{}", seqno.0)
}

#[cfg(test)]
mod tests;
