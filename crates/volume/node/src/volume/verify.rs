//! Self-verification: comparing a page that the server would have written with the node's page.
//!
//! Owns the differences that were found. Any of them stops the volume at once, also for later starts of the node (file
//! `stopped`). The report file names the page and both LSNs. If the server still has the page's image, the node
//! requests it and adds the differing byte ranges and both images.
//!
//! Lock: a leaf.

use super::Volume;
use super::context::Context;
use crate::construct::{Builder, VerifyCase};
use crate::counters::add;
use crate::error::NodeError;
use crate::home::Folder;
use crate::index::PageKey;
use redoubt_page::Format;
use redoubt_page::format::page_lsn;
use redoubt_redo::{Family, Lsn, PageId};
use redoubt_sync::Mutex;
use redoubt_wire::notice::Notice;
use std::fmt::Write;
use std::sync::Arc;

/// Note that a mismatch stopped the volume.
const STOPPED: &str = "stopped";

/// A difference that was found, kept to complete its report.
pub struct Mismatch {
    page: PageId,
    lsn: Lsn,
    format: Format,
    ours: Vec<u8>,
    /// Of its report, without the extension.
    name: String,
    text: String,
}

/// The differences that were found.
pub struct Verification {
    context: Arc<Context>,
    mismatches: Mutex<Vec<Mismatch>>,
}

impl Volume {
    /// Compares, counts, and stops the volume on a difference.
    pub(super) fn verify(&self, builder: &Builder, key: PageKey, case: &VerifyCase<'_>) {
        let path = || self.indexing.path_of_object(key.object());
        if let Some(reason) = self.verification.compare(builder, case, &path) {
            self.stop(&reason);
        }
    }
}

impl Verification {
    /// Nothing found yet.
    pub fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), mismatches: Mutex::default() }
    }

    /// Compares and counts. Returns why the volume must stop, if it must.
    fn compare(&self, builder: &Builder, case: &VerifyCase<'_>, path: &dyn Fn() -> String) -> Option<String> {
        let counters = &self.context.counters;
        let ours_lsn = page_lsn(builder.format.family, case.page).unwrap_or_default();
        if ours_lsn > case.lsn {
            // Our image is from a later point (applied before a crash of the node): nothing to compare.
            add(&counters.pages_not_comparable, 1);
            return None;
        }
        let ours = builder.format.digest(case.page);
        let is_same_version = match builder.format.family {
            Family::MariaDb => ours_lsn == case.lsn,
            // A mini-transaction raises the LSN of pages that it only holds, and logs nothing for those.
            Family::MySql => ours_lsn <= case.lsn,
        };
        if is_same_version && ours == case.digest {
            add(&counters.pages_verified, 1);
            return None;
        }
        add(&counters.page_mismatches, 1);
        Some(self.report(builder, case, path(), ours_lsn, ours))
    }

    fn report(
        &self,
        builder: &Builder,
        case: &VerifyCase<'_>,
        path: String,
        ours_lsn: Lsn,
        ours: u32,
    ) -> String {
        let page = builder.page_id;
        let text = format!(
            "page {page} of {path}\nserver: LSN {}, digest {:08x}\nnode: LSN {ours_lsn}, digest {ours:08x}\n",
            case.lsn, case.digest
        );
        let name = format!("mismatch-{}-{}-{}", page.space, page.page_no, case.lsn);
        let report = self.context.own.path().join(&name).with_extension("txt");
        if let Err(error) = self.context.own.write(&format!("{name}.txt"), text.as_bytes()) {
            tracing::error!(event = "verify_report_failed", volume = self.context.name, %error, "cannot write {}", report.display());
        }
        let (lsn, page_no) = (case.lsn, page.page_no.0);
        let reason =
            format!("page {page} of {path} differs from the server's at LSN {lsn}; see {}", report.display());
        let (format, ours) = (builder.format, case.page.to_vec());
        self.mismatches.lock().push(Mismatch { page, lsn, format, ours, name, text });
        self.context.notices.send(&Notice::NeedImage { path: path.into_bytes(), page_no, lsn });
        // Makes the stop outlast a restart of the node: an operator has to act first.
        if let Err(error) = self.context.own.write(STOPPED, reason.as_bytes()) {
            tracing::error!(event = "verify_stop_failed", volume = self.context.name, %error, "cannot keep the volume stopped");
        }
        reason
    }

    /// Completes the report of a mismatch with the server's image.
    ///
    /// # Errors
    /// [`NodeError::Refused`] for an image that was not requested; [`NodeError::Io`].
    pub fn mismatch_image(&self, path: &[u8], page_no: u32, lsn: Lsn, page: &[u8]) -> Result<(), NodeError> {
        let mut mismatches = self.mismatches.lock();
        let found =
            mismatches.iter().position(|mismatch| mismatch.lsn == lsn && mismatch.page.page_no.0 == page_no);
        let Some(found) = found else {
            return Err(NodeError::Refused(format!(
                "no image of page {page_no} of {} was asked for",
                String::from_utf8_lossy(path)
            )));
        };
        let mut mismatch = mismatches.remove(found);
        let own = &self.context.own;
        if page.len() == mismatch.ours.len() {
            mismatch.text.push_str("differing byte ranges (server / node):\n");
            for range in mismatch.format.differing_ranges(page, &mismatch.ours) {
                let _ = writeln!(
                    mismatch.text,
                    "  {}..{}: {} / {}",
                    range.start,
                    range.end,
                    hex(page.get(range.clone()).unwrap_or(&[])),
                    hex(mismatch.ours.get(range.clone()).unwrap_or(&[]))
                );
            }
            own.write(&format!("{}.server.page", mismatch.name), page)?;
            own.write(&format!("{}.node.page", mismatch.name), &mismatch.ours)?;
        } else {
            mismatch.text.push_str("the server no longer had the image\n");
        }
        own.write(&format!("{}.txt", mismatch.name), mismatch.text.as_bytes())
    }
}

/// A mismatch stopped the volume earlier, and its note has not been removed.
///
/// # Errors
/// [`NodeError::Stopped`] saying why and what to do.
pub fn check_not_stopped(own: &Folder) -> Result<(), NodeError> {
    match own.read(STOPPED)? {
        Some(reason) => Err(NodeError::Stopped(format!(
            "{}. Find out why first; to use the volume all the same, remove {} and restart the node",
            String::from_utf8_lossy(&reason),
            own.path().join(STOPPED).display()
        ))),
        None => Ok(()),
    }
}

fn hex(bytes: &[u8]) -> String {
    const SHOWN: usize = 64;
    let mut text = String::new();
    for byte in bytes.iter().take(SHOWN) {
        let _ = write!(text, "{byte:02x}");
    }
    if bytes.len() > SHOWN {
        text.push_str("...");
    }
    text
}
