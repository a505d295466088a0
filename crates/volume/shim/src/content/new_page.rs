//! Pages that started again in the redo, and the checks by which an image of such a page agrees with its redo.
//!
//! MySQL fills pages without redo when it builds an index by sorting, and a page keeps the LSN of its last redo then:
//! its LSN alone does not show that it holds more. All such pages are new ones, or the root of an index that was just
//! created. Each is written before any of its changes is logged (`Flush_observer` in `buf/buf0flu.cc`,
//! `btr/btr0load.cc`, `lob/lob0impl.cc`). So the records of a page are counted from where it starts again in the redo
//! until it was written. (Pages need not start again there: [`super::fresh_indexes`].)
//!
//! * A page of an index must have been made one by a record, and have as many records as the redo has put there.
//!   Where redo removes a list of records, without their number, the page was not filled without it.
//! * Any other page must have been changed by a record since it was allocated, or be empty.
//!
//! Pure. Invariant: [`NewPage::agrees`] holds for every page whose content is all in the redo.

use redoubt_page::layout::{
    FIL_PAGE_DATA, FIL_PAGE_TRAILER_BYTES, PAGE_N_RECS, TYPE_INDEX, TYPE_RTREE, get_u16, page_type,
};
use redoubt_redo::RunContent;

/// Page type of the dictionary's own description of a tablespace, which is an index.
const TYPE_SDI: u16 = 17853;

/// Changes by redo to a page since it started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewPage {
    /// It was allocated.
    Allocated {
        /// A record has changed it since.
        is_changed: bool,
        /// It has got what only the root of an index has.
        is_root: bool,
    },
    /// It was made an empty page of an index.
    Index {
        /// Records put there since; `None`: not known.
        records: Option<u32>,
        /// It is the root of an index that was created then.
        is_root: bool,
    },
}

impl NewPage {
    /// State after a run; `before`: the state before it. `begins`: the page starts again in the run.
    pub fn after(before: Option<Self>, content: &RunContent, begins: bool) -> Option<Self> {
        let before = before.filter(|_| !begins);
        if content.is_created {
            let was_root = matches!(before, Some(Self::Allocated { is_root: true, .. }));
            let records = content.records.map(|records| records.max(0).unsigned_abs());
            return Some(Self::Index { records, is_root: was_root || (begins && content.has_segments) });
        }
        if begins {
            return Some(Self::Allocated { is_changed: content.is_changed, is_root: content.has_segments });
        }
        Some(match before? {
            Self::Allocated { is_changed, is_root } => Self::Allocated {
                is_changed: is_changed || content.is_changed,
                is_root: is_root || content.has_segments,
            },
            Self::Index { records, is_root } => Self::Index {
                records: records
                    .zip(content.records)
                    .map(|(records, more)| records.saturating_add_signed(more)),
                is_root,
            },
        })
    }

    /// The image may be the result of the redo.
    pub fn agrees(self, image: &[u8]) -> bool {
        let is_index = is_index_page(image);
        match self {
            Self::Allocated { is_changed, .. } => !is_index && (is_changed || is_empty(image)),
            Self::Index { records: None, .. } => is_index,
            Self::Index { records: Some(records), .. } => {
                is_index && get_u16(image, PAGE_N_RECS).map(u32::from) == Some(records)
            }
        }
    }

    /// It may still be filled without redo after its current content was written.
    pub fn is_empty_index(self) -> bool {
        matches!(self, Self::Index { records: Some(0), .. })
    }

    /// It is the root of an index that was created since, and has no records.
    pub fn is_empty_root(self) -> bool {
        self == Self::Index { records: Some(0), is_root: true }
    }

    /// It was changed by redo since it began again.
    pub fn is_changed(self) -> bool {
        !matches!(self, Self::Allocated { is_changed: false, .. })
    }
}

/// The page is one of an index.
pub fn is_index_page(image: &[u8]) -> bool {
    matches!(page_type(image), Some(TYPE_INDEX | TYPE_RTREE | TYPE_SDI))
}

/// Nothing was written to the page since it was allocated.
fn is_empty(image: &[u8]) -> bool {
    let end = image.len().saturating_sub(FIL_PAGE_TRAILER_BYTES);
    image.get(FIL_PAGE_DATA..end).is_some_and(|body| body.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
#[path = "new_page_tests.rs"]
mod tests;
