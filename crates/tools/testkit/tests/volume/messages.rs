//! Messages that are not read, or that cannot be written: the sender continues.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redoubt_harness::node::Node;
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::process::poll_until;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, openat};

const VOLUME: &str = "unheard";

/// A pipe that was closed at its other end.
fn closed_pipe() -> Stdio {
    let (_, writer) = std::io::pipe().unwrap();
    writer.into()
}

/// Where each write fails as on a full disk.
fn full_disk() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// Exit status and standard error.
fn ended(mut child: Child) -> (Option<i32>, String) {
    let ended = poll_until("the process to end", Duration::from_secs(60), || Ok(child.try_wait().unwrap()));
    if ended.is_err() {
        child.kill().unwrap();
    }
    let stderr = child.stderr.take().map(|pipe| std::io::read_to_string(pipe).unwrap()).unwrap_or_default();
    (ended.unwrap().code(), stderr)
}

#[test]
fn commands_need_nobody_who_reads_them() {
    let node = Node::create(&find_redoubt().unwrap(), &[]).unwrap();
    node.create_volume(VOLUME).unwrap();
    let address = node.address().to_string();
    let shown: [&[&str]; 8] = [
        &["status", "--node", &address],
        &["status", "--node", &address, "--json"],
        &["status", "--node", &address, "--watch", "--count", "2"],
        &["volume", "list", "--node", &address],
        &["volume", "show", VOLUME, "--node", &address],
        &["completions", "bash"],
        &["--help"],
        &["node", "--help"],
    ];
    let bin = node.redoubt_bin();
    for args in shown {
        let of = |stdout: Stdio| {
            ended(Command::new(bin).args(args).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap())
        };
        // As with `| head`: seen enough.
        assert_eq!(of(closed_pipe()), (Some(0), String::new()), "{args:?}");
        // The output is lost, which is an error.
        let (code, stderr) = of(full_disk());
        assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
        if !args.contains(&"--help") {
            assert!(
                code == Some(1) && stderr.contains("No space left on device"),
                "{args:?}: {code:?} {stderr}"
            );
        }
    }
    for stderr in [closed_pipe(), full_disk()] {
        let mut command = Command::new(bin);
        command.args(["volume", "show", "other", "--node", &address]).stdout(Stdio::null()).stderr(stderr);
        assert_eq!(ended(command.spawn().unwrap()).0, Some(1));
    }
}

/// A program that is `redoubt` with its standard error on a full disk.
fn with_full_log(directory: &Path) -> PathBuf {
    let script = directory.join("redoubt");
    let text = format!("#!/bin/sh\nexec {} \"$@\" 2>/dev/full\n", find_redoubt().unwrap().display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    script
}

#[test]
fn a_node_whose_log_is_on_a_full_disk_serves_its_volumes() {
    let directory = tempfile::tempdir().unwrap();
    serves_its_volumes(&with_full_log(directory.path()));
}

/// As under a log collector that hangs.
#[test]
fn a_node_whose_log_nobody_reads_serves_its_volumes() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("log");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
    // Stays open, so that the node's writes wait instead of failing.
    let options = OFlags::RDWR | OFlags::NONBLOCK;
    let mut unread = File::from(openat(CWD, &fifo, options, Mode::empty()).unwrap());
    while unread.write(&[b'\n'; 4096]).is_ok() {}
    let script = directory.path().join("redoubt");
    let (redoubt, log) = (find_redoubt().unwrap(), fifo.display());
    let text = format!("#!/bin/sh\n[ \"$1\" = node ] && exec 2>{log}\nexec {} \"$@\"\n", redoubt.display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    serves_its_volumes(&script);
}

fn serves_its_volumes(redoubt: &Path) {
    let node = Node::create(redoubt, &["--batch", "1MiB", "--apply-interval", "1"]);
    let mut node = node.unwrap_or_else(|error| panic!("{error}"));
    node.create_volume(VOLUME).unwrap();
    let mut server = Server::create(ServerConfig::new(node.launcher(VOLUME, Verify::All))).unwrap();
    let mut conn = server.connect().unwrap();
    for statement in [
        "CREATE DATABASE d",
        "USE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, pad VARCHAR(500)) ENGINE=InnoDB",
        "INSERT INTO d.t SELECT seq, REPEAT('x', 500) FROM seq_1_to_5000",
    ] {
        execute(&mut conn, statement).unwrap();
    }
    // Many of a node's messages: a server leaves or takes over, a node starts again.
    server.kill9().unwrap();
    server.start().unwrap();
    node.kill9().unwrap();
    node.start().unwrap();
    assert_eq!(server.query("SELECT COUNT(*) FROM d.t").unwrap(), [["5000"]]);
    server.shutdown().unwrap();
    node.require_verified(VOLUME, 1).unwrap();
    node.require_state(VOLUME, "ready").unwrap();
    node.stop().unwrap();
}

#[test]
fn a_reader_whose_messages_nobody_reads_answers_the_kernel() {
    let node = Node::create(&find_redoubt().unwrap(), &[]).unwrap();
    node.create_volume(VOLUME).unwrap();
    let mut server = Server::create(ServerConfig::new(node.launcher(VOLUME, Verify::All))).unwrap();
    let (view, result) = (server.directory().join("view"), server.directory().join("result"));
    // Each refusal is a message, and more of them than there are threads that answer.
    let script = format!(
        "exec 2>/dev/null; cd {}; for n in $(seq 50); do mkdir new$n && exit 3; done; ls | wc -l > {}",
        view.display(),
        result.display()
    );
    let address = node.address().to_string();
    let mut command = Command::new(node.redoubt_bin());
    command.args(["run", "--reader", "--node", &address, "--volume", VOLUME, "--datadir"]).arg(&view);
    command.args(["--", "sh", "-c", &script]).stderr(closed_pipe());
    assert_eq!(ended(command.spawn().unwrap()).0, Some(0));
    let names = std::fs::read_to_string(&result).unwrap();
    assert!(names.trim().parse::<u32>().unwrap() > 5, "{names}");
    server.shutdown().unwrap();
}
