//! The log covers the page journal.
//!
//! Files of pages lack changes of pages that the page journal has. The log is kept from the *cover* on: from there on it has
//! all of these changes. So a lost page journal is rebuilt from files and log ([`super::lost_journal`]).
//!
//! The page store knows for each page in its journal where the batch began that first changed it since it was written to its
//! file ([`PageStore::begin_changes`]). The oldest of these positions is the cover. Pages that the journal had when the
//! volume was opened have the cover of the checkpoint.
//!
//! The cover is not known with a checkpoint of an older build, and after an import: the redo of an import may be void. Then
//! the pages of that time are written to their files.
//!
//! Invariants: the log has everything from the cover on, and the cover does not go back.
//!
//! Bound: the log is kept for that as long as the page journal is, at most [`COVER_MAX_BYTES`], and for one batch. Pages that
//! wait longer are written to their files, some MiB of them with each batch. If there is no room for that, or if the log itself
//! waits for room, the cover is given up: commits come first.

use super::applying::{Applying, Sources};
use super::context::{Context, Waiter};
use super::retention::Retention;
use crate::checkpoint::Positions;
use crate::error::{Kind, NodeError};
use crate::mark::Point;
use redoubt_pagestore::{FIRST_POSITION, FOUND_ORIGIN, PageStore, UNKNOWN_ORIGIN};
use redoubt_wire::Seq;
use std::sync::Arc;

/// Pieces that are written to files with one batch, of some MiB each.
const PIECES: usize = 4;
/// The most of the log that is kept for the page journal: a lost one is rebuilt with several passes over that.
const COVER_MAX_BYTES: u64 = 2 << 30;
/// The cover is given up when pages could not be written to their files for this many times the bound.
const GIVEN_UP_AFTER: u64 = 2;

/// A batch that was applied.
#[derive(Clone, Copy, Debug)]
pub struct AppliedBatch {
    /// Where it begins.
    pub start: Point,
    /// A, when its checkpoint is written.
    pub applied: Point,
    /// From where on the log has everything, with the checkpoint before.
    pub kept_from: Point,
}

/// From where on the log covers the page journal.
pub struct Cover {
    context: Arc<Context>,
    /// For the pages that were in the journal when the volume was opened.
    found: Option<Point>,
}

impl Cover {
    /// With that of the checkpoint.
    pub fn found(context: &Arc<Context>, found: Option<Point>) -> Self {
        Self { context: Arc::clone(context), found }
    }

    /// Pages of a batch that begins at `start` are about to be written.
    pub fn begin_batch(&self, store: &dyn PageStore, start: Point) {
        store.begin_changes(position_of(start));
    }

    /// Damaged and outdated pages are about to be written. Their files may lack older changes than the log has.
    pub fn begin_repairs(&self, store: &dyn PageStore) {
        store.begin_changes(UNKNOWN_ORIGIN);
    }

    /// Writes them to their files. Without room, the cover is not known until there is some.
    ///
    /// # Errors
    /// Those of the page store. A lack of room is none.
    pub fn end_repairs(&self, store: &dyn PageStore) -> Result<(), NodeError> {
        self.bring_home(store, FOUND_ORIGIN)
    }

    fn of(&self, oldest: Option<u64>, retention: &Retention, batch: &AppliedBatch) -> Option<Point> {
        let AppliedBatch { applied, kept_from, .. } = *batch;
        match oldest {
            None => Some(applied),
            Some(UNKNOWN_ORIGIN) => None,
            Some(FOUND_ORIGIN) => self.found.filter(|found| found.seq >= kept_from.seq),
            Some(position) if position < position_of(kept_from) => None,
            Some(position) => {
                let remembered = retention.position_before(Seq(position))?;
                Some(if remembered.seq < kept_from.seq { kept_from } else { remembered })
            }
        }
    }

    /// The cover for the checkpoint of a batch. `has_void_redo`: redo must not be applied to pages that have it.
    ///
    /// # Errors
    /// Those of the page store. A lack of room is none.
    pub fn next(
        &self,
        store: &dyn PageStore,
        retention: &Retention,
        batch: &AppliedBatch,
        has_void_redo: bool,
    ) -> Result<Option<Point>, NodeError> {
        if has_void_redo {
            return Ok(None);
        }
        let most_bytes = self.context.options.pages.journal_len_bytes.min(COVER_MAX_BYTES);
        let kept_bytes = |cover: Point| batch.start.seq.0.saturating_sub(cover.seq.0);
        let end = match self.of(store.oldest_changes(), retention, batch) {
            Some(cover) if kept_bytes(cover) <= most_bytes => return Ok(Some(cover)),
            Some(_) => batch.start.seq.0.saturating_sub(most_bytes / 2).max(FIRST_POSITION),
            None => position_of(batch.kept_from),
        };
        self.bring_home(store, end)?;
        let cover = self.of(store.oldest_changes(), retention, batch);
        Ok(cover.filter(|cover| kept_bytes(*cover) <= GIVEN_UP_AFTER * most_bytes))
    }

    /// At most [`PIECES`].
    fn bring_home(&self, store: &dyn PageStore, end: u64) -> Result<(), NodeError> {
        for _ in 0..PIECES {
            match store.bring_home_before(end).map_err(NodeError::from) {
                Err(error) if error.kind() == Kind::Retry => {
                    tracing::warn!(event = "pages_not_brought_home", volume = self.context.name, %error, "pages of the journal cannot be written to their files; a lost page journal could not be rebuilt");
                    return Ok(());
                }
                Ok(false) if !self.context.is_closed() => {}
                done => return done.map(|_| ()),
            }
        }
        Ok(())
    }
}

fn position_of(point: Point) -> u64 {
    point.seq.0.max(FIRST_POSITION)
}

impl Applying {
    /// The log waits for room, and some of it is kept only for the page journal.
    pub(super) fn can_make_room(&self) -> bool {
        if !self.context.is_waiting(Waiter::Log) {
            return false;
        }
        let checkpoint = self.checkpoint.lock();
        checkpoint.kept_from().seq < checkpoint.log_start.seq
    }

    /// Gives up the log that is kept only for the page journal. Commits wait, so the pages are not written to their files
    /// first.
    pub(super) fn make_room(&self, sources: &Sources<'_>) -> Result<(), NodeError> {
        let positions = {
            let mut checkpoint = self.checkpoint.lock();
            checkpoint.cover = None;
            let (applied, log_start) = (checkpoint.applied, checkpoint.log_start);
            Positions { applied, log_start, cover: None }
        };
        tracing::warn!(
            event = "cover_given_up",
            volume = self.context.name,
            "the log is full: the part that is kept for a lost page journal is given up"
        );
        // First: the checkpoint may find room only then. A start does not use a cover that the log does not reach.
        self.context.with_retry(Waiter::Pages, || sources.receiving.give_up_before(positions.log_start))?;
        match self.rewrite_checkpoint(positions) {
            // The next one will not have it.
            Err(error) if error.kind() == Kind::Retry => Ok(()),
            written => written,
        }
    }
}

#[cfg(test)]
#[path = "cover_tests.rs"]
mod tests;
