//! The data directory to import: what is in it.

use super::layout::Layout;
use super::log::SourceLog;
use crate::error::{ClientError, Result};
use crate::events::Events;
use crate::places::{DATA_HOME, DOUBLEWRITE, LOG_HOME, UNDO};
use redoubt_redo::Family;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pages; the offset of its first byte inside its tablespace.
    Tablespace {
        /// 0 but for later files of the system tablespace.
        first_byte: u64,
    },
    /// Anything else.
    Plain,
}

/// A file to import.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Relative path in the volume.
    pub path: String,
    /// Path of the file on this host.
    pub at: PathBuf,
    /// Text that is imported instead of the file's contents.
    pub text: Option<String>,
    /// Permission bits.
    pub mode: u32,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Kind of the file.
    pub kind: Kind,
}

impl SourceFile {
    /// A file that gets to the top of the data directory under its own name.
    ///
    /// # Errors
    /// [`ClientError`] if it is none, or its name is not UTF-8.
    pub fn by_name(at: &Path) -> Result<Self> {
        let metadata = std::fs::symlink_metadata(at).map_err(|error| ClientError::io("read", at, error))?;
        let name = at.file_name().and_then(|name| name.to_str()).filter(|_| metadata.is_file());
        let Some(name) = name else {
            return Err(ClientError::Usage(format!(
                "{} is not a file, or its name is not UTF-8; put the file itself there",
                at.display()
            )));
        };
        Ok(Self::new(name, at, &metadata))
    }

    fn new(path: &str, at: &Path, metadata: &Metadata) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path);
        let is_tablespace = is_undo(name) || name.ends_with(".ibd");
        Self {
            path: path.to_owned(),
            at: at.to_owned(),
            text: None,
            mode: metadata.permissions().mode() & 0o777,
            len_bytes: metadata.len(),
            kind: if is_tablespace { Kind::Tablespace { first_byte: 0 } } else { Kind::Plain },
        }
    }
}

/// The data directory to import.
pub struct Source {
    /// Whose.
    pub family: Family,
    /// The data directory.
    pub directory: PathBuf,
    /// Files of the system tablespace, with the fixed length of all but the last.
    pub system_files: Vec<(String, u64)>,
    /// Directories, parents first.
    pub directories: Vec<(String, u32)>,
    /// Files; those of the system tablespace first.
    pub files: Vec<SourceFile>,
    /// The redo log.
    pub log: SourceLog,
    layout: Layout,
    /// Files that were found where settings lead, by where they are.
    taken: BTreeSet<PathBuf>,
}

impl Source {
    /// Looks at a data directory.
    ///
    /// # Errors
    /// [`ClientError::Usage`] if it is in use, incomplete, or needs something that is not supported.
    pub fn open(directory: &Path, layout: Layout, events: &dyn Events) -> Result<Self> {
        let family = family_of(directory);
        let data_file_path = layout.data_file_path();
        let system_files = parse_data_file_path(data_file_path.unwrap_or("ibdata1:12M:autoextend"))?;
        let home = layout.moved_directory(DATA_HOME).unwrap_or_else(|| directory.to_owned());
        check_directory(directory, &home, &system_files)?;
        for (path, _) in &system_files {
            let file = home.join(path);
            let handle = File::options().read(true).write(true).open(&file).or_else(|_| File::open(&file));
            let handle = handle.map_err(|error| ClientError::io("open", &file, error))?;
            check_unused(&handle, directory)?;
        }
        if data_file_path.is_none() && home.join("ibdata2").exists() {
            return Err(ClientError::Usage(format!(
                "{} has an ibdata2: say how the system tablespace is laid out with --innodb-data-file-path, as in the \
                 server's innodb_data_file_path",
                home.display()
            )));
        }
        let log_home = layout.moved_directory(LOG_HOME).unwrap_or_else(|| directory.to_owned());
        let log = SourceLog::open(family, &log_home)?;
        let files = layout.files_elsewhere(events)?;
        let mut source = Self {
            family,
            directory: directory.to_owned(),
            system_files,
            directories: Vec::new(),
            taken: files.iter().map(|file| file.at.clone()).collect(),
            files,
            log,
            layout,
        };
        source.add_system_files()?;
        source.list("")?;
        source.check_names()?;
        source.files.sort_by_key(|file| {
            source.system_files.iter().position(|(path, _)| *path == file.path).unwrap_or(usize::MAX)
        });
        Ok(source)
    }

    /// Path of the first file of the system tablespace.
    pub fn system_file(&self) -> &Path {
        self.files.first().map_or(&self.directory, |file| &file.at)
    }

    /// Number of its undo tablespaces.
    pub fn undo_count(&self) -> usize {
        self.files.iter().filter(|file| is_undo(&file.path)).count()
    }

    /// Checks the two undo tablespaces that every MySQL has: the server would create a missing one again, and
    /// uncommitted changes could not be rolled back. Further undo tablespaces are in its dictionary.
    ///
    /// # Errors
    /// [`ClientError::Usage`] that names the one that is missing.
    pub fn require_undo(&self) -> Result<()> {
        let has = |name: &str| self.files.iter().any(|file| file.path == name);
        let files = [("undo_001", "undo_1_trunc.log"), ("undo_002", "undo_2_trunc.log")];
        let Some((name, mark)) = files.into_iter().find(|(name, _)| !has(name)) else { return Ok(()) };
        if has(mark) {
            return Err(ClientError::Usage(format!(
                "the server was killed while it created {name} again (it left {mark}); start it once on {}, or \
                 on a copy, and shut it down; then import",
                self.layout.directory(UNDO).display()
            )));
        }
        Err(ClientError::Usage(format!(
            "{} has no {name}, without which transactions cannot be rolled back; say where the server has it with \
             --innodb-undo-directory or --defaults-file",
            self.layout.directory(UNDO).display()
        )))
    }

    /// Adds the system files that lie elsewhere; the others are found with the rest.
    fn add_system_files(&mut self) -> Result<()> {
        let Some(home) = self.layout.moved_directory(DATA_HOME) else { return Ok(()) };
        let mut first_byte = 0;
        for (path, len_bytes) in &self.system_files {
            let mut file = SourceFile::by_name(&home.join(path))?;
            if file.path != *path {
                return Err(ClientError::Usage(format!(
                    "innodb_data_file_path names {path}, in a directory below innodb_data_home_dir={}; that is not \
                     supported: move the file to innodb_data_home_dir",
                    home.display()
                )));
            }
            file.kind = Kind::Tablespace { first_byte };
            first_byte += len_bytes;
            self.taken.insert(file.at.clone());
            self.files.push(file);
        }
        Ok(())
    }

    /// Each name once.
    fn check_names(&self) -> Result<()> {
        let mut seen: BTreeMap<&str, &Path> = BTreeMap::new();
        for file in &self.files {
            if let Some(other) = seen.insert(&file.path, &file.at) {
                return Err(ClientError::Usage(format!(
                    "{} and {} would both be {} in the volume; move away the one that the server does not use",
                    other.display(),
                    file.at.display(),
                    file.path
                )));
            }
        }
        Ok(())
    }

    /// The contents of MySQL's doublewrite files, one after the other.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn doublewritten(&self) -> Result<Vec<u8>> {
        let directory = self.layout.directory_or(DOUBLEWRITE, DATA_HOME);
        let io = |error| ClientError::io("read", &directory, error);
        let mut copies = Vec::new();
        for entry in std::fs::read_dir(&directory).map_err(io)? {
            let entry = entry.map_err(io)?;
            if entry.file_name().as_encoded_bytes().ends_with(b".dblwr") {
                copies.extend(std::fs::read(entry.path()).map_err(io)?);
            }
        }
        Ok(copies)
    }

    fn list(&mut self, relative: &str) -> Result<()> {
        let directory = self.directory.join(relative);
        let entries =
            std::fs::read_dir(&directory).map_err(|error| ClientError::io("list", &directory, error))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| ClientError::io("list", &directory, error))?;
            let name = entry.file_name().into_string().map_err(|name| {
                ClientError::Usage(format!(
                    "{}: file name {name:?} is not UTF-8; rename or remove it",
                    directory.display()
                ))
            })?;
            names.push((
                name,
                entry.metadata().map_err(|error| ClientError::io("read", entry.path(), error))?,
            ));
        }
        names.sort_by(|left, right| left.0.cmp(&right.0));
        for (name, metadata) in names {
            let path = if relative.is_empty() { name.clone() } else { format!("{relative}/{name}") };
            let at = directory.join(&name);
            if metadata.is_dir() && is_directory_left_out(&path) {
                continue;
            }
            if metadata.is_dir() {
                let before = (self.directories.len(), self.files.len());
                self.directories.push((path.clone(), metadata.permissions().mode() & 0o777));
                self.list(&path)?;
                // Without its moved files the directory is empty, and would look like a database.
                if before == (self.directories.len() - 1, self.files.len()) && self.is_emptied(&at) {
                    self.directories.pop();
                }
            } else if self.is_taken(&at) {
                continue;
            } else if metadata.is_symlink() {
                return Err(ClientError::Usage(format!(
                    "{path} is a symbolic link; move what it points to into the data directory first"
                )));
            } else if metadata.is_file() && !is_left_out(&path) {
                if relative.is_empty() {
                    self.layout.check_unused(&name)?;
                }
                let mut file = SourceFile::new(&path, &at, &metadata);
                file.kind = self.kind_of(&file)?;
                self.files.push(file);
            }
        }
        Ok(())
    }

    /// A file that was found where a setting leads, by its path without links.
    fn is_taken(&self, at: &Path) -> bool {
        !self.taken.is_empty() && at.canonicalize().is_ok_and(|at| self.taken.contains(&at))
    }

    /// A setting leads to this directory.
    fn is_emptied(&self, at: &Path) -> bool {
        let Ok(at) = at.canonicalize() else { return false };
        let leads = |option| self.layout.moved_directory(option).is_some_and(|directory| directory == at);
        [DATA_HOME, LOG_HOME, UNDO].into_iter().any(leads)
            || self.taken.iter().any(|taken| taken.parent() == Some(&at))
    }

    fn kind_of(&self, file: &SourceFile) -> Result<Kind> {
        let path = &file.path;
        let is_here = self.layout.moved_directory(DATA_HOME).is_none();
        if is_here && let Some(at) = self.system_files.iter().position(|(system, _)| system == path) {
            let first_byte = self.system_files[..at].iter().map(|(_, len_bytes)| len_bytes).sum();
            return Ok(Kind::Tablespace { first_byte });
        }
        if path.ends_with(".isl") {
            return Err(ClientError::Usage(format!(
                "{path} points to a tablespace outside the data directory (DATA DIRECTORY), which is not supported; \
                 move that table back with ALTER TABLE first"
            )));
        }
        Ok(file.kind)
    }
}

/// Family of the server of a data directory: MySQL has its dictionary in a file.
pub fn family_of(directory: &Path) -> Family {
    if directory.join("mysql.ibd").is_file() { Family::MySql } else { Family::MariaDb }
}

/// The name of an undo tablespace: `undo001` of MariaDB, `undo_001` or what ends in `.ibu` of MySQL.
pub fn is_undo(name: &str) -> bool {
    let number = name.strip_prefix("undo").map(|rest| rest.strip_prefix('_').unwrap_or(rest));
    number.is_some_and(|rest| rest.len() == 3 && rest.bytes().all(|b| b.is_ascii_digit()))
        || name.ends_with(".ibu")
}

/// Directories whose files a server makes again, or that are imported in another way.
fn is_directory_left_out(path: &str) -> bool {
    path == "#innodb_temp"
}

/// Files that a server makes again.
fn is_left_out(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with("ib_logfile")
        || path.starts_with("#innodb_redo/")
        || (name.starts_with("#ib_") && name.ends_with("dblwr"))
        || name.starts_with("ibtmp")
        || name.starts_with("ib_buffer_pool")
        // Files of a group member: the imported data is not that member.
        || path.starts_with("redoubt_group.")
        || path == "grastate.dat"
        || name.starts_with("#sql-temptable")
        || name.starts_with(".redoubt")
        || [".pid", ".err", ".sock", ".sock.lock"].iter().any(|ending| name.ends_with(ending))
}

/// Says early and in plain words what is no data directory of a stock server.
fn check_directory(directory: &Path, home: &Path, system_files: &[(String, u64)]) -> Result<()> {
    let shown = directory.display();
    if !directory.is_dir() {
        return Err(ClientError::Usage(format!(
            "{shown} is not a directory; give the data directory of a stopped server with --from"
        )));
    }
    if directory.join(".redoubt").exists() {
        return Err(ClientError::Usage(format!(
            "{shown} is the local directory of a volume: its InnoDB files have no content. Use `redoubt volume export` \
             to copy that volume"
        )));
    }
    for (path, _) in system_files {
        if !home.join(path).is_file() {
            return Err(ClientError::Usage(format!(
                "{} has no {path}, a file of the system tablespace; check --from, and --innodb-data-file-path and \
                 --innodb-data-home-dir (or --defaults-file) if these settings of the server are set",
                home.display()
            )));
        }
    }
    Ok(())
}

fn check_unused(file: &File, directory: &Path) -> Result<()> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: F_GETLK only writes into `lock`, which lives longer than the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
    if result == 0 && lock.l_type != libc::F_UNLCK as libc::c_short {
        return Err(ClientError::Usage(format!(
            "{} is in use by process {}; stop that server first",
            directory.display(),
            lock.l_pid
        )));
    }
    Ok(())
}

/// `ibdata1:10M;ibdata2:12M:autoextend` as paths and fixed lengths; the last has length 0.
///
/// # Errors
/// [`ClientError::Usage`] for what is not supported.
pub fn parse_data_file_path(text: &str) -> Result<Vec<(String, u64)>> {
    let wrong = |why: &str| {
        ClientError::Usage(format!(
            "innodb_data_file_path {text:?}: {why}; use files in the data directory, as in \"ibdata1:12M:autoextend\""
        ))
    };
    let mut files = Vec::new();
    for part in text.split(';').filter(|part| !part.is_empty()) {
        let mut fields = part.split(':');
        let path = fields.next().unwrap_or_default();
        let size = fields.next().ok_or_else(|| wrong("a file has no size"))?;
        if size.ends_with("new") || size.ends_with("raw") || fields.clone().any(|f| f.ends_with("raw")) {
            return Err(wrong("raw partitions are not supported"));
        }
        if path.starts_with('/') || path.contains("..") {
            return Err(wrong("files outside the data directory are not supported"));
        }
        let len_bytes = redoubt_codec::parse_size(size).map_err(|error| wrong(&error.to_string()))?;
        files.push((path.trim_start_matches("./").to_owned(), len_bytes));
    }
    match files.last_mut() {
        Some(last) => last.1 = 0,
        None => return Err(wrong("no file")),
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_file_paths() {
        assert_eq!(
            parse_data_file_path("ibdata1:10M;ibdata2:12M:autoextend:max:1G").unwrap(),
            [("ibdata1".to_owned(), 10 << 20), ("ibdata2".to_owned(), 0)]
        );
        assert!(parse_data_file_path("").is_err());
        assert!(parse_data_file_path("ibdata1").is_err());
        assert!(parse_data_file_path("/dev/sdb:3Gnewraw").is_err());
    }

    #[test]
    fn files_a_server_makes_anew_are_left_out() {
        let made_anew = ["ib_logfile0", "ibtmp1", "host.pid", "test/#sql-temptable-1.MAI", "host.err"];
        for path in made_anew.into_iter().chain(["redoubt_group.head.log", "grastate.dat"]) {
            assert!(is_left_out(path), "{path}");
        }
        for path in ["ibdata1", "test/t1.ibd", "aria_log.00000001", "test/t1.frm", "binlog.000001"] {
            assert!(!is_left_out(path), "{path}");
        }
    }
}
