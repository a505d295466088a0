//! Export: a snapshot of the volume, read while the volume continues.
//!
//! An export is the stream up to the point where it began, as a killed server leaves it. It has the page store and
//! plain files up to there, and `ib_logfile0` with the redo since the server's checkpoint. If the log is damaged there,
//! `ib_logfile0` ends with a checkpoint of that point instead, and counts as damaged. An export blocks nothing
//! ([`crate::snapshot`]). The parser closes its table at that point. When the table is applied, the names are known and
//! the export can be read. From then on, old content is copied before it changes.
//!
//! Owns the one possible export, and the pin that keeps the log until the server's redo is written to the export.
//!
//! Lock: a leaf.

use super::Volume;
use super::context::Context;
use super::indexing::close_table_at;
use super::server_log::ServerLog;
use crate::construct::StoredPages;
use crate::error::NodeError;
use crate::index::PageKey;
use crate::mark::Point;
use crate::namespace::LOG_FILE_PATH;
use crate::namespace::Namespace;
use crate::plain::{Change, PlainStore};
use crate::rescue::DamagedImage;
use crate::snapshot::Snapshot;
use redoubt_page::Format;
use redoubt_page::format::page_lsn;
use redoubt_pagestore::{ObjectId, PageStore, PageStoreError};
use redoubt_redo::{Lsn, PageId};
use redoubt_sync::Mutex;
use redoubt_sync::planted::{Bug, is_planted};
use redoubt_wire::Seq;
use redoubt_wire::control::Attachment;
use redoubt_wire::page::FileId;
use rustc_hash::FxHashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The export of a volume, and work left by former exports.
pub struct Exports {
    context: Arc<Context>,
    current: Mutex<Option<Arc<Snapshot>>>,
    /// Objects that died during an export that has ended; the apply thread removes them.
    removable: Mutex<Vec<ObjectId>>,
}

impl Exports {
    /// None yet.
    pub fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), current: Mutex::default(), removable: Mutex::default() }
    }

    /// An export is under way.
    pub fn is_active(&self) -> bool {
        self.current.lock().is_some()
    }

    fn current(&self) -> Option<Arc<Snapshot>> {
        self.current.lock().clone()
    }

    fn begin(&self, snapshot: &Arc<Snapshot>) -> Result<(), NodeError> {
        let mut current = self.current.lock();
        if current.is_some() {
            let message =
                format!("volume {} is being exported already, or read as of a moment", self.context.name);
            return Err(NodeError::NotNow(message));
        }
        *current = Some(Arc::clone(snapshot));
        Ok(())
    }

    fn end(&self) {
        if let Some(snapshot) = self.current.lock().take() {
            self.removable.lock().extend(snapshot.take_dead());
            self.context.signal_work();
        }
    }

    /// Everything up to `applied` is applied, with these names. Called before anything after it is.
    pub fn applied(&self, applied: Point, names: &Arc<Namespace>) {
        if let Some(snapshot) = self.current() {
            snapshot.applied(applied, names);
        }
    }

    /// End of the export's stream, as long as not all of it is applied.
    pub fn unapplied_point(&self) -> Option<Seq> {
        let snapshot = self.current()?;
        snapshot.names().is_none().then(|| snapshot.point().seq)
    }

    /// These pages are about to be written.
    pub fn before_pages(&self, pages: StoredPages<'_>, batch: &[(PageKey, Vec<u8>)]) {
        let Some(snapshot) = self.current().filter(|snapshot| !snapshot.has_failed()) else { return };
        let Some(names) = snapshot.names().filter(|_| !is_planted(Bug::SnapshotMoves)) else { return };
        for (key, _) in batch {
            if names.object(key.object()).is_none() || !snapshot.pages.is_needed(*key) {
                continue;
            }
            if let Err(error) = put_aside(&snapshot, names, pages, *key) {
                return snapshot.fail(&error);
            }
        }
    }

    /// Called before the change at `seq` in the stream is made.
    pub fn before_change(&self, seq: Seq, change: &Change, store: &PlainStore) {
        let snapshot =
            self.current().filter(|snapshot| seq >= snapshot.point().seq && !snapshot.has_failed());
        if let Some(snapshot) = snapshot.filter(|_| !is_planted(Bug::SnapshotMoves))
            && let Err(error) = snapshot.plain.before(change, store)
        {
            snapshot.fail(&error);
        }
    }

    /// An object has died and is about to be removed. True: the export needs it for now.
    pub fn keep(&self, object: ObjectId) -> bool {
        self.current().is_some_and(|snapshot| snapshot.keep(object))
    }

    /// The export has this object.
    pub fn needs(&self, object: ObjectId) -> bool {
        self.current()
            .is_some_and(|snapshot| snapshot.names().is_some_and(|names| names.object(object).is_some()))
    }

    /// Objects that no export needs any more.
    pub fn take_removable(&self) -> Vec<ObjectId> {
        std::mem::take(&mut *self.removable.lock())
    }
}

fn put_aside(
    snapshot: &Snapshot,
    names: &Namespace,
    pages: StoredPages<'_>,
    key: PageKey,
) -> Result<(), NodeError> {
    let Some((space, format)) = format_of(names, key.object()) else {
        // Pages of an unknown format cannot be read; nothing was applied to this tablespace so far.
        let reason =
            "a tablespace whose format was unknown when the export began is being changed; export again";
        return Err(NodeError::NotNow(reason.to_owned()));
    };
    match as_of(pages, key, snapshot.point()).read(key, PageId::new(space, key.page_no()), format) {
        Ok(page) => snapshot.pages.put(key, &page),
        Err(error) if error.is_lost_content() || matches!(error, NodeError::Page { .. }) => {
            snapshot.pages.put_damaged(key, &as_stored(pages.store, key, format))
        }
        Err(error) => Err(error),
    }
}

/// The stored pages for a state as of `point`. A page that was set aside later was whole then.
fn as_of(pages: StoredPages<'_>, key: PageKey, point: Point) -> StoredPages<'_> {
    match pages.set_aside(key) {
        // Not so if it differed: only the comparison came later.
        Some(entry) if entry.page_no.is_some() && entry.differs.is_none() && Lsn(entry.lsn) >= point.lsn => {
            StoredPages { quarantine: None, ..pages }
        }
        _ => pages,
    }
}

/// A damaged page, as far as it can be read.
fn as_stored(store: &dyn PageStore, key: PageKey, format: Format) -> Vec<u8> {
    let mut page = vec![0; format.physical_page_size_bytes()];
    // Bytes that cannot be read stay zero.
    let _ = store.read_page(key.object(), key.page_no(), &mut page);
    page
}

/// Pages of a file, or pieces of a plain file, that are exported although they are damaged.
#[derive(Debug, Default)]
pub struct DamagedPages {
    /// Their number.
    pub count: u64,
    /// Number and defect of the first of them.
    pub first: Vec<String>,
}

/// Damaged pages of a file that are described one by one.
const DESCRIBED_PAGES: usize = 5;

impl DamagedPages {
    /// Adds one.
    pub fn add(&mut self, describe: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < DESCRIBED_PAGES {
            self.first.push(describe());
        }
    }
}

/// How a state is read.
struct Reading<'d> {
    afterwards: Afterwards,
    /// Receives damaged pages, which are then read as they are stored. `None`: they are an error.
    damaged: Option<&'d mut DamagedPages>,
}

/// Fate of an export's page after it was read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    GivenUp,
    Kept,
}

/// A page of a state.
enum Found {
    Page(Vec<u8>),
    /// Its stored image is damaged.
    Damaged(DamagedImage),
    /// It has no content: file and reason.
    Lost(String, String),
}

impl Found {
    /// The page, rebuilt if its stored image is damaged.
    fn or_rebuilt(self, rebuilt: &mut Rebuilt) -> Result<Self, NodeError> {
        let Self::Damaged(image) = self else { return Ok(self) };
        match rebuilt.next() {
            Some(Ok(page)) => Ok(Self::Page(page)),
            Some(Err(NodeError::Page { file, reason, .. })) => Ok(Self::Lost(file, reason)),
            Some(Err(error)) => Err(error),
            None => Ok(Self::Lost("?".to_owned(), image.fault)),
        }
    }
}

/// Results of rebuilding pages, in the order of their images.
type Rebuilt = std::vec::IntoIter<Result<Vec<u8>, NodeError>>;

/// A tablespace of a state.
#[derive(Clone, Copy)]
struct Tablespace {
    object: ObjectId,
    space: u32,
    format: Format,
}

/// A state that is being exported.
pub struct Export {
    /// The names, as for an attaching server.
    pub attachment: Attachment,
    /// End of the exported stream.
    pub point: Point,
    /// Length of each of its files, in bytes.
    lengths: FxHashMap<String, u64>,
    snapshot: Arc<Snapshot>,
    names: Arc<Namespace>,
    server_log: Option<ServerLog>,
    /// Why the log has not the server's redo, if the node's log is damaged there.
    log_defect: Option<String>,
}

impl Export {
    /// Length of a file in bytes; `None` if it has none of this name.
    pub fn len_bytes(&self, path: &str) -> Option<u64> {
        self.lengths.get(path).copied()
    }

    /// The file is of the server's redo log.
    fn is_log(&self, path: &str) -> bool {
        path == LOG_FILE_PATH || self.names.log_set().is_some_and(|log_set| log_set.files.contains_key(path))
    }

    /// Names of the state.
    pub(super) fn names(&self) -> &Namespace {
        &self.names
    }
}

impl Volume {
    /// Begins an export of everything received so far, and waits until that is applied.
    ///
    /// # Errors
    /// [`NodeError::NotNow`] if another export runs; [`NodeError::Stopped`].
    pub fn begin_export(&self) -> Result<Export, NodeError> {
        self.context.check_running()?;
        let pin = {
            let checkpoint = || self.applying.points().1;
            self.receiving.retention.pin(checkpoint)
        };
        let snapshot = {
            // No frame comes in between: the export holds exactly the frames received now.
            let appending = self.receiving.pause_appending().ok_or_else(|| self.still_full())?;
            let point = self.receiving.buffer.received();
            let name = format!("export-{}", self.session.next_connection());
            let snapshot = Arc::new(Snapshot::new(point, &self.context.own, &name)?);
            self.exports.begin(&snapshot)?;
            // Perhaps everything is applied already.
            let checkpoint = self.applying.checkpoint();
            snapshot.applied(checkpoint.applied, &checkpoint.names);
            self.receiving.push_own(close_table_at(point));
            drop(appending);
            snapshot
        };
        let export = self.export(snapshot);
        drop(pin);
        export.inspect_err(|_| self.end_export())
    }

    fn export(&self, snapshot: Arc<Snapshot>) -> Result<Export, NodeError> {
        let point = snapshot.point();
        self.wait_applied(point)?;
        let Some(names) = snapshot.names().cloned() else {
            let reason = format!("{} was passed without a checkpoint there", point.seq);
            return Err(NodeError::Damaged { path: self.context.own.path().join("checkpoint"), reason });
        };
        let (server_log, log_defect) = self.compose_log_of_export(&names, point)?;
        let identity = self.session.identity();
        let attachment = Attachment {
            volume_id: identity.volume_id,
            generation: identity.generation,
            empty: !names.has_log(),
            end_lsn: point.lsn.0,
            entries: names.entries(|file| snapshot.plain.len_bytes(file, &self.plain))?,
            frozen: self.frozen_end().cloned(),
        };
        let lengths = attachment.entries.iter().map(|entry| (entry.path.clone(), entry.len_bytes)).collect();
        Ok(Export { attachment, point, lengths, snapshot, names, server_log, log_defect })
    }

    /// Checks that a file may be sent, before its contents are. With `with_damaged`, returns the defect of the file as a
    /// whole, if it has one.
    ///
    /// # Errors
    /// Without `with_damaged`: [`NodeError::Refused`] if the volume is frozen, [`NodeError::Damaged`] for a file with a
    /// defect.
    pub fn check_export_file(
        &self,
        export: &Export,
        path: &str,
        with_damaged: bool,
    ) -> Result<Option<String>, NodeError> {
        if let Some(end) = self.frozen_end().filter(|_| !with_damaged) {
            return Err(NodeError::Refused(format!(
                "volume {} is frozen at LSN {}, and commits after that point are missing, which this command cannot report; \
                 install the version of redoubt that the node has",
                self.context.name, end.lsn
            )));
        }
        let defect = if export.is_log(path) {
            export.log_defect.clone().map(|reason| (self.context.own.path().join("log"), reason))
        } else {
            let plain = export.names.file_at(path).filter(|(_, entry)| !entry.tablespace);
            plain.and_then(|(file, _)| {
                let reason = export.snapshot.plain.lost(file, &self.plain)?;
                Some((self.plain.path(file), reason))
            })
        };
        match defect {
            Some((path, reason)) if !with_damaged => Err(NodeError::Damaged { path, reason }),
            defect => Ok(defect.map(|(_, reason)| reason)),
        }
    }

    /// Ends the export, if there is one.
    pub fn end_export(&self) {
        self.exports.end();
    }

    /// Length of a plain file of the state, in bytes. [`NodeError::Damaged`] for one whose contents are lost.
    pub(super) fn kept_len(&self, export: &Export, file: FileId) -> Result<u64, NodeError> {
        if let Some(reason) = export.snapshot.plain.lost(file, &self.plain) {
            return Err(NodeError::Damaged { path: self.plain.path(file), reason });
        }
        export.snapshot.plain.len_bytes(file, &self.plain)
    }

    /// Bytes of a file of an export. Each file is read once, from its beginning to its end: the part that was read is
    /// not retained any longer. `damaged` receives damaged pages, which are then read as they are stored.
    ///
    /// # Errors
    /// [`NodeError::Refused`] for a path that is not in it, and for a state that could not be kept; [`NodeError::Page`]
    /// for a damaged page, without `damaged`.
    pub fn read_export(
        &self,
        export: &Export,
        path: &str,
        offset_bytes: u64,
        out: &mut [u8],
        damaged: Option<&mut DamagedPages>,
    ) -> Result<(), NodeError> {
        let mut reading = Reading { afterwards: Afterwards::GivenUp, damaged };
        self.read_state(export, path, offset_bytes, out, &mut reading)
    }

    /// Reads as [`Volume::read_export`], but the same range can be read again.
    pub(super) fn read_kept(
        &self,
        export: &Export,
        path: &str,
        offset_bytes: u64,
        out: &mut [u8],
    ) -> Result<(), NodeError> {
        let mut reading = Reading { afterwards: Afterwards::Kept, damaged: None };
        self.read_state(export, path, offset_bytes, out, &mut reading)
    }

    fn read_state(
        &self,
        export: &Export,
        path: &str,
        offset_bytes: u64,
        out: &mut [u8],
        reading: &mut Reading<'_>,
    ) -> Result<(), NodeError> {
        out.fill(0);
        if export.is_log(path) {
            if let Some(reason) = export.log_defect.clone().filter(|_| reading.damaged.is_none()) {
                return Err(NodeError::Damaged { path: self.context.own.path().join("log"), reason });
            }
            return match &export.server_log {
                Some(server_log) => {
                    server_log.read(&export.names, path, offset_bytes, out, self.context.own.path())
                }
                None => Ok(()),
            };
        }
        let name = &self.context.name;
        let (file, entry) = export
            .names
            .file_at(path)
            .ok_or_else(|| NodeError::Refused(format!("volume {name} has no file {path}")))?;
        if entry.tablespace {
            if let Some(object) = entry.object.map(ObjectId) {
                self.read_pages(export, object, entry.first_byte + offset_bytes, out, reading)?;
            }
        } else {
            let lost = export.snapshot.plain.lost(file, &self.plain);
            if let Some(reason) = lost.filter(|_| reading.damaged.is_none()) {
                return Err(NodeError::Damaged { path: self.plain.path(file), reason });
            }
            match (export.snapshot.plain.read(file, offset_bytes, out, &self.plain), &mut reading.damaged) {
                (Err(error), Some(damaged)) if error.is_lost_content() => {
                    out.fill(0);
                    damaged.add(|| format!("from byte {offset_bytes} on: {error}"));
                }
                (read, _) => read?,
            }
        }
        // Checked last: after a failed copy, the bytes may have changed before they were read.
        export.snapshot.check()
    }

    /// Bytes of an object at the export's point.
    fn read_pages(
        &self,
        export: &Export,
        object: ObjectId,
        offset_bytes: u64,
        out: &mut [u8],
        reading: &mut Reading<'_>,
    ) -> Result<(), NodeError> {
        let Some((space, format)) = format_of(&export.names, object) else {
            if let Some(whole) = self.quarantine.list.find_object(object) {
                let Some(damaged) = &mut reading.damaged else {
                    let page = PageId::new(whole.space, 0);
                    return Err(NodeError::Page { page, reason: whole.error(), file: whole.file });
                };
                damaged.add(|| format!("all pages: {}", whole.reason));
            }
            let error = match self.applying.store.read_raw(object, offset_bytes, out) {
                Ok(_) | Err(PageStoreError::NoSuchObject { .. }) => return Ok(()),
                Err(error) => NodeError::from(error),
            };
            return match &mut reading.damaged {
                Some(damaged) if error.is_lost_content() => {
                    out.fill(0);
                    damaged.add(|| format!("from byte {offset_bytes} on: {error}"));
                    Ok(())
                }
                _ => Err(error),
            };
        };
        let page_len = format.physical_page_size_bytes();
        let number = |position: u64| {
            u32::try_from(position / page_len as u64)
                .map_err(|_| NodeError::Refused(format!("no tablespace has a byte {position}")))
        };
        let Some(last) = (out.len() as u64).checked_sub(1) else { return Ok(()) };
        let numbers = number(offset_bytes)?..=number(offset_bytes.saturating_add(last))?;
        let tablespace = Tablespace { object, space, format };
        let pages = self.export_pages(export, tablespace, numbers.clone(), reading.damaged.as_deref_mut())?;
        let mut at = 0usize;
        for (page_no, page) in numbers.zip(pages) {
            let within = ((offset_bytes + at as u64) % page_len as u64) as usize;
            let len = (page_len - within).min(out.len() - at);
            out[at..at + len].copy_from_slice(&page[within..within + len]);
            at += len;
            if reading.afterwards == Afterwards::GivenUp && within + len == page_len {
                export.snapshot.pages.passed(object, page_no + 1);
            }
        }
        Ok(())
    }

    /// Pages of the state. The log is read once for all of them that are damaged.
    fn export_pages(
        &self,
        export: &Export,
        tablespace: Tablespace,
        numbers: RangeInclusive<u32>,
        mut damaged: Option<&mut DamagedPages>,
    ) -> Result<Vec<Vec<u8>>, NodeError> {
        let (mut found, mut images) = (Vec::new(), Vec::new());
        for page_no in numbers {
            let key = PageKey::new(tablespace.object, page_no);
            let page = match export.snapshot.pages.get(key)? {
                Some(copy) => Found::Page(copy),
                // This read reports a damaged page.
                None => self.stored_at(export, tablespace, key, damaged.is_some())?,
            };
            if let Found::Damaged(image) = &page {
                images.push(image.clone());
            }
            found.push((key, page));
        }
        let rebuilt = if images.is_empty() { Ok(Vec::new()) } else { self.stored_pages().rescue(&images) };
        let mut rebuilt = match rebuilt {
            Err(error) if damaged.is_some() && error.is_lost_content() => Vec::new(),
            rebuilt => rebuilt?,
        }
        .into_iter();
        let mut pages = Vec::with_capacity(found.len());
        for (key, page) in found {
            let page = page.or_rebuilt(&mut rebuilt)?;
            pages.push(self.exported_page(export, tablespace, key, page, damaged.as_deref_mut())?);
        }
        Ok(pages)
    }

    /// The stored page, as of the state.
    fn stored_at(
        &self,
        export: &Export,
        tablespace: Tablespace,
        key: PageKey,
        with_damaged: bool,
    ) -> Result<Found, NodeError> {
        let Tablespace { space, format, .. } = tablespace;
        let pages = as_of(self.stored_pages(), key, export.point);
        if let Some(entry) = pages.set_aside(key) {
            let reason = entry.error();
            return Ok(Found::Lost(entry.file, reason));
        }
        match pages.read_stored(key, format) {
            Ok(Ok(page)) => Ok(Found::Page(page)),
            Ok(Err(fault)) => {
                let page_id = PageId::new(space, key.page_no());
                Ok(Found::Damaged(DamagedImage { key, page_id, format, fault }))
            }
            Err(error) if with_damaged && error.is_lost_content() => {
                Ok(Found::Lost("?".to_owned(), error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// A page of the state that was read as `found`. It is damaged if it was so when it was copied, or if nothing was
    /// written over it since.
    fn exported_page(
        &self,
        export: &Export,
        tablespace: Tablespace,
        key: PageKey,
        found: Found,
        damaged: Option<&mut DamagedPages>,
    ) -> Result<Vec<u8>, NodeError> {
        let Tablespace { space, format, .. } = tablespace;
        let pages = &export.snapshot.pages;
        // It may have been changed before it was read; then the old page has been copied by now.
        let (page, defect) = match (pages.get(key)?, found) {
            (Some(copy), _) if pages.is_damaged(key) => {
                (copy, Some(("?".to_owned(), "it was damaged when the export began".to_owned())))
            }
            (Some(copy), _) => (copy, None),
            (None, Found::Page(page)) => (page, None),
            (None, Found::Lost(file, reason)) => {
                (as_stored(&*self.applying.store, key, format), Some((file, reason)))
            }
            (None, Found::Damaged(image)) => {
                (as_stored(&*self.applying.store, key, format), Some(("?".to_owned(), image.fault)))
            }
        };
        let defect = defect.or_else(|| self.is_newer(&page, format, export.point));
        match (defect, damaged) {
            (None, _) => Ok(page),
            (Some((_, reason)), Some(damaged)) => {
                damaged.add(|| format!("page {}: {reason}", key.page_no()));
                Ok(page)
            }
            (Some((file, reason)), None) => {
                Err(NodeError::Page { page: PageId::new(space, key.page_no()), file, reason })
            }
        }
    }

    /// Pages of a frozen volume may be newer than its end ([`super::frozen`]): file and reason.
    fn is_newer(&self, page: &[u8], format: Format, point: Point) -> Option<(String, String)> {
        self.frozen_end()?.changes_end?;
        let lsn = page_lsn(format.family, page).filter(|lsn| *lsn > point.lsn)?;
        Some(("?".to_owned(), format!("it has changes up to LSN {lsn}, after the end of the volume")))
    }
}

/// Space and format of an object, if its format is known.
fn format_of(names: &Namespace, object: ObjectId) -> Option<(u32, Format)> {
    let entry = names.object(object)?;
    // Pages may come before redo names their space; the number is for messages only.
    Some((entry.space.unwrap_or(u32::MAX), Format { family: names.family(), flags: entry.flags? }))
}
