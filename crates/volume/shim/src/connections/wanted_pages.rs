//! Pages that the node requests whole, because its own are damaged or differ: the next write of each goes into the stream as
//! an image, though redo explains it. If the last write is still kept, and the page is unchanged since (MySQL), that write is
//! sent at once (`kinds::tablespace::wanted`).
//!
//! A request ends when the page is sent as an image for any reason, and when its file is created, replaced or removed: it is
//! about a page of the former file. It moves with a file that is renamed. The node repeats its requests when this server
//! connects again, and those for pages that differ more often. So a request that finds no room is dropped.

use redoubt_locks::IgnorePoison;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// More than the node requests at once.
const PAGES_MAX: usize = 16_384;

/// Pages whose images the node requests, by the path of their file in the data directory.
#[derive(Debug, Default)]
pub struct WantedPages {
    pages: Mutex<FxHashMap<Vec<u8>, BTreeSet<u32>>>,
    /// Number of pages, so that a write looks no further if there are none.
    count: AtomicUsize,
}

impl WantedPages {
    /// The node requests this page. False: it does already, or there is no room.
    pub fn add(&self, path: Vec<u8>, page_no: u32) -> bool {
        let mut pages = self.pages.lock().ignore_poison();
        let is_new =
            self.count.load(Ordering::Acquire) < PAGES_MAX && pages.entry(path).or_default().insert(page_no);
        if is_new {
            self.count.fetch_add(1, Ordering::AcqRel);
        }
        is_new
    }

    /// Whether some page is wanted.
    pub fn has_any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Whether this page is wanted.
    pub fn contains(&self, path: &[u8], page_no: u32) -> bool {
        let pages = self.pages.lock().ignore_poison();
        pages.get(path).is_some_and(|of_file| of_file.contains(&page_no))
    }

    /// The page is not wanted any more.
    pub fn remove(&self, path: &[u8], page_no: u32) {
        if !self.has_any() {
            return;
        }
        let mut pages = self.pages.lock().ignore_poison();
        let Some(of_file) = pages.get_mut(path) else { return };
        if of_file.remove(&page_no) {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
        if of_file.is_empty() {
            pages.remove(path);
        }
    }

    /// The file at `path`, or the files below that directory, are others from now on, or gone.
    pub fn forget(&self, path: &[u8]) {
        if !self.has_any() {
            return;
        }
        let mut pages = self.pages.lock().ignore_poison();
        pages.retain(|of, of_file| {
            let is_meant = below(path, of).is_some();
            if is_meant {
                self.count.fetch_sub(of_file.len(), Ordering::AcqRel);
            }
            !is_meant
        });
    }

    /// The file at `from`, or the files below that directory, are at `to` from now on.
    pub fn renamed(&self, from: &[u8], to: &[u8]) {
        if !self.has_any() {
            return;
        }
        let mut pages = self.pages.lock().ignore_poison();
        let moved: Vec<_> = pages.keys().filter(|of| below(from, of).is_some()).cloned().collect();
        for of in moved {
            let (Some(rest), Some(of_file)) = (below(from, &of), pages.remove(&of)) else { continue };
            if let Some(replaced) = pages.insert([to, rest].concat(), of_file) {
                self.count.fetch_sub(replaced.len(), Ordering::AcqRel);
            }
        }
    }
}

/// The rest of `path`, if it is `ancestor` or below it.
fn below<'p>(ancestor: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    path.strip_prefix(ancestor).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_page_is_wanted_until_it_is_removed() {
        let wanted = WantedPages::default();
        assert!(!wanted.has_any());
        assert!(wanted.add(b"d/t.ibd".to_vec(), 3) && wanted.add(b"d/t.ibd".to_vec(), 4));
        assert!(!wanted.add(b"d/t.ibd".to_vec(), 3));
        assert!(!wanted.contains(b"d/u.ibd", 3) && !wanted.contains(b"d/t.ibd", 5));
        assert!(wanted.contains(b"d/t.ibd", 3) && wanted.contains(b"d/t.ibd", 3));
        for _ in 0..2 {
            wanted.remove(b"d/t.ibd", 3);
            assert!(wanted.has_any() && !wanted.contains(b"d/t.ibd", 3));
        }
        wanted.remove(b"d/t.ibd", 4);
        assert!(!wanted.has_any());
    }

    #[test]
    fn requests_of_a_file_end_with_its_name() {
        let wanted = WantedPages::default();
        for path in [&b"d/t.ibd"[..], b"d/t.ibdx", b"d2/t.ibd"] {
            assert!(wanted.add(path.to_vec(), 3) && wanted.add(path.to_vec(), 4));
        }
        wanted.forget(b"d/t.ibd");
        assert!(!wanted.contains(b"d/t.ibd", 3) && wanted.contains(b"d/t.ibdx", 3));
        wanted.forget(b"d");
        assert!(!wanted.contains(b"d/t.ibdx", 3) && wanted.contains(b"d2/t.ibd", 4));
        wanted.forget(b"d2/t.ibd");
        assert!(!wanted.has_any());
    }

    #[test]
    fn requests_move_with_a_renamed_file_or_directory() {
        let wanted = WantedPages::default();
        for path in [&b"d/t.ibd"[..], b"d/tx.ibd", b"d2/t.ibd"] {
            assert!(wanted.add(path.to_vec(), 3));
        }
        wanted.renamed(b"d/t.ibd", b"d/u.ibd");
        assert!(!wanted.contains(b"d/t.ibd", 3) && wanted.contains(b"d/u.ibd", 3));
        // The file of this name is replaced.
        wanted.renamed(b"d2/t.ibd", b"d/tx.ibd");
        wanted.renamed(b"d", b"e");
        assert!(wanted.contains(b"e/u.ibd", 3) && wanted.contains(b"e/tx.ibd", 3));
        assert!(!wanted.contains(b"d/u.ibd", 3));
        wanted.remove(b"e/u.ibd", 3);
        assert!(wanted.has_any());
        wanted.remove(b"e/tx.ibd", 3);
        assert!(!wanted.has_any());
    }

    #[test]
    fn requests_beyond_the_limit_are_dropped() {
        let wanted = WantedPages::default();
        (0..PAGES_MAX as u32).for_each(|page_no| assert!(wanted.add(b"d/t.ibd".to_vec(), page_no)));
        assert!(!wanted.add(b"d/t.ibd".to_vec(), PAGES_MAX as u32));
        assert!(wanted.contains(b"d/t.ibd", PAGES_MAX as u32 - 1));
        assert!(!wanted.contains(b"d/t.ibd", PAGES_MAX as u32));
    }
}
