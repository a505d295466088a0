//! A directory of the node from before, put back: the server's host knows that acknowledged rows are missing.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::path::Path;
use std::process::Command;

use redoubt_harness::node::Node;
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::server::{Server, ServerConfig};

const VOLUME: &str = "older";

struct Setup {
    // Dropped first.
    server: Server,
    node: Node,
    /// Holds copies of the node's directory.
    kept: tempfile::TempDir,
}

fn setup() -> Setup {
    let node = Node::create(&find_redoubt().unwrap(), &[]).unwrap();
    node.create_volume(VOLUME).unwrap();
    let config = ServerConfig::new(node.launcher(VOLUME, Verify::All));
    let server =
        Server::create(config).unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    server.query("CREATE DATABASE d").unwrap();
    server.query("CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=InnoDB").unwrap();
    server.query("INSERT INTO d.t VALUES (1)").unwrap();
    Setup { server, node, kept: tempfile::tempdir().unwrap() }
}

impl Setup {
    fn ids(&self) -> Vec<String> {
        self.server.query("SELECT id FROM d.t ORDER BY id").unwrap().concat()
    }

    fn insert(&self, id: u32) {
        self.server.query(&format!("INSERT INTO d.t VALUES ({id})")).unwrap();
    }

    /// Copies the directory of the node, which does not run.
    fn keep(&self, name: &str) {
        copy(&self.node.data(), &self.kept.path().join(name));
    }

    fn put_back(&self, name: &str) {
        std::fs::remove_dir_all(self.node.data()).unwrap();
        copy(&self.kept.path().join(name), &self.node.data());
    }

    fn generation(&self) -> u64 {
        self.node.status(VOLUME).unwrap()["volumes"][0]["generation"].as_u64().unwrap()
    }

    /// The server is refused, and nothing is attached.
    fn require_refused(&mut self, why: &str) {
        let before = self.generation();
        let error = self.server.start().unwrap_err().to_string();
        for part in ["has an older copy of volume older", why, "--accept-older"] {
            assert!(error.contains(part), "{part:?} is missing: {error}");
        }
        assert_eq!(self.generation(), before, "it was attached");
    }

    fn options(&mut self, options: &[&str]) {
        self.server.config_mut().launcher = self.node.launcher_with(VOLUME, Verify::All, options);
    }
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn exists(path: &Path, name: &str) -> bool {
    std::fs::read_dir(path)
        .unwrap()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with(name))
}

#[test]
fn older_directory_of_the_node_is_refused_and_can_be_accepted() {
    let mut setup = setup();
    setup.server.shutdown().unwrap();
    setup.node.stop().unwrap();
    setup.keep("before the next attach");
    setup.node.start().unwrap();
    setup.server.start().unwrap();
    setup.insert(2);
    setup.server.shutdown().unwrap();
    setup.node.stop().unwrap();
    setup.keep("newest");

    setup.put_back("before the next attach");
    setup.node.start().unwrap();
    setup.require_refused("this data directory was attached in generation");
    // The first refusal has not lowered the generation in the marker, which alone is left to compare with.
    std::fs::remove_file(setup.server.datadir().join(".redoubt-unsent")).unwrap();
    setup.require_refused("this data directory was attached in generation");

    // The newest directory is the first way out.
    setup.node.stop().unwrap();
    setup.put_back("newest");
    setup.node.start().unwrap();
    setup.server.start().unwrap();
    assert_eq!(setup.ids(), ["1", "2"]);
    setup.server.shutdown().unwrap();
    setup.node.stop().unwrap();

    // The other one loses the row, and is needed once only.
    setup.put_back("before the next attach");
    setup.node.start().unwrap();
    setup.options(&["--accept-older"]);
    setup.server.start().unwrap();
    assert_eq!(setup.ids(), ["1"]);
    setup.insert(3);
    setup.server.shutdown().unwrap();
    setup.options(&[]);
    setup.server.start().unwrap();
    assert_eq!(setup.ids(), ["1", "3"]);
}

#[test]
fn shorter_log_is_refused_in_the_same_generation() {
    let mut setup = setup();
    // The server runs meanwhile, as one does while a snapshot of the node's disk is taken.
    setup.node.kill9().unwrap();
    setup.keep("in the middle");
    setup.node.start().unwrap();
    setup.insert(2);
    setup.server.kill9().unwrap();
    setup.node.kill9().unwrap();
    setup.put_back("in the middle");
    setup.node.start().unwrap();
    setup.require_refused("the node confirmed byte");
    setup.options(&["--accept-older"]);
    setup.server.start().unwrap();
    assert_eq!(setup.ids(), ["1"]);
    setup.insert(3);
    setup.server.kill9().unwrap();
    setup.options(&[]);
    setup.server.start().unwrap();
    assert_eq!(setup.ids(), ["1", "3"]);
    assert!(exists(&setup.server.datadir(), ".redoubt-unsent"));
}
