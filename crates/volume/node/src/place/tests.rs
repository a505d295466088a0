use super::*;

const ID: &str = "0123";

fn site<'s>(directory: &'s Path, devices: &'s RawDevices) -> Site<'s> {
    Site { directory, volume_id: ID, devices, unlocked: None }
}

#[test]
fn a_part_stays_where_it_was_made() {
    let directory = tempfile::tempdir().unwrap();
    let volume = directory.path().join("v");
    std::fs::create_dir(&volume).unwrap();
    let devices = RawDevices::default();
    assert!(find(site(&volume, &devices), Part::Pages).unwrap().is_none());
    let fast = directory.path().join("fast");
    let made = find_or_create(site(&volume, &devices), Part::Pages, Some(&fast)).unwrap();
    assert_eq!(made.to_string(), fast.join("pages-0123").display().to_string());
    // Without a configured location, or with another one.
    for wanted in [None, Some(directory.path().join("other"))] {
        let found = find_or_create(site(&volume, &devices), Part::Pages, wanted.as_deref()).unwrap();
        assert_eq!(found.to_string(), made.to_string());
    }
    assert!(!directory.path().join("other").exists());
    // In the volume's own directory by default.
    let log = find_or_create(site(&volume, &devices), Part::Log, None).unwrap();
    assert_eq!(log.to_string(), volume.join("log").display().to_string());
    remove_volume_directory(&volume, &devices, &Arc::default()).unwrap();
    assert!(!volume.exists());
    assert_eq!(std::fs::read_dir(&fast).unwrap().count(), 0);
}

#[test]
fn a_place_that_is_gone_is_not_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let devices = RawDevices::default();
    std::os::unix::fs::symlink(directory.path().join("gone"), directory.path().join("pages")).unwrap();
    for wanted in [None, Some(directory.path())] {
        let error = find_or_create(site(directory.path(), &devices), Part::Pages, wanted).err().unwrap();
        assert!(error.to_string().contains("mounted"), "{error}");
    }
    assert!(!directory.path().join("gone").exists());
}

#[test]
fn one_opener_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let place = Place::Directory(directory.path().to_owned());
    let options = NodeOptions::new(directory.path().to_owned(), "127.0.0.1:0".to_owned());
    let first = place.open(&options, false).unwrap();
    // By another path, as another node would.
    let other = tempfile::tempdir().unwrap();
    let link = other.path().join("volumes");
    std::os::unix::fs::symlink(directory.path(), &link).unwrap();
    for again in [place.clone(), Place::Directory(link)] {
        assert!(matches!(again.open(&options, false), Err(NodeError::Refused(_))));
    }
    drop(first);
    place.open(&options, false).unwrap();
}

/// Some block device of this machine. It is not opened.
#[cfg(not(feature = "experimental-devices"))]
fn block_device() -> Option<PathBuf> {
    std::fs::read_dir("/dev").unwrap().map(|entry| entry.unwrap().path()).find(|path| is_block_device(path))
}

#[cfg(not(feature = "experimental-devices"))]
#[test]
fn parts_on_raw_device_are_refused_and_nothing_is_removed() {
    let Some(device) = block_device() else {
        redoubt_test_support::skip("a volume on a raw device without device code", "no block device in /dev");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let devices = RawDevices::default();
    let volume = directory.path().join("v");
    let log = directory.path().join("log-elsewhere");
    std::fs::create_dir_all(&volume).unwrap();
    std::fs::create_dir(&log).unwrap();
    std::os::unix::fs::symlink(&log, volume.join("log")).unwrap();
    std::os::unix::fs::symlink(&device, volume.join("pages")).unwrap();
    let refused = [
        find(site(&volume, &devices), Part::Pages).err(),
        find_or_create(site(&volume, &devices), Part::Journal, Some(&device)).err(),
        check_removal(&volume, &devices).err(),
        remove_volume_directory(&volume, &devices, &Arc::default()).err(),
    ];
    for error in refused {
        let error = error.unwrap().to_string();
        assert!(error.contains("package redoubt-experimental"), "{error}");
    }
    assert!(log.exists() && volume.join("pages").is_symlink() && !volume.join("journal").is_symlink());
}
