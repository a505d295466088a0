//! One pass of the scrub, in small steps: the log, the pages, repairs of what was found, the plain files.
//!
//! A page is read through the page store, so never while it is being written. Before each range of pages the caches of the
//! drive's file are dropped. A page is damaged if several reads fail its checksum. It is a suspect if the log up to A has a
//! change that it lacks, or if the page journal has another newest version; [`super::super::outdated`] decides.

mod settling;

use super::{CHECK_RETRY_INTERVAL, Volume};
use crate::error::NodeError;
use crate::index::PageKey;
use crate::mark::Point;
use crate::plain::{FileWalk, Walked};
use crate::rescue::DamagedImage;
use crate::scrub::NewestChanges;
use crate::volume::rescue::is_damage;
use redoubt_page::Format;
use redoubt_page::format::page_lsn;
use redoubt_pagestore::{ObjectId, PageStoreError};
use redoubt_redo::PageId;
use redoubt_sync::time;
use redoubt_wire::control::CheckProgress;
use redoubt_wire::page::FileId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes of the log that are read at once.
const LOG_READ_BYTES: u64 = 256 << 10;
/// Pages whose cached bytes are dropped together. Reading ahead goes past the end of a range, so not too few.
const RANGE_PAGES: u32 = 64;
/// Reads of a page, two at a time, before it is damaged; and comparisons with the page journal.
const READS_OF_DAMAGE: usize = 2;
/// Damaged pages that are rebuilt with one pass over the log.
const REBUILT_TOGETHER: usize = 256;
/// Damaged pages of one object after which the rest of it is left out.
const DAMAGED_OF_OBJECT_MAX: usize = crate::quarantine::PAGES_OF_OBJECT_MAX;
/// Reads of a part of the log before it is damaged.
const LOG_READS_OF_DAMAGE: usize = 3;

/// How long the pass waits until plain files are those of the log, and between two looks.
const FILES_WAIT_MAX: Duration = Duration::from_secs(60);
const FILES_LOOK: Duration = Duration::from_millis(20);

/// Where a pass continues after a restart: it always reads the log first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeAt {
    /// With this page, or the next one that there is.
    Page {
        /// Its object.
        object: u32,
        /// Its number.
        page_no: u32,
    },
    /// With this plain file, or the next one that there is.
    File(u32),
}

impl Default for ResumeAt {
    fn default() -> Self {
        Self::Page { object: 0, page_no: 0 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Log,
    Pages,
    Repairs,
    Files,
    Done,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Pages => "pages",
            Self::Repairs => "repairs",
            Self::Files => "plain files",
            Self::Done => "",
        }
    }
}

/// The log that is being read.
struct LogWalk {
    start: Point,
    at: Point,
    end: Point,
    failures: usize,
}

/// The object that is being read.
struct ObjectWalk {
    object: ObjectId,
    format: Format,
    next: u32,
    /// Pages whose caches were dropped.
    range: Range<u32>,
    /// Newest images that the page journal has of the range: checksums.
    images: BTreeMap<u32, u32>,
    damaged: usize,
}

/// A pass.
#[derive(Default)]
pub struct Pass {
    stage: Stage,
    place: ResumeAt,
    log: Option<LogWalk>,
    newest: NewestChanges,
    object: Option<ObjectWalk>,
    /// Damaged pages that are not yet rebuilt.
    damaged: Vec<DamagedImage>,
    /// Damaged pages that the apply thread is to write again.
    repairing: Vec<DamagedImage>,
    file: Option<FileWalk>,
    waits_since: Option<Instant>,
    files_wait_since: Option<Instant>,
    outdated_before: u64,
    unexamined_before: u64,
    /// Pages rebuilt from their images and the log.
    rebuilt: u64,
    is_reported: bool,
    progress: CheckProgress,
}

impl Pass {
    /// Everything was read.
    pub fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Its end was reported.
    pub fn is_reported(&self) -> bool {
        self.is_reported
    }

    /// Its end is reported.
    pub fn set_reported(&mut self) {
        self.is_reported = true;
    }

    /// How far it is. The state of the volume in it is filled in by the caller.
    pub fn progress(&self) -> &CheckProgress {
        &self.progress
    }

    /// Where it continues after a restart.
    pub fn place(&self) -> &ResumeAt {
        &self.place
    }

    /// Places that the same pass did not check before a restart.
    pub fn set_unchecked(&mut self, unchecked: u64, first: String) {
        (self.progress.unchecked, self.progress.first_unchecked) = (unchecked, first);
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        stage.name().clone_into(&mut self.progress.stage);
    }

    fn leave_out(&mut self, reason: String) {
        self.progress.unchecked += 1;
        if self.progress.first_unchecked.is_empty() {
            self.progress.first_unchecked = reason;
        }
    }

    /// Leaves out the place where it is.
    pub fn skip(&mut self, error: &NodeError) {
        self.leave_out(error.to_string());
        match (self.stage, &self.place) {
            (Stage::Log, _) => self.end_log(),
            (Stage::Pages, ResumeAt::Page { object, .. }) => {
                // Its other pages may be whole, but the next one may take as long to fail.
                self.place = ResumeAt::Page { object: object.saturating_add(1), page_no: 0 };
                (self.object, self.damaged) = (None, Vec::new());
            }
            (Stage::Files, ResumeAt::File(file)) => {
                (self.place, self.file) = (ResumeAt::File(file.saturating_add(1)), None);
            }
            (Stage::Repairs | Stage::Pages, _) => self.begin_files(0),
            (Stage::Files | Stage::Done, _) => self.enter(Stage::Done),
        }
    }

    fn end_log(&mut self) {
        self.log = None;
        match self.place {
            ResumeAt::Page { .. } => self.enter(Stage::Pages),
            ResumeAt::File(file) => self.begin_files(file),
        }
    }

    fn begin_files(&mut self, first: u32) {
        (self.place, self.file) = (ResumeAt::File(first), None);
        self.enter(Stage::Files);
    }
}

impl Volume {
    /// A pass that continues at `place`, where `checked_bytes` were read.
    pub(super) fn begin_pass(&self, place: ResumeAt, checked_bytes: u64) -> Pass {
        let (applied, log_start) = self.applying.points();
        let stored_bytes: u64 = {
            let names = self.indexing.names.read();
            let pages: u64 = names.objects().map(|object| names.len_bytes_of_object(object)).sum();
            let plain = names.files().filter(|(_, entry)| !entry.tablespace);
            pages + plain.map(|(_, entry)| entry.len_bytes).sum::<u64>()
        };
        let total_bytes = stored_bytes + (applied.seq.0 - log_start.seq.0);
        let newest = NewestChanges::new(&self.context.options.scrub.budget);
        let mut pass = Pass { place, newest, outdated_before: self.outdated_pages(), ..Pass::default() };
        pass.unexamined_before = self.applying.repairs.unexamined.load(Ordering::Relaxed);
        (pass.progress.checked_bytes, pass.progress.total_bytes) = (checked_bytes, total_bytes);
        pass.log = Some(LogWalk { start: log_start, at: log_start, end: applied, failures: 0 });
        pass.enter(Stage::Log);
        pass
    }

    fn outdated_pages(&self) -> u64 {
        self.context.counters.outdated_pages_rebuilt.load(Ordering::Relaxed)
    }

    /// One small step; returns the bytes that it has read.
    ///
    /// # Errors
    /// [`NodeError::Stopped`]; the place cannot be read now.
    pub(super) fn step(&self, pass: &mut Pass) -> Result<u64, NodeError> {
        self.context.check_running()?;
        let bytes = match pass.stage {
            Stage::Log => self.step_log(pass),
            Stage::Pages => self.step_pages(pass),
            Stage::Repairs => self.step_repairs(pass).map(|()| 0),
            Stage::Files => self.step_files(pass),
            Stage::Done => Ok(0),
        }?;
        pass.progress.checked_bytes += bytes;
        pass.progress.total_bytes = pass.progress.total_bytes.max(pass.progress.checked_bytes);
        let outdated = self.outdated_pages().saturating_sub(pass.outdated_before);
        pass.progress.repaired = pass.rebuilt + outdated;
        Ok(bytes)
    }

    fn step_log(&self, pass: &mut Pass) -> Result<u64, NodeError> {
        let Some(walk) = &mut pass.log else {
            pass.end_log();
            return Ok(0);
        };
        let log_start = self.applying.points().1;
        if log_start.seq > walk.at.seq {
            walk.at = log_start;
        }
        if walk.at.seq >= walk.end.seq {
            self.scrub.note_whole_log(walk.start.seq.0, walk.end.seq.0);
            pass.end_log();
            return Ok(0);
        }
        let family = self.indexing.names.read().family();
        let (mut at, newest) = (walk.at, &mut pass.newest);
        let (from, enough) = (walk.at.seq.0, LOG_READ_BYTES);
        let mut is_enough = false;
        let read = self.receiving.read_stored_frames(LOG_READ_BYTES, walk.at, walk.end.seq, |chunk| {
            newest.frame(family, &chunk)?;
            at = chunk.end;
            is_enough = at.seq.0 - from >= enough && at.seq < walk.end.seq;
            // Ends the read.
            if is_enough { Err(NodeError::NotNow(String::new())) } else { Ok(()) }
        });
        let bytes = at.seq.0 - from;
        walk.at = at;
        pass.progress.log_bytes += bytes;
        if bytes > 0 {
            // The next failure is at another place.
            walk.failures = 0;
        }
        match read {
            Ok(_) => Ok(bytes),
            Err(_) if is_enough => Ok(bytes),
            // It was given up meanwhile.
            Err(_) if self.applying.points().1.seq > at.seq => Ok(bytes),
            Err(error) if is_damage(&error) => {
                walk.failures += 1;
                if walk.failures < LOG_READS_OF_DAMAGE {
                    // Not at once: the fault may be one of the transfer.
                    self.scrub.wait(CHECK_RETRY_INTERVAL);
                } else {
                    // Frames after it cannot be found.
                    self.scrub.note_log_damage(at.seq.0, &error.to_string());
                    self.save_scrub();
                    pass.end_log();
                }
                Ok(bytes)
            }
            Err(error) => Err(error),
        }
    }

    fn step_pages(&self, pass: &mut Pass) -> Result<u64, NodeError> {
        let ResumeAt::Page { object, page_no } = pass.place else {
            pass.enter(Stage::Repairs);
            return Ok(0);
        };
        let Some(walk) = &mut pass.object else {
            self.begin_object(pass, ObjectId(object), page_no)?;
            return Ok(0);
        };
        if walk.next >= walk.range.end && !self.begin_range(walk)? {
            self.end_object(pass)?;
            return Ok(0);
        }
        let (key, format) = (PageKey::new(walk.object, walk.next), walk.format);
        let image = walk.images.get(&walk.next).copied();
        let is_read = self.check_page(pass, key, format, image)?;
        let Some(walk) = &mut pass.object else { return Ok(0) };
        walk.next += 1;
        pass.place = ResumeAt::Page { object, page_no: walk.next };
        pass.progress.pages += u64::from(is_read);
        if walk.damaged > DAMAGED_OF_OBJECT_MAX {
            let file = self.indexing.path_of_object(key.object());
            pass.leave_out(format!("{file}: too many of its pages are damaged; the rest of it is not read"));
            self.end_object(pass)?;
        } else if pass.damaged.len() >= REBUILT_TOGETHER {
            self.settle_damaged(pass)?;
        }
        Ok(if is_read { format.physical_page_size_bytes() as u64 } else { 0 })
    }

    /// Begins with the first object from this one on that has pages.
    fn begin_object(&self, pass: &mut Pass, from: ObjectId, page_no: u32) -> Result<(), NodeError> {
        let found = {
            let names = self.indexing.names.read();
            let family = names.family();
            names.object_from(from).map(|object| {
                (
                    object,
                    names.object(object).and_then(|entry| entry.flags).map(|flags| Format { family, flags }),
                )
            })
        };
        let Some((object, format)) = found else {
            pass.enter(Stage::Repairs);
            return Ok(());
        };
        let next = if object == from { page_no } else { 0 };
        // Without a format, none of its pages was applied.
        let is_readable = self.quarantine.list.find_object(object).is_none()
            && !matches!(self.applying.store.len_bytes(object), Err(PageStoreError::NoSuchObject { .. }));
        match format.filter(|_| is_readable) {
            Some(format) => {
                pass.place = ResumeAt::Page { object: object.0, page_no: next };
                pass.object = Some(ObjectWalk {
                    object,
                    format,
                    next,
                    range: next..next,
                    images: BTreeMap::new(),
                    damaged: 0,
                });
            }
            None => pass.place = ResumeAt::Page { object: object.0.saturating_add(1), page_no: 0 },
        }
        Ok(())
    }

    /// Begins with the next pages of an object. False: there are no more.
    fn begin_range(&self, walk: &mut ObjectWalk) -> Result<bool, NodeError> {
        let page_len = walk.format.physical_page_size_bytes() as u64;
        let named_bytes = self.indexing.names.read().len_bytes_of_object(walk.object);
        let stored_bytes = match self.applying.store.len_bytes(walk.object) {
            Err(PageStoreError::NoSuchObject { .. }) => 0,
            stored => stored?,
        };
        // Pages past the end of a file that was cut have no content.
        let end = u32::try_from(stored_bytes.min(named_bytes) / page_len).unwrap_or(u32::MAX);
        walk.range = walk.next..end.min(walk.next.saturating_add(RANGE_PAGES));
        if walk.range.is_empty() {
            return Ok(false);
        }
        let store = &self.applying.store;
        walk.images = store.newest_images(walk.object, walk.range.clone(), page_len as u32);
        store.drop_cache(walk.object, walk.range.clone(), page_len as u32);
        Ok(true)
    }

    fn end_object(&self, pass: &mut Pass) -> Result<(), NodeError> {
        self.settle_damaged(pass)?;
        if let Some(walk) = pass.object.take() {
            pass.place = ResumeAt::Page { object: walk.object.0.saturating_add(1), page_no: 0 };
        }
        Ok(())
    }

    /// Reads a page. False: it is not to be read.
    fn check_page(
        &self,
        pass: &mut Pass,
        key: PageKey,
        format: Format,
        image: Option<u32>,
    ) -> Result<bool, NodeError> {
        let Some((page_id, _)) = self.describe(key) else { return Ok(false) };
        if self.quarantine.list.find(key).is_some() {
            return Ok(false);
        }
        let mut fault = String::new();
        for _ in 0..READS_OF_DAMAGE {
            match self.stored_pages().read_stored(key, format)? {
                Ok(page) => {
                    self.quarantine.found.remove(key);
                    self.check_version(pass, (key, page_id, format), &page, image)?;
                    return Ok(true);
                }
                Err(found) => fault = found,
            }
        }
        if let Some(walk) = &mut pass.object {
            walk.damaged += 1;
        }
        pass.damaged.push(DamagedImage { key, page_id, format, fault });
        Ok(true)
    }

    /// Looks whether the page is the newest version.
    fn check_version(
        &self,
        pass: &mut Pass,
        (key, page_id, format): (PageKey, PageId, Format),
        page: &[u8],
        image: Option<u32>,
    ) -> Result<(), NodeError> {
        let lsn = page_lsn(format.family, page).unwrap_or_default();
        let lacks_change = pass.newest.of(page_id).is_some_and(|newest| newest >= lsn);
        let is_other = image.is_some_and(|image| crc32c::crc32c(page) != image);
        if !(lacks_change || is_other && self.differs_from_journal(key, format)?) {
            return Ok(());
        }
        if !self.applying.repairs.add_suspect(key) {
            pass.leave_out(format!("page {page_id}: too many pages may be outdated; check again"));
        }
        Ok(())
    }

    /// The page is another one than the page journal's newest, and was not written meanwhile.
    fn differs_from_journal(&self, key: PageKey, format: Format) -> Result<bool, NodeError> {
        let len_bytes = format.physical_page_size_bytes() as u32;
        let (object, page_no) = (key.object(), key.page_no());
        for _ in 0..READS_OF_DAMAGE {
            let images =
                self.applying.store.newest_images(object, page_no..page_no.saturating_add(1), len_bytes);
            let Some(image) = images.get(&page_no) else { return Ok(false) };
            let Ok(page) = self.stored_pages().read_stored(key, format)? else { return Ok(false) };
            if crc32c::crc32c(&page) == *image {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Plain files are those of the log: all changes up to the start's end are made again, and none are missing.
    pub(super) fn has_exact_files(&self) -> bool {
        let is_exact = self.frozen_end().is_none_or(|end| end.changes_end.is_none());
        is_exact && self.has_executed_recovered()
    }

    fn step_files(&self, pass: &mut Pass) -> Result<u64, NodeError> {
        let ResumeAt::File(from) = pass.place else {
            pass.begin_files(0);
            return Ok(0);
        };
        if self.frozen_end().is_some_and(|end| end.changes_end.is_some()) {
            pass.leave_out("plain files: the volume is frozen, and they may have later changes".to_owned());
            pass.enter(Stage::Done);
            return Ok(0);
        }
        if !self.has_exact_files() {
            let since = *pass.files_wait_since.get_or_insert_with(time::now);
            if time::elapsed(since) >= FILES_WAIT_MAX {
                let why = "plain files: changes from before the start are not made again yet; check again";
                pass.leave_out(why.to_owned());
                pass.enter(Stage::Done);
            } else {
                self.scrub.wait(FILES_LOOK);
            }
            return Ok(0);
        }
        let Some(walk) = &mut pass.file else {
            let found = {
                let names = self.indexing.names.read();
                names.file_from(FileId(from)).map(|(file, entry)| (file, entry.tablespace))
            };
            let Some((file, is_tablespace)) = found else {
                self.plain.save_checksums();
                pass.enter(Stage::Done);
                return Ok(0);
            };
            pass.place = ResumeAt::File(file.0);
            pass.file = if is_tablespace { None } else { self.plain.begin_walk(file)? };
            if pass.file.is_none() {
                pass.place = ResumeAt::File(file.0.saturating_add(1));
            }
            return Ok(0);
        };
        let before = walk.read_bytes();
        let walked = self.plain.walk(walk)?;
        let bytes = walk.read_bytes().saturating_sub(before);
        if matches!(walked, Walked::More) {
            return Ok(bytes);
        }
        pass.progress.files += 1;
        pass.progress.new_files += u64::from(walked == Walked::New);
        (pass.file, pass.place) = (None, ResumeAt::File(from.saturating_add(1)));
        if walked == Walked::Damaged {
            self.report_damaged_file(FileId(from));
        }
        Ok(bytes)
    }

    fn report_damaged_file(&self, file: FileId) {
        self.applying.stored_files.save_or_log(&self.plain);
        let lost = self.plain.all_lost().into_iter().filter(|(lost, _)| *lost == file).collect();
        for (_, path, reason) in self.describe_losses(lost) {
            tracing::error!(
                event = "damaged_plain_file_found",
                volume = self.context.name,
                path,
                reason,
                "a plain file is damaged, and so is lost"
            );
        }
    }
}
