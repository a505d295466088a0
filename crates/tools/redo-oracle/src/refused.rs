//! Redo that cannot be applied. Now and then a stock server writes a record that does not fit the page as its own log
//! has it, and its own recovery refuses it. Our replay must refuse it as well, and that is no difference between the
//! two.
//!
//! A refusal is confirmed by the server: its recovery of the redo up to that record names the same page.

use redoubt_page::{Change, apply_changes};
use redoubt_redo::{Lsn, PageId};
use redoubt_workload::error::Result;

use super::base::Base;
use super::history::{Recorded, Workshop};
use super::recovery::{self, Crash, Outcome};
use super::redo::Redo;
use super::replay::{noted, replay};

/// The first record of a history that our replay refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The page.
    pub page: PageId,
    /// Where its mini-transaction begins.
    pub start_lsn: Lsn,
    /// Where it ends.
    pub end_lsn: Lsn,
    /// Why.
    pub what: String,
}

/// The record that our replay and the stock server's recovery both refuse, for the same page. `None` if nothing is
/// refused, or only by us.
///
/// # Errors
/// Those of the recovery.
pub fn refused_by_both(workshop: &Workshop, recorded: &Recorded) -> Result<Option<Refusal>> {
    let (base, redo) = (&recorded.base, &recorded.redo);
    let Some(refusal) = first_refusal(base, redo)? else { return Ok(None) };
    let Ok(before) = replay(base, redo, refusal.start_lsn, None) else { return Ok(None) };
    let crash = Crash::new(recorded.stored(), redo, &before, refusal.end_lsn, true);
    let directory = recovery::next_directory(workshop.path());
    let outcome = recovery::recover(&crash, &directory, &recorded.recovery(false)?)?;
    let Outcome::Refused(log) = outcome else { return Ok(None) };
    let page = format!("[page id: space={}, page number={}]", refusal.page.space, refusal.page.page_no);
    let is_same = log.lines().any(|line| line.contains(recovery::REFUSED_RECORD) && line.contains(&page));
    Ok(is_same.then_some(refusal))
}

/// Every life of every page that is there at the end, mini-transaction by mini-transaction.
fn first_refusal(base: &Base, redo: &Redo) -> Result<Option<Refusal>> {
    let noted = noted(base, redo, redo.end_lsn, None)?;
    let mut first: Option<Refusal> = None;
    for (page, runs) in noted.chains() {
        // Where nothing says what the pages are like, the replay itself has failed.
        let Ok((mut image, flags)) = noted.stored(base, page) else { continue };
        for mtr in runs.chunk_by(|one, next| one.0 == next.0) {
            let changes = mtr.iter().filter_map(|(start_lsn, end_lsn, number)| {
                let run = redo.run_bytes(redo.runs.get(*number)?);
                Some(Change { start_lsn: *start_lsn, end_lsn: *end_lsn, run })
            });
            let Err(error) = apply_changes(&mut image, page, flags, true, changes) else { continue };
            let [(start_lsn, end_lsn, _), ..] = *mtr else { continue };
            if first.as_ref().is_none_or(|first| start_lsn < first.start_lsn) {
                first = Some(Refusal { page, start_lsn, end_lsn, what: error.to_string() });
            }
            break;
        }
    }
    Ok(first)
}
