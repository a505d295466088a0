//! Building the pages of a batch. Pages that cannot be built become findings.
//!
//! A page whose stored image is damaged is put off until the others are built. Then one pass over the log rebuilds many of
//! them. A page that cannot be built is a finding ([`Damage`](crate::quarantine::Damage)), and so is a page in quarantine
//! that its entries start from nothing.

use super::{BuiltPages, Chain, Page, Work, is_verify};
use crate::apply::Applied;
use crate::construct::{Builder, VerifyCase};
use crate::error::NodeError;
use crate::index::table::resolve;
use crate::index::{Body, PageKey};
use crate::quarantine::{DamagedPage, Evidence, PAGES_OF_OBJECT_MAX};
use crate::rescue::DamagedImage;
use redoubt_pagestore::ObjectId;
use redoubt_redo::{Lsn, PageId};
use redoubt_sync::thread::catch_panic;
use rustc_hash::FxHashMap;
use std::fmt::Write;

/// Pages of a batch for which evidence is gathered.
const EVIDENCE_OF_BATCH: usize = 8;
/// Bytes of records in the evidence of a page.
const EVIDENCE_RECORD_BYTES: usize = 16 << 10;
/// Damaged pages that are rebuilt with one pass over the log.
const REBUILT_TOGETHER: usize = 256;

/// Why a page was not built.
enum Failure {
    /// Its stored image is damaged, with this fault. It may be possible to rebuild it.
    Damaged(String),
    /// It cannot be built.
    Lost(String),
    /// Something else failed.
    Other(NodeError),
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Page { reason, .. } => Self::Lost(reason),
            other => Self::Other(other),
        }
    }
}

impl<'w> Work<'w> {
    pub(super) fn unknown_format(&self, key: PageKey, page_id: PageId, chains: &[Chain<'_>]) {
        let first = chains.first().and_then(|chain| chain.entries.first());
        let reason = "its tablespace flags are unknown: page 0 of the tablespace was never logged nor sent";
        self.damage.lock().set_aside.push(DamagedPage {
            key,
            page_id,
            is_whole_object: true,
            found_at: None,
            differs: None,
            lsn: first.map_or(Lsn(0), |entry| entry.start_lsn),
            reason: reason.to_owned(),
            evidence: None,
        });
    }

    /// The page cannot be built. A page that is in quarantine already keeps its first reason.
    fn set_aside(&self, page: &Page<'_>, reason: String) {
        if self.output.pages.set_aside(page.key).is_some() {
            return;
        }
        let mut damage = self.damage.lock();
        let gathered = damage.set_aside.iter().filter(|page| page.evidence.is_some()).count();
        let evidence = (gathered < EVIDENCE_OF_BATCH).then(|| self.evidence(page));
        damage.set_aside.push(DamagedPage {
            key: page.key,
            page_id: page.page_id,
            is_whole_object: false,
            found_at: None,
            differs: None,
            lsn: page.entries().next().map_or(Lsn(0), |entry| entry.start_lsn),
            reason,
            evidence,
        });
    }

    fn evidence(&self, page: &Page<'_>) -> Evidence {
        let mut base = vec![0; page.format.physical_page_size_bytes()];
        if let Err(error) =
            self.output.pages.store.read_page(page.key.object(), page.key.page_no(), &mut base)
        {
            base = error.to_string().into_bytes();
        }
        let mut records = String::new();
        for Chain { table, entries } in &page.chains {
            let chunks = table.chunks();
            for entry in entries {
                let bytes = match entry.body {
                    Body::Run { chunk, offset, len, .. } => resolve(&chunks, chunk, offset, len),
                    _ => None,
                };
                let _ = write!(records, "{}..{} {}: ", entry.start_lsn, entry.end_lsn, kind_of(&entry.body));
                bytes.unwrap_or_default().iter().for_each(|byte| {
                    let _ = write!(records, "{byte:02x}");
                });
                records.push('\n');
                if records.len() > EVIDENCE_RECORD_BYTES {
                    records.push_str("...\n");
                    return Evidence { base, records };
                }
            }
        }
        Evidence { base, records }
    }

    /// Builds a page, notes that its stored image is damaged, or reports that it cannot be built.
    pub(super) fn build(&self, page: Page<'w>) -> Result<(), NodeError> {
        match self.attempt(page.page_id, || self.build_page(&page)) {
            Ok(Some(bytes)) => {
                self.note_renewed(page.key);
                self.output.add(page.key, bytes);
            }
            Ok(None) => {}
            Err(Failure::Damaged(fault)) => self.damaged.lock().push((page, fault)),
            Err(Failure::Lost(reason)) => self.set_aside(&page, reason),
            Err(Failure::Other(error)) => return Err(error),
        }
        Ok(())
    }

    /// A panic while a page is built concerns that page only.
    fn attempt<T>(&self, page_id: PageId, build: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        catch_panic(build).unwrap_or_else(|panic| {
            Err(Failure::Lost(format!(
                "building page {page_id} met a defect of the node: {panic}; report it"
            )))
        })
    }

    fn note_renewed(&self, key: PageKey) {
        if self.output.pages.set_aside(key).is_some() {
            self.damage.lock().renewed.push(key);
        }
    }

    /// The page after its entries; `None`: they do not change it. If it cannot be built on its earlier content, the entries
    /// before the last one that initialises it are skipped, the comparisons among them as well.
    fn build_page(&self, page: &Page<'_>) -> Result<Option<Vec<u8>>, Failure> {
        let failure = match self.attempt(page.page_id, || self.build_on_base(page)) {
            Err(failure @ (Failure::Damaged(_) | Failure::Lost(_)))
                if page.is_initialised_again(self.differs_at(page.key)) =>
            {
                failure
            }
            built => return built,
        };
        let differs_at = self.differs_at(page.key);
        let is_set_aside = self.output.pages.set_aside(page.key).is_some();
        let (is_base_lost, reason) = match failure {
            Failure::Damaged(reason) => (true, reason),
            Failure::Lost(reason) => (is_set_aside, reason),
            other @ Failure::Other(_) => return Err(other),
        };
        if !is_set_aside {
            tracing::warn!(event = "page_initialised_again", page = %page.page_id, reason, "page initialised again by redo; earlier writes are not \
                                                         compared");
        }
        match page.freed_at(differs_at) {
            // It has no content any more: so it is whole.
            Some(lsn) if is_base_lost => Ok(Some(Builder::freed(page.page_id, page.format, lsn).finish()?)),
            Some(_) => Ok(None),
            None => {
                let first = page.last_filling(differs_at).unwrap_or(0);
                self.build_anew(page, first)
            }
        }
    }

    fn differs_at(&self, key: PageKey) -> Option<Lsn> {
        self.output.pages.set_aside(key)?.differs_at()
    }

    /// The page from entry number `first` on, which needs no earlier content. A page that differed from the server's takes
    /// only sound images of it.
    fn build_anew(&self, page: &Page<'_>, first: usize) -> Result<Option<Vec<u8>>, Failure> {
        let set_aside = self.output.pages.set_aside(page.key);
        if let Some(difference) = set_aside.and_then(|entry| entry.differs)
            && let Err(fault) = page.check_images(first, difference)
        {
            tracing::error!(event = "server_image_refused", page = %page.page_id, fault, "the server's image of a page that differs is not taken");
            return Err(Failure::Lost(format!("the server's image of it is not taken: {fault}")));
        }
        self.apply_from(page, Builder::empty(page.page_id, page.format), first)
    }

    /// The page with all its entries that count. The stored page is read only if an entry builds on it or compares with
    /// it.
    fn build_on_base(&self, page: &Page<'_>) -> Result<Option<Vec<u8>>, Failure> {
        let Page { key, format, .. } = *page;
        if let Some(first) = page.begins_without_base(self.differs_at(key)) {
            return self.build_anew(page, first);
        }
        if let Some(entry) = self.output.pages.set_aside(key) {
            return Err(Failure::Lost(entry.error()));
        }
        let stored = self.output.pages.read_stored(key, format)?.map_err(Failure::Damaged)?;
        self.apply_to(page, stored)
    }

    fn apply_to(&self, page: &Page<'_>, stored: Vec<u8>) -> Result<Option<Vec<u8>>, Failure> {
        self.apply_from(page, Builder::from_image(page.page_id, page.format, stored), 0)
    }

    /// Applies the entries from number `first` on.
    fn apply_from(
        &self,
        page: &Page<'_>,
        mut builder: Builder,
        first: usize,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let mut verify = |builder: &Builder, case: VerifyCase<'_>| (self.on_verify)(builder, page.key, case);
        let (mut left_out, mut changes_page) = (first, false);
        for Chain { table, entries } in &page.chains {
            let from = left_out.min(entries.len());
            left_out -= from;
            let entries = entries.get(from..).unwrap_or_default();
            changes_page |= entries.iter().any(|entry| !is_verify(entry));
            builder.apply_entries(&table.chunks(), entries, None, Some(&mut verify))?;
        }
        if changes_page { Ok(Some(builder.finish()?)) } else { Ok(None) }
    }

    fn is_dispensable(&self, object: ObjectId) -> bool {
        self.output.pages.rescue.is_none_or(|rescue| rescue.is_dispensable(object))
    }

    /// Rebuilds the damaged pages, some at a time, and applies their entries. If an object has lost so many pages that it is
    /// set aside as a whole, its other damaged pages are not tried.
    pub(super) fn build_damaged(&self, applied: &mut Applied) -> Result<(), NodeError> {
        let mut damaged = std::mem::take(&mut *self.damaged.lock());
        damaged.sort_unstable_by_key(|(page, _)| page.key);
        let mut lost: FxHashMap<ObjectId, usize> = FxHashMap::default();
        let mut built = BuiltPages::new();
        let mut damaged = damaged.into_iter().peekable();
        while damaged.peek().is_some() {
            let mut together = Vec::new();
            for (page, fault) in damaged.by_ref() {
                let object = page.key.object();
                let of_object = lost.get(&object).copied().unwrap_or_default();
                if of_object > PAGES_OF_OBJECT_MAX && self.is_dispensable(object) {
                    self.set_aside(&page, format!("{fault}. It was not tried to rebuild it: {of_object} other pages of its file are lost"));
                    continue;
                }
                together.push((page, fault));
                if together.len() == REBUILT_TOGETHER {
                    break;
                }
            }
            if together.is_empty() {
                break;
            }
            let images: Vec<_> = together
                .iter()
                .map(|(Page { key, page_id, format, .. }, fault)| DamagedImage {
                    key: *key,
                    page_id: *page_id,
                    format: *format,
                    fault: fault.clone(),
                })
                .collect();
            let rebuilt = self.output.pages.rescue(&images)?;
            for ((page, _), rebuilt) in together.into_iter().zip(rebuilt) {
                let attempt = self.attempt(page.page_id, || self.apply_to(&page, rebuilt?));
                match attempt {
                    Ok(Some(bytes)) => built.push((page.key, bytes)),
                    Ok(None) => {}
                    Err(Failure::Damaged(reason) | Failure::Lost(reason)) => {
                        *lost.entry(page.key.object()).or_default() += 1;
                        self.set_aside(&page, reason);
                    }
                    Err(Failure::Other(error)) => return Err(error),
                }
            }
            self.output.write(&std::mem::take(&mut built), applied)?;
        }
        Ok(())
    }
}

fn kind_of(body: &Body) -> &'static str {
    match body {
        Body::Run { .. } => "redo",
        Body::Image { .. } => "image",
        Body::Built(_) => "built page",
        Body::Scrub => "scrub",
        Body::Verify { .. } => "comparison",
    }
}

#[cfg(test)]
#[path = "building_tests.rs"]
mod tests;
