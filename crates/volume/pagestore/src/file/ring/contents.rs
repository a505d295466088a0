//! Physical content of the ring: the groups, live or already home, that were not yet written over. Pure.
//!
//! This is the index for bringing images home and for finding older images of a page. It takes 16 bytes for an image.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::ImageLocation;
use super::format::Group;
use crate::ObjectId;

/// Content of the ring for one object.
#[derive(Default)]
struct InRing {
    /// Where the newest image is at most. 0: there is none.
    newest: u64,
    page_len: u32,
    /// Images before this position are no versions of the object's pages.
    since: u64,
}

/// The groups in the ring, in order.
#[derive(Default)]
pub(in crate::file) struct Contents {
    groups: VecDeque<Group>,
    objects: FxHashMap<ObjectId, InRing>,
}

impl Contents {
    pub fn push(&mut self, group: Group) {
        for (at, entry) in group.entries() {
            let object = self.objects.entry(entry.object).or_default();
            if entry.len == 0 {
                (object.since, object.newest) = (at, 0);
            } else {
                (object.newest, object.page_len) = (at, entry.len);
            }
        }
        self.groups.push_back(group);
    }

    /// Images of the object before `head` are no versions of its pages, but are still there.
    pub fn disown(&mut self, object: ObjectId, head: u64) {
        if let Some(object) = self.objects.get_mut(&object) {
            object.since = head;
        }
    }

    /// Drops the groups from `at` on. They may be on the disk all the same, or not: of their objects, there may be
    /// images, whether they were to come or to be forgotten.
    pub fn truncate(&mut self, at: u64) {
        while self.groups.back().is_some_and(|group| group.at >= at) {
            let Some(group) = self.groups.pop_back() else { break };
            for (at, entry) in group.entries() {
                let object = self.objects.entry(entry.object).or_default();
                object.newest = object.newest.max(at);
            }
        }
    }

    /// Drops the groups that are before `oldest` altogether.
    pub fn prune(&mut self, oldest: u64) {
        let mut dropped = false;
        while self.groups.front().is_some_and(|group| group.end <= oldest) {
            self.groups.pop_front();
            dropped = true;
        }
        // Not for every group: looking at all objects is dear when there are many.
        if dropped && self.objects.len() > 2 * self.groups.len() {
            self.objects.retain(|_, object| object.newest.max(object.since) >= oldest);
        }
    }

    /// Are there images of the object from `tail` on?
    pub fn holds(&self, object: ObjectId, tail: u64) -> bool {
        self.objects.get(&object).is_some_and(|object| object.newest > tail)
    }

    /// Length of the newest image of the object.
    pub fn page_len(&self, object: ObjectId) -> Option<u32> {
        self.objects.get(&object).map(|object| object.page_len)
    }

    /// The groups from position `at` on, where one begins.
    pub fn groups_from(&self, at: u64) -> impl Iterator<Item = &Group> {
        let first = self.groups.partition_point(|group| group.at < at);
        self.groups.range(first..)
    }

    /// The images of a page from `oldest` on that count, newest first.
    pub fn images(&self, object: ObjectId, page_no: u32, len: u32, oldest: u64) -> Vec<ImageLocation> {
        let since = self.objects.get(&object).map_or(u64::MAX, |object| object.since);
        let mut found = Vec::new();
        for group in &self.groups {
            for (at, entry) in group.entries() {
                let is_it = (entry.object, entry.page_no, entry.len) == (object, page_no, len);
                if is_it && at >= since && at >= oldest {
                    found.push(ImageLocation { at, len, crc: entry.crc });
                }
            }
        }
        found.reverse();
        found
    }

    /// The checksums of the newest images of an object's pages from `oldest` on, by page number.
    pub fn newest_images(
        &self,
        object: ObjectId,
        pages: &Range<u32>,
        len: u32,
        oldest: u64,
    ) -> BTreeMap<u32, u32> {
        let Some(of) = self.objects.get(&object).filter(|of| of.newest > 0) else {
            return BTreeMap::new();
        };
        let entries = self.groups.iter().flat_map(Group::entries);
        let counts = entries.filter(|(at, entry)| {
            (entry.object, entry.len) == (object, len)
                && pages.contains(&entry.page_no)
                && *at >= of.since
                && *at >= oldest
        });
        counts.map(|(_, entry)| (entry.page_no, entry.crc)).collect()
    }
}
