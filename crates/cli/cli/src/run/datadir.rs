//! The local data directory: a cache of the volume's plain files, and stubs for its InnoDB files.
//!
//! A directory that `redoubt run` filled carries `.redoubt` (JSON: volume id and name). Any other directory with
//! something in it is refused. A lock on that file, inherited by the server, keeps a second `redoubt run` out.
//!
//! It is filled ([`super::fill`]) in two steps: before the volume is attached, which may take long, and again
//! afterwards, for the changes since the first step only. Plain files are compared by length and checksum
//! ([`super::checksums`]).
//!
//! Files the volume does not have are moved to `.redoubt-orphans/`; only stubs, which have no content, are removed.

use super::checksums::Checksums;
use super::fill::{self, Filled};
use super::server::Server;
use crate::beneath::{Beneath, check_name};
use crate::client::Client;
use crate::error::{CliError, Result};
use redoubt_redo::Family;
use redoubt_storage::format_version::unknown_version;
use redoubt_wire::control::{Reply, Request, VolumeStatus};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

const MARKER: &str = ".redoubt";
const ORPHANS: &str = ".redoubt-orphans";
/// innodb_buffer_pool_filename, unless it is set.
const BUFFER_POOL_LIST: &str = "ib_buffer_pool";

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
    /// Generation of the last attach from this directory.
    #[serde(default)]
    generation: Option<u64>,
    /// Name under which this directory attaches the volume, written before the request. It has a random part. So an
    /// attach whose answer did not arrive is known to be of this directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attaching: Option<String>,
}

/// The volume whose files a directory holds; `None` without a valid marker.
pub fn volume_id_of(directory: &Path) -> Option<String> {
    let text = std::fs::read_to_string(directory.join(MARKER)).ok()?;
    Some(serde_json::from_str::<Marker>(&text).ok()?.volume_id)
}

/// The local data directory of a server on a volume.
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
            check_empty(path)?;
        }
        let mut lock = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            // A link must not redirect this write to another file.
            .custom_flags(libc::O_NOFOLLOW)
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
        let marker = parse_marker(&text, &marker_path)?;
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
                    generation: None,
                    attaching: None,
                };
                self.write_marker(marker)
            }
        }
    }

    /// The volume must not have been attached elsewhere since this directory had it; if that is not known, no server
    /// may have it now.
    ///
    /// # Errors
    /// [`CliError::TakenOver`].
    pub fn check_not_taken(&self, volume: &VolumeStatus) -> Result<()> {
        let own = self.marker.as_ref().and_then(|marker| marker.generation);
        let attaching = self.marker.as_ref().and_then(|marker| marker.attaching.as_ref());
        let is_own_attach = attaching == Some(&volume.attached_by);
        let taken = own.map_or(volume.state != "ready", |own| volume.generation > own);
        if !taken || is_own_attach {
            return Ok(());
        }
        Err(CliError::TakenOver(format!(
            "volume {} was attached by {} (generation {}, state {}), and --no-takeover is given; stop the server there, then \
             start this one once without --no-takeover",
            self.volume, volume.attached_by, volume.generation, volume.state
        )))
    }

    /// Remembers, durably, the name of an attach that may follow, and returns it. [`Self::check_volume`] comes first.
    ///
    /// # Errors
    /// [`CliError::Io`].
    pub fn note_attaching(&mut self, who: String) -> Result<String> {
        self.change_marker(|marker| marker.attaching = Some(who.clone()))?;
        Ok(who)
    }

    /// Remembers the generation that [`Self::check_not_taken`] compares with.
    ///
    /// # Errors
    /// [`CliError::Io`].
    pub fn note_attached(&mut self, generation: u64) -> Result<()> {
        self.change_marker(|marker| marker.generation = Some(generation))
    }

    fn change_marker(&mut self, change: impl FnOnce(&mut Marker)) -> Result<()> {
        match self.marker.take() {
            Some(mut marker) => {
                change(&mut marker);
                self.write_marker(marker)
            }
            None => Err(CliError::Usage(format!(
                "{} lost its marker during the check; try again",
                self.path.display()
            ))),
        }
    }

    fn write_marker(&mut self, marker: Marker) -> Result<()> {
        let mut text = serde_json::to_string(&marker)
            .map_err(|error| CliError::io("write", self.path.join(MARKER), error.into()))?;
        let mut write = || {
            // One write that only ever grows: at no time is the file empty, or does it end with an earlier text.
            let len = usize::try_from(self.lock.metadata()?.len()).unwrap_or(usize::MAX);
            text.extend(std::iter::repeat_n(' ', len.saturating_sub(text.len())));
            self.lock.write_all_at(text.as_bytes(), 0)?;
            self.lock.sync_all()
        };
        write().map_err(|error| CliError::io("write", self.path.join(MARKER), error))?;
        self.marker = Some(marker);
        Ok(())
    }

    /// Brings the directory to the state of the volume, as far as it is known before the volume is attached. This
    /// takes as long as there are bytes to fetch and to compare; a server that has the volume continues meanwhile.
    ///
    /// # Errors
    /// [`CliError::Io`], or what the node answers.
    pub fn prepare(&self, client: &mut Client, server: &Server) -> Result<Filled> {
        let mut filled = Filled::new(Checksums::load(&self.path)?);
        self.fill(client, server, &mut filled, false)?;
        filled.checksums.save()?;
        Ok(filled)
    }

    /// Brings a prepared directory to the state of the attached volume, by the changes since only.
    ///
    /// # Errors
    /// [`CliError::Io`], or what the node answers.
    pub fn finish(&self, client: &mut Client, server: &Server, mut filled: Filled) -> Result<()> {
        self.fill(client, server, &mut filled, true)
    }

    fn fill(
        &self,
        client: &mut Client,
        server: &Server,
        filled: &mut Filled,
        is_attached: bool,
    ) -> Result<()> {
        let owner = owner_for(server)?;
        give(&self.path, owner)?;
        self.give_marker(owner)?;
        let entries = match client.call(&Request::List { volume: self.volume.clone() })? {
            Reply::Attached(attachment) => attachment.entries,
            other => return Err(client.unexpected(&other)),
        };
        for entry in &entries {
            check_name(&entry.path)?;
        }
        let known: BTreeSet<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        self.remove_others("", &known, server)?;
        fill::fill(&self.path, &self.volume, owner, client, &entries, filled, is_attached)?;
        if is_attached && !entries.is_empty() && server.version.family == Family::MySql {
            make_buffer_pool_list(&self.path, owner)?;
        }
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

    fn give_marker(&self, owner: Option<(u32, u32)>) -> Result<()> {
        let Some((user, group)) = owner else { return Ok(()) };
        std::os::unix::fs::fchown(&self.lock, Some(user), Some(group))
            .map_err(|error| CliError::io("change the owner of", self.path.join(MARKER), error))
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
            // Metadata of the entry itself: a symbolic link is neither directory nor file, and is removed.
            if metadata.is_dir() {
                if name != ORPHANS {
                    self.remove_others(&path, known, server)?;
                    if !known.contains(path.as_str()) {
                        // Only if nothing is left in it.
                        let _ = std::fs::remove_dir(entry.path());
                    }
                }
            } else if !is_local(&path, &name, server)
                && (!known.contains(path.as_str()) || !metadata.is_file())
            {
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
        match std::fs::symlink_metadata(&orphans) {
            Ok(data) if !data.is_dir() => {
                return Err(CliError::Usage(format!("{} is not a directory; remove it", orphans.display())));
            }
            Ok(_) => {}
            Err(_) => {
                std::fs::create_dir(&orphans).map_err(|error| CliError::io("create", &orphans, error))?;
            }
        }
        let target = orphans.join(format!("{}-{:08x}", path.replace('/', "@"), fastrand::u32(..)));
        complain!("redoubt: {path} is not in the volume; moved to {}", target.display());
        std::fs::rename(from, &target).map_err(|error| CliError::io("move", from, error))
    }
}

/// Volume that a data directory belongs to; `None` for an empty or missing directory. Nothing is locked or changed.
///
/// # Errors
/// [`CliError::Usage`] if it holds something else.
pub fn volume_of(path: &Path) -> Result<Option<String>> {
    if !path.exists() {
        return Ok(None);
    }
    let marker_path = path.join(MARKER);
    if !marker_path.exists() {
        return check_empty(path).map(|()| None);
    }
    let text =
        std::fs::read_to_string(&marker_path).map_err(|error| CliError::io("read", &marker_path, error))?;
    Ok(parse_marker(&text, &marker_path)?.map(|marker| marker.volume))
}

/// The file whose lock shows that a server runs in a data directory.
pub fn lock_file(path: &Path) -> PathBuf {
    path.join(MARKER)
}

/// Checks that a directory is empty, except for the files of a group member whose data was imported.
fn check_empty(path: &Path) -> Result<()> {
    let error = |error| CliError::io("list", path, error);
    let names = std::fs::read_dir(path).map_err(error)?.map(|entry| entry.map(|entry| entry.file_name()));
    let names = names.collect::<std::io::Result<Vec<_>>>().map_err(error)?;
    match names.iter().filter(|name| !is_of_group(&name.to_string_lossy())).count() {
        0 => Ok(()),
        count => Err(CliError::Usage(format!(
            "{} holds {count} files that `redoubt run` did not put there; use an empty directory, or take a \
             server's data over with `redoubt volume import`",
            path.display()
        ))),
    }
}

/// Files of a group member that belong to its own host.
fn is_of_group(path: &str) -> bool {
    path.starts_with("redoubt_group.") || path == "grastate.dat"
}

fn parse_marker(text: &str, marker_path: &Path) -> Result<Option<Marker>> {
    let directory = marker_path.parent().unwrap_or(marker_path).display();
    if text.is_empty() {
        return Ok(None);
    }
    let marker: Marker = serde_json::from_str(text).map_err(|error| {
        CliError::Usage(format!(
            "{} is damaged ({error}), so it is not known which volume this directory belongs to; remove the \
             directory {directory}, which is only a cache, or use another one",
            marker_path.display()
        ))
    })?;
    if marker.format != u64::from(FORMAT) {
        return Err(CliError::Usage(format!(
            "{}: {}; or use another directory, since this one is only a cache",
            marker_path.display(),
            unknown_version(marker.format, FORMAT)
        )));
    }
    Ok(Some(marker))
}

/// Files that are this host's own business; the library leaves them alone too.
fn is_local(path: &str, name: &str, server: &Server) -> bool {
    let is_of_mysql = || {
        // Temporary tablespaces of sessions, which may be large, and doublewrite files: created again at each start.
        path.starts_with("#innodb_temp/") || (path.starts_with("#ib_") && path.ends_with("dblwr"))
    };
    name.starts_with(MARKER)
        || (server.version.family == Family::MySql && is_of_mysql())
        || name.starts_with("ibtmp")
        || name.starts_with(BUFFER_POOL_LIST)
        || is_of_group(path)
        // Written by mariadb-install-db and mariadb-upgrade themselves, not by the server.
        || path == "mysql_upgrade_info"
        || name.starts_with("#sql-temptable")
        || [".pid", ".err", ".sock"].iter().any(|ending| name.ends_with(ending))
        || server.local_files.iter().any(|local| local == path)
}

/// The list of the pages in a server's buffer pool belongs to its host. Without a list, MySQL logs an error at each
/// first start on a host; it accepts an empty list. (A new volume needs an empty directory.)
///
/// # Errors
/// [`CliError::Io`].
pub fn make_buffer_pool_list(directory: &Path, owner: Option<(u32, u32)>) -> Result<()> {
    if directory.join(BUFFER_POOL_LIST).exists() {
        return Ok(());
    }
    let beneath = Beneath::open(directory, owner)?;
    let file = beneath.create_new(BUFFER_POOL_LIST)?;
    beneath.finish(BUFFER_POOL_LIST, &file, 0o640, 0o640)
}

/// Owner of the files, if this process may and must give them away.
///
/// # Errors
/// [`CliError::Usage`] for a user that is not there.
pub fn owner_for(server: &Server) -> Result<Option<(u32, u32)>> {
    // SAFETY: geteuid has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Ok(None);
    }
    ids_of(server.user.as_deref())
}

/// User and group of this name; `None` for the super-user and if no name is given.
///
/// # Errors
/// [`CliError::Usage`] if the user does not exist on this host.
pub fn ids_of(user: Option<&str>) -> Result<Option<(u32, u32)>> {
    let is_other = |user: &&str| !matches!(*user, "" | "root" | "0" | "(No default value)");
    let Some(user) = user.filter(is_other) else { return Ok(None) };
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
