//! Freed pages are overwritten where the server overwrites them: a secret that was deleted is in no page file of the
//! node and in no file of an export. The same rows on a stock server show that it is the server's wish, and before the
//! deletion the same search finds the secret.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::path::{Path, PathBuf};

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::node::Node;
use redoubt_workload::check::{check_all, finish_purge};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::process::poll_until;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{execute, status_number};

const SECRET: &str = "Kaspar-Hauser-1828";
const VOLUME: &str = "secrets";

fn config(launcher: Launcher) -> ServerConfig {
    let mut config = ServerConfig::new(launcher);
    config.log_file_size_bytes = 16 << 20;
    config.buffer_pool_bytes = 32 << 20;
    config
}

/// Tables of which everything but a few rows is secret.
fn fill(server: &Server) {
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "CREATE DATABASE shop").unwrap();
    execute(&mut conn, "USE shop").unwrap();
    for (table, options) in [
        ("deleted", ""),
        ("dropped", ""),
        ("truncated", ""),
        ("packed", "PAGE_COMPRESSED=1"),
        ("older", "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4"),
        ("used_again", ""),
    ] {
        let create =
            format!("CREATE TABLE {table} (id INT PRIMARY KEY, b VARCHAR(400)) ENGINE=InnoDB {options}");
        execute(&mut conn, &create).unwrap();
        let insert = format!("INSERT INTO {table} SELECT seq, REPEAT('{SECRET}', 20) FROM seq_1_to_8000");
        execute(&mut conn, &insert).unwrap();
    }
    wait_flushed(server);
}

/// Deletes what is secret.
fn forget(server: &Server) {
    let mut conn = server.connect().unwrap();
    for statement in [
        "USE shop",
        "SET GLOBAL innodb_immediate_scrub_data_uncompressed = ON",
        "DELETE FROM deleted WHERE id > 0",
        "DELETE FROM packed WHERE id > 0",
        "DELETE FROM older WHERE id > 0",
        "DELETE FROM used_again WHERE id > 0",
        "DROP TABLE dropped",
        "TRUNCATE TABLE truncated",
    ] {
        execute(&mut conn, statement).unwrap();
    }
    finish_purge(&mut conn).unwrap();
    wait_flushed(server);
    // Pages that were scrubbed hold rows again.
    let refill = "INSERT INTO used_again SELECT seq, REPEAT('public', 60) FROM seq_1_to_8000";
    execute(&mut conn, refill).unwrap();
    wait_flushed(server);
    check_all(&mut conn).unwrap();
}

/// The server writes all dirty pages, now and from now on.
pub fn wait_flushed(server: &Server) {
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0").unwrap();
    execute(&mut conn, "SET GLOBAL innodb_max_dirty_pages_pct = 0").unwrap();
    poll_until("a pool without dirty pages", PATIENCE, || {
        Ok((status_number(&mut conn, "Innodb_buffer_pool_pages_dirty")? == 0).then_some(()))
    })
    .unwrap();
}

/// Files below `directory` that hold the secret.
fn found_in(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.path());
            } else if holds_secret(&std::fs::read(entry.path()).unwrap()) {
                found.push(entry.path());
            }
        }
    }
    found
}

fn holds_secret(bytes: &[u8]) -> bool {
    let mut at = 0;
    while let Some(next) = bytes[at..].iter().position(|byte| *byte == SECRET.as_bytes()[0]) {
        at += next;
        if bytes[at..].starts_with(SECRET.as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

/// The page files that hold the secret. The page journal retains older images of pages until it overwrites them, and
/// the log retains redo (docs/volume/reference/limits.md): neither is searched.
fn found_in_pages(node: &Node) -> Vec<PathBuf> {
    let pages = node.data().join("volumes").join(VOLUME).join("pages");
    found_in(&pages).into_iter().filter(|path| path.extension().is_some_and(|name| name == "pages")).collect()
}

fn counter(node: &Node, of: &str, name: &str) -> u64 {
    node.status(VOLUME).unwrap()["volumes"][0][of][name].as_u64().unwrap_or(0)
}

/// InnoDB's files and the log, but not those that the server keeps beside the tables.
fn without_other_files(found: Vec<PathBuf>) -> Vec<PathBuf> {
    let is_of_tables = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.ends_with(".ibd") || name.starts_with("ibdata") || name.starts_with("undo")
    };
    found.into_iter().filter(is_of_tables).collect()
}

#[test]
fn nothing_of_freed_pages_is_left_where_the_server_overwrites_them() {
    let mut stock = Server::create(config(Launcher::Stock)).unwrap();
    fill(&stock);
    assert!(!without_other_files(found_in(&stock.datadir())).is_empty());
    forget(&stock);
    poll_until("freed pages that the stock server has overwritten", PATIENCE, || {
        Ok(without_other_files(found_in(&stock.datadir())).is_empty().then_some(()))
    })
    .unwrap();
    stock.shutdown().unwrap();
    assert_eq!(without_other_files(found_in(&stock.datadir())), Vec::<PathBuf>::new(), "a stock server");

    let args = ["--batch", "1MiB", "--apply-interval", "1", "--page-protection", "doublewrite"];
    let mut node = Node::create(&find_redoubt().unwrap(), &args).unwrap();
    node.create_volume(VOLUME).unwrap();
    let mut server = Server::create(config(node.launcher(VOLUME, Verify::All)))
        .unwrap_or_else(|error| panic!("{error}\n{}", node.log_tail(20)));
    fill(&server);
    node.wait_applied(VOLUME).unwrap();
    assert_eq!(found_in_pages(&node).len(), 6, "one of each table: {:?}", found_in_pages(&node));
    forget(&server);
    // Counters come once in a second.
    poll_until("scrubbed pages", PATIENCE, || {
        Ok((counter(&node, "server_counters", "pages_scrubbed") > 300).then_some(()))
    })
    .unwrap();
    node.wait_applied(VOLUME).unwrap();
    assert_eq!(found_in_pages(&node), Vec::<PathBuf>::new(), "while the server runs");

    // Replayed from an older point, and taken over.
    node.crash_and_restart().unwrap();
    server.kill9().unwrap();
    server.empty_data_directory().unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)));
    check_all(&mut server.connect().unwrap()).unwrap();
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "USE shop").unwrap();
    execute(&mut conn, "INSERT INTO deleted SELECT seq, 'again' FROM seq_1_to_20000").unwrap();
    server.shutdown().unwrap();
    node.wait_applied(VOLUME).unwrap();
    assert_eq!(found_in_pages(&node), Vec::<PathBuf>::new(), "after crashes");
    node.require_verified(VOLUME, 1).unwrap();

    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let address = node.address().to_string();
    let args = ["volume", "export", VOLUME, "--to", data.to_str().unwrap(), "--node", &address];
    Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap().require_success().unwrap();
    assert_eq!(without_other_files(found_in(&data)), Vec::<PathBuf>::new(), "in the export");
    let mut opened = Server::in_directory(config(Launcher::Stock), directory.path()).unwrap();
    opened.start().unwrap_or_else(|error| panic!("stock server on the export: {error}"));
    check_all(&mut opened.connect().unwrap()).unwrap();
    assert_eq!(opened.query("SELECT COUNT(*) FROM shop.used_again").unwrap(), [["8000"]]);
    opened.shutdown().unwrap();
}
