//! Seeded histories on a simulated disk, in every mode of protection and with both lengths of torn sectors.
//!
//! Here: the model of what a store may hold, and how histories are run. The tests are in the modules below.

use std::collections::BTreeMap;

use fastrand::Rng;
use redoubt_storage::sim::SimDisk;
use redoubt_storage::{BudgetDir, FileBudget};

use super::options::MIN_JOURNAL_LEN;
use super::ring::JOURNAL_NAME;
use super::*;

mod failures;
mod growth;
mod lengths;
mod lost;
mod lost_slowly;
mod power_cuts;
mod retained;
mod rings;

/// Object, page, version and image of a page write.
type Versioned = (u32, u32, u32, Vec<u8>);

const PAGE: usize = 2048;
/// Stands for a page that was written without protection: any content is right.
const ANYTHING: u32 = u32::MAX;
const MODES: [PageProtection; 3] =
    [PageProtection::Atomic, PageProtection::Journal, PageProtection::Doublewrite];

/// `count` seeds from `first` on; more if `REDOUBT_CRASH_ROUNDS` says how many times as many.
fn seeds(first: u64, count: u64) -> std::ops::Range<u64> {
    first..first + count * redoubt_test_support::setting("REDOUBT_CRASH_ROUNDS", 1)
}

/// How a store is set up, and on what disk.
#[derive(Clone, Copy, Debug)]
struct Setup {
    mode: PageProtection,
    sector_len: usize,
    /// Shortest untorn write that the disk offers.
    untorn_len: u64,
    journal_len_bytes: u64,
    /// The journal is in a directory of its own.
    is_apart: bool,
    /// Files that may be open at once. `None`: the store alone limits them.
    open_files: Option<usize>,
}

impl Setup {
    fn new(mode: PageProtection, sector_len: usize) -> Self {
        let untorn_len = sector_len as u64;
        Self {
            mode,
            sector_len,
            untorn_len,
            journal_len_bytes: MIN_JOURNAL_LEN,
            is_apart: false,
            open_files: None,
        }
    }

    /// Every mode with every length of sector.
    fn all() -> impl Iterator<Item = Self> {
        MODES.into_iter().flat_map(|mode| [512, 4096].map(|sector_len| Self::new(mode, sector_len)))
    }

    fn disk(&self, seed: u64) -> SimDisk {
        let disk = SimDisk::new(seed);
        disk.set_sector_len_bytes(self.sector_len);
        disk.set_untorn_limits(Some(UntornLimits { min_len_bytes: self.untorn_len, max_len_bytes: 65536 }));
        disk
    }

    fn open(&self, disk: &SimDisk) -> Result<FilePageStore, PageStoreError> {
        let options = FilePageStoreOptions {
            protection: Some(self.mode),
            journal_len_bytes: self.journal_len_bytes,
            max_open_files: 2,
            ..FilePageStoreOptions::default()
        };
        let budget = self.open_files.map(FileBudget::new);
        let within = |dir: Arc<dyn StorageDir>| -> Arc<dyn StorageDir> {
            match &budget {
                Some(budget) => Arc::new(BudgetDir::new(dir, budget)),
                None => dir,
            }
        };
        let journal = self.is_apart.then(|| within(Arc::new(disk.subdirectory("journal"))));
        FilePageStore::open_on(within(Arc::new(disk.clone())), journal, options)
    }

    /// A store with one object of eight pages of version 1.
    fn prepared(&self, disk: &SimDisk) -> FilePageStore {
        let store = self.open(disk).unwrap();
        store.create(ObjectId(1)).unwrap();
        write_versions(&store, 8, 1).unwrap();
        store
    }
}

/// Writes pages 0 to `pages` of object 1 in one batch.
fn write_versions(store: &FilePageStore, pages: u32, version: u32) -> Result<(), PageStoreError> {
    let page = image(version);
    let writes: Vec<_> =
        (0..pages).map(|page_no| PageWrite { object: ObjectId(1), page_no, page: &page }).collect();
    store.write_batch(&writes)
}

/// Versions of the first 12 pages of object 1.
fn versions(store: &FilePageStore) -> Vec<u32> {
    let mut page = vec![0; PAGE];
    let read = |page_no| {
        store.read_page(ObjectId(1), page_no, &mut page).unwrap();
        version_of(&page, "read")
    };
    (0..12).map(read).collect()
}

/// A page that shows of each sector which version it is from.
fn image(version: u32) -> Vec<u8> {
    version.to_le_bytes().repeat(PAGE / 4)
}

fn version_of(page: &[u8], context: &str) -> u32 {
    let version = u32::from_le_bytes(page[..4].try_into().unwrap());
    assert!(page == image(version), "{context}: torn page");
    version
}

/// Allowed content of a store: for each page the version that is durable and those that may be there instead.
#[derive(Default)]
struct Model {
    objects: BTreeMap<u32, BTreeMap<u32, Vec<u32>>>,
    /// An object that is being created or removed.
    in_doubt: Option<u32>,
    next_version: u32,
    /// For each version the page it is of, and for each object the last version before it was made or changed in
    /// another way than by batches.
    pages_of_versions: BTreeMap<u32, (u32, u32)>,
    changed_after: BTreeMap<u32, u32>,
}

impl Model {
    /// Every page is whole and of a version that it may have; from then on, of the version it has.
    fn check(&mut self, store: &FilePageStore, context: &str) {
        self.check_objects(store, context);
        let pages = self.check_pages(reader(store), context);
        for (object, page_no, version) in pages {
            self.objects.get_mut(&object).unwrap().insert(page_no, vec![version]);
        }
        self.check_retained(store, context);
    }

    /// Like [`Model::check`], when a crash may still bring other versions.
    fn check_now(&mut self, store: &FilePageStore, context: &str) {
        let (objects, in_doubt) = (self.objects.clone(), self.in_doubt);
        self.check_objects(store, context);
        self.check_pages(reader(store), context);
        self.check_retained(store, context);
        (self.objects, self.in_doubt) = (objects, in_doubt);
    }

    fn check_objects(&mut self, store: &FilePageStore, context: &str) {
        let mut found: Vec<u32> = store.objects().unwrap().iter().map(|object| object.0).collect();
        if let Some(object) = self.in_doubt.take() {
            if found.contains(&object) {
                self.objects.entry(object).or_default();
            } else {
                self.objects.remove(&object);
            }
        }
        let known: Vec<u32> = self.objects.keys().copied().collect();
        found.sort_unstable();
        assert_eq!(found, known, "{context}");
    }

    /// Checks the pages; returns the version of each.
    fn check_pages(&self, read: impl Fn(u32, u32) -> Vec<u8>, context: &str) -> Vec<(u32, u32, u32)> {
        let mut found = Vec::new();
        for (&object, pages) in &self.objects {
            for page_no in 0..8 {
                let page = read(object, page_no);
                let allowed = pages.get(&page_no).map_or(&[0][..], |versions| versions);
                if allowed.contains(&ANYTHING) {
                    continue;
                }
                let context = format!("{context}: object {object} page {page_no}");
                let version = version_of(&page, &context);
                assert!(allowed.contains(&version), "{context}: {version}, not of {allowed:?}");
                found.push((object, page_no, version));
            }
        }
        found
    }

    /// Expected content of the files when nothing is pending.
    fn check_files(&self, disk: &SimDisk, context: &str) {
        let read = |object, page_no: u32| {
            let mut content = disk.content(&objects::file_name(ObjectId(object)));
            content.resize(content.len().max((page_no as usize + 1) * PAGE), 0);
            content[page_no as usize * PAGE..][..PAGE].to_vec()
        };
        self.check_pages(read, &format!("{context}: in files"));
    }

    /// Images that the journal offers for repairs are whole, and of the page as it is since it was made.
    fn check_retained(&self, store: &FilePageStore, context: &str) {
        for &object in self.objects.keys() {
            for page_no in [0, 5] {
                for image in store.retained_images(ObjectId(object), page_no, PAGE as u32).unwrap() {
                    let version = version_of(&image.page, &format!("{context}: retained"));
                    assert_eq!(self.pages_of_versions.get(&version), Some(&(object, page_no)), "{context}");
                    let changed_after = self.changed_after.get(&object).copied().unwrap_or_default();
                    assert!(version > changed_after, "{context}: retained {version} of object {object}");
                }
            }
        }
    }

    fn new_version(&mut self, object: u32, page_no: u32) -> u32 {
        self.next_version += 1;
        self.pages_of_versions.insert(self.next_version, (object, page_no));
        self.next_version
    }

    /// A random batch; its versions become possible.
    fn batch(&mut self, rng: &mut Rng) -> Vec<Versioned> {
        let objects: Vec<u32> = self.objects.keys().copied().collect();
        let mut batch = Vec::new();
        for _ in 0..rng.usize(1..12) {
            let Some(&object) = objects.get(rng.usize(..objects.len().max(1))) else { break };
            let page_no = rng.u32(..8);
            let version = self.new_version(object, page_no);
            let allowed = self.objects.get_mut(&object).unwrap().entry(page_no).or_insert_with(|| vec![0]);
            allowed.push(version);
            batch.push((object, page_no, version, image(version)));
        }
        batch
    }

    fn settle(&mut self, batch: &[Versioned]) {
        for (object, page_no, version, _) in batch {
            self.objects.get_mut(object).unwrap().insert(*page_no, vec![*version]);
        }
    }

    /// One random step of a history.
    fn step(&mut self, store: &FilePageStore, rng: &mut Rng) -> Result<(), PageStoreError> {
        let object = rng.u32(1..4);
        let is_there = self.objects.contains_key(&object);
        match rng.u8(..16) {
            0 | 1 => {
                self.in_doubt = (!is_there).then_some(object);
                store.create(ObjectId(object))?;
                self.in_doubt = None;
                self.objects.entry(object).or_default();
                if !is_there {
                    self.changed_after.insert(object, self.next_version);
                }
            }
            2 => {
                self.in_doubt = is_there.then_some(object);
                store.remove(ObjectId(object))?;
                self.in_doubt = None;
                self.objects.remove(&object);
            }
            3 if is_there => self.cut(store, object)?,
            4 if is_there => self.write_raw(store, object, rng.u32(..8))?,
            // The whole object is read as for an export: what was pending goes home.
            5 if is_there => self.read_raw(store, object)?,
            6 if is_there => {
                let len = store.len_bytes(ObjectId(object))?.max(rng.u64(4..10) * PAGE as u64);
                store.set_len(ObjectId(object), len)?;
                assert_eq!(store.len_bytes(ObjectId(object))?, len);
            }
            _ => {
                let batch = self.batch(rng);
                store.write_batch(&writes(&batch))?;
                self.settle(&batch);
                if rng.bool() {
                    store.seal()?;
                }
            }
        }
        Ok(())
    }

    fn cut(&mut self, store: &FilePageStore, object: u32) -> Result<(), PageStoreError> {
        let pages = self.objects.get_mut(&object).unwrap();
        // Cutting takes away pages for good.
        for page_no in 4..8 {
            pages.entry(page_no).or_insert_with(|| vec![0]).push(0);
        }
        store.set_len(ObjectId(object), 4 * PAGE as u64)?;
        self.objects.get_mut(&object).unwrap().split_off(&4);
        Ok(())
    }

    fn write_raw(&mut self, store: &FilePageStore, object: u32, page_no: u32) -> Result<(), PageStoreError> {
        let version = self.new_version(object, page_no);
        self.objects.get_mut(&object).unwrap().insert(page_no, vec![ANYTHING]);
        store.write_raw(ObjectId(object), u64::from(page_no) * PAGE as u64, &image(version))?;
        store.sync_object(ObjectId(object))?;
        self.objects.get_mut(&object).unwrap().insert(page_no, vec![version]);
        self.changed_after.insert(object, version);
        Ok(())
    }

    fn read_raw(&mut self, store: &FilePageStore, object: u32) -> Result<(), PageStoreError> {
        let mut content = vec![0; 8 * PAGE];
        store.read_raw(ObjectId(object), 0, &mut content)?;
        let pages = self.objects.get_mut(&object).unwrap();
        for (page_no, page) in (0..).zip(content.chunks_exact(PAGE)) {
            let allowed = pages.entry(page_no).or_insert_with(|| vec![0]);
            if !allowed.contains(&ANYTHING) {
                let version = version_of(page, "raw");
                assert!(allowed.contains(&version), "raw: {version}, not of {allowed:?}");
            }
        }
        Ok(())
    }
}

fn reader(store: &FilePageStore) -> impl Fn(u32, u32) -> Vec<u8> {
    |object, page_no| {
        let mut page = vec![0; PAGE];
        store.read_page(ObjectId(object), page_no, &mut page).unwrap();
        page
    }
}

fn writes(batch: &[Versioned]) -> Vec<PageWrite<'_>> {
    batch
        .iter()
        .map(|(object, page_no, _, page)| PageWrite { object: ObjectId(*object), page_no: *page_no, page })
        .collect()
}

fn run_history(
    store: &FilePageStore,
    model: &mut Model,
    rng: &mut Rng,
    steps: usize,
) -> Result<(), PageStoreError> {
    for _ in 0..steps {
        model.step(store, rng)?;
    }
    Ok(())
}

/// An interrupted `set_len` is durable only after this.
fn sync_objects(store: &FilePageStore) -> Result<(), PageStoreError> {
    store.objects()?.into_iter().try_for_each(|object| store.sync_object(object))
}
