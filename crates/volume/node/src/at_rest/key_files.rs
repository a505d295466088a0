//! The directory of a node's volume keys: one file `VOLUME.key` of random bytes for each volume.
//!
//! Invariants: an existing key file is never written or removed; a new one is durable when its key is given out; one
//! node uses a directory at a time. Keys are wiped from memory when they are dropped.

use super::error::AtRestError;
use super::fscrypt::KEY_LEN_BYTES;
use rustix::fs::FlockOperation;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::{DirBuilder, File, Metadata};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// A volume's key.
pub type Key = Zeroizing<[u8; KEY_LEN_BYTES]>;

/// A key file, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyFile {
    /// Its path.
    pub path: PathBuf,
    /// It is new: there is no copy of it yet.
    pub is_new: bool,
}

/// The directory of a node's volume keys: one file `VOLUME.key` of random bytes for each volume.
pub struct VolumeKeys {
    directory: PathBuf,
    /// Held for as long as the node lives.
    lock: File,
}

impl Drop for VolumeKeys {
    /// A child that is being started has the descriptor too until it is another program.
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

impl VolumeKeys {
    /// The keys in `directory`, which is made if it is missing.
    ///
    /// # Errors
    /// [`AtRestError::KeysInUse`], [`AtRestError::Io`].
    pub fn open(directory: &Path) -> Result<Self, AtRestError> {
        let failed = |action| move |error| AtRestError::io(action, directory, error);
        let directory = std::path::absolute(directory).map_err(failed("find"))?;
        if !directory.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(failed("create"))?;
        }
        let lock = File::open(&directory).map_err(failed("open"))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(AtRestError::KeysInUse { directory }),
            locked => locked.map_err(|error| AtRestError::io("lock", &directory, error.into()))?,
        }
        Ok(Self { directory, lock })
    }

    fn path(&self, volume: &str) -> PathBuf {
        self.directory.join(format!("{volume}.key"))
    }

    /// The key of a volume.
    ///
    /// # Errors
    /// [`AtRestError`] with the fault of its file.
    pub fn read(&self, volume: &str) -> Result<(Key, PathBuf), AtRestError> {
        let path = self.path(volume);
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(AtRestError::KeyMissing { path });
            }
            opened => opened.map_err(|error| AtRestError::io("open", &path, error))?,
        };
        let metadata = file.metadata().map_err(|error| AtRestError::io("look at", &path, error))?;
        check(&path, &metadata, rustix::process::geteuid().as_raw())?;
        let mut key = Key::new([0; KEY_LEN_BYTES]);
        file.read_exact(&mut *key).map_err(|error| AtRestError::io("read", &path, error))?;
        Ok((key, path))
    }

    /// Makes a key for a volume unless there is one. When it returns the key is durable.
    ///
    /// # Errors
    /// As [`VolumeKeys::read`].
    pub fn ensure(&self, volume: &str) -> Result<KeyFile, AtRestError> {
        let path = self.path(volume);
        let is_new = match self.read(volume) {
            Err(AtRestError::KeyMissing { .. }) => {
                self.create(&path).map_err(|error| AtRestError::io("make the key", &path, error))?;
                true
            }
            read => read.map(|_| false)?,
        };
        Ok(KeyFile { path, is_new })
    }

    /// Whole or not at all: remains of a crash must not look like a key.
    fn create(&self, path: &Path) -> std::io::Result<()> {
        let mut key = Key::new([0; KEY_LEN_BYTES]);
        let mut done = 0;
        while let Some(rest) = key.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match getrandom(rest, GetRandomFlags::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                taken => done += taken?,
            }
        }
        let unfinished = path.with_extension("key.new");
        match std::fs::remove_file(&unfinished) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(&*key)?;
        file.sync_all()?;
        // Not a rename: it would replace a key that came meanwhile.
        std::fs::hard_link(&unfinished, path)?;
        std::fs::remove_file(&unfinished)?;
        File::open(&self.directory)?.sync_all()
    }
}

/// Is this a key file, and can only the node's user and root read and write it? A file of root may be readable by a
/// group, or by an access control list, which shows as one: so services hand out secrets.
fn check(path: &Path, metadata: &Metadata, user: u32) -> Result<(), AtRestError> {
    let (mode, owner, len_bytes) = (metadata.mode() & 0o7777, metadata.uid(), metadata.len());
    if owner != user && owner != 0 {
        return Err(AtRestError::KeyOwner { path: path.to_owned(), owner, expected: user });
    }
    let allowed = if owner == 0 && user != 0 { 0o740 } else { 0o700 };
    if mode & 0o777 & !allowed != 0 {
        return Err(AtRestError::KeyTooOpen { path: path.to_owned(), mode });
    }
    if !metadata.is_file() || len_bytes != KEY_LEN_BYTES as u64 {
        return Err(AtRestError::KeyLength { path: path.to_owned(), len_bytes, expected: KEY_LEN_BYTES });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
