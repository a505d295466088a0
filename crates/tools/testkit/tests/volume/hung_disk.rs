//! A disk that does not answer: the file system of the log is frozen.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use redoubt_harness::node::Node;
use redoubt_test_support::{Mount, skip};
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::process::poll_until;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;

const VOLUME: &str = "hung";
const DISK_BYTES: u64 = 1 << 30;

/// A frozen file system: writes to it wait. The drop thaws it.
struct Frozen<'m>(&'m Path);

impl<'m> Frozen<'m> {
    fn freeze(point: &'m Path) -> Self {
        assert!(Command::new("fsfreeze").arg("-f").arg(point).status().unwrap().success());
        Self(point)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(self.0).status();
    }
}

#[test]
fn volume_whose_log_disk_hangs_is_shown_as_waiting() {
    let disk = match Mount::small_disk(DISK_BYTES) {
        Ok(disk) => disk,
        Err(error) => return skip("a log disk that hangs", error),
    };
    let log = disk.path().join("logs").to_str().unwrap().to_owned();
    let node = Node::create(&find_redoubt().unwrap(), &["--log-path", &log]).unwrap();
    node.create_volume(VOLUME).unwrap();
    let mut server = Server::create(ServerConfig::new(node.launcher(VOLUME, Verify::All))).unwrap();
    let mut connection = server.connect().unwrap();
    execute(&mut connection, "CREATE DATABASE d").unwrap();
    execute(&mut connection, "CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=InnoDB").unwrap();
    node.require_state(VOLUME, "attached").unwrap();

    let frozen = Frozen::freeze(disk.path());
    std::thread::scope(|scope| {
        let committing = scope.spawn(|| execute(&mut connection, "INSERT INTO d.t VALUES (1)"));
        let waits = poll_until("the state", Duration::from_secs(120), || {
            let status = &node.status(VOLUME)?["volumes"][0];
            let reason = status["reason"].as_str().unwrap_or_default().to_owned();
            Ok((status["state"] == "waiting").then_some(reason))
        });
        assert!(!committing.is_finished(), "a commit is acknowledged without its log");
        drop(frozen);
        committing.join().unwrap().unwrap();
        let reason = waits.unwrap();
        assert!(reason.contains("/log ") && reason.contains("its disk does not answer"), "{reason}");
    });
    poll_until("the end of the wait", Duration::from_secs(120), || {
        Ok((node.status(VOLUME)?["volumes"][0]["state"] == "attached").then_some(()))
    })
    .unwrap();
    assert_eq!(server.query("SELECT COUNT(*) FROM d.t").unwrap(), [["1"]]);
    server.shutdown().unwrap();
}
