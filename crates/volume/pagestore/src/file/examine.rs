//! Images of pages in the journal, and reads past the caches, for examinations.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::PageStoreError;
use crate::{FilePageStore, ObjectId, PageProtection, RetainedImage};

impl FilePageStore {
    /// As [`crate::PageStore::retained_images`].
    pub(super) fn find_retained_images(
        &self,
        object: ObjectId,
        page_no: u32,
        len_bytes: u32,
    ) -> Result<Vec<RetainedImage>, PageStoreError> {
        let writer = self.writer.lock();
        let mut images = Vec::new();
        for (number, image) in writer.ring.images(object, page_no, len_bytes).into_iter().enumerate() {
            let mut page = vec![0; len_bytes as usize];
            if self.reader.find_image(image, &mut page)? {
                // In mode `atomic` pages also go home past the ring.
                let is_newest = number == 0 && self.protection != PageProtection::Atomic;
                images.push(RetainedImage { page, is_newest });
            }
        }
        Ok(images)
    }

    /// As [`crate::PageStore::newest_images`].
    pub(super) fn find_newest_images(
        &self,
        object: ObjectId,
        pages: &Range<u32>,
        len_bytes: u32,
    ) -> BTreeMap<u32, u32> {
        if self.protection == PageProtection::Atomic {
            return BTreeMap::new();
        }
        self.writer.lock().ring.newest_images(object, pages, len_bytes)
    }

    /// As [`crate::PageStore::drop_cache`].
    pub(super) fn drop_cache_of(&self, object: ObjectId, pages: &Range<u32>, len_bytes: u32) {
        let Ok(file) = self.home.objects.get(object).and_then(|object| self.file(&object)) else { return };
        let len = u64::from(len_bytes);
        // Without effect, the pages are read from memory.
        let _ = file.drop_cache_of(u64::from(pages.start) * len, pages.len() as u64 * len);
    }
}
