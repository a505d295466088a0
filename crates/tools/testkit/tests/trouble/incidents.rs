//! Incidents under a running server: its reaction, the messages in its error log, and that it continues by itself where
//! it can.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

mod compression;
mod difference;
mod full_disk;
mod no_page;
mod stopping;

use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

use redoubt_harness::node::Node;
use redoubt_harness::sessions::wait_until_still;
use redoubt_workload::check::check_all;
use redoubt_workload::error::Error;
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::process::poll_until;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{connect_for, execute};

const VOLUME: &str = "trouble";
const PATIENCE: Duration = Duration::from_secs(60);
/// Small, so that a full disk is felt early.
const NODE_ARGS: [&str; 8] =
    ["--ring", "16MiB", "--batch", "1MiB", "--apply-interval", "1", "--journal", "4MiB"];

struct Setup {
    // Dropped in this order: the server before its node.
    server: Server,
    node: Node,
}

impl Setup {
    fn new(run_options: &[&str]) -> Self {
        Self::on(Node::create(&find_redoubt().unwrap(), &NODE_ARGS).unwrap(), Verify::All, run_options)
    }

    fn on(node: Node, verify: Verify, run_options: &[&str]) -> Self {
        node.create_volume(VOLUME).unwrap();
        let mut config = ServerConfig::new(node.launcher_with(VOLUME, verify, run_options));
        config.log_file_size_bytes = 64 << 20;
        config.buffer_pool_bytes = 64 << 20;
        let server =
            Server::create(config).unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
        Self { server, node }
    }

    fn sql(&self, statements: &[&str]) {
        let mut conn = self.server.connect().unwrap();
        for statement in statements {
            execute(&mut conn, statement).unwrap_or_else(|error| {
                let (server, node) = (self.server.error_log_tail(20), self.node.log_tail(20));
                panic!("{error}\nserver: {server}\nnode: {node}")
            });
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.server.error_log_path()).unwrap()
    }

    /// Waits until the server's error log has a line with all parts, and returns it.
    fn wait_for_log(&self, parts: &[&str]) -> String {
        let find = || {
            let log = self.log();
            Ok(log.lines().find(|line| parts.iter().all(|part| line.contains(part))).map(str::to_owned))
        };
        let line = poll_until("a message in the error log", PATIENCE, find).unwrap_or_else(|error| {
            panic!("{parts:?}: {error}\n{}\n{}", self.server.error_log_tail(20), self.volume())
        });
        println!("{line}");
        line
    }

    fn volume(&self) -> serde_json::Value {
        self.node.status(VOLUME).unwrap()["volumes"][0].clone()
    }

    fn require_verified(&self) {
        self.node.require_verified(VOLUME, 1).unwrap();
    }
}

/// Runs a statement on a connection of its own, in a thread; the channel gets its end.
fn in_background(server: &Server, statement: &'static str) -> mpsc::Receiver<Result<(), Error>> {
    in_background_for(server, statement, PATIENCE)
}

/// The same with a statement that may take so long.
fn in_background_for(
    server: &Server,
    statement: &'static str,
    answer_timeout: Duration,
) -> mpsc::Receiver<Result<(), Error>> {
    let socket = server.socket();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let result = connect_for(&socket, answer_timeout).and_then(|mut conn| execute(&mut conn, statement));
        // The receiver is gone when the test has failed.
        let _ = sender.send(result);
    });
    receiver
}

#[test]
fn a_lost_node_blocks_commits_until_it_is_back() {
    let mut setup = Setup::new(&[]);
    setup.sql(&["CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=InnoDB"]);
    let process_id = setup.server.process_id();
    setup.node.kill9().unwrap();
    let address = setup.node.address().to_string();
    let line =
        setup.wait_for_log(&["[Warning]", "[redoubt]", "lost", "waiting", "commits are blocked", &address]);
    assert!(line.contains("600 s"), "how long it waits is not said: {line}");

    let commit = in_background(&setup.server, "INSERT INTO d.t VALUES (1)");
    wait_until_still(&setup.server, "INFO = 'INSERT INTO d.t VALUES (1)'", 1, PATIENCE)
        .unwrap_or_else(|error| panic!("a commit without a node ended: {error}"));
    let too_early = commit.try_recv();
    assert!(matches!(too_early, Err(TryRecvError::Empty)), "a commit without a node: {too_early:?}");
    setup.node.start().unwrap();
    commit.recv_timeout(PATIENCE).unwrap().unwrap();
    setup.wait_for_log(&["[Note]", "[redoubt]", "is back after", &address]);
    setup.sql(&["INSERT INTO d.t VALUES (2)"]);
    assert_eq!(setup.server.query("SELECT COUNT(*) FROM d.t").unwrap(), [["2"]]);
    assert_eq!(setup.server.process_id(), process_id);
    setup.server.shutdown().unwrap();
    setup.require_verified();
}

#[test]
fn a_node_that_stays_away_ends_the_server_loudly() {
    let mut setup = Setup::new(&["--timeout", "2"]);
    setup.sql(&["CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=InnoDB"]);
    setup.node.kill9().unwrap();
    let commit = in_background(&setup.server, "INSERT INTO d.t VALUES (1)");
    let code = setup.server.wait_exit_code(PATIENCE);
    let code = code.unwrap_or_else(|error| panic!("{error}\n{}", setup.server.error_log_tail(20)));
    // By the library, at once: a server that meets errors continues for a while, and answers.
    assert_eq!(code, Some(1), "{}", setup.server.error_log_tail(20));
    let refused = commit.recv_timeout(PATIENCE).unwrap();
    assert!(refused.is_err(), "a commit was acknowledged without a node");
    let address = setup.node.address().to_string();
    setup.wait_for_log(&["[ERROR]", "[redoubt]", &address, "not reachable for 2 s"]);

    // Nothing is broken by it: the same directory starts again when the node is there.
    setup.node.start().unwrap();
    setup.server.start().unwrap_or_else(|error| panic!("{error}"));
    let rows = setup.server.query("SELECT COUNT(*) FROM d.t").unwrap();
    assert!(rows == [["0"]] || rows == [["1"]], "{rows:?}");
    check_all(&mut setup.server.connect().unwrap()).unwrap();
    setup.server.shutdown().unwrap();
}

#[test]
fn encryption_is_refused_and_hurts_nothing() {
    let mut setup = Setup::new(&[]);
    setup.sql(&["CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=InnoDB"]);
    let mut conn = setup.server.connect().unwrap();
    let refused =
        execute(&mut conn, "CREATE TABLE d.secret (id INT PRIMARY KEY) ENGINE=InnoDB ENCRYPTED=YES");
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("1005") && message.contains("140"), "{message}");
    execute(&mut conn, "INSERT INTO d.t VALUES (1)").unwrap();
    setup.server.kill9().unwrap();
    setup.server.start().unwrap();
    assert_eq!(setup.server.query("SELECT COUNT(*) FROM d.t").unwrap(), [["1"]]);
    setup.server.shutdown().unwrap();
}
