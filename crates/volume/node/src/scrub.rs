//! Scrub: reading what is stored, to find damage while it can still be repaired. This module has the parts without a
//! volume: the rate, and the changes that pages must have.

use crate::error::NodeError;
use crate::log_buffer::Chunk;
use redoubt_redo::{Family, FileRecord, Lsn, Mtr, PageId, walk_mtrs};
use redoubt_sync::{Mutex, time};
use redoubt_wire::stream::{StreamFrame, decode};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Pages of all volumes whose newest change is remembered, some 40 bytes each. Others are not compared with the log.
pub const CHANGED_PAGES_MAX: usize = 1 << 20;
/// The slowest rate of a pass: small volumes are done soon.
pub const RATE_MIN_BYTES_PER_SECOND: u64 = 1 << 20;
/// Part of the period in which a pass is to be complete.
const PART_OF_PERIOD: f64 = 0.9;
/// While a server reads or writes, a pass waits this many times as long as its last read took.
const REST_FACTOR: u32 = 4;
/// Most time of such a rest: a slow drive does not end a pass.
const REST_MAX: Duration = Duration::from_millis(500);

/// How and when volumes are scrubbed.
#[derive(Clone, Debug)]
pub struct ScrubOptions {
    /// Time between the beginnings of two passes; `None`: only `redoubt volume check` reads. Default 7 days.
    pub period: Option<Duration>,
    /// Highest rate of all passes together. Default 32 MiB/s.
    pub rate_bytes_per_second: u64,
    /// Time between the opening of a volume and its first pass. Default 10 minutes.
    pub first_delay: Duration,
    /// Shared by the copies of these options.
    pub budget: Arc<ScrubBudget>,
}

/// Rate and memory, which all passes of a node share.
#[derive(Debug, Default)]
pub struct ScrubBudget {
    /// When the bytes read so far are paid for.
    free_at: Mutex<Option<Instant>>,
    /// Pages that are remembered.
    changed_pages: AtomicUsize,
}

impl ScrubBudget {
    /// How long a pass that has read `bytes` waits, so that all passes together keep the rate.
    pub fn pay(&self, bytes: u64, rate_bytes_per_second: u64) -> Duration {
        let now = time::now();
        let mut free_at = self.free_at.lock();
        let took = Duration::from_secs_f64(bytes as f64 / rate_bytes_per_second.max(1) as f64);
        let paid_at = free_at.map_or(now, |free_at| free_at.max(now)) + took;
        *free_at = Some(paid_at);
        paid_at.saturating_duration_since(now)
    }

    fn take_page(&self) -> bool {
        let has_room = self.changed_pages.fetch_add(1, Ordering::Relaxed) < CHANGED_PAGES_MAX;
        if !has_room {
            self.give_back(1);
        }
        has_room
    }

    fn give_back(&self, pages: usize) {
        self.changed_pages.fetch_sub(pages, Ordering::Relaxed);
    }
}

impl Default for ScrubOptions {
    fn default() -> Self {
        Self {
            period: Some(Duration::from_secs(7 * 24 * 3600)),
            rate_bytes_per_second: 32 << 20,
            first_delay: Duration::from_secs(600),
            budget: Arc::default(),
        }
    }
}

/// The rate at which `total_bytes` are read in a period.
pub fn scheduled_rate(total_bytes: u64, period: Duration, most_bytes_per_second: u64) -> u64 {
    let needed = total_bytes as f64 / (period.as_secs_f64() * PART_OF_PERIOD).max(1.0);
    (needed as u64).max(RATE_MIN_BYTES_PER_SECOND).min(most_bytes_per_second.max(1))
}

/// How long to wait after a step that read `bytes` and took `took`. `is_busy`: a server has read or written meanwhile.
pub fn due(bytes: u64, took: Duration, rate_bytes_per_second: u64, is_busy: bool) -> Duration {
    let wanted = Duration::from_secs_f64(bytes as f64 / rate_bytes_per_second.max(1) as f64);
    let of_rate = wanted.saturating_sub(took);
    if is_busy { of_rate.max((took * REST_FACTOR).min(REST_MAX)) } else { of_rate }
}

/// The newest change of each page in the log: a stored page that would still take it lacks it.
#[derive(Default)]
pub struct NewestChanges {
    spaces: FxHashMap<u32, FxHashMap<u32, Lsn>>,
    pages: usize,
    budget: Arc<ScrubBudget>,
}

impl Drop for NewestChanges {
    fn drop(&mut self) {
        self.forget(self.pages);
    }
}

impl NewestChanges {
    /// Nothing known yet.
    pub fn new(budget: &Arc<ScrubBudget>) -> Self {
        Self { spaces: FxHashMap::default(), pages: 0, budget: Arc::clone(budget) }
    }

    fn forget(&mut self, pages: usize) {
        self.pages -= pages;
        self.budget.give_back(pages);
    }

    /// Takes in the next frame of the log.
    ///
    /// # Errors
    /// [`NodeError::Redo`] or [`NodeError::Wire`] if it is damaged.
    pub fn frame(&mut self, family: Family, chunk: &Chunk) -> Result<(), NodeError> {
        let StreamFrame::Redo(bytes) = decode(chunk.kind, chunk.payload())? else { return Ok(()) };
        let mut visitor = |mtr: &Mtr<'_, '_>| self.mtr(family, mtr);
        walk_mtrs(family, bytes, chunk.start.lsn, &mut visitor)
            .map_err(|error| NodeError::Redo { lsn: error.mtr_lsn, reason: error.error.to_string() })?;
        Ok(())
    }

    fn mtr(&mut self, family: Family, mtr: &Mtr<'_, '_>) {
        for note in mtr.files {
            // MySQL writes page 0 of a new file before it logs that the file is there.
            let is_new = family == Family::MariaDb && matches!(note.record, FileRecord::Create { .. });
            if is_new || matches!(note.record, FileRecord::Delete { .. }) {
                let removed = self.spaces.remove(&note.space.0).map_or(0, |pages| pages.len());
                self.forget(removed);
            }
        }
        for run in mtr.runs {
            let (space, page_no) = (run.page.space.0, run.page.page_no.0);
            if let Some(first) = run.trims_from() {
                if let Some(pages) = self.spaces.get_mut(&space) {
                    let before = pages.len();
                    pages.retain(|page_no, _| *page_no < first.0);
                    let removed = before - pages.len();
                    self.forget(removed);
                }
            } else if run.ends_with_free {
                let removed = self.spaces.get_mut(&space).and_then(|pages| pages.remove(&page_no));
                self.forget(usize::from(removed.is_some()));
            } else {
                self.changed(space, page_no, mtr.start_lsn);
            }
        }
    }

    fn changed(&mut self, space: u32, page_no: u32, start_lsn: Lsn) {
        let pages = self.spaces.entry(space).or_default();
        if let Some(newest) = pages.get_mut(&page_no) {
            *newest = start_lsn;
        } else if self.budget.take_page() {
            pages.insert(page_no, start_lsn);
            self.pages += 1;
        }
    }

    /// The start of the newest change of a page.
    pub fn of(&self, page: PageId) -> Option<Lsn> {
        self.spaces.get(&page.space.0)?.get(&page.page_no.0).copied()
    }
}

#[cfg(test)]
#[path = "scrub_tests.rs"]
mod tests;
