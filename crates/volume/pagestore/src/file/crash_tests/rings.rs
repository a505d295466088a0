//! Journals of other lengths, in other places, of other formats, and of another store.

use super::*;

#[test]
fn a_batch_longer_than_the_ring_goes_in_several_rounds() {
    for setup in Setup::all() {
        let disk = setup.disk(1);
        let store = setup.prepared(&disk);
        for version in 2..6 {
            write_versions(&store, 200, version).unwrap();
            let mut page = image(0);
            for page_no in 0..200 {
                assert!(store.read_page(ObjectId(1), page_no, &mut page).unwrap());
                assert_eq!(version_of(&page, "read"), version);
            }
        }
        assert_eq!(store.len_bytes(ObjectId(1)).unwrap(), 200 * PAGE as u64);
        assert_eq!(versions(&setup.open(&disk.after_power_cut()).unwrap()), [5; 12]);
    }
}

#[test]
fn the_longest_pages_fit_the_shortest_journal() {
    for setup in Setup::all() {
        let disk = setup.disk(1);
        disk.set_untorn_limits(Some(UntornLimits { min_len_bytes: 512, max_len_bytes: 16384 }));
        let store = setup.open(&disk).unwrap();
        store.create(ObjectId(1)).unwrap();
        let (one, two) = (vec![1; 65536], vec![2; 65536]);
        for page_no in 0..5 {
            let writes = [
                PageWrite { object: ObjectId(1), page_no, page: &one },
                PageWrite { object: ObjectId(1), page_no: page_no + 1, page: &two },
            ];
            store.write_batch(&writes).unwrap();
        }
        let store = setup.open(&disk.after_power_cut()).unwrap();
        let mut page = vec![0; 65536];
        for page_no in 0..6 {
            assert!(store.read_page(ObjectId(1), page_no, &mut page).unwrap());
            assert!(page == if page_no < 5 { &one[..] } else { &two[..] });
        }
    }
}

#[test]
fn an_object_may_change_its_page_length() {
    for setup in Setup::all() {
        let disk = setup.disk(1);
        let store = setup.prepared(&disk);
        let long = image(9).repeat(2);
        store.write_batch(&[PageWrite { object: ObjectId(1), page_no: 1, page: &long }]).unwrap();
        for store in [store, setup.open(&disk.after_power_cut()).unwrap()] {
            assert_eq!(versions(&store)[..6], [1, 1, 9, 9, 1, 1]);
            let mut page = long.clone();
            assert!(store.read_page(ObjectId(1), 2, &mut page).unwrap());
            assert!(page == image(1).repeat(2));
        }
    }
}

#[test]
fn the_journal_may_change_its_length_and_its_place() {
    for setup in Setup::all() {
        let disk = setup.disk(1);
        drop(setup.prepared(&disk));
        let mut version = 1;
        for (len, is_apart) in [(1 << 20, false), (MIN_JOURNAL_LEN, false), (1 << 18, true), (1 << 19, true)]
        {
            let setup = Setup { journal_len_bytes: len, is_apart, ..setup };
            let store = setup.open(&disk).unwrap();
            assert_eq!(versions(&store)[..8], [version; 8]);
            version += 1;
            write_versions(&store, 8, version).unwrap();
            assert_eq!(store.info().journal_len_bytes, len);
            let name = if is_apart { "journal/pages.journal" } else { JOURNAL_NAME };
            assert_eq!(disk.content(name).len() as u64, len);
            assert_eq!(StorageDir::list(&disk).unwrap().iter().any(|it| it == JOURNAL_NAME), !is_apart);
        }
    }
}

const IDENTITIES: [&str; 2] = ["pages.identity", "pages.identity.copy"];

#[test]
fn identity_that_is_lost_once_is_written_again() {
    let content = |disk: &SimDisk| IDENTITIES.map(|name| disk.content(name));
    let ways: [fn(&SimDisk, &str); 4] = [
        |disk, name| disk.remove(name).unwrap(),
        |disk, name| disk.damage(name, 17, |bytes| bytes[0] ^= 1),
        |disk, name| StorageDir::open(disk, name).unwrap().set_len(0).unwrap(),
        |disk, name| disk.lose(name, 0..28),
    ];
    for mode in MODES {
        let apart = Setup { is_apart: true, ..Setup::new(mode, 512) };
        let disk = apart.disk(1);
        drop(apart.prepared(&disk));
        let before = content(&disk);
        assert_eq!(before[0], before[1]);
        for (name, way) in IDENTITIES.iter().flat_map(|name| ways.map(|way| (name, way))) {
            let damaged = disk.copy();
            way(&damaged, name);
            assert_eq!(versions(&apart.open(&damaged).unwrap())[..8], [1; 8], "{mode}, {name}");
            assert_eq!(content(&damaged), before, "{mode}, {name}");
        }
    }
}

#[test]
fn a_journal_that_is_missing_or_not_ours_is_refused() {
    for mode in MODES {
        let here = Setup::new(mode, 512);
        let apart = Setup { is_apart: true, ..here };
        let refused = |setup: Setup, disk: &SimDisk, what: &str| {
            let error = setup.open(disk).err().expect("refused");
            let is_refusal =
                matches!(error, PageStoreError::BadFile { .. } | PageStoreError::LostJournal { .. });
            assert!(is_refusal, "{error}");
            assert!(error.to_string().contains(what), "{error}");
        };
        let disk = here.disk(1);
        drop(apart.prepared(&disk));
        refused(here, &disk, "it is not there");
        // Moved by hand, it is found.
        let moved = disk.copy();
        moved.rename("journal/pages.journal", JOURNAL_NAME).unwrap();
        assert_eq!(versions(&here.open(&moved).unwrap())[..8], [1; 8]);
        let moved = disk.copy();
        moved.remove("journal/pages.journal").unwrap();
        refused(apart, &moved, "it is not there");
        // The journal of another directory.
        let other = here.disk(2);
        drop(apart.prepared(&other));
        IDENTITIES.iter().for_each(|name| other.remove(name).unwrap());
        refused(apart, &other, "pages.identity, which names the journal");
        drop(here.open(&here.disk(3)).unwrap());
        let cleared = disk.copy();
        cleared.damage("journal/pages.journal", 0, |bytes| bytes.fill(0));
        refused(apart, &cleared, "no valid superblock");
        let unknown = here.disk(4);
        drop(here.prepared(&unknown));
        unknown.damage(JOURNAL_NAME, 0, |bytes| bytes[..8192].fill(7));
        refused(here, &unknown, "no valid superblock");
        IDENTITIES.iter().for_each(|name| unknown.remove(name).unwrap());
        refused(here, &unknown, "does not begin like");
        let newer = here.disk(5);
        drop(here.prepared(&newer));
        for at in [0, 4096] {
            newer.damage(JOURNAL_NAME, at, |bytes| bytes[7] = b'3');
        }
        refused(here, &newer, "newer Redoubt");
        let damaged = disk.copy();
        for name in IDENTITIES {
            damaged.damage(name, 17, |bytes| bytes[0] ^= 1);
        }
        let error = apart.open(&damaged).err().expect("refused");
        assert!(error.to_string().contains("pages.identity"), "{error}");
    }
}

#[test]
fn journal_before_0_1_0_is_refused_and_left_alone() {
    for setup in Setup::all() {
        for is_apart in [false, true] {
            let setup = Setup { is_apart, ..setup };
            let disk = setup.disk(1);
            let old = disk.create("00000001.pages").unwrap();
            old.write_at(0, &image(1).repeat(8)).unwrap();
            old.sync_all().unwrap();
            let journal = disk.create(JOURNAL_NAME).unwrap();
            let mut content = b"RDBTPGJ1".to_vec();
            content.extend(1_u32.to_le_bytes());
            content.resize(200_000, 0);
            journal.write_at(0, &content).unwrap();
            journal.sync_all().unwrap();
            StorageDir::sync(&disk).unwrap();
            let error = setup.open(&disk).err().unwrap().to_string();
            for part in
                [JOURNAL_NAME, "version 1", "before Redoubt 0.1.0", "export the volume", "import the export"]
            {
                assert!(error.contains(part), "`{part}` is not in: {error}");
            }
            let mut left = vec![0; content.len()];
            disk.open(JOURNAL_NAME).unwrap().read_at(0, &mut left).unwrap();
            assert!(left == content, "the journal was changed");
        }
    }
}
