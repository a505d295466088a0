//! Power cuts while the list of damaged pages changes.

use super::*;
use crate::options::NodeOptions;
use redoubt_page::SpaceFlags;
use redoubt_redo::{Lsn, PageId, SpaceId};
use redoubt_storage::StorageDir;
use redoubt_storage::sim::SimDisk;
use std::path::Path;

const FLAG: &str = "flag";
/// More operations than a change of the list has.
const OPERATIONS_MAX: u64 = 60;

fn folder(disk: &SimDisk) -> Folder {
    let dir: Arc<dyn StorageDir> = Arc::new(disk.subdirectory("own"));
    Folder::new(dir, Path::new("own"))
}

fn names() -> (Namespace, ObjectId) {
    let mut names = Namespace::default();
    let object = names.object_of_space(SpaceId(5));
    names.set_flags(object, SpaceFlags(0x15).0);
    (names, object)
}

fn open(disk: &SimDisk, names: &Namespace) -> Result<QuarantineFile, NodeError> {
    let options = NodeOptions::new("own".into(), String::new());
    let is_flagged = folder(disk).find(FLAG)?.is_some();
    QuarantineFile::open(&Arc::new(Context::new("v", folder(disk), &options)), is_flagged, names)
}

fn settle(
    quarantine: &QuarantineFile,
    disk: &SimDisk,
    damage: &Damage,
    dead: &[ObjectId],
) -> Result<(), NodeError> {
    let set_flag = |is_set: bool| {
        let own = folder(disk);
        if is_set {
            return write_checked(&own, FLAG, b"set");
        }
        own.remove(FLAG)?;
        own.sync()
    };
    let file_of = |_: ObjectId| "d/t.ibd".to_owned();
    quarantine.settle(damage, dead, &Surroundings { file_of: &file_of, set_flag: &set_flag })
}

fn damage(object: ObjectId, pages: impl IntoIterator<Item = u32>) -> Damage {
    let of = |page_no| DamagedPage {
        key: PageKey::new(object, page_no),
        page_id: PageId::new(5, page_no),
        is_whole_object: false,
        found_at: None,
        differs: None,
        lsn: Lsn(10),
        reason: "rotten".to_owned(),
        evidence: None,
    };
    Damage { set_aside: pages.into_iter().map(of).collect(), ..Damage::default() }
}

/// A change, and the numbers of entries before and after it.
type Change<'c> = (&'c Damage, &'c [ObjectId], usize, usize);

#[test]
fn power_cut_leaves_the_list_before_or_after_a_change() {
    let (names, object) = names();
    let (first, second, none) = (damage(object, [3]), damage(object, [4, 5]), Damage::default());
    let renewed = Damage { renewed: vec![PageKey::new(object, 4)], ..Damage::default() };
    let gone = [object];
    let changes: [Change<'_>; 4] =
        [(&first, &[], 0, 1), (&second, &[], 1, 3), (&renewed, &[], 3, 2), (&none, &gone, 2, 0)];
    let mut disk = SimDisk::new(1);
    for (damage, dead, before, after) in changes {
        let mut seen = BTreeSet::new();
        let mut cut_at = 0;
        loop {
            assert!(cut_at < OPERATIONS_MAX, "the change does not end");
            let trial = disk.copy();
            let quarantine = open(&trial, &names).unwrap();
            assert_eq!(quarantine.list.contents().len(), before);
            trial.cut_power_at(trial.ops_done() + cut_at);
            let is_done = settle(&quarantine, &trial, damage, dead).is_ok();
            for _ in 0..4 {
                let next = trial.after_power_cut();
                let left = open(&next, &names).unwrap().list.contents().len();
                assert!(left == after || (left == before && !is_done), "{before} to {after}: {left}");
                seen.insert(left);
            }
            if is_done {
                break;
            }
            cut_at += 1;
        }
        assert_eq!(seen, BTreeSet::from([before, after]));
        settle(&open(&disk, &names).unwrap(), &disk, damage, dead).unwrap();
        disk = disk.after_power_cut();
    }
}

#[test]
fn list_that_the_drive_cannot_read_is_replaced_by_its_copy() {
    let (names, object) = names();
    for [lost, other] in [FILE_NAMES, [FILE_NAMES[1], FILE_NAMES[0]]] {
        let disk = SimDisk::new(1);
        settle(&open(&disk, &names).unwrap(), &disk, &damage(object, [3]), &[]).unwrap();
        disk.lose(&format!("own/{lost}"), 0..8);
        assert_eq!(open(&disk, &names).unwrap().list.contents().len(), 1, "{lost}");
        // It was written again.
        disk.lose(&format!("own/{other}"), 0..8);
        assert_eq!(open(&disk, &names).unwrap().list.contents().len(), 1, "{lost}");
        FILE_NAMES.iter().for_each(|name| disk.lose(&format!("own/{name}"), 0..8));
        assert!(open(&disk, &names).is_err());
    }
}

#[test]
fn pages_that_reads_have_found_count_once() {
    let (names, object) = names();
    let disk = SimDisk::new(1);
    let quarantine = open(&disk, &names).unwrap();
    settle(&quarantine, &disk, &damage(object, [3]), &[]).unwrap();
    for page_no in [3, 4, 4] {
        quarantine.note_found(SetAside {
            object: object.0,
            page_no: Some(page_no),
            space: 5,
            file: "d/t.ibd".to_owned(),
            lsn: 7,
            reason: "rotten".to_owned(),
            found_at: None,
            differs: None,
        });
    }
    assert_eq!((quarantine.count(), quarantine.status().1), (2, 2));
}

#[test]
fn pages_set_aside_are_requested_once_and_not_too_many() {
    let (names, object) = names();
    let disk = SimDisk::new(1);
    let quarantine = open(&disk, &names).unwrap();
    let mut many = damage(object, 0..600);
    many.set_aside.extend(damage(ObjectId(object.0 + 1), 0..600).set_aside);
    settle(&quarantine, &disk, &many, &[]).unwrap();
    let requested = std::cell::Cell::new(0);
    let request = |key: PageKey| {
        assert!(quarantine.list.find(key).is_some(), "it is listed first");
        requested.set(requested.get() + 1);
        None
    };
    quarantine.request_new(&request);
    assert_eq!(requested.take(), WANTED_MAX);
    quarantine.request_new(&request);
    assert_eq!(requested.take(), 0);
    // A server that connects is asked for them.
    settle(&quarantine, &disk, &damage(object, 600..602), &[]).unwrap();
    assert!(quarantine.wanted_images(&request).is_empty());
    assert_eq!(requested.take(), 1202);
    quarantine.request_new(&request);
    assert_eq!(requested.take(), 0);
}
