//! The file `.redoubt` of a local data directory: whose cache it is, and which attaches were made from it.
//!
//! Layout: JSON ([`Marker`]). An empty file: the directory is being made.
//!
//! The file is replaced as a whole: written under another name, synced, renamed. So a power cut leaves the old text or
//! the new one. Invariant: while this process, or the server that inherits the descriptor, has the directory, the file
//! that the name leads to is locked. The new file is locked before it gets the name, and [`MarkerFile::open`] takes a
//! lock only on the file that still has the name.

use crate::error::{ClientError, Result};
use redoubt_storage::format_version::unknown_version;
use redoubt_wire::control::{VolumeStatus, WHO_LIMIT_CHARACTERS};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Its name. Other names that begin with it are this command's own, too.
pub const NAME: &str = ".redoubt";
const NEW_NAME: &str = ".redoubt-new";

/// Version of the marker; markers without a version count as 1.
const FORMAT: u32 = 1;
/// Attaches that are remembered. Those of one directory exclude each other, so more are never pending on a node.
const ATTACHES: usize = 32;

fn first_format() -> u64 {
    1
}

/// Content of the file.
#[derive(Clone, Serialize, Deserialize)]
pub struct Marker {
    #[serde(default = "first_format")]
    format: u64,
    /// Random id of the volume.
    pub volume_id: String,
    /// Its name.
    pub volume: String,
    /// Generation of the last attach from this directory.
    #[serde(default)]
    pub generation: Option<u64>,
    /// Name of the attach that got this generation, as the node has it. Not known in markers of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attached_by: Option<String>,
    /// Where the directory was then. A copy of it elsewhere does not have the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<Place>,
    /// Random parts of the names under which this directory has attached the volume, each written before its request,
    /// the newest last. So an attach whose answer did not arrive is known to be of this directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    attaches: Vec<String>,
    /// Boot of the host on which the directory got the whole content of the volume, after the last attach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filled_on_boot: Option<String>,
}

impl Marker {
    /// A directory from which the volume was never attached.
    pub fn new(volume_id: &str, volume: &str) -> Self {
        let (volume_id, volume) = (volume_id.to_owned(), volume.to_owned());
        Self {
            format: u64::from(FORMAT),
            volume_id,
            volume,
            generation: None,
            attached_by: None,
            place: None,
            attaches: Vec::new(),
            filled_on_boot: None,
        }
    }

    /// The directory has the whole content of the volume.
    pub fn note_filled(&mut self, boot_id: &str) {
        self.filled_on_boot = Some(boot_id.to_owned());
    }

    /// The directory had the whole content of the volume at the volume's last attach, on this boot of the host. Files that
    /// are missing now were removed since.
    pub fn is_whole(&self, volume: &VolumeStatus, directory: &Path, boot_id: &str) -> bool {
        self.is_last(volume, directory) && self.filled_on_boot.as_deref() == Some(boot_id)
    }

    /// The volume was attached last from this directory, which is where it was then.
    pub fn is_last(&self, volume: &VolumeStatus, directory: &Path) -> bool {
        self.made_last_attach(volume)
            && self.generation == Some(volume.generation)
            && self.is_in_place(directory)
    }

    fn parse(text: &str, path: &Path) -> Result<Option<Self>> {
        let directory = path.parent().unwrap_or(path).display();
        if text.is_empty() {
            return Ok(None);
        }
        let marker: Self = serde_json::from_str(text).map_err(|error| {
            ClientError::Usage(format!(
                "{} is damaged ({error}), so it is not known which volume this directory belongs to; remove the \
                 directory {directory}, which is only a cache, or use another one",
                path.display()
            ))
        })?;
        if marker.format != u64::from(FORMAT) {
            return Err(ClientError::Usage(format!(
                "{}: {}; or use another directory, since this one is only a cache",
                path.display(),
                unknown_version(marker.format, FORMAT)
            )));
        }
        Ok(Some(marker))
    }

    /// The last attach of the volume was made from this directory.
    pub fn made_last_attach(&self, volume: &VolumeStatus) -> bool {
        self.attaches.iter().any(|attach| volume.attached_by.contains(attach.as_str()))
    }

    /// The generation of the last attach from this directory was given to another server.
    pub fn is_of_other_history(&self, volume: &VolumeStatus) -> bool {
        self.generation == Some(volume.generation)
            && !self.made_last_attach(volume)
            && match &self.attached_by {
                Some(by) => *by != volume.attached_by,
                // A marker of an earlier version without any name proves nothing.
                None => !self.attaches.is_empty(),
            }
    }

    /// The marker is of an earlier version, which remembered no names, and this is the volume as the directory had it.
    pub fn lacks_name_of(&self, volume: &VolumeStatus) -> bool {
        self.generation == Some(volume.generation) && self.attached_by.is_none() && self.attaches.is_empty()
    }

    /// The volume has this generation, given to this name.
    pub fn note_attached(&mut self, generation: u64, attached_by: &str, directory: &Path) {
        self.generation = Some(generation);
        self.attached_by = Some(attached_by.to_owned());
        self.place = Place::of(directory);
        self.filled_on_boot = None;
    }

    /// The directory is where it was when the volume was attached last, as far as that is known.
    pub fn is_in_place(&self, directory: &Path) -> bool {
        match (&self.place, Place::of(directory)) {
            (Some(then), Some(now)) => then.may_be(&now),
            _ => true,
        }
    }

    /// Adds the name of an attach that may follow. `who`: host, process and directory, for people.
    pub fn add_attach(&mut self, who: &str) -> String {
        let attach = format!("{:016x}", fastrand::u64(..));
        let name = attach_name(who, &attach);
        self.attaches.push(attach);
        let excess = self.attaches.len().saturating_sub(ATTACHES);
        self.attaches.drain(..excess);
        name
    }
}

/// The host and the inode of a directory. Those of a copy, on this host or on a clone of the host, are others.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine_id: Option<String>,
    /// Only the super-user can read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    product_uuid: Option<String>,
    inode: u64,
}

impl Place {
    /// `None`: not known.
    fn of(directory: &Path) -> Option<Self> {
        let inode = std::fs::metadata(directory).ok()?.ino();
        let read = |path| {
            let text = std::fs::read_to_string(path).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let (machine_id, product_uuid) = (read("/etc/machine-id"), read("/sys/class/dmi/id/product_uuid"));
        Some(Self { machine_id, product_uuid, inode })
    }

    /// Nothing that both know tells them apart.
    fn may_be(&self, other: &Self) -> bool {
        let agree =
            |one: &Option<String>, other: &Option<String>| one.is_none() || other.is_none() || one == other;
        self.inode == other.inode
            && agree(&self.machine_id, &other.machine_id)
            && agree(&self.product_uuid, &other.product_uuid)
    }
}

/// Name of an attach: `who`, cut so that a node keeps all of the random part.
fn attach_name(who: &str, attach: &str) -> String {
    let suffix = format!(" (attach {attach})");
    let who = who.chars().filter(|character| !character.is_control());
    who.take(WHO_LIMIT_CHARACTERS - suffix.len()).chain(suffix.chars()).collect()
}

/// The file, locked.
pub struct MarkerFile {
    path: PathBuf,
    lock: File,
    marker: Option<Marker>,
}

impl MarkerFile {
    /// Opens and locks it; makes an empty one if there is none.
    ///
    /// # Errors
    /// [`ClientError::Usage`] if another process has it, or it is damaged; [`ClientError::Io`].
    pub fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(NAME);
        let io = |error| ClientError::io("write", &path, error);
        let mut lock = loop {
            // A link must not redirect this write to another file.
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false).custom_flags(libc::O_NOFOLLOW);
            let file = options.open(&path).map_err(io)?;
            lock_now(&file, directory)?;
            // Otherwise it was replaced between both steps.
            if is_at(&file, &path).map_err(io)? {
                break file;
            }
        };
        let mut text = String::new();
        lock.read_to_string(&mut text).map_err(|error| ClientError::io("read", &path, error))?;
        let marker = Marker::parse(&text, &path)?;
        Ok(Self { path, lock, marker })
    }

    /// Its content; `None`: the directory is new.
    pub fn get(&self) -> Option<&Marker> {
        self.marker.as_ref()
    }

    /// Replaces it, durably.
    ///
    /// # Errors
    /// [`ClientError::Io`]; the old text stays.
    pub fn replace(&mut self, marker: Marker) -> Result<()> {
        let directory = self.path.parent().unwrap_or(&self.path).to_owned();
        let io = |error| ClientError::io("write", &self.path, error);
        let text = serde_json::to_string(&marker).map_err(|error| io(error.into()))?;
        let new = directory.join(NEW_NAME);
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(ClientError::io("remove", &new, error));
            }
            _ => {}
        }
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&new).map_err(io)?;
        lock_now(&file, &directory)?;
        let write = || {
            let old = self.lock.metadata()?;
            file.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
            let made = file.metadata()?;
            if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
                // Only the super-user can; for other users the server has the user of this process.
                let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
            }
            (&file).write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&new, &self.path)?;
            File::open(&directory)?.sync_all()
        };
        write().map_err(io)?;
        self.lock = file;
        self.marker = Some(marker);
        Ok(())
    }

    /// The lock outlives this process image: the server inherits it.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn keep_locked(&self) -> Result<()> {
        // SAFETY: fcntl on a descriptor that is open; clears FD_CLOEXEC.
        if unsafe { libc::fcntl(self.lock.as_raw_fd(), libc::F_SETFD, 0) } != 0 {
            return Err(ClientError::io("lock", &self.path, std::io::Error::last_os_error()));
        }
        Ok(())
    }

    /// Changes its owner.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn give(&self, (user, group): (u32, u32)) -> Result<()> {
        fchown(&self.lock, Some(user), Some(group))
            .map_err(|error| ClientError::io("change the owner of", &self.path, error))
    }
}

fn lock_now(file: &File, directory: &Path) -> Result<()> {
    flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        ClientError::Usage(format!(
            "{} is in use by another server; stop it, or use another directory",
            directory.display()
        ))
    })
}

/// The file still has this name.
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    let open = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The marker of a directory, without its lock; `None`: there is none yet.
///
/// # Errors
/// [`ClientError::Io`]; [`ClientError::Usage`] if it is damaged.
pub fn read(directory: &Path) -> Result<Option<Marker>> {
    let path = directory.join(NAME);
    let text = std::fs::read_to_string(&path).map_err(|error| ClientError::io("read", &path, error))?;
    Marker::parse(&text, &path)
}

/// The volume whose files a directory holds; `None` without a valid marker.
pub fn volume_id_of(directory: &Path) -> Option<String> {
    let text = std::fs::read_to_string(directory.join(NAME)).ok()?;
    Some(serde_json::from_str::<Marker>(&text).ok()?.volume_id)
}

#[cfg(test)]
#[path = "marker_tests.rs"]
mod tests;
