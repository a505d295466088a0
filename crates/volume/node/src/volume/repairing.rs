//! Stored pages that the apply thread writes again: damaged pages, and outdated ones because the drive lost a write.
//!
//! Some are repaired with one pass over the log, at most [`REPAIRED_TOGETHER`]; the others wait until the apply thread has
//! applied a table. Otherwise many pages would hold the server's commits back.
//!
//! No repair is necessary: the next read of the page rebuilds it again, and so does the next pass of the scrub. So a failure
//! to rebuild is logged, and does not stop the volume. A failure to write does, as for any page.
//!
//! Locks: leaves.

use super::context::{Context, Waiter};
use super::indexing::Described;
use super::outdated::Suspect;
use crate::construct::StoredPages;
use crate::counters::add;
use crate::error::NodeError;
use crate::index::PageKey;
use crate::quarantine::{Damage, DamagedPage, Found};
use crate::rescue::{DamagedImage, Examined};
use redoubt_pagestore::{PageStore, PageWrite};
use redoubt_redo::PageId;
use redoubt_sync::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Pages that are repaired or examined with one pass over the log.
const REPAIRED_TOGETHER: usize = 256;
/// Pages that wait for an examination.
const SUSPECTS_MAX: usize = 4096;
const _: () = assert!(REPAIRED_TOGETHER <= SUSPECTS_MAX, "suspects fill a pass over the log");

/// Examines pages that may be older versions than must be stored.
pub type Examine<'v> = &'v (dyn Fn(&[PageKey]) -> Result<Vec<Suspect>, NodeError> + Sync);

/// Pages to be repaired or examined.
pub struct Repairs {
    context: Arc<Context>,
    /// Pages whose stored image was found damaged.
    damaged: Mutex<BTreeSet<PageKey>>,
    /// Pages that may be older versions than must be stored.
    suspects: Mutex<BTreeSet<PageKey>>,
    /// Suspects that could not be examined.
    pub unexamined: AtomicU64,
    /// Some have left the sets, and are not done.
    is_under_way: AtomicBool,
}

/// A page that is to be written.
struct Rewrite {
    key: PageKey,
    page_id: PageId,
    page: Vec<u8>,
}

impl Repairs {
    /// Nothing to repair.
    pub fn new(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            damaged: Mutex::default(),
            suspects: Mutex::default(),
            unexamined: AtomicU64::new(0),
            is_under_way: AtomicBool::new(false),
        }
    }

    /// A stored page is damaged: the apply thread is to write it again.
    pub fn add_damaged(&self, key: PageKey) {
        self.damaged.lock().insert(key);
        self.context.signal_work();
    }

    /// A stored page may be an older version than must be stored: the apply thread examines it. False: too many wait.
    pub fn add_suspect(&self, key: PageKey) -> bool {
        {
            let mut suspects = self.suspects.lock();
            if suspects.len() >= SUSPECTS_MAX {
                return false;
            }
            suspects.insert(key);
        }
        self.context.signal_work();
        true
    }

    /// Damaged pages wait.
    pub fn has_damaged(&self) -> bool {
        !self.damaged.lock().is_empty()
    }

    /// Suspects wait.
    pub fn has_suspects(&self) -> bool {
        !self.suspects.lock().is_empty()
    }

    /// Pages wait for a repair or an examination, or one is under way.
    pub fn has_any(&self) -> bool {
        self.has_damaged() || self.has_suspects() || self.is_under_way.load(Ordering::Acquire)
    }

    /// Pages for one pass over the log, in order.
    fn take(&self, from: &Mutex<BTreeSet<PageKey>>) -> Vec<PageKey> {
        let mut waiting = from.lock();
        // Before the set is empty.
        self.is_under_way.store(true, Ordering::Release);
        std::iter::from_fn(|| waiting.pop_first()).take(REPAIRED_TOGETHER).collect()
    }

    /// Writes damaged pages again, at most [`REPAIRED_TOGETHER`]. Only for the apply thread.
    ///
    /// # Errors
    /// [`NodeError::Stopped`]; those of writing.
    pub fn repair(
        &self,
        pages: StoredPages<'_>,
        describe: &dyn Fn(PageKey) -> Option<Described>,
        found: &Found,
    ) -> Result<(), NodeError> {
        let keys = self.take(&self.damaged);
        let repaired =
            self.rebuild(&keys, pages, describe).and_then(|rewrites| self.rewrite(pages, &rewrites, found));
        // Rebuilding has noted the damage once more. Others have come meanwhile.
        self.damaged.lock().retain(|key| keys.binary_search(key).is_err());
        self.is_under_way.store(false, Ordering::Release);
        repaired
    }

    /// The pages as of A, where the apply thread is. Pages that cannot be rebuilt are left out.
    fn rebuild(
        &self,
        keys: &[PageKey],
        pages: StoredPages<'_>,
        describe: &dyn Fn(PageKey) -> Option<Described>,
    ) -> Result<Vec<Rewrite>, NodeError> {
        let (mut rewrites, mut damaged) = (Vec::new(), Vec::new());
        for key in keys.iter().copied() {
            self.context.check_running()?;
            let Some((page_id, Some(format))) = describe(key) else { continue };
            if pages.set_aside(key).is_some() {
                continue;
            }
            match self.context.with_retry(Waiter::Pages, || pages.read_stored(key, format)) {
                // Its table was applied meanwhile.
                Ok(Ok(page)) => rewrites.push(Rewrite { key, page_id, page }),
                Ok(Err(fault)) => damaged.push(DamagedImage { key, page_id, format, fault }),
                Err(error) => self.not_rewritten(&[page_id], &error)?,
            }
        }
        if damaged.is_empty() {
            return Ok(rewrites);
        }
        match pages.rescue(&damaged) {
            Ok(rebuilt) => {
                for (DamagedImage { key, page_id, .. }, rebuilt) in damaged.into_iter().zip(rebuilt) {
                    match rebuilt {
                        Ok(page) => rewrites.push(Rewrite { key, page_id, page }),
                        // Its older images or its redo are gone by now. Applying sets it aside when it needs it.
                        Err(error) => self.not_rewritten(&[page_id], &error)?,
                    }
                }
            }
            Err(error) => {
                let page_ids: Vec<_> = damaged.iter().map(|page| page.page_id).collect();
                self.not_rewritten(&page_ids, &error)?;
            }
        }
        Ok(rewrites)
    }

    /// # Errors
    /// [`NodeError::Stopped`], if that is the error.
    fn not_rewritten(&self, page_ids: &[PageId], error: &NodeError) -> Result<(), NodeError> {
        if let NodeError::Stopped(reason) = error {
            return Err(NodeError::Stopped(reason.clone()));
        }
        if let Some(page) = page_ids.first() {
            tracing::warn!(event = "damaged_page_not_rewritten", volume = self.context.name, %page, pages = page_ids.len(), %error, "damaged pages cannot be written again");
        }
        Ok(())
    }

    fn rewrite(&self, pages: StoredPages<'_>, rewrites: &[Rewrite], found: &Found) -> Result<(), NodeError> {
        let writes: Vec<_> = rewrites
            .iter()
            .map(|Rewrite { key, page, .. }| PageWrite { object: key.object(), page_no: key.page_no(), page })
            .collect();
        if writes.is_empty() {
            return Ok(());
        }
        self.context.with_retry(Waiter::Pages, || Ok(pages.store.write_batch(&writes)?))?;
        for Rewrite { key, page_id, .. } in rewrites {
            found.remove(*key);
            tracing::info!(event = "damaged_page_rewritten", volume = self.context.name, page = %page_id, "damaged page written again");
        }
        Ok(())
    }

    /// Writes pages again of which the drive has an older version, and sets those aside that cannot be rebuilt: at most
    /// [`REPAIRED_TOGETHER`]. Only for the apply thread, which alone writes pages: so the store has exactly what is applied.
    ///
    /// # Errors
    /// Those of writing, and of `settle`.
    pub fn examine(
        &self,
        store: &dyn PageStore,
        examine: Examine<'_>,
        settle: &dyn Fn(&Damage) -> Result<(), NodeError>,
    ) -> Result<(), NodeError> {
        let keys = self.take(&self.suspects);
        let examined = match examine(&keys) {
            Ok(examined) => self.treat(store, examined, settle),
            Err(error) => {
                add(&self.unexamined, keys.len() as u64);
                tracing::warn!(event = "suspects_not_examined", volume = self.context.name, %error, "pages that may be outdated cannot be examined; the next pass of the scrub tries again");
                Ok(())
            }
        };
        self.is_under_way.store(false, Ordering::Release);
        examined
    }

    fn treat(
        &self,
        store: &dyn PageStore,
        examined: Vec<Suspect>,
        settle: &dyn Fn(&Damage) -> Result<(), NodeError>,
    ) -> Result<(), NodeError> {
        let mut damage = Damage::default();
        for Suspect { key, page_id, verdict } in examined {
            match verdict {
                Examined::Unproven => {}
                Examined::Rebuilt(page) => self.rewrite_outdated(store, key, page_id, &page)?,
                Examined::Lost { lsn, reason } => damage.set_aside.push(DamagedPage {
                    key,
                    page_id,
                    is_whole_object: false,
                    found_at: None,
                    differs: None,
                    lsn,
                    reason: format!("the drive has an older version of it, and lost a write. It cannot be rebuilt: {reason}"),
                    evidence: None,
                }),
            }
        }
        if damage.is_empty() { Ok(()) } else { settle(&damage) }
    }

    fn rewrite_outdated(
        &self,
        store: &dyn PageStore,
        key: PageKey,
        page_id: PageId,
        page: &[u8],
    ) -> Result<(), NodeError> {
        let write = PageWrite { object: key.object(), page_no: key.page_no(), page };
        self.context.with_retry(Waiter::Pages, || Ok(store.write_batch(&[write])?))?;
        add(&self.context.counters.outdated_pages_rebuilt, 1);
        tracing::warn!(event = "outdated_page_rewritten", volume = self.context.name, page = %page_id, "the drive had an older version of a page, and lost a write; the page is rebuilt and written again");
        Ok(())
    }
}

#[cfg(test)]
#[path = "repairing_tests.rs"]
mod tests;
