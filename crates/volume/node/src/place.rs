//! Locations of the parts of a volume that can be elsewhere: its log, its page journal, its pages.
//!
//! A part is in the volume's own directory by default. If the node had another location configured for it when the
//! volume was created, the volume's directory has a link of that name to it. The link makes the volume find its parts
//! whatever the node's later options are. The other location is a directory, of which the volume gets a subdirectory,
//! or a raw block device (`redoubt_storage::raw_device`), of which it gets a directory by name. A build without the
//! feature `experimental-devices` refuses every raw device.
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
use crate::options::NodeOptions;
use redoubt_storage::{BudgetDir, RealDir, RealDirOptions, StorageDir};
use std::fmt;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg_attr(not(feature = "experimental-devices"), path = "place/no_raw_device.rs")]
mod raw_device;

pub use raw_device::{RawDevices, RawDirectory};

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
}

/// Location of a part.
#[derive(Clone)]
pub enum Place {
    /// A directory.
    Directory(PathBuf),
    /// A directory on a raw block device.
    Device(RawDirectory),
}

impl Place {
    /// Opens it for the storage crates. With `pretend_untorn`, untorn writes are pretended (tests and measurements).
    ///
    /// # Errors
    /// [`NodeError::Refused`] if another process has it open, [`NodeError::Io`].
    pub fn open(
        &self,
        options: &NodeOptions,
        pretend_untorn: bool,
    ) -> Result<Arc<dyn StorageDir>, NodeError> {
        match self {
            Self::Directory(path) => {
                let budget = &options.open_files;
                match budget.with_descriptor(|| RealDir::open_with(path, RealDirOptions { pretend_untorn })) {
                    Ok(dir) => Ok(Arc::new(BudgetDir::new(Arc::new(dir), budget))),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        Err(NodeError::Refused(format!("{} is in use by another process", path.display())))
                    }
                    Err(error) => Err(NodeError::io("open directory", path, error)),
                }
            }
            Self::Device(directory) => directory.open(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::Device(directory) => directory.fmt(f),
        }
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
    let name = elsewhere(part, volume_id);
    let directory = devices.find(&target, name.clone(), part)?.ok_or_else(|| {
        NodeError::Refused(format!(
            "{} has no directory {name}: it is not the device that {} was made with",
            target.display(),
            link.display()
        ))
    })?;
    Ok(Some(Place::Device(directory)))
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
        // A stable name, such as one below /dev/disk/by-id, stays as it was given.
        let target = std::path::absolute(wanted).map_err(|error| NodeError::io("find", wanted, error))?;
        // Made, and durably so, before anything leads to it.
        (Place::Device(devices.create(wanted, name, part)?), target)
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

/// Where the link to a part is.
pub fn link_of(site: Site<'_>, part: Part) -> PathBuf {
    site.directory.join(part.name())
}

/// The part has a directory at `wanted`. For a part without a link.
pub fn is_unlinked(site: Site<'_>, part: Part, wanted: &Path) -> bool {
    wanted.join(elsewhere(part, site.volume_id)).is_dir()
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

/// Makes sure that this build can remove all parts of a volume that are on raw devices. An encrypted volume has none.
///
/// # Errors
/// [`NodeError::Refused`] if the build cannot use raw devices.
pub fn check_removal(volume_directory: &Path, devices: &RawDevices) -> Result<(), NodeError> {
    let mut targets = Part::ALL.into_iter().filter_map(|part| {
        let target = std::fs::read_link(volume_directory.join(part.name())).ok()?;
        is_block_device(&target).then_some(target)
    });
    targets.try_for_each(|target| devices.check_supported(&target))
}

/// Removes a volume's directory, and its parts that are elsewhere. It is no error if there is none.
///
/// # Errors
/// [`NodeError::Io`], and as [`prepare_removal`] and [`check_removal`]: then nothing was removed.
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
    check_removal(volume_directory, devices)?;
    for part in Part::ALL {
        let Ok(target) = std::fs::read_link(volume_directory.join(part.name())) else { continue };
        if !is_block_device(&target) {
            remove(&target)?;
        } else if let Ok(identity) = crate::home::Folder::open(volume_directory)
            .and_then(|folder| crate::volume::Identity::read(&folder))
        {
            let name = elsewhere(part, &identity.volume_id);
            devices.remove(&target, &name)?;
        }
    }
    remove(volume_directory)
}

#[cfg(test)]
mod tests;
