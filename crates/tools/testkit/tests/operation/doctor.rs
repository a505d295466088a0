//! `redoubt doctor` on this host, with a real node and a real server: it reports sound parts as sound, and finds
//! planted defects.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::node::Node;
use redoubt_workload::launcher::find_redoubt;
use serde_json::Value;

/// The checks, and whether the exit status fits them.
fn report_of(program: &Path, args: &[&str]) -> Vec<Value> {
    let outcome = Outcome::of(program, args, PATIENCE).unwrap();
    let report: Value =
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    let problems = report["problems"].as_u64().unwrap();
    assert_eq!(outcome.code, Some(i32::from(problems > 0)), "{outcome:?}");
    assert_eq!(report["format"], 1);
    let checks = report["checks"].as_array().unwrap().clone();
    for check in &checks {
        let has_change = check["change"].as_str().is_some_and(|change| !change.is_empty());
        assert_eq!(has_change, check["level"] != "ok", "{check}");
    }
    println!("{args:?}: {} checks, {problems} problems, {} ms", checks.len(), outcome.took.as_millis());
    checks
}

fn doctor(args: &[&str]) -> Vec<Value> {
    report_of(&find_redoubt().unwrap(), &[&["doctor", "--json"], args].concat())
}

/// The check is there with this level, and says all of `parts`.
fn require(checks: &[Value], name: &str, level: &str, parts: &[&str]) {
    let of_name: Vec<_> = checks.iter().filter(|check| check["name"] == name).collect();
    let fits = |check: &&Value| {
        let text = check.to_string();
        check["level"] == level && parts.iter().all(|part| text.contains(part))
    };
    assert!(of_name.iter().any(fits), "{name} is not {level} with {parts:?}: {of_name:#?}");
}

/// A program of this name that prints this version.
fn a_program_says(path: &Path, version: &str) {
    std::fs::write(path, format!("#!/bin/sh\necho \"$0  {version}\"\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_sound_server_side_has_no_fault_and_planted_faults_are_found() {
    let node = Node::create_with_tls(&find_redoubt().unwrap(), &["shop", "other"], &[]).unwrap();
    node.create_volume("shop").unwrap();
    let address = node.address().to_string();
    let directory = tempfile::tempdir().unwrap();
    let datadir = directory.path().join("data");
    let bundle = node.bundle("volume-shop").unwrap();
    let other_bundle = node.bundle("volume-other").unwrap();
    let connect = |bundle: &Path, command: &[&str]| {
        let tls = text(bundle).to_owned();
        let args = ["--node", &address, "--tls", &tls, "--volume", "shop", "--datadir", text(&datadir), "--"];
        doctor(&[&args[..], command].concat())
    };
    let sound = connect(&bundle, &["mariadbd", "--no-defaults"]);
    for name in
        ["library", "preload", "server", "settings", "durability", "data_directory", "tls", "node", "volume"]
    {
        require(&sound, name, "ok", &[]);
    }
    require(&sound, "node", "ok", &[&address, "TLS", " ms"]);
    require(&sound, "kernel", "ok", &["Linux"]);
    assert!(!datadir.exists(), "the doctor made {}", datadir.display());
    assert_eq!(node.status("shop").unwrap()["volumes"][0]["generation"], 0, "the volume was taken over");

    // An option file with what a node cannot follow, and a weak setting.
    let options = directory.path().join("server.cnf");
    let plugin = "plugin_load_add = file_key_management";
    std::fs::write(
        &options,
        format!("[mysqld]\ninnodb_encrypt_tables = FORCE\ninnodb_undo_directory = /elsewhere\ninnodb_flush_log_at_trx_commit = 2\n{plugin}\n"),
    )
    .unwrap();
    let found = connect(&bundle, &["mariadbd", &format!("--defaults-file={}", options.display())]);
    require(&found, "settings", "problem", &["innodb_encrypt_tables=FORCE", "innodb_encrypt_tables=OFF"]);
    require(&found, "settings", "note", &["innodb_undo_directory=/elsewhere", "is ignored"]);
    require(&found, "settings", "problem", &["file_key_management"]);
    require(&found, "durability", "warning", &["innodb_flush_log_at_trx_commit=2"]);

    // A server of another version, and none.
    let script = directory.path().join("mariadbd");
    a_program_says(&script, "Ver 12.3.1-MariaDB for Linux");
    let found = connect(&bundle, &[text(&script)]);
    require(&found, "server", "problem", &["12.3.1", "MariaDB 11.8 or MySQL 9.7"]);
    require(&connect(&bundle, &["no-such-server"]), "server", "problem", &["no-such-server", "install"]);

    // A key that others may read; another volume's certificate; a data directory with something else in it.
    let key = bundle.join("key.pem");
    let mode = |mode| std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    require(&connect(&bundle, &["mariadbd", "--no-defaults"]), "tls", "problem", &["chmod 600", "0644"]);
    mode(0o600);
    std::fs::create_dir(&datadir).unwrap();
    std::fs::write(datadir.join("ibdata1"), "").unwrap();
    let found = connect(&other_bundle, &["mariadbd", "--no-defaults"]);
    require(&found, "tls", "problem", &["volume other", "volume shop"]);
    require(&found, "data_directory", "problem", &["1 files", "redoubt volume import"]);

    // A library that the loader does not take; no such volume; a node that is not there.
    let library = directory.path().join("libredoubt.so");
    std::fs::write(&library, "no library").unwrap();
    let administrator = node.bundle("administrator").unwrap();
    let found = doctor(&[
        "--node",
        &address,
        "--tls",
        text(&administrator),
        "--volume",
        "none",
        "--library",
        text(&library),
        "--",
        "mariadbd",
        "--no-defaults",
    ]);
    require(&found, "preload", "problem", &["cannot be preloaded", "noexec"]);
    require(&found, "volume", "problem", &["none", "redoubt volume create"]);
    drop(node);
    let found = doctor(&["--node", &address, "--", "mariadbd", "--no-defaults"]);
    require(&found, "node", "problem", &[&address, "redoubt node"]);
}

#[test]
fn a_server_is_not_started_without_its_library() {
    let node = Node::create(&find_redoubt().unwrap(), &[]).unwrap();
    node.create_volume("v").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("libredoubt.so");
    std::fs::write(&library, "no library").unwrap();
    let datadir = directory.path().join("data");
    let address = node.address().to_string();
    let args = [
        "run",
        "--node",
        &address,
        "--volume",
        "v",
        "--datadir",
        text(&datadir),
        "--library",
        text(&library),
        "--",
        "mariadbd",
        "--no-defaults",
    ];
    let outcome = Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap();
    outcome
        .require_failure(1, &["would run without the library", "cannot be preloaded", text(&library)])
        .unwrap();
    assert_eq!(node.status("v").unwrap()["volumes"][0]["generation"], 0, "the volume was taken over");
}

#[test]
fn a_nodes_directory_and_its_host_are_checked() {
    let node = Node::create(&find_redoubt().unwrap(), &[]).unwrap();
    node.create_volume("v").unwrap();
    let data = node.data();
    let sound = doctor(&["--data", text(&data)]);
    let process = format!("process {}", node.process_id().unwrap());
    require(&sound, "lock", "ok", &[&process]);
    for name in ["data_directory", "ownership", "volumes", "log_device", "page_protection"] {
        require(&sound, name, "ok", &[]);
    }

    // Too few open files; a directory that everybody may change; a volume that stopped; a place that is not mounted.
    let redoubt = find_redoubt().unwrap();
    let limited = ["--nofile=64:64", text(&redoubt), "doctor", "--json", "--data", text(&data)];
    let found = report_of(Path::new("prlimit"), &limited);
    require(&found, "open_files", "problem", &["64", "LimitNOFILE"]);
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o777)).unwrap();
    let volume = data.join("volumes/v");
    std::fs::write(volume.join("stopped"), "page 7 differs").unwrap();
    std::os::unix::fs::symlink("/no/such/place", volume.join("journal")).unwrap();
    let found = doctor(&["--data", text(&data)]);
    require(&found, "data_directory", "problem", &["0777", "chmod 700"]);
    require(&found, "volumes", "problem", &["page 7 differs"]);
    require(&found, "volumes", "problem", &["leads nowhere", "mount"]);
    let strange = data.join("strange");
    std::fs::write(&strange, "").unwrap();
    // Only root can give a file away.
    match chown(&strange, Some(65_534), None) {
        Ok(()) => require(&doctor(&["--data", text(&data)]), "ownership", "problem", &["1 files", "chown"]),
        Err(error) => redoubt_test_support::skip("a file that belongs to somebody else", error),
    }
}

// Other builds refuse the option.
#[cfg(feature = "experimental-devices")]
#[test]
fn a_log_directory_must_be_persistent_memory() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let option = format!("--innodb-log-group-home-dir={}", directory.path().display());
    let command = ["--", "mariadbd", "--no-defaults", &option];
    let found = doctor(&[&["--local-log"], &command[..]].concat());
    require(&found, "log_directory", "problem", &["tmpfs", "DAX"]);
    require(&found, "preload", "ok", &[]);
    let found = doctor(&[&["--local-log", "--pretend-pmem"], &command[..]].concat());
    require(&found, "log_directory", "warning", &["power cut"]);
}

#[test]
fn people_get_lines_and_wrong_use_is_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let redoubt = find_redoubt().unwrap();
    let data = directory.path().join("new").display().to_string();
    let outcome = Outcome::of(&redoubt, ["doctor", "--data", &data], PATIENCE).unwrap();
    let lines: Vec<_> = outcome.stdout.lines().collect();
    assert!(lines[0].starts_with("ok       kernel"), "{}", outcome.stdout);
    assert!(lines.last().unwrap().contains(" checks, "), "{}", outcome.stdout);
    for args in [
        &["doctor", "--data", "d", "--volume", "v"][..],
        &["doctor", "--ring", "1GiB"],
        &["doctor", "--frob"],
    ] {
        Outcome::of(&redoubt, args, PATIENCE).unwrap().require_failure(2, &["--help"]).unwrap();
    }
}
