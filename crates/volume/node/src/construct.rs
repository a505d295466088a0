//! Building a page: its stored image plus the entries of the log index.
//!
//! Used by reads (newest version that is durable), by the apply workers (one table's entries) and by early building of
//! long chains. It takes no latch: the page store never shows a torn page. The log index is read before the page store,
//! so entries that are applied meanwhile are in the image, and its LSN skips them.
//!
//! Invariants:
//! - An entry above the caller's limit is never applied, and none after it. The limit is never above P. Otherwise a
//!   mini-transaction could be split while the parser is adding it, and the page's LSN would cover all of it.
//! - Redo that INIT_PAGE or an image makes void is not applied, not even from older tables. A stored image that nothing
//!   builds on is not read: it may be damaged. Only an earlier verify entry requires both.
//! - FREE_PAGE makes redo void too, but leaves nothing instead. A freed page is served with its former content, because
//!   a read that was under way when it was freed may still need it. Where the server overwrites freed pages, a scrub
//!   entry follows. A scrubbed page has the LSN at which it was free, so earlier redo is skipped on it.

use crate::error::NodeError;
use crate::index::table::resolve;
use crate::index::{Body, Entry, LogIndex, PageKey, Table};
use crate::log_buffer::Chunk;
use crate::mark::Point;
use crate::quarantine::{Difference, Quarantine, SetAside};
use crate::rescue::{DamagedImage, Rescue};
use crate::server_image;
use crate::trace::{Laps, Part};
use redoubt_page::format::{complete_image, page_lsn};
use redoubt_page::layout::{scrub, set_page_id};
use redoubt_page::mysql::Scratch;
use redoubt_page::{Change, Format, page_is_never_written};
use redoubt_pagestore::{PageStore, PageStoreError};
use redoubt_redo::{Lsn, PageId, PageReset};
use redoubt_sync::thread::catch_panic;
use redoubt_wire::Seq;
use std::sync::Arc;

/// Stored pages. A page that fails its checksum is rebuilt, if `rescue` is set.
#[derive(Clone, Copy)]
pub struct StoredPages<'s> {
    /// Store of the pages.
    pub store: &'s dyn PageStore,
    /// Rebuilds damaged pages.
    pub rescue: Option<&'s dyn Rescue>,
    /// Pages that must not be read.
    pub quarantine: Option<&'s Quarantine>,
}

impl<'s> StoredPages<'s> {
    /// A damaged page is an error.
    pub const fn without_rescue(store: &'s dyn PageStore) -> Self {
        Self { store, rescue: None, quarantine: None }
    }

    /// The entry of a page that is in quarantine.
    pub fn set_aside(&self, key: PageKey) -> Option<SetAside> {
        self.quarantine?.find(key)
    }

    /// The stored image of a page; zeros if it was never written.
    ///
    /// # Errors
    /// [`NodeError::PageStore`], or [`NodeError::Page`] if the page is in quarantine, or if the image fails its checksum
    /// and cannot be rebuilt.
    pub fn read(&self, key: PageKey, page_id: PageId, format: Format) -> Result<Vec<u8>, NodeError> {
        if let Some(entry) = self.set_aside(key) {
            let reason = entry.error();
            return Err(NodeError::Page { page: page_id, file: entry.file, reason });
        }
        let fault = match self.read_stored(key, format)? {
            Ok(page) => return Ok(page),
            Err(fault) => fault,
        };
        let damaged = [DamagedImage { key, page_id, format, fault }];
        self.rescue(&damaged)?.pop().unwrap_or_else(|| {
            let [DamagedImage { fault, .. }] = damaged;
            Err(NodeError::Page { page: page_id, file: "?".to_owned(), reason: fault })
        })
    }

    /// The stored image of a page, or its fault if it is damaged; zeros if it was never written. One bad read is no
    /// verdict: memory or the transfer may be at fault.
    ///
    /// # Errors
    /// [`NodeError::PageStore`].
    pub fn read_stored(&self, key: PageKey, format: Format) -> Result<Result<Vec<u8>, String>, NodeError> {
        let (object, page_no) = (key.object(), key.page_no());
        let mut page = vec![0; format.physical_page_size_bytes()];
        let read = self.store.read_page(object, page_no, &mut page);
        let Some(first_fault) = fault_of(read, &page, format)? else { return Ok(Ok(page)) };
        let read = self.store.read_page_again(object, page_no, &mut page);
        if let Some(fault) = fault_of(read, &page, format)? {
            return Ok(Err(format!("stored image is damaged: {fault}")));
        }
        tracing::warn!(event = "page_whole_when_read_again", %object, page_no, fault = first_fault, "page was whole when it was read again");
        Ok(Ok(page))
    }

    /// Rebuilds damaged pages, or returns their faults. A panic concerns only the page that causes it.
    ///
    /// # Errors
    /// As [`Rescue::rescue`].
    pub fn rescue(&self, damaged: &[DamagedImage]) -> Result<Vec<Result<Vec<u8>, NodeError>>, NodeError> {
        let lost = |page: &DamagedImage, reason: String| {
            Err(NodeError::Page { page: page.page_id, file: "?".to_owned(), reason })
        };
        let Some(rescue) = self.rescue else {
            return Ok(damaged.iter().map(|page| lost(page, page.fault.clone())).collect());
        };
        match (catch_panic(|| rescue.rescue(damaged)), damaged) {
            (Ok(rescued), _) => rescued,
            (Err(panic), [page]) => {
                let defect = format!("rebuilding it met a defect of the node: {panic}; report it");
                Ok(vec![lost(page, format!("{}. {defect}", page.fault))])
            }
            (Err(_), _) => {
                let (first, second) = damaged.split_at(damaged.len() / 2);
                let mut rescued = self.rescue(first)?;
                rescued.extend(self.rescue(second)?);
                Ok(rescued)
            }
        }
    }
}

/// The fault of a page that was read, if it has one. An error of the store that concerns other pages as well is no fault.
fn fault_of(
    read: Result<bool, PageStoreError>,
    page: &[u8],
    format: Format,
) -> Result<Option<String>, NodeError> {
    match read {
        // Without an object, nothing of it was applied yet.
        Ok(_) | Err(PageStoreError::NoSuchObject { .. }) => {
            Ok(format.verify(page).err().map(|fault| fault.to_string()))
        }
        Err(error @ (PageStoreError::DamagedImage { .. } | PageStoreError::LostPage { .. })) => {
            Ok(Some(error.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

/// A page that is being built.
pub struct Builder {
    /// Its identity in the server.
    pub page_id: PageId,
    /// Format of its tablespace.
    pub format: Format,
    /// The bytes so far.
    pub page: Vec<u8>,
}

/// A dropped page write to compare with, found among the entries.
pub struct VerifyCase<'a> {
    /// LSN on the server's page.
    pub lsn: Lsn,
    /// Digest of the server's page.
    pub digest: u32,
    /// LSN of the stream at the comparison.
    pub stream_lsn: Lsn,
    /// See [`Body::Verify`].
    pub heals: bool,
    /// Our page at that point.
    pub page: &'a [u8],
}

/// Receives the verify entries of a chain. An error is the reason why the page must not be built further.
pub type OnVerify<'v> = &'v mut dyn FnMut(&Builder, VerifyCase<'_>) -> Result<(), String>;

impl Builder {
    /// Starts from the stored image.
    ///
    /// # Errors
    /// As [`StoredPages::read`].
    pub fn from_store(
        pages: StoredPages<'_>,
        key: PageKey,
        page_id: PageId,
        format: Format,
    ) -> Result<Self, NodeError> {
        let page = pages.read(key, page_id, format)?;
        Ok(Self { page_id, format, page })
    }

    /// Starts from this image.
    pub const fn from_image(page_id: PageId, format: Format, page: Vec<u8>) -> Self {
        Self { page_id, format, page }
    }

    /// A page without content that was freed at `lsn`, so that no older redo is applied to it.
    pub fn freed(page_id: PageId, format: Format, lsn: Lsn) -> Self {
        let mut builder = Self::empty(page_id, format);
        set_page_id(&mut builder.page, page_id);
        scrub(&mut builder.page, lsn);
        builder
    }

    /// Starts from nothing.
    pub fn empty(page_id: PageId, format: Format) -> Self {
        Self { page_id, format, page: vec![0; format.physical_page_size_bytes()] }
    }

    fn error(&self, reason: String) -> NodeError {
        NodeError::Page { page: self.page_id, file: "?".to_owned(), reason }
    }

    /// Applies a table's entries for this page, in order, up to `limit`. Returns how many were within the limit.
    ///
    /// # Errors
    /// [`NodeError::Page`] if an entry cannot be applied.
    pub fn apply_entries(
        &mut self,
        chunks: &[Arc<Chunk>],
        entries: &[Entry],
        limit: Option<Point>,
        mut on_verify: Option<OnVerify<'_>>,
    ) -> Result<usize, NodeError> {
        let end_of = |chunk: u32| Some(chunks.get(chunk as usize)?.end.seq);
        let entries = within_limit(entries, limit, &end_of);
        let mut at = if on_verify.is_some() { 0 } else { entries.iter().rposition(fills_page).unwrap_or(0) };
        while let Some(entry) = entries.get(at) {
            match &entry.body {
                Body::Run { .. } => {
                    let runs = entries[at..].iter().take_while(|entry| is_run(entry)).count();
                    self.apply_runs(chunks, &entries[at..at + runs])?;
                    at += runs;
                    continue;
                }
                Body::Image { chunk, offset, len, is_recovered } => {
                    let image =
                        resolve(chunks, *chunk, *offset, *len).ok_or_else(|| self.unresolved(entry))?;
                    self.replace(image)?;
                    if !is_recovered {
                        complete_image(self.format.family, &mut self.page, entry.start_lsn);
                    }
                }
                Body::Built(page) => self.replace(page)?,
                Body::Scrub => {
                    // Used again since: the server's zeros were for the former content.
                    if page_lsn(self.format.family, &self.page).is_some_and(|lsn| lsn <= entry.end_lsn) {
                        scrub(&mut self.page, entry.end_lsn);
                    }
                }
                Body::Verify { digest, heals } => {
                    if let Some(on_verify) = &mut on_verify {
                        let (lsn, digest, heals) = (entry.start_lsn, *digest, *heals);
                        let case =
                            VerifyCase { lsn, digest, stream_lsn: entry.end_lsn, heals, page: &self.page };
                        on_verify(self, case).map_err(|reason| self.error(reason))?;
                    }
                }
            }
            at += 1;
        }
        Ok(entries.len())
    }

    /// `entries` are all runs. The parser has marked those that reset the page.
    fn apply_runs(&mut self, chunks: &[Arc<Chunk>], entries: &[Entry]) -> Result<(), NodeError> {
        let resets =
            |entry: &Entry, wanted| matches!(entry.body, Body::Run { reset, .. } if reset == Some(wanted));
        let last_init = entries.iter().rposition(|entry| resets(entry, PageReset::Init));
        let entries = entries.get(last_init.unwrap_or(0)..).unwrap_or_default();
        let mut changes = Vec::with_capacity(entries.len());
        for entry in entries {
            let run = match entry.body {
                Body::Run { chunk, offset, len, .. } => resolve(chunks, chunk, offset, len),
                _ => None,
            };
            let run = run.ok_or_else(|| self.unresolved(entry))?;
            changes.push(Change { start_lsn: entry.start_lsn, end_lsn: entry.end_lsn, run });
        }
        let (page, changes) = (&mut self.page, changes.iter().copied());
        let applied = if entries.iter().any(|entry| resets(entry, PageReset::Free)) {
            self.format.apply_changes(page, self.page_id, true, changes, &mut Scratch::default())
        } else {
            self.format.apply_known_changes(
                page,
                self.page_id,
                last_init.is_some(),
                changes,
                &mut Scratch::default(),
            )
        };
        applied.map_err(|error| self.error(error.to_string()))
    }

    #[cold]
    fn unresolved(&self, entry: &Entry) -> NodeError {
        self.error(format!(
            "the index refers to bytes of the stream that are not there ({entry:?}); this is a defect of the node, the log is whole: \
             report it"
        ))
    }

    fn replace(&mut self, image: &[u8]) -> Result<(), NodeError> {
        let unpacked = if self.format.is_page_compressed_image(image) {
            self.format.decompress(image).map_err(|error| self.error(error.to_string()))?
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
            self.format.finalize(&mut self.page).map_err(|error| self.error(error.to_string()))?;
        }
        Ok(self.page)
    }
}

/// Images carry no LSN of their own: their position is that of the frame. A built page holds only redo that was durable
/// when it was built. A reader with an older limit must not fall back to the entries before it, because those records are
/// gone. `end_of`: end of a chunk.
fn beyond(entry: &Entry, limit: Point, end_of: &dyn Fn(u32) -> Option<Seq>) -> bool {
    match entry.body {
        Body::Run { .. } | Body::Scrub => entry.end_lsn > limit.lsn,
        Body::Image { chunk, .. } => end_of(chunk).is_none_or(|end| end > limit.seq),
        Body::Built(_) | Body::Verify { .. } => false,
    }
}

fn is_run(entry: &Entry) -> bool {
    matches!(entry.body, Body::Run { .. })
}

/// The entries that may be applied.
fn within_limit<'e>(
    entries: &'e [Entry],
    limit: Option<Point>,
    end_of: &dyn Fn(u32) -> Option<Seq>,
) -> &'e [Entry] {
    let beyond = |entry: &Entry| limit.is_some_and(|limit| beyond(entry, limit, end_of));
    entries.iter().position(beyond).and_then(|within| entries.get(..within)).unwrap_or(entries)
}

/// The entry defines the page regardless of its earlier content.
pub fn fills_page(entry: &Entry) -> bool {
    !matches!(
        entry.body,
        Body::Run { reset: None | Some(PageReset::Free), .. } | Body::Scrub | Body::Verify { .. }
    )
}

/// [`fills_page`], with content that is later than the difference found at `differs_at`. Comparisons are not in the log, so
/// after a restart redo from before the difference is there again, and comes to the same wrong content.
pub fn renews_page(entry: &Entry, differs_at: Option<Lsn>) -> bool {
    let Some(lsn) = differs_at else { return fills_page(entry) };
    // Chains of a page that is set aside are not built early. An image has the LSN of the stream.
    fills_page(entry) && !matches!(entry.body, Body::Built(_)) && entry.start_lsn >= lsn
}

/// Number of the first entry that needs no earlier image; `None`: there is none, or an earlier entry is a comparison.
fn begins_without_base(entries: &[Entry]) -> Option<usize> {
    let at = entries.iter().position(fills_page)?;
    let compares = |entry: &Entry| matches!(entry.body, Body::Verify { .. });
    (!entries.iter().take(at).any(compares)).then_some(at)
}

/// The newest version of a page whose records and images all end at or before `limit`.
///
/// # Errors
/// As the functions of [`Builder`].
pub fn construct(
    pages: StoredPages<'_>,
    index: &LogIndex,
    key: PageKey,
    page_id: PageId,
    format: Format,
    limit: Option<Point>,
) -> Result<Vec<u8>, NodeError> {
    construct_in_laps(pages, index, PageTarget { key, page_id, format }, limit, &mut ())
}

/// [`construct`], with a report when each part ends.
///
/// # Errors
/// As [`construct`].
pub fn construct_in_laps(
    pages: StoredPages<'_>,
    index: &LogIndex,
    PageTarget { key, page_id, format }: PageTarget,
    limit: Option<Point>,
    laps: &mut impl Laps,
) -> Result<Vec<u8>, NodeError> {
    let mut chains = chains_of(index.tables_of(key), key, limit);
    laps.lap(Part::Index);
    if let Some(entry) = pages.set_aside(key)
        && let Some(difference) = entry.differs
    {
        let renewed = begin_renewed(&mut chains, page_id, format, difference);
        let refused =
            |why: String| NodeError::Page { page: page_id, reason: entry.error() + &why, file: entry.file };
        renewed.map_err(refused)?;
    }
    let mut builder = if chains.first().is_some_and(|chain| chain.entries.iter().any(fills_page)) {
        Builder::empty(page_id, format)
    } else {
        Builder::from_store(pages, key, page_id, format)?
    };
    laps.lap(Part::BaseRead);
    for TableChain { table, entries, .. } in &chains {
        builder.apply_entries(&table.chunks(), entries, None, None)?;
    }
    let page = builder.finish();
    laps.lap(Part::Apply);
    page
}

/// Leaves out the entries before the last one that renews a page that differed.
///
/// # Errors
/// More words for the reason of the quarantine: there is no such entry, or it is an image that must not be used.
fn begin_renewed(
    chains: &mut Vec<TableChain>,
    page_id: PageId,
    format: Format,
    difference: Difference,
) -> Result<(), String> {
    let renews = |entry: &Entry| renews_page(entry, Some(Lsn(difference.stream_lsn)));
    let renewed = chains.iter().rposition(|chain| chain.entries.iter().any(renews));
    chains.drain(..renewed.ok_or_else(String::new)?);
    let Some(first) = chains.first_mut() else { return Ok(()) };
    let at = first.entries.iter().rposition(renews).unwrap_or_default();
    first.entries.drain(..at);
    let Some(entry) = first.entries.first() else { return Ok(()) };
    server_image::check(entry, &first.table.chunks(), page_id, format, difference)
        .map_err(|fault| format!("; the server's image of it is not taken: {fault}"))
}

/// Entries of one table for a page.
struct TableChain {
    table: Arc<Table>,
    entries: Vec<Entry>,
    /// Some of its entries are above the limit, and left out.
    is_cut: bool,
}

/// The entries of a page up to the limit, by table, from the last table on that fills the page.
fn chains_of(tables: Vec<Arc<Table>>, key: PageKey, limit: Option<Point>) -> Vec<TableChain> {
    let mut chains: Vec<TableChain> = Vec::with_capacity(tables.len());
    for table in tables {
        let mut entries = table.chain(key);
        let within = within_limit(&entries, limit, &|chunk| table.end_of_chunk(chunk)).len();
        let is_cut = within < entries.len();
        entries.truncate(within);
        if entries.iter().any(fills_page) {
            chains.clear();
        }
        chains.push(TableChain { table, entries, is_cut });
        if is_cut {
            break;
        }
    }
    chains
}

/// A page by key, with its identity and format.
#[derive(Clone, Copy, Debug)]
pub struct PageTarget {
    /// Its key in index and store.
    pub key: PageKey,
    /// Its identity in the server.
    pub page_id: PageId,
    /// Format of its tablespace.
    pub format: Format,
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
    limit: Point,
    on_verify: OnVerify<'_>,
) -> Result<(), NodeError> {
    let PageTarget { key, page_id, format } = target;
    if pages.set_aside(key).is_some() {
        return Ok(());
    }
    let tables = index.tables_of(key);
    if !tables.iter().any(|other| other.id() == table.id()) {
        return Ok(());
    }
    let entries = table.chain(key);
    let end_of = |chunk: u32| table.end_of_chunk(chunk);
    let within = within_limit(&entries, Some(limit), &end_of).len();
    let Some(last) = entries.get(..within).and_then(<[Entry]>::last) else { return Ok(()) };
    let lsn = last.end_lsn;
    let older: Vec<_> = tables.into_iter().filter(|other| other.id() < table.id()).collect();
    let older = chains_of(older, key, Some(limit));
    if older.iter().any(|chain| chain.is_cut) {
        // The entries of this table follow one that may not be applied yet.
        return Ok(());
    }
    // Earlier entries fit no empty page.
    let begin = begins_without_base(entries.get(..within).unwrap_or_default());
    let mut builder = if begin.is_some() {
        Builder::empty(page_id, format)
    } else {
        let mut builder = Builder::from_store(pages, key, page_id, format)?;
        for chain in &older {
            builder.apply_entries(&chain.table.chunks(), &chain.entries, None, None)?;
        }
        builder
    };
    let from_begin = entries.get(begin.unwrap_or(0)..).unwrap_or_default();
    builder.apply_entries(&table.chunks(), from_begin, Some(limit), Some(on_verify))?;
    let built = Body::Built(Arc::from(builder.page.as_slice()));
    table.compact(key, within, Entry { start_lsn: lsn, end_lsn: lsn, body: built });
    Ok(())
}

#[cfg(test)]
#[path = "construct_tests.rs"]
mod tests;
