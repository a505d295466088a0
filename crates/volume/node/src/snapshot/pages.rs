//! Pages of a snapshot that were changed since.
//!
//! The apply thread asks [`PagesAside::is_needed`] before it writes a page and copies the stored one. The reader looks
//! for a copy after it has read the store ([`PagesAside::get`]), and reports its progress ([`PagesAside::passed`]).
//!
//! Lock: a leaf, but for the file's free ranges. It is held while a range is read, so that no range is given back and
//! used again meanwhile.

use super::Aside;
use super::aside::AsideRange;
use crate::error::NodeError;
use crate::index::PageKey;
use redoubt_pagestore::ObjectId;
use redoubt_sync::Mutex;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Default)]
struct AsidePages {
    ranges: BTreeMap<PageKey, AsideRange>,
    /// Copied pages that were damaged.
    damaged: BTreeSet<PageKey>,
    /// First page of an object that the reader has not passed.
    next_pages: FxHashMap<ObjectId, u32>,
}

/// Pages of a snapshot that were changed since.
pub struct PagesAside {
    aside: Arc<Aside>,
    state: Mutex<AsidePages>,
}

impl PagesAside {
    /// None yet.
    pub fn new(aside: &Arc<Aside>) -> Self {
        Self { aside: Arc::clone(aside), state: Mutex::default() }
    }

    /// The page is neither copied nor passed.
    pub fn is_needed(&self, key: PageKey) -> bool {
        let state = self.state.lock();
        !state.ranges.contains_key(&key)
            && state.next_pages.get(&key.object()).is_none_or(|next| key.page_no() >= *next)
    }

    /// Copies a page, unless it has been copied before.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn put(&self, key: PageKey, page: &[u8]) -> Result<(), NodeError> {
        if !self.is_needed(key) {
            return Ok(());
        }
        let range = self.aside.put(page)?;
        let before = self.state.lock().ranges.insert(key, range);
        if let Some(before) = before {
            self.aside.give_back(before);
        }
        Ok(())
    }

    /// As [`PagesAside::put`], of a page that is damaged.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn put_damaged(&self, key: PageKey, page: &[u8]) -> Result<(), NodeError> {
        self.state.lock().damaged.insert(key);
        self.put(key, page)
    }

    /// The copy of this page is damaged.
    pub fn is_damaged(&self, key: PageKey) -> bool {
        self.state.lock().damaged.contains(&key)
    }

    /// The copy of a page as of the snapshot, if there is one.
    ///
    /// # Errors
    /// [`NodeError::Io`]; [`NodeError::Refused`] for a page that was passed: the stored page may be newer.
    pub fn get(&self, key: PageKey) -> Result<Option<Vec<u8>>, NodeError> {
        let state = self.state.lock();
        if state.next_pages.get(&key.object()).is_some_and(|next| key.page_no() < *next) {
            let reason = "this part of the export has been read already, and is not kept any longer";
            return Err(NodeError::Refused(reason.to_owned()));
        }
        state.ranges.get(&key).map(|range| self.aside.get(*range)).transpose()
    }

    /// The reader has all pages of the object before `next_page`, and read them in order.
    pub fn passed(&self, object: ObjectId, next_page: u32) {
        let mut state = self.state.lock();
        let next = state.next_pages.entry(object).or_default();
        let first = std::mem::replace(next, next_page.max(*next));
        let range = PageKey::new(object, first)..PageKey::new(object, next_page.max(first));
        let passed: Vec<_> = state.ranges.range(range).map(|(key, kept)| (*key, *kept)).collect();
        for (key, kept) in passed {
            state.ranges.remove(&key);
            self.aside.give_back(kept);
        }
    }

    /// Number of copies.
    pub fn count(&self) -> usize {
        self.state.lock().ranges.len()
    }
}
