//! Applying closed tables: their pages are built by workers, in the order of the files, and written to the page store.
//!
//! Several consecutive tables are applied as one: a page that occurs in each of them is read, built and written once.
//! The pages are sorted and handed out in pieces. A worker that takes a piece first asks the store to read its base
//! pages, and only then builds its previous piece. So a drive has many reads to do at a time. A separate thread writes
//! the built pages, so that no worker waits for the drive unless the drive is the slower one.
//!
//! A page's entries go to one worker, so per-page order is kept without locks. Nothing above D reaches the
//! page store: the caller waits for D first. Applying a table twice gives the same pages, because entries that
//! a stored page already has are skipped by its LSN.
//!
//! A page whose stored image is damaged is put off until the others are built: one pass over the log rebuilds many of
//! them. A page that cannot be built is reported ([`Applied::damage`]) and left out; so is a page that is in quarantine
//! ([`crate::quarantine`]), unless its entries start it from nothing. All others are written.

mod building;

use crate::construct::{Builder, StoredPages, VerifyCase, fills_page, renews_page};
use crate::error::NodeError;
use crate::figures::Worker;
use crate::index::table::resolve;
use crate::index::{Body, Entry, PageKey, Table};
use crate::quarantine::{Damage, Difference};
use crate::server_image;
use redoubt_page::Format;
use redoubt_pagestore::PageWrite;
use redoubt_redo::mariadb::RecordReader;
use redoubt_redo::mariadb::record::Body as RecordBody;
use redoubt_redo::{Lsn, PageId, PageReset};
use redoubt_sync::{Condvar, Mutex, time};
use std::collections::VecDeque;
use std::sync::Arc;

/// Pages that a worker takes at a time.
const PIECE_PAGES: usize = 128;
/// Pieces that a worker has requested from the store and not yet built.
const PIECES_AHEAD: usize = 3;
/// Smallest number of pages for which several threads are worthwhile.
const MIN_PAGES_OF_THREADS: usize = 64;
/// Bytes of built pages that are written as one batch.
const WRITE_BATCH_BYTES: usize = 32 << 20;

/// Identity and format of a page, for the workers; `None`: the object is dead, its entries are void.
pub type Describe<'d> = &'d (dyn Fn(PageKey) -> Option<(PageId, Option<Format>)> + Sync);
/// Receives the verify entries. An error is the reason why the page must not be written: it is set aside.
pub type OnVerify<'d> = &'d (dyn Fn(&Builder, PageKey, VerifyCase<'_>) -> Result<(), String> + Sync);

/// Called with built pages before they are written: an export may need the stored ones.
pub type BeforeWrite<'d> = &'d (dyn Fn(&[(PageKey, Vec<u8>)]) + Sync);

/// Result of applying a table.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// Pages written.
    pub pages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Pages that could not be built, and pages that are whole again.
    pub damage: Damage,
}

type BuiltPages = Vec<(PageKey, Vec<u8>)>;

/// Built pages that are not written yet.
#[derive(Default)]
struct Waiting {
    /// They are gathered here.
    pages: BuiltPages,
    len_bytes: usize,
    /// A batch that waits for the writer.
    batch: Option<BuiltPages>,
    /// Threads that may still add pages.
    builders: usize,
    /// A writer takes batches. Without one, all pages are gathered.
    has_writer: bool,
}

/// Destination of built pages. While the writer writes a batch, another can wait and a third be gathered, so that
/// workers wait only if the drive is slower.
struct Output<'s> {
    pages: StoredPages<'s>,
    before_write: BeforeWrite<'s>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// While it exists, pages may be added: the writer waits for them.
struct Building<'o, 's>(&'o Output<'s>);

impl<'o, 's> Building<'o, 's> {
    fn new(output: &'o Output<'s>) -> Self {
        output.waiting.lock().builders += 1;
        Self(output)
    }
}

impl Drop for Building<'_, '_> {
    fn drop(&mut self) {
        self.0.waiting.lock().builders -= 1;
        self.0.changed.notify_all();
    }
}

/// Says that the writer has ended, however it did.
struct WriterEnd<'o, 's>(&'o Output<'s>);

impl Drop for WriterEnd<'_, '_> {
    fn drop(&mut self) {
        self.0.waiting.lock().has_writer = false;
        self.0.changed.notify_all();
    }
}

impl Output<'_> {
    fn add(&self, key: PageKey, page: Vec<u8>) {
        let mut waiting = self.waiting.lock();
        waiting.len_bytes += page.len();
        waiting.pages.push((key, page));
        while waiting.len_bytes >= WRITE_BATCH_BYTES && waiting.has_writer {
            if waiting.batch.is_none() {
                waiting.len_bytes = 0;
                waiting.batch = Some(std::mem::take(&mut waiting.pages));
                self.changed.notify_all();
                return;
            }
            self.changed.wait(&mut waiting);
        }
    }

    /// The next batch for the writer; `None`: there are no more. [`Output::take_rest`] returns the remaining pages.
    fn next_batch(&self) -> Option<BuiltPages> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(batch) = waiting.batch.take() {
                self.changed.notify_all();
                return Some(batch);
            }
            if waiting.builders == 0 {
                return None;
            }
            self.changed.wait(&mut waiting);
        }
    }

    /// Body of the writer.
    fn write_batches(&self) -> Result<Applied, NodeError> {
        let _end = WriterEnd(self);
        let mut applied = Applied::default();
        while let Some(batch) = self.next_batch() {
            self.write(&batch, &mut applied)?;
        }
        Ok(applied)
    }

    /// The gathered pages that never became a batch.
    fn take_rest(&self) -> BuiltPages {
        std::mem::take(&mut self.waiting.lock().pages)
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

/// A page that a table has entries of.
#[derive(Clone, Copy)]
struct PageInTable {
    key: PageKey,
    /// Number of the table among those that are applied.
    table: u32,
}

/// Entries of one table for a page.
struct Chain<'t> {
    table: &'t Table,
    entries: Vec<Entry>,
}

/// A page to be built.
struct Page<'t> {
    key: PageKey,
    page_id: PageId,
    format: Format,
    /// Oldest first.
    chains: Vec<Chain<'t>>,
}

impl Page<'_> {
    fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.chains.iter().flat_map(|chain| &chain.entries)
    }

    /// Number of the first entry that needs no earlier image; `None`: there is none, or an earlier entry is a
    /// comparison.
    fn begins_without_base(&self, differs_at: Option<Lsn>) -> Option<usize> {
        let at = self.entries().position(|entry| renews_page(entry, differs_at))?;
        (!self.entries().take(at).any(is_verify)).then_some(at)
    }

    /// Number of the last entry that defines the page regardless of its earlier content.
    fn last_filling(&self, differs_at: Option<Lsn>) -> Option<usize> {
        let after = self.entries().rev().position(|entry| renews_page(entry, differs_at))?;
        self.entries().count().checked_sub(after + 1)
    }

    /// If the page has no content that counts after these entries: the LSN at which it was freed.
    fn freed_at(&self, differs_at: Option<Lsn>) -> Option<Lsn> {
        for Chain { table, entries } in self.chains.iter().rev() {
            let is_change = |entry: &&Entry| !is_verify(entry) && !matches!(entry.body, Body::Scrub);
            let Some(last) = entries.iter().rfind(is_change) else { continue };
            let Body::Run { chunk, offset, len, reset: Some(PageReset::Free) } = last.body else {
                return None;
            };
            if differs_at.is_some_and(|lsn| last.start_lsn < lsn) {
                return None;
            }
            // Redo that changes a page that it has just freed is invalid, and does not free it.
            let chunks = table.chunks();
            let last_record = RecordReader::new(resolve(&chunks, chunk, offset, len)?).last()?.ok()?;
            return matches!(last_record.body, RecordBody::FreePage).then_some(last.end_lsn);
        }
        None
    }

    /// Checks the images from entry number `first` on, of a page that differed ([`server_image::check`]). Each replaces the
    /// page.
    fn check_images(&self, first: usize, difference: Difference) -> Result<(), String> {
        let mut left_out = first;
        for Chain { table, entries } in &self.chains {
            let from = left_out.min(entries.len());
            left_out -= from;
            let chunks = table.chunks();
            for entry in entries.get(from..).unwrap_or_default() {
                server_image::check(entry, &chunks, self.page_id, self.format, difference)?;
            }
        }
        Ok(())
    }

    /// Its earlier content does not count after these entries.
    fn is_initialised_again(&self, differs_at: Option<Lsn>) -> bool {
        self.last_filling(differs_at).is_some() || self.freed_at(differs_at).is_some()
    }
}

fn is_verify(entry: &Entry) -> bool {
    matches!(entry.body, Body::Verify { .. })
}

/// The tables that are applied, and whom their pages go to.
struct Work<'w> {
    tables: &'w [Arc<Table>],
    /// By page, and for each in the order of the tables.
    places: Vec<PageInTable>,
    /// The first of [`Work::places`] that no worker has taken.
    next: Mutex<usize>,
    describe: Describe<'w>,
    on_verify: OnVerify<'w>,
    output: Output<'w>,
    failure: Mutex<Option<NodeError>>,
    /// Pages whose stored image is damaged, with its fault.
    damaged: Mutex<Vec<(Page<'w>, String)>>,
    damage: Mutex<Damage>,
}

impl<'w> Work<'w> {
    fn fail(&self, error: NodeError) {
        self.failure.lock().get_or_insert(error);
    }

    /// The next places that no worker has taken. Empty: there are none.
    fn take(&self) -> &[PageInTable] {
        let mut next = self.next.lock();
        let rest = self.places.get(*next..).unwrap_or_default();
        let len = rest.chunk_by(|a, b| a.key == b.key).take(PIECE_PAGES).map(<[PageInTable]>::len).sum();
        *next += len;
        rest.get(..len).unwrap_or_default()
    }

    /// The pages at these places, of which the store knows that they will be read.
    fn pages(&self, places: &[PageInTable]) -> Vec<Page<'w>> {
        let mut pages = Vec::with_capacity(places.len());
        for of_page in places.chunk_by(|a, b| a.key == b.key) {
            let Some(key) = of_page.first().map(|place| place.key) else { continue };
            let Some((page_id, format)) = (self.describe)(key) else { continue };
            if self.output.pages.set_aside(key).is_some_and(|entry| entry.page_no.is_none()) {
                continue;
            }
            let tables = of_page.iter().filter_map(|place| self.tables.get(place.table as usize));
            let chains: Vec<_> = tables.map(|table| Chain { table, entries: table.chain(key) }).collect();
            let Some(format) = format else {
                self.unknown_format(key, page_id, &chains);
                continue;
            };
            pages.push(Page { key, page_id, format, chains });
        }
        self.announce(&pages);
        pages
    }

    fn announce(&self, pages: &[Page<'_>]) {
        let read = pages
            .iter()
            .filter(|page| {
                page.entries().position(fills_page).is_none_or(|at| page.entries().take(at).any(is_verify))
            })
            .collect::<Vec<_>>();
        for together in read.chunk_by(|a, b| a.key.object() == b.key.object()) {
            let Some(first) = together.first() else { continue };
            let numbers: Vec<_> = together.iter().map(|page| page.key.page_no()).collect();
            let page_len_bytes = first.format.physical_page_size_bytes();
            self.output.pages.store.will_read(first.key.object(), &numbers, page_len_bytes);
        }
    }

    /// Body of a worker.
    fn run(&self, worker: &Worker) {
        let since = time::now();
        if let Err(error) = self.build_pieces(worker) {
            self.fail(error);
        }
        worker.was_busy(since);
    }

    fn build_pieces(&self, worker: &Worker) -> Result<(), NodeError> {
        let mut ahead = VecDeque::new();
        loop {
            while ahead.len() < PIECES_AHEAD {
                let places = self.take();
                if places.is_empty() {
                    break;
                }
                ahead.push_back(self.pages(places));
            }
            let Some(pages) = ahead.pop_front() else { return Ok(()) };
            for page in pages {
                if self.failure.lock().is_some() {
                    return Ok(());
                }
                let (entries, bytes) = (page.entries().count() as u64, redo_bytes(&page));
                self.build(page)?;
                worker.built(entries, bytes);
            }
        }
    }
}

/// Builds and writes every page of `tables`, which follow each other, the oldest first, with a thread per element of
/// `workers`. On an error nothing is lost: call it again, or stop.
///
/// # Errors
/// [`NodeError::PageStore`]; those of [`Rescue::rescue`](crate::rescue::Rescue::rescue).
pub fn apply_tables(
    pages: StoredPages<'_>,
    tables: &[Arc<Table>],
    workers: &[Worker],
    describe: Describe<'_>,
    on_verify: OnVerify<'_>,
    before_write: BeforeWrite<'_>,
) -> Result<Applied, NodeError> {
    let mut places = Vec::with_capacity(tables.iter().map(|table| table.pages() as usize).sum());
    for (number, table) in (0..).zip(tables) {
        places.extend(table.keys().into_iter().map(|key| PageInTable { key, table: number }));
    }
    places.sort_unstable_by_key(|place| (place.key, place.table));
    let has_threads = places.len() >= MIN_PAGES_OF_THREADS;
    let others = if has_threads { workers.get(1..).unwrap_or(&[]) } else { &[] };
    let waiting = Waiting { has_writer: has_threads, ..Waiting::default() };
    let work = Work {
        tables,
        places,
        next: Mutex::new(0),
        describe,
        on_verify,
        output: Output { pages, before_write, waiting: Mutex::new(waiting), changed: Condvar::new() },
        failure: Mutex::default(),
        damaged: Mutex::default(),
        damage: Mutex::default(),
    };
    let written = Mutex::new(Applied::default());
    redoubt_sync::thread::scope(|scope| {
        // Made here and not in the threads: the writer must not see a count of zero before the threads run, nor wait
        // for a thread that could not be started.
        let _building = Building::new(&work.output);
        if has_threads {
            scope.spawn(|| match work.output.write_batches() {
                Ok(applied) => *written.lock() = applied,
                Err(error) => work.fail(error),
            });
        }
        for worker in others {
            let (work, building) = (&work, Building::new(&work.output));
            scope.spawn(move || {
                work.run(worker);
                drop(building);
            });
        }
        work.run(workers.first().unwrap_or(&Worker::default()));
    });
    if let Some(error) = work.failure.lock().take() {
        return Err(error);
    }
    let mut applied = written.into_inner();
    work.output.write(&work.output.take_rest(), &mut applied)?;
    work.build_damaged(&mut applied)?;
    applied.damage = work.damage.into_inner();
    Ok(applied)
}

fn redo_bytes(page: &Page<'_>) -> u64 {
    page.entries().map(|entry| if let Body::Run { len, .. } = entry.body { u64::from(len) } else { 0 }).sum()
}
