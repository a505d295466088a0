//! The local data directory: a cache of the volume's plain files, and stubs for its InnoDB files.
//!
//! A directory that `redoubt run` filled carries `.redoubt` (JSON: volume id and name). Any other directory with
//! something in it is refused. A lock on that file, inherited by the server, keeps a second `redoubt run` out.
//!
//! Files the volume does not have are moved to `.redoubt-orphans/`; only stubs, which have no content, are removed.

use super::server::Server;
use crate::client::Client;
use crate::error::{CliError, Result};
use crate::show::Progress;
use redoubt_logdev::format_version::unknown_version;
use redoubt_wire::control::{Attachment, Entry, EntryKind, Reply, Request};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Permissions};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

const MARKER: &str = ".redoubt";
const ORPHANS: &str = ".redoubt-orphans";

/// Version of the marker; those of before it had one count as 1.
const FORMAT: u32 = 1;

fn first_format() -> u64 {
    1
}

#[derive(Serialize, Deserialize)]
struct Marker {
    #[serde(default = "first_format")]
    format: u64,
    volume_id: String,
    volume: String,
}

/// See the module.
pub struct DataDirectory {
    path: PathBuf,
    volume: String,
    lock: File,
    marker: Option<Marker>,
}

impl DataDirectory {
    /// Opens and locks a data directory.
    ///
    /// # Errors
    /// [`CliError::Usage`] if it holds something else, is another volume's, or is in use.
    pub fn open(path: &Path, volume: &str) -> Result<Self> {
        let marker_path = path.join(MARKER);
        if !marker_path.exists() {
            let entries = std::fs::read_dir(path).map_err(|error| CliError::io("list", path, error))?;
            let count = entries.count();
            if count > 0 {
                return Err(CliError::Usage(format!(
                    "{} holds {count} files that `redoubt run` did not put there; use an empty directory, or take a \
                     server's data over with `redoubt volume import`",
                    path.display()
                )));
            }
        }
        let mut lock = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&marker_path)
            .map_err(|error| CliError::io("write", &marker_path, error))?;
        // SAFETY: flock on a descriptor that is open; no memory is involved.
        if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            return Err(CliError::Usage(format!(
                "{} is in use by another server; stop it, or use another directory",
                path.display()
            )));
        }
        let mut text = String::new();
        lock.read_to_string(&mut text).map_err(|error| CliError::io("read", &marker_path, error))?;
        let marker: Option<Marker> = if text.is_empty() {
            None
        } else {
            Some(serde_json::from_str(&text).map_err(|error| {
                CliError::Usage(format!(
                    "{} is damaged ({error}), so it is not known which volume this directory belongs to; remove the \
                     directory {}, which is only a cache, or use another one",
                    marker_path.display(),
                    path.display()
                ))
            })?)
        };
        if let Some(marker) = marker.as_ref().filter(|marker| marker.format != u64::from(FORMAT)) {
            return Err(CliError::Usage(format!(
                "{}: {}; or use another directory, since this one is only a cache",
                marker_path.display(),
                unknown_version(marker.format, FORMAT)
            )));
        }
        Ok(Self { path: path.to_owned(), volume: volume.to_owned(), lock, marker })
    }

    /// The directory must be new, or this volume's.
    ///
    /// # Errors
    /// [`CliError::Usage`].
    pub fn check_volume(&mut self, volume_id: &str) -> Result<()> {
        match &self.marker {
            Some(marker) if marker.volume_id != volume_id => Err(CliError::Usage(format!(
                "{} belongs to volume {} ({}), not to {} ({volume_id}); use another directory",
                self.path.display(),
                marker.volume,
                marker.volume_id,
                self.volume
            ))),
            Some(_) => Ok(()),
            None => {
                let marker = Marker {
                    format: u64::from(FORMAT),
                    volume_id: volume_id.to_owned(),
                    volume: self.volume.clone(),
                };
                let text = serde_json::to_string(&marker)
                    .map_err(|error| CliError::io("write", self.path.join(MARKER), error.into()))?;
                self.lock
                    .rewind()
                    .and_then(|()| self.lock.write_all(text.as_bytes()))
                    .and_then(|()| self.lock.sync_all())
                    .map_err(|error| CliError::io("write", self.path.join(MARKER), error))?;
                self.marker = Some(marker);
                Ok(())
            }
        }
    }

    /// Brings the directory to the state of the volume.
    ///
    /// # Errors
    /// [`CliError::Io`], or what the node answers.
    pub fn fill(&mut self, client: &mut Client, attachment: &Attachment, server: &Server) -> Result<()> {
        let owner = owner_for(server)?;
        give(&self.path, owner)?;
        give(&self.path.join(MARKER), owner)?;
        let known: BTreeSet<&str> = attachment.entries.iter().map(|entry| entry.path.as_str()).collect();
        self.remove_others("", &known, server)?;
        let checksums = match client.call(&Request::PlainChecksums { volume: self.volume.clone() })? {
            Reply::PlainChecksums { checksums } => checksums,
            other => return Err(client.unexpected(&other)),
        };
        let plain = |entry: &&Entry| entry.kind == EntryKind::Plain;
        let total_bytes = attachment.entries.iter().filter(plain).map(|entry| entry.len_bytes).sum();
        let mut progress = Progress::new("fetching plain files", total_bytes);
        for entry in &attachment.entries {
            self.make_parents(&entry.path, owner)?;
            let target = self.path.join(&entry.path);
            match entry.kind {
                EntryKind::Directory => make_directory(&target)?,
                EntryKind::Plain => {
                    self.plain_file(client, entry, &target, &checksums)?;
                    progress.add(entry.len_bytes);
                }
                EntryKind::Tablespace | EntryKind::RedoLog => stub(&target, entry.len_bytes)?,
            }
            let default_mode = if entry.kind == EntryKind::Directory { 0o700 } else { 0o660 };
            let mode = if entry.mode & 0o777 == 0 { default_mode } else { entry.mode & 0o777 };
            std::fs::set_permissions(&target, Permissions::from_mode(mode))
                .map_err(|error| CliError::io("set permissions of", &target, error))?;
            give(&target, owner)?;
        }
        progress.finish();
        Ok(())
    }

    /// The lock outlives this process image: the server inherits it.
    ///
    /// # Errors
    /// [`CliError::Io`].
    pub fn keep_locked(&self) -> Result<()> {
        // SAFETY: fcntl on a descriptor that is open; clears FD_CLOEXEC.
        if unsafe { libc::fcntl(self.lock.as_raw_fd(), libc::F_SETFD, 0) } != 0 {
            return Err(CliError::io("lock", &self.path, std::io::Error::last_os_error()));
        }
        Ok(())
    }

    fn make_parents(&self, path: &str, owner: Option<(u32, u32)>) -> Result<()> {
        let mut at = self.path.clone();
        let Some((parents, _)) = path.rsplit_once('/') else { return Ok(()) };
        for part in parents.split('/') {
            at.push(part);
            if !at.exists() {
                make_directory(&at)?;
                give(&at, owner)?;
            }
        }
        Ok(())
    }

    fn plain_file(
        &self,
        client: &mut Client,
        entry: &Entry,
        target: &Path,
        checksums: &BTreeMap<String, u32>,
    ) -> Result<()> {
        let wanted = checksums.get(&entry.path).copied();
        let same_len = std::fs::symlink_metadata(target)
            .is_ok_and(|data| data.is_file() && data.len() == entry.len_bytes);
        if same_len && std::fs::read(target).is_ok_and(|bytes| Some(crc32c::crc32c(&bytes)) == wanted) {
            return Ok(());
        }
        let file = File::create(target).map_err(|error| CliError::io("create", target, error))?;
        let request = Request::Fetch { volume: self.volume.clone(), path: entry.path.clone() };
        let len_bytes = client.download(&request, |offset, piece| {
            file.write_all_at(piece, offset).map_err(|error| CliError::io("write", target, error))
        })?;
        file.set_len(len_bytes).map_err(|error| CliError::io("write", target, error))
    }

    fn remove_others(&self, relative: &str, known: &BTreeSet<&str>, server: &Server) -> Result<()> {
        let directory = self.path.join(relative);
        let entries =
            std::fs::read_dir(&directory).map_err(|error| CliError::io("list", &directory, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| CliError::io("list", &directory, error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if relative.is_empty() { name.clone() } else { format!("{relative}/{name}") };
            let metadata = entry.metadata().map_err(|error| CliError::io("read", entry.path(), error))?;
            if metadata.is_dir() {
                if name != ORPHANS {
                    self.remove_others(&path, known, server)?;
                    if !known.contains(path.as_str()) {
                        // Only if nothing is left in it.
                        let _ = std::fs::remove_dir(entry.path());
                    }
                }
            } else if !known.contains(path.as_str()) && !is_local(&path, &name, server) {
                self.put_away(&entry.path(), &path, metadata.is_file() && metadata.blocks() == 0)?;
            }
        }
        Ok(())
    }

    fn put_away(&self, from: &Path, path: &str, is_stub: bool) -> Result<()> {
        if is_stub {
            return std::fs::remove_file(from).map_err(|error| CliError::io("remove", from, error));
        }
        let orphans = self.path.join(ORPHANS);
        std::fs::create_dir_all(&orphans).map_err(|error| CliError::io("create", &orphans, error))?;
        let target = orphans.join(format!("{}-{:08x}", path.replace('/', "@"), fastrand::u32(..)));
        eprintln!("redoubt: {path} is not in the volume; moved to {}", target.display());
        std::fs::rename(from, &target).map_err(|error| CliError::io("move", from, error))
    }
}

/// Files that are this host's own business; the library leaves them alone too.
fn is_local(path: &str, name: &str, server: &Server) -> bool {
    name.starts_with(MARKER)
        || name.starts_with("ibtmp")
        || name.starts_with("ib_buffer_pool")
        // Written by mariadb-install-db and mariadb-upgrade themselves, not by the server.
        || path == "mysql_upgrade_info"
        || name.starts_with("#sql-temptable")
        || [".pid", ".err", ".sock"].iter().any(|ending| name.ends_with(ending))
        || server.local_files.iter().any(|local| local == path)
}

fn make_directory(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|error| CliError::io("create", path, error))
}

/// A sparse file of the right length without content.
fn stub(path: &Path, len_bytes: u64) -> Result<()> {
    let make = || -> std::io::Result<()> {
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.blocks() != 0 {
            file.set_len(0)?;
        }
        file.set_len(len_bytes)
    };
    make().map_err(|error| CliError::io("create", path, error))
}

/// Owner of the files, if this process may and must give them away.
fn owner_for(server: &Server) -> Result<Option<(u32, u32)>> {
    // SAFETY: geteuid has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Ok(None);
    }
    let Some(user) = server.user().filter(|user| *user != "root" && *user != "0") else { return Ok(None) };
    let passwd =
        std::fs::read_to_string("/etc/passwd").map_err(|error| CliError::io("read", "/etc/passwd", error))?;
    let found = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(user)).then_some(())?;
        let (uid, gid) = (fields.nth(1)?, fields.next()?);
        Some((uid.parse().ok()?, gid.parse().ok()?))
    });
    found
        .map(Some)
        .ok_or_else(|| CliError::Usage(format!("there is no user {user} on this host (option --user)")))
}

fn give(path: &Path, owner: Option<(u32, u32)>) -> Result<()> {
    let Some((uid, gid)) = owner else { return Ok(()) };
    chown(path, Some(uid), Some(gid)).map_err(|error| CliError::io("change the owner of", path, error))
}
