//! A tablespace file and the page cache: reads that may be answered from it, answers that it stores, and requests
//! ahead of the server.
//!
//! Only whole single pages, never page 0 (which the server also reads while it has a newer one in its buffer pool).

use super::{Info, Tablespace, page_id};
use crate::base::message::{self, show};
use crate::base::real::Errno;
use crate::content::Content;
use crate::content::page_cache::{CacheKey, Ticket};
use crate::content::read_ahead::Job;
use redoubt_locks::IgnorePoison;
use redoubt_page::format::page_lsn;
use redoubt_redo::{Family, Lsn, PageId, SpaceId};
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::stream::Counter;

/// Result of a lookup in the cache.
pub(super) enum Cached {
    /// The bytes.
    Hit,
    /// Not there: the node's answer may go in.
    Miss(CacheKey, Ticket),
    /// These bytes are not for the cache.
    No,
}

impl Cached {
    /// The node answered with this.
    pub(super) fn keep(&self, content: &Content, bytes: &[u8]) {
        if let (Self::Miss(key, asked), Some(cache)) = (self, &content.page_cache) {
            cache.put_answer(*key, bytes, *asked);
        }
    }
}

/// The part of a page, besides its digest, that must be equal in the same version.
fn version_of(family: Family, page: &[u8]) -> Option<Lsn> {
    match family {
        Family::MariaDb => page_lsn(family, page),
        // See `Verify` on the node.
        Family::MySql => None,
    }
}

impl Tablespace {
    const fn cache_key(&self, page_no: u32) -> CacheKey {
        CacheKey { file: self.number, page_no }
    }

    /// Fills `out` with bytes of the file, if they are in the cache or on their way there.
    ///
    /// # Errors
    /// `EIO` when the pages are verified and the node's differs.
    pub(super) fn look_into_cache(
        &self,
        content: &Content,
        offset_bytes: u64,
        out: &mut [u8],
        file_len_bytes: u64,
    ) -> Result<Cached, Errno> {
        let Some(cache) = &content.page_cache else { return Ok(Cached::No) };
        let Some(page_no) = self.single_page(content, offset_bytes, out.len()) else { return Ok(Cached::No) };
        let info = *self.lock_info();
        let Some(space) = info.space else { return Ok(Cached::No) };
        let key = self.cache_key(page_no);
        let id = page_id(space, info, page_no);
        self.read_ahead(content, (info, space), page_no, out.len(), file_len_bytes);
        let mut is_hit = || {
            Ok(cache.get(key, out)
                && !content.dirty.contains(id)
                && self.is_verified(content, id, page_no, offset_bytes, out)?)
        };
        if is_hit()? || (content.read_ahead.wait_for(key) && is_hit()?) {
            content.counters.add(Counter::CacheHits, u64::from(cache.keeps_all()));
            return Ok(Cached::Hit);
        }
        content.counters.add(Counter::CacheMisses, u64::from(cache.keeps_all()));
        Ok(Cached::Miss(key, cache.ticket(key)))
    }

    /// Asks for the pages after this one, if the file is being read in sequence.
    fn read_ahead(
        &self,
        content: &Content,
        (info, space): (Info, SpaceId),
        page_no: u32,
        page_len_bytes: usize,
        file_len_bytes: u64,
    ) {
        let (Some(file), true) = (info.file, content.read_ahead.is_on()) else { return };
        let window_pages = content.read_ahead.window_pages(page_len_bytes);
        let pages = {
            let mut readers = self.readers.lock().ignore_poison();
            readers.on_read(page_no, window_pages)
        };
        let Some(pages) = pages else { return };
        let page_count = u32::try_from(file_len_bytes / page_len_bytes as u64).unwrap_or(u32::MAX);
        let mut missing = (pages.start..pages.end.min(page_count)).filter(|page_no| {
            !content.page_cache.as_ref().is_some_and(|cache| cache.contains(self.cache_key(*page_no)))
        });
        let Some(first) = missing.next() else { return };
        let pages = first..missing.last().unwrap_or(first) + 1;
        let first = page_id(space, info, 0);
        content.read_ahead.ask(Job { number: self.number, file, first, pages, page_len_bytes });
    }

    /// The server wrote this, and redo explains it.
    pub(super) fn put_into_cache(&self, content: &Content, page_no: u32, page: &[u8], page_size: usize) {
        let Some(cache) = &content.page_cache else { return };
        if page_no > 0 && page.len() == page_size {
            cache.put(self.cache_key(page_no), page);
        } else {
            cache.remove(self.cache_key(page_no));
        }
    }

    /// The server wrote something else.
    pub(super) fn take_out_of_cache(&self, content: &Content, page_no: u32) {
        if let Some(cache) = &content.page_cache {
            cache.remove(self.cache_key(page_no));
        }
    }

    /// The file has this length now.
    pub(super) fn cut_cache(&self, content: &Content, len_bytes: u64) {
        let Some(cache) = &content.page_cache else { return };
        let first_page_no = self.page_size(content).map_or(0, |size| len_bytes / size as u64);
        cache.remove_file(self.number, u32::try_from(first_page_no).unwrap_or(u32::MAX));
    }

    /// With every page verified the node's page must be the same. False: redo of the page has come meanwhile (it was
    /// freed, and is read ahead).
    fn is_verified(
        &self,
        content: &Content,
        id: PageId,
        page_no: u32,
        offset_bytes: u64,
        cached: &[u8],
    ) -> Result<bool, Errno> {
        let info = *self.lock_info();
        let (true, Some(file), Some(format)) =
            (content.dropped_images.verifies_all(), info.file, info.format)
        else {
            return Ok(true);
        };
        let need = content.need.get(self.number, page_no);
        let request = PageRequest::Read { need, file, offset_bytes, len_bytes: cached.len() as u32 };
        let digest_of = |page: &[u8]| match format.decompress(page) {
            Ok(Some(plain)) => Some((version_of(content.family, page), format.digest(&plain))),
            Ok(None) => Some((version_of(content.family, page), format.digest(page))),
            Err(_) => None,
        };
        let ours = digest_of(cached);
        let theirs = content.pool.request(&request, |reply| match reply {
            PageReply::Bytes(page) => digest_of(page),
            _ => None,
        })?;
        if ours.is_some() && ours == theirs {
            return Ok(true);
        }
        if content.dirty.contains(id) {
            return Ok(false);
        }
        let path = self
            .name
            .path(&content.names.lock_shared())
            .map_or_else(|| "a deleted file".to_owned(), |path| show(&path));
        message::error(&format!(
            "page {page_no} of {path} in the page cache differs from the storage node's: LSN and digest {ours:?} here, \
             {theirs:?} there; please report this, and start the server without --page-cache"
        ));
        content.stream.die("a page in the page cache is not the newest");
        Err(Errno::EIO)
    }
}
