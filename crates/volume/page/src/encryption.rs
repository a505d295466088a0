//! Encrypted tablespaces: which page images are encrypted, and the fields of page 0 about it. Nothing is decrypted here.
//!
//! A page is encrypted if it carries the version of a key, where that is depends on the format:
//!
//! | format | key version | in clear |
//! |---|---|---|
//! | `full_crc32` | 0..4 | 4..26: page number, LSN, type; **not** the tablespace id |
//! | older, ROW_FORMAT=COMPRESSED as well | 26..30 | 0..38 |
//!
//! Page 0 of a tablespace is never encrypted, nor is TRX_SYS, nor, in the older formats, an R-tree page. In those
//! formats other bytes may be there on these three. A page without a key version in an encrypted tablespace is one
//! that is not encrypted (yet), for the server too.
//!
//! Page 0 holds, after its extent descriptors, in this order:
//! - a mark of 6 bytes,
//! - the scheme (1 byte),
//! - the length of the initialisation vector (1 byte, always 16), and the vector,
//! - the oldest key version that a page of the tablespace may have (4 bytes; 0: some may not be encrypted),
//! - the key id (4 bytes),
//! - the option (1 byte).

use crate::doublewrite::TRX_SYS_PAGE_NO;
use crate::flags::SpaceFlags;
use crate::layout::{FIL_PAGE_CHECKSUM, FIL_PAGE_FILE_FLUSH_LSN, TYPE_RTREE, get_u32, page_type, put};
use redoubt_redo::PageId;

const MARK: [u8; 6] = [b's', 0x0e, 0x0c, b'R', b'E', b't'];
const SCHEME: usize = 6;
const VECTOR_LEN: usize = 7;
const VECTOR_LEN_BYTES: u8 = 16;
const VECTOR: usize = 8;
const MIN_KEY_VERSION: usize = 24;
const KEY_ID: usize = 28;
/// Scheme of a tablespace that is encrypted.
const SCHEME_1: u8 = 1;
/// First byte of the extent descriptors of page 0.
const DESCRIPTORS: usize = 150;
const DESCRIPTOR_HEAD_BYTES: usize = 24;
const FSP_HEADER: usize = 38;

/// Fields of page 0 about the encryption of its tablespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CryptData {
    /// The server encrypts the pages that it writes.
    pub is_encrypted: bool,
    /// No page has an older key version. 0: some may not be encrypted.
    pub min_key_version: u32,
    /// Which key.
    pub key_id: u32,
    /// Initialisation vector, of which the server makes the tablespace's own key.
    pub vector: [u8; 16],
}

fn offset(flags: SpaceFlags) -> Option<usize> {
    let extent = flags.extent_size_pages();
    let descriptors = flags.physical_page_size_bytes().checked_div(extent)?;
    Some(DESCRIPTORS + descriptors * (DESCRIPTOR_HEAD_BYTES + extent / 4) + FSP_HEADER)
}

impl CryptData {
    /// Of a whole page 0. `None`: it says nothing, the tablespace was never encrypted.
    pub fn of_page0(page0: &[u8], flags: SpaceFlags) -> Option<Self> {
        let data = page0.get(offset(flags)?..)?;
        if !data.starts_with(&MARK) || *data.get(VECTOR_LEN)? != VECTOR_LEN_BYTES {
            return None;
        }
        Some(Self {
            is_encrypted: *data.get(SCHEME)? == SCHEME_1,
            min_key_version: get_u32(data, MIN_KEY_VERSION)?,
            key_id: get_u32(data, KEY_ID)?,
            vector: *data.get(VECTOR..)?.first_chunk()?,
        })
    }
}

/// Makes page 0 of an encrypted tablespace say that some pages may not be encrypted, so that a server with encryption
/// threads encrypts them. `false`, and no change: the tablespace is not encrypted. Checksum and LSN stay as they are.
pub fn set_not_all_encrypted(page0: &mut [u8], flags: SpaceFlags) -> bool {
    let is_encrypted = CryptData::of_page0(page0, flags).is_some_and(|data| data.is_encrypted);
    let Some(offset) = offset(flags).filter(|_| is_encrypted) else { return false };
    put(page0, offset + MIN_KEY_VERSION, &[0; 4])
}

/// Version of the key with which the image of page `id` is encrypted; 0: it is not.
pub fn key_version(page: &[u8], id: PageId, flags: SpaceFlags) -> u32 {
    let at = if flags.is_full_crc32() { FIL_PAGE_CHECKSUM } else { FIL_PAGE_FILE_FLUSH_LSN };
    let is_exempt = match id.page_no.0 {
        0 => true,
        TRX_SYS_PAGE_NO => id.space.0 == 0,
        _ => !flags.is_full_crc32() && page_type(page) == Some(TYPE_RTREE),
    };
    if is_exempt { 0 } else { get_u32(page, at).unwrap_or_default() }
}

/// Whether the tablespace id in the image of an encrypted page can be read; the page number always can.
pub fn hides_space_id(flags: SpaceFlags) -> bool {
    flags.is_full_crc32()
}

#[cfg(test)]
#[path = "encryption_tests.rs"]
mod tests;
