use super::*;
use std::fs::FileTimes;
use std::time::Duration;

const LEN: usize = 2 << 20;
const NAME: &str = "log.000001";

fn open(directory: &Path) -> File {
    let options =
        File::options().read(true).write(true).create(true).truncate(false).open(directory.join(NAME));
    options.unwrap()
}

/// A file that was remembered, and its remembered contents.
fn remembered(directory: &Path, settled: bool) -> (File, Contents) {
    let file = open(directory);
    file.write_all_at(&vec![7; LEN], 0).unwrap();
    let mut checksums = Checksums::load(directory).unwrap();
    let contents = checksums.of(NAME, &file).unwrap();
    assert_eq!(contents, Contents { len_bytes: LEN as u64, crc: crc32c::crc32c(&vec![7; LEN]) });
    if settled {
        // As if it had been written long ago; the time of change cannot be set, so the recorded stamp is.
        let (stamp, _) = checksums.found.get_mut(NAME).unwrap();
        assert!(!stamp.is_settled(SystemTime::now()));
        assert!(stamp.is_settled(SystemTime::now() + Duration::from_secs(3)));
        let body = serde_json::to_vec(&Saved {
            format: FORMAT,
            boot_id: checksums.boot_id.clone(),
            files: checksums.found.clone(),
        });
        let body = body.unwrap();
        let line = format!("{:08x}\n", crc32c::crc32c(&body));
        std::fs::write(directory.join(FILE_NAME), [line.as_bytes(), &body].concat()).unwrap();
    } else {
        checksums.sync(NAME, &file).unwrap();
        checksums.save().unwrap();
    }
    (file, contents)
}

fn is_believed(directory: &Path, file: &File) -> bool {
    let mut checksums = Checksums::load(directory).unwrap();
    let contents = checksums.of(NAME, file).unwrap();
    let mut bytes = Vec::new();
    File::open(directory.join(NAME)).unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(contents, Contents { len_bytes: bytes.len() as u64, crc: crc32c::crc32c(&bytes) });
    checksums.found.is_empty()
}

#[test]
fn a_file_that_nobody_touched_is_not_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _) = remembered(directory.path(), true);
    assert!(is_believed(directory.path(), &file));
    assert!(is_believed(directory.path(), &file));
}

#[test]
fn a_file_that_changed_a_moment_ago_is_not_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _) = remembered(directory.path(), false);
    assert!(!is_believed(directory.path(), &file));
}

#[test]
fn a_file_that_was_changed_is_read_again_whatever_its_time_says() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _) = remembered(directory.path(), true);
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"x", 9).unwrap();
    file.set_times(FileTimes::new().set_modified(modified)).unwrap();
    assert!(!is_believed(directory.path(), &file));

    // Another file of the same length and time in its place.
    let (_, _) = remembered(directory.path(), true);
    std::fs::remove_file(directory.path().join(NAME)).unwrap();
    let other = open(directory.path());
    other.write_all_at(&vec![8; LEN], 0).unwrap();
    assert!(!is_believed(directory.path(), &other));
}

#[test]
fn another_boot_and_a_damaged_file_are_not_believed() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _) = remembered(directory.path(), true);
    let path = directory.path().join(FILE_NAME);
    let good = std::fs::read(&path).unwrap();
    let mut bad = good.clone();
    bad[40] ^= 1;
    std::fs::write(&path, bad).unwrap();
    assert!(!is_believed(directory.path(), &file));

    let mut saved: Saved = serde_json::from_slice(&good[9..]).unwrap();
    saved.boot_id = "another".to_owned();
    let body = serde_json::to_vec(&saved).unwrap();
    std::fs::write(&path, [format!("{:08x}\n", crc32c::crc32c(&body)).as_bytes(), &body].concat()).unwrap();
    assert!(!is_believed(directory.path(), &file));
    std::fs::write(&path, good).unwrap();
    assert!(is_believed(directory.path(), &file));
}
