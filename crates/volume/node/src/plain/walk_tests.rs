use super::*;
use crate::home::Folder;
use crate::plain::Change;
use redoubt_storage::StorageDir;
use redoubt_storage::sim::SimDisk;
use std::path::Path;

const FILE: FileId = FileId(7);
const NAME: &str = "00000007";
const FRM: &[u8] = b"definition of a table";

fn store(disk: &SimDisk) -> PlainStore {
    let store = PlainStore::new(Folder::new(Arc::new(disk.clone()), Path::new("plain")));
    store.load_checksums(true).unwrap();
    store
}

fn write(store: &PlainStore, bytes: &[u8]) {
    store.execute(&Change::Create(FILE)).unwrap();
    store.write(FILE, 0, bytes).unwrap();
    store.sync().unwrap();
}

fn walk(store: &PlainStore) -> Option<Walked> {
    let mut walk = store.begin_walk(FILE).unwrap()?;
    loop {
        match store.walk(&mut walk).unwrap() {
            Walked::More => {}
            walked => return Some(walked),
        }
    }
}

/// Behind the store's back.
fn flip(disk: &SimDisk, at: u64) {
    let file = disk.open(NAME).unwrap();
    let mut byte = [0];
    file.read_at(at, &mut byte).unwrap();
    file.write_at(at, &[byte[0] ^ 1]).unwrap();
}

#[test]
fn flipped_byte_of_a_short_file_is_found_after_a_restart() {
    let disk = SimDisk::new(1);
    let before = store(&disk);
    write(&before, FRM);
    assert_eq!(walk(&before), Some(Walked::New));
    assert_eq!(walk(&before), Some(Walked::Whole));
    before.save_checksums();
    drop(before);
    let whole = store(&disk);
    assert_eq!(walk(&whole), Some(Walked::Whole));
    drop(whole);
    flip(&disk, 3);
    let after = store(&disk);
    assert_eq!(walk(&after), Some(Walked::Damaged));
    assert!(after.lost(FILE).unwrap().contains("damaged"), "{:?}", after.lost(FILE));
    assert_eq!(walk(&after), None, "it is known");
    // All of it is written again.
    after.execute(&Change::Create(FILE)).unwrap();
    assert_eq!(after.lost(FILE), None);
}

#[test]
fn flipped_byte_of_a_long_file_that_has_grown_is_found() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    write(&store, &vec![5; 3 * PIECE_BYTES + 1]);
    assert_eq!(walk(&store), Some(Walked::New));
    store.write(FILE, 3 * PIECE_BYTES as u64 + 1, b"appended").unwrap();
    assert_eq!(walk(&store), Some(Walked::New), "the checksum has the new bytes");
    assert_eq!(walk(&store), Some(Walked::Whole));
    flip(&disk, 3 * PIECE_BYTES as u64 + 3);
    assert_eq!(walk(&store), Some(Walked::Damaged));
}

#[test]
fn file_that_is_changed_while_it_is_read_is_not_damaged() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    write(&store, &vec![5; 2 * PIECE_BYTES]);
    assert_eq!(walk(&store), Some(Walked::New));
    let mut under_way = store.begin_walk(FILE).unwrap().unwrap();
    assert_eq!(store.walk(&mut under_way).unwrap(), Walked::More);
    store.write(FILE, 2 * PIECE_BYTES as u64 - 1, b"x").unwrap();
    let mut walked = Walked::More;
    while walked == Walked::More {
        walked = store.walk(&mut under_way).unwrap();
    }
    assert_eq!(walked, Walked::Changed);
    assert_eq!(store.lost(FILE), None);
    // Gone meanwhile.
    let mut under_way = store.begin_walk(FILE).unwrap().unwrap();
    store.execute(&Change::Remove(FILE)).unwrap();
    while store.walk(&mut under_way).unwrap() == Walked::More {}
    assert_eq!((store.lost(FILE), walk(&store)), (None, None));
}

#[test]
fn file_that_was_changed_a_short_while_ago_gets_no_checksum() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    store.track_changes();
    write(&store, FRM);
    assert!(!store.is_new_at_rest(FILE));
    assert_eq!(walk(&store), Some(Walked::Changed));
    store.save_checksums();
    assert!(!StorageDir::list(&disk).unwrap().contains(&"checksums".to_owned()));
}

#[test]
fn empty_file_is_whole() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    write(&store, b"");
    assert_eq!(walk(&store), Some(Walked::Whole));
}

/// A disk with a short file whose checksum is saved.
fn with_saved_checksum() -> SimDisk {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    write(&store, FRM);
    assert_eq!(walk(&store), Some(Walked::New));
    store.save_checksums();
    disk
}

#[test]
fn checksum_of_an_earlier_build_proves_no_damage() {
    let disk = with_saved_checksum();
    // A build that does not know the checksums has changed the file.
    flip(&disk, 3);
    let after = PlainStore::new(Folder::new(Arc::new(disk.clone()), Path::new("plain")));
    after.load_checksums(false).unwrap();
    assert_eq!(walk(&after), Some(Walked::New));
    assert_eq!(walk(&after), Some(Walked::Whole));
}

#[test]
fn short_file_with_a_checksum_that_was_cut_is_lost() {
    let disk = with_saved_checksum();
    disk.open(NAME).unwrap().set_len(5).unwrap();
    assert!(store(&disk).lost(FILE).unwrap().contains("cut"));
}
