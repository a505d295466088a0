//! Encryption of a volume's files on the node, with a key of the volume.
//!
//! The kernel encrypts ([`fscrypt`]). The node creates every directory of the volume with the volume's key, before its
//! first byte is written. It adds the key when the volume is opened, and removes it afterwards. Keys are files beside
//! the volumes ([`key_files`]).
//!
//! The volume's directory shows that it is encrypted: its policy differs from that of its parent directory. (A whole
//! data directory may be encrypted by its owner; its volumes inherit that policy, and the node ignores it.) The
//! volume's identity records the encryption too, so that a copy in clear is not opened.
//!
//! Invariants: a directory gets its policy while it is empty. While an [`Unlocked`] lives, the file systems of the
//! volume's directories have its key; when the last one of a volume goes, the key is removed from them. Keys are in
//! this process's memory only while they are handed to the kernel.
//!
//! Lock: `added` is a leaf; the kernel is called with it held, so that no key is removed that was just added.

pub mod error;
pub mod fscrypt;
pub mod key_files;

pub use error::AtRestError;
use fscrypt::{Encryption, KeyIdentifier, Left, Policy};
pub use key_files::{KeyFile, VolumeKeys};
use redoubt_sync::{Condvar, Mutex, time};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const SWITCHED_OFF: &str = "its file system, or this kernel, does not encrypt files. On ext4: \
     `tune2fs -O encrypt DEVICE`, also while it is mounted, and a kernel with CONFIG_FS_ENCRYPTION, version 5.4 or \
     later. Or put LUKS beneath the whole file system and create the volume without --encrypted";
const NO_SUCH_CALL: &str = "this kind of file system does not encrypt files (ext4, F2FS and CephFS do). Use one that \
     does, or put LUKS beneath the whole file system and create the volume without --encrypted";

/// Keys that this process has added to file systems, and where it has them from. One per node.
#[derive(Default)]
pub struct AtRest {
    keys: Option<VolumeKeys>,
    added: Mutex<BTreeMap<(FileSystem, KeyIdentifier), Added>>,
    /// An [`Unlocked`] has gone.
    changed: Condvar,
}

/// A file system, as `stat` names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct FileSystem(u64);

struct Added {
    /// How many [`Unlocked`] need it; 0: it could not be removed wholly yet.
    users: usize,
    /// Something on the file system that is not encrypted with the key.
    on_it: File,
}

impl AtRest {
    /// With the keys in a directory.
    pub fn new(keys: VolumeKeys) -> Self {
        Self { keys: Some(keys), ..Self::default() }
    }

    fn keys(&self) -> Result<&VolumeKeys, AtRestError> {
        self.keys.as_ref().ok_or(AtRestError::NoKeyDirectory)
    }

    /// Encrypts the volume in `directory`, which must be empty. Creates its key unless it has one. `places` are the
    /// locations of its parts.
    ///
    /// # Errors
    /// [`AtRestError`]; no key was created if the directory or a location cannot be encrypted.
    pub fn encrypt(
        self: &Arc<Self>,
        volume: &str,
        directory: &Path,
        places: &[&Path],
    ) -> Result<(Unlocked, KeyFile), AtRestError> {
        let keys = self.keys()?;
        for place in places {
            if crate::place::is_block_device(place) {
                return Err(AtRestError::RawDevice { path: place.to_path_buf() });
            }
            require_clear(place)?;
        }
        require_clear(directory)?;
        let key_file = keys.ensure(volume)?;
        if key_file.is_new {
            tracing::warn!(
                event = "volume_key_created",
                volume,
                key = %key_file.path.display(),
                "made the key of an encrypted volume: the volume is lost without it; keep a copy in another place"
            );
        }
        let (key, _) = keys.read(volume)?;
        let (file_system, key) = self.add(&key, &parent(directory)?)?;
        let unlocked = Unlocked {
            of: Arc::clone(self),
            volume: volume.to_owned(),
            directory: directory.to_owned(),
            key,
            file_systems: Mutex::new(vec![file_system]),
        };
        unlocked.encrypt(directory)?;
        Ok((unlocked, key_file))
    }

    /// Adds the key of the volume in `directory`, if that is encrypted, to the directory's file system.
    ///
    /// # Errors
    /// [`AtRestError`] with the fault of the key.
    pub fn unlock(self: &Arc<Self>, volume: &str, directory: &Path) -> Result<Option<Unlocked>, AtRestError> {
        let Some(key) = key_of(directory)? else { return Ok(None) };
        let unlocked = Unlocked {
            of: Arc::clone(self),
            volume: volume.to_owned(),
            directory: directory.to_owned(),
            key,
            file_systems: Mutex::default(),
        };
        unlocked.enter(directory)?;
        Ok(Some(unlocked))
    }

    /// `on_it` is a directory of the file system that is not encrypted with the key.
    fn add(&self, key: &key_files::Key, on_it: &Path) -> Result<(FileSystem, KeyIdentifier), AtRestError> {
        let file = open(on_it)?;
        let file_system = file_system(&file, on_it)?;
        let mut added = self.added.lock();
        let identifier = fscrypt::add_key(&file, key)
            .map_err(|error| AtRestError::io("add the key to the file system of", on_it, error))?;
        added.entry((file_system, identifier)).or_insert(Added { users: 0, on_it: file }).users += 1;
        Ok((file_system, identifier))
    }

    /// Ends one use of the key. The last one removes it from the file system.
    fn release(&self, file_system: FileSystem, key: KeyIdentifier) {
        let mut added = self.added.lock();
        let Some(of) = added.get_mut(&(file_system, key)) else { return };
        of.users = of.users.saturating_sub(1);
        if of.users == 0 && remove(of, key) == Removal::Done {
            added.remove(&(file_system, key));
        }
        self.changed.notify_all();
    }

    /// Removes all keys. Waits while volumes are open, but no longer than `patience`: files that are still open then
    /// stay readable on this host.
    pub fn end(&self, patience: Duration) {
        let deadline = time::now() + patience;
        let mut added = self.added.lock();
        while added.values().any(|of| of.users > 0) {
            if self.changed.wait_until(&mut added, deadline).timed_out() {
                break;
            }
        }
        for ((_, key), of) in std::mem::take(&mut *added) {
            if remove(&of, key) == Removal::FilesAreOpen {
                tracing::warn!(event = "volume_key_in_use", %key, "files of an encrypted volume are still open: they stay readable on this host");
            }
        }
    }
}

#[derive(PartialEq, Eq)]
enum Removal {
    Done,
    FilesAreOpen,
}

/// A failure that a retry cannot fix counts as done, with a warning to the operator.
fn remove(added: &Added, key: KeyIdentifier) -> Removal {
    match fscrypt::remove_key(&added.on_it, key) {
        Ok(Left::Nothing) => {
            tracing::info!(event = "volume_key_removed", %key, "volume key removed from the kernel")
        }
        Ok(Left::OpenFiles) => return Removal::FilesAreOpen,
        Ok(Left::OtherUsers) => tracing::warn!(event = "volume_key_shared",
            %key,
            "another user of this host has added this volume key too; files stay readable until that user \
             removes it"
        ),
        Err(error) => {
            tracing::warn!(event = "volume_key_removal_failed", %key, %error, "cannot remove a volume key from the kernel")
        }
    }
    Removal::Done
}

impl fmt::Debug for AtRest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.added.lock().keys()).finish()
    }
}

/// An encrypted volume whose key the kernel has, on the file systems of all its directories.
pub struct Unlocked {
    of: Arc<AtRest>,
    volume: String,
    /// The volume's own directory when this began; it may have got another name since.
    directory: PathBuf,
    key: KeyIdentifier,
    file_systems: Mutex<Vec<FileSystem>>,
}

impl Unlocked {
    /// Key of its files.
    pub fn key(&self) -> KeyIdentifier {
        self.key
    }

    /// Encrypts `directory`, a new part of the volume, which must be empty. It is no error if it is encrypted already.
    ///
    /// # Errors
    /// [`AtRestError`].
    pub fn encrypt(&self, directory: &Path) -> Result<(), AtRestError> {
        self.enter(directory)?;
        match read_state(directory)? {
            Encryption::Encrypted(Policy::Ours(key)) if key == self.key => return Ok(()),
            Encryption::Clear => {}
            _ => require_clear(directory)?,
        }
        fscrypt::set_policy(&open(directory)?, self.key)
            .map_err(|error| AtRestError::io("set the encryption of", directory, error))?;
        let parent = parent(directory)?;
        open(&parent)?.sync_all().map_err(|error| AtRestError::io("sync", &parent, error))
    }

    /// Sees that `directory`, a part of the volume, is encrypted with the key, and adds it to that file system.
    ///
    /// # Errors
    /// [`AtRestError::PartDiffers`] if it is not.
    pub fn check(&self, directory: &Path) -> Result<(), AtRestError> {
        if read_state(directory)? != Encryption::Encrypted(Policy::Ours(self.key)) {
            return Err(AtRestError::PartDiffers { path: directory.to_owned(), wanted: self.key });
        }
        self.enter(directory)
    }

    /// Adds the key to the file system that `directory` is on, unless it has it.
    fn enter(&self, directory: &Path) -> Result<(), AtRestError> {
        let this = file_system(&open(directory)?, directory)?;
        if self.file_systems.lock().contains(&this) {
            return Ok(());
        }
        let (key, path) = self.of.keys()?.read(&self.volume)?;
        // The kernel cannot drop the key while files in the volume's directory are open; the directory above can stay
        // open.
        let above = parent(directory)?;
        let is_mount = file_system(&open(&above)?, &above)? != this;
        let (file_system, found) = self.of.add(&key, if is_mount { directory } else { &above })?;
        if found != self.key {
            self.of.release(file_system, found);
            let (directory, wanted) = (self.directory.clone(), self.key);
            return Err(AtRestError::WrongKey { path, directory, wanted, found });
        }
        self.file_systems.lock().push(file_system);
        Ok(())
    }
}

impl Drop for Unlocked {
    fn drop(&mut self) {
        for file_system in std::mem::take(&mut *self.file_systems.lock()) {
            self.of.release(file_system, self.key);
        }
    }
}

/// The key of the volume in `directory`; `None`: it is not encrypted, or inherits the encryption of its parent
/// directory.
///
/// # Errors
/// [`AtRestError::EncryptedOtherwise`], [`AtRestError::Io`].
pub fn key_of(directory: &Path) -> Result<Option<KeyIdentifier>, AtRestError> {
    let state = read_state(directory)?;
    let Encryption::Encrypted(policy) = state else { return Ok(None) };
    if read_state(&parent(directory)?)? == state {
        return Ok(None);
    }
    match policy {
        Policy::Ours(key) => Ok(Some(key)),
        Policy::Other(_) => Err(AtRestError::EncryptedOtherwise { path: directory.to_owned() }),
    }
}

/// Checks that `path`, or a file created there, could be encrypted. A missing path counts as its nearest existing
/// ancestor.
fn require_clear(path: &Path) -> Result<(), AtRestError> {
    let path = path.to_owned();
    match read_state(path.ancestors().find(|at| at.exists()).unwrap_or(Path::new(".")))? {
        Encryption::Clear => Ok(()),
        Encryption::Encrypted(_) => Err(AtRestError::EncryptedOtherwise { path }),
        Encryption::SwitchedOff => Err(AtRestError::Unsupported { path, remedy: SWITCHED_OFF }),
        Encryption::NoSuchCall => Err(AtRestError::Unsupported { path, remedy: NO_SUCH_CALL }),
    }
}

fn read_state(directory: &Path) -> Result<Encryption, AtRestError> {
    fscrypt::read_state(&open(directory)?)
        .map_err(|error| AtRestError::io("ask for the encryption of", directory, error))
}

/// The directory that `directory` is in, links followed.
fn parent(directory: &Path) -> Result<PathBuf, AtRestError> {
    let found = std::fs::canonicalize(directory);
    let found = found.map_err(|error| AtRestError::io("find", directory, error))?;
    Ok(found.parent().unwrap_or(&found).to_owned())
}

fn open(directory: &Path) -> Result<File, AtRestError> {
    File::open(directory).map_err(|error| AtRestError::io("open", directory, error))
}

fn file_system(file: &File, path: &Path) -> Result<FileSystem, AtRestError> {
    let metadata = file.metadata().map_err(|error| AtRestError::io("look at", path, error))?;
    Ok(FileSystem(metadata.dev()))
}

#[cfg(test)]
mod tests;
