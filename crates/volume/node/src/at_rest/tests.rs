use super::*;

fn with_keys(directory: &Path) -> Arc<AtRest> {
    Arc::new(AtRest::new(VolumeKeys::open(directory).unwrap()))
}

#[test]
fn a_node_without_keys_makes_no_encrypted_volume() {
    let directory = tempfile::tempdir().unwrap();
    let refused = Arc::new(AtRest::default()).encrypt("v", directory.path(), &[]).err().unwrap();
    assert!(refused.to_string().contains("--volume-keys"), "{refused}");
}

#[test]
fn what_cannot_be_encrypted_is_refused_before_a_key_is_made() {
    let keys = tempfile::tempdir().unwrap();
    let at_rest = with_keys(keys.path());
    // The kernel's own file systems have no encryption.
    for (directory, places) in [("/proc/self", vec![]), (".", vec![Path::new("/proc/self/not-there-yet")])] {
        let refused = at_rest.encrypt("v", Path::new(directory), &places).err().unwrap();
        assert!(matches!(refused, AtRestError::Unsupported { .. }), "{refused}");
        assert!(refused.to_string().contains("LUKS"), "{refused}");
    }
    assert_eq!(std::fs::read_dir(keys.path()).unwrap().count(), 0);
}

#[test]
fn a_directory_in_clear_needs_no_key() {
    let directory = tempfile::tempdir().unwrap();
    let volume = directory.path().join("v");
    std::fs::create_dir(&volume).unwrap();
    assert_eq!(key_of(&volume).unwrap(), None);
    assert!(Arc::new(AtRest::default()).unlock("v", &volume).unwrap().is_none());
}

#[test]
fn an_end_without_volumes_waits_for_nobody() {
    let since = time::now();
    AtRest::default().end(Duration::from_secs(600));
    assert!(time::elapsed(since) < Duration::from_secs(60));
}
