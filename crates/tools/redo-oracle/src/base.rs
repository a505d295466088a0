//! Where a replay begins: the InnoDB files of a server that was shut down cleanly, or was killed, held in memory.
//!
//! Only the input of recovery is kept: tablespaces, the names of directories, and the log's header and checkpoint.
//! Every page of a clean base is as the server has it at the checkpoint, because a clean shutdown writes all of them
//! and [`Base::read`] refuses a log that continues past its checkpoint. In a killed server's base
//! ([`Base::read_killed`]) the pages are of any age from the checkpoint on. Pages that were freed while they were dirty
//! are older than that: redo fits them only without the records that a later FREE_PAGE or INIT_PAGE makes void.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use redoubt_page::doublewrite::{TRX_SYS_PAGE_NO, find_copy, locate};
use redoubt_page::{SpaceFlags, flags_of_page0, layout, page_is_never_written, verify};
use redoubt_redo::mariadb::log_file::HEADER_LEN_BYTES;
use redoubt_redo::mariadb::log_scan::LogRead;
use redoubt_redo::mariadb::{CheckpointBlock, LogGeometry, LogScan, ScanEnd};
use redoubt_redo::{Lsn, Mtr, PageId, SpaceId};
use redoubt_workload::error::{Error, Result};

/// Bytes of the FILE_CHECKPOINT mini-transaction, all that follows the checkpoint after a clean shutdown.
const CHECKPOINT_MTR_BYTES: u64 = 16;

/// The starting point of a replay, in memory.
#[derive(Debug, Clone)]
pub struct Base {
    /// Tablespace files by path relative to the data directory.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Directories, relative.
    pub directories: BTreeSet<String>,
    /// The files of the system tablespace, in order.
    pub system_files: Vec<String>,
    /// The first bytes of the log file.
    pub header: Vec<u8>,
    /// Where LSNs lie in the log file.
    pub geometry: LogGeometry,
    /// The checkpoint that recovery starts from.
    pub checkpoint: CheckpointBlock,
    /// The server was killed.
    pub is_killed: bool,
    /// The doublewrite area of a killed server.
    pub doublewritten: Option<Copies>,
}

/// The content of the doublewrite area.
#[derive(Debug, Clone)]
pub struct Copies {
    /// Its pages, one after the other.
    pub bytes: Vec<u8>,
    /// The flags of the system tablespace, which give the length of a page.
    pub system_flags: SpaceFlags,
}

/// A tablespace of a base.
#[derive(Debug, Clone)]
pub struct BaseSpace {
    /// Its path; of the first file for the system tablespace.
    pub path: String,
    /// Its flags.
    pub flags: SpaceFlags,
}

impl Base {
    /// Reads the data directory of a server that was shut down cleanly.
    ///
    /// # Errors
    /// [`Error::State`] when the log continues past its checkpoint; [`Error::Io`], [`Error::Parse`].
    pub fn read(data_directory: &Path) -> Result<Self> {
        let (mut base, end) = Self::read_any(data_directory)?;
        // An import leaves it out, and the node could not read what a server has left there of compressed pages.
        take_doublewrite_copies(&mut base.files, &base.system_files)?;
        let checkpoint = base.checkpoint;
        if end.end_lsn.0 != checkpoint.checkpoint_lsn.0 + CHECKPOINT_MTR_BYTES {
            return Err(Error::State(format!(
                "{} was not shut down cleanly: its log continues from the checkpoint {} to {}",
                data_directory.display(),
                checkpoint.checkpoint_lsn,
                end.end_lsn
            )));
        }
        Ok(base)
    }

    /// Reads the data directory of a server that was killed. Pages that the kill tore (it ends a write of many bytes
    /// between two blocks) come from the doublewrite area, which itself is left out, as recovery and an import do it.
    /// Encrypted pages that do not show their tablespace stay torn: [`super::clear::decrypt`] finds their copies.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Parse`].
    pub fn read_killed(data_directory: &Path) -> Result<Self> {
        let (mut base, end) = Self::read_any(data_directory)?;
        base.is_killed = true;
        if let Some(copies) = take_doublewrite_copies(&mut base.files, &base.system_files)? {
            base.mend_torn_pages(&copies, end.end_lsn)?;
            base.doublewritten = Some(copies);
        }
        Ok(base)
    }

    fn mend_torn_pages(&mut self, copies: &Copies, end_lsn: Lsn) -> Result<()> {
        let system_flags = copies.system_flags;
        let mut system_pages = 0;
        for path in self.system_files.clone() {
            let Some(bytes) = self.files.get_mut(&path) else { continue };
            let tablespace = (SpaceId(0), system_flags);
            mend_file(bytes, tablespace, system_pages, (copies, end_lsn));
            system_pages += (bytes.len() / system_flags.physical_page_size_bytes()) as u32;
        }
        for (path, bytes) in &mut self.files {
            if self.system_files.contains(path) {
                continue;
            }
            if let Some(tablespace) = identify(path, bytes)? {
                mend_file(bytes, tablespace, 0, (copies, end_lsn));
            }
        }
        Ok(())
    }

    fn read_any(data_directory: &Path) -> Result<(Self, ScanEnd)> {
        let log = LogFile::open(&data_directory.join("ib_logfile0"))?;
        let scan = LogScan::open(&log).map_err(parse("ib_logfile0"))?;
        let checkpoint = *scan.checkpoint();
        let end =
            scan.walk(checkpoint.checkpoint_lsn, &mut |_: &Mtr<'_, '_>| {}).map_err(parse("ib_logfile0"))?;
        let mut header = vec![0; HEADER_LEN_BYTES];
        log.read_at(0, &mut header).map_err(Error::io("read the log header"))?;
        let mut directories = BTreeSet::new();
        let files = tablespace_files(data_directory, &mut directories)?;
        let system_files = system_files(files.keys());
        let geometry = *scan.geometry();
        let base = Self {
            files,
            directories,
            system_files,
            header,
            geometry,
            checkpoint,
            is_killed: false,
            doublewritten: None,
        };
        Ok((base, end))
    }

    /// Where the redo starts.
    pub const fn start_lsn(&self) -> Lsn {
        self.checkpoint.checkpoint_lsn
    }

    /// The tablespaces by id. Files whose page 0 was never written are left out.
    ///
    /// # Errors
    /// [`Error::Parse`] when a page 0 is not understood.
    pub fn spaces(&self) -> Result<BTreeMap<SpaceId, BaseSpace>> {
        let mut spaces = BTreeMap::new();
        for (path, bytes) in &self.files {
            if self.system_files.iter().skip(1).any(|name| name == path) {
                continue;
            }
            if let Some((space, flags)) = identify(path, bytes)? {
                spaces.insert(space, BaseSpace { path: path.clone(), flags });
            }
        }
        Ok(spaces)
    }

    /// The bytes of page `page_no` of the tablespace at `path`.
    pub fn page(&self, path: &str, page_no: u32, size_bytes: usize) -> Option<&[u8]> {
        page_of(&self.files, &self.system_files, path, page_no, size_bytes)
    }
}

/// Takes the content of the doublewrite area; zeros are left there, as in an import. `None`: there is no area.
///
/// # Errors
/// [`Error::Parse`] when page 0 or the TRX_SYS page is not understood.
pub fn take_doublewrite_copies(
    files: &mut BTreeMap<String, Vec<u8>>,
    system_files: &[String],
) -> Result<Option<Copies>> {
    let Some((path, bytes)) = system_files.first().and_then(|path| files.get_key_value(path)) else {
        return Ok(None);
    };
    let flags = flags_of_page0(bytes).map_err(parse(path))?;
    let size = flags.physical_page_size_bytes();
    let trx_sys = page_of(files, system_files, path, TRX_SYS_PAGE_NO, size).unwrap_or_default();
    let Some(area) = locate(trx_sys, flags).map_err(parse("the TRX_SYS page"))? else { return Ok(None) };
    let mut copies = Vec::new();
    let mut first_page_no = 0;
    for path in system_files {
        let Some(bytes) = files.get_mut(path) else { continue };
        for (page_no, page) in (first_page_no..).zip(bytes.chunks_exact_mut(size)) {
            if area.contains(page_no) {
                copies.extend_from_slice(page);
                page.fill(0);
            }
        }
        first_page_no += (bytes.len() / size) as u32;
    }
    Ok(Some(Copies { bytes: copies, system_flags: flags }))
}

/// Takes each page with a wrong checksum from `copies`. A page without a copy stays: redo initialises it, or the replay
/// fails on it.
fn mend_file(
    bytes: &mut [u8],
    (space, flags): (SpaceId, SpaceFlags),
    first_page_no: u32,
    (copies, end_lsn): (&Copies, Lsn),
) {
    for (page_no, page) in (first_page_no..).zip(bytes.chunks_exact_mut(flags.physical_page_size_bytes())) {
        if page_is_never_written(page) || verify(page, flags).is_ok() {
            continue;
        }
        let id = PageId::new(space.0, page_no);
        if let Some(copy) = find_copy(&copies.bytes, copies.system_flags, id, flags, end_lsn) {
            page.copy_from_slice(copy);
        }
    }
}

/// Space and flags in page 0 of a file; `None` when it was never written.
///
/// # Errors
/// [`Error::Parse`].
pub fn identify(path: &str, bytes: &[u8]) -> Result<Option<(SpaceId, SpaceFlags)>> {
    let head = bytes.get(..bytes.len().min(1024)).unwrap_or_default();
    if page_is_never_written(head) {
        return Ok(None);
    }
    let bad = |detail: String| Error::Parse { what: format!("page 0 of {path}"), detail };
    let flags = flags_of_page0(head).map_err(|error| bad(error.to_string()))?;
    let id = layout::page_id(head).ok_or_else(|| bad("too short".into()))?;
    Ok(Some((id.space, flags)))
}

/// Page `page_no` of the tablespace at `path`; the files of the system tablespace follow each other.
pub fn page_of<'f>(
    files: &'f BTreeMap<String, Vec<u8>>,
    system_files: &[String],
    path: &str,
    page_no: u32,
    size_bytes: usize,
) -> Option<&'f [u8]> {
    let mut offset = page_no as usize * size_bytes;
    let names: &[String] = if system_files.first().is_some_and(|first| first == path) {
        system_files
    } else {
        return files.get(path)?.get(offset..offset + size_bytes);
    };
    for name in names {
        let bytes = files.get(name)?;
        if let Some(page) = bytes.get(offset..offset + size_bytes) {
            return Some(page);
        }
        offset = offset.checked_sub(bytes.len())?;
    }
    None
}

/// `ibdata1`, `ibdata2`, ... in order.
pub fn system_files<'p>(paths: impl Iterator<Item = &'p String>) -> Vec<String> {
    let mut files: Vec<_> = paths.filter(|path| path.starts_with("ibdata")).cloned().collect();
    files.sort_by_key(|path| (path.len(), path.clone()));
    files
}

/// Reads every tablespace file below `directory`, and notes the directories.
///
/// # Errors
/// [`Error::Io`].
pub fn tablespace_files(
    directory: &Path,
    directories: &mut BTreeSet<String>,
) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    read_into(directory, "", &mut files, directories)?;
    Ok(files)
}

fn read_into(
    directory: &Path,
    prefix: &str,
    files: &mut BTreeMap<String, Vec<u8>>,
    directories: &mut BTreeSet<String>,
) -> Result<()> {
    for entry in fs::read_dir(directory).map_err(Error::io_at("list", directory))? {
        let entry = entry.map_err(Error::io_at("list", directory))?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let relative = format!("{prefix}{name}");
        if path.is_dir() {
            read_into(&path, &format!("{relative}/"), files, directories)?;
            directories.insert(relative);
        } else if is_tablespace_file(&name, prefix.is_empty()) {
            files.insert(relative, fs::read(&path).map_err(Error::io_at("read", &path))?);
        }
    }
    Ok(())
}

/// Temporary tablespaces are not among them: nothing about them is in the redo log.
fn is_tablespace_file(name: &str, at_top: bool) -> bool {
    let numbered = |start: &str| {
        name.strip_prefix(start)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    name.ends_with(".ibd") || at_top && (numbered("ibdata") || numbered("undo"))
}

/// An `ib_logfile0` on disk.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    size_bytes: u64,
}

impl LogFile {
    /// Opens it for reading.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io_at("open", path))?;
        let size_bytes = file.metadata().map_err(Error::io_at("look at", path))?.len();
        Ok(Self { file, size_bytes })
    }
}

impl LogRead for LogFile {
    type Error = std::io::Error;

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::result::Result<(), Self::Error> {
        self.file.read_exact_at(buf, offset)
    }
}

/// Wraps an error about the contents of a file.
pub fn parse<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> Error {
    let what = what.to_owned();
    move |error| Error::Parse { what, detail: error.to_string() }
}

#[cfg(test)]
mod tests;
