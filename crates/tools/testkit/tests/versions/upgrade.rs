//! Volumes that earlier versions of Redoubt made, opened by this one.
//!
//! Each fixture is the data directory of a node, as it was when a server with unapplied redo and a page journal that
//! is not empty was killed, and then the node. `fixtures/volumes/README.md` says how they were made. Today's node
//! must open each, serve the server, and export what a stock server opens with the same rows; and it must refuse each
//! file of a version that it does not know, and say what to do.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

mod fixture;
mod releases;
mod unknown;

use redoubt_testkit::command::{Outcome, PATIENCE};
use redoubt_workload::launcher::{Launcher, Verify};
use redoubt_workload::server::Server;
use redoubt_workload::sql::{execute, query_text};

use fixture::{FIXTURES, Fixture, TABLES, config};

fn redoubt(fixture: &Fixture, args: &[&str]) -> String {
    let address = fixture.node.address().to_string();
    let args = [args, &["--node", &address]].concat();
    let outcome = Outcome::of(fixture.node.redoubt_bin(), args, PATIENCE).unwrap();
    outcome.require_success().unwrap_or_else(|error| panic!("{error}\nnode: {}", fixture.node.log_tail(20)))
}

/// All rows are as they were, and all indexes sound.
fn require_rows(server: &Server, what: &str) {
    let mut conn = server.connect().unwrap();
    for (table, count, checksum) in TABLES {
        let found = query_text(&mut conn, &format!("SELECT COUNT(*) FROM d.{table}")).unwrap();
        assert_eq!(found, [[count.to_string()]], "{what}: rows of {table}");
        let found = query_text(&mut conn, &format!("CHECKSUM TABLE d.{table}")).unwrap();
        assert_eq!(found[0][1], checksum.to_string(), "{what}: checksum of {table}");
        let found = query_text(&mut conn, &format!("CHECK TABLE d.{table} EXTENDED")).unwrap();
        assert_eq!(found.last().unwrap()[3], "OK", "{what}: {table}");
    }
}

fn a_volume_of(name: &str) {
    let fixture = Fixture::unpack(name);
    let shown = redoubt(&fixture, &["volume", "show", "v"]);
    assert!(shown.contains("state           ready"), "{name}: {shown}");

    // Out, before any server has touched it: what the older version left is enough.
    let exported = tempfile::Builder::new().prefix("rdtx-").tempdir().unwrap();
    let data = exported.path().join("data");
    redoubt(&fixture, &["volume", "export", "v", "--to", data.to_str().unwrap()]);
    let mut stock = Server::in_directory(config(Launcher::Stock), exported.path()).unwrap();
    stock.start().unwrap_or_else(|error| panic!("{name}: stock server on the export: {error}"));
    require_rows(&stock, name);
    stock.shutdown().unwrap();

    // And on: a server attaches, reads, writes, and is killed with the node; then once more.
    let mut server = Server::new(config(fixture.node.launcher("v", Verify::All))).unwrap();
    server.start().unwrap_or_else(|error| panic!("{name}: {error}\nnode: {}", fixture.node.log_tail(20)));
    require_rows(&server, name);
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "USE d").unwrap();
    execute(&mut conn, "CREATE TABLE d.newer (id INT PRIMARY KEY, x VARCHAR(40)) ENGINE=InnoDB").unwrap();
    execute(&mut conn, "INSERT INTO d.newer SELECT seq, MD5(seq) FROM seq_1_to_50").unwrap();
    server.kill9().unwrap();
    let mut fixture = fixture;
    fixture.node.crash_and_restart().unwrap();
    server.start().unwrap_or_else(|error| panic!("{name}: {error}\nnode: {}", fixture.node.log_tail(20)));
    require_rows(&server, name);
    assert_eq!(server.query("SELECT COUNT(*) FROM d.newer").unwrap(), [["50"]]);
    server.shutdown().unwrap();
}

#[test]
fn volumes_of_all_earlier_versions_open_serve_and_are_exported() {
    for name in FIXTURES {
        a_volume_of(name);
    }
}
