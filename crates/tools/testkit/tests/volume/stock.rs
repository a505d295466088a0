//! The harness against the stock server: a check that fails here is a fault of the check.
//!
//! The same steps run later with the server on a volume; only the launcher differs. `make batteries` has the page sizes
//! that are left out here.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::time::Duration;

use mysql::prelude::Queryable;
use redoubt_harness::battery::{self, Restart, Schedule};
use redoubt_harness::features;
use redoubt_harness::sessions::wait_until_still;
use redoubt_workload::check::{check_all, checksums};
use redoubt_workload::launcher::Launcher;
use redoubt_workload::ledger::{self, Entries, Options, Run};
use redoubt_workload::load::Until;
use redoubt_workload::oltp::Mix;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;
use redoubt_workload::sysbench::Sysbench;

fn run_battery(page_size_bytes: u32, innodb_args: &[&str], schedule: Schedule) {
    let mut config = battery::config(Launcher::Stock);
    config.page_size_bytes = page_size_bytes;
    config.innodb_args.extend(innodb_args.iter().map(|arg| (*arg).to_owned()));
    let mut server = Server::create(config).unwrap();
    let features = features::for_page_size(page_size_bytes);
    let report = battery::run(&mut server, &features, schedule).unwrap_or_else(|error| panic!("{error}"));
    server.shutdown().unwrap();
    println!("{page_size_bytes} byte pages: {report:#?}");
    assert_eq!(report.steps.len(), features.len());
    assert!(report.tables_compared >= features.len(), "{report:?}");
}

const IN_TURN: Schedule = Schedule::AfterEach(&[Restart::Kill, Restart::Clean]);
const TWICE_AT_END: Schedule = Schedule::AtEnd(&[Restart::Kill, Restart::Clean]);

#[test]
#[ignore = "make batteries"]
fn features_16k_restart_after_each() {
    run_battery(16384, &[], IN_TURN);
}

#[test]
#[ignore = "make batteries"]
fn features_16k_crc32_buffered_log() {
    run_battery(
        16384,
        &["--innodb-checksum-algorithm=crc32", "--innodb-log-file-buffering=ON"],
        TWICE_AT_END,
    );
}

#[test]
#[ignore = "make batteries"]
fn features_4k() {
    run_battery(4096, &[], TWICE_AT_END);
}

#[test]
#[ignore = "make batteries"]
fn features_8k_crc32() {
    run_battery(8192, &["--innodb-checksum-algorithm=crc32"], TWICE_AT_END);
}

#[test]
#[ignore = "make batteries"]
fn features_32k() {
    run_battery(32768, &[], TWICE_AT_END);
}

#[test]
#[ignore = "make batteries"]
fn features_64k() {
    run_battery(65536, &[], TWICE_AT_END);
}

#[test]
fn change_buffer_with_a_small_pool() {
    let mut config = battery::config(Launcher::Stock);
    config.buffer_pool_bytes = u64::from(features::CHANGE_BUFFER_POOL_MIB) << 20;
    let mut server = Server::create(config).unwrap();
    let schedule = Schedule::AtEnd(&[Restart::Kill, Restart::Clean]);
    battery::run(&mut server, &[features::change_buffer()], schedule)
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn ledger_survives_crashes_and_finds_a_loss() {
    let mut server = Server::create(ServerConfig::new(Launcher::Stock)).unwrap();
    let file = server.directory().join("ledger");
    let run = Run::start(&server.socket(), &file, Options::default()).unwrap();
    for _ in 0..3 {
        run.wait_for_more(200, Duration::from_secs(60)).unwrap();
        server.kill9().unwrap();
        server.start().unwrap();
    }
    run.wait_for_more(200, Duration::from_secs(60)).unwrap();
    let summary = run.stop().unwrap();
    assert!(summary.acknowledged >= 800 && summary.connections_lost >= 3, "{summary:?}");

    let entries = Entries::read(&file).unwrap();
    assert_eq!(entries.acknowledged(), summary.acknowledged);
    let mut conn = server.connect().unwrap();
    let report = ledger::verify(&mut conn, &entries).unwrap().require_sound().unwrap();
    assert_eq!(report.rows_found, summary.acknowledged);

    // The verifier must see every kind of damage, or it proves nothing.
    for (damage, fault) in [
        ("DELETE FROM detail WHERE client = 0 AND sequence = 5 AND part = 1", "partial"),
        ("UPDATE entry SET payload = CONCAT(payload, 'x') WHERE client = 1 AND sequence = 4", "payload"),
        ("UPDATE counter SET transactions = transactions - 1 WHERE client = 2", "counter of client 2"),
        ("INSERT INTO entry VALUES (3, 1000000, 0, 'x')", "never sent"),
        ("UPDATE detail SET checksum = checksum ^ 1 WHERE client = 0 AND sequence = 6", "partial"),
    ] {
        let faults = damaged(&mut conn, &entries, &[damage]);
        assert!(faults.contains(fault), "{damage}: {faults}");
    }
    let gone = [
        "DELETE FROM entry WHERE client = 3 AND sequence = 2",
        "DELETE FROM detail WHERE client = 3 AND sequence = 2",
    ];
    assert!(damaged(&mut conn, &entries, &gone).contains("acknowledged and is missing"));
    ledger::verify(&mut conn, &entries).unwrap().require_sound().unwrap();
}

/// Verifies inside a transaction that does damage and is rolled back.
fn damaged(conn: &mut mysql::Conn, entries: &Entries, statements: &[&str]) -> String {
    execute(conn, "USE redoubt_ledger").unwrap();
    execute(conn, "START TRANSACTION").unwrap();
    for statement in statements {
        execute(conn, statement).unwrap();
    }
    let report = ledger::compare_rows(conn, entries).unwrap();
    execute(conn, "ROLLBACK").unwrap();
    report.require_sound().unwrap_err().to_string()
}

#[test]
fn sysbench_reports_and_a_crash_keeps_the_tables() {
    let mut server = Server::create(ServerConfig::new(Launcher::Stock)).unwrap();
    let sysbench = Sysbench::small(&server.socket());
    sysbench.prepare().unwrap();
    let report = sysbench.run(Mix::ReadWrite, Until::Transactions(100)).unwrap();
    assert_eq!(report.transactions, 100);
    assert!(report.latency_mean_ms > 0.0 && report.transactions_per_second > 0.0);
    let report = sysbench.run(Mix::WriteOnly, Until::Elapsed(Duration::from_secs(1))).unwrap();
    assert!(report.transactions > 0);
    let before = checksums(&mut server.connect().unwrap()).unwrap();
    server.kill9().unwrap();
    server.start().unwrap();
    let mut conn = server.connect().unwrap();
    assert_eq!(before, checksums(&mut conn).unwrap());
    assert!(check_all(&mut conn).unwrap() > 2);
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let mut config = ServerConfig::new(Launcher::Stock);
    config.server_args = vec!["--innodb-no-such-option=1".into()];
    let mut server = Server::new(config).unwrap();
    server.install_db().unwrap();
    let error = server.start().unwrap_err().to_string();
    assert!(error.contains("no-such-option"), "{error}");
    assert!(server.kill9().is_err(), "the failed server is gone");
}

/// A client of the ledger that waits for room in the log stands in a prepared INSERT as often as in its COMMIT.
#[test]
fn a_session_stands_still_in_a_prepared_statement_too() {
    let server = Server::create(ServerConfig::new(Launcher::Stock)).unwrap();
    let mut holder = server.connect().unwrap();
    execute(&mut holder, "CREATE DATABASE IF NOT EXISTS test").unwrap();
    execute(&mut holder, "CREATE TABLE test.t (id INT PRIMARY KEY) ENGINE=InnoDB").unwrap();
    execute(&mut holder, "BEGIN").unwrap();
    execute(&mut holder, "INSERT INTO test.t VALUES (1)").unwrap();
    let mut waiting = server.connect().unwrap();
    execute(&mut waiting, "USE test").unwrap();
    let insert = std::thread::spawn(move || waiting.exec_drop("INSERT INTO t VALUES (?)", (1,)));
    wait_until_still(&server, "DB = 'test'", 1, Duration::from_secs(20)).unwrap();
    execute(&mut holder, "ROLLBACK").unwrap();
    insert.join().unwrap().unwrap();
}
