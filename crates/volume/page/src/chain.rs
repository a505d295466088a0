//! Bringing one page image up to date with the mini-transactions that touched it.
//!
//! Owns the skip rule: which of the pending changes are already in the image.
//!
//! Invariants:
//! - Changes come in LSN order. A mini-transaction may contribute several runs, with the same LSNs.
//! - Without INIT_PAGE among the changes, a change is skipped iff its start LSN is below the LSN of the image
//!   *as it was given*, so later runs of one mini-transaction are never taken for already applied.
//! - With INIT_PAGE, the last one is where the page begins: all before it is ignored, and so is the image.
//! - FREE_PAGE is no change: the page keeps its content, which a late reader may still get. Only INIT_PAGE can follow;
//!   anything else is an error. Earlier redo need not fit page files as a kill left them: a caller that begins with
//!   such files first leaves out void redo (`redoubt_redo::LastResets`).
//! - Afterwards the page LSN is the end LSN of the last mini-transaction that changed the page.

use redoubt_redo::mariadb::record::Body;
use redoubt_redo::mariadb::record_reader::RecordReader;
use redoubt_redo::{Lsn, PageId};

use crate::apply::{ApplyError, Cursor, RecordKind, apply_run_from, check_size};
use crate::flags::SpaceFlags;
use crate::layout::{page_lsn, set_page_lsn};

/// The records of one mini-transaction for one page, or a part of them.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// LSN of the mini-transaction's first byte.
    pub start_lsn: Lsn,
    /// LSN after its last byte: what the page LSN becomes.
    pub end_lsn: Lsn,
    /// Consecutive records for the page; the first one carries the page ids.
    pub run: &'a [u8],
}

/// Result of [`apply_changes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ApplyOutcome {
    /// Changes applied.
    pub applied: usize,
    /// Changes that the image already held, or that a later INIT_PAGE made void.
    pub skipped: usize,
    /// The last change freed the page: its content is undefined until the next INIT_PAGE.
    pub freed: bool,
}

/// Where the page is initialised: number of the change, and of the record in its run.
#[derive(Clone, Copy)]
struct LastInit {
    change: usize,
    record: usize,
}

/// Apply `changes`, which come in LSN order, to the image in `page`.
///
/// `base_is_valid`: `page` holds a sound image (an all-zero one of a page that was never written counts).
/// If not, the changes must contain an INIT_PAGE, unless they only free the page. The iterator is run twice.
///
/// All runs of one mini-transaction for the page must be given in one call: after a call the page LSN is the
/// end of the mini-transaction, and a later call would skip its remaining runs.
///
/// # Errors
/// See [`ApplyError`]; the page content is undefined afterwards.
pub fn apply_changes<'a, I>(
    page: &mut [u8],
    page_id: PageId,
    flags: SpaceFlags,
    base_is_valid: bool,
    changes: I,
) -> Result<ApplyOutcome, ApplyError>
where
    I: IntoIterator<Item = Change<'a>>,
    I::IntoIter: Clone,
{
    check_size(page, page_id, flags)?;
    let changes = changes.into_iter();
    let found = scan(page_id, changes.clone())?;
    let base_lsn = match found.last_init {
        Some(_) => Lsn(0),
        None if !base_is_valid && found.has_changes => return Err(ApplyError::NoBase { page_id }),
        None => page_lsn(page).unwrap_or_default(),
    };
    let first = found.last_init.unwrap_or(LastInit { change: 0, record: 0 });
    apply_from(page, Cursor::new(page_id, flags), base_lsn, first, changes)
}

/// [`apply_changes`] to a sound image, of changes of which is known that they have no FREE_PAGE, and INIT_PAGE only
/// as the very first record: each record is decoded once instead of twice. `starts_anew`: it is there.
///
/// # Errors
/// See [`ApplyError`]; the page content is undefined afterwards.
pub fn apply_known_changes<'a>(
    page: &mut [u8],
    page_id: PageId,
    flags: SpaceFlags,
    starts_anew: bool,
    changes: impl IntoIterator<Item = Change<'a>>,
) -> Result<ApplyOutcome, ApplyError> {
    check_size(page, page_id, flags)?;
    let base_lsn = if starts_anew { Lsn(0) } else { page_lsn(page).unwrap_or_default() };
    let first = LastInit { change: 0, record: 0 };
    apply_from(page, Cursor::new(page_id, flags), base_lsn, first, changes.into_iter())
}

fn apply_from<'a>(
    page: &mut [u8],
    cursor: Cursor,
    base_lsn: Lsn,
    first: LastInit,
    changes: impl Iterator<Item = Change<'a>>,
) -> Result<ApplyOutcome, ApplyError> {
    let mut outcome = ApplyOutcome::default();
    for (number, change) in changes.enumerate() {
        if change.run.is_empty() {
            return Err(ApplyError::EmptyRun { page_id: cursor.page_id() });
        }
        if number < first.change || change.start_lsn < base_lsn {
            outcome.skipped += 1;
            continue;
        }
        let first_record = if number == first.change { first.record } else { 0 };
        let run = apply_run_from(page, cursor, change.run, first_record)?;
        if run.modified {
            set_page_lsn(page, change.end_lsn);
        }
        outcome.freed = run.freed;
        outcome.applied += 1;
    }
    Ok(outcome)
}

/// Kinds of records among changes.
#[derive(Default)]
struct Found {
    last_init: Option<LastInit>,
    /// Something else than FREE_PAGE.
    has_changes: bool,
}

fn scan<'a>(page_id: PageId, changes: impl Iterator<Item = Change<'a>>) -> Result<Found, ApplyError> {
    let (mut found, mut is_free) = (Found::default(), false);
    for (change, Change { run, .. }) in changes.enumerate() {
        if run.is_empty() {
            return Err(ApplyError::EmptyRun { page_id });
        }
        for (number, record) in RecordReader::new(run).enumerate() {
            let record = record.map_err(|source| ApplyError::Decode { page_id, source })?;
            match record.body {
                Body::InitPage => found.last_init = Some(LastInit { change, record: number }),
                Body::FreePage => {}
                ref body if is_free => {
                    return Err(ApplyError::ChangeOfFreePage { page_id, kind: RecordKind::of(body) });
                }
                _ => {}
            }
            is_free = matches!(record.body, Body::FreePage);
            found.has_changes |= !is_free;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
