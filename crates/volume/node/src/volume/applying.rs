//! The page store: A, the checkpoint that records it, and the thread that moves both.
//!
//! A table of the log index is applied when it is closed and durable, and the changes of plain files before its end are
//! done. Later tables that meet these conditions by then are applied with it, as one table: a backlog is written once
//! and not once per table. Then the pages and the plain files become durable, then the quarantine with the pages that
//! could not be built ([`super::quarantine`]), and the checkpoint is replaced. Only then the tables leave the index, A
//! moves, dead objects leave the quarantine and are removed, and the log is given up.
//!
//! Invariants: `A <= P` and `A <= D`; nothing above D is ever written to pages; only the apply thread writes pages.
//!
//! Names as of A are kept in memory: each table lists the changes that it makes to them.
//!
//! Lock order: files, then checkpoint; cuts, then the export; the checkpoint is a leaf.

use super::context::{Context, Waiter};
use super::cover::{AppliedBatch, Cover};
use super::export::Exports;
use super::indexing::{Described, Indexing};
use super::quarantine::{QuarantineFile, Surroundings, page_key};
use super::receiving::Receiving;
use super::repairing::{Examine, Repairs};
use super::stored_files::StoredFiles;
use crate::apply::{Applied, OnVerify, apply_tables};
use crate::checkpoint::{CheckpointFiles, NodeCheckpoint, Positions};
use crate::construct::StoredPages;
use crate::counters::add;
use crate::error::{Kind, NodeError};
use crate::figures::Worker;
use crate::index::{PageKey, Table, TableEnd, TableState};
use crate::mark::{Mark, Point, WaitEnd};
use crate::namespace::Namespace;
use crate::page_store::Description;
use crate::plain::PlainStore;
use crate::quarantine::Damage;
use redoubt_page::Format;
use redoubt_pagestore::{ObjectId, PageStore, PageStoreError};
use redoubt_redo::Family;
use redoubt_sync::planted::{Bug, is_planted};
use redoubt_sync::{Mutex, time};
use redoubt_wire::Seq;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// After a cut that found no room.
const CUT_AGAIN_INTERVAL: Duration = Duration::from_millis(500);

/// How long to wait for the end of a table to be durable before looking at the room of the log.
const DURABLE_INTERVAL: Duration = Duration::from_millis(100);

/// How long to wait for the end of a volume that is about to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Work of the apply thread.
enum Work {
    /// Pages were found damaged.
    Repairs,
    /// Pages may be older versions than must be stored.
    Suspects,
    /// Objects that were kept for an export are not needed any more.
    Removals(Vec<ObjectId>),
    /// Files were cut.
    Cuts(Vec<ObjectId>),
    /// A table to apply, and perhaps others after it.
    Tables,
    /// The log waits for room.
    Room,
}

/// Consecutive closed tables, the oldest first, with the end of the last one.
struct Batch {
    tables: Vec<Arc<Table>>,
    end: TableEnd,
}

impl Batch {
    fn of(table: Arc<Table>, end: TableEnd) -> Self {
        Self { tables: vec![table], end }
    }

    fn add(&mut self, table: Arc<Table>, end: TableEnd) {
        self.tables.push(table);
        self.end.point = end.point;
        if !end.names.is_empty() {
            Arc::make_mut(&mut self.end.names).extend(end.names.iter().cloned());
        }
        self.end.dead.extend(end.dead);
        self.end.cut.extend(end.cut);
    }
}

/// Stream bytes to apply at once. Room in the log buffer comes when all of them are applied, so at most half of the
/// buffer. If the backlog is longer than the log buffer, as after a start, there is no room before all is applied.
fn most_bytes(closed: &[Arc<Table>], ring_len_bytes: u64) -> u64 {
    let waiting: u64 = closed.iter().map(|table| table.stream_bytes()).sum();
    if waiting > ring_len_bytes { waiting } else { ring_len_bytes / 2 }
}

/// Number of closed tables to apply as one. `tables` has their ends and stream bytes, the oldest first. The first is
/// always included; others while all of them have at most `most_bytes`, end no later than `last`, and are ready.
fn count_together(
    tables: &[(Seq, u64)],
    most_bytes: u64,
    last: Option<Seq>,
    is_ready: impl Fn(Seq) -> bool,
) -> usize {
    let mut sum_bytes = 0;
    let fits = |(number, (end, len_bytes)): &(usize, &(Seq, u64))| {
        sum_bytes += len_bytes;
        *number == 0 || (sum_bytes <= most_bytes && last.is_none_or(|last| *end <= last) && is_ready(*end))
    };
    tables.iter().enumerate().take_while(fits).count()
}

/// The page lies after the end of its object's files.
fn is_past_end(names: &Namespace, key: PageKey) -> bool {
    let Some(flags) = names.object(key.object()).and_then(|object| object.flags) else { return false };
    let page_len = Format { family: names.family(), flags }.physical_page_size_bytes() as u64;
    u64::from(key.page_no()) * page_len >= names.len_bytes_of_object(key.object())
}

/// The other parts that applying uses.
#[derive(Clone, Copy)]
pub struct Sources<'v> {
    /// D, and the log that is given up.
    pub receiving: &'v Receiving,
    /// P and the tables.
    pub indexing: &'v Indexing,
    /// X.
    pub plain: &'v PlainStore,
    /// Whose states are to be kept.
    pub exports: &'v Exports,
    /// Receives the pages that cannot be built.
    pub quarantine: &'v QuarantineFile,
    /// Changes the flag of the quarantine in the identity.
    pub set_quarantine_flag: &'v (dyn Fn(bool) -> Result<(), NodeError> + Sync),
    /// The stored pages, damaged ones rebuilt.
    pub pages: StoredPages<'v>,
    /// Identity and format of a page, for the workers.
    pub describe: &'v (dyn Fn(PageKey) -> Option<Described> + Sync),
    /// Examines pages that may be older versions than must be stored ([`super::outdated`]).
    pub examine: Examine<'v>,
    /// Takes the comparisons.
    pub on_verify: OnVerify<'v>,
}

/// Page store, checkpoint, repairs and cuts.
pub struct Applying {
    pub(super) context: Arc<Context>,
    /// Store of the pages.
    pub store: Box<dyn PageStore>,
    /// The same, for people.
    pub description: Description,
    /// List of the files that must be there.
    pub stored_files: Arc<StoredFiles>,
    /// The checkpoint on disk.
    files: Mutex<CheckpointFiles>,
    pub(super) checkpoint: Mutex<NodeCheckpoint>,
    applied: Mark,
    /// Figures of the workers.
    pub workers: Vec<Worker>,
    /// Stored pages to be repaired or examined.
    pub repairs: Repairs,
    /// The newest work was repairs or suspects.
    has_repaired: AtomicBool,
    /// Objects whose files were cut at or before A, to be cut in the page store.
    cuts: Mutex<Vec<ObjectId>>,
    /// From where on the log covers the page journal.
    pub(super) cover: Cover,
}

impl Applying {
    /// Continues at `checkpoint`.
    pub fn new(
        context: &Arc<Context>,
        store: Box<dyn PageStore>,
        description: Description,
        (files, checkpoint): (CheckpointFiles, NodeCheckpoint),
    ) -> Self {
        Self {
            context: Arc::clone(context),
            store,
            description,
            stored_files: Arc::new(StoredFiles::new(context)),
            applied: Mark::at(checkpoint.applied),
            cover: Cover::found(context, checkpoint.cover),
            files: Mutex::new(files),
            checkpoint: Mutex::new(checkpoint),
            workers: Worker::several(context.options.apply_workers),
            repairs: Repairs::new(context),
            has_repaired: AtomicBool::new(false),
            cuts: Mutex::default(),
        }
    }

    /// A.
    pub fn applied(&self) -> &Mark {
        &self.applied
    }

    /// The node's checkpoint, durable and applied.
    pub fn checkpoint(&self) -> NodeCheckpoint {
        self.checkpoint.lock().clone()
    }

    /// The names as of A get the family that the identity has.
    pub fn set_family(&self, family: Family) {
        Arc::make_mut(&mut self.checkpoint.lock().names).set_family(family);
    }

    /// A, and from where on the log is needed.
    pub fn points(&self) -> (Point, Point) {
        let checkpoint = self.checkpoint.lock();
        (checkpoint.applied, checkpoint.kept_from())
    }

    /// Removes objects that are not in the names: frames after the checkpoint made them, and will make them again.
    ///
    /// # Errors
    /// [`NodeError::PageStore`].
    pub fn remove_leftovers(&self, names: &Namespace) -> Result<(), NodeError> {
        self.files.lock().remove_leftovers();
        let mut leftovers = self.store.objects()?;
        leftovers.retain(|object| names.object(*object).is_none());
        Ok(self.store.remove_all(&leftovers)?)
    }

    /// P -> A, until the volume is closed.
    ///
    /// # Errors
    /// Any error that must stop the volume.
    pub fn run(&self, sources: &Sources<'_>) -> Result<(), NodeError> {
        let done = self.run_until_closed(sources);
        self.stored_files.save_or_log(sources.plain);
        done
    }

    fn run_until_closed(&self, sources: &Sources<'_>) -> Result<(), NodeError> {
        while let Some(work) = self.context.wait_for_work(|| self.next_work(sources)) {
            let done = match work {
                Work::Repairs => self.repair_with(|repairs| {
                    repairs.repair(sources.pages, sources.describe, &sources.quarantine.found)
                }),
                Work::Suspects => self.repair_with(|repairs| {
                    let settle = |damage: &Damage| self.settle(sources, damage, &[]);
                    repairs.examine(&*self.store, sources.examine, &settle)
                }),
                Work::Removals(objects) => self
                    .settle(sources, &Damage::default(), &objects)
                    .and_then(|()| self.remove_objects(&objects)),
                Work::Cuts(objects) => {
                    self.cut_objects(&objects).and_then(|()| self.end_quarantine_of_cut(sources, &objects))
                }
                Work::Tables => self.apply(sources),
                Work::Room => self.make_room(sources),
            };
            match done {
                // A wait for room or durability that the end of the volume cut short.
                Err(_) if self.context.is_closed() => return Ok(()),
                done => done?,
            }
        }
        Ok(())
    }

    /// Stored pages are written again by `repair`.
    fn repair_with(&self, repair: impl FnOnce(&Repairs) -> Result<(), NodeError>) -> Result<(), NodeError> {
        self.cover.begin_repairs(&*self.store);
        repair(&self.repairs)?;
        self.cover.end_repairs(&*self.store)
    }

    /// Next work of the apply thread: repairs, or the head table once it is closed.
    fn next_work(&self, sources: &Sources<'_>) -> Option<Work> {
        let head = sources.indexing.index.head();
        let head = head.filter(|table| table.state() == TableState::Closed).and_then(|table| table.end());
        let has_table = head.is_some();
        // In turn: a drive that has lost many writes must not hold the server back.
        if !(has_table && self.has_repaired.swap(false, Ordering::Relaxed)) {
            for (has_pages, work) in
                [(self.repairs.has_damaged(), Work::Repairs), (self.repairs.has_suspects(), Work::Suspects)]
            {
                if has_pages {
                    self.has_repaired.store(true, Ordering::Relaxed);
                    return Some(work);
                }
            }
        }
        let removable = sources.exports.take_removable();
        if !removable.is_empty() {
            return Some(Work::Removals(removable));
        }
        let is_durable = |end: TableEnd| sources.receiving.durable().get().seq >= end.point.seq;
        // Its end may be durable only when there is room.
        if !head.is_some_and(is_durable) && self.can_make_room() {
            return Some(Work::Room);
        }
        if has_table {
            return Some(Work::Tables);
        }
        self.next_cuts(sources).map(Work::Cuts)
    }

    /// The tables to apply now, the head table among them; waits until that is durable and executed.
    fn next_batch(&self, sources: &Sources<'_>) -> Result<Option<Batch>, NodeError> {
        let index = &sources.indexing.index;
        let head_end =
            index.head().filter(|table| table.state() == TableState::Closed).and_then(|table| table.end());
        let Some(TableEnd { point: head_end, .. }) = head_end else { return Ok(None) };
        let durable = sources.receiving.durable();
        let mut is_durable = is_planted(Bug::AppliedBeforeDurable);
        while !is_durable {
            match durable.wait_for(head_end.seq, Some(time::now() + DURABLE_INTERVAL)) {
                WaitEnd::Reached => is_durable = true,
                WaitEnd::Closed => break,
                // Nothing else makes that room.
                WaitEnd::TimedOut if self.can_make_room() => return Ok(None),
                WaitEnd::TimedOut => {}
            }
        }
        if !is_durable || sources.plain.wait_executed(head_end.seq, None) != WaitEnd::Reached {
            return Err(self.context.stopped_error());
        }
        let tables = index.closed_tables();
        // An export wants its point exactly. Asked second: an export that begins later has a later point.
        let last = sources.exports.unapplied_point().filter(|last| *last >= head_end.seq);
        let now = Some(time::now());
        let is_ready = |seq: Seq| {
            sources.receiving.durable().get().seq >= seq
                && sources.plain.wait_executed(seq, now) == WaitEnd::Reached
        };
        let ended: Vec<_> =
            tables.iter().map_while(|table| Some((Arc::clone(table), table.end()?))).collect();
        let lens: Vec<_> = ended.iter().map(|(table, end)| (end.point.seq, table.stream_bytes())).collect();
        let most_bytes = most_bytes(&tables, self.context.options.ring_len_bytes);
        let count = count_together(&lens, most_bytes, last, is_ready);
        let mut ended = ended.into_iter().take(count);
        let Some((table, end)) = ended.next() else { return Ok(None) };
        let mut batch = Batch::of(table, end);
        ended.for_each(|(table, end)| batch.add(table, end));
        Ok(Some(batch))
    }

    fn apply(&self, sources: &Sources<'_>) -> Result<(), NodeError> {
        let Some(Batch { tables, end, .. }) = self.next_batch(sources)? else { return Ok(()) };
        tables.iter().for_each(|table| table.set_applying());
        if let Some(first) = tables.first() {
            self.cover.begin_batch(&*self.store, first.start());
        }
        let applied = self.context.with_retry(Waiter::Pages, || self.apply_pages(sources, &tables))?;
        if self.context.is_closed() {
            // Stopped meanwhile, perhaps by a page that differs: its records stay in the log.
            return Ok(());
        }
        if sources.indexing.has_refused() {
            // The names that decided which objects are dead may show a part of the refused frame. The volume is about to
            // stop, and these tables are applied when it is opened again.
            self.context.pause(STOP_INTERVAL);
            return Ok(());
        }
        let has_void_redo = sources.indexing.index.resets().is_some();
        let start = tables.first().map_or(end.point, |first| first.start());
        let batch = AppliedBatch { start, applied: end.point, kept_from: self.points().1 };
        // Before the syncs: it may take long.
        let cover = self.cover.next(&*self.store, &sources.receiving.retention, &batch, has_void_redo)?;
        if !is_planted(Bug::CheckpointBeforePlainFiles) {
            self.context.with_retry(Waiter::PlainFiles, || sources.plain.sync())?;
        }
        self.context.with_retry(Waiter::Pages, || Ok(self.store.seal()?))?;
        self.settle(sources, &applied.damage, &[])?;
        self.context.with_retry(Waiter::Pages, || Ok(self.store.record_growth()?))?;
        self.context.with_retry(Waiter::Pages, || self.stored_files.before_checkpoint(sources.plain))?;
        let positions =
            Positions { applied: end.point, log_start: self.next_log_start(&end, sources.receiving), cover };
        self.context.with_retry(Waiter::Pages, || self.write_checkpoint(&end, positions))?;
        // Only now: until the checkpoint passes their ends, a restart makes these objects again. The pages of an object
        // that an export needs stay in quarantine until it ends.
        let is_gone = |object: &&ObjectId| !sources.exports.needs(**object);
        let gone: Vec<_> = end.dead.iter().filter(is_gone).copied().collect();
        self.settle(sources, &Damage::default(), &gone)?;
        sources.quarantine.found.retain(|key| !end.dead.contains(&key.object()));
        sources.quarantine.request_differing(&|key| sources.indexing.image_request(key));
        // Before A moves, so that the counters include this work when A shows it.
        self.count(&tables, &end, &applied);
        self.finish_tables(sources, &tables, &end, positions)
    }

    /// Pages that cannot be built go into the quarantine, and those of `dead` leave it.
    fn settle(&self, sources: &Sources<'_>, damage: &Damage, dead: &[ObjectId]) -> Result<(), NodeError> {
        let file_of = |object| sources.indexing.path_of_object(object);
        let surroundings = Surroundings { file_of: &file_of, set_flag: sources.set_quarantine_flag };
        self.context.with_retry(Waiter::Pages, || sources.quarantine.settle(damage, dead, &surroundings))?;
        sources.quarantine.request_new(&|key| sources.indexing.image_request(key));
        Ok(())
    }

    fn apply_pages(&self, sources: &Sources<'_>, tables: &[Arc<Table>]) -> Result<Applied, NodeError> {
        let before_write = |batch: &[(PageKey, Vec<u8>)]| {
            sources.exports.before_pages(sources.pages, batch);
            sources.quarantine.found.retain(|key| !batch.iter().any(|(written, _)| *written == key));
        };
        apply_tables(sources.pages, tables, &self.workers, sources.describe, sources.on_verify, &before_write)
    }

    fn count(&self, tables: &[Arc<Table>], end: &TableEnd, applied: &Applied) {
        let counters = &self.context.counters;
        let start_lsn = tables.first().map_or(0, |table| table.start().lsn.0);
        // The first redo of a volume does not begin at LSN 0.
        if start_lsn > 0 {
            add(&counters.redo_bytes_applied, end.point.lsn.0.saturating_sub(start_lsn));
        }
        add(&counters.page_applied_bytes, applied.bytes);
        add(&counters.tables_applied, tables.len() as u64);
        add(&counters.pages_applied, applied.pages);
        tracing::debug!(
            volume = self.context.name,
            tables = tables.len(),
            pages = applied.pages,
            bytes = applied.bytes,
            lsn = end.point.lsn.0,
            "tables applied"
        );
    }

    fn next_log_start(&self, end: &TableEnd, receiving: &Receiving) -> Point {
        let (server_checkpoint, last) = {
            let checkpoint = self.checkpoint.lock();
            (checkpoint.names.server_checkpoint_after(&end.names), checkpoint.log_start)
        };
        // The log may have the only base of a page that waits for its repair.
        if self.repairs.has_any() {
            return last;
        }
        let wanted = server_checkpoint.unwrap_or(end.point.lsn).min(end.point.lsn);
        let log_start = receiving.retention.position(wanted).filter(|start| start.seq <= end.point.seq);
        log_start.unwrap_or(last)
    }

    fn write_checkpoint(&self, end: &TableEnd, positions: Positions) -> Result<(), NodeError> {
        let mut files = self.files.lock();
        files.write(positions, &end.names, self.context.options.names_log_len_bytes, || {
            let mut names = self.checkpoint().names;
            Arc::make_mut(&mut names).apply(&*end.names);
            names
        })
    }

    /// The same with other positions.
    pub(super) fn rewrite_checkpoint(&self, positions: Positions) -> Result<(), NodeError> {
        self.files
            .lock()
            .write(positions, &[], self.context.options.names_log_len_bytes, || self.checkpoint().names)?;
        self.checkpoint.lock().cover = positions.cover;
        Ok(())
    }

    fn finish_tables(
        &self,
        sources: &Sources<'_>,
        tables: &[Arc<Table>],
        end: &TableEnd,
        positions: Positions,
    ) -> Result<(), NodeError> {
        let (names, kept_from) = {
            let mut checkpoint = self.checkpoint.lock();
            Arc::make_mut(&mut checkpoint.names).apply(&*end.names);
            (checkpoint.applied, checkpoint.log_start) = (positions.applied, positions.log_start);
            checkpoint.cover = positions.cover;
            (Arc::clone(&checkpoint.names), checkpoint.kept_from())
        };
        sources.exports.applied(end.point, &names);
        drop(names);
        for table in tables {
            sources.indexing.index.remove_applied(table);
        }
        self.stored_files.applied(&end.dead, &*self.store);
        self.stored_files.save_if_due(sources.plain);
        self.applied.advance(end.point);
        sources.receiving.buffer.set_applied(end.point.seq);
        sources.indexing.forget_dead(&end.dead);
        let gone: Vec<_> = end.dead.iter().copied().filter(|object| !sources.exports.keep(*object)).collect();
        self.remove_objects(&gone)?;
        self.cuts.lock().extend(&end.cut);
        self.context.with_retry(Waiter::Pages, || sources.receiving.give_up_before(kept_from))
    }

    fn remove_objects(&self, objects: &[ObjectId]) -> Result<(), NodeError> {
        self.context.with_retry(Waiter::Pages, || Ok(self.store.remove_all(objects)?))
    }

    /// An active export may read a state from before a cut; an export that begins later does not.
    fn next_cuts(&self, sources: &Sources<'_>) -> Option<Vec<ObjectId>> {
        let mut cuts = self.cuts.lock();
        (!cuts.is_empty() && !sources.exports.is_active()).then(|| std::mem::take(&mut *cuts))
    }

    /// Gives back the space past the ends of these objects, as of A. The stream up to there is not applied again, and a
    /// file is made longer before pages of the new part are written. If the node dies first, those pages stay until the
    /// next cut. That is harmless: the server initialises each page again before it uses it.
    fn cut_objects(&self, objects: &[ObjectId]) -> Result<(), NodeError> {
        let names = self.checkpoint().names;
        for object in objects {
            let len_bytes = names.len_bytes_of_object(*object);
            let stored_bytes =
                self.context.with_retry(Waiter::Pages, || match self.store.len_bytes(*object) {
                    Err(PageStoreError::NoSuchObject { .. }) => Ok(0),
                    stored => Ok(stored?),
                })?;
            if names.object(*object).is_none() {
                continue;
            }
            let is_longer = stored_bytes > len_bytes;
            // Also if it is shorter: the pages past its end are not missing from a file that was cut on the disk.
            let cut = self.stored_files.before_cut(*object, len_bytes);
            let set_len = |()| -> Result<(), NodeError> {
                if is_longer {
                    self.store.set_len(*object, len_bytes)?;
                    // A reader may have brought its pages home meanwhile.
                    self.stored_files.before_cut(*object, len_bytes)?;
                }
                Ok(())
            };
            match cut.and_then(set_len) {
                // Pages that wait in the journal find no room. The next table may find room, so nothing waits here.
                Err(error) if error.kind() == Kind::Retry => {
                    self.cuts.lock().push(*object);
                    self.context.pause(CUT_AGAIN_INTERVAL);
                    continue;
                }
                done => done?,
            }
            if is_longer {
                tracing::info!(
                    event = "tablespace_cut",
                    volume = self.context.name,
                    file = names.path_of_object(*object),
                    from_bytes = stored_bytes,
                    len_bytes,
                    "tablespace cut"
                );
            }
        }
        Ok(())
    }

    /// Pages past the ends of these objects leave the quarantine: the server initialises each again before it uses it.
    fn end_quarantine_of_cut(&self, sources: &Sources<'_>, objects: &[ObjectId]) -> Result<(), NodeError> {
        let names = self.checkpoint().names;
        let is_cut = |key: &PageKey| objects.contains(&key.object()) && is_past_end(&names, *key);
        sources.quarantine.found.retain(|key| !is_cut(&key));
        let set_aside = sources.quarantine.list.contents();
        let renewed: Vec<_> = set_aside.entries().filter_map(page_key).filter(is_cut).collect();
        if renewed.is_empty() {
            return Ok(());
        }
        self.settle(sources, &Damage { renewed, ..Damage::default() }, &[])
    }

    /// Ends all waits of this part.
    pub fn close(&self) {
        self.applied.close();
    }
}

#[cfg(test)]
#[path = "applying_tests.rs"]
mod tests;
