//! The parser: turns stream frames into index entries, names and plain file changes. One thread per volume,
//! because records cannot be found without reading all before them, and per-page order is stream order.
//!
//! It owns no thread and no clock: [`Parser::handle`] takes one frame. It is the only writer of the names.

mod unknown_files;

use crate::error::NodeError;
use crate::index::{Body, Entry, LogIndex, PageKey, Table, TableEnd};
use crate::log_buffer::Chunk;
use crate::mark::Point;
use crate::namespace::{Effect, LogFileEntry, Namespace, ObjectEntry, text_path};
use crate::plain::{Change, PlainStore};
use redoubt_page::{Format, layout};
use redoubt_pagestore::ObjectId;
use redoubt_redo::{
    FileNote, FileRecord, Lsn, Mtr, PageId, PageNo, RunRef, SpaceFlagsChange, SpaceId, WalkStop, walk_mtrs,
};
use redoubt_sync::RwLock;
use redoubt_wire::page::FileId;
use redoubt_wire::stream::{FileKind, StreamFrame, Verify, decode};
use redoubt_wire::trace::ServerSample;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Chains longer than this are built early.
pub const CHAIN_CAP: usize = 512;

const SYSTEM_SPACE: SpaceId = SpaceId(0);

/// Length of an undo tablespace that the server has truncated, in pages of any size (seen with 4 KiB to 64 KiB).
const UNDO_TRUNCATED_PAGES: u32 = 640;

/// Results of a frame that the caller must act on.
#[derive(Default)]
pub struct Outcome {
    /// Pages whose chain became long in the open table.
    pub long_chains: Vec<PageKey>,
    /// The shim's counters, if the frame carried them.
    pub counters: Option<Vec<(u8, u64)>>,
    /// The shim's part of a trace, if the frame carried it.
    pub trace: Vec<ServerSample>,
    /// A page 0 whose flags could not be followed record by record: build it and call [`Parser::learn_flags`].
    pub unknown_flags: Vec<PageKey>,
    /// Mini-transactions in the frame.
    pub mtrs: u64,
    /// Runs indexed.
    pub runs: u64,
    /// Verify entries indexed.
    pub verifies: u64,
    /// A plain file that the server writes or renames and the volume does not have, when it is first found.
    pub unknown_file: Option<String>,
    /// Such files that the volume has from now on, or that the server does not have any more.
    pub settled_files: Vec<String>,
}

/// The parser: turns stream frames into index entries, names and plain file changes.
pub struct Parser<'v> {
    index: &'v LogIndex,
    names: &'v RwLock<Namespace>,
    plain: &'v PlainStore,
    /// Space to object, as in `names`. A space gets another object only when its present one dies.
    objects: FxHashMap<SpaceId, ObjectId>,
    /// Objects whose pages come only as images.
    image_only: FxHashSet<ObjectId>,
    dead: Vec<ObjectId>,
    cut: Vec<ObjectId>,
    /// Length in pages to which TRIM_PAGES has cut the system tablespace, as long as nothing was changed past it since.
    system_trim: Option<u32>,
    died: Vec<(ObjectId, ObjectEntry)>,
    /// See [`Outcome::unknown_file`].
    unknown_files: BTreeSet<String>,
}

impl<'v> Parser<'v> {
    /// A parser that continues at the end of index and names.
    pub fn new(index: &'v LogIndex, names: &'v RwLock<Namespace>, plain: &'v PlainStore) -> Self {
        names.write().track();
        let image_only = {
            let names = names.read();
            let family = names.family();
            let needs_images = |object: &ObjectId| {
                let flags = names.object(*object).and_then(|entry| entry.flags);
                flags.is_some_and(|flags| !Format { family, flags }.is_replayed())
            };
            names.objects().filter(needs_images).collect()
        };
        Self {
            image_only,
            index,
            names,
            plain,
            objects: FxHashMap::default(),
            dead: Vec::new(),
            cut: Vec::new(),
            system_trim: None,
            died: Vec::new(),
            unknown_files: BTreeSet::new(),
        }
    }

    /// Indexes one frame.
    ///
    /// # Errors
    /// [`NodeError::Redo`] or [`NodeError::Wire`] for anything not understood: the volume must stop.
    pub fn handle(&mut self, chunk: &Arc<Chunk>) -> Result<Outcome, NodeError> {
        let mut outcome = Outcome::default();
        let table = self.index.open_table();
        let number = if chunk.logged { table.add_chunk(chunk) } else { 0 };
        match decode(chunk.kind, chunk.payload())? {
            StreamFrame::Redo(bytes) => self.redo(chunk, bytes, &table, number, &mut outcome)?,
            StreamFrame::Image { path, page_no, page, is_recovered } => {
                let (offset, len) = ((chunk.payload().len() - page.len()) as u32, page.len() as u32);
                let body = Body::Image { chunk: number, offset, len, is_recovered };
                self.image(chunk, path, page_no, (page, body), &table)?;
            }
            StreamFrame::Scrub { path, page_no, pages, lsn } => {
                self.scrub(path, page_no..page_no.saturating_add(pages), lsn, &table)?;
            }
            StreamFrame::Verify(verify) => self.verify(chunk, &verify, false, &table, &mut outcome)?,
            StreamFrame::VerifyOrHeal(verify) => self.verify(chunk, &verify, true, &table, &mut outcome)?,
            StreamFrame::Counters(counters) => outcome.counters = Some(counters),
            StreamFrame::Trace(samples) => outcome.trace = samples,
            StreamFrame::Write { path, offset_bytes, data } => {
                let from = chunk.payload().len() - data.len();
                let names = self.names.read();
                let path = text_path(path)?;
                match names.file_at(&path) {
                    Some((file, entry)) if !entry.tablespace => {
                        let change = Change::Write { file, offset_bytes, chunk: Arc::clone(chunk), from };
                        self.plain.queue(chunk.start.seq, change);
                    }
                    Some(_) => {
                        let reason = format!("a write of {path} as a plain file, but it is a tablespace");
                        return Err(NodeError::Redo { lsn: chunk.start.lsn, reason });
                    }
                    None => outcome.unknown_file = self.unknown_file(path),
                }
            }
            StreamFrame::Rename { from, to } => self.rename(chunk, from, to, &mut outcome)?,
            frame => {
                if let StreamFrame::Create { path, .. } | StreamFrame::Unlink { path } = frame {
                    self.settle_file(&text_path(path)?, &mut outcome);
                }
                self.name_change(chunk, frame)?;
            }
        }
        Ok(outcome)
    }

    fn redo(
        &mut self,
        chunk: &Arc<Chunk>,
        bytes: &[u8],
        table: &Arc<Table>,
        number: u32,
        outcome: &mut Outcome,
    ) -> Result<(), NodeError> {
        let family = self.names.read().family();
        let mut failure = None;
        let mut visitor = |mtr: &Mtr<'_, '_>| {
            outcome.mtrs += 1;
            if failure.is_none() {
                failure = self.mtr(mtr, table, number, outcome).err();
            }
        };
        let walked = walk_mtrs(family, bytes, chunk.start.lsn, &mut visitor)
            .map_err(|error| NodeError::Redo { lsn: error.mtr_lsn, reason: error.error.to_string() })?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        if walked.stop != WalkStop::AllConsumed {
            return Err(NodeError::Redo {
                lsn: walked.end_lsn,
                reason: format!("the frame does not end at a mini-transaction ({:?})", walked.stop),
            });
        }
        Ok(())
    }

    fn mtr(
        &mut self,
        mtr: &Mtr<'_, '_>,
        table: &Arc<Table>,
        number: u32,
        outcome: &mut Outcome,
    ) -> Result<(), NodeError> {
        for note in mtr.files {
            let record = self.of_import(note, mtr.start_lsn);
            let effects = self.names.write().file_record(note.space, &record, mtr.start_lsn)?;
            self.note_deaths(effects);
        }
        for run in mtr.runs {
            self.run(run, mtr.start_lsn, mtr.end_lsn, table, number, outcome)?;
        }
        Ok(())
    }

    /// Meaning of a file record in redo at `lsn` for an import. Its files have the names that they had at the end of
    /// the redo ([`redoubt_redo::LastResets::is_file_of`]), unless their pages have named their tablespace. A file that
    /// exists then was not deleted, or was put there again (for IMPORT TABLESPACE, which no redo describes), and stays
    /// as it is.
    fn of_import<'a>(&self, note: &FileNote<'a>, lsn: Lsn) -> FileRecord<'a> {
        let Some(resets) = self.index.resets() else { return note.record };
        match note.record {
            FileRecord::Create { path }
            | FileRecord::Modify { path }
            | FileRecord::Rename { new_path: path, .. } => {
                let names = self.names.read();
                let may_have = |path: &[u8]| names.may_have_file_at(note.space, path, lsn);
                if !names.has_file(note.space) && resets.is_file_of(note.space, path, may_have) {
                    FileRecord::Modify { path }
                } else {
                    FileRecord::Rename { old_path: path, new_path: path }
                }
            }
            FileRecord::Delete { path } if self.names.read().has_file(note.space) => {
                FileRecord::Rename { old_path: path, new_path: path }
            }
            FileRecord::Delete { .. } | FileRecord::Extend { .. } | FileRecord::Checkpoint { .. } => {
                note.record
            }
        }
    }

    fn run(
        &mut self,
        run: &RunRef,
        start_lsn: Lsn,
        end_lsn: Lsn,
        table: &Arc<Table>,
        number: u32,
        outcome: &mut Outcome,
    ) -> Result<(), NodeError> {
        if let Some(pages) = run.trim_pages {
            return self.trim(run.page.space, pages, start_lsn);
        }
        self.note_changed(run.page);
        if self.index.is_void_for_space(run.page.space, start_lsn) {
            return Ok(());
        }
        let object = self.object_of(run.page.space);
        let key = PageKey::new(object, run.page.page_no.0);
        let is_void = self.index.is_void_for_page(run.page, start_lsn);
        match run.space_flags {
            SpaceFlagsChange::Unchanged => {}
            // Other pages of the tablespace may be built before its page 0 is initialised again.
            SpaceFlagsChange::Set(flags) => self.set_flags(object, flags, end_lsn)?,
            SpaceFlagsChange::Unknown if is_void => {}
            SpaceFlagsChange::Unknown => outcome.unknown_flags.push(key),
        }
        if is_void || self.image_only.contains(&object) {
            return Ok(());
        }
        // Redo before an INIT_PAGE has no effect and is skipped.
        let void_bytes = run.last_init_offset.unwrap_or(0);
        let body = Body::Run {
            chunk: number,
            offset: (run.offset_in_bytes + void_bytes) as u32,
            len: (run.len_bytes - void_bytes) as u32,
            reset: run.reset(),
        };
        let len = self.index.insert(table, key, Entry { start_lsn, end_lsn, body });
        outcome.runs += 1;
        if len.is_multiple_of(CHAIN_CAP) {
            outcome.long_chains.push(key);
        }
        Ok(())
    }

    /// TRIM_PAGES. Servers truncate undo tablespaces, always to the same length, and initialise them again. MariaDB
    /// 11.2 and later also shrink the system tablespace, whose pages before the new end keep their content. Pages past
    /// the end count as freed: the server begins each with INIT_PAGE if it uses it again. They go when the server cuts
    /// the file, which it does next; if it is killed first, its recovery does.
    fn trim(&mut self, space: SpaceId, pages: u32, lsn: Lsn) -> Result<(), NodeError> {
        if space == SYSTEM_SPACE {
            self.names.write().note_cut(lsn);
            self.system_trim = Some(pages);
            return Ok(());
        }
        if pages != UNDO_TRUNCATED_PAGES {
            let reason = format!(
                "TRIM_PAGES of tablespace {space} to {pages} pages, instead of {UNDO_TRUNCATED_PAGES}. No server is \
                 known to write that; run the volume with a supported version, or import it again from one"
            );
            return Err(NodeError::Redo { lsn, reason });
        }
        let (_, effects) = self.names.write().trim(space);
        self.note_deaths(effects);
        Ok(())
    }

    /// A page past the new end of the system tablespace is used again.
    fn note_changed(&mut self, page: PageId) {
        if page.space == SYSTEM_SPACE && self.system_trim.is_some_and(|pages| page.page_no.0 >= pages) {
            self.system_trim = None;
        }
    }

    /// A file of the system tablespace was made shorter, as TRIM_PAGES announced: by the server that wrote it, or by
    /// the recovery of the next one. A recovery also does that after pages past the end were used again, and writes
    /// them again from the redo since its checkpoint. That redo is applied here already, so then nothing may go.
    fn note_shortened(&mut self, names: &Namespace, file: FileId) {
        let (Some(pages), Some(entry)) = (self.system_trim, names.file(file)) else { return };
        let system = names.known_object_of_space(SYSTEM_SPACE);
        let Some(object) = entry.object.map(ObjectId).filter(|object| Some(*object) == system) else {
            return;
        };
        let Some(flags) = names.object(object).and_then(|object| object.flags) else { return };
        let page_len = Format { family: names.family(), flags }.physical_page_size_bytes() as u64;
        if names.len_bytes_of_object(object) == u64::from(pages) * page_len {
            self.cut.push(object);
            self.system_trim = None;
        }
    }

    fn object_of(&mut self, space: SpaceId) -> ObjectId {
        if let Some(object) = self.objects.get(&space) {
            return *object;
        }
        let object = self.names.write().object_of_space(space);
        self.objects.insert(space, object);
        object
    }

    /// Later code divides by the page size, so flags without a valid one are rejected here.
    fn set_flags(&mut self, object: ObjectId, flags: u32, lsn: Lsn) -> Result<(), NodeError> {
        let known = self.names.read().object(object).and_then(|entry| entry.flags);
        if known != Some(flags) {
            let family = self.names.read().family();
            let format = Format { family, flags };
            format.check().map_err(|error| NodeError::Redo { lsn, reason: error.to_string() })?;
            if !format.is_replayed() {
                self.image_only.insert(object);
            }
            self.names.write().set_flags(object, flags);
        }
        Ok(())
    }

    /// The flags of an object, learnt at `lsn` by building its page 0 (see [`Outcome::unknown_flags`]).
    ///
    /// # Errors
    /// [`NodeError::Redo`] if they name no page format.
    pub fn learn_flags(&mut self, object: ObjectId, flags: u32, lsn: Lsn) -> Result<(), NodeError> {
        self.set_flags(object, flags, lsn)
    }

    fn image(
        &mut self,
        chunk: &Chunk,
        path: &[u8],
        page_no: u32,
        (page, body): (&[u8], Body),
        table: &Arc<Table>,
    ) -> Result<(), NodeError> {
        let path = text_path(path)?;
        let mut names = self.names.write();
        let Some((file, entry)) = names.file_at(&path).filter(|(_, entry)| entry.tablespace) else {
            return Ok(());
        };
        let first_byte = entry.first_byte;
        let Some(object) = names.object_of_file(file) else { return Ok(()) };
        drop(names);
        if page_no == 0 && first_byte == 0 {
            self.flags_from_image(object, page, &path, chunk.start.lsn)?;
        }
        let page_no = page_in_tablespace(page_no, first_byte, page.len() as u64).ok_or_else(|| {
            let reason = format!("page {page_no} of {path}, sent as an image: no tablespace has it");
            NodeError::Redo { lsn: chunk.start.lsn, reason }
        })?;
        let lsn = chunk.start.lsn;
        if self.names.read().known_object_of_space(SYSTEM_SPACE) == Some(object) {
            self.note_changed(PageId { space: SYSTEM_SPACE, page_no: PageNo(page_no) });
        }
        self.index.insert(table, PageKey::new(object, page_no), Entry { start_lsn: lsn, end_lsn: lsn, body });
        Ok(())
    }

    /// Learns the flags of an object from an image of its page 0. If they are known, only a sound image changes them: an image
    /// that is to heal the page is checked only when it is used.
    fn flags_from_image(
        &mut self,
        object: ObjectId,
        page: &[u8],
        path: &str,
        lsn: Lsn,
    ) -> Result<(), NodeError> {
        let (family, is_known) = {
            let names = self.names.read();
            (names.family(), names.object(object).is_some_and(|entry| entry.flags.is_some()))
        };
        let named = Format::of_page0(family, page);
        let is_sound = || match &named {
            Ok(format) => {
                format.verify(page).is_ok() && layout::page_id(page).is_some_and(|id| id.page_no == PageNo(0))
            }
            Err(_) => false,
        };
        if is_known && !is_sound() {
            tracing::warn!(event = "first_page_image_unsound", path, %lsn, "flags of a tablespace not taken from an image that is not sound");
            return Ok(());
        }
        let format = named.map_err(|error| NodeError::Redo {
            lsn,
            reason: format!("page 0 of {path}, sent as an image: {error}"),
        })?;
        self.set_flags(object, format.flags, lsn)
    }

    fn verify(
        &mut self,
        chunk: &Chunk,
        verify: &Verify<'_>,
        heals: bool,
        table: &Arc<Table>,
        outcome: &mut Outcome,
    ) -> Result<(), NodeError> {
        let Some(key) = self.key_of(verify.path, verify.page_no)? else { return Ok(()) };
        let body = Body::Verify { digest: verify.digest, heals };
        let end_lsn = chunk.start.lsn.max(verify.lsn);
        self.index.insert(table, key, Entry { start_lsn: verify.lsn, end_lsn, body });
        outcome.verifies += 1;
        Ok(())
    }

    fn scrub(
        &mut self,
        path: &[u8],
        pages: std::ops::Range<u32>,
        lsn: Lsn,
        table: &Arc<Table>,
    ) -> Result<(), NodeError> {
        for page_no in pages {
            let Some(key) = self.key_of(path, page_no)? else { return Ok(()) };
            self.index.insert(table, key, Entry { start_lsn: lsn, end_lsn: lsn, body: Body::Scrub });
        }
        Ok(())
    }

    /// Page `page_no` of a tablespace file; `None` if the volume has no such page.
    fn key_of(&self, path: &[u8], page_no: u32) -> Result<Option<PageKey>, NodeError> {
        let path = text_path(path)?;
        let names = self.names.read();
        let Some((_, entry)) = names.file_at(&path) else { return Ok(None) };
        let Some((object, flags)) =
            entry.object.and_then(|object| Some((ObjectId(object), names.object(ObjectId(object))?.flags?)))
        else {
            return Ok(None);
        };
        let page_len = Format { family: names.family(), flags }.physical_page_size_bytes() as u64;
        let page_no = page_in_tablespace(page_no, entry.first_byte, page_len);
        Ok(page_no.map(|page_no| PageKey::new(object, page_no)))
    }

    fn name_change(&mut self, chunk: &Arc<Chunk>, frame: StreamFrame<'_>) -> Result<(), NodeError> {
        let mut names = self.names.write();
        let seq = chunk.start.seq;
        let mut effects = Vec::new();
        match frame {
            StreamFrame::Create { path, kind: FileKind::Redo, mode } => {
                names.create_log_file(&text_path(path)?, mode);
            }
            StreamFrame::LogFront { path, offset_bytes, block, .. } => {
                names.write_log_front(&text_path(path)?, offset_bytes, block, chunk.start.lsn)?;
            }
            StreamFrame::Create { path, kind, mode } => {
                let (file, created) = names.create(&text_path(path)?, kind, mode);
                effects = created;
                if kind == FileKind::Plain {
                    self.plain.queue(seq, Change::Create(file));
                }
            }
            StreamFrame::SetLen { path, len_bytes } => {
                if let Some(file) = names.set_len(&text_path(path)?, len_bytes) {
                    if names.file(file).is_some_and(|entry| !entry.tablespace) {
                        self.plain.queue(seq, Change::SetLen(file, len_bytes));
                    } else {
                        self.note_shortened(&names, file);
                    }
                }
            }
            StreamFrame::Rename { from, to } => effects = names.rename(&text_path(from)?, &text_path(to)?),
            StreamFrame::Unlink { path } => effects = names.unlink(&text_path(path)?),
            StreamFrame::Mkdir { path, mode } => names.mkdir(&text_path(path)?, mode),
            StreamFrame::Rmdir { path } => effects = names.rmdir(&text_path(path)?),
            StreamFrame::BindSpace { path, space } => effects = names.bind_space(&text_path(path)?, space),
            StreamFrame::SystemFiles(files) => names.set_system_files(&files)?,
            StreamFrame::LogFile { file_size_bytes, header, checkpoints, .. } => {
                names.set_log_file(LogFileEntry {
                    file_size_bytes,
                    header: header.to_vec(),
                    checkpoints: checkpoints.map(|block| block.to_vec()),
                    last_file_operation_lsn: 0,
                });
            }
            StreamFrame::Checkpoint { slot, block } => names.set_checkpoint(slot, block),
            StreamFrame::Redo(_)
            | StreamFrame::Image { .. }
            | StreamFrame::Scrub { .. }
            | StreamFrame::Write { .. }
            | StreamFrame::Verify(_)
            | StreamFrame::VerifyOrHeal(_)
            | StreamFrame::Counters(_)
            | StreamFrame::Trace(_) => {}
        }
        drop(names);
        for effect in &effects {
            if let Effect::PlainGone(file) = effect {
                self.plain.queue(seq, Change::Remove(*file));
            }
        }
        self.note_deaths(effects);
        Ok(())
    }

    fn note_deaths(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::ObjectDead(object, entry) = effect {
                self.image_only.remove(&object);
                if let Some(space) = entry.space {
                    self.objects.remove(&SpaceId(space));
                }
                self.dead.push(object);
                self.died.push((object, entry));
            }
        }
    }

    /// Objects that died since the last call.
    pub fn take_died(&mut self) -> Vec<(ObjectId, ObjectEntry)> {
        std::mem::take(&mut self.died)
    }

    /// Closes the open table at `point`, the end of the last frame handled.
    pub fn close_table(&mut self, point: Point) {
        let names = self.names.write().take_changes();
        let (dead, cut) = (std::mem::take(&mut self.dead), std::mem::take(&mut self.cut));
        self.index.close_table(TableEnd { point, names, dead, cut });
    }
}

/// Number in the tablespace of page `page_no` of a file that starts at `first_byte`; `None` if there is none.
pub fn page_in_tablespace(page_no: u32, first_byte: u64, page_len_bytes: u64) -> Option<u32> {
    let before = u32::try_from(first_byte.checked_div(page_len_bytes)?).ok()?;
    page_no.checked_add(before)
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
