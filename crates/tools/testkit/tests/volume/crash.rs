//! Nothing acknowledged is lost: a ledger of acknowledged commits outside the database, while server, node, or
//! both are killed at random moments.
//!
//! `REDOUBT_SOAK_ROUNDS` sets the number of rounds (default: a handful), `REDOUBT_SEED` the seed.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redoubt_harness::node::Node;
use redoubt_test_support::setting;
use redoubt_workload::check::{check_all, check_database, finish_purge};
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::ledger::{self, Entries, Options, Run};
use redoubt_workload::process::poll_until;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{connect, execute, status_number};

const VOLUME: &str = "ledger";
const PATIENCE: Duration = Duration::from_secs(120);

struct Setup {
    node: Node,
    server: Server,
}

fn setup(node_args: &[&str]) -> Setup {
    setup_with(node_args, |_| ())
}

fn setup_with(node_args: &[&str], change: impl FnOnce(&mut ServerConfig)) -> Setup {
    let node = Node::create(&find_redoubt().unwrap(), node_args).unwrap();
    node.create_volume(VOLUME).unwrap();
    let mut config = ServerConfig::new(node.launcher(VOLUME, Verify::All));
    config.log_file_size_bytes = 16 << 20;
    config.buffer_pool_bytes = 32 << 20;
    change(&mut config);
    let server =
        Server::create(config).unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    Setup { node, server }
}

/// A log on persistent memory, or the node's choice in builds that do not have it.
const MEMORY: &[&str] = if cfg!(feature = "experimental-devices") {
    &["--log-device", "pmem", "--pretend-pmem"]
} else {
    &["--log-device", "auto"]
};

/// All acknowledged commits are there, nothing is partial, every table is sound, every compared page was equal.
fn require_sound(setup: &Setup, entries: &Entries) {
    let mut conn = setup.server.connect().unwrap();
    let report = ledger::verify(&mut conn, entries).unwrap().require_sound().unwrap();
    assert!(report.rows_found >= entries.acknowledged());
    check_all(&mut conn).unwrap();
    // A node that was just started may have compared none yet.
    setup.node.require_verified(VOLUME, 0).unwrap();
}

#[test]
fn no_acknowledged_commit_is_lost_by_kills() {
    let rounds = setting("REDOUBT_SOAK_ROUNDS", 6);
    let mut random = fastrand::Rng::with_seed(setting("REDOUBT_SEED", 1));
    let mut setup = setup(&["--ring", "32MiB", "--batch", "1MiB", "--apply-interval", "1"]);
    let file = setup.server.directory().join("ledger");
    for round in 0..rounds {
        let run = Run::start(&setup.server.socket(), &file, Options::default()).unwrap();
        run.wait_for_more(random.u64(30..400), PATIENCE).unwrap();
        let what = round % 4;
        let fail = |error: redoubt_workload::error::Error, setup: &Setup| -> ! {
            panic!(
                "round {round}: {error}\nserver: {}\nnode: {}",
                setup.server.error_log_tail(20),
                setup.node.log_tail(20)
            )
        };
        match what {
            0 => setup.server.kill9().unwrap(),
            1 => setup.node.kill9().unwrap(),
            _ => {
                setup.node.kill9().unwrap();
                setup.server.kill9().unwrap();
            }
        }
        if what > 0 {
            // Any device continues with the log of any other.
            let devices: [&[&str]; 3] = [&["--log-device", "block"], MEMORY, &["--log-device", "file"]];
            // And any protection of pages with the pages of any other.
            let protections: [&[&str]; 3] = [
                &["--page-protection", "doublewrite", "--journal", "4MiB"],
                &["--page-protection", "journal", "--journal", "8MiB"],
                &["--page-protection", "atomic", "--pretend-atomic", "--journal", "4MiB"],
            ];
            let (device, protection) = (round as usize % 3, (round as usize + round as usize / 3) % 3);
            setup.node.set_further_args(&[devices[device], protections[protection]].concat());
            setup.node.start().unwrap();
        }
        if what == 3 {
            setup.server.empty_data_directory().unwrap();
        }
        if what != 1 {
            setup.server.start().unwrap_or_else(|error| fail(error, &setup));
        }
        // The server continues, without a restart where only the node was killed.
        run.wait_for_more(50, PATIENCE).unwrap_or_else(|error| fail(error, &setup));
        run.stop().unwrap();
        require_sound(&setup, &Entries::read(&file).unwrap());
        println!(
            "round {round}: {} commits acknowledged so far",
            Entries::read(&file).unwrap().acknowledged()
        );
    }
    setup.server.shutdown().unwrap();
    setup.node.require_verified(VOLUME, 1).unwrap();
}

#[test]
fn a_second_server_fences_the_first() {
    let mut setup = setup(&[]);
    let file = setup.server.directory().join("ledger");
    let run = Run::start(&setup.server.socket(), &file, Options::default()).unwrap();
    run.wait_for_more(100, PATIENCE).unwrap();

    let mut config = setup.server.config().clone();
    config.innodb_args.clear();
    let mut second = Server::new(config).unwrap();
    second.start().unwrap_or_else(|error| panic!("{error}\nnode: {}", setup.node.log_tail(20)));
    assert!(setup.server.wait_exit(PATIENCE).is_ok(), "the fenced server is still there");
    let log = setup.server.error_log_tail(200);
    assert!(log.contains("[redoubt]") && log.contains("this server is fenced"), "{log}");
    drop(run);

    let mut conn = second.connect().unwrap();
    ledger::verify(&mut conn, &Entries::read(&file).unwrap()).unwrap().require_sound().unwrap();
    check_all(&mut conn).unwrap();
}

/// TRUNCATE renames the table's file away, makes a new one and commits. A server that is killed before the commit rolls
/// back, and must find out which of the two files is the table's.
#[test]
fn a_table_whose_truncation_was_not_committed_is_there_after_a_kill() {
    const TABLES: u64 = 8;
    const CLIENTS: u64 = 4;
    let mut random = fastrand::Rng::with_seed(setting("REDOUBT_SEED", 1));
    let mut setup = setup(&["--apply-interval", "1"]);
    let mut conn = setup.server.connect().unwrap();
    execute(&mut conn, "CREATE DATABASE truncated").unwrap();
    for table in 0..TABLES {
        execute(&mut conn, &format!("CREATE TABLE truncated.t{table} (a INT PRIMARY KEY, b INT, KEY (b))"))
            .unwrap();
    }
    for round in 0..12 {
        let (socket, done) = (setup.server.socket(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (socket, done) = (&socket, &done);
                scope.spawn(move || {
                    let mut conn = connect(socket).unwrap();
                    execute(&mut conn, "USE truncated").unwrap();
                    for table in (0..TABLES).filter(|table| table % CLIENTS == client).cycle() {
                        let fill = format!("REPLACE INTO t{table} SELECT seq, seq FROM seq_1_to_100");
                        let truncate = format!("TRUNCATE TABLE t{table}");
                        // Until the server is gone.
                        if [fill, truncate].iter().any(|statement| execute(&mut conn, statement).is_err()) {
                            break;
                        }
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let wanted = random.u64(40..120);
            poll_until(
                "truncations",
                PATIENCE,
                || Ok((done.load(Ordering::Relaxed) >= wanted).then_some(())),
            )
            .unwrap();
            setup.server.kill9().unwrap();
        });
        setup.server.start().unwrap_or_else(|error| panic!("round {round}: {error}"));
        let checked = check_database(&mut setup.server.connect().unwrap(), "truncated");
        assert_eq!(checked.unwrap_or_else(|error| panic!("round {round}: {error}")), TABLES as usize);
    }
}

/// Recovery of more redo than the buffer pool holds works in batches. A table may be created in that redo. The server
/// then takes its properties (its size, up to where it is in use) from the records that it applies to the table's page
/// 0. It drops entries of the change buffer for pages that are not in use.
#[test]
fn a_table_that_recovery_rebuilds_in_batches_is_known_as_it_is() {
    // Room for everything until the kill, so that the server writes no page and no checkpoint.
    let mut setup = setup_with(&["--apply-interval", "1"], |config| {
        config.buffer_pool_bytes = 256 << 20;
        config.log_file_size_bytes = 256 << 20;
    });
    let mut conn = setup.server.connect().unwrap();
    execute(&mut conn, "CREATE DATABASE batches").unwrap();
    execute(&mut conn, "USE batches").unwrap();
    execute(&mut conn, "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(200) NOT NULL, KEY (c))").unwrap();
    for thousand in 0..40 {
        let (from, to) = (thousand * 1000 + 1, (thousand + 1) * 1000);
        let rows = format!("SELECT seq, REPEAT(MD5(seq), 6) FROM seq_{from}_to_{to}");
        execute(&mut conn, &format!("INSERT INTO t {rows}")).unwrap();
    }
    setup.server.kill9().unwrap();
    let config = setup.server.config_mut();
    config.buffer_pool_bytes = 8 << 20;
    config.server_args.push("--innodb-change-buffering=all".to_owned());
    setup.server.start().unwrap_or_else(|error| panic!("{error}\nnode: {}", setup.node.log_tail(20)));
    let log = setup.server.error_log_tail(400);
    assert!(log.contains("Multi-batch recovery needed"), "the server recovered otherwise: {log}");

    let mut conn = setup.server.connect().unwrap();
    execute(&mut conn, "USE batches").unwrap();
    execute(&mut conn, "DELETE FROM t WHERE id % 7 = 0").unwrap();
    execute(&mut conn, "INSERT INTO t SELECT seq, REPEAT(MD5(seq), 6) FROM seq_40001_to_42000").unwrap();
    // As long as entries wait there, no page of the index has been read since.
    let buffered = status_number(&mut conn, "Innodb_ibuf_size").unwrap();
    assert!(buffered > 1, "the change buffer has {buffered} pages");
    finish_purge(&mut conn).unwrap();
    check_database(&mut conn, "batches").unwrap();
    let log = setup.server.error_log_tail(400);
    assert!(!log.contains("[ERROR]"), "{log}");
}
