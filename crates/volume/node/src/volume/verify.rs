//! Self-verification: comparing a page that the server would have written with the node's page.
//!
//! Owns the differences that were found. A report file names the page and both LSNs. If the server still has the page's
//! image, the node requests it and adds the differing byte ranges and both images. At most [`REPORTS_MAX`] reports are
//! kept.
//!
//! The server's library chooses with each comparison (`--on-difference`):
//!
//! - stop: the volume stops at once, also for later starts of the node (file `stopped`).
//! - heal: the server's page counts. The node's page goes into the quarantine before anything is built on it. That is
//!   durable at once, because comparisons are not in the log: after a restart nothing would find the difference again.
//!   The node asks the server for the page (`WantImage`). The server's library sends it as an image in the stream,
//!   ordered with the page's redo, and with that image the page leaves the quarantine ([`crate::apply`] checks it). Until
//!   then the request is repeated after each table that is applied, and reads of the page are repeated for a while
//!   ([`super::healing`]).
//!   More than [`DIFFERENCES_MAX`] differences within [`DIFFERENCES_WINDOW`] have a common cause, and stop the volume.
//!
//! Locks: leaves.

use super::Volume;
use super::context::{Context, Waiter};
use super::healing::Healing;
use super::quarantine::{Surroundings, WANTED_MAX};
use crate::construct::{Builder, VerifyCase};
use crate::counters::add;
use crate::error::NodeError;
use crate::home::Folder;
use crate::index::PageKey;
use crate::quarantine::{Damage, DamagedPage, Difference, PAGES_OF_OBJECT_MAX};
use redoubt_page::Format;
use redoubt_page::format::page_lsn;
use redoubt_redo::{Family, Lsn, PageId};
use redoubt_sync::{Mutex, time};
use redoubt_wire::notice::Notice;
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Note that a mismatch stopped the volume.
const STOPPED: &str = "stopped";
/// Start of the names of reports.
const REPORT_PREFIX: &str = "mismatch-";
/// Reports that are kept. Further differences are counted and logged.
pub const REPORTS_MAX: usize = 32;
/// Differences within [`DIFFERENCES_WINDOW`] that are healed; one more stops the volume.
pub const DIFFERENCES_MAX: usize = 100;
/// See [`DIFFERENCES_MAX`].
pub const DIFFERENCES_WINDOW: Duration = Duration::from_secs(600);

const _: () =
    assert!(DIFFERENCES_MAX < PAGES_OF_OBJECT_MAX, "no object is set aside as a whole for differences");
const _: () =
    assert!(DIFFERENCES_MAX <= WANTED_MAX, "a server is asked for all of them when it connects again");

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

/// The node's page, where it differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Compared {
    lsn: Lsn,
    digest: u32,
}

/// A difference that is healed.
struct Recent {
    found: Instant,
    key: PageKey,
    lsn: Lsn,
}

/// Place of a difference among the recent ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Noted {
    New,
    /// The same comparison was made before.
    Again,
    /// There are more than [`DIFFERENCES_MAX`].
    TooMany,
}

/// The differences that were found.
pub struct Verification {
    context: Arc<Context>,
    mismatches: Mutex<Vec<Mismatch>>,
    /// Oldest first, at most [`DIFFERENCES_MAX`].
    recent: Mutex<VecDeque<Recent>>,
    /// The pages that differ.
    healing: Mutex<Healing>,
    /// Some page differs, and is not in quarantine yet. Spares the lock on the path of every page read.
    has_to_set_aside: AtomicBool,
    /// The connected server was asked for the pages that differ.
    is_server_asked: AtomicBool,
}

impl Volume {
    /// Compares a page that is being applied, and counts. A difference stops the volume, or sets the page aside until the
    /// server sends it.
    ///
    /// # Errors
    /// The reason why the page must not be written.
    pub(super) fn verify(
        &self,
        builder: &Builder,
        key: PageKey,
        case: &VerifyCase<'_>,
    ) -> Result<(), String> {
        let Some(difference) = self.verification.compare(builder, case) else { return Ok(()) };
        if case.heals {
            self.verification.found(key);
        }
        let path = self.indexing.path_of_object(key.object());
        if !case.heals {
            add(&self.context.counters.page_mismatches, 1);
            let reason = self.verification.report(builder, case, &path, difference);
            self.stop_for_difference(&reason);
            return Ok(());
        }
        let reason = format!(
            "it differs from the server's at LSN {}; the server is asked for the page, and sends it at once or with the next write",
            case.lsn
        );
        let mut noted = self.verification.note(key, case.lsn);
        // Also if they come slowly, and are not healed.
        if noted == Noted::New && self.other_differing_pages(key) >= DIFFERENCES_MAX {
            noted = Noted::TooMany;
        }
        if noted == Noted::Again {
            self.set_aside_differing(builder, key, case, &reason);
            return Err(reason);
        }
        add(&self.context.counters.page_mismatches, 1);
        let report = self.verification.report(builder, case, &path, difference);
        if noted == Noted::TooMany {
            let seconds = DIFFERENCES_WINDOW.as_secs();
            self.stop_for_difference(&format!(
                "{report}. It is the last of more than {DIFFERENCES_MAX} pages that differed within {seconds} s or are not healed, which \
                 is more than `redoubt run --on-difference heal` heals: they have a common cause, such as a defect of Redoubt"
            ));
            return Err(reason);
        }
        self.set_aside_differing(builder, key, case, &reason);
        Err(reason)
    }

    /// [`Volume::verify`] for a page that is built before it is applied. A difference that is healed is left to applying,
    /// which compares again.
    ///
    /// # Errors
    /// The reason why the page must not be built.
    pub(super) fn verify_early(
        &self,
        builder: &Builder,
        key: PageKey,
        case: &VerifyCase<'_>,
    ) -> Result<(), String> {
        if !case.heals {
            return self.verify(builder, key, case);
        }
        match self.verification.compare(builder, case) {
            Some(_) => Err("it differs from the server's".to_owned()),
            None => Ok(()),
        }
    }

    /// Number of other pages that are in quarantine because they differ.
    fn other_differing_pages(&self, key: PageKey) -> usize {
        self.quarantine.differing().iter().filter(|other| **other != key).count()
    }

    /// The page differs, and the server's image may be on its way. A page that has just left the quarantine is whole.
    pub(super) fn may_be_healed_soon(&self, key: PageKey) -> bool {
        let may_differ = self.quarantine.list.find(key).is_none_or(|entry| entry.differs.is_some());
        may_differ && self.verification.is_awaited(key)
    }

    /// The page differs, and no server is connected that was asked for it. The server that reads it connects again
    /// for its log, or ends.
    pub(super) fn is_server_not_asked(&self, key: PageKey) -> bool {
        let differs = || self.quarantine.list.find(key).is_some_and(|entry| entry.differs.is_some());
        !self.verification.is_server_asked.load(Ordering::Acquire)
            && self.context.frozen_end().is_none()
            && differs()
    }

    /// The page goes into the quarantine, durably, and the server is asked for it.
    fn set_aside_differing(&self, builder: &Builder, key: PageKey, case: &VerifyCase<'_>, reason: &str) {
        let page = DamagedPage {
            key,
            page_id: builder.page_id,
            is_whole_object: false,
            found_at: None,
            differs: Some(Difference { page_lsn: case.lsn.0, stream_lsn: case.stream_lsn.0 }),
            lsn: case.lsn,
            reason: reason.to_owned(),
            evidence: None,
        };
        let damage = Damage { set_aside: vec![page], ..Damage::default() };
        let file_of = |object| self.indexing.path_of_object(object);
        let set_flag = |has_quarantine| self.session.set_quarantine(has_quarantine);
        let surroundings = Surroundings { file_of: &file_of, set_flag: &set_flag };
        let settled =
            self.context.with_retry(Waiter::Pages, || self.quarantine.settle(&damage, &[], &surroundings));
        if let Err(error) = settled {
            self.stop(&format!("a page that differs from the server's cannot be set aside: {error}"));
            return;
        }
        if let Some(request) = self.indexing.image_request(key) {
            self.context.notices.send(&request);
        }
        let differs = |other| self.quarantine.list.find(other).is_some_and(|entry| entry.differs.is_some());
        self.verification.asked(key, differs);
    }

    /// The stop outlasts a restart of the node: an operator has to act first.
    fn stop_for_difference(&self, reason: &str) {
        if let Err(error) = self.context.own.write(STOPPED, reason.as_bytes()) {
            tracing::error!(event = "verify_stop_failed", volume = self.context.name, %error, "cannot keep the volume stopped");
        }
        self.stop(reason);
    }
}

impl Verification {
    /// Nothing found yet.
    pub fn new(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            mismatches: Mutex::default(),
            recent: Mutex::default(),
            healing: Mutex::default(),
            has_to_set_aside: AtomicBool::new(false),
            is_server_asked: AtomicBool::new(false),
        }
    }

    /// Compares. Counts what is no difference.
    fn compare(&self, builder: &Builder, case: &VerifyCase<'_>) -> Option<Compared> {
        let counters = &self.context.counters;
        let lsn = page_lsn(builder.format.family, case.page).unwrap_or_default();
        if lsn > case.lsn {
            // Our image is from a later point (applied before a crash of the node): nothing to compare.
            add(&counters.pages_not_comparable, 1);
            return None;
        }
        let digest = builder.format.digest(case.page);
        let is_same_version = match builder.format.family {
            Family::MariaDb => lsn == case.lsn,
            // A mini-transaction raises the LSN of pages that it only holds, and logs nothing for those.
            Family::MySql => lsn <= case.lsn,
        };
        if is_same_version && digest == case.digest {
            add(&counters.pages_verified, 1);
            return None;
        }
        Some(Compared { lsn, digest })
    }

    fn note(&self, key: PageKey, lsn: Lsn) -> Noted {
        let mut recent = self.recent.lock();
        while recent.front().is_some_and(|oldest| time::elapsed(oldest.found) >= DIFFERENCES_WINDOW) {
            recent.pop_front();
        }
        if recent.iter().any(|other| (other.key, other.lsn) == (key, lsn)) {
            return Noted::Again;
        }
        if recent.len() >= DIFFERENCES_MAX {
            return Noted::TooMany;
        }
        recent.push_back(Recent { found: time::now(), key, lsn });
        Noted::New
    }

    fn with_healing<T>(&self, change: impl FnOnce(&mut Healing) -> T) -> T {
        let mut healing = self.healing.lock();
        let changed = change(&mut healing);
        self.has_to_set_aside.store(healing.has_to_set_aside(), Ordering::Release);
        changed
    }

    /// The page differs. From now on it is not served.
    fn found(&self, key: PageKey) {
        self.with_healing(|healing| healing.found(key));
    }

    /// The page is in quarantine, and the server was asked for it. `differs` is asked of other pages, now: other threads add
    /// theirs at the same time.
    fn asked(&self, key: PageKey, differs: impl Fn(PageKey) -> bool) {
        self.with_healing(|healing| {
            healing.retain(differs);
            healing.asked(key, time::now());
        });
    }

    /// The server's connection ended, or another one begins. The next one is asked for the pages that differ.
    pub fn server_gone(&self) {
        self.is_server_asked.store(false, Ordering::Release);
    }

    /// A server has connected, and was asked for the pages that differ.
    pub fn server_asked(&self, differing: &[PageKey]) {
        self.with_healing(|healing| {
            for key in differing.iter().copied() {
                // Of others a new comparison is being made durable.
                if !healing.is_to_be_set_aside(key) {
                    healing.asked(key, time::now());
                }
            }
        });
        self.is_server_asked.store(true, Ordering::Release);
    }

    /// The page differs, and is not in quarantine yet.
    pub fn is_to_be_set_aside(&self, key: PageKey) -> bool {
        self.has_to_set_aside.load(Ordering::Acquire) && self.healing.lock().is_to_be_set_aside(key)
    }

    fn is_awaited(&self, key: PageKey) -> bool {
        let last_wait = self.context.last_wait();
        self.with_healing(|healing| healing.is_awaited(key, last_wait, time::now()))
    }

    /// Reports a difference. Returns it in words.
    fn report(
        &self,
        builder: &Builder,
        case: &VerifyCase<'_>,
        path: &str,
        Compared { lsn: ours_lsn, digest: ours }: Compared,
    ) -> String {
        let (page, lsn) = (builder.page_id, case.lsn);
        let (volume, differs) =
            (&self.context.name, format!("page {page} of {path} differs from the server's at LSN {lsn}"));
        tracing::error!(
            event = "page_differs", volume, file = path, %page, lsn = lsn.0, node_lsn = ours_lsn.0, heals = case.heals,
            "page differs from the server's"
        );
        if !self.has_room_for_report() {
            return format!(
                "{differs}; there are {REPORTS_MAX} reports already, see {REPORT_PREFIX}*.txt in {}",
                self.context.own.path().display()
            );
        }
        let text = format!(
            "page {page} of {path}\nserver: LSN {lsn}, digest {:08x}\nnode: LSN {ours_lsn}, digest {ours:08x}\n",
            case.digest
        );
        let name = format!("{REPORT_PREFIX}{}-{}-{lsn}", page.space, page.page_no);
        let report = self.context.own.path().join(&name).with_extension("txt");
        let own = &self.context.own;
        let written = own
            .write(&format!("{name}.txt"), text.as_bytes())
            .and_then(|()| own.write(&format!("{name}.node.page"), case.page));
        if let Err(error) = written {
            tracing::error!(event = "verify_report_failed", volume, %error, "cannot write {}", report.display());
        }
        let (format, ours, page_no) = (builder.format, case.page.to_vec(), page.page_no.0);
        let mut mismatches = self.mismatches.lock();
        if mismatches.len() >= REPORTS_MAX {
            // Its image never came.
            mismatches.remove(0);
        }
        mismatches.push(Mismatch { page, lsn, format, ours, name, text });
        drop(mismatches);
        let path = path.as_bytes().to_vec();
        self.context.notices.send(&Notice::NeedImage { path, page_no, lsn });
        format!("{differs}; see {}", report.display())
    }

    /// Restarts do not add to the reports in the directory.
    fn has_room_for_report(&self) -> bool {
        let own = &self.context.own;
        let is_report = |name: &&String| name.starts_with(REPORT_PREFIX) && name.ends_with(".txt");
        let kept = own.dir().list().map_or(REPORTS_MAX, |names| names.iter().filter(is_report).count());
        kept < REPORTS_MAX
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
