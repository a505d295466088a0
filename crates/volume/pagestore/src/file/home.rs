//! Writing pages to the files they belong to.
//!
//! Pages come in (object, page) order; neighbours of the same heat go in one write of at most [`RUN_LEN`] bytes, in the
//! stream of hot or cold pages (see [`super::heat`]), and every file is synced. Objects without a file were removed;
//! their pages are left out.
//!
//! A write in a run may be torn by a crash and, if it fails, for readers too: before it starts, its pages are durable
//! in the ring and pending, so that no reader reads them here.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redoubt_storage::{StorageDir, StorageFile, Stream, WriteOptions};

use super::heat::Heat;
use super::objects::{Object, Objects};
use super::ring::{ImageLocation, RingReader};
use crate::error::PageStoreError;
use crate::{ObjectId, PageStoreStats, PageWrite};

/// The most bytes that one write home has, unless a page is longer.
pub(super) const RUN_LEN: usize = 256 << 10;

/// Counters since the store was opened.
#[derive(Default)]
pub(super) struct Counters {
    pub pages_written: AtomicU64,
    pub pages_written_home: AtomicU64,
    pub home_writes: AtomicU64,
    pub bytes_written_home: AtomicU64,
    pub bytes_written_journal: AtomicU64,
    pub images_superseded: AtomicU64,
    pub syncs: AtomicU64,
    pub pages_read: AtomicU64,
    pub pages_replayed: AtomicU64,
}

pub(super) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Counters {
    pub fn stats(&self) -> PageStoreStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PageStoreStats {
            pages_written: get(&self.pages_written),
            pages_written_home: get(&self.pages_written_home),
            home_writes: get(&self.home_writes),
            bytes_written_home: get(&self.bytes_written_home),
            bytes_written_journal: get(&self.bytes_written_journal),
            images_superseded: get(&self.images_superseded),
            syncs: get(&self.syncs),
            pages_read: get(&self.pages_read),
            pages_replayed: get(&self.pages_replayed),
        }
    }
}

/// Pages to be written home, in (object, page) order.
pub(super) trait Images {
    /// Object, page number and length in bytes of a page.
    fn page(&self, n: usize) -> Option<(ObjectId, u32, usize)>;
    /// The bytes of some pages, in `buffer` if they have to be put together.
    fn bytes<'b>(&'b self, pages: Range<usize>, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], PageStoreError>;
}

impl Images for [PageWrite<'_>] {
    fn page(&self, n: usize) -> Option<(ObjectId, u32, usize)> {
        self.get(n).map(|write| (write.object, write.page_no, write.page.len()))
    }

    fn bytes<'b>(&'b self, pages: Range<usize>, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], PageStoreError> {
        let pages = self.get(pages).unwrap_or_default();
        if let [single] = pages {
            return Ok(single.page);
        }
        buffer.clear();
        for write in pages {
            buffer.extend_from_slice(write.page);
        }
        Ok(buffer)
    }
}

/// Images that are read back from the ring.
pub(super) struct RingImages<'r> {
    reader: &'r RingReader,
    pages: &'r [(ObjectId, u32, ImageLocation)],
}

impl<'r> RingImages<'r> {
    pub fn new(reader: &'r RingReader, pages: &'r [(ObjectId, u32, ImageLocation)]) -> Self {
        Self { reader, pages }
    }
}

impl Images for RingImages<'_> {
    fn page(&self, n: usize) -> Option<(ObjectId, u32, usize)> {
        self.pages.get(n).map(|(object, page_no, location)| (*object, *page_no, location.len as usize))
    }

    fn bytes<'b>(&'b self, pages: Range<usize>, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], PageStoreError> {
        let pages = self.pages.get(pages).unwrap_or_default();
        buffer.clear();
        // Neighbours that came in one batch are neighbours in the ring.
        for together in pages.chunk_by(|(_, _, a), (_, _, b)| a.at + u64::from(a.len) == b.at) {
            let Some((_, _, first)) = together.first() else { continue };
            let from = buffer.len();
            buffer.resize(
                from + together.iter().map(|(_, _, location)| location.len as usize).sum::<usize>(),
                0,
            );
            let mut rest = buffer.get_mut(from..).unwrap_or_default();
            self.reader.read(first.at, rest)?;
            for (object, page_no, location) in together {
                let (image, after) = rest.split_at_mut(location.len as usize);
                if crc32c::crc32c(image) != location.crc {
                    return Err(self.reader.damaged(*object, *page_no, *location));
                }
                rest = after;
            }
        }
        Ok(buffer)
    }
}

/// Further state of the writer of pages home.
#[derive(Default)]
pub(super) struct Scratch {
    pub heat: Heat,
    pub run: Vec<u8>,
}

impl Scratch {
    pub fn stream(&mut self, object: ObjectId, page_no: u32) -> Stream {
        if self.heat.note(object, page_no) { Stream::HotPages } else { Stream::ColdPages }
    }
}

/// A file with bytes that no sync has covered.
type Touched = Vec<(Arc<Object>, Arc<dyn StorageFile>)>;

/// The object files.
pub(super) struct Home {
    pub dir: Arc<dyn StorageDir>,
    pub objects: Objects,
    pub counters: Counters,
    max_open_files: usize,
}

impl Home {
    pub fn new(dir: Arc<dyn StorageDir>, ids: Vec<ObjectId>, max_open_files: usize) -> Self {
        let objects = Objects::new(ids, max_open_files);
        Self { dir, objects, counters: Counters::default(), max_open_files }
    }

    pub fn file(&self, object: &Arc<Object>) -> Result<Arc<dyn StorageFile>, PageStoreError> {
        self.objects.file(&*self.dir, object)
    }

    pub fn sync_file(&self, file: &dyn StorageFile, name: &str) -> Result<(), PageStoreError> {
        add(&self.counters.syncs, 1);
        file.sync_data().map_err(PageStoreError::io("sync", name))
    }

    pub fn sync_names(&self, name: &str) -> Result<(), PageStoreError> {
        add(&self.counters.syncs, 1);
        self.dir.sync().map_err(PageStoreError::io("sync the directory of", name))
    }

    /// Ensures that every file's content is that of the disk. After a failed sync in an earlier process, memory may
    /// hold pages that the disk does not. The ring would bring them again, but not in mode `atomic`.
    pub fn reload_from_disk(&self) -> Result<(), PageStoreError> {
        self.distrust_memory();
        for id in self.objects.ids() {
            self.file(&self.objects.get(id)?)?;
        }
        Ok(())
    }

    /// The same for each file when it is first opened.
    pub fn distrust_memory(&self) {
        self.objects.distrust_memory();
    }

    /// Writes pages to their files and syncs those.
    pub fn write<I: Images + ?Sized>(&self, scratch: &mut Scratch, images: &I) -> Result<(), PageStoreError> {
        let mut touched = Touched::new();
        let mut at = 0;
        let mut next = images.page(at).map(|page| (page, scratch.stream(page.0, page.1)));
        while let Some(((id, first, len), stream)) = next {
            let start = at;
            loop {
                at += 1;
                next = images.page(at).map(|page| (page, scratch.stream(page.0, page.1)));
                let is_neighbour = next.is_some_and(|((object, page_no, _), other)| {
                    let distance = at - start;
                    object == id
                        && other == stream
                        && u64::from(first) + distance as u64 == u64::from(page_no)
                        && (distance + 1) * len <= RUN_LEN
                });
                if !is_neighbour {
                    break;
                }
            }
            let Ok(object) = self.objects.get(id) else { continue };
            let file = self.touch(&mut touched, &object)?;
            let bytes = images.bytes(start..at, &mut scratch.run)?;
            self.write_run(&object, &*file, u64::from(first) * len as u64, bytes, stream)?;
            add(&self.counters.pages_written_home, (at - start) as u64);
        }
        self.sync_touched(&mut touched)
    }

    /// The object's file, noted for a sync. Not more files are kept open for that than the limit says.
    pub fn touch(
        &self,
        touched: &mut Touched,
        object: &Arc<Object>,
    ) -> Result<Arc<dyn StorageFile>, PageStoreError> {
        if let Some((_, file)) = touched.last().filter(|(last, _)| last.id == object.id) {
            return Ok(file.clone());
        }
        if touched.len() >= self.max_open_files {
            self.sync_touched(touched)?;
        }
        let file = self.file(object)?;
        touched.push((object.clone(), file.clone()));
        Ok(file)
    }

    pub fn sync_touched(&self, touched: &mut Touched) -> Result<(), PageStoreError> {
        let (objects, files): (Vec<_>, Vec<_>) = touched.drain(..).unzip();
        add(&self.counters.syncs, files.len() as u64);
        self.dir.sync_files(&files).map_err(|(number, source)| {
            let name = objects.get(number).map_or("a page file", |object| &object.name);
            PageStoreError::io("sync", name)(source)
        })
    }

    fn write_run(
        &self,
        object: &Object,
        file: &dyn StorageFile,
        at: u64,
        bytes: &[u8],
        stream: Stream,
    ) -> Result<(), PageStoreError> {
        let _no_reader = object.io.write();
        let options = WriteOptions { stream, untorn: false };
        file.write_with(at, bytes, options)
            .map_err(PageStoreError::io_or_no_space("write pages to", &object.name))?;
        file.will_sync(at, bytes.len() as u64);
        add(&self.counters.home_writes, 1);
        add(&self.counters.bytes_written_home, bytes.len() as u64);
        Ok(())
    }
}
