//! Rebuilding a page whose stored image fails its checksum: from an older image that is intact, or from nothing, plus
//! the redo that is still in the log.
//!
//! Nothing is guessed. The base of a rebuilt page must be *complete*, which is so for
//! * the newest image that the page journal received: it is the page's proper content;
//! * an older image whose LSN is not before the first redo in the log: all redo after it is there;
//! * the page in its file, if the log reaches back to all changes that files lack (`volume/cover.rs`);
//! * a page that the redo in the log starts from nothing (INIT_PAGE, FREE_PAGE, an image sent by the server, a
//!   tablespace that was created or cut in that redo).
//!
//! [`Histories`] is pure: it is fed the frames of the log in order and collects everything about some pages. An image
//! in the stream names its page in its header. Without that (zeros, or the system tablespace) it names its page by path. If
//! such a path, or a directory of it, was renamed within the log, the page of the image is uncertain, and the log is not used
//! for pages that it may be.

use crate::error::NodeError;
use crate::index::PageKey;
use crate::log_buffer::Chunk;
use redoubt_page::format::{complete_image, page_lsn};
use redoubt_page::layout;
use redoubt_page::mysql::Scratch;
use redoubt_page::{Change, Format, page_is_never_written};
use redoubt_pagestore::{ObjectId, RetainedImage};
use redoubt_redo::{Family, FileNote, FileRecord, Lsn, Mtr, PageId, RunRef, SpaceId, walk_mtrs};
use redoubt_sync::thread::catch_panic;
use redoubt_wire::stream::{StreamFrame, decode};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A page whose stored image is damaged.
#[derive(Clone, Debug)]
pub struct DamagedImage {
    /// Its key in the store.
    pub key: PageKey,
    /// Its identity in the server.
    pub page_id: PageId,
    /// Format of its tablespace.
    pub format: Format,
    /// The fault of the image.
    pub fault: String,
}

/// Rebuilds damaged pages.
pub trait Rescue: Sync {
    /// The pages as of now, in the order of `damaged`; [`NodeError::Page`] for each page of which it is certain that it
    /// cannot be rebuilt. The log is read once for all of them.
    ///
    /// # Errors
    /// The disk could not be read, so nothing is certain. Another call may succeed.
    fn rescue(&self, damaged: &[DamagedImage]) -> Result<Vec<Result<Vec<u8>, NodeError>>, NodeError>;

    /// A server can do without this object. If too many of its pages are lost, it is set aside as a whole.
    fn is_dispensable(&self, _object: ObjectId) -> bool {
        true
    }
}

/// Finds the page at a place of a file, by path and page number. `None`: the path is not known.
pub type FindPage<'f> = &'f dyn Fn(&[u8], u32) -> Option<PageKey>;

/// Base of a page that the page journal has in its newest version.
pub const NEWEST_IMAGE: &str = "the page journal's newest image";

/// Verdict on a stored page that seems to be an older version although its checksum is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Examined {
    /// Neither journal nor log proves that.
    Unproven,
    /// It is. This is the page as it must be.
    Rebuilt(Vec<u8>),
    /// It is, and it cannot be rebuilt.
    Lost {
        /// The start of the first change that it lacks, as far as that is known.
        lsn: Lsn,
        /// Why.
        reason: String,
    },
}

const DELETED: &str = "the log has a deletion of its file, and does not initialise it after that";

struct Run {
    start_lsn: Lsn,
    end_lsn: Lsn,
    bytes: Vec<u8>,
}

/// Paths that were renamed in the log.
#[derive(Default)]
struct Paths {
    renamed: BTreeSet<Vec<u8>>,
}

impl Paths {
    fn add_renamed(&mut self, path: &[u8]) {
        // Redo has `./db/t.ibd` where the stream has `db/t.ibd`.
        self.renamed.insert(path.strip_prefix(b"./").unwrap_or(path).to_vec());
    }

    /// The path, or a directory of it, was renamed.
    fn is_renamed(&self, path: &[u8]) -> bool {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let mut prefixes = ends.chain([path.len()]).filter_map(|end| path.get(..end));
        prefixes.any(|prefix| self.renamed.contains(prefix))
    }
}

/// Histories of damaged pages in the log.
pub struct Histories {
    family: Family,
    /// In the order in which the pages were given.
    pages: Vec<PageHistory>,
    by_key: FxHashMap<PageKey, usize>,
    by_page: FxHashMap<PageId, Vec<usize>>,
    by_space: FxHashMap<SpaceId, Vec<usize>>,
    paths: Paths,
    /// Places of images whose header does not name their page.
    nameless: BTreeSet<(Vec<u8>, u32)>,
}

impl Histories {
    /// Nothing known yet of these pages, which are of one volume.
    pub fn new<'p>(pages: impl IntoIterator<Item = &'p DamagedImage>) -> Self {
        let (mut by_key, mut histories) = (FxHashMap::default(), Vec::new());
        let mut by_page: FxHashMap<_, Vec<_>> = FxHashMap::default();
        let mut by_space: FxHashMap<_, Vec<_>> = FxHashMap::default();
        for (number, page) in pages.into_iter().enumerate() {
            by_key.insert(page.key, number);
            by_page.entry(page.page_id).or_default().push(number);
            by_space.entry(page.page_id.space).or_default().push(number);
            histories.push(PageHistory::new(page.page_id, page.format));
        }
        let family = histories.first().map_or(Family::MariaDb, |page| page.format.family);
        Self {
            family,
            pages: histories,
            by_key,
            by_page,
            by_space,
            paths: Paths::default(),
            nameless: BTreeSet::new(),
        }
    }

    /// The pages, in the order in which they were given.
    pub fn into_pages(mut self) -> Vec<PageHistory> {
        for history in &mut self.pages {
            // They were of another file. A free page with its former content does no harm.
            history.scrubs.retain(|(_, path)| !self.paths.is_renamed(path));
        }
        for (path, page_no) in self.nameless.iter().filter(|(path, _)| self.paths.is_renamed(path)) {
            let path = String::from_utf8_lossy(path);
            let doubt: Arc<str> = format!("it has an image of a page of {path}, which was renamed").into();
            // Numbers count from the start of each file of the system tablespace.
            let may_be = |page_id: PageId| page_id.page_no.0 == *page_no || page_id.space == SpaceId(0);
            for history in self.pages.iter_mut().filter(|history| may_be(history.page_id)) {
                history.doubt.get_or_insert_with(|| Arc::clone(&doubt));
            }
        }
        self.pages
    }

    /// Takes in the next frame of the log.
    ///
    /// # Errors
    /// [`NodeError::Redo`] or [`NodeError::Wire`] if it is damaged.
    pub fn frame(&mut self, chunk: &Chunk, find: FindPage<'_>) -> Result<(), NodeError> {
        match decode(chunk.kind, chunk.payload())? {
            StreamFrame::Redo(bytes) => {
                let family = self.family;
                let mut visitor = |mtr: &Mtr<'_, '_>| self.mtr(mtr);
                walk_mtrs(family, bytes, chunk.start.lsn, &mut visitor).map_err(|error| NodeError::Redo {
                    lsn: error.mtr_lsn,
                    reason: error.error.to_string(),
                })?;
            }
            StreamFrame::Image { path, page_no, page, is_recovered } => {
                let complete_to = (!is_recovered).then_some(chunk.start.lsn);
                self.image((path, page_no), page, complete_to, find);
            }
            StreamFrame::Scrub { path, page_no, pages, lsn } => {
                let shared: Arc<[u8]> = path.into();
                for page_no in page_no..page_no.saturating_add(pages) {
                    if let Some(history) = self.history_at(path, page_no, find) {
                        history.scrubs.push((lsn, Arc::clone(&shared)));
                    }
                }
            }
            StreamFrame::Rename { from, to } => {
                self.paths.add_renamed(from);
                self.paths.add_renamed(to);
            }
            _ => {}
        }
        Ok(())
    }

    /// An image is of the page that its header names. Without a credible header it is of the page at its path, and that is
    /// certain only if the path was not renamed.
    fn image(
        &mut self,
        (path, page_no): (&[u8], u32),
        page: &[u8],
        complete_to: Option<Lsn>,
        find: FindPage<'_>,
    ) {
        let header = layout::page_id(page).filter(|id| id.space != SpaceId(0) && id.page_no.0 == page_no);
        let numbers = match header {
            Some(page_id) => self.by_page.get(&page_id).cloned().unwrap_or_default(),
            None => {
                self.nameless.insert((path.to_vec(), page_no));
                find(path, page_no).and_then(|key| self.by_key.get(&key).copied()).into_iter().collect()
            }
        };
        for number in numbers {
            if let Some(history) = self.pages.get_mut(number) {
                history.image(page, complete_to);
            }
        }
    }

    fn history_at(&mut self, path: &[u8], page_no: u32, find: FindPage<'_>) -> Option<&mut PageHistory> {
        self.pages.get_mut(*self.by_key.get(&find(path, page_no)?)?)
    }

    fn mtr(&mut self, mtr: &Mtr<'_, '_>) {
        for note in mtr.files {
            if let FileRecord::Rename { old_path, new_path } = note.record {
                self.paths.add_renamed(old_path);
                self.paths.add_renamed(new_path);
            }
            for number in self.by_space.get(&note.space).into_iter().flatten() {
                if let Some(history) = self.pages.get_mut(*number) {
                    history.file_record(note);
                }
            }
        }
        for run in mtr.runs {
            let numbers = match run.trims_from() {
                Some(_) => self.by_space.get(&run.page.space),
                None => self.by_page.get(&run.page),
            };
            for number in numbers.into_iter().flatten() {
                if let Some(history) = self.pages.get_mut(*number) {
                    history.run(mtr, run);
                }
            }
        }
    }
}

/// History of one page in the log.
pub struct PageHistory {
    page_id: PageId,
    format: Format,
    /// The page before `runs`, if the log has it.
    base: Option<Vec<u8>>,
    runs: Vec<Run>,
    /// Why the log cannot be relied on.
    doubt: Option<Arc<str>>,
    /// The server has overwritten the page with zeros since it was begun: where it was free, and the path.
    scrubs: Vec<(Lsn, Arc<[u8]>)>,
    /// The file was deleted, and nothing has begun the page in another one.
    is_deleted: bool,
}

impl PageHistory {
    /// Nothing known yet.
    pub fn new(page_id: PageId, format: Format) -> Self {
        Self {
            page_id,
            format,
            base: None,
            runs: Vec::new(),
            doubt: None,
            scrubs: Vec::new(),
            is_deleted: false,
        }
    }

    /// Of its tablespace.
    fn file_record(&mut self, note: &FileNote<'_>) {
        match note.record {
            // MySQL writes page 0 of a new file before it logs that the file is there.
            FileRecord::Create { .. } if self.format.family == Family::MariaDb => self.start_anew(),
            FileRecord::Delete { .. } => {
                (self.base, self.is_deleted) = (None, true);
                self.runs.clear();
                self.scrubs.clear();
            }
            _ => {}
        }
    }

    /// Of this page, or of its tablespace if it cuts that.
    fn run(&mut self, mtr: &Mtr<'_, '_>, run: &RunRef) {
        if let Some(first) = run.trims_from() {
            if self.page_id.page_no >= first {
                self.start_anew();
            }
        } else {
            if run.reset().is_some() {
                self.start_anew();
            }
            let (start_lsn, end_lsn) = (mtr.start_lsn, mtr.end_lsn);
            self.runs.push(Run { start_lsn, end_lsn, bytes: mtr.run_bytes(run).to_vec() });
        }
    }

    /// All before this has no effect on the page.
    fn start_anew(&mut self) {
        self.is_deleted = false;
        self.scrubs.clear();
        self.base = Some(vec![0; self.format.physical_page_size_bytes()]);
        self.runs.clear();
    }

    /// `complete_to`: it has all changes up to there.
    fn image(&mut self, image: &[u8], complete_to: Option<Lsn>) {
        let unpacked = if self.format.is_page_compressed_image(image) {
            // A panic concerns this page only.
            catch_panic(|| self.format.decompress(image)).ok().and_then(Result::ok).flatten()
        } else {
            Some(image.to_vec())
        };
        self.runs.clear();
        self.scrubs.clear();
        self.is_deleted = false;
        self.base = unpacked.filter(|page| page.len() == self.format.physical_page_size_bytes());
        if let (Some(base), Some(lsn)) = (&mut self.base, complete_to) {
            complete_image(self.format.family, base, lsn);
        }
        if self.base.is_none() {
            self.doubt.get_or_insert_with(|| "it has an image of the page that is damaged".into());
        }
    }

    /// The page journal's newest image, if that is whole: no redo is needed.
    pub fn newest(&self, retained: &[RetainedImage]) -> Option<Vec<u8>> {
        let newest = retained.iter().find(|image| image.is_newest && self.is_whole(&image.page));
        newest.map(|newest| newest.page.clone())
    }

    /// The page, rebuilt from the log and from `retained` images (newest first), and its base. `of_file`: the page in its
    /// file, which lacks no change from before the history.
    ///
    /// # Errors
    /// Why it cannot be rebuilt.
    pub fn rebuild(
        mut self,
        retained: &[RetainedImage],
        of_file: Option<&[u8]>,
        log_start: Lsn,
    ) -> Result<(Vec<u8>, &'static str), String> {
        if let Some(newest) = self.newest(retained) {
            return Ok((newest, NEWEST_IMAGE));
        }
        if let Some(doubt) = self.doubt.take() {
            return Err(format!("the log cannot be used, because {doubt}"));
        }
        if let Some(base) = self.base.take() {
            return self.replay(base).map(|page| (page, "redo that initialises the page"));
        }
        if self.is_deleted {
            return Err(DELETED.to_owned());
        }
        let complete = |image: &&RetainedImage| {
            page_lsn(self.format.family, &image.page).is_some_and(|lsn| lsn >= log_start)
        };
        match retained.iter().filter(complete).find(|image| self.is_whole(&image.page)) {
            Some(image) => {
                let page = self.replay(image.page.clone())?;
                Ok((page, "an older image of the page journal, and redo"))
            }
            None if of_file.is_some_and(|page| self.is_whole(page) && !page_is_never_written(page)) => {
                let page = self.replay(of_file.unwrap_or_default().to_vec())?;
                Ok((page, "the page in its file, and redo"))
            }
            None => Err(format!(
                "the page journal has no image of it that is whole and new enough, and the redo in the log, \
                 from LSN {log_start} on, does not initialise it"
            )),
        }
    }

    /// Whether a stored page, whose checksum is right, lacks changes that the page journal or the log has. The history
    /// ends where the store must have everything.
    pub fn examine(mut self, stored: &[u8], retained: &[RetainedImage], log_start: Lsn) -> Examined {
        let family = self.format.family;
        let lsn_of = |page: &[u8]| page_lsn(family, page).unwrap_or_default();
        let stored_lsn = lsn_of(stored);
        if let Some(newest) = self.newest(retained).filter(|newest| lsn_of(newest) > stored_lsn) {
            return Examined::Rebuilt(newest);
        }
        if self.doubt.is_some() || self.is_deleted {
            return Examined::Unproven;
        }
        let is_newer = |page: &Vec<u8>| lsn_of(page) > stored_lsn;
        if let Some(base) = self.base.take() {
            let page = self.replay(base).ok().filter(is_newer);
            return page.map_or(Examined::Unproven, Examined::Rebuilt);
        }
        let Some(page) = self.replay(stored.to_vec()).ok().filter(is_newer) else {
            return Examined::Unproven;
        };
        if stored_lsn >= log_start {
            return Examined::Rebuilt(page);
        }
        // Changes from before the log may be missing, too.
        let first = self.runs.iter().map(|run| run.start_lsn).find(|lsn| *lsn >= stored_lsn);
        match self.rebuild(retained, None, log_start) {
            Ok((page, _)) if lsn_of(&page) > stored_lsn => Examined::Rebuilt(page),
            Ok(_) => Examined::Unproven,
            Err(why) => Examined::Lost { lsn: first.unwrap_or(stored_lsn), reason: why },
        }
    }

    /// The page as of the end of the history, from what its file has. `None`: the file has that. The file lacks no change
    /// from before the history.
    ///
    /// # Errors
    /// Why that is not certain.
    pub fn bring_up(mut self, stored: &[u8]) -> Result<Option<Vec<u8>>, String> {
        if let Some(doubt) = self.doubt.take() {
            return Err(format!("the log cannot be used, because {doubt}"));
        }
        if self.is_deleted {
            return Err(DELETED.to_owned());
        }
        let page = match self.base.take() {
            Some(base) => self.replay(base)?,
            None if self.runs.is_empty() && (self.scrubs.is_empty() || page_is_never_written(stored)) => {
                return Ok(None);
            }
            None if page_is_never_written(stored) || !self.is_whole(stored) => {
                return Err(
                    "its file has no whole version of it, and the log does not initialise it".to_owned()
                );
            }
            None => self.replay(stored.to_vec())?,
        };
        let page = self.scrub(page)?;
        Ok((page != stored).then_some(page))
    }

    fn scrub(&self, mut page: Vec<u8>) -> Result<Vec<u8>, String> {
        let is_free = |lsn: &Lsn| page_lsn(self.format.family, &page).is_some_and(|found| found <= *lsn);
        let newest = self.scrubs.iter().map(|(lsn, _)| *lsn).max();
        if let Some(lsn) = newest.filter(is_free) {
            layout::scrub(&mut page, lsn);
            self.format.finalize(&mut page).map_err(|error| error.to_string())?;
        }
        Ok(page)
    }

    fn is_whole(&self, page: &[u8]) -> bool {
        self.format.verify(page).is_ok()
    }

    fn replay(&self, mut page: Vec<u8>) -> Result<Vec<u8>, String> {
        let changes = self.runs.iter().map(|run| Change {
            start_lsn: run.start_lsn,
            end_lsn: run.end_lsn,
            run: &run.bytes,
        });
        self.format
            .apply_changes(&mut page, self.page_id, true, changes, &mut Scratch::default())
            .map_err(|error| error.to_string())?;
        if !page_is_never_written(&page) {
            self.format.finalize(&mut page).map_err(|error| error.to_string())?;
        }
        Ok(page)
    }
}

#[cfg(test)]
#[path = "rescue_tests.rs"]
mod tests;
