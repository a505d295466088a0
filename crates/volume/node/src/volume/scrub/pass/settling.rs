//! Damaged pages that a pass has found: rebuilt, and written again by the apply thread, or listed and requested from the
//! server.

use super::{Pass, Stage};
use crate::error::NodeError;
use crate::rescue::DamagedImage;
use crate::volume::Volume;
use redoubt_sync::time;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the pass waits for repairs, and between two looks.
const REPAIRS_MAX: Duration = Duration::from_secs(60);
const REPAIRS_LOOK: Duration = Duration::from_millis(20);

impl Volume {
    /// Rebuilds the damaged pages. The others are listed, and requested from the server.
    pub(super) fn settle_damaged(&self, pass: &mut Pass) -> Result<(), NodeError> {
        if pass.damaged.is_empty() {
            return Ok(());
        }
        let rebuilt = self.rebuild_all(&pass.damaged)?;
        let mut found = 0;
        for (page, rebuilt) in std::mem::take(&mut pass.damaged).into_iter().zip(rebuilt) {
            match rebuilt {
                Ok(_) => pass.repairing.push(page),
                // It may have been written meanwhile.
                Err(NodeError::Page { reason, .. }) => {
                    found += usize::from(
                        self.is_damaged(&page).unwrap_or(true) && self.list_damaged(&page, &reason),
                    );
                }
                Err(error) => return Err(error),
            }
        }
        if found > 0 {
            self.save_scrub();
        }
        Ok(())
    }

    fn is_damaged(&self, page: &DamagedImage) -> Result<bool, NodeError> {
        Ok(self.describe(page.key).is_some()
            && self.stored_pages().read_stored(page.key, page.format)?.is_err())
    }

    /// Lists a damaged page, and asks the server for it. Always true.
    fn list_damaged(&self, page: &DamagedImage, reason: &str) -> bool {
        let file = self.indexing.path_of_object(page.key.object());
        self.note_found(page, &file, "the scrub", reason);
        if let Some(request) = self.indexing.image_request(page.key) {
            self.context.notices.send(&request);
        }
        true
    }

    /// The pass leaves out what it reads, or does not wait for repairs any more. Of damaged pages that cannot be rebuilt now, the
    /// server may have a copy.
    pub(in crate::volume::scrub) fn list_unsettled(&self, pass: &mut Pass, error: &NodeError) {
        let mut unsettled = std::mem::take(&mut pass.damaged);
        if pass.stage == Stage::Repairs {
            unsettled.append(&mut pass.repairing);
        }
        let mut found = false;
        for page in unsettled {
            // It may have been written meanwhile.
            if self.is_damaged(&page).unwrap_or(true) {
                found |=
                    self.list_damaged(&page, &format!("{}; it cannot be rebuilt now: {error}", page.fault));
            }
        }
        if found {
            self.save_scrub();
        }
    }

    /// Counts the pages that the apply thread has written again, and lists those that it could not rebuild.
    fn count_repaired(&self, pass: &mut Pass) -> Result<(), NodeError> {
        let mut found = false;
        while let Some(page) = pass.repairing.last() {
            if self.is_damaged(page)? {
                found |= self.list_damaged(page, &page.fault);
            } else {
                pass.rebuilt += 1;
            }
            pass.repairing.pop();
        }
        if found {
            self.save_scrub();
        }
        Ok(())
    }

    pub(super) fn step_repairs(&self, pass: &mut Pass) -> Result<(), NodeError> {
        let since = *pass.waits_since.get_or_insert_with(time::now);
        if !self.applying.repairs.has_any() {
            self.count_repaired(pass)?;
            let unexamined =
                self.applying.repairs.unexamined.load(Ordering::Relaxed) - pass.unexamined_before;
            if unexamined > 0 {
                pass.leave_out(format!(
                    "{unexamined} pages may be older versions, and cannot be compared with the log"
                ));
            }
            pass.begin_files(0);
        } else if time::elapsed(since) >= REPAIRS_MAX {
            let error = NodeError::NotNow(format!(
                "repairs of {} damaged pages take long; check again",
                pass.repairing.len()
            ));
            self.list_unsettled(pass, &error);
            pass.leave_out(error.to_string());
            pass.begin_files(0);
        } else {
            self.scrub.wait(REPAIRS_LOOK);
        }
        Ok(())
    }
}
