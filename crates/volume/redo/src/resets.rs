//! Facts that only the end of a redo stream determines: where each page is reset for the last time, which redo that
//! makes void, and to which tablespace each file name was given last.
//!
//! A page is reset at INIT_PAGE and at FREE_PAGE, all pages of a tablespace at TRIM_PAGES and FILE_DELETE. In the
//! system tablespace TRIM_PAGES cuts off some pages, see [`RunRef::trims_from`](crate::mtr::RunRef::trims_from). Redo
//! of a page before its last reset has no effect, and need not fit the page that is stored. A server never writes a
//! page that was freed while it was dirty, yet moves its checkpoint past the page's first change. After a kill the file
//! lacks those changes and the log has only the later ones. The server's own recovery leaves them out in the same way,
//! after it has scanned the whole log.
//!
//! Exact only for a stream that is known to its end: feed it whole, then ask.

use std::collections::HashMap;

use crate::mtr::{FileRecord, Mtr, MtrVisitor, PageReset};
use crate::types::{Lsn, PageId, PageNo, SpaceId};

/// Reason why the redo of a tablespace is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpaceReset {
    /// TRIM_PAGES: its pages are reset.
    Trim,
    /// FILE_DELETE: it has no pages any more.
    Delete,
}

/// The last reset of each page and tablespace of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastResets {
    pages: HashMap<PageId, (Lsn, PageReset)>,
    spaces: HashMap<SpaceId, (Lsn, SpaceReset)>,
    /// Where tablespaces were cut: the first page that went.
    cuts: HashMap<SpaceId, Vec<(Lsn, PageNo)>>,
    names: HashMap<Vec<u8>, SpaceId>,
    /// The names of a tablespace, the last one last.
    names_of: HashMap<SpaceId, Vec<Vec<u8>>>,
    /// See [`LastResets::note_stored`].
    stored: HashMap<PageId, Lsn>,
}

impl LastResets {
    /// The redo of mini-transactions that start at `start_lsn` has no effect on any page of the tablespace.
    pub fn void_space(&self, space: SpaceId, start_lsn: Lsn) -> bool {
        self.spaces.get(&space).is_some_and(|(reset, _)| start_lsn < *reset)
    }

    /// The redo of the mini-transaction that starts at `start_lsn` has no effect on the page. A mini-transaction that
    /// frees the page may have changed it before, and is void with those changes. A mini-transaction that initialises
    /// the page counts: its redo before INIT_PAGE is left out when it is applied.
    pub fn void_page(&self, page: PageId, start_lsn: Lsn) -> bool {
        self.void_space(page.space, start_lsn)
            || self.stored.get(&page).is_some_and(|lsn| start_lsn < *lsn)
            || self.cuts_of(page).any(|cut| start_lsn <= cut)
            || self.pages.get(&page).is_some_and(|(at, reset)| match reset {
                PageReset::Init => start_lsn < *at,
                PageReset::Free => start_lsn <= *at,
            })
    }

    /// The page is stored as it was at `lsn`, and up to there nothing in the stream has an effect on it. This is for
    /// MySQL, which fills pages without redo after redo has reset them: then the stored page has more than the stream.
    pub fn note_stored(&mut self, page: PageId, lsn: Lsn) {
        if self.pages.get(&page).is_some_and(|(at, _)| *at < lsn) {
            self.pages.remove(&page);
        }
        self.stored.insert(page, lsn);
    }

    /// Where each mini-transaction starts that cut the page off.
    fn cuts_of(&self, page: PageId) -> impl Iterator<Item = Lsn> {
        let cuts = self.cuts.get(&page.space).into_iter().flatten();
        cuts.filter(move |(_, first)| *first <= page.page_no).map(|(lsn, _)| *lsn)
    }

    /// The file with this name is that of the tablespace, where the stream ends. `exists` tests whether there is a
    /// file.
    ///
    /// Names are used again (`#sql-alter-...`), so the file need not be of the tablespace that had the name when the
    /// stream begins, only of the last one. A tablespace also gets other names: TRUNCATE TABLE renames it. So a file
    /// with an earlier name need not be its own. It is its own only if no file has a later name, because the server was
    /// killed between the record of a rename and the rename.
    pub fn is_file_of(&self, space: SpaceId, path: &[u8], exists: impl Fn(&[u8]) -> bool) -> bool {
        let has_last = |path: &[u8]| self.names.get(path) == Some(&space);
        let names = self.names_of.get(&space).map_or(&[][..], Vec::as_slice);
        let later = names.iter().rev().take_while(|name| name.as_slice() != path);
        has_last(path) && !later.into_iter().any(|name| has_last(name) && exists(name))
    }

    /// The page is reset in the stream: its stored content does not matter. Where the stream ends the
    /// tablespace and its file is there all the same, the file is none that the stream made (it was put there for
    /// IMPORT TABLESPACE), so it matters, except for pages that are reset after that.
    pub fn starts_anew(&self, page: PageId) -> bool {
        let reset = self.pages.get(&page);
        match self.spaces.get(&page.space) {
            Some((_, SpaceReset::Trim)) => true,
            Some((end, SpaceReset::Delete)) => reset.is_some_and(|(at, _)| at >= end),
            None => reset.is_some() || self.cuts_of(page).next().is_some(),
        }
    }
}

impl MtrVisitor for LastResets {
    fn visit_mtr(&mut self, mtr: &Mtr<'_, '_>) {
        for note in mtr.files {
            match note.record {
                FileRecord::Create { path }
                | FileRecord::Modify { path }
                | FileRecord::Rename { new_path: path, .. } => {
                    self.names.insert(path.to_vec(), note.space);
                    let names = self.names_of.entry(note.space).or_default();
                    names.retain(|name| name != path);
                    names.push(path.to_vec());
                }
                FileRecord::Delete { .. } => {
                    self.spaces.insert(note.space, (mtr.start_lsn, SpaceReset::Delete));
                }
                FileRecord::Extend { .. } | FileRecord::Checkpoint { .. } => {}
            }
        }
        for run in mtr.runs {
            match run.trims_from() {
                Some(PageNo(0)) => {
                    self.spaces.insert(run.page.space, (mtr.start_lsn, SpaceReset::Trim));
                }
                Some(first) => {
                    self.cuts.entry(run.page.space).or_default().push((mtr.start_lsn, first));
                }
                None => {
                    if let Some(reset) = run.reset() {
                        self.pages.insert(run.page, (mtr.start_lsn, reset));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
