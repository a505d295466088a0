//! The store's files in the server's data directory.
//!
//! State transfers copy the server's directories from the donor over those of the joiner. Both scripts leave plain
//! files alone whose names are not the server's: rsync's copies only what it names, and mariabackup's keeps `*.log`. So
//! each file of the store is a file of the data directory itself, with a prefix and the suffix `.log`.

use redoubt_storage::{StorageDir, StorageFile};
use std::io;
use std::sync::Arc;

const PREFIX: &str = "redoubt_group.";
const SUFFIX: &str = ".log";

/// View of a directory that has only the store's files.
pub struct OwnFiles(pub Arc<dyn StorageDir>);

/// Full name of a file in the data directory.
pub fn full(name: &str) -> String {
    format!("{PREFIX}{name}{SUFFIX}")
}

impl StorageDir for OwnFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        let names = self.0.list()?;
        let own = names.iter().filter_map(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
        Ok(own.map(str::to_owned).collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.0.open(&full(name))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.0.create(&full(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(&full(from), &full(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(&full(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn sync_files(&self, files: &[Arc<dyn StorageFile>]) -> Result<(), (usize, io::Error)> {
        self.0.sync_files(files)
    }
}
