//! Files that are created or become longer, and cuts.
//!
//! When a page has gone home and its image is given up, its file is the only copy. If that file is cut later, only a record
//! of its length shows that. So the lengths are handed to the recorder before images are given up, and whenever the caller
//! asks for it.
//!
//! Locks: leaves. The recorder is called with the `writer` locked.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use redoubt_sync::Mutex;

use super::FilePageStore;
use super::write::Writer;
use crate::error::PageStoreError;
use crate::{GrowthRecorder, ObjectId};

/// Named in errors of the recorder.
const RECORD: &str = "the lengths of page files";

/// Objects, and ends of what was written to their files.
pub(super) type Ends = BTreeMap<ObjectId, u64>;

/// Lengths of files that the recorder has not received.
#[derive(Default)]
pub(super) struct Growth {
    ends: Mutex<Ends>,
    recorder: OnceLock<GrowthRecorder>,
}

impl Growth {
    pub fn set_recorder(&self, recorder: GrowthRecorder) {
        let _ = self.recorder.set(recorder);
    }

    /// The files of these objects have at least these lengths, durably.
    pub fn note(&self, ends: Ends) {
        let mut all = self.ends.lock();
        for (object, end) in ends {
            let known = all.entry(object).or_default();
            *known = (*known).max(end);
        }
    }

    /// The file of an object has this length, durably.
    pub fn note_len(&self, object: ObjectId, len_bytes: u64) {
        self.ends.lock().insert(object, len_bytes);
    }

    pub fn forget(&self, object: ObjectId) {
        self.ends.lock().remove(&object);
    }

    /// Hands the lengths to the recorder. Of an object that is about to be cut, at most its next length.
    fn record(&self, cut: Option<(ObjectId, u64)>) -> Result<(), PageStoreError> {
        let Some(recorder) = self.recorder.get() else { return Ok(()) };
        let mut ends = std::mem::take(&mut *self.ends.lock());
        if let Some((object, len_bytes)) = cut
            && let Some(end) = ends.get_mut(&object)
        {
            *end = (*end).min(len_bytes);
        }
        if ends.is_empty() {
            return Ok(());
        }
        let lens: Vec<_> = ends.iter().map(|(object, end)| (*object, *end)).collect();
        recorder(&lens).map_err(|error| {
            self.note(ends);
            PageStoreError::io_or_no_space("record", RECORD)(error)
        })
    }
}

impl FilePageStore {
    /// Hands the lengths of files to the recorder.
    pub(super) fn record_ends(&self, writer: &Writer) -> Result<(), PageStoreError> {
        self.home.growth.record(writer.cut)
    }

    pub(super) fn change_len(&self, object: ObjectId, len_bytes: u64) -> Result<(), PageStoreError> {
        let mut writer = self.writer.lock();
        self.check_poison()?;
        // Images in the ring lie within the present length, so they matter only if that is cut.
        if len_bytes < self.stored_len_bytes(object)? {
            writer.cut = Some((object, len_bytes));
            let forgotten = self.forget(&mut writer, object);
            writer.cut = None;
            forgotten?;
        }
        let object = self.home.objects.get(object)?;
        let file = self.home.file(&object)?;
        {
            let _no_reader = object.begin_write(0..u64::MAX);
            file.set_len(len_bytes)
                .map_err(PageStoreError::io_or_no_space("set the length of", &object.name))?;
        }
        self.home.sync_file(&*file, &object.name)?;
        self.home.growth.note_len(object.id, len_bytes);
        Ok(())
    }

    /// Length of an object, with its pages in the ring.
    pub(super) fn stored_len_bytes(&self, object: ObjectId) -> Result<u64, PageStoreError> {
        let object = self.home.objects.get(object)?;
        let file = self.file(&object)?;
        // First: what ceases to be pending in between is in the file by then.
        let pending_end = self.pending.read().end(object.id);
        let len = file.len_bytes().map_err(PageStoreError::read(&object.name, 0))?;
        Ok(len.max(pending_end))
    }
}
