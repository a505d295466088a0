//! Freed pages that the server overwrites: with zeros where `innodb_immediate_scrub_data_uncompressed` is on, by a hole
//! in the file of a page-compressed table.
//!
//! Redo shows that a page was freed, not that it is to be overwritten, and the setting may change at any time; so the
//! node is notified of the server's own write. Invariant: the node is notified only of pages that the map of dirty
//! pages lists as free, with the LSN since which they are. Between that lookup and the frame's place in the stream a
//! page may be used again: it has a newer LSN on the node then, and stays. A page whose freeing this process has not
//! seen is left alone.

use super::{Info, Tablespace, page_id};
use crate::base::real::Errno;
use crate::content::Content;
use crate::content::dirty::Freed;
use crate::content::names::NamesLock;
use redoubt_redo::Lsn;
use redoubt_wire::stream::{Counter, MAX_SCRUB_PAGES, StreamFrame};
use std::ops::Range;

/// Neighbours that were free at one LSN.
struct FreePages {
    pages: Range<u32>,
    lsn: Lsn,
}

impl Tablespace {
    /// The server has punched a hole. The unused rest of a page-compressed page does not matter here.
    ///
    /// # Errors
    /// `EIO` when the node cannot be notified.
    pub fn punch(&self, content: &Content, offset_bytes: u64, len_bytes: u64) -> Result<(), Errno> {
        let Some(page_size) = self.page_size(content).map(|size| size as u64) else { return Ok(()) };
        if !offset_bytes.is_multiple_of(page_size) {
            return Ok(());
        }
        let page_at = |offset_bytes: u64| u32::try_from(offset_bytes / page_size).unwrap_or(u32::MAX);
        let pages = page_at(offset_bytes)..page_at(offset_bytes.saturating_add(len_bytes));
        let lock = content.names.lock_shared();
        for page_no in pages.clone() {
            self.take_out_of_cache(content, page_no);
        }
        self.scrub(content, &lock, pages)
    }

    /// Tells the node which of these pages to scrub.
    pub(super) fn scrub(
        &self,
        content: &Content,
        lock: &NamesLock<'_>,
        pages: Range<u32>,
    ) -> Result<(), Errno> {
        let info = *self.lock_info();
        let Some(path) = self.name.path(lock).filter(|_| !self.adoption.is_on()) else { return Ok(()) };
        let freed = |page_no| free_lsn(content, info, page_no);
        for FreePages { pages, lsn } in free_pages(pages, freed) {
            let count = pages.len() as u32;
            let frame = StreamFrame::Scrub { path: &path, page_no: pages.start, pages: count, lsn };
            let end = content.stream.append(&frame)?;
            for page_no in pages {
                content.need.raise(self.number, page_no, end);
            }
            content.counters.add(Counter::PagesScrubbed, u64::from(count));
            self.forget_content(content);
            self.sent(end);
        }
        Ok(())
    }
}

fn free_lsn(content: &Content, info: Info, page_no: u32) -> Option<Lsn> {
    match content.dirty.freed(page_id(info.space?, info, page_no)) {
        Freed::At(lsn) => Some(lsn),
        Freed::InUse | Freed::Unknown => None,
    }
}

/// The free ones among `pages`, in pieces that fit a frame.
fn free_pages(pages: Range<u32>, freed: impl Fn(u32) -> Option<Lsn>) -> Vec<FreePages> {
    let mut found: Vec<FreePages> = Vec::new();
    for page_no in pages {
        let Some(lsn) = freed(page_no) else { continue };
        match found.last_mut() {
            Some(last)
                if last.pages.end == page_no
                    && last.lsn == lsn
                    && last.pages.len() < MAX_SCRUB_PAGES as usize =>
            {
                last.pages.end += 1;
            }
            _ => found.push(FreePages { pages: page_no..page_no + 1, lsn }),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_neighbours_go_together_as_far_as_a_frame_holds() {
        let pieces = |pages, freed: &dyn Fn(u32) -> Option<Lsn>| {
            free_pages(pages, freed).into_iter().map(|piece| (piece.pages, piece.lsn.0)).collect::<Vec<_>>()
        };
        // 3 is in use; 6 and those after it were freed later.
        let freed = |page_no| (page_no != 3).then_some(Lsn(if page_no < 6 { 10 } else { 20 }));
        assert_eq!(pieces(1..8, &freed), [(1..3, 10), (4..6, 10), (6..8, 20)]);
        assert_eq!(pieces(3..4, &freed), []);
        let all = pieces(0..2 * MAX_SCRUB_PAGES + 1, &|_| Some(Lsn(7)));
        let lens: Vec<_> = all.iter().map(|(pages, _)| pages.len() as u32).collect();
        assert_eq!(lens, [MAX_SCRUB_PAGES, MAX_SCRUB_PAGES, 1]);
        assert!(pieces(u32::MAX - 1..u32::MAX, &freed).len() == 1);
    }
}
