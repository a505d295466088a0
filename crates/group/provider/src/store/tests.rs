//! Written records are found again, from the last completed checkpoint.

use super::*;
use redoubt_consensus::Member;
use redoubt_consensus::types::{Incarnation, Membership};

fn identity() -> Identity {
    Identity { group: GroupId([3; 16]), member: MemberId(11) }
}

fn first_record() -> Record {
    Record::Snapshot(Member::founding(Membership::new([MemberId(11)])))
}

fn create(directory: &Path) -> Store {
    Store::create(directory, identity(), Slot(1), &[first_record()], b"state at 1").unwrap()
}

fn found(directory: &Path) -> Found {
    Store::open(directory).unwrap().unwrap().1
}

fn records(directory: &Path) -> Vec<Record> {
    Store::open(directory).unwrap().unwrap().0.records().map(Result::unwrap).collect()
}

#[test]
fn a_directory_without_a_store_has_none() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ibdata1"), b"the server's").unwrap();
    assert!(Store::open(directory.path()).unwrap().is_none());
}

#[test]
fn records_are_found_again_and_the_servers_files_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ibdata1"), b"the server's").unwrap();
    let store = create(directory.path());
    for life in 1..=3 {
        store.append(&Record::Started(Incarnation(life))).unwrap();
    }
    store.device().sync().unwrap();
    drop(store);
    let found = found(directory.path());
    assert_eq!(found.identity, identity());
    assert_eq!(found.replica, b"state at 1");
    let lives = (1..=3).map(|life| Record::Started(Incarnation(life)));
    assert_eq!(records(directory.path()), [first_record()].into_iter().chain(lives).collect::<Vec<_>>());
    assert_eq!(std::fs::read(directory.path().join("ibdata1")).unwrap(), b"the server's");
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_own = name.starts_with("redoubt_group.") && name.ends_with(".log");
        assert!(is_own || name == "ibdata1", "{name}");
    }
}

#[test]
fn a_checkpoint_takes_the_place_of_what_was_before_once_its_state_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = create(directory.path());
    store.append(&Record::Started(Incarnation(1))).unwrap();
    store.begin_checkpoint(Slot(9), || vec![first_record(), Record::Started(Incarnation(1))]).unwrap();
    assert!(store.is_checkpoint_begun());
    store.append(&Record::Started(Incarnation(2))).unwrap();
    store.device().sync().unwrap();
    drop(store);
    // The checkpoint was not completed: the first one counts, with the records after it.
    let before = found(directory.path());
    assert_eq!(before.replica, b"state at 1");
    let before = records(directory.path());
    assert_eq!(before.last(), Some(&Record::Started(Incarnation(2))));
    assert_eq!(before.len(), 3);

    let (mut store, _) = Store::open(directory.path()).unwrap().unwrap();
    store.begin_checkpoint(Slot(9), || vec![first_record(), Record::Started(Incarnation(2))]).unwrap();
    store.append(&Record::Started(Incarnation(3))).unwrap();
    store.end_checkpoint(Slot(8), b"of another slot").unwrap();
    assert!(store.is_checkpoint_begun());
    store.end_checkpoint(Slot(9), b"state at 9").unwrap();
    drop(store);
    let after = found(directory.path());
    assert_eq!(after.replica, b"state at 9");
    assert_eq!(
        records(directory.path()),
        [first_record(), Record::Started(Incarnation(2)), Record::Started(Incarnation(3))]
    );
}

#[test]
fn a_damaged_head_is_said() {
    let directory = tempfile::tempdir().unwrap();
    drop(create(directory.path()));
    let head = directory.path().join("redoubt_group.head.log");
    let mut bytes = std::fs::read(&head).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&head, &bytes).unwrap();
    let error = Store::open(directory.path()).err().unwrap().to_string();
    assert!(error.contains("redoubt_group.head.log has another checksum"), "{error}");
    std::fs::write(&head, &bytes[..9]).unwrap();
    let error = Store::open(directory.path()).err().unwrap().to_string();
    assert!(error.contains("is too short"), "{error}");
}

#[test]
fn a_damaged_log_is_not_to_be_restored_from_a_copy() {
    let directory = tempfile::tempdir().unwrap();
    drop(create(directory.path()));
    let name = directory.path().join("redoubt_group.log-00000000000000000000.seg.log");
    std::fs::OpenOptions::new().write(true).open(name).unwrap().set_len(4100).unwrap();
    let error = Store::open(directory.path()).err().unwrap().to_string();
    assert!(error.contains("is not usable: it is 4100 bytes long"), "{error}");
    assert!(error.ends_with("Remove the files redoubt_group.*.log, and the member joins again)"), "{error}");
}

#[test]
fn a_new_store_takes_the_place_of_an_old_one() {
    let directory = tempfile::tempdir().unwrap();
    let store = create(directory.path());
    store.append(&Record::Started(Incarnation(5))).unwrap();
    drop(store);
    drop(create(directory.path()));
    assert_eq!(records(directory.path()), [first_record()]);
}

/// A store of version 2: frames without a checksum, a head without the position of the state.
fn create_old(directory: &Path) {
    let files = own_files(directory).unwrap();
    let device = open_device(&files, segments()).unwrap();
    let put = |kind: u8, content: &[u8]| {
        let mut frame = (content.len() as u32 + 1).to_le_bytes().to_vec();
        frame.push(kind);
        frame.extend_from_slice(content);
        device.append(&frame).unwrap();
    };
    let encoded = |record: &Record| {
        let mut bytes = Vec::new();
        encode_record(record, &mut bytes);
        bytes
    };
    let mut checkpoint = 1_u64.to_le_bytes().to_vec();
    checkpoint.extend_from_slice(&1_u32.to_le_bytes());
    put_bytes(&mut checkpoint, &encoded(&first_record()));
    put(2, &checkpoint);
    put(1, &encoded(&Record::Started(Incarnation(1))));
    put(3, &[&1_u64.to_le_bytes()[..], b"state at 1"].concat());
    put(1, &encoded(&Record::Started(Incarnation(2))));
    device.sync().unwrap();
    let mut head = b"RDTGSTOR".to_vec();
    head.extend_from_slice(&2_u32.to_le_bytes());
    head.extend_from_slice(&[3; 16]);
    head.extend_from_slice(&11_u64.to_le_bytes());
    head.extend_from_slice(&0_u64.to_le_bytes());
    head.extend_from_slice(&crc32c::crc32c(&head).to_le_bytes());
    std::fs::write(directory.join("redoubt_group.head.log"), head).unwrap();
}

#[test]
fn a_store_of_the_version_before_is_read_and_goes_on_as_one_of_this() {
    let directory = tempfile::tempdir().unwrap();
    create_old(directory.path());
    let expected = [first_record(), Record::Started(Incarnation(1)), Record::Started(Incarnation(2))];
    assert_eq!(records(directory.path()), expected);
    let (mut store, found) = Store::open(directory.path()).unwrap().unwrap();
    assert_eq!((found.identity, &found.replica[..]), (identity(), &b"state at 1"[..]));
    assert_eq!(store.records().count(), 3);
    store.append(&Record::Started(Incarnation(3))).unwrap();
    store.begin_checkpoint(Slot(1), || vec![first_record(), Record::Started(Incarnation(3))]).unwrap();
    store.end_checkpoint(Slot(1), b"state then").unwrap();
    drop(store);
    assert_eq!(self::found(directory.path()).replica, b"state then");
    assert_eq!(records(directory.path()), [first_record(), Record::Started(Incarnation(3))]);
}

#[test]
fn a_damaged_record_is_said_with_its_position() {
    let directory = tempfile::tempdir().unwrap();
    let store = create(directory.path());
    let first = store.device().end().0;
    store.append(&Record::Started(Incarnation(1 << 40))).unwrap();
    store.device().sync().unwrap();
    let name = directory.path().join("redoubt_group.log-00000000000000000000.seg.log");
    let mut bytes = std::fs::read(&name).unwrap();
    let mut record = Vec::new();
    encode_record(&Record::Started(Incarnation(1 << 40)), &mut record);
    let at = bytes.windows(record.len()).rposition(|window| window == record).unwrap();
    bytes[at + 1] ^= 1;
    std::fs::write(&name, bytes).unwrap();
    let error = store.records().find_map(Result::err).unwrap().to_string();
    assert!(error.contains(&format!("the group's log at {first}: a frame with another checksum")), "{error}");
}
