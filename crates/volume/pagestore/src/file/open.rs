//! Opening: finding the journal that belongs to a page directory, and bringing home what has to be home.
//!
//! `pages.identity` records whether a journal is needed (see [`super::identity`]). If it is, it must be there, with the
//! right identity. In mode `journal`, when nothing changed, its images stay pending, and opening is reading headers.
//! Otherwise all of them are written home first. A journal of another length, or in another place, is created again:
//! once all pages are at home the identity says that none is needed, the old one is removed, the new one made, and then
//! it is needed again.
//!
//! A needed journal that is missing, was cut, or has no superblock that can be read is *lost*. Opening fails then, unless
//! the caller can rebuild what only the journal had. It gets a new one with another identity, so that the lost one is
//! refused if it comes back. Remains of the lost one are kept as `pages.journal.lost` until the caller has rebuilt the pages.

use std::collections::BTreeSet;
use std::sync::Arc;

use redoubt_storage::format_version::version_before_0_1_0;
use redoubt_storage::{StorageDir, StorageFile};

use super::found_lens;
use super::home::{Home, RingImages, Scratch, add};
use super::identity::{Identity, JournalState};
use super::pending::Pending;
use super::protection::PageProtection;
use super::ring::{self, ImageLocation, JOURNAL_NAME, JournalRing, Superblock};
use crate::FOUND_ORIGIN;
use crate::error::PageStoreError;

/// How the journal of builds before 0.1.0 began: format version 1, one batch at a time.
const MAGIC_BEFORE_0_1_0: [u8; 8] = *b"RDBTPGJ1";

/// Where things are, and how they should be.
pub(super) struct Wanted<'d> {
    pub pages: &'d dyn StorageDir,
    /// Directory of the journal, if it is not with the pages.
    pub journal: Option<&'d dyn StorageDir>,
    pub protection: PageProtection,
    pub journal_len_bytes: u64,
    /// See [`super::FilePageStoreOptions::replaces_lost_journal`].
    pub replaces_lost_journal: bool,
}

/// Remains of a lost journal.
const LOST_NAME: &str = "pages.journal.lost";

/// An open journal.
pub(super) struct Opened {
    pub ring: JournalRing,
    pub pending: Pending,
    /// It is in place of a lost one.
    pub is_replaced: bool,
}

/// The entry with the journal's name in a directory.
enum Found {
    Nothing,
    /// Empty, zeros, or a superblock begun: a journal half made.
    Blank,
    Ring(Arc<dyn StorageFile>, Superblock),
    /// A version that this program does not support; the text names the version and the remedy.
    UnknownVersion(String),
    Unknown,
}

fn bad(reason: &str) -> PageStoreError {
    PageStoreError::BadFile { file: JOURNAL_NAME.into(), reason: reason.into() }
}

fn lost(reason: &str) -> PageStoreError {
    PageStoreError::LostJournal { file: JOURNAL_NAME.into(), reason: reason.into() }
}

fn look(dir: &dyn StorageDir) -> Result<Found, PageStoreError> {
    let names = dir.list().map_err(PageStoreError::io("list", "the journal directory"))?;
    if !names.iter().any(|name| name == JOURNAL_NAME) {
        return Ok(Found::Nothing);
    }
    match look_into(ring::open_file(dir)?) {
        // One bad read is no verdict.
        Err(error) if error.is_lost_content() => match look_into(ring::open_file(dir)?) {
            Err(error) if error.is_lost_content() => Ok(Found::Unknown),
            found => found,
        },
        found => found,
    }
}

fn look_into(file: Arc<dyn StorageFile>) -> Result<Found, PageStoreError> {
    if let Some(reason) = Superblock::unknown_version(&*file)? {
        return Ok(Found::UnknownVersion(reason));
    }
    if let Some(superblock) = Superblock::read(&*file)? {
        return Ok(Found::Ring(file, superblock));
    }
    let mut start = [0; 8];
    file.read_at(0, &mut start).map_err(PageStoreError::read(JOURNAL_NAME, 0))?;
    let written = start.iter().position(|&byte| byte == 0).unwrap_or(start.len());
    let is_begun = start.starts_with(ring::MAGIC.get(..written).unwrap_or_default());
    Ok(match start {
        MAGIC_BEFORE_0_1_0 => Found::UnknownVersion(version_before_0_1_0(1, ring::VERSION)),
        _ if is_begun && start.iter().skip(written).all(|&byte| byte == 0) => Found::Blank,
        _ => Found::Unknown,
    })
}

fn unknown() -> PageStoreError {
    bad("it does not begin like a page journal, so pages that were being written may be torn: restore the \
         directory and its journal from a copy")
}

/// Rejects files of versions that this program does not support.
pub(super) fn check(pages: &dyn StorageDir, journal: Option<&dyn StorageDir>) -> Result<(), PageStoreError> {
    let names = pages.list().map_err(PageStoreError::io("list", "the page directory"))?;
    let has_identity = Identity::load(pages, &names)?.is_some();
    for dir in [Some(pages), journal].into_iter().flatten() {
        match look(dir)? {
            Found::Unknown if !has_identity => return Err(unknown()),
            Found::UnknownVersion(reason) => return Err(bad(&reason)),
            Found::Unknown | Found::Nothing | Found::Blank | Found::Ring(..) => {}
        }
    }
    Ok(())
}

/// Opens the journal, or makes it. All pages that are not pending then are at home.
pub(super) fn open_ring(
    home: &Home,
    wanted: &Wanted<'_>,
    names: &[String],
) -> Result<Opened, PageStoreError> {
    let opened = open_or_make(home, wanted, names);
    match opened {
        Err(PageStoreError::LostJournal { .. }) if wanted.replaces_lost_journal => {
            home.keep_lens(found_lens::load(wanted.pages, names)?);
            let ring = replace(wanted, names)?;
            Ok(Opened { ring, pending: Pending::default(), is_replaced: true })
        }
        opened => opened,
    }
}

fn open_or_make(home: &Home, wanted: &Wanted<'_>, names: &[String]) -> Result<Opened, PageStoreError> {
    let mut identity = Identity::load(wanted.pages, names)?;
    let local = look(wanted.pages)?;
    match &local {
        Found::Unknown if identity.is_none() => return Err(unknown()),
        Found::UnknownVersion(reason) => return Err(bad(reason)),
        // In one directory with the pages, a journal is theirs.
        Found::Ring(_, superblock) if identity.is_none() => {
            let found = Identity { id: superblock.identity, state: JournalState::Needed };
            found.store(wanted.pages)?;
            identity = Some(found);
        }
        _ => {}
    }
    let mut identity = match identity {
        Some(identity) => {
            identity.renew(wanted.pages, names)?;
            identity
        }
        // They were made in a directory that had one.
        None if !home.objects.ids().is_empty() => {
            return Err(match wanted.journal {
                None => lost("it is not there, and neither is pages.identity: put both back"),
                // The journal may be there, and be another directory's.
                Some(_) => {
                    bad("pages.identity, which names the journal of these pages, is not there: put it back")
                }
            });
        }
        None => {
            let identity = Identity::random();
            identity.store(wanted.pages)?;
            identity
        }
    };
    let is_replaced = identity.state == JournalState::Replaced;
    if identity.state != JournalState::BeingMade {
        if let Some((ring, pending)) = open_needed(home, wanted, identity.id, (local, names))? {
            return Ok(Opened { ring, pending, is_replaced });
        }
        // Without its journal, a store whose journal was replaced is one that lost it again.
        if !is_replaced {
            identity.state = JournalState::BeingMade;
            identity.store(wanted.pages)?;
        }
    }
    home.keep_lens(found_lens::load(wanted.pages, names)?);
    let ring = make(wanted, identity.id)?;
    if !is_replaced {
        Identity { state: JournalState::Needed, ..identity }.store(wanted.pages)?;
    }
    Ok(Opened { ring, pending: Pending::default(), is_replaced })
}

/// Opens a journal that must be there. `None`: all pages are at home, but the journal has to be created again.
fn open_needed(
    home: &Home,
    wanted: &Wanted<'_>,
    id: u64,
    (local, names): (Found, &[String]),
) -> Result<Option<(JournalRing, Pending)>, PageStoreError> {
    let (found, is_in_place) = match wanted.journal {
        None => (local, true),
        Some(dir) => match (look(dir)?, local) {
            (Found::Nothing, local @ Found::Ring(..)) => (local, false),
            (Found::Ring(..), Found::Ring(..)) => {
                return Err(bad(
                    "there is one in the page directory and one in the journal directory: move \
                                away the one that is out of date",
                ));
            }
            (Found::Blank | Found::Unknown, Found::Ring(..)) => {
                return Err(bad(
                    "there is one in the page directory, and a file in the journal directory that is none: move \
                                that file away",
                ));
            }
            (found, _) => (found, true),
        },
    };
    let Found::Ring(file, superblock) = found else {
        return Err(match found {
            Found::Nothing => lost(
                "it is not there, but holds pages of this directory: put it back (a copy \
                                    from before the node last ran has older pages), or name the journal directory \
                                    that was used before",
            ),
            Found::UnknownVersion(reason) => bad(&reason),
            _ => lost(
                "it has no valid superblock, so pages may be lost: restore it and the page directory \
                       from a copy",
            ),
        });
    };
    if superblock.identity != id {
        return Err(bad(
            "it belongs to another page directory, or to this one before its journal was replaced: name the journal \
             directory of this one, or move the file away",
        ));
    }
    let mut ring = JournalRing::open(file, superblock)?;
    let pending = pending_pages(home, &ring)?;
    let stays = is_in_place && ring.file_len_bytes() == wanted.journal_len_bytes;
    if ring.protection() == PageProtection::Atomic {
        // A file that this life does not open is left to the next one, which sees this mode in the same ring. If it
        // would not, all files are checked now.
        if stays && wanted.protection == PageProtection::Atomic {
            home.distrust_memory();
        } else {
            home.reload_from_disk()?;
        }
    }
    let is_lazy = [wanted.protection, ring.protection()] == [PageProtection::Journal; 2];
    if stays && is_lazy {
        home.keep_lens(found_lens::load(wanted.pages, names)?);
        ring.begin_life(ring.tail(), wanted.protection)?;
        return Ok(Some((ring, pending)));
    }
    let pages = pending.all();
    home.note_lens(&pages, found_lens::load(wanted.pages, names)?)?;
    home.write(&mut Scratch::default(), &RingImages::new(home, ring.reader(), &pages))?;
    add(&home.counters.pages_replayed, pages.len() as u64);
    if !stays {
        return Ok(None);
    }
    ring.begin_life(ring.head(), wanted.protection)?;
    Ok(Some((ring, Pending::default())))
}

/// The newest image of each page of an object that is there.
fn pending_pages(home: &Home, ring: &JournalRing) -> Result<Pending, PageStoreError> {
    let mut pending = Pending::default();
    let mut lost = BTreeSet::new();
    for (at, entry) in ring.contents().groups_from(ring.tail()).flat_map(|group| group.entries()) {
        if entry.len == 0 {
            pending.remove_object(entry.object);
            lost.remove(&entry.object);
        } else if home.objects.contains(entry.object) {
            if pending.page_len(entry.object).is_some_and(|len| len != entry.len) {
                return Err(bad(
                    "it has pages of different lengths for one object: restore it and the page \
                                directory from a copy",
                ));
            }
            let image = ImageLocation { at, len: entry.len, crc: entry.crc };
            pending.insert(entry.object, entry.page_no, image, FOUND_ORIGIN);
        } else {
            lost.insert(entry.object);
        }
    }
    let _ = home.lost_images.set(lost);
    Ok(pending)
}

/// Makes a journal in place of a lost one.
fn replace(wanted: &Wanted<'_>, names: &[String]) -> Result<JournalRing, PageStoreError> {
    let known = Identity::load(wanted.pages, names)?;
    let is_replaced = known.is_some_and(|identity| identity.state == JournalState::Replaced);
    for dir in [Some(wanted.pages), wanted.journal].into_iter().flatten() {
        keep_lost(dir, is_replaced)?;
    }
    let identity = Identity { state: JournalState::Replaced, ..Identity::random() };
    identity.store(wanted.pages)?;
    make(wanted, identity.id)
}

/// Keeps the remains of a lost journal under another name. A journal that was made in place of a lost one is removed: the
/// first one had more.
fn keep_lost(dir: &dyn StorageDir, is_replaced: bool) -> Result<(), PageStoreError> {
    let names = dir.list().map_err(PageStoreError::io("list", "the journal directory"))?;
    if !names.iter().any(|name| name == JOURNAL_NAME) {
        return Ok(());
    }
    if is_replaced {
        dir.remove(JOURNAL_NAME).map_err(PageStoreError::io("remove", JOURNAL_NAME))?;
    } else {
        dir.rename(JOURNAL_NAME, LOST_NAME).map_err(PageStoreError::io("rename", JOURNAL_NAME))?;
    }
    dir.sync().map_err(PageStoreError::io("sync the directory of", JOURNAL_NAME))
}

/// All pages that the lost journal had are written again.
pub(super) fn end_replacement(
    pages: &dyn StorageDir,
    journal: Option<&dyn StorageDir>,
) -> Result<(), PageStoreError> {
    for dir in [Some(pages), journal].into_iter().flatten() {
        match dir.remove(LOST_NAME) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.map_err(PageStoreError::io("remove", LOST_NAME))?,
        }
    }
    let names = pages.list().map_err(PageStoreError::io("list", "the page directory"))?;
    match Identity::load(pages, &names)?.filter(|found| found.state == JournalState::Replaced) {
        Some(identity) => Identity { state: JournalState::Needed, ..identity }.store(pages),
        None => Ok(()),
    }
}

/// Makes a journal in place of whatever is left of earlier ones.
fn make(wanted: &Wanted<'_>, id: u64) -> Result<JournalRing, PageStoreError> {
    for dir in [Some(wanted.pages), wanted.journal].into_iter().flatten() {
        match look(dir)? {
            Found::Nothing => continue,
            Found::Ring(_, superblock) if superblock.identity != id => {
                return Err(bad(
                    "it belongs to another page directory: name a journal directory of this one's own",
                ));
            }
            Found::Unknown => return Err(unknown()),
            Found::UnknownVersion(reason) => return Err(bad(&reason)),
            Found::Ring(..) | Found::Blank => {}
        }
        dir.remove(JOURNAL_NAME).map_err(PageStoreError::io("remove the old", JOURNAL_NAME))?;
        dir.sync().map_err(PageStoreError::io("sync the directory of", JOURNAL_NAME))?;
    }
    let dir = wanted.journal.unwrap_or(wanted.pages);
    JournalRing::create(dir, id, wanted.journal_len_bytes, wanted.protection)
}
