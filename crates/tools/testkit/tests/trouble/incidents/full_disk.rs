//! No room on the node's disk: commits wait, the server lives and answers reads, and continues when there is room.
//!
//! The long ones, `make full-disk`, wait for [`minutes`] each: longer than every timeout there is on the way (the
//! kernel's for a connection whose peer takes nothing, the library's `--timeout` of 600 s).

use std::path::Path;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use redoubt_harness::node::Node;
use redoubt_harness::sessions::wait_until_still;
use redoubt_test_support::Mount;
use redoubt_test_support::setting;
use redoubt_workload::check::{check_all, finish_purge};
use redoubt_workload::error::Error;
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::ledger::{self, Entries, Options, Run};
use redoubt_workload::sql::query_text;

use super::{NODE_ARGS, PATIENCE, Setup, in_background_for};

const DISK_BYTES: u64 = 600 << 20;

#[test]
fn a_full_disk_of_the_node_stops_commits_until_there_is_room() {
    if let Some(disk) = small_disk() {
        let node = Node::in_directory(&find_redoubt().unwrap(), disk.path(), &NODE_ARGS).unwrap();
        commits_wait_for_room(&disk, node, Duration::ZERO);
    }
}

#[test]
#[ignore = "an hour: make full-disk"]
fn a_disk_that_is_full_for_an_hour_costs_time_only() {
    if let Some(disk) = small_disk() {
        let node = Node::in_directory(&find_redoubt().unwrap(), disk.path(), &NODE_ARGS).unwrap();
        commits_wait_for_room(&disk, node, minutes());
    }
}

/// The log has room and the pages have none: nothing is applied, and the log buffer is full.
#[test]
#[ignore = "an hour: make full-disk"]
fn a_log_buffer_that_is_full_for_an_hour_costs_time_only() {
    if let Some(disk) = small_disk() {
        let pages = disk.path().display().to_string();
        let args = [&NODE_ARGS[..], &["--pages-path", &pages, "--journal-path", &pages]].concat();
        commits_wait_for_room(&disk, Node::create(&find_redoubt().unwrap(), &args).unwrap(), minutes());
    }
}

fn small_disk() -> Option<Mount> {
    match Mount::small_disk(DISK_BYTES) {
        Ok(disk) => Some(disk),
        Err(reason) => {
            redoubt_test_support::skip("a small disk", reason);
            None
        }
    }
}

/// How long the long tests leave the disk full: `REDOUBT_FULL_DISK_MINUTES`, or an hour.
fn minutes() -> Duration {
    Duration::from_secs(60 * setting("REDOUBT_FULL_DISK_MINUTES", 60))
}

fn commits_wait_for_room(disk: &Mount, node: Node, full_for: Duration) {
    let mut setup = Setup::on(node, Verify::All, &[]);
    let process_id = setup.server.process_id();
    let file = setup.server.directory().join("ledger");
    let options = Options::default();
    let clients = options.clients as usize;
    let run = Run::start(&setup.server.socket(), &file, options).unwrap();
    run.wait_for_more(100, PATIENCE).unwrap();
    setup.sql(&[
        "CREATE DATABASE bulk",
        "CREATE TABLE bulk.t (id INT PRIMARY KEY, b VARBINARY(1000)) ENGINE=InnoDB",
    ]);
    let filler = disk.fill().unwrap();

    // More new pages than the log buffer holds bytes.
    let bulk = in_background_for(
        &setup.server,
        "INSERT INTO bulk.t SELECT seq, RANDOM_BYTES(1000) FROM mysql.seq_1_to_150000",
        full_for + 6 * PATIENCE,
    );
    setup.wait_for_log(&[
        "[Warning]",
        "[redoubt]",
        "storage node waits",
        "commits are blocked",
        "No space left",
    ]);
    let of_ledger = format!("DB = '{}'", ledger::DATABASE);
    wait_until_still(&setup.server, &of_ledger, clients, PATIENCE)
        .unwrap_or_else(|error| panic!("commits go on: {error}\n{}", setup.volume()));
    let early = bulk.try_recv();
    assert!(matches!(early, Err(TryRecvError::Empty)), "more than there is room for was written: {early:?}");
    let volume = setup.volume();
    println!("state {} ({}), waits for {:?}", volume["state"], volume["reason"], volume["ring_waits_for"]);
    stay_full(&setup, &run, full_for);

    std::fs::remove_file(filler).unwrap();
    // They share the server's log with the rest of the bulk.
    run.wait_for_more(200, 5 * PATIENCE).unwrap_or_else(|error| {
        let (server, node) = (setup.server.error_log_tail(10), setup.node.log_tail(10));
        panic!("{error}\nserver: {server}\nnode: {node}\nvolume: {}", setup.volume())
    });
    bulk.recv_timeout(PATIENCE).unwrap().unwrap();
    setup.wait_for_log(&["[Note]", "[redoubt]", "storage node resumes"]);
    assert_eq!(setup.server.process_id(), process_id);
    run.stop().unwrap();
    require_all(&mut setup, &file);
}

/// The server answers reads all the time, on new connections too, and no commit ends.
fn stay_full(setup: &Setup, run: &Run, full_for: Duration) {
    let began = Instant::now();
    let mut answered = 0_u32;
    loop {
        let rows = setup.server.query("SELECT COUNT(*) FROM mysql.innodb_table_stats");
        rows.unwrap_or_else(|error| panic!("{error}\n{}", setup.server.error_log_tail(20)));
        answered += 1;
        if began.elapsed() >= full_for {
            break;
        }
        match run.wait_for_more(1, Duration::from_secs(5)) {
            Err(Error::Deadline { .. }) => {}
            other => panic!("{other:?} after {:?}\n{}", began.elapsed(), setup.server.error_log_tail(20)),
        }
    }
    println!("full for {:?}; {answered} reads on new connections were answered", began.elapsed());
}

fn require_all(setup: &mut Setup, ledger_file: &Path) {
    let mut conn = setup.server.connect().unwrap();
    assert_eq!(query_text(&mut conn, "SELECT COUNT(*) FROM bulk.t").unwrap(), [["150000"]]);
    ledger::verify(&mut conn, &Entries::read(ledger_file).unwrap()).unwrap().require_sound().unwrap();
    finish_purge(&mut conn).unwrap();
    check_all(&mut conn).unwrap();
    setup.server.shutdown().unwrap();
    setup.require_verified();
}
