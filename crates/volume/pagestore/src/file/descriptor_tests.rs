//! A store of a process that has no descriptor left.

use redoubt_storage::{BudgetDir, ErrorKind, FileBudget};
use redoubt_test_support::NoDescriptors;

use super::*;

redoubt_test_support::children!(pages_removed_without_descriptors, pages_synced_without_descriptors);

/// A child process without any descriptor left.
fn pages_removed_without_descriptors() {
    let place = tempfile::tempdir().unwrap();
    let dir: Arc<dyn StorageDir> =
        Arc::new(BudgetDir::new(Arc::new(RealDir::open(place.path()).unwrap()), &FileBudget::new(1000)));
    let store = FilePageStore::open_on(Arc::clone(&dir), None, FilePageStoreOptions::default()).unwrap();
    let (idle, read) = (ObjectId(1), ObjectId(2));
    for object in [idle, read] {
        store.create(object).unwrap();
        store.write_batch(&[PageWrite { object, page_no: 0, page: &[1; 4096] }]).unwrap();
    }
    store.seal().unwrap();
    let reader = dir.open(&objects::file_name(read)).unwrap();
    let lack = NoDescriptors::begin();
    // This closes all idle files.
    assert_eq!(store.create(ObjectId(3)).unwrap_err().kind(), ErrorKind::Retry);
    store.remove_all(&[idle]).unwrap();
    for _ in 0..2 {
        let error = store.remove_all(&[idle, read]).unwrap_err();
        assert!(matches!(error, PageStoreError::NoDescriptors { .. }), "{error}");
    }
    assert_eq!(store.objects().unwrap(), [read]);
    drop(lack);
    store.remove_all(&[idle, read]).unwrap();
    assert!(store.objects().unwrap().is_empty());
    assert!(!dir.list().unwrap().iter().any(|name| name.ends_with(".pages")));
    // The reader keeps it.
    reader.len_bytes().unwrap();
    store.create(read).unwrap();
}

#[test]
fn tables_are_removed_after_a_lack_of_descriptors() {
    let status = redoubt_test_support::child::command("pages_removed_without_descriptors").status().unwrap();
    assert!(status.success(), "{status}");
}

/// A child process that has only read a file when there is no descriptor left to sync it.
fn pages_synced_without_descriptors() {
    let place = tempfile::tempdir().unwrap();
    let open = || {
        let dir = BudgetDir::new(Arc::new(RealDir::open(place.path()).unwrap()), &FileBudget::new(1000));
        FilePageStore::open_on(Arc::new(dir), None, FilePageStoreOptions::default()).unwrap()
    };
    let object = ObjectId(1);
    {
        let store = open();
        store.create(object).unwrap();
        store.write_raw(object, 0, &[1; 4096]).unwrap();
        store.sync_object(object).unwrap();
    }
    let store = open();
    assert_eq!(store.read_raw(object, 0, &mut [0; 4096]).unwrap(), 4096);
    let lack = NoDescriptors::begin();
    // This closes the file.
    assert_eq!(store.create(ObjectId(2)).unwrap_err().kind(), ErrorKind::Retry);
    let error = store.synced_len_bytes(object, 0).unwrap_err();
    assert!(matches!(error, PageStoreError::NoDescriptors { .. }), "{error}");
    drop(lack);
    store.write_raw(object, 4096, &[2; 4096]).unwrap();
    assert_eq!(store.synced_len_bytes(object, 0).unwrap(), 8192);
}

#[test]
fn sync_that_finds_no_descriptor_does_not_end_the_store() {
    let status = redoubt_test_support::child::command("pages_synced_without_descriptors").status().unwrap();
    assert!(status.success(), "{status}");
}
