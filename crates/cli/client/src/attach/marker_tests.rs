//! The marker, and the decisions of a data directory that depend on it.

use super::*;
use crate::attach::datadir::DataDirectory;
use crate::events::Ignored;

const ID: &str = "0123456789abcdef0123456789abcdef";
const WHO: &str = "host process 7 on /var/lib/shop";

fn directory_of_volume(path: &Path) -> DataDirectory<'static> {
    let mut directory = DataDirectory::open(path, "shop", &Ignored).unwrap();
    directory.check_volume(ID).unwrap();
    directory
}

/// As a node has it. It removes control characters and cuts the name.
fn attached(who: &str, generation: u64) -> VolumeStatus {
    let kept = who.chars().filter(|character| !character.is_control()).take(WHO_LIMIT_CHARACTERS);
    VolumeStatus {
        attached_by: kept.collect(),
        generation,
        state: "attached".to_owned(),
        ..Default::default()
    }
}

fn may_start(directory: &mut DataDirectory<'_>, volume: &VolumeStatus) -> bool {
    directory.note_own_attach(volume).unwrap();
    match directory.check_not_taken(volume) {
        Ok(()) => true,
        Err(ClientError::TakenOver(_)) => false,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn two_failed_attaches_do_not_lock_their_directory_out() {
    let parent = tempfile::tempdir().unwrap();
    let first = directory_of_volume(parent.path()).note_attaching(WHO).unwrap();
    // The node has made this attach; its answer was lost.
    let volume = attached(&first, 1);
    let mut again = directory_of_volume(parent.path());
    assert!(may_start(&mut again, &volume));
    // The node never gets the second one.
    again.note_attaching(WHO).unwrap();
    drop(again);
    assert!(may_start(&mut directory_of_volume(parent.path()), &volume));
    let elsewhere = attached("other process 8 on /var/lib/shop (attach 0123456789abcdef)", 2);
    assert!(!may_start(&mut directory_of_volume(parent.path()), &elsewhere));
}

#[test]
fn attach_made_after_the_next_was_noted_is_its_directory_s() {
    let parent = tempfile::tempdir().unwrap();
    let mut directory = directory_of_volume(parent.path());
    // Both wait in the node for an earlier attach. The first is made when its process is gone.
    let first = directory.note_attaching(WHO).unwrap();
    let second = directory.note_attaching(WHO).unwrap();
    assert_ne!(first, second);
    drop(directory);
    for (name, generation) in [(first, 1), (second, 2)] {
        assert!(may_start(&mut directory_of_volume(parent.path()), &attached(&name, generation)));
    }
}

#[test]
fn attach_of_a_long_path_is_recognised() {
    let parent = tempfile::tempdir().unwrap();
    let (long, odd) =
        (format!("host process 7 on {}", "/d\u{e9}p".repeat(300)), "h\u{7}ost on /a\nb".to_owned());
    for (generation, who) in [(1, long), (2, odd)] {
        let mut directory = directory_of_volume(parent.path());
        let name = directory.note_attaching(&who).unwrap();
        assert!(may_start(&mut directory, &attached(&name, generation)), "{name}");
    }
}

#[test]
fn marker_is_replaced_and_never_written_in_place() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join(NAME);
    let mut directory = directory_of_volume(parent.path());
    for generation in 1..4 {
        let before = std::fs::read_to_string(&path).unwrap();
        let mut old = File::open(&path).unwrap();
        let who = directory.note_attaching(WHO).unwrap();
        directory.note_attached(generation, &who).unwrap();
        let mut text = String::new();
        old.read_to_string(&mut text).unwrap();
        assert_eq!(text, before, "a power cut could leave parts of both texts");
        assert_eq!(read(parent.path()).unwrap().unwrap().generation, Some(generation));
    }
    assert!(!parent.path().join(NEW_NAME).exists());
}

#[test]
fn replaced_marker_stays_locked() {
    let parent = tempfile::tempdir().unwrap();
    let mut directory = directory_of_volume(parent.path());
    let old = File::open(parent.path().join(NAME)).unwrap();
    for generation in 1..3 {
        directory.note_attached(generation, WHO).unwrap();
        let second = DataDirectory::open(parent.path(), "shop", &Ignored).err().unwrap().to_string();
        assert!(second.contains("in use"), "{second}");
    }
    // The lock on a file without the name counts for nothing.
    lock_now(&old, parent.path()).unwrap();
    assert!(!is_at(&old, &parent.path().join(NAME)).unwrap());
    drop(directory);
    DataDirectory::open(parent.path(), "shop", &Ignored).unwrap();
}

#[test]
fn marker_of_0_1_0_is_read() {
    let parent = tempfile::tempdir().unwrap();
    let text = format!(r#"{{"format":1,"volume_id":"{ID}","volume":"shop","generation":5}}   "#);
    std::fs::write(parent.path().join(NAME), text).unwrap();
    let mut directory = directory_of_volume(parent.path());
    assert!(may_start(&mut directory, &attached("anyone", 5)));
    assert!(!may_start(&mut directory, &attached("anyone", 6)));
}

#[test]
fn leftover_of_a_write_cut_off_is_no_obstacle() {
    let parent = tempfile::tempdir().unwrap();
    let mut directory = directory_of_volume(parent.path());
    std::os::unix::fs::symlink("/etc/passwd", parent.path().join(NEW_NAME)).unwrap();
    directory.note_attached(1, WHO).unwrap();
    assert_eq!(read(parent.path()).unwrap().unwrap().generation, Some(1));
}

#[test]
fn failed_attaches_in_any_number_make_no_other_history() {
    let parent = tempfile::tempdir().unwrap();
    let mut directory = directory_of_volume(parent.path());
    let first = directory.note_attaching(WHO).unwrap();
    directory.note_attached(1, &first).unwrap();
    let volume = attached(&first, 1);
    for _ in 0..3 * ATTACHES {
        // The node refuses it: its disk is full.
        directory.note_attaching(WHO).unwrap();
        assert!(!directory.is_of_other_history(&volume));
        assert!(may_start(&mut directory, &volume));
    }
    assert!(directory.is_of_other_history(&attached("other process 8 on /var/lib/shop", 1)));
}

#[test]
fn lost_answer_before_many_failed_attaches_is_known() {
    let parent = tempfile::tempdir().unwrap();
    let lost = directory_of_volume(parent.path()).note_attaching(WHO).unwrap();
    let volume = attached(&lost, 7);
    let mut directory = directory_of_volume(parent.path());
    assert!(may_start(&mut directory, &volume));
    for _ in 0..2 * ATTACHES {
        directory.note_attaching(WHO).unwrap();
        assert!(!directory.is_of_other_history(&volume) && may_start(&mut directory, &volume));
    }
}

#[test]
fn accepted_older_copy_is_no_other_history_at_the_next_start() {
    let parent = tempfile::tempdir().unwrap();
    let mut directory = directory_of_volume(parent.path());
    let who = directory.note_attaching(WHO).unwrap();
    directory.note_attached(6, &who).unwrap();
    let older = attached("process 3 on /old", 4);
    directory.note_attached(4, &older.attached_by).unwrap();
    directory.note_attaching(WHO).unwrap();
    assert!(!directory.is_of_other_history(&older));
}

#[test]
fn copied_directory_does_not_take_its_originals_volume() {
    let parent = tempfile::tempdir().unwrap();
    let (original, copy) = (parent.path().join("original"), parent.path().join("copy"));
    for path in [&original, &copy] {
        std::fs::create_dir(path).unwrap();
    }
    let mut directory = directory_of_volume(&original);
    let who = directory.note_attaching(WHO).unwrap();
    directory.note_attached(1, &who).unwrap();
    std::fs::copy(original.join(NAME), copy.join(NAME)).unwrap();
    let mut copied = directory_of_volume(&copy);
    let running = attached(&who, 1);
    assert!(!may_start(&mut copied, &running));
    assert!(may_start(&mut directory, &running), "after a power cut the node may still see the old server");
    let stopped = VolumeStatus { state: "detached".to_owned(), ..running };
    assert!(may_start(&mut copied, &stopped));
}

#[test]
fn marker_of_0_1_0_and_failed_attaches_are_no_other_history() {
    let parent = tempfile::tempdir().unwrap();
    let text = format!(r#"{{"format":1,"volume_id":"{ID}","volume":"shop","generation":5}}"#);
    std::fs::write(parent.path().join(NAME), text).unwrap();
    let volume = attached("host process 7 on /var/lib/shop", 5);
    for _ in 0..3 {
        let mut directory = directory_of_volume(parent.path());
        assert!(!directory.is_of_other_history(&volume) && may_start(&mut directory, &volume));
        // The node refuses it.
        directory.note_attaching(WHO).unwrap();
    }
    assert!(directory_of_volume(parent.path()).is_of_other_history(&attached("anyone", 5)));
}

#[test]
fn place_with_an_unreadable_part_is_the_same_place() {
    let place = |machine_id: Option<&str>, product_uuid: Option<&str>, inode| Place {
        machine_id: machine_id.map(str::to_owned),
        product_uuid: product_uuid.map(str::to_owned),
        inode,
    };
    let as_root = place(Some("m"), Some("u"), 2);
    assert!(as_root.may_be(&place(Some("m"), None, 2)) && place(None, None, 2).may_be(&as_root));
    for other in [place(Some("m2"), None, 2), place(None, Some("u2"), 2), place(Some("m"), Some("u"), 3)] {
        assert!(!as_root.may_be(&other));
    }
}
