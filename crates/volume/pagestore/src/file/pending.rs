//! The pages whose newest version is in the ring and not, or not surely, at home. Pure.

use rustc_hash::FxHashMap;

use super::ring::ImageLocation;
use crate::ObjectId;

/// Where the newest version of a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PageLocation {
    /// In its file. The object reaches at least to this byte, whatever the file's length.
    Home(u64),
    /// In the ring.
    Ring(ImageLocation),
    /// The ring holds pages of another length for this object, which may overlap it.
    OtherLength,
}

/// Pending pages of one object.
struct PendingObject {
    page_len: u32,
    /// End of the last page that was pending.
    end: u64,
    pages: FxHashMap<u32, ImageLocation>,
}

/// All pending pages.
#[derive(Default)]
pub(super) struct Pending {
    objects: FxHashMap<ObjectId, PendingObject>,
    count: usize,
}

impl Pending {
    /// Number of pages.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Notes a newer image of a page; true if it replaces one that had not gone home.
    pub fn insert(&mut self, object: ObjectId, page_no: u32, image: ImageLocation) -> bool {
        let pending = self.objects.entry(object).or_insert_with(|| PendingObject {
            page_len: image.len,
            end: 0,
            pages: FxHashMap::default(),
        });
        pending.end = pending.end.max((u64::from(page_no) + 1) * u64::from(image.len));
        let is_replaced = pending.pages.insert(page_no, image).is_some();
        self.count += usize::from(!is_replaced);
        is_replaced
    }

    /// Page length of an object's pending pages.
    pub fn page_len(&self, object: ObjectId) -> Option<u32> {
        self.objects.get(&object).map(|pending| pending.page_len)
    }

    /// Where the newest version of a page of `len` bytes is.
    pub fn locate(&self, object: ObjectId, page_no: u32, len: usize) -> PageLocation {
        match self.objects.get(&object) {
            None => PageLocation::Home(0),
            Some(pending) if pending.page_len as usize != len => PageLocation::OtherLength,
            Some(pending) => pending
                .pages
                .get(&page_no)
                .map_or(PageLocation::Home(pending.end), |image| PageLocation::Ring(*image)),
        }
    }

    pub fn image(&self, object: ObjectId, page_no: u32) -> Option<ImageLocation> {
        self.objects.get(&object)?.pages.get(&page_no).copied()
    }

    /// Where an object ends at least, in bytes.
    pub fn end(&self, object: ObjectId) -> u64 {
        self.objects.get(&object).map_or(0, |pending| pending.end)
    }

    /// Forgets that a page is pending.
    pub fn remove(&mut self, object: ObjectId, page_no: u32) {
        let Some(pending) = self.objects.get_mut(&object) else { return };
        self.count -= usize::from(pending.pages.remove(&page_no).is_some());
        if pending.pages.is_empty() {
            self.objects.remove(&object);
        }
    }

    /// Forgets all pending pages of an object; returns how many there were.
    pub fn remove_object(&mut self, object: ObjectId) -> usize {
        let removed = self.objects.remove(&object).map_or(0, |pending| pending.pages.len());
        self.count -= removed;
        removed
    }

    /// The pending pages of an object, in page order.
    pub fn of_object(&self, object: ObjectId) -> Vec<(ObjectId, u32, ImageLocation)> {
        let pages = self.objects.get(&object).into_iter().flat_map(|pending| &pending.pages);
        let mut pages: Vec<_> = pages.map(|(page_no, image)| (object, *page_no, *image)).collect();
        pages.sort_unstable_by_key(|(_, page_no, _)| *page_no);
        pages
    }

    /// All pending pages, in (object, page) order.
    pub fn all(&self) -> Vec<(ObjectId, u32, ImageLocation)> {
        let mut objects: Vec<_> = self.objects.keys().copied().collect();
        objects.sort_unstable();
        objects.into_iter().flat_map(|object| self.of_object(object)).collect()
    }
}
