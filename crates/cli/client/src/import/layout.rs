//! File locations of a stopped server: its settings, from its option file and from the command line.
//!
//! In the volume every file lies as in a plain data directory ([`crate::places`]). Nothing is guessed: a file that no
//! setting names is not this server's, and two files that would get one name are refused.

use super::source::{SourceFile, family_of, is_undo};
use crate::error::{ClientError, Result};
use crate::events::Events;
use crate::places::{self, ARIA, BINARY_LOG, BINARY_LOG_INDEX, DATA_HOME, LOG_HOME, UNDO};
use crate::server;
use redoubt_redo::Family;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Settings of a stopped server that a person names. Files without such a setting are in its data directory.
#[derive(Debug, Default)]
pub struct Places {
    /// Option file of the server: the other settings are asked from the server of this host.
    pub defaults_file: Option<PathBuf>,
    /// The setting of this name, as the following ones.
    pub innodb_data_file_path: Option<String>,
    /// Directory of the system tablespace.
    pub innodb_data_home_dir: Option<String>,
    /// Directory of the redo log.
    pub innodb_log_group_home_dir: Option<String>,
    /// Directory of the undo tablespaces.
    pub innodb_undo_directory: Option<String>,
    /// Directory of Aria's log.
    pub aria_log_dir_path: Option<String>,
    /// Path and base name of the binary log.
    pub log_bin: Option<String>,
    /// Index of the binary log.
    pub log_bin_index: Option<String>,
}

/// The file layout of a stopped server.
pub struct Layout {
    datadir: PathBuf,
    settings: HashMap<String, String>,
    moved: Vec<&'static str>,
}

impl Layout {
    /// Asks the server of this host for the settings in the option file, if one is given.
    ///
    /// # Errors
    /// [`ClientError::Usage`] if there is no such file or server.
    pub fn of(datadir: &Path, given: &Places) -> Result<Self> {
        let mut settings = match &given.defaults_file {
            Some(file) => asked(file, datadir)?,
            None => HashMap::new(),
        };
        let path = datadir.canonicalize().unwrap_or_else(|_| datadir.to_owned());
        forget_index_that_follows_its_log(&mut settings, &path);
        for (option, value) in [
            ("innodb-data-file-path", &given.innodb_data_file_path),
            (DATA_HOME, &given.innodb_data_home_dir),
            (LOG_HOME, &given.innodb_log_group_home_dir),
            (UNDO, &given.innodb_undo_directory),
            (ARIA, &given.aria_log_dir_path),
            (BINARY_LOG, &given.log_bin),
            (BINARY_LOG_INDEX, &given.log_bin_index),
        ] {
            if let Some(value) = value {
                settings.insert(option.to_owned(), value.clone());
            }
        }
        let mut moved: Vec<_> = places::moved(&settings, &path).iter().map(|moved| moved.option).collect();
        // The volume's server will have another data directory, and then an absolute path leads elsewhere.
        for option in [ARIA, BINARY_LOG, BINARY_LOG_INDEX] {
            if !moved.contains(&option) && places::is_absolute_below(&settings, option, &path) {
                moved.push(option);
            }
        }
        Ok(Self { datadir: path, settings, moved })
    }

    /// innodb_data_file_path, if it is known.
    pub fn data_file_path(&self) -> Option<&str> {
        self.settings.get("innodb-data-file-path").map(String::as_str)
    }

    /// Directory that a setting names.
    pub fn directory(&self, option: &str) -> PathBuf {
        let set = places::directory_of(&self.settings, option, &self.datadir);
        set.map_or_else(|| self.datadir.clone(), |(_, directory)| directory)
    }

    /// Directory that a setting names, or that of another one if it is not set.
    pub fn directory_or(&self, option: &str, other: &str) -> PathBuf {
        let set = places::directory_of(&self.settings, option, &self.datadir);
        set.map_or_else(|| self.directory(other), |(_, directory)| directory)
    }

    /// Directory that a setting names, if files of a volume may not be in it.
    pub fn moved_directory(&self, option: &str) -> Option<PathBuf> {
        self.moved.contains(&option).then(|| self.directory(option))
    }

    /// Undo tablespaces, Aria's log and the binary log, as far as they lie elsewhere.
    ///
    /// # Errors
    /// [`ClientError`] for a directory that cannot be read, or a binary log that is not complete.
    pub fn files_elsewhere(&self, events: &dyn Events) -> Result<Vec<SourceFile>> {
        let mut files = Vec::new();
        if let Some(directory) = self.moved_directory(UNDO) {
            files.extend(self.chosen(UNDO, &directory, is_undo)?);
        }
        if let Some(directory) = self.moved_directory(ARIA) {
            files.extend(self.chosen(ARIA, &directory, is_aria_log)?);
        }
        files.extend(self.binary_log(events)?);
        Ok(files)
    }

    /// Rejects a file that a server with these settings does not use, although its name is significant.
    ///
    /// # Errors
    /// [`ClientError::Usage`] if there is one at the top of the data directory.
    pub fn check_unused(&self, name: &str) -> Result<()> {
        for (option, is_one) in [(UNDO, is_undo(name)), (ARIA, is_aria_log(name))] {
            if is_one && let Some(directory) = self.moved_directory(option) {
                return Err(ClientError::Usage(format!(
                    "{} is not used by a server with {}={}; move it away, or correct the setting",
                    self.datadir.join(name).display(),
                    option.replace('-', "_"),
                    directory.display()
                )));
            }
        }
        Ok(())
    }

    fn chosen(
        &self,
        option: &str,
        directory: &Path,
        is_chosen: impl Fn(&str) -> bool,
    ) -> Result<Vec<SourceFile>> {
        let failed = |error| {
            ClientError::Usage(format!("{}={}: {error}", option.replace('-', "_"), directory.display()))
        };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if let Ok(name) = entry.file_name().into_string()
                && is_chosen(&name)
            {
                files.push(SourceFile::by_name(&entry.path())?);
            }
        }
        Ok(files)
    }

    /// The index with the names that its logs have in the volume, and the logs that lie elsewhere.
    fn binary_log(&self, events: &dyn Events) -> Result<Vec<SourceFile>> {
        let Some((_, base)) = places::file_of(&self.settings, BINARY_LOG, &self.datadir) else {
            return Ok(Vec::new());
        };
        let (option, index) = match places::file_of(&self.settings, BINARY_LOG_INDEX, &self.datadir) {
            Some((_, index)) => (BINARY_LOG_INDEX, index),
            None => (BINARY_LOG, places::with_ending(&base, "index")),
        };
        if !index.exists() {
            if self.moved.contains(&BINARY_LOG) {
                events.note(&format!("there is no {}: no binary log is imported", index.display()));
            }
            return Ok(Vec::new());
        }
        let text = std::fs::read_to_string(&index).map_err(|error| ClientError::io("read", &index, error))?;
        let mut files = Vec::new();
        let mut lines = String::new();
        for line in text.lines() {
            let (kept, file) = self.binary_log_file(line, &index)?;
            lines.push_str(&kept);
            lines.push('\n');
            files.extend(file);
        }
        let state = places::with_ending(&base, "state");
        if self.moved.contains(&BINARY_LOG) && state.is_file() {
            files.push(SourceFile::by_name(&state)?);
        }
        if lines != text || self.moved.contains(&option) {
            let mut file = SourceFile::by_name(&index)?;
            if !self.moved.contains(&option)
                && let Ok(inside) = index.strip_prefix(&self.datadir)
            {
                file.path = inside.to_string_lossy().into_owned();
            }
            file.len_bytes = lines.len() as u64;
            file.text = Some(lines);
            files.push(file);
        }
        Ok(files)
    }

    /// A line of the index as it is in the volume, and its log if that lies elsewhere.
    fn binary_log_file(&self, line: &str, index: &Path) -> Result<(String, Option<SourceFile>)> {
        let said = Path::new(line);
        let (Some(name), Some(directory)) = (said.file_name(), said.parent()) else {
            return Err(ClientError::Usage(format!(
                "{} has the line {line:?}, which names no file",
                index.display()
            )));
        };
        // First beside the index: of a copy, the paths in it lead to the original.
        let beside = index.parent().map(Path::to_owned).unwrap_or_default();
        let meant = places::resolve(&self.datadir, &directory.to_string_lossy());
        let Some(found) = [beside, meant].into_iter().find(|found| found.join(name).is_file()) else {
            return Err(ClientError::Usage(format!(
                "{} lists {line}, which is neither there nor beside it; find it, or remove the line if it was purged",
                index.display()
            )));
        };
        if found == self.datadir {
            let kept = if said.is_absolute() { places::in_data_directory(name) } else { line.to_owned() };
            return Ok((kept, None));
        }
        if found.starts_with(&self.datadir) && !said.is_absolute() && !self.moved.contains(&BINARY_LOG) {
            return Ok((line.to_owned(), None));
        }
        Ok((places::in_data_directory(name), Some(SourceFile::by_name(&found.join(name))?)))
    }
}

fn is_aria_log(name: &str) -> bool {
    name.starts_with(places::ARIA_LOG_PREFIX)
}

/// Without a setting for the index, MySQL prints the log's name for it, without the directory; it lies beside the
/// log.
fn forget_index_that_follows_its_log(settings: &mut HashMap<String, String>, datadir: &Path) {
    let Some(index) = settings.get(BINARY_LOG_INDEX) else { return };
    let beside = places::file_of(settings, BINARY_LOG, datadir)
        .map(|(_, base)| places::with_ending(&base, "index"))
        .is_some_and(|beside| {
            beside.file_name().is_some_and(|name| name == index.as_str()) && beside.exists()
        });
    if family_of(datadir) == Family::MySql && beside && !datadir.join(index).exists() {
        settings.remove(BINARY_LOG_INDEX);
    }
}

fn asked(file: &Path, datadir: &Path) -> Result<HashMap<String, String>> {
    if !file.is_file() {
        return Err(ClientError::Usage(format!("{} (--defaults-file) is not a file", file.display())));
    }
    let option = format!("--defaults-file={}", file.display());
    let program = match family_of(datadir) {
        Family::MariaDb => "mariadbd",
        Family::MySql => "mysqld",
    };
    Ok(server::effective_settings(&server::find_program(program)?, &[option], Some(datadir))?.settings)
}
