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
//! The doublewrite area is emptied, as an import leaves it out: its copies are pages of other tablespaces, with their
//! keys and formats. Where `full_crc32` has the key version, a copy of a ROW_FORMAT=COMPRESSED page has its checksum.

use std::collections::BTreeMap;

use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockDecrypt, BlockEncrypt, KeyInit};
use aes::{Aes128, Aes256};
use redoubt_page::checksum::{NO_CHECKSUM_MAGIC, full_crc32_compressed_len_bytes};
use redoubt_page::encryption::{CryptData, key_version};
use redoubt_page::layout::{
    FIL_PAGE_CHECKSUM, FIL_PAGE_DATA, FIL_PAGE_FILE_FLUSH_LSN, FIL_PAGE_TRAILER_BYTES, FIL_PAGE_TYPE,
    TYPE_PAGE_COMPRESSED, TYPE_PAGE_COMPRESSED_ENCRYPTED, get_u16, page_lsn, page_type, put,
};
use redoubt_page::{SpaceFlags, finalize, is_page_compressed_image, verify};
use redoubt_redo::PageId;
use redoubt_workload::error::{Error, Result};

use super::base::{identify, system_files, take_doublewrite_copies};
use crate::encryption::key;

/// Key of a tablespace, and block of the cipher.
type Block = [u8; 16];

/// The only version of a key that `file_key_management` has.
const KEY_VERSION: u32 = 1;
const FULL_CRC32_BYTES: usize = 4;

/// Decrypts every encrypted page of tablespace files by path that is whole, and says how many there were.
///
/// # Errors
/// [`Error::Parse`] for a page 0 or a doublewrite header that is not understood, and a key that is not one of the
/// plugin's.
pub fn decrypt(files: &mut BTreeMap<String, Vec<u8>>) -> Result<u64> {
    let system = system_files(files.keys());
    take_doublewrite_copies(files, &system)?;
    let mut pages = 0;
    let mut system_space = None;
    let mut first_page_no = 0;
    // The files of the system tablespace are one: the first has the key.
    for path in &system {
        let Some(bytes) = files.get_mut(path) else { continue };
        if system_space.is_none() {
            system_space = Space::of(path, bytes)?;
        }
        let Some(space) = &system_space else { continue };
        pages += space.decrypt(path, bytes, first_page_no)?;
        first_page_no += (bytes.len() / space.flags.physical_page_size_bytes()) as u32;
    }
    for (path, bytes) in files.iter_mut().filter(|(path, _)| !system.contains(path)) {
        if let Some(space) = Space::of(path, bytes)? {
            pages += space.decrypt(path, bytes, 0)?;
        }
    }
    Ok(pages)
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

    fn decrypt(&self, path: &str, bytes: &mut [u8], first_page_no: u32) -> Result<u64> {
        let mut pages = 0;
        let size = self.flags.physical_page_size_bytes();
        for (page_no, page) in (first_page_no..).zip(bytes.chunks_exact_mut(size)) {
            let id = PageId::new(self.number, page_no);
            match key_version(page, id, self.flags) {
                0 => continue,
                // Torn by a kill and without a copy: no decryption can restore its contents.
                KEY_VERSION if verify(page, self.flags).is_err() => continue,
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
            pages += 1;
        }
        Ok(pages)
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
