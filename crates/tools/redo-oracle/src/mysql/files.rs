//! The tablespaces of a MySQL data directory, in memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use redoubt_page::{Format, layout, page_is_never_written};
use redoubt_redo::{Family, SpaceId};
use redoubt_workload::error::{Error, Result};

/// A file.
#[derive(Debug)]
pub struct Tablespace {
    /// Below the data directory.
    pub path: PathBuf,
    /// How its pages look.
    pub format: Format,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// Those with a page 0, by their numbers. The system tablespace is one file, `ibdata1`.
#[derive(Debug, Default)]
pub struct Tablespaces(pub BTreeMap<SpaceId, Tablespace>);

impl Tablespaces {
    /// Reads them.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Violation`] for flags that describe no tablespace, or two files of one.
    pub fn read(datadir: &Path) -> Result<Self> {
        let mut found = Self::default();
        found.collect(datadir, Path::new(""))?;
        Ok(found)
    }

    fn collect(&mut self, datadir: &Path, below: &Path) -> Result<()> {
        let directory = datadir.join(below);
        for entry in fs::read_dir(&directory).map_err(Error::io_at("list", &directory))? {
            let entry = entry.map_err(Error::io_at("list", &directory))?;
            let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
            // Names with # hold redo, temporary tablespaces and copies of pages.
            if path.is_dir() && !name.starts_with('#') {
                self.collect(datadir, &below.join(&name))?;
            } else if name == "ibdata1" || name.ends_with(".ibd") || name.ends_with(".ibu") || is_undo(&name)
            {
                self.add(&path, below.join(&name))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, relative: PathBuf) -> Result<()> {
        let bytes = fs::read(path).map_err(Error::io_at("read", path))?;
        if page_is_never_written(bytes.get(..1024).unwrap_or(&bytes)) {
            return Ok(());
        }
        let wrong = |what: &str| Error::Violation(format!("{}: {what}", relative.display()));
        let format = Format::of_page0(Family::MySql, &bytes).map_err(|error| wrong(&error.to_string()))?;
        let space = layout::page_id(&bytes).ok_or_else(|| wrong("it has no page 0"))?.space;
        if let Some(other) = self.0.insert(space, Tablespace { path: relative.clone(), format, bytes }) {
            return Err(wrong(&format!("it has the number {space}, as {} has", other.path.display())));
        }
        Ok(())
    }
}

/// `undo_001`, not `undo_1_trunc.log`.
fn is_undo(name: &str) -> bool {
    name.strip_prefix("undo_").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}
