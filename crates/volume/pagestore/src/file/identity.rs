//! The file `pages.identity`: which journal belongs to this page directory, and whether it is needed.
//!
//! The journal may lie elsewhere, and be forgotten when the directory is moved, or another one's be given. Since it
//! holds pages that are not at home yet, the directory says whether there is one.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `RDBTPGID` |
//! | 8 | 4 | format version: 1, or 2 with a 3 in the next field, which builds of version 1 do not know |
//! | 12 | 4 | 1: no journal is needed, one is being made; 2: the journal is needed; 3: it is in place of a lost one |
//! | 16 | 8 | identity, a random number |
//! | 24 | 4 | CRC-32C of bytes 0..24 |
//!
//! It is replaced as a whole: written under another name, synced, renamed. `pages.identity.copy` has the same, in case that
//! one of the two files is lost.

use std::hash::{BuildHasher, Hasher, RandomState};

use redoubt_storage::format_version::unknown_version;
use redoubt_storage::{StorageDir, is_lost_content};

use super::ring::{u32_at, u64_at};
use crate::error::PageStoreError;

const NAME: &str = "pages.identity";
const COPY_NAME: &str = "pages.identity.copy";
const NEW_NAME: &str = "pages.identity.new";
const MAGIC: [u8; 8] = *b"RDBTPGID";
const VERSION: u32 = 1;
const VERSION_OF_REPLACED: u32 = 2;
const CRC_AT: usize = 24;
const LEN: usize = 28;

/// Does the directory need its journal?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum JournalState {
    /// All pages are at home. A journal, if there is one, may be half made.
    BeingMade,
    /// The journal may hold pages that are nowhere else.
    Needed,
    /// The same, and another one was lost: pages that only that one had are not all rebuilt yet.
    Replaced,
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
            JournalState::Replaced => 3,
        };
        let version = if self.state == JournalState::Replaced { VERSION_OF_REPLACED } else { VERSION };
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&state.to_le_bytes());
        out.extend_from_slice(&self.id.to_le_bytes());
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let is_whole = bytes.first_chunk() == Some(&MAGIC)
            && u32_at(bytes, CRC_AT)? == crc32c::crc32c(bytes.get(..CRC_AT)?);
        let state = match (u32_at(bytes, 8)?, u32_at(bytes, 12)?) {
            (VERSION, 1) => JournalState::BeingMade,
            (VERSION, 2) => JournalState::Needed,
            (VERSION_OF_REPLACED, 3) => JournalState::Replaced,
            _ => return None,
        };
        is_whole.then_some(Self { id: u64_at(bytes, 16)?, state })
    }

    /// Reads the file, or its copy if that is lost. `None`: there is neither.
    pub fn load(dir: &dyn StorageDir, names: &[String]) -> Result<Option<Self>, PageStoreError> {
        let first = read(dir, names, NAME)?;
        let second = match first {
            Read::Whole(identity) => return Ok(Some(identity)),
            Read::OtherVersion(version) => {
                return Err(bad(unknown_version(u64::from(version), VERSION_OF_REPLACED)));
            }
            Read::Damaged | Read::Missing => read(dir, names, COPY_NAME)?,
        };
        match (first, second) {
            (_, Read::Whole(identity)) => Ok(Some(identity)),
            (Read::Missing, _) => Ok(None),
            _ => Err(bad("it is damaged, and so is its copy: restore one of them".to_owned())),
        }
    }

    /// Writes the files again if one of them is not this identity. Without room that is put off.
    pub fn renew(self, dir: &dyn StorageDir, names: &[String]) -> Result<(), PageStoreError> {
        for name in [NAME, COPY_NAME] {
            if !matches!(read(dir, names, name)?, Read::Whole(identity) if identity == self) {
                return match self.store(dir) {
                    Err(PageStoreError::NoSpace { .. }) => Ok(()),
                    stored => stored,
                };
            }
        }
        Ok(())
    }

    /// Writes the file and its copy, durably. The copy first: it must never be the older one, since it may count as soon as
    /// the file is lost.
    pub fn store(self, dir: &dyn StorageDir) -> Result<(), PageStoreError> {
        let names = dir.list().map_err(PageStoreError::io("list", "the page directory"))?;
        for name in [COPY_NAME, NAME] {
            if names.iter().any(|name| name == NEW_NAME) {
                match dir.remove(NEW_NAME) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    removed => removed.map_err(PageStoreError::io("remove", NEW_NAME))?,
                }
            }
            let file = dir.create(NEW_NAME).map_err(PageStoreError::io_or_no_space("create", NEW_NAME))?;
            let written = file.write_at(0, &self.encode());
            written.map_err(PageStoreError::io_or_no_space("write", NEW_NAME))?;
            file.sync_all().map_err(PageStoreError::io("sync", NEW_NAME))?;
            dir.rename(NEW_NAME, name).map_err(PageStoreError::io("rename", NEW_NAME))?;
        }
        dir.sync().map_err(PageStoreError::io("sync the directory of", NAME))
    }
}

/// One of the two files.
enum Read {
    Missing,
    Damaged,
    OtherVersion(u32),
    Whole(Identity),
}

fn read(dir: &dyn StorageDir, names: &[String], name: &str) -> Result<Read, PageStoreError> {
    if !names.iter().any(|other| other == name) {
        return Ok(Read::Missing);
    }
    let mut bytes = [0; LEN];
    let file = dir.open(name).map_err(PageStoreError::read(name, 0))?;
    let n = match file.read_at(0, &mut bytes) {
        Err(error) if is_lost_content(&error) => return Ok(Read::Damaged),
        read => read.map_err(PageStoreError::read(name, 0))?,
    };
    let bytes = bytes.get(..n).unwrap_or_default();
    let is_known = |version: &u32| matches!(*version, VERSION | VERSION_OF_REPLACED);
    let version = u32_at(bytes, 8).filter(|version| bytes.starts_with(&MAGIC) && !is_known(version));
    let is_intact =
        u32_at(bytes, CRC_AT).zip(bytes.get(..CRC_AT)).is_some_and(|(crc, body)| crc == crc32c::crc32c(body));
    Ok(match (Identity::decode(bytes), version) {
        (Some(identity), _) => Read::Whole(identity),
        (None, Some(version)) if is_intact => Read::OtherVersion(version),
        (None, _) => Read::Damaged,
    })
}

fn bad(reason: String) -> PageStoreError {
    PageStoreError::BadFile { file: NAME.into(), reason }
}
