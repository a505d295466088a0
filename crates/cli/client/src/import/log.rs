//! The redo log of the data directory to import.
//!
//! MariaDB has one file; the node gets its header and checkpoint blocks. MySQL has a set of files; the node gets the
//! front blocks of the files from the checkpoint on. In both cases the node gets the redo from the checkpoint to the
//! end.
//!
//! Invariant: `start_lsn` is the start of a mini-transaction, or the end of the log.

use crate::error::{ClientError, Result};
use redoubt_redo::mariadb::log_file::{CleanEnd, LogFront};
use redoubt_redo::mariadb::log_scan::{LogRead, LogScan};
use redoubt_redo::mysql::log_file::DIRECTORY;
use redoubt_redo::mysql::{self, LogFileName, LogSet, LogSetRead};
use redoubt_redo::{Family, LastResets, Lsn};
use redoubt_wire::control::{ImportedLogFile, Request};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The server rounds innodb_log_file_size to this.
const LOG_SIZE_UNIT_BYTES: u64 = 4096;
/// The length in the volume of a log that a backup tool has prepared. It has room after the record, so that the end
/// can be detected. The server replaces it by a log of its own size at its first start.
const LOG_FROM_BACKUP_BYTES: u64 = 4 << 20;

/// The source's redo log.
pub struct SourceLog {
    /// The newest checkpoint: nothing before it is needed.
    pub checkpoint_lsn: Lsn,
    /// Start of the redo that the node gets.
    pub start_lsn: Lsn,
    /// End of the log.
    pub end_lsn: Lsn,
    /// Pages that redo after the checkpoint initialises: their old content does not matter.
    pub resets: LastResets,
    path: PathBuf,
    files: Files,
}

enum Files {
    One { file: LogFile, file_size_bytes: u64, header: Vec<u8>, checkpoints: [Vec<u8>; 2] },
    Set { set: FileSet, fronts: Vec<ImportedLogFile> },
}

impl SourceLog {
    /// Looks at the log in `directory`, where the server has it.
    ///
    /// # Errors
    /// [`ClientError::Usage`] if there is none that is whole, [`ClientError::Io`].
    pub fn open(family: Family, directory: &Path) -> Result<Self> {
        match family {
            Family::MariaDb => open_file(directory),
            Family::MySql => open_set(directory),
        }
    }

    /// The request that announces the log to the node.
    pub fn request(&self) -> Request {
        match &self.files {
            Files::One { file_size_bytes, header, checkpoints, .. } => Request::ImportLog {
                file_size_bytes: *file_size_bytes,
                header: header.clone(),
                checkpoints: checkpoints.clone(),
                start_lsn: self.start_lsn.0,
            },
            Files::Set { fronts, .. } => {
                Request::ImportLogSet { files: fronts.clone(), start_lsn: self.start_lsn.0 }
            }
        }
    }

    /// Redo bytes from `lsn` on.
    ///
    /// # Errors
    /// [`ClientError::Usage`].
    pub fn read(&self, lsn: Lsn, out: &mut [u8]) -> Result<()> {
        match &self.files {
            Files::One { file, .. } => {
                let scan = LogScan::open(file).map_err(|error| wrong(&self.path, &error))?;
                scan.read_stream(lsn, out).map_err(|error| wrong(&self.path, &error))
            }
            Files::Set { set, .. } => {
                let log = set.open().map_err(|error| wrong(&self.path, &error))?;
                log.read_payload(lsn, out).map_err(|error| wrong(&self.path, &error))
            }
        }
    }
}

fn wrong(path: &Path, reason: &dyn std::fmt::Display) -> ClientError {
    ClientError::Usage(format!("{}: {reason}", path.display()))
}

fn damaged(path: &Path, end_lsn: Lsn, expected: Lsn) -> ClientError {
    wrong(
        path,
        &format_args!(
            "the redo log is damaged or cut: it ends at LSN {end_lsn}, but its newest checkpoint needs more than \
             {expected}; use an undamaged copy of the directory"
        ),
    )
}

struct LogFile {
    file: File,
    size_bytes: u64,
}

impl LogRead for LogFile {
    type Error = std::io::Error;

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}

fn open_file(directory: &Path) -> Result<SourceLog> {
    let path = directory.join("ib_logfile0");
    if !path.exists() {
        return Err(ClientError::Usage(format!(
            "{} has no redo log (ib_logfile0), without which its pages cannot be trusted; say where the server has it \
             with --innodb-log-group-home-dir or --defaults-file",
            directory.display()
        )));
    }
    let file = File::open(&path).map_err(|error| ClientError::io("open", &path, error))?;
    let size_bytes = file.metadata().map_err(|error| ClientError::io("read", &path, error))?.len();
    let file = LogFile { file, size_bytes };
    if !size_bytes.is_multiple_of(LOG_SIZE_UNIT_BYTES) && size_bytes != CleanEnd::SMALLEST_FILE_BYTES {
        return Err(wrong(
            &path,
            &format_args!(
                "{size_bytes} bytes is not a size a server gives its redo log (a multiple of {LOG_SIZE_UNIT_BYTES}): \
                 the file was cut; use an undamaged copy of the directory"
            ),
        ));
    }
    let scan = LogScan::open(&file).map_err(|error| wrong(&path, &error))?;
    let checkpoint_lsn = scan.checkpoint().checkpoint_lsn;
    let mut resets = LastResets::default();
    let end = scan.walk(checkpoint_lsn, &mut resets).map_err(|error| wrong(&path, &error))?;
    // A checkpoint counts only with the records that were written for it.
    let expected = scan.checkpoint().end_lsn;
    if end.end_lsn <= expected {
        return Err(damaged(&path, end.end_lsn, expected));
    }
    let front = LogFront::read(&file).map_err(|error| ClientError::io("read", &path, error))?;
    let files = Files::One {
        file,
        file_size_bytes: if size_bytes == CleanEnd::SMALLEST_FILE_BYTES {
            LOG_FROM_BACKUP_BYTES
        } else {
            size_bytes
        },
        header: front.header.to_vec(),
        checkpoints: front.checkpoints.map(|block| block.to_vec()),
    };
    Ok(SourceLog { checkpoint_lsn, start_lsn: checkpoint_lsn, end_lsn: end.end_lsn, resets, path, files })
}

/// The files of MySQL's log by their numbers.
struct FileSet {
    files: BTreeMap<u64, File>,
    sizes_bytes: Vec<(u64, u64)>,
}

impl LogSetRead for FileSet {
    type Error = std::io::Error;

    fn read_at(&self, number: u64, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let file = self.files.get(&number).ok_or(std::io::ErrorKind::NotFound)?;
        file.read_exact_at(buf, offset)
    }
}

impl FileSet {
    fn of(directory: &Path) -> std::io::Result<Self> {
        let mut set = Self { files: BTreeMap::new(), sizes_bytes: Vec::new() };
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let Some(LogFileName::Log(number)) = LogFileName::parse(entry.file_name().as_encoded_bytes())
            else {
                continue;
            };
            let file = File::open(entry.path())?;
            set.sizes_bytes.push((number, file.metadata()?.len()));
            set.files.insert(number, file);
        }
        Ok(set)
    }

    fn open(&self) -> std::result::Result<LogSet<'_, Self>, mysql::LogSetError<std::io::Error>> {
        LogSet::open(self, &self.sizes_bytes)
    }
}

fn open_set(directory: &Path) -> Result<SourceLog> {
    let path = directory.join(DIRECTORY);
    if !path.is_dir() {
        return Err(ClientError::Usage(format!(
            "{} has no redo log ({DIRECTORY}), without which its pages cannot be trusted; say where the server has it \
             with --innodb-log-group-home-dir or --defaults-file",
            directory.display()
        )));
    }
    let set = FileSet::of(&path).map_err(|error| ClientError::io("read", &path, error))?;
    let mut resets = LastResets::default();
    let log = set.open().map_err(|error| wrong(&path, &error))?;
    let checkpoint = log.checkpoint();
    // None: nothing was written after the checkpoint.
    let start_lsn = log.first_mtr().map_err(|error| wrong(&path, &error))?.unwrap_or(checkpoint);
    let end = log.walk(start_lsn, &mut resets).map_err(|error| wrong(&path, &error))?;
    if end.end_lsn < checkpoint {
        return Err(damaged(&path, end.end_lsn, checkpoint));
    }
    // Earlier redo is in the data files.
    let checkpoint_lsn = checkpoint.max(start_lsn);
    let mut fronts = Vec::new();
    for file in log.files() {
        let server_lsn = mysql::server_lsn(checkpoint_lsn);
        if file.range.end_lsn() <= server_lsn {
            continue;
        }
        let handle = set.files.get(&file.number);
        let mode =
            handle.and_then(|handle| handle.metadata().ok()).map_or(0o640, |data| data.permissions().mode());
        let blocks = file.front_blocks(server_lsn).into_iter();
        fronts.push(ImportedLogFile {
            path: format!("{DIRECTORY}/{}", LogFileName::Log(file.number)),
            mode: mode & 0o777,
            len_bytes: file.range.size_bytes,
            blocks: blocks.map(|(offset_bytes, block)| (offset_bytes, block.to_vec())).collect(),
        });
    }
    let end_lsn = end.end_lsn;
    drop(log);
    let files = Files::Set { set, fronts };
    Ok(SourceLog { checkpoint_lsn, start_lsn, end_lsn, resets, path, files })
}
