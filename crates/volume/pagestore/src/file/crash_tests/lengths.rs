//! Lengths of the files themselves: what the journal holds hides neither that a file was cut, nor that its length is not
//! durable.

use super::*;

const HOME: &str = "00000001.pages";

fn set_len(disk: &SimDisk, pages: usize) {
    StorageDir::open(disk, HOME).unwrap().set_len((pages * PAGE) as u64).unwrap();
}

#[test]
fn cut_file_is_seen_in_every_mode() {
    for setup in Setup::all() {
        for next in Setup::all().filter(|next| next.sector_len == setup.sector_len) {
            let context = format!("{} then {}", setup.mode, next.mode);
            let disk = setup.disk(1);
            let store = setup.prepared(&disk);
            // Reading raw bytes brings all pages home, and leaves the images where they are.
            store.read_raw(ObjectId(1), 0, &mut [0; 16]).unwrap();
            let len_bytes = store.synced_len_bytes(ObjectId(1), 0).unwrap();
            assert_eq!(len_bytes, 8 * PAGE as u64, "{context}");
            drop(store);
            let disk = disk.copy();
            set_len(&disk, 3);
            let store = next.open(&disk).unwrap();
            assert_eq!(store.found_len_bytes(ObjectId(1)).unwrap(), 3 * PAGE as u64, "{context}");
        }
    }
}

#[test]
fn pages_in_the_journal_are_not_in_the_length_of_the_file() {
    let setup = Setup::new(PageProtection::Journal, 512);
    let disk = setup.disk(1);
    let store = setup.prepared(&disk);
    assert_eq!(store.len_bytes(ObjectId(1)).unwrap(), 8 * PAGE as u64);
    assert_eq!(store.found_len_bytes(ObjectId(1)).unwrap(), 0);
    assert_eq!(store.synced_len_bytes(ObjectId(1), 0).unwrap(), 0);
}

#[test]
fn length_that_memory_shows_is_made_durable() {
    for seed in 0..20 {
        let setup = Setup::new(PageProtection::Atomic, 512);
        let disk = setup.disk(seed);
        let store = setup.prepared(&disk);
        set_len(&disk, 10);
        let len_bytes = store.synced_len_bytes(ObjectId(1), 8 * PAGE as u64).unwrap();
        assert_eq!(disk.after_power_cut().content(HOME).len() as u64, len_bytes, "seed {seed}");
    }
}

#[test]
fn cut_file_is_seen_until_the_caller_has_seen_it() {
    let setup = Setup::new(PageProtection::Doublewrite, 512);
    let disk = setup.disk(1);
    drop(setup.prepared(&disk));
    set_len(&disk, 3);
    // The last page goes home at each opening.
    for _ in 0..2 {
        let store = setup.open(&disk).unwrap();
        assert_eq!(store.len_bytes(ObjectId(1)).unwrap(), 8 * PAGE as u64);
        assert_eq!(store.found_len_bytes(ObjectId(1)).unwrap(), 3 * PAGE as u64);
    }
    // Also in another mode, and with another journal.
    for next in [PageProtection::Journal, PageProtection::Atomic] {
        let store = Setup::new(next, 4096).open(&disk);
        let store = store.unwrap_or_else(|error| panic!("{next}: {error}"));
        assert_eq!(store.found_len_bytes(ObjectId(1)).unwrap(), 3 * PAGE as u64, "{next}");
    }
    let store = setup.open(&disk).unwrap();
    store.forget_found_lens().unwrap();
    drop(store);
    let store = setup.open(&disk).unwrap();
    assert_eq!(store.found_len_bytes(ObjectId(1)).unwrap(), 8 * PAGE as u64);
}
