//! The pages whose newest version is in the ring and not, or not surely, at home. Pure.
//!
//! Each has an *origin*: the position in the caller's log from which on its file may lack changes. A newer image of a page
//! that is pending leaves the origin as it is.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

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

struct PendingPage {
    image: ImageLocation,
    origin: u64,
}

/// Pending pages of one object.
struct PendingObject {
    page_len: u32,
    /// End of the last page that was pending.
    end: u64,
    pages: FxHashMap<u32, PendingPage>,
}

/// All pending pages.
#[derive(Default)]
pub(super) struct Pending {
    objects: FxHashMap<ObjectId, PendingObject>,
    count: usize,
    /// Number of pages by origin.
    origins: BTreeMap<u64, usize>,
}

impl Pending {
    /// Number of pages.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The oldest origin.
    pub fn oldest_origin(&self) -> Option<u64> {
        self.origins.keys().next().copied()
    }

    fn forget_origin(&mut self, origin: u64) {
        if let Some(pages) = self.origins.get_mut(&origin) {
            *pages -= 1;
            if *pages == 0 {
                self.origins.remove(&origin);
            }
        }
    }

    /// Notes a newer image of a page; true if it replaces one that had not gone home. `origin`: that of a page that was
    /// not pending.
    pub fn insert(&mut self, object: ObjectId, page_no: u32, image: ImageLocation, origin: u64) -> bool {
        let pending = self.objects.entry(object).or_insert_with(|| PendingObject {
            page_len: image.len,
            end: 0,
            pages: FxHashMap::default(),
        });
        pending.end = pending.end.max((u64::from(page_no) + 1) * u64::from(image.len));
        match pending.pages.entry(page_no) {
            Entry::Occupied(mut page) => {
                page.get_mut().image = image;
                true
            }
            Entry::Vacant(page) => {
                page.insert(PendingPage { image, origin });
                self.count += 1;
                *self.origins.entry(origin).or_default() += 1;
                false
            }
        }
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
                .map_or(PageLocation::Home(pending.end), |page| PageLocation::Ring(page.image)),
        }
    }

    pub fn image(&self, object: ObjectId, page_no: u32) -> Option<ImageLocation> {
        self.objects.get(&object)?.pages.get(&page_no).map(|page| page.image)
    }

    /// Where an object ends at least, in bytes.
    pub fn end(&self, object: ObjectId) -> u64 {
        self.objects.get(&object).map_or(0, |pending| pending.end)
    }

    /// Forgets that a page is pending.
    pub fn remove(&mut self, object: ObjectId, page_no: u32) {
        let Some(pending) = self.objects.get_mut(&object) else { return };
        let removed = pending.pages.remove(&page_no);
        if pending.pages.is_empty() {
            self.objects.remove(&object);
        }
        if let Some(page) = removed {
            self.count -= 1;
            self.forget_origin(page.origin);
        }
    }

    /// Forgets all pending pages of an object; returns how many there were.
    pub fn remove_object(&mut self, object: ObjectId) -> usize {
        let removed = self.objects.remove(&object).map(|pending| pending.pages).unwrap_or_default();
        self.count -= removed.len();
        removed.values().for_each(|page| self.forget_origin(page.origin));
        removed.len()
    }

    /// The pending pages of an object, in page order.
    pub fn of_object(&self, object: ObjectId) -> Vec<(ObjectId, u32, ImageLocation)> {
        let pages = self.objects.get(&object).into_iter().flat_map(|pending| &pending.pages);
        let mut pages: Vec<_> = pages.map(|(page_no, page)| (object, *page_no, page.image)).collect();
        pages.sort_unstable_by_key(|(_, page_no, _)| *page_no);
        pages
    }

    /// All pending pages, in (object, page) order.
    pub fn all(&self) -> Vec<(ObjectId, u32, ImageLocation)> {
        let mut objects: Vec<_> = self.objects.keys().copied().collect();
        objects.sort_unstable();
        objects.into_iter().flat_map(|object| self.of_object(object)).collect()
    }

    /// Pages whose origin is before `end`, in (object, page) order: of all of them, or of those with the oldest origins, at
    /// most `most_bytes`, and one page at least.
    pub fn oldest(&self, end: u64, most_bytes: u64) -> Vec<(ObjectId, u32, ImageLocation)> {
        let of_object = |(object, pending): (&ObjectId, &PendingObject)| {
            let pages = pending.pages.iter().filter(|(_, page)| page.origin < end);
            let of = |(page_no, page): (&u32, &PendingPage)| (page.origin, *object, *page_no, page.image);
            pages.map(of).collect::<Vec<_>>()
        };
        let mut pages: Vec<_> = self.objects.iter().flat_map(of_object).collect();
        pages.sort_unstable_by_key(|(origin, object, page_no, _)| (*origin, *object, *page_no));
        let mut sum_bytes = 0;
        let fits = |(number, page): &(usize, _)| {
            let (_, _, _, image): &(u64, ObjectId, u32, ImageLocation) = page;
            sum_bytes += u64::from(image.len);
            *number == 0 || sum_bytes <= most_bytes
        };
        let oldest = pages.into_iter().enumerate().take_while(fits);
        let mut oldest: Vec<_> =
            oldest.map(|(_, (_, object, page_no, image))| (object, page_no, image)).collect();
        oldest.sort_unstable_by_key(|(object, page_no, _)| (*object, *page_no));
        oldest
    }
}

#[cfg(test)]
#[path = "pending_tests.rs"]
mod tests;
