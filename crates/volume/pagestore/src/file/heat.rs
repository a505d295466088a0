//! Which pages were written home not long ago.
//!
//! Two sets of pages, a young and an old one. A page is hot if it is in one of them. Pages written home come into the
//! young set; when that has [`GENERATION_PAGES`], it becomes the old one, and the old one is dropped. So a page stays
//! hot for one to two generations of distinct pages written home: at 16 KiB a page, for 1 to 2 GiB.

use rustc_hash::FxHashSet;

use crate::ObjectId;

/// Distinct pages in a generation.
const GENERATION_PAGES: usize = 64 << 10;

type Generation = FxHashSet<(ObjectId, u32)>;

/// The pages written home of late.
#[derive(Default)]
pub(super) struct Heat {
    young: Generation,
    old: Generation,
}

impl Heat {
    /// Notes that a page is written home; was it hot?
    pub fn note(&mut self, object: ObjectId, page_no: u32) -> bool {
        let page = (object, page_no);
        if !self.young.insert(page) {
            return true;
        }
        let is_hot = self.old.contains(&page);
        if self.young.len() >= GENERATION_PAGES {
            self.old = std::mem::take(&mut self.young);
        }
        is_hot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_cools_down_after_two_generations() {
        let mut heat = Heat::default();
        assert!(!heat.note(ObjectId(1), 0));
        assert!(heat.note(ObjectId(1), 0));
        assert!(!heat.note(ObjectId(2), 0));
        let mut others = 0..;
        let mut write_others = |heat: &mut Heat, count: usize| {
            for page_no in others.by_ref().take(count) {
                assert!(!heat.note(ObjectId(3), page_no));
            }
        };
        write_others(&mut heat, GENERATION_PAGES);
        assert!(heat.note(ObjectId(1), 0));
        write_others(&mut heat, 2 * GENERATION_PAGES);
        assert!(!heat.note(ObjectId(1), 0));
        assert!(!heat.note(ObjectId(2), 0));
    }
}
