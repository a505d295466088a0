//! The file `pages.identity`: which journal belongs to this page directory, and whether it is needed.
//!
//! The journal may lie elsewhere, and be forgotten when the directory is moved, or another one's be given. Since it
//! holds pages that are not at home yet, the directory says whether there is one.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `RDBTPGID` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | 1: no journal is needed, one is being made; 2: the journal is needed |
//! | 16 | 8 | identity, a random number |
//! | 24 | 4 | CRC-32C of bytes 0..24 |
//!
//! It is replaced as a whole: written under another name, synced, renamed.

use std::hash::{BuildHasher, Hasher, RandomState};

use redoubt_storage::StorageDir;
use redoubt_storage::format_version::unknown_version;

use super::ring::{u32_at, u64_at};
use crate::error::PageStoreError;

const NAME: &str = "pages.identity";
const NEW_NAME: &str = "pages.identity.new";
const MAGIC: [u8; 8] = *b"RDBTPGID";
const VERSION: u32 = 1;
const CRC_AT: usize = 24;
const LEN: usize = 28;

/// Does the directory need its journal?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum JournalState {
    /// All pages are at home. A journal, if there is one, may be half made.
    BeingMade,
    /// The journal may hold pages that are nowhere else.
    Needed,
}

/// Content of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    pub id: u64,
    pub state: JournalState,
}

impl Identity {
    /// A new identity, whose journal is not created yet.
    pub fn random() -> Self {
        // The standard library's hasher keys are random.
        Self { id: RandomState::new().build_hasher().finish(), state: JournalState::BeingMade }
    }

    fn encode(self) -> Vec<u8> {
        let state: u32 = match self.state {
            JournalState::BeingMade => 1,
            JournalState::Needed => 2,
        };
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&state.to_le_bytes());
        out.extend_from_slice(&self.id.to_le_bytes());
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let is_whole = bytes.first_chunk() == Some(&MAGIC)
            && u32_at(bytes, 8)? == VERSION
            && u32_at(bytes, CRC_AT)? == crc32c::crc32c(bytes.get(..CRC_AT)?);
        let state = match u32_at(bytes, 12)? {
            1 => JournalState::BeingMade,
            2 => JournalState::Needed,
            _ => return None,
        };
        is_whole.then_some(Self { id: u64_at(bytes, 16)?, state })
    }

    /// Reads the file, if there is one.
    pub fn load(dir: &dyn StorageDir, names: &[String]) -> Result<Option<Self>, PageStoreError> {
        if !names.iter().any(|name| name == NAME) {
            return Ok(None);
        }
        let file = dir.open(NAME).map_err(PageStoreError::read(NAME, 0))?;
        let mut bytes = [0; LEN];
        let n = file.read_at(0, &mut bytes).map_err(PageStoreError::read(NAME, 0))?;
        let bytes = bytes.get(..n).unwrap_or_default();
        Self::decode(bytes).map(Some).ok_or_else(|| {
            let version = u32_at(bytes, 8).filter(|&version| bytes.starts_with(&MAGIC) && version != VERSION);
            let reason = match version {
                Some(version) => unknown_version(u64::from(version), VERSION),
                None => "it is damaged: restore it from a copy".to_owned(),
            };
            PageStoreError::BadFile { file: NAME.into(), reason }
        })
    }

    /// Writes the file, durably.
    pub fn store(self, dir: &dyn StorageDir) -> Result<(), PageStoreError> {
        let names = dir.list().map_err(PageStoreError::io("list", "the page directory"))?;
        if names.iter().any(|name| name == NEW_NAME) {
            dir.remove(NEW_NAME).map_err(PageStoreError::io("remove", NEW_NAME))?;
        }
        let file = dir.create(NEW_NAME).map_err(PageStoreError::io_or_no_space("create", NEW_NAME))?;
        file.write_at(0, &self.encode()).map_err(PageStoreError::io_or_no_space("write", NEW_NAME))?;
        file.sync_all().map_err(PageStoreError::io("sync", NEW_NAME))?;
        dir.rename(NEW_NAME, NAME).map_err(PageStoreError::io("rename", NEW_NAME))?;
        dir.sync().map_err(PageStoreError::io("sync the directory of", NAME))
    }
}
