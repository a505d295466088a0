//! Writing pages to the files they belong to.
//!
//! Pages come in (object, page) order; neighbours of the same heat go in one write of at most [`RUN_LEN`] bytes, in the
//! stream of hot or cold pages (see [`super::heat`]), and every file is synced. Objects without a file were removed;
//! their pages are left out.
//!
//! A write in a run may be torn by a crash and, if it fails, for readers too: before it starts, its pages are durable
//! in the ring and pending, so that no reader reads them here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use redoubt_storage::{StorageDir, StorageFile, Stream, WriteOptions, is_lost_content};

use super::found_lens::{self, Lens};
use super::growth::{Ends, Growth};
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

/// A byte that the checksums of all page formats cover.
const SPOILT_BYTE: usize = 64;

/// Ensures that a damaged image fails its page checksum at home. It may be a whole image of an earlier lap, whose
/// replacement the drive lost: nothing at home would tell that from the newest one.
fn spoil(image: &mut [u8]) {
    if let Some(byte) = image.get_mut(SPOILT_BYTE) {
        *byte = !*byte;
    }
}

/// Images that are read back from the ring. In place of a damaged one, the page that is at home goes there if it is this
/// very image: a restart brings images home once more. Otherwise the damaged one goes home as it is, but never as a page
/// that seems whole.
pub(super) struct RingImages<'r> {
    home: &'r Home,
    reader: &'r RingReader,
    pages: &'r [(ObjectId, u32, ImageLocation)],
}

impl<'r> RingImages<'r> {
    pub fn new(home: &'r Home, reader: &'r RingReader, pages: &'r [(ObjectId, u32, ImageLocation)]) -> Self {
        Self { home, reader, pages }
    }

    /// An image that was not whole when it was read with others.
    fn read_alone(
        &self,
        (object, page_no, location): (ObjectId, u32, ImageLocation),
        image: &mut [u8],
    ) -> Result<(), PageStoreError> {
        // Once more: the fault may have been one of the transfer.
        if self.reader.read_image_again(location, image)? {
            return Ok(());
        }
        let at_home = match self.home.objects.get(object) {
            Ok(object) => self.home.find_image(&object, page_no, location)?,
            Err(_) => None,
        };
        match at_home {
            Some(page) => image.copy_from_slice(&page),
            None => spoil(image),
        }
        Ok(())
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
            let is_read = match self.reader.read(first.at, rest) {
                Ok(()) => true,
                Err(error) if error.is_lost_content() => false,
                Err(error) => return Err(error),
            };
            for page in together {
                let location = page.2;
                let (image, after) = rest.split_at_mut(location.len as usize);
                if !is_read || crc32c::crc32c(image) != location.crc {
                    self.read_alone(*page, image)?;
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
    /// Lengths of files before pages of the journal were written to them.
    found_lens: OnceLock<Lens>,
    pub growth: Growth,
    /// Objects without a file that had pages in the journal when the store was opened.
    pub lost_images: OnceLock<BTreeSet<ObjectId>>,
    /// Names came or went since the directory was synced. Changes with the names locked.
    pub has_unsynced_names: AtomicBool,
    max_open_files: usize,
}

impl Home {
    pub fn new(dir: Arc<dyn StorageDir>, ids: Vec<ObjectId>, max_open_files: usize) -> Self {
        let objects = Objects::new(ids, max_open_files);
        let (counters, growth) = (Counters::default(), Growth::default());
        let (found_lens, lost_images) = (OnceLock::new(), OnceLock::new());
        let has_unsynced_names = AtomicBool::new(false);
        Self { dir, objects, counters, found_lens, growth, lost_images, has_unsynced_names, max_open_files }
    }

    pub fn file(&self, object: &Arc<Object>) -> Result<Arc<dyn StorageFile>, PageStoreError> {
        self.objects.file(&*self.dir, object)
    }

    /// Notes the lengths of the files of these pages, which are written home next when the store is opened. `earlier`: the
    /// lengths of an earlier opening, which the caller has not seen. Durable for files that become longer.
    pub fn note_lens(
        &self,
        pages: &[(ObjectId, u32, ImageLocation)],
        mut earlier: Lens,
    ) -> Result<(), PageStoreError> {
        let mut ends: BTreeMap<ObjectId, u64> = BTreeMap::new();
        for (object, page_no, image) in pages {
            let end = ends.entry(*object).or_default();
            *end = (*end).max((u64::from(*page_no) + 1) * u64::from(image.len));
        }
        let (mut lens, mut has_longer) = (Lens::default(), false);
        for (id, end) in ends {
            // Writing the pages will report what is wrong.
            let len_bytes = self.objects.get(id).and_then(|object| self.len_bytes(&object));
            let Ok(len_bytes) = len_bytes else { continue };
            lens.insert(id, len_bytes);
            if len_bytes < end && !earlier.contains_key(&id) {
                earlier.insert(id, len_bytes);
                has_longer = true;
            }
        }
        if has_longer {
            found_lens::store(&*self.dir, &earlier)?;
        }
        lens.extend(earlier);
        let _ = self.found_lens.set(lens);
        Ok(())
    }

    /// No page is written home, unless the lengths are noted. `earlier`: as for [`Home::note_lens`].
    pub fn keep_lens(&self, earlier: Lens) {
        let _ = self.found_lens.set(earlier);
    }

    /// Length of a file when the store was opened.
    pub fn found_len_bytes(&self, object: &Object) -> Result<u64, PageStoreError> {
        match self.found_lens.get().and_then(|lens| lens.get(&object.id)) {
            Some(len_bytes) => Ok(*len_bytes),
            None => self.len_bytes(object),
        }
    }

    /// Length of a file. Keeps it not open.
    pub fn len_bytes(&self, object: &Object) -> Result<u64, PageStoreError> {
        self.dir.len_bytes_of(&object.name).map_err(PageStoreError::read(&object.name, 0))
    }

    /// The page at home, if it is this image. If the object is written meanwhile, it may be that only afterwards.
    pub fn find_image(
        &self,
        object: &Arc<Object>,
        page_no: u32,
        image: ImageLocation,
    ) -> Result<Option<Vec<u8>>, PageStoreError> {
        let mut page = vec![0; image.len as usize];
        let at = u64::from(page_no) * u64::from(image.len);
        match self.file(object)?.read_at(at, &mut page) {
            Ok(_) => Ok((crc32c::crc32c(&page) == image.crc).then_some(page)),
            Err(error) if is_lost_content(&error) => Ok(None),
            Err(source) => Err(PageStoreError::read(&object.name, at)(source)),
        }
    }

    pub fn sync_file(&self, file: &dyn StorageFile, name: &str) -> Result<(), PageStoreError> {
        add(&self.counters.syncs, 1);
        file.sync_data().map_err(PageStoreError::io_or_no_descriptors("sync", name))
    }

    pub fn sync_names(&self, name: &str) -> Result<(), PageStoreError> {
        add(&self.counters.syncs, 1);
        self.has_unsynced_names.store(true, Ordering::Release);
        self.dir.sync().map_err(PageStoreError::io_or_no_descriptors("sync the directory of", name))?;
        self.has_unsynced_names.store(false, Ordering::Release);
        Ok(())
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
        let mut ends = Ends::new();
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
            let (known, end) =
                (ends.entry(id).or_default(), u64::from(first) * len as u64 + bytes.len() as u64);
            *known = (*known).max(end);
        }
        self.sync_touched(&mut touched)?;
        self.growth.note(ends);
        Ok(())
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
        let _no_reader = object.begin_write(at..at + bytes.len() as u64);
        let options = WriteOptions { stream, untorn: false };
        file.write_with(at, bytes, options)
            .map_err(PageStoreError::io_or_no_space("write pages to", &object.name))?;
        file.will_sync(at, bytes.len() as u64);
        add(&self.counters.home_writes, 1);
        add(&self.counters.bytes_written_home, bytes.len() as u64);
        Ok(())
    }
}
