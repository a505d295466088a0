//! Reading ahead of scans. With every page verified, a page that was read ahead is compared with the node's when it is
//! used, so a page that is not the newest ends the server.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_harness::battery;
use redoubt_harness::command::PATIENCE;
use redoubt_harness::node::Node;
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::ledger::{Options, Run};
use redoubt_workload::server::Server;
use redoubt_workload::sql::execute;

const VOLUME: &str = "ahead";
/// 60,000 rows of 400 bytes have more pages than this.
const PAGES: u64 = 1500;
const SUM: &str = "SELECT COUNT(*), SUM(CRC32(b)) FROM d.t";

/// A server with a small pool, and the table `d.t`, several times as large.
fn server_with(options: &[&str]) -> (Node, Server) {
    let args = ["--ring", "32MiB", "--batch", "1MiB", "--apply-interval", "1"];
    let node = Node::create(&find_redoubt().unwrap(), &args).unwrap();
    node.create_volume(VOLUME).unwrap();
    let mut config = battery::config(node.launcher_with(VOLUME, Verify::All, options));
    config.buffer_pool_bytes = 8 << 20;
    let server = Server::create(config).unwrap();
    let mut conn = server.connect().unwrap();
    for statement in [
        "CREATE DATABASE d",
        "USE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, k INT, b VARCHAR(400), KEY(k)) ENGINE=InnoDB",
        "INSERT INTO d.t SELECT seq, seq * 7919 % 100003, REPEAT(MD5(seq), 12) FROM seq_1_to_60000",
    ] {
        execute(&mut conn, statement).unwrap();
    }
    (node, server)
}

/// The server's counters of pages read ahead, and those of them that were used, once at least `used` were.
fn counters(node: &Node, used: u64) -> (u64, u64) {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let status = node.status(VOLUME).unwrap();
        let of = |name: &str| status["volumes"][0]["server_counters"][name].as_u64();
        if let (Some(all), Some(found)) = (of("read_ahead_pages"), of("read_ahead_used"))
            && found >= used
        {
            return (all, found);
        }
        assert!(std::time::Instant::now() < deadline, "fewer than {used} used: {status}");
        std::thread::yield_now();
    }
}

/// Most pages of a scan have been asked for before, with and without a page cache, and their content is right although
/// rows are changed all over the table meanwhile.
fn scans(options: &[&str]) {
    let (node, mut server) = server_with(options);
    let mut conn = server.connect().unwrap();
    let expected = server.query(SUM).unwrap();
    assert_eq!(server.query(SUM).unwrap(), expected);
    let (asked, used) = counters(&node, 2 * PAGES / 2);
    println!("two scans of more than {PAGES} pages: {asked} pages read ahead, {used} used");
    assert!(used * 2 > asked, "{used} of {asked}");

    let directory = tempfile::tempdir().unwrap();
    let ledger = Run::start(&server.socket(), &directory.path().join("ledger"), Options::default()).unwrap();
    for round in 0..4 {
        // Through the other index: one page here, one there.
        let update =
            format!("UPDATE d.t FORCE INDEX(k) SET b = REPEAT(MD5(id + {round}), 12) WHERE k % 9 = {round}");
        execute(&mut conn, &update).unwrap();
        execute(&mut conn, SUM).unwrap();
    }
    ledger.stop().unwrap();
    let expected = server.query(SUM).unwrap();
    drop(conn);
    server.kill9().unwrap();
    server.start().unwrap();
    assert_eq!(server.query(SUM).unwrap(), expected);
    server.shutdown().unwrap();
    let (asked, used) = counters(&node, 0);
    println!("{asked} pages read ahead, {used} used");
}

#[test]
fn scans_are_read_ahead_without_a_page_cache() {
    scans(&[]);
}

#[test]
fn scans_are_read_ahead_into_the_page_cache() {
    scans(&["--page-cache", "12MiB"]);
}

#[test]
fn nothing_is_read_ahead_where_it_is_switched_off() {
    let (node, mut server) = server_with(&["--read-ahead", "0"]);
    server.query(SUM).unwrap();
    server.shutdown().unwrap();
    assert_eq!(counters(&node, 0), (0, 0));
}
