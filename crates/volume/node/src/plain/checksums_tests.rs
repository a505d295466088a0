use super::*;
use crate::plain::Change;
use redoubt_storage::StorageDir;
use redoubt_storage::sim::SimDisk;
use std::path::Path;
use std::sync::Arc;

const FILE: FileId = FileId(7);
const LONG: usize = 3 << 20;

fn folder(disk: &SimDisk) -> Folder {
    Folder::new(Arc::new(disk.clone()), Path::new("plain"))
}

#[test]
fn shortened_file_of_an_earlier_build_is_not_lost() {
    for finds_losses in [false, true] {
        let disk = SimDisk::new(1);
        let before = store(&disk);
        before.execute(&Change::Create(FILE)).unwrap();
        before.write(FILE, 0, &random(LONG, 1)).unwrap();
        before.sync().unwrap();
        before.checksum(FILE).unwrap();
        before.save_checksums();
        // The earlier build has executed a truncation, and A has passed it.
        disk.open("00000007").unwrap().set_len(100).unwrap();
        let store = PlainStore::new(folder(&disk));
        store.load_checksums(finds_losses).unwrap();
        assert_eq!(store.all_lost().len(), usize::from(finds_losses));
        // The next start is one of this build.
        let next = PlainStore::new(folder(&disk));
        next.load_checksums(true).unwrap();
        assert!(finds_losses || next.all_lost().is_empty());
    }
}

fn store(disk: &SimDisk) -> PlainStore {
    let store = PlainStore::new(folder(disk));
    store.load_checksums(true).unwrap();
    store
}

fn random(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| rng.u8(..)).collect()
}

/// The file's checksum is true.
fn require_true(store: &PlainStore, disk: &SimDisk, what: &str) {
    let contents = disk.content("00000007");
    let expected = Checksum { len_bytes: contents.len() as u64, crc: crc32c::crc32c(&contents) };
    assert_eq!(store.checksum(FILE).unwrap(), Some(expected), "{what}");
}

fn remembered(store: &PlainStore) -> u64 {
    store.checksums.state.lock().known.get(&FILE).map_or(0, |known| known.checksum.len_bytes)
}

#[test]
fn what_is_remembered_is_true_after_any_change() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    store.write(FILE, 0, &random(LONG, 1)).unwrap();
    require_true(&store, &disk, "new");
    store.write(FILE, LONG as u64, b"appended").unwrap();
    assert_eq!(remembered(&store), LONG as u64, "what was appended does not make it read again");
    require_true(&store, &disk, "appended");
    store.write(FILE, 5, b"changed").unwrap();
    assert_eq!(remembered(&store), 0);
    require_true(&store, &disk, "changed");
    store.execute(&Change::SetLen(FILE, 100)).unwrap();
    require_true(&store, &disk, "cut");
    store.execute(&Change::SetLen(FILE, 3000)).unwrap();
    require_true(&store, &disk, "extended");
    store.execute(&Change::Create(FILE)).unwrap();
    require_true(&store, &disk, "emptied");
    store.execute(&Change::Remove(FILE)).unwrap();
    assert_eq!(store.checksum(FILE).unwrap(), Some(Checksum::default()));
}

#[test]
fn a_change_while_a_file_is_read_is_noticed() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    store.write(FILE, 0, &random(LONG, 1)).unwrap();
    // The steps of `of`, with a change in between.
    store.checksums.state.lock().under_way = Some((FILE, u64::MAX));
    store.write(FILE, 9, b"x").unwrap();
    assert_eq!(store.checksums.state.lock().under_way.take(), Some((FILE, 9)));
}

#[test]
fn a_restart_believes_it_and_no_power_cut_makes_it_wrong() {
    let mut believed = 0;
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let store_before = store(&disk);
        let mut rng = fastrand::Rng::with_seed(seed);
        store_before.write(FILE, 0, &random(LONG, seed)).unwrap();
        store_before.sync().unwrap();
        require_true(&store_before, &disk, "new");
        store_before.save_checksums();
        // One batch of changes, which the checkpoint covers when the sync has returned; the power is cut before or
        // after.
        let (at, bytes) = (rng.u64(..LONG as u64), random(rng.usize(1..9000), seed + 1));
        disk.cut_power_at(disk.ops_done() + rng.u64(..12));
        let covered = store_before.write(FILE, at, &bytes).and_then(|()| store_before.sync()).is_ok();
        drop(store_before);
        let disk = disk.after_power_cut();
        let store_after = store(&disk);
        believed += u64::from(remembered(&store_after) > 0);
        if !covered {
            // It is executed again, since the checkpoint is before it.
            store_after.write(FILE, at, &bytes).unwrap();
        }
        require_true(&store_after, &disk, &format!("seed {seed}, covered: {covered}"));
    }
    assert!(believed > 5, "{believed}");
}

#[test]
fn a_saved_checksum_that_cannot_be_understood_is_computed_again() {
    let disk = SimDisk::new(1);
    let before = store(&disk);
    before.write(FILE, 0, &random(LONG, 1)).unwrap();
    before.sync().unwrap();
    require_true(&before, &disk, "new");
    before.save_checksums();
    drop(before);
    assert_eq!(remembered(&store(&disk)), LONG as u64);
    disk.damage(FILE_NAME, 12, |bytes| bytes[0] ^= 1);
    let after = store(&disk);
    assert_eq!(remembered(&after), 0);
    assert!(!StorageDir::list(&disk).unwrap().contains(&FILE_NAME.to_owned()));
    require_true(&after, &disk, "damaged");
}

#[test]
fn truncation_that_is_executed_again_leaves_no_loss() {
    let disk = SimDisk::new(1);
    let before = store(&disk);
    before.write(FILE, 0, &random(LONG, 1)).unwrap();
    before.sync().unwrap();
    require_true(&before, &disk, "new");
    before.save_checksums();
    // The process is killed before the next sync.
    before.execute(&Change::SetLen(FILE, 0)).unwrap();
    drop(before);
    let again = store(&disk);
    assert!(again.lost(FILE).is_some());
    again.execute(&Change::SetLen(FILE, 0)).unwrap();
    assert_eq!(again.lost(FILE), None);
    again.write(FILE, 0, &random(LONG / 2, 2)).unwrap();
    again.sync().unwrap();
    drop(again);
    let after = store(&disk);
    assert_eq!(after.lost(FILE), None, "the entry of before the truncation was kept");
    require_true(&after, &disk, "after the truncation");
}

#[test]
fn saved_checksums_that_the_drive_lost_are_computed_again() {
    let disk = SimDisk::new(1);
    let before = store(&disk);
    before.write(FILE, 0, &random(LONG, 1)).unwrap();
    before.sync().unwrap();
    require_true(&before, &disk, "new");
    before.save_checksums();
    drop(before);
    disk.lose(FILE_NAME, 0..8);
    let after = store(&disk);
    assert_eq!(remembered(&after), 0);
    assert!(!StorageDir::list(&disk).unwrap().contains(&FILE_NAME.to_owned()));
    require_true(&after, &disk, "lost");
}
