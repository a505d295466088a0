//! Images of the journal and pages at home that the medium has damaged, or that the drive cannot read.

use redoubt_storage::sim::{Fault, OpKind};

use super::*;

const JOURNAL: Setup = Setup {
    mode: PageProtection::Journal,
    sector_len: 512,
    untorn_len: 512,
    journal_len_bytes: MIN_JOURNAL_LEN,
    is_apart: false,
    open_files: None,
};
const DOUBLEWRITE: Setup = Setup { mode: PageProtection::Doublewrite, ..JOURNAL };
const ATOMIC: Setup = Setup { mode: PageProtection::Atomic, ..JOURNAL };
const HOME: &str = "00000001.pages";

/// Writes one page of object 1.
fn write(store: &FilePageStore, page_no: u32, version: u32) {
    let page = image(version);
    store.write_batch(&[PageWrite { object: ObjectId(1), page_no, page: &page }]).unwrap();
}

fn read(store: &FilePageStore, page_no: u32) -> Result<Vec<u8>, PageStoreError> {
    let mut page = image(0);
    store.read_page(ObjectId(1), page_no, &mut page).map(|_| page)
}

/// Where the image of a version is in the ring.
fn image_at(disk: &SimDisk, version: u32) -> usize {
    let content = disk.content(JOURNAL_NAME);
    content.chunks(PAGE).position(|bytes| bytes == image(version)).expect("the image") * PAGE
}

/// Spoils the image of a version in the ring: its bytes are other ones, or cannot be read.
fn spoil_image(disk: &SimDisk, version: u32, is_lost: bool) {
    let at = image_at(disk, version);
    if is_lost {
        disk.lose(JOURNAL_NAME, at..at + 512);
    } else {
        disk.damage(JOURNAL_NAME, at + 700, |bytes| bytes[0] ^= 1);
    }
}

/// The ring wants its room again, several times over.
fn fill_ring(store: &FilePageStore) {
    store.create(ObjectId(2)).unwrap();
    for version in 0..100 {
        let page = image(version);
        let writes: Vec<_> =
            (0..8).map(|page_no| PageWrite { object: ObjectId(2), page_no, page: &page }).collect();
        store.write_batch(&writes).unwrap();
    }
}

/// A store whose page 3 is at home as version 2, and in the ring as well, where a restart takes it from.
fn written_home(setup: Setup, is_lost: bool) -> SimDisk {
    let disk = setup.disk(1);
    let store = setup.prepared(&disk);
    write(&store, 3, 2);
    // The next group records that the image was durable.
    write(&store, 5, 3);
    // Reading raw bytes brings all pages home, and leaves the images where they are.
    store.read_raw(ObjectId(1), 0, &mut [0; 16]).unwrap();
    drop(store);
    let disk = disk.copy();
    spoil_image(&disk, 2, is_lost);
    disk
}

#[test]
fn good_page_at_home_outlives_its_spoilt_image() {
    for is_lost in [false, true] {
        for setup in [JOURNAL, DOUBLEWRITE] {
            for next in [JOURNAL, DOUBLEWRITE] {
                let context = format!("{} then {}, lost {is_lost}", setup.mode, next.mode);
                let disk = written_home(setup, is_lost);
                let store = next.open(&disk).unwrap();
                assert_eq!(versions(&store)[2..6], [1, 2, 1, 3], "{context}");
                fill_ring(&store);
                assert_eq!(versions(&store)[2..6], [1, 2, 1, 3], "{context}");
                store.read_raw(ObjectId(1), 0, &mut [0; 16]).unwrap();
                drop(store);
                let store = next.open(&disk.after_power_cut()).unwrap();
                assert_eq!(versions(&store)[2..6], [1, 2, 1, 3], "{context}");
            }
        }
    }
}

#[test]
fn older_page_at_home_does_not_replace_a_spoilt_image() {
    for is_lost in [false, true] {
        let disk = JOURNAL.disk(1);
        let store = JOURNAL.prepared(&disk);
        write(&store, 3, 2);
        store.seal().unwrap();
        spoil_image(&disk, 2, is_lost);
        // A restart after the image went home brings it there once more.
        let went_home = disk.copy();
        JOURNAL.open(&went_home).unwrap().read_raw(ObjectId(1), 0, &mut [0; 16]).unwrap();
        for store in [store, JOURNAL.open(&went_home.copy()).unwrap()] {
            let error = read(&store, 3).unwrap_err();
            assert!(matches!(error, PageStoreError::DamagedImage { page_no: 3, .. }), "{error}");
            assert!(error.is_lost_content());
            store.read_raw(ObjectId(1), 0, &mut [0; 16]).unwrap();
            let page = read(&store, 3).unwrap();
            assert!((0..10).all(|version| page != image(version)), "lost {is_lost}");
            fill_ring(&store);
            assert_eq!(read(&store, 3).unwrap(), page);
            write(&store, 3, 4);
            assert_eq!(versions(&store)[2..5], [1, 4, 1]);
        }
    }
}

#[test]
fn lost_page_is_named_and_can_be_written_again() {
    let disk = ATOMIC.disk(1);
    let store = ATOMIC.prepared(&disk);
    disk.lose(HOME, 3 * PAGE + 512..3 * PAGE + 1024);
    for _ in 0..2 {
        let error = read(&store, 3).unwrap_err();
        assert!(matches!(error, PageStoreError::LostPage { page_no: 3, .. }), "{error}");
        assert!(error.is_lost_content());
    }
    assert_eq!(read(&store, 4).unwrap(), image(1));
    write(&store, 3, 2);
    assert_eq!(versions(&store)[2..5], [1, 2, 1]);
    // The only page of its object, beside another object.
    let disk = ATOMIC.disk(1);
    let store = ATOMIC.open(&disk).unwrap();
    for id in [1, 2] {
        store.create(ObjectId(id)).unwrap();
        let page = image(1);
        store.write_batch(&[PageWrite { object: ObjectId(id), page_no: 0, page: &page }]).unwrap();
    }
    disk.lose(HOME, 0..PAGE);
    let error = read(&store, 0).unwrap_err();
    assert!(matches!(error, PageStoreError::LostPage { page_no: 0, .. }), "{error}");
}

#[test]
fn drive_that_reads_nothing_has_lost_no_page() {
    let disk = ATOMIC.disk(1);
    let store = ATOMIC.prepared(&disk);
    disk.lose(HOME, 0..8 * PAGE);
    let error = read(&store, 3).unwrap_err();
    assert!(matches!(error, PageStoreError::Read { .. }), "{error}");
    let disk = JOURNAL.disk(1);
    let store = JOURNAL.prepared(&disk);
    disk.lose(JOURNAL_NAME, 0..MIN_JOURNAL_LEN as usize);
    let error = read(&store, 3).unwrap_err();
    assert!(matches!(error, PageStoreError::Read { .. }), "{error}");
    let error = store.read_raw(ObjectId(1), 0, &mut [0; 16]).unwrap_err();
    assert!(matches!(error, PageStoreError::Io { .. }), "{error}");
}

#[test]
fn drive_that_reads_at_times_has_lost_no_page() {
    let failures = |setup: Setup, reads: usize, skipped: &[u64]| {
        let disk = setup.disk(1);
        let store = setup.prepared(&disk);
        let error = std::io::ErrorKind::UnexpectedEof;
        for skip in std::iter::repeat_n(0, reads).chain(skipped.iter().copied()) {
            disk.inject(Fault { kind: OpKind::Read, name: String::new(), skip, error });
        }
        let read = read(&store, 3);
        assert_eq!(disk.clear_faults(), 0);
        read
    };
    let tries = super::super::lost::TRIES + 1;
    for setup in [ATOMIC, JOURNAL] {
        assert_eq!(failures(setup, tries - 1, &[]).unwrap(), image(1));
        let lost = failures(setup, tries, &[]).unwrap_err();
        assert!(lost.is_lost_content() && !matches!(lost, PageStoreError::Read { .. }), "{lost}");
        // Another place is read at the first try, but not at the second one.
        let unknown = failures(setup, tries, &[1]).unwrap_err();
        assert!(matches!(unknown, PageStoreError::Read { .. }), "{unknown}");
    }
}

#[test]
fn read_that_fails_once_is_tried_again() {
    for setup in [ATOMIC, JOURNAL] {
        let disk = setup.disk(1);
        let store = setup.prepared(&disk);
        let inject = || {
            let error = std::io::ErrorKind::UnexpectedEof;
            disk.inject(Fault { kind: OpKind::Read, name: String::new(), skip: 0, error });
        };
        inject();
        assert_eq!(read(&store, 3).unwrap(), image(1), "{}", setup.mode);
        inject();
        assert_eq!(
            store.read_raw(ObjectId(1), 0, &mut [0; 16]).ok(),
            (setup.mode == JOURNAL.mode).then_some(16)
        );
        assert_eq!(disk.clear_faults(), 0);
        assert_eq!(versions(&store)[..8], [1; 8]);
    }
}

#[test]
fn lost_image_does_not_hide_older_ones() {
    let disk = JOURNAL.disk(1);
    let store = JOURNAL.prepared(&disk);
    for version in 2..5 {
        write(&store, 3, version);
    }
    spoil_image(&disk, 3, true);
    let retained = store.retained_images(ObjectId(1), 3, PAGE as u32).unwrap();
    let found: Vec<_> = retained.iter().map(|image| version_of(&image.page, "retained")).collect();
    assert_eq!(found, [4, 2, 1]);
}

#[test]
fn lost_end_of_the_ring_is_a_batch_under_way() {
    let disk = JOURNAL.disk(1);
    let store = JOURNAL.prepared(&disk);
    write(&store, 3, 2);
    drop(store);
    let disk = disk.copy();
    spoil_image(&disk, 2, true);
    assert_eq!(versions(&JOURNAL.open(&disk.copy()).unwrap())[2..5], [1, 1, 1]);
    // Its header as well.
    let at = image_at(&disk, 2) - 4096;
    disk.lose(JOURNAL_NAME, at..at + 4096);
    assert_eq!(versions(&JOURNAL.open(&disk).unwrap())[2..5], [1, 1, 1]);
}

#[test]
fn page_is_read_from_the_drive_when_memory_differs() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let disk = ATOMIC.disk(seed);
        let store = ATOMIC.prepared(&disk);
        let error = std::io::ErrorKind::InvalidData;
        disk.inject(Fault { kind: OpKind::Sync, name: HOME.to_owned(), skip: 0, error });
        let mut page = image(2);
        store.write_batch(&[PageWrite { object: ObjectId(1), page_no: 3, page: &page }]).unwrap_err();
        assert_eq!(read(&store, 3).unwrap(), image(2));
        assert!(store.read_page_again(ObjectId(1), 3, &mut page).unwrap());
        seen.insert(version_of(&page, "again"));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2]);
}
