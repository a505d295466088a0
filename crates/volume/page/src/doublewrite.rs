//! The doublewrite area of the system tablespace: where it is, and finding a sound copy of a page in it.
//!
//! A server with `innodb_doublewrite=ON` writes each page to this area before its own place, so that a page
//! torn by a crash can be replaced. The TRX_SYS page (page 5 of space 0) says where the two blocks are, each
//! one extent long. A slot is one logical page; ROW_FORMAT=COMPRESSED pages use its first bytes.
//!
//! Invariant: a copy is returned only if its checksum is right and it names the page asked for.

use redoubt_redo::{Lsn, PageId};
use thiserror::Error;

use crate::apply::page_is_never_written;
use crate::checksum::verify;
use crate::flags::SpaceFlags;
use crate::layout::{get_u32, page_id, page_lsn};

/// Page number of the TRX_SYS page in the system tablespace.
pub const TRX_SYS_PAGE_NO: u32 = 5;
/// The doublewrite header begins this many bytes before the end of the TRX_SYS page.
const HEADER_FROM_END_BYTES: usize = 200;
const MAGIC_OFFSET: usize = 10;
const BLOCK_1_OFFSET: usize = 14;
const BLOCK_2_OFFSET: usize = 18;
const REPEAT_BYTES: usize = 12;
const MAGIC: u32 = 0x1fff_bd5f;

/// Where the two blocks of the doublewrite area lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoublewriteArea {
    /// First page of the first block, in space 0.
    pub block_1_page_no: u32,
    /// First page of the second block.
    pub block_2_page_no: u32,
    /// Pages per block.
    pub block_size_pages: u32,
}

/// Why the doublewrite header cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DoublewriteError {
    /// The page is no TRX_SYS page of this tablespace.
    #[error("the TRX_SYS page has {actual_bytes} bytes, expected {expected_bytes}")]
    Size {
        /// Bytes given.
        actual_bytes: usize,
        /// Bytes per page.
        expected_bytes: usize,
    },
    /// The two copies of the header differ.
    #[error("the doublewrite header of the TRX_SYS page and its repetition differ; the page is damaged")]
    Damaged,
}

impl DoublewriteArea {
    /// Whether a page of space 0 belongs to the area.
    pub const fn contains(&self, page_no: u32) -> bool {
        page_no.wrapping_sub(self.block_1_page_no) < self.block_size_pages
            || page_no.wrapping_sub(self.block_2_page_no) < self.block_size_pages
    }
}

/// Read the place of the doublewrite area from the TRX_SYS page. `Ok(None)`: the area was never created.
///
/// # Errors
/// A page of another size, or a damaged header.
pub fn locate(trx_sys_page: &[u8], flags: SpaceFlags) -> Result<Option<DoublewriteArea>, DoublewriteError> {
    let expected_bytes = flags.logical_page_size_bytes();
    let wrong_size = DoublewriteError::Size { actual_bytes: trx_sys_page.len(), expected_bytes };
    if trx_sys_page.len() != expected_bytes {
        return Err(wrong_size);
    }
    let header = expected_bytes.checked_sub(HEADER_FROM_END_BYTES).ok_or(wrong_size)?;
    let field = |offset: usize| get_u32(trx_sys_page, header + offset).ok_or(wrong_size);
    if field(MAGIC_OFFSET)? != MAGIC {
        return Ok(None);
    }
    for offset in [MAGIC_OFFSET, BLOCK_1_OFFSET, BLOCK_2_OFFSET] {
        if field(offset)? != field(offset + REPEAT_BYTES)? {
            return Err(DoublewriteError::Damaged);
        }
    }
    Ok(Some(DoublewriteArea {
        block_1_page_no: field(BLOCK_1_OFFSET)?,
        block_2_page_no: field(BLOCK_2_OFFSET)?,
        block_size_pages: flags.extent_size_pages() as u32,
    }))
}

/// The page copies in the bytes of one or both blocks, each as long as a logical page. Slots never used
/// are left out.
pub fn copies(blocks: &[u8], system_flags: SpaceFlags) -> impl Iterator<Item = &[u8]> {
    // A size of 0 yields nothing.
    let slot_bytes = system_flags.logical_page_size_bytes();
    let usable = if slot_bytes == 0 { &[] } else { blocks };
    usable.chunks_exact(slot_bytes.max(1)).filter(|copy| !page_is_never_written(copy))
}

/// The newest sound copy of page `wanted`, cut to its physical size. `system_flags` are those of space 0,
/// `flags` those of the page's tablespace. Copies with an LSN above `newest_lsn` are left out.
pub fn find_copy(
    blocks: &[u8],
    system_flags: SpaceFlags,
    wanted: PageId,
    flags: SpaceFlags,
    newest_lsn: Lsn,
) -> Option<&[u8]> {
    copies(blocks, system_flags)
        .filter_map(|copy| copy.get(..flags.physical_page_size_bytes()))
        .filter(|copy| page_id(copy) == Some(wanted) && verify(copy, flags).is_ok())
        .filter(|copy| page_lsn(copy).is_some_and(|lsn| lsn <= newest_lsn))
        .max_by_key(|copy| page_lsn(copy))
}

#[cfg(test)]
mod tests;
