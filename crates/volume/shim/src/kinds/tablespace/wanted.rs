//! Pages that the node requests whole, because its own are damaged, though redo explains them.
//!
//! A page is not sent if the node could not read the image, because the page is encrypted, or compressed with an algorithm
//! that the node does not have. Such a request stays until its file is created, renamed or removed.

use super::Tablespace;
use super::classify_page::PageFacts;
use crate::content::Content;
use crate::content::names::NamesLock;
use redoubt_page::Format;

impl Tablespace {
    /// The node requests this page, and can read its image.
    pub(super) fn sends_wanted(
        &self,
        content: &Content,
        lock: &NamesLock<'_>,
        (page_no, page): (u32, &[u8]),
        facts: PageFacts,
    ) -> bool {
        let wanted = content.stream.wanted_pages();
        wanted.has_any()
            && is_readable(facts, self.lock_info().format, page)
            && self.name.path(lock).is_some_and(|path| wanted.contains(&path, page_no))
    }
}

fn is_readable(facts: PageFacts, format: Option<Format>, page: &[u8]) -> bool {
    !facts.is_encrypted && format.is_none_or(|format| format.has_known_algorithm(page))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redoubt_page::SpaceFlags;
    use redoubt_redo::{Lsn, PageId};

    #[test]
    fn images_that_the_node_cannot_read_are_not_sent() {
        let clear =
            PageFacts { id: Some(PageId::new(7, 3)), lsn: Lsn(9), is_zero: false, is_encrypted: false };
        let mut page = vec![0; 16384];
        let lzma = Some(Format::of_mariadb(SpaceFlags(0x15 | 4 << 5)));
        let zlib = Some(Format::of_mariadb(SpaceFlags(0x15 | 1 << 5)));
        for format in [None, lzma, zlib] {
            assert!(is_readable(clear, format, &page));
            assert!(!is_readable(PageFacts { is_encrypted: true, ..clear }, format, &page));
        }
        // Compressed, with 1024 bytes.
        page[24..26].copy_from_slice(&0x8004_u16.to_be_bytes());
        assert!(is_readable(clear, zlib, &page) && !is_readable(clear, lzma, &page));
    }
}
