//! Checking and repairing the pages of a data directory on their way to the node.

use super::source::{Kind, Source, SourceFile};
use crate::error::{ClientError, Result};
use redoubt_page::doublewrite::{DoublewriteArea, find_copy, locate};
use redoubt_page::encryption::key_version;
use redoubt_page::format::page_lsn;
use redoubt_page::layout::page_id;
use redoubt_page::mysql::{Flags, is_encrypted_image};
use redoubt_page::{Format, SpaceFlags, page_is_never_written, verify};
use redoubt_redo::{Family, PageId};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Page number of the TRX_SYS page in the system tablespace.
const TRX_SYS_PAGE_NO: u64 = 5;

/// Applies whatever the volume's server may be allowed: there is no key here.
const ENCRYPTED: &str = "it is encrypted, and the node has no key; decrypt the table first, on the stock server (ALTER TABLE ... \
                         ENCRYPTED=NO, or innodb_encrypt_tables=OFF and innodb_encryption_threads, until \
                         information_schema.INNODB_TABLESPACES_ENCRYPTION has no page of it to decrypt)";

const MYSQL_ENCRYPTED: &str = "it is encrypted, and the node has no key; decrypt the table first, on the stock server \
                               (ALTER TABLE ... ENCRYPTION='N')";

/// State of all tablespaces of a source.
pub struct PageSource<'s> {
    source: &'s Source,
    system: Format,
    /// Doublewrite area of MariaDB.
    doublewrite: Option<DoublewriteArea>,
    /// Copies of pages in the doublewrite area or files, each as long as a page of the system tablespace.
    copies: Vec<u8>,
    /// Ids of the copied pages, for MySQL.
    copied: HashSet<PageId>,
    /// File of each tablespace id.
    found: BTreeMap<u32, String>,
    repaired: u64,
    completed: u64,
    unpacked: u64,
}

/// Checks the pieces of one file.
pub struct Checker<'p, 's> {
    pages: &'p mut PageSource<'s>,
    path: String,
    first_byte: u64,
    /// `None`: not a tablespace, or its page 0 was never written.
    tablespace: Option<(u32, Format)>,
    is_system: bool,
}

impl<'s> PageSource<'s> {
    /// Reads the doublewrite area.
    ///
    /// # Errors
    /// [`ClientError::Usage`] if the system tablespace is damaged where it must not be.
    pub fn new(source: &'s Source) -> Result<Self> {
        let path = source.system_file();
        let file = File::open(path).map_err(|error| ClientError::io("open", path, error))?;
        let wrong = |reason: String| ClientError::Usage(format!("{}: {reason}", path.display()));
        let mut page0 = vec![0; 4096];
        file.read_exact_at(&mut page0, 0).map_err(|error| ClientError::io("read", path, error))?;
        let system =
            Format::of_page0(source.family, &page0).map_err(|error| wrong(format!("page 0: {error}")))?;
        let mut pages = Self {
            source,
            system,
            doublewrite: None,
            copies: Vec::new(),
            copied: HashSet::new(),
            found: BTreeMap::new(),
            repaired: 0,
            completed: 0,
            unpacked: 0,
        };
        if source.family == Family::MySql {
            source.require_undo()?;
            pages.copies = source.doublewritten()?;
            let copies = pages.copies.chunks_exact(system.physical_page_size_bytes().max(1));
            pages.copied = copies.filter_map(page_id).collect();
            return Ok(pages);
        }
        let system_flags = SpaceFlags(system.flags);
        let page_len = system_flags.logical_page_size_bytes();
        let mut trx_sys = vec![0; page_len];
        file.read_exact_at(&mut trx_sys, TRX_SYS_PAGE_NO * page_len as u64)
            .map_err(|error| ClientError::io("read", path, error))?;
        check_undo(&trx_sys, system_flags, source)?;
        pages.doublewrite = locate(&trx_sys, system_flags).map_err(|error| wrong(error.to_string()))?;
        if let Some(area) = &pages.doublewrite {
            for block in [area.block_1_page_no, area.block_2_page_no] {
                let mut bytes = vec![0; area.block_size_pages as usize * page_len];
                file.read_exact_at(&mut bytes, u64::from(block) * page_len as u64)
                    .map_err(|error| ClientError::io("read", path, error))?;
                pages.copies.extend_from_slice(&bytes);
            }
        }
        Ok(pages)
    }

    /// A checker for `file`.
    ///
    /// # Errors
    /// [`ClientError::Usage`] if page 0 does not show the format of the tablespace.
    pub fn checker(&mut self, file: &SourceFile, handle: &File) -> Result<Checker<'_, 's>> {
        let Kind::Tablespace { first_byte } = file.kind else {
            let path = file.path.clone();
            return Ok(Checker { pages: self, path, first_byte: 0, tablespace: None, is_system: false });
        };
        let is_system = self.source.system_files.iter().any(|(path, _)| *path == file.path);
        let tablespace = if is_system { Some((0, self.system)) } else { self.identify(file, handle)? };
        if let Some((space, _)) = tablespace
            && !is_system
        {
            self.note(space, &file.path)?;
        }
        Ok(Checker { pages: self, path: file.path.clone(), first_byte, tablespace, is_system })
    }

    /// Space id and flags from page 0, or from a copy of it in the doublewrite area.
    fn identify(&self, file: &SourceFile, handle: &File) -> Result<Option<(u32, Format)>> {
        let wrong = |reason: String| ClientError::Usage(format!("{}: {reason}", file.path));
        let mut page0 = vec![0; file.len_bytes.min(1024) as usize];
        handle.read_exact_at(&mut page0, 0).map_err(|error| ClientError::io("read", &file.path, error))?;
        if page0.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let format = Format::of_page0(self.source.family, &page0)
            .map_err(|error| wrong(format!("page 0: {error}")))?;
        if format.family == Family::MySql && Flags(format.flags).is_encrypted() {
            return Err(wrong(MYSQL_ENCRYPTED.to_owned()));
        }
        let space = page_id(&page0).map(|page| page.space.0);
        space.map(|space| Some((space, format))).ok_or_else(|| wrong("page 0 is too short".to_owned()))
    }

    /// A volume has one file of a tablespace: pages of a copy would get among those of the original.
    fn note(&mut self, space: u32, path: &str) -> Result<()> {
        match self.found.insert(space, path.to_owned()) {
            Some(other) if other != path => Err(ClientError::Usage(format!(
                "{other} and {path} are the same tablespace, {space}; move the one that is a copy out of the data directory"
            ))),
            _ => Ok(()),
        }
    }

    /// The newest sound copy of a page, from the doublewrite area or files.
    fn copy_of(&self, id: PageId, format: Format) -> Option<&[u8]> {
        let end_lsn = self.source.log.end_lsn;
        if format.family == Family::MariaDb {
            let (system, flags) = (SpaceFlags(self.system.flags), SpaceFlags(format.flags));
            return find_copy(&self.copies, system, id, flags, end_lsn);
        }
        let lsn = |copy: &[u8]| page_lsn(format.family, copy);
        self.copies
            .chunks_exact(self.system.physical_page_size_bytes().max(1))
            .filter_map(|copy| copy.get(..format.physical_page_size_bytes()))
            .filter(|copy| page_id(copy) == Some(id) && format.verify(copy).is_ok())
            .filter(|copy| lsn(copy).is_some_and(|lsn| lsn <= end_lsn))
            .max_by_key(|copy| lsn(copy))
    }

    /// For the closing line.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        if self.repaired > 0 {
            text.push_str(&format!(", {} torn pages repaired", self.repaired));
        }
        if self.completed > 0 {
            text.push_str(&format!(", {} pages taken from doublewrite files", self.completed));
        }
        if self.unpacked > 0 {
            text.push_str(&format!(", {} compressed pages unpacked", self.unpacked));
        }
        text
    }
}

impl Checker<'_, '_> {
    /// Checks the pages in a piece of the file, and replaces what the node must not get as it is. A piece starts
    /// at a page.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for a page that cannot be trusted.
    pub fn check(&mut self, offset_bytes: u64, piece: &mut [u8]) -> Result<()> {
        let Some((space, format)) = self.tablespace else { return Ok(()) };
        let page_len = format.physical_page_size_bytes();
        for (at, page) in piece.chunks_mut(page_len).enumerate() {
            let page_no = (self.first_byte + offset_bytes) / page_len as u64 + at as u64;
            let id = PageId::new(space, page_no as u32);
            if page.len() == page_len {
                self.check_page(id, format, page)?;
            }
        }
        Ok(())
    }

    fn check_page(&mut self, id: PageId, format: Format, page: &mut [u8]) -> Result<()> {
        if self.is_system && self.pages.doublewrite.as_ref().is_some_and(|area| area.contains(id.page_no.0)) {
            page.fill(0);
            return Ok(());
        }
        let wrong =
            |path: &str, reason: String| ClientError::Usage(format!("{path}: page {}: {reason}", id.page_no));
        if let Some(why) = encrypted(page, id, format) {
            return Err(wrong(&self.path, why.to_owned()));
        }
        if self.pages.copied.contains(&id) && page_is_never_written(page) {
            self.complete(id, format, page);
        }
        if let Err(error) = format.verify(page) {
            self.repair(id, format, page).ok_or_else(|| {
                wrong(
                    &self.path,
                    format!(
                        "{error}; start the server once on a copy of the directory so that it recovers it, or \
                         restore the file from a backup"
                    ),
                )
            })?;
            if let Some(why) = encrypted(page, id, format) {
                return Err(wrong(&self.path, why.to_owned()));
            }
            self.pages.repaired += 1;
        }
        if format.is_page_compressed_image(page) {
            let unpacked = format.decompress(page).map_err(|error| wrong(&self.path, error.to_string()))?;
            if let Some(mut unpacked) = unpacked {
                format.finalize(&mut unpacked).map_err(|error| wrong(&self.path, error.to_string()))?;
                page.copy_from_slice(&unpacked);
                self.pages.unpacked += 1;
            }
        }
        let end_lsn = self.pages.source.log.end_lsn;
        if let Some(lsn) = page_lsn(format.family, page).filter(|lsn| *lsn > end_lsn) {
            return Err(wrong(
                &self.path,
                format!(
                    "its LSN {lsn} is above the end of the redo log {end_lsn}; the redo log is not this directory's"
                ),
            ));
        }
        Ok(())
    }

    /// A page of MySQL that is in a doublewrite file and not in its own yet. It may have no redo: pages of an index
    /// that is being built have none. The server's recovery uses it, however old (`dblwr_recover_page` in
    /// `buf/buf0dblwr.cc`).
    fn complete(&mut self, id: PageId, format: Format, page: &mut [u8]) {
        if let Some(copy) = self.pages.copy_of(id, format).filter(|copy| !page_is_never_written(copy)) {
            page.copy_from_slice(copy);
            self.pages.completed += 1;
        }
    }

    /// A copy from the doublewrite area, or zeros if redo starts the page again.
    fn repair(&self, id: PageId, format: Format, page: &mut [u8]) -> Option<()> {
        let log = &self.pages.source.log;
        // A copy older than the checkpoint is left from an earlier write of the page: redo from the checkpoint on
        // does not bring it up to date.
        let copy = self
            .pages
            .copy_of(id, format)
            .filter(|copy| page_lsn(format.family, copy).is_some_and(|lsn| lsn >= log.checkpoint_lsn));
        if let Some(copy) = copy {
            page.copy_from_slice(copy);
            return Some(());
        }
        // MySQL may have filled it without redo since.
        (format.family == Family::MariaDb && log.resets.starts_anew(id)).then(|| page.fill(0))
    }
}

/// Reason why the page cannot be read, if it is encrypted.
fn encrypted(page: &[u8], id: PageId, format: Format) -> Option<&'static str> {
    match format.family {
        Family::MariaDb => (key_version(page, id, SpaceFlags(format.flags)) != 0).then_some(ENCRYPTED),
        Family::MySql => is_encrypted_image(page).then_some(MYSQL_ENCRYPTED),
    }
}

/// The system tablespace lists the undo tablespaces of its rollback segments. If one of them is missing, uncommitted
/// transactions could not be rolled back. A torn page is not checked.
fn check_undo(trx_sys: &[u8], flags: SpaceFlags, source: &Source) -> Result<()> {
    const SLOTS: usize = 38 + 8 + 10;
    const SLOT_LEN_BYTES: usize = 8;
    const SLOT_COUNT: usize = 128;
    if verify(trx_sys, flags).is_err() {
        return Ok(());
    }
    let slots = trx_sys.get(SLOTS..SLOTS + SLOT_COUNT * SLOT_LEN_BYTES).unwrap_or_default();
    let mut spaces = std::collections::BTreeSet::new();
    for slot in slots.chunks_exact(SLOT_LEN_BYTES) {
        let (space, page) = slot.split_at(4);
        if page != [0xff; 4] && space != [0; 4] {
            spaces.insert(space);
        }
    }
    if spaces.len() <= source.undo_count() {
        return Ok(());
    }
    Err(ClientError::Usage(format!(
        "{} names {} undo tablespaces, but {} were found; say where the server has them with --innodb-undo-directory or \
         --defaults-file",
        source.system_file().display(),
        spaces.len(),
        source.undo_count()
    )))
}
