//! Servers on this host that have the network library.
//!
//! The library keeps its counters in memory without a name in the file system, behind a descriptor of the server. The
//! kernel allows access to users that may inspect the server's process: the server's own user, and root.

use crate::error::{CliError, Result};
use crate::net::args::Selection;
use redoubt_shm_control::net::{COLLAPSER_WORD, LEN_BYTES, LIMIT_WORD, Limit, Mode, Snapshot, find_memory};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A server with the library.
pub struct NetServer {
    /// Process id.
    pub pid: u32,
    /// Its current directory, which servers make their data directory.
    pub datadir: Option<PathBuf>,
    memory: PathBuf,
}

/// Servers found on this host.
struct Found {
    servers: Vec<NetServer>,
    /// Processes of servers that this user may not look into.
    hidden: Vec<u32>,
}

fn is_server(process: &Path) -> bool {
    std::fs::read_to_string(process.join("comm"))
        .is_ok_and(|name| matches!(name.trim_end(), "mariadbd" | "mysqld"))
}

fn find() -> Result<Found> {
    let proc = Path::new("/proc");
    let mut found = Found { servers: Vec::new(), hidden: Vec::new() };
    for entry in std::fs::read_dir(proc).map_err(|error| CliError::io("read", proc, error))?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let process = entry.path();
        match find_memory(&process) {
            Ok(Some(memory)) => {
                let datadir = std::fs::read_link(process.join("cwd")).ok();
                found.servers.push(NetServer { pid, datadir, memory });
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied && is_server(&process) => {
                found.hidden.push(pid);
            }
            // Gone meanwhile, or without the library.
            _ => {}
        }
    }
    found.servers.sort_by_key(|server| server.pid);
    Ok(found)
}

fn nothing(found: &Found, which: &str) -> CliError {
    let hint = if found.hidden.is_empty() {
        "start one with `redoubt net run`".to_owned()
    } else {
        let pids: Vec<_> = found.hidden.iter().map(u32::to_string).collect();
        format!(
            "this user may not look into process {}: ask as root, or as the user who has started it",
            pids.join(", ")
        )
    };
    CliError::Usage(format!("no server {which} has the network library; {hint}"))
}

/// Servers of `found` that the selection names, and the selection in words.
fn select(servers: Vec<NetServer>, selection: &Selection) -> Result<(String, Vec<NetServer>)> {
    Ok(match (selection.pid, &selection.datadir) {
        (Some(pid), _) => (
            format!("with process id {pid}"),
            servers.into_iter().filter(|server| server.pid == pid).collect(),
        ),
        (None, Some(datadir)) => {
            let path = datadir.canonicalize().map_err(|error| CliError::io("open", datadir, error))?;
            let of = |server: &NetServer| server.datadir.as_ref().is_some_and(|datadir| *datadir == path);
            (format!("on {}", path.display()), servers.into_iter().filter(of).collect())
        }
        (None, None) => ("on this host".to_owned(), servers),
    })
}

/// The selected servers; all of them without a selection.
///
/// # Errors
/// [`CliError::Usage`] if there is none; errors of the system.
pub fn selected(selection: &Selection) -> Result<Vec<NetServer>> {
    let mut found = find()?;
    let (which, chosen) = select(std::mem::take(&mut found.servers), selection)?;
    if chosen.is_empty() { Err(nothing(&found, &which)) } else { Ok(chosen) }
}

/// The selected servers, and the number of servers that this user may not inspect. None is no error: servers start and
/// end while a monitoring system looks.
pub fn readable(selection: &Selection) -> (Vec<NetServer>, usize) {
    let Ok(mut found) = find() else { return (Vec::new(), 0) };
    let servers = std::mem::take(&mut found.servers);
    let chosen = select(servers, selection).map(|(_, chosen)| chosen).unwrap_or_default();
    (chosen, found.hidden.len())
}

/// The selected server.
///
/// # Errors
/// As [`selected`]; [`CliError::Usage`] if there are several.
pub fn selected_one(selection: &Selection) -> Result<NetServer> {
    let mut servers = selected(selection)?;
    match servers.pop() {
        Some(server) if servers.is_empty() => Ok(server),
        last => {
            servers.extend(last);
            let pids: Vec<_> = servers.iter().map(|server| server.pid.to_string()).collect();
            Err(CliError::Usage(format!(
                "{} servers have the network library (processes {}); say which with --pid or --datadir",
                pids.len(),
                pids.join(", ")
            )))
        }
    }
}

impl NetServer {
    /// Counters of the library.
    ///
    /// # Errors
    /// [`CliError::Usage`] if another version wrote it; errors of the system.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let mut bytes = Vec::new();
        // A process may give the name to a pipe; opening that must not wait.
        let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&self.memory);
        let mut file = opened.map_err(|error| CliError::io("open", &self.memory, error))?;
        // Every file with that name is read up to the expected length only.
        let limit = LEN_BYTES as u64 + 1;
        file.by_ref()
            .take(limit)
            .read_to_end(&mut bytes)
            .map_err(|error| CliError::io("read", &self.memory, error))?;
        Snapshot::parse(&bytes).map_err(|error| CliError::Usage(format!("process {}: {error}", self.pid)))
    }

    /// Switches the collapser.
    ///
    /// # Errors
    /// As [`NetServer::snapshot`].
    pub fn set_collapser(&self, mode: Mode) -> Result<()> {
        self.set_word(COLLAPSER_WORD, mode as u64)
    }

    /// Sets the limit of admission.
    ///
    /// # Errors
    /// As [`NetServer::snapshot`].
    pub fn set_limit(&self, limit: Limit) -> Result<()> {
        let now = self.snapshot()?.limit;
        self.set_word(LIMIT_WORD, now.replaced_by(limit).to_word())
    }

    /// Sets one word of the memory.
    ///
    /// # Errors
    /// As [`NetServer::snapshot`].
    pub fn set_word(&self, at: usize, value: u64) -> Result<()> {
        self.snapshot()?;
        let file = File::options().write(true).open(&self.memory);
        let file = file.map_err(|error| CliError::io("open", &self.memory, error))?;
        file.write_all_at(&value.to_le_bytes(), at as u64 * 8)
            .map_err(|error| CliError::io("write", &self.memory, error))
    }
}
