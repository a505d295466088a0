//! Refusals of `redoubt run --local-log` and the library, with their messages.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_workload::launcher::{Launcher, find_redoubt};
use redoubt_workload::process::run_to_end;
use redoubt_workload::server::{Server, ServerConfig};

use super::MEMORY;

fn refused(args: &[&str], code: i32, parts: &[&str]) {
    let outcome = Outcome::of(&find_redoubt().unwrap(), args, PATIENCE).unwrap();
    outcome.require_failure(code, parts).unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A directory on a disk; not where temporary files are, which may be memory.
fn on_disk() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let kind = run_to_end(Command::new("stat").args(["-fc", "%T"]).arg(directory.path())).unwrap();
    if kind.trim() == "tmpfs" {
        redoubt_test_support::skip("a redo log on a disk", "the build directory is on tmpfs");
        return None;
    }
    Some(directory)
}

#[test]
fn a_log_that_is_not_persistent_memory_is_refused_beforehand() {
    let memory = tempfile::tempdir_in(MEMORY).unwrap();
    let run = |directory: &Path, options: &[&str], parts: &[&str]| {
        let head = ["run", "--local-log", "--datadir", text(directory)];
        let command = ["--", "mariadbd", "--no-defaults"];
        refused(&[&head[..], options, &command].concat(), 1, parts);
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0, "something was left behind");
    };
    run(memory.path(), &[], &[text(memory.path()), "tmpfs", "ordinary memory", "--pretend-pmem"]);
    let Some(disk) = on_disk() else { return };
    let advice = ["MAP_SYNC", "dax=always", "--innodb-log-group-home-dir", "without --local-log"];
    run(disk.path(), &[], &[&advice[..], &[text(disk.path())]].concat());
    run(disk.path(), &["--pretend-pmem"], &[&advice[..], &["is for tests on tmpfs"]].concat());

    // The log counts, not the data directory, and an option file as much as an option.
    let file = disk.path().join("my.cnf");
    let lines = format!(
        "[mysqld]\ndatadir={}\ninnodb_log_group_home_dir={}\n",
        text(memory.path()),
        text(disk.path())
    );
    std::fs::write(&file, lines).unwrap();
    let defaults = format!("--defaults-file={}", text(&file));
    refused(
        &["run", "--local-log", "--pretend-pmem", "--", "mariadbd", &defaults],
        1,
        &[text(disk.path()), "MAP_SYNC"],
    );
}

#[test]
fn options_of_the_other_mode_are_refused() {
    for options in [
        &["--node", "127.0.0.1:7070"][..],
        &["--volume", "v"],
        &["--verify", "all"],
        &["--on-difference", "stop"],
        &["--compress"],
        &["--timeout", "5"],
    ] {
        let head = ["run", "--local-log", "--datadir", "/d"];
        refused(
            &[&head[..], options, &["--", "mariadbd"]].concat(),
            2,
            &["cannot be used with", "--local-log", options[0]],
        );
    }
    refused(
        &["run", "--volume", "v", "--datadir", "/d", "--pretend-pmem", "--", "mariadbd"],
        2,
        &["--pretend-pmem"],
    );
    refused(&["run", "--datadir", "/d", "--pretend-pmem", "--", "mariadbd"], 2, &["--local-log"]);
    refused(&["run", "--datadir", "/d", "--", "mariadbd"], 2, &["--volume"]);
    refused(&["status", "--local-log"], 2, &["--datadir"]);
    refused(&["status", "--local-log", "--datadir", "/d", "--volume", "v"], 2, &["cannot be used with"]);
    // An address in the environment belongs to other commands, and is no option.
    let output = Command::new(find_redoubt().unwrap())
        .args(["run", "--local-log", "--", "/bin/true"])
        .env("REDOUBT_NODE", "127.0.0.1:7070")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn commands_whose_log_cannot_be_found_are_refused() {
    let directory = tempfile::tempdir_in(MEMORY).unwrap();
    refused(&["run", "--local-log", "--", "/bin/true"], 1, &["/bin/true", "--datadir"]);
    refused(&["status", "--datadir", "/d"], 2, &["--local-log"]);
    refused(&["run", "--local-log", "--", "/no/such/mysqld"], 1, &["/no/such/mysqld"]);
    refused(
        &["run", "--local-log", "--datadir", text(directory.path()), "--", "mariadbd", "--datadir=/other"],
        1,
        &["/other", text(directory.path()), "give it once"],
    );
    refused(
        &["run", "--local-log", "--", "mariadbd", "--no-defaults", "--innodb-no-such-option=1"],
        1,
        &["no-such-option"],
    );
    let other: PathBuf = directory.path().join("mysqld");
    let script = "#!/bin/sh\nprintf 'mysqld  Ver 8.0.36 for Linux\\n\\n----- ---\\ndatadir /d/\\n'\n";
    std::fs::write(&other, script).unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o755)).unwrap();
    refused(
        &["run", "--local-log", "--", text(&other)],
        1,
        &["8.0.36", "not a supported server", "MySQL 9.7"],
    );
    refused(
        &["status", "--local-log", "--datadir", text(directory.path())],
        1,
        &[text(directory.path()), "redoubt run --local-log"],
    );
}

/// The library checks for itself: a mount may change after the command has looked.
#[test]
fn the_library_refuses_a_log_it_cannot_map() {
    let mut server = Server::new_below(ServerConfig::new(Launcher::Stock), Path::new(MEMORY)).unwrap();
    server.install_db().unwrap();
    let datadir = server.datadir();
    let output = Command::new("mariadbd")
        .args(["--no-defaults", "--user=root", "--skip-networking"])
        .arg(format!("--datadir={}", text(&datadir)))
        .arg(format!("--socket={}", text(&server.socket())))
        .arg(format!("--tmpdir={}", text(&server.directory().join("tmp"))))
        .env("LD_PRELOAD", find_redoubt().unwrap().with_file_name("libredoubt.so"))
        .env("REDOUBT_LOCAL_LOG", "map-sync")
        .env("REDOUBT_DATADIR", &datadir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("[redoubt] redo file") && said.contains("DAX on persistent memory"), "{said}");
}
