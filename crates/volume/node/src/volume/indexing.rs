//! The indexed stream: the log index, the names, and their position (P).
//!
//! Owns the parser's thread and the thread that builds long chains early. The parser is the only writer of index and
//! names.
//!
//! Invariants: names and index are those of P. An object that has died is in the names or among the dying until the
//! point of its end is applied. So a thread that reads the names first and the dying second finds it in one of them.
//!
//! Lock order: dying (the parser only), names, index locks. All other threads release the names before they lock the
//! dying.

use super::context::Context;
use crate::construct::{Builder, PageTarget, StoredPages, VerifyCase, compact_chain, construct};
use crate::counters::add;
use crate::error::NodeError;
use crate::index::{LogIndex, PageKey, Table, TableState};
use crate::log_buffer::{Chunk, LogBuffer, Next};
use crate::mark::{Mark, Point};
use crate::namespace::{Namespace, ObjectEntry};
use crate::parser::{Outcome, Parser};
use crate::plain::PlainStore;
use redoubt_page::Format;
use redoubt_pagestore::ObjectId;
use redoubt_redo::{Family, Lsn, PageId};
use redoubt_sync::planted::{Bug, is_planted};
use redoubt_sync::thread::catch_panic;
use redoubt_sync::{Mutex, RwLock, thread, time};
use redoubt_wire::Seq;
use redoubt_wire::notice::Notice;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Kind of an internal, unlogged frame that makes the parser close the open table.
const KIND_CLOSE_TABLE: u8 = 0x7f;
/// The frame that has the parser close its table at `point`, where everything before it has been pushed.
pub fn close_table_at(point: Point) -> Chunk {
    Chunk { kind: KIND_CLOSE_TABLE, logged: false, start: point, end: point, wire: Vec::new(), raw: None }
}

/// How often the thread that builds long chains looks for some.
const CHAINS_INTERVAL: Duration = Duration::from_millis(200);

/// Work for the thread that builds long chains early.
struct LongChain {
    table: Arc<Table>,
    key: PageKey,
}

/// Identity of a page, and the format of its tablespace if it is known.
pub type Described = (PageId, Option<Format>);

/// Log index and names of a volume, with the threads that build them.
pub struct Indexing {
    context: Arc<Context>,
    /// Which records wait for which page.
    pub index: LogIndex,
    /// Names as of P.
    pub names: RwLock<Namespace>,
    /// Objects that died in a part of the stream that is not applied yet, with the end of the frame that ended them.
    dying: Mutex<FxHashMap<ObjectId, (Seq, ObjectEntry)>>,
    /// The parser has refused a frame. Set with the lock of `dying`.
    has_refused: AtomicBool,
    parsed: Mark,
    long_chains: Mutex<Vec<LongChain>>,
    /// The server's counters, as it sent them last.
    server_counters: Mutex<Vec<(u8, u64)>>,
    /// Plain files that the server writes and the volume does not have. In memory: a write after a restart finds them again.
    unknown_files: Mutex<BTreeSet<String>>,
}

impl Indexing {
    /// An empty index at `applied`, where the names were `names`.
    pub fn new(context: &Arc<Context>, applied: Point, names: Namespace) -> Self {
        Self {
            context: Arc::clone(context),
            index: LogIndex::counted(applied, &context.memory),
            names: RwLock::new(names),
            dying: Mutex::default(),
            has_refused: AtomicBool::new(false),
            parsed: Mark::at(applied),
            long_chains: Mutex::default(),
            server_counters: Mutex::default(),
            unknown_files: Mutex::default(),
        }
    }

    /// P.
    pub fn parsed(&self) -> &Mark {
        &self.parsed
    }

    /// The server's counters, as it sent them last.
    pub fn server_counters(&self) -> Vec<(u8, u64)> {
        self.server_counters.lock().clone()
    }

    /// Plain files that the server writes and the volume does not have, in order.
    pub fn unknown_files(&self) -> Vec<String> {
        self.unknown_files.lock().iter().cloned().collect()
    }

    /// W -> P.
    ///
    /// # Errors
    /// Any error that must stop the volume.
    pub fn run_parser(
        &self,
        buffer: &LogBuffer,
        plain: &PlainStore,
        pages: StoredPages<'_>,
    ) -> Result<(), NodeError> {
        let mut parser = Parser::new(&self.index, &self.names, plain);
        let interval = self.context.options.apply_interval;
        let mut table_since = time::now();
        loop {
            let mut close = false;
            match buffer.take_for_parser(table_since + interval) {
                Next::Closed => return Ok(()),
                Next::Idle => {}
                Next::RoomWanted => close = true,
                Next::Chunks(chunks) => {
                    for chunk in chunks {
                        if self.parse_chunk(&mut parser, &chunk, buffer, pages)? {
                            self.close_table(&mut parser);
                            table_since = time::now();
                        }
                    }
                }
            }
            if close || time::elapsed(table_since) >= interval {
                self.close_table(&mut parser);
                table_since = time::now();
            }
        }
    }

    /// Indexes one frame and moves P. True: the open table should be closed.
    fn parse_chunk(
        &self,
        parser: &mut Parser<'_>,
        chunk: &Arc<Chunk>,
        buffer: &LogBuffer,
        pages: StoredPages<'_>,
    ) -> Result<bool, NodeError> {
        if chunk.kind == KIND_CLOSE_TABLE {
            return Ok(true);
        }
        let outcome = match self.handle(parser, chunk, pages) {
            Err(_) if is_planted(Bug::UnknownInputSkipped) => return Ok(false),
            handled => handled?,
        };
        add(&self.context.counters.mtrs, outcome.mtrs);
        add(&self.context.counters.runs, outcome.runs);
        let table = self.index.open_table();
        if !outcome.long_chains.is_empty() {
            let long =
                outcome.long_chains.iter().map(|key| LongChain { table: Arc::clone(&table), key: *key });
            self.long_chains.lock().extend(long);
            self.context.signal_work();
        }
        self.context.tracer.join(&outcome.trace);
        if let Some(counters) = outcome.counters {
            *self.server_counters.lock() = counters;
        }
        for path in &outcome.settled_files {
            self.unknown_files.lock().remove(path);
        }
        if let Some(path) = outcome.unknown_file {
            self.unknown_files.lock().insert(path.clone());
            self.context.notices.send(&Notice::UnknownFile { path: path.into_bytes() });
        }
        if chunk.logged {
            self.parsed.advance(chunk.end);
            buffer.set_parsed(chunk.end.seq);
        }
        Ok(table.stream_bytes() >= self.context.options.batch_len_bytes)
    }

    /// [`Parser::handle`], and the flags of its tablespaces. Objects that die with the frame are among the dying when they
    /// have left the names. Names and index may then show a part of a refused frame, so applying
    /// discards its results ([`Indexing::has_refused`]).
    fn handle(
        &self,
        parser: &mut Parser<'_>,
        chunk: &Arc<Chunk>,
        pages: StoredPages<'_>,
    ) -> Result<Outcome, NodeError> {
        let mut dying = (!is_planted(Bug::TablespaceEndNotedLate)).then(|| self.dying.lock());
        let handled = catch_panic(|| {
            let outcome = parser.handle(chunk)?;
            for key in &outcome.unknown_flags {
                self.learn_flags(parser, *key, chunk.end.lsn, pages)?;
            }
            Ok(outcome)
        });
        let outcome = handled
            .unwrap_or_else(|panic| {
                let reason = format!("parsing it met a defect of the node: {panic}; report it");
                Err(NodeError::Redo { lsn: chunk.start.lsn, reason })
            })
            .inspect_err(|_| self.has_refused.store(true, Ordering::Release))?;
        if dying.is_none() {
            thread::sleep(Duration::from_millis(50));
        }
        let died = parser.take_died().into_iter().map(|(object, entry)| (object, (chunk.end.seq, entry)));
        dying.get_or_insert_with(|| self.dying.lock()).extend(died);
        Ok(outcome)
    }

    /// The parser has refused a frame. Waits for the frame that it is parsing, of which the names may show a part.
    pub fn has_refused(&self) -> bool {
        let _dying = self.dying.lock();
        self.has_refused.load(Ordering::Acquire)
    }

    /// Builds page 0 of an object whose flags could not be followed record by record.
    fn learn_flags(
        &self,
        parser: &mut Parser<'_>,
        key: PageKey,
        lsn: Lsn,
        pages: StoredPages<'_>,
    ) -> Result<(), NodeError> {
        let object = key.object();
        let (family, known) = {
            let names = self.names.read();
            (names.family(), names.object(object).and_then(|entry| entry.flags))
        };
        let assumed = Format { family, flags: known.unwrap_or(0) };
        // A panic concerns this tablespace only.
        let flags = catch_panic(|| self.flags_from_page0(pages, object, assumed)).unwrap_or_else(|panic| {
            let reason = format!("building it met a defect of the node: {panic}; report it");
            Err(NodeError::Page { page: PageId::new(u32::MAX, 0), file: "?".to_owned(), reason })
        });
        match (flags, known) {
            (Ok(flags), _) => parser.learn_flags(object, flags, lsn),
            // Right after a restart the stored page of a tablespace that is dropped further on may be void. Any other
            // is set aside when it is applied.
            (Err(error @ NodeError::Page { .. }), _) | (Err(error), Some(_)) => {
                tracing::warn!(event = "tablespace_flags_unknown", volume = self.context.name, %error, "flags of a tablespace not followed");
                Ok(())
            }
            (Err(error), None) => Err(error),
        }
    }

    fn flags_from_page0(
        &self,
        pages: StoredPages<'_>,
        object: ObjectId,
        assumed: Format,
    ) -> Result<u32, NodeError> {
        let page_id = PageId::new(u32::MAX, 0);
        let page = construct(pages, &self.index, PageKey::new(object, 0), page_id, assumed, None)?;
        Format::of_page0(assumed.family, &page).map(|format| format.flags).map_err(|error| NodeError::Page {
            page: page_id,
            file: "?".to_owned(),
            reason: error.to_string(),
        })
    }

    fn close_table(&self, parser: &mut Parser<'_>) {
        let table = self.index.open_table();
        let point = self.parsed.get();
        if point == table.start() && table.pages() == 0 {
            return;
        }
        parser.close_table(point);
        self.context.signal_work();
    }

    /// Builds the fronts of long chains. `describe` and `limit` as for a read; `on_verify` takes the comparisons met.
    ///
    /// # Errors
    /// Any error that must stop the volume.
    pub fn run_chains(
        &self,
        pages: StoredPages<'_>,
        describe: &dyn Fn(PageKey) -> Option<Described>,
        limit: &dyn Fn() -> Point,
        on_verify: &dyn Fn(&Builder, PageKey, VerifyCase<'_>) -> Result<(), String>,
    ) -> Result<(), NodeError> {
        loop {
            let work = std::mem::take(&mut *self.long_chains.lock());
            for LongChain { table, key } in work {
                let Some((page_id, Some(format))) = describe(key) else { continue };
                if table.state() == TableState::Applying {
                    continue;
                }
                // The object may die meanwhile, and its older records too: then the built page is invalid. Or the table
                // is applied, and the page is cut off.
                let is_indexed = || self.index.tables_of(key).iter().any(|other| other.id() == table.id());
                let alive = || describe(key).is_some() && is_indexed();
                let mut on_verify = |builder: &Builder, case: VerifyCase<'_>| {
                    if alive() { on_verify(builder, key, case) } else { Ok(()) }
                };
                let target = PageTarget { key, page_id, format };
                let compact = || compact_chain(pages, &self.index, &table, target, limit(), &mut on_verify);
                match catch_panic(compact) {
                    Ok(Ok(())) => add(&self.context.counters.chains_built_early, 1),
                    // Applying finds the same, and sets the page aside.
                    Ok(Err(NodeError::Page { .. })) | Err(_) => {}
                    // Applying builds it, when a descriptor is free.
                    Ok(Err(error)) if error.is_out_of_descriptors() => {}
                    Ok(Err(error)) if alive() => return Err(error),
                    Ok(Err(_)) => {}
                }
            }
            if !self.context.pause(CHAINS_INTERVAL) {
                return Ok(());
            }
        }
    }

    /// Identity and format of a page; `None` if its object is dead for good. `is_over` decides this for the position at
    /// which the object died.
    pub fn describe(&self, key: PageKey, is_over: impl FnOnce(Seq) -> bool) -> Option<Described> {
        let of = |family: Family, entry: &ObjectEntry| {
            let page_id = PageId::new(entry.space.unwrap_or(u32::MAX), key.page_no());
            (page_id, entry.flags.map(|flags| Format { family, flags }))
        };
        let family = {
            let names = self.names.read();
            if let Some(entry) = names.object(key.object()) {
                return Some(of(names.family(), entry));
            }
            names.family()
        };
        let dying = self.dying.lock();
        let (died_at, entry) = dying.get(&key.object())?;
        (!is_over(*died_at)).then(|| of(family, entry))
    }

    /// The end of these objects is applied.
    pub fn forget_dead(&self, objects: &[ObjectId]) {
        let mut dying = self.dying.lock();
        for object in objects {
            dying.remove(object);
        }
    }

    /// Path of a file of an object, or `?`.
    pub fn path_of_object(&self, object: ObjectId) -> String {
        self.names.read().path_of_object(object).unwrap_or("?").to_owned()
    }

    /// The request for the image of a damaged page. `None`: there is no file, or images of its format cannot be read.
    pub fn image_request(&self, key: PageKey) -> Option<Notice> {
        request_for(&self.names.read(), key)
    }

    /// Ends all waits of this part.
    pub fn close(&self) {
        self.parsed.close();
    }
}

fn request_for(names: &Namespace, key: PageKey) -> Option<Notice> {
    let flags = names.object(key.object())?.flags?;
    let format = Format { family: names.family(), flags };
    if format.names_unknown_algorithm() {
        return None;
    }
    let page_len = format.physical_page_size_bytes() as u64;
    let (file, offset_bytes) = names.file_of_byte(key.object(), u64::from(key.page_no()) * page_len)?;
    let page_no = u32::try_from(offset_bytes.checked_div(page_len)?).ok()?;
    Some(Notice::WantImage { path: file.path.clone().into_bytes(), page_no })
}

#[cfg(test)]
#[path = "indexing_tests.rs"]
mod tests;
