//! Mode `atomic`: every page goes to its place in one write that a crash keeps whole or not at all.
//!
//! Pages come in (object, page) order and are written one by one, since only lengths that are powers of two, at
//! multiples of themselves, can be untorn; then the files are synced. Three kinds of page need more:
//! * Shorter than the shortest untorn write: the block around it is read, changed and written, with whatever other
//!   pages of the batch lie in it.
//! * Longer than the longest, or in a block that reaches past the end of the file: through the ring and home, as in
//!   mode `doublewrite`.
//! * Across the end of a file whose length is not a multiple of the page length: the file is extended first, durably,
//!   or a crash could keep the page and not the length, which would cut it.
//!
//! Invariant: the ring is empty, durably, before a page goes home in this way. Otherwise an older image in it could
//! come back after a crash.

use std::io;

use redoubt_storage::{StorageFile, UntornLimits, WriteOptions};

use super::FilePageStore;
use super::growth::Ends;
use super::home::{Scratch, add};
use super::objects::Object;
use super::write::Writer;
use crate::PageWrite;
use crate::error::PageStoreError;

impl FilePageStore {
    /// Writes a sorted batch. Nothing is pending.
    pub(super) fn write_untorn(
        &self,
        writer: &mut Writer,
        writes: &[PageWrite<'_>],
    ) -> Result<(), PageStoreError> {
        let limits = self.untorn.ok_or_else(not_offered)?;
        let mut direct = Vec::new();
        let mut through_ring = Vec::new();
        for pages in writes.chunk_by(|a, b| a.object == b.object) {
            let Some(first) = pages.first() else { continue };
            let file_len = self.len_of_file(first)?;
            for write in pages {
                match place(write, limits, file_len) {
                    Some(_) => direct.push(*write),
                    None => through_ring.push(*write),
                }
            }
        }
        if !through_ring.is_empty() {
            self.write_ring(writer, &through_ring)?;
        }
        self.empty_ring(writer)?;
        let mut touched = Vec::new();
        for pages in direct.chunk_by(|a, b| a.object == b.object) {
            let Some(first) = pages.first() else { continue };
            let object = self.home.objects.get(first.object)?;
            let file = self.home.touch(&mut touched, &object)?;
            self.write_object(&mut writer.scratch, &object, &*file, pages, limits)?;
        }
        self.home.sync_touched(&mut touched)?;
        self.home.growth.note(ends_of(&direct));
        add(&self.home.counters.pages_written, direct.len() as u64);
        Ok(())
    }

    fn len_of_file(&self, write: &PageWrite<'_>) -> Result<u64, PageStoreError> {
        let object = self.home.objects.get(write.object)?;
        let file = self.home.file(&object)?;
        file.len_bytes().map_err(PageStoreError::io_or_no_space("get the length of", &object.name))
    }

    fn write_object(
        &self,
        scratch: &mut Scratch,
        object: &Object,
        file: &dyn StorageFile,
        pages: &[PageWrite<'_>],
        limits: UntornLimits,
    ) -> Result<(), PageStoreError> {
        let error = || PageStoreError::io_or_no_space("write untorn pages to", &object.name);
        let block_of = |write: &PageWrite<'_>| offset(write) / limits.min_len_bytes;
        let is_short = |write: &PageWrite<'_>| (write.page.len() as u64) < limits.min_len_bytes;
        for together in pages.chunk_by(|a, b| is_short(a) && block_of(a) == block_of(b)) {
            let Some(first) = together.first() else { continue };
            let options = WriteOptions { stream: scratch.stream(first.object, first.page_no), untorn: true };
            let at = if is_short(first) { block_of(first) * limits.min_len_bytes } else { offset(first) };
            let end = at + limits.min_len_bytes.max(first.page.len() as u64);
            let _no_reader = object.begin_write(at..end);
            let written = if is_short(first) {
                let block = overlaid(file, at, limits.min_len_bytes, together, &mut scratch.run);
                let block = block.map_err(PageStoreError::io_or_no_space("read a block of", &object.name))?;
                file.write_with(at, block, options).map_err(error())?;
                block.len()
            } else {
                self.reach_page_end(object, file, first)?;
                file.write_with(at, first.page, options).map_err(error())?;
                first.page.len()
            };
            add(&self.home.counters.home_writes, 1);
            add(&self.home.counters.pages_written_home, together.len() as u64);
            add(&self.home.counters.bytes_written_home, written as u64);
        }
        Ok(())
    }

    /// Extends a file that ends inside the page.
    fn reach_page_end(
        &self,
        object: &Object,
        file: &dyn StorageFile,
        write: &PageWrite<'_>,
    ) -> Result<(), PageStoreError> {
        let len =
            file.len_bytes().map_err(PageStoreError::io_or_no_space("get the length of", &object.name))?;
        let end = offset(write) + write.page.len() as u64;
        if len <= offset(write) || len >= end {
            return Ok(());
        }
        file.set_len(end).map_err(PageStoreError::io_or_no_space("extend", &object.name))?;
        self.home.sync_file(file, &object.name)
    }
}

/// Ends of these pages in their files.
fn ends_of(writes: &[PageWrite<'_>]) -> Ends {
    let mut ends = Ends::new();
    for write in writes {
        let known = ends.entry(write.object).or_default();
        *known = (*known).max(offset(write) + write.page.len() as u64);
    }
    ends
}

fn not_offered() -> PageStoreError {
    PageStoreError::InvalidOption {
        option: "protection",
        reason: "atomic, but the directory offers no untorn writes".into(),
    }
}

fn offset(write: &PageWrite<'_>) -> u64 {
    u64::from(write.page_no) * write.page.len() as u64
}

/// Where the untorn write for a page begins. `None`: there is none that would do.
fn place(write: &PageWrite<'_>, limits: UntornLimits, file_len: u64) -> Option<u64> {
    let (at, len) = (offset(write), write.page.len() as u64);
    if len >= limits.min_len_bytes {
        return limits.allow(at, len).then_some(at);
    }
    let block = at - at % limits.min_len_bytes;
    (block + limits.min_len_bytes <= file_len).then_some(block)
}

/// The block of a file at `at` with pages put over it.
fn overlaid<'b>(
    file: &dyn StorageFile,
    at: u64,
    len: u64,
    pages: &[PageWrite<'_>],
    block: &'b mut Vec<u8>,
) -> io::Result<&'b [u8]> {
    block.clear();
    block.resize(len as usize, 0);
    if file.read_at(at, block)? != block.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    for write in pages {
        let from = (offset(write) - at) as usize;
        if let Some(place) = block.get_mut(from..from + write.page.len()) {
            place.copy_from_slice(write.page);
        }
    }
    Ok(block)
}
