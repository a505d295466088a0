//! Objects come and go.

use std::sync::atomic::Ordering;

use super::home::add;
use super::{FilePageStore, objects};
use crate::ObjectId;
use crate::error::PageStoreError;

impl FilePageStore {
    /// As [`crate::PageStore::create`].
    pub(super) fn create_file(&self, object: ObjectId) -> Result<(), PageStoreError> {
        let _names = self.namespace.lock();
        if self.home.objects.contains(object) {
            return Ok(());
        }
        self.forget(&mut self.writer.lock(), object)?;
        let name = objects::file_name(object);
        self.home.dir.create(&name).map_err(PageStoreError::io_or_no_space("create", &name))?;
        self.home.sync_names(&name).inspect_err(|error| {
            // The same call may be tried again.
            if matches!(error, PageStoreError::NoDescriptors { .. }) {
                let _ = self.home.dir.remove(&name);
            }
        })?;
        self.home.objects.insert(object);
        self.home.growth.note_len(object, 0);
        Ok(())
    }

    /// As [`crate::PageStore::remove_all`].
    pub(super) fn remove_files(&self, objects: &[ObjectId]) -> Result<(), PageStoreError> {
        let _names = self.namespace.lock();
        let mut writer = self.writer.lock();
        // An earlier call may have removed files, and had no descriptor to sync their directory.
        let has_unsynced = self.home.has_unsynced_names.load(Ordering::Acquire);
        let mut last_name = has_unsynced.then(|| "the removed objects".to_owned());
        for &object in objects {
            if !self.home.objects.contains(object) {
                continue;
            }
            let name = objects::file_name(object);
            self.home.objects.remove(object);
            self.home.growth.forget(object);
            {
                let mut pending = self.pending.write();
                add(&self.home.counters.images_superseded, pending.remove_object(object) as u64);
                self.pending_pages.store(pending.len(), Ordering::Release);
            }
            writer.ring.object_changed(object);
            let removed = self.home.dir.remove(&name);
            removed.map_err(PageStoreError::io_or_no_descriptors("remove", &name)).inspect_err(|error| {
                // The same call may be tried again.
                if matches!(error, PageStoreError::NoDescriptors { .. }) {
                    self.home.objects.insert(object);
                }
            })?;
            last_name = Some(name);
        }
        last_name.map_or(Ok(()), |name| self.home.sync_names(&name))
    }
}
