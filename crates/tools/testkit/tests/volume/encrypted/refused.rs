//! Refusals and their messages: without consent all that makes encrypted tables; with it the data that the node could
//! not read.

use super::*;
use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::encryption::{FILE_KEY_MANAGEMENT, KeyPlugin};
use std::path::Path;

const TABLE: &str = "CREATE TABLE d.s (id INT PRIMARY KEY, b VARCHAR(200)) ENGINE=InnoDB ENCRYPTED=YES";
const ROWS: &str = "INSERT INTO d.s SELECT seq, REPEAT(MD5(seq), 5) FROM d.seq_1_to_3000";

/// Wrong create options: the server has no key.
fn require_no_key(server: &Server) {
    let mut conn = server.connect().unwrap();
    for format in ["COMPRESSED", "DYNAMIC"] {
        let made = execute(&mut conn, &format!("{TABLE} ROW_FORMAT={format}"));
        let message = made.map_err(|error| error.to_string()).unwrap_err();
        assert!(message.contains("1005") && message.contains("140"), "{message}");
    }
}

fn require_named(server: &Server) {
    let log = log(server);
    let parts = ["[ERROR]", "[redoubt]", FILE_KEY_MANAGEMENT, "--clear-pages"];
    assert!(log.lines().any(|line| parts.iter().all(|part| line.contains(part))), "{log}");
}

#[test]
fn a_key_plugin_of_any_name_is_refused_and_no_encrypted_table_is_made() {
    let node = new_node();
    let plugin = KeyPlugin::named("house_keys").unwrap();
    let mut server = create(plugin.on(small(node.launcher(VOLUME, Verify::All))), &node);
    sql(&server, &["CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=InnoDB"]);
    require_no_key(&server);
    require_named(&server);
    sql(&server, &["INSERT INTO d.t VALUES (1)"]);
    server.shutdown().unwrap();
}

#[test]
fn a_key_plugin_is_not_installed_later_nor_loaded_because_it_was_installed() {
    let node = new_node();
    let plugin = KeyPlugin::new().unwrap();
    let mut config = small(node.launcher_with(VOLUME, Verify::All, &["--clear-pages"]));
    config.server_args.extend(plugin.places());
    let mut server = create(config, &node);
    sql(&server, &["CREATE DATABASE d", "INSTALL SONAME 'file_key_management'", TABLE, ROWS]);
    server.shutdown().unwrap();

    // Now `mysql.plugin` names it, and no option does.
    server.config_mut().launcher = node.launcher(VOLUME, Verify::All);
    server.start().unwrap();
    require_named(&server);
    let mut conn = server.connect().unwrap();
    // The pages are in clear, but a server without the key does not get them: it could not encrypt its writes.
    execute(&mut conn, "SELECT COUNT(*) FROM d.s").unwrap_err();
    let parts = ["[redoubt]", "d/s.ibd", "is encrypted and is not opened", "--clear-pages"];
    assert!(
        log(&server).lines().any(|line| parts.iter().all(|part| line.contains(part))),
        "{}",
        log(&server)
    );
    let refused = execute(&mut conn, "INSTALL SONAME 'file_key_management'").unwrap_err().to_string();
    assert!(refused.contains("redoubt run --clear-pages"), "{refused}");
    // Other plugins are allowed.
    sql(&server, &["CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=InnoDB", "INSERT INTO d.t VALUES (1)"]);
    server.shutdown().unwrap();

    server.config_mut().launcher = node.launcher_with(VOLUME, Verify::All, &["--clear-pages"]);
    server.start().unwrap();
    assert_eq!(server.query("SELECT COUNT(*) FROM d.s").unwrap(), [["3000"]]);
    server.shutdown().unwrap();
}

#[test]
fn options_are_refused_by_name_and_an_encrypted_log_always() {
    let node = new_node();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("my.cnf");
    std::fs::write(&file, "[mariadbd]\nplugin_load_add=file_key_management\n").unwrap();
    let file = format!("--defaults-file={}", file.display());
    let cases: [(&[&str], &str, &[&str]); 5] = [
        (&[], file.as_str(), &[FILE_KEY_MANAGEMENT, "--clear-pages"]),
        (&[], "--plugin-load=file_key_management.so", &[FILE_KEY_MANAGEMENT, "--clear-pages"]),
        (&[], "--innodb-encrypt-tables=FORCE", &["innodb_encrypt_tables=FORCE", "--clear-pages"]),
        (&[], "--innodb-encrypt-log", &["innodb_encrypt_log=ON", "Set innodb_encrypt_log=OFF"]),
        (
            &["--clear-pages"],
            "--innodb-encrypt-log",
            &["innodb_encrypt_log=ON", "Set innodb_encrypt_log=OFF"],
        ),
    ];
    let (address, datadir) = (node.address().to_string(), directory.path().join("data"));
    for (run_options, option, parts) in cases {
        let first = ["run", "--node", &address, "--volume", VOLUME, "--datadir", datadir.to_str().unwrap()];
        let args = [&first, run_options, &["--", "mariadbd", option]].concat();
        Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap().require_failure(1, parts).unwrap();
    }
}

/// Imports of this directory are refused with these words.
fn require_no_import(node: &Node, datadir: &Path, parts: &[&str]) {
    let address = node.address().to_string();
    let args = ["volume", "import", "taken", "--from", datadir.to_str().unwrap(), "--node", &address];
    Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap().require_failure(1, parts).unwrap();
}

#[test]
fn an_import_of_encrypted_files_or_of_an_encrypted_log_is_refused_by_name() {
    let node = new_node();
    let plugin = KeyPlugin::new().unwrap();
    for format in ["ROW_FORMAT=COMPRESSED", "PAGE_COMPRESSED=1", "ROW_FORMAT=DYNAMIC"] {
        for checksum in ["full_crc32", "crc32"] {
            let config = small(Launcher::Stock).innodb_arg(format!("--innodb-checksum-algorithm={checksum}"));
            let mut stock = Server::create(plugin.on(config)).unwrap();
            sql(&stock, &["CREATE DATABASE d", &format!("{TABLE} {format}"), ROWS]);
            stock.shutdown().unwrap();
            require_no_import(&node, &stock.datadir(), &["d/s.ibd", "encrypted", "ENCRYPTED=NO"]);
        }
    }
    let config = plugin.on(small(Launcher::Stock)).server_arg("--innodb-encrypt-log=ON");
    let mut stock = Server::create(config).unwrap();
    sql(&stock, &["CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=InnoDB"]);
    stock.kill9().unwrap();
    require_no_import(&node, &stock.datadir(), &["redo log is encrypted", "innodb_encrypt_log=OFF"]);
}

#[test]
fn an_encrypted_tablespace_is_not_imported_into_a_table_and_one_in_clear_is() {
    let plugin = KeyPlugin::new().unwrap();
    let mut donor = Server::create(plugin.on(small(Launcher::Stock))).unwrap();
    let plain = TABLE.replace("d.s ", "d.p ").replace("YES", "NO");
    let rows = ROWS.replace("d.s ", "d.p ");
    sql(&donor, &["CREATE DATABASE d", TABLE, ROWS, &plain, &rows]);
    let copies = tempfile::tempdir().unwrap();
    let mut conn = donor.connect().unwrap();
    execute(&mut conn, "FLUSH TABLES d.s, d.p FOR EXPORT").unwrap();
    for name in ["s.ibd", "s.cfg", "p.ibd", "p.cfg"] {
        std::fs::copy(donor.datadir().join("d").join(name), copies.path().join(name)).unwrap();
    }
    drop(conn);
    donor.shutdown().unwrap();

    let node = new_node();
    let launcher = node.launcher_with(VOLUME, Verify::All, &["--clear-pages"]);
    let mut server = create(plugin.on(small(launcher)), &node);
    sql(&server, &["CREATE DATABASE d", TABLE, &plain]);
    let mut conn = server.connect().unwrap();
    for table in ["s", "p"] {
        execute(&mut conn, &format!("ALTER TABLE d.{table} DISCARD TABLESPACE")).unwrap();
        for ending in ["ibd", "cfg"] {
            let name = format!("{table}.{ending}");
            std::fs::copy(copies.path().join(&name), server.datadir().join("d").join(name)).unwrap();
        }
    }
    let refused = execute(&mut conn, "ALTER TABLE d.s IMPORT TABLESPACE").unwrap_err().to_string();
    println!("{refused}");
    let log = log(&server);
    let parts = ["[redoubt]", "d/s.ibd", "encrypted", "ENCRYPTED=NO"];
    assert!(log.lines().any(|line| parts.iter().all(|part| line.contains(part))), "{log}");
    sql(&server, &["ALTER TABLE d.p IMPORT TABLESPACE"]);
    assert_eq!(server.query("SELECT COUNT(*) FROM d.p").unwrap(), [["3000"]]);
    server.kill9().unwrap();
    server.empty_data_directory().unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\n{}", node.log_tail(20)));
    assert_eq!(server.query("SELECT COUNT(*) FROM d.p").unwrap(), [["3000"]]);
    sql(&server, &["DROP TABLE d.s", TABLE, ROWS]);
    server.shutdown().unwrap();
}

#[test]
fn encrypted_files_that_are_not_innodbs_need_no_word() {
    let node = new_node();
    let plugin = KeyPlugin::new().unwrap();
    let launcher = node.launcher_with(VOLUME, Verify::All, &["--clear-pages"]);
    let mut config = plugin.on(small(launcher));
    for option in [
        "--aria-encrypt-tables=ON",
        "--encrypt-tmp-disk-tables=ON",
        "--encrypt-tmp-files=ON",
        "--innodb-encrypt-temporary-tables=ON",
        "--log-bin=binary",
        "--encrypt-binlog=ON",
    ] {
        config.server_args.push(option.to_owned());
    }
    let mut server = create(config, &node);
    sql(
        &server,
        &[
            "CREATE DATABASE d",
            "CREATE TABLE d.a (id INT PRIMARY KEY, b VARCHAR(200)) ENGINE=Aria ROW_FORMAT=PAGE",
            "INSERT INTO d.a SELECT seq, REPEAT(MD5(seq), 5) FROM d.seq_1_to_3000",
            "CREATE TEMPORARY TABLE d.t (id INT PRIMARY KEY, b VARCHAR(200)) ENGINE=InnoDB",
            "INSERT INTO d.t SELECT seq, REPEAT(MD5(seq), 5) FROM d.seq_1_to_3000",
            TABLE,
            ROWS,
        ],
    );
    // An Aria table is flushed before a kill can take nothing from it.
    sql(&server, &["FLUSH TABLES"]);
    let aria = std::fs::read(server.datadir().join("d/a.MAD")).unwrap();
    assert!(aria.len() > 100_000 && !aria.windows(8).any(|bytes| bytes == b"c4ca4238"), "MD5 of 1 in clear");
    server.kill9().unwrap();
    server.empty_data_directory().unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\n{}", node.log_tail(20)));
    for table in ["a", "s"] {
        assert_eq!(server.query(&format!("SELECT COUNT(*) FROM d.{table}")).unwrap(), [["3000"]], "{table}");
        assert_eq!(
            server.query(&format!("CHECK TABLE d.{table} EXTENDED")).unwrap().last().unwrap()[3],
            "OK"
        );
    }
    let events = server.query("SHOW BINLOG EVENTS IN 'binary.000002' LIMIT 3").unwrap();
    assert!(events.iter().flatten().any(|word| word.contains("encrypt")), "{events:?}");
    server.shutdown().unwrap();
}
