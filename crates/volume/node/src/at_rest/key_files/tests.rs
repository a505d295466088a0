use super::*;
use std::os::unix::fs::PermissionsExt;

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn put(path: &Path, len: usize, mode: u32) {
    std::fs::write(path, vec![7; len]).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_key_is_made_once_and_only_for_the_node() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("made/too");
    let keys = VolumeKeys::open(&place).unwrap();
    assert_eq!(std::fs::metadata(&place).unwrap().mode() & 0o777, 0o700);
    assert!(matches!(keys.read("v"), Err(AtRestError::KeyMissing { path }) if path == place.join("v.key")));
    let made = keys.ensure("v").unwrap();
    assert_eq!(made, KeyFile { path: place.join("v.key"), is_new: true });
    let metadata = std::fs::metadata(&made.path).unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.len()), (0o600, 64));
    let (key, _) = keys.read("v").unwrap();
    assert!(!keys.ensure("v").unwrap().is_new);
    assert_eq!(*keys.read("v").unwrap().0, *key);
    keys.ensure("w").unwrap();
    assert_ne!(*keys.read("w").unwrap().0, *key);
    let names = std::fs::read_dir(&place).unwrap().count();
    assert_eq!(names, 2, "something was left beside the keys");
}

#[test]
fn what_a_crash_left_is_not_a_key() {
    let directory = tempfile::tempdir().unwrap();
    put(&directory.path().join("v.key.new"), 10, 0o600);
    let keys = VolumeKeys::open(directory.path()).unwrap();
    assert!(matches!(keys.read("v"), Err(AtRestError::KeyMissing { .. })));
    assert!(keys.ensure("v").unwrap().is_new);
    keys.read("v").unwrap();
}

#[test]
fn one_node_uses_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let first = VolumeKeys::open(directory.path()).unwrap();
    assert!(matches!(VolumeKeys::open(directory.path()), Err(AtRestError::KeysInUse { .. })));
    drop(first);
    VolumeKeys::open(directory.path()).unwrap();
}

#[test]
fn a_key_file_that_is_none_is_named_with_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let keys = VolumeKeys::open(directory.path()).unwrap();
    let path = directory.path().join("v.key");
    for mode in [0o604, 0o640, 0o620, 0o660, 0o606, 0o644] {
        put(&path, 64, mode);
        let error = keys.read("v").unwrap_err();
        assert!(matches!(error, AtRestError::KeyTooOpen { .. }), "{mode:o}: {error}");
        assert!(error.to_string().contains(&format!("{mode:04o}")), "{error}");
        // Nor is it written over.
        assert!(keys.ensure("v").is_err());
    }
    for len in [0, 32, 63, 65, 88] {
        put(&path, len, 0o600);
        let error = keys.read("v").unwrap_err().to_string();
        assert!(error.contains(&format!("{len} bytes")) && error.contains("64"), "{error}");
    }
    for mode in [0o600, 0o400] {
        put(&path, 64, mode);
        keys.read("v").unwrap();
    }
}

#[test]
fn who_may_own_a_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("v.key");
    let with = |mode| {
        put(&path, 64, mode);
        std::fs::metadata(&path).unwrap()
    };
    let another = user() + 1;
    let owned = check(&path, &with(0o600), another);
    if user() == 0 {
        // A service hands out a secret that root owns and only the node's group may read.
        owned.unwrap();
        check(&path, &with(0o440), another).unwrap();
        for mode in [0o444, 0o460, 0o604] {
            assert!(matches!(check(&path, &with(mode), another), Err(AtRestError::KeyTooOpen { .. })));
        }
    } else {
        assert!(matches!(owned, Err(AtRestError::KeyOwner { .. })));
    }
}
