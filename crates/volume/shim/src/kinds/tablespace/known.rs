//! Content hashes of pages (MySQL): see [`crate::content::unchanged`].

use super::{Info, Tablespace, page_id};
use crate::content::Content;
use crate::content::unchanged::{ContentHash, Ticket};
use redoubt_page::{Format, mysql};
use redoubt_redo::{Family, PageId, SpaceId};

/// A page that is about to be read.
pub(super) struct AskedPage {
    id: PageId,
    info: Info,
    ticket: Ticket,
}

impl Tablespace {
    /// Removes the hashes of the file's pages: its content on the node changes otherwise than page by page.
    pub fn forget_content(&self, content: &Content) {
        if let Some(space) = self.lock_info().space {
            content.dirty.forget_content(space);
        }
    }

    /// Hash by which the page may be found unchanged; `None` if the page names another tablespace than that of this
    /// file, or if the file's pages are sent in any case.
    pub(super) fn content_hash(
        &self,
        content: &Content,
        info: Info,
        id: PageId,
        page: &[u8],
    ) -> Option<ContentHash> {
        let is_own = info.space == Some(id.space) && !self.adoption.is_on();
        let is_replayed = info.format.is_none_or(Format::is_replayed);
        let may_be_known = content.family == Family::MySql && is_own && is_replayed;
        may_be_known.then(|| ContentHash(mysql::content_hash(page)))
    }

    /// The page that a read of these bytes is for, if it is one page that will be known.
    pub(super) fn asked_page(
        &self,
        content: &Content,
        offset_bytes: u64,
        len_bytes: usize,
    ) -> Option<AskedPage> {
        if content.family != Family::MySql {
            return None;
        }
        let page_no = self.single_page(content, offset_bytes, len_bytes)?;
        let info = *self.lock_info();
        let first = self.is_first_system_file.then_some(SpaceId(0));
        let id = page_id(first.or(info.space)?, info, page_no);
        Some(AskedPage { id, info, ticket: content.dirty.ticket(id) })
    }

    /// The server has read the page.
    pub(super) fn note_read(&self, content: &Content, asked: Option<AskedPage>, bytes: &[u8]) {
        let Some(AskedPage { id, info, ticket }) = asked else { return };
        let hash = self.content_hash(content, info, id, bytes);
        content.dirty.note_read(id, bytes, hash.map(|hash| (hash, ticket)));
    }
}
