//! List of the files that page store and plain store must have, in the file `stored-files`.
//!
//! A missing or cut file reads as zeros, and changes would be applied to those. So each start compares the stores with
//! this list. A page file that is missing is set aside as a whole ([`super::quarantine`]), until it is there again at a start
//! before a record was left out. If a page file is too short, its missing pages are set aside one by one, unless they are too
//! many. A file that cannot be looked at gets no verdict. A plain file that is missing is *lost* ([`PlainStore::lost`]), until a change empties or
//! removes it.
//!
//! Invariants:
//! * The listed length of a page file is not above the durable length of the file itself: pages in the page journal do not
//!   count, as they hide that the file was cut. Lengths are lowered, durably, before a file is cut.
//! * It is not below that length either, as soon as A or the page journal has moved past the pages that made the file longer
//!   ([`PageStore::set_growth_recorder`]). So a page that is lost with the end of its file is noticed.
//! * A listed plain file that is in the names as of A has its contents, unless frames after A remove or empty them.
//! * A file that is not lost any more leaves the list before A moves.
//!
//! The list is written every [`SAVE_INTERVAL`] and at the end, so plain files that are newer than that are not covered. Newer
//! lengths of page files are appended to a file of their own meanwhile ([`newer`]). The first one of a process writes the
//! list, so that the file continues a list of the same process.
//!
//! An older build changes files without the list, so the list counts only with the checkpoint of a build that keeps it
//! ([`crate::checkpoint::CheckpointFiles::lists_files`]), and is removed otherwise. A list without a number is of a build
//! that does not know newer lengths. A damaged list is as good as none.
//!
//! Stored form: JSON, with the fields of [`Saved`], behind a checksum line ([`crate::checkpoint::write_checked`]).
//!
//! Lock: after that of the page store's writer, before those of the plain store.

mod newer;

use super::Volume;
use super::context::Context;
use super::quarantine::Surroundings;
use crate::checkpoint::{check_format, parse, read_checked, write_checked};
use crate::error::NodeError;
use crate::home::Folder;
use crate::index::PageKey;
use crate::mark::Point;
use crate::namespace::Namespace;
use crate::plain::{Loss, PlainStore};
use crate::quarantine::{Damage, DamagedPage, PAGES_MAX, PAGES_OF_OBJECT_MAX, SetAside};
use newer::NewerLens;
use redoubt_page::Format;
use redoubt_pagestore::{GrowthRecorder, ObjectId, PageStore, PageStoreError};
use redoubt_redo::{Lsn, PageId};
use redoubt_sync::{Mutex, time};
use redoubt_wire::control::is_needed_to_start;
use redoubt_wire::page::FileId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

const FILE_NAME: &str = "stored-files";
const FORMAT: u32 = 1;
/// How often the list is written, if it is different.
const SAVE_INTERVAL: Duration = Duration::from_secs(30);
/// Looks at a file that fail before that counts.
const TRIES: usize = 4;
/// Files that are synced and listed with a batch although it does not change them.
const LISTED_WITH_BATCH: usize = 32;

/// Objects, and the length that their files have at least, in bytes.
type Lens = BTreeMap<u32, u64>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    format: u32,
    /// Each list has another number. 0: no newer lengths continue it.
    #[serde(default)]
    number: u64,
    pages: Lens,
    /// Plain files with contents.
    plain: Vec<u32>,
    /// Plain files that are lost.
    lost: Vec<(u32, Loss)>,
}

struct ListState {
    /// Its page files are in the list on disk, or among the newer lengths.
    list: Saved,
    /// The list on disk is not the same.
    is_changed: bool,
    /// Number of the last list, whether it was written or not.
    number: u64,
    /// Newer lengths. `None`: the next ones go to a list.
    newer: Option<NewerLens>,
    /// Objects whose files are longer than listed. A few at a time are synced and listed: there may be thousands.
    longer: Vec<ObjectId>,
    saved_at: Instant,
}

/// A page file that has fewer bytes than are listed.
#[derive(Debug, PartialEq, Eq)]
struct Short {
    object: ObjectId,
    /// `None`: it is missing.
    len_bytes: Option<u64>,
    had_bytes: u64,
}

/// Result of the comparison of the page files with the list.
#[derive(Debug, Default, PartialEq, Eq)]
struct Findings {
    short: Vec<Short>,
    /// Listed files that have all listed bytes.
    whole: BTreeSet<ObjectId>,
}

/// Length of an object's file; `None`: it is missing. One failure proves nothing.
fn look_at(store: &dyn PageStore, object: ObjectId) -> Result<Option<u64>, PageStoreError> {
    let mut tries = 1;
    loop {
        match store.found_len_bytes(object) {
            Ok(len_bytes) => return Ok(Some(len_bytes)),
            Err(_) if tries < TRIES => tries += 1,
            Err(PageStoreError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
}

/// The page store has this page. Not certain of a page of zeros: a file that was cut may have become longer again.
pub(super) fn has_page(names: &Namespace, object: ObjectId, page_no: u32, store: &dyn PageStore) -> bool {
    let Some(flags) = names.object(object).and_then(|entry| entry.flags) else { return false };
    let mut page = vec![0; Format { family: names.family(), flags }.physical_page_size_bytes()];
    let is_read = store.read_page(object, page_no, &mut page).unwrap_or(false);
    is_read && page.iter().any(|byte| *byte != 0)
}

impl Short {
    /// The pages that are missing. `None`: the file is missing, the pages are not known, or they are too many to be set
    /// aside one by one.
    fn missing_pages(&self, names: &Namespace) -> Option<Range<u32>> {
        let entry = names.object(self.object)?;
        let format = Format { family: names.family(), flags: entry.flags? };
        let page_len = format.physical_page_size_bytes() as u64;
        let first = self.len_bytes?.checked_div(page_len)?;
        let end = self.had_bytes.checked_add(page_len - 1)? / page_len;
        let path = names.path_of_object(self.object);
        let is_needed = entry.space == Some(0) || path.is_some_and(is_needed_to_start);
        let most = if is_needed { PAGES_MAX } else { PAGES_OF_OBJECT_MAX };
        let is_few = end.saturating_sub(first) <= most as u64;
        Some(u32::try_from(first).ok()?..u32::try_from(end).ok()?).filter(|_| is_few)
    }

    /// Pages to be set aside, or the whole object; `applied`: A.
    fn set_aside(&self, names: &Namespace, applied: Point, store: &dyn PageStore) -> Vec<DamagedPage> {
        let space = names.object(self.object).and_then(|entry| entry.space).unwrap_or(u32::MAX);
        let had_bytes = self.had_bytes;
        let reason = match self.len_bytes {
            None => format!("its file on the node is missing, and had {had_bytes} bytes before"),
            Some(len_bytes) => {
                format!("its file on the node has {len_bytes} bytes, and had {had_bytes} before")
            }
        };
        let pages = self.missing_pages(names);
        let is_whole_object = pages.is_none();
        // A cut file that is long again may have holes, and which pages it lacked is not known. A missing file that is there
        // again may lack pages that only the journal had.
        let is_complete = self.len_bytes.is_none() && !store.has_lost_images(self.object);
        let can_return = !is_whole_object || is_complete;
        let of = |page_no| DamagedPage {
            key: PageKey::new(self.object, page_no),
            page_id: PageId::new(space, page_no),
            is_whole_object,
            found_at: can_return.then_some(applied.seq),
            differs: None,
            // Before A: in the state at A it is not whole.
            lsn: Lsn(applied.lsn.0.saturating_sub(1)),
            reason: reason.clone(),
            evidence: None,
        };
        // The page journal may have some of them.
        let is_missing = |page_no: &u32| is_whole_object || !has_page(names, self.object, *page_no, store);
        pages.unwrap_or(0..1).filter(is_missing).map(of).collect()
    }
}

fn write_list(own: &Folder, list: &Saved) -> Result<(), NodeError> {
    let encode = |error: serde_json::Error| NodeError::io("encode", own.path().join(FILE_NAME), error.into());
    write_checked(own, FILE_NAME, &serde_json::to_vec(list).map_err(encode)?)
}

/// List of the files that page store and plain store must have.
pub struct StoredFiles {
    context: Arc<Context>,
    state: Mutex<ListState>,
}

impl StoredFiles {
    /// Nothing is listed yet.
    pub fn new(context: &Arc<Context>) -> Self {
        let list = Saved { format: FORMAT, ..Saved::default() };
        let state = ListState {
            list,
            is_changed: false,
            number: 0,
            newer: None,
            longer: Vec::new(),
            saved_at: time::now(),
        };
        Self { context: Arc::clone(context), state: Mutex::new(state) }
    }

    /// Writes the first list of a new volume, whose files are durable.
    ///
    /// # Errors
    /// [`NodeError::Io`], [`NodeError::PageStore`].
    pub fn create(own: &Folder, store: &dyn PageStore, plain: &PlainStore) -> Result<(), NodeError> {
        let len_of = |object: ObjectId| Ok((object.0, store.len_bytes(object)?));
        let pages = store.objects()?.into_iter().map(len_of).collect::<Result<Lens, NodeError>>()?;
        let plain = plain.stored()?.into_iter().map(|file| file.0).collect();
        write_list(own, &Saved { format: FORMAT, number: 1, pages, plain, lost: Vec::new() })
    }

    /// Compares the stores with the list, and lists what they have. Before any change is made. Notes the plain files that
    /// are lost.
    fn check(
        &self,
        is_valid: bool,
        store: &dyn PageStore,
        plain: &PlainStore,
        names: &Namespace,
    ) -> Result<Findings, NodeError> {
        let saved = if is_valid {
            self.read()?
        } else {
            // The next checkpoint is of this build. The list must not count then, and a new one comes later.
            self.context.own.remove(FILE_NAME)?;
            self.context.own.sync()?;
            Saved::default()
        };
        if saved.number == 0 {
            // Otherwise it would count with one of the next lists.
            newer::remove(&self.context.own)?;
        }
        let (findings, pages, longer) = self.check_pages(&saved.pages, store, names)?;
        let number = saved.number;
        let stored: BTreeSet<_> = plain.stored()?.into_iter().map(|file| file.0).collect();
        let missing = saved.plain.iter().filter(|file| !stored.contains(file));
        let losses = missing.map(|file| (FileId(*file), Loss::of_missing()));
        let saved_lost = saved.lost;
        let losses = losses.chain(saved_lost.iter().map(|(file, loss)| (FileId(*file), loss.clone())));
        plain.add_lost(losses, |file| names.file(file).is_some());
        {
            let mut state = self.state.lock();
            // A list of page files alone must not forget the plain files.
            let lost = plain.all_lost().into_iter().map(|(file, loss)| (file.0, loss)).collect();
            let plain = stored.into_iter().collect();
            state.list = Saved { format: FORMAT, number, pages, plain, lost };
            (state.number, state.longer, state.is_changed) = (number, longer, true);
        }
        let is_listed = |lost: &(FileId, Loss)| saved_lost.contains(&(lost.0.0, lost.1.clone()));
        if !plain.all_lost().iter().all(is_listed) {
            // Changes will give the file contents, and hide the loss.
            self.save(plain)?;
        }
        Ok(findings)
    }

    /// The findings, the next list, and the objects whose files are longer than listed.
    fn check_pages(
        &self,
        listed: &BTreeMap<u32, u64>,
        store: &dyn PageStore,
        names: &Namespace,
    ) -> Result<(Findings, Lens, Vec<ObjectId>), NodeError> {
        let (mut findings, mut longer) = (Findings::default(), Vec::new());
        let mut pages = listed.clone();
        pages.retain(|object, _| names.object(ObjectId(*object)).is_some());
        let mut missing: BTreeSet<_> = pages.keys().copied().map(ObjectId).collect();
        for object in store.objects()?.into_iter().filter(|object| names.object(*object).is_some()) {
            let len_bytes = match look_at(store, object) {
                Ok(Some(len_bytes)) => len_bytes,
                Ok(None) => continue,
                Err(error) => {
                    missing.remove(&object);
                    tracing::warn!(event = "stored_file_not_checked", volume = self.context.name, object = object.0, %error, "a page file cannot be looked at; a loss in it goes unnoticed at this start");
                    continue;
                }
            };
            let was_listed = missing.remove(&object);
            let had_bytes = pages.entry(object.0).or_default();
            if len_bytes < *had_bytes {
                findings.short.push(Short { object, len_bytes: Some(len_bytes), had_bytes: *had_bytes });
            } else if was_listed {
                findings.whole.insert(object);
            }
            if len_bytes > *had_bytes {
                longer.push(object);
            }
        }
        for object in missing {
            let had_bytes = pages.get(&object.0).copied().unwrap_or(0);
            findings.short.push(Short { object, len_bytes: None, had_bytes });
        }
        Ok((findings, pages, longer))
    }

    fn read(&self) -> Result<Saved, NodeError> {
        let own = &self.context.own;
        let read = || -> Result<Saved, NodeError> {
            if own.find(FILE_NAME)?.is_none() {
                return Ok(Saved::default());
            }
            let body = read_checked(own, FILE_NAME)?;
            check_format(own, FILE_NAME, &body, FORMAT..=FORMAT)?;
            parse(own, FILE_NAME, &body)
        };
        let unusable = |error: &NodeError| {
            tracing::warn!(event = "stored_files_unusable", volume = self.context.name, %error, "list of stored files is not usable; missing files go unnoticed at this start");
        };
        let mut saved = match read() {
            Err(error) if error.is_unusable_file() => {
                unusable(&error);
                Saved::default()
            }
            saved => saved?,
        };
        if saved.number > 0 {
            match newer::read(own, saved.number) {
                Err(error) if error.is_unusable_file() => unusable(&error),
                newer => saved.pages.extend(newer?),
            }
        }
        Ok(saved)
    }

    /// Page files have these lengths, durably. Durable itself when it returns.
    ///
    /// # Errors
    /// [`NodeError::Io`]: A must not move, and no other copy of their pages may be given up.
    pub fn grown(&self, lens: &[(ObjectId, u64)]) -> Result<(), NodeError> {
        let mut state = self.state.lock();
        let listed = &state.list.pages;
        let is_newer =
            |(object, len_bytes): &(u32, u64)| listed.get(object).is_none_or(|listed| listed < len_bytes);
        let entries = lens.iter().map(|(object, len_bytes)| (object.0, *len_bytes));
        let entries: newer::Entries = entries.filter(is_newer).collect();
        if entries.is_empty() {
            return Ok(());
        }
        match state.newer.as_mut().filter(|newer| !newer.is_long()) {
            Some(newer) => {
                if let Err(error) = newer.append(&self.context.own, &entries) {
                    // After a failed sync, no write to this file may succeed any more. The next try writes a list.
                    state.newer = None;
                    return Err(error);
                }
            }
            None => {
                let mut list = state.list.clone();
                list.pages.extend(entries);
                return self.write(&mut state, list);
            }
        }
        state.list.pages.extend(entries);
        state.is_changed = true;
        Ok(())
    }

    /// A has moved, and these objects are gone. Lists some of the files that a start found longer than listed.
    pub fn applied(&self, dead: &[ObjectId], store: &dyn PageStore) {
        let longer: Vec<_> = {
            let mut state = self.state.lock();
            for object in dead {
                let was_listed = state.list.pages.remove(&object.0).is_some();
                state.is_changed |= was_listed;
            }
            let others = state.longer.len().saturating_sub(LISTED_WITH_BATCH);
            let longer = state.longer.split_off(others);
            let listed = |object: ObjectId| state.list.pages.get(&object.0).copied().unwrap_or(0);
            longer.into_iter().map(|object| (object, listed(object))).collect()
        };
        // If the object is set aside or gone, or its file cannot be read now, its entry stays.
        let len_of = |(object, listed)| Some((object, store.synced_len_bytes(object, listed).ok()?));
        let lens: Vec<_> = longer.into_iter().filter_map(len_of).collect();
        if let Err(error) = self.grown(&lens) {
            self.warn_not_saved(&error);
        }
    }

    /// The file of an object is about to be cut to this length.
    ///
    /// # Errors
    /// [`NodeError::Io`]: it must not be cut.
    pub fn before_cut(&self, object: ObjectId, len_bytes: u64) -> Result<(), NodeError> {
        let mut state = self.state.lock();
        if state.list.pages.get(&object.0).is_none_or(|listed| *listed <= len_bytes) {
            return Ok(());
        }
        let mut list = state.list.clone();
        list.pages.insert(object.0, len_bytes);
        self.write(&mut state, list)
    }

    /// A is about to move: a file that is not lost any more must not be listed as lost.
    ///
    /// # Errors
    /// [`NodeError::Io`]: A must not move.
    pub fn before_checkpoint(&self, plain: &PlainStore) -> Result<(), NodeError> {
        // Under the lock, so that A waits for the list that another thread is writing.
        let mut state = self.state.lock();
        if !plain.take_lost_changed() {
            return Ok(());
        }
        self.save_locked(&mut state, plain).inspect_err(|_| plain.set_lost_changed())
    }

    /// Writes the list if it is time. A failure is only logged.
    pub fn save_if_due(&self, plain: &PlainStore) {
        let is_due = {
            let state = self.state.lock();
            state.is_changed && time::elapsed(state.saved_at) >= SAVE_INTERVAL
        };
        if is_due {
            self.save_or_log(plain);
        }
    }

    /// Writes the list. A failure is only logged.
    pub fn save_or_log(&self, plain: &PlainStore) {
        if let Err(error) = self.save(plain) {
            self.warn_not_saved(&error);
        }
    }

    fn warn_not_saved(&self, error: &NodeError) {
        tracing::warn!(event = "stored_files_not_saved", volume = self.context.name, %error, "list of stored files cannot be written");
    }

    fn save(&self, plain: &PlainStore) -> Result<(), NodeError> {
        self.save_locked(&mut self.state.lock(), plain)
    }

    fn save_locked(&self, state: &mut ListState, plain: &PlainStore) -> Result<(), NodeError> {
        let stored = plain.stored()?.into_iter().map(|file| file.0).collect();
        let lost = plain.all_lost().into_iter().map(|(file, loss)| (file.0, loss)).collect();
        let list = Saved { plain: stored, lost, ..state.list.clone() };
        self.write(state, list)
    }

    /// The list in memory is that on disk only when it is there for certain: a cut relies on it.
    fn write(&self, state: &mut ListState, mut list: Saved) -> Result<(), NodeError> {
        // Also if it fails: the list may be there all the same, and newer lengths would not continue it.
        (state.is_changed, state.newer) = (true, None);
        state.number += 1;
        list.number = state.number;
        write_list(&self.context.own, &list)?;
        state.newer = Some(NewerLens::after(list.number));
        (state.list, state.is_changed, state.saved_at) = (list, false, time::now());
        Ok(())
    }
}

/// Lists the files that become longer.
pub fn recorder(stored_files: &Arc<StoredFiles>) -> GrowthRecorder {
    let stored_files = Arc::clone(stored_files);
    Box::new(move |lens| {
        stored_files.grown(lens).map_err(|error| match error {
            NodeError::Io { source, .. } => source,
            other => io::Error::other(other.to_string()),
        })
    })
}

impl Volume {
    /// Sets aside what the stores have lost, and rebuilds what can be. Before any change is made; `lists_files`: the
    /// checkpoint is of a build that keeps the list.
    pub(super) fn check_stored_files(&self, lists_files: bool) -> Result<(), NodeError> {
        let (store, stored_files) = (&*self.applying.store, &self.applying.stored_files);
        let applied = self.applying.applied().get();
        let mut damage = Damage::default();
        {
            let names = self.indexing.names.read();
            let findings = stored_files.check(lists_files, store, &self.plain, &names)?;
            let short = findings.short.iter();
            damage.set_aside = short.flat_map(|short| short.set_aside(&names, applied, store)).collect();
            // Pages that files lacked at an earlier start, if no record was left out since.
            let is_back = |entry: &&SetAside| {
                let object = ObjectId(entry.object);
                let has = |page_no| has_page(&names, object, page_no, store);
                entry.found_at == Some(applied.seq.0)
                    && findings.whole.contains(&object)
                    && entry.page_no.is_none_or(has)
            };
            let set_aside = self.quarantine.list.contents();
            let back = set_aside.entries().filter(is_back);
            damage.back = back.map(|entry| (ObjectId(entry.object), entry.page_no)).collect();
        }
        let surroundings = Surroundings {
            file_of: &|object| self.indexing.path_of_object(object),
            set_flag: &|has_quarantine| self.session.set_quarantine(has_quarantine),
        };
        self.quarantine.settle(&damage, &[], &surroundings)?;
        store.forget_found_lens()?;
        store.set_growth_recorder(recorder(stored_files));
        self.rebuild_missing_pages(&surroundings)
    }

    /// Logs the plain files that are lost. After the changes after A: some of them remove or empty files.
    pub(super) fn report_lost_files(&self) {
        self.plain.set_losses_final();
        for (_, path, reason) in self.lost_files() {
            tracing::error!(
                event = "plain_file_lost",
                volume = self.context.name,
                path,
                reason,
                "plain file is lost"
            );
        }
    }

    /// Number, path and reason of the plain files that are lost. None before the changes after A are made again.
    pub(super) fn lost_files(&self) -> Vec<(FileId, String, String)> {
        self.describe_losses(self.plain.reported_losses())
    }

    /// Number, path and reason of these losses of plain files.
    pub(super) fn describe_losses(&self, lost: Vec<(FileId, Loss)>) -> Vec<(FileId, String, String)> {
        if lost.is_empty() {
            return Vec::new();
        }
        let names = self.indexing.names.read();
        let of = |(file, loss): (FileId, Loss)| {
            let path = names.file(file)?.path.clone();
            Some((file, path, loss.reason()))
        };
        lost.into_iter().filter_map(of).collect()
    }
}

#[cfg(test)]
#[path = "stored_files_tests.rs"]
mod tests;
