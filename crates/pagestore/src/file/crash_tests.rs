//! Seeded histories on a simulated disk: power cuts at every operation, failing calls, a full disk.

use std::collections::BTreeMap;
use std::io;

use fastrand::Rng;
use redoubt_logdev::sim::{Fault, OpKind, SimDisk};

use super::*;
use crate::ErrorKind;

/// Object, page, version and image of a page write.
type Versioned = (u32, u32, u32, Vec<u8>);

const PAGE: usize = 2048;

fn open(disk: &SimDisk) -> Result<FilePageStore, PageStoreError> {
    let options = FilePageStoreOptions { journal_len_bytes: MIN_JOURNAL_LEN, max_open_files: 2 };
    FilePageStore::open_on(Arc::new(disk.clone()), options)
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

/// What a store may hold: for each page the version that is durable and those that may be there instead.
#[derive(Default)]
struct Model {
    objects: BTreeMap<u32, BTreeMap<u32, Vec<u32>>>,
    /// An object that is being created or removed.
    in_doubt: Option<u32>,
    next_version: u32,
}

impl Model {
    fn check(&mut self, store: &FilePageStore, context: &str) {
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
        for (&object, pages) in &mut self.objects {
            for page_no in 0..8 {
                let mut page = vec![0; PAGE];
                store.read_page(ObjectId(object), page_no, &mut page).unwrap();
                let context = format!("{context}: object {object} page {page_no}");
                let version = version_of(&page, &context);
                let allowed = pages.entry(page_no).or_insert_with(|| vec![0]);
                assert!(allowed.contains(&version), "{context}: {version}, not of {allowed:?}");
                *allowed = vec![version];
            }
        }
    }

    /// A random batch; its versions become possible.
    fn batch(&mut self, rng: &mut Rng) -> Vec<Versioned> {
        let objects: Vec<u32> = self.objects.keys().copied().collect();
        let mut batch = Vec::new();
        for _ in 0..rng.usize(1..12) {
            let Some(&object) = objects.get(rng.usize(..objects.len().max(1))) else { break };
            self.next_version += 1;
            let (page_no, version) = (rng.u32(..8), self.next_version);
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
        let object = rng.u32(1..4);
        match rng.u8(..10) {
            0 | 1 => {
                model.in_doubt = (!model.objects.contains_key(&object)).then_some(object);
                store.create(ObjectId(object))?;
                model.in_doubt = None;
                model.objects.entry(object).or_default();
            }
            2 => {
                model.in_doubt = model.objects.contains_key(&object).then_some(object);
                store.remove(ObjectId(object))?;
                model.in_doubt = None;
                model.objects.remove(&object);
            }
            3 => {
                let Some(pages) = model.objects.get_mut(&object) else { continue };
                // Cutting takes away pages for good.
                for page_no in 4..8 {
                    pages.entry(page_no).or_insert_with(|| vec![0]).push(0);
                }
                store.set_len(ObjectId(object), 4 * PAGE as u64)?;
                pages.split_off(&4);
            }
            _ => {
                let batch = model.batch(rng);
                store.write_batch(&writes(&batch))?;
                model.settle(&batch);
            }
        }
    }
    Ok(())
}

#[test]
fn no_power_cut_tears_loses_or_brings_back_pages() {
    let mut cuts = 0;
    for seed in 0..40_u64 {
        let mut ops = u64::MAX;
        let mut cut = 0;
        while cut < ops {
            let mut disk = SimDisk::new(seed + cut * 1000);
            disk.cut_power_at(cut);
            let mut model = Model::default();
            let mut rng = Rng::with_seed(seed);
            let done = open(&disk).and_then(|store| run_history(&store, &mut model, &mut rng, 12));
            if done.is_ok() && !disk.is_off() {
                ops = disk.ops_done();
            }
            for life in 0..4 {
                // Now and then only the process dies, and the system keeps what it wrote.
                disk = if rng.u8(..4) == 0 { disk.copy() } else { disk.after_power_cut() };
                let context = format!("seed {seed}, cut at {cut}, life {life}");
                if life < 3 {
                    disk.cut_power_at(rng.u64(..30));
                }
                match open(&disk) {
                    Ok(store) => {
                        // What `set_len` was doing when the process died is durable only after this.
                        let objects = store.objects().unwrap();
                        if objects.into_iter().any(|object| store.sync_object(object).is_err()) {
                            assert!(disk.is_off(), "{context}");
                            continue;
                        }
                        model.check(&store, &context);
                        let _ = run_history(&store, &mut model, &mut rng, 4);
                    }
                    Err(error) => assert!(disk.is_off(), "{context}: {error}"),
                }
            }
            cuts += 1;
            cut += 1;
        }
    }
    assert!(cuts > 1000, "{cuts}");
}

/// A store with one object of eight pages of version 1, and a batch that makes them version 2 and adds some.
fn prepared(disk: &SimDisk) -> (FilePageStore, Vec<Vec<u8>>) {
    let store = open(disk).unwrap();
    store.create(ObjectId(1)).unwrap();
    let old = image(1);
    let pages: Vec<_> =
        (0..8).map(|page_no| PageWrite { object: ObjectId(1), page_no, page: &old }).collect();
    store.write_batch(&pages).unwrap();
    (store, vec![image(2); 12])
}

fn batch(images: &[Vec<u8>]) -> Vec<PageWrite<'_>> {
    images.iter().zip(0..).map(|(page, page_no)| PageWrite { object: ObjectId(1), page_no, page }).collect()
}

fn versions(store: &FilePageStore) -> Vec<u32> {
    let mut page = vec![0; PAGE];
    let read = |page_no| {
        store.read_page(ObjectId(1), page_no, &mut page).unwrap();
        version_of(&page, "read")
    };
    (0..12).map(read).collect()
}

#[test]
fn a_batch_that_found_no_space_can_be_retried() {
    for seed in 0..30 {
        let disk = SimDisk::new(seed);
        let (store, images) = prepared(&disk);
        // Full in the middle of the write home, once or more, or while growing the file.
        let fault = Fault {
            kind: OpKind::Write,
            name: "00000001".into(),
            skip: 0,
            error: io::ErrorKind::StorageFull,
        };
        if seed % 2 == 0 {
            disk.inject(fault.clone());
            disk.inject(fault);
        } else {
            disk.set_capacity_bytes(Some(disk.used_bytes() + 3000));
        }
        for _ in 0..2 {
            let error = store.write_batch(&batch(&images)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
            // Nothing is torn for readers, nor after a crash.
            assert!(versions(&store).iter().all(|&version| version <= 2));
            let after = disk.after_power_cut();
            versions(&open(&after).unwrap());
        }
        disk.set_capacity_bytes(None);
        store.write_batch(&batch(&images)).unwrap();
        assert_eq!(versions(&store), [2; 12]);
        assert_eq!(versions(&open(&disk.after_power_cut()).unwrap()), [2; 12]);
        let mut raw = vec![0; PAGE * 12];
        assert_eq!(store.read_raw(ObjectId(1), 0, &mut raw).unwrap(), raw.len());
        assert!(raw == image(2).repeat(12));
    }
}

#[test]
fn an_object_removed_while_pages_wait_stays_removed() {
    let disk = SimDisk::new(1);
    let (store, images) = prepared(&disk);
    let error = io::ErrorKind::StorageFull;
    disk.inject(Fault { kind: OpKind::Write, name: "00000001".into(), skip: 0, error });
    store.write_batch(&batch(&images)).unwrap_err();
    store.remove(ObjectId(1)).unwrap();
    for disk in [disk.copy(), disk.after_power_cut()] {
        assert_eq!(open(&disk).unwrap().objects().unwrap(), []);
    }
    store.create(ObjectId(1)).unwrap();
    assert_eq!(versions(&store), [0; 12]);
    assert_eq!(versions(&open(&disk.after_power_cut()).unwrap()), [0; 12]);
}

#[test]
fn raw_bytes_are_not_undone_by_the_journal() {
    let disk = SimDisk::new(1);
    let (store, _) = prepared(&disk);
    store.write_raw(ObjectId(1), 0, &image(7)).unwrap();
    store.sync_object(ObjectId(1)).unwrap();
    let store = open(&disk.after_power_cut()).unwrap();
    assert_eq!(versions(&store)[..2], [7, 1]);
}

#[test]
fn after_a_failed_write_or_sync_no_change_is_taken_and_reads_stay_whole() {
    for (kind, name) in [
        (OpKind::Write, "00000001"),
        (OpKind::Sync, "00000001"),
        (OpKind::Write, "journal"),
        (OpKind::Sync, "journal"),
    ] {
        for seed in 0..20 {
            let disk = SimDisk::new(seed);
            let (store, images) = prepared(&disk);
            disk.inject(Fault { kind, name: name.into(), skip: 0, error: io::ErrorKind::InvalidData });
            let error = store.write_batch(&batch(&images)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Fatal);
            let poisoned = |result: Result<(), PageStoreError>| {
                assert!(matches!(result, Err(PageStoreError::Poisoned { .. })));
            };
            poisoned(store.write_batch(&batch(&images)));
            poisoned(store.create(ObjectId(2)));
            poisoned(store.remove(ObjectId(1)));
            poisoned(store.write_raw(ObjectId(1), 0, &[1]));
            poisoned(store.set_len(ObjectId(1), 0));
            poisoned(store.sync_object(ObjectId(1)));
            // Whatever memory forgets after a failed sync, readers do not.
            let at_home = name != "journal";
            disk.open("00000001.pages").unwrap().drop_cache().unwrap();
            let seen = versions(&store);
            assert!(!at_home || seen == [2; 12], "{kind:?} {name}: {seen:?}");
            for disk in [disk.copy(), disk.after_power_cut()] {
                let versions = versions(&open(&disk).unwrap());
                assert!(!at_home || versions == [2; 12], "{kind:?} {name}: {versions:?}");
            }
        }
    }
}

/// Opens copies of the disk with the power cut at each operation in turn, and then once more.
fn cut_while_opening(disk: &SimDisk) {
    for cut in 0..20 {
        let disk = disk.copy();
        disk.cut_power_at(cut);
        let _ = open(&disk);
        versions(&open(&disk.after_power_cut()).unwrap());
    }
}

#[test]
fn a_journal_that_only_memory_holds_is_not_replayed_from_there() {
    for seed in 0..40 {
        // The process dies between writing the journal and syncing it, or while it writes home.
        let disk = SimDisk::new(seed);
        let (store, images) = prepared(&disk);
        disk.cut_power_at(disk.ops_done() + 1 + seed % 3);
        store.write_batch(&batch(&images)).unwrap_err();
        cut_while_opening(&disk);
        // The sync fails, and memory goes on to show what the disk does not hold.
        let disk = SimDisk::new(seed);
        let (store, images) = prepared(&disk);
        let error = io::ErrorKind::InvalidData;
        disk.inject(Fault { kind: OpKind::Sync, name: "journal".into(), skip: 0, error });
        store.write_batch(&batch(&images)).unwrap_err();
        cut_while_opening(&disk);
    }
}

#[test]
fn a_journal_that_is_something_else_is_refused() {
    let disk = SimDisk::new(1);
    drop(prepared(&disk));
    for at in [0, 8] {
        let damaged = disk.copy();
        damaged.damage(JOURNAL_NAME, at, |bytes| bytes[0] ^= 1);
        assert!(matches!(open(&damaged), Err(PageStoreError::BadFile { .. })));
    }
}
