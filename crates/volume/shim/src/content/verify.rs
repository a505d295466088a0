//! Comparing dropped pages with the node's.
//!
//! For selected page writes a digest is sent in the stream. The images themselves are kept for a while in a bounded
//! ring, oldest out first, so that the node can request an image that differs: for its report, and in place of its own page.

use crate::base::config::{OnDifference, Verify};
use crate::base::counters::Counters;
use crate::base::message::{self, show};
use crate::connections::pool::PagePool;
use crate::connections::stream::{DifferingPage, Stream};
use redoubt_locks::IgnorePoison;
use redoubt_page::Format;
use redoubt_redo::{Lsn, PageId};
use redoubt_wire::page::PageRequest;
use redoubt_wire::stream::{self as frames, Counter};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const KEPT_LIMIT_BYTES: usize = 32 << 20;

struct Dropped {
    path: Arc<[u8]>,
    page_no: u32,
    id: PageId,
    lsn: Lsn,
    page: Vec<u8>,
}

/// The ring. Invariant: it holds at most [`KEPT_LIMIT_BYTES`] of images.
pub struct DroppedImages {
    verify: Verify,
    on_difference: OnDifference,
    ring: Mutex<(VecDeque<Dropped>, usize)>,
    writes: AtomicU64,
}

impl DroppedImages {
    /// No images yet, of the pages that are chosen by `verify`.
    pub fn new(verify: Verify, on_difference: OnDifference) -> Self {
        Self { verify, on_difference, ring: Mutex::default(), writes: AtomicU64::new(0) }
    }

    /// Every page is compared.
    pub const fn verifies_all(&self) -> bool {
        matches!(self.verify, Verify::OneOf(1))
    }

    fn keep(&self, dropped: Dropped) {
        let mut ring = self.ring.lock().ignore_poison();
        let (images, len_bytes) = &mut *ring;
        *len_bytes += dropped.page.len();
        images.push_back(dropped);
        while *len_bytes > KEPT_LIMIT_BYTES
            && let Some(oldest) = images.pop_front()
        {
            *len_bytes -= oldest.page.len();
        }
    }

    /// Sends the image the node asked for; an empty one if it is gone.
    pub fn answer(&self, pool: &PagePool, wanted: &DifferingPage) {
        message::error(&format!(
            "the storage node's version of page {} of {} at LSN {} differs from the server's; sending it the page",
            wanted.page_no,
            show(&wanted.path),
            wanted.lsn
        ));
        let ring = self.ring.lock().ignore_poison();
        let page = ring.0.iter().rev().find(|dropped| {
            (&*dropped.path, dropped.page_no, dropped.lsn) == (&*wanted.path, wanted.page_no, wanted.lsn)
        });
        let page = page.map(|dropped| dropped.page.clone()).unwrap_or_default();
        drop(ring);
        let DifferingPage { path, page_no, lsn } = wanted;
        let request = PageRequest::MismatchImage { path, page_no: *page_no, lsn: *lsn, page: &page };
        let _ = pool.request(&request, |_| ());
    }

    /// The last write of this page, if it is kept.
    pub fn newest(&self, path: &[u8], page_no: u32) -> Option<(PageId, Vec<u8>)> {
        let ring = self.ring.lock().ignore_poison();
        let of_page = |dropped: &&Dropped| (&*dropped.path, dropped.page_no) == (path, page_no);
        ring.0.iter().rev().find(of_page).map(|dropped| (dropped.id, dropped.page.clone()))
    }

    /// Sends the digest of a dropped page, if this one is chosen and can be read.
    pub fn send(&self, stream: &Stream, counters: &Counters, dropped: &DroppedPage<'_>) {
        let DroppedPage { path, page_no, id, page, lsn, format } = *dropped;
        let Verify::OneOf(n) = self.verify else { return };
        if !self.writes.fetch_add(1, Ordering::Relaxed).is_multiple_of(n) {
            return;
        }
        let digest = match format.decompress(page) {
            Ok(Some(decompressed)) => format.digest(&decompressed),
            Ok(None) => format.digest(page),
            // Its algorithm is not known here: nothing to compare.
            Err(_) => return,
        };
        self.keep(Dropped { path: Arc::clone(path), page_no, id, lsn, page: page.to_vec() });
        let heals = self.on_difference == OnDifference::Heal;
        stream.append_verify(frames::Verify { path, page_no, lsn, digest }, heals);
        counters.add(Counter::VerifySent, 1);
    }
}

/// A page write that redo explained.
#[derive(Clone, Copy)]
pub struct DroppedPage<'a> {
    /// The tablespace file.
    pub path: &'a Arc<[u8]>,
    /// Inside it.
    pub page_no: u32,
    /// Its identity.
    pub id: PageId,
    /// The page.
    pub page: &'a [u8],
    /// Its page LSN.
    pub lsn: Lsn,
    /// Format of the tablespace.
    pub format: Format,
}
