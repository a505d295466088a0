//! The script for backups in `packaging/examples`, on a real volume: what it makes is a sound directory of a server,
//! and it removes old exports of its volume alone.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::collections::BTreeSet;
use std::path::Path;

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::node::Node;
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::server::{Server, ServerConfig};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../packaging/examples/backup");

fn backup(node: &Node, volume: &str, directory: &Path, keep: &str) -> Outcome {
    let programs = node.redoubt_bin().parent().unwrap().display().to_string();
    let path = format!("PATH={programs}:{}", std::env::var("PATH").unwrap());
    let address = node.address().to_string();
    let args = [path.as_str(), SCRIPT, &address, volume, directory.to_str().unwrap(), keep];
    Outcome::of(Path::new("env"), args, PATIENCE).unwrap()
}

fn names(directory: &Path) -> BTreeSet<String> {
    std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_backup_is_checked_and_only_old_ones_of_its_volume_are_removed() {
    let node = Node::create(&find_redoubt().unwrap(), &[]).unwrap();
    node.create_volume("shop").unwrap();
    let mut server = Server::create(ServerConfig::new(node.launcher("shop", Verify::All))).unwrap();
    for statement in [
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, b VARCHAR(200)) ENGINE=InnoDB",
        "INSERT INTO d.t SELECT seq, REPEAT(MD5(seq), 4) FROM d.seq_1_to_3000",
    ] {
        server.query(statement).unwrap();
    }

    let directory = tempfile::tempdir().unwrap();
    let (newest, oldest) = ("shop-20250102T000000", "shop-20250101T000000");
    // Of other volumes, and not of this kind.
    let others =
        ["shop-eu-20250101T000000", "shop-eu-20250102T000000", "shop-old", "shop-20250101T000000-kept"];
    for name in others.iter().chain(&[newest, oldest]) {
        std::fs::create_dir(directory.path().join(name)).unwrap();
    }
    std::fs::write(directory.path().join(format!("{oldest}.log")), "").unwrap();

    // A failed backup removes nothing, and leaves nothing half done.
    let before = names(directory.path());
    assert_eq!(backup(&node, "shop", directory.path(), "none").code, Some(2));
    assert_eq!(backup(&node, "no-such-volume", directory.path(), "1").code, Some(1));
    assert_eq!(names(directory.path()), before);

    let done = backup(&node, "shop", directory.path(), "2");
    done.require_success().unwrap();
    let left = names(directory.path());
    assert!(!left.contains(oldest) && !left.contains(&format!("{oldest}.log")), "{left:?}");
    assert!(others.iter().chain(&[newest]).all(|name| left.contains(*name)), "{left:?}");
    let made: Vec<_> = left.iter().filter(|name| !before.contains(*name)).collect();
    let [export, log] = made.as_slice() else { panic!("{made:?}") };
    assert_eq!(**log, format!("{export}.log"));
    let checked = std::fs::read_to_string(directory.path().join(log)).unwrap();
    assert!(checked.lines().any(|line| line.starts_with("d.t ") && line.ends_with("OK")), "{checked}");
    server.shutdown().unwrap();

    let mut config = server.config().clone();
    config.launcher = Launcher::Stock;
    let home = tempfile::tempdir().unwrap();
    std::fs::rename(directory.path().join(export), home.path().join("data")).unwrap();
    let mut restored = Server::in_directory(config, home.path()).unwrap();
    restored.start().unwrap();
    assert_eq!(restored.query("SELECT COUNT(*) FROM d.t").unwrap(), [["3000"]]);
    restored.shutdown().unwrap();
}
