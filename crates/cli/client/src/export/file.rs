//! One file of an export, as it is written.
//!
//! The node stores the pages of a `PAGE_COMPRESSED` table uncompressed, because redo addresses them so. Here they get
//! the form back in which the server stores them ([`redoubt_page::compress`]), and the room that this saves is left as
//! holes. Every other file is written as it comes.
//!
//! The node holds the pages of an encrypted tablespace in clear. So page 0 is marked here: not all pages are
//! encrypted. A server with encryption threads then encrypts them. Without the mark it would use the key version in
//! page 0 for every page.
//!
//! Invariant: the file differs from the node's bytes only in whole pages of which `compress` has made an image that
//! unpacks to the same page, and in that number of page 0.

use redoubt_page::encryption::set_not_all_encrypted;
use redoubt_page::layout::{FIL_PAGE_OFFSET, FIL_PAGE_TYPE, TYPE_FSP_HDR, get_u16, get_u32};
use redoubt_page::{PageCompression, SpaceFlags, compress, finalize, flags_of_page0};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Unit of [`MetadataExt::blocks`].
const BLOCK_BYTES: u64 = 512;
/// Space that a file system may use beside the contents, in bytes: for each written megabyte, and once more.
const SLACK_PER_MIB_BYTES: u64 = 64 << 10;

/// One file of an export.
pub struct ExportedFile {
    file: File,
    /// Format of its pages, if they are to be compressed.
    packed: Option<SpaceFlags>,
    /// Bytes that need room.
    written_bytes: u64,
    /// Bytes that were left as holes because their page was compressed.
    saved_bytes: u64,
    /// The server treats the tablespace as encrypted.
    is_encrypted: bool,
}

impl ExportedFile {
    /// Nothing is written yet; the file is empty.
    pub const fn new(file: File) -> Self {
        Self { file, packed: None, written_bytes: 0, saved_bytes: 0, is_encrypted: false }
    }

    /// The bytes from `offset_bytes` on. Pieces come in order, the first page whole in the first of them.
    ///
    /// # Errors
    /// That of the file.
    pub fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        let flags = if offset_bytes == 0 { format_of(bytes) } else { None };
        let changed = flags.and_then(|flags| not_all_encrypted(bytes, flags));
        self.is_encrypted |= changed.is_some();
        let bytes = changed.as_deref().unwrap_or(bytes);
        if offset_bytes == 0 {
            self.packed = flags.filter(|flags| flags.page_compression() != PageCompression::None);
        }
        let Some(flags) = self.packed else {
            self.written_bytes += bytes.len() as u64;
            return self.file.write_all_at(bytes, offset_bytes);
        };
        let page_len = flags.physical_page_size_bytes();
        if !offset_bytes.is_multiple_of(page_len as u64) {
            return self.file.write_all_at(bytes, offset_bytes);
        }
        for (page, at) in bytes.chunks(page_len).zip((offset_bytes..).step_by(page_len)) {
            self.write_page(page, at, flags)?;
        }
        Ok(())
    }

    /// Its pages are in clear, and a server with its key treats them as pages that it has not encrypted yet.
    pub const fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    fn write_page(&mut self, page: &[u8], at: u64, flags: SpaceFlags) -> io::Result<()> {
        if page.iter().all(|byte| *byte == 0) {
            // Never written, or freed: the server leaves a hole as well.
            self.saved_bytes += page.len() as u64;
            return Ok(());
        }
        let image = compress(page, flags);
        let stored = image.as_deref().unwrap_or(page);
        self.written_bytes += stored.len() as u64;
        self.saved_bytes += (page.len() - stored.len()) as u64;
        self.file.write_all_at(stored, at)
    }

    /// Gives the file its length. `Some`: a note for the user if the file occupies space that holes should have
    /// saved.
    ///
    /// # Errors
    /// That of the file.
    pub fn finish(self, len_bytes: u64) -> io::Result<(File, Option<String>)> {
        self.file.set_len(len_bytes)?;
        if self.packed.is_some() {
            // Before that the file system may not have allocated the blocks.
            self.file.sync_all()?;
        }
        let taken_bytes = self.file.metadata()?.blocks() * BLOCK_BYTES;
        let note = (self.packed.is_some() && has_no_holes(taken_bytes, self.written_bytes, self.saved_bytes))
            .then(|| {
                format!(
                    "is page-compressed and takes {taken_bytes} bytes all the same: the file system keeps no holes in it"
                )
            });
        Ok((self.file, note))
    }
}

/// More than half of the space that holes should save is allocated. The bytes in a page take whole blocks of the file
/// system, so less than all may be saved.
fn has_no_holes(taken_bytes: u64, written_bytes: u64, saved_bytes: u64) -> bool {
    let slack = SLACK_PER_MIB_BYTES * (1 + (written_bytes >> 20));
    taken_bytes > written_bytes + slack + saved_bytes / 2
}

/// The format of a tablespace from its first page. Later files of the system tablespace do not begin with a page 0.
fn format_of(page0: &[u8]) -> Option<SpaceFlags> {
    let is_page0 =
        get_u32(page0, FIL_PAGE_OFFSET) == Some(0) && get_u16(page0, FIL_PAGE_TYPE) == Some(TYPE_FSP_HDR);
    flags_of_page0(page0).ok().filter(|_| is_page0)
}

/// The same bytes, with page 0 marked as "not all pages are encrypted". `None`: the tablespace is not encrypted.
fn not_all_encrypted(bytes: &[u8], flags: SpaceFlags) -> Option<Vec<u8>> {
    let mut changed = bytes.to_vec();
    let page0 = changed.get_mut(..flags.physical_page_size_bytes())?;
    let is_done = set_not_all_encrypted(page0, flags) && finalize(page0, flags).is_ok();
    is_done.then_some(changed)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
