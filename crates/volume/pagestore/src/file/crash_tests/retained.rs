//! Older images for repairs, and images that the medium damaged.

use super::*;

const JOURNAL: Setup = Setup {
    mode: PageProtection::Journal,
    sector_len: 512,
    untorn_len: 512,
    journal_len_bytes: MIN_JOURNAL_LEN,
    is_apart: false,
    open_files: None,
};

fn retained(store: &FilePageStore, page_no: u32) -> Vec<u32> {
    let images = store.retained_images(ObjectId(1), page_no, PAGE as u32).unwrap();
    images.iter().map(|image| version_of(&image.page, "retained")).collect()
}

/// Damages the image of a version in the ring.
fn damage(disk: &SimDisk, version: u32) {
    let content = disk.content(JOURNAL_NAME);
    let at = content.chunks(PAGE).position(|bytes| bytes == image(version)).expect("the image") * PAGE;
    disk.damage(JOURNAL_NAME, at + 700, |bytes| bytes[0] ^= 1);
}

#[test]
fn images_are_kept_until_their_room_is_used_again() {
    for mode in [PageProtection::Journal, PageProtection::Doublewrite] {
        let setup = Setup { mode, ..JOURNAL };
        let disk = setup.disk(1);
        let store = setup.prepared(&disk);
        for version in 2..=100 {
            write_versions(&store, 3, version).unwrap();
            let kept = retained(&store, 2);
            // A batch takes 12 KiB of the ring's 120.
            let expected: Vec<u32> = (1..=version).rev().take(kept.len()).collect();
            assert_eq!(kept, expected, "{mode}");
            assert!(kept.len() >= (version as usize).min(9), "{mode}: {kept:?}");
        }
        assert_eq!(retained(&store, 100), [0u32; 0]);
        assert_eq!(store.retained_images(ObjectId(1), 2, 512).unwrap(), []);
        let newest = |store: &FilePageStore, page_no| {
            let images = store.retained_images(ObjectId(1), page_no, PAGE as u32).unwrap();
            images.iter().map(|image| image.is_newest).collect::<Vec<_>>()
        };
        assert_eq!(newest(&store, 0)[..3], [true, false, false]);
        damage(&disk, 99);
        assert_eq!(retained(&store, 0)[..2], [100, 98]);
        damage(&disk, 100);
        assert!(!newest(&store, 0).contains(&true), "the newest is not whole");
        // Images of an earlier incarnation of the object are not offered.
        store.remove(ObjectId(1)).unwrap();
        store.create(ObjectId(1)).unwrap();
        assert_eq!(retained(&store, 2), [0u32; 0]);
        write_versions(&store, 3, 101).unwrap();
        assert_eq!(retained(&store, 2), [101]);
        let reopened = setup.open(&disk.after_power_cut()).unwrap();
        assert_eq!(retained(&reopened, 2), [101]);
    }
}

#[test]
fn a_damaged_image_is_named_and_can_be_replaced() {
    let disk = JOURNAL.disk(1);
    let store = JOURNAL.prepared(&disk);
    store.write_batch(&[PageWrite { object: ObjectId(1), page_no: 3, page: &image(2) }]).unwrap();
    damage(&disk, 2);
    let check_read = |store: &FilePageStore| {
        let mut page = image(0);
        let error = store.read_page(ObjectId(1), 3, &mut page).unwrap_err();
        assert!(matches!(error, PageStoreError::DamagedImage { page_no: 3, .. }), "{error}");
        assert!(store.read_page(ObjectId(1), 4, &mut page).unwrap());
        assert_eq!(retained(store, 3), [1]);
    };
    check_read(&store);
    // The batch was durable, but no later group records that: it counts as incomplete.
    let disk = JOURNAL.disk(1);
    let store = JOURNAL.prepared(&disk);
    store.write_batch(&[PageWrite { object: ObjectId(1), page_no: 3, page: &image(2) }]).unwrap();
    store.write_batch(&[PageWrite { object: ObjectId(1), page_no: 5, page: &image(3) }]).unwrap();
    damage(&disk, 2);
    let disk = disk.after_power_cut();
    let other_mode = Setup { mode: PageProtection::Doublewrite, ..JOURNAL };
    check_spoilt(&other_mode.open(&disk.copy()).unwrap());
    // A page rebuilt elsewhere takes its place.
    let store = JOURNAL.open(&disk).unwrap();
    check_read(&store);
    store.write_batch(&[PageWrite { object: ObjectId(1), page_no: 3, page: &image(4) }]).unwrap();
    assert_eq!(versions(&store)[2..6], [1, 4, 1, 3]);
    drop(store);
    assert_eq!(versions(&other_mode.open(&disk).unwrap())[2..6], [1, 4, 1, 3]);
}

/// Page 3 is neither an older version of itself nor any other whole page; the others are as they were.
fn check_spoilt(store: &FilePageStore) {
    let mut page = image(0);
    assert!(store.read_page(ObjectId(1), 3, &mut page).unwrap());
    assert!((0..10).all(|version| page != image(version)), "{page:?}");
    assert!(store.read_page(ObjectId(1), 4, &mut page).unwrap());
    assert_eq!(page, image(1));
}

#[test]
fn damaged_image_goes_home_without_stopping_the_store() {
    for is_lost_write in [false, true] {
        let disk = JOURNAL.disk(1);
        let store = JOURNAL.prepared(&disk);
        store.write_batch(&[PageWrite { object: ObjectId(1), page_no: 3, page: &image(2) }]).unwrap();
        if is_lost_write {
            // The room of the image has that of an earlier lap.
            let content = disk.content(JOURNAL_NAME);
            let at = content.chunks(PAGE).position(|bytes| bytes == image(2)).expect("the image") * PAGE;
            disk.damage(JOURNAL_NAME, at, |bytes| bytes[..PAGE].copy_from_slice(&image(1)));
        } else {
            damage(&disk, 2);
        }
        // The ring wants its room again, several times over.
        store.create(ObjectId(2)).unwrap();
        for version in 0..200 {
            let page = image(version);
            let writes: Vec<_> =
                (0..4).map(|page_no| PageWrite { object: ObjectId(2), page_no, page: &page }).collect();
            store.write_batch(&writes).unwrap();
        }
        check_spoilt(&store);
        // A write replaces it, and its object can be removed.
        store.write_batch(&[PageWrite { object: ObjectId(1), page_no: 3, page: &image(5) }]).unwrap();
        assert_eq!(versions(&store)[2..5], [1, 5, 1]);
        store.remove(ObjectId(1)).unwrap();
    }
    // Bytes past the page's own read bring it home at once.
    let disk = JOURNAL.disk(1);
    let store = JOURNAL.prepared(&disk);
    store.write_batch(&[PageWrite { object: ObjectId(1), page_no: 3, page: &image(2) }]).unwrap();
    damage(&disk, 2);
    store.read_raw(ObjectId(1), 0, &mut [0; 16]).unwrap();
    check_spoilt(&store);
}

#[test]
fn after_a_seal_damage_is_not_taken_for_a_batch_under_way() {
    for is_sealed in [false, true] {
        let disk = JOURNAL.disk(1);
        let store = JOURNAL.prepared(&disk);
        store.write_batch(&[PageWrite { object: ObjectId(1), page_no: 3, page: &image(2) }]).unwrap();
        if is_sealed {
            store.seal().unwrap();
        }
        drop(store);
        damage(&disk, 2);
        for disk in [disk.copy(), disk.after_power_cut()] {
            let store = JOURNAL.open(&disk).unwrap();
            let mut page = image(0);
            match store.read_page(ObjectId(1), 3, &mut page) {
                Ok(_) => assert!(!is_sealed && version_of(&page, "read") == 1),
                Err(error) => assert!(is_sealed && matches!(error, PageStoreError::DamagedImage { .. })),
            }
            assert!(store.read_page(ObjectId(1), 4, &mut page).unwrap() && version_of(&page, "read") == 1);
        }
    }
}

#[test]
fn a_header_lost_in_the_middle_is_told_from_the_end() {
    let disk = JOURNAL.disk(1);
    let store = JOURNAL.prepared(&disk);
    for version in 2..5 {
        write_versions(&store, 8, version).unwrap();
    }
    drop(store);
    // The groups have 4 KiB of header and 16 of images each.
    for (group, is_last) in [(0, false), (1, false), (2, false), (3, true)] {
        let damaged = disk.copy();
        damaged.damage(JOURNAL_NAME, 8192 + group * 20480 + 100, |bytes| bytes[0] ^= 1);
        match JOURNAL.open(&damaged) {
            Ok(store) => assert!(is_last && versions(&store)[..8] == [3; 8]),
            Err(error) => assert!(!is_last && matches!(error, PageStoreError::BadFile { .. }), "{error}"),
        }
    }
}

#[test]
fn one_lost_superblock_is_noticed_or_does_no_harm() {
    let disk = JOURNAL.disk(1);
    let store = JOURNAL.prepared(&disk);
    for version in 2..40 {
        write_versions(&store, 8, version).unwrap();
        for block in [0, 4096] {
            let damaged = disk.copy();
            damaged.damage(JOURNAL_NAME, block + 50, |bytes| bytes[0] ^= 1);
            match JOURNAL.open(&damaged) {
                Ok(store) => assert_eq!(versions(&store)[..8], [version; 8]),
                Err(error) => assert!(matches!(error, PageStoreError::BadFile { .. }), "{error}"),
            }
        }
        let damaged = disk.copy();
        damaged.damage(JOURNAL_NAME, 0, |bytes| bytes[..8192].fill(0xff));
        assert!(matches!(JOURNAL.open(&damaged), Err(PageStoreError::LostJournal { .. })));
    }
}

#[test]
fn newest_images_are_those_of_the_stored_pages() {
    for mode in [PageProtection::Journal, PageProtection::Doublewrite] {
        let setup = Setup { mode, ..JOURNAL };
        let disk = setup.disk(1);
        let store = setup.prepared(&disk);
        for version in 2..=50 {
            write_versions(&store, 3, version).unwrap();
            let images = store.newest_images(ObjectId(1), 1..3, PAGE as u32);
            assert_eq!(images.keys().copied().collect::<Vec<_>>(), [1, 2], "{mode}");
            for (page_no, crc) in images {
                let mut page = vec![0; PAGE];
                store.drop_cache(ObjectId(1), page_no..page_no + 1, PAGE as u32);
                assert!(store.read_page(ObjectId(1), page_no, &mut page).unwrap());
                assert_eq!(crc32c::crc32c(&page), crc, "{mode}, version {version}");
            }
        }
        assert!(store.newest_images(ObjectId(1), 0..9, 512).is_empty(), "another length");
        assert!(store.newest_images(ObjectId(2), 0..9, PAGE as u32).is_empty());
        // An earlier incarnation of the object.
        store.remove(ObjectId(1)).unwrap();
        store.create(ObjectId(1)).unwrap();
        assert!(store.newest_images(ObjectId(1), 0..9, PAGE as u32).is_empty(), "{mode}");
    }
}
