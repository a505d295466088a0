//! Where in a redo stream each page starts anew for the last time, and what that makes void.
//!
//! A page starts anew at INIT_PAGE and at FREE_PAGE, all pages of a tablespace at TRIM_PAGES and FILE_DELETE. What the stream
//! holds for a page before that has no effect, and need not fit the page that is stored: a server never writes a page that was
//! freed while it was dirty, yet moves its checkpoint past the page's first change. After a kill the file lacks those changes and
//! the log has only the later ones. The server's own recovery leaves them out in the same way, after it has scanned the whole log.
//!
//! Exact only for a stream that is known to its end: feed it whole, then ask.

use std::collections::HashMap;

use super::mtr::{Mtr, MtrVisitor};
use super::record::FileRecord;
use crate::types::{Lsn, PageId, SpaceId};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastResets {
    pages: HashMap<PageId, Lsn>,
    spaces: HashMap<SpaceId, Lsn>,
}

impl LastResets {
    /// The redo of mini-transactions that start at `start_lsn` has no effect on any page of the tablespace.
    pub fn void_space(&self, space: SpaceId, start_lsn: Lsn) -> bool {
        self.spaces.get(&space).is_some_and(|reset| start_lsn < *reset)
    }

    /// The redo of mini-transactions that start at `start_lsn` has no effect on the page.
    pub fn void_page(&self, page: PageId, start_lsn: Lsn) -> bool {
        self.void_space(page.space, start_lsn)
            || self.pages.get(&page).is_some_and(|reset| start_lsn < *reset)
    }

    /// The page starts anew in the stream: what was stored before it does not matter.
    pub fn starts_anew(&self, page: PageId) -> bool {
        self.pages.contains_key(&page) || self.spaces.contains_key(&page.space)
    }
}

impl MtrVisitor for LastResets {
    fn visit_mtr(&mut self, mtr: &Mtr<'_, '_>) {
        for note in mtr.files {
            if let FileRecord::Delete { .. } = note.record {
                self.spaces.insert(note.space, mtr.start_lsn);
            }
        }
        for run in mtr.runs {
            if run.trim_pages.is_some() {
                self.spaces.insert(run.page.space, mtr.start_lsn);
            } else if run.reset().is_some() {
                self.pages.insert(run.page, mtr.start_lsn);
            }
        }
    }
}

#[cfg(test)]
mod tests;
