//! Locations of the parts of a volume that can be elsewhere: its log, its page journal, its pages.
//!
//! A part is in the volume's own directory by default. If the node had another location configured for it when the
//! volume was created, the volume's directory has a link of that name to it. The link makes the volume find its parts
//! whatever the node's later options are. The other location is a directory, of which the volume gets a subdirectory,
//! or a raw block device (see [`redoubt_storage::raw_device`]), of which it gets a directory by name.
//!
//! | part | name or link | name in another place |
//! |---|---|---|
//! | log | `log` | `log-<volume id>` |
//! | page journal | `journal` (none: with the pages) | `journal-<volume id>` |
//! | pages | `pages` | `pages-<volume id>` |
//!
//! The parts of an encrypted volume ([`crate::at_rest`]) are directories that are encrypted with its key.

use crate::at_rest::{AtRest, AtRestError, Unlocked, key_of};
use crate::error::NodeError;
use redoubt_storage::raw_device::RawDevice;
use redoubt_storage::{RealDir, RealDirOptions, StorageDir, StorageError, Stream};
use redoubt_sync::Mutex;
use redoubt_sync::time;
use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long to wait for a device that is in use, and how long between two tries.
const IN_USE_TIMEOUT: Duration = Duration::from_secs(5);
const IN_USE_PAUSE: Duration = Duration::from_millis(50);

/// Prefix of a volume directory's name while it is being created.
pub const NEW_PREFIX: &str = ".new-";
/// Prefix of a volume directory's name while it is being imported.
pub const IMPORT_PREFIX: &str = ".import-";
/// Prefix of a volume directory's name while it is being removed.
pub const DELETED_PREFIX: &str = ".deleted-";

/// A part of a volume that can be elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The log device's segments.
    Log,
    /// The page journal.
    Journal,
    /// The page files.
    Pages,
}

impl Part {
    const ALL: [Self; 3] = [Self::Log, Self::Journal, Self::Pages];

    /// Name of the part, or of the link to it, in a volume's directory.
    const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Journal => "journal",
            Self::Pages => "pages",
        }
    }

    /// Existing directories of a volume's parts, and the volume's own; none on raw devices.
    pub fn directories(volume_directory: &Path) -> impl Iterator<Item = PathBuf> {
        let parts = Self::ALL.map(|part| volume_directory.join(part.name()));
        std::iter::once(volume_directory.to_owned()).chain(parts).filter(|path| path.is_dir())
    }

    /// Default write stream of its files.
    const fn stream(self) -> Stream {
        match self {
            Self::Log => Stream::Redo,
            Self::Journal => Stream::Journal,
            Self::Pages => Stream::ColdPages,
        }
    }
}

/// Location of a part.
#[derive(Clone)]
pub enum Place {
    /// A directory.
    Directory(PathBuf),
    /// A directory on a raw block device.
    Device {
        /// The device.
        device: Arc<RawDevice>,
        /// The directory's name.
        name: String,
        /// The part.
        part: Part,
    },
}

impl Place {
    /// Opens it for the storage crates. With `pretend_untorn`, untorn writes are pretended (tests and measurements).
    ///
    /// # Errors
    /// [`NodeError::Refused`] if another process has it open, [`NodeError::Io`].
    pub fn open(&self, pretend_untorn: bool) -> Result<Arc<dyn StorageDir>, NodeError> {
        match self {
            Self::Directory(path) => match RealDir::open_with(path, RealDirOptions { pretend_untorn }) {
                Ok(dir) => Ok(Arc::new(dir)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    Err(NodeError::Refused(format!("{} is in use by another process", path.display())))
                }
                Err(error) => Err(NodeError::io("open directory", path, error)),
            },
            Self::Device { device, name, part } => device
                .dir_in(name, part.stream())
                .map_err(|error| NodeError::Refused(format!("{self}: {error}"))),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::Device { device, name, .. } => write!(f, "{}:{name}", device.info().path.display()),
        }
    }
}

/// The raw devices that a node has open, by path. Volumes share them.
#[derive(Default)]
pub struct RawDevices {
    open: Mutex<BTreeMap<PathBuf, Weak<RawDevice>>>,
}

impl RawDevices {
    /// The device at `path`, opened unless it is open already.
    ///
    /// # Errors
    /// [`NodeError::Refused`] saying why it cannot be used.
    pub fn get(&self, path: &Path) -> Result<Arc<RawDevice>, NodeError> {
        let known = std::fs::canonicalize(path).map_err(|error| NodeError::io("find", path, error))?;
        let mut open = self.open.lock();
        if let Some(device) = open.get(&known).and_then(Weak::upgrade) {
            return Ok(device);
        }
        let device = open_device(path)?;
        open.insert(known, Arc::downgrade(&device));
        Ok(device)
    }
}

/// Opens a device. Writes that a killed process handed to the kernel may keep it in use for a moment.
fn open_device(path: &Path) -> Result<Arc<RawDevice>, NodeError> {
    let deadline = time::now() + IN_USE_TIMEOUT;
    loop {
        match RawDevice::open(path) {
            Ok(device) => return Ok(device),
            Err(StorageError::InUse { .. }) if time::now() < deadline => {
                redoubt_sync::thread::sleep(IN_USE_PAUSE);
            }
            Err(error) => return Err(NodeError::Refused(error.to_string())),
        }
    }
}

impl fmt::Debug for RawDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.open.lock().keys()).finish()
    }
}

/// Is there a block device at `path`, links followed?
pub fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// A volume whose parts are to be located.
#[derive(Clone, Copy)]
pub struct Site<'s> {
    /// Its own directory.
    pub directory: &'s Path,
    /// Its id.
    pub volume_id: &'s str,
    /// The raw devices.
    pub devices: &'s RawDevices,
    /// Its key, if it is encrypted: then all its parts are.
    pub unlocked: Option<&'s Unlocked>,
}

/// Location of `part`; `None` if it has none: for a new volume, or for a journal that is with the pages.
///
/// # Errors
/// [`NodeError::Io`], [`NodeError::Refused`] if a device does not hold it, and [`NodeError::AtRest`] if it is not
/// encrypted as the volume is.
pub fn find(site: Site<'_>, part: Part) -> Result<Option<Place>, NodeError> {
    let Site { directory, volume_id, devices, unlocked } = site;
    let link = directory.join(part.name());
    if link.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Ok(None);
    }
    let missing = |error| NodeError::io("find (is the file system it is on mounted?)", &link, error);
    let target = std::fs::canonicalize(&link).map_err(missing)?;
    if !is_block_device(&target) {
        unlocked.map_or(Ok(()), |unlocked| unlocked.check(&target))?;
        return Ok(Some(Place::Directory(target)));
    }
    if unlocked.is_some() {
        return Err(AtRestError::RawDevice { path: target }.into());
    }
    let device = devices.get(&target)?;
    let name = elsewhere(part, volume_id);
    if !device.dirs().contains(&name) {
        return Err(NodeError::Refused(format!(
            "{} has no directory {name}: it is not the device that {} was made with",
            target.display(),
            link.display()
        )));
    }
    Ok(Some(Place::Device { device, name, part }))
}

/// Like [`find`], but creates a location for a part that has none yet: at `wanted`, or in the volume's directory.
///
/// # Errors
/// As [`find`].
pub fn find_or_create(site: Site<'_>, part: Part, wanted: Option<&Path>) -> Result<Place, NodeError> {
    if let Some(place) = find(site, part)? {
        return Ok(place);
    }
    let Site { directory, volume_id, devices, unlocked } = site;
    let link = directory.join(part.name());
    let Some(wanted) = wanted else {
        std::fs::create_dir_all(&link).map_err(|error| NodeError::io("create", &link, error))?;
        unlocked.map_or(Ok(()), |unlocked| unlocked.check(&link))?;
        return Ok(Place::Directory(link));
    };
    let name = elsewhere(part, volume_id);
    let (place, target) = if is_block_device(wanted) {
        if unlocked.is_some() {
            return Err(AtRestError::RawDevice { path: wanted.to_owned() }.into());
        }
        let device = devices.get(wanted)?;
        // A stable name, such as one below /dev/disk/by-id, stays as it was given.
        let target = std::path::absolute(wanted).map_err(|error| NodeError::io("find", wanted, error))?;
        let place = Place::Device { device, name, part };
        // Made, and durably so, before anything leads to it.
        place.open(false)?.sync().map_err(|error| NodeError::io("write to", &target, error))?;
        (place, target)
    } else {
        let target = wanted.join(name);
        std::fs::create_dir_all(&target).map_err(|error| NodeError::io("create", &target, error))?;
        let target = std::fs::canonicalize(&target).map_err(|error| NodeError::io("find", &target, error))?;
        unlocked.map_or(Ok(()), |unlocked| unlocked.encrypt(&target))?;
        (Place::Directory(target.clone()), target)
    };
    std::os::unix::fs::symlink(&target, &link).map_err(|error| NodeError::io("create link", &link, error))?;
    crate::plain::sync_directory(directory)?;
    Ok(place)
}

fn elsewhere(part: Part, volume_id: &str) -> String {
    format!("{}-{volume_id}", part.name())
}

/// Makes sure that a volume's directory can be removed completely: the links of an encrypted volume to its parts
/// elsewhere can be read only with its key. Keep the result until the directory is removed.
///
/// # Errors
/// [`AtRestError::Removing`] if it has such parts and its key is not available.
pub fn prepare_removal(
    volume_directory: &Path,
    at_rest: &Arc<AtRest>,
) -> Result<Option<Unlocked>, AtRestError> {
    if volume_directory.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Ok(None);
    }
    let reason = match at_rest.unlock(&volume_name(volume_directory), volume_directory) {
        Ok(unlocked) => return Ok(unlocked),
        Err(error) => error,
    };
    // Without the key the names are scrambled, but the kind of each entry is readable.
    let is_link = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.and_then(|entry| entry.file_type()).map_or(true, |kind| kind.is_symlink())
    };
    let has_links = std::fs::read_dir(volume_directory).map_or(true, |mut entries| entries.any(is_link));
    match key_of(volume_directory) {
        Ok(Some(key)) if has_links => {
            Err(AtRestError::Removing { path: volume_directory.to_owned(), key, reason: Box::new(reason) })
        }
        Ok(Some(_)) => Ok(None),
        _ => Err(reason),
    }
}

/// Name of the volume with this directory, also while it is being created or removed.
fn volume_name(volume_directory: &Path) -> String {
    let name = volume_directory.file_name().unwrap_or_default().to_string_lossy();
    let of = [NEW_PREFIX, IMPORT_PREFIX, DELETED_PREFIX].iter().find_map(|prefix| name.strip_prefix(prefix));
    of.unwrap_or(&name).to_owned()
}

/// Removes a volume's directory, and its parts that are elsewhere. It is no error if there is none.
///
/// # Errors
/// [`NodeError::Io`], and as [`prepare_removal`].
pub fn remove_volume_directory(
    volume_directory: &Path,
    devices: &RawDevices,
    at_rest: &Arc<AtRest>,
) -> Result<(), NodeError> {
    let remove = |directory: &Path| match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(NodeError::io("remove", directory, error)),
        _ => Ok(()),
    };
    let _unlocked = prepare_removal(volume_directory, at_rest)?;
    for part in Part::ALL {
        let Ok(target) = std::fs::read_link(volume_directory.join(part.name())) else { continue };
        if !is_block_device(&target) {
            remove(&target)?;
        } else if let Ok(identity) = crate::home::Folder::open(volume_directory)
            .and_then(|folder| crate::volume::Identity::read(&folder))
        {
            let name = elsewhere(part, &identity.volume_id);
            let removed = devices.get(&target)?.remove_dir(&name);
            removed.map_err(|error| NodeError::io("remove a directory from", &target, error))?;
        }
    }
    remove(volume_directory)
}

#[cfg(test)]
mod tests;
