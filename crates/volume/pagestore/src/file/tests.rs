//! Tests on real files. Those on a simulated disk are in `crash_tests`.

use super::*;

fn page(len: usize, fill: u8) -> Vec<u8> {
    vec![fill; len]
}

#[test]
fn a_reopened_store_holds_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (ObjectId(1), ObjectId(0xabc));
    {
        let store = FilePageStore::open(dir.path(), None, FilePageStoreOptions::default()).unwrap();
        store.create(a).unwrap();
        store.create(a).unwrap();
        store.create(b).unwrap();
        let (one, two) = (page(16384, 1), page(1024, 2));
        store
            .write_batch(&[
                PageWrite { object: b, page_no: 5, page: &two },
                PageWrite { object: a, page_no: 0, page: &page(16384, 9) },
                PageWrite { object: a, page_no: 0, page: &one },
                PageWrite { object: a, page_no: 1, page: &one },
            ])
            .unwrap();
    }
    let store = FilePageStore::open(dir.path(), None, FilePageStoreOptions::default()).unwrap();
    assert_eq!(store.objects().unwrap(), [a, b]);
    let mut read = page(16384, 0);
    for page_no in [0, 1] {
        assert!(store.read_page(a, page_no, &mut read).unwrap());
        assert_eq!(read, page(16384, 1));
    }
    assert!(!store.read_page(a, 2, &mut read).unwrap());
    assert_eq!(read, page(16384, 0));
    assert_eq!(store.len_bytes(b).unwrap(), 6 * 1024);
    // The files are complete once they were read for an export.
    let mut raw = page(6 * 1024, 9);
    assert_eq!(store.read_raw(b, 0, &mut raw).unwrap(), raw.len());
    assert_eq!(std::fs::read(dir.path().join("00000abc.pages")).unwrap(), raw);
    assert_eq!(raw[5 * 1024..], page(1024, 2));
    store.remove(a).unwrap();
    store.remove(a).unwrap();
    assert!(!dir.path().join("00000001.pages").exists());
}

#[test]
fn many_objects_are_removed_with_one_sync_of_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let store = FilePageStore::open(dir.path(), None, FilePageStoreOptions::default()).unwrap();
    for id in 0..40 {
        store.create(ObjectId(id)).unwrap();
        let (object, page) = (ObjectId(id), page(4096, 1));
        store.write_batch(&[PageWrite { object, page_no: 0, page: &page }]).unwrap();
    }
    let syncs = || store.stats().syncs;
    let before = syncs();
    // Some of them are not there.
    let odd: Vec<_> = (1..80).step_by(2).map(ObjectId).collect();
    store.remove_all(&odd).unwrap();
    assert_eq!(syncs(), before + 1);
    assert_eq!(store.objects().unwrap(), (0..40).step_by(2).map(ObjectId).collect::<Vec<_>>());
    assert!(!dir.path().join("00000001.pages").exists());
    store.remove_all(&odd).unwrap();
    assert_eq!(syncs(), before + 1, "nothing was removed");
}

#[test]
fn open_files_stay_under_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let options = FilePageStoreOptions { max_open_files: 3, ..FilePageStoreOptions::default() };
    let store = FilePageStore::open(dir.path(), None, options).unwrap();
    for id in 0..20 {
        store.create(ObjectId(id)).unwrap();
        store
            .write_batch(&[PageWrite { object: ObjectId(id), page_no: 0, page: &page(4096, id as u8 + 1) }])
            .unwrap();
    }
    let mut read = page(4096, 0);
    for id in (0..20).rev() {
        assert!(store.read_page(ObjectId(id), 0, &mut read).unwrap());
        assert_eq!(read, page(4096, id as u8 + 1));
        assert!(store.home.objects.open_files() <= 3);
    }
}

#[test]
fn batches_that_make_no_sense_are_refused_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = FilePageStore::open(dir.path(), None, FilePageStoreOptions::default()).unwrap();
    let a = ObjectId(1);
    store.create(a).unwrap();
    let good = page(4096, 1);
    for (object, bad) in [
        (a, page(1000, 1)),
        (a, page(0, 1)),
        (a, page(8192, 1)),
        (a, page(1 << 17, 1)),
        (ObjectId(2), good.clone()),
    ] {
        let writes =
            [PageWrite { object: a, page_no: 0, page: &good }, PageWrite { object, page_no: 1, page: &bad }];
        let error = store.write_batch(&writes).unwrap_err();
        assert_eq!(error.kind(), redoubt_storage::ErrorKind::CallerBug);
        assert_eq!(store.len_bytes(a).unwrap(), 0);
    }
    store.write_batch(&[PageWrite { object: a, page_no: 0, page: &good }]).unwrap();
}

#[test]
fn a_second_store_in_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _first = FilePageStore::open(dir.path(), None, FilePageStoreOptions::default()).unwrap();
    let second = FilePageStore::open(dir.path(), None, FilePageStoreOptions::default());
    assert!(matches!(second, Err(PageStoreError::Locked { .. })));
}

/// Modes that every directory offers.
const EVERYWHERE: [PageProtection; 2] = [PageProtection::Journal, PageProtection::Doublewrite];

fn options(protection: PageProtection, journal_len_bytes: u64) -> FilePageStoreOptions {
    let protection = Some(protection);
    FilePageStoreOptions { protection, journal_len_bytes, ..FilePageStoreOptions::default() }
}

#[test]
fn readers_never_see_half_a_page_or_an_older_one() {
    for mode in EVERYWHERE {
        let dir = tempfile::tempdir().unwrap();
        // The ring goes round every third batch.
        let store = FilePageStore::open(dir.path(), None, options(mode, 1 << 20)).unwrap();
        let a = ObjectId(1);
        store.create(a).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=60 {
                    let image = page(16384, round);
                    // Some pages are seldom written, and so go home from the ring.
                    let pages = (0..24).filter(|page_no| page_no % 8 < 6 || round % 10 == 0);
                    let writes: Vec<_> =
                        pages.map(|page_no| PageWrite { object: a, page_no, page: &image }).collect();
                    store.write_batch(&writes).unwrap();
                }
                stop.store(true, Ordering::Release);
            });
            let mut read = page(16384, 0);
            let mut seen = [0; 24];
            let mut reads = 0_u32;
            while !stop.load(Ordering::Acquire) {
                let page_no = reads % 24;
                store.read_page(a, page_no, &mut read).unwrap();
                assert!(read.iter().all(|&byte| byte == read[0]), "{mode}: read {reads}");
                let last = std::mem::replace(&mut seen[page_no as usize], read[0]);
                assert!(last <= read[0], "{mode}: {last}, then {}", read[0]);
                reads += 1;
            }
            assert!(reads > 0);
        });
        assert!(store.stats().pages_written_home > 0);
    }
}

#[test]
fn in_mode_journal_a_hot_page_goes_home_a_handful_of_times() {
    for mode in EVERYWHERE {
        let dir = tempfile::tempdir().unwrap();
        let store = FilePageStore::open(dir.path(), None, options(mode, 4 << 20)).unwrap();
        store.create(ObjectId(1)).unwrap();
        for round in 0..1000_u32 {
            let (hot, cold) = (page(16384, round as u8), page(16384, 7));
            let writes = [
                PageWrite { object: ObjectId(1), page_no: 0, page: &hot },
                PageWrite { object: ObjectId(1), page_no: 1 + round, page: &cold },
            ];
            store.write_batch(&writes).unwrap();
        }
        let stats = store.stats();
        assert_eq!(stats.pages_written, 2000);
        // The cold pages are neighbours and go home in long writes.
        if mode == PageProtection::Journal {
            let home = stats.pages_written_home;
            assert!(home <= 1000, "{home} pages written home");
            assert!(stats.home_writes < 100, "{} writes", stats.home_writes);
            assert_eq!(stats.images_superseded, 999);
            assert_eq!(home + store.info().pending_pages, 1001, "every page once");
        } else {
            assert_eq!((stats.pages_written_home, stats.images_superseded), (2000, 0));
        }
    }
}

#[test]
fn files_are_the_pages_whatever_mode_the_store_is_opened_in_next() {
    for seed in 0..8 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let dir = tempfile::tempdir().unwrap();
        let mut model = vec![page(4096, 0); 300];
        for life in 0..4 {
            let mode = *rng.choice(&EVERYWHERE).unwrap();
            let journal_len_bytes = *rng.choice(&[256 << 10, 1 << 20]).unwrap();
            let store = FilePageStore::open(dir.path(), None, options(mode, journal_len_bytes)).unwrap();
            store.create(ObjectId(1)).unwrap();
            for _ in 0..20 {
                let images: Vec<_> =
                    (0..rng.usize(1..60)).map(|_| (rng.u32(..300), page(4096, rng.u8(..)))).collect();
                let writes: Vec<_> = images
                    .iter()
                    .map(|(page_no, page)| PageWrite { object: ObjectId(1), page_no: *page_no, page })
                    .collect();
                store.write_batch(&writes).unwrap();
                for (page_no, page) in images {
                    model[page_no as usize] = page;
                }
            }
            let mut read = page(4096, 0);
            for (page_no, page) in (0..).zip(&model) {
                store.read_page(ObjectId(1), page_no, &mut read).unwrap();
                assert!(read == *page, "seed {seed}, life {life}, page {page_no}");
            }
        }
        // Opened in another mode, everything goes home.
        drop(FilePageStore::open(dir.path(), None, options(PageProtection::Doublewrite, 1 << 20)).unwrap());
        let mut content = std::fs::read(dir.path().join("00000001.pages")).unwrap();
        content.resize(300 * 4096, 0);
        assert!(content == model.concat(), "seed {seed}");
    }
}

#[test]
fn a_store_says_how_it_protects_pages() {
    let dir = tempfile::tempdir().unwrap();
    let journal = tempfile::tempdir().unwrap();
    let limits = RealDir::open(dir.path()).unwrap().untorn_limits().unwrap();
    let usual = if limits.is_some_and(|it| it.allow(0, 16384)) {
        PageProtection::Atomic
    } else {
        PageProtection::Journal
    };
    let store =
        FilePageStore::open(dir.path(), Some(journal.path()), FilePageStoreOptions::default()).unwrap();
    assert_eq!((store.info().protection, store.info().untorn), (usual, limits));
    assert_eq!(store.info().journal_len_bytes, 32 << 20);
    assert!(journal.path().join("pages.journal").exists());
    store.create(ObjectId(1)).unwrap();
    store.write_batch(&[PageWrite { object: ObjectId(1), page_no: 0, page: &page(16384, 1) }]).unwrap();
    if usual == PageProtection::Journal {
        assert_eq!((store.info().pending_pages, store.info().journal_live_bytes), (1, 4096 + 16384));
        assert_eq!(store.len_bytes(ObjectId(1)).unwrap(), 16384);
        drop(store);
        let error =
            FilePageStore::open(dir.path(), Some(journal.path()), options(PageProtection::Atomic, 1 << 20));
        let error = error.err().expect("refused").to_string();
        assert!(error.contains("bigalloc") && error.contains("journal"), "{error}");
    }
    assert_eq!("doublewrite".parse::<PageProtection>().unwrap(), PageProtection::Doublewrite);
    assert!("Atomic".parse::<PageProtection>().is_err());
    for mode in EVERYWHERE {
        assert_eq!(mode.name().parse::<PageProtection>().unwrap(), mode);
    }
}

#[test]
fn the_same_directory_may_be_named_for_pages_and_journal() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join(".");
    let open = |journal| FilePageStore::open(dir.path(), journal, FilePageStoreOptions::default());
    drop(open(Some(&journal)).unwrap());
    drop(open(None).unwrap());
}
