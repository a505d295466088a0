//! Applying a closed table: its pages are built by workers, bucket by bucket, and written to the page store.
//!
//! A page's entries go to one worker, so per-page order is kept without locks. Nothing above D reaches the
//! page store: the caller waits for D first. Applying a table twice gives the same pages, because entries that
//! a stored page already has are skipped by its LSN.

use crate::construct::{Builder, StoredPages, VerifyCase, begins_without_base, ends_free, fills_page};
use crate::error::NodeError;
use crate::figures::Worker;
use crate::index::table::BUCKETS;
use crate::index::{Body, Entry, PageKey, Table};
use redoubt_page::SpaceFlags;
use redoubt_pagestore::PageWrite;
use redoubt_redo::PageId;
use redoubt_sync::{Mutex, time};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of built pages that are written as one batch.
const WRITE_BATCH_BYTES: usize = 48 << 20;

/// What the workers need to know about a page's tablespace; `None`: the object is dead, its entries are void.
pub type Describe<'d> = &'d (dyn Fn(PageKey) -> Option<(PageId, Option<SpaceFlags>)> + Sync);
/// Receives the verify entries.
pub type OnVerify<'d> = &'d (dyn Fn(&Builder, PageKey, VerifyCase<'_>) + Sync);

/// Called with built pages before they are written: what is stored may be wanted elsewhere.
pub type BeforeWrite<'d> = &'d (dyn Fn(&[(PageKey, Vec<u8>)]) + Sync);

/// What applying a table did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Applied {
    /// Pages written.
    pub pages: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Built pages that are not written yet.
#[derive(Default)]
struct Built {
    pages: Vec<(PageKey, Vec<u8>)>,
    len_bytes: usize,
}

struct Output<'s> {
    pages: StoredPages<'s>,
    before_write: BeforeWrite<'s>,
    built: Mutex<Built>,
    /// Batches go to the store one at a time.
    writing: Mutex<Applied>,
}

impl Output<'_> {
    fn add(&self, key: PageKey, page: Vec<u8>) -> Result<(), NodeError> {
        let mut built = self.built.lock();
        built.len_bytes += page.len();
        built.pages.push((key, page));
        if built.len_bytes < WRITE_BATCH_BYTES {
            return Ok(());
        }
        let batch = std::mem::take(&mut *built);
        // Taken before the list is unlocked, so that at most one more batch can gather meanwhile.
        let mut applied = self.writing.lock();
        drop(built);
        self.write(&batch.pages, &mut applied)
    }

    fn finish(&self) -> Result<Applied, NodeError> {
        let batch = std::mem::take(&mut *self.built.lock());
        let mut applied = self.writing.lock();
        self.write(&batch.pages, &mut applied)?;
        Ok(*applied)
    }

    fn write(&self, batch: &[(PageKey, Vec<u8>)], applied: &mut Applied) -> Result<(), NodeError> {
        let mut objects: Vec<_> = batch.iter().map(|(key, _)| key.object()).collect();
        objects.sort_unstable();
        objects.dedup();
        for object in objects {
            self.pages.store.create(object)?;
        }
        let writes: Vec<_> = batch
            .iter()
            .map(|(key, page)| PageWrite { object: key.object(), page_no: key.page_no(), page })
            .collect();
        (self.before_write)(batch);
        self.pages.store.write_batch(&writes)?;
        applied.pages += writes.len() as u64;
        applied.bytes += batch.iter().map(|(_, page)| page.len() as u64).sum::<u64>();
        Ok(())
    }
}

/// Builds and writes every page of `table`, with a thread per element of `workers`. On an error nothing is lost: call it again, or stop.
///
/// # Errors
/// [`NodeError::Page`], [`NodeError::PageStore`].
pub fn apply_table(
    pages: StoredPages<'_>,
    table: &Table,
    workers: &[Worker],
    describe: Describe<'_>,
    on_verify: OnVerify<'_>,
    before_write: BeforeWrite<'_>,
) -> Result<Applied, NodeError> {
    let output = Output { pages, before_write, built: Mutex::default(), writing: Mutex::default() };
    let next_bucket = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let build = |worker: &Worker| {
        loop {
            let bucket = next_bucket.fetch_add(1, Ordering::Relaxed);
            if bucket >= BUCKETS || failure.lock().is_some() {
                return;
            }
            for (key, entries) in table.bucket_chains(bucket) {
                if let Err(error) = apply_page(&output, table, key, &entries, describe, on_verify) {
                    failure.lock().get_or_insert(error);
                    return;
                }
                worker.built(entries.len() as u64, redo_bytes(&entries));
            }
        }
    };
    let work = |worker: &Worker| {
        let since = time::now();
        build(worker);
        worker.was_busy(since);
    };
    let others = if table.pages() < 64 { &[] } else { workers.get(1..).unwrap_or(&[]) };
    redoubt_sync::thread::scope(|scope| {
        for worker in others {
            scope.spawn(|| work(worker));
        }
        work(workers.first().unwrap_or(&Worker::default()));
    });
    match failure.into_inner() {
        Some(error) => Err(error),
        None => output.finish(),
    }
}

fn redo_bytes(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| if let Body::Run { len, .. } = entry.body { u64::from(len) } else { 0 }).sum()
}

fn apply_page(
    output: &Output<'_>,
    table: &Table,
    key: PageKey,
    entries: &[Entry],
    describe: Describe<'_>,
    on_verify: OnVerify<'_>,
) -> Result<(), NodeError> {
    let Some((page_id, flags)) = describe(key) else { return Ok(()) };
    let Some(flags) = flags else {
        return Err(NodeError::Page {
            page: page_id,
            file: "?".to_owned(),
            reason: "its tablespace flags are unknown: page 0 of the tablespace was never logged nor sent"
                .to_owned(),
        });
    };
    let Some((mut builder, first)) = begin(output.pages, key, page_id, flags, entries)? else {
        return Ok(());
    };
    let entries = entries.get(first..).unwrap_or(entries);
    let changes_page = entries.iter().any(|entry| !matches!(entry.body, Body::Verify { .. }));
    let mut verify = |builder: &Builder, case: VerifyCase<'_>| on_verify(builder, key, case);
    builder.apply_entries(&table.chunks(), entries, None, Some(&mut verify))?;
    if changes_page { output.add(key, builder.finish()?) } else { Ok(()) }
}

/// The page before its entries, and from which of them on they count. What is stored is read only if something builds
/// on it or compares with it. If it is damaged for good, the comparisons are given up where the entries start the page
/// anew; `None`: they only free it.
fn begin(
    pages: StoredPages<'_>,
    key: PageKey,
    page_id: PageId,
    flags: SpaceFlags,
    entries: &[Entry],
) -> Result<Option<(Builder, usize)>, NodeError> {
    if let Some(first) = begins_without_base(entries) {
        return Ok(Some((Builder::empty(page_id, flags), first)));
    }
    let first = entries.iter().position(fills_page);
    match Builder::from_store(pages, key, page_id, flags) {
        Ok(builder) => Ok(Some((builder, 0))),
        Err(error @ NodeError::Page { .. }) if first.is_some() || ends_free(entries) => {
            tracing::warn!(page = %page_id, %error, "page started anew by redo; writes before that are not compared");
            Ok(first.map(|first| (Builder::empty(page_id, flags), first)))
        }
        Err(error) => Err(error),
    }
}
