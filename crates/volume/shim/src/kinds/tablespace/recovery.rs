//! Pages that the server's own recovery writes, and page 0, which must be read back as it was written.
//!
//! Recovery in several batches (the redo is larger than what the buffer pool holds) writes pages after each batch, in
//! versions that are older than what the redo before this session leads to. The node has the newest version of each
//! and must not get those as images; a later batch reads the newest and skips all records of it. The pages themselves
//! become the same in this way. But the server keeps a copy of some fields of a tablespace's page 0 in memory
//! (`FSP_SIZE`, `FSP_FREE_LIMIT`, the length of `FSP_FREE`, flags: `recv_recover_page` in `log0recv.cc`). It sets the
//! copy when it opens the file and again whenever it *applies* a record to that page. A batch that builds the page
//! from its `INIT_PAGE` record sets that copy back to the end of the batch; if later batches then had nothing to
//! apply, it would stay there. The server would treat pages beyond the old limit as free, and drop what the change
//! buffer has for them.
//!
//! So page 0 reads as the server wrote it last, until it writes it again. Invariant: the kept page is the last write
//! to page 0 of this file, and the node's version is newer than it.

use super::{Info, PageFacts, Tablespace};
use crate::base::real::Errno;
use crate::content::Content;
use redoubt_locks::IgnorePoison;
use redoubt_page::format::page_lsn;
use redoubt_redo::{Family, Lsn};
use redoubt_wire::page::{PageReply, PageRequest};
use std::sync::{Mutex, MutexGuard};

/// `UNIV_PAGE_SIZE_MAX`.
const LARGEST_PAGE_LEN_BYTES: u64 = 64 << 10;

/// Page 0 of a file, for as long as the node's is newer than what the server wrote last.
#[derive(Debug, Default)]
pub(super) struct KeptHeader(Mutex<Option<Box<[u8]>>>);

impl KeptHeader {
    fn lock(&self) -> MutexGuard<'_, Option<Box<[u8]>>> {
        self.0.lock().ignore_poison()
    }

    fn keep(&self, page: &[u8]) {
        *self.lock() = Some(page.into());
    }

    /// The server writes the page again, or the file no longer has it.
    pub(super) fn forget(&self) {
        *self.lock() = None;
    }

    /// Replaces the part of `out`, which holds the file's bytes from `offset_bytes` on, that is of a kept page.
    pub(super) fn lay_over(&self, out: &mut [u8], offset_bytes: u64) {
        // Nearly every read: without the lock.
        if offset_bytes >= LARGEST_PAGE_LEN_BYTES {
            return;
        }
        let kept = self.lock();
        let Some(page) = kept.as_deref() else { return };
        let Some(rest) = usize::try_from(offset_bytes).ok().and_then(|at| page.get(at..)) else { return };
        let len = rest.len().min(out.len());
        if let (Some(out), Some(rest)) = (out.get_mut(..len), rest.get(..len)) {
            out.copy_from_slice(rest);
        }
    }
}

impl Tablespace {
    /// A page of before this session that the server's own recovery rebuilt: the node's version explains it if it is
    /// as new or newer.
    ///
    /// # Errors
    /// `EIO` when the node cannot answer.
    pub(super) fn is_explained_by_node(
        &self,
        content: &Content,
        info: Info,
        (page_no, page_size): (u32, usize),
        page: &[u8],
        facts: PageFacts,
    ) -> Result<bool, Errno> {
        // An LSN that MySQL writes need not be one of the page's own redo: a page that was filled without redo has
        // that of the oldest page that is not written yet. Its recovery reads every page before it applies redo to it,
        // and here has nothing to apply then.
        if content.family == Family::MySql {
            return Ok(false);
        }
        let start_lsn = content.stream.session_start().map_or(Lsn(0), |start| start.next_lsn);
        let (Some(id), Some(file)) = (facts.id, info.file) else { return Ok(false) };
        if facts.lsn == Lsn(0) || facts.lsn > start_lsn {
            return Ok(false);
        }
        // A page-compressed page may be written without its unused rest.
        let len_bytes = page_size as u32;
        let offset_bytes = u64::from(page_no) * page_size as u64;
        let request = PageRequest::Read { need: content.stream.end(), file, offset_bytes, len_bytes };
        let newest = content.pool.request(&request, |reply| match reply {
            PageReply::Bytes(newest) => page_lsn(content.family, newest),
            _ => None,
        })?;
        if id.page_no.0 == 0 && newest.is_some_and(|newest| newest > facts.lsn) {
            self.kept_header.keep(page);
        }
        Ok(newest.is_some_and(|newest| newest >= facts.lsn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_header_lies_over_what_is_read_of_page_0() {
        let kept = KeptHeader::default();
        let read = |kept: &KeptHeader, offset_bytes, len| {
            let mut out = vec![0; len];
            kept.lay_over(&mut out, offset_bytes);
            out
        };
        assert_eq!(read(&kept, 0, 3), [0, 0, 0]);
        kept.keep(&[1, 2, 3, 4]);
        assert_eq!(read(&kept, 0, 4), [1, 2, 3, 4]);
        assert_eq!(read(&kept, 0, 6), [1, 2, 3, 4, 0, 0]);
        assert_eq!(read(&kept, 1, 2), [2, 3]);
        assert_eq!(read(&kept, 4, 2), [0, 0]);
        assert_eq!(read(&kept, u64::MAX, 2), [0, 0]);
        kept.keep(&[5, 6]);
        assert_eq!(read(&kept, 0, 4), [5, 6, 0, 0]);
        kept.forget();
        assert_eq!(read(&kept, 0, 4), [0, 0, 0, 0]);
    }
}
