//! Opening: finding the journal that belongs to a page directory, and bringing home what has to be home.
//!
//! `pages.identity` records whether a journal is needed (see [`super::identity`]). If it is, it must be there, with the
//! right identity. In mode `journal`, when nothing changed, its images stay pending, and opening is reading headers.
//! Otherwise all of them are written home first. A journal of another length, or in another place, is created again:
//! once all pages are at home the identity says that none is needed, the old one is removed, the new one made, and then
//! it is needed again.

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

fn look(dir: &dyn StorageDir) -> Result<Found, PageStoreError> {
    let names = dir.list().map_err(PageStoreError::io("list", "the journal directory"))?;
    if !names.iter().any(|name| name == JOURNAL_NAME) {
        return Ok(Found::Nothing);
    }
    let file = ring::open_file(dir)?;
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
    Identity::load(pages, &names)?;
    for dir in [Some(pages), journal].into_iter().flatten() {
        match look(dir)? {
            Found::Unknown => return Err(unknown()),
            Found::UnknownVersion(reason) => return Err(bad(&reason)),
            Found::Nothing | Found::Blank | Found::Ring(..) => {}
        }
    }
    Ok(())
}

/// Opens the journal, or makes it. All pages that are not pending then are at home.
pub(super) fn open_ring(
    home: &Home,
    wanted: &Wanted<'_>,
    names: &[String],
) -> Result<(JournalRing, Pending), PageStoreError> {
    let mut identity = Identity::load(wanted.pages, names)?;
    let local = look(wanted.pages)?;
    match &local {
        Found::Unknown => return Err(unknown()),
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
        None => {
            let identity = Identity::random();
            identity.store(wanted.pages)?;
            identity
        }
    };
    if identity.state == JournalState::Needed {
        if let Some(opened) = open_needed(home, wanted, identity.id, (local, names))? {
            return Ok(opened);
        }
        identity.state = JournalState::BeingMade;
        identity.store(wanted.pages)?;
    }
    home.keep_lens(found_lens::load(wanted.pages, names)?);
    let ring = make(wanted, identity.id)?;
    Identity { state: JournalState::Needed, ..identity }.store(wanted.pages)?;
    Ok((ring, Pending::default()))
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
            (found, _) => (found, true),
        },
    };
    let Found::Ring(file, superblock) = found else {
        return Err(match found {
            Found::Nothing => bad("it is not there, but holds pages of this directory: put it back (a copy \
                                   from before the node last ran has older pages), or name the journal directory \
                                   that was used before"),
            Found::UnknownVersion(reason) => bad(&reason),
            _ => bad("it has no valid superblock, so pages may be lost: restore it and the page directory \
                      from a copy"),
        });
    };
    if superblock.identity != id {
        return Err(bad("it belongs to another page directory: name the journal directory of this one"));
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
            pending.insert(entry.object, entry.page_no, image);
        } else {
            lost.insert(entry.object);
        }
    }
    let _ = home.lost_images.set(lost);
    Ok(pending)
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
