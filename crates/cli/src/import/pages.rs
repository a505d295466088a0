//! Checking and repairing the pages of a data directory on their way to the node.

use super::source::{Kind, Source, SourceFile};
use crate::error::{CliError, Result};
use redoubt_page::doublewrite::{DoublewriteArea, find_copy, locate};
use redoubt_page::encryption::key_version;
use redoubt_page::layout::{page_id, page_lsn};
use redoubt_page::{SpaceFlags, decompress, finalize, flags_of_page0, is_page_compressed_image, verify};
use redoubt_redo::PageId;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Page number of the TRX_SYS page in the system tablespace.
const TRX_SYS_PAGE_NO: u64 = 5;

/// Whatever the volume's server may be allowed: there is no key here.
const ENCRYPTED: &str = "it is encrypted, and the node has no key; decrypt the table first, on the stock server (ALTER TABLE ... \
                         ENCRYPTED=NO, or innodb_encrypt_tables=OFF and innodb_encryption_threads, until \
                         information_schema.INNODB_TABLESPACES_ENCRYPTION has no page of it to decrypt)";

/// What is known about all tablespaces of a source.
pub struct PageSource<'s> {
    source: &'s Source,
    system_flags: SpaceFlags,
    doublewrite: Option<DoublewriteArea>,
    copies: Vec<u8>,
    /// Which file has a tablespace id.
    found: BTreeMap<u32, String>,
    repaired: u64,
    unpacked: u64,
}

/// Checks the pieces of one file.
pub struct Checker<'p, 's> {
    pages: &'p mut PageSource<'s>,
    path: String,
    first_byte: u64,
    /// `None`: not a tablespace, or its page 0 was never written.
    tablespace: Option<(u32, SpaceFlags)>,
    is_system: bool,
}

impl<'s> PageSource<'s> {
    /// Reads the doublewrite area.
    ///
    /// # Errors
    /// [`CliError::Usage`] if the system tablespace is damaged where it must not be.
    pub fn new(source: &'s Source) -> Result<Self> {
        let path = source.system_file();
        let file = File::open(path).map_err(|error| CliError::io("open", path, error))?;
        let wrong = |reason: String| CliError::Usage(format!("{}: {reason}", path.display()));
        let mut page0 = vec![0; 4096];
        file.read_exact_at(&mut page0, 0).map_err(|error| CliError::io("read", path, error))?;
        let system_flags = flags_of_page0(&page0).map_err(|error| wrong(format!("page 0: {error}")))?;
        let page_len = system_flags.logical_page_size_bytes();
        let mut trx_sys = vec![0; page_len];
        file.read_exact_at(&mut trx_sys, TRX_SYS_PAGE_NO * page_len as u64)
            .map_err(|error| CliError::io("read", path, error))?;
        check_undo(&trx_sys, system_flags, source)?;
        let doublewrite = locate(&trx_sys, system_flags).map_err(|error| wrong(error.to_string()))?;
        let mut copies = Vec::new();
        if let Some(area) = &doublewrite {
            for block in [area.block_1_page_no, area.block_2_page_no] {
                let mut bytes = vec![0; area.block_size_pages as usize * page_len];
                file.read_exact_at(&mut bytes, u64::from(block) * page_len as u64)
                    .map_err(|error| CliError::io("read", path, error))?;
                copies.extend_from_slice(&bytes);
            }
        }
        Ok(Self {
            source,
            system_flags,
            doublewrite,
            copies,
            found: BTreeMap::new(),
            repaired: 0,
            unpacked: 0,
        })
    }

    /// A checker for `file`.
    ///
    /// # Errors
    /// [`CliError::Usage`] if page 0 does not say what the tablespace is.
    pub fn checker(&mut self, file: &SourceFile, handle: &File) -> Result<Checker<'_, 's>> {
        let Kind::Tablespace { first_byte } = file.kind else {
            let path = file.path.clone();
            return Ok(Checker { pages: self, path, first_byte: 0, tablespace: None, is_system: false });
        };
        let is_system = self.source.system_files.iter().any(|(path, _)| *path == file.path);
        let tablespace = if is_system { Some((0, self.system_flags)) } else { self.identify(file, handle)? };
        if let Some((space, _)) = tablespace
            && !is_system
        {
            self.note(space, &file.path)?;
        }
        Ok(Checker { pages: self, path: file.path.clone(), first_byte, tablespace, is_system })
    }

    /// Space id and flags from page 0, or from a copy of it in the doublewrite area.
    fn identify(&self, file: &SourceFile, handle: &File) -> Result<Option<(u32, SpaceFlags)>> {
        let wrong = |reason: String| CliError::Usage(format!("{}: {reason}", file.path));
        let mut page0 = vec![0; file.len_bytes.min(1024) as usize];
        handle.read_exact_at(&mut page0, 0).map_err(|error| CliError::io("read", &file.path, error))?;
        if page0.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let flags = flags_of_page0(&page0).map_err(|error| wrong(format!("page 0: {error}")))?;
        let space = page_id(&page0).map(|page| page.space.0);
        space.map(|space| Some((space, flags))).ok_or_else(|| wrong("page 0 is too short".to_owned()))
    }

    /// A volume has one file of a tablespace: pages of a copy would get among those of the original.
    fn note(&mut self, space: u32, path: &str) -> Result<()> {
        match self.found.insert(space, path.to_owned()) {
            Some(other) if other != path => Err(CliError::Usage(format!(
                "{other} and {path} are the same tablespace, {space}; move the one that is a copy out of the data directory"
            ))),
            _ => Ok(()),
        }
    }

    /// For the closing line.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        if self.repaired > 0 {
            text.push_str(&format!(", {} torn pages repaired", self.repaired));
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
    /// [`CliError::Usage`] for a page that cannot be trusted.
    pub fn check(&mut self, offset_bytes: u64, piece: &mut [u8]) -> Result<()> {
        let Some((space, flags)) = self.tablespace else { return Ok(()) };
        let page_len = flags.physical_page_size_bytes();
        for (at, page) in piece.chunks_mut(page_len).enumerate() {
            let page_no = (self.first_byte + offset_bytes) / page_len as u64 + at as u64;
            let id = PageId::new(space, page_no as u32);
            if page.len() == page_len {
                self.check_page(id, flags, page)?;
            }
        }
        Ok(())
    }

    fn check_page(&mut self, id: PageId, flags: SpaceFlags, page: &mut [u8]) -> Result<()> {
        if self.is_system && self.pages.doublewrite.as_ref().is_some_and(|area| area.contains(id.page_no.0)) {
            page.fill(0);
            return Ok(());
        }
        let wrong =
            |path: &str, reason: String| CliError::Usage(format!("{path}: page {}: {reason}", id.page_no));
        if key_version(page, id, flags) != 0 {
            return Err(wrong(&self.path, ENCRYPTED.to_owned()));
        }
        if let Err(error) = verify(page, flags) {
            self.repair(id, flags, page).ok_or_else(|| {
                wrong(
                    &self.path,
                    format!(
                        "{error}; start the server once on a copy of the directory so that it recovers it, or \
                         restore the file from a backup"
                    ),
                )
            })?;
            if key_version(page, id, flags) != 0 {
                return Err(wrong(&self.path, ENCRYPTED.to_owned()));
            }
            self.pages.repaired += 1;
        }
        if is_page_compressed_image(page, flags) {
            let unpacked = decompress(page, flags).map_err(|error| wrong(&self.path, error.to_string()))?;
            if let Some(mut unpacked) = unpacked {
                finalize(&mut unpacked, flags).map_err(|error| wrong(&self.path, error.to_string()))?;
                page.copy_from_slice(&unpacked);
                self.pages.unpacked += 1;
            }
        }
        let end_lsn = self.pages.source.log.end_lsn;
        if let Some(lsn) = page_lsn(page).filter(|lsn| *lsn > end_lsn) {
            return Err(wrong(
                &self.path,
                format!(
                    "its LSN {lsn} is above the end of the redo log {end_lsn}; the redo log is not this directory's"
                ),
            ));
        }
        Ok(())
    }

    /// A copy from the doublewrite area, or zeros if redo starts the page anew.
    fn repair(&self, id: PageId, flags: SpaceFlags, page: &mut [u8]) -> Option<()> {
        let log = &self.pages.source.log;
        // A copy older than the checkpoint is left from an earlier write of the page: redo from the checkpoint on
        // does not bring it up to date.
        let copy = find_copy(&self.pages.copies, self.pages.system_flags, id, flags, log.end_lsn)
            .filter(|copy| page_lsn(copy).is_some_and(|lsn| lsn >= log.checkpoint_lsn));
        if let Some(copy) = copy {
            page.copy_from_slice(copy);
            return Some(());
        }
        log.resets.starts_anew(id).then(|| page.fill(0))
    }
}

/// The system tablespace says in which undo tablespaces its rollback segments are; without one of them, transactions
/// that were not committed could not be rolled back. A page that is torn says nothing.
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
    Err(CliError::Usage(format!(
        "{} names {} undo tablespaces, but {} were found; say where the server has them with --innodb-undo-directory or \
         --defaults-file",
        source.system_file().display(),
        spaces.len(),
        source.undo_count()
    )))
}
