//! How a [`FilePageStore`](super::FilePageStore) is set up.

use super::protection::PageProtection;
use super::ring::BLOCK;
use crate::error::PageStoreError;

/// Shortest journal.
pub(super) const MIN_JOURNAL_LEN: u64 = 128 << 10;
/// Longest journal. With pages of 16 KiB, its index and the map of pending pages take up to 0.4 % of that in memory.
pub(super) const MAX_JOURNAL_LEN: u64 = 64 << 30;

/// How a [`FilePageStore`](super::FilePageStore) is set up.
#[derive(Clone, Debug)]
pub struct FilePageStoreOptions {
    /// How pages are protected. `None`: `atomic` where untorn writes cover pages of 16 KiB, else `journal`.
    pub protection: Option<PageProtection>,
    /// Length of the journal, from 128 KiB to 64 GiB. A journal of another length is written home and created again.
    pub journal_len_bytes: u64,
    /// Object files to keep open, at least 1. Files with bytes that are not synced count, but stay open.
    pub max_open_files: usize,
    /// Make a new journal in place of one that is missing or not usable. The caller then rebuilds the pages that only the
    /// lost one had ([`crate::PageStore::has_replaced_journal`]).
    pub replaces_lost_journal: bool,
}

impl Default for FilePageStoreOptions {
    fn default() -> Self {
        Self {
            protection: None,
            journal_len_bytes: 32 << 20,
            max_open_files: 512,
            replaces_lost_journal: false,
        }
    }
}

impl FilePageStoreOptions {
    pub(super) fn check(&self) -> Result<(), PageStoreError> {
        let len = self.journal_len_bytes;
        if !(MIN_JOURNAL_LEN..=MAX_JOURNAL_LEN).contains(&len) || !len.is_multiple_of(BLOCK as u64) {
            return Err(PageStoreError::InvalidOption {
                option: "journal_len_bytes",
                reason: format!(
                    "{len} is not a multiple of {BLOCK} from {MIN_JOURNAL_LEN} to {MAX_JOURNAL_LEN}"
                ),
            });
        }
        if self.max_open_files == 0 {
            let reason = "0 files are too few: use 1 or more".into();
            return Err(PageStoreError::InvalidOption { option: "max_open_files", reason });
        }
        Ok(())
    }
}
