//! A node with keys that are missing, wrong or readable by others.

use super::*;
use std::os::unix::fs::PermissionsExt;

const DISK_BYTES: u64 = 1 << 30;

fn put(path: &Path, key: &[u8], mode: u32) {
    std::fs::write(path, key).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_volume_opens_with_its_key_and_not_without() {
    let Some(mut setup) = Setup::new(DISK_BYTES, &[]) else { return };
    setup.create_encrypted();
    setup.node.create_volume("open").unwrap();
    let listed = setup.volume_command(&["list"]).require_success().unwrap();
    let row = |volume: &str| {
        let line = listed.lines().find(|line| line.starts_with(volume)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(row(VOLUME).contains(&"yes".to_owned()) && row("open").contains(&"no".to_owned()), "{listed}");
    let shown = setup.volume_command(&["show", VOLUME]).require_success().unwrap();
    let Encryption::Encrypted(policy) = state(&setup.volume_directory(VOLUME)) else { panic!("in clear") };
    let encrypted = shown.lines().find(|line| line.contains("encrypted")).unwrap();
    let identifier = encrypted.split_whitespace().last().unwrap();
    assert!(format!("{policy:?}").contains("Ours") && identifier.len() == 32, "{encrypted} {policy:?}");
    let key_file = setup.key_file();
    let metadata = std::fs::metadata(&key_file).unwrap();
    assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, 64));
    let key = std::fs::read(&key_file).unwrap();
    let path = key_file.to_str().unwrap().to_owned();

    // Killed: the kernel has the key still, which is no reason to open a volume whose key is gone.
    setup.node.kill9().unwrap();
    std::fs::remove_file(&key_file).unwrap();
    setup.node.start().unwrap();
    setup.require_refused(&["is missing", &path]);
    setup.node.stop().unwrap();
    let mut wrong = key.clone();
    wrong[63] ^= 1;
    for (bytes, mode, parts) in [
        (&wrong[..], 0o600, ["is the wrong key", identifier]),
        (&key[..63], 0o600, ["is not a volume key", "63 bytes"]),
        (&key[..], 0o640, ["mode 0640", "chmod"]),
    ] {
        put(&key_file, bytes, mode);
        setup.node.start().unwrap();
        setup.require_refused(&[&[path.as_str()][..], &parts].concat());
        setup.node.stop().unwrap();
    }
    put(&key_file, &key, 0o600);
    setup.node.set_further_args(&[]);
    setup.node.start().unwrap();
    assert_eq!(setup.state_and_reason(VOLUME).0, "ready");
    // The name is taken, and its key is not written over.
    setup.volume_command(&["create", VOLUME, "--encrypted"]).require_failure(1, &["exists already"]).unwrap();
    assert_eq!(std::fs::read(&key_file).unwrap(), key);

    // A second node would remove keys that this one uses.
    let other = tempfile::tempdir().unwrap();
    let keys = setup.keys.path().to_str().unwrap();
    let refused = Node::in_directory(setup.node.redoubt_bin(), other.path(), &["--volume-keys", keys]);
    assert!(refused.unwrap_err().to_string().contains("another node"));

    // Once more with the key that was kept.
    setup.volume_command(&["delete", VOLUME, "--yes"]).require_success().unwrap();
    assert!(key_file.exists());
    let said = setup.create_encrypted();
    assert!(said.contains("the key that was there"), "{said}");
    setup.node.stop().unwrap();
    let log = setup.node.log_tail(200);
    assert!(!log.contains("still open"), "{log}");
    setup.disk.remount().unwrap();
}

#[test]
fn a_copy_in_clear_is_not_opened() {
    let Some(mut setup) = Setup::new(DISK_BYTES, &[]) else { return };
    setup.create_encrypted();
    setup.node.create_volume("open").unwrap();
    setup.node.stop().unwrap();
    let volume = setup.volume_directory(VOLUME);
    let (copy, kept) = (setup.disk.path().join("copy"), setup.disk.path().join("kept"));
    let copied =
        setup.with_key(|_| std::process::Command::new("cp").args(["-a"]).args([&volume, &copy]).status());
    assert!(copied.unwrap().success());
    std::fs::rename(&volume, &kept).unwrap();
    std::fs::rename(&copy, &volume).unwrap();
    assert_eq!(state(&volume), Encryption::Clear);
    setup.node.start().unwrap();
    setup.require_refused(&["was made encrypted", "lies in clear"]);
    setup.node.stop().unwrap();
    std::fs::remove_dir_all(&volume).unwrap();
    std::fs::rename(&kept, &volume).unwrap();
    setup.node.start().unwrap();
    assert_eq!(setup.state_and_reason(VOLUME).0, "ready");
}

#[test]
fn a_node_without_the_option_says_so() {
    let Some(mut setup) = Setup::new(DISK_BYTES, &[]) else { return };
    setup.create_encrypted();
    setup.node.create_volume("open").unwrap();
    setup.node.stop().unwrap();
    let mut without = Node::in_directory(&find_redoubt().unwrap(), setup.disk.path(), &NODE_ARGS).unwrap();
    let create = ["volume", "create", "another", "--encrypted", "--node", &without.address().to_string()];
    let outcome = Outcome::of(without.redoubt_bin(), create, PATIENCE).unwrap();
    outcome.require_failure(1, &["--volume-keys"]).unwrap();
    std::mem::swap(&mut setup.node, &mut without);
    setup.require_refused(&["--volume-keys"]);
    // It can be deleted all the same: all of it is in its directory.
    setup.volume_command(&["delete", VOLUME, "--yes"]).require_success().unwrap();
    assert!(!setup.volume_directory(VOLUME).exists());
}
