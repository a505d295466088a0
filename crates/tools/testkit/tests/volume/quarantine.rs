//! One stored page of one table is damaged beyond repair while the server has it in its buffer pool, and then changed:
//! only that page is affected, and dropping the table ends it. A table that the drive cannot read is no reason to stop the
//! volume either. A frame of the log that the node refuses freezes the volume
//! at the last good position.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use redoubt_chaos::faults::Injector;
use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::node::Node;
use redoubt_test_support::log_segment::{FRAME_HEADER_LEN, KIND_REDO, change_last_frame};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::process::poll_until;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;
use serde_json::Value;

pub const PAGE_LEN_BYTES: usize = 16384;
const INDEX_PAGE: u16 = 17855;
pub const VOLUME: &str = "v";
/// A row of the table that is damaged.
const MARK: &[u8] = b"row of the table that is damaged";
pub const GOOD_ROWS: usize = 3000;

pub fn config(launcher: Launcher) -> ServerConfig {
    let mut config = ServerConfig::new(launcher);
    config.log_file_size_bytes = 16 << 20;
    config.buffer_pool_bytes = 128 << 20;
    config
}

pub fn volume(node: &Node) -> Value {
    node.status(VOLUME).unwrap()["volumes"][0].clone()
}

pub fn sql(server: &Server, statements: &[&str]) {
    let mut conn = server.connect().unwrap();
    for statement in statements {
        execute(&mut conn, statement).unwrap();
    }
}

pub fn wait_for(node: &Node, what: &str, done: impl Fn(&Value) -> bool) -> Value {
    poll_until(what, PATIENCE, || Ok(Some(volume(node)).filter(|volume| done(volume)))).unwrap()
}

pub fn number(volume: &Value, name: &str) -> u64 {
    volume[name].as_u64().unwrap()
}

pub fn count(server: &Server, table: &str) -> usize {
    server.query(&format!("SELECT COUNT(*) FROM {table}")).unwrap()[0][0].parse().unwrap()
}

/// The log no longer has the redo that initialised the pages of the tables, and all pages are applied. The server has
/// made two checkpoints since it created the tables: with one, its next start reads the redo since then, and the
/// pages that this names.
fn leave_only_stored_pages(server: &Server, node: &Node) {
    sql(
        server,
        &["SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0", "SET GLOBAL innodb_max_dirty_pages_pct = 0"],
    );
    for _ in 0..2 {
        let status = volume(node);
        let before = number(&status, "w_lsn").max(number(&status, "server_checkpoint_lsn"));
        poll_until("the server's checkpoint", PATIENCE, || {
            // Redo for another checkpoint, and for another batch to apply.
            sql(server, &["UPDATE d.good SET c = REVERSE(c) WHERE id = 1"]);
            Ok((number(&volume(node), "server_checkpoint_lsn") > before).then_some(()))
        })
        .unwrap();
    }
    sql(server, &["UPDATE d.good SET c = REVERSE(c) WHERE id = 2"]);
    node.wait_applied(VOLUME).unwrap();
}

/// A leaf page of the table in the node's store, not its first or last one.
pub fn find_leaf(pages: &Path) -> (PathBuf, u64) {
    for entry in std::fs::read_dir(pages).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "pages") {
            continue;
        }
        let bytes = std::fs::read(&file).unwrap();
        let is_leaf = |page: &[u8]| {
            page[24..26] == INDEX_PAGE.to_be_bytes() && page.windows(MARK.len()).any(|window| window == MARK)
        };
        let leaves: Vec<_> =
            bytes.chunks_exact(PAGE_LEN_BYTES).zip(0u64..).filter(|(page, _)| is_leaf(page)).collect();
        if leaves.len() > 4 {
            return (file, leaves[leaves.len() / 2].1);
        }
    }
    panic!("no table in {} has the mark", pages.display());
}

pub fn damage(pages: &Path) -> u64 {
    let (file, page_no) = find_leaf(pages);
    let file = File::options().write(true).open(file).unwrap();
    file.write_all_at(b"damaged", page_no * PAGE_LEN_BYTES as u64 + 2000).unwrap();
    file.sync_all().unwrap();
    page_no
}

fn export(node: &Node, to: &Path, options: &[&str]) -> Outcome {
    let address = node.address().to_string();
    let args = ["volume", "export", VOLUME, "--to", to.to_str().unwrap(), "--node", &address];
    Outcome::of(node.redoubt_bin(), [&args[..], options].concat(), PATIENCE).unwrap()
}

/// The export has the good table; a stock server on it serves that.
fn check_export(node: &Node, good_rows: usize) {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let outcome = export(node, &data, &[]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("d/bad.ibd"), "{outcome:?}");
    assert!(data.join("d/good.ibd").exists() && !data.join("d/bad.ibd").exists());
    let mut stock = Server::in_directory(config(Launcher::Stock), directory.path()).unwrap();
    stock.start_with(&["--innodb-force-recovery=1"]).unwrap();
    assert_eq!(count(&stock, "d.good"), good_rows);
    stock.kill9().unwrap();
    let all = directory.path().join("all");
    let outcome = export(node, &all, &["--with-damaged"]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(all.join("d/bad.ibd").exists());
}

/// Without a journal, from which a page would be rebuilt.
pub const NODE_ARGS: [&str; 5] = ["--apply-interval", "1", "--page-protection", "atomic", "--pretend-atomic"];

/// A server with the good table and the bad one, of which the node has only stored pages.
pub fn server_with_tables(node: &Node) -> Server {
    let server = Server::create(config(node.launcher(VOLUME, Verify::Off))).unwrap();
    let mark = std::str::from_utf8(MARK).unwrap();
    sql(
        &server,
        &[
            "CREATE DATABASE d",
            "USE d",
            "CREATE TABLE d.good (id INT PRIMARY KEY, c CHAR(200)) ENGINE=InnoDB STATS_PERSISTENT=0",
            &format!("INSERT INTO d.good SELECT seq, MD5(seq) FROM seq_1_to_{GOOD_ROWS}"),
            "CREATE TABLE d.bad (id INT PRIMARY KEY, c CHAR(200)) ENGINE=InnoDB STATS_PERSISTENT=0",
            &format!("INSERT INTO d.bad SELECT seq, '{mark}' FROM seq_1_to_2000"),
        ],
    );
    assert_eq!(count(&server, "d.bad"), 2000);
    leave_only_stored_pages(&server, node);
    server
}

#[test]
fn table_that_the_drive_cannot_read_affects_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let injector = Injector::new(directory.path(), "redoubt").unwrap();
    let mut node = Node::create(&find_redoubt().unwrap(), &NODE_ARGS).unwrap();
    node.create_volume(VOLUME).unwrap();
    let mut server = server_with_tables(&node);
    server.kill9().unwrap();
    node.stop().unwrap();
    node.set_environment(injector.environment());
    node.start().unwrap();
    let (file, _) = find_leaf(&node.data().join("volumes").join(VOLUME).join("pages"));
    let name = file.file_name().unwrap().to_str().unwrap();
    injector.set(1, &format!("read eio kind=file path=*/pages/{name}\n")).unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}: {}", server.error_log_tail(40)));
    assert_eq!(count(&server, "d.good"), GOOD_ROWS);
    let read = server.query("SELECT SUM(LENGTH(c)) FROM d.bad");
    println!("a read of the lost table: {read:?}");
    assert!(read.is_err(), "{read:?}");
    let status = volume(&node);
    assert!(number(&status, "quarantined") > 0, "{status}");
    let reason = status["quarantine"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("found by a read") && reason.contains("the drive has lost page"), "{reason}");
    assert_eq!((&status["state"], injector.counts().unwrap().is_empty()), (&"attached".into(), false));
    sql(&server, &["INSERT INTO d.good VALUES (1000001, 'without the other table')"]);

    // The drive reads the table again, and all of it is there. The node does not try at once.
    injector.clear().unwrap();
    server.kill9().unwrap();
    let exported = poll_until("an export without damage", PATIENCE, || {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let is_whole = export(&node, &data, &[]).code == Some(0);
        Ok(is_whole.then(|| std::fs::read(data.join("d/bad.ibd")).unwrap()))
    })
    .unwrap();
    assert!(exported.windows(MARK.len()).filter(|window| *window == MARK).count() >= 2000);
    server.start().unwrap_or_else(|error| panic!("{error}: {}", server.error_log_tail(40)));
    match server.query("SELECT COUNT(*), SUM(c LIKE 'row%') FROM d.bad") {
        Ok(rows) => {
            assert_eq!(rows, [["2000", "2000"]]);
            wait_for(&node, "the end of the damage", |volume| number(volume, "quarantined") == 0);
        }
        // After a failed read, a stock server may mark the table as corrupted for good.
        Err(error) => assert!(error.to_string().contains("1877"), "{error}"),
    }
    assert_eq!(count(&server, "d.good"), GOOD_ROWS + 1);
    server.shutdown().unwrap();
}

/// Changes every row of the bad table, whose page the node then cannot build.
fn change_beside_damage(server: &Server, node: &Node, page_no: u64) {
    sql(server, &["UPDATE d.bad SET c = 'changed'"]);
    let log = || std::fs::read_to_string(node.directory().join("node.log")).unwrap();
    poll_until("a page that is set aside", PATIENCE, || Ok(log().contains("page_set_aside").then_some(())))
        .unwrap();
    let line = log().lines().find(|line| line.contains("page_set_aside")).unwrap().to_owned();
    assert!(line.contains("d/bad.ibd") && line.contains(&page_no.to_string()), "{line}");
}

#[test]
fn damaged_page_is_healed_by_the_server_that_holds_it() {
    let mut node = Node::create(&find_redoubt().unwrap(), &NODE_ARGS).unwrap();
    node.create_volume(VOLUME).unwrap();
    let mut server = server_with_tables(&node);
    // Written when this test wants it.
    sql(
        &server,
        &["SET GLOBAL innodb_max_dirty_pages_pct_lwm = 90", "SET GLOBAL innodb_max_dirty_pages_pct = 90"],
    );
    node.stop().unwrap();
    let page_no = damage(&node.data().join("volumes").join(VOLUME).join("pages"));
    node.start().unwrap();
    change_beside_damage(&server, &node, page_no);
    sql(
        &server,
        &["SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0", "SET GLOBAL innodb_max_dirty_pages_pct = 0"],
    );
    wait_for(&node, "the end of the quarantine", |volume| number(volume, "quarantined") == 0);

    // The node has the page, in an export too, and a server without a pool reads it.
    let directory = tempfile::tempdir().unwrap();
    let outcome = export(&node, &directory.path().join("data"), &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let mut stock = Server::in_directory(config(Launcher::Stock), directory.path()).unwrap();
    stock.start().unwrap();
    let rows = "SELECT COUNT(*), SUM(c = 'changed') FROM d.bad";
    assert_eq!(stock.query(rows).unwrap(), [["2000", "2000"]]);
    stock.kill9().unwrap();
    server.kill9().unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}: {}", server.error_log_tail(40)));
    assert_eq!(server.query(rows).unwrap(), [["2000", "2000"]]);
    server.shutdown().unwrap();
}

#[test]
fn damaged_page_that_is_changed_affects_only_its_table() {
    let mut node = Node::create(&find_redoubt().unwrap(), &NODE_ARGS[2..]).unwrap();
    node.stop().unwrap();
    node.set_further_args(&NODE_ARGS[..2]);
    node.start().unwrap();
    node.create_volume(VOLUME).unwrap();
    let mut server = server_with_tables(&node);
    // The redo of the change is applied when no server has the page any more.
    node.stop().unwrap();
    node.set_further_args(&["--apply-interval", "600"]);
    node.start().unwrap();
    sql(
        &server,
        &["UPDATE d.bad SET c = 'changed'", "INSERT INTO d.good VALUES (1000001, 'before the damage')"],
    );
    server.kill9().unwrap();
    node.kill9().unwrap();
    let page_no = damage(&node.data().join("volumes").join(VOLUME).join("pages"));
    node.set_further_args(&NODE_ARGS[..2]);
    node.start().unwrap();

    let status = wait_for(&node, "a page in quarantine", |volume| number(volume, "quarantined") > 0);
    println!("{}", status["quarantine"]);
    assert_eq!(status["quarantined"], 1, "{status}");
    assert_eq!(status["quarantine"][0]["file"], "d/bad.ibd");
    assert_eq!(status["quarantine"][0]["page_no"].as_u64(), Some(page_no));
    check_export(&node, GOOD_ROWS + 1);

    server.start().unwrap_or_else(|error| panic!("{error}: {}", server.error_log_tail(40)));
    node.crash_and_restart().unwrap();
    node.require_state(VOLUME, "attached").unwrap();
    sql(&server, &["INSERT INTO d.good VALUES (1000002, 'after a restart of the node')"]);
    assert_eq!(volume(&node)["quarantined"], 1);

    // The server without the page in its pool. Its recovery reads no page that the node cannot give.
    server.kill9().unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}: {}", server.error_log_tail(40)));
    assert_eq!(count(&server, "d.good"), GOOD_ROWS + 2);
    let read = server.query("SELECT COUNT(c), SUM(LENGTH(c)) FROM d.bad");
    println!("a read of the damaged table: {read:?}");
    assert!(read.is_err(), "{read:?}");
    if server.connect().is_err() {
        println!("the server ended at the damaged page: {}", server.error_log_tail(20));
    }
    let _ = server.kill9();

    server.start_with(&["--innodb-force-recovery=1"]).unwrap();
    let row = server.query("SELECT c FROM d.bad WHERE id = 1").unwrap();
    assert_eq!(row, [["changed"]], "the rest of the damaged table");
    assert_eq!(count(&server, "d.good"), GOOD_ROWS + 2);
    let _ = server.kill9();

    server.start().unwrap();
    sql(&server, &["DROP TABLE d.bad"]);
    wait_for(&node, "the end of the quarantine", |volume| number(volume, "quarantined") == 0);
    sql(&server, &["INSERT INTO d.good VALUES (1000003, 'after the drop')"]);
    let directory = tempfile::tempdir().unwrap();
    let outcome = export(&node, &directory.path().join("data"), &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    server.shutdown().unwrap();
}

/// An export of a frozen volume that is not exact, and a stock server on it.
fn require_frozen_export(node: &Node, rows: usize) {
    let directory = tempfile::tempdir().unwrap();
    let refused = export(node, &directory.path().join("refused"), &[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("not exact") && refused.stderr.contains("--with-damaged"), "{refused:?}");
    let outcome = export(node, &directory.path().join("data"), &["--with-damaged"]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    for part in ["acknowledged commits after that are missing", "not exactly the state at that point"] {
        assert!(outcome.stderr.contains(part), "{part}: {outcome:?}");
    }
    let mut stock = Server::in_directory(config(Launcher::Stock), directory.path()).unwrap();
    stock.start().unwrap();
    assert_eq!(count(&stock, "d.good"), rows);
    stock.kill9().unwrap();
}

fn read_view(node: &Node, options: &[&str]) -> Outcome {
    let directory = tempfile::tempdir().unwrap();
    let (address, datadir) = (node.address().to_string(), directory.path().to_str().unwrap());
    let fixed = ["run", "--reader", "--node", &address, "--volume", VOLUME, "--datadir", datadir];
    let script = format!("wc -c < {datadir}/d/good.ibd; cat {datadir}/d/good.ibd {datadir}/ibdata1 | cksum");
    let args = [&fixed, options, &["--", "sh", "-euc", &script]].concat();
    Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap()
}

#[test]
fn refused_frame_leaves_exports_and_views() {
    for is_unknown_kind in [false, true] {
        // Nothing is applied before the frame is changed.
        let mut node = Node::create(&find_redoubt().unwrap(), &["--apply-interval", "600"]).unwrap();
        node.create_volume(VOLUME).unwrap();
        let mut server = Server::create(config(node.launcher(VOLUME, Verify::Off))).unwrap();
        let mark = std::str::from_utf8(MARK).unwrap();
        sql(
            &server,
            &[
                "CREATE DATABASE d",
                "USE d",
                "CREATE TABLE d.good (id INT PRIMARY KEY, c CHAR(200)) ENGINE=InnoDB STATS_PERSISTENT=0",
                &format!("INSERT INTO d.good SELECT seq, MD5(seq) FROM seq_1_to_{GOOD_ROWS}"),
                &format!("INSERT INTO d.good VALUES (1000001, '{mark}')"),
                "INSERT INTO d.good VALUES (1000002, 'after it')",
            ],
        );
        server.kill9().unwrap();
        node.kill9().unwrap();
        let log = node.data().join("volumes").join(VOLUME).join("log");
        let has_mark = |payload: &[u8]| payload.windows(MARK.len()).any(|window| window == MARK);
        let change = |frame: &mut [u8]| {
            if is_unknown_kind { frame[0] = 0x3d } else { frame[FRAME_HEADER_LEN] ^= 0x41 }
        };
        let changed = change_last_frame(&log, KIND_REDO, has_mark, change).unwrap();
        println!("changed the frame at {changed:?}");
        assert!(changed.is_some(), "no frame of the log has the mark");

        for _ in 0..2 {
            node.start().unwrap();
            require_frozen_export(&node, GOOD_ROWS);
            node.require_state(VOLUME, "frozen").unwrap();
            println!("{}", volume(&node)["reason"]);
            let view = read_view(&node, &[]);
            assert_eq!(view.code, Some(0), "{view:?}");
            let view = read_view(&node, &["--at-once"]);
            assert!(view.code != Some(0) && view.stderr.contains("not exact"), "{view:?}");
            let refused = server.start().unwrap_err().to_string();
            let log = server.error_log_tail(20);
            assert!(refused.contains("frozen") || log.contains("frozen"), "{refused}: {log}");
            node.stop().unwrap();
        }
        node.start().unwrap();
        let address = node.address().to_string();
        let delete = ["volume", "delete", VOLUME, "--yes", "--node", &address];
        let refused = Outcome::of(node.redoubt_bin(), delete, PATIENCE).unwrap();
        assert!(refused.code == Some(1) && refused.stderr.contains("--force"), "{refused:?}");
        let deleted =
            Outcome::of(node.redoubt_bin(), [&delete[..], &["--force"]].concat(), PATIENCE).unwrap();
        assert_eq!(deleted.code, Some(0), "{deleted:?}");
    }
}

/// Removes the contents of a plain file from the node's directory. `exported` has the same contents.
fn lose_plain_file(node: &Node, exported: &Path) {
    let contents = std::fs::read(exported).unwrap();
    let plain = node.data().join("volumes").join(VOLUME).join("plain");
    let mut stored = std::fs::read_dir(plain).unwrap().map(|entry| entry.unwrap().path());
    let stored = stored.find(|path| std::fs::read(path).unwrap() == contents).expect("the file");
    std::fs::remove_file(stored).unwrap();
}

#[test]
fn lost_system_file_is_named_and_can_be_put_back() {
    let mut node = Node::create(&find_redoubt().unwrap(), &["--apply-interval", "1"]).unwrap();
    node.create_volume(VOLUME).unwrap();
    let mut server = Server::create(config(node.launcher(VOLUME, Verify::Off))).unwrap();
    sql(
        &server,
        &[
            "CREATE DATABASE d",
            "USE d",
            "CREATE TABLE d.good (id INT PRIMARY KEY, c CHAR(200)) ENGINE=InnoDB STATS_PERSISTENT=0",
            &format!("INSERT INTO d.good SELECT seq, MD5(seq) FROM seq_1_to_{GOOD_ROWS}"),
        ],
    );
    server.shutdown().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (whole, data) = (directory.path().join("whole"), directory.path().join("data"));
    let outcome = export(&node, &whole, &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let name = "mysql/global_priv.MAD";
    node.stop().unwrap();
    lose_plain_file(&node, &whole.join(name));
    node.start().unwrap();
    assert_eq!(
        wait_for(&node, "the lost file", |volume| number(volume, "quarantined") == 1)["quarantine"][0]["file"],
        name
    );
    let outcome = export(&node, &data, &[]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    for part in [name, "may not start on this copy", "files of an earlier export"] {
        assert!(outcome.stderr.contains(part), "{part}: {outcome:?}");
    }
    assert!(data.join("d/good.ibd").exists() && !data.join(name).exists());
    let mut stock = Server::in_directory(config(Launcher::Stock), directory.path()).unwrap();
    assert!(stock.start().is_err(), "the message is wrong: the server starts");
    let _ = stock.kill9();
    std::fs::copy(whole.join(name), data.join(name)).unwrap();
    stock.start().unwrap();
    assert_eq!(count(&stock, "d.good"), GOOD_ROWS);
    stock.kill9().unwrap();
}
