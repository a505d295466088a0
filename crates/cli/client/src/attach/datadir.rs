//! The local data directory: a cache of the volume's plain files, and stubs for its InnoDB files.
//!
//! A directory that `redoubt run` filled carries `.redoubt` ([`super::marker`]). Any other directory with something in
//! it is refused. A lock on that file, inherited by the server, keeps a second `redoubt run` out.
//!
//! It is filled ([`super::fill`]) in two steps: before the volume is attached, which may take long, and again
//! afterwards, for the changes since the first step only. Plain files are compared by length and checksum
//! ([`super::checksums`]).
//!
//! Files the volume does not have are moved to `.redoubt-orphans/`; only stubs, which have no content, are removed.

use super::checksums::{self, Checksums};
use super::fill::{self, Filled, Target};
use super::marker::{self, Marker, MarkerFile};
use super::purged;
use crate::beneath::{Beneath, check_name};
use crate::control::Client;
use crate::error::{ClientError, Result};
use crate::events::Events;
use crate::server::{LOST_AND_FOUND, Server};
use redoubt_redo::Family;
use redoubt_wire::control::{EntryKind, Reply, Request, VolumeEntry, VolumeStatus};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown, fchown};
use std::path::{Path, PathBuf};

/// Files that a message names.
const NAMED_FILES: usize = 10;
const ORPHANS: &str = ".redoubt-orphans";
/// innodb_buffer_pool_filename, unless it is set.
const BUFFER_POOL_LIST: &str = "ib_buffer_pool";

/// The local data directory of a server on a volume.
pub struct DataDirectory<'a> {
    events: &'a dyn Events,
    path: PathBuf,
    volume: String,
    marker: MarkerFile,
}

/// How plain files that are missing in the directory are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The directory is a cache that lacks them.
    Cache,
    /// They were removed by hand. Binary logs that their index does not name any more are removed from the volume, too.
    RemovedIfPurged,
    /// They were removed by hand, and are removed from the volume, too.
    Removed,
}

/// A step of a fill.
#[derive(Clone, Copy)]
enum Step {
    /// Before the volume is attached.
    Prepare(Missing),
    /// Afterwards.
    Finish,
}

/// The first names, at most [`NAMED_FILES`], for a message.
fn first_of<'n>(mut names: impl Iterator<Item = &'n str>) -> String {
    let shown: Vec<_> = names.by_ref().take(NAMED_FILES).collect();
    let more = if names.next().is_some() { ", ..." } else { "" };
    shown.join(", ") + more
}

fn has_server(volume: &VolumeStatus) -> bool {
    volume.state == "attached" || volume.connections > 0
}

impl<'a> DataDirectory<'a> {
    /// Opens and locks a data directory.
    ///
    /// # Errors
    /// [`ClientError::Usage`] if it holds something else, is another volume's, or is in use.
    pub fn open(path: &Path, volume: &str, events: &'a dyn Events) -> Result<Self> {
        if !path.join(marker::NAME).exists() {
            check_empty(path)?;
        }
        let marker = MarkerFile::open(path)?;
        Ok(Self { events, path: path.to_owned(), volume: volume.to_owned(), marker })
    }

    /// The directory must be new, or this volume's.
    ///
    /// # Errors
    /// [`ClientError::Usage`].
    pub fn check_volume(&mut self, volume_id: &str) -> Result<()> {
        match self.marker.get() {
            Some(marker) if marker.volume_id != volume_id => Err(ClientError::Usage(format!(
                "{} belongs to volume {} ({}), not to {} ({volume_id}); use another directory",
                self.path.display(),
                marker.volume,
                marker.volume_id,
                self.volume
            ))),
            Some(_) => Ok(()),
            None => self.marker.replace(Marker::new(volume_id, &self.volume)),
        }
    }

    /// Remembers the volume's generation if it is of an attach from this directory whose answer did not arrive.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn note_own_attach(&mut self, volume: &VolumeStatus) -> Result<()> {
        // It never falls: a node with less has an older copy.
        let is_missing =
            |marker: &Marker| marker.made_last_attach(volume) && marker.generation < Some(volume.generation);
        let lacks_name = |marker: &Marker| marker.lacks_name_of(volume);
        if self.marker.get().is_some_and(lacks_name) {
            // Later names, of attaches that fail, must not make it another server's.
            return self.note_attached(volume.generation, &volume.attached_by);
        }
        if self.marker.get().is_some_and(is_missing) {
            self.note_attached(volume.generation, &volume.attached_by)
        } else {
            Ok(())
        }
    }

    /// The volume must not have been attached elsewhere since this directory had it; if that is not known, no server
    /// may have it now. [`Self::note_own_attach`] comes first.
    ///
    /// # Errors
    /// [`ClientError::TakenOver`].
    pub fn check_not_taken(&self, volume: &VolumeStatus) -> Result<()> {
        let is_taken = match self.generation() {
            Some(own) if volume.generation > own => true,
            Some(_) => self.is_copy_beside_server(volume),
            None => has_server(volume),
        };
        if !is_taken {
            return Ok(());
        }
        Err(ClientError::TakenOver(format!(
            "volume {} was attached by {} (generation {}, state {}), and --no-takeover is given; stop the server there, then \
             start this one once without --no-takeover",
            self.volume, volume.attached_by, volume.generation, volume.state
        )))
    }

    /// The directory is elsewhere than it was when the volume was attached, and the volume has a server: that of the
    /// original, if the directory is a copy. If it was moved, the server is gone, and the node will find that out.
    pub fn is_copy_beside_server(&self, volume: &VolumeStatus) -> bool {
        has_server(volume)
            && self.generation() == Some(volume.generation)
            && self.marker.get().is_some_and(|marker| !marker.is_in_place(&self.path))
    }

    /// Generation of the last attach from here.
    pub fn generation(&self) -> Option<u64> {
        self.marker.get().and_then(|marker| marker.generation)
    }

    /// The last attach of the volume was made from here.
    pub fn made_last_attach(&self, volume: &VolumeStatus) -> bool {
        self.marker.get().is_some_and(|marker| marker.made_last_attach(volume))
    }

    /// The generation of the last attach from here was given to another server: the volume has another history.
    pub fn is_of_other_history(&self, volume: &VolumeStatus) -> bool {
        self.marker.get().is_some_and(|marker| marker.is_of_other_history(volume))
    }

    /// Makes up the name of an attach that may follow, and remembers it durably. `who`: host, process and directory,
    /// for people. [`Self::check_volume`] comes first.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn note_attaching(&mut self, who: &str) -> Result<String> {
        let mut marker = self.marker()?;
        let name = marker.add_attach(who);
        self.marker.replace(marker)?;
        Ok(name)
    }

    /// Remembers the generation that [`Self::check_not_taken`] compares with, and the name of its attach.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn note_attached(&mut self, generation: u64, attached_by: &str) -> Result<()> {
        let mut marker = self.marker()?;
        marker.note_attached(generation, attached_by, &self.path);
        self.marker.replace(marker)
    }

    fn marker(&self) -> Result<Marker> {
        let lost = || {
            ClientError::Usage(format!("{} lost its marker during the check; try again", self.path.display()))
        };
        self.marker.get().cloned().ok_or_else(lost)
    }

    /// Brings the directory to the state of the volume, as far as it is known before the volume is attached. This
    /// takes as long as there are bytes to fetch and to compare; a server that has the volume continues meanwhile.
    ///
    /// # Errors
    /// [`ClientError::Io`], or what the node answers.
    ///
    /// `missing`: what [`Self::missing`] returns.
    pub fn prepare(&self, client: &mut Client, server: &Server, missing: Missing) -> Result<Filled> {
        let mut filled = Filled::new(Checksums::load(&self.path)?);
        self.fill(client, server, &mut filled, Step::Prepare(missing))?;
        filled.checksums.save()?;
        Ok(filled)
    }

    /// How to take plain files that are missing. `accepts_removed`: the operator confirms that they were removed.
    ///
    /// # Errors
    /// [`ClientError::Usage`] if that cannot be, because the directory did not have the volume's files.
    pub fn missing(&self, volume: &VolumeStatus, accepts_removed: bool) -> Result<Missing> {
        let marker = self.marker.get();
        let is_last = marker.is_some_and(|marker| marker.is_last(volume, &self.path));
        if accepts_removed {
            return if is_last {
                Ok(Missing::Removed)
            } else {
                Err(ClientError::Usage(format!(
                    "--accept-removed: volume {} was not attached last from {} as it is, so files that are missing there may \
                     never have been there",
                    self.volume,
                    self.path.display()
                )))
            };
        }
        let boot_id = checksums::boot_id()?;
        let is_whole = marker.is_some_and(|marker| marker.is_whole(volume, &self.path, &boot_id));
        Ok(if is_whole { Missing::RemovedIfPurged } else { Missing::Cache })
    }

    /// Brings a prepared directory to the state of the attached volume, by the changes since only.
    ///
    /// # Errors
    /// [`ClientError::Io`], or what the node answers.
    pub fn finish(&mut self, client: &mut Client, server: &Server, mut filled: Filled) -> Result<()> {
        self.fill(client, server, &mut filled, Step::Finish)?;
        self.list_removed(&filled.removed, server)?;
        let mut marker = self.marker()?;
        marker.note_filled(filled.checksums.boot_id());
        self.marker.replace(marker)
    }

    /// For the library, which removes these files from the volume.
    fn list_removed(&self, removed: &BTreeSet<String>, server: &Server) -> Result<()> {
        let path = self.path.join(purged::REMOVED_NAME);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(ClientError::io("remove", &path, error));
            }
            _ => {}
        }
        if removed.is_empty() {
            return Ok(());
        }
        self.events.note(&format!(
            "{} files were removed here by hand, and are removed from the volume, too: {}",
            removed.len(),
            first_of(removed.iter().map(String::as_str))
        ));
        let list: String = removed.iter().flat_map(|name| [name, "\0"]).collect();
        // A link must not redirect this write to another file.
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let owner = owner_for(server)?;
        let write = || {
            let mut file = options.open(&path)?;
            file.write_all(list.as_bytes())?;
            file.sync_all()?;
            owner.map_or(Ok(()), |(user, group)| fchown(&file, Some(user), Some(group)))
        };
        write().map_err(|error| ClientError::io("write", &path, error))
    }

    fn fill(&self, client: &mut Client, server: &Server, filled: &mut Filled, step: Step) -> Result<()> {
        let owner = owner_for(server)?;
        give(&self.path, owner)?;
        owner.map_or(Ok(()), |owner| self.marker.give(owner))?;
        let entries = match client.call(&Request::List { volume: self.volume.clone() })? {
            Reply::Attached(attachment) => attachment.entries,
            other => return Err(client.unexpected(&other)),
        };
        for entry in &entries {
            check_name(&entry.path)?;
        }
        let known: BTreeSet<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        self.remove_others("", &known, server)?;
        // Files of this host stay, even if the volume has files of the same names from an earlier server.
        let (local, entries): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| local_directory_of(&entry.path, server).is_some());
        check_no_table(&local, server)?;
        let target = Target { directory: &self.path, volume: &self.volume, owner, events: self.events };
        let is_attached = matches!(step, Step::Finish);
        self.make_temporary_directories(server, owner)?;
        let late = match step {
            Step::Prepare(missing) => self.missing_files(&entries, missing)?,
            Step::Finish => filled.removed.clone(),
        };
        let (late, entries): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| late.contains(&entry.path));
        fill::fill(&target, client, &entries, filled, is_attached)?;
        if let Step::Prepare(missing) = step {
            filled.removed = self.removed_files(&late, missing);
            let back: Vec<_> =
                late.into_iter().filter(|entry| !filled.removed.contains(&entry.path)).collect();
            self.note_back(&back);
            fill::fill(&target, client, &back, filled, is_attached)?;
        }
        if is_attached && !entries.is_empty() && server.version.family == Family::MySql {
            make_buffer_pool_list(&self.path, owner)?;
        }
        Ok(())
    }

    /// A new host does not have the directories that the administrator made in the data directory for temporary files.
    fn make_temporary_directories(&self, server: &Server, owner: Option<(u32, u32)>) -> Result<()> {
        let beneath = Beneath::open(&self.path, owner)?;
        for name in server.temporary_directories() {
            // An administrator may have made it, as a link too.
            if std::fs::symlink_metadata(self.path.join(&name)).is_err() {
                beneath.directory(&name)?;
            }
        }
        Ok(())
    }

    /// Plain files of the volume that are not in the directory, if that can mean something.
    fn missing_files(&self, entries: &[VolumeEntry], missing: Missing) -> Result<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        if missing == Missing::Cache {
            return Ok(found);
        }
        for entry in entries.iter().filter(|entry| entry.kind == EntryKind::Plain) {
            let path = self.path.join(&entry.path);
            match std::fs::symlink_metadata(&path) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    found.insert(entry.path.clone());
                }
                Err(error) => return Err(ClientError::io("read", &path, error)),
            }
        }
        Ok(found)
    }

    /// Those of the missing files that were removed on purpose. Indexes are filled already.
    fn removed_files(&self, late: &[VolumeEntry], missing: Missing) -> BTreeSet<String> {
        let names: BTreeSet<&str> = late.iter().map(|entry| entry.path.as_str()).collect();
        let index_of = |base: &str| std::fs::read_to_string(self.path.join(format!("{base}.index"))).ok();
        let removed = match missing {
            Missing::Cache => BTreeSet::new(),
            Missing::RemovedIfPurged => purged::purged(&names, index_of),
            Missing::Removed => names,
        };
        removed.into_iter().map(str::to_owned).collect()
    }

    fn note_back(&self, back: &[VolumeEntry]) {
        if back.is_empty() {
            return;
        }
        self.events.note(&format!(
            "{} files of the volume were removed here by hand, and come back: {}. To remove them from the volume, too, \
             remove them again while the server is down, and start it once with --accept-removed",
            back.len(),
            first_of(back.iter().map(|entry| entry.path.as_str()))
        ));
    }

    /// The lock outlives this process image: the server inherits it.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn keep_locked(&self) -> Result<()> {
        self.marker.keep_locked()
    }

    fn remove_others(&self, relative: &str, known: &BTreeSet<&str>, server: &Server) -> Result<()> {
        let directory = self.path.join(relative);
        let entries =
            std::fs::read_dir(&directory).map_err(|error| ClientError::io("list", &directory, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| ClientError::io("list", &directory, error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if relative.is_empty() { name.clone() } else { format!("{relative}/{name}") };
            let metadata = entry.metadata().map_err(|error| ClientError::io("read", entry.path(), error))?;
            // Metadata of the entry itself: a symbolic link is neither directory nor file, and is removed.
            if metadata.is_dir() {
                if name != ORPHANS && !is_local_directory(&path, server) {
                    self.remove_others(&path, known, server)?;
                    // Only if nothing is left in it.
                    let is_removed =
                        !known.contains(path.as_str()) && std::fs::remove_dir(entry.path()).is_ok();
                    // Databases and the administrator's directories: the server names its own ones `#...`.
                    if is_removed && !name.starts_with('#') {
                        self.events.note(&format!(
                            "directory {path} is not in the volume; removed. A directory of this host's own can \
                             stay if ignore_db_dirs or tmpdir names it"
                        ));
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
            return std::fs::remove_file(from).map_err(|error| ClientError::io("remove", from, error));
        }
        let orphans = self.path.join(ORPHANS);
        match std::fs::symlink_metadata(&orphans) {
            Ok(data) if !data.is_dir() => {
                return Err(ClientError::Usage(format!(
                    "{} is not a directory; remove it",
                    orphans.display()
                )));
            }
            Ok(_) => {}
            Err(_) => {
                std::fs::create_dir(&orphans).map_err(|error| ClientError::io("create", &orphans, error))?;
            }
        }
        let target = orphans.join(format!("{}-{:08x}", path.replace('/', "@"), fastrand::u32(..)));
        self.events.note(&format!("{path} is not in the volume; moved to {}", target.display()));
        std::fs::rename(from, &target).map_err(|error| ClientError::io("move", from, error))
    }
}

/// Volume that a data directory belongs to; `None` for an empty or missing directory. Nothing is locked or changed.
///
/// # Errors
/// [`ClientError::Usage`] if it holds something else.
pub fn volume_of(path: &Path) -> Result<Option<String>> {
    if !path.exists() {
        return Ok(None);
    }
    if !path.join(marker::NAME).exists() {
        return check_empty(path).map(|()| None);
    }
    Ok(marker::read(path)?.map(|marker| marker.volume))
}

/// The file whose lock shows that a server runs in a data directory.
pub fn lock_file(path: &Path) -> PathBuf {
    path.join(marker::NAME)
}

/// Checks that a directory is empty, except for the files of a group member whose data was imported.
fn check_empty(path: &Path) -> Result<()> {
    let error = |error| ClientError::io("list", path, error);
    let names = std::fs::read_dir(path).map_err(error)?.map(|entry| entry.map(|entry| entry.file_name()));
    let names = names.collect::<std::io::Result<Vec<_>>>().map_err(error)?;
    let is_other =
        |name: &&std::ffi::OsString| !is_of_group(&name.to_string_lossy()) && *name != LOST_AND_FOUND;
    match names.iter().filter(is_other).count() {
        0 => Ok(()),
        count => Err(ClientError::Usage(format!(
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

/// Files that are this host's own business; the library leaves them alone too.
fn is_local(path: &str, name: &str, server: &Server) -> bool {
    let is_of_mysql = || {
        // Temporary tablespaces of sessions, which may be large, and doublewrite files: created again at each start.
        path.starts_with("#innodb_temp/") || (path.starts_with("#ib_") && path.ends_with("dblwr"))
    };
    name.starts_with(marker::NAME)
        || (server.version.family == Family::MySql && is_of_mysql())
        || name.starts_with("ibtmp")
        || name.starts_with(BUFFER_POOL_LIST)
        || is_of_group(path)
        // Written by mariadb-install-db and mariadb-upgrade themselves, not by the server.
        || path == "mysql_upgrade_info"
        || name.starts_with("#sql-temptable")
        || name == "galera.cache"
        || name.starts_with("gcache.page.")
        || [".pid", ".err", ".sock"].iter().any(|ending| name.ends_with(ending))
        || server.local_files.iter().any(|local| match local.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => local == path,
        })
}

/// As [`is_local`], with all that is in it.
fn is_local_directory(path: &str, server: &Server) -> bool {
    server.local_files.iter().any(|local| local.strip_suffix("/*") == Some(path))
}

/// The directory of this host in which a path of the volume would lie.
fn local_directory_of<'s>(path: &str, server: &'s Server) -> Option<&'s str> {
    let mut directories = server.local_files.iter().filter_map(|local| local.strip_suffix("/*"));
    directories.find(|directory| path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/')))
}

/// A database cannot be of this host.
fn check_no_table(local: &[VolumeEntry], server: &Server) -> Result<()> {
    let is_table = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        !name.starts_with("#sql") && [".ibd", ".frm", ".MYD", ".MAD"].iter().any(|end| name.ends_with(end))
    };
    match local.iter().find(|entry| is_table(&entry.path)) {
        None => Ok(()),
        Some(entry) => Err(ClientError::Usage(format!(
            "tmpdir or ignore_db_dirs names the directory {}, which has a table in the volume ({}); nothing was attached. Name \
             another directory",
            local_directory_of(&entry.path, server).unwrap_or_default(),
            entry.path
        ))),
    }
}

/// The list of the pages in a server's buffer pool belongs to its host. Without a list, MySQL logs an error at each
/// first start on a host; it accepts an empty list. (A new volume needs an empty directory.)
///
/// # Errors
/// [`ClientError::Io`].
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
/// [`ClientError::Usage`] for a user that is not there.
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
/// [`ClientError::Usage`] if the user does not exist on this host.
pub fn ids_of(user: Option<&str>) -> Result<Option<(u32, u32)>> {
    let is_other = |user: &&str| !matches!(*user, "" | "root" | "0" | "(No default value)");
    let Some(user) = user.filter(is_other) else { return Ok(None) };
    let passwd = std::fs::read_to_string("/etc/passwd")
        .map_err(|error| ClientError::io("read", "/etc/passwd", error))?;
    let found = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(user)).then_some(())?;
        let (uid, gid) = (fields.nth(1)?, fields.next()?);
        Some((uid.parse().ok()?, gid.parse().ok()?))
    });
    found
        .map(Some)
        .ok_or_else(|| ClientError::Usage(format!("there is no user {user} on this host (option --user)")))
}

fn give(path: &Path, owner: Option<(u32, u32)>) -> Result<()> {
    let Some((uid, gid)) = owner else { return Ok(()) };
    chown(path, Some(uid), Some(gid)).map_err(|error| ClientError::io("change the owner of", path, error))
}
