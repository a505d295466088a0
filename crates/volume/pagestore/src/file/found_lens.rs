//! The file `pages.lengths`: lengths that page files had before an opening wrote pages of the journal to them.
//!
//! A page that is written past the end of a file makes the file long, and hides that it was cut. The caller compares the
//! lengths after the opening, and may be killed before it has noted what it found. So lengths of files that become longer
//! are durable first, until the caller says that it has seen them ([`crate::PageStore::forget_found_lens`]).
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `RDBTPGLN` |
//! | 8 | 12 each | object, length in bytes |
//! | end | 4 | CRC-32C of all before |
//!
//! It is replaced as a whole. A damaged one counts as none: then the file hides nothing but what it was to protect.

use redoubt_storage::{StorageDir, is_lost_content};
use rustc_hash::FxHashMap;

use super::ring::{u32_at, u64_at};
use crate::ObjectId;
use crate::error::PageStoreError;

const NAME: &str = "pages.lengths";
const NEW_NAME: &str = "pages.lengths.new";
const MAGIC: [u8; 8] = *b"RDBTPGLN";
const ENTRY_LEN: usize = 12;

/// Lengths of files in bytes.
pub(super) type Lens = FxHashMap<ObjectId, u64>;

fn encode(lens: &Lens) -> Vec<u8> {
    let mut entries: Vec<_> = lens.iter().collect();
    entries.sort_unstable();
    let mut out = MAGIC.to_vec();
    for (object, len_bytes) in entries {
        out.extend_from_slice(&object.0.to_le_bytes());
        out.extend_from_slice(&len_bytes.to_le_bytes());
    }
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

fn decode(bytes: &[u8]) -> Option<Lens> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    let entries = body.strip_prefix(&MAGIC)?;
    if u32::from_le_bytes(*crc) != crc32c::crc32c(body) || !entries.len().is_multiple_of(ENTRY_LEN) {
        return None;
    }
    let entries = entries.chunks_exact(ENTRY_LEN);
    entries.map(|entry| Some((ObjectId(u32_at(entry, 0)?), u64_at(entry, 4)?))).collect()
}

/// Lengths that an opening left, and that were not seen.
pub(super) fn load(dir: &dyn StorageDir, names: &[String]) -> Result<Lens, PageStoreError> {
    if !names.iter().any(|name| name == NAME) {
        return Ok(Lens::default());
    }
    let read = || -> std::io::Result<Vec<u8>> {
        let file = dir.open(NAME)?;
        let mut bytes = vec![0; file.len_bytes()? as usize];
        let n = file.read_at(0, &mut bytes)?;
        bytes.truncate(n);
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => Ok(decode(&bytes).unwrap_or_default()),
        Err(error) if is_lost_content(&error) => Ok(Lens::default()),
        Err(error) => Err(PageStoreError::read(NAME, 0)(error)),
    }
}

/// Writes the file, durably.
pub(super) fn store(dir: &dyn StorageDir, lens: &Lens) -> Result<(), PageStoreError> {
    remove_name(dir, NEW_NAME)?;
    let file = dir.create(NEW_NAME).map_err(PageStoreError::io_or_no_space("create", NEW_NAME))?;
    file.write_at(0, &encode(lens)).map_err(PageStoreError::io_or_no_space("write", NEW_NAME))?;
    file.sync_all().map_err(PageStoreError::io("sync", NEW_NAME))?;
    dir.rename(NEW_NAME, NAME).map_err(PageStoreError::io("rename", NEW_NAME))?;
    dir.sync().map_err(PageStoreError::io("sync the directory of", NAME))
}

/// Removes the file, durably.
pub(super) fn remove(dir: &dyn StorageDir) -> Result<(), PageStoreError> {
    if remove_name(dir, NAME)? {
        dir.sync().map_err(PageStoreError::io("sync the directory of", NAME))?;
    }
    Ok(())
}

fn remove_name(dir: &dyn StorageDir, name: &str) -> Result<bool, PageStoreError> {
    match dir.remove(name) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(PageStoreError::io("remove", name)(error)),
    }
}
