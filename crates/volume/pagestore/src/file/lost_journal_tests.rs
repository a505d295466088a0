//! A journal that is missing, cut or without superblocks, on real files; and how far files lack changes.

use std::path::Path;

use super::*;

const OBJECT: ObjectId = ObjectId(7);
const PAGE_LEN: usize = 16 << 10;
const JOURNAL_LEN: u64 = 1 << 20;

fn options(replaces_lost_journal: bool) -> FilePageStoreOptions {
    FilePageStoreOptions {
        protection: Some(PageProtection::Journal),
        journal_len_bytes: JOURNAL_LEN,
        replaces_lost_journal,
        ..FilePageStoreOptions::default()
    }
}

fn open(pages: &Path) -> Result<FilePageStore, PageStoreError> {
    FilePageStore::open(pages, None, options(false))
}

fn open_replacing(pages: &Path) -> Result<FilePageStore, PageStoreError> {
    FilePageStore::open(pages, None, options(true))
}

fn write(store: &FilePageStore, page_no: u32, fill: u8) {
    let page = vec![fill; PAGE_LEN];
    store.write_batch(&[PageWrite { object: OBJECT, page_no, page: &page }]).unwrap();
}

/// First byte of a page; `None`: it is past the end.
fn read(store: &FilePageStore, page_no: u32) -> Option<u8> {
    let mut page = vec![0; PAGE_LEN];
    store.read_page(OBJECT, page_no, &mut page).unwrap().then(|| page[0])
}

/// A store whose page 0 is at home as 1 and in the journal as 2. Page 1 is in the journal only.
fn store_with_pending_pages(pages: &Path) {
    let store = open(pages).unwrap();
    store.create(OBJECT).unwrap();
    write(&store, 0, 1);
    assert!(store.bring_home_before(u64::MAX).unwrap());
    write(&store, 0, 2);
    write(&store, 1, 3);
}

fn remove(path: &Path) {
    std::fs::remove_file(path).unwrap();
}

fn cut(path: &Path) {
    std::fs::File::options().write(true).open(path).unwrap().set_len(JOURNAL_LEN / 2).unwrap();
}

fn empty_superblocks(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[..ring::RING_AT as usize].fill(0);
    std::fs::write(path, bytes).unwrap();
}

/// Neither zeros nor a superblock.
fn garble_superblocks(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[..ring::RING_AT as usize].fill(0xdb);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn lost_journal_is_replaced_if_the_caller_can_rebuild_pages() {
    for lose in [remove, cut, empty_superblocks, garble_superblocks] {
        let dir = tempfile::tempdir().unwrap();
        store_with_pending_pages(dir.path());
        lose(&dir.path().join(JOURNAL_NAME));
        for _ in 0..2 {
            let refused = open(dir.path()).map(|_| ());
            assert!(matches!(refused, Err(PageStoreError::LostJournal { .. })), "{refused:?}");
        }
        let store = open_replacing(dir.path()).unwrap();
        assert!(store.has_replaced_journal());
        assert_eq!((read(&store, 0), read(&store, 1)), (Some(1), None));
        write(&store, 0, 2);
        drop(store);
        // Killed before the caller has rebuilt all.
        let store = open(dir.path()).unwrap();
        assert!(store.has_replaced_journal());
        assert_eq!(read(&store, 0), Some(2));
        write(&store, 1, 3);
        store.end_replacement().unwrap();
        assert!(!store.has_replaced_journal());
        drop(store);
        assert!(!dir.path().join("pages.journal.lost").exists());
        let store = open_replacing(dir.path()).unwrap();
        assert!(!store.has_replaced_journal());
        assert_eq!((read(&store, 0), read(&store, 1)), (Some(2), Some(3)));
    }
}

#[test]
fn new_journal_that_is_lost_too_is_replaced_once_more() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join(JOURNAL_NAME);
    store_with_pending_pages(dir.path());
    cut(&journal);
    let kept = std::fs::read(&journal).unwrap();
    drop(open_replacing(dir.path()).unwrap());
    remove(&journal);
    assert!(open(dir.path()).is_err());
    let store = open_replacing(dir.path()).unwrap();
    assert!(store.has_replaced_journal());
    assert_eq!(std::fs::read(dir.path().join("pages.journal.lost")).unwrap(), kept);
}

#[test]
fn replaced_journal_of_another_length_stays_marked_as_replaced() {
    let dir = tempfile::tempdir().unwrap();
    store_with_pending_pages(dir.path());
    remove(&dir.path().join(JOURNAL_NAME));
    let store = open_replacing(dir.path()).unwrap();
    write(&store, 0, 9);
    drop(store);
    let longer = FilePageStoreOptions { journal_len_bytes: 2 * JOURNAL_LEN, ..options(false) };
    let store = FilePageStore::open(dir.path(), None, longer).unwrap();
    assert!(store.has_replaced_journal());
    assert_eq!(read(&store, 0), Some(9));
}

#[test]
fn lost_journal_that_comes_back_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, kept) = (dir.path().join(JOURNAL_NAME), dir.path().join("elsewhere"));
    store_with_pending_pages(dir.path());
    std::fs::rename(&journal, &kept).unwrap();
    let store = open_replacing(dir.path()).unwrap();
    write(&store, 0, 4);
    store.end_replacement().unwrap();
    drop(store);
    std::fs::rename(&kept, &journal).unwrap();
    for opened in [open(dir.path()), open_replacing(dir.path())] {
        let refused = opened.map(|_| ());
        assert!(matches!(refused, Err(PageStoreError::BadFile { .. })), "{refused:?}");
    }
}

#[test]
fn pages_without_identity_and_journal_are_no_new_store() {
    let dir = tempfile::tempdir().unwrap();
    store_with_pending_pages(dir.path());
    for name in [JOURNAL_NAME, "pages.identity", "pages.identity.copy"] {
        remove(&dir.path().join(name));
    }
    let refused = open(dir.path()).map(|_| ());
    assert!(matches!(refused, Err(PageStoreError::LostJournal { .. })), "{refused:?}");
    let journal = tempfile::tempdir().unwrap();
    let refused = FilePageStore::open(dir.path(), Some(journal.path()), options(true)).map(|_| ());
    assert!(matches!(refused, Err(PageStoreError::BadFile { .. })), "it may be anywhere: {refused:?}");
}

#[test]
fn oldest_changes_are_those_of_the_page_that_waits_longest() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    store.create(OBJECT).unwrap();
    assert_eq!(store.oldest_changes(), None);
    for (position, page_no) in [(10, 0), (20, 1), (30, 0), (40, 2)] {
        store.begin_changes(position);
        write(&store, page_no, position as u8);
    }
    assert_eq!(store.oldest_changes(), Some(10), "its newer version does not change that");
    assert!(store.bring_home_before(20).unwrap());
    assert_eq!(store.oldest_changes(), Some(20));
    store.begin_changes(50);
    write(&store, 0, 50);
    assert!(store.bring_home_before(50).unwrap());
    assert_eq!(store.oldest_changes(), Some(50));
    assert_eq!([0, 1, 2].map(|page_no| read(&store, page_no)), [Some(50), Some(20), Some(40)]);
    drop(store);
    let store = open(dir.path()).unwrap();
    assert_eq!(store.oldest_changes(), Some(1), "it was pending when the store was opened");
    store.begin_changes(0);
    write(&store, 3, 30);
    assert_eq!(store.oldest_changes(), Some(0));
    assert!(store.bring_home_before(1).unwrap());
    assert_eq!(store.oldest_changes(), Some(1));
    assert!(store.bring_home_before(2).unwrap());
    assert_eq!(store.oldest_changes(), None);
    drop(store);
    let store = open(dir.path()).unwrap();
    assert_eq!(store.oldest_changes(), None, "nothing comes back");
    assert_eq!(read(&store, 0), Some(50));
    store.begin_changes(60);
    write(&store, 0, 60);
    store.remove(OBJECT).unwrap();
    assert_eq!(store.oldest_changes(), None);
}
