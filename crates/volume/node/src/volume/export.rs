//! Export: a snapshot of the volume, read while the volume continues.
//!
//! An export is the stream up to the point where it began, as a killed server leaves it. It has the page store and
//! plain files up to there, and `ib_logfile0` with the redo since the server's checkpoint. It blocks nothing
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
use crate::snapshot::Snapshot;
use redoubt_page::Format;
use redoubt_pagestore::{ObjectId, PageStoreError};
use redoubt_redo::PageId;
use redoubt_sync::Mutex;
use redoubt_sync::planted::{Bug, is_planted};
use redoubt_wire::Seq;
use redoubt_wire::control::Attachment;
use redoubt_wire::page::FileId;
use rustc_hash::FxHashMap;
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
    let page = pages.read(key, PageId::new(space, key.page_no()), format)?;
    snapshot.pages.put(key, &page)
}

/// Fate of an export's page after it was read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    GivenUp,
    Kept,
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
}

impl Export {
    /// Length of a file in bytes; `None` if it has none of this name.
    pub fn len_bytes(&self, path: &str) -> Option<u64> {
        self.lengths.get(path).copied()
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
        let server_log = self.compose_server_log(&names, point)?;
        let identity = self.session.identity();
        let attachment = Attachment {
            volume_id: identity.volume_id,
            generation: identity.generation,
            empty: !names.has_log(),
            end_lsn: point.lsn.0,
            entries: names.entries(|file| snapshot.plain.len_bytes(file, &self.plain))?,
        };
        let lengths = attachment.entries.iter().map(|entry| (entry.path.clone(), entry.len_bytes)).collect();
        Ok(Export { attachment, point, lengths, snapshot, names, server_log })
    }

    /// Ends the export, if there is one.
    pub fn end_export(&self) {
        self.exports.end();
    }

    /// Length of a plain file of the state, in bytes.
    pub(super) fn kept_len(&self, export: &Export, file: FileId) -> Result<u64, NodeError> {
        export.snapshot.plain.len_bytes(file, &self.plain)
    }

    /// Bytes of a file of an export. Each file is read once, from its beginning to its end: the part that was read is
    /// not retained any longer.
    ///
    /// # Errors
    /// [`NodeError::Refused`] for a path that is not in it, and for a state that could not be kept.
    pub fn read_export(
        &self,
        export: &Export,
        path: &str,
        offset_bytes: u64,
        out: &mut [u8],
    ) -> Result<(), NodeError> {
        self.read_state(export, path, offset_bytes, out, Afterwards::GivenUp)
    }

    /// Reads as [`Volume::read_export`], but the same range can be read again.
    pub(super) fn read_kept(
        &self,
        export: &Export,
        path: &str,
        offset_bytes: u64,
        out: &mut [u8],
    ) -> Result<(), NodeError> {
        self.read_state(export, path, offset_bytes, out, Afterwards::Kept)
    }

    fn read_state(
        &self,
        export: &Export,
        path: &str,
        offset_bytes: u64,
        out: &mut [u8],
        afterwards: Afterwards,
    ) -> Result<(), NodeError> {
        out.fill(0);
        let is_of_set = || export.names.log_set().is_some_and(|log_set| log_set.files.contains_key(path));
        if path == LOG_FILE_PATH || is_of_set() {
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
                self.read_pages(export, object, entry.first_byte + offset_bytes, out, afterwards)?;
            }
        } else {
            export.snapshot.plain.read(file, offset_bytes, out, &self.plain)?;
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
        afterwards: Afterwards,
    ) -> Result<(), NodeError> {
        let Some((space, format)) = format_of(&export.names, object) else {
            return match self.applying.store.read_raw(object, offset_bytes, out) {
                Ok(_) | Err(PageStoreError::NoSuchObject { .. }) => Ok(()),
                Err(error) => Err(error.into()),
            };
        };
        let page_len = format.physical_page_size_bytes();
        let mut at = 0usize;
        while at < out.len() {
            let position = offset_bytes.saturating_add(at as u64);
            let page_no = u32::try_from(position / page_len as u64)
                .map_err(|_| NodeError::Refused(format!("no tablespace has a byte {position}")))?;
            let page = self.export_page(&export.snapshot, PageKey::new(object, page_no), space, format)?;
            let within = (position % page_len as u64) as usize;
            let len = (page_len - within).min(out.len() - at);
            out[at..at + len].copy_from_slice(&page[within..within + len]);
            at += len;
            if afterwards == Afterwards::GivenUp && within + len == page_len {
                export.snapshot.pages.passed(object, page_no + 1);
            }
        }
        Ok(())
    }

    fn export_page(
        &self,
        snapshot: &Snapshot,
        key: PageKey,
        space: u32,
        format: Format,
    ) -> Result<Vec<u8>, NodeError> {
        if let Some(page) = snapshot.pages.get(key)? {
            return Ok(page);
        }
        // This read reports a damaged page.
        let page = self.stored_pages().read(key, PageId::new(space, key.page_no()), format)?;
        // It may have been changed before it was read; then the old page has been copied by now.
        Ok(snapshot.pages.get(key)?.unwrap_or(page))
    }
}

/// Space and format of an object, if its format is known.
fn format_of(names: &Namespace, object: ObjectId) -> Option<(u32, Format)> {
    let entry = names.object(object)?;
    // Pages may come before redo names their space; the number is for messages only.
    Some((entry.space.unwrap_or(u32::MAX), Format { family: names.family(), flags: entry.flags? }))
}
