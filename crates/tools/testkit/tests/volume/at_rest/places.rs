//! Parts of encrypted volumes in other places.

use super::*;
use redoubt_test_support::LoopDevice;
use std::os::unix::fs::symlink;

const DISK_BYTES: u64 = 1 << 30;

fn entries(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").args(["-a"]).args([from, to]).status().unwrap();
    assert!(copied.success());
}

/// Has a link lead elsewhere.
fn lead(link: &Path, to: &Path) {
    std::fs::remove_file(link).unwrap();
    symlink(to, link).unwrap();
}

#[test]
fn all_parts_have_the_volumes_key_wherever_they_are() {
    let Some(other) = encrypting_disk(DISK_BYTES) else { return };
    let place = |name: &str| other.path().join(name).to_str().unwrap().to_owned();
    let (log, journal, pages) = (place("logs"), place("journals"), place("pages"));
    let args = ["--log-path", &log, "--journal-path", &journal, "--pages-path", &pages];
    let Some(mut setup) = Setup::new(DISK_BYTES, &args) else { return };
    setup.create_encrypted();
    setup.node.create_volume("open").unwrap();
    let expected = state(&setup.volume_directory(VOLUME));
    assert!(matches!(expected, Encryption::Encrypted(_)));
    let volume = setup.volume_directory(VOLUME);
    for part in ["log", "journal", "pages"] {
        let target = std::fs::read_link(volume.join(part)).unwrap();
        assert!(target.starts_with(other.path()), "{}", target.display());
        assert_eq!(state(&target), expected, "{part}");
        let target = std::fs::read_link(setup.volume_directory("open").join(part)).unwrap();
        assert_eq!(state(&target), Encryption::Clear, "{part} of a volume in clear");
    }
    assert_eq!(state(&volume.join("plain")), expected);

    // A part that lies in clear: the rest is not opened.
    setup.node.stop().unwrap();
    let target = setup.with_key(|unlocked| {
        let target = std::fs::read_link(volume.join("pages")).unwrap();
        unlocked.check(&target).unwrap();
        let clear = other.path().join("copied");
        copy(&target, &clear);
        lead(&volume.join("pages"), &clear);
        target
    });
    setup.node.start().unwrap();
    setup.require_refused(&["copied", "is not encrypted with key"]);
    setup.node.stop().unwrap();
    setup.with_key(|_| lead(&volume.join("pages"), &target));
    setup.node.start().unwrap();
    assert_eq!(setup.state_and_reason(VOLUME).0, "ready");

    // Without the key the locations of its parts are unknown.
    setup.node.stop().unwrap();
    std::fs::rename(setup.key_file(), setup.keys.path().join("kept")).unwrap();
    setup.node.start().unwrap();
    let refused = setup.volume_command(&["delete", VOLUME, "--yes"]);
    refused.require_failure(1, &["has parts elsewhere", "is missing"]).unwrap();
    setup.node.stop().unwrap();
    std::fs::rename(setup.keys.path().join("kept"), setup.key_file()).unwrap();
    setup.node.start().unwrap();
    for volume in [VOLUME, "open"] {
        setup.volume_command(&["delete", volume, "--yes"]).require_success().unwrap();
    }
    for place in [&log, &journal, &pages] {
        assert_eq!(entries(Path::new(place)), Vec::<PathBuf>::new());
    }
    setup.node.stop().unwrap();
    let log = setup.node.log_tail(200);
    assert!(!log.contains("still open"), "{log}");
    // Nothing holds either file system.
    setup.disk.remount().unwrap();
    other.remount().unwrap();
}

#[test]
fn what_no_file_system_encrypts_is_refused_before_anything_is_made() {
    let Some(mut setup) = Setup::new(DISK_BYTES, &[]) else { return };
    let plain = Mount::small_disk(64 << 20).unwrap();
    let memory = Path::new("/dev/shm");
    let mut places = vec![(plain.path().to_owned(), "tune2fs"), (memory.to_owned(), "LUKS")];
    let device = LoopDevice::on(&plain.image()).unwrap();
    places.push((device.path().to_owned(), "dm-crypt"));
    for (place, remedy) in &places {
        for option in ["--log-path", "--pages-path", "--journal-path"] {
            setup.node.stop().unwrap();
            setup.node.set_further_args(&[option, place.to_str().unwrap()]);
            setup.node.start().unwrap();
            let refused = setup.volume_command(&["create", VOLUME, "--encrypted"]);
            refused.require_failure(1, &[place.to_str().unwrap(), remedy]).unwrap();
            assert_eq!(entries(&setup.node.data().join("volumes")), Vec::<PathBuf>::new());
            assert!(!setup.key_file().exists());
        }
    }
    drop(device);
    // The node's own directory.
    setup.node.stop().unwrap();
    let keys = setup.keys.path().to_str().unwrap();
    let node = Node::in_directory(setup.node.redoubt_bin(), plain.path(), &["--volume-keys", keys]).unwrap();
    setup.node = node;
    let refused = setup.volume_command(&["create", VOLUME, "--encrypted"]);
    refused.require_failure(1, &["tune2fs -O encrypt"]).unwrap();
    assert!(!setup.key_file().exists());
    // Before the disk that its node is on.
    drop(setup);
}

#[test]
fn what_a_killed_import_left_goes_with_its_key() {
    let Some(other) = encrypting_disk(DISK_BYTES) else { return };
    let pages = other.path().join("pages").to_str().unwrap().to_owned();
    let Some(mut setup) = Setup::new(DISK_BYTES, &["--pages-path", &pages]) else { return };
    setup.create_encrypted();
    setup.node.create_volume("open").unwrap();
    setup.node.stop().unwrap();
    let volume = setup.volume_directory(VOLUME);
    let leftover = volume.with_file_name(format!(".import-{VOLUME}"));
    std::fs::rename(&volume, &leftover).unwrap();
    std::fs::rename(setup.key_file(), setup.keys.path().join("kept")).unwrap();
    // Without the key it stays, and blocks only its own name.
    setup.node.start().unwrap();
    assert_eq!(setup.state_and_reason("open").0, "ready");
    assert!(leftover.exists());
    setup.node.stop().unwrap();
    std::fs::rename(setup.keys.path().join("kept"), setup.key_file()).unwrap();
    setup.node.start().unwrap();
    assert!(!leftover.exists());
    assert_eq!(entries(Path::new(&pages)).len(), 1, "the pages of the other volume");
}
