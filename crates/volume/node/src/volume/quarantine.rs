//! The quarantine of a volume ([`crate::quarantine`]) on its disk.
//!
//! | file | what |
//! |---|---|
//! | `quarantine`, `quarantine.copy` | list of the pages that are set aside, twice, each replaced atomically; there is no file without such pages |
//! | `quarantine-<space>-<page>.txt`, `.page` | evidence: reason and records, and the stored page; at most [`EVIDENCE_MAX`] pages |
//!
//! The identity of the volume counts the files: while it has the flag, one of them must be there and whole, and older builds
//! refuse the volume. Without the flag they are removed. They are left over then from a node that was killed before A passed
//! the first skipped record, or after the last entry had gone.
//!
//! Invariant: file and flag are durable before a checkpoint passes the first record that was left out. An entry is
//! removed only when the page that replaces it is durable, or with the checkpoint that removes its object.
//!
//! The apply thread changes it, and its workers when they find pages that differ from the server's. Lock order: flag, then the session's identity or the pages that are not requested.

use super::context::Context;
use crate::checkpoint::{check_format, read_checked, write_checked};
use crate::counters::add;
use crate::error::NodeError;
use crate::home::Folder;
use crate::index::PageKey;
use crate::namespace::Namespace;
use crate::quarantine::{Contents, Damage, DamagedPage, FORMAT, Found, Quarantine, SetAside};
use redoubt_pagestore::ObjectId;
use redoubt_sync::Mutex;
use redoubt_wire::control::QuarantinedPage;
use redoubt_wire::notice::Notice;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Written in this order.
const FILE_NAMES: [&str; 2] = ["quarantine", "quarantine.copy"];
const EVIDENCE_PREFIX: &str = "quarantine-";
/// Pages whose evidence is kept.
pub const EVIDENCE_MAX: usize = 32;
/// Entries in a status.
pub const SHOWN_MAX: usize = 100;
/// Pages that a server is asked for at once.
pub const WANTED_MAX: usize = 1000;

/// The quarantine of a volume.
pub struct QuarantineFile {
    context: Arc<Context>,
    /// For the threads that read and build pages.
    pub list: Quarantine,
    /// Damaged pages that only reads and the scrub have met. The scrub keeps them ([`super::scrub`]).
    pub found: Found,
    /// Pages of the last settlement that no server was asked for.
    not_requested: Mutex<Vec<PageKey>>,
    /// The identity has the flag.
    is_flagged: Mutex<bool>,
}

/// Calls into the other parts of the volume.
pub struct Surroundings<'s> {
    /// Path of an object's file.
    pub file_of: &'s dyn Fn(ObjectId) -> String,
    /// Changes the flag in the identity, durably.
    pub set_flag: &'s dyn Fn(bool) -> Result<(), NodeError>,
}

impl QuarantineFile {
    /// Reads it. `names` are those of the checkpoint: objects that came later are made again by the frames after it.
    ///
    /// # Errors
    /// [`NodeError::Io`], [`NodeError::Damaged`].
    pub fn open(context: &Arc<Context>, is_flagged: bool, names: &Namespace) -> Result<Self, NodeError> {
        let mut contents = if is_flagged { read(&context.own)? } else { Contents::default() };
        contents.retain(|object| names.object(object).is_some());
        for entry in contents.entries() {
            tracing::warn!(
                event = "page_in_quarantine",
                volume = context.name,
                file = entry.file,
                page_no = entry.page_no,
                lsn = entry.lsn,
                reason = entry.reason,
                "page is in quarantine"
            );
        }
        remove_leftovers(&context.own, &contents, is_flagged);
        let list = Quarantine::new(contents);
        let (context, found) = (Arc::clone(context), Found::default());
        let not_requested = Mutex::default();
        Ok(Self { context, list, found, not_requested, is_flagged: Mutex::new(is_flagged) })
    }

    /// A read, or the scrub, has met a damaged page.
    pub fn note_found(&self, entry: SetAside) {
        let Some(page_no) = entry.page_no else { return };
        let key = PageKey::new(ObjectId(entry.object), page_no);
        if self.list.find(key).is_some() || !self.found.add(key, entry.clone()) {
            return;
        }
        tracing::error!(
            event = "damaged_page_found",
            volume = self.context.name,
            file = entry.file,
            page_no,
            reason = entry.reason,
            "a damaged page was found that cannot be rebuilt"
        );
    }

    /// Takes in what applying has found, before the checkpoint that passes it. `dead`: the objects that leave it, because
    /// that checkpoint passes their end.
    ///
    /// # Errors
    /// [`NodeError::Io`]; the same call may be repeated.
    pub fn settle(
        &self,
        damage: &Damage,
        dead: &[ObjectId],
        surroundings: &Surroundings<'_>,
    ) -> Result<(), NodeError> {
        let mut is_flagged = self.is_flagged.lock();
        let before = self.list.contents();
        let is_settled = before.is_empty() != *is_flagged;
        let concerns = |object: &ObjectId| before.entries().any(|entry| entry.object == object.0);
        if is_settled && damage.is_empty() && (before.is_empty() || !dead.iter().any(concerns)) {
            return Ok(());
        }
        let after = before.after(damage, dead, surroundings.file_of);
        if is_settled && after == *before {
            return Ok(());
        }
        let own = &self.context.own;
        if after.is_empty() {
            if *is_flagged {
                (surroundings.set_flag)(false)?;
                *is_flagged = false;
            }
            FILE_NAMES.into_iter().try_for_each(|name| own.remove(name))?;
        } else {
            write(own, &after)?;
            if !*is_flagged {
                (surroundings.set_flag)(true)?;
                *is_flagged = true;
            }
        }
        self.report(&before, &after, damage);
        let new = after.entries().filter(|entry| !before.has(entry)).filter_map(page_key);
        let new: Vec<_> = new.take(WANTED_MAX).collect();
        self.list.set(after);
        self.found.retain(|key| self.list.find(key).is_none());
        *self.not_requested.lock() = new;
        Ok(())
    }

    /// Asks the server for the pages that the last settlement has set aside, the first [`WANTED_MAX`].
    pub fn request_new(&self, request_of: &dyn Fn(PageKey) -> Option<Notice>) {
        let new = std::mem::take(&mut *self.not_requested.lock());
        new.into_iter().filter_map(request_of).for_each(|notice| self.context.notices.send(&notice));
    }

    /// The pages that differ from the server's.
    pub fn differing(&self) -> Vec<PageKey> {
        let contents = self.list.contents();
        contents.entries().filter(|entry| entry.differs.is_some()).filter_map(page_key).collect()
    }

    /// Asks the server again for the pages that differ, the first [`WANTED_MAX`]. Its library ignores a request that it has. A
    /// request ends when the image is sent, which may not have been taken, and is lost if the file is renamed meanwhile.
    pub fn request_differing(&self, request_of: &dyn Fn(PageKey) -> Option<Notice>) {
        let requests = self.differing().into_iter().filter_map(request_of).take(WANTED_MAX);
        requests.for_each(|notice| self.context.notices.send(&notice));
    }

    fn report(&self, before: &Contents, after: &Contents, damage: &Damage) {
        let volume = &self.context.name;
        for entry in after.entries().filter(|entry| !before.has(entry)) {
            tracing::error!(
                event = "page_set_aside",
                volume,
                file = entry.file,
                page_no = entry.page_no,
                lsn = entry.lsn,
                reason = entry.reason,
                "page set aside; the rest of the volume continues"
            );
        }
        for page in damage.set_aside.iter().filter(|page| page.evidence.is_some()).take(EVIDENCE_MAX) {
            if let Err(error) = self.keep_evidence(page) {
                tracing::warn!(event = "quarantine_evidence_not_kept", volume, %error, "evidence of a damaged page not kept");
            }
        }
        for entry in before.entries() {
            if after.same_place(entry).is_some() || after.find_object(ObjectId(entry.object)).is_some() {
                continue;
            }
            tracing::info!(
                event = "page_leaves_quarantine",
                volume,
                file = entry.file,
                page_no = entry.page_no,
                differed = entry.differs.is_some(),
                "page leaves the quarantine"
            );
            if entry.differs.is_some() && damage.renewed.iter().any(|key| page_key(entry) == Some(*key)) {
                add(&self.context.counters.pages_healed, 1);
            }
            let name = evidence_name(entry.space, entry.page_no);
            for extension in ["txt", "page"] {
                // A file that stays does no harm.
                let _ = self.context.own.remove(&format!("{name}.{extension}"));
            }
        }
    }

    fn keep_evidence(&self, page: &DamagedPage) -> Result<(), NodeError> {
        let own = &self.context.own;
        let Some(evidence) = &page.evidence else { return Ok(()) };
        let name = evidence_name(page.page_id.space.0, Some(page.page_id.page_no.0));
        let names = own.dir().list().map_err(|error| NodeError::io("list", own.path(), error))?;
        let kept =
            names.iter().filter(|name| name.starts_with(EVIDENCE_PREFIX) && name.ends_with(".txt")).count();
        if kept >= EVIDENCE_MAX {
            return Ok(());
        }
        let text = format!(
            "page {} (object {})\nfirst record left out: LSN {}\nreason: {}\nrecords:\n{}",
            page.page_id,
            page.key.object().0,
            page.lsn,
            page.reason,
            evidence.records
        );
        own.write(&format!("{name}.txt"), text.as_bytes())?;
        own.write(&format!("{name}.page"), &evidence.base)
    }

    /// Requests for the damaged pages that a server may still have, the first [`WANTED_MAX`].
    pub fn wanted_images(&self, request_of: &dyn Fn(PageKey) -> Option<Notice>) -> Vec<Notice> {
        // They are in the list.
        self.not_requested.lock().clear();
        let (contents, found) = (self.list.contents(), self.found.entries());
        let pages = contents.entries().chain(&found).filter_map(page_key);
        pages.filter_map(request_of).take(WANTED_MAX).collect()
    }

    /// Number of entries, and of damaged pages that only reads have met.
    pub fn count(&self) -> u64 {
        let contents = self.list.contents();
        (contents.len() + self.only_found(&contents).len()) as u64
    }

    /// Damaged pages that only reads have met, and that are not set aside by now.
    fn only_found(&self, contents: &Contents) -> Vec<SetAside> {
        let is_listed = |entry: &SetAside| {
            entry
                .page_no
                .is_some_and(|page_no| contents.find(PageKey::new(ObjectId(entry.object), page_no)).is_some())
        };
        let mut found = self.found.entries();
        found.retain(|entry| !is_listed(entry));
        found
    }

    /// For `redoubt status`: the first entries, and the number of all. Pages that only reads have met come last.
    pub fn status(&self) -> (Vec<QuarantinedPage>, u64) {
        let contents = self.list.contents();
        let found = self.only_found(&contents);
        let of = |entry: &SetAside| QuarantinedPage {
            file: entry.file.clone(),
            object: entry.object,
            space: entry.space,
            page_no: entry.page_no,
            lsn: entry.lsn,
            reason: entry.reason.clone(),
            restore_from: None,
        };
        let shown = contents.entries().chain(&found).take(SHOWN_MAX).map(of).collect();
        (shown, (contents.len() + found.len()) as u64)
    }
}

/// The page of an entry; `None`: it is a whole object. Images do not help that.
pub(super) fn page_key(entry: &SetAside) -> Option<PageKey> {
    Some(PageKey::new(ObjectId(entry.object), entry.page_no?))
}

fn evidence_name(space: u32, page_no: Option<u32>) -> String {
    match page_no {
        Some(page_no) => format!("{EVIDENCE_PREFIX}{space}-{page_no}"),
        None => format!("{EVIDENCE_PREFIX}{space}"),
    }
}

/// Removes evidence of pages that are no longer set aside, and without the flag the lists. A file that stays does no harm.
fn remove_leftovers(own: &Folder, contents: &Contents, is_flagged: bool) {
    let counts: BTreeSet<_> =
        contents.entries().map(|entry| evidence_name(entry.space, entry.page_no)).collect();
    let is_leftover = |name: &String| {
        let stem = name.rsplit_once('.').map_or(name.as_str(), |(stem, _)| stem);
        let is_list = FILE_NAMES.contains(&name.as_str());
        if is_list { !is_flagged } else { name.starts_with(EVIDENCE_PREFIX) && !counts.contains(stem) }
    };
    for name in own.dir().list().unwrap_or_default().iter().filter(|name| is_leftover(name)) {
        if let Err(error) = own.remove(name) {
            tracing::warn!(event = "quarantine_leftover_not_removed", %error, "a leftover file of the quarantine is not removed");
        }
    }
}

fn write(own: &Folder, contents: &Contents) -> Result<(), NodeError> {
    let [first, _] = FILE_NAMES;
    let encode = |error: serde_json::Error| NodeError::io("encode", own.path().join(first), error.into());
    let body = contents.encode().map_err(encode)?;
    FILE_NAMES.into_iter().try_for_each(|name| write_checked(own, name, &body))
}

/// The list, from the file that is whole; the other one is written again.
fn read(own: &Folder) -> Result<Contents, NodeError> {
    let [first, second] = FILE_NAMES.map(|name| read_file(own, name));
    let both_are_the_same = matches!((&first, &second), (Ok(first), Ok(second)) if first == second);
    let contents = match (first, second) {
        (Ok(contents), Ok(_)) => contents,
        (Ok(contents), Err(error)) | (Err(error), Ok(contents)) if error.is_unusable_file() => {
            tracing::warn!(event = "quarantine_list_unusable", %error, "a list of damaged pages is not usable; its copy is used");
            contents
        }
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    if !both_are_the_same && let Err(error) = write(own, &contents) {
        // Also on a full disk the volume is opened.
        tracing::warn!(event = "quarantine_list_not_written", %error, "only one copy of the list of damaged pages is usable, and the other one is not written");
    }
    Ok(contents)
}

fn read_file(own: &Folder, name: &str) -> Result<Contents, NodeError> {
    let path = own.path().join(name);
    if own.find(name)?.is_none() {
        let reason = "it lists the damaged pages of the volume, and is missing; put it back, or restore the volume from an \
                      export";
        return Err(NodeError::Damaged { path, reason: reason.to_owned() });
    }
    let body = read_checked(own, name)?;
    check_format(own, name, &body, FORMAT..=FORMAT)?;
    Contents::decode(&body).map_err(|reason| NodeError::Damaged { path, reason })
}

#[cfg(test)]
#[path = "quarantine_tests.rs"]
mod tests;
