//! A lost page journal, rebuilt from page files and log.
//!
//! The log has every change that the files lack ([`super::cover`]). So each page that it changes between the cover and A is
//! read from its file, and gets the changes of the log up to A. Nothing else was in the journal. That is done before the
//! first read of a page.
//!
//! The log is read before the page store gets a new journal: if the log is damaged there, nothing is changed, and the journal
//! can still be put back. A node that is killed in between rebuilds all pages again.
//!
//! A page that cannot be rebuilt is set aside ([`super::quarantine`]): its file has an older version of it. Pages that were
//! set aside before stay as they are.

use super::Volume;
use super::quarantine::Surroundings;
use super::receiving::Receiving;
use crate::checkpoint::NodeCheckpoint;
use crate::counters::add;
use crate::error::{Kind, NodeError};
use crate::home::Home;
use crate::index::PageKey;
use crate::mark::Point;
use crate::namespace::Namespace;
use crate::options::NodeOptions;
use crate::page_store::Description;
use crate::quarantine::{Damage, DamagedPage};
use crate::rescue::{DamagedImage, PageHistory};
use redoubt_page::{Format, layout};
use redoubt_pagestore::{PageStore, PageStoreError, PageWrite};
use redoubt_redo::{Lsn, Mtr, PageId, walk_mtrs};
use redoubt_wire::stream::{StreamFrame, decode};
use std::collections::BTreeMap;

/// Pages that are rebuilt with one pass over the log, and their redo, unless a single page has more.
const PAGES_TOGETHER: usize = 4096;
const REDO_TOGETHER_BYTES: u64 = 64 << 20;
const _: () = assert!(
    PAGES_TOGETHER * 16384 <= REDO_TOGETHER_BYTES as usize,
    "usual pages take no more memory than redo"
);

/// The pages of a volume, open.
pub(super) struct Opened {
    pub store: Box<dyn PageStore>,
    pub description: Description,
    /// The journal is new.
    pub lost: Option<LostPages>,
}

/// Pages that a lost journal may have had, with the bytes of their changes.
pub(super) struct LostPages {
    cover: Point,
    changed: BTreeMap<PageKey, u64>,
}

/// Opens the pages of a volume whose log is open. A journal that is lost is replaced if the log has all that it had.
///
/// # Errors
/// [`NodeError::LostJournal`]; as [`Home::pages`].
pub(super) fn open_pages(
    home: &dyn Home,
    volume_id: &str,
    options: &NodeOptions,
    (receiving, checkpoint): (&Receiving, &NodeCheckpoint),
) -> Result<Opened, NodeError> {
    let (path, reason) = match home.pages(volume_id, options, false) {
        Ok((store, description)) => {
            let lost = store.has_replaced_journal().then(|| LostPages::find(receiving, checkpoint));
            return Ok(Opened { store, description, lost: lost.transpose()? });
        }
        Err(NodeError::LostJournal { path, reason }) => (path, reason),
        Err(error) => return Err(error),
    };
    match LostPages::find(receiving, checkpoint) {
        Ok(lost) => {
            tracing::error!(event = "page_journal_lost", path = %path.display(), reason, "page journal is lost; its pages are rebuilt from the log");
            let (store, description) = home.pages(volume_id, options, true)?;
            Ok(Opened { store, description, lost: Some(lost) })
        }
        Err(error) if error.kind() == Kind::Retry => Err(error),
        Err(error) => {
            let reason = format!("{reason}. The log cannot take its place: {error}");
            Err(NodeError::LostJournal { path, reason })
        }
    }
}

impl LostPages {
    /// All pages that the log changes between the cover and A.
    fn find(receiving: &Receiving, checkpoint: &NodeCheckpoint) -> Result<Self, NodeError> {
        let Some(cover) = checkpoint.cover else {
            let reason = "it is not known that it has all changes of these pages".to_owned();
            return Err(NodeError::Damaged { path: receiving.log_path(), reason });
        };
        let (names, mut changed) = (&checkpoint.names, BTreeMap::new());
        receiving.read_frames(cover, checkpoint.applied.seq, |chunk| {
            let mut add = |key: Option<PageKey>, bytes: usize| {
                if let Some(key) = key {
                    *changed.entry(key).or_default() += bytes as u64;
                }
            };
            match decode(chunk.kind, chunk.payload())? {
                StreamFrame::Redo(bytes) => note_redo(names, bytes, chunk.start.lsn, &mut add)?,
                StreamFrame::Image { path, page_no, page, .. } => {
                    // The file may have been renamed since.
                    add(layout::page_id(page).and_then(|page_id| key_of(names, page_id)), page.len());
                    add(names.page_at(path, page_no), page.len());
                }
                StreamFrame::Scrub { path, page_no, pages, .. } => {
                    let numbers = page_no..page_no.saturating_add(pages);
                    numbers.for_each(|page_no| add(names.page_at(path, page_no), 0));
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(Self { cover, changed })
    }
}

/// The page of a space that is there at A.
fn key_of(names: &Namespace, page_id: PageId) -> Option<PageKey> {
    Some(PageKey::new(names.known_object_of_space(page_id.space)?, page_id.page_no.0))
}

fn note_redo(
    names: &Namespace,
    bytes: &[u8],
    start_lsn: Lsn,
    add: &mut dyn FnMut(Option<PageKey>, usize),
) -> Result<(), NodeError> {
    let mut visitor = |mtr: &Mtr<'_, '_>| {
        for run in mtr.runs.iter().filter(|run| run.trims_from().is_none()) {
            add(key_of(names, run.page), mtr.run_bytes(run).len());
        }
    };
    let walked = walk_mtrs(names.family(), bytes, start_lsn, &mut visitor);
    walked
        .map(|_| ())
        .map_err(|error| NodeError::Redo { lsn: error.mtr_lsn, reason: error.error.to_string() })
}

/// A page that is rebuilt.
struct LostPage {
    image: DamagedImage,
    redo_bytes: u64,
    /// Its file lacked it at this start, and it is set aside for that.
    is_missing: bool,
}

/// Number of the first pages to be rebuilt with one pass.
fn count_together(pages: &[LostPage]) -> usize {
    let mut sum_bytes = 0;
    let fits = |page: &&LostPage| {
        sum_bytes += page.redo_bytes;
        sum_bytes <= REDO_TOGETHER_BYTES
    };
    pages.iter().take(PAGES_TOGETHER).take_while(fits).count().max(1)
}

impl Volume {
    /// Rebuilds pages that only a lost journal had. Before the first read of a page.
    ///
    /// # Errors
    /// Those of the page store, the log and the quarantine. A page that cannot be rebuilt is none.
    pub(super) fn rebuild_lost_pages(&self, lost: &LostPages) -> Result<(), NodeError> {
        let pages = self.pages_to_rebuild(lost);
        let store = &*self.applying.store;
        self.applying.cover.begin_batch(store, lost.cover);
        let (mut rebuilt, mut damage, mut rest) = (0, Damage::default(), &pages[..]);
        while !rest.is_empty() {
            let (together, after) = rest.split_at(count_together(rest));
            rest = after;
            rebuilt += self.rebuild_together(lost.cover, together, &mut damage)?;
            tracing::info!(
                event = "page_journal_being_rebuilt",
                volume = self.context.name,
                pages = pages.len(),
                left = rest.len(),
                "pages of the lost page journal are being rebuilt"
            );
        }
        store.seal()?;
        let surroundings = Surroundings {
            file_of: &|object| self.indexing.path_of_object(object),
            set_flag: &|has_quarantine| self.session.set_quarantine(has_quarantine),
        };
        self.quarantine.settle(&damage, &[], &surroundings)?;
        store.end_replacement()?;
        add(&self.context.counters.pages_rebuilt, rebuilt as u64);
        tracing::warn!(
            event = "page_journal_rebuilt",
            volume = self.context.name,
            from_lsn = lost.cover.lsn.0,
            examined = pages.len(),
            rebuilt,
            set_aside = damage.set_aside.len(),
            "pages of the lost page journal are rebuilt from the log"
        );
        Ok(())
    }

    /// Returns how many pages were written.
    fn rebuild_together(
        &self,
        cover: Point,
        pages: &[LostPage],
        damage: &mut Damage,
    ) -> Result<usize, NodeError> {
        let store = &*self.applying.store;
        let images: Vec<_> = pages.iter().map(|page| &page.image).collect();
        let histories = self.page_histories_from(cover, &images)?;
        let mut newer = Vec::new();
        for (page, history) in pages.iter().zip(histories) {
            let key = page.image.key;
            match bring_up(store, &page.image, history)? {
                Ok(None) => {}
                Ok(Some(image)) => {
                    newer.push((key, image));
                    damage.back.extend(page.is_missing.then_some((key.object(), Some(key.page_no()))));
                }
                Err(_) if page.is_missing => {}
                Err(why) => damage.set_aside.push(self.outdated_page(&page.image, &why)),
            }
        }
        let writes: Vec<_> = newer
            .iter()
            .map(|(key, page)| PageWrite { object: key.object(), page_no: key.page_no(), page })
            .collect();
        store.write_batch(&writes)?;
        Ok(writes.len())
    }

    /// Pages whose format is known. Records of other pages, and of pages that are set aside, were left out. Pages past the end of
    /// their file are among them: redo of a page may come before the file becomes longer.
    fn pages_to_rebuild(&self, lost: &LostPages) -> Vec<LostPage> {
        let (names, set_aside) = (self.indexing.names.read(), self.quarantine.list.contents());
        let applied = self.applying.applied().get().seq.0;
        let of = |(key, redo_bytes): (&PageKey, &u64)| {
            let object = names.object(key.object())?;
            let entry = set_aside.find(*key);
            let is_missing =
                entry.is_some_and(|entry| entry.found_at == Some(applied) && entry.page_no.is_some());
            let is_set_aside = entry.is_some() || set_aside.find_object(key.object()).is_some();
            if is_set_aside && !is_missing {
                return None;
            }
            let page_id = PageId::new(object.space?, key.page_no());
            let format = Format { family: names.family(), flags: object.flags? };
            let image =
                DamagedImage { key: *key, page_id, format, fault: "the page journal was lost".to_owned() };
            Some(LostPage { image, redo_bytes: *redo_bytes, is_missing })
        };
        lost.changed.iter().filter_map(of).collect()
    }

    fn outdated_page(&self, page: &DamagedImage, why: &str) -> DamagedPage {
        DamagedPage {
            key: page.key,
            page_id: page.page_id,
            is_whole_object: false,
            found_at: None,
            differs: None,
            // Before A: in the state at A it is not whole.
            lsn: Lsn(self.applying.applied().get().lsn.0.saturating_sub(1)),
            reason: format!("{}, and its file may have an older version: {why}", page.fault),
            evidence: None,
        }
    }
}

/// The page as of A if its file has an older version. The outer error: nothing is certain.
fn bring_up(
    store: &dyn PageStore,
    page: &DamagedImage,
    history: PageHistory,
) -> Result<Result<Option<Vec<u8>>, String>, NodeError> {
    let mut stored = vec![0; page.format.physical_page_size_bytes()];
    match store.read_page(page.key.object(), page.key.page_no(), &mut stored) {
        Ok(_) => {}
        // The log may start it from nothing.
        Err(error) if error.is_lost_content() => stored.fill(0),
        // Its file is missing, and it is set aside.
        Err(PageStoreError::NoSuchObject { .. }) => return Ok(Ok(None)),
        Err(error) => return Err(error.into()),
    }
    let caught = redoubt_sync::thread::catch_panic(|| history.bring_up(&stored));
    Ok(match caught {
        Ok(brought) => brought,
        Err(panic) => Err(format!("rebuilding it met a defect of the node: {panic}; report it")),
    })
}

#[cfg(test)]
#[path = "lost_journal_tests.rs"]
mod tests;
