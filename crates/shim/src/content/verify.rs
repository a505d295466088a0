//! Comparing dropped pages with the node's.
//!
//! For chosen page writes a digest goes along in the stream. The images themselves are kept for a while in a
//! bounded ring, oldest out first, so that the node can ask for one that differs.

use crate::config::Verify;
use crate::message::{self, show};
use crate::runtime::Runtime;
use crate::stream::ImageWanted;
use redoubt_page::{SpaceFlags, decompress, digest};
use redoubt_redo::Lsn;
use redoubt_wire::page::PageRequest;
use redoubt_wire::stream::{self as frames, Counter, StreamFrame};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const KEPT_LIMIT_BYTES: usize = 32 << 20;

struct Dropped {
    path: Arc<[u8]>,
    page_no: u32,
    lsn: Lsn,
    page: Vec<u8>,
}

/// The ring. Invariant: it holds at most [`KEPT_LIMIT_BYTES`] of images.
#[derive(Default)]
pub struct DroppedImages {
    ring: Mutex<(VecDeque<Dropped>, usize)>,
    writes: AtomicU64,
}

impl DroppedImages {
    fn keep(&self, dropped: Dropped) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
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
    pub fn answer(&self, runtime: &Runtime, wanted: &ImageWanted) {
        message::error(&format!(
            "the storage node's version of page {} of {} at LSN {} differs from the server's; sending it the page",
            wanted.page_no,
            show(&wanted.path),
            wanted.lsn
        ));
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let page = ring.0.iter().rev().find(|dropped| {
            (&*dropped.path, dropped.page_no, dropped.lsn) == (&*wanted.path, wanted.page_no, wanted.lsn)
        });
        let page = page.map(|dropped| dropped.page.clone()).unwrap_or_default();
        drop(ring);
        let ImageWanted { path, page_no, lsn } = wanted;
        let request = PageRequest::MismatchImage { path, page_no: *page_no, lsn: *lsn, page: &page };
        let _ = runtime.pool.request(&request, |_| ());
    }
}

/// Sends the digest of a dropped page, if this one is chosen and can be read.
pub fn send(runtime: &Runtime, path: &Arc<[u8]>, page_no: u32, page: &[u8], lsn: Lsn, flags: SpaceFlags) {
    let Verify::OneOf(n) = runtime.config.verify else { return };
    if !runtime.dropped_images.writes.fetch_add(1, Ordering::Relaxed).is_multiple_of(n) {
        return;
    }
    let digest = match decompress(page, flags) {
        Ok(Some(decompressed)) => digest(&decompressed, flags),
        Ok(None) => digest(page, flags),
        // Its algorithm is not known here: nothing to compare.
        Err(_) => return,
    };
    runtime.dropped_images.keep(Dropped { path: Arc::clone(path), page_no, lsn, page: page.to_vec() });
    runtime.stream.append_unlogged(&StreamFrame::Verify(frames::Verify { path, page_no, lsn, digest }));
    runtime.counters.add(Counter::VerifySent, 1);
}
