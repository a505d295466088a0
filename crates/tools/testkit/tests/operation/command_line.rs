//! The user's view of the `redoubt` command: exit codes, help, and for every mistake a message with the defect, its
//! location, and a remedy.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

mod half_attach;
mod import;
mod run;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::node::Node;
use redoubt_test_support::Mount;
use redoubt_test_support::port::ClosedPort;
use redoubt_workload::launcher::find_redoubt;

/// Wrong usage.
const USAGE: i32 = 2;
/// Anything else.
const FAILED: i32 = 1;

fn redoubt(args: &[&str]) -> Outcome {
    Outcome::of(&find_redoubt().unwrap(), args, PATIENCE).unwrap_or_else(|error| panic!("{error}"))
}

/// The command fails with one line that has every part.
fn refused(args: &[&str], code: i32, parts: &[&str]) {
    let outcome = redoubt(args);
    outcome.require_failure(code, parts).unwrap_or_else(|error| panic!("redoubt {args:?}: {error}"));
    println!("{}", outcome.stderr.trim_end());
    if code == FAILED {
        let lines: Vec<_> = outcome.stderr.lines().filter(|line| line.starts_with("redoubt: ")).collect();
        assert_eq!(lines.len(), 1, "not one message: {}", outcome.stderr);
    }
}

fn node() -> Node {
    Node::create(&find_redoubt().unwrap(), &[]).unwrap_or_else(|error| panic!("{error}"))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn wrong_usage_exits_with_2() {
    refused(&[], USAGE, &["Usage:", "node", "volume", "run", "status"]);
    refused(&["frobnicate"], USAGE, &["frobnicate", "--help"]);
    refused(&["volume"], USAGE, &["create", "import", "export"]);
    refused(&["status", "--frobnicate"], USAGE, &["--frobnicate", "--help"]);
    refused(&["node"], USAGE, &["--data"]);
    refused(&["volume", "export", "v"], USAGE, &["--to"]);
    refused(&["run", "--volume", "v", "--datadir", "d"], USAGE, &["COMMAND"]);
    refused(&["run", "--volume", "v", "--datadir", "d", "--verify=some", "--", "mariadbd"], USAGE, &["1/N"]);
    refused(&["node", "--data", "d", "--ring", "12parsecs"], USAGE, &["12parsecs", "MiB"]);
    refused(&["node", "--data", "d", "--ring", "1MiB"], USAGE, &["--ring", "16MiB"]);
    refused(&["node", "--data", "d", "--journal", "1MiB"], USAGE, &["--journal", "4MiB"]);
    refused(&["node", "--data", "d", "--journal", "65GiB"], USAGE, &["--journal", "64GiB"]);
    refused(
        &["node", "--data", "d", "--page-protection", "none"],
        USAGE,
        &["--page-protection", "doublewrite"],
    );
    refused(&["node", "--data", "d", "--status-host", "name"], USAGE, &["--status-listen"]);
    refused(&["status", "--count", "3"], USAGE, &["--watch"]);
    refused(&["trace"], USAGE, &["--volume"]);
    refused(&["node", "--data", "d", "--apply-workers", "0"], USAGE, &["--apply-workers", "1..=256"]);
}

#[test]
fn what_does_not_go_together_or_is_not_there_exits_with_1() {
    refused(
        &["node", "--data", "d", "--page-protection", "journal", "--pretend-atomic"],
        FAILED,
        &["--pretend-atomic"],
    );
    let exposed = ["node", "--data", "d", "--listen", "127.0.0.1:0", "--status-listen", "0.0.0.0:0"];
    refused(&exposed, FAILED, &["0.0.0.0", "--status-allow-remote", "127.0.0.1"]);
    refused(&["device", "format", "--yes", "no-such-device"], FAILED, &["no-such-device", "block device"]);
}

#[test]
fn help_names_every_option() {
    let commands: [(&[&str], &[&str]); 13] = [
        (&[], &["node", "volume", "run", "status", "First steps"]),
        (
            &["node"],
            &[
                "--data",
                "--listen",
                "--ring",
                "--batch",
                "--apply-interval",
                "--apply-workers",
                "--page-protection",
                "--journal",
                "--journal-path",
                "--pages-path",
                "--pretend-atomic",
                "--status-listen",
                "--status-allow-remote",
                "--status-host",
            ],
        ),
        (&["device", "format"], &["--force", "--yes", "<DEVICE>"]),
        (&["device", "show"], &["--json", "<DEVICE>"]),
        (&["volume"], &["create", "list", "show", "delete", "import", "export"]),
        (&["volume", "create"], &["--node", "<NAME>"]),
        (&["volume", "list"], &["--node", "--json"]),
        (&["volume", "show"], &["--node", "--json", "<NAME>"]),
        (&["volume", "delete"], &["--node", "--force", "--yes", "<NAME>"]),
        (&["volume", "import"], &["--node", "--from", "--innodb-data-file-path", "<NAME>"]),
        (&["volume", "export"], &["--node", "--to", "<NAME>"]),
        (&["status"], &["--node", "--volume", "--json", "--watch", "--interval", "--count"]),
        (&["trace"], &["--node", "--volume", "--seconds", "--one-in", "--slowest", "--json"]),
    ];
    for (command, options) in commands {
        let help = redoubt(&[command, &["--help"]].concat()).require_success().unwrap();
        for option in options {
            assert!(help.contains(option), "help of {command:?} lacks {option}:\n{help}");
        }
    }
    let help = redoubt(&["run", "--help"]).require_success().unwrap();
    for option in
        ["--node", "--volume", "--datadir", "--verify", "--compress", "--timeout", "--library", "COMMAND"]
    {
        assert!(help.contains(option), "{help}");
    }
    assert!(redoubt(&["--version"]).require_success().unwrap().starts_with("redoubt "));
}

#[test]
fn a_node_says_what_is_wrong_with_its_options() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let start = |more: &[&str], parts: &[&str]| {
        let args = [&["node", "--listen", "127.0.0.1:0", "--data", text(&data)], more].concat();
        refused(&args, FAILED, parts);
    };
    start(&["--batch", "1KiB"], &["--batch", "1MiB or more"]);
    start(&["--ring", "32MiB", "--batch", "20MiB"], &["--batch", "at most half of --ring"]);
    assert!(!data.exists(), "a refused start made {}", data.display());

    let file = directory.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let listen = ["node", "--data", text(&data), "--listen"];
    refused(&[&listen[..], &["nonsense"]].concat(), FAILED, &["cannot listen on nonsense", "--listen"]);
    refused(&["node", "--data", text(&file)], FAILED, &[text(&file), "not a directory"]);
    let below = file.join("data");
    refused(&["node", "--data", text(&below)], FAILED, &[text(&below), "directory is needed"]);
}

#[test]
fn a_node_needs_its_directory_and_its_port_for_itself() {
    let node = node();
    let data = node.data();
    let again = ["node", "--data", text(&data), "--listen", "127.0.0.1:0"];
    refused(&again, FAILED, &[text(&data), "in use by another node"]);
    let other = tempfile::tempdir().unwrap();
    let address = node.address().to_string();
    let same_port = ["node", "--data", text(other.path()), "--listen", &address];
    refused(&same_port, FAILED, &[&address, "in use", "--listen"]);
}

#[test]
fn a_node_on_a_read_only_file_system_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let mount = match Mount::read_only(directory.path()) {
        Ok(mount) => mount,
        Err(reason) => return redoubt_test_support::skip("a read-only file system", reason),
    };
    for data in [mount.path().to_owned(), mount.path().join("new")] {
        let args = ["node", "--listen", "127.0.0.1:0", "--data", text(&data)];
        refused(&args, FAILED, &[text(mount.path()), "mounted read-only"]);
    }
}

#[test]
fn a_client_says_what_is_wrong_with_the_node() {
    let port = ClosedPort::take();
    let closed = port.address().to_string();
    for command in [&["status"][..], &["volume", "list"], &["volume", "create", "v"]] {
        let args = [command, &["--node", &closed]].concat();
        refused(&args, FAILED, &["cannot reach the storage node", &closed, "redoubt node"]);
    }
    refused(&["status", "--node", "nowhere"], FAILED, &["nowhere", "check the address"]);
    refused(&["status", "--node", "host.invalid:7070"], FAILED, &["host.invalid:7070", "check the address"]);
}

/// A listener that calls `talk` for each connection.
fn listener(talk: fn(std::net::TcpStream)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            talk(stream);
        }
    });
    address
}

#[test]
fn a_client_does_not_take_something_else_for_a_node() {
    let web_server = listener(|mut stream| {
        let mut request = [0; 16];
        let _ = stream.read(&mut request);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    refused(
        &["status", "--node", &web_server],
        FAILED,
        &[&web_server, "does not speak the Redoubt protocol"],
    );
    let closes = listener(drop);
    refused(&["status", "--node", &closes], FAILED, &[&closes, "the other side closed it"]);
    let zeros = listener(|mut stream| drop(stream.write_all(&[0; 64])));
    refused(&["status", "--node", &zeros], FAILED, &[&zeros, "did not send a Redoubt handshake"]);
}

#[test]
fn a_client_does_not_wait_forever_for_a_greeting() {
    let silent = listener(|mut stream| {
        let mut sink = Vec::new();
        let _ = stream.read_to_end(&mut sink);
    });
    let outcome = redoubt(&["volume", "list", "--node", &silent]);
    outcome.require_failure(FAILED, &[&silent, "sent nothing for 10 s", "check that"]).unwrap();
    assert!(outcome.took >= Duration::from_secs(10), "{:?}", outcome.took);
}

#[test]
fn a_client_says_what_is_wrong_with_a_volume() {
    let node = node();
    let address = node.address().to_string();
    let with_node =
        |args: &[&str], parts: &[&str]| refused(&[args, &["--node", &address]].concat(), FAILED, parts);
    assert!(
        redoubt(&["volume", "list", "--node", &address]).require_success().unwrap().contains("volume create")
    );
    for name in ["a/b", "", "..", ".hidden", "with space", &"n".repeat(65)] {
        with_node(&["volume", "create", name], &["not usable", "letters, digits"]);
    }
    node.create_volume("here").unwrap();
    with_node(&["volume", "create", "here"], &["here exists already", "redoubt volume delete"]);
    with_node(&["volume", "show", "gone"], &["no volume \"gone\"", "redoubt volume list"]);
    with_node(&["status", "--volume", "gone"], &["no volume \"gone\"", "redoubt volume list"]);
    with_node(&["volume", "delete", "gone", "--yes"], &["no volume \"gone\""]);
    with_node(&["volume", "delete", "a/b", "--yes"], &["not usable"]);
    with_node(&["volume", "delete", "here"], &["--yes"]);
    let shown = redoubt(&["volume", "show", "here", "--node", &address]).require_success().unwrap();
    assert!(shown.contains("volume here") && shown.contains("never attached"), "{shown}");

    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("out");
    with_node(&["volume", "export", "here", "--to", text(&target)], &["volume here is empty"]);
    assert!(!target.exists(), "a refused export left {}", target.display());
    with_node(&["volume", "export", "gone", "--to", text(&target)], &["no volume \"gone\""]);

    node.redoubt(&["volume", "delete", "here", "--yes", "--node", &address]).unwrap();
    with_node(&["volume", "show", "here"], &["no volume \"here\""]);
}
