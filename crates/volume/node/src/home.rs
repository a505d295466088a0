//! The files of a volume: the seam between a volume and its disk.
//!
//! Everything that a volume reads or writes goes through the [`StorageDir`]s of a [`Home`]. They hold its own
//! directory, the contents of plain files, its log and its pages. [`DirectoryHome`] has directories of the operating
//! system, encrypted or not ([`crate::at_rest`]), or raw devices ([`crate::place`]). A simulation replaces them by a
//! disk that loses, tears and fails as a real one may.

use crate::at_rest::{KeyFile, Unlocked};
use crate::error::NodeError;
use crate::log_device;
use crate::options::NodeOptions;
use crate::page_store;
use crate::place::Site;
use redoubt_logdev::Held;
use redoubt_pagestore::PageStore;
use redoubt_storage::{BudgetDir, FileBudget, RealDir, StorageDir, StorageFile};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The disk of one volume.
pub trait Home: Send + Sync {
    /// Its own directory: identity, checkpoint, notes and reports.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    fn own(&self) -> Result<Folder, NodeError>;
    /// Contents of plain files.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    fn plain(&self) -> Result<Folder, NodeError>;
    /// Its key, if it is encrypted.
    fn unlocked(&self) -> Option<&Arc<Unlocked>> {
        None
    }
    /// Its log; makes one if there is none. `held`: what it had when it was used last.
    ///
    /// # Errors
    /// As [`log_device::open`].
    fn log(
        &self,
        volume_id: &str,
        options: &NodeOptions,
        held: Held,
    ) -> Result<log_device::Opened, NodeError>;
    /// Checks that its pages, if there are any, are of a format that [`Home::pages`] can open. Changes nothing.
    ///
    /// # Errors
    /// As [`page_store::check`].
    fn check_pages(&self, _volume_id: &str, _options: &NodeOptions) -> Result<(), NodeError> {
        Ok(())
    }
    /// Its pages; makes a store if there is none. A lost journal is replaced if `replaces_lost_journal`.
    ///
    /// # Errors
    /// As [`page_store::open`].
    fn pages(
        &self,
        volume_id: &str,
        options: &NodeOptions,
        replaces_lost_journal: bool,
    ) -> Result<(Box<dyn PageStore>, page_store::Description), NodeError>;
}

/// A directory of the operating system, with the layout that [`crate::volume`] describes.
pub struct DirectoryHome {
    directory: PathBuf,
    unlocked: Option<Arc<Unlocked>>,
    open_files: Arc<FileBudget>,
}

impl DirectoryHome {
    /// A directory for a new volume, which must not exist. If it is to be encrypted, that is done before anything is
    /// written, and the key is made unless there is one.
    ///
    /// # Errors
    /// [`NodeError::Refused`] if it exists; [`NodeError::AtRest`] if it cannot be encrypted, and is gone again then;
    /// [`NodeError::Io`].
    pub fn create(
        name: &str,
        directory: &Path,
        options: &NodeOptions,
        is_encrypted: bool,
    ) -> Result<(Self, Option<KeyFile>), NodeError> {
        if let Err(error) = std::fs::create_dir(directory) {
            if error.kind() == ErrorKind::AlreadyExists {
                return Err(NodeError::Refused(format!("{} exists already", directory.display())));
            }
            return Err(NodeError::io("create", directory, error));
        }
        let open_files = Arc::clone(&options.open_files);
        let home = |unlocked| Self { directory: directory.to_owned(), unlocked, open_files };
        if !is_encrypted {
            return Ok((home(None), None));
        }
        let encrypted = options.at_rest.encrypt(name, directory, &options.places());
        let (unlocked, key_file) = encrypted.inspect_err(|_| {
            // It is empty.
            let _ = std::fs::remove_dir(directory);
        })?;
        Ok((home(Some(Arc::new(unlocked))), Some(key_file)))
    }

    /// The directory of a volume. If it is encrypted, its key is there when this returns.
    ///
    /// # Errors
    /// [`NodeError::AtRest`].
    pub fn open(name: &str, directory: &Path, options: &NodeOptions) -> Result<Self, NodeError> {
        let unlocked = if directory.is_dir() { options.at_rest.unlock(name, directory)? } else { None };
        let open_files = Arc::clone(&options.open_files);
        Ok(Self { directory: directory.to_owned(), unlocked: unlocked.map(Arc::new), open_files })
    }

    fn site<'s>(&'s self, volume_id: &'s str, options: &'s NodeOptions) -> Site<'s> {
        let (directory, devices) = (&self.directory, &*options.devices);
        Site { directory, volume_id, devices, unlocked: self.unlocked.as_deref() }
    }
}

impl Home for DirectoryHome {
    fn own(&self) -> Result<Folder, NodeError> {
        Folder::open_within(&self.open_files, &self.directory)
    }

    fn plain(&self) -> Result<Folder, NodeError> {
        let path = self.directory.join("plain");
        std::fs::create_dir_all(&path).map_err(|error| NodeError::io("create", &path, error))?;
        self.unlocked.as_ref().map_or(Ok(()), |unlocked| unlocked.check(&path))?;
        Folder::open_within(&self.open_files, &path)
    }

    fn unlocked(&self) -> Option<&Arc<Unlocked>> {
        self.unlocked.as_ref()
    }

    fn log(
        &self,
        volume_id: &str,
        options: &NodeOptions,
        held: Held,
    ) -> Result<log_device::Opened, NodeError> {
        log_device::open(self.site(volume_id, options), options, held)
    }

    fn check_pages(&self, volume_id: &str, options: &NodeOptions) -> Result<(), NodeError> {
        page_store::check(self.site(volume_id, options), options)
    }

    fn pages(
        &self,
        volume_id: &str,
        options: &NodeOptions,
        replaces_lost_journal: bool,
    ) -> Result<(Box<dyn PageStore>, page_store::Description), NodeError> {
        let site = self.site(volume_id, options);
        let (store, description) = page_store::open(site, options, replaces_lost_journal)?;
        Ok((Box::new(store), description))
    }
}

/// A directory behind the storage seam, with its path for messages.
#[derive(Clone)]
pub struct Folder {
    dir: Arc<dyn StorageDir>,
    path: PathBuf,
}

impl Folder {
    /// A directory of the operating system, which must exist. It is not locked: log and pages of the volume are.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn open(path: &Path) -> Result<Self, NodeError> {
        let dir = RealDir::open_shared(path).map_err(|error| NodeError::io("open", path, error))?;
        Ok(Self::new(Arc::new(dir), path))
    }

    /// [`Folder::open`], with files that count for a budget. All changes of its names go through this value and its
    /// clones.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn open_within(open_files: &Arc<FileBudget>, path: &Path) -> Result<Self, NodeError> {
        let dir = RealDir::open_shared(path).map_err(|error| NodeError::io("open", path, error))?;
        Ok(Self::new(Arc::new(BudgetDir::new(Arc::new(dir), open_files)), path))
    }

    /// Any directory; `path` only appears in messages.
    pub fn new(dir: Arc<dyn StorageDir>, path: &Path) -> Self {
        Self { dir, path: path.to_owned() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory itself.
    pub fn dir(&self) -> &dyn StorageDir {
        &*self.dir
    }

    /// Opens a file; `None`: there is none.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn find(&self, name: &str) -> Result<Option<Arc<dyn StorageFile>>, NodeError> {
        match self.dir.open(name) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(NodeError::io("open", self.path.join(name), error)),
        }
    }

    /// Opens a file; makes an empty one if there is none.
    ///
    /// # Errors
    /// Any error of the file system.
    pub fn open_or_create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        match self.dir.open(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.dir.create(name),
            opened => opened,
        }
    }

    /// Contents of a file; `None`: there is none.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, NodeError> {
        let Some(file) = self.find(name)? else { return Ok(None) };
        let read = || {
            let mut bytes = vec![0; file.len_bytes()? as usize];
            let len = file.read_at(0, &mut bytes)?;
            bytes.truncate(len);
            Ok(bytes)
        };
        read().map(Some).map_err(|error| NodeError::io("read", self.path.join(name), error))
    }

    /// Writes a whole file, replacing its content. Neither atomic nor durable.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), NodeError> {
        let write = || -> io::Result<()> {
            let file = self.open_or_create(name)?;
            file.set_len(0)?;
            file.write_at(0, bytes)
        };
        write().map_err(|error| NodeError::io("write", self.path.join(name), error))
    }

    /// Removes a file; it is no error if there is none.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn remove(&self, name: &str) -> Result<(), NodeError> {
        match self.dir.remove(name) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(NodeError::io("remove", self.path.join(name), error))
            }
            _ => Ok(()),
        }
    }

    /// Makes the names in it durable.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn sync(&self) -> Result<(), NodeError> {
        self.dir.sync().map_err(|error| NodeError::io("sync", &self.path, error))
    }
}
