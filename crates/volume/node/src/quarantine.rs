//! Quarantine: pages whose content is lost or unknown, set aside so that the rest of the volume continues.
//!
//! Applying sets a page aside if it cannot be built: its stored image is damaged and cannot be rebuilt, a record does
//! not fit, or the building code panics. From then on the page's records are left out, and its reads fail, as those of a
//! damaged page do on a stock server. Everything else is applied and served.
//!
//! A page that differs from the server's ([`crate::volume`], `--on-difference heal`) is set aside in the same way until the
//! server sends it.
//!
//! A page leaves the quarantine when its records start it from nothing (redo that initialises it, an image sent by the
//! server), when it is freed, or when its tablespace is dropped.
//!
//! An object (one incarnation of a tablespace) is set aside as a whole if its format is unknown, if its file is missing, or
//! if more than [`PAGES_OF_OBJECT_MAX`] of its pages are damaged. That ends when it is dropped. Pages of a missing or cut
//! file are also whole if the file is there again at a start before any record was left out. A tablespace that a server needs to start cannot be dropped. So its
//! damaged pages are set aside one by one, and up to [`PAGES_MAX`] missing ones if its file was cut.
//!
//! A damaged page that only reads have met is not set aside, since no record of it was left out: each read tries again,
//! and the page may be whole by then. It is listed in memory ([`Found`]), so that it is shown.
//!
//! This module holds the list and its stored form. [`crate::volume`] writes it durably before A passes the first record
//! that was left out.
//!
//! Stored form: JSON, with the fields of [`Stored`], behind a checksum line ([`crate::checkpoint::write_checked`]).
//!
//! Locks: leaves.

use crate::index::PageKey;
use redoubt_pagestore::ObjectId;
use redoubt_redo::{Lsn, PageId};
use redoubt_sync::{Mutex, RwLock};
use redoubt_wire::Seq;
use redoubt_wire::control::is_needed_to_start;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Version of the stored form.
pub const FORMAT: u32 = 1;
/// Pages of one object that are set aside one by one; with more, the whole object is set aside.
pub const PAGES_OF_OBJECT_MAX: usize = 1000;
/// Pages of all objects that are set aside one by one; the object of each further page is set aside as a whole.
pub const PAGES_MAX: usize = 20_000;
/// Damaged pages that only reads have met; more are not listed.
pub const FOUND_MAX: usize = 1000;
/// Stands for the path of a file that is gone.
pub const UNKNOWN_FILE: &str = "?";
/// Longest stored reason in characters.
const REASON_CHARACTERS_MAX: usize = 600;

/// A page, or all pages of an object, that is set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAside {
    /// Number of the object.
    pub object: u32,
    /// `None`: all its pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_no: Option<u32>,
    /// Tablespace id in the server.
    pub space: u32,
    /// Path of its file when it was set aside.
    pub file: String,
    /// Start of the first record that was left out.
    pub lsn: u64,
    /// Why it cannot be built.
    pub reason: String,
    /// Of pages that a file lacked at a start: A at that time. While A is the same, no record was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_at: Option<u64>,
    /// It was built, and differed from the server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differs: Option<Difference>,
}

/// Newest comparison in which a page differed. Comparisons are not in the log: redo or an image that ends the quarantine
/// must come later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// LSN on the server's page: an image of it must not be older.
    pub page_lsn: u64,
    /// LSN of the stream at the comparison: an image or redo from before has come to the content that differed.
    pub stream_lsn: u64,
}

impl Difference {
    /// Of two of the same page, what is to be after both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            page_lsn: self.page_lsn.max(other.page_lsn),
            stream_lsn: self.stream_lsn.max(other.stream_lsn),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    entries: Vec<SetAside>,
}

/// A page that applying could not build.
#[derive(Clone, Debug)]
pub struct DamagedPage {
    /// Its key; of any page, if the whole object is meant.
    pub key: PageKey,
    /// Its identity in the server.
    pub page_id: PageId,
    /// All pages of the object cannot be built.
    pub is_whole_object: bool,
    /// See [`SetAside::found_at`].
    pub found_at: Option<Seq>,
    /// See [`SetAside::differs`].
    pub differs: Option<Difference>,
    /// Start of the first record that is left out. Of a page that differs: LSN of the server's.
    pub lsn: Lsn,
    /// Why it cannot be built.
    pub reason: String,
    /// For a later examination, unless there is enough of it.
    pub evidence: Option<Evidence>,
}

/// Material for the examination of a page that could not be built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The stored page, as far as it can be read.
    pub base: Vec<u8>,
    /// Its records, for people.
    pub records: String,
}

/// Findings of applying.
#[derive(Clone, Debug, Default)]
pub struct Damage {
    /// Pages and objects to be set aside.
    pub set_aside: Vec<DamagedPage>,
    /// Pages that were set aside and have been built from nothing.
    pub renewed: Vec<PageKey>,
    /// Objects, and pages of objects, that their files lacked and have again.
    pub back: Vec<(ObjectId, Option<u32>)>,
}

impl Damage {
    /// Nothing was found.
    pub fn is_empty(&self) -> bool {
        self.set_aside.is_empty() && self.renewed.is_empty() && self.back.is_empty()
    }
}

/// All that is set aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    objects: BTreeMap<u32, SetAside>,
    /// Of other objects, or damaged before their object was set aside.
    pages: BTreeMap<PageKey, SetAside>,
}

impl Contents {
    /// Nothing is set aside.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.pages.is_empty()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.objects.len() + self.pages.len()
    }

    /// Objects first, then pages, each in order.
    pub fn entries(&self) -> impl Iterator<Item = &SetAside> {
        self.objects.values().chain(self.pages.values())
    }

    /// The entry that a page falls under.
    pub fn find(&self, key: PageKey) -> Option<&SetAside> {
        self.objects.get(&key.object().0).or_else(|| self.pages.get(&key))
    }

    /// The entry of a whole object.
    pub fn find_object(&self, object: ObjectId) -> Option<&SetAside> {
        self.objects.get(&object.0)
    }

    /// This very entry is there.
    pub fn has(&self, entry: &SetAside) -> bool {
        self.same_place(entry) == Some(entry)
    }

    /// The entry of the same page or whole object.
    pub fn same_place(&self, entry: &SetAside) -> Option<&SetAside> {
        match entry.page_no {
            None => self.objects.get(&entry.object),
            Some(page_no) => self.pages.get(&PageKey::new(ObjectId(entry.object), page_no)),
        }
    }

    /// The contents after `damage`, without the objects in `dead`. `file_of` returns the path of an object's file.
    #[must_use]
    pub fn after(&self, damage: &Damage, dead: &[ObjectId], file_of: &dyn Fn(ObjectId) -> String) -> Self {
        let mut next = self.clone();
        for key in &damage.renewed {
            next.pages.remove(key);
        }
        for (object, page_no) in &damage.back {
            match page_no {
                Some(page_no) => drop(next.pages.remove(&PageKey::new(*object, *page_no))),
                None => drop(next.objects.remove(&object.0)),
            }
        }
        for page in &damage.set_aside {
            let object = page.key.object();
            let entry = SetAside {
                object: object.0,
                page_no: (!page.is_whole_object).then(|| page.key.page_no()),
                space: page.page_id.space.0,
                file: file_of(object),
                lsn: page.lsn.0,
                reason: page.reason.chars().take(REASON_CHARACTERS_MAX).collect(),
                found_at: page.found_at.map(|seq| seq.0),
                differs: page.differs,
            };
            next.add(entry);
        }
        next.retain(|object| !dead.contains(&object));
        next
    }

    fn add(&mut self, mut entry: SetAside) {
        let object = ObjectId(entry.object);
        if let Some(of_object) = self.objects.get_mut(&object.0) {
            if entry.page_no.is_some() || entry.found_at.is_none() {
                // Its file is there, and lacks more than is known.
                of_object.found_at = None;
            }
            return;
        }
        if let Some(page_no) = entry.page_no {
            let key = PageKey::new(object, page_no);
            if let Some(known) = self.pages.get_mut(&key) {
                if entry.differs.is_some() {
                    // It is there, so it does not come back by being there.
                    known.found_at = None;
                }
                known.differs = match (known.differs, entry.differs) {
                    (Some(known), Some(newer)) => Some(known.and(newer)),
                    (known, newer) => known.or(newer),
                };
                return;
            }
            let of_object =
                || self.pages.range(PageKey::new(object, 0)..=PageKey::new(object, u32::MAX)).count();
            let is_full = || {
                let others = || self.pages.values().filter(|page| !page.is_needed_to_start()).count();
                self.pages.len() >= PAGES_MAX && others() >= PAGES_MAX
            };
            if entry.is_needed_to_start() || (of_object() < PAGES_OF_OBJECT_MAX && !is_full()) {
                self.pages.insert(key, entry);
                return;
            }
            (entry.page_no, entry.found_at, entry.differs) = (None, None, None);
            entry.reason =
                format!("too many of its pages are damaged, the last one page {page_no}: {}", entry.reason);
        }
        if entry.found_at.is_none() {
            self.pages.retain(|key, _| key.object() != object);
        }
        // Otherwise the object may come back, and those pages are damaged then as before.
        self.objects.insert(object.0, entry);
    }

    /// Drops the entries of objects for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(ObjectId) -> bool) {
        self.objects.retain(|object, _| keep(ObjectId(*object)));
        self.pages.retain(|key, _| keep(key.object()));
    }

    /// The stored form.
    ///
    /// # Errors
    /// If it cannot be serialised, which is a defect.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&Stored { format: FORMAT, entries: self.entries().cloned().collect() })
    }

    /// Reads the stored form. The caller has checked the format.
    ///
    /// # Errors
    /// Why it is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let stored: Stored = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if stored.format != FORMAT {
            return Err(format!("format {} instead of {FORMAT}", stored.format));
        }
        // The limits held when it was stored.
        let mut contents = Self::default();
        for entry in stored.entries {
            match entry.page_no {
                None => contents.objects.insert(entry.object, entry),
                Some(page_no) => contents.pages.insert(PageKey::new(ObjectId(entry.object), page_no), entry),
            };
        }
        Ok(contents)
    }
}

/// All that is set aside, for the threads that read and build pages.
#[derive(Default)]
pub struct Quarantine {
    /// Spares the lock on the path of every page read.
    has_entries: AtomicBool,
    contents: RwLock<Arc<Contents>>,
}

impl Quarantine {
    /// Begins with these contents.
    pub fn new(contents: Contents) -> Self {
        let quarantine = Self::default();
        quarantine.set(contents);
        quarantine
    }

    /// All of it.
    pub fn contents(&self) -> Arc<Contents> {
        Arc::clone(&self.contents.read())
    }

    /// Replaces all of it.
    pub fn set(&self, contents: Contents) {
        let mut current = self.contents.write();
        self.has_entries.store(!contents.is_empty(), Ordering::Release);
        *current = Arc::new(contents);
    }

    /// The entry that a page falls under.
    pub fn find(&self, key: PageKey) -> Option<SetAside> {
        if !self.has_entries.load(Ordering::Acquire) {
            return None;
        }
        self.contents.read().find(key).cloned()
    }

    /// The entry of a whole object.
    pub fn find_object(&self, object: ObjectId) -> Option<SetAside> {
        if !self.has_entries.load(Ordering::Acquire) {
            return None;
        }
        self.contents.read().find_object(object).cloned()
    }
}

/// Damaged pages that only reads have met.
#[derive(Default)]
pub struct Found {
    /// Spares the lock on the path of every page read.
    has_pages: AtomicBool,
    pages: Mutex<BTreeMap<PageKey, SetAside>>,
}

impl Found {
    /// Notes a page. True: it was not noted before, and there is room for it.
    pub fn add(&self, key: PageKey, entry: SetAside) -> bool {
        let mut pages = self.pages.lock();
        let is_new = pages.len() < FOUND_MAX && !pages.contains_key(&key);
        if is_new {
            pages.insert(key, entry);
            self.has_pages.store(true, Ordering::Release);
        }
        is_new
    }

    /// Drops the pages for which `keep` is false.
    pub fn retain(&self, keep: impl Fn(PageKey) -> bool) {
        if self.has_pages.load(Ordering::Acquire) {
            let mut pages = self.pages.lock();
            pages.retain(|key, _| keep(*key));
            self.has_pages.store(!pages.is_empty(), Ordering::Release);
        }
    }

    /// The page is whole.
    pub fn remove(&self, key: PageKey) {
        if self.has_pages.load(Ordering::Acquire) {
            let mut pages = self.pages.lock();
            pages.remove(&key);
            self.has_pages.store(!pages.is_empty(), Ordering::Release);
        }
    }

    /// All of them, in order.
    pub fn entries(&self) -> Vec<SetAside> {
        self.pages.lock().values().cloned().collect()
    }
}

impl SetAside {
    fn is_needed_to_start(&self) -> bool {
        self.space == 0 || (self.file != UNKNOWN_FILE && is_needed_to_start(&self.file))
    }

    /// LSN of the stream at the newest comparison in which it differed.
    pub fn differs_at(&self) -> Option<Lsn> {
        self.differs.map(|difference| Lsn(difference.stream_lsn))
    }

    /// Reason for the error that a read of the page gets.
    pub fn error(&self) -> String {
        let what = if self.page_no.is_some() { "it is" } else { "its whole file is" };
        format!("{what} in quarantine since LSN {} (see `redoubt status`): {}", self.lsn, self.reason)
    }
}

#[cfg(test)]
#[path = "quarantine_tests.rs"]
mod tests;
