//! How far the data of the server is, asked of the server itself before it opens that data.
//!
//! The library is loaded before InnoDB is there, and InnoDB alone knows its position, after its own crash recovery. So
//! the server's program is run once more with `--wsrep-recover`: it recovers, writes its position to the error log and
//! ends. Packages do the same with a script around the server (`galera_recovery`); a position that was given with
//! `--wsrep-start-position` saves the time.

use crate::replica::GroupId;
use crate::write_set::Seqno;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Set for the server that is run for its position, so that it loads no provider again.
pub const RECOVERING: &str = "REDOUBT_GROUP_RECOVERING";
const MARK: &str = "Recovered position: ";

/// Why the position is not known.
#[derive(Debug, thiserror::Error)]
pub enum PositionError {
    /// The program cannot be run.
    #[error("cannot run the server with --wsrep-recover to learn its position: {0}")]
    Run(#[from] std::io::Error),
    /// It did not say.
    #[error(
        "the server, run with --wsrep-recover, did not say its position ({status}); the end of its messages:\n{tail}"
    )]
    Nothing {
        /// How it ended.
        status: String,
        /// What it said.
        tail: String,
    },
}

/// Asks. `None`: the data was never part of a group.
///
/// # Errors
/// [`PositionError`].
pub fn recover(data_directory: &Path) -> Result<Option<(GroupId, Seqno)>, PositionError> {
    let arguments = std::fs::read("/proc/self/cmdline")?;
    let arguments = arguments.split(|byte| *byte == 0).skip(1).filter(|argument| !argument.is_empty());
    let arguments = arguments.map(|argument| std::ffi::OsString::from_vec(argument.to_vec()));
    let log = data_directory.join("redoubt_group.recovery.log");
    remove(&log)?;
    let pid_file = data_directory.join("redoubt_group.recovery.pid");
    let socket = data_directory.join("redoubt_group.recovery.sock");
    let status = Command::new("/proc/self/exe")
        .args(
            arguments
                .filter(|argument| argument != "--wsrep-new-cluster" && argument != "--wsrep_new_cluster"),
        )
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

/// The last position in the server's messages: `Some(None)` if it has none.
fn parse(text: &str) -> Option<Option<(GroupId, Seqno)>> {
    let (_, after) = text.rsplit_once(MARK)?;
    let gtid = after.split([',', '\n', ' ', '\r']).next()?;
    let (uuid, seqno) = gtid.rsplit_once(':')?;
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

#[cfg(test)]
mod tests;
