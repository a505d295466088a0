//! The threads of a volume. Each runs a loop over pure parts and ends when the volume is closed; an error that
//! is not about space stops the volume.

use super::{LongChain, Volume};
use crate::apply::{Applied, apply_table};
use crate::checkpoint::Checkpoint;
use crate::construct::{Builder, PageTarget, VerifyCase, compact_chain};
use crate::counters::add;
use crate::error::{Kind, NodeError};
use crate::index::{PageKey, Table, TableEnd, TableState};
use crate::log_buffer::{Chunk, Next};
use crate::mark::{Point, WaitEnd};
use crate::namespace::ObjectEntry;
use crate::parser::{Outcome, Parser};
use redoubt_page::SpaceFlags;
use redoubt_redo::PageId;
use redoubt_sync::{is_planted, thread, time};
use redoubt_wire::Seq;
use redoubt_wire::notice::Notice;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Work of the apply thread.
enum Work {
    /// Pages were found damaged.
    Repairs,
    /// A table to apply.
    Table(Arc<Table>, TableEnd),
}

/// How long to wait before trying again when the disk is full.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

impl Volume {
    pub(super) fn start_threads(volume: &Arc<Self>) -> Result<(), NodeError> {
        type Loop = fn(&Volume) -> Result<(), NodeError>;
        let loops: [(&str, Loop); 6] = [
            ("device", Self::run_device),
            ("durable", Self::run_durable),
            ("parser", Self::run_parser),
            ("plain", Self::run_plain),
            ("apply", Self::run_apply),
            ("chains", Self::run_chains),
        ];
        for (what, run) in loops {
            let of = Arc::clone(volume);
            let thread = redoubt_sync::thread::Builder::new()
                .name(format!("{what}-{}", volume.name))
                .spawn(move || {
                    // A thread that is gone without a word would leave everybody waiting for it.
                    match std::panic::catch_unwind(AssertUnwindSafe(|| run(&of))) {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => of.stop(&error.to_string()),
                        Err(_) => of.stop(&format!(
                            "its {what} thread met a defect of the node; see the node's error output"
                        )),
                    }
                })
                .map_err(|error| NodeError::io("start thread for", &volume.directory, error))?;
            volume.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Repeats `action` while it fails for lack of space.
    pub(super) fn with_retry<T>(
        &self,
        mut action: impl FnMut() -> Result<T, NodeError>,
    ) -> Result<T, NodeError> {
        let mut waited = false;
        loop {
            match action() {
                Ok(value) => {
                    if waited {
                        self.clear_waiting();
                    }
                    return Ok(value);
                }
                Err(error) if error.kind() == Kind::Retry => {
                    waited = true;
                    self.set_waiting(&error.to_string());
                    let mut wake = self.wake_lock.lock();
                    if wake.closed {
                        return Err(error);
                    }
                    self.wake.wait_for(&mut wake, RETRY_INTERVAL);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// W -> D for whatever a connection does not write itself (see [`Volume::write_received`]).
    fn run_device(&self) -> Result<(), NodeError> {
        while self.buffer.wait_for_device_work() {
            let mut batch = self.device_turn.lock();
            self.write_batches(&mut batch)?;
        }
        Ok(())
    }

    /// Writes what was received to the log device, in the thread of the connection that received it: that saves a
    /// change of threads on the way of each commit. If another thread is at it, that one goes on, or is woken.
    ///
    /// # Errors
    /// What stopped the volume.
    pub fn write_received(&self) -> Result<(), NodeError> {
        let Some(mut batch) = self.device_turn.try_lock() else {
            self.buffer.wake_device();
            return Ok(());
        };
        let written = std::panic::catch_unwind(AssertUnwindSafe(|| self.write_batches(&mut batch)));
        written
            .unwrap_or_else(|_| {
                Err(NodeError::Stopped("writing its log met a defect of the node".to_owned()))
            })
            .inspect_err(|error| self.stop(&error.to_string()))
    }

    /// Appends everything received to the log device and makes it durable, batch by batch. A batch is whatever
    /// came while the one before was synced. `batch` is the buffer that whose turn it is may use.
    fn write_batches(&self, batch: &mut Vec<u8>) -> Result<(), NodeError> {
        loop {
            let chunks = self.buffer.take_for_device();
            let Some(end) = chunks.last().map(|chunk| chunk.end) else { return Ok(()) };
            self.tracer.taken(end);
            batch.clear();
            for chunk in &chunks {
                batch.extend_from_slice(&chunk.wire);
            }
            let since = time::now();
            let appended = self.with_retry(|| Ok(self.device.append(batch)?))?;
            if appended != end.seq {
                let reason = format!("log device is at {appended}, the stream at {}", end.seq);
                return Err(NodeError::Damaged { path: self.directory.join("log"), reason });
            }
            if self.device.is_pipelined() && self.device.durable_end() < end.seq {
                self.written_ends.push(end, since);
            } else {
                if !is_planted("answered before durable") {
                    self.device.wait_durable(end.seq)?;
                }
                self.became_durable(end, since);
            }
        }
    }

    /// Awaits what a pipelined device is writing.
    fn run_durable(&self) -> Result<(), NodeError> {
        while let Some(first) = self.written_ends.first() {
            let durable = self.device.wait_durable(first.seq)?;
            if let Some((end, since)) = self.written_ends.take_durable(durable) {
                self.became_durable(end, since);
            }
        }
        Ok(())
    }

    /// Everything before `end`, which was handed to the device at `since`, is durable: moves D and tells the server.
    fn became_durable(&self, end: Point, since: Instant) {
        self.figures.log_write.record_since(since);
        self.tracer.durable(end);
        add(&self.counters.log_syncs, 1);
        self.durable.advance(end);
        self.notify(&Notice::Durable(end.seq));
        self.buffer.set_durable(end.seq);
    }

    /// W -> P.
    fn run_parser(&self) -> Result<(), NodeError> {
        let mut parser = Parser::new(&self.index, &self.names, &self.plain);
        let mut table_since = time::now();
        loop {
            match self.buffer.take_for_parser(table_since + self.options.apply_interval) {
                Next::Closed => return Ok(()),
                Next::Idle => {}
                Next::RoomWanted => {
                    self.close_table(&mut parser);
                    table_since = time::now();
                }
                Next::Chunks(chunks) => {
                    for chunk in chunks {
                        let close_after = self.parse_chunk(&mut parser, &chunk)?;
                        if close_after {
                            self.close_table(&mut parser);
                            table_since = time::now();
                        }
                    }
                }
            }
            if time::elapsed(table_since) >= self.options.apply_interval {
                self.close_table(&mut parser);
                table_since = time::now();
            }
        }
    }

    /// Indexes one frame and moves P. True: the open table is full.
    fn parse_chunk(&self, parser: &mut Parser<'_>, chunk: &Arc<Chunk>) -> Result<bool, NodeError> {
        if chunk.kind == super::transfer::KIND_CLOSE_TABLE {
            return Ok(true);
        }
        let outcome = match self.handle(parser, chunk) {
            Err(_) if is_planted("unknown input skipped") => return Ok(false),
            handled => handled?,
        };
        for key in &outcome.unknown_flags {
            let known = self.names.read().object(key.object()).and_then(|entry| entry.flags);
            match (self.flags_from_page0(key.object(), SpaceFlags(known.unwrap_or(0))), known) {
                (Ok(flags), _) => parser.learn_flags(key.object(), flags, chunk.end.lsn)?,
                // Right after a restart the stored page of a tablespace that is dropped further on may be void. Of
                // any other, applying page 0 says the same.
                (Err(error), Some(_)) => {
                    tracing::warn!(volume = self.name, %error, "flags of a tablespace not followed");
                }
                (Err(error), None) => return Err(error),
            }
        }
        self.count(&outcome);
        let table = self.index.open_table();
        if !outcome.long_chains.is_empty() {
            let long =
                outcome.long_chains.iter().map(|key| LongChain { table: Arc::clone(&table), key: *key });
            self.long_chains.lock().extend(long);
            self.wake.notify_all();
        }
        self.tracer.join(&outcome.trace);
        if let Some(counters) = outcome.counters {
            *self.server_counters.lock() = counters;
        }
        if chunk.logged {
            self.parsed.advance(chunk.end);
            self.buffer.set_parsed(chunk.end.seq);
        }
        Ok(table.stream_bytes() >= self.options.batch_len_bytes)
    }

    /// [`Parser::handle`], and what dies with the frame is among the dying when it is gone from the names: whoever looks
    /// at the names first and at the dying second ([`Volume::describe`]) finds it in one of them.
    fn handle(&self, parser: &mut Parser<'_>, chunk: &Arc<Chunk>) -> Result<Outcome, NodeError> {
        let mut dying = (!is_planted("end of a tablespace noted late")).then(|| self.dying.lock());
        let outcome = parser.handle(chunk)?;
        if dying.is_none() {
            thread::sleep(Duration::from_millis(50));
        }
        let died = parser.take_died().into_iter().map(|(object, entry)| (object, (chunk.end.seq, entry)));
        dying.get_or_insert_with(|| self.dying.lock()).extend(died);
        Ok(outcome)
    }

    fn count(&self, outcome: &Outcome) {
        add(&self.counters.mtrs, outcome.mtrs);
        add(&self.counters.runs, outcome.runs);
    }

    fn close_table(&self, parser: &mut Parser<'_>) {
        let table = self.index.open_table();
        let point = self.parsed.get();
        if point == table.start() && table.pages() == 0 {
            return;
        }
        parser.close_table(point);
        self.wake.notify_all();
    }

    /// Executes changes of plain files once they are durable.
    fn run_plain(&self) -> Result<(), NodeError> {
        while let Some((seq, change)) = self.plain.next() {
            // The change is durable when D is past its first byte: frames become durable whole.
            let is_durable = is_planted("plain change before durable")
                || self.durable.wait_for(Seq(seq.0 + 1), None) == WaitEnd::Reached;
            if !is_durable || !self.wait_not_held(seq) {
                return Ok(());
            }
            self.with_retry(|| self.plain.execute(&change))?;
            self.plain.done();
        }
        Ok(())
    }

    /// Waits while an export holds what starts at `seq`. False: the volume is closed.
    fn wait_not_held(&self, seq: Seq) -> bool {
        let mut wake = self.wake_lock.lock();
        while !wake.closed && wake.hold.is_some_and(|hold| seq >= hold) {
            self.wake.wait(&mut wake);
        }
        !wake.closed
    }

    /// Waits until the parser has seen all that was in the log at the start. Records of a tablespace whose end
    /// was durable were left out of the page store; until the parser comes to that end again, nobody knows, and
    /// its pages cannot be built. False: the volume is closed.
    fn wait_recovered(&self) -> bool {
        self.parsed.wait_for(Seq(self.recovered_seq.load(Ordering::Acquire)), None) == WaitEnd::Reached
    }

    /// P -> A.
    fn run_apply(&self) -> Result<(), NodeError> {
        if !self.wait_recovered() {
            return Ok(());
        }
        while let Some(work) = self.next_work() {
            let (table, end) = match work {
                Work::Table(table, end) => (table, end),
                Work::Repairs => {
                    self.repair_pages()?;
                    continue;
                }
            };
            let is_durable = is_planted("applied before durable")
                || self.durable.wait_for(end.point.seq, None) == WaitEnd::Reached;
            if !is_durable || self.plain.wait_executed(end.point.seq, None) != WaitEnd::Reached {
                return Ok(());
            }
            table.set_applying();
            let applied = match self.with_retry(|| self.apply_pages(&table)) {
                Ok(applied) => applied,
                Err(_) if self.wake_lock.lock().closed => return Ok(()),
                Err(error) => return Err(error),
            };
            if self.wake_lock.lock().closed {
                // Stopped meanwhile, perhaps by a page that differs: its records stay in the log.
                return Ok(());
            }
            if !is_planted("checkpoint before plain files") {
                self.plain.sync()?;
            }
            if let Err(error) = self.with_retry(|| Ok(self.store.seal()?)) {
                return if self.wake_lock.lock().closed { Ok(()) } else { Err(error) };
            }
            let checkpoint = self.next_checkpoint(&end);
            if let Err(error) = self.with_retry(|| checkpoint.write(&self.own)) {
                return if self.wake_lock.lock().closed { Ok(()) } else { Err(error) };
            }
            self.finish_table(&table, &end, checkpoint)?;
            let start_lsn = table.start().lsn.0;
            // The first redo of a volume does not begin at LSN 0.
            if start_lsn > 0 {
                add(&self.counters.redo_bytes_applied, end.point.lsn.0.saturating_sub(start_lsn));
            }
            add(&self.counters.page_applied_bytes, applied.bytes);
            add(&self.counters.tables_applied, 1);
            add(&self.counters.pages_applied, applied.pages);
            tracing::debug!(
                volume = self.name,
                pages = applied.pages,
                bytes = applied.bytes,
                lsn = end.point.lsn.0,
                "table applied"
            );
        }
        Ok(())
    }

    /// What the apply thread is to do next, once there is something: repairs, or the head table when it is closed
    /// and not held back. `None`: the volume is closed.
    fn next_work(&self) -> Option<Work> {
        let mut wake = self.wake_lock.lock();
        loop {
            if wake.closed {
                return None;
            }
            if self.has_repairs() {
                return Some(Work::Repairs);
            }
            let head = self.index.head().filter(|table| table.state() == TableState::Closed);
            if let Some((table, end)) = head.and_then(|table| Some((Arc::clone(&table), table.end()?)))
                && (wake.hold.is_none_or(|hold| end.point.seq <= hold) || is_planted("held state moves"))
            {
                return Some(Work::Table(table, end));
            }
            // Closing a table signals without this lock; look again soon rather than miss it.
            self.wake.wait_for(&mut wake, Duration::from_millis(50));
        }
    }

    fn apply_pages(&self, table: &Table) -> Result<Applied, NodeError> {
        let describe = |key: PageKey| self.describe(key);
        let on_verify = |builder: &Builder, key: PageKey, case: VerifyCase<'_>| {
            self.verify(builder, key, &case);
        };
        apply_table(self.stored_pages(), table, &self.workers, &describe, &on_verify)
    }

    /// Identity and format of a page; `None` if its object is dead for good.
    pub(super) fn describe(&self, key: PageKey) -> Option<(PageId, Option<SpaceFlags>)> {
        let of = |entry: &ObjectEntry| {
            let page_id = PageId::new(entry.space.unwrap_or(u32::MAX), key.page_no());
            (page_id, entry.flags.map(SpaceFlags))
        };
        if let Some(entry) = self.names.read().object(key.object()) {
            return Some(of(entry));
        }
        let hold = self.wake_lock.lock().hold;
        let dying = self.dying.lock();
        let (died_at, entry) = dying.get(&key.object())?;
        // Until its end is durable the object could still come back: a crash would forget the end. And in the
        // state that an export holds it may still be alive.
        let alive = self.durable.get().seq < *died_at || hold.is_some_and(|hold| hold < *died_at);
        alive.then(|| of(entry))
    }

    fn next_checkpoint(&self, end: &TableEnd) -> Checkpoint {
        let last = self.checkpoint.lock().clone();
        let names = end.names.clone().unwrap_or(last.names);
        let wanted = Self::server_checkpoint(&names).unwrap_or(end.point.lsn).min(end.point.lsn);
        let log_start = self.redo_position(wanted).filter(|start| start.seq <= end.point.seq);
        Checkpoint { applied: end.point, log_start: log_start.unwrap_or(last.log_start), names }
    }

    fn finish_table(
        &self,
        table: &Arc<Table>,
        end: &TableEnd,
        checkpoint: Checkpoint,
    ) -> Result<(), NodeError> {
        let log_start: Point = checkpoint.log_start;
        *self.checkpoint.lock() = checkpoint;
        self.index.remove_applied(table);
        self.applied.advance(end.point);
        self.buffer.set_applied(end.point.seq);
        for object in &end.dead {
            self.dying.lock().remove(object);
            self.store.remove(*object)?;
        }
        self.forget_redo_positions(log_start);
        self.device.discard_before(log_start.seq)?;
        Ok(())
    }

    /// Builds the fronts of long chains.
    fn run_chains(&self) -> Result<(), NodeError> {
        if !self.wait_recovered() {
            return Ok(());
        }
        loop {
            let work = std::mem::take(&mut *self.long_chains.lock());
            for LongChain { table, key } in work {
                let Some((page_id, Some(flags))) = self.describe(key) else { continue };
                if table.state() == TableState::Applying {
                    continue;
                }
                let limit = self.build_limit();
                // The object may die meanwhile, and older records of it with it: then the page is no page.
                let alive = || self.describe(key).is_some();
                let mut on_verify = |builder: &Builder, case: VerifyCase<'_>| {
                    if alive() {
                        self.verify(builder, key, &case);
                    }
                };
                let built = compact_chain(
                    self.stored_pages(),
                    &self.index,
                    &table,
                    PageTarget { key, page_id, flags },
                    limit,
                    &mut on_verify,
                );
                match built {
                    Ok(()) => add(&self.counters.chains_built_early, 1),
                    Err(error) if alive() => return Err(error),
                    Err(_) => {}
                }
            }
            let mut wake = self.wake_lock.lock();
            if wake.closed {
                return Ok(());
            }
            self.wake.wait_for(&mut wake, Duration::from_millis(200));
        }
    }
}
