//! A state of a volume that stays readable while the volume changes: for an export.
//!
//! A snapshot is the stream up to one point. It blocks nothing. A thread that is about to change a page or a plain file
//! of the snapshot first copies the old content ([`pages`], [`plain`]), unless the reader has passed it. A reader reads
//! the *current* content first and looks for a copy second. So it never misses a change that is made in between, and
//! never sees half of one.
//!
//! Copies are in one unlinked file, which goes away with the snapshot, at the latest with the process. The file is at
//! most as long as the pages and blocks that are changed before the reader reaches them.
//!
//! A failure to copy (a full disk) makes the snapshot unusable; the volume is not affected.
//!
//! Lock order: pages or plain, then the file's free ranges; all are leaves for other code.

mod aside;
pub mod pages;
pub mod plain;

pub use aside::Aside;
pub use pages::PagesAside;
pub use plain::PlainAside;

use crate::error::NodeError;
use crate::home::Folder;
use crate::mark::Point;
use crate::namespace::Namespace;
use redoubt_pagestore::ObjectId;
use redoubt_sync::Mutex;
use std::sync::{Arc, OnceLock};

/// A snapshot of a volume: its point, its names, and copies of changed content.
pub struct Snapshot {
    point: Point,
    /// Names as of the point, once everything before it is applied.
    names: OnceLock<Arc<Namespace>>,
    /// Pages of the state that were changed since.
    pub pages: PagesAside,
    /// Plain files of the state that were changed since.
    pub plain: PlainAside,
    /// Objects of the state that have died since; they are removed when the snapshot ends.
    dead: Mutex<Vec<ObjectId>>,
    failure: OnceLock<String>,
}

impl Snapshot {
    /// The state as of `point`, up to which nothing need be applied yet; nothing after it may have been.
    ///
    /// # Errors
    /// [`NodeError::Io`] if the file for copies cannot be created.
    pub fn new(point: Point, folder: &Folder, name: &str) -> Result<Self, NodeError> {
        let aside = Arc::new(Aside::create(folder, name)?);
        Ok(Self {
            point,
            names: OnceLock::new(),
            pages: PagesAside::new(&aside),
            plain: PlainAside::new(&aside),
            dead: Mutex::default(),
            failure: OnceLock::new(),
        })
    }

    /// The point.
    pub fn point(&self) -> Point {
        self.point
    }

    /// Everything up to `applied` is applied, with these names.
    pub fn applied(&self, applied: Point, names: &Arc<Namespace>) {
        if applied.seq == self.point.seq {
            let _ = self.names.set(Arc::clone(names));
        }
    }

    /// The names of the state; `None`: not everything before its point is applied yet.
    pub fn names(&self) -> Option<&Arc<Namespace>> {
        self.names.get()
    }

    /// An object of this number is about to be removed. True: the snapshot needs it, and will give it back.
    pub fn keep(&self, object: ObjectId) -> bool {
        let keeps = self.names().is_some_and(|names| names.object(object).is_some());
        if keeps {
            self.dead.lock().push(object);
        }
        keeps
    }

    /// The objects that were kept, to be removed.
    pub fn take_dead(&self) -> Vec<ObjectId> {
        std::mem::take(&mut *self.dead.lock())
    }

    /// Old content could not be copied: the snapshot is lost. Only its reader gets the error.
    pub fn fail(&self, error: &NodeError) {
        if self.failure.set(error.to_string()).is_ok() {
            tracing::warn!(event = "export_snapshot_failed", %error, "cannot retain the snapshot that an export reads");
        }
    }

    /// It failed: no further copies are needed.
    pub fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// # Errors
    /// [`NodeError::NotNow`] with the reason if the state is lost.
    pub fn check(&self) -> Result<(), NodeError> {
        self.failure.get().map_or(Ok(()), |failure| {
            Err(NodeError::NotNow(format!(
                "the export ends: old versions of pages that the server changed meanwhile could not be kept \
                 ({failure}); make room and export again"
            )))
        })
    }
}

#[cfg(test)]
mod tests;
