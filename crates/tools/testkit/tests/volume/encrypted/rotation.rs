//! A key gets new versions while a server works: its threads encrypt everything again, and the node continues holding
//! pages in clear.

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::encryption::KeyPlugin;
use redoubt_workload::check::{Snapshot, check_all, finish_purge};
use redoubt_workload::process::poll_until;

use super::*;

/// Pages are encrypted again when their key is more than `innodb_encryption_rotate_key_age` versions old.
const VERSIONS: [u32; 3] = [3, 5, 7];

fn config(launcher: Launcher, plugin: &KeyPlugin) -> ServerConfig {
    let config = plugin.on(small(launcher)).server_arg("--plugin-maturity=unknown");
    config
        .server_arg("--innodb-encryption-rotate-key-age=1")
        .server_arg("--innodb-encryption-rotation-iops=100000")
        .server_arg("--innodb-encrypt-tables=ON")
        .server_arg("--innodb-encryption-threads=4")
}

fn contents(server: &Server) -> Snapshot {
    let mut conn = server.connect().unwrap();
    finish_purge(&mut conn).unwrap();
    check_all(&mut conn).unwrap_or_else(|error| panic!("{error}\n{}", server.error_log_tail(20)));
    Snapshot::take(&mut conn, Some("shop"), &[]).unwrap()
}

/// Waits until no table of the shop has pages of an older version.
fn wait_for_version(server: &Server, version: u32) {
    let old = format!(
        "SELECT COUNT(*) FROM information_schema.INNODB_TABLESPACES_ENCRYPTION WHERE NAME LIKE 'shop/%' \
         AND (MIN_KEY_VERSION < {version} OR ROTATING_OR_FLUSHING)"
    );
    let tables =
        "SELECT COUNT(*) FROM information_schema.INNODB_TABLESPACES_ENCRYPTION WHERE NAME LIKE 'shop/%'";
    poll_until("the encryption threads", PATIENCE / 2, || {
        let is_done = server.query(&old)? == [["0"]] && server.query(tables)? == [["2"]];
        Ok(is_done.then_some(()))
    })
    .unwrap_or_else(|error| {
        let spaces = server.query("SELECT * FROM information_schema.INNODB_TABLESPACES_ENCRYPTION");
        panic!("{error}: {spaces:?}\n{}", server.error_log_tail(20))
    });
}

#[test]
fn new_versions_of_a_key_come_while_the_server_works() {
    let plugin = KeyPlugin::with_versions().unwrap();
    let node = new_node();
    let launcher = node.launcher_with(VOLUME, Verify::All, &["--clear-pages"]);
    let mut server = create(config(launcher, &plugin), &node);
    sql(&server, &["CREATE DATABASE shop"]);
    for (table, options) in [("own", "ENCRYPTED=YES"), ("later", "")] {
        sql(
            &server,
            &[
                &format!(
                    "CREATE TABLE shop.{table} (id INT PRIMARY KEY, b VARCHAR(200), KEY (b)) ENGINE=InnoDB {options}"
                ),
                &format!("INSERT INTO shop.{table} SELECT seq, SHA2(seq, 256) FROM mysql.seq_1_to_20000"),
            ],
        );
    }
    wait_for_version(&server, 1);
    for version in VERSIONS {
        sql(&server, &[&format!("SET GLOBAL debug_key_management_version = {version}")]);
        for table in ["own", "later"] {
            sql(&server, &[&format!("UPDATE shop.{table} SET b = REVERSE(b) WHERE id % 5 = {version}")]);
        }
        let option = format!("--debug-key-management-version={version}");
        if version != VERSIONS[0] {
            // The threads are at work.
            let before = contents(&server);
            server.kill9().unwrap();
            server.empty_data_directory().unwrap();
            server.start_with(&[&option]).unwrap_or_else(|error| panic!("{error}\n{}", node.log_tail(20)));
            before.require_same(&contents(&server), "after a kill").unwrap();
        }
        wait_for_version(&server, version);
    }
    let expected = contents(&server);
    node.require_verified(VOLUME, 1).unwrap();
    server.shutdown().unwrap();
    let log = log(&server);
    assert!(!log.contains("[ERROR]") && !log.contains("orrupt"), "{log}");

    let directory = tempfile::Builder::new().prefix("rdt-").tempdir().unwrap();
    let data = directory.path().join("data");
    let address = node.address().to_string();
    let args = ["volume", "export", VOLUME, "--to", data.to_str().unwrap(), "--node", &address];
    Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap().require_success().unwrap();
    let mut opened = Server::in_directory(config(Launcher::Stock, &plugin), directory.path()).unwrap();
    let newest = format!("--debug-key-management-version={}", VERSIONS[2]);
    opened.start_with(&[&newest]).unwrap_or_else(|error| panic!("stock server on the export: {error}"));
    expected.require_same(&contents(&opened), "in the export").unwrap();
    wait_for_version(&opened, VERSIONS[2]);
    opened.shutdown().unwrap();
}
