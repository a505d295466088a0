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
        assert_eq!(error.kind(), crate::ErrorKind::CallerBug);
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

#[test]
fn readers_never_see_half_a_page_while_batches_go_home() {
    let dir = tempfile::tempdir().unwrap();
    let store = FilePageStore::open(dir.path(), None, FilePageStoreOptions::default()).unwrap();
    let a = ObjectId(1);
    store.create(a).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=60 {
                let image = page(16384, round);
                let writes: Vec<_> =
                    (0..24).map(|page_no| PageWrite { object: a, page_no, page: &image }).collect();
                store.write_batch(&writes).unwrap();
            }
            stop.store(true, Ordering::Release);
        });
        let mut read = page(16384, 0);
        let mut reads = 0_u32;
        while !stop.load(Ordering::Acquire) {
            store.read_page(a, reads % 24, &mut read).unwrap();
            assert!(read.iter().all(|&byte| byte == read[0]), "read {reads}");
            reads += 1;
        }
        assert!(reads > 0);
    });
}
