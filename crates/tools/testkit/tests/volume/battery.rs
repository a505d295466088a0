//! All of InnoDB on a volume: the feature battery with the server on a storage node, every dropped page write
//! compared, restarts by kill, by shutdown, and by attaching from an empty directory.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use redoubt_harness::battery::{self, Restart, Schedule};
use redoubt_harness::features;
use redoubt_harness::node::Node;
use redoubt_workload::check::check_all;
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::server::Server;
use redoubt_workload::sql::{execute, query_text};

const VOLUME: &str = "features";

fn node() -> Node {
    // Small batches, so that many tables are applied while the test runs.
    Node::create(&find_redoubt().unwrap(), &["--ring", "64MiB", "--batch", "1MiB", "--apply-interval", "1"])
        .unwrap()
}

fn counter(node: &Node, name: &str) -> u64 {
    let status = node.status(VOLUME).unwrap();
    status["volumes"][0]["counters"][name].as_u64().unwrap_or_else(|| panic!("no counter {name} in {status}"))
}

fn launcher(node: &Node) -> Launcher {
    node.create_volume(VOLUME).unwrap();
    node.launcher(VOLUME, Verify::All)
}

fn run_battery(page_size_bytes: u32, innodb_args: &[&str], schedule: Schedule) {
    let node = node();
    let mut config = battery::config(launcher(&node));
    config.page_size_bytes = page_size_bytes;
    config.innodb_args.extend(innodb_args.iter().map(|arg| (*arg).to_owned()));
    let mut server = Server::create(config).unwrap();
    let features = features::for_page_size(page_size_bytes);
    let report = battery::run(&mut server, &features, schedule)
        .unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    server.shutdown().unwrap();
    let verified = node.require_verified(VOLUME, 500).unwrap();
    println!(
        "{page_size_bytes} byte pages: {verified} pages verified, {} images, {report:#?}",
        counter(&node, "images")
    );
    assert_eq!(report.steps.len(), features.len());
    assert!(report.tables_compared >= features.len(), "{report:?}");
}

const IN_TURN: Schedule = Schedule::AfterEach(&[Restart::KillAndAttach, Restart::Clean, Restart::Kill]);
const AT_END: Schedule = Schedule::AtEnd(&[Restart::KillAndAttach, Restart::Clean]);

#[test]
fn features_16k_restart_after_each() {
    run_battery(16384, &[], IN_TURN);
}

#[test]
#[ignore = "make batteries"]
fn features_16k_crc32_buffered_log_doublewrite() {
    run_battery(
        16384,
        &["--innodb-checksum-algorithm=crc32", "--innodb-log-file-buffering=ON", "--innodb-doublewrite=1"],
        AT_END,
    );
}

#[test]
fn features_4k() {
    run_battery(4096, &[], AT_END);
}

#[test]
fn features_8k_crc32_buffered_log_doublewrite() {
    run_battery(
        8192,
        &["--innodb-checksum-algorithm=crc32", "--innodb-log-file-buffering=ON", "--innodb-doublewrite=1"],
        AT_END,
    );
}

#[test]
#[ignore = "make batteries"]
fn features_32k() {
    run_battery(32768, &[], AT_END);
}

#[test]
fn features_64k() {
    run_battery(65536, &[], AT_END);
}

#[test]
fn change_buffer_with_a_small_pool() {
    let node = node();
    let mut config = battery::config(launcher(&node));
    config.buffer_pool_bytes = u64::from(features::CHANGE_BUFFER_POOL_MIB) << 20;
    let mut server = Server::create(config).unwrap();
    battery::run(&mut server, &[features::change_buffer()], AT_END)
        .unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    server.shutdown().unwrap();
    node.require_verified(VOLUME, 100).unwrap();
}

#[test]
fn an_exported_table_can_be_copied_and_imported() {
    let node = node();
    let mut server = Server::create(battery::config(launcher(&node))).unwrap();
    let mut conn = server.connect().unwrap();
    let directory = server.datadir().join("shop");
    let file = |name: &str| directory.join(name);
    let blocks = |path: &Path| std::fs::metadata(path).unwrap().blocks();
    for statement in [
        "CREATE DATABASE shop",
        "USE shop",
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(200), KEY by_a (a)) ENGINE=InnoDB",
        "INSERT INTO t SELECT seq, SHA1(seq) FROM seq_1_to_20000",
        "CREATE TABLE copied LIKE t",
        "ALTER TABLE copied DISCARD TABLESPACE",
    ] {
        execute(&mut conn, statement).unwrap();
    }
    assert_eq!(blocks(&file("t.ibd")), 0, "a stub has no blocks");
    execute(&mut conn, "FLUSH TABLES t FOR EXPORT").unwrap();
    for extension in ["ibd", "cfg"] {
        std::fs::copy(file(&format!("t.{extension}")), file(&format!("copied.{extension}"))).unwrap();
    }
    execute(&mut conn, "UNLOCK TABLES").unwrap();
    execute(&mut conn, "ALTER TABLE copied IMPORT TABLESPACE").unwrap();
    let sums = query_text(&mut conn, "CHECKSUM TABLE t, copied EXTENDED").unwrap();
    assert_eq!(sums[0][1], sums[1][1], "{sums:?}");
    assert_eq!(query_text(&mut conn, "CHECK TABLE copied EXTENDED").unwrap()[0][3], "OK");

    // With the first page that is written the file is a stub again.
    execute(&mut conn, "UPDATE t SET a = REVERSE(a)").unwrap();
    server.shutdown().unwrap();
    assert_eq!(blocks(&file("t.ibd")), 0);
    assert_eq!(blocks(&file("copied.ibd")), 0);
    node.require_verified(VOLUME, 1).unwrap();
}

#[test]
fn what_the_node_could_not_follow_leaves_the_volume_alone() {
    let node = node();
    let mut server = Server::create(battery::config(launcher(&node))).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let mut conn = server.connect().unwrap();
    for statement in [
        "CREATE DATABASE shop",
        "USE shop",
        &format!("CREATE TABLE t (a INT) ENGINE=InnoDB DATA DIRECTORY='{}'", elsewhere.path().display()),
        "INSERT INTO t VALUES (1)",
        "CREATE TABLE empty (a INT) ENGINE=InnoDB",
        "ALTER TABLE empty DISCARD TABLESPACE",
    ] {
        execute(&mut conn, statement).unwrap();
    }
    assert!(server.datadir().join("shop/t.ibd").is_file(), "DATA DIRECTORY is ignored");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);

    // An image without content, such as a copy of a stub.
    std::fs::write(server.datadir().join("shop/empty.ibd"), vec![0; 6 * 16384]).unwrap();
    let error = execute(&mut conn, "ALTER TABLE empty IMPORT TABLESPACE").unwrap_err().to_string();
    assert!(error.contains("empty"), "{error}");

    // A file deleted behind the server's back: the next table of that name is a new one.
    execute(&mut conn, "CREATE TABLE again (a INT) ENGINE=InnoDB").unwrap();
    std::fs::remove_file(server.datadir().join("shop/again.ibd")).unwrap();
    execute(&mut conn, "DROP TABLE again").unwrap();
    execute(&mut conn, "CREATE TABLE again (a INT) ENGINE=InnoDB").unwrap();
    execute(&mut conn, "INSERT INTO again VALUES (7)").unwrap();

    execute(&mut conn, "INSERT INTO t VALUES (2)").unwrap();
    server.kill9().unwrap();
    server.start().unwrap();
    assert_eq!(server.query("SELECT SUM(a) FROM shop.t").unwrap(), [["3"]]);
    assert_eq!(server.query("SELECT a FROM shop.again").unwrap(), [["7"]]);
    server.shutdown().unwrap();
    node.require_verified(VOLUME, 1).unwrap();
}

/// With a name that leaves no room for that of another file beside the tablespace file.
#[test]
fn a_table_with_the_longest_name_is_renamed_and_dropped() {
    let node = node();
    let mut server = Server::create(battery::config(launcher(&node))).unwrap();
    // Each takes five bytes in a file name, and 255 are the most that such a name may have.
    let (first, second) = ("#".repeat(50), "-".repeat(50));
    let mut conn = server.connect().unwrap();
    for statement in [
        "CREATE DATABASE d".to_owned(),
        format!("CREATE TABLE d.`{first}` (id INT PRIMARY KEY) ENGINE=InnoDB"),
        format!("INSERT INTO d.`{first}` VALUES (1), (2)"),
        format!("RENAME TABLE d.`{first}` TO d.`{second}`"),
        format!("INSERT INTO d.`{second}` VALUES (3)"),
        format!("DROP TABLE d.`{second}`"),
    ] {
        execute(&mut conn, &statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    let log = server.error_log_tail(1000);
    assert!(!log.contains("[ERROR]"), "{log}");
    drop(conn);
    server.shutdown().unwrap();
}

/// The server logs a rename before it tries it; that the name is too long for a file is found out then.
#[test]
fn a_rename_that_fails_after_it_was_logged_leaves_the_volume_alone() {
    let mut node = node();
    let mut server = Server::create(battery::config(launcher(&node))).unwrap();
    let too_long = format!("RENAME TABLE d.t TO d.`{}`", "#".repeat(60));
    let mut conn = server.connect().unwrap();
    for statement in [
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=InnoDB PARTITION BY HASH (id) PARTITIONS 3",
        "INSERT INTO d.t SELECT seq FROM d.seq_1_to_1000",
    ] {
        execute(&mut conn, statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    let error = execute(&mut conn, &too_long).unwrap_err().to_string();
    assert!(error.contains("Error on rename"), "{error}");
    execute(&mut conn, "INSERT INTO d.t SELECT seq FROM d.seq_1001_to_2000").unwrap();
    drop(conn);
    node.crash_and_restart().unwrap();
    server.shutdown().unwrap();
    server.empty_data_directory().unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\n{}", node.log_tail(20)));
    let require_all = |server: &Server| {
        let mut conn = server.connect().unwrap();
        check_all(&mut conn).unwrap();
        assert_eq!(query_text(&mut conn, "SELECT COUNT(*) FROM d.t").unwrap(), [["2000"]]);
        execute(&mut conn, "RENAME TABLE d.t TO d.u, d.u TO d.t").unwrap();
    };
    require_all(&server);
    // Its own recovery would repeat the rename, and give up. It has nothing to do if nothing else happened to files.
    for _ in 0..2 {
        server.shutdown().unwrap();
        server.start().unwrap();
    }
    execute(&mut server.connect().unwrap(), &too_long).unwrap_err();
    server.kill9().unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\n{}", node.log_tail(20)));
    require_all(&server);
    server.shutdown().unwrap();
    node.require_verified(VOLUME, 1).unwrap();
}
