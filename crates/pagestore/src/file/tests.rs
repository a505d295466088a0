//! Tests on real files. Crash tests on a simulated disk are in `tests/`.

use super::*;

fn page(len: usize, fill: u8) -> Vec<u8> {
    vec![fill; len]
}

#[test]
fn a_reopened_store_holds_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (ObjectId(1), ObjectId(0xabc));
    {
        let store = FilePageStore::open(dir.path(), FilePageStoreOptions::default()).unwrap();
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
    let store = FilePageStore::open(dir.path(), FilePageStoreOptions::default()).unwrap();
    assert_eq!(store.objects().unwrap(), [a, b]);
    let mut read = page(16384, 0);
    for page_no in [0, 1] {
        assert!(store.read_page(a, page_no, &mut read).unwrap());
        assert_eq!(read, page(16384, 1));
    }
    assert!(!store.read_page(a, 2, &mut read).unwrap());
    assert_eq!(read, page(16384, 0));
    assert_eq!(store.len_bytes(b).unwrap(), 6 * 1024);
    assert_eq!(std::fs::read(dir.path().join("00000abc.pages")).unwrap()[5 * 1024..], page(1024, 2));
    store.remove(a).unwrap();
    store.remove(a).unwrap();
    assert!(!dir.path().join("00000001.pages").exists());
}
