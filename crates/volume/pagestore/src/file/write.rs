//! The write path: batches into the ring, and from the ring home.
//!
//! A batch becomes one or several groups. Before room is made for one of them, and at the end, the ring is synced and
//! the pages become *pending*; that is what [`FilePageStore::commit`] does. In mode `journal` that is all. When room
//! is wanted, the oldest part of the ring is *destaged*: pages whose newest image lies in it go home, the others are
//! left out, since a newer image further on will go home in their place. In mode `doublewrite`, pages go home in
//! `commit`, and stay pending only if that fails.

use std::sync::atomic::Ordering;

use super::home::{RingImages, Scratch, add};
use super::protection::PageProtection;
use super::ring::{Contents, ImageLocation, JournalRing, MAX_ENTRIES, group_len};
use super::{FilePageStore, batch};
use crate::error::PageStoreError;
use crate::{ObjectId, PageWrite};

/// The part of the ring that is destaged when room is wanted.
const DESTAGED_PART: u64 = 4;
/// The most bytes to destage at a time: a writer that waits for room should not wait for seconds.
const MAX_DESTAGED: u64 = 64 << 20;

/// Writer state.
pub(super) struct Writer {
    pub ring: JournalRing,
    pub scratch: Scratch,
    /// The object that is about to be cut, and its next length.
    pub cut: Option<(ObjectId, u64)>,
}

impl FilePageStore {
    /// Sorts, checks and writes a batch.
    pub(super) fn write_all(&self, writes: &[PageWrite<'_>]) -> Result<(), PageStoreError> {
        let writes = batch::sorted(writes)?;
        let writer = &mut *self.writer.lock();
        self.check_poison()?;
        let mut objects = Vec::new();
        for pages in writes.chunk_by(|a, b| a.object == b.object) {
            if let Some(first) = pages.first() {
                objects.push((self.home.objects.get(first.object)?, first.page.len()));
            }
        }
        if self.protection != PageProtection::Journal {
            self.settle(writer)?;
        }
        for (object, len) in objects {
            let is_other = |contents: &Contents| contents.page_len(object.id) != Some(len as u32);
            if writer.ring.holds(object.id) && is_other(writer.ring.contents()) {
                self.forget(writer, object.id)?;
            }
        }
        match self.protection {
            PageProtection::Atomic => self.write_untorn(writer, &writes),
            PageProtection::Journal | PageProtection::Doublewrite => self.write_ring(writer, &writes),
        }
    }

    /// Writes a sorted batch to the ring and, but for mode `journal`, home.
    pub(super) fn write_ring(
        &self,
        writer: &mut Writer,
        writes: &[PageWrite<'_>],
    ) -> Result<(), PageStoreError> {
        let mut rest = writes;
        // Images in the ring that are not yet synced.
        let mut appended = 0;
        while let Some(count) = next_group(rest.get(appended..).unwrap_or_default(), &writer.ring) {
            let (done, ahead) = rest.split_at(appended);
            let group = ahead.get(..count).unwrap_or_default();
            let len = group_len(group.iter().map(|write| write.page.len() as u64).sum());
            if writer.ring.free_bytes() < len {
                self.commit(writer, done)?;
                (rest, appended) = (ahead, 0);
                self.make_room(writer, len)?;
            }
            self.append(writer, |ring| ring.append(group))?;
            appended += count;
        }
        self.commit(writer, rest)
    }

    fn append(
        &self,
        writer: &mut Writer,
        append: impl FnOnce(&mut JournalRing) -> Result<u64, PageStoreError>,
    ) -> Result<(), PageStoreError> {
        let written = append(&mut writer.ring).inspect_err(|_| writer.ring.abandon())?;
        add(&self.home.counters.bytes_written_journal, written);
        Ok(())
    }

    /// Makes what was appended durable and pending, and brings it home unless that may wait.
    fn commit(&self, writer: &mut Writer, writes: &[PageWrite<'_>]) -> Result<(), PageStoreError> {
        if writes.is_empty() {
            return Ok(());
        }
        add(&self.home.counters.syncs, 1);
        let from = writer.ring.sync()?;
        let mut replaced = 0;
        let origin = self.origin.load(Ordering::Acquire);
        {
            let mut pending = self.pending.write();
            for (at, entry) in writer.ring.contents().groups_from(from).flat_map(|group| group.entries()) {
                let image = ImageLocation { at, len: entry.len, crc: entry.crc };
                replaced += u64::from(pending.insert(entry.object, entry.page_no, image, origin));
            }
            self.pending_pages.store(pending.len(), Ordering::Release);
        }
        self.live_bytes.store(writer.ring.live_bytes(), Ordering::Relaxed);
        add(&self.home.counters.images_superseded, replaced);
        add(&self.home.counters.pages_written, writes.len() as u64);
        if self.protection != PageProtection::Journal {
            self.home.write(&mut writer.scratch, writes)?;
            // Nothing else was pending.
            *self.pending.write() = Default::default();
            self.pending_pages.store(0, Ordering::Release);
        }
        Ok(())
    }

    /// Frees at least `len` bytes of the ring. Everything in it is synced.
    fn make_room(&self, writer: &mut Writer, len: u64) -> Result<(), PageStoreError> {
        let ring = &writer.ring;
        if self.pending_pages.load(Ordering::Acquire) == 0 {
            return self.move_tail(writer, writer.ring.head());
        }
        let part = (ring.len_bytes() / DESTAGED_PART).min(MAX_DESTAGED);
        let goal = ring.tail() + part.max(len.saturating_sub(ring.free_bytes()));
        let enough = |end: &u64| *end >= goal;
        let tail = ring.contents().groups_from(ring.tail()).map(|group| group.end).find(enough);
        self.destage(writer, tail.unwrap_or(ring.head()))
    }

    /// Moves the tail to `tail`, after pages whose newest image is before that went home.
    pub(super) fn destage(&self, writer: &mut Writer, tail: u64) -> Result<(), PageStoreError> {
        let mut pages = Vec::new();
        {
            let pending = self.pending.read();
            let groups = writer.ring.contents().groups_from(writer.ring.tail());
            for (at, entry) in groups.take_while(|group| group.at < tail).flat_map(|group| group.entries()) {
                let image = pending.image(entry.object, entry.page_no).filter(|image| image.at == at);
                pages.extend(image.map(|image| (entry.object, entry.page_no, image)));
            }
        }
        pages.sort_unstable_by_key(|(object, page_no, _)| (*object, *page_no));
        #[cfg(test)]
        if super::planted::is_planted(super::planted::Bug::TailBeforeHome) {
            self.move_tail(writer, tail)?;
        }
        self.bring_home(writer, &pages)?;
        self.move_tail(writer, tail)
    }

    fn move_tail(&self, writer: &mut Writer, tail: u64) -> Result<(), PageStoreError> {
        add(&self.home.counters.syncs, 1);
        writer.ring.set_tail(tail)?;
        self.live_bytes.store(writer.ring.live_bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// Writes pending pages home, durably. They are not pending any more.
    fn bring_home(
        &self,
        writer: &mut Writer,
        pages: &[(ObjectId, u32, ImageLocation)],
    ) -> Result<(), PageStoreError> {
        if pages.is_empty() {
            return Ok(());
        }
        let images = RingImages::new(&self.home, &self.reader, pages);
        self.home.write(&mut writer.scratch, &images).map_err(fatal_in_ring)?;
        // The file is the only copy soon.
        self.record_ends(writer)?;
        let mut pending = self.pending.write();
        for (object, page_no, _) in pages {
            pending.remove(*object, *page_no);
        }
        self.pending_pages.store(pending.len(), Ordering::Release);
        Ok(())
    }

    /// Brings all pending pages home.
    pub(super) fn settle(&self, writer: &mut Writer) -> Result<(), PageStoreError> {
        if self.pending_pages.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let pages = self.pending.read().all();
        self.bring_home(writer, &pages)
    }

    /// Brings pending pages home whose origin is before `end`, the oldest ones, as many as one destaging does. True: all of
    /// them. If no others are pending, none is after a restart either. Without room for some objects, those of the others
    /// go home all the same.
    pub(super) fn settle_before(&self, writer: &mut Writer, end: u64) -> Result<bool, PageStoreError> {
        self.check_poison()?;
        let pages = self.pending.read().oldest(end, MAX_DESTAGED);
        match self.bring_home(writer, &pages) {
            Err(PageStoreError::NoSpace { .. }) => {
                let mut failure = None;
                for of_object in pages.chunk_by(|a, b| a.0 == b.0) {
                    match self.bring_home(writer, of_object) {
                        Err(error @ PageStoreError::NoSpace { .. }) => failure = Some(error),
                        done => done?,
                    }
                }
                failure.map_or(Ok(()), Err)
            }
            done => done,
        }?;
        let oldest = self.pending.read().oldest_origin();
        if oldest.is_none() {
            self.empty_ring(writer)?;
        }
        Ok(oldest.is_none_or(|oldest| oldest >= end))
    }

    /// Brings the pending pages of an object home.
    pub(super) fn settle_object(&self, writer: &mut Writer, object: ObjectId) -> Result<(), PageStoreError> {
        self.check_poison()?;
        let pages = self.pending.read().of_object(object);
        self.bring_home(writer, &pages)
    }

    /// Makes sure that no image of an object that is about to change in another way comes back after a crash.
    pub(super) fn forget(&self, writer: &mut Writer, object: ObjectId) -> Result<(), PageStoreError> {
        self.check_poison()?;
        if !writer.ring.holds(object) {
            writer.ring.object_changed(object);
            return Ok(());
        }
        self.settle_object(writer, object)?;
        #[cfg(test)]
        if super::planted::is_planted(super::planted::Bug::NothingForgotten) {
            return Ok(());
        }
        if writer.ring.free_bytes() < group_len(0) {
            self.make_room(writer, group_len(0))?;
        }
        self.append(writer, |ring| ring.append_forget(object))?;
        add(&self.home.counters.syncs, 1);
        writer.ring.sync()?;
        self.live_bytes.store(writer.ring.live_bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// Appends a group without images: that it says what was durable before it tells damage from a group that was
    /// under way. In the other modes what counts is at home.
    pub(super) fn write_seal(&self, writer: &mut Writer) -> Result<(), PageStoreError> {
        self.check_poison()?;
        if self.protection != PageProtection::Journal || writer.ring.live_bytes() == 0 {
            return Ok(());
        }
        if writer.ring.free_bytes() < group_len(0) {
            self.make_room(writer, group_len(0))?;
        }
        self.append(writer, JournalRing::append_seal)?;
        add(&self.home.counters.syncs, 1);
        writer.ring.sync()?;
        self.live_bytes.store(writer.ring.live_bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// The ring holds nothing that would come back after a crash. Nothing is pending.
    pub(super) fn empty_ring(&self, writer: &mut Writer) -> Result<(), PageStoreError> {
        if writer.ring.is_empty() {
            return Ok(());
        }
        self.move_tail(writer, writer.ring.head())
    }
}

/// If nothing can be read from the ring, no image can go home, so the ring gets no more room.
fn fatal_in_ring(error: PageStoreError) -> PageStoreError {
    match error {
        PageStoreError::Read { file, source, .. } => {
            PageStoreError::Io { action: "bring pages home from", file, source }
        }
        other => other,
    }
}

/// How many pages, from the first on, go in one group. `None`: there are none.
fn next_group(writes: &[PageWrite<'_>], ring: &JournalRing) -> Option<usize> {
    let mut image_bytes = 0;
    let fits = |write: &&PageWrite<'_>| {
        image_bytes += write.page.len() as u64;
        image_bytes <= ring.max_group_images()
    };
    let count = writes.iter().take(MAX_ENTRIES).take_while(fits).count();
    (!writes.is_empty()).then_some(count.max(1))
}
