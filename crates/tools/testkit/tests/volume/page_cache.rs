//! The page cache on the server's side: with every page verified a hit is compared with the node's page, so a page that
//! is not the newest ends the server.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::time::Duration;

use redoubt_harness::battery::{self, Restart, Schedule};
use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::features;
use redoubt_harness::node::Node;
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::ledger::{Options, Run};
use redoubt_workload::server::Server;
use redoubt_workload::sql::execute;

const VOLUME: &str = "cached";

fn node() -> Node {
    let args = ["--ring", "32MiB", "--batch", "1MiB", "--apply-interval", "1"];
    let node = Node::create(&find_redoubt().unwrap(), &args).unwrap();
    node.create_volume(VOLUME).unwrap();
    node
}

/// Waits until the server has reported the counter with at least this value.
fn wait_for_counter(node: &Node, name: &str, least: u64) -> u64 {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let status = node.status(VOLUME).unwrap();
        let value = status["volumes"][0]["server_counters"][name].as_u64().unwrap_or(0);
        if value >= least {
            return value;
        }
        assert!(std::time::Instant::now() < deadline, "{name} is {value}: {status}");
        std::thread::yield_now();
    }
}

#[test]
fn tables_of_many_kinds_with_a_cache_in_memory() {
    let node = node();
    let mut config = battery::config(node.launcher_with(VOLUME, Verify::All, &["--page-cache", "256MiB"]));
    config.buffer_pool_bytes = 8 << 20;
    let mut server = Server::create(config).unwrap();
    let some: Vec<_> = features::all().into_iter().step_by(3).collect();
    let schedule = Schedule::AtEnd(&[Restart::Kill, Restart::KillAndAttach]);
    battery::run(&mut server, &some, schedule)
        .unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    server.shutdown().unwrap();
}

#[test]
fn a_large_table_and_a_small_pool_with_a_cache_in_a_file() {
    let node = node();
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().display().to_string();
    let options = ["--page-cache", "24MiB", "--page-cache-directory", &place];
    let mut config = battery::config(node.launcher_with(VOLUME, Verify::All, &options));
    config.buffer_pool_bytes = 8 << 20;
    let mut server = Server::create(config).unwrap();
    let mut conn = server.connect().unwrap();
    for statement in [
        "CREATE DATABASE d",
        "USE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, k INT, b VARCHAR(400), KEY(k)) ENGINE=InnoDB",
        "INSERT INTO d.t SELECT seq, seq * 7919 % 100003, REPEAT(MD5(seq), 12) FROM seq_1_to_60000",
    ] {
        execute(&mut conn, statement).unwrap();
    }
    // Larger than the cache, changed all over while a ledger is kept beside it.
    let ledger = Run::start(&server.socket(), &directory.path().join("ledger"), Options::default()).unwrap();
    for round in 0..6 {
        let update = format!("UPDATE d.t SET b = REPEAT(MD5(id + {round}), 12) WHERE k % 6 = {round}");
        execute(&mut conn, &update).unwrap();
        execute(&mut conn, "SELECT COUNT(*) FROM d.t FORCE INDEX(k) WHERE b <> ''").unwrap();
    }
    ledger.run_for(Duration::from_secs(1));
    ledger.stop().unwrap();
    let hits = wait_for_counter(&node, "page_cache_hits", 100);
    let evictions = wait_for_counter(&node, "page_cache_evictions", 100);
    println!("{hits} hits, {evictions} evictions");
    assert_eq!(wait_for_counter(&node, "page_cache_capacity_bytes", 1), 24 << 20);
    let sum = "SELECT COUNT(*), SUM(CRC32(b)) FROM d.t";
    let before = server.query(sum).unwrap();
    drop(conn);
    server.kill9().unwrap();
    server.empty_data_directory().unwrap();
    server.start().unwrap();
    assert_eq!(server.query(sum).unwrap(), before);
    server.shutdown().unwrap();
    // Nothing is left of it.
    let left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["ledger"]);
}

#[test]
fn a_place_that_cannot_be_used_is_refused() {
    let node = node();
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data").display().to_string();
    let address = node.address().to_string();
    let run = |options: &[&str], parts: &[&str]| {
        let mut args = vec!["run", "--node", &address, "--volume", VOLUME, "--datadir", &data];
        args.extend(options);
        args.extend(["--", "mariadbd", "--help"]);
        Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap().require_failure(1, parts).unwrap();
    };
    run(&["--page-cache", "1GiB", "--page-cache-directory", "/no/such/place"], &["/no/such/place"]);
    run(
        &["--page-cache", "1GiB", "--page-cache-directory", "/proc"],
        &["page cache", "--page-cache-directory"],
    );
    node.require_state(VOLUME, "ready").unwrap();
}
