//! Files with encrypted pages, in clear: as redo addresses the pages, and as a node holds them.
//!
//! The server's scheme 1 (`fil0crypt.cc`, and `encryption_scheme_encrypt` in `sql/`):
//!
//! * key of a tablespace: AES-256-ECB of the vector in page 0 with the plugin's key, 16 bytes;
//! * body of a page: AES-128-CBC with that key from the tweak (tablespace, page number, LSN; little-endian), without
//!   padding; the rest after the last whole block is XORed with AES-128-ECB of the tweak.
//!
//! | format | body |
//! |---|---|
//! | `full_crc32` | 26 to the checksum, of a compressed page at its own end |
//! | older | 38 to the last 8 bytes, also of ROW_FORMAT=COMPRESSED, which has no trailer there |
//! | older, page-compressed | 42, with the length stored at 38 |
//!
//! A kill tears pages. In `full_crc32`, the tablespace of an encrypted page is not in clear, so its copy in the
//! doublewrite area is found by decryption with the tablespace's key (`recv_dblwr_t::find_encrypted_page`). The server
//! reads such a copy and does not write it back. No redo is newer than the copy, so the page is clean in its buffer
//! pool, and the file still has the torn page after the recovery.
//!
//! The doublewrite area is emptied, as an import leaves it out: its copies are pages of other tablespaces, with their
//! keys and formats. Where `full_crc32` has the key version, a copy of a ROW_FORMAT=COMPRESSED page has its checksum.

use std::collections::{BTreeMap, BTreeSet};

use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockDecrypt, BlockEncrypt, KeyInit};
use aes::{Aes128, Aes256};
use redoubt_harness::encryption::key;
use redoubt_page::checksum::{NO_CHECKSUM_MAGIC, full_crc32_compressed_len_bytes};
use redoubt_page::doublewrite::copies;
use redoubt_page::encryption::{CryptData, key_version};
use redoubt_page::layout::{
    FIL_PAGE_CHECKSUM, FIL_PAGE_DATA, FIL_PAGE_FILE_FLUSH_LSN, FIL_PAGE_TRAILER_BYTES, FIL_PAGE_TYPE,
    TYPE_PAGE_COMPRESSED, TYPE_PAGE_COMPRESSED_ENCRYPTED, get_u16, page_id, page_lsn, page_type, put,
};
use redoubt_page::{SpaceFlags, decompress, finalize, is_page_compressed_image, verify};
use redoubt_redo::{Lsn, PageId};
use redoubt_workload::error::{Error, Result};

use super::base::{Copies, identify, system_files, take_doublewrite_copies};

/// Key of a tablespace, and block of the cipher.
type Block = [u8; 16];

/// The only version of a key that `file_key_management` has.
const KEY_VERSION: u32 = 1;
const FULL_CRC32_BYTES: usize = 4;

/// Result of a decryption.
#[derive(Debug, Default)]
pub struct Cleared {
    /// Pages that were encrypted.
    pub pages: u64,
    /// Of these: torn in their file, and taken from the doublewrite area.
    pub torn: TornPages,
}

/// Torn pages: path and page number.
pub type TornPages = BTreeSet<(String, u32)>;

/// Where copies of torn pages are.
#[derive(Clone, Copy)]
struct Source<'s> {
    copies: Option<&'s Copies>,
    end_lsn: Lsn,
}

/// Decrypts every encrypted page of tablespace files by path that is whole or has a copy. Copies come from `copies`, or
/// without these from the files' own doublewrite area, and are no newer than `end_lsn`.
///
/// # Errors
/// [`Error::Parse`] for a page 0 or a doublewrite header that is not understood, and a key that is not one of the
/// plugin's.
pub fn decrypt(
    files: &mut BTreeMap<String, Vec<u8>>,
    copies: Option<&Copies>,
    end_lsn: Lsn,
) -> Result<Cleared> {
    let system = system_files(files.keys());
    let own = take_doublewrite_copies(files, &system)?;
    let source = Source { copies: copies.or(own.as_ref()), end_lsn };
    let mut cleared = Cleared::default();
    let mut system_space = None;
    let mut first_page_no = 0;
    // The files of the system tablespace are one: the first has the key.
    for path in &system {
        let Some(bytes) = files.get_mut(path) else { continue };
        if system_space.is_none() {
            system_space = Space::of(path, bytes)?;
        }
        let Some(space) = &system_space else { continue };
        space.decrypt(path, bytes, first_page_no, source, &mut cleared)?;
        first_page_no += (bytes.len() / space.flags.physical_page_size_bytes()) as u32;
    }
    for (path, bytes) in files.iter_mut().filter(|(path, _)| !system.contains(path)) {
        if let Some(space) = Space::of(path, bytes)? {
            space.decrypt(path, bytes, 0, source, &mut cleared)?;
        }
    }
    Ok(cleared)
}

struct Space {
    number: u32,
    flags: SpaceFlags,
    cipher: Aes128,
}

impl Space {
    /// `None`: it was never encrypted, or page 0 was never written.
    fn of(path: &str, bytes: &[u8]) -> Result<Option<Self>> {
        let Some((space, flags)) = identify(path, bytes)? else { return Ok(None) };
        let page0 = bytes.get(..flags.physical_page_size_bytes()).unwrap_or(bytes);
        let Some(data) = CryptData::of_page0(page0, flags) else { return Ok(None) };
        let key = key(data.key_id).ok_or_else(|| Error::Parse {
            what: format!("page 0 of {path}"),
            detail: format!("the plugin has no key {}", data.key_id),
        })?;
        let mut own = GenericArray::from(data.vector);
        Aes256::new(&GenericArray::from(key)).encrypt_block(&mut own);
        Ok(Some(Self { number: space.0, flags, cipher: Aes128::new(&own) }))
    }

    fn decrypt(
        &self,
        path: &str,
        bytes: &mut [u8],
        first_page_no: u32,
        source: Source<'_>,
        cleared: &mut Cleared,
    ) -> Result<()> {
        let size = self.flags.physical_page_size_bytes();
        for (page_no, page) in (first_page_no..).zip(bytes.chunks_exact_mut(size)) {
            let id = PageId::new(self.number, page_no);
            match key_version(page, id, self.flags) {
                0 => continue,
                KEY_VERSION if verify(page, self.flags).is_err() => {
                    // Without a copy no decryption can restore its contents.
                    if let Some(copy) = self.copy_in_clear(id, source) {
                        page.copy_from_slice(&copy);
                        cleared.torn.insert((path.to_owned(), page_no));
                        cleared.pages += 1;
                    }
                    continue;
                }
                KEY_VERSION => {}
                other => {
                    let detail = format!("key version {other}");
                    return Err(Error::Parse { what: format!("page {id} of {path}"), detail });
                }
            }
            self.decrypt_page(id, page).ok_or_else(|| Error::Parse {
                what: format!("page {id} of {path}"),
                detail: "an encrypted page that is no page of its tablespace".to_owned(),
            })?;
            cleared.pages += 1;
        }
        Ok(())
    }

    /// The newest copy of a page whose image does not show its tablespace, in clear.
    fn copy_in_clear(&self, id: PageId, source: Source<'_>) -> Option<Vec<u8>> {
        let area = source.copies.filter(|_| self.flags.is_full_crc32())?;
        copies(&area.bytes, area.system_flags)
            .filter_map(|copy| copy.get(..self.flags.physical_page_size_bytes()))
            .filter(|copy| page_id(copy).is_some_and(|copy| copy.page_no == id.page_no))
            .filter(|copy| key_version(copy, id, self.flags) == KEY_VERSION)
            .filter(|copy| verify(copy, self.flags).is_ok())
            .filter(|copy| page_lsn(copy).is_some_and(|lsn| lsn <= source.end_lsn))
            .filter_map(|copy| {
                let mut clear = copy.to_vec();
                self.decrypt_page(id, &mut clear)?;
                // The copy of another tablespace's page is noise after decryption with this one's key.
                let plain = decompress(&clear, self.flags).ok()?;
                (page_id(plain.as_deref().unwrap_or(&clear)) == Some(id)).then_some(clear)
            })
            .max_by_key(|clear| page_lsn(clear))
    }

    /// `None`: it cannot be one.
    fn decrypt_page(&self, id: PageId, page: &mut [u8]) -> Option<()> {
        let mut tweak = [0; 16];
        put(&mut tweak, 0, &id.space.0.to_le_bytes());
        put(&mut tweak, 4, &id.page_no.0.to_le_bytes());
        put(&mut tweak, 8, &page_lsn(page)?.0.to_le_bytes());
        if self.flags.is_full_crc32() {
            // Only the type says that, and it is in clear.
            let compressed = is_page_compressed_image(page, self.flags);
            let stored = if compressed { full_crc32_compressed_len_bytes(page)? } else { page.len() };
            let len = stored.checked_sub(FULL_CRC32_BYTES)?;
            self.decrypt_bytes(tweak, page.get_mut(FIL_PAGE_FILE_FLUSH_LSN..len)?);
            put(page, FIL_PAGE_CHECKSUM, &[0; 4]);
            if compressed {
                let sum = crc32c::crc32c(page.get(..len)?);
                put(page, len, &sum.to_be_bytes());
                return Some(());
            }
            return finalize(page, self.flags).ok();
        }
        if page_type(page) == Some(TYPE_PAGE_COMPRESSED_ENCRYPTED) {
            return self.decrypt_older_compressed(tweak, page);
        }
        let end = page.len() - FIL_PAGE_TRAILER_BYTES;
        self.decrypt_bytes(tweak, page.get_mut(FIL_PAGE_DATA..end)?);
        put(page, FIL_PAGE_FILE_FLUSH_LSN, &[0; 8]);
        finalize(page, self.flags).ok()
    }

    /// Becomes an image that is compressed only: the algorithm lies elsewhere there, and the payload 2 bytes earlier.
    fn decrypt_older_compressed(&self, tweak: Block, page: &mut [u8]) -> Option<()> {
        let payload_len = usize::from(get_u16(page, FIL_PAGE_DATA)?);
        let algorithm = u64::from(get_u16(page, FIL_PAGE_DATA + 2)?);
        let payload = FIL_PAGE_DATA + 4..FIL_PAGE_DATA + 4 + payload_len;
        self.decrypt_bytes(tweak, page.get_mut(payload.clone())?);
        page.copy_within(payload, FIL_PAGE_DATA + 2);
        put(page, FIL_PAGE_TYPE, &TYPE_PAGE_COMPRESSED.to_be_bytes());
        put(page, FIL_PAGE_FILE_FLUSH_LSN, &algorithm.to_be_bytes());
        put(page, FIL_PAGE_CHECKSUM, &NO_CHECKSUM_MAGIC.to_be_bytes());
        Some(())
    }

    fn decrypt_bytes(&self, tweak: Block, bytes: &mut [u8]) {
        let (blocks, rest) = bytes.as_chunks_mut::<16>();
        let mut before = tweak;
        for block in blocks {
            let encrypted = *block;
            self.cipher.decrypt_block(GenericArray::from_mut_slice(block));
            block.iter_mut().zip(before).for_each(|(byte, before)| *byte ^= before);
            before = encrypted;
        }
        let mut mask = GenericArray::from(tweak);
        self.cipher.encrypt_block(&mut mask);
        rest.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    }
}

#[cfg(test)]
mod tests;
