//! The page store of a volume: where its pages and their journal are, and how pages are kept safe against torn
//! writes there.

use crate::error::NodeError;
use crate::options::NodeOptions;
use crate::place::{Part, Place, Site, find, find_or_create, is_unlinked, link_of};
use redoubt_pagestore::{
    FilePageStore, FilePageStoreOptions, JOURNAL_NAME, PageProtection, PageStore, PageStoreError,
};
use redoubt_storage::{RealDir, StorageDir};
use redoubt_wire::control::PageStoreStatus;
use std::path::PathBuf;
use std::sync::Arc;

/// Length of a page unless a server has another one.
const USUAL_PAGE_LEN_BYTES: u64 = 16 << 10;

/// How pages are stored.
#[derive(Clone, Debug)]
pub struct PageOptions {
    /// Protection of pages against torn writes; `None`: the best that the location offers.
    pub protection: Option<PageProtection>,
    /// Length of a volume's page journal. Default 128 MiB.
    pub journal_len_bytes: u64,
    /// Directory or raw block device for the journals of new volumes. `None`: with the pages.
    pub journal_place: Option<PathBuf>,
    /// Directory or raw block device for the pages of new volumes. `None`: in the volume's directory.
    pub pages_place: Option<PathBuf>,
    /// Take untorn writes for granted. For tests and measurements: a power cut may tear pages.
    pub pretend_atomic: bool,
}

impl Default for PageOptions {
    fn default() -> Self {
        Self {
            protection: None,
            journal_len_bytes: 128 << 20,
            journal_place: None,
            pages_place: None,
            pretend_atomic: false,
        }
    }
}

/// Opens the page store of a volume; makes one if there is none. A lost journal is replaced if `replaces_lost_journal`.
///
/// # Errors
/// [`NodeError::Refused`] if the requested protection is not available there; [`NodeError::LostJournal`];
/// [`NodeError::PageStore`].
pub fn open(
    site: Site<'_>,
    options: &NodeOptions,
    replaces_lost_journal: bool,
) -> Result<(FilePageStore, Description), NodeError> {
    let pages = &options.pages;
    let is_new = find(site, Part::Pages)?.is_none();
    // The journal first: should the node die in between, the volume still counts as new.
    let journal = journal_place(site, is_new, pages)?;
    let place = find_or_create(site, Part::Pages, pages.pages_place.as_deref())?;
    let store = FilePageStore::open_on(
        place.open(options, pages.pretend_atomic)?,
        journal.as_ref().map(|journal| journal.open(options, false)).transpose()?,
        FilePageStoreOptions {
            protection: pages.protection,
            journal_len_bytes: pages.journal_len_bytes,
            replaces_lost_journal,
            ..FilePageStoreOptions::default()
        },
    )
    .map_err(|error| match (error, journal.as_ref(), &pages.journal_place) {
        (PageStoreError::LostJournal { .. }, None, Some(wanted))
            if is_unlinked(site, Part::Journal, wanted) =>
        {
            let reason =
                format!("the link to the page journal below {} is missing: put it back", wanted.display());
            NodeError::Damaged { path: link_of(site, Part::Journal), reason }
        }
        (error, journal, _) => with_path(error, &place, journal),
    })?;
    let protection = store.info().protection;
    let mut warnings = Vec::new();
    if pages.pretend_atomic && protection == PageProtection::Atomic {
        warnings.push(format!(
            "{place} only pretends to write pages untorn (--pretend-atomic): a power cut may tear pages"
        ));
    }
    let journal = journal.as_ref().unwrap_or(&place).to_string();
    Ok((store, Description { pages: place.to_string(), journal, warnings }))
}

/// The error, with the whole path of a file that cannot be used.
fn with_path(error: PageStoreError, pages: &Place, journal: Option<&Place>) -> NodeError {
    let path_of = |file: &str| match journal.filter(|_| file == JOURNAL_NAME).unwrap_or(pages) {
        Place::Directory(directory) => directory.join(file),
        device @ Place::Device(_) => PathBuf::from(format!("{device}: {file}")),
    };
    match error {
        PageStoreError::BadFile { file, reason } => NodeError::Damaged { path: path_of(&file), reason },
        PageStoreError::LostJournal { file, reason } => {
            NodeError::LostJournal { path: path_of(&file), reason }
        }
        error => error.into(),
    }
}

/// Checks that the page store of a volume, if it has one, is of a format that [`open`] can read. Changes nothing.
///
/// # Errors
/// [`NodeError::PageStore`]; as [`find`].
pub fn check(site: Site<'_>, options: &NodeOptions) -> Result<(), NodeError> {
    let open = |part| -> Result<Option<Arc<dyn StorageDir>>, NodeError> {
        find(site, part)?.map(|place| place.open(options, options.pages.pretend_atomic)).transpose()
    };
    let Some(pages) = open(Part::Pages)? else { return Ok(()) };
    let journal = open(Part::Journal)?;
    Ok(FilePageStore::check(&*pages, journal.as_deref())?)
}

/// Warns at once, not only when a volume is created, that new volumes cannot have the requested protection.
pub fn warn_of_new_volumes(options: &NodeOptions) {
    let place = options.pages.pages_place.as_ref().unwrap_or(&options.data_directory);
    if options.pages.protection != Some(PageProtection::Atomic)
        || options.pages.pretend_atomic
        || crate::place::is_block_device(place)
    {
        return;
    }
    let limits = RealDir::open(place).and_then(|dir| dir.untorn_limits());
    if !limits.is_ok_and(|limits| limits.is_some_and(|limits| limits.allow(0, USUAL_PAGE_LEN_BYTES))) {
        tracing::warn!(
            event = "untorn_writes_unavailable",
            place = %place.display(),
            "--page-protection atomic: no volume can be made here, because writes of 16 KiB can be torn"
        );
    }
}

/// The journal's own location, if it has one. It gets one together with the pages: a store finds its journal at the
/// former location, since the journal may hold the only copy of a page.
fn journal_place(site: Site<'_>, is_new: bool, options: &PageOptions) -> Result<Option<Place>, NodeError> {
    match &options.journal_place {
        Some(wanted) if is_new => find_or_create(site, Part::Journal, Some(wanted)).map(Some),
        _ => find(site, Part::Journal),
    }
}

/// Findings of [`open`], kept for `redoubt status`.
pub struct Description {
    /// Location of the pages.
    pages: String,
    /// Location of the journal.
    journal: String,
    warnings: Vec<String>,
}

impl Description {
    /// Pages and journal in the places named.
    pub fn new(pages: &str, journal: &str) -> Self {
        Self { pages: pages.to_owned(), journal: journal.to_owned(), warnings: Vec::new() }
    }

    /// One sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// State of the store. `redo_bytes_applied`: the redo from which its pages were built since it was opened.
    pub fn status(&self, store: &dyn PageStore, redo_bytes_applied: u64) -> PageStoreStatus {
        let (info, stats) = (store.info(), store.stats());
        let per_redo_byte = |bytes: u64| bytes as f64 / redo_bytes_applied.max(1) as f64;
        PageStoreStatus {
            protection: info.protection.name().to_owned(),
            reason: info.reason,
            pages: self.pages.clone(),
            journal: self.journal.clone(),
            journal_len_bytes: info.journal_len_bytes,
            journal_live_bytes: info.journal_live_bytes,
            pending_pages: info.pending_pages,
            untorn_len_bytes: info.untorn.map(|untorn| [untorn.min_len_bytes, untorn.max_len_bytes]),
            home_bytes_per_redo_byte: per_redo_byte(stats.bytes_written_home),
            journal_bytes_per_redo_byte: per_redo_byte(stats.bytes_written_journal),
            warnings: self.warnings.clone(),
        }
    }
}
