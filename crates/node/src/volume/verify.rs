//! Self-verification: comparing a page the server wanted to write with ours.
//!
//! Any difference stops the volume at once, also for later starts of the node (file `stopped`). The report file names the page and both LSNs; when the server still
//! has the page's image, it is asked for and the differing byte ranges and both images are added.

use super::Volume;
use crate::construct::{Builder, VerifyCase};
use crate::counters::add;
use crate::error::NodeError;
use crate::home::Folder;
use crate::index::PageKey;
use redoubt_page::layout::page_lsn;
use redoubt_page::{SpaceFlags, differing_ranges, digest};
use redoubt_pagestore::ObjectId;
use redoubt_redo::{Lsn, PageId};
use redoubt_wire::notice::Notice;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Note that a mismatch stopped the volume.
const STOPPED: &str = "stopped";

/// A difference that was found, kept to complete its report.
pub struct Mismatch {
    page: PageId,
    lsn: Lsn,
    flags: SpaceFlags,
    ours: Vec<u8>,
    report: PathBuf,
    text: String,
}

impl Volume {
    /// Compares, counts, and stops the volume on a difference.
    pub(super) fn verify(&self, builder: &Builder, key: PageKey, case: &VerifyCase<'_>) {
        let ours_lsn = page_lsn(case.page).unwrap_or_default();
        if ours_lsn > case.lsn {
            // Our image is from a later point (applied before a crash of the node): nothing to compare.
            add(&self.counters.pages_not_comparable, 1);
            return;
        }
        let ours = digest(case.page, builder.flags);
        if ours_lsn == case.lsn && ours == case.digest {
            add(&self.counters.pages_verified, 1);
            return;
        }
        add(&self.counters.page_mismatches, 1);
        self.report_mismatch(builder, key, case, ours_lsn, ours);
    }

    fn report_mismatch(
        &self,
        builder: &Builder,
        key: PageKey,
        case: &VerifyCase<'_>,
        ours_lsn: Lsn,
        ours: u32,
    ) {
        let page = builder.page_id;
        let path = self.path_of_object(key.object());
        let text = format!(
            "page {page} of {path}\nserver: LSN {}, digest {:08x}\nnode: LSN {ours_lsn}, digest {ours:08x}\n",
            case.lsn, case.digest
        );
        let report =
            self.directory.join(format!("mismatch-{}-{}-{}.txt", page.space, page.page_no, case.lsn));
        if let Err(error) = self.write_report(&report, text.as_bytes()) {
            tracing::error!(volume = self.name, %error, "cannot write {}", report.display());
        }
        self.mismatches.lock().push(Mismatch {
            page,
            lsn: case.lsn,
            flags: builder.flags,
            ours: case.page.to_vec(),
            report: report.clone(),
            text,
        });
        self.notify(&Notice::NeedImage {
            path: path.clone().into_bytes(),
            page_no: page.page_no.0,
            lsn: case.lsn,
        });
        let reason = format!(
            "page {page} of {path} differs from the server's at LSN {}; see {}",
            case.lsn,
            report.display()
        );
        self.keep_stopped(&reason);
        self.stop(&reason);
    }

    /// Makes the stop outlast a restart of the node: somebody has to look first.
    fn keep_stopped(&self, reason: &str) {
        if let Err(error) = self.own.write(STOPPED, reason.as_bytes()) {
            tracing::error!(volume = self.name, %error, "cannot keep the volume stopped");
        }
    }

    fn write_report(&self, path: &Path, bytes: &[u8]) -> Result<(), NodeError> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("mismatch");
        self.own.write(name, bytes)
    }

    /// A mismatch stopped the volume earlier, and nobody has removed the note of it.
    ///
    /// # Errors
    /// [`NodeError::Stopped`] saying why and what to do.
    pub(super) fn check_not_stopped(own: &Folder) -> Result<(), NodeError> {
        match own.read(STOPPED) {
            Ok(Some(reason)) => Err(NodeError::Stopped(format!(
                "{}. Find out why first; to use the volume all the same, remove {} and restart the node",
                String::from_utf8_lossy(&reason),
                own.path().join(STOPPED).display()
            ))),
            _ => Ok(()),
        }
    }

    /// Path of a file of an object, or `?`.
    pub(super) fn path_of_object(&self, object: ObjectId) -> String {
        let names = self.names.read();
        let found = names.files().find(|(_, entry)| entry.object == Some(object.0));
        found.map_or_else(|| "?".to_owned(), |(_, entry)| entry.path.clone())
    }

    /// Completes the report of a mismatch with the server's image.
    pub(super) fn mismatch_image(
        &self,
        path: &[u8],
        page_no: u32,
        lsn: Lsn,
        page: &[u8],
    ) -> Result<(), NodeError> {
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
        if page.len() == mismatch.ours.len() {
            mismatch.text.push_str("differing byte ranges (server / node):\n");
            for range in differing_ranges(page, &mismatch.ours, mismatch.flags) {
                let _ = writeln!(
                    mismatch.text,
                    "  {}..{}: {} / {}",
                    range.start,
                    range.end,
                    hex(page.get(range.clone()).unwrap_or(&[])),
                    hex(mismatch.ours.get(range.clone()).unwrap_or(&[]))
                );
            }
            self.write_report(&mismatch.report.with_extension("server.page"), page)?;
            self.write_report(&mismatch.report.with_extension("node.page"), &mismatch.ours)?;
        } else {
            mismatch.text.push_str("the server no longer had the image\n");
        }
        self.write_report(&mismatch.report, mismatch.text.as_bytes())
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
