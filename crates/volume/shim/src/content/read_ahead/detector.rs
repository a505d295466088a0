//! Detection of sequential reads of a file, and of the pages worth requesting ahead. Pure.
//!
//! A *run* is a reader that moves forward through the file. Reads may come a little out of order (the server's own
//! read-ahead has several threads) and leave pages out that are in the buffer pool. Each run has a window of pages to
//! ask for at once. It begins small, and only if nearly all pages that the run has passed were read. It doubles as
//! long as that is so, and halves when less than half of them are, until the run ends.
//!
//! Invariant: a run requests no page twice, and no page that it has passed.

use std::ops::Range;

/// Maximum number of runs in one file.
const RUNS: usize = 4;
/// A read this near to a run belongs to it.
const REACH_PAGES: u32 = 4;
/// Reads before a run counts as one.
const READS_MIN: u32 = 8;
/// The smallest window, and the first.
const WINDOW_MIN_PAGES: u32 = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// After the furthest page read.
    next: u32,
    /// After the furthest page asked for.
    asked_end: u32,
    /// Asked for last time; 0: nothing has been.
    window_pages: u32,
    /// All its reads, up to what is looked for.
    reads: u32,
    /// Its position at the last request for pages, and its reads since then.
    asked_at: u32,
    reads_since: u32,
    /// When it was last seen, in reads of the file; 0: never.
    seen_at: u64,
}

/// Readers of one file.
#[derive(Debug, Default)]
pub struct Detector {
    runs: [Run; RUNS],
    reads: u64,
}

impl Detector {
    /// The server reads this page. Returns the pages to ask for now, at most `window_max_pages`.
    pub fn on_read(&mut self, page_no: u32, window_max_pages: u32) -> Option<Range<u32>> {
        self.reads += 1;
        let seen_at = self.reads;
        if let Some(run) = self.runs.iter_mut().find(|run| run.reaches(page_no)) {
            run.seen_at = seen_at;
            return run.on_read(page_no, window_max_pages);
        }
        let oldest = self.runs.iter_mut().min_by_key(|run| run.seen_at)?;
        *oldest = Run::at(page_no, seen_at);
        None
    }
}

impl Run {
    fn at(page_no: u32, seen_at: u64) -> Self {
        let next = page_no.saturating_add(1);
        Self { next, asked_end: next, window_pages: 0, reads: 1, asked_at: next, reads_since: 0, seen_at }
    }

    fn reaches(&self, page_no: u32) -> bool {
        let end = self.next.max(self.asked_end).saturating_add(REACH_PAGES);
        self.seen_at > 0 && page_no.saturating_add(REACH_PAGES) >= self.next && page_no < end
    }

    fn on_read(&mut self, page_no: u32, window_max_pages: u32) -> Option<Range<u32>> {
        self.next = self.next.max(page_no.saturating_add(1));
        self.reads = self.reads.saturating_add(1);
        self.reads_since += 1;
        if self.reads < READS_MIN || self.asked_end.saturating_sub(self.next) > self.window_pages / 2 {
            return None;
        }
        let passed = u64::from(self.next - self.asked_at);
        let read = u64::from(self.reads_since);
        self.window_pages = match self.window_pages {
            0 if read * 4 >= passed * 3 => WINDOW_MIN_PAGES,
            pages if read * 4 >= passed * 3 => pages.saturating_mul(2),
            pages if read * 2 >= passed => pages,
            pages => pages / 2,
        };
        if self.window_pages < WINDOW_MIN_PAGES {
            *self = Self::at(page_no, self.seen_at);
            return None;
        }
        self.window_pages = self.window_pages.min(window_max_pages);
        let start = self.asked_end.max(self.next);
        self.asked_end = start.saturating_add(self.window_pages);
        (self.asked_at, self.reads_since) = (self.next, 0);
        Some(start..self.asked_end).filter(|pages| !pages.is_empty())
    }
}

#[cfg(test)]
#[path = "detector_tests.rs"]
mod tests;
