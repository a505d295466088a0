//! Failing calls and a full disk: nothing is lost, nothing is torn for readers, and the store says what it is.

use std::io;

use redoubt_storage::ErrorKind;
use redoubt_storage::sim::{Fault, OpKind};

use super::*;

const EIO: io::ErrorKind = io::ErrorKind::InvalidData;
const ENOSPC: io::ErrorKind = io::ErrorKind::StorageFull;

fn fault(kind: OpKind, name: &str, error: io::ErrorKind) -> Fault {
    Fault { kind, name: name.into(), skip: 0, error }
}

fn random_fault(rng: &mut Rng) -> Fault {
    let kinds = [
        OpKind::Write,
        OpKind::Write,
        OpKind::Write,
        OpKind::Sync,
        OpKind::Sync,
        OpKind::Read,
        OpKind::SetLen,
        OpKind::Create,
        OpKind::Rename,
        OpKind::Remove,
        OpKind::SyncNames,
    ];
    Fault {
        kind: *rng.choice(&kinds).unwrap(),
        name: (*rng.choice(&["journal", "journal", ".pages", ""]).unwrap()).into(),
        skip: rng.u64(..6),
        error: if rng.bool() { EIO } else { ENOSPC },
    }
}

/// One life with faults, up to the first fatal one. Its changes may or may not be durable.
fn live_with_faults(disk: &SimDisk, setup: Setup, model: &mut Model, rng: &mut Rng, context: &str) -> u32 {
    let mut hits = 0;
    if rng.u8(..3) == 0 {
        disk.inject(random_fault(rng));
    }
    let opened = setup.open(disk).and_then(|store| sync_objects(&store).map(|()| store));
    if let Err(error) = &opened {
        assert_ne!(error.kind(), ErrorKind::CallerBug, "{context}: {error}");
        hits += 1;
    }
    disk.clear_faults();
    let Ok(store) = opened else { return hits };
    model.check(&store, context);
    for _ in 0..12 {
        if rng.u8(..2) == 0 {
            disk.inject(random_fault(rng));
        }
        let done = model.step(&store, rng);
        disk.clear_faults();
        let Err(error) = done else { continue };
        hits += 1;
        let context = format!("{context}: {error}");
        model.check_now(&store, &context);
        match error {
            // An object that was to be made was not.
            PageStoreError::NoSpace { .. } | PageStoreError::Read { .. } => model.in_doubt = None,
            PageStoreError::Io { .. } => {
                let refused = store.create(ObjectId(9));
                assert!(matches!(refused, Err(PageStoreError::Poisoned { .. })), "{context}");
                model.check_now(&store, &context);
                return hits;
            }
            _ => panic!("{context}"),
        }
    }
    hits
}

#[test]
fn failing_calls_lose_and_tear_nothing() {
    let closing = Setup::all().map(|setup| Setup { open_files: Some(1), ..setup });
    for setup in Setup::all().chain(closing) {
        let mut hits = 0;
        for seed in seeds(0, 500) {
            let mut disk = setup.disk(seed);
            let mut model = Model::default();
            let mut rng = Rng::with_seed(seed);
            for life in 0..4 {
                let context = format!("{setup:?}, seed {seed}, life {life}");
                hits += live_with_faults(&disk, setup, &mut model, &mut rng, &context);
                disk = if rng.bool() { disk.copy() } else { disk.after_power_cut() };
            }
            let store = setup.open(&disk).unwrap();
            sync_objects(&store).unwrap();
            model.check(&store, &format!("{setup:?}, seed {seed}, at the end"));
        }
        println!("{setup:?}: {hits} failures");
        assert!(hits > 600, "{setup:?}: {hits}");
    }
}

/// Writes pages 0 to 12 of object 1, and four that are not written again and so have to go home some time.
fn write_more(store: &FilePageStore, version: u32) -> Result<(), PageStoreError> {
    let page = image(version);
    let others = (0..4).map(|n| 20 + 4 * version + n);
    let writes: Vec<_> = (0..12)
        .chain(others)
        .map(|page_no| PageWrite { object: ObjectId(1), page_no, page: &page })
        .collect();
    store.write_batch(&writes)
}

/// Writes batches of growing versions until one fails; returns its version and error.
fn write_until_it_fails(store: &FilePageStore) -> (u32, PageStoreError) {
    let failed = (2..200).find_map(|version| Some((version, write_more(store, version).err()?)));
    failed.expect("a failure")
}

#[test]
fn a_batch_that_found_no_space_can_be_retried() {
    for setup in Setup::all() {
        for seed in 0..8 {
            let disk = setup.disk(seed);
            let store = setup.prepared(&disk);
            // Full in the middle of a write home, once or more, or while growing the file.
            if seed % 2 == 0 {
                disk.inject(fault(OpKind::Write, "00000001", ENOSPC));
                disk.inject(fault(OpKind::Write, "00000001", ENOSPC));
            } else {
                disk.set_capacity_bytes(Some(disk.used_bytes() + 3000));
            }
            let (version, error) = write_until_it_fails(&store);
            assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
            let error = write_more(&store, version).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
            // Nothing is torn for readers, nor after a crash.
            let old_or_new = [version - 1, version];
            assert!(versions(&store)[..8].iter().all(|it| old_or_new.contains(it)));
            let after = setup.open(&disk.after_power_cut()).unwrap();
            assert!(versions(&after)[..8].iter().all(|it| old_or_new.contains(it)));
            disk.set_capacity_bytes(None);
            write_more(&store, version).unwrap();
            assert_eq!(versions(&store), [version; 12]);
            assert_eq!(versions(&setup.open(&disk.after_power_cut()).unwrap()), [version; 12]);
            let mut raw = vec![0; PAGE * 12];
            assert_eq!(store.read_raw(ObjectId(1), 0, &mut raw).unwrap(), raw.len());
            assert!(raw == image(version).repeat(12));
        }
    }
}

/// Pages that need a group each in the shortest journal, and go through it in every mode.
const LONG_PAGE: usize = 32768;

fn open_for_long_pages(setup: Setup, seed: u64) -> (SimDisk, FilePageStore) {
    let disk = setup.disk(seed);
    disk.set_untorn_limits(Some(UntornLimits { min_len_bytes: 512, max_len_bytes: 16384 }));
    let store = setup.open(&disk).unwrap();
    store.create(ObjectId(1)).unwrap();
    (disk, store)
}

fn write_long(store: &FilePageStore, pages: &[u32], version: u8) -> Result<(), PageStoreError> {
    let page = vec![version; LONG_PAGE];
    let write = |&page_no| PageWrite { object: ObjectId(1), page_no, page: &page };
    store.write_batch(&pages.iter().map(write).collect::<Vec<_>>())
}

fn read_long(store: &FilePageStore, page_no: u32) -> u8 {
    let mut page = vec![0; LONG_PAGE];
    store.read_page(ObjectId(1), page_no, &mut page).unwrap();
    assert!(page.iter().all(|&byte| byte == page[0]));
    page[0]
}

#[test]
fn groups_of_a_failed_attempt_are_not_taken_up_after_new_ones() {
    for setup in Setup::all() {
        for skip in 0..3 {
            let (disk, store) = open_for_long_pages(setup, skip);
            disk.inject(Fault { skip, ..fault(OpKind::Write, "journal", ENOSPC) });
            let error = write_long(&store, &[0, 1, 2], 2).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Retry);
            // As long as the first group of the failed attempt, whose second one stands after it.
            write_long(&store, &[1], 3).unwrap();
            let after = setup.open(&disk.after_power_cut()).unwrap();
            assert_eq!((read_long(&after, 1), read_long(&store, 1)), (3, 3), "{setup:?}, skip {skip}");
        }
    }
}

#[test]
fn groups_of_an_earlier_life_are_not_taken_up_after_new_ones() {
    for setup in Setup::all() {
        let (disk, store) = open_for_long_pages(setup, 1);
        // Two groups are written and not synced; of the first, the header does not come to the disk.
        disk.cut_power_at(disk.ops_done() + 2);
        write_long(&store, &[0, 1], 2).unwrap_err();
        let disk = disk.copy();
        disk.open(JOURNAL_NAME).unwrap().sync_data().unwrap();
        disk.damage(JOURNAL_NAME, 8192 + 100, |bytes| bytes[0] ^= 1);
        let store = setup.open(&disk).unwrap();
        assert_eq!((read_long(&store, 0), read_long(&store, 1)), (0, 0));
        write_long(&store, &[1], 3).unwrap();
        let after = setup.open(&disk.after_power_cut()).unwrap();
        assert_eq!((read_long(&after, 1), read_long(&store, 1)), (3, 3), "{setup:?}");
    }
}

#[test]
fn a_forget_record_that_found_no_space_is_written_the_next_time() {
    let mut failed = Vec::new();
    for setup in Setup::all() {
        failed.push(0);
        for seed in 0..10 {
            let disk = setup.disk(seed);
            let store = setup.prepared(&disk);
            // In mode journal the pages are home by then, and only the record is missing.
            store.read_raw(ObjectId(1), 0, &mut [0; 16]).unwrap();
            disk.inject(fault(OpKind::Write, "journal", ENOSPC));
            let cut = || store.set_len(ObjectId(1), 3 * PAGE as u64);
            let error = cut().err();
            if let Some(error) = error {
                assert_eq!(error.kind(), ErrorKind::Retry, "{setup:?}, seed {seed}: {error}");
                *failed.last_mut().unwrap() += 1;
            }
            disk.clear_faults();
            cut().unwrap();
            let after = setup.open(&disk.after_power_cut()).unwrap();
            assert_eq!(versions(&after)[..6], [1, 1, 1, 0, 0, 0], "{setup:?}, seed {seed}");
        }
    }
    assert!(failed.iter().all(|failed| [0, 10].contains(failed)) && failed.contains(&10), "{failed:?} of 10");
}

#[test]
fn after_a_failed_write_or_sync_no_change_is_taken_and_reads_stay_whole() {
    for setup in Setup::all() {
        for (kind, name) in [
            (OpKind::Write, "00000001"),
            (OpKind::Sync, "00000001"),
            (OpKind::Write, "journal"),
            (OpKind::Sync, "journal"),
        ] {
            for seed in 0..6 {
                check_poisoned(setup, kind, name, seed);
            }
        }
    }
}

fn check_poisoned(setup: Setup, kind: OpKind, name: &str, seed: u64) {
    let disk = setup.disk(seed);
    let store = setup.prepared(&disk);
    if setup.mode == PageProtection::Atomic && name == "journal" {
        return;
    }
    disk.inject(fault(kind, name, EIO));
    let (version, error) = write_until_it_fails(&store);
    assert_eq!(error.kind(), ErrorKind::Fatal);
    let poisoned = |result: Result<(), PageStoreError>| {
        assert!(matches!(result, Err(PageStoreError::Poisoned { .. })));
    };
    poisoned(write_more(&store, version));
    poisoned(store.create(ObjectId(2)));
    poisoned(store.remove(ObjectId(1)));
    poisoned(store.write_raw(ObjectId(1), 0, &[1]));
    poisoned(store.set_len(ObjectId(1), 0));
    poisoned(store.sync_object(ObjectId(1)));
    // Readers keep their view even if the cache drops pages after a failed sync.
    disk.open("00000001.pages").unwrap().drop_cache().unwrap();
    let context = format!("{setup:?}, {kind:?} {name}, seed {seed}");
    // In mode doublewrite the batch was durable in the journal; in mode journal it was not yet written.
    let expected: &[u32] = match (setup.mode, name) {
        (PageProtection::Doublewrite, "00000001") => &[version],
        (PageProtection::Journal, "00000001") => &[version - 1],
        _ => &[version - 1, version],
    };
    let pages = if expected.contains(&1) { 8 } else { 12 };
    let seen = versions(&store);
    assert!(seen[..pages].iter().all(|it| expected.contains(it)), "{context}: {seen:?}");
    for disk in [disk.copy(), disk.after_power_cut()] {
        let seen = versions(&setup.open(&disk).unwrap());
        assert!(seen[..pages].iter().all(|it| expected.contains(it)), "{context}: {seen:?}");
    }
}

#[test]
fn an_object_removed_while_pages_wait_stays_removed() {
    for setup in Setup::all() {
        let disk = setup.disk(1);
        let store = setup.prepared(&disk);
        disk.inject(fault(OpKind::Write, "00000001", ENOSPC));
        write_until_it_fails(&store);
        store.remove(ObjectId(1)).unwrap();
        for disk in [disk.copy(), disk.after_power_cut()] {
            assert_eq!(setup.open(&disk).unwrap().objects().unwrap(), []);
        }
        store.create(ObjectId(1)).unwrap();
        assert_eq!(versions(&store), [0; 12]);
        assert_eq!(versions(&setup.open(&disk.after_power_cut()).unwrap()), [0; 12]);
    }
}

#[test]
fn raw_bytes_are_not_undone_by_the_journal() {
    for setup in Setup::all() {
        let disk = setup.disk(1);
        let store = setup.prepared(&disk);
        store.write_raw(ObjectId(1), 0, &image(7)).unwrap();
        store.sync_object(ObjectId(1)).unwrap();
        let store = setup.open(&disk.after_power_cut()).unwrap();
        assert_eq!(versions(&store)[..2], [7, 1]);
    }
}

#[test]
fn a_ring_that_cannot_be_read_stops_the_store_and_loses_nothing() {
    for setup in Setup::all() {
        let disk = setup.disk(1);
        let store = setup.prepared(&disk);
        write_versions(&store, 12, 2).unwrap();
        // On recovery, at every read in turn.
        let mut failures = 0;
        for skip in 0.. {
            let copy = disk.copy();
            copy.inject(Fault { skip, ..fault(OpKind::Read, "journal", EIO) });
            let Err(error) = setup.open(&copy) else { break };
            assert_eq!(error.kind(), ErrorKind::Fatal, "{error}");
            assert!(error.to_string().contains("pages.journal"), "{error}");
            failures += 1;
            copy.clear_faults();
            assert_eq!(versions(&setup.open(&copy).unwrap()), [2; 12]);
        }
        assert!(failures > 2, "{setup:?}: {failures}");
        // On the way home.
        if setup.mode == PageProtection::Journal {
            disk.inject(fault(OpKind::Read, "journal", EIO));
            let (version, error) = write_until_it_fails(&store);
            assert!(error.to_string().contains("pages.journal"), "{error}");
            let refused = write_more(&store, version);
            assert!(matches!(refused, Err(PageStoreError::Poisoned { .. })));
            assert_eq!(versions(&store), [version - 1; 12]);
            assert_eq!(versions(&setup.open(&disk.after_power_cut()).unwrap()), [version - 1; 12]);
        }
    }
}

/// In mode `atomic` nothing brings a page again whose sync failed, so a later process must not believe what memory
/// shows, however many processes there were in between that had no use for the file.
#[test]
fn pages_whose_sync_failed_are_not_believed_by_any_later_process() {
    let mut lost = 0;
    for mode in MODES {
        for seed in 0..40 {
            let atomic = Setup::new(PageProtection::Atomic, 512);
            let mut disk = atomic.disk(seed);
            let store = atomic.prepared(&disk);
            store.create(ObjectId(2)).unwrap();
            disk.inject(fault(OpKind::Sync, "00000001", EIO));
            write_versions(&store, 8, 2).unwrap_err();
            for life in 0..seed % 3 {
                disk = disk.copy();
                let store = atomic.open(&disk).unwrap();
                let page = image(100 + life as u32);
                store.write_batch(&[PageWrite { object: ObjectId(2), page_no: 0, page: &page }]).unwrap();
            }
            disk = disk.copy();
            drop(Setup { mode, ..atomic }.open(&disk).unwrap());
            disk = disk.copy();
            let seen = versions(&atomic.open(&disk).unwrap());
            let kept = versions(&atomic.open(&disk.after_power_cut()).unwrap());
            assert_eq!(seen, kept, "{mode:?}, seed {seed}");
            lost += seen.iter().filter(|version| **version == 1).count();
        }
    }
    assert!(lost > 0);
}

#[test]
fn in_mode_atomic_opening_a_store_costs_nothing_per_object() {
    let setup = Setup::new(PageProtection::Atomic, 512);
    let cost_of = |objects: u32| {
        let disk = setup.disk(1);
        let store = setup.open(&disk).unwrap();
        for object in 0..objects {
            store.create(ObjectId(object)).unwrap();
            let page = image(1);
            store.write_batch(&[PageWrite { object: ObjectId(object), page_no: 0, page: &page }]).unwrap();
        }
        drop(store);
        let before = disk.ops_done();
        setup.open(&disk).unwrap();
        disk.ops_done() - before
    };
    assert_eq!(cost_of(2), cost_of(400));
}
