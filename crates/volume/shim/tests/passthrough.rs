//! The library preloaded where it must do nothing, and where it must refuse.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use redoubt_redo::Lsn;
use redoubt_test_support::port::ClosedPort;
use redoubt_wire::Seq;
use redoubt_wire::hello::{Compression, Status, Welcome};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output};

fn library() -> PathBuf {
    // In target/PROFILE/deps beside the test program, or in the folder above: whichever was built last.
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    [deps.parent().unwrap().join("libredoubt.so"), deps.join("libredoubt.so")]
        .into_iter()
        .filter(|path| path.exists())
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap())
        .expect("libredoubt.so is built with the tests")
}

fn shell(script: &str) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new("/bin/sh")
        .arg("-ec")
        .arg(script)
        .current_dir(directory.path())
        .env("LD_PRELOAD", library())
        .env("REDOUBT_NODE", "127.0.0.1:1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn other_programs_work_as_ever() {
    let output = shell(
        "dd if=/dev/urandom of=a bs=64k count=50 2>/dev/null; cp a b; cmp a b; mv b c; ln -s c d; cmp a d
         mkdir e; cat c > e/f; dd if=e/f of=g bs=4k conv=fsync 2>/dev/null; cmp a g; truncate -s 10 g
         mkfifo h; (cat a > h) & cat h | cmp - a; wait; tar cf i.tar e c; mkdir j; tar xf i.tar -C j; cmp j/e/f a
         rm -r e j; test ! -e e; test $(stat -c %s g) = 10; echo fine",
    );
    assert_eq!(output.stdout, b"fine\n");
}

#[test]
fn innodb_names_mean_nothing_in_other_programs() {
    let output =
        shell("echo x > ib_logfile0; echo y > t.ibd; cat ib_logfile0 t.ibd; mv t.ibd undo001; cat undo001");
    assert_eq!(output.stdout, b"x\ny\ny\n");
}

fn server() -> Command {
    let mut command = Command::new("mariadbd");
    command.args(["--no-defaults", "--user=root"]).env("LD_PRELOAD", library());
    command
}

#[test]
fn missing_configuration_is_named_before_the_server_does_anything() {
    let output = server().arg("--version").env("REDOUBT_NODE", "127.0.0.1:1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("REDOUBT_DATADIR") && text.contains("redoubt run"), "{text}");
    assert!(output.stdout.is_empty());
}

/// Runs a bootstrap with the address of a node that does not exist. Returns its messages.
fn bootstrap_without_node(datadir: &std::path::Path) -> String {
    let closed = ClosedPort::take();
    bootstrap_fails(datadir, &closed.address().to_string(), "MariaDB 10.11.19")
}

/// Runs a bootstrap that cannot use its node, as a server of this version. Returns its messages.
fn bootstrap_fails(datadir: &std::path::Path, node: &str, version: &str) -> String {
    let output = server()
        .arg("--bootstrap")
        .arg(format!("--datadir={}", datadir.display()))
        .env("REDOUBT_NODE", node)
        .env("REDOUBT_VOLUME", "v")
        .env("REDOUBT_SERVER_VERSION", version)
        .env("REDOUBT_GENERATION", "1")
        .env("REDOUBT_DATADIR", datadir)
        .env("REDOUBT_SYSTEM_FILES", "ibdata1:0")
        .env("REDOUBT_TIMEOUT_S", "2")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{text}");
    assert!(!datadir.join("ibdata1").exists());
    text
}

/// A data directory with the file that `redoubt run` makes in it.
fn prepared(directory: &tempfile::TempDir) -> PathBuf {
    let datadir = directory.path().canonicalize().unwrap();
    let file = std::fs::File::create(datadir.join(redoubt_resend_queue::FILE_NAME)).unwrap();
    let head = redoubt_resend_queue::layout::new_head("0123456789abcdef0123456789abcdef").unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &head, 0).unwrap();
    file.set_len(redoubt_resend_queue::FILE_LEN_BYTES).unwrap();
    datadir
}

#[test]
fn server_without_node_fails_with_a_clear_message() {
    let directory = tempfile::tempdir().unwrap();
    let datadir = prepared(&directory);
    // It ends by itself: a server that waited for ever would keep this test from ending.
    let text = bootstrap_without_node(&datadir);
    assert!(text.contains("was not reachable for 2 s"), "{text}");
}

/// Accepts every connection as a node of 0.1.0 does: with a Welcome, without negotiation.
fn node_0_1_0() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut len = [0; 4];
            stream.read_exact(&mut len).unwrap();
            stream.read_exact(&mut vec![0; u32::from_le_bytes(len) as usize]).unwrap();
            let welcome = Welcome {
                status: Status::Accepted,
                compression: Compression::Off,
                next_seq: Seq(0),
                next_lsn: Lsn(0),
                message: String::new(),
            };
            stream.write_all(&welcome.encode()).unwrap();
        }
    });
    address
}

#[test]
fn server_of_11_8_does_not_start_on_a_node_0_1_0() {
    let directory = tempfile::tempdir().unwrap();
    let datadir = prepared(&directory);
    let text = bootstrap_fails(&datadir, &node_0_1_0(), "MariaDB 11.8.9");
    assert!(text.contains("requires feature 0, which the peer (protocol version 5)"), "{text}");
}

#[test]
fn server_that_redoubt_run_has_not_prepared_fails_with_a_clear_message() {
    let directory = tempfile::tempdir().unwrap();
    let text = bootstrap_without_node(&directory.path().canonicalize().unwrap());
    assert!(text.contains(redoubt_resend_queue::FILE_NAME) && text.contains("redoubt run"), "{text}");
}

#[test]
fn server_without_the_variables_is_an_ordinary_server() {
    let output = server().arg("--version").output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("MariaDB"));
}

#[test]
fn the_library_needs_nothing_but_the_c_library() {
    // A server with libraries of its own has no others that this one could use.
    let output = Command::new("ldd").arg(library()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("libc.so"), "{text}");
    let others: Vec<_> = text
        .lines()
        .filter(|line| !["libc.so", "ld-linux", "linux-vdso"].iter().any(|known| line.contains(known)))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn a_local_log_without_a_data_directory_is_refused() {
    for (value, named) in [("map-sync", "REDOUBT_DATADIR"), ("yes", "REDOUBT_LOCAL_LOG")] {
        let output = server().arg("--version").env("REDOUBT_LOCAL_LOG", value).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        let expected = if cfg!(feature = "experimental-devices") {
            [named, "redoubt run"]
        } else {
            ["REDOUBT_LOCAL_LOG", "package redoubt-experimental"]
        };
        assert!(expected.iter().all(|part| text.contains(part)), "{text}");
    }
}
