//! Bringing one page image up to date with the mini-transactions that touched it.
//!
//! Owns the skip rule: which of the pending changes are already in the image.
//!
//! Invariants:
//! - Changes come in LSN order. A mini-transaction may contribute several runs, with the same LSNs.
//! - A change is skipped iff its start LSN is below the LSN of the image *as it was given*, so later runs of one
//!   mini-transaction are never taken for already applied. (`recv_recover_page_func` in `log/log0recv.cc`.)
//! - With INIT_FILE_PAGE2 among the others, the last one is where the page begins: all before it is ignored, and so is
//!   the image. An image that is newer than that stays, unlike with MariaDB: it may hold what is in no record
//!   (an index that was built without redo).
//! - Afterwards the page LSN is the end LSN of the last mini-transaction that changed the page, as the server counts.

use redoubt_redo::mysql::{Body, RecordReader, position};
use redoubt_redo::{Lsn, PageId};

use super::apply::{ApplyError, RecordKind, Scratch, apply_run_from, check_size};
use super::flags::Flags;
use crate::chain::{ApplyOutcome, Change};
use crate::layout::{FIL_PAGE_LSN, get_u64, put};

/// Result of applying changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The page is up to date.
    UpToDate(ApplyOutcome),
    /// The page is of ROW_FORMAT=COMPRESSED, whose redo is not applied: its current content is available as an image only.
    /// The image given is as it was before the changes, or before the record if the flags did not say it.
    NeedsImage {
        /// The first record that is not applied.
        kind: RecordKind,
    },
}

/// The LSN of a page image: [`Lsn`] counts bytes of records, a page has the server's LSN.
pub fn page_lsn(page: &[u8]) -> Option<Lsn> {
    get_u64(page, FIL_PAGE_LSN).map(position::from_server_lsn)
}

/// Write the LSN of a page image; `false` if the slice holds no file header.
pub fn set_page_lsn(page: &mut [u8], lsn: Lsn) -> bool {
    put(page, FIL_PAGE_LSN, &position::server_lsn(lsn).to_be_bytes())
}

/// Where the page is initialised: number of the change, and of the record in its run.
#[derive(Clone, Copy)]
struct LastInit {
    change: usize,
    record: usize,
}

/// Apply `changes`, which come in LSN order, to the image in `page`.
///
/// `base_is_valid`: `page` holds a sound image (an all-zero one of a page that was never written counts). If not, the
/// changes must contain an INIT_FILE_PAGE2. The iterator is run twice.
///
/// All runs of one mini-transaction for the page must be given in one call: after a call the page LSN is the end of the
/// mini-transaction, and a later call would skip its remaining runs.
///
/// # Errors
/// See [`ApplyError`]; the page content is undefined afterwards.
pub fn apply_changes<'a, I>(
    page: &mut [u8],
    page_id: PageId,
    flags: Flags,
    base_is_valid: bool,
    changes: I,
    scratch: &mut Scratch,
) -> Result<Applied, ApplyError>
where
    I: IntoIterator<Item = Change<'a>>,
    I::IntoIter: Clone,
{
    check_size(page, page_id, flags)?;
    let changes = changes.into_iter();
    let base_lsn = if base_is_valid { page_lsn(page).unwrap_or_default() } else { Lsn(0) };
    let last_init = last_init(page_id, base_lsn, changes.clone())?;
    if last_init.is_none()
        && !base_is_valid
        && !flags.is_row_format_compressed()
        && changes.clone().next().is_some()
    {
        return Err(ApplyError::NoBase { page_id });
    }
    let first = last_init.unwrap_or(LastInit { change: 0, record: 0 });
    apply_from(page, page_id, flags, base_lsn, first, changes, scratch)
}

/// [`apply_changes`] to a sound image, of changes of which is known that they have INIT_FILE_PAGE2 only as the very
/// first record: each record is decoded once instead of twice. `starts_anew`: it is there, and the image does not
/// count.
///
/// # Errors
/// See [`ApplyError`]; the page content is undefined afterwards.
pub fn apply_known_changes<'a>(
    page: &mut [u8],
    page_id: PageId,
    flags: Flags,
    starts_anew: bool,
    changes: impl IntoIterator<Item = Change<'a>>,
    scratch: &mut Scratch,
) -> Result<Applied, ApplyError> {
    check_size(page, page_id, flags)?;
    let base_lsn = if starts_anew { Lsn(0) } else { page_lsn(page).unwrap_or_default() };
    let first = LastInit { change: 0, record: 0 };
    apply_from(page, page_id, flags, base_lsn, first, changes.into_iter(), scratch)
}

fn apply_from<'a>(
    page: &mut [u8],
    page_id: PageId,
    flags: Flags,
    base_lsn: Lsn,
    first: LastInit,
    changes: impl Iterator<Item = Change<'a>>,
    scratch: &mut Scratch,
) -> Result<Applied, ApplyError> {
    let mut outcome = ApplyOutcome::default();
    for (number, change) in changes.enumerate() {
        if change.run.is_empty() {
            return Err(ApplyError::EmptyRun { page_id });
        }
        if number < first.change || change.start_lsn < base_lsn {
            outcome.skipped += 1;
            continue;
        }
        let first_record = if number == first.change { first.record } else { 0 };
        let run = apply_run_from(page, page_id, flags, change.run, first_record, scratch)?;
        if let Some(kind) = run.needs_image {
            return Ok(Applied::NeedsImage { kind });
        }
        if run.modified {
            set_page_lsn(page, change.end_lsn);
        }
        outcome.applied += 1;
    }
    Ok(Applied::UpToDate(outcome))
}

/// The last INIT_FILE_PAGE2 among the changes that are not in an image of `base_lsn`.
fn last_init<'a>(
    page_id: PageId,
    base_lsn: Lsn,
    changes: impl Iterator<Item = Change<'a>>,
) -> Result<Option<LastInit>, ApplyError> {
    let mut found = None;
    for (change, Change { run, start_lsn, .. }) in changes.enumerate() {
        if start_lsn < base_lsn {
            continue;
        }
        for (number, record) in RecordReader::new(run).enumerate() {
            let record = record.map_err(|source| ApplyError::Decode { page_id, source })?;
            if matches!(record.body, Body::InitFilePage) {
                found = Some(LastInit { change, record: number });
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
