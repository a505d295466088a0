//! Building a page: its stored image plus the entries of the log index.
//!
//! Used by reads (newest version that is durable), by the apply workers (one table's entries) and by early
//! building of long chains. It takes no latch: the page store never shows a torn page, and the log index is
//! looked at before the page store, so whatever is applied meanwhile is in the image and skipped by its LSN.
//!
//! Invariant: an entry above the caller's limit is never applied, and none after it. The limit is never above P:
//! what the parser is about to add to a mini-transaction must not be split from what it has added, because the
//! page's LSN would then say that all of it is there.

use crate::error::NodeError;
use crate::index::table::resolve;
use crate::index::{Body, Entry, LogIndex, PageKey, Table};
use crate::log_buffer::Chunk;
use crate::rescue::Rescue;
use crate::trace::{Laps, Part};
use redoubt_page::{Change, SpaceFlags, apply_changes, decompress, finalize, page_is_never_written};
use redoubt_pagestore::{PageStore, PageStoreError};
use redoubt_redo::{Lsn, PageId};
use std::sync::Arc;

/// Pages as they are stored. One that fails its checksum is rebuilt, if there is someone to do it.
#[derive(Clone, Copy)]
pub struct StoredPages<'s> {
    /// Where they are.
    pub store: &'s dyn PageStore,
    /// Who rebuilds damaged ones.
    pub rescue: Option<&'s dyn Rescue>,
}

impl<'s> StoredPages<'s> {
    /// A damaged page is an error.
    pub const fn without_rescue(store: &'s dyn PageStore) -> Self {
        Self { store, rescue: None }
    }

    /// The stored image of a page; zeros if it was never written.
    ///
    /// # Errors
    /// [`NodeError::PageStore`], or [`NodeError::Page`] if the image fails its checksum and cannot be rebuilt.
    pub fn read(&self, key: PageKey, page_id: PageId, flags: SpaceFlags) -> Result<Vec<u8>, NodeError> {
        let mut page = vec![0; flags.physical_page_size_bytes()];
        let fault = match self.store.read_page(key.object(), key.page_no(), &mut page) {
            // Nothing of this object was applied yet.
            Ok(_) | Err(PageStoreError::NoSuchObject { .. }) => match redoubt_page::verify(&page, flags) {
                Ok(()) => return Ok(page),
                Err(fault) => fault.to_string(),
            },
            Err(error @ PageStoreError::DamagedImage { .. }) => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        let fault = format!("stored image is damaged: {fault}");
        match self.rescue {
            Some(rescue) => rescue.rescue(key, page_id, flags, &fault),
            None => Err(NodeError::Page { page: page_id, file: "?".to_owned(), reason: fault }),
        }
    }
}

/// A page that is being built.
pub struct Builder {
    /// Its identity as the server knows it.
    pub page_id: PageId,
    /// Format of its tablespace.
    pub flags: SpaceFlags,
    /// The bytes so far.
    pub page: Vec<u8>,
}

/// A dropped page write to compare with, met on the way.
pub struct VerifyCase<'a> {
    /// LSN on the server's page.
    pub lsn: Lsn,
    /// Digest of the server's page.
    pub digest: u32,
    /// Our page at that point.
    pub page: &'a [u8],
}

/// Receives the verify entries of a chain.
pub type OnVerify<'v> = &'v mut dyn FnMut(&Builder, VerifyCase<'_>);

impl Builder {
    /// Starts from the stored image.
    ///
    /// # Errors
    /// As [`StoredPages::read`].
    pub fn from_store(
        pages: StoredPages<'_>,
        key: PageKey,
        page_id: PageId,
        flags: SpaceFlags,
    ) -> Result<Self, NodeError> {
        let page = pages.read(key, page_id, flags)?;
        Ok(Self { page_id, flags, page })
    }

    /// Starts from nothing.
    pub fn empty(page_id: PageId, flags: SpaceFlags) -> Self {
        Self { page_id, flags, page: vec![0; flags.physical_page_size_bytes()] }
    }

    fn error(&self, reason: String) -> NodeError {
        NodeError::Page { page: self.page_id, file: "?".to_owned(), reason }
    }

    /// Applies a table's entries for this page, in order, up to `limit`. Returns how many were within the limit.
    ///
    /// # Errors
    /// [`NodeError::Page`] if one cannot be applied.
    pub fn apply_entries(
        &mut self,
        chunks: &[Arc<Chunk>],
        entries: &[Entry],
        limit: Option<Lsn>,
        mut on_verify: Option<OnVerify<'_>>,
    ) -> Result<usize, NodeError> {
        let within = limit.map_or(entries.len(), |limit| {
            entries.iter().position(|entry| beyond(entry, limit)).unwrap_or(entries.len())
        });
        let entries = entries.get(..within).unwrap_or(entries);
        let mut at = if on_verify.is_some() { 0 } else { last_reset(entries) };
        while let Some(entry) = entries.get(at) {
            match &entry.body {
                Body::Run { .. } => {
                    let runs = entries[at..].iter().take_while(|entry| is_run(entry)).count();
                    self.apply_runs(chunks, &entries[at..at + runs])?;
                    at += runs;
                    continue;
                }
                Body::Image { chunk, offset, len } => {
                    let image = resolve(chunks, *chunk, *offset, *len);
                    self.replace(image.unwrap_or(&[]))?;
                }
                Body::Built(page) => self.page.copy_from_slice(page),
                Body::Verify { digest } => {
                    if let Some(on_verify) = &mut on_verify {
                        let case = VerifyCase { lsn: entry.start_lsn, digest: *digest, page: &self.page };
                        on_verify(self, case);
                    }
                }
            }
            at += 1;
        }
        Ok(within)
    }

    fn apply_runs(&mut self, chunks: &[Arc<Chunk>], entries: &[Entry]) -> Result<(), NodeError> {
        let changes = entries.iter().map(|entry| Change {
            start_lsn: entry.start_lsn,
            end_lsn: entry.end_lsn,
            run: match entry.body {
                Body::Run { chunk, offset, len, .. } => resolve(chunks, chunk, offset, len).unwrap_or(&[]),
                _ => &[],
            },
        });
        apply_changes(&mut self.page, self.page_id, self.flags, true, changes)
            .map_err(|error| self.error(error.to_string()))?;
        Ok(())
    }

    fn replace(&mut self, image: &[u8]) -> Result<(), NodeError> {
        let unpacked = if redoubt_page::is_page_compressed_image(image, self.flags) {
            decompress(image, self.flags).map_err(|error| self.error(error.to_string()))?
        } else {
            None
        };
        let image = unpacked.as_deref().unwrap_or(image);
        if image.len() != self.page.len() {
            let reason = format!("image has {} bytes, the page {}", image.len(), self.page.len());
            return Err(self.error(reason));
        }
        self.page.copy_from_slice(image);
        Ok(())
    }

    /// Checksum and trailer, as the server expects them on disk.
    ///
    /// # Errors
    /// [`NodeError::Page`] for a page size that does not fit the format.
    pub fn finish(mut self) -> Result<Vec<u8>, NodeError> {
        if !page_is_never_written(&self.page) {
            finalize(&mut self.page, self.flags).map_err(|error| self.error(error.to_string()))?;
        }
        Ok(self.page)
    }
}

/// Images carry no LSN of their own and are wanted at once. A built page holds only what was durable when it was
/// built; a reader whose limit is older must not fall back to what came before it, because those records are gone.
fn beyond(entry: &Entry, limit: Lsn) -> bool {
    matches!(entry.body, Body::Run { .. }) && entry.end_lsn > limit
}

fn is_run(entry: &Entry) -> bool {
    matches!(entry.body, Body::Run { .. })
}

/// Nothing before this entry matters for the final content.
fn last_reset(entries: &[Entry]) -> usize {
    let resets = |entry: &Entry| !matches!(entry.body, Body::Run { init: false, .. } | Body::Verify { .. });
    entries.iter().rposition(resets).unwrap_or(0)
}

/// The newest version of a page whose records all end at or before `limit`.
///
/// # Errors
/// As the functions of [`Builder`].
pub fn construct(
    pages: StoredPages<'_>,
    index: &LogIndex,
    key: PageKey,
    page_id: PageId,
    flags: SpaceFlags,
    limit: Option<Lsn>,
) -> Result<Vec<u8>, NodeError> {
    construct_in_laps(pages, index, PageTarget { key, page_id, flags }, limit, &mut ())
}

/// [`construct`]; says when a part of it ends.
///
/// # Errors
/// As [`construct`].
pub fn construct_in_laps(
    pages: StoredPages<'_>,
    index: &LogIndex,
    PageTarget { key, page_id, flags }: PageTarget,
    limit: Option<Lsn>,
    laps: &mut impl Laps,
) -> Result<Vec<u8>, NodeError> {
    let tables = index.tables_of(key);
    laps.lap(Part::Index);
    let mut builder = Builder::from_store(pages, key, page_id, flags)?;
    laps.lap(Part::BaseRead);
    for table in &tables {
        let entries = table.chain(key);
        laps.lap(Part::Index);
        let within = builder.apply_entries(&table.chunks(), &entries, limit, None)?;
        laps.lap(Part::Apply);
        if within < entries.len() {
            break;
        }
    }
    let page = builder.finish();
    laps.lap(Part::Apply);
    page
}

/// A page by key, with what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct PageTarget {
    /// Where it is in index and store.
    pub key: PageKey,
    /// Its identity as the server knows it.
    pub page_id: PageId,
    /// Format of its tablespace.
    pub flags: SpaceFlags,
}

/// Builds the front of a long chain and puts the result in its place, so that reads stay short.
///
/// # Errors
/// As [`construct`].
pub fn compact_chain(
    pages: StoredPages<'_>,
    index: &LogIndex,
    table: &Arc<Table>,
    target: PageTarget,
    limit: Lsn,
    on_verify: OnVerify<'_>,
) -> Result<(), NodeError> {
    let PageTarget { key, page_id, flags } = target;
    let tables = index.tables_of(key);
    if !tables.iter().any(|other| other.id() == table.id()) {
        return Ok(());
    }
    let mut builder = Builder::from_store(pages, key, page_id, flags)?;
    for older in tables.iter().filter(|other| other.id() < table.id()) {
        let entries = older.chain(key);
        if builder.apply_entries(&older.chunks(), &entries, Some(limit), None)? < entries.len() {
            // What this table holds comes after something that may not be applied yet.
            return Ok(());
        }
    }
    let entries = table.chain(key);
    let within = builder.apply_entries(&table.chunks(), &entries, Some(limit), Some(on_verify))?;
    let Some(last) = entries.get(..within).and_then(<[Entry]>::last) else { return Ok(()) };
    let lsn = last.end_lsn;
    let built = Body::Built(Arc::from(builder.page.as_slice()));
    table.compact(key, within, Entry { start_lsn: lsn, end_lsn: lsn, body: built });
    Ok(())
}

#[cfg(test)]
#[path = "construct_tests.rs"]
mod tests;
