//! Pages that the node requests whole, because its own are damaged or differ, though redo explains them.
//!
//! A page's next write is sent. A page that is not changed any more has none, and may leave the server's memory: then its last
//! write is sent, if it is kept ([`crate::content::verify`]). It has all changes up to the stream's end if no redo of the page
//! has come since, which the hash of its content shows (MySQL). Redo is noted before it is appended. So what is unchanged
//! while nothing can be appended is followed by all later redo of the page.
//!
//! A page is not sent if the node could not read the image, because the page is encrypted, or compressed with an algorithm
//! that the node does not have. Such a request stays until its file is created, replaced or removed.

use super::classify_page::{PageFacts, facts};
use super::{Tablespace, Tablespaces};
use crate::base::real::Errno;
use crate::content::Content;
use crate::content::names::NamesLock;
use redoubt_page::Format;
use redoubt_redo::PageId;
use redoubt_wire::Seq;
use redoubt_wire::stream::{Counter, StreamFrame};

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

impl Tablespaces {
    /// The node requests this page: sends its last write, if that is kept and is still the page.
    pub fn send_kept(&self, content: &Content, path: &[u8], page_no: u32) {
        let Some((id, page)) = content.dropped_images.newest(path, page_no) else { return };
        let lock = content.names.lock_shared();
        if let Some(tablespace) = self.files.known(path) {
            // The stream is dead after an error, and reports that itself.
            let _ = tablespace.send_if_unchanged(content, &lock, (page_no, id), &page);
        }
    }
}

impl Tablespace {
    /// The image of a page is in the stream, up to `end`.
    pub(super) fn image_sent(
        &self,
        content: &Content,
        path: &[u8],
        page_no: u32,
        len_bytes: usize,
        end: Seq,
    ) {
        content.stream.wanted_pages().remove(path, page_no);
        content.need.raise(self.number, page_no, end);
        // Again: it may have been read ahead since, and before the image was in the stream.
        self.take_out_of_cache(content, page_no);
        content.counters.add(Counter::ImageBytes, len_bytes as u64);
        self.sent(end);
    }

    fn send_if_unchanged(
        &self,
        content: &Content,
        lock: &NamesLock<'_>,
        (page_no, id): (u32, PageId),
        page: &[u8],
    ) -> Result<(), Errno> {
        let info = *self.lock_info();
        let (Some(path), Some(facts)) = (self.name.path(lock), facts(content.family, page, info, page_no))
        else {
            return Ok(());
        };
        let is_whole = self.page_size(content) == Some(page.len());
        let Some(hash) = self.content_hash(content, info, id, page) else { return Ok(()) };
        if facts.id != Some(id) || !is_whole || !is_readable(facts, info.format, page) {
            return Ok(());
        }
        let frame = StreamFrame::Image { path: &path, page_no, page, is_recovered: false };
        let is_due =
            || content.stream.wanted_pages().contains(&path, page_no) && content.dirty.is_unchanged(id, hash);
        if let Some(end) = content.stream.append_if(&frame, is_due)? {
            self.image_sent(content, &path, page_no, page.len(), end);
        }
        Ok(())
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
