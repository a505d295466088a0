//! Files of the store beside those of the server.
//!
//! State transfers copy the server's directories from the donor over those of the joiner, any of them. Plain files whose
//! names are not the server's are left alone by both scripts: rsync's takes only what it names, mariabackup's keeps
//! `*.log`. So each file of the store is a file of the data directory itself, with a prefix and `.log` after it.

use redoubt_storage::{StorageDir, StorageFile};
use std::io;
use std::sync::Arc;

const PREFIX: &str = "redoubt_group.";
const SUFFIX: &str = ".log";

/// Those files of a directory.
pub struct OwnFiles(pub Arc<dyn StorageDir>);

/// As what a file is in the data directory.
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
